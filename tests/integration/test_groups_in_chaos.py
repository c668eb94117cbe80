"""Everything fails at random for a while (``tests.faults.chaos``): a short run of it, with the cheaper events.

``KAFKA_ASYNC_CHAOS`` gives the seconds of a longer run, of all events.
"""

import os

import pytest

from tests.brokers import KafkaCluster
from tests.faults.chaos import EVENTS, SETTLING, Turmoil, chaos

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

ASKED = os.environ.get("KAFKA_ASYNC_CHAOS")
SECONDS = float(ASKED or 18)
SHORT = (
    Turmoil.kill_broker,
    Turmoil.freeze_broker,
    Turmoil.move_leaders,
    Turmoil.cut,
    Turmoil.half_open,
    Turmoil.bad_line,
    Turmoil.bounce_member,
)


@pytest.mark.timeout(SECONDS + 4 * SETTLING)
async def test_in_chaos_nothing_is_lost_disordered_repeated_or_late(kafka_cluster3: KafkaCluster) -> None:
    outcome = await chaos(kafka_cluster3, SECONDS, events=EVENTS if ASKED else SHORT)
    assert not outcome.faults, outcome.to_json()
