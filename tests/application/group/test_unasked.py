"""Rebalances of consumers from which nothing was asked yet."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any, Final

import anyio
import pytest
from attrs import Factory, define

from kafka_async import ConsumerRebalanceListener, TopicPartition
from kafka_async.errors import BackgroundLoopError
from kafka_async.testing.simulation import HANG, FakeCluster
from kafka_async.trace import Fault, Notice, TraceEvent
from kafka_async.wire import Api
from tests.effort import apart
from tests.virtual import run_seeds, run_virtual_asyncio

from ..support import REBALANCES, Consumer, cancelled_at, consumer_on, read_all, virtual

PARTITIONS: Final = 4
RECORDS: Final = 5
"""Of each partition, when a test begins."""
every = pytest.mark.parametrize("protocol", sorted(REBALANCES))
COORDINATOR_LOADS: Final = 14
"""The error code of a coordinator that does not know the offsets yet."""
SOON: Final = 8.0
"""Seconds in which a rebalance is over that nobody holds up, and less than a start waits for one."""


@define(eq=False)
class World:
    """A group of one topic."""

    protocol: str
    cluster: FakeCluster = Factory(FakeCluster)
    partitions: list[TopicPartition] = Factory(list)
    seen: list[TraceEvent] = Factory(list)
    """What the members traced."""

    def __attrs_post_init__(self) -> None:
        self.partitions = self.cluster.create_topic("t", PARTITIONS)
        for partition in self.partitions:
            self.cluster.fill(partition, RECORDS)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """Return a member that is not started."""
        known = {"group_id": "g", "trace": self.seen.append, "fetch_max_wait_ms": 50}
        return consumer_on(self.cluster, *topics, **REBALANCES[self.protocol] | known | options)

    @asynccontextmanager
    async def members(self, count: int, **options: Any) -> AsyncIterator[list[Consumer]]:
        """Start so many members one after the other, in one task, and read from none of them."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.consumer("t", **options)) for _ in range(count)]

    @asynccontextmanager
    async def subscribed(self) -> AsyncIterator[Consumer]:
        """A member that subscribed after its start, without a listener, and has taken everything by itself."""
        async with self.consumer() as consumer:
            consumer.subscribe(["t"])
            await anyio.sleep(5)
            assert consumer.assignment() == set(self.partitions)
            yield consumer

    def commit(self, offset: int, partitions: list[TopicPartition]) -> None:
        """Have the group store an offset."""
        for partition in partitions:
            self.cluster.committed["g", partition] = offset

    @property
    def committed(self) -> dict[TopicPartition, int]:
        return {partition: offset for (_, partition), offset in self.cluster.committed.items()}

    @property
    def commits(self) -> int:
        """Number of requests that commit."""
        return sum(request.api is Api.OFFSET_COMMIT for request in self.cluster.requests)

    @property
    def gave_its_place_up(self) -> bool:
        """Whether a member has left because its program does not read."""
        faults = [event.text for event in self.seen if isinstance(event, Fault)]
        return any(text.startswith("group 'g': left, because") or "; leaving group 'g'" in text for text in faults)

    def count(self, text: str) -> int:
        """Return how many lines of that beginning were traced."""
        return sum(isinstance(event, (Notice, Fault)) and event.text.startswith(text) for event in self.seen)


def shares(*consumers: Consumer) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


def everything(partitions: list[TopicPartition], first: int = 0, end: int = RECORDS) -> dict[TopicPartition, list[int]]:
    return {partition: list(range(first, end)) for partition in partitions}


def sorted_offsets(found: dict[TopicPartition, list[int]]) -> dict[TopicPartition, list[int]]:
    return {partition: sorted(offsets) for partition, offsets in found.items()}


async def joins(w: World, **options: Any) -> float:
    """Start another member for a moment; return how long its start took."""
    began = anyio.current_time()
    async with w.consumer("t", **options):
        return anyio.current_time() - began


@pytest.mark.slow
@every
@virtual
async def test_members_that_are_started_and_not_read_yet_share_the_partitions(protocol: str) -> None:
    w = World(protocol)
    async with w.members(3, auto_commit_interval_ms=0) as members:
        assert anyio.current_time() < SOON
        await anyio.sleep(2)
        assert shares(*members) == [1, 1, 2]
        assert not w.commits
        assert await read_all(members) == everything(w.partitions)


@every
@virtual
async def test_what_is_committed_is_given_up_whatever_the_policy(protocol: str) -> None:
    w = World(protocol)
    w.commit(3, w.partitions)
    async with w.members(3, auto_offset_reset="latest") as members:
        assert anyio.current_time() < SOON
        await anyio.sleep(2)
        assert shares(*members) == [1, 1, 2]
        assert not w.commits
        assert await read_all(members) == everything(w.partitions, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"auto_offset_reset": "latest"},
        {"auto_offset_reset": "by_duration:P1D"},
        {"auto_offset_reset": "none"},
        {"auto_offset_reset_new_partitions": "latest"},
    ],
    ids=lambda options: "-".join(options.values()),
)
@every
@virtual
async def test_what_the_next_owner_would_begin_elsewhere_waits_for_a_read(protocol: str, options: dict[str, str]) -> None:
    w = World(protocol)
    async with w.consumer("t", **options) as waits:
        await anyio.sleep(1)
        async with w.consumer("t", **options, request_timeout_ms=5_000):
            await anyio.sleep(2)
            assert waits.assignment() == set(w.partitions)
    assert not w.count("revoked")


@virtual
async def test_one_partition_without_a_commit_holds_up_what_an_eager_rebalance_takes() -> None:
    w = World("eager")
    w.commit(3, w.partitions[1:])
    async with w.consumer("t", auto_offset_reset="latest") as waits:
        await joins(w, auto_offset_reset="latest", request_timeout_ms=5_000)
        assert waits.assignment() == set(w.partitions)
    assert not w.count("revoked")


@every
@virtual
async def test_a_position_that_is_not_known_yet_waits_for_a_read_unless_all_begin_at_the_first_record(protocol: str) -> None:
    w = World(protocol)
    w.commit(3, w.partitions)
    w.cluster.control(Api.OFFSET_FETCH, lambda broker, request: COORDINATOR_LOADS, keep=True)
    async with w.consumer("t", auto_offset_reset="latest") as waits:
        await joins(w, auto_offset_reset="latest", request_timeout_ms=5_000)
        assert waits.assignment() == set(w.partitions)
    assert not w.count("revoked")
    async with w.consumer("t"):
        assert await joins(w) < SOON


class Silent(ConsumerRebalanceListener):
    """Has nothing to do, but wants to be called inside a read."""


@every
@virtual
async def test_a_listener_is_called_inside_a_read_so_the_rebalance_waits_for_that(protocol: str) -> None:
    w = World(protocol)
    listens = w.consumer()
    listens.subscribe(["t"], listener=Silent())
    async with listens:
        await joins(w, request_timeout_ms=5_000)
        assert listens.assignment() == set(w.partitions)
    assert not w.count("revoked")


@define(eq=False)
class Told(ConsumerRebalanceListener):
    """Notes its calls, and seeks."""

    consumer: Consumer
    to: int | None = None
    seconds: float = 0.0
    calls: list[tuple[str, list[TopicPartition]]] = Factory(list)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", sorted(assigned)))
        await anyio.sleep(self.seconds)
        for partition in assigned if self.to is not None else ():
            self.consumer.seek(partition, self.to or 0)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(revoked)))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(lost)))


@every
@virtual
async def test_a_listener_that_is_set_before_the_first_read_is_told_in_it_of_what_was_taken_at_once(protocol: str) -> None:
    w = World(protocol)
    async with w.subscribed() as consumer:
        listener = Told(consumer, to=4)
        consumer.subscribe(["t"], listener=listener)
        assert not listener.calls
        assert await read_all([consumer]) == everything(w.partitions, 4)
        assert listener.calls == [("assigned", w.partitions)]


@every
@virtual
async def test_while_such_a_listener_is_told_other_tasks_get_nothing_of_that(protocol: str) -> None:
    w = World(protocol)
    async with w.subscribed() as consumer:
        listener = Told(consumer, to=4, seconds=1)
        consumer.subscribe(["t"], listener=listener)
        assert await read_all([consumer, consumer]) == everything(w.partitions, 4)
        assert listener.calls == [("assigned", w.partitions)]


@every
@virtual
async def test_a_read_that_is_cancelled_while_such_a_listener_is_told_is_gone_on_with(protocol: str) -> None:
    w = World(protocol)
    async with w.subscribed() as consumer:
        listener = Told(consumer, to=4, seconds=2)
        consumer.subscribe(["t"], listener=listener)
        with anyio.move_on_after(1):
            await consumer.getone()
        assert await read_all([consumer]) == everything(w.partitions, 4)
        assert listener.calls == [("assigned", w.partitions)]


@every
@virtual
async def test_a_listener_is_not_told_of_what_start_has_taken_but_of_what_came_back_since(protocol: str) -> None:
    w = World(protocol)
    async with w.members(1) as (stays,):
        async with w.members(1) as (goes,):
            await anyio.sleep(2)
            came_back = w.partitions if protocol == "eager" else sorted(goes.assignment())
        await anyio.sleep(4)
        listener = Told(stays)
        stays.subscribe(["t"], listener=listener)
        assert await read_all([stays]) == everything(w.partitions)
        assert listener.calls == [("assigned", came_back)]
    w = World(protocol)
    async with w.members(1) as (stays,):
        listener = Told(stays)
        stays.subscribe(["t"], listener=listener)
        assert await read_all([stays]) == everything(w.partitions)
        assert not listener.calls


@every
@virtual
async def test_a_listener_that_is_set_after_the_first_read_is_not_told_of_what_came_before_it(protocol: str) -> None:
    w = World(protocol)
    async with w.subscribed() as consumer:
        assert await read_all([consumer]) == everything(w.partitions)
        listener = Told(consumer)
        consumer.subscribe(["t"], listener=listener)
        await consumer.getmany(timeout_ms=1000)
        assert not listener.calls


@pytest.mark.slow
@every
@virtual
async def test_such_a_listener_is_told_nothing_of_what_was_lost_or_unsubscribed_before_the_first_read(protocol: str) -> None:
    w = World(protocol)
    async with w.consumer(max_poll_interval_ms=6_000) as consumer:
        consumer.subscribe(["t"])
        await anyio.sleep(20)
        assert w.gave_its_place_up
        listener = Told(consumer)
        consumer.subscribe(["t"], listener=listener)
        assert await read_all([consumer], 5) == everything(w.partitions)
        assert listener.calls == [("lost", w.partitions), ("assigned", w.partitions)]
    w = World(protocol)
    async with w.subscribed() as consumer:
        consumer.unsubscribe()
        listener = Told(consumer)
        consumer.subscribe(["t"], listener=listener)
        assert await read_all([consumer], 5) == everything(w.partitions)
        assert listener.calls == [("assigned", w.partitions)]


@virtual
async def test_after_unsubscribe_a_new_subscription_waits_for_reads() -> None:
    w = World("consumer")
    async with w.members(1) as (consumer,):
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        await anyio.sleep(5)
        assert not consumer.assignment()
        assert await read_all([consumer]) == everything(w.partitions)


@define(eq=False)
class Once:
    """A trace listener that does something at the first line with this beginning, once it is ``armed``."""

    text: str
    do: Callable[[], object]
    armed: bool = False

    def __call__(self, event: TraceEvent) -> None:
        if self.armed and isinstance(event, Notice) and event.text.startswith(self.text):
            self.armed = False
            self.do()


def divide_by_zero() -> float:
    return 1 / 0


@pytest.mark.slow
@pytest.mark.parametrize("text", ["revoked", "assigned"])
@every
@virtual
async def test_what_a_trace_listener_raises_reaches_the_next_call_and_the_rebalance_goes_on(protocol: str, text: str) -> None:
    w = World(protocol)
    trace = Once(text, divide_by_zero)
    async with w.consumer("t", trace=trace) as traces:
        await anyio.sleep(1)
        trace.armed = True
        async with w.consumer("t", request_timeout_ms=5_000) as comes:
            await anyio.sleep(2)
            assert not trace.armed
            assert traces.alive
            with pytest.raises(BackgroundLoopError, match="a rebalance before the first call failed: ZeroDivisionError") as raised:
                await traces.getmany(timeout_ms=0)
            assert isinstance(raised.value.__cause__, ZeroDivisionError)
            assert await read_all([traces, comes], 6) == everything(w.partitions)
            assert shares(traces, comes) == [2, 2]


@pytest.mark.parametrize("text", ["revoked", "assigned"])
@every
@virtual
async def test_a_listener_that_is_set_after_that_is_told_of_what_was_taken(protocol: str, text: str) -> None:
    w = World(protocol)
    trace = Once(text, divide_by_zero, armed=True)
    async with w.consumer(trace=trace) as traces:
        traces.subscribe(["t"])
        await anyio.sleep(5)
        async with w.consumer("t", request_timeout_ms=5_000) as comes:
            await anyio.sleep(1)
            assert not trace.armed
            listener = Told(traces)
            traces.subscribe(["t"], listener=listener)  # and it wants to hear of no failure of the subscription before
            assert await read_all([traces, comes], 6) == everything(w.partitions)
            assert shares(traces, comes) == [2, 2]
            kept = set[TopicPartition]()
            for what, partitions in listener.calls:
                kept = kept | set(partitions) if what == "assigned" else kept - set(partitions)
            assert kept == traces.assignment()


@pytest.mark.parametrize("text", ["revoked", "assigned"])
@every
@virtual
async def test_a_trace_listener_may_unsubscribe(protocol: str, text: str) -> None:
    w = World(protocol)
    trace = Once(text, lambda: leaves.unsubscribe())
    leaves = w.consumer("t", trace=trace)
    async with leaves:
        await anyio.sleep(1)
        trace.armed = True
        async with w.consumer("t") as comes:
            await anyio.sleep(4)
            assert not trace.armed
            assert not leaves.assignment()
            assert await leaves.getmany(timeout_ms=0) == {}
            assert await read_all([comes], 5) == everything(w.partitions)


@pytest.mark.parametrize("text", ["revoked", "assigned"])
@every
def test_a_stop_that_begins_right_after_such_a_step_holds_up_nobody(protocol: str, text: str) -> None:
    """In the eager protocol it completes the generation of the others, and leaves before they know."""

    async def run() -> None:
        w = World(protocol)
        async with anyio.create_task_group() as tasks:
            trace = Once(text, lambda: tasks.start_soon(stops.stop))
            stops = w.consumer("t", trace=trace)
            await stops.start()
            await anyio.sleep(1)
            trace.armed = True
            async with w.consumer("t", request_timeout_ms=5_000) as comes:
                assert await read_all([comes], 5) == everything(w.partitions)
                assert not trace.armed

    run_virtual_asyncio(run)


@pytest.mark.parametrize("text", ["revoked", "assigned"])
@every
@virtual
async def test_a_trace_listener_may_subscribe_with_a_listener(protocol: str, text: str) -> None:
    """It is called inside reads only, and so not in the step in which it was set."""
    w = World(protocol)
    trace = Once(text, lambda: subscribes.subscribe(["t"], listener=listener))
    subscribes = w.consumer("t", trace=trace)
    listener = Told(subscribes, seconds=1)
    async with subscribes:
        await anyio.sleep(1)
        trace.armed = True
        async with w.consumer("t", request_timeout_ms=5_000) as comes:
            await anyio.sleep(1)
            assert not trace.armed
            assert not listener.calls
            assert await read_all([subscribes, comes], 10) == everything(w.partitions)
            assert shares(subscribes, comes) == [2, 2]


Call = Callable[[Consumer, TopicPartition], Any]
ASKING: Final[dict[str, Call]] = {
    "getmany": lambda consumer, tp: consumer.getmany(timeout_ms=0),
    "position": lambda consumer, tp: consumer.position(tp),
    "seek": lambda consumer, tp: consumer.seek(tp, 2),
    "seek_to_beginning": lambda consumer, tp: consumer.seek_to_beginning(tp),
    "pause": lambda consumer, tp: consumer.pause(tp),
    "resume": lambda consumer, tp: consumer.resume(tp),
    "commit": lambda consumer, tp: consumer.commit({tp: 1}),
    "next_offsets": lambda consumer, tp: consumer.next_offsets(),
    "end_offsets": lambda consumer, tp: consumer.end_offsets([tp]),
    "offsets_for_times": lambda consumer, tp: consumer.offsets_for_times({tp: 0}),
    "enforce_rebalance": lambda consumer, tp: consumer.enforce_rebalance(),
    "seek_to_timestamp": lambda consumer, tp: consumer.seek_to_timestamp(0),
    "seek_to_committed": lambda consumer, tp: consumer.seek_to_committed(tp),
}
LOOKING: Final[dict[str, Call]] = {
    "state": lambda consumer, tp: (consumer.assignment(), consumer.ready, consumer.state, consumer.alive, consumer.paused()),
    "marks": lambda consumer, tp: (consumer.highwater(tp), consumer.current_lag(tp), consumer.last_poll_timestamp(tp)),
    "group": lambda consumer, tp: (consumer.group_metadata(), consumer.subscription(), consumer.assigned_once),
    "numbers": lambda consumer, tp: (consumer.metrics(), consumer.statistics()),
    "topics": lambda consumer, tp: consumer.topics(),
    "partitions": lambda consumer, tp: consumer.partitions_for_topic("t"),
    "committed": lambda consumer, tp: consumer.committed(tp),
    "committed_offsets": lambda consumer, tp: consumer.committed_offsets(),
    "seek_to_committed": lambda consumer, tp: consumer.seek_to_committed(),
}


async def call(what: Call, consumer: Consumer, partition: TopicPartition) -> None:
    result = what(consumer, partition)
    if isinstance(result, Awaitable):
        await result


@pytest.mark.parametrize("name", sorted(ASKING))
@virtual
async def test_from_the_first_call_that_asks_for_something_on_rebalances_wait_for_reads(name: str) -> None:
    w = World("cooperative")
    async with w.consumer("t") as asked:
        await call(ASKING[name], asked, w.partitions[0])
        await anyio.sleep(1)
        async with w.consumer("t", request_timeout_ms=3_000):
            await anyio.sleep(2)
            assert asked.assignment() == set(w.partitions)


@pytest.mark.parametrize("name", sorted(LOOKING))
@virtual
async def test_calls_that_only_look_do_not_count(name: str) -> None:
    w = World("consumer")
    async with w.consumer("t") as looks:
        await call(LOOKING[name], looks, w.partitions[0])
        assert await joins(w) < SOON


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["earliest", *apart("latest")])
@every
@virtual
async def test_a_seek_to_the_committed_offsets_at_any_moment_of_a_rebalance_loses_nothing(protocol: str, policy: str) -> None:
    for milliseconds in range(0, 600, 100):
        w = World(protocol)
        w.commit(3, w.partitions)
        options = {"auto_offset_reset": policy, "request_timeout_ms": 3_000}
        async with w.members(1, **options) as (seeks,), AsyncExitStack() as stack, anyio.create_task_group() as tasks:
            comes = w.consumer("t", **options)
            stack.push_async_callback(comes.stop)
            tasks.start_soon(comes.start)
            await anyio.sleep(milliseconds / 1000)
            if seeks.assignment():
                found = await seeks.seek_to_committed()
                assert set(found.values()) == {3}
            await anyio.sleep(4)
            assert policy == "latest" or shares(seeks, comes) == [2, 2]
            assert await read_all([seeks, comes], 5) == everything(w.partitions, 3), milliseconds


@define(eq=False)
class Late:
    """Resumes a call so many seconds later from where it first waits ``when``: the event loop was busy, while the answer came."""

    call: Coroutine[Any, Any, Any]
    seconds: float
    when: Callable[[], object] = lambda: True

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self.call.__await__()
        step = next(steps)
        while not self.when():
            yield step
            step = next(steps)
        yield from anyio.sleep(self.seconds).__await__()
        return (yield from steps)


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_a_partition_that_went_and_came_back_is_not_sought_to_an_answer_from_before(protocol: str) -> None:
    async def run() -> None:
        w = World(protocol)
        w.commit(3, w.partitions)
        async with w.members(1) as (seeks,), anyio.create_task_group() as tasks:
            await anyio.sleep(1)
            moved: set[TopicPartition] = set()

            async def comes_and_goes() -> None:
                await anyio.sleep(1)  # the answer is there
                async with w.members(1) as (comes,):
                    await anyio.sleep(2)
                    moved.update(comes.assignment())
                    w.commit(4, sorted(moved))

            tasks.start_soon(comes_and_goes)
            assert set((await Late(seeks.seek_to_committed(), 20)).values()) == {3}
            assert len(moved) == 2
            assert seeks.assignment() == set(w.partitions)
            kept = set(w.partitions) - moved
            assert await read_all([seeks]) == everything(sorted(kept), 3) | everything(sorted(moved), 4)

    run_virtual_asyncio(run)


@every
def test_what_is_proposed_in_the_last_step_of_a_start_is_carried_out_when_it_is_over(protocol: str) -> None:
    async def run() -> None:
        w = World(protocol)
        first, second = w.consumer("t"), w.consumer("t")

        async def come() -> None:
            await anyio.sleep(2)
            await second.start()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(come)
            await Late(first.start(), 10, first.assignment)
            assert first.assignment() != set(w.partitions)
        await anyio.sleep(2)
        assert shares(first, second) == [2, 2]
        assert await read_all([first, second]) == everything(w.partitions)
        await first.stop()
        await second.stop()

    run_virtual_asyncio(run)


@every
@virtual
async def test_a_committed_offset_that_is_out_of_range_waits_for_a_read(protocol: str) -> None:
    """The next owner would be told of that later, and begin at another end of the log."""
    w = World(protocol)
    w.commit(100, w.partitions)
    async with w.consumer("t", auto_offset_reset="latest") as waits:
        await anyio.sleep(2)
        await joins(w, auto_offset_reset="latest", request_timeout_ms=5_000)
        assert waits.assignment() == set(w.partitions)
    assert not w.count("revoked")


@virtual
async def test_nothing_is_returned_of_a_topic_that_is_not_subscribed_any_more() -> None:
    """What was proposed for the subscription before this one waited for a read, since that one had a listener."""
    w = World("consumer")
    w.cluster.create_topic("u", 1)
    async with w.consumer() as consumer:
        consumer.subscribe(["t"], listener=Silent())
        await anyio.sleep(5)
        assert not consumer.assignment()
        go_on = w.cluster.control(Api.CONSUMER_GROUP_HEARTBEAT, lambda broker, request: HANG, keep=True)
        consumer.subscribe(["u"])
        await anyio.sleep(2)
        assert consumer.assignment() == set(w.partitions)
        assert not await consumer.getmany(timeout_ms=0)
        go_on()


@every
@virtual
async def test_what_stays_keeps_its_position(protocol: str) -> None:
    w = World(protocol)
    w.commit(3, w.partitions)
    async with w.members(1) as (stays,):
        await anyio.sleep(1)  # positions are known
        w.commit(1, w.partitions)  # somebody else's business: it is for who begins now
        async with w.members(1) as (comes,):
            await anyio.sleep(2)
            kept, moved = stays.assignment(), comes.assignment()
            assert (len(kept), kept | moved) == (2, set(w.partitions))
            found = await read_all([stays, comes])
            assert found == everything(sorted(kept), 3) | everything(sorted(moved), 1)


@every
@virtual
async def test_members_that_come_and_go_change_nothing_for_those_that_are_read_from(protocol: str) -> None:
    w = World(protocol)
    async with w.members(1) as (reads,):
        found = await read_all([reads])
        async with w.members(2) as others, anyio.create_task_group() as tasks:
            # Two members that are not read from come while the first one is; then one of them goes.
            tasks.start_soon(others[0].stop)
            more = await read_all([reads], 5)
            assert not more
            for partition in w.partitions:
                w.cluster.fill(partition, RECORDS)
            await anyio.sleep(1)
            more = await read_all([reads, others[1]])
    assert found == everything(w.partitions)
    assert more == everything(w.partitions, RECORDS, 2 * RECORDS)


def deserialize(data: bytes | None) -> bytes:
    raise AssertionError("a record was deserialized")


@virtual
async def test_nothing_is_deserialized() -> None:
    w = World("consumer")
    async with w.members(3, value_deserializer=deserialize) as members:
        await anyio.sleep(2)
        assert shares(*members) == [1, 1, 2]


@every
@virtual
async def test_a_subscription_after_the_start_takes_part_too(protocol: str) -> None:
    w = World(protocol)
    async with w.subscribed():
        assert await joins(w) < SOON


@pytest.mark.slow
@every
@virtual
async def test_a_stop_at_any_moment_of_a_rebalance_leaves_the_group(protocol: str) -> None:
    for milliseconds in range(0, 700, 70):
        w = World(protocol)
        stops = w.consumer("t")
        await stops.start()
        comes = w.consumer("t")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(comes.start)
            await anyio.sleep(milliseconds / 1000)
            await stops.stop()
        await anyio.sleep(4)
        assert comes.assignment() == set(w.partitions), milliseconds
        assert len(w.cluster.groups.members("g")) == 1
        assert await read_all([comes]) == everything(w.partitions)
        await comes.stop()


@pytest.mark.slow
@pytest.mark.parametrize("commits", [True, *apart(False)])
@every
@virtual
async def test_a_first_read_at_any_moment_of_a_rebalance_loses_and_repeats_nothing(protocol: str, commits: bool) -> None:
    for milliseconds in range(0, 700, 70):
        w = World(protocol)
        async with (
            w.members(1, enable_auto_commit=commits) as (reads,),
            AsyncExitStack() as stack,
            anyio.create_task_group() as tasks,
        ):
            comes = w.consumer("t", enable_auto_commit=commits)
            stack.push_async_callback(comes.stop)
            tasks.start_soon(comes.start)
            await anyio.sleep(milliseconds / 1000)
            found = await read_all([reads], 3)
            for partition, offsets in (await read_all([reads, comes])).items():
                found.setdefault(partition, []).extend(offsets)
            if commits:
                assert found == everything(w.partitions), milliseconds
            else:  # a partition that was read from before it left is read again, as always
                assert {tp: sorted(set(offsets)) for tp, offsets in found.items()} == everything(w.partitions), milliseconds


@pytest.mark.slow
@every
@virtual
async def test_a_first_read_that_is_cancelled_at_any_await_loses_nothing(protocol: str) -> None:
    for place in range(1, 8):
        w = World(protocol)
        async with w.members(2) as (first, second):
            await cancelled_at(place, first.getone())
            found = await read_all([first, second], 5)
            assert {tp: offsets[-1] for tp, offsets in found.items()} == dict.fromkeys(w.partitions, RECORDS - 1)
            assert sum(map(len, found.values())) >= PARTITIONS * RECORDS - 1, "what the cancelled read returned"


@pytest.mark.slow
@every
@virtual
async def test_a_program_that_never_reads_is_found_out_however_often_the_group_rebalances(protocol: str) -> None:
    w = World(protocol)
    limit = 6.0
    async with w.consumer("t", max_poll_interval_ms=int(limit * 1000)) as never:
        began = anyio.current_time()
        while not w.gave_its_place_up and anyio.current_time() < began + 3 * limit:
            with anyio.move_on_after(1):
                await joins(w)
            await anyio.sleep(0.1)
        assert limit - 1 < anyio.current_time() - began < limit + 2
        async with w.members(1) as (other,):
            await anyio.sleep(2 * limit)
            assert other.assignment() == set(w.partitions), "it stays away"
            await never.getmany(timeout_ms=0)
            await read_all([never, other], 5)
            assert shares(never, other) == [2, 2], "it is back once it reads"


@define(eq=False)
class Life:
    """One member of a random program: when it starts, for how long nothing is asked, for how long it reads."""

    consumer: Consumer
    waits: float
    silent: float
    reads: float
    commits: bool
    """Itself, after each batch."""
    found: dict[TopicPartition, list[int]] = Factory(dict)

    async def live(self) -> None:
        await anyio.sleep(self.waits)
        async with self.consumer:
            await anyio.sleep(self.silent)
            until = anyio.current_time() + self.reads
            while anyio.current_time() < until:
                batch = await self.consumer.getmany(timeout_ms=100)
                for partition, records in batch.items():
                    self.found.setdefault(partition, []).extend(record.offset for record in records)
                if self.commits and batch:
                    await self.consumer.commit()


async def members_at_random(seed: int) -> None:
    """Have members come, be silent, read and go under load; every record that was written comes once."""
    chance = Random(seed)  # noqa: S311  # not a secret
    w = World(chance.choice(sorted(REBALANCES)))
    policy, by_itself = chance.choice(("earliest", "latest")), chance.random() < 0.5
    first = 0
    if policy == "latest":  # all begin where the group has stored an offset
        first = 3
        w.commit(first, w.partitions)
    options = {"auto_offset_reset": policy, "enable_auto_commit": not by_itself, "auto_commit_interval_ms": 300}
    lives = [
        Life(
            w.consumer("t", **options),
            chance.uniform(0, 4),
            chance.choice((0, 0.3, 2, 6)),
            chance.choice((0, 0.5, 3, 8)),
            by_itself,
        )
        for _ in range(chance.randint(2, 4))
    ]
    async with anyio.create_task_group() as tasks:
        for life in lives:
            tasks.start_soon(life.live)
        for _ in range(100):
            w.cluster.produce(chance.choice(w.partitions), b"x")
            await anyio.sleep(0.1)
    last = Life(w.consumer("t", **options), 0, 0, 3, by_itself)
    await last.live()
    ends = {partition: w.cluster.partition(partition).log.high_watermark for partition in w.partitions}
    found = {partition: sorted(offset for life in (*lives, last) for offset in life.found.get(partition, ())) for partition in ends}
    assert found == {partition: list(range(first, end)) for partition, end in ends.items()}, w.protocol


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, *apart(1)])
def test_members_that_come_and_go_silent_or_not_lose_and_repeat_nothing(part: int) -> None:
    run_seeds(members_at_random, range(part, 24, 2))
