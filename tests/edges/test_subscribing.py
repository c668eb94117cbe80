"""What happens to positions, pauses, commits and call-backs when a subscription or an assignment changes."""

from collections.abc import Collection

import anyio
import pytest

from kafka_async import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka_async.testing import Cluster

from .support import Ownership, RecordingListener, every_protocol, offsets_of, virtual


@every_protocol
@virtual
async def test_an_assignment_proposed_before_unsubscribe_has_no_effect_after_it(protocol: str) -> None:
    place = Ownership(protocol)
    old = place.topic("old", 2)
    new = place.topic("new")
    before, after = RecordingListener(), RecordingListener()
    consumer = place.consumer()
    consumer.subscribe(["old"], listener=before)
    async with consumer:
        await offsets_of(consumer, 40)
        place.others.take([old[0]])
        await anyio.sleep(4)
        place.others.take([])
        await anyio.sleep(4)  # nobody reads, so the proposed assignment waits
        consumer.unsubscribe()
        consumer.subscribe(["new"], listener=after)
        assert await offsets_of(consumer, 20) == {new[0]: list(range(20))}
        assert consumer.assignment() == set(new)
        called_with = {partition for _, partitions in after.began for partition in partitions}
        assert called_with <= set(new)


class Leaves(ConsumerRebalanceListener):
    """Unsubscribes as soon as it has an assignment."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.consumer.unsubscribe()


@every_protocol
@virtual
async def test_a_start_waits_for_no_assignment_once_a_call_back_has_unsubscribed(protocol: str) -> None:
    place = Ownership(protocol)
    place.topic("t")
    consumer = place.consumer()
    consumer.subscribe(["t"], listener=Leaves(consumer))
    began = anyio.current_time()
    async with consumer:
        assert anyio.current_time() - began < 10
        assert consumer.subscription() == consumer.assignment() == set()


@every_protocol
@virtual
async def test_unsubscribe_commits_and_calls_back_as_leaving_does(protocol: str) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    listener = RecordingListener()
    consumer = place.consumer()
    consumer.subscribe(["t"], listener=listener)
    await consumer.start()
    await offsets_of(consumer, 20)
    consumer.unsubscribe()
    await anyio.sleep(1)
    await consumer.stop()
    assert place.committed(partition) == 20
    assert listener.ended == [("assigned", frozenset({partition})), ("revoked", frozenset({partition}))]


class Plain(ConsumerRebalanceListener):
    """Takes no time."""


@every_protocol
@pytest.mark.parametrize("listener", [None, Plain()], ids=["no listener", "a plain one"])
@pytest.mark.parametrize("then", ["wait", "stop", "subscribe", "assign"])
@virtual
async def test_unsubscribe_commits_whatever_comes_next(
    protocol: str, listener: ConsumerRebalanceListener | None, then: str
) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    (other,) = place.topic("other")
    consumer = place.consumer()
    consumer.subscribe(["t"], listener=listener)
    await consumer.start()
    await offsets_of(consumer, 20)
    consumer.unsubscribe()
    if then == "wait":
        await anyio.sleep(1)
    elif then == "subscribe":
        consumer.subscribe(["other"])
    elif then == "assign":
        consumer.assign([other])
    if then in ("subscribe", "assign"):
        assert await offsets_of(consumer, 20) == {other: list(range(20))}
    await consumer.stop()
    assert place.committed(partition) == 20


@virtual
async def test_auto_commit_does_not_remember_across_unsubscribe_and_assign() -> None:
    place = Ownership()
    (partition,) = place.topic("t")
    async with place.consumer(auto_commit_interval_ms=1000) as consumer:
        consumer.assign([partition])
        await offsets_of(consumer, 20)
        await consumer.getmany(timeout_ms=3000)
        assert place.committed(partition) == 20
        consumer.unsubscribe()
        await anyio.sleep(1)
        place.cluster.committed["g", partition] = 0  # an operator resets the offsets
        consumer.assign([partition])
        assert await offsets_of(consumer, 20) == {partition: list(range(20))}
        await consumer.getmany(timeout_ms=3000)
        assert place.committed(partition) == 20
    assert place.committed(partition) == 20


@pytest.mark.parametrize("protocol", ["classic", "cooperative"])
@virtual
async def test_pause_and_position_survive_a_rebalance_of_what_stays(protocol: str) -> None:
    place = Ownership(protocol)
    stays, goes = place.topic("t", 2)
    async with place.consumer("t", enable_auto_commit=False, max_poll_records=3) as consumer:
        found = await offsets_of(consumer, 3)
        while len(found.get(stays, ())) < 3:
            found = {stays: found.get(stays, []) + (await offsets_of(consumer, 3)).get(stays, [])}
        position = await consumer.position(stays)
        consumer.pause(stays)
        for taken in ([goes], []):
            place.others.take(taken)
            with anyio.move_on_after(20):
                while True:
                    assert stays not in await consumer.getmany(timeout_ms=1000)
            assert consumer.paused() == {stays}
        assert consumer.assignment() == {stays, goes}
        assert await consumer.position(stays) == position
        consumer.resume(stays)
        assert (await consumer.getone(stays)).offset == position


@every_protocol
@virtual
async def test_no_task_is_handed_a_record_before_on_partitions_assigned_has_returned(protocol: str) -> None:
    place = Ownership(protocol)
    first, second = place.topic("t", 2)
    listener = RecordingListener(takes=2.0)
    consumer = place.consumer()

    def seek(partitions: object) -> None:
        for partition in (first, second):
            if partition in consumer.assignment():
                consumer.seek(partition, 10)

    listener.on_assigned = seek
    consumer.subscribe(["t"], listener=listener)
    offsets: list[tuple[TopicPartition, int]] = []

    async def read() -> None:
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                offsets.extend((partition, record.offset) for record in records)

    place.others.take([second])
    async with consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(read)
        await anyio.sleep(10)
        place.others.take([])
        await anyio.sleep(30)
        tasks.cancel_scope.cancel()
    assert min(offset for partition, offset in offsets if partition == second) == 10
    assert min(offset for partition, offset in offsets if partition == first) == 10


@every_protocol
@virtual
async def test_a_call_back_that_began_goes_on_however_short_the_reads_are(protocol: str) -> None:
    place = Ownership(protocol)
    _, second = place.topic("t", 2)
    listener = RecordingListener()
    consumer = place.consumer()
    consumer.subscribe(["t"], listener=listener)
    async with consumer:
        await offsets_of(consumer, 40)
        listener.takes = 1.0
        listener.began.clear()
        listener.ended.clear()
        place.others.take([second])
        with anyio.move_on_after(30):
            while not listener.ended or second in consumer.assignment():
                with anyio.move_on_after(0.1):
                    await consumer.getmany(timeout_ms=60_000)
        assert listener.ended
        assert listener.began.count(listener.began[0]) == 1
        listener.takes = 0.0


@virtual
async def test_subscribing_after_the_start_lets_the_broker_create_the_topic() -> None:
    for allowed in (True, False):
        place = Ownership(kit=Cluster(auto_create=1))
        async with place.consumer(allow_auto_create_topics=allowed, metadata_max_age_ms=1000) as consumer:
            consumer.subscribe(["made"])
            with anyio.move_on_after(10):
                while True:
                    await consumer.getmany(timeout_ms=1000)
        assert ("made" in place.cluster.topics) is allowed


@every_protocol
@virtual
async def test_start_with_a_pattern_waits_for_the_first_assignment(protocol: str) -> None:
    place = Ownership(protocol)
    partitions = place.topic("logs-a") + place.topic("logs-b")
    consumer = place.consumer()
    consumer.subscribe(pattern="logs-.*")
    await consumer.start()
    assert consumer.assignment() == set(partitions)
    await consumer.stop()


@every_protocol
@virtual
async def test_subscription_names_what_a_pattern_matches_and_not_what_is_assigned(protocol: str) -> None:
    place = Ownership(protocol)
    place.topic("logs-a")
    other = place.topic("logs-b")
    place.topic("unlike")
    place.others.take(other)
    consumer = place.consumer()
    consumer.subscribe(pattern="logs-.*")
    async with consumer:
        await offsets_of(consumer, 20)
        assert {partition.topic for partition in consumer.assignment()} == {"logs-a"}
        assert consumer.subscription() == {"logs-a", "logs-b"}


@virtual
async def test_ranges_of_a_partition_that_was_paused_are_read() -> None:
    place = Ownership()
    (partition,) = place.topic("t")
    async with place.plain() as consumer:
        consumer.assign([partition])
        consumer.pause(partition)
        assert await consumer.getmany(timeout_ms=100) == {}
        consumer.assign_ranges({partition: (3, 7)})
        assert consumer.paused() == set()
        columns = await consumer.next_columns(timeout_ms=5000)
        assert columns is not None
