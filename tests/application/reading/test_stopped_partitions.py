"""Partitions that cannot be read: errors that pass, what really stops one, and what of it is seen."""

from typing import Any

import anyio
import pytest

from kafka_async.errors import (
    BrokerResponseError,
    CorruptRecordException,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from kafka_async.testing.simulation import FakeCluster
from kafka_async.wire import Api

from ..support import Consumer, consumer_on, filled, numbers, read_values, virtual

FETCHES = "consumer-fetch-manager-metrics"


async def errors_of(consumer: Consumer, seconds: float, timeout_ms: float = 500) -> list[tuple[float, KafkaError]]:
    """Read for a while, whatever is raised; return what was, and after how many seconds."""
    begin, found = anyio.current_time(), []
    while (passed := anyio.current_time() - begin) < seconds:
        try:
            await consumer.getmany(timeout_ms=timeout_ms)
        except KafkaError as error:
            found.append((passed, error))
            await anyio.sleep(0.1)
    return found


def seen(consumer: Consumer, partition: Any) -> tuple[bool, int | None, int | None, float, bool]:
    """Return what a consumer says of a partition: ready, its lag in two places, how many are stopped, if it has a problem."""
    metrics, statistics = consumer.metrics(), consumer.statistics().partitions[partition]
    lag = metrics[f"{FETCHES}.{partition}"]["records-lag"]
    assert lag == statistics.lag == metrics[FETCHES]["records-lag-max"]
    stopped, problem = metrics[FETCHES]["stopped-partitions"], statistics.problem is not None
    return consumer.ready, statistics.lag, consumer.current_lag(partition), stopped, problem


@pytest.mark.parametrize("code", [2, 4, 8, 17, 42, 76, 87, 109, 116])
@pytest.mark.parametrize("seconds", [0.3, 3, 20])
@virtual
async def test_a_partition_that_a_broker_refuses_for_a_while_goes_on_by_itself(code: int, seconds: float) -> None:
    cluster, (tp, other) = filled(10, partitions=2)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 20)
        cluster.partition(tp).error = code
        cluster.fill(tp, 5)
        cluster.fill(other, 5)
        assert await read_values(consumer, 5, seconds=seconds) == numbers(5, 10)
        await anyio.sleep(seconds)
        cluster.partition(tp).error = 0
        cluster.changed()
        begin = anyio.current_time()
        assert await read_values(consumer, 5) == numbers(5, 10)
        assert anyio.current_time() - begin < 2


@virtual
async def test_a_refused_partition_is_seen_while_it_lasts_and_raised_if_it_lasts_long() -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        assert seen(consumer, tp) == (True, 0, 0, 0, False)
        cluster.partition(tp).error = 8
        cluster.fill(tp, 7)
        await anyio.sleep(2)
        assert seen(consumer, tp) == (False, 7, 7, 1, True)
        assert "[Error 8] BrokerNotAvailableError" in str(consumer.statistics().partitions[tp].problem)
        cluster.fill(tp, 7)
        raised = await errors_of(consumer, 100)
        assert seen(consumer, tp) == (False, 14, 14, 1, True)
        assert [round(after) // 10 for after, _ in raised] == [2, 5, 8]
        assert all(isinstance(error, BrokerResponseError) and "t-0" in str(error) for _, error in raised)
        cluster.partition(tp).error = 0
        cluster.changed()
        await read_values(consumer, 14)
        assert seen(consumer, tp) == (True, 0, 0, 0, False)


@virtual
async def test_a_refused_partition_is_read_at_once_when_another_broker_leads_it() -> None:
    cluster, (tp,) = filled(10, size=2)
    async with consumer_on(cluster, "t", retry_backoff_max_ms=60_000, metadata_max_age_ms=1000) as consumer:
        await read_values(consumer, 10)
        cluster.control(Api.FETCH, lambda broker, request: 116 if broker.node_id == 0 else None, keep=True)
        cluster.fill(tp, 5)
        await anyio.sleep(10)
        cluster.move_leader(tp, 1)
        assert await read_values(consumer, 5, seconds=5) == numbers(5, 10)


@virtual
async def test_what_stops_a_partition_keeps_being_raised_and_seen_while_others_are_read() -> None:
    cluster, (tp, other) = filled(10, partitions=2)
    cluster.log(tp).corrupt(3)
    async with consumer_on(cluster, "t") as consumer:
        raised = await errors_of(consumer, 1)
        assert [type(error) for _, error in raised] == [CorruptRecordException]
        cluster.fill(tp, 5)
        for _ in range(20):
            cluster.fill(other, 1)
            raised += await errors_of(consumer, 5)
        assert len(raised) == 4
        assert {
            (error.topic, error.partition, error.offset) for _, error in raised if isinstance(error, CorruptRecordException)
        } == {("t", 0, 0)}
        assert seen(consumer, tp) == (False, 15, 15, 1, True)
        assert consumer.statistics().partitions[tp].state == "halted"
        assert consumer.statistics().partitions[other].problem is None
        consumer.seek(tp, 10)
        assert await read_values(consumer, 5) == numbers(5, 10)
        assert seen(consumer, tp) == (True, 0, 0, 0, False)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@virtual
async def test_a_position_outside_of_the_log_is_a_problem_with_a_lag_when_nothing_was_ever_fetched(isolation: str) -> None:
    cluster, (tp,) = filled(10)
    cluster.log(tp).delete_before(5)
    async with consumer_on(cluster, auto_offset_reset="none", isolation_level=isolation) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 2)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.getone()
        await anyio.sleep(1)
        assert seen(consumer, tp) == (False, 8, 8, 1, True)


@virtual
async def test_the_end_of_a_stopped_partition_is_looked_up_now_and_then_and_not_behind_each_other() -> None:
    cluster: FakeCluster
    cluster, (tp,) = filled(10)
    cluster.log(tp).corrupt(3)
    async with consumer_on(cluster, "t") as consumer:
        await errors_of(consumer, 1)
        begin = anyio.current_time()
        await anyio.sleep(100)
        assert 9 <= len(cluster.asked(Api.LIST_OFFSETS, since=begin)) <= 11
        cluster.stop(0)
        await anyio.sleep(300)
        cluster.start(0)
        begin = anyio.current_time()
        await anyio.sleep(5)
        (request,) = (entry.request for entry in cluster.asked(Api.LIST_OFFSETS, since=begin))
        assert len(request.topics[0].partitions) == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@virtual
async def test_a_consumer_is_not_ready_while_access_to_one_of_its_topics_is_refused(protocol: str) -> None:
    """Also once its group has taken the partitions away, so that none of what it still has is stopped."""
    cluster, (tp,) = filled(10)
    (other,) = cluster.create_topic("u")
    async with consumer_on(cluster, "t", "u", group_id="g", group_protocol=protocol) as consumer:
        await read_values(consumer, 10)
        assert consumer.ready
        cluster.topics["t"].error = TopicAuthorizationFailedError.errno
        cluster.changed()
        raised = await errors_of(consumer, 20)
        assert {type(error) for _, error in raised} == {TopicAuthorizationFailedError}
        assert (tp in consumer.assignment()) is (protocol == "classic")
        assert (other in consumer.assignment(), consumer.ready, consumer.alive) == (True, False, True)
        cluster.topics["t"].error = 0
        cluster.changed()
        await errors_of(consumer, 20)
        assert tp in consumer.assignment()
        assert consumer.ready
