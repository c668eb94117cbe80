"""The offsets of a streaming read."""

import json
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from attrs import evolve, frozen
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from kafka_async import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kafka_async.adapters.spark.lag import lag
from kafka_async.adapters.spark.stream import StreamReader
from kafka_async.adapters.spark.task import TaskReader
from kafka_async.adapters.values.formats import StringDecoder
from kafka_async.errors import (
    CoordinatorNotAvailableError,
    DataLossError,
    GroupAuthorizationFailedError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)

from .queries import A2, ALL, Query, cluster, ended
from .support import A0, A1, B0, Cluster, options


def test_a_start_at_the_end_loses_nothing_however_often_spark_asks() -> None:
    there = cluster()
    query = Query(there)
    first = query.reader.initialOffset()
    there.logs[A0] = (0, 15)
    end = query.latest(first)
    there.logs[A0] = (0, 90)
    again = query.reader.initialOffset()
    assert query.ranges(again, end) == {}
    after = query.latest(end)
    assert query.ranges(end, after) == {A0: (15, 90)}

    # The first batch was planned and not finished; another process goes on from what Spark kept.
    restarted = Query(there)
    assert restarted.ranges(restarted.reader.initialOffset(), end) == {}


def test_the_first_batch_begins_where_it_did_before_a_restart() -> None:
    there = cluster()
    query = Query(there)
    query.reader.initialOffset()
    forms: list[dict[str, Any]] = [{"__initial__/a/0=10,1=20": {}}, {"__initial__/a": {"0": 10, "1": 20}}]  # the second is older
    for kept in forms:
        assert query.ranges(query.reader.initialOffset(), {"a": {"0": 12, "1": 20}} | kept) == {A0: (10, 12)}


@pytest.mark.parametrize(
    "kept",
    ["__initial__/a/0", "__initial__/a/0=x", "__initial__/a/x=1", "__initial__/a/0=1,", "__away__/a:1/0=x", "__topics__/a:1/c"],
)
def test_a_beginning_that_is_none_is_refused(kept: str) -> None:
    query = Query(cluster())
    with pytest.raises(KafkaConfigurationError, match="checkpoint"):
        query.ranges(query.reader.initialOffset(), {"a": {"0": 12, "1": 20}, kept: {}})


def test_from_the_second_batch_on_offsets_are_those_of_sparks_own_connector() -> None:
    query = Query(cluster(), startingOffsets="earliest")
    first = query.latest(query.reader.initialOffset(), ReadMaxRows(6))
    assert first == ended({"a": {"0": 2, "1": 4}, "__initial__/a/0=0,1=0": {}})
    assert query.latest(first, ReadMaxRows(6)) == ended({"a": {"0": 4, "1": 8}})


def test_an_end_that_did_not_move_is_the_start_to_the_letter() -> None:
    query = Query(cluster(), startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset())
    assert json.dumps(query.latest(end)) == json.dumps(end)


def test_checkpoints_of_sparks_own_connector_are_gone_on_from() -> None:
    query = Query(cluster())
    assert query.ranges({"a": {"0": 4, "1": 20}}, query.latest({"a": {"0": 4, "1": 20}})) == {A0: (4, 10)}


def test_a_first_batch_of_sparks_own_connector_begins_where_the_options_say() -> None:
    planned = {"a": {"0": 6, "1": 9}}
    earliest = Query(cluster(), startingOffsets="earliest")
    assert earliest.ranges(earliest.reader.initialOffset(), planned) == {A0: (0, 6), A1: (0, 9)}
    latest = Query(cluster())
    with pytest.raises(DataLossError, match="a-0, a-1: the checkpoint does not say where its first batch begins"):
        latest.ranges(latest.reader.initialOffset(), planned)
    lenient = Query(cluster(), failOnDataLoss="false")
    assert lenient.ranges(lenient.reader.initialOffset(), planned) == {}


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({}, "a-0, a-1"),
        ({"startingOffsets": '{"a":{"0":10,"1":-1,"2":-1}}'}, "a-1"),
        ({"startingOffsets": "committed", "commitGroup": "g"}, "a-0, a-1"),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}, "a-0, a-1"),
        ({"startingTimestamp": "5"}, ""),
        ({"startingOffsets": '{"a":{"0":10,"1":20,"2":30}}'}, ""),
    ],
)
def test_a_first_batch_of_sparks_own_connector_may_have_begun_before_the_end_that_nothing_has_moved_since(
    given: dict[str, str], refused: str
) -> None:
    there = Cluster(logs={A0: (0, 10), A1: (0, 20), A2: (30, 30)})
    there.committed = {A0: OffsetAndMetadata(10), A1: OffsetAndMetadata(20)}
    there.times = {A0: OffsetAndTimestamp(10, 5), A1: OffsetAndTimestamp(20, 5), A2: OffsetAndTimestamp(30, 5)}
    query, planned = Query(there, **given), {"a": {"0": 10, "1": 20, "2": 30}}
    if refused:
        with pytest.raises(DataLossError, match=f"^{refused}: the checkpoint does not say where its first batch begins"):
            query.ranges(query.reader.initialOffset(), planned)
    else:
        assert query.ranges(query.reader.initialOffset(), planned) == {}


@pytest.mark.parametrize(
    ("starting", "begin"),
    [
        ({}, 23),
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": '{"a":{"0":2,"1":7}}'}, 7),
        ({"startingOffsets": '{"a":{"0":2,"1":90}}'}, 23),
        ({"startingOffsets": '{"a":{"0":2,"1":-2}}'}, 0),
        ({"startingOffsets": '{"a":{"0":2,"1":-1}}'}, 23),
        ({"startingTimestamp": "5"}, 23),
    ],
)
@pytest.mark.parametrize("planned_again", [False, True])
def test_a_partition_that_is_missing_from_a_first_batch_of_sparks_own_connector_begins_where_the_options_say(
    starting: dict[str, str], begin: int, planned_again: bool
) -> None:
    there = Cluster(logs={A0: (0, 12)}, times={A0: OffsetAndTimestamp(2, 5)})
    planned = {"a": {"0": 12, "1": 23}}
    with pytest.raises(DataLossError):
        Query(there, **starting).ranges(Query(there).reader.initialOffset(), planned)
    query = Query(there, failOnDataLoss="false", **starting)
    start = query.reader.initialOffset()
    assert A1 not in query.ranges(start, planned)
    there.logs[A1] = (0, 25)
    if planned_again:
        query.now += 10.0
        assert query.ranges(start, planned).get(A1) == ((begin, 23) if begin < 23 else None)
        begin = 23
    assert query.ranges(planned, query.latest(planned)) == {A1: (begin, 25)}


def test_partitions_that_came_after_a_first_batch_of_sparks_own_connector_are_read_with_the_next() -> None:
    query, planned = Query(cluster(), startingOffsets="earliest"), {"a": {"0": 6}}
    assert query.ranges(query.reader.initialOffset(), planned) == {A0: (0, 6)}
    assert query.ranges(planned, query.latest(planned)) == {A0: (6, 10), A1: (0, 20)}


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": '{"a":{"0":2}}'},
        {"startingOffsets": '{"a":{"0":2,"1":7}}'},
        {"startingOffsetsByTimestamp": '{"a":{"0":5}}'},
        {"startingTimestamp": "5"},
    ],
)
def test_the_start_of_partitions_that_came_after_a_first_batch_of_sparks_own_connector_need_not_be_known(
    given: dict[str, str], available_now: bool
) -> None:
    there = cluster()
    there.times = {A0: OffsetAndTimestamp(2, 5)}
    query, planned = Query(there, **given), {"a": {"0": 6}}
    if available_now:
        query.reader.prepareForTriggerAvailableNow()
    for _ in range(2):
        assert query.ranges(query.reader.initialOffset(), planned) == {A0: (2, 6)}
    assert query.ranges(planned, query.latest(planned)) == {A0: (6, 10), A1: (0, 20)}


def test_the_start_of_each_partition_of_a_first_batch_of_sparks_own_connector_must_be_known() -> None:
    query = Query(cluster(), startingOffsets='{"a":{"0":2}}')
    with pytest.raises(KafkaConfigurationError, match="no offset is given for a-1"):
        query.ranges(query.reader.initialOffset(), {"a": {"0": 6, "1": 9}})


def test_new_partitions_are_read_from_their_beginning() -> None:
    there = cluster()
    query = Query(there, subscribePattern="[ab]")
    end = query.latest(query.reader.initialOffset())
    there.logs[B0] = (0, 7)
    after = query.latest(end, ReadMaxRows(100))
    assert after == ended({"a": {"0": 10, "1": 20}, "b": {"0": 7}})
    assert query.ranges(end, after) == {B0: (0, 7)}


def test_a_new_partition_that_does_not_begin_at_0_may_have_lost_records() -> None:
    there = cluster()
    query = Query(there, subscribePattern="[ab]")
    end = query.latest(query.reader.initialOffset())
    there.logs[B0] = (3, 7)
    after = query.latest(end)
    with pytest.raises(DataLossError, match="b-0 is new and begins at offset 3, not at 0"):
        query.ranges(end, after)


START = {"a": {"0": 4, "1": 20}}


@pytest.mark.parametrize(
    ("logs", "message", "tolerated"),
    [
        ({A0: (6, 10), A1: (0, 20)}, "offsets 4 to 5 of a-0 are gone: its log begins at 6", {A0: (6, 10)}),
        ({A0: (10, 10), A1: (0, 20)}, "offsets 4 to 9 of a-0 are gone: its log begins at 10", {}),
        ({A0: (0, 2), A1: (0, 20)}, "a-0 was read up to offset 4 and ends at 2 now", {}),
        ({A0: (0, 10)}, "a-1 up to offset 20: was read before, but no longer exists or is no longer subscribed", {A0: (4, 10)}),
    ],
)
def test_lost_offsets_are_named_or_left_out(
    logs: dict[TopicPartition, tuple[int, int]], message: str, tolerated: dict[TopicPartition, tuple[int, int]]
) -> None:
    strict, lenient = Query(Cluster(logs=logs)), Query(Cluster(logs=logs), failOnDataLoss="false")
    with pytest.raises(DataLossError, match=message):
        strict.ranges(START, strict.latest(START))
    assert lenient.ranges(START, lenient.latest(START)) == tolerated


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize("times", [1, 2, 4, 9])
def test_an_end_below_what_was_read_is_asked_for_again(times: int, strict: str, available_now: bool) -> None:
    there = cluster()
    query = Query(there, failOnDataLoss=strict)
    start = {"a": {"0": 10, "1": 20}}
    there.stale, there.logs[A0] = [7] * times, (0, 15)
    if available_now:
        query.reader.prepareForTriggerAvailableNow()
    if strict == "true" and times >= 3:
        with pytest.raises(DataLossError, match="a-0 was read up to offset 10 and ends at 7 now"):
            query.latest(start)
        there.stale.clear()
        if available_now:
            query.reader.prepareForTriggerAvailableNow()
    end = query.latest(start)
    assert end == ended({"a": {"0": 15, "1": 20}})
    assert query.ranges(start, end) == {A0: (10, 15)}
    assert query.reader.reportLatestOffset() == {"a": {"0": 15, "1": 20}}


def test_a_first_batch_begins_within_what_the_log_holds() -> None:
    there = Cluster(logs={A0: (50, 100), A1: (0, 20)})
    there.stale = [30]
    query = Query(there, startingOffsets="earliest")
    first = query.reader.initialOffset()
    assert query.ranges(first, query.latest(first)) == {A0: (50, 100), A1: (0, 20)}


def test_how_often_an_end_is_asked_for_is_an_option() -> None:
    there = cluster()
    query = Query(there, fetchOffset__numRetries="5")
    there.stale = [7] * 4
    assert query.latest({"a": {"0": 10, "1": 20}}) == {"a": {"0": 10, "1": 20}}
    there.stale = [7] * 5
    with pytest.raises(DataLossError):
        query.latest({"a": {"0": 10, "1": 20}})


def test_a_partition_that_became_shorter_is_gone_on_from_its_end(caplog: pytest.LogCaptureFixture) -> None:
    there = cluster()
    query = Query(there, failOnDataLoss="false")
    start = {"a": {"0": 15, "1": 20}}
    end = query.latest(start)
    assert end == ended({"a": {"0": 10, "1": 20}})
    assert query.ranges(start, end) == {}
    assert query.latest(end) == end, "a batch for nothing"
    there.logs[A0] = (0, 12)
    after = query.latest(end)
    assert query.ranges(end, after) == {A0: (10, 12)}
    assert caplog.text.count("was read up to offset 15") == 1


def test_a_start_above_the_end_reads_what_comes_from_the_end_on() -> None:
    there = cluster()
    query = Query(there, failOnDataLoss="false", startingOffsets='{"a":{"0":100,"1":20}}')
    first = query.reader.initialOffset()
    end = query.latest(first)
    assert query.ranges(first, end) == {}
    there.logs[A0] = (0, 11)
    assert query.ranges(end, query.latest(end)) == {A0: (10, 11)}


def test_available_now_ends_if_a_partition_became_shorter() -> None:
    query = Query(cluster(), failOnDataLoss="false")
    query.reader.prepareForTriggerAvailableNow()
    start = {"a": {"0": 15, "1": 20}}
    end = query.latest(start, ReadMaxRows(7))
    assert query.ranges(start, end) == {}
    assert query.latest(end, ReadMaxRows(7)) == end


def test_every_end_can_be_read_by_what_reads_offsets() -> None:
    query = Query(cluster(), startingOffsets="earliest")
    start = query.reader.initialOffset()
    for end in (start, query.latest(start, ReadMaxRows(6))):
        assert all(number.isdecimal() and type(offset) is int for parts in end.values() for number, offset in dict(parts).items())


@frozen(kw_only=True)
class Keeping(StringDecoder):
    """Keeps whatever schema a checkpoint names."""

    schema: str

    @property
    def kept(self) -> str:
        return self.schema

    def keeping(self, kept: str) -> "Keeping":
        return evolve(self, schema=kept or self.schema)


@pytest.mark.parametrize("part", ["value", "key"])
def test_the_schema_that_a_stream_began_with_is_kept(part: str) -> None:
    def decoder(schema: str) -> Keeping:
        return Keeping(columns=(), part=part, schema=schema)

    there = cluster()
    query = Query(there, decoder("id=1,version=1"), startingOffsets="earliest")
    first = query.latest(query.reader.initialOffset())
    entry: dict[str, Any] = {f"__schema__/{part}/id=1,version=1": {}}
    assert first == ended({"a": {"0": 10, "1": 20}, "__initial__/a/0=0,1=0": {}} | entry)
    later = Query(there, decoder("id=2,version=2"))
    assert later.latest(first) == first, "a batch for nothing"
    assert [task.value[1] for task in later.reader.partitions(later.reader.initialOffset(), first)] == 2 * [
        {part: "id=1,version=1"}
    ]
    there.logs[A0] = (0, 11)
    end = later.latest(first)
    assert end == ended({"a": {"0": 11, "1": 20}} | entry)
    there.logs[A0] = (0, 12)
    assert later.latest({"a": {"0": 11, "1": 20}}) == ended({"a": {"0": 12, "1": 20}, f"__schema__/{part}/id=2,version=2": {}})
    behind = lag({"sources": [{"endOffset": end, "latestOffset": later.reader.reportLatestOffset()}]})
    assert behind is not None
    assert behind.records == 1


def test_a_topic_may_have_the_name_of_a_key() -> None:
    there = Cluster(logs={TopicPartition("__initial__", 0): (0, 3)})
    query = Query(there, subscribe="__initial__", startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset())
    assert query.ranges(query.reader.initialOffset(), end) == {TopicPartition("__initial__", 0): (0, 3)}
    assert query.latest(end) == end


def test_a_topic_that_vanishes_between_end_and_plan_is_lost_not_waited_for() -> None:
    there = cluster()
    query = Query(there, subscribePattern="a", failOnDataLoss="false")
    end = query.latest(START)
    there.logs.clear()
    query.now += 10
    assert query.ranges(START, end) == {}


@pytest.mark.parametrize("given", [{"subscribePattern": "[ab]"}, {"subscribe": "a,b"}, {"assign": '{"a":[0,1],"b":[0]}'}])
def test_a_topic_that_is_deleted_between_two_looks_at_topics_is_lost_not_waited_for(given: dict[str, str]) -> None:
    there = cluster()
    there.logs[B0] = (0, 7)
    strict, lenient = Query(there, **given), Query(there, failOnDataLoss="false", **given)
    first = {"a": {"0": 10, "1": 20}, "b": {"0": 7}}
    starts = {query: query.latest(query.reader.initialOffset()) for query in (strict, lenient)}
    del there.logs[B0]
    there.logs[A0] = (0, 15)
    for query in starts:
        query.now -= 10.0  # what was heard of topics is not a second old
    assert lenient.latest(starts[lenient]) == ended({"a": {"0": 15, "1": 20}, f"__away__/b:{UUID(int=1)}/0=7": {}})
    for failing in (lambda: strict.latest(starts[strict]), lambda: strict.ranges(first, {"a": {"0": 15, "1": 20}})):
        with pytest.raises(DataLossError, match="b-0 up to offset 7: was read before, but no longer exists"):
            failing()
    assert lenient.ranges(first, {"a": {"0": 15, "1": 20}}) == {A0: (10, 15)}
    asked = len(there.waited_ms)
    lenient.now -= 10.0
    lenient.latest({"a": {"0": 15, "1": 20}})
    assert len(there.waited_ms) == asked, "it was asked for what is known to be gone"


def test_a_topic_that_is_deleted_between_end_and_plan_is_lost_not_waited_for() -> None:
    there = cluster()
    there.logs[B0] = (0, 7)
    strict, lenient = Query(there, subscribePattern="[ab]"), Query(there, subscribePattern="[ab]", failOnDataLoss="false")
    start, end = {"a": {"0": 4, "1": 20}, "b": {"0": 3}}, {"a": {"0": 10, "1": 20}, "b": {"0": 7}}
    assert strict.latest(start) == lenient.latest(start) == ended(end)
    del there.logs[B0]
    with pytest.raises(DataLossError, match="b-0 up to offset 3: was read before, but no longer exists"):
        strict.ranges(start, end)
    assert lenient.ranges(start, end) == {A0: (4, 10)}


def test_a_checkpoint_of_another_topic_is_refused() -> None:
    query = Query(cluster())
    start = {"other": {"0": 5}}
    with pytest.raises(DataLossError, match="other-0 up to offset 5: was read before, but no longer exists or is no"):
        query.ranges(start, query.latest(start))


def test_a_checkpoint_that_is_none_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="checkpoint"):
        Query(cluster()).latest({"logOffset": 5})


def test_a_topic_that_does_not_exist_ends_the_query_before_it_begins() -> None:
    query = Query(cluster(), subscribe="a,nope")
    with pytest.raises(UnknownTopicOrPartitionError, match="nope"):
        query.latest(query.reader.initialOffset())


@pytest.mark.parametrize("given", [{"subscribe": "a"}, {"subscribe": "a,b"}, {"assign": '{"a":[0]}'}], ids=str)
def test_a_query_does_not_start_from_a_checkpoint_while_a_topic_is_missing_whatever_loss_is_allowed(given: dict[str, str]) -> None:
    there = Cluster(logs={A0: (0, 10), B0: (0, 7)})
    query = Query(there, **given, startingOffsets="earliest")
    start = query.latest(query.reader.initialOffset())
    there.logs = {B0: (0, 7)}

    with pytest.raises(UnknownTopicOrPartitionError, match=r"topics that do not exist: a$"):
        Query(there, **given, failOnDataLoss="false").latest(start)


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
    ],
)
def test_spark_gets_the_limit(given: dict[str, str], limit: Any) -> None:
    assert Query(cluster(), **given).reader.getDefaultReadLimit() == limit


def test_all_that_is_available_is_read_if_spark_asks_for_it() -> None:
    query = Query(cluster(), maxOffsetsPerTrigger="7", startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset(), ALL)
    assert query.ranges(query.reader.initialOffset(), end) == {A0: (0, 10), A1: (0, 20)}


def test_a_small_batch_waits_for_more_or_for_its_time() -> None:
    there = cluster()
    query = Query(there, minOffsetsPerTrigger="100", maxTriggerDelay="60s", startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset(), ReadMinRows(100))
    there.logs[A0] = (0, 11)
    assert query.latest(end, ReadMinRows(100)) == end
    query.now += 60
    assert query.latest(end, ReadMinRows(100)) == ended({"a": {"0": 11, "1": 20}})


def test_a_topic_that_is_deleted_and_created_again_while_a_small_batch_waits_is_lost() -> None:
    there = cluster()
    there.logs[B0] = (0, 7)
    query = Query(there, subscribePattern="[ab]", minOffsetsPerTrigger="100", startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset(), ReadMinRows(100))
    there.logs[B0] = (0, 9)
    assert query.latest(end, ReadMinRows(100)) == end
    del there.logs[B0]
    assert query.latest(end, ReadMinRows(100)) == end
    there.logs[B0], there.ids = (0, 200), {"b": 2}
    with pytest.raises(DataLossError, match="'b' was deleted and created again"):
        query.latest(end, ReadMinRows(100))


def test_available_now_ends_where_the_topics_ended_when_it_began() -> None:
    there = cluster()
    query = Query(there, startingOffsets="earliest", subscribePattern="[ab]", minOffsetsPerTrigger="1000")
    query.reader.prepareForTriggerAvailableNow()
    there.logs |= {A0: (0, 50), B0: (0, 5)}
    start, taken = query.reader.initialOffset(), 0
    for _ in range(20):
        end = query.latest(start, ReadMaxRows(7))
        if end == start:
            break
        taken += sum(stop - first for first, stop in query.ranges(start, end).values())
        start = end
    assert start == ended({"a": {"0": 10, "1": 20}})
    assert taken == 30


@pytest.mark.parametrize("size", [3, 10, 25], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("moment", ["before the first batch", "before the second batch", "after the last plan"])
def test_a_topic_that_is_made_anew_under_available_now_is_read_whole_by_the_next_run(moment: str, size: int) -> None:
    there = Cluster(logs={A0: (0, 10), B0: (0, 10)})
    given = {"failOnDataLoss": "false", "startingOffsets": "earliest", "subscribePattern": "[ab]"}

    def run(start: dict[str, Any], made_anew_in: str = "") -> tuple[dict[str, Any], dict[TopicPartition, list[int]]]:
        taken: dict[TopicPartition, list[int]] = {A0: [], B0: []}
        query = Query(there, **given)
        query.reader.prepareForTriggerAvailableNow()
        for turn in ("before the first batch", "before the second batch", "after the last plan", *"abcdefg"):
            anew = turn == made_anew_in
            if anew and "plan" not in turn:
                there.logs[A0], there.ids = (0, size), {"a": 2}
            query.now -= 10.0 - 0.1  # what is known of topics is not a second old; latest() adds ten seconds
            end = query.latest(start, ReadMaxRows(8))
            if end == start:
                return start, taken
            for partition, (first, stop) in query.ranges(start, end).items():
                if partition != A0 or there.ids or not made_anew_in:  # else they are of the old topic
                    taken[partition] += range(first, stop)
            if anew and "plan" in turn:
                there.logs[A0], there.ids = (0, size), {"a": 2}
            start = end
        raise AssertionError("it does not end")

    last, first_run = run(Query(there, **given).reader.initialOffset(), moment)
    assert first_run == {A0: [], B0: list(range(10))}
    assert {name: ends for name, ends in last.items() if "/" not in name} == {"b": {"0": 10}}
    assert run(last)[1] == {A0: list(range(size)), B0: []}


def test_available_now_from_the_end_reads_nothing() -> None:
    there = cluster()
    query = Query(there)
    query.reader.prepareForTriggerAvailableNow()
    there.logs[A0] = (0, 50)
    end = query.latest(query.reader.initialOffset())
    assert query.ranges(query.reader.initialOffset(), end) == {}
    assert query.latest(end) == end


def test_finished_offsets_are_committed_once_the_last_batch_included() -> None:
    there = cluster()
    query = Query(there, commitGroup="g", startingOffsets="earliest")
    first = query.latest(query.reader.initialOffset())
    assert there.commits == []
    query.reader.commit(first)
    query.latest(first)
    query.latest(first)
    assert there.commits == [{A0: 10, A1: 20}]


def test_offsets_are_committed_for_the_topic_that_they_were_planned_under() -> None:
    there = cluster()
    query = Query(there, commitGroup="g", startingOffsets="earliest", failOnDataLoss="false")
    first = query.latest(query.reader.initialOffset())
    there.commit_failures = [KafkaTimeoutError("no coordinator")]
    query.reader.commit(first)
    there.logs[A0], there.ids = (0, 5), {"a": 2}
    query.now += 100.0
    second = query.latest(first)
    query.latest(second)
    assert there.commits == [{A0: 10, A1: 20}, {A0: 5, A1: 20}]
    assert [ids[A0] for ids in there.commit_ids] == [UUID(int=1), UUID(int=2)]


@pytest.mark.slow
def test_a_commit_that_failed_is_tried_again_seldom_while_the_query_goes_on() -> None:
    there = cluster()
    query = Query(there, commitGroup="g", startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset())
    there.commit_failures = [KafkaTimeoutError("no coordinator")] * 3
    tried = []
    for _ in range(2000):
        before = there.asked.count("commit")
        query.now -= 10.0 - 0.1  # latest() adds ten seconds
        assert query.latest(end) == end
        if there.asked.count("commit") > before:
            tried.append(round(query.now))
    assert [later - earlier for earlier, later in pairwise(tried)] == [5, 10, 20]
    assert there.commits == [{A0: 10, A1: 20}]


def test_a_commit_that_succeeded_makes_the_next_failure_the_first_again() -> None:
    there = cluster()
    query = Query(there, commitGroup="g", startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset())
    late = KafkaTimeoutError("no coordinator")
    there.commit_failures = [late, late]
    for _ in range(3):
        query.latest(end)
    assert there.commits == [{A0: 10, A1: 20}]
    there.logs[A0], there.commit_failures = (0, 11), [late]
    end = query.latest(end)
    query.latest(end)
    query.latest(end)
    assert there.commits[1:] == [{A0: 11, A1: 20}]


def test_finished_offsets_that_are_not_committed_yet_give_way_to_later_ones() -> None:
    there = cluster()
    query = Query(there, commitGroup="g", startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset())
    there.commit_failures = [KafkaTimeoutError("no coordinator")]
    there.logs[A0] = (0, 11)
    end = query.latest(end)
    query.latest(end)
    query.reader.commit(end)
    assert there.commits == [{A0: 11, A1: 20}]


@pytest.mark.parametrize(
    ("failures", "commits"),
    [
        ([KafkaTimeoutError("moved"), CoordinatorNotAvailableError("moved")], [{A0: 10, A1: 20}]),
        ([GroupAuthorizationFailedError("g")], []),
        ([KafkaTimeoutError("away")] * 1000, []),
    ],
    ids=["passes", "refused", "stays"],
)
def test_behind_the_last_batch_of_available_now_a_commit_is_tried_for_a_while(
    failures: list[KafkaError], commits: list[dict[TopicPartition, int]]
) -> None:
    there = cluster()
    query = Query(there, commitGroup="g", startingOffsets="earliest")
    query.reader.prepareForTriggerAvailableNow()
    end = query.latest(query.reader.initialOffset())
    there.commit_failures = list(failures)
    assert query.latest(end) == end
    assert there.commits == commits
    assert there.asked.count("commit") <= 15


def test_behind_the_last_batch_of_available_now_a_commit_is_tried_for_a_while_if_a_partition_is_missing_too() -> None:
    there = cluster()
    query = Query(there, commitGroup="g", startingOffsets="earliest", failOnDataLoss="false")
    query.reader.prepareForTriggerAvailableNow()
    del there.logs[A1]
    end = query.latest(query.reader.initialOffset())
    there.commit_failures = [CoordinatorNotAvailableError("moved")]
    assert query.latest(end) == end
    assert there.commits == [{A0: 10}]


def test_nothing_is_committed_without_a_group() -> None:
    there = cluster()
    query = Query(there, kafka__group__id="g")
    query.latest(START)
    assert there.commits == []


def test_progress_names_the_end_offsets_of_the_topics() -> None:
    query = Query(cluster(), maxOffsetsPerTrigger="2")
    assert query.reader.reportLatestOffset() is None
    query.latest(START, ReadMaxRows(2))
    assert query.reader.reportLatestOffset() == {"a": {"0": 10, "1": 20}}


def test_topics_are_looked_at_once_a_second_while_nothing_comes() -> None:
    there = cluster()
    query = Query(there)
    for _ in range(15):
        query.now -= 10.0 - 0.1  # latest() adds ten seconds
        query.latest({"a": {"0": 10, "1": 20}})
    assert there.asked.count("topics") == 2
    assert there.asked.count("ends") == 15


def test_what_travels_to_executors_is_what_reads_there() -> None:
    settings = options(kafka__client__id="me")
    tasks = TaskReader(kafka=settings.reading, decoders={}, names=("key",), schema=None, fail_on_data_loss=True, poll_timeout_ms=1)
    copy = loads(dumps(StreamReader(settings, tasks)))  # type: ignore[no-untyped-call]  # Spark's own
    assert copy == tasks
    assert list(copy.read(InputPartition(None))) == []


def test_a_batch_takes_about_as_many_bytes_as_it_may() -> None:
    there = Cluster(logs={A0: (0, 1000), A1: (0, 1000)}, sizes={A0: lambda _: 100, A1: lambda _: 300})
    query = Query(there, startingOffsets="earliest", maxBytesPerTrigger="100k", maxOffsetsPerTrigger="1000")
    start, sizes = query.reader.initialOffset(), []
    for _ in range(5):
        end = query.latest(start, query.reader.getDefaultReadLimit())
        sizes.append([stop - begin for begin, stop in query.ranges(start, end).values()])
        start = end
    assert sizes[:4] == [[256, 256]] * 3 + [[232, 232]]  # 102,400 bytes, and what is left
    assert query.latest(start, query.reader.getDefaultReadLimit()) == start
    assert isinstance(Query(there, maxBytesPerTrigger="1g").reader.getDefaultReadLimit(), ReadMaxBytes)
    assert query.ranges(query.reader.initialOffset(), query.latest(query.reader.initialOffset())) == {A0: (0, 1000), A1: (0, 1000)}
