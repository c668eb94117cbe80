"""What is committed while many handlers run, and what comes again after a restart."""

import logging
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kafka_async import (
    ConsumerRebalanceListener,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka_async.application.processing.context import ProcessingContext
from kafka_async.errors import (
    OffsetMetadataTooLargeError,
)
from kafka_async.testing.simulation import HANG, FakeBroker
from kafka_async.wire import Api
from kafka_async.wire.messages import OffsetCommitRequest
from tests.application.support import consumer_on, virtual

from .world import GROUP, Record, leave_a_map, processed, until, world


@virtual
async def test_commits_go_by_the_interval_and_only_if_something_changed() -> None:
    some = world(2)
    some.produce(10)
    async with processed(some, consumer={"auto_commit_interval_ms": 1_000}):
        await until(lambda: some.committed() == 10)
        before = len(some.cluster.asked(Api.OFFSET_COMMIT))
        await anyio.sleep(10)
        assert len(some.cluster.asked(Api.OFFSET_COMMIT)) == before


@virtual
@pytest.mark.parametrize("steps", range(4))
async def test_what_a_drain_has_committed_stands_though_an_interval_was_about_to_commit_less(steps: int) -> None:
    some = world()
    some.produce(2)

    async def handle(record: Record) -> None:
        if record.offset == 1:
            await anyio.sleep_until(due_at)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()

    async with processed(some, handle, consumer={"auto_commit_interval_ms": 5_000}) as run:
        due_at = anyio.current_time() + 5
        await anyio.sleep(1)
        await run.drain()
        assert some.committed() == 2
        await anyio.sleep(1)
        assert some.committed() == 2


@virtual
async def test_an_end_with_nothing_to_commit_does_not_wait_for_a_commit_that_hangs() -> None:
    some = world(2)
    some.produce(10)
    hangs: list[Any] = []

    def hang(broker: FakeBroker, request: OffsetCommitRequest) -> Any:
        hangs.append(request)
        return HANG

    consumer = consumer_on(some.cluster, group_id=GROUP, enable_auto_commit=False, auto_commit_interval_ms=1_000)
    consumer.assign(some.partitions[:1])
    async with consumer:
        async with consumer.processing(some.handle):
            await until(lambda: some.committed() == 10)
            some.cluster.control(Api.OFFSET_COMMIT, hang)
            some.produce(10)
            await until(lambda: bool(hangs))
            consumer.assign(some.partitions[1:])
            began = anyio.current_time()
        assert anyio.current_time() - began < 2


@virtual
async def test_with_auto_commit_on_nobody_else_commits() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000 if record.offset == 3 else 0.01
    async with processed(some, consumer={"enable_auto_commit": True, "auto_commit_interval_ms": 100}, drain_timeout_ms=0):
        await anyio.sleep(5)
        assert some.committed() == 3
    assert some.committed() == 3
    assert some.metadata() != "", "stopping must not overwrite the map of what is done"


@virtual
async def test_only_what_never_ended_comes_again() -> None:
    some = world()
    some.produce(100)
    some.seconds = lambda record: 1_000 if record.offset == 5 else 0.01
    async with processed(some, drain_timeout_ms=1_000):
        await until(lambda: len(some.done) == 99)
    assert some.committed() == 5
    some.started.clear()
    some.done.clear()
    some.seconds = lambda record: 0.01
    async with processed(some):
        await until(lambda: bool(some.done))
        await anyio.sleep(1)
    assert some.offsets(some.started) == [5]
    assert some.committed() == 100
    assert some.metadata() == ""


@virtual
async def test_an_offset_that_cannot_be_read_costs_no_other_partition_its_map(caplog: pytest.LogCaptureFixture) -> None:
    some = world(2)
    await leave_a_map(some, 20)
    some.coordinator.offsets.pending[7] = {(GROUP, some.partitions[1]): OffsetAndMetadata(0)}
    began = anyio.current_time()
    async with processed(some):
        await until(lambda: some.committed() == 20)
    assert anyio.current_time() - began < 20, "nor does it wait for long"
    assert some.offsets() == [5]
    assert "KafkaError('no committed offset could be read of t-1')" in caplog.text, "no time ran out"


@virtual
async def test_without_keep_done_what_is_after_it_comes_again() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000 if record.offset == 5 else 0.01
    async with processed(some, drain_timeout_ms=1_000, keep_done=False):
        await until(lambda: len(some.done) == 9)
    assert (some.committed(), some.metadata()) == (5, "")


@virtual
async def test_control_records_at_the_end_are_covered() -> None:
    some = world()
    log = some.cluster.log(some.partitions[0])
    log.append([b"a", b"b"], producer_id=7)
    log.end_transaction(7, commit=True)
    log.append([b"c"], producer_id=7)
    log.end_transaction(7, commit=False)
    some.cluster.changed()
    async with processed(some, consumer={"isolation_level": "read_committed", "auto_commit_interval_ms": 500}):
        await until(lambda: some.committed() == 5)
    assert sorted(some.offsets()) == [0, 1]


@virtual
async def test_a_topic_that_was_made_anew_is_handled_from_its_start() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000 if record.offset == 0 else 0.01
    async with processed(some, drain_timeout_ms=0):
        await until(lambda: len(some.done) == 9)
    some.cluster.recreate("t")
    some.produce(10)
    some.seconds = lambda record: 0.01
    some.done.clear()
    async with processed(some):
        await until(lambda: len(some.done) == 10)


@pytest.mark.slow
@virtual
async def test_the_first_record_of_a_topic_that_was_made_anew_reaches_on_failure_if_it_cannot_be_deserialized() -> None:
    some = world()
    some.produce(10)
    letters: list[int] = []

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append(record.offset)

    def decode(data: bytes) -> bytes:
        if data == b"bad":
            raise ValueError(data)
        return data

    some.seconds = lambda record: 400.0 if record.offset == 9 else 0.01
    async with consumer_on(some.cluster, value_deserializer=decode) as consumer:
        consumer.assign(some.partitions)
        async with consumer.processing(some.handle, on_failure=write, concurrency=1, drain_timeout_ms=0):
            await until(lambda: len(some.started) == 10)
            some.cluster.recreate("t")
            some.cluster.produce(some.partitions[0], "bad", *map(str, range(1, 5)))
            await until(lambda: some.offsets()[-4:] == [1, 2, 3, 4] and len(some.done) > 10, 500)
            assert letters == [0]


@virtual
async def test_metadata_of_others_is_left_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    some = world(3)
    for index, tp in enumerate(some.partitions):
        some.produce(3, partition=index)
        some.cluster.committed[GROUP, tp] = 1
        some.cluster.metadata[GROUP, tp] = "somebody else's"
    with caplog.at_level(logging.INFO, "kafka_async"):
        async with processed(some):
            await until(lambda: len(some.done) == 6)
    assert sum("metadata of another program" in entry.message for entry in caplog.records) == 1
    assert [some.metadata(index) for index in range(3)] == [""] * 3


def refuse_maps(broker: FakeBroker, request: OffsetCommitRequest) -> Any:
    parts = [part for topic in request.topics for part in topic.partitions]
    return OffsetMetadataTooLargeError.errno if any(part.committed_metadata for part in parts) else None


@virtual
async def test_metadata_that_is_refused_as_too_large_is_left_out() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000 if record.offset == 0 else 0.01

    some.cluster.control(Api.OFFSET_COMMIT, refuse_maps, keep=True)
    async with processed(some, consumer={"auto_commit_interval_ms": 500}, drain_timeout_ms=0):
        await until(lambda: some.committed() == 0)
    assert some.metadata() == ""


@pytest.mark.parametrize("when", ["before", "after a read", "as it is assigned", "during"])
@virtual
async def test_records_that_were_sought_are_handled_again_whatever_was_committed(when: str) -> None:
    some = world()
    await leave_a_map(some, 100)
    where = some.partitions[0]

    class Again(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            return

        async def on_partitions_assigned(self, assigned: Any) -> None:
            consumer.seek(where, 50)

    consumer, first = some.consumer(), 50
    if when == "as it is assigned":
        consumer.subscribe(["t"], listener=Again())
    async with consumer:
        if when in ("before", "after a read"):
            consumer.seek(where, 50)
        if when == "after a read":
            first = max(record.offset for record in (await consumer.getmany(timeout_ms=1_000, max_records=7))[where]) + 1
        async with consumer.processing(some.handle):
            if when == "during":
                consumer.seek(where, 50)
            await anyio.sleep(5)
    assert sorted(some.offsets()) == list(range(first, 100))


@pytest.mark.parametrize("when", ["before", "during"])
@virtual
async def test_after_a_seek_to_the_beginning_all_that_is_there_is_handled_again(when: str) -> None:
    some = world()
    await leave_a_map(some, 100)
    some.cluster.log(some.partitions[0]).delete_before(40)
    async with some.consumer() as consumer:
        if when == "before":
            await consumer.seek_to_beginning()
        async with consumer.processing(some.handle):
            if when == "during":
                await consumer.seek_to_beginning()
            await anyio.sleep(5)
    assert sorted(some.offsets()) == list(range(40, 100))


@virtual
async def test_where_nobody_has_sought_elsewhere_nothing_that_is_done_comes_again() -> None:
    some = world()
    await leave_a_map(some, 100)
    async with some.consumer() as consumer:
        await consumer.seek_to_committed()
        for _ in range(2):  # the first run itself seeks to the record that is not done
            some.seconds = lambda record: 1_000
            async with consumer.processing(some.handle, drain_timeout_ms=0):
                await anyio.sleep(5)
        assert some.offsets(some.started) == [5, 5]
    some.cluster.log(some.partitions[0]).delete_before(40)
    async with processed(some):  # a reset of the position is no seek
        await anyio.sleep(5)
    assert some.done == []
    assert some.committed() == 100


@virtual
async def test_a_handler_can_ask_what_would_be_committed_if_it_had_returned() -> None:
    some = world()
    some.produce(10)
    kept = []

    async def handle(record: Record, context: ProcessingContext) -> None:
        kept.append(context.completed(TopicPartition(record.topic, record.partition)))

    async with processed(some, handle, order="partition"):
        await until(lambda: len(kept) == 10)
    assert [point.offset for point in kept if point is not None] == list(range(1, 11))


@pytest.mark.parametrize("how", ["in a group", "without a group", "brokers refuse maps"])
@virtual
async def test_what_was_kept_elsewhere_goes_on_there_with_what_was_done_beyond_it(how: str) -> None:
    some = world()
    if how == "brokers refuse maps":
        some.cluster.control(Api.OFFSET_COMMIT, refuse_maps, keep=True)
    some.produce(60)
    kept: dict[TopicPartition, OffsetAndMetadata] = {}
    handled: list[int] = []

    class GoOn(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            return

        async def on_partitions_assigned(self, assigned: Any) -> None:
            for partition in kept.keys() & assigned:
                consumer.seek(partition, kept[partition])

    async def handle(record: Record, context: ProcessingContext) -> None:
        last = record.offset == 59 or len(handled) >= 20
        await anyio.sleep(1_000 if record.offset == 5 and len(handled) < 30 else 2 if last else record.offset % 7 / 100)
        where = TopicPartition(record.topic, record.partition)
        reached = context.completed(where)
        assert reached is not None
        kept[where] = reached
        handled.append(record.offset)

    for count in (30, 60):
        consumer = some.consumer(auto_commit_interval_ms=500)
        if how == "without a group":
            consumer = consumer_on(some.cluster)
            consumer.assign(some.partitions)
            for partition, point in kept.items():
                consumer.seek(partition, point)
        else:
            consumer.subscribe(["t"], listener=GoOn())
        async with consumer, consumer.processing(handle, drain_timeout_ms=0):
            await until(lambda: len(handled) >= count)  # noqa: B023 - called within the loop
        some.cluster.committed.clear()  # nobody looks there
    assert sorted(handled) == list(range(60))
    assert next(iter(kept.values())).offset == 60
