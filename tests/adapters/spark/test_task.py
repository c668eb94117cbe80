"""A task on a consumer that answers from a script."""

import logging
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

import pyarrow as pa
from attrs import Factory, define, evolve
from pyspark.sql.datasource import InputPartition

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.adapters.ranges.offsets import LOOKS
from kafka_async.adapters.ranges.planner import OffsetRange, Task
from kafka_async.adapters.spark.task import TaskReader, input_partitions
from kafka_async.errors import DataLossError, KafkaTimeoutError, LogTruncationError, OffsetOutOfRangeError
from kafka_async.events import ClusterDescription
from kafka_async.records import ColumnBuilder, Columns

from .support import A0, A1, B0, Cluster

SCHEMA = pa.schema([pa.field("partition", pa.int32()), pa.field("offset", pa.int64())])
TASK = (OffsetRange(A0, 0, 10), OffsetRange(A1, 0, 5))


@define(eq=False)
class Script(Cluster):
    """Hands out what lies in the logs, and first fails as told."""

    trouble: list[Exception] = Factory(list)
    left: dict[TopicPartition, tuple[int, int]] = Factory(dict)
    assigned: list[dict[TopicPartition, tuple[int, int]]] = Factory(list)
    lease_ended: str = ""
    on_next_look: Callable[[], None] = lambda: None

    @contextmanager
    def lease(self, kafka: Mapping[str, str]) -> Iterator[Any]:
        self.lease_ended = "badly"
        yield self
        self.lease_ended = "well"

    def assign_ranges(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.left = dict(ranges)
        self.assigned.append(dict(ranges))

    def position(self, partition: TopicPartition) -> int:
        return self.left[partition][0]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.left[partition] = (offset, self.left[partition][1])

    def next_columns(
        self, wanted: Collection[str], *, batch_bytes: int | None = None, timeout_ms: float | None = None
    ) -> Columns | None:
        for partition, (start, end) in self.left.items():
            if start < end:
                if self.trouble:
                    raise self.trouble.pop(0)
                take = min(start + 4, end)
                self.left[partition] = (take, end)
                return rows(partition, range(start, take))
        return None


def rows(partition: TopicPartition, offsets: Collection[int]) -> Columns:
    into = ColumnBuilder({"offset"})
    for offset in offsets:
        into.append((offset, 0, 0, None, None, (), None, 0))
    into.end_run(*partition, len(offsets))
    return into.finish()


def test_a_reader_does_not_show_what_may_be_secret() -> None:
    tasks = TaskReader(
        kafka={"sasl_plain_password": "hunter2"},
        decoders={},
        names=(),
        schema=SCHEMA,
        fail_on_data_loss=True,
        poll_timeout_ms=1,
    )
    assert "hunter2" not in repr(tasks)


def reader(consumer: Script, *, fail: bool = True, poll_timeout_ms: int = 1, looks: int = LOOKS) -> TaskReader:
    return TaskReader(
        kafka={},
        decoders={},
        names=("partition", "offset"),
        schema=SCHEMA,
        fail_on_data_loss=fail,
        poll_timeout_ms=poll_timeout_ms,
        lease=consumer.lease,
        looks=looks,
        sleep=lambda seconds: consumer.on_next_look(),
    )


def read(consumer: Script, task: Task = TASK, **settings: Any) -> list[tuple[int, int]]:
    batches = list(reader(consumer, **settings).read(*input_partitions([task])))
    assert all(batch.schema.equals(SCHEMA) for batch in batches)
    return [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


def script(*trouble: Exception) -> Script:
    return Script(logs={A0: (0, 10), A1: (0, 5)}, trouble=list(trouble))


WHOLE = [(0, offset) for offset in range(10)] + [(1, offset) for offset in range(5)]


def test_a_task_is_read_to_its_end_and_the_consumer_is_given_back() -> None:
    consumer = script()
    assert read(consumer) == WHOLE
    assert consumer.lease_ended == "well"


def test_a_task_of_nothing_takes_no_consumer() -> None:
    consumer = script()
    assert list(reader(consumer).read(InputPartition(None))) == []
    assert consumer.lease_ended == ""


def test_a_task_that_is_left_early_does_not_give_its_consumer_back() -> None:
    consumer = script()
    reading = reader(consumer).read(*input_partitions([TASK]))
    next(reading)
    del reading
    assert consumer.lease_ended == "badly"


def test_offsets_that_are_gone_end_the_task() -> None:
    consumer = script(OffsetOutOfRangeError("offset 3 of a-0 is outside the log"))
    consumer.logs[A0] = (4, 10)
    with pytest.raises(DataLossError, match="offset 3 of a-0 is outside the log; set failOnDataLoss to false"):
        read(consumer)


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("times", [1, 3, 4])
def test_offsets_that_a_broker_refuses_although_they_are_there_are_asked_for_again(times: int, fail: bool) -> None:
    consumer = script(*[OffsetOutOfRangeError("offset 3 of a-0 is outside the log")] * times)
    if times > 3:
        why = "set failOnDataLoss to false" if fail else "its leader refuses them, and says that they are there"
        with pytest.raises(DataLossError, match=f"offset 3 of a-0 is outside the log; {why}"):
            read(consumer, fail=fail)
    else:
        assert read(consumer, fail=fail) == WHOLE


@pytest.mark.parametrize("times", [1, 2])
def test_an_end_within_what_was_planned_is_asked_for_again(times: int) -> None:
    consumer = script(OffsetOutOfRangeError("gone"))
    consumer.logs[A0], consumer.stale = (2, 10), [7] * times
    assert read(consumer, fail=False) == WHOLE[2:]


def test_a_topic_that_is_deleted_while_its_loss_is_looked_at_is_left_out() -> None:
    consumer = script(OffsetOutOfRangeError("gone"))
    consumer.logs = {A1: (0, 5)}
    assert read(consumer, fail=False, poll_timeout_ms=10_000) == [(1, offset) for offset in range(5)]


def test_offsets_that_are_gone_are_left_out_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    consumer = script(OffsetOutOfRangeError("gone"))
    consumer.logs = {A0: (8, 10), A1: (0, 3)}
    with caplog.at_level(logging.WARNING, "kafka_async.spark"):
        assert read(consumer, fail=False) == [(0, 8), (0, 9), (1, 0), (1, 1), (1, 2)]
    assert "a-0: offsets 0 to 9 are gone, in part or all; reading 8 to 9 of them" in caplog.text


def truncated(kept: int | None = 2) -> LogTruncationError:
    divergent = {} if kept is None else {A0: OffsetAndMetadata(kept)}
    return LogTruncationError("the log of a-0 was truncated below offset 4", {A0: 4}, divergent)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (truncated(), "a-0: offsets 2 to 3 were read and are gone; what has these offsets now is left out"),
        (truncated(None), "the log of a-0 was truncated below offset 4"),
    ],
)
def test_a_truncation_below_what_was_read_is_reported_or_ends_the_task(
    error: LogTruncationError, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    for fail in (False, True):
        consumer = script()
        task = reader(consumer, fail=fail).read(*input_partitions([TASK]))
        found = next(task).to_pylist()
        consumer.trouble = [error]
        if fail:
            with pytest.raises(DataLossError, match="the log of a-0 was truncated below offset 4; set failOnDataLoss to false"):
                list(task)
        else:
            with caplog.at_level(logging.WARNING, "kafka_async.spark"):
                found += [row for batch in task for row in batch.to_pylist()]
            assert [(row["partition"], row["offset"]) for row in found] == WHOLE
            assert said in caplog.text
        assert len(consumer.assigned) == 1  # the other partition is read on as it was


def test_a_truncation_is_a_loss_though_another_range_only_begins_later() -> None:
    consumer = script()
    task = (OffsetRange(A0, 0, 10, earliest=True), OffsetRange(A1, 0, 5, earliest=True))
    batches = reader(consumer).read(*input_partitions([task]))
    next(batches)
    consumer.logs[A1] = (2, 5)
    consumer.trouble = [truncated()]
    with pytest.raises(DataLossError, match="the log of a-0 was truncated below offset 4"):
        list(batches)


EARLIEST = (OffsetRange(A0, 0, 10, earliest=True), OffsetRange(A1, 0, 5, earliest=True))


@pytest.mark.parametrize(("log", "found"), [((4, 10), WHOLE[4:]), ((50, 60), WHOLE[10:])])
def test_what_is_deleted_before_a_range_from_the_earliest_offset_is_read_is_no_loss(
    log: tuple[int, int], found: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    consumer = script(OffsetOutOfRangeError("gone"))
    consumer.logs[A0] = log
    with caplog.at_level(logging.WARNING, "kafka_async.spark"):
        assert read(consumer, EARLIEST) == found
    assert "a-0: offsets 0 to 9 are gone" in caplog.text


class Moving(Script):
    """A log that begins later after each look."""

    def beginning_offsets(self, partitions: Any, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        found = super().beginning_offsets(partitions, timeout_ms)
        self.logs[A0] = (5, 10)
        return found


def test_a_beginning_that_moves_twice_before_anything_is_read_is_no_loss_either() -> None:
    consumer = Moving(logs={A0: (2, 10), A1: (0, 5)}, trouble=[OffsetOutOfRangeError("gone"), OffsetOutOfRangeError("gone")])
    assert read(consumer, EARLIEST) == [*((0, offset) for offset in range(5, 10)), *WHOLE[10:]]


@pytest.mark.parametrize(
    ("task", "log"),
    [(EARLIEST, (0, 7)), (EARLIEST, (4, 7)), ((EARLIEST[0], OffsetRange(A1, 0, 5)), (0, 7))],
    ids=["end", "both", "another"],
)
def test_an_end_that_is_gone_is_a_loss_wherever_a_range_was_to_begin(task: Task, log: tuple[int, int]) -> None:
    consumer = script(OffsetOutOfRangeError("gone"))
    consumer.logs[A0] = log
    with pytest.raises(DataLossError, match="gone; set failOnDataLoss to false"):
        read(consumer, task)


def test_what_is_deleted_of_a_range_that_is_being_read_is_a_loss() -> None:
    consumer = script()
    reading = reader(consumer).read(*input_partitions([EARLIEST]))
    next(reading)
    consumer.trouble = [OffsetOutOfRangeError("gone")]
    consumer.logs[A0] = (6, 10)
    with pytest.raises(DataLossError, match="gone; set failOnDataLoss to false"):
        list(reading)


def test_what_was_read_of_a_range_counts_after_the_beginning_of_another_moved() -> None:
    consumer = Moving(logs={A0: (0, 10), A1: (0, 5)})
    reading = reader(consumer).read(*input_partitions([EARLIEST]))
    next(reading)
    consumer.trouble = [OffsetOutOfRangeError("moved"), OffsetOutOfRangeError("gone")]
    consumer.logs[A1] = (2, 5)
    with pytest.raises(DataLossError, match="gone; set failOnDataLoss to false"):
        list(reading)


def test_a_range_that_is_gone_as_a_whole_is_left_out() -> None:
    consumer = script(OffsetOutOfRangeError("gone"))
    consumer.logs = {A0: (50, 60), A1: (0, 5)}
    assert read(consumer, fail=False) == WHOLE[10:]


def test_a_broker_that_is_silent_for_a_while_is_waited_for() -> None:
    assert read(script(KafkaTimeoutError("1"), KafkaTimeoutError("2")), poll_timeout_ms=60_000) == WHOLE


def test_a_broker_that_stays_silent_ends_the_task() -> None:
    with pytest.raises(KafkaTimeoutError, match="no records came"):
        read(script(*[KafkaTimeoutError("no records came")] * 1_000_000))


def test_a_topic_that_was_deleted_ends_the_task_or_is_left_out() -> None:
    consumer = script(KafkaTimeoutError("no records came"))
    consumer.logs = {A1: (0, 5)}
    with pytest.raises(DataLossError, match="a-0: deleted while it is read"):
        read(consumer, poll_timeout_ms=60_000)
    consumer = script(KafkaTimeoutError("no records came"))
    consumer.logs = {A1: (0, 5)}
    assert read(consumer, fail=False, poll_timeout_ms=60_000) == WHOLE[10:]


THERE = UUID(int=1)
PLANNED = tuple(evolve(each, topic_id=THERE) for each in TASK)
CREATED_AGAIN = "topic 'a' was deleted and created again"


def test_a_consumer_that_knows_an_older_topic_of_the_name_begins_again_and_nothing_is_lost() -> None:
    consumer = script(OffsetOutOfRangeError(CREATED_AGAIN), OffsetOutOfRangeError(CREATED_AGAIN))
    assert read(consumer, PLANNED) == WHOLE
    consumer = script()
    reading = reader(consumer).read(*input_partitions([PLANNED]))
    found = next(reading).num_rows
    consumer.trouble = [OffsetOutOfRangeError(CREATED_AGAIN)]
    assert found + sum(batch.num_rows for batch in reading) == len(WHOLE)


def test_offsets_that_are_gone_end_a_task_whose_topic_is_the_one_that_was_planned() -> None:
    consumer = script(OffsetOutOfRangeError("offset 3 of a-0 is outside the log", offsets={A0: 3}))
    consumer.logs[A0] = (4, 10)
    with pytest.raises(DataLossError, match="offset 3 of a-0 is outside the log; set failOnDataLoss to false"):
        read(consumer, PLANNED)


@pytest.mark.parametrize("trouble", [(), (OffsetOutOfRangeError(CREATED_AGAIN),), (KafkaTimeoutError("no records came"),)])
def test_records_of_a_topic_that_was_created_again_since_the_plan_are_not_read(
    trouble: tuple[Exception, ...], caplog: pytest.LogCaptureFixture
) -> None:
    consumer = script(*trouble)
    consumer.ids = {"a": 2}
    with pytest.raises(DataLossError, match="a-0, a-1: deleted and created again since this read was planned; set failOnDataLoss"):
        read(consumer, PLANNED, poll_timeout_ms=60_000)
    consumer = script(*trouble)
    consumer.ids = {"a": 2}
    consumer.logs[B0] = (0, 3)
    assert read(consumer, (*PLANNED, OffsetRange(B0, 0, 3, THERE)), fail=False, poll_timeout_ms=60_000) == [(0, 0), (0, 1), (0, 2)]
    assert "a-0, a-1: deleted and created again since this read was planned; its records are left out" in caplog.text


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("looks", [LOOKS, 10])
@pytest.mark.parametrize("trouble", [(), (KafkaTimeoutError("no records came"),)], ids=["records", "none in time"])
@pytest.mark.parametrize("behind", [{"ids": {"a": 7}}, {"logs": {A1: (0, 5)}}], ids=["an older topic", "no topic"])
def test_a_broker_that_is_behind_the_others_costs_no_record(
    behind: dict[str, Any], trouble: tuple[Exception, ...], looks: int, fail: bool
) -> None:
    consumer, pauses = script(*trouble), list[None]()
    known = {name: getattr(consumer, name) for name in behind}
    for name, value in behind.items():
        setattr(consumer, name, value)

    def catch_up() -> None:
        pauses.append(None)
        for name, value in known.items() if len(pauses) == looks - 1 else ():
            setattr(consumer, name, value)

    consumer.on_next_look = catch_up
    assert read(consumer, PLANNED, fail=fail, looks=looks, poll_timeout_ms=60_000) == WHOLE


def test_a_topic_that_is_created_again_in_the_middle_of_a_task_is_left_out_from_there_on() -> None:
    consumer = script()
    reading = reader(consumer, fail=False).read(*input_partitions([PLANNED]))
    found = next(reading).num_rows
    consumer.ids = {"a": 2}
    consumer.trouble = [OffsetOutOfRangeError(CREATED_AGAIN)]
    assert list(reading) == []
    assert found == 4


def test_a_topic_that_is_gone_as_the_first_records_are_there_is_left_out() -> None:
    consumer = script()
    consumer.logs = {A1: (0, 5)}
    assert read(consumer, PLANNED, fail=False) == WHOLE[10:]


@define(eq=False)
class Silent(Script):
    """Brokers that first do not say which topics there are."""

    answers: list[Exception] = Factory(list)

    def describe_topics(self, *names: str) -> ClusterDescription:
        if self.answers:
            raise self.answers.pop(0)
        return super().describe_topics(*names)


def test_nothing_is_lost_if_no_broker_says_which_topic_the_first_records_are_of() -> None:
    consumer = Silent(logs={A0: (0, 10), A1: (0, 5)}, answers=[KafkaTimeoutError("1"), KafkaTimeoutError("2")])
    assert read(consumer, PLANNED, poll_timeout_ms=60_000) == WHOLE


def test_topics_are_looked_at_once_in_a_task() -> None:
    consumer = script()
    assert read(consumer, PLANNED) == WHOLE
    assert consumer.asked == ["topics"]


def test_a_task_travels() -> None:
    (sent,) = input_partitions([TASK])
    assert pickle.loads(pickle.dumps(sent)).value == (TASK, {})  # noqa: S301  # our own bytes
