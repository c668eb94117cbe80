"""How a consumer stops, and what calls do before the start, during the stop and after it."""

import gc
import warnings
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
import pytest

from kafka_async import ConsumerState, KafkaConsumer, ShareConsumer, TopicPartition
from kafka_async.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaConnectionError,
)
from kafka_async.testing import HANG, Api, Cluster
from kafka_async.testing.simulation import FakeCluster
from kafka_async.testing.simulation.waking import TIMESTAMP

from ..support import Consumer, cancelled_at, consumer_on, filled, read_values, settle, virtual


@virtual
async def test_stop_is_immediate_during_a_long_poll() -> None:
    cluster, _ = filled()
    consumer = consumer_on(cluster, "t", fetch_max_wait_ms=30_000)
    await consumer.start()
    await read_values(consumer, 20)
    await anyio.sleep(1)
    before = anyio.current_time()
    await consumer.stop()
    assert anyio.current_time() - before < 0.05
    await settle(cluster, 0.01)


@virtual
async def test_stop_is_immediate_with_nothing_to_do() -> None:
    cluster = FakeCluster()
    consumer = consumer_on(cluster)
    await consumer.start()
    await anyio.sleep(1)
    before = anyio.current_time()
    await consumer.stop()
    assert anyio.current_time() - before < 0.05


@virtual
async def test_stop_closes_the_fetch_sessions_that_are_not_in_use() -> None:
    cluster, tps = filled()
    consumer = consumer_on(cluster, "t", fetch_max_wait_ms=100)
    await consumer.start()
    await read_values(consumer, 20)
    consumer.pause(*tps)
    await anyio.sleep(1)
    assert cluster.brokers[0].sessions
    await consumer.stop()
    assert not cluster.brokers[0].sessions


async def _dead(cluster: FakeCluster) -> None:
    cluster.stop(0)


async def _half_open(cluster: FakeCluster) -> None:
    cluster.freeze(0)


async def _hanging(cluster: FakeCluster) -> None:
    cluster.stop(0, "hang")


async def _well(cluster: FakeCluster) -> None:
    pass


@pytest.mark.parametrize("trouble", [_well, _dead, _half_open, _hanging])
@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("after", [0.0, 0.3, 40.0])
@virtual
async def test_stop_returns_in_time_whatever_the_cluster_does(
    trouble: Callable[[FakeCluster], Coroutine[Any, Any, None]], paused: bool, after: float
) -> None:
    cluster, tps = filled()
    consumer = consumer_on(cluster, "t")
    await consumer.start()
    await read_values(consumer, 5)
    if paused:
        consumer.pause(*tps)
        await anyio.sleep(1)
    await trouble(cluster)
    await anyio.sleep(after)
    before = anyio.current_time()
    await consumer.stop(timeout_ms=3000)
    assert anyio.current_time() - before <= 3.01
    await settle(cluster)


LEAVING = pytest.mark.parametrize("leave", ["stop", "unsubscribe"])


def _move(cluster: FakeCluster) -> None:
    cluster.groups.moved["g"] = 1


def _end(cluster: FakeCluster) -> None:
    cluster.stop(0)


@pytest.mark.parametrize("kind", ["classic", "consumer", "share"])
@pytest.mark.parametrize("trouble", [_move, _end])
@LEAVING
@virtual
async def test_who_leaves_at_the_moment_when_the_coordinator_moves_leaves_at_the_new_one(
    kind: str, trouble: Callable[[FakeCluster], None], leave: str
) -> None:
    """Otherwise the partitions would have no reader for a session. What was consumed is stored there before."""
    cluster, (tp,) = filled(size=2)
    cluster.move_leader(tp, 1)
    member: Consumer | ShareConsumer[Any, Any]
    if kind == "share":
        options: Any = {"bootstrap_servers": cluster.bootstrap_servers, "transport_factory": cluster.network}
        member = ShareConsumer("t", group_id="g", **options)
        await member.start()
        with anyio.fail_after(60):
            while not member.statistics().assignment:
                await member.getmany(timeout_ms=500)
    else:
        member = consumer_on(cluster, "t", group_id="g", group_protocol=kind, auto_commit_interval_ms=3_600_000)
        await member.start()
        await read_values(member, 20)
    assert len(cluster.groups.members("g")) == 1
    trouble(cluster)
    before = anyio.current_time()
    if leave == "stop":
        await member.stop()
    else:
        result = member.unsubscribe()
        if result is not None:
            await result
        await anyio.sleep(5)  # nobody waits for the answer
    assert anyio.current_time() - before < 10
    assert cluster.groups.members("g") == []
    assert kind == "share" or cluster.committed["g", tp] == 20
    await member.stop()


@virtual
async def test_stop_without_start_is_no_error_and_final() -> None:
    consumer = consumer_on(FakeCluster(), "t")
    await consumer.stop()
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        await consumer.getone()


@virtual
async def test_stop_may_be_cancelled_at_any_await_and_is_done_all_the_same() -> None:
    for place in range(1, 12):
        cluster, _ = filled()
        consumer = consumer_on(cluster, "t")
        await consumer.start()
        await read_values(consumer, 3)
        await cancelled_at(place, consumer.stop())
        assert consumer.state is ConsumerState.CLOSED
        await settle(cluster)


CALLS: Mapping[str, Callable[[Consumer, TopicPartition], Any]] = {
    "getone": lambda c, tp: c.getone(),
    "getmany": lambda c, tp: c.getmany(),
    "position": lambda c, tp: c.position(tp),
    "topics": lambda c, tp: c.topics(),
    "describe_topics": lambda c, tp: c.describe_topics("t"),
    "seek_to_beginning": lambda c, tp: c.seek_to_beginning(),
    "seek_to_end": lambda c, tp: c.seek_to_end(tp),
    "seek_to_timestamp": lambda c, tp: c.seek_to_timestamp(TIMESTAMP, tp),
    "offsets_for_times": lambda c, tp: c.offsets_for_times({tp: TIMESTAMP}),
    "beginning_offsets": lambda c, tp: c.beginning_offsets([tp]),
    "end_offsets": lambda c, tp: c.end_offsets([tp]),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
SYNC_CALLS: Mapping[str, Callable[[Consumer, TopicPartition], Any]] = {
    "seek": lambda c, tp: c.seek(tp, 0),
    "assign": lambda c, tp: c.assign([tp]),
    "subscribe": lambda c, tp: c.subscribe(["t"]),
    "unsubscribe": lambda c, tp: c.unsubscribe(),
    "pause": lambda c, tp: c.pause(tp),
    "resume": lambda c, tp: c.resume(tp),
    "iteration": lambda c, tp: aiter(c),
}


@every_call
@virtual
async def test_calls_after_stop_say_so(call: Callable[[Consumer, TopicPartition], Any]) -> None:
    cluster, (tp,) = filled()
    consumer = consumer_on(cluster, "t")
    async with consumer:
        pass
    with pytest.raises(ConsumerStoppedError):
        await call(consumer, tp)


@pytest.mark.parametrize("call", SYNC_CALLS.values(), ids=SYNC_CALLS.keys())
@virtual
async def test_synchronous_calls_after_stop_say_so(call: Callable[[Consumer, TopicPartition], Any]) -> None:
    cluster, (tp,) = filled()
    consumer = consumer_on(cluster, "t")
    async with consumer:
        pass
    with pytest.raises(ConsumerStoppedError):
        call(consumer, tp)


@every_call
@virtual
async def test_calls_before_start_say_so(call: Callable[[Consumer, TopicPartition], Any]) -> None:
    cluster, (tp,) = filled()
    consumer = consumer_on(cluster)
    consumer.assign([tp])
    with pytest.raises(IllegalStateError, match="start"):
        await call(consumer, tp)


@every_call
@virtual
async def test_pending_calls_end_when_the_consumer_is_stopped(call: Callable[[Consumer, TopicPartition], Any]) -> None:
    cluster, (tp,) = filled(0)
    ended: list[float] = []
    consumer = consumer_on(cluster)
    await consumer.start()
    cluster.freeze(0)
    consumer.assign([tp])
    async with anyio.create_task_group() as tasks:

        async def again_and_again() -> None:
            while True:
                await call(consumer, tp)
                await anyio.sleep(0.1)

        async def wait() -> None:
            with pytest.raises((ConsumerStoppedError, KafkaConnectionError)):
                await again_and_again()
            ended.append(anyio.current_time())

        tasks.start_soon(wait)
        await anyio.sleep(0.5)
        await consumer.stop(timeout_ms=1000)
    assert ended
    assert ended[0] <= 1.7


@pytest.mark.slow
@virtual
async def test_a_consumer_that_was_not_stopped_warns() -> None:
    cluster, _ = filled()
    consumer = consumer_on(cluster, "t")
    await consumer.start()
    stop = consumer.stop
    with pytest.warns(ResourceWarning, match="Unclosed KafkaConsumer: .* was not stopped"):
        consumer.__del__()
    await stop()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        consumer.__del__()
    del consumer, stop
    gc.collect()


@pytest.mark.slow
def test_a_bad_option_leaves_nothing_to_warn_about() -> None:
    with pytest.raises(TypeError, match="group_id"):
        Consumer(grup_id="x")  # type: ignore[call-arg]  # the run-time check
    with pytest.raises(ValueError, match="fetch_min_bytes"):
        Consumer(fetch_min_bytes=-1)
    gc.collect()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("timeout_ms", [None, 6000])
@virtual
async def test_a_member_whose_connections_carry_nothing_any_more_leaves_by_another_one(
    protocol: str, timeout_ms: float | None
) -> None:
    """Its last commit is on its way on one of them for as long as a stop can wait for it."""
    kit = Cluster()
    kit.topic("t")
    kit.produce_many("t", [b""] * 5)
    options: dict[str, Any] = {"group_id": "g", "group_protocol": protocol, "auto_commit_interval_ms": 3_600_000}
    consumer = consumer_on(kit.simulated, "t", **options)
    await consumer.start()
    await read_values(consumer, 5)
    await anyio.sleep(2)
    assert kit.members("g")
    kit.half_open()
    await consumer.stop(timeout_ms=timeout_ms)
    assert not kit.members("g")


@pytest.mark.parametrize("kind", [KafkaConsumer, ShareConsumer])
@pytest.mark.parametrize("timeout_ms", [None, 10])
@virtual
async def test_a_stop_while_a_failed_start_is_being_undone_stops_for_good(kind: Any, timeout_ms: int | None) -> None:
    """A service that tries again would start what was stopped."""
    cluster = Cluster()
    cluster.topic("t", partitions=1)
    consumer = kind("t", group_id="g", **cluster.options())

    async def start() -> None:
        with anyio.move_on_after(1):
            await consumer.start()

    for api in (Api.SHARE_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT):
        cluster.control(api, lambda _broker, _request: HANG, keep=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        with anyio.fail_after(5):
            while consumer.state is not ConsumerState.CLOSED:  # noqa: ASYNC110 - as a health check does
                await anyio.sleep(0.01)
        with pytest.raises(IllegalStateError):
            await consumer.start()
        await consumer.stop(timeout_ms=timeout_ms)
        assert consumer.state is ConsumerState.CLOSED
    with pytest.raises(ConsumerStoppedError):
        await consumer.start()
    assert consumer.state is ConsumerState.CLOSED
    await consumer.stop()
