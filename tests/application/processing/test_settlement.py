"""Partitions that come, drain and go while handlers run."""

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest

from kafka_async import (
    ConsumerRebalanceListener,
    Failed,
    OffsetAndMetadata,
    Retry,
)
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    IllegalStateError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafka_async.testing.simulation import FakeBroker
from kafka_async.wire import Api
from kafka_async.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
)
from tests.application.support import commit_answer, consumer_on, virtual, virtual_on_trio
from tests.testing.test_clusters import Run, on_both

from .world import GROUP, Record, World, leave_a_map, processed, until, world


@pytest.mark.slow
@virtual
async def test_no_record_is_handled_by_two_members_when_a_second_one_comes() -> None:
    some = world(4)
    for partition in range(4):
        some.produce(300, keys=10, partition=partition)
    some.seconds = lambda record: 0.2
    async with processed(some, concurrency=20):
        await until(lambda: len(some.done) > 50)
        async with processed(some, concurrency=20):
            await until(lambda: len(some.done) == 1_200)
    assert len({(record.partition, record.offset) for record in some.done}) == 1_200
    assert len(some.started) == 1_200, "no handler was begun twice"
    by_lane = defaultdict(list)
    for record in some.done:
        by_lane[record.partition, record.key].append(record.offset)
    assert all(offsets == sorted(offsets) for offsets in by_lane.values())
    assert [some.committed(partition) for partition in range(4)] == [300] * 4


@pytest.mark.slow
@virtual
@pytest.mark.parametrize("commits", [True, False])
async def test_what_waits_when_an_eager_rebalance_begins_is_handled_by_the_member_that_gets_it(commits: bool) -> None:
    some = world(4)
    for partition in range(4):
        some.produce(200, keys=20, partition=partition)
    some.seconds = lambda record: 0.1  # 20 s in all: the rebalance comes in the middle
    how = {"group_protocol": "classic", "auto_commit_interval_ms": 500}
    if not commits:
        some.cluster.control(Api.OFFSET_COMMIT, lambda broker, request: CoordinatorLoadInProgressError.errno, keep=True)
    async with processed(some, concurrency=4, consumer=how):
        await until(lambda: len(some.done) > 50)
        async with processed(some, concurrency=4, consumer=how) as second:
            await until(lambda: second.statistics().running > 0)
            assert len(some.done) < 600
            await until(lambda: len({(record.partition, record.offset) for record in some.done}) == 800, 300)


@pytest.mark.slow
@virtual
async def test_while_a_partition_drains_the_others_go_on() -> None:
    some = world(2)
    for partition in range(2):
        some.produce(2_000, keys=40, partition=partition)
    some.seconds = lambda record: 20.0 if record.key == b"k0" else 0.1
    async with processed(some, concurrency=20, drain_timeout_ms=30_000):
        await until(lambda: sum(record.key == b"k0" for record in some.started) >= 2)
        async with some.consumer() as other, anyio.create_task_group() as tasks:

            async def join() -> None:
                while True:
                    await other.getmany(timeout_ms=1_000, max_records=1)

            tasks.start_soon(join)
            await anyio.sleep(5)
            before = Counter(record.partition for record in some.done)
            await anyio.sleep(5)
            after = Counter(record.partition for record in some.done)
            assert other.assignment() == set(), "the slow one still runs"
            assert sorted((after - before).values())[-1] > 100, "more than was received before"
            assert len(after - before) == 1
            tasks.cancel_scope.cancel()


@pytest.mark.slow
@virtual
async def test_while_the_offset_of_a_partition_that_comes_cannot_be_read_those_that_stay_go_on_and_are_committed() -> None:
    some = world(2)
    for partition in range(2):
        some.produce(3_000, keys=40, partition=partition)
    some.seconds = lambda record: 0.1
    async with processed(some, concurrency=10, consumer={"auto_commit_interval_ms": 500}):
        async with some.consumer() as other:
            while not other.assignment():
                await other.getmany(timeout_ms=100, max_records=1)
            (moved,) = other.assignment()
            some.coordinator.offsets.pending[7] = {(GROUP, moved): OffsetAndMetadata(0)}
        asked = len(some.cluster.asked(Api.OFFSET_FETCH))
        await until(lambda: len(some.cluster.asked(Api.OFFSET_FETCH)) > asked)
        await anyio.sleep(2)
        before, committed = len(some.done), some.committed(1 - moved.partition) or 0
        await anyio.sleep(10)
        since = some.done[before:]
        assert len(since) > 800
        assert {record.partition for record in since} == {1 - moved.partition}
        assert (some.committed(1 - moved.partition) or 0) > committed + 600
        some.coordinator.offsets.decide(7, commit=False)
        await until(lambda: some.done[-1].partition == moved.partition, 10)


@virtual
async def test_what_does_not_end_in_time_is_cancelled_and_comes_again_elsewhere() -> None:
    some = world(2)
    for partition in range(2):
        some.produce(5, keys=5, partition=partition)
    first: list[Record] = []
    cancelled: list[Record] = []

    async def stuck(record: Record) -> None:
        first.append(record)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(record)
            raise

    async with processed(some, stuck, drain_timeout_ms=3_000):
        await until(lambda: len(first) == 10)
        async with processed(some, drain_timeout_ms=0):
            began = anyio.current_time()
            await until(lambda: len(some.done) == 5)
            assert anyio.current_time() - began < 10
            assert len(cancelled) == 5
            assert len({record.partition for record in some.done}) == 1
        assert some.committed(some.done[0].partition) == 5
    assert len(cancelled) == 10


@on_both
@pytest.mark.parametrize("reaction", ["stop", "a function", "the function waits"])
def test_what_is_raised_after_a_cancellation_is_no_failure_of_the_record(run: Run, reaction: str) -> None:
    async def main() -> None:
        some = world(2)
        for partition in range(2):
            some.produce(5, keys=5, partition=partition)
        waiting: list[Record] = []
        letters: list[Record] = []

        async def wait(record: Record) -> None:
            waiting.append(record)
            try:
                await anyio.sleep_forever()
            finally:
                raise ConnectionError("cannot roll back")

        async def handle(record: Record) -> None:
            if reaction == "the function waits":
                raise ValueError
            await wait(record)

        async def on_failure(record: Record, error: Exception, attempt: int) -> None:
            letters.append(record)
            if reaction == "the function waits":
                await wait(record)

        async with processed(some, handle, on_failure="stop" if reaction == "stop" else on_failure, drain_timeout_ms=3_000):
            await until(lambda: len(waiting) == 10)
            async with processed(some, drain_timeout_ms=0):
                await until(lambda: len(some.done) == 5)
            (moved,) = {record.partition for record in some.done}
            assert some.committed(moved) == 5
        assert not some.committed(1 - moved)
        assert len(letters) == (10 if reaction == "the function waits" else 0)

    run(main)


@virtual
async def test_of_a_batch_that_was_cancelled_what_is_not_done_comes_again_elsewhere() -> None:
    some = world(2)
    for partition in range(2):
        some.produce(5, partition=partition)
    begun: list[int] = []

    async def handle(batch: list[Record]) -> None:
        begun.append(len(batch))
        try:
            await anyio.sleep_forever()
        finally:
            raise Failed(2, ConnectionError("cannot roll back"))

    async with processed(some, handle, batch=5, linger_ms=1_000, order="partition", drain_timeout_ms=3_000):
        await until(lambda: begun == [5, 5])
        async with processed(some, drain_timeout_ms=0):
            await until(lambda: len(some.done) >= 3)
        assert sorted(some.offsets()) == [2, 3, 4]


@pytest.mark.slow
@virtual
async def test_what_runs_of_lost_partitions_is_cancelled_and_not_committed() -> None:
    some = world()
    some.produce(10, keys=10)
    some.seconds = lambda record: 3.0
    async with processed(some, consumer={"auto_commit_interval_ms": 100_000}):
        await until(lambda: len(some.started) == 10)
        some.coordinator.kick(GROUP)
        await until(lambda: len(some.started) == 20)
        await until(lambda: len(some.done) >= 10)
        assert some.committed() is None
    assert len(some.done) == 10
    assert some.committed() == 10


@virtual
async def test_the_users_listener_is_called_after_the_drain() -> None:
    some = world()
    some.produce(3)
    told: list[tuple[str, int, int | None]] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            told.append(("revoked", some.running.total(), some.committed()))

        def on_partitions_assigned(self, assigned: Any) -> None:
            told.append(("assigned", 0, None))

    consumer = consumer_on(some.cluster, group_id=GROUP, group_protocol="consumer", enable_auto_commit=False)
    consumer.subscribe(["t"], listener=Listener())
    some.seconds = lambda record: 1.0
    async with consumer, consumer.processing(some.handle):
        await until(lambda: some.running.total() == 3)
        await consumer.stop()
    assert told == [("assigned", 0, None), ("revoked", 0, 3)]


@virtual_on_trio
async def test_a_partition_that_comes_back_takes_nothing_from_what_still_runs() -> None:
    """A handler that ignores its cancellation ends when its record has been handled by somebody else."""
    some = world()
    some.produce(3, keys=3)
    late = []

    async def stubborn(record: Record) -> None:
        some.started.append(record)
        if len(some.started) > 3:
            some.done.append(record)
            return
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)
        late.append(record)

    async with processed(some, stubborn) as run:
        await until(lambda: len(some.started) == 3)
        some.coordinator.kick(GROUP)
        await until(lambda: len(some.done) == 3)
        assert not late
        await until(lambda: len(late) == 3)
        assert run.statistics().late_results == 3
        assert run.statistics().running == 0
    assert some.committed() == 3


@virtual
async def test_seeking_back_while_handlers_run_handles_the_records_again() -> None:
    some = world()
    some.produce(10)
    async with some.consumer() as consumer, consumer.processing(some.handle) as run:
        await until(lambda: len(some.done) == 10)
        await run.drain()
        assert some.committed() == 10
        consumer.seek(some.partitions[0], 4)
        run.resume()
        await until(lambda: len(some.done) == 16)
        await run.drain()
    assert sorted(some.offsets()[10:]) == [4, 5, 6, 7, 8, 9]
    assert some.committed() == 10


class Again(ConsumerRebalanceListener):
    """One that does nothing."""

    async def on_partitions_revoked(self, revoked: Any) -> None:
        return

    async def on_partitions_assigned(self, assigned: Any) -> None:
        return


async def _seek(consumer: Any, some: World, where: str) -> int:
    """Seek back in a world whose log begins at 2. Return to which offset."""
    (tp,) = some.partitions
    if where == "beginning":
        await consumer.seek_to_beginning(tp)
        return 2
    consumer.seek(tp, 4)
    return 4


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("ending", ["stop", "leave"])
@pytest.mark.parametrize("where", ["offset", "beginning"])
@virtual
async def test_a_seek_back_counts_though_nothing_was_read_from_there_before_the_end(where: str, ending: str, auto: bool) -> None:
    """What is committed was the old end, until the first record from there arrived: nobody handled them again."""
    some = world()
    some.produce(10)
    some.cluster.log(some.partitions[0]).delete_before(2)
    async with some.consumer(enable_auto_commit=auto) as consumer:
        async with consumer.processing(some.handle) as run:
            await until(lambda: len(some.done) == 8)
            await run.drain()
            assert some.committed() == 10
            first = await _seek(consumer, some, where)
            if ending == "stop":
                await consumer.stop()
        if ending == "leave":
            assert await consumer.position(some.partitions[0]) == first
    assert some.committed() == first
    async with processed(some):
        await until(lambda: some.committed() == 10)
    assert sorted(some.offsets()[8:]) == list(range(first, 10))


@virtual
async def test_a_seek_back_is_where_the_program_goes_on_though_a_record_behind_it_is_not_done() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000.0 if record.offset == 7 else 0.01
    async with some.consumer(enable_auto_commit=True) as consumer:
        async with consumer.processing(some.handle, drain_timeout_ms=0) as run:
            await until(lambda: len(some.done) == 9)
            run.pause()
            consumer.seek(some.partitions[0], 4)
        assert await consumer.position(some.partitions[0]) == 4
        found = await consumer.getmany(timeout_ms=1_000)
    assert some.offsets(found[some.partitions[0]]) == list(range(4, 10))


@pytest.mark.parametrize("refused", [False, True])
@virtual
async def test_a_seek_back_outlives_an_eager_rebalance_before_anything_was_read_from_there(refused: bool) -> None:
    """``refused``: the commit of it is not made, so the group has a later offset."""
    some = world()
    some.produce(10)
    async with some.consumer(group_protocol="classic") as consumer, consumer.processing(some.handle) as run:
        await until(lambda: len(some.done) == 10)
        await run.drain()
        assert some.committed() == 10
        if refused:
            some.cluster.control(Api.OFFSET_COMMIT, lambda broker, request: CoordinatorLoadInProgressError.errno, keep=True)
        consumer.seek(some.partitions[0], 4)
        joined = len(some.cluster.asked(Api.JOIN_GROUP))
        consumer.enforce_rebalance()
        await until(lambda: len(some.cluster.asked(Api.JOIN_GROUP)) > joined and bool(consumer.assignment()))
        await anyio.sleep(5)
        assert some.committed() == (10 if refused else 4)
        run.resume()
        await until(lambda: len(some.done) == 16)
    assert sorted(some.offsets()[10:]) == list(range(4, 10))


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("where", ["offset", "beginning"])
@virtual
async def test_a_seek_in_a_partition_that_arrives_counts(where: str, listens: bool, ended: bool, eager: bool) -> None:
    """The committed offset was asked for meanwhile, and reading went back there. ``eager``: the partition comes back as it was."""
    some = world()
    some.produce(10)
    (tp,) = some.partitions
    async with some.consumer(group_protocol="classic" if eager else "consumer") as consumer:
        if listens:
            consumer.subscribe(["t"], listener=Again())
        async with consumer.processing(some.handle) as run:
            await until(lambda: len(some.done) == 10)
            await run.drain()
            run.resume()
            some.cluster.log(tp).delete_before(2)
            refused = CoordinatorLoadInProgressError.errno
            answers = some.cluster.control(Api.OFFSET_FETCH, lambda broker, request: refused, keep=True)
            asked = len(some.cluster.asked(Api.OFFSET_FETCH))
            if eager:
                consumer.enforce_rebalance()
            else:
                some.coordinator.kick(GROUP)
            await until(lambda: len(some.cluster.asked(Api.OFFSET_FETCH)) > asked and tp in consumer.assignment())
            first = await _seek(consumer, some, where)
            if not ended:
                answers()
                await until(lambda: some.committed() == 10 and len(some.done) == 20 - first)
        if ended:
            answers()
            records = await consumer.getmany(timeout_ms=1_000)
            assert some.offsets(records[tp]) == list(range(first, 10))
    assert ended or sorted(some.offsets()[10:]) == list(range(first, 10))


@virtual
async def test_a_seek_in_a_partition_that_arrives_has_all_handled_again_that_an_earlier_owner_had_done() -> None:
    some = world()
    await leave_a_map(some, 20)
    some.seconds = lambda record: 10_000.0 if record.offset == 5 else 0.01
    async with some.consumer() as consumer, consumer.processing(some.handle, drain_timeout_ms=0):
        await until(lambda: some.running.total() == 1)
        refused = CoordinatorLoadInProgressError.errno
        answers = some.cluster.control(Api.OFFSET_FETCH, lambda broker, request: refused, keep=True)
        asked = len(some.cluster.asked(Api.OFFSET_FETCH))
        some.coordinator.kick(GROUP)
        await until(lambda: len(some.cluster.asked(Api.OFFSET_FETCH)) > asked and bool(consumer.assignment()))
        consumer.seek(some.partitions[0], 8)
        answers()
        await until(lambda: some.committed() == 20)
    assert sorted(some.offsets()) == list(range(8, 20))


@pytest.mark.parametrize("when", ["before", "as it leaves"])
@virtual
async def test_what_was_sought_before_a_partition_left_is_no_seek_once_it_comes_back(when: str) -> None:
    """``as it leaves``: the program's listener seeks, which counts if it comes back as it was."""
    some = world()
    some.produce(50)
    (tp,) = some.partitions
    some.seconds = lambda record: 1.0 if record.offset >= 10 else 0.01

    class Seeking(Again):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            some.seconds = lambda record: 0.01
            if when == "as it leaves":
                consumer.seek(tp, 2)

    consumer = some.consumer(group_protocol="classic", auto_commit_interval_ms=500)
    consumer.subscribe(["t"], listener=Seeking())
    async with consumer, consumer.processing(some.handle, concurrency=2, drain_timeout_ms=0):
        await until(lambda: len(some.done) == 10)
        consumer.seek(tp, 1)
        some.seconds = lambda record: 1_000.0 if record.offset >= 10 else 0.01
        await until(lambda: len(some.done) == 21)  # 1 to 9, and the two that ran
        await anyio.sleep(5)  # all that is done is committed, and what was read behind that waits
        assert some.committed() == 10
        consumer.enforce_rebalance()
        await until(lambda: some.committed() == 50)
    assert sorted(some.offsets()[21:]) == list(range(10 if when == "before" else 2, 50))


@virtual
async def test_a_seek_of_the_listener_counts_though_the_block_is_left_before_the_partition_is_back() -> None:
    some = world()
    some.produce(10)
    (tp,) = some.partitions

    class Seeking(Again):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            consumer.seek(tp, 2)

    consumer = some.consumer(group_protocol="classic")
    consumer.subscribe(["t"], listener=Seeking())
    async with consumer:
        async with consumer.processing(some.handle):
            await until(lambda: some.committed() == 10)
            joins = some.cluster.control(Api.JOIN_GROUP, lambda broker, request: CoordinatorLoadInProgressError.errno, keep=True)
            consumer.enforce_rebalance()
            await until(lambda: not consumer.assignment())
        joins()
        records = await consumer.getmany(timeout_ms=10_000)
    assert some.offsets(records[tp]) == list(range(2, 10))


@pytest.mark.parametrize("ended", [False, True])
@virtual
async def test_a_partition_that_others_have_had_meanwhile_goes_on_where_they_were(ended: bool) -> None:
    """The member is expelled between an eager revocation and the assignment. What is committed of the other partition is not known
    for a while, and meanwhile another task asks where this one is.
    """
    some = world(2)
    some.produce(10)
    tp, other = some.partitions
    async with some.consumer(group_protocol="classic") as consumer:
        async with consumer.processing(some.handle):
            await until(lambda: some.committed() == 10)
            joins = some.cluster.control(Api.JOIN_GROUP, lambda broker, request: CoordinatorLoadInProgressError.errno, keep=True)
            consumer.enforce_rebalance()
            await until(lambda: not consumer.assignment())
            some.coordinator.kick(GROUP)
            some.produce(990)
            some.cluster.committed[GROUP, tp] = 900
            some.coordinator.offsets.pending[7] = {(GROUP, other): OffsetAndMetadata(0)}
            joins()
            await until(lambda: bool(consumer.assignment()))
            assert await consumer.position(tp) == 900
            if not ended:
                some.coordinator.offsets.decide(7, commit=False)
                await until(lambda: some.committed() == 1_000)
        if ended:
            assert await consumer.position(tp) == 900
    assert ended or sorted(some.offsets()[10:]) == list(range(900, 1_000))


@virtual
async def test_a_drain_does_not_wait_for_what_the_program_has_sought_back_in() -> None:
    some = world()
    some.produce(10)

    async def handle(record: Record) -> None:
        raise ValueError

    async with some.consumer() as consumer, consumer.processing(handle, retry=Retry(attempts=9, delay=1_000)) as run:
        await until(lambda: run.statistics().retrying == 10)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.drain)
            await anyio.sleep(1)
            consumer.seek(some.partitions[0], 0)
            tasks.cancel_scope.deadline = anyio.current_time() + 1
        assert not tasks.cancel_scope.cancelled_caught
        assert run.statistics().waiting == run.statistics().retrying == 0


@virtual
async def test_a_drain_waits_for_the_handlers_that_run_for_what_the_program_has_sought_back_in() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 5.0
    async with some.consumer() as consumer, consumer.processing(some.handle) as run:
        await until(lambda: run.statistics().running == 10)
        run.pause()
        for _ in range(2):
            consumer.seek(some.partitions[0], 0)
        with anyio.fail_after(10):
            await run.drain()
        assert run.statistics().running == 0
        assert len(some.done) == run.statistics().late_results == 10


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "as it leaves"])
@virtual
async def test_a_partition_leaves_once_the_handlers_have_ended_of_what_the_program_has_sought_back_in(when: str) -> None:
    some = world(2)
    for partition in range(2):
        some.produce(5, keys=5, partition=partition)
    some.seconds = lambda record: 20.0
    async with some.consumer() as consumer, consumer.processing(some.handle, drain_timeout_ms=30_000) as run:
        await until(lambda: run.statistics().running == 10)
        run.pause()
        first, begun = tuple(some.started), anyio.current_time()
        if when == "before":
            for tp in some.partitions:
                consumer.seek(tp, 0)
        async with processed(some) as second:
            if when == "as it leaves":
                await anyio.sleep(10)
                for tp in some.partitions:
                    consumer.seek(tp, 0)
                await anyio.sleep(5)
                assert len(some.started) == 10
            await until(lambda: second.statistics().running == 5)
            assert anyio.current_time() - begun >= 19
            assert set(some.done) == set(first), "no handler was cancelled"


@virtual
async def test_the_room_of_what_the_program_has_sought_back_in_is_used_at_once() -> None:
    some = world()
    some.produce(500, keys=500)
    how: dict[str, Any] = {"concurrency": 1, "batch": 2, "linger_ms": 1e6, "drain_timeout_ms": 0}  # so no batch is full in time
    async with some.consumer(auto_commit_interval_ms=100_000) as consumer, consumer.processing(print, **how) as run:
        await anyio.sleep(10)
        room = run.statistics().waiting
        assert 0 < room < 400, "all that may be held"
        consumer.seek(some.partitions[0], 0)
        assert run.statistics().waiting == 0
        await until(lambda: run.statistics().waiting == room, 1)


@virtual
async def test_what_stands_behind_a_partition_that_the_program_has_sought_back_in_goes_on() -> None:
    some = world(2)
    some.produce(1)

    async def handle(record: Record) -> None:
        if record.partition == 0:
            raise ValueError
        await some.handle(record)

    how: dict[str, Any] = {"order": lambda record: "all", "retry": Retry(attempts=9, delay=1_000)}
    async with some.consumer() as consumer, consumer.processing(handle, **how) as run:
        await until(lambda: run.statistics().retrying == 1)
        some.produce(1, partition=1)
        await until(lambda: run.statistics().waiting == 1)
        consumer.pause(some.partitions[0])  # so nothing else arrives
        consumer.seek(some.partitions[0], 0)
        await until(lambda: len(some.done) == 1, 1)


@virtual
async def test_what_was_received_is_handled_after_a_seek_to_the_end() -> None:
    some = world()
    some.produce(40, keys=4)
    some.seconds = lambda record: 1.0
    async with some.consumer() as consumer, consumer.processing(some.handle) as run:
        await until(lambda: len(some.done) >= 8)
        held = 40 - len(some.done)
        assert run.statistics().waiting > 0
        await consumer.seek_to_end()
        await until(lambda: some.committed() == 40)
    assert held
    assert sorted(some.offsets()) == list(range(40))


@virtual
async def test_a_late_failure_of_a_record_that_comes_again_writes_no_letter() -> None:
    some = world()
    some.produce(3, keys=3)
    letters: list[int] = []
    failing = True

    async def handle(record: Record) -> None:
        fails = failing
        await some.handle(record)
        if fails:
            raise ValueError

    async def on_failure(record: Record, error: BaseException, attempt: int) -> None:
        letters.append(record.offset)

    some.seconds = lambda record: 5.0
    async with some.consumer() as consumer, consumer.processing(handle, on_failure=on_failure) as run:
        await until(lambda: len(some.started) == 3)
        failing = False
        consumer.seek(some.partitions[0], 1)
        await until(lambda: run.statistics().handled == 2)
    assert letters == []
    assert some.committed() == 3


@virtual
async def test_partitions_that_the_user_assigned_are_processed() -> None:
    some = world(2)
    for partition in range(2):
        some.produce(10, partition=partition)
    consumer = consumer_on(some.cluster, group_id=GROUP, enable_auto_commit=False)
    consumer.assign(some.partitions[:1])
    async with consumer, consumer.processing(some.handle) as run:
        await until(lambda: len(some.done) == 10)
        consumer.assign(some.partitions)
        await until(lambda: len(some.done) == 20)
        await run.drain()
    assert [some.committed(index) for index in range(2)] == [10, 10]


@virtual
async def test_without_a_group_nothing_is_committed() -> None:
    some = world()
    some.produce(10)
    consumer = consumer_on(some.cluster, "t")
    async with consumer, consumer.processing(some.handle, drain_timeout_ms=0):
        await until(lambda: len(some.done) == 10)
    assert some.cluster.asked(Api.OFFSET_COMMIT) == []


@pytest.mark.slow
@virtual
@pytest.mark.parametrize("how", [("classic", "range"), ("classic", "cooperative-sticky"), ("consumer", "")], ids=" ".join)
async def test_nobody_waits_for_the_handlers_of_a_topic_that_was_deleted(how: tuple[str, str]) -> None:
    some = world()
    some.produce(10, keys=1)
    other = some.cluster.log(*some.cluster.create_topic("u", 1))
    seen: list[float] = []
    ended: list[str] = []

    async def handle(record: Record) -> None:
        if record.topic == "t":
            await anyio.sleep(20)
            ended.append(record.topic)
        else:
            seen.append(anyio.current_time())

    options: dict[str, Any] = {"partition_assignment_strategy": [how[1]]} if how[1] else {}
    consumer = consumer_on(some.cluster, "t", "u", group_id=GROUP, group_protocol=how[0], metadata_max_age_ms=1_000, **options)
    async with consumer, consumer.processing(handle) as run:
        await until(lambda: run.statistics().running == 1)
        some.cluster.delete_topic("t")
        for _ in range(40):
            other.append([b"x"])
            some.cluster.changed()
            await anyio.sleep(1)
        found = run.statistics()
    assert max(late - early for early, late in pairwise(seen)) < 5
    assert len(seen) == 40
    assert ended == ["t"], "it was not cancelled: nobody else gets the record"
    assert found.late_results == 1


@virtual
async def test_one_answer_that_a_topic_is_unknown_has_nothing_handled_twice() -> None:
    some = world()
    some.produce(40, keys=40)
    some.seconds = lambda record: 3.0
    options = {"group_protocol": "classic", "metadata_max_age_ms": 1_000, "auto_commit_interval_ms": 100_000}
    async with processed(some, concurrency=4, consumer=options):
        await until(lambda: len(some.started) == 8)
        asked = len(some.cluster.asked(Api.METADATA))
        some.cluster.control(Api.METADATA, lambda broker, request: UnknownTopicOrPartitionError.errno)
        await until(lambda: len(some.cluster.asked(Api.METADATA)) > asked)
        await until(lambda: len(some.done) >= 40)
        assert len(some.cluster.asked(Api.JOIN_GROUP)) > 1, "the group rebalanced because of it"
    assert sorted(some.offsets(some.started)) == list(range(40))


@pytest.mark.slow
@virtual
@pytest.mark.parametrize("subscribed", [True, False])
async def test_a_commit_of_a_topic_that_was_deleted_holds_up_no_other_topic(subscribed: bool) -> None:
    some = world()
    some.produce(1_000)
    (tp,) = some.cluster.create_topic("u", 1)
    other = some.cluster.log(tp)
    seen: list[float] = []

    async def handle(record: Record) -> None:
        if record.topic == "t":
            await anyio.sleep(0.1)  # so there is something to commit at any time
        else:
            seen.append(anyio.current_time())

    options: dict[str, Any] = {"group_id": GROUP, "auto_commit_interval_ms": 100}
    consumer = consumer_on(some.cluster, *(("t", "u") if subscribed else ()), group_protocol="consumer", **options)
    if not subscribed:
        consumer.assign([*some.partitions, tp])
    async with consumer, consumer.processing(handle):
        await until(lambda: bool(some.committed()))
        some.cluster.delete_topic("t")
        for count in range(1, 21):
            other.append([b"x"])
            some.cluster.changed()
            await anyio.sleep(0.5)
            assert len(seen) == count
            assert some.cluster.committed[GROUP, tp] == count


@virtual
@pytest.mark.parametrize("how", ["stop", "leave", "drain"])
async def test_nothing_ends_late_because_of_a_topic_that_was_deleted(how: str) -> None:
    some = world()
    some.produce(1_000)
    (tp,) = some.cluster.create_topic("u", 1)
    some.cluster.fill(tp, 5)
    consumer = consumer_on(some.cluster, group_id=GROUP)
    consumer.assign([*some.partitions, tp])
    some.seconds = lambda record: 0.1 if record.topic == "t" else 0.0
    async with consumer:
        async with consumer.processing(some.handle, drain_timeout_ms=500) as run:
            await until(lambda: len(some.done) > 50)
            some.cluster.delete_topic("t")
            began = anyio.current_time()
            if how == "stop":
                await consumer.stop()
            elif how == "drain":
                consumer.pause(*some.partitions)
                await run.drain()
                assert anyio.current_time() < began + 2
        assert anyio.current_time() < began + 3
    assert some.cluster.committed[GROUP, tp] == 5


@virtual
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_listener_may_commit_as_in_programs_that_read_by_themselves(protocol: str) -> None:
    some = world(2)
    for partition in range(2):
        some.produce(100, keys=10, partition=partition)
    commits: list[int | None] = []

    async with some.consumer(group_protocol=protocol) as consumer:

        class Committing(ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked: Any) -> None:
                await consumer.commit()
                commits.append(some.committed(0))

            async def on_partitions_assigned(self, assigned: Any) -> None:
                await consumer.commit()

        consumer.subscribe(["t"], listener=Committing())
        async with consumer.processing(some.handle) as run:
            await until(lambda: len(some.done) == 200)
            with pytest.raises(IllegalStateError, match="process"):
                await consumer.commit()
            async with processed(some, consumer={"group_protocol": protocol}):
                await until(lambda: len(consumer.assignment()) == 1)
                some.produce(100, keys=10)
                some.produce(100, keys=10, partition=1)
                await until(lambda: len(some.done) == 400)
            assert run.statistics().handled >= 300
    assert commits
    assert (some.committed(0), some.committed(1)) == (200, 200)


@virtual
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_commit_by_interval_while_a_partition_drains_does_not_move_its_position_back(protocol: str) -> None:
    some = world(2)
    for partition in range(2):
        some.produce(2, partition=partition)
    some.seconds = lambda record: 9.0 if record.offset else 0.1
    found: list[tuple[int, int | None]] = []

    async with some.consumer(group_protocol=protocol, auto_commit_interval_ms=5_000) as consumer:

        class Listener(ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked: Any) -> None:
                found.extend([(await consumer.position(tp), some.committed(tp.partition)) for tp in revoked])

        consumer.subscribe(["t"], listener=Listener())
        async with consumer.processing(some.handle):
            await until(lambda: len(some.done) == 2)
            async with processed(some, consumer={"group_protocol": protocol}):
                await until(lambda: bool(found))
                assert max(some.committed(partition) or 0 for partition in range(2)) == 2
    assert set(found) == {(2, 2)}


@pytest.mark.slow
@virtual
async def test_what_cannot_be_committed_is_not_committed_at_each_interval(caplog: pytest.LogCaptureFixture) -> None:
    some = world()
    some.produce(20)
    (tp,) = some.cluster.create_topic("u", 1)
    some.cluster.fill(tp, 20)
    consumer = consumer_on(some.cluster, group_id=GROUP, auto_commit_interval_ms=500)
    consumer.assign([*some.partitions, tp])
    async with consumer, consumer.processing(some.handle):
        await until(lambda: some.cluster.committed.get((GROUP, tp)) == 20 and some.committed() == 20)
        some.produce(5)
        some.cluster.fill(tp, 5)
        await until(lambda: len(some.done) == 50)
        some.cluster.delete_topic("t")
        before = len(some.cluster.asked(Api.OFFSET_COMMIT))
        await until(lambda: some.cluster.committed[GROUP, tp] == 25)
        await anyio.sleep(60)
        assert len(some.cluster.asked(Api.OFFSET_COMMIT)) - before <= 2
    assert any("topic 't' does not exist" in entry.message for entry in caplog.records), "there was a sign"


def refuse_some(some: World, refused: Callable[[OffsetCommitRequestPartition], int]) -> list[set[int]]:
    """Answer commits with these error codes. Return the partitions of each commit."""
    asked: list[set[int]] = []

    def answer(broker: FakeBroker, request: OffsetCommitRequest) -> OffsetCommitResponse:
        asked.append({part.partition_index for topic in request.topics for part in topic.partitions})
        return commit_answer(request, lambda topic, part: refused(part))

    some.cluster.control(Api.OFFSET_COMMIT, answer, keep=True)
    return asked


@virtual
async def test_what_is_committed_beside_a_refused_partition_is_not_committed_again() -> None:
    some = world(2)
    some.produce(5)
    some.produce(5, partition=1)
    asked = refuse_some(some, lambda part: UnknownTopicOrPartitionError.errno if part.partition_index else 0)
    async with processed(some, consumer={"auto_commit_interval_ms": 500}):
        await until(lambda: len(some.done) == 10)
        await anyio.sleep(3)
        assert asked[0] == {0, 1}
        assert len(asked) > 2, "the topic is there, so another attempt may succeed"
        assert all(partitions == {1} for partitions in asked[1:])


@virtual
async def test_only_the_partition_whose_map_is_too_large_is_committed_once_more_without_it() -> None:
    some = world(2)
    some.produce(5)
    some.produce(5, partition=1)
    some.seconds = lambda record: 1_000 if record.offset == 2 and record.partition == 1 else 0.01
    asked = refuse_some(some, lambda part: OffsetMetadataTooLargeError.errno if part.committed_metadata else 0)
    async with processed(some, consumer={"auto_commit_interval_ms": 500}, drain_timeout_ms=0):
        await until(lambda: len(some.done) == 9)
        await anyio.sleep(3)
        assert asked == [{0, 1}, {1}]
