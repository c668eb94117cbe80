"""What went wrong in other libraries that handle records in parallel: the failures that no other file has."""

from collections.abc import Collection
from typing import Any, cast

import anyio
import pytest
import trio
from trio.testing import MockClock

from kafka_async import (
    ConsumerRebalanceListener,
    ConsumerRecord,
    OffsetAndMetadata,
    ProcessingContext,
    Retry,
    RetryLater,
    TopicPartition,
)
from kafka_async.errors import IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError
from kafka_async.testing.simulation import HANG
from kafka_async.wire import Api
from tests.application.support import virtual, virtual_on_trio

from .world import GROUP, leave_a_map, processed, until, world

Record = ConsumerRecord[Any, Any]
OF_MEMBERS = (Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT, Api.JOIN_GROUP, Api.OFFSET_COMMIT)
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.mark.parametrize("error", [RebalanceInProgressError, IllegalGenerationError, UnknownMemberIdError])
@virtual
async def test_a_commit_that_a_rebalance_refuses_ends_nothing(error: type[RebalanceInProgressError]) -> None:
    """It killed the thread that everything waited for (confluentinc/parallel-consumer #637, #857)."""
    some = world()
    some.produce(100, keys=10)
    some.seconds = lambda record: 0.5
    refused = 0

    def refuse(broker: object, request: object) -> int | None:
        nonlocal refused
        refused += 1
        return error.errno if refused <= 3 else None

    some.cluster.control(Api.OFFSET_COMMIT, refuse, keep=True)
    options = {"group_protocol": "classic", "auto_commit_interval_ms": 300}
    async with processed(some, concurrency=4, consumer=options) as run:
        await until(lambda: len(set(some.offsets())) == 100, 600)  # a member that joins anew waits for the session of the old one
        await run.drain()
        await until(lambda: some.committed() == 100)
    assert refused > 3


class Losing(ConsumerRebalanceListener):
    """Notes that partitions were lost."""

    lost = False

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.lost = True


@pytest.mark.slow
@PROTOCOLS
@virtual
async def test_the_commit_of_an_idle_partition_stays_within_the_log_whatever_comes_and_goes(protocol: str) -> None:
    """Offset and map were read one after the other, and an offset behind the log reset the next owner (#894)."""
    some = world(3)
    some.produce(50, keys=5, partition=1)
    options = {"group_protocol": protocol, "auto_commit_interval_ms": 200}
    async with processed(some, consumer=options):
        for _ in range(6):
            async with processed(some, consumer=options):
                await anyio.sleep(1)
            await anyio.sleep(5)
            assert all((some.committed(partition) or 0) <= end for partition, end in ((0, 0), (1, 50), (2, 0)))
        some.produce(5, partition=0)
        await until(lambda: sum(record.partition == 0 for record in some.done) == 5)
    assert [some.committed(partition) for partition in range(2)] == [5, 50]
    assert len(some.done) == 55


@PROTOCOLS
@virtual
async def test_a_drain_longer_than_a_session_keeps_the_membership_and_does_not_spin(protocol: str) -> None:
    """A consumer that drained read no more, and with that sent no heartbeats, or it spun (astubbs/parallel-consumer #80)."""
    some = world()
    some.produce(100, keys=2)
    some.seconds = lambda record: 100.0 if record.offset == 0 else 0.01
    async with processed(some, concurrency=2, consumer={"group_protocol": protocol}) as run:
        await until(lambda: len(some.started) > 10)
        before = len(some.cluster.requests)
        await run.drain()
        held = len(some.done)
        assert some.committed() == held
        assert len(some.cluster.requests) - before < 400, "heartbeats, commits and a few fetches in 100 s"
    assert len(some.started) == held, "nothing was begun twice: the partition has not left"


@pytest.mark.slow
@PROTOCOLS
@virtual
async def test_nothing_is_begun_once_the_session_may_be_over_and_all_goes_on_after_it(protocol: str) -> None:
    some = world()
    some.produce(100)
    some.seconds = lambda record: 1.0
    some.cluster.group_settings["consumer.session.timeout.ms"] = "10000"  # only the broker knows it
    options: dict[str, Any] = {"group_protocol": protocol, "session_timeout_ms": 10_000} if protocol == "classic" else {}
    async with processed(some, concurrency=2, consumer=options) as run:
        await until(lambda: len(some.started) >= 4)
        ends = [some.cluster.control(api, lambda broker, request: HANG, keep=True) for api in OF_MEMBERS]
        await anyio.sleep(15)
        begun = len(some.started)
        assert 20 <= begun <= 30, "two at once, each for a second, until the session may be over"
        assert run.statistics().running == 0
        await anyio.sleep(15)
        assert len(some.started) == begun
        for end in ends:
            end()
        some.cluster.disconnect(0)
        await until(lambda: len(set(some.offsets())) == 100, 200)


@PROTOCOLS
@virtual_on_trio
async def test_a_member_that_was_frozen_for_longer_than_its_session_begins_nothing_that_others_have(protocol: str) -> None:
    """Its first moments went to what it had received, which others had read by then."""
    some = world()
    some.produce(300)
    begun_late: list[int] = []
    frozen, listener = False, Losing()

    async def handle(record: Record) -> None:
        nonlocal frozen
        if frozen and not listener.lost:
            begun_late.append(record.offset)
        if record.offset == 20 and not frozen:
            cast("MockClock", trio.lowlevel.current_clock()).jump(60)
            some.coordinator.kick(GROUP)
            frozen = True
        await some.handle(record)

    async with some.consumer(group_protocol=protocol) as consumer:
        consumer.subscribe(["t"], listener=listener)
        async with consumer.processing(handle, concurrency=2):
            await until(lambda: listener.lost)
            await until(lambda: len(set(some.offsets())) == 300)
    assert frozen
    assert not begun_late


@PROTOCOLS
@virtual_on_trio
async def test_a_handler_that_was_frozen_for_longer_than_its_session_is_not_told_what_to_store(protocol: str) -> None:
    """It went on before the loss was known, and overwrote with an older offset what the new owner had stored: it counted twice."""
    some = world()
    some.produce(300)
    asked_late, told_late = 0, list[int]()
    frozen, listener = False, Losing()

    async def handle(record: Record, context: ProcessingContext) -> None:
        nonlocal asked_late, frozen
        if record.offset == 20 and not frozen:
            cast("MockClock", trio.lowlevel.current_clock()).jump(60)
            some.coordinator.kick(GROUP)
            frozen = True
        await some.handle(record)
        late = frozen and not listener.lost
        asked_late += late
        reached = context.completed(some.partitions[0])
        assert reached is not None
        if late:
            told_late.append(record.offset)

    async with some.consumer(group_protocol=protocol) as consumer:
        consumer.subscribe(["t"], listener=listener)
        async with consumer.processing(handle, concurrency=2) as run:
            await until(lambda: listener.lost)
            await until(lambda: len(set(some.offsets())) == 300)
            assert run.statistics().failures == 0
    assert frozen
    assert asked_late
    assert not told_late


@virtual
async def test_a_handler_that_is_not_told_what_to_store_begins_again_once_the_session_lasts_and_that_was_no_attempt() -> None:
    some = world()
    some.produce(1)
    some.cluster.group_settings["consumer.session.timeout.ms"] = "10000"
    calls: list[tuple[int, bool]] = []
    told = OffsetAndMetadata(0, "")

    async def handle(record: Record, context: ProcessingContext) -> None:
        nonlocal told
        await anyio.sleep(1)
        if not calls:
            await anyio.sleep(30)
        reached = None
        try:
            reached = context.completed(some.partitions[0])
        finally:
            calls.append((context.attempt, reached is not None))
        assert reached is not None
        told = reached

    async with processed(some, handle) as run:
        await until(lambda: run.statistics().running == 1)
        some.cluster.group_settings["consumer.session.timeout.ms"] = "600000"  # the member still takes it for ten seconds
        await anyio.sleep(10)
        ends = [some.cluster.control(api, lambda broker, request: HANG, keep=True) for api in OF_MEMBERS]
        await until(lambda: calls == [(1, False)])
        for end in ends:
            end()
        some.cluster.disconnect(0)
        await run.drain()
        assert run.statistics().attempts == 1
        assert run.statistics().failures == 0
    assert calls == [(1, False), (1, True)]
    assert told.offset == 1


@virtual
async def test_a_handler_whose_partition_left_and_came_back_is_not_told_what_to_store() -> None:
    """It got what the partition had by then, without its own record, which was handled again."""
    some = world()
    some.produce(10)
    go_on, told, refused = anyio.Event(), list[int](), list[int]()

    async def handle(record: Record, context: ProcessingContext) -> None:
        if record.offset == 5 and not go_on.is_set():
            await go_on.wait()
        try:
            context.completed(some.partitions[0])
        except RetryLater:
            refused.append(record.offset)
            raise
        told.append(record.offset)

    async with some.consumer() as consumer, consumer.processing(handle) as run:
        await until(lambda: len(told) == 9)
        consumer.seek(some.partitions[0], 4)
        await until(lambda: len(told) == 14)
        go_on.set()
        await until(lambda: told.count(5) == 1)
        await run.drain()
        assert run.statistics().failures == 0
    assert refused == [5]
    assert sorted(told) == sorted([*range(10), 4, 6, 7, 8, 9])


@virtual
async def test_a_map_means_nothing_if_the_log_begins_after_it() -> None:
    some = world()
    await leave_a_map(some, 20)
    some.produce(30)
    some.cluster.log(some.partitions[0]).delete_before(40)
    async with processed(some) as run:
        await until(lambda: len(some.done) == 10)
        await run.drain()
    assert sorted(some.offsets()) == list(range(40, 50))
    assert some.committed() == 50


@virtual
async def test_a_map_means_nothing_to_an_offset_before_it() -> None:
    some = world()
    await leave_a_map(some, 20)
    async with some.consumer() as consumer:
        consumer.seek(some.partitions[0], 2)
        async with consumer.processing(some.handle) as run:
            await until(lambda: len(some.done) == 18)
            await run.drain()
    assert sorted(some.offsets()) == list(range(2, 20))


@virtual
async def test_what_was_done_of_a_tail_that_was_truncated_says_nothing_of_what_took_its_place() -> None:
    """KIP-320: the same offsets, other records."""
    some = world(brokers=2)
    some.produce(20)
    async with processed(some) as run:
        await until(lambda: len(some.done) == 20)
        some.cluster.log(some.partitions[0]).truncate(10)
        some.cluster.move_leader(some.partitions[0], 1)
        some.cluster.produce(some.partitions[0], *map(str, range(10)))
        await until(lambda: len(some.done) == 30)
        await run.drain()
    assert sorted(some.offsets()[20:]) == list(range(10, 20))
    assert some.committed() == 20


@pytest.mark.parametrize("concurrency", [1, 20])
@virtual
async def test_what_is_not_done_below_a_truncation_is_handled_and_not_committed_over(concurrency: int) -> None:
    """The records after the truncation did not follow what was received, and all of that was forgotten, done or not."""
    some = world(brokers=2)
    some.produce(20)
    cut = anyio.Event()
    committed: list[int | None] = []

    async def handle(record: Record) -> None:
        if record.offset == 5 and not cut.is_set():
            await cut.wait()
            await anyio.sleep(2)
            raise ValueError(record.offset)
        await some.handle(record)
        committed.append(some.committed())

    async with processed(some, handle, concurrency=concurrency, order="none", retry=Retry(attempts=3)) as run:
        await until(lambda: len(some.done) == (5 if concurrency == 1 else 19))
        some.cluster.log(some.partitions[0]).truncate(10)
        some.cluster.move_leader(some.partitions[0], 1)
        some.cluster.produce(some.partitions[0], *map(str, range(10)))
        await anyio.sleep(5)
        cut.set()
        await until(lambda: some.committed() == 20)
        await run.drain()
    values = {(record.offset, record.value) for record in some.done}
    assert values >= {(offset, b"%d" % offset) for offset in range(10)}
    assert values >= {(offset + 10, b"%d" % offset) for offset in range(10)}
    assert some.committed() == 20


@virtual
async def test_what_is_not_done_below_a_truncation_is_handled_if_the_next_record_cannot_be_deserialized() -> None:
    some = world(brokers=2)
    some.produce(20)
    cut = anyio.Event()
    letters: list[int] = []

    async def handle(record: Record) -> None:
        if record.offset == 5:
            await cut.wait()
        await some.handle(record)

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append(record.offset)

    def decode(data: bytes) -> str:
        if data == b"bad":
            raise ValueError(data)
        return data.decode()

    how: dict[str, Any] = {"order": "partition", "on_failure": write}
    async with processed(some, handle, consumer={"value_deserializer": decode}, **how) as run:
        await until(lambda: len(some.done) == 5)
        some.cluster.log(some.partitions[0]).truncate(10)
        some.cluster.move_leader(some.partitions[0], 1)
        some.cluster.produce(some.partitions[0], "bad", "11")
        await anyio.sleep(5)
        cut.set()
        await until(lambda: some.committed() == 12)
        await run.drain()
    assert {(record.offset, record.value) for record in some.done} >= {(offset, str(offset)) for offset in (*range(10), 11)}
    assert letters == [10]


@virtual
async def test_a_partition_goes_on_at_what_another_program_committed_in_between() -> None:
    """State in memory met the same offsets again, and stalled or lost them (astubbs/parallel-consumer #119, #183)."""
    some = world()
    some.produce(20)
    async with processed(some):
        await until(lambda: len(some.done) == 20)
    some.cluster.committed[GROUP, TopicPartition("t", 0)] = 8
    some.cluster.metadata.pop((GROUP, TopicPartition("t", 0)), None)
    async with processed(some):
        await until(lambda: len(some.done) == 32)
    assert sorted(some.offsets()[20:]) == list(range(8, 20))
    assert OffsetAndMetadata(some.committed() or 0, "").offset == 20


@PROTOCOLS
@pytest.mark.parametrize("seconds", [0, 10])
@virtual
async def test_who_leaves_before_anything_was_read_keeps_the_map_with_auto_commit_too(seconds: int, protocol: str) -> None:
    some = world()
    await leave_a_map(some, 20)
    before = some.metadata()
    options = {"enable_auto_commit": True, "group_protocol": protocol}
    async with some.consumer(**options) as consumer, consumer.processing(some.handle) as run:
        run.pause()
        await anyio.sleep(seconds)
    assert (some.committed(), some.metadata()) == (5, before)
    async with processed(some) as run:
        await until(lambda: len(some.done) == 1)
        await anyio.sleep(10)
    assert some.offsets() == [5]


@PROTOCOLS
@pytest.mark.parametrize("looks", [False, True])
@virtual
async def test_who_reads_nothing_keeps_the_map_with_auto_commit(looks: bool, protocol: str) -> None:
    """To commit the committed offset once more, without its metadata, had all repeated that was done beyond it."""
    some = world()
    await leave_a_map(some, 20)
    before = some.metadata()
    async with some.consumer(enable_auto_commit=True, group_protocol=protocol) as consumer:
        await until(lambda: bool(consumer.assignment()))
        await anyio.sleep(10)
        assert not looks or await consumer.position(some.partitions[0]) == 5
    assert (some.committed(), some.metadata()) == (5, before)
