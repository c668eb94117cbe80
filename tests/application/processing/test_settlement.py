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
from tests.application.support import commit_answer, consumer_on, virtual
from tests.testing.test_clusters import Run, on_both

from .world import GROUP, Record, World, processed, until, world


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
            await until(lambda: len(some.done) == 3)
        assert sorted(some.offsets()) == [2, 3, 4]


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


@virtual
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
