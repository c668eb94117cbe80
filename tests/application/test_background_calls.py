"""Calls that are cancelled, fail or are not answered: promises 2, 3 and 7 of ``tests/README.md``."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from kafka_async import ConsumerState, OffsetAndTimestamp, TopicPartition
from kafka_async.errors import (
    BackgroundLoopError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka_async.testing.simulation import FakeCluster
from kafka_async.testing.simulation.waking import TIMESTAMP
from kafka_async.wire import Api

from .support import Consumer, cancelled_at, consumer_on, filled, read_values, settle, virtual, watched

# Promise 2: every other call may be cancelled at any await, too.


ANSWERS: Mapping[str, tuple[Callable[[Consumer, TopicPartition], Any], Any]] = {
    "position": (lambda c, tp: c.position(tp), 0),
    "topics": (lambda c, tp: c.topics(), {"t"}),
    "seek_to_end": (lambda c, tp: c.seek_to_end(tp), True),
    "beginning_offsets": (lambda c, tp: c.beginning_offsets([tp]), {TopicPartition("t", 0): 0}),
    "end_offsets": (lambda c, tp: c.end_offsets([tp]), {TopicPartition("t", 0): 20}),
    "offsets_for_times": (
        lambda c, tp: c.offsets_for_times({tp: TIMESTAMP + 5500}),
        {TopicPartition("t", 0): OffsetAndTimestamp(6, TIMESTAMP + 6000, 0)},
    ),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
@virtual
async def test_a_call_may_be_cancelled_at_any_await(answer: tuple[Callable[[Consumer, TopicPartition], Any], Any]) -> None:
    call, expected = answer
    for place in range(1, 8):
        cluster, (tp,) = filled()
        runtime, signal = watched()
        async with consumer_on(cluster, runtime=runtime) as consumer:
            consumer.assign([tp])
            cut = await cancelled_at(place, call(consumer, tp))
            assert signal.waiting == 0
            assert cut in (None, (expected,))
            assert await call(consumer, tp) == expected


# Promise 3: never silent.


@virtual
async def test_a_bug_in_the_loop_ends_the_pending_call_with_its_cause() -> None:
    cluster, _ = filled(0)
    bug = RuntimeError("a bug")
    armed = False

    def listener(event: object) -> None:
        if armed:
            raise bug

    consumer = consumer_on(cluster, "t", trace=listener)
    await consumer.start()
    armed = True
    before = anyio.current_time()
    with pytest.raises(BackgroundLoopError, match="a bug") as caught:
        await consumer.getone()
    assert caught.value.__cause__ is bug
    assert anyio.current_time() - before < 1
    assert consumer.state is ConsumerState.FATAL
    with pytest.raises(BackgroundLoopError):
        await consumer.end_offsets([TopicPartition("t", 0)])
    await consumer.stop()
    await settle(cluster)


@virtual
async def test_no_access_comes_to_the_reader_and_ends_when_access_is_given() -> None:
    cluster, _ = filled()
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 20)
        cluster.topics["t"].error = TopicAuthorizationFailedError.errno
        cluster.changed()
        with pytest.raises(TopicAuthorizationFailedError):
            await consumer.getone()
        cluster.topics["t"].error = 0
        cluster.produce(TopicPartition("t", 0), "again")
        assert await read_values(consumer, 2, seconds=3) == [b"again"]


@virtual
async def test_a_topic_without_access_is_no_matter_of_calls_about_another() -> None:
    cluster, _ = filled()
    (other,) = cluster.create_topic("other", 1)
    async with consumer_on(cluster, "t", metadata_max_age_ms=500) as consumer:
        await read_values(consumer, 20)
        cluster.topics["t"].error = TopicAuthorizationFailedError.errno
        await anyio.sleep(3)
        assert await consumer.end_offsets([other]) == {other: 0}
        with pytest.raises(TopicAuthorizationFailedError):
            await consumer.getone()


@virtual
@pytest.mark.parametrize("code", [TopicAuthorizationFailedError.errno, UnknownTopicOrPartitionError.errno])
async def test_what_a_call_may_not_have_is_no_matter_of_who_reads_another_topic(code: int) -> None:
    cluster, _ = filled()
    (other,) = cluster.create_topic("other", 1)
    cluster.topics["other"].error = code
    async with consumer_on(cluster, "t") as consumer, anyio.create_task_group() as tasks:

        async def asks() -> None:
            with pytest.raises(for_code(code).__class__, match="'other'"):
                await consumer.end_offsets([other])
            cluster.produce(TopicPartition("t", 0), "after")

        await read_values(consumer, 20)
        tasks.start_soon(asks)
        assert await read_values(consumer, 1, seconds=59) == [b"after"]


@virtual
async def test_a_fatal_answer_to_a_look_up_is_raised_at_once() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster) as consumer:
        cluster.control(Api.LIST_OFFSETS, lambda broker, request: 29, keep=True)
        before = anyio.current_time()
        with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
            await consumer.end_offsets([tp])
        assert anyio.current_time() - before < 1


# Promise 7: deadlines.


@virtual
async def test_a_call_without_an_answer_ends_at_its_deadline_with_the_reason() -> None:
    cluster = FakeCluster()
    async with consumer_on(cluster, default_api_timeout_ms=2000) as consumer:
        before = anyio.current_time()
        with pytest.raises(KafkaTimeoutError) as caught:
            await consumer.end_offsets([TopicPartition("missing", 0)])
        assert isinstance(caught.value.__cause__, UnknownTopicOrPartitionError)
        assert 1.9 < anyio.current_time() - before < 2.6


@virtual
async def test_a_partition_without_a_leader_is_the_reason_why_a_look_up_has_no_answer() -> None:
    cluster = FakeCluster(size=2)
    tps = cluster.create_topic("t", 2, replicas=1)
    async with consumer_on(cluster, default_api_timeout_ms=2000) as consumer:
        assert await consumer.end_offsets(tps) == dict.fromkeys(tps, 0)
        cluster.stop(1)
        with pytest.raises(KafkaTimeoutError, match="t-1 has no leader"):
            await consumer.end_offsets(tps)


@pytest.mark.parametrize("ask", [Consumer.beginning_offsets, Consumer.end_offsets])
@virtual
async def test_a_look_at_offsets_may_have_a_deadline_of_its_own(ask: Callable[..., Any]) -> None:
    async with consumer_on(FakeCluster()) as consumer:
        before = anyio.current_time()
        with pytest.raises(KafkaTimeoutError):
            await ask(consumer, [TopicPartition("missing", 0)], timeout_ms=1000)
        assert 0.9 < anyio.current_time() - before < 1.6


@virtual
async def test_a_call_that_was_given_up_is_not_asked_later() -> None:
    cluster, (tp,) = filled(size=2)
    async with consumer_on(cluster, default_api_timeout_ms=2000) as consumer:
        await consumer.end_offsets([tp])
        cluster.stop(0)
        with pytest.raises(KafkaTimeoutError):
            await consumer.end_offsets([tp])
        asked = len(cluster.asked(Api.LIST_OFFSETS))
        cluster.start(0)
        await anyio.sleep(30)
        assert len(cluster.asked(Api.LIST_OFFSETS)) == asked
