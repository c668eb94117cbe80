"""The loop itself, on a fake cluster under virtual time: when it wakes, and how it ends."""

from typing import Any

import anyio
import pytest

from kafka_async.background.boundary import EventHandler, FetchBuffer, LoopInterrupted
from kafka_async.background.loop.loop import BackgroundLoop
from kafka_async.config import ConsumerConfig
from kafka_async.errors import BackgroundLoopError, ConsumerStoppedError
from kafka_async.events import AssignFromUser, BackgroundSnapshot, Call, ClusterDescription, Stop, TakeSnapshot, TopicMetadata
from kafka_async.testing.simulation import FakeCluster
from kafka_async.trace import Fault, TraceEvent
from tests.application.support import virtual


class World:
    """A loop on a cluster."""

    def __init__(self, cluster: FakeCluster, **options: Any) -> None:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest", **options}
        config = ConsumerConfig.from_options(options)
        self.handler = EventHandler(lambda: self.loop.wake(), lambda: None)
        self.buffer = FetchBuffer(config.fetch_buffer_bytes, lambda: None, lambda: self.loop.wake())
        self.ends = 0
        self.bug: BaseException | None = None
        self.seen: list[TraceEvent] = []
        self.loop = BackgroundLoop(
            config=config,
            handler=self.handler,
            buffer=self.buffer,
            trace=self._trace,
            transport_factory=cluster.network,
            on_end=self._end,
        )

    def _trace(self, event: TraceEvent) -> None:
        self.seen.append(event)
        if self.bug is not None:
            raise self.bug

    def _end(self) -> None:
        self.ends += 1

    async def stop(self, seconds: float = 5.0) -> None:
        done = anyio.Event()
        self.handler.add(Stop(call=Call(anyio.current_time() + seconds, done.set)))
        await done.wait()


@virtual
async def test_a_login_that_shows_a_secret_is_reported_once_at_the_loops_time() -> None:
    world = World(
        FakeCluster(),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="user",
        sasl_plain_password="pencil",
    )
    await anyio.sleep(50)
    begun = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.loop.run)
        await anyio.sleep(10)
        tasks.cancel_scope.cancel()
    (fault,) = [event for event in world.seen if isinstance(event, Fault) and "shows the password" in event.text]
    assert (fault.now, "pencil" in repr(fault)) == (begun, False)


@virtual
async def test_it_wakes_when_it_is_asked_and_not_before() -> None:
    world = World(FakeCluster())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.loop.run)
        await anyio.sleep(10)
        before = world.loop.background.loop_state.wake_ups
        await anyio.sleep(100)
        assert world.loop.background.loop_state.wake_ups == before
        call: Call[BackgroundSnapshot] = Call(1e9)
        world.handler.add(TakeSnapshot(call=call))
        await anyio.sleep(0.001)
        assert call.done
        assert world.loop.background.loop_state.wake_ups <= before + 2
        await world.stop()
    assert (type(world.handler.ended), world.loop.failure, world.ends) == (ConsumerStoppedError, None, 1)


@virtual
async def test_a_wake_up_during_a_turn_is_not_lost() -> None:
    cluster = FakeCluster()
    world = World(cluster)
    calls: list[Call[BackgroundSnapshot]] = [Call(1e9) for _ in range(20)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.loop.run)
        for call in calls:
            world.handler.add(TakeSnapshot(call=call))
            await anyio.sleep(0.0005)
        await anyio.sleep(0.01)
        assert all(call.done for call in calls)
        await world.stop()


@pytest.mark.parametrize("how", ["well", "stopped", "frozen", "never there"])
@virtual
async def test_it_stops_in_time_and_leaves_no_connection(how: str) -> None:
    cluster = FakeCluster(size=2)
    (tp,) = cluster.create_topic("t")
    if how == "never there":
        cluster.stop(0, "hang")
        cluster.stop(1, "hang")
    world = World(cluster)
    world.handler.add(AssignFromUser(stamps={tp: 1}))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.loop.run)
        await anyio.sleep(2)
        if how == "stopped":
            cluster.stop(0)
        elif how == "frozen":
            cluster.freeze(0)
        before = anyio.current_time()
        await world.stop(5.0)
        assert anyio.current_time() - before <= 5.01
    assert anyio.current_time() - before <= 6.1
    assert not cluster.network.live()


@virtual
async def test_a_bug_fails_every_call_with_its_cause() -> None:
    world = World(FakeCluster())
    waiting: Call[ClusterDescription] = Call(1e9)
    async with anyio.create_task_group() as tasks:
        world.bug = ZeroDivisionError("a bug")
        tasks.start_soon(world.loop.run)
        world.handler.add(TopicMetadata(call=waiting, topics=None))
        await anyio.sleep(1)
    with pytest.raises(BackgroundLoopError, match="a bug") as caught:
        waiting.result()
    assert caught.value.__cause__ is world.bug
    assert (world.loop.failure, world.ends) == (world.bug, 1)


class Panic(BaseException):
    """What extensions written in Rust raise for a bug of theirs."""


@virtual
async def test_what_is_no_exception_and_no_end_either_is_a_bug_like_any_other() -> None:
    world = World(FakeCluster())
    world.bug = Panic("of a token provider")
    call = Call[ClusterDescription](anyio.current_time() + 5)
    with anyio.fail_after(60):
        world.handler.add(TopicMetadata(call=call, topics=None))
        await world.loop.run()
    assert call.done
    assert isinstance(world.handler.ended, RuntimeError)
    assert isinstance(world.handler.ended.__cause__, Panic)
    with pytest.raises(BackgroundLoopError, match="of a token provider"):
        call.result()


@virtual
async def test_cancelling_its_task_ends_every_connection_and_calls_are_answered_if_it_runs_again() -> None:
    cluster = FakeCluster()
    cluster.stop(0)
    world = World(cluster)
    waiting: Call[ClusterDescription] = Call(1e9)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.loop.run)
        world.handler.add(TopicMetadata(call=waiting, topics=None))
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert isinstance(world.handler.ended, LoopInterrupted)
    assert not waiting.done
    assert not cluster.network.live()
    cluster.start(0)
    world.loop.resume()
    assert world.handler.ended is None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.loop.run)
        await anyio.sleep(5)
        assert waiting.result().topics == {}
        await world.stop()
    assert not cluster.network.live()


@virtual
async def test_a_loop_that_was_blocked_says_so() -> None:
    seen: list[TraceEvent] = []
    now = 0.0
    cluster = FakeCluster()
    world = World(cluster, metadata_max_age_ms=5000)
    world.loop.trace = seen.append
    async with anyio.create_task_group() as tasks:
        world.loop.clock = lambda: anyio.current_time() + now
        tasks.start_soon(world.loop.run)
        await anyio.sleep(1)
        now = 60.0
        await anyio.sleep(10)
        await world.stop(100.0)
    assert any("was blocked for" in getattr(event, "text", "") for event in seen)
