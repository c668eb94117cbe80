"""The tasks of a batch read."""

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from kafka_async import OffsetAndTimestamp, TopicPartition
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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": '{"a":{"0":11,"1":0}}'}, "11 of a-0 is above its end, 10"),
        (
            {"startingOffsets": '{"a":{"0":9,"1":0}}', "endingOffsets": '{"a":{"0":4,"1":20}}'},
            "9 of a-0 is above endingOffsets, 4",
        ),
    ],
)
def test_offsets_that_contradict_each_other_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=message):
        planned(given)
