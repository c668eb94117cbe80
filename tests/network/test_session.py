"""``kafka_async.network.session``"""

from math import inf

import pytest

from kafka_async.network.backoff import ExponentialBackoff
from kafka_async.network.session import Session


@pytest.mark.parametrize(("random", "renew_at"), [(0.0, 185.0), (0.5, 190.0), (1.0, 195.0)])
def test_a_renewal_is_due_in_the_last_part_of_the_session(random: float, renew_at: float) -> None:
    session = Session.granted(100.0, 100.0, random)
    assert (session.renew_at, session.ends_at) == (renew_at, 198.0)


@pytest.mark.parametrize("lifetime", [None, 0.0])
def test_a_session_without_a_lifetime_does_not_end(lifetime: float | None) -> None:
    session = Session.granted(lifetime, 100.0, 0.5)
    assert (session.renew_at, session.ends_at) == (inf, inf)


def test_a_session_shorter_than_brokers_take_renewals_is_renewed_at_its_end() -> None:
    session = Session.granted(0.001, 100.0, 0.5)
    assert session.renew_at == session.ends_at == 101.05


def test_the_tries_to_renew_come_at_growing_distances_and_the_last_one_at_the_end() -> None:
    session, tries = Session.granted(100.0, 0.0, 0.5), []
    while session.renew_at < session.ends_at:
        tries.append(session.renew_at)
        session.postpone(session.renew_at, ExponentialBackoff(1.0, 10.0), 0.5)
    assert tries == [90.0, 91.0, 93.0, 97.0]
    assert session.renew_at == 98.0
