"""What fails partition by partition: when it begins, and when it is over."""

from math import inf
from typing import TypeAlias

import pytest

from kafka_async.background.positions.partition_outage import PartitionOutage
from kafka_async.errors import KafkaConnectionError, NotLeaderOrFollowerError
from kafka_async.model import TopicPartition
from kafka_async.trace import Fault, Recovered, TraceEvent

from ..support import A, B

Seen: TypeAlias = list[TraceEvent]


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
def outage(seen: Seen) -> PartitionOutage:
    return PartitionOutage(seen.append, "reading", "cannot be read")


def partitions(seen: Seen) -> list[tuple[type, set[TopicPartition]]]:
    return [(type(event), set(event.partitions)) for event in seen if isinstance(event, Fault | Recovered)]


def test_each_reason_is_one_event_and_says_what_and_why(outage: PartitionOutage, seen: Seen) -> None:
    cut, moved = KafkaConnectionError("cut"), NotLeaderOrFollowerError()
    outage.report([(cut, {A}), (moved, {B})], (), 1.0)
    named = {"text": "cannot be read", "subject": "fetch", "outage": "reading"}
    assert seen == [
        Fault(now=1.0, error=cut, partitions=frozenset((A,)), **named),
        Fault(now=1.0, error=moved, partitions=frozenset((B,)), **named),
    ]


def test_only_what_failed_recovers_and_once(outage: PartitionOutage, seen: Seen) -> None:
    outage.report([(None, {A})], {B}, 1.0)
    outage.report((), {A, B}, 2.0)
    outage.report((), {A, B}, 3.0)
    assert partitions(seen) == [(Fault, {A}), (Recovered, {A})]


def test_a_partition_that_left_does_not_recover_when_it_comes_back(outage: PartitionOutage, seen: Seen) -> None:
    outage.report([(None, {A, B})], (), 1.0)
    outage.keep({B})
    outage.report((), {A, B}, 2.0)
    assert partitions(seen) == [(Fault, {A, B}), (Recovered, {B})]


def test_what_is_not_wanted_any_more_ends_after_a_while_without_going_well(seen: Seen) -> None:
    outage = PartitionOutage(seen.append, "reading", "cannot be read", patience=5.0)
    outage.report([(None, {A, B})], (), 1.0)
    assert outage.lapse({A, B}, 20.0) == inf, "what waits for a leader does not fail, and is wanted"
    assert outage.lapse({B}, 21.0) == 26.0
    assert outage.lapse({A, B}, 24.0) == inf
    assert outage.lapse({B}, 25.0) == 30.0
    assert outage.lapse({B}, 29.0) == 30.0
    assert outage.lapse({B}, 30.0) == inf
    outage.report((), {A, B}, 31.0)
    assert seen[1:] == [
        Recovered(now=30.0, outage="reading", subject="fetch", partitions=frozenset((A,)), needed=False),
        Recovered(now=31.0, outage="reading", subject="fetch", partitions=frozenset((B,))),
    ]


def test_a_new_outage_of_what_was_not_wanted_has_its_whole_time(seen: Seen) -> None:
    outage = PartitionOutage(seen.append, "reading", "cannot be read", patience=5.0)
    outage.report([(None, {A})], (), 1.0)
    assert outage.lapse((), 2.0) == 7.0
    outage.report((), {A}, 3.0)
    outage.report([(None, {A})], (), 100.0)
    assert outage.lapse((), 101.0) == 106.0


def test_what_fails_again_and_again_is_one_outage(outage: PartitionOutage, seen: Seen) -> None:
    for now in (1.0, 2.0):
        outage.report([(None, {A})], (), now)
    outage.report((), {A}, 3.0)
    assert partitions(seen) == [(Fault, {A}), (Fault, {A}), (Recovered, {A})]
