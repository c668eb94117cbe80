"""The facade on a fake cluster: its life, its positions, and what it does when the cluster misbehaves."""

import gc
import re
import warnings
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
import pytest

import kafka_async
from kafka_async import ConsumerState, OffsetAndMetadata, OffsetAndTimestamp, SubscriptionPattern, TopicPartition
from kafka_async.errors import (
    BackgroundLoopError,
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaTimeoutError,
    LogTruncationError,
    NoBrokersAvailable,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka_async.wire import Api, Response
from kafka_async.wire.messages import FetchResponse
from tests.fake import HANG, KAFKA_2_1, KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, Drop, FakeCluster
from tests.fake.log import TIMESTAMP
from tests.faults.coordinator import install

from .support import Consumer, cancelled_at, consumer_on, iteration, numbers, read_values, settle, virtual, watched

RELEASES = {"2.1": KAFKA_2_1, "2.8": KAFKA_2_8, "3.9": KAFKA_3_9, "4.3": KAFKA_4_3}
every_release = pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES.keys())


def filled(count: int = 20, partitions: int = 1, **options: Any) -> tuple[FakeCluster, list[TopicPartition]]:
    """Return a cluster with a topic ``t`` of ``count`` records in each partition."""
    cluster = FakeCluster(**options)
    tps = cluster.create_topic("t", partitions)
    for tp in tps:
        cluster.fill(tp, count)
    return cluster, tps


# Life: start.


@virtual
async def test_every_connection_begins_with_the_name_and_version_of_the_client() -> None:
    """KIP-511; the broker refuses characters that are not in its pattern."""
    cluster, tps = filled()
    async with consumer_on(cluster) as consumer:
        consumer.assign(tps)
        await read_values(consumer, 20)
    said = {
        (entry.request.client_software_name, entry.request.client_software_version) for entry in cluster.asked(Api.API_VERSIONS)
    }
    assert said == {("kafka-async", kafka_async.__version__)}
    assert all(re.fullmatch(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?", word) for names in said for word in names)


@virtual
async def test_start_waits_for_the_assignment() -> None:
    cluster, tps = filled(partitions=3)
    consumer = consumer_on(cluster, "t")
    states = [consumer.state]
    assert consumer.assignment() == set()
    await consumer.start()
    states.append(consumer.state)
    assert consumer.assignment() == set(tps)
    assert consumer.subscription() == {"t"}
    await consumer.stop()
    states.append(consumer.state)
    assert states == [ConsumerState.STARTING, ConsumerState.STEADY, ConsumerState.CLOSED]


@virtual
async def test_start_fails_soon_where_no_server_answers() -> None:
    cluster = FakeCluster(size=2)
    cluster.stop(0)
    cluster.stop(1)
    consumer = consumer_on(cluster, "t")
    with pytest.raises(NoBrokersAvailable, match="b0:9092, b1:9092"):
        await consumer.start()
    assert anyio.current_time() < 1
    assert consumer.state is ConsumerState.CLOSED
    with pytest.raises(ConsumerStoppedError):
        await consumer.start()


@virtual
async def test_start_tries_every_bootstrap_server() -> None:
    cluster, _ = filled(size=3)
    cluster.stop(0)
    cluster.stop(1, "hang")
    async with consumer_on(cluster, "t") as consumer:
        assert anyio.current_time() < 5
        assert consumer.assignment()


@virtual
async def test_start_on_a_server_that_never_answers_ends_after_a_second_chance() -> None:
    cluster, _ = filled()
    cluster.control(Api.API_VERSIONS, lambda broker, request: HANG, keep=True)
    with pytest.raises(NoBrokersAvailable, match="ApiVersions was not answered in time"):
        await consumer_on(cluster, "t", request_timeout_ms=4000).start()
    assert 8 < anyio.current_time() < 9
    await settle(cluster)


@virtual
async def test_start_on_a_server_that_never_answers_ends_at_its_deadline() -> None:
    cluster, _ = filled()
    cluster.control(Api.API_VERSIONS, lambda broker, request: HANG, keep=True)
    with pytest.raises(KafkaTimeoutError):
        await consumer_on(cluster, "t", request_timeout_ms=4000, default_api_timeout_ms=5000).start()
    assert 5 <= anyio.current_time() < 6
    await settle(cluster)


@virtual
@pytest.mark.parametrize("api", [Api.API_VERSIONS, Api.METADATA, Api.FIND_COORDINATOR, Api.CONSUMER_GROUP_HEARTBEAT])
async def test_start_gets_over_one_answer_that_never_comes(api: Api) -> None:
    cluster, tps = filled()
    install(cluster)
    cluster.control(api, lambda broker, request: HANG)
    async with consumer_on(cluster, "t", group_id="g", request_timeout_ms=4000) as consumer:
        for _ in range(5):
            await consumer.getmany(timeout_ms=1000)
        assert consumer.assignment() == set(tps)
        assert consumer.state is ConsumerState.STEADY
    assert anyio.current_time() < 10


@virtual
@pytest.mark.parametrize("api", [Api.API_VERSIONS, Api.METADATA])
async def test_start_gets_over_a_connection_that_is_cut_once(api: Api) -> None:
    cluster, tps = filled()
    cluster.control(api, lambda broker, request: Drop())
    async with consumer_on(cluster, "t") as consumer:
        assert consumer.assignment() == set(tps)
    assert anyio.current_time() < 1


@virtual
@pytest.mark.parametrize(("api", "why"), [(Api.API_VERSIONS, "another security_protocol"), (Api.METADATA, "demand SASL")])
async def test_start_names_the_likely_cause_where_every_connection_is_cut(api: Api, why: str) -> None:
    cluster, _ = filled()
    cluster.control(api, lambda broker, request: Drop(), keep=True)
    with pytest.raises(NoBrokersAvailable, match=why):
        await consumer_on(cluster, "t").start()
    assert anyio.current_time() < 1
    await settle(cluster)


@virtual
async def test_connections_that_are_cut_later_raise_no_question_about_the_port(caplog: pytest.LogCaptureFixture) -> None:
    cluster, _ = filled(3)
    async with consumer_on(cluster, "t") as consumer:
        assert await consumer.getmany(timeout_ms=1000)
        cluster.control(Api.API_VERSIONS, lambda broker, request: Drop(), keep=True)
        cluster.disconnect(0)
        await consumer.getmany(timeout_ms=5000)
    assert "closed the connection before it answered" in caplog.text
    assert "does the port" not in caplog.text


@virtual
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_records_are_held_back_once_the_session_may_be_over_and_come_when_it_is_not(protocol: str) -> None:
    cluster, _ = filled(100)
    cluster.group_settings["consumer.session.timeout.ms"] = "10000"  # only the broker knows it
    install(cluster)
    options: dict[str, Any] = {"session_timeout_ms": 10_000} if protocol == "classic" else {}
    async with consumer_on(cluster, "t", group_id="g", group_protocol=protocol, enable_auto_commit=False, **options) as consumer:
        await read_values(consumer, 10)
        ends = [
            cluster.control(api, lambda broker, request: HANG, keep=True) for api in (Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT)
        ]
        await anyio.sleep(9)
        assert len(await read_values(consumer, 10, seconds=0.5)) == 10, "the session lasts"
        await anyio.sleep(6)
        assert await read_values(consumer, 10, seconds=2) == []
        for end in ends:
            end()
        cluster.disconnect(0)
        assert len(await read_values(consumer, 80)) == 80


@virtual
async def test_a_read_that_waits_is_told_when_the_session_turns_out_to_last() -> None:
    """Nothing else happens then: no state changes, no data comes."""
    cluster, _ = filled(100)
    cluster.group_settings["consumer.session.timeout.ms"] = "10000"
    install(cluster)
    options: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer", "enable_auto_commit": False}
    async with consumer_on(cluster, "t", **options) as consumer:
        await read_values(consumer, 10)
        answer = cluster.handlers[Api.CONSUMER_GROUP_HEARTBEAT]

        async def late(*asked: Any) -> Any:
            cluster.handlers[Api.CONSUMER_GROUP_HEARTBEAT] = answer
            await anyio.sleep(20)
            response = answer(*asked)
            return response if isinstance(response, Response) else await response

        cluster.handlers[Api.CONSUMER_GROUP_HEARTBEAT] = late
        await anyio.sleep(15)
        assert await read_values(consumer, 1, seconds=1) == [], "it may be over"
        begun = anyio.current_time()
        assert await consumer.getone()
        assert anyio.current_time() - begun < 10


@virtual
async def test_start_without_topics_needs_only_a_broker() -> None:
    async with consumer_on(FakeCluster()) as consumer:
        assert consumer.assignment() == set()
        with pytest.raises(IllegalStateError):
            await consumer.start()


@virtual
async def test_start_fails_for_a_topic_that_does_not_exist_in_time() -> None:
    cluster = FakeCluster()
    with pytest.raises(UnknownTopicOrPartitionError, match="missing"):
        await consumer_on(cluster, "missing", request_timeout_ms=3000).start()
    assert 2.5 <= anyio.current_time() < 4
    await settle(cluster)


@virtual
async def test_start_waits_for_a_topic_that_is_created_meanwhile() -> None:
    cluster = FakeCluster()
    async with anyio.create_task_group() as tasks:

        async def create_later() -> None:
            await anyio.sleep(2)
            cluster.create_topic("late", 2)

        tasks.start_soon(create_later)
        async with consumer_on(cluster, "late") as consumer:
            assert len(consumer.assignment()) == 2
            assert anyio.current_time() < 4


@virtual
async def test_the_broker_may_create_the_topic() -> None:
    cluster = FakeCluster(auto_create=2)
    async with consumer_on(cluster, "new") as consumer:
        assert consumer.partitions_for_topic("new") == {0, 1}


@virtual
async def test_the_broker_may_not_create_the_topic_when_told_so() -> None:
    cluster = FakeCluster(auto_create=2)
    with pytest.raises(UnknownTopicOrPartitionError):
        await consumer_on(cluster, "new", allow_auto_create_topics=False, request_timeout_ms=2000).start()


@virtual
async def test_start_fails_at_once_without_access_to_the_topic() -> None:
    cluster, _ = filled()
    cluster.topics["t"].error = TopicAuthorizationFailedError.errno
    with pytest.raises(TopicAuthorizationFailedError, match="'t'"):
        await consumer_on(cluster, "t").start()
    assert anyio.current_time() < 1


@virtual
async def test_start_fails_at_once_for_a_name_that_the_broker_calls_invalid() -> None:
    cluster, _ = filled()
    cluster.control(Api.METADATA, lambda broker, request: 17, keep=True)
    with pytest.raises(InvalidTopicError):
        await consumer_on(cluster, "t").start()


@virtual
async def test_start_may_be_cancelled_at_any_await() -> None:
    finished = False
    for place in range(1, 60):
        cluster, _ = filled(size=2)
        runtime, signal = watched()
        consumer = consumer_on(cluster, "t", runtime=runtime)
        finished = await cancelled_at(place, consumer.start()) is not None
        await consumer.stop()
        assert signal.waiting == 0
        await settle(cluster)
        if finished:
            break
        assert consumer.state is ConsumerState.CLOSED
    assert finished


# Life: stop.


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


@virtual
async def test_a_consumer_that_was_not_stopped_warns() -> None:
    cluster, _ = filled()
    consumer = consumer_on(cluster, "t")
    await consumer.start()
    stop = consumer.stop
    with pytest.warns(ResourceWarning, match="was not stopped"):
        consumer.__del__()
    await stop()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        consumer.__del__()
    del consumer, stop
    gc.collect()


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
        values: list[bytes] = []
        for _ in range(10):
            try:
                values += await read_values(consumer, 1, seconds=3)
            except TopicAuthorizationFailedError:
                continue
        assert values == [b"again"]


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


# Promise 9: idle means idle.


@virtual
async def test_an_idle_consumer_wakes_only_with_its_long_polls() -> None:
    cluster, _ = filled(partitions=6, size=3)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 120)
        before, asked = consumer.statistics().wake_ups, len(cluster.asked())
        await anyio.sleep(60)
        assert consumer.statistics().wake_ups - before <= 3 * 2 * 60 * 2
        assert len(cluster.asked()) - asked <= 3 * 2 * 60 + 3


@virtual
async def test_a_consumer_with_nothing_assigned_sleeps() -> None:
    cluster, _ = filled()
    async with consumer_on(cluster) as consumer:
        await anyio.sleep(5)
        before = consumer.statistics().wake_ups
        await anyio.sleep(60)
        assert consumer.statistics().wake_ups - before <= 2


@virtual
async def test_a_paused_consumer_sleeps() -> None:
    cluster, tps = filled()
    async with consumer_on(cluster, "t") as consumer:
        consumer.pause(*tps)
        await anyio.sleep(5)
        before = consumer.statistics().wake_ups
        await anyio.sleep(60)
        assert consumer.statistics().wake_ups - before <= 2


@virtual
async def test_a_full_buffer_lets_the_loop_sleep() -> None:
    cluster, (tp,) = filled(0)
    cluster.fill(tp, 100, per_batch=1, size=1000)
    async with consumer_on(cluster, "t", fetch_buffer_bytes=20_000) as consumer:
        await anyio.sleep(5)
        before = consumer.statistics().wake_ups
        await anyio.sleep(60)
        assert consumer.statistics().wake_ups - before <= 2


@pytest.mark.parametrize("trouble", ["refuse", "hang", "freeze"])
@virtual
async def test_a_dead_cluster_is_tried_at_intervals(trouble: str) -> None:
    cluster, _ = filled(size=3, partitions=3)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 60)
        for node in cluster.brokers:
            if trouble == "freeze":
                cluster.freeze(node)
            else:
                cluster.stop(node, trouble)
        await anyio.sleep(60)
        before, attempts = consumer.statistics().wake_ups, len(cluster.network.attempts)
        await anyio.sleep(60)
        assert consumer.statistics().wake_ups - before < 60 * 60
        assert len(cluster.network.attempts) - attempts < 60 * 4
        for node in cluster.brokers:
            cluster.start(node)
        before_read = anyio.current_time()
        cluster.fill(TopicPartition("t", 0), 1)
        assert await read_values(consumer, 1) == [b"20"]
        assert anyio.current_time() - before_read < 40


@pytest.mark.parametrize("code", [1, 3, 5, 6, 9, 29, 56, 70, 71, 74, 75, 78, 100, 103, 106, -1])
@virtual
async def test_a_fetch_error_that_never_ends_is_met_at_intervals_and_survived(code: int) -> None:
    cluster, (tp,) = filled(5)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 5)
        end = cluster.control(Api.FETCH, lambda broker, request: code, keep=True)
        start = anyio.current_time()
        await anyio.sleep(30)
        assert len(cluster.asked(since=start)) < 30 * 35
        end()
        cluster.fill(tp, 3)
        values: list[bytes] = []
        for _ in range(5):
            try:
                values += await read_values(consumer, 3, seconds=3)
            except TopicAuthorizationFailedError:
                continue
        # Out of range is believed, and the policy is "earliest": the log is read again from its beginning.
        assert values == (numbers(8) if code == OffsetOutOfRangeError.errno else numbers(3, 5))


@pytest.mark.parametrize(
    ("api", "code"),
    [(Api.METADATA, 3), (Api.METADATA, 5), *((Api.LIST_OFFSETS, code) for code in (3, 5, 6, 9, 56, 74, 75, 78, 14))],
)
@virtual
async def test_errors_on_the_way_to_a_position_are_survived(api: Api, code: int) -> None:
    cluster, _ = filled(5)
    end = cluster.control(api, lambda broker, request: code, keep=True)
    async with anyio.create_task_group() as tasks:

        async def mend() -> None:
            await anyio.sleep(5)
            end()

        tasks.start_soon(mend)
        async with consumer_on(cluster, "t") as consumer:
            assert await read_values(consumer, 5) == numbers(5)
            assert 5 < anyio.current_time() < 7
            assert len(cluster.asked()) < 5 * 35


# Releases, chunks, connections.


@every_release
@virtual
async def test_brokers_of_many_releases_are_read(release: Mapping[Api, int]) -> None:
    cluster, tps = filled(50, partitions=3, size=2, max_versions=release)
    async with consumer_on(cluster, "t") as consumer:
        assert len(await read_values(consumer, 150)) == 150
        cluster.fill(tps[0], 5)
        assert await read_values(consumer, 5) == numbers(5, 50)
        assert await consumer.end_offsets(tps) == {tps[0]: 55, tps[1]: 50, tps[2]: 50}
        versions = {entry.version for entry in cluster.asked(Api.FETCH)}
        assert versions == {release[Api.FETCH]}


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@virtual
async def test_any_chunking_of_the_bytes_gives_the_same_records(chunk: int) -> None:
    cluster, _ = filled(50, partitions=2, chunk=chunk)
    async with consumer_on(cluster, "t") as consumer:
        assert sorted(await read_values(consumer, 100)) == sorted(numbers(50) * 2)


@every_release
@virtual
async def test_a_leader_that_moves_is_followed(release: Mapping[Api, int]) -> None:
    cluster, (tp,) = filled(10, size=3, max_versions=release)
    async with consumer_on(cluster, "t") as consumer:
        assert await read_values(consumer, 10) == numbers(10)
        for node in (1, 2, 0):
            cluster.move_leader(tp, node)
            start = cluster.log(tp).end
            cluster.fill(tp, 10)
            before = anyio.current_time()
            assert await read_values(consumer, 10) == numbers(10, start)
            assert anyio.current_time() - before < 2
        assert consumer.statistics().partitions[tp].leader == 0


@virtual
async def test_a_hint_at_the_new_leader_spares_the_metadata_request() -> None:
    cluster, (tp,) = filled(10, size=2)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        cluster.move_leader(tp, 1)
        cluster.fill(tp, 10)
        start = anyio.current_time()
        assert await read_values(consumer, 10) == numbers(10, 10)
        assert anyio.current_time() - start < 0.1
        assert not cluster.asked(Api.METADATA, since=start)


@virtual
async def test_a_leader_that_dies_is_replaced_by_the_next_one() -> None:
    cluster, (tp,) = filled(10, size=3)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        cluster.stop(0)
        await anyio.sleep(3)
        cluster.move_leader(tp, 1)
        cluster.fill(tp, 10)
        assert await read_values(consumer, 10) == numbers(10, 10)


@virtual
async def test_a_broker_that_restarts_has_forgotten_the_session() -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        for _ in range(3):
            cluster.stop(0)
            await anyio.sleep(1)
            cluster.start(0)
            start = cluster.log(tp).end
            cluster.fill(tp, 5)
            assert await read_values(consumer, 5) == numbers(5, start)


@virtual
async def test_a_connection_that_breaks_with_every_other_fetch_loses_nothing() -> None:
    cluster, _ = filled(200, partitions=2, size=2)
    turns = 0

    def unreliable(broker: object, request: object) -> Drop | None:
        nonlocal turns
        turns += 1
        return Drop() if turns % 2 else None

    cluster.control(Api.FETCH, unreliable, keep=True)
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=200) as consumer:
        assert sorted(await read_values(consumer, 400, seconds=600)) == sorted(numbers(200) * 2)


@virtual
async def test_a_half_open_connection_is_given_up_at_the_request_timeout() -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t", request_timeout_ms=5000) as consumer:
        await read_values(consumer, 10)
        cluster.freeze(0)
        await anyio.sleep(1)
        cluster.start(0)
        cluster.fill(tp, 5)
        start = anyio.current_time()
        assert await read_values(consumer, 5) == numbers(5, 10)
        assert anyio.current_time() - start < 8


@virtual
async def test_brokers_that_all_moved_are_found_by_bootstrapping_again() -> None:
    cluster, (tp,) = filled(10, size=3)
    async with consumer_on(cluster, "t", bootstrap_servers="b2:9092") as consumer:
        await read_values(consumer, 10)
        for node in (0, 1):
            cluster.stop(node)
        cluster.stop(2)
        await anyio.sleep(30)
        cluster.start(2)
        cluster.move_leader(tp, 2)
        cluster.fill(tp, 5)
        assert await read_values(consumer, 5) == numbers(5, 10)


@virtual
async def test_the_broker_can_ask_for_a_new_bootstrap() -> None:
    cluster, (tp,) = filled(10, size=2)
    async with consumer_on(cluster, "t", metadata_max_age_ms=1000) as consumer:
        await read_values(consumer, 10)
        cluster.control(Api.METADATA, lambda broker, request: 129)
        await anyio.sleep(3)
        cluster.fill(tp, 5)
        assert await read_values(consumer, 5) == numbers(5, 10)


# KIP-392.


@virtual
async def test_the_replica_in_the_same_rack_is_read() -> None:
    cluster, (tp,) = filled(10, size=3, racks={0: "a", 1: "b", 2: "c"})
    async with consumer_on(cluster, "t", client_rack="b") as consumer:
        assert await read_values(consumer, 10) == numbers(10)
        assert consumer.statistics().partitions[tp].preferred_read_replica == 1
        cluster.fill(tp, 5)
        assert await read_values(consumer, 5) == numbers(5, 10)
        cluster.stop(1)
        cluster.fill(tp, 5)
        assert await read_values(consumer, 5) == numbers(5, 15)
        assert consumer.statistics().partitions[tp].preferred_read_replica is None


# KIP-320 and topics that are not the same any more.


@virtual
async def test_a_truncated_log_is_read_on_from_where_it_diverged() -> None:
    cluster, (tp,) = filled(30, size=2)
    async with consumer_on(cluster, "t") as consumer:
        assert await read_values(consumer, 30) == numbers(30)
        cluster.log(tp).truncate(20)
        cluster.move_leader(tp, 1)
        cluster.produce(tp, "new 20", "new 21")
        assert await read_values(consumer, 2) == [b"new 20", b"new 21"]
        assert await consumer.position(tp) == 22


@virtual
async def test_a_truncated_log_without_a_policy_is_raised_with_the_safe_offset() -> None:
    cluster, (tp,) = filled(30, size=2)
    async with consumer_on(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        await read_values(consumer, 30)
        cluster.log(tp).truncate(20)
        cluster.move_leader(tp, 1)
        cluster.produce(tp, "new 20")
        with pytest.raises(LogTruncationError) as caught:
            await consumer.getone()
        assert caught.value.positions == {tp: 30}
        assert caught.value.divergent_offsets == {tp: OffsetAndMetadata(20, "", 0)}
        consumer.seek(tp, caught.value.divergent_offsets[tp])
        assert await read_values(consumer, 1) == [b"new 20"]


@virtual
async def test_a_seek_with_an_epoch_has_the_log_checked() -> None:
    cluster, (tp,) = filled(10, size=2)
    cluster.move_leader(tp, 1)
    cluster.fill(tp, 10)
    async with consumer_on(cluster) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, OffsetAndMetadata(15, "", 0))
        assert await read_values(consumer, 10) == numbers(10, 10)


# Version 12 of Fetch names topics, so that a position that exists in the new topic as well cannot be told from an old one.
RECREATED = [(KAFKA_2_8, 40), (KAFKA_3_9, 5), (KAFKA_3_9, 40), (KAFKA_4_3, 5), (KAFKA_4_3, 40)]


@pytest.mark.parametrize(("release", "before"), RECREATED, ids=["2.8-40", "3.9-5", "3.9-40", "4.3-5", "4.3-40"])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("subscribed", [True, False])
@virtual
async def test_a_topic_that_was_created_again_is_read_from_its_beginning(
    release: Mapping[Api, int], reset: str, subscribed: bool, before: int
) -> None:
    cluster, (tp,) = filled(before, max_versions=release)
    async with consumer_on(cluster, auto_offset_reset=reset, metadata_max_age_ms=5000) as consumer:
        if subscribed:
            consumer.subscribe(["t"])
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
        else:
            consumer.assign([tp])
        await consumer.seek_to_beginning(tp)
        assert await read_values(consumer, before) == numbers(before)
        cluster.recreate("t")
        cluster.fill(tp, 20)
        assert await read_values(consumer, 20, seconds=30) == numbers(20)


@virtual
async def test_a_topic_that_is_away_for_a_while_and_comes_back_new_is_read_from_its_beginning() -> None:
    cluster, (tp,) = filled(5)
    async with consumer_on(cluster, metadata_max_age_ms=2000, auto_offset_reset="latest") as consumer:
        consumer.assign([tp])
        await consumer.seek_to_beginning(tp)
        await read_values(consumer, 5)
        cluster.delete_topic("t")
        await read_values(consumer, 1, seconds=10)
        cluster.create_topic("t")
        cluster.fill(tp, 20)
        assert await read_values(consumer, 20, seconds=30) == numbers(20)


@pytest.mark.parametrize("code", [3, 5])
@virtual
async def test_brokers_that_do_not_know_the_topic_for_a_moment_cost_no_position(code: int) -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t", metadata_max_age_ms=500, auto_offset_reset="latest") as consumer:
        await consumer.seek_to_beginning()
        assert await read_values(consumer, 10) == numbers(10)
        end = cluster.control(Api.METADATA, lambda broker, request: code, keep=True)
        cluster.control(Api.FETCH, lambda broker, request: 100)
        assert await read_values(consumer, 1, seconds=2) == []
        cluster.fill(tp, 5)
        end()
        assert await read_values(consumer, 5, seconds=30) == numbers(5, 10)


# What is read: assign and subscribe.


@virtual
async def test_an_assigned_topic_is_read_without_waiting_for_a_backoff() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster) as consumer:
        consumer.assign([tp])
        before = anyio.current_time()
        await consumer.getone()
        assert anyio.current_time() - before < 0.05


@virtual
async def test_partitions_that_stay_assigned_keep_position_pause_and_data() -> None:
    cluster, (first, second, third) = filled(10, partitions=3)
    async with consumer_on(cluster) as consumer:
        consumer.assign([first, second])
        await read_values(consumer, 4, first)
        consumer.pause(second)
        await anyio.sleep(1)
        consumer.assign([first, second, third])
        assert consumer.paused() == {second}
        assert await consumer.position(first) == 4
        cluster.stop(0)
        assert await read_values(consumer, 6, first, seconds=1) == numbers(6, 4)
        consumer.assign([third])
        assert consumer.assignment() == {third}


@virtual
async def test_a_refused_subscription_changes_nothing() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster, "t") as consumer:
        for refused in ({"pattern": "("}, {"topics": ["a b"]}, {"pattern": SubscriptionPattern("t")}):
            with pytest.raises((ValueError, IllegalOperation)):
                consumer.subscribe(**refused)
            assert consumer.subscription() == {"t"}
        assert consumer.assignment() == {tp}
        assert await read_values(consumer, 20) == numbers(20)


@virtual
async def test_an_argument_of_the_wrong_kind_is_the_callers_problem_alone() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster, "t") as consumer:
        wrong: list[Callable[[], Any]] = [
            lambda: consumer.describe_topics("t", 5),  # type: ignore[arg-type] # what is tested
            lambda: consumer.getmany([tp]),  # type: ignore[arg-type] # what is tested
            lambda: consumer.getmany(("t", 0)),  # type: ignore[arg-type] # what is tested
            lambda: consumer.offsets_for_times([tp]),  # type: ignore[arg-type] # what is tested
        ]
        for call in wrong:
            with pytest.raises(TypeError, match="expected"):
                await call()
        for timeout in ("1", None, float("nan")):
            with pytest.raises(ValueError, match="timeout_ms"):
                await consumer.getmany(timeout_ms=timeout)  # type: ignore[arg-type] # what is tested
        assert await consumer.offsets_for_times(timestamps={tp: TIMESTAMP}) == {tp: OffsetAndTimestamp(0, TIMESTAMP, 0)}
        assert await read_values(consumer, 20) == numbers(20)


@virtual
async def test_a_partition_that_does_not_exist_is_reported_and_the_others_are_read() -> None:
    cluster, (tp,) = filled()
    missing = TopicPartition("t", 9)
    async with consumer_on(cluster, request_timeout_ms=5000, default_api_timeout_ms=2000) as consumer:
        consumer.assign([tp, missing])
        assert await read_values(consumer, 20) == numbers(20)
        with pytest.raises(KafkaTimeoutError, match="topic 't' has no partition 9; it has 1"):
            await consumer.position(missing)
        with pytest.raises(KafkaTimeoutError, match="no partition 9"):
            await consumer.end_offsets([missing])
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' has no partition 9; it has 1"):
            await consumer.getone()


def test_assignors_that_are_none_are_refused_when_the_consumer_is_made() -> None:
    for bad in ("nope", ["range", "range"], 5, None, []):
        with pytest.raises(ValueError, match="partition_assignment_strategy"):
            kafka_async.KafkaConsumer(partition_assignment_strategy=bad, group_id="g")


@virtual
async def test_a_subscription_follows_new_partitions_and_reads_them_from_the_beginning() -> None:
    cluster, _ = filled(3)
    async with consumer_on(cluster, "t", metadata_max_age_ms=1000) as consumer:
        await read_values(consumer, 3)
        cluster.add_partitions("t", 2)
        cluster.fill(TopicPartition("t", 1), 4)
        assert await read_values(consumer, 4) == numbers(4)


@virtual
async def test_a_pattern_follows_topics_as_they_come() -> None:
    cluster = FakeCluster()
    cluster.create_topic("orders-1")
    cluster.create_topic("other")
    cluster.create_topic("orders-internal", internal=True)
    async with consumer_on(cluster, metadata_max_age_ms=1000) as consumer:
        consumer.subscribe(pattern="orders-.*")
        await consumer.getmany(timeout_ms=1000)
        assert consumer.subscription() == {"orders-1"}
        (late,) = cluster.create_topic("orders-2")
        cluster.fill(late, 2)
        assert await read_values(consumer, 2) == numbers(2)
        assert consumer.subscription() == {"orders-1", "orders-2"}
    async with consumer_on(cluster, exclude_internal_topics=False) as consumer:
        consumer.subscribe(pattern="orders-i")
        await consumer.getmany(timeout_ms=1000)
        assert consumer.subscription() == {"orders-internal"}


@virtual
async def test_what_is_subscribed_can_be_changed() -> None:
    cluster = FakeCluster()
    (one,) = cluster.create_topic("one")
    (two,) = cluster.create_topic("two")
    cluster.fill(one, 3)
    cluster.fill(two, 4)
    async with consumer_on(cluster, "one") as consumer:
        assert await read_values(consumer, 3) == numbers(3)
        consumer.subscribe(["two"])
        assert await read_values(consumer, 4) == numbers(4)
        assert consumer.assignment() == {two}
        consumer.unsubscribe()
        assert (consumer.assignment(), consumer.subscription()) == (set(), frozenset())
        assert await consumer.getmany(timeout_ms=1000) == {}
        consumer.assign([one])
        assert await read_values(consumer, 3) == numbers(3)


@virtual
async def test_the_ways_to_say_what_is_read_exclude_each_other() -> None:
    cluster, (tp,) = filled()
    consumer = consumer_on(cluster, "t")
    with pytest.raises(IllegalStateError):
        consumer.assign([tp])
    with pytest.raises(TypeError):
        consumer.subscribe()
    with pytest.raises(TypeError):
        consumer.subscribe(["t"], pattern="t")
    with pytest.raises(TypeError):
        consumer.subscribe(["t"], listener=object())  # type: ignore[arg-type] # that is what is tested
    with pytest.raises(IllegalOperation):
        consumer.subscribe(pattern=SubscriptionPattern("t"))
    consumer.unsubscribe()
    consumer.assign([tp])
    with pytest.raises(IllegalStateError):
        consumer.subscribe(["t"])


@virtual
async def test_topics_can_be_listed_and_described() -> None:
    cluster, _ = filled(partitions=3, size=2)
    cluster.create_topic("u")
    async with consumer_on(cluster) as consumer:
        assert await consumer.topics() == {"t", "u"}
        description = await consumer.describe_topics("t", "missing")
        assert set(description.topics) == {"t"}
        assert [part.leader for part in description.topics["t"].partitions] == [0, 1, 0]
        assert description.cluster_id == "fake-cluster"
        assert consumer.partitions_for_topic("missing") is None


@virtual
async def test_partitions_for_topic_is_known_after_start() -> None:
    cluster, _ = filled(partitions=3)
    async with consumer_on(cluster, "t") as consumer:
        assert consumer.partitions_for_topic("t") == {0, 1, 2}


# Where.


@virtual
async def test_positions_follow_what_was_returned() -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t") as consumer:
        assert await consumer.position(tp) == 0
        await consumer.getone()
        assert await consumer.position(tp) == 1
        await consumer.getmany(max_records=4)
        assert await consumer.position(tp) == 5
        consumer.seek(tp, 9)
        assert await consumer.position(tp) == 9
        assert (await consumer.getone()).offset == 9


@virtual
async def test_seeks_by_look_up() -> None:
    cluster, (tp, other) = filled(10, partitions=2)
    cluster.log(tp).delete_before(0)
    async with consumer_on(cluster, "t") as consumer:
        assert await consumer.seek_to_end(tp) is True
        assert (await consumer.position(tp), await consumer.position(other)) == (10, 0)
        assert await consumer.seek_to_beginning() is True
        assert (await consumer.position(tp), await consumer.position(other)) == (0, 0)
        found = await consumer.seek_to_timestamp({tp: TIMESTAMP + 4000, other: TIMESTAMP + 99_000})
        assert found == {tp: OffsetAndTimestamp(4, TIMESTAMP + 4000, 0), other: None}
        assert (await consumer.position(tp), await consumer.position(other)) == (4, 10)
        assert (await consumer.getone()).offset == 4


@virtual
async def test_offsets_can_be_looked_up_for_partitions_that_are_not_assigned() -> None:
    cluster, tps = filled(10, partitions=3, size=3)
    async with consumer_on(cluster) as consumer:
        assert await consumer.beginning_offsets(tps) == dict.fromkeys(tps, 0)
        assert await consumer.end_offsets(tps) == dict.fromkeys(tps, 10)
        times = {tps[0]: TIMESTAMP, tps[1]: TIMESTAMP + 8500, tps[2]: TIMESTAMP + 10_000}
        assert await consumer.offsets_for_times(times) == {
            tps[0]: OffsetAndTimestamp(0, TIMESTAMP, 0),
            tps[1]: OffsetAndTimestamp(9, TIMESTAMP + 9000, 0),
            tps[2]: None,
        }
        assert await consumer.end_offsets([]) == {}
        with pytest.raises(ValueError, match="timestamp"):
            await consumer.offsets_for_times({tps[0]: -1})


@virtual
async def test_look_ups_at_the_same_time_do_not_mix() -> None:
    cluster, (tp,) = filled(10)
    found: dict[str, dict[TopicPartition, int]] = {}
    async with consumer_on(cluster) as consumer, anyio.create_task_group() as tasks:

        async def look_up(name: str, call: Callable[[list[TopicPartition]], Coroutine[Any, Any, Any]]) -> None:
            found[name] = await call([tp])

        tasks.start_soon(look_up, "first", consumer.beginning_offsets)
        tasks.start_soon(look_up, "last", consumer.end_offsets)
    assert found == {"first": {tp: 0}, "last": {tp: 10}}


@virtual
async def test_what_is_not_assigned_has_no_position() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster) as consumer:
        for call in (consumer.position, consumer.getone, consumer.getmany, consumer.seek_to_end):
            with pytest.raises(IllegalStateError, match="not assigned"):
                await call(tp)
        for sync in (consumer.highwater, consumer.pause, consumer.resume, consumer.current_lag):
            with pytest.raises(IllegalStateError, match="not assigned"):
                sync(tp)
        with pytest.raises(IllegalStateError):
            consumer.seek(tp, 0)
        with pytest.raises(IllegalStateError):
            await consumer.seek_to_beginning()


@virtual
async def test_the_latest_policy_starts_behind_what_is_there() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster, "t", auto_offset_reset="latest") as consumer:
        assert await consumer.position(tp) == 20
        cluster.fill(tp, 2)
        assert await read_values(consumer, 2) == numbers(2, 20)


@virtual
async def test_a_seek_while_a_position_is_being_looked_up_wins() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster) as consumer:
        consumer.assign([tp])
        await consumer.topics()
        cluster.latency = 1.0
        await anyio.sleep(0.5)
        consumer.seek(tp, 15)
        assert await read_values(consumer, 5) == numbers(5, 15)


@virtual
async def test_watermarks_and_lag_are_those_of_the_last_fetch() -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t") as consumer:
        assert (consumer.highwater(tp), consumer.last_stable_offset(tp), consumer.last_poll_timestamp(tp)) == (None, None, None)
        await consumer.getmany(timeout_ms=1000, max_records=4)
        assert (consumer.highwater(tp), consumer.last_stable_offset(tp), consumer.current_lag(tp)) == (10, 10, 6)
        assert consumer.last_poll_timestamp(tp) is not None


@virtual
async def test_next_offsets_are_behind_what_was_handed_out_with_its_epoch() -> None:
    cluster, tps = filled(partitions=2)
    async with consumer_on(cluster) as consumer:
        consumer.assign(tps)
        assert consumer.next_offsets() == {}
        cluster.truncate(tps[0], 20)  # another leader epoch for what comes
        cluster.produce(tps[0], "x")
        assert len(await read_values(consumer, 41)) == 41
        assert consumer.next_offsets() == {tps[0]: OffsetAndMetadata(21, "", 1), tps[1]: OffsetAndMetadata(20, "", 0)}
        consumer.seek(tps[0], 3)
        assert await read_values(consumer, 2, tps[0]) == numbers(2, 3)
        assert consumer.next_offsets()[tps[0]] == OffsetAndMetadata(5, "", 0)
    with pytest.raises(ConsumerStoppedError):
        consumer.next_offsets()


@virtual
async def test_next_offsets_are_past_control_records_and_aborted_ones() -> None:
    cluster, (tp,) = filled(2)
    for outcome in (True, False):
        cluster.produce(tp, "a", "b", producer_id=7)
        cluster.log(tp).end_transaction(7, commit=outcome)
    async with consumer_on(cluster, "t", isolation_level="read_committed") as consumer:
        assert await read_values(consumer, 5, seconds=5) == [*numbers(2), b"a", b"b"]
        assert consumer.next_offsets() == {tp: OffsetAndMetadata(8, "", 0)}


@virtual
async def test_next_offsets_within_an_iteration_cover_the_current_record_as_a_commit_does() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([tp])
        async with iteration(consumer) as records:
            for _ in range(3):
                await anext(records)
            assert consumer.next_offsets() == {tp: OffsetAndMetadata(3, "", 0)}
            await consumer.commit()
            assert cluster.committed["g", tp] == 3
            assert (await anext(records)).offset == 3


@virtual
async def test_no_group_no_commit() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster, "t") as consumer:
        with pytest.raises(IllegalOperation):
            await consumer.commit()
        with pytest.raises(IllegalOperation):
            await consumer.committed(tp)


# See.


@virtual
async def test_statistics_are_one_value() -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t", client_id="me") as consumer:
        await consumer.getmany(timeout_ms=1000, max_records=4)
        seen = consumer.statistics()
        await read_values(consumer, 6)
        assert (seen.client_id, seen.cluster_id, seen.records_consumed) == ("me", "fake-cluster", 4)
        part = seen.partitions[tp]
        assert (part.position, part.high_watermark, part.lag, part.leader, part.paused) == (4, 10, 6, 0, False)
        assert (part.state, part.log_start_offset) == ("fetching", 0)
        later = consumer.statistics()
        assert (later.records_consumed, later.partitions[tp].position, later.buffered_bytes) == (10, 10, 0)
    assert consumer.statistics().state is ConsumerState.CLOSED


@virtual
async def test_metrics_have_kafkas_names() -> None:
    cluster, _ = filled(10)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        metrics = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert metrics["records-consumed-total"] == 10
        assert metrics["fetch-total"] >= 1


def test_a_bad_option_leaves_nothing_to_warn_about() -> None:
    with pytest.raises(TypeError, match="group_id"):
        Consumer(grup_id="x")
    with pytest.raises(ValueError, match="fetch_min_bytes"):
        Consumer(fetch_min_bytes=-1)
    gc.collect()


@virtual
async def test_a_thousand_partitions_are_fetched_in_incremental_requests() -> None:
    cluster = FakeCluster()
    tps = cluster.create_topic("t", 1000)
    async with consumer_on(cluster, "t") as consumer:
        await consumer.getmany(timeout_ms=2000)
        start = anyio.current_time()
        cluster.fill(tps[7], 1)
        assert await read_values(consumer, 1) == [b"0"]
        await anyio.sleep(3)
        named = [sum(len(topic.partitions) for topic in entry.request.topics) for entry in cluster.asked(Api.FETCH, since=start)]
        assert max(named) <= 1


@virtual
async def test_an_answer_with_a_code_that_nobody_knows_is_survived() -> None:
    cluster, _ = filled(5)
    cluster.control(Api.FETCH, cluster.answering(FetchResponse(error_code=4242)))
    async with consumer_on(cluster, "t") as consumer:
        values: list[bytes] = []
        codes: list[int] = []
        for _ in range(3):
            try:
                values += await read_values(consumer, 5, seconds=5)
            except UnknownError as error:
                codes.append(error.errno)
        assert values == numbers(5)
        assert codes in ([], [4242])
