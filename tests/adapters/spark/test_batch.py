"""The tasks of a batch read."""

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from kafka_async import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kafka_async.adapters.spark.batch import plan_batch
from kafka_async.errors import DataLossError, KafkaConfigurationError

from .support import A0, A1, B0, Cluster, lookup, options

Found = dict[TopicPartition, tuple[int, int]]


def cluster() -> Cluster:
    return Cluster(logs={A0: (3, 10), A1: (0, 20), B0: (0, 5)})


def planned(given: dict[str, str], there: Cluster | None = None) -> Found:
    settings = options(**given)
    tasks = plan_batch(settings, lookup(there or cluster(), settings))
    return {piece.partition: (piece.start, piece.end) for task in tasks for piece in task}


def test_a_batch_reads_from_the_beginning_to_the_end() -> None:
    assert planned({}) == {A0: (3, 10), A1: (0, 20)}


def test_a_batch_reads_what_its_options_say() -> None:
    given = {"startingOffsets": '{"a":{"0":5,"1":-2}}', "endingOffsets": '{"a":{"0":-1,"1":7}}'}
    assert planned(given) == {A0: (5, 10), A1: (0, 7)}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {A0, A1}),
        ({"startingOffsets": '{"a":{"0":5,"1":-2}}'}, {A1}),
        ({"startingTimestamp": "5"}, set()),
        ({"startingOffsets": "committed", "commitGroup": "g"}, {A1}),
    ],
    ids=["default", "one", "time", "not committed"],
)
def test_tasks_know_which_ranges_were_to_begin_where_their_logs_do(given: dict[str, str], found: set[TopicPartition]) -> None:
    there = cluster()
    there.times = {A0: OffsetAndTimestamp(8, 100), A1: OffsetAndTimestamp(0, 100)}
    there.committed = {A0: OffsetAndMetadata(3)}
    settings = options(**given, minPartitions="6")
    pieces = [piece for task in plan_batch(settings, lookup(there, settings)) for piece in task]
    assert len(pieces) == 6
    assert {piece.partition for piece in pieces if piece.earliest} == found


def test_tasks_know_which_topic_their_offsets_are_of() -> None:
    there = cluster()
    there.ids = {"b": 2}
    settings = options(subscribe="a,b", minPartitions="5")
    pieces = [piece for task in plan_batch(settings, lookup(there, settings)) for piece in task]
    assert len(pieces) >= 5
    assert {(piece.partition, piece.topic_id.int) for piece in pieces} == {(A0, 1), (A1, 1), (B0, 2)}


def test_a_topic_that_is_deleted_while_a_batch_is_planned_is_named_or_left_out() -> None:
    def deleted() -> Cluster:
        there = cluster()
        there.on_topics = lambda: there.logs.pop(B0, None)
        return there

    with pytest.raises(DataLossError, match="b-0: deleted while"):
        planned({"subscribe": "a,b"}, there=deleted())
    assert planned({"subscribe": "a,b", "failOnDataLoss": "false"}, there=deleted()) == {A0: (3, 10), A1: (0, 20)}


@pytest.mark.parametrize(
    ("option", "found"), [("startingTimestamp", {A1: (8, 20)}), ("endingTimestamp", {A0: (3, 10), A1: (0, 8)})]
)
def test_a_record_that_comes_while_a_batch_is_planned_is_not_part_of_it(option: str, found: Found) -> None:
    """The ends are looked up before the times."""
    there = cluster()
    there.times = {A0: OffsetAndTimestamp(12, 100), A1: OffsetAndTimestamp(8, 100)}
    assert planned({option: "5"}, there) == found


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"endingOffsets": '{"a":{"0":9,"1":20}}'}, {A0: (3, 9), A1: (0, 20)}),
        ({"startingOffsets": '{"a":{"0":8,"1":19}}'}, {A0: (8, 10), A1: (19, 20)}),
        ({"startingOffsets": "committed", "commitGroup": "g"}, {A0: (8, 10), A1: (19, 20)}),
        ({"startingTimestamp": "5"}, {A0: (8, 10), A1: (19, 20)}),
        ({"endingTimestamp": "5"}, {A0: (3, 8), A1: (0, 19)}),
    ],
)
def test_an_end_below_what_the_options_say_is_asked_for_again(given: dict[str, str], found: Found, strict: str) -> None:
    there = cluster()
    there.stale = [7]
    there.times = {A0: OffsetAndTimestamp(8, 100), A1: OffsetAndTimestamp(19, 100)}
    there.committed = {A0: OffsetAndMetadata(8), A1: OffsetAndMetadata(19)}
    assert planned(given | {"failOnDataLoss": strict}, there) == found


def test_a_log_that_ends_before_it_begins_is_asked_for_again_and_then_lost() -> None:
    there = cluster()
    there.stale = [2]
    assert planned({}, there) == {A0: (3, 10), A1: (0, 2)}, "only what contradicts something is asked for again"
    there.stale = [2] * 9
    with pytest.raises(DataLossError, match="a-0: the brokers say that its log ends before it begins"):
        planned({}, there)
    there.stale = [2] * 9
    assert planned({"failOnDataLoss": "false"}, there) == {A1: (0, 2)}


def test_a_batch_of_nothing_has_no_task() -> None:
    assert planned({"subscribePattern": "x.*"}) == {}
    assert planned({"startingOffsets": '{"a":{"0":10,"1":20}}'}) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": '{"a":{"0":1,"1":0}}'}, "offsets 1 to 2 of a-0 are gone: its log begins at 3"),
        ({"endingOffsets": '{"a":{"0":15,"1":20}}'}, "offsets 10 to 14 of a-0 are not there: its log ends at 10"),
    ],
)
def test_offsets_that_are_not_in_the_log_are_named_or_left_out(given: dict[str, str], message: str) -> None:
    with pytest.raises(DataLossError, match=message):
        planned(given)
    assert planned(given | {"failOnDataLoss": "false"}) == {A0: (3, 10), A1: (0, 20)}


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": '{"a":{"0":11,"1":0}}'}, "startingOffsets: 11 of a-0 is above its end, 10"),
        (
            {"startingOffsets": '{"a":{"0":9,"1":0}}', "endingOffsets": '{"a":{"0":4,"1":20}}'},
            "9 of a-0 is above endingOffsets, 4: the resolved start offset is greater than the resolved end offset",
        ),
        ({"endingOffsets": '{"a":{"0":2,"1":20}}'}, "startingOffsets: 3 of a-0 is above endingOffsets, 2"),
        (
            {"startingOffsets": '{"a":{"0":9,"1":0}}', "endingTimestamp": "5"},
            "9 of a-0 is above endingTimestamp, 8",
        ),
        (
            {"startingOffsets": "committed", "commitGroup": "g", "endingOffsets": '{"a":{"0":6,"1":20}}'},
            "startingOffsets: 7 of a-0 is above endingOffsets, 6",
        ),
        (
            {"startingTimestamp": "5", "endingOffsets": '{"a":{"0":7,"1":20}}'},
            "startingTimestamp: 8 of a-0 is above endingOffsets, 7",
        ),
    ],
)
def test_offsets_that_contradict_each_other_are_named_once_they_are_known(given: dict[str, str], message: str, strict: str) -> None:
    there = cluster()
    there.times = {A0: OffsetAndTimestamp(8, 100), A1: OffsetAndTimestamp(19, 100)}
    there.committed = {A0: OffsetAndMetadata(7), A1: OffsetAndMetadata(7)}
    with pytest.raises(KafkaConfigurationError, match=message):
        planned(given | {"failOnDataLoss": strict}, there)


def test_a_range_that_is_gone_as_a_whole_is_lost_and_not_impossible() -> None:
    there = Cluster(logs={A0: (50, 100), A1: (0, 20)})
    given = {"startingOffsets": '{"a":{"0":10,"1":0}}', "endingOffsets": '{"a":{"0":20,"1":20}}'}
    with pytest.raises(DataLossError, match="offsets 10 to 49 of a-0 are gone"):
        planned(given, there)
    assert planned(given | {"failOnDataLoss": "false"}, there) == {A1: (0, 20)}
