"""What a consumer reads: ``assign``, ``subscribe``, and what they refuse."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import kafka_async
from kafka_async import ConsumerRebalanceListener, KafkaConsumer, OffsetAndTimestamp, SubscriptionPattern, TopicPartition
from kafka_async.errors import (
    IllegalOperation,
    IllegalStateError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from kafka_async.testing.simulation import FakeCluster
from kafka_async.testing.simulation.waking import TIMESTAMP

from .support import consumer_on, filled, numbers, read_values, virtual


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


def test_a_listener_in_the_place_of_the_pattern_is_named() -> None:
    consumer, given = KafkaConsumer(), ConsumerRebalanceListener()
    for topics in ["t"], ():
        with pytest.raises(TypeError, match=r"^pattern=<.*>: it is a listener; .* subscribe\(topics, listener=\.\.\.\)$"):
            consumer.subscribe(topics, given)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TypeError, match="takes either topics or a pattern"):
        consumer.subscribe(["t"], "t.*")


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
            lambda: consumer.getmany(("t", "0")),  # type: ignore[arg-type] # what is tested
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
            kafka_async.KafkaConsumer(partition_assignment_strategy=bad, group_id="g")  # type: ignore[arg-type]  # the run-time check


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
    classic = consumer_on(cluster, group_id="g", session_timeout_ms=20_000)
    with pytest.raises(IllegalOperation):
        classic.subscribe(pattern=SubscriptionPattern("t"))
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
        with pytest.raises(TypeError, match=r"^\[\]: expected the name of a topic$"):
            consumer.partitions_for_topic([])  # type: ignore[arg-type]  # what is tested


@virtual
async def test_partitions_of_a_topic_that_somebody_asked_about_are_known() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", partitions=3)
    (tp,) = cluster.create_topic("u")
    async with consumer_on(cluster) as consumer:
        assert consumer.partitions_for_topic("t") is None
        await consumer.describe_topics("t")
        assert consumer.partitions_for_topic("t") == {0, 1, 2}
    consumer = consumer_on(cluster)
    consumer.assign([tp])
    async with consumer:
        assert consumer.partitions_for_topic("u") == {0}


@virtual
async def test_partitions_for_topic_is_known_after_start() -> None:
    cluster, _ = filled(partitions=3)
    async with consumer_on(cluster, "t") as consumer:
        assert consumer.partitions_for_topic("t") == {0, 1, 2}
