"""Rebalances as the application carries them out: what is read, committed and given up in which order."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from typing import Any, Final

import anyio
import pytest
from attrs import Factory, define

from kafka_async import ConsumerInterceptor, ConsumerRebalanceListener, ConsumerState, TopicPartition
from kafka_async.application.committing.auto_commit import PATIENCE
from kafka_async.errors import ConsumerStoppedError
from kafka_async.testing.simulation import HANG, FakeBroker, FakeCluster
from kafka_async.testing.simulation.groups import Groups
from kafka_async.trace import Fault, Notice, TraceEvent
from kafka_async.wire import Api
from kafka_async.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from tests.virtual import run_virtual_asyncio

from ..support import REBALANCES, Consumer, cancelled_at, commit_answer, consumer_on, virtual

PARTITIONS: Final = 4
SLOW: Final = 1.0
"""Seconds that a commit takes."""
OPTIONS: Final = {"classic": REBALANCES["cooperative"], "consumer": REBALANCES["consumer"]}
both = pytest.mark.parametrize("protocol", sorted(OPTIONS))


@define(eq=False)
class Member:
    """A member and what it read: offsets by partition, and when."""

    consumer: Consumer
    offsets: dict[TopicPartition, list[int]] = Factory(lambda: defaultdict(list))
    times: dict[TopicPartition, list[float]] = Factory(lambda: defaultdict(list))

    async def step(self, timeout_ms: float = 100) -> set[TopicPartition]:
        """Read once; return of which partitions records came."""
        batch = await self.consumer.getmany(timeout_ms=timeout_ms)
        for partition, records in batch.items():
            self.offsets[partition] += [record.offset for record in records]
            self.times[partition].append(anyio.current_time())
        return set(batch)

    async def read_on(self) -> None:
        """Read until a read raises."""
        while True:
            await self.step()

    async def read(self) -> None:
        """Read until the consumer is stopped."""
        with suppress(ConsumerStoppedError):
            await self.read_on()

    def pauses(self, partition: TopicPartition, since: float) -> list[float]:
        times = [time for time in self.times[partition] if time >= since]
        return [after - before for before, after in pairwise(times)]


@define(eq=False)
class World:
    """A group of one topic under load. ``commit_takes``: seconds until the coordinator has stored offsets; ``None``: for ever."""

    cluster: FakeCluster
    coordinator: Groups
    partitions: list[TopicPartition]
    protocol: str
    commit_takes: float | None = 0.0
    commits: list[tuple[float, dict[int, int]]] = Factory(list)
    """When a commit arrived, and its offsets by partition."""
    seen: list[TraceEvent] = Factory(list)
    """What the members traced."""

    @asynccontextmanager
    async def member(self, **options: Any) -> AsyncIterator[Member]:
        """Start a member; keep reading is the test's business."""
        options = OPTIONS[self.protocol] | {"group_id": "g", "trace": self.seen.append, "fetch_max_wait_ms": 50} | options
        async with consumer_on(self.cluster, "t", **options) as consumer:
            yield Member(consumer)

    async def produce(self) -> None:
        """Write a record to every partition each 50 ms."""
        while True:
            for partition in self.partitions:
                self.cluster.produce(partition, b"x")
            await anyio.sleep(0.05)

    async def store(self, broker: FakeBroker, request: OffsetCommitRequest, version: int, error: int) -> OffsetCommitResponse:
        """Answer a commit after ``commit_takes`` seconds."""
        offsets = {part.partition_index: part.committed_offset for topic in request.topics for part in topic.partitions}
        self.commits.append((anyio.current_time(), offsets))
        await (anyio.sleep_forever() if self.commit_takes is None else anyio.sleep(self.commit_takes))
        for index, offset in offsets.items():  # whoever it comes from: what is asked here is what was sent
            self.cluster.committed["g", TopicPartition("t", index)] = offset
        return commit_answer(request, lambda topic, part: error)

    def faults(self) -> list[str]:
        """Return the texts of the faults that members traced."""
        return [event.text for event in self.seen if isinstance(event, Fault)]


def world(protocol: str) -> World:
    cluster = FakeCluster()
    made = World(cluster, cluster.groups, cluster.create_topic("t", PARTITIONS), protocol)
    cluster.handlers[Api.OFFSET_COMMIT] = made.store
    return made


@asynccontextmanager
async def two_members(w: World, commit_takes: float | None = SLOW, **options: Any) -> AsyncIterator[tuple[Member, Member, float]]:
    """Have a member read all partitions under load, and another one come; yield both and when the other one came.

    Commits take ``commit_takes`` seconds from then on; ``None``: for ever.
    """
    async with anyio.create_task_group() as tasks, w.member(**options) as stays:
        tasks.start_soon(w.produce)
        tasks.start_soon(stays.read)
        await anyio.sleep(1)
        w.commit_takes = commit_takes
        came = anyio.current_time()
        async with w.member(**options) as comes:
            tasks.start_soon(comes.read)
            yield stays, comes, came
        tasks.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something that nobody announces has happened; under virtual time looking again costs nothing."""
    while not condition():  # noqa: ASYNC110  # as above
        await anyio.sleep(0.01)


async def until_moved(stays: Member, comes: Member) -> None:
    """Wait until each has half of the partitions."""
    await until(lambda: (len(stays.consumer.assignment()), len(comes.consumer.assignment())) == (2, 2))


def whole(*members: Member) -> dict[TopicPartition, list[int]]:
    """Return the offsets of all members together, in the order of members."""
    found: dict[TopicPartition, list[int]] = defaultdict(list)
    for member in members:
        for partition, offsets in member.offsets.items():
            found[partition] += offsets
    return found


@pytest.mark.slow
@both
@virtual
async def test_partitions_that_stay_are_read_while_the_commit_of_the_others_is_under_way(protocol: str) -> None:
    w = world(protocol)
    async with two_members(w) as (stays, comes, came):
        await anyio.sleep(SLOW + 3)
        kept, moved = stays.consumer.assignment(), comes.consumer.assignment()
        assert (len(kept), kept | moved) == (2, set(w.partitions))
        assert max(pause for partition in kept for pause in stays.pauses(partition, came)) < 0.2
        (at, committed), *_ = [(at, offsets) for at, offsets in w.commits if at > came]
        assert committed == {partition.partition: len(stays.offsets[partition]) for partition in moved}
        assert max(stays.times[partition][-1] for partition in moved) < at
        for partition, offsets in whole(stays, comes).items():
            assert offsets == list(range(len(offsets))), partition
    assert not w.faults()


@pytest.mark.slow
@both
@virtual
async def test_a_commit_that_is_quick_is_waited_for(protocol: str) -> None:
    w = world(protocol)
    async with two_members(w, PATIENCE / 2) as (stays, comes, _):
        await until_moved(stays, comes)
        ((at, offsets),) = w.commits
        (gone,) = [event.now for event in w.seen if isinstance(event, Notice) and event.text == "revoked 2 partitions"]
        assert gone - at < PATIENCE
        assert all(not at < time < gone for times in stays.times.values() for time in times), "a batch was handed out first"
        assert len(offsets) == 2


@pytest.mark.slow
@both
@virtual
async def test_a_commit_that_does_not_end_holds_a_rebalance_up_for_a_bounded_time(protocol: str) -> None:
    w = world(protocol)
    async with two_members(w, None, request_timeout_ms=3_000) as (stays, comes, came):
        await until_moved(stays, comes)
        # Less than a session. A commit that is given up takes the connection with it, and by chance heartbeats: 5 s, seldom 20.
        assert anyio.current_time() - came < 40
        assert max(pause for partition in stays.consumer.assignment() for pause in stays.pauses(partition, came)) < 0.2
        assert "consumed offsets could not be committed" in w.faults()
        w.commit_takes = 0.0


@both
@virtual
async def test_reads_that_are_cancelled_while_the_commit_is_under_way_make_no_second_one(protocol: str) -> None:
    w = world(protocol)
    async with anyio.create_task_group() as tasks, w.member() as stays:
        tasks.start_soon(w.produce)
        await until_reads(stays)
        w.commit_takes = SLOW
        async with w.member() as comes:
            tasks.start_soon(comes.read)
            while len(stays.consumer.assignment()) > 2:
                for place in range(1, 6):
                    done = await cancelled_at(place, stays.step(50))
                    assert done is None or not done[0] or w.commits or len(stays.consumer.assignment()) == 4
            await until_moved(stays, comes)
            assert len(w.commits) == 1
            ((_, committed),) = w.commits
            assert committed == {tp.partition: len(stays.offsets[tp]) for tp in comes.consumer.assignment()}
        tasks.cancel_scope.cancel()


@pytest.mark.slow
@both
@virtual
async def test_the_interval_leaves_partitions_out_that_have_a_last_commit(protocol: str) -> None:
    w = world(protocol)
    async with two_members(w, auto_commit_interval_ms=100) as (stays, comes, came):
        await until_moved(stays, comes)
        moved = {partition.partition for partition in comes.consumer.assignment()}
        (last,) = [at for at, offsets in w.commits if at > came and offsets.keys() == moved]
        others = [offsets for at, offsets in w.commits if at > last]
        assert others
        assert all(moved.isdisjoint(offsets) for offsets in others)
    assert not w.faults()


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["stop", "unsubscribe"])
@both
@virtual
async def test_a_member_that_leaves_while_the_commit_is_under_way_leaves_in_order(protocol: str, leave: str) -> None:
    w = world(protocol)
    async with two_members(w) as (stays, comes, came):
        await until(lambda: any(at > came for at, _ in w.commits))
        if leave == "stop":
            await stays.consumer.stop()
        else:
            stays.consumer.unsubscribe()
            assert stays.consumer.assignment() == set()
        await until(lambda: comes.consumer.assignment() == set(w.partitions))
        await anyio.sleep(1)
        for partition, offsets in whole(stays, comes).items():
            assert sorted(set(offsets)) == list(range(len(set(offsets)))), partition
            assert leave == "unsubscribe" or len(offsets) == len(set(offsets)), partition


class Ending(ConsumerInterceptor):
    """The first task that tells it of a commit fails there, or is cancelled."""

    def __init__(self, *, fails: bool) -> None:
        self.fails, self.ended = fails, anyio.Event()
        self.scope: ContextVar[anyio.CancelScope] = ContextVar("scope")
        """Of the task that calls."""

    async def on_commit(self, offsets: object) -> None:
        if not self.ended.is_set():
            self.ended.set()
            await anyio.sleep(1)
            if self.fails:
                raise ZeroDivisionError
            self.scope.get().cancel()
            await anyio.sleep_forever()


@pytest.mark.parametrize("fails", [True, False])
@both
@virtual
async def test_a_rebalance_in_which_the_read_of_one_task_ends_is_carried_on_by_that_of_another(protocol: str, fails: bool) -> None:
    w = world(protocol)
    ending = Ending(fails=fails)

    async def read() -> None:
        with anyio.CancelScope() as scope:
            ending.scope.set(scope)
            with suppress(ZeroDivisionError):
                await stays.consumer.getone()

    async def come() -> None:
        async with w.member():
            await anyio.sleep_forever()

    async with w.member(interceptors=(ending,), auto_commit_interval_ms=600_000) as stays, anyio.create_task_group() as tasks:
        for partition in w.partitions:
            w.cluster.produce(partition, b"x")
        await until_reads(stays)
        for task in (read, read, come):
            tasks.start_soon(task)
        with anyio.fail_after(15):
            await ending.ended.wait()
            await until(lambda: len(stays.consumer.assignment()) == 2)
        tasks.cancel_scope.cancel()


@define(eq=False)
class Stopping(ConsumerRebalanceListener):
    """Stops its consumer, once it knows it, when it is told of ``what``."""

    what: str
    consumer: Consumer | None = None
    told: list[str] = Factory(list)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await self._hear("assigned")

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._hear("revoked")

    async def _hear(self, what: str) -> None:
        self.told.append(what)
        if self.consumer is not None and what == self.what:
            await self.consumer.stop()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["assigned", "revoked"])
@both
@virtual
async def test_a_listener_may_stop_the_consumer(protocol: str, what: str) -> None:
    w = world(protocol)
    listener = Stopping(what)
    async with w.member() as stops, anyio.create_task_group() as tasks:
        tasks.start_soon(w.produce)
        stops.consumer.subscribe(["t"], listener=listener)
        await until_reads(stops)
        listener.consumer = stops.consumer
        async with w.member() as comes:
            tasks.start_soon(comes.read)
            with pytest.raises(ConsumerStoppedError):
                await stops.read_on()
            await until(lambda: comes.consumer.assignment() == set(w.partitions))
            await anyio.sleep(1)
            for partition, offsets in whole(stops, comes).items():
                assert offsets == list(range(len(offsets))), partition
        tasks.cancel_scope.cancel()
    assert not w.faults()


async def until_reads(member: Member) -> None:
    """Read until records of every partition have come."""
    while len(member.offsets) < PARTITIONS:
        await member.step()


@both
@virtual
async def test_a_start_that_is_cancelled_at_any_await_leaves_no_ghost_in_the_group(protocol: str) -> None:
    w = world(protocol)
    options = OPTIONS[protocol] | {"group_id": "g"}
    for place in range(1, 100):
        consumer = consumer_on(w.cluster, "t", **options)
        started = await cancelled_at(place, consumer.start())
        if started is not None:
            await consumer.stop()
        await anyio.sleep(1)
        assert not w.coordinator.members("g"), place
        if started is not None:
            return
    pytest.fail("it was cancelled each time")


@both
@virtual
async def test_a_start_in_which_the_listener_raises_leaves_the_group(protocol: str) -> None:
    w = world(protocol)

    class RaisingOnce(ConsumerRebalanceListener):
        has_raised = False

        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            if not self.has_raised:
                self.has_raised = True
                raise ZeroDivisionError

    consumer = consumer_on(w.cluster, **OPTIONS[protocol] | {"group_id": "g"})
    consumer.subscribe(["t"], listener=RaisingOnce())
    with pytest.raises(ZeroDivisionError):
        await consumer.start()
    await anyio.sleep(0.1)
    assert not w.coordinator.members("g")
    async with consumer:
        assert consumer.assignment() == set(w.partitions), "the next start waits for an assignment as the first one did"


@virtual
async def test_a_start_that_fails_since_nobody_answers_takes_a_second_more_at_most() -> None:
    w = world("classic")
    for api in (Api.JOIN_GROUP, Api.LEAVE_GROUP):
        w.cluster.control(api, lambda broker, request: HANG, keep=True)
    consumer = consumer_on(w.cluster, "t", **OPTIONS["classic"] | {"group_id": "g"})
    with anyio.move_on_after(2):
        await consumer.start()
    assert anyio.current_time() < 3.6


@pytest.mark.slow
@both
@virtual
async def test_a_stop_at_any_moment_of_a_start_leaves_no_ghost_in_the_group(protocol: str) -> None:
    w = world(protocol)
    async with w.member():
        for milliseconds in range(40):
            consumer = consumer_on(w.cluster, "t", **OPTIONS[protocol] | {"group_id": "g"})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_start, consumer)
                await anyio.sleep(milliseconds / 1000)
                began = anyio.current_time()
                await consumer.stop()
                assert anyio.current_time() - began < 0.1, milliseconds
            await anyio.sleep(0.1)
            assert len(w.coordinator.members("g")) == 1, milliseconds


@both
def test_a_stop_by_a_task_that_a_listener_begins_ends_the_start(protocol: str) -> None:
    """On asyncio, where that task always comes before the end of the start."""
    run_virtual_asyncio(partial(_stopping_while_it_starts, protocol))


async def _stopping_while_it_starts(protocol: str) -> None:
    w = world(protocol)

    class Stopping(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            tasks.start_soon(consumer.stop)

    consumer = consumer_on(w.cluster, **OPTIONS[protocol] | {"group_id": "g"})
    consumer.subscribe(["t"], listener=Stopping())
    async with anyio.create_task_group() as tasks:
        with pytest.raises(ConsumerStoppedError):
            await consumer.start()
        assert consumer.state is ConsumerState.CLOSED
    await anyio.sleep(0.1)
    assert not w.coordinator.members("g")


async def _start(consumer: Consumer) -> None:
    with suppress(ConsumerStoppedError):
        await consumer.start()


@define(eq=False)
class Commits(ConsumerRebalanceListener):
    """Commits what was read while it is told that partitions leave, as applications without auto-commit do."""

    consumer: Consumer
    errors: list[Exception] = Factory(list)
    committed: list[frozenset[TopicPartition]] = Factory(list)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        try:
            await self.consumer.commit(dict.fromkeys(revoked, 1))
            self.committed.append(frozenset(revoked))
        except Exception as error:
            self.errors.append(error)


@both
@virtual
async def test_a_listener_can_commit_partitions_that_are_about_to_leave(protocol: str) -> None:
    w = world(protocol)
    async with anyio.create_task_group() as tasks:
        options = OPTIONS[protocol] | {"group_id": "g", "fetch_max_wait_ms": 50, "enable_auto_commit": False}
        consumer = consumer_on(w.cluster, **options)
        listener = Commits(consumer)
        consumer.subscribe(["t"], listener=listener)
        async with consumer:
            tasks.start_soon(Member(consumer).read)
            await anyio.sleep(1)
            async with w.member() as comes:
                tasks.start_soon(comes.read)
                await until(lambda: len(comes.consumer.assignment()) == 2)
                assert listener.errors == []
                assert len(listener.committed[0]) == 2
        tasks.cancel_scope.cancel()
