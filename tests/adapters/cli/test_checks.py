"""``top`` as a check: the code that it ends with, from what a poll has found."""

from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("typer")

from kafka_async.adapters.cli.top import exit_code
from kafka_async.adapters.monitor import BrokerView, Status
from tests.adapters.web.views import group, part, snapshot

STOPPED = group("billing", part("orders", 7, status=Status.STOP, lag=90), status=Status.STOP)
SLOW = group("mailer", part("jobs", 0, status=Status.WARN, lag=9), status=Status.WARN)
UNKNOWN = group("lost", part("log", 0, lag=None, status=Status.UNKNOWN), status=Status.UNKNOWN)
FINE = group("audit", part("log", 1))
SILENT = BrokerView(node_id=2, address="b2:9092", rack=None, leads=0, age_seconds=9.0, note="no answer")


@pytest.mark.parametrize(
    ("groups", "names", "changes", "code"),
    [
        ((FINE,), (), {}, 0),
        ((FINE, UNKNOWN), (), {}, 3),
        ((FINE, UNKNOWN, SLOW), (), {}, 1),
        ((FINE, UNKNOWN, SLOW, STOPPED), (), {}, 2),
        ((FINE,), ("audit",), {}, 0),
        ((FINE,), ("audit", "billing"), {}, 3),  # nothing is known of it, or it has nothing of the topic
        ((STOPPED,), ("audit", "billing"), {}, 2),
        ((FINE,), ("audit", "typo"), {"missing": ("typo",)}, 3),
        ((), (), {"lacks_topic": True}, 3),
        ((FINE,), (), {"cluster": evolve(snapshot().cluster, brokers=(SILENT,))}, 3),
    ],
)
def test_a_check_is_well_only_if_all_that_was_asked_for_is_known_to_be(
    groups: tuple[Any, ...], names: tuple[str, ...], changes: dict[str, Any], code: int
) -> None:
    assert exit_code(snapshot(*groups, **changes), names) == code
