"""Where assigned partitions stand, where the program moved them, and what is seen of them while ``unsubscribe`` gives them up."""

from collections.abc import Collection

import anyio
import pytest

from kafka_async import ConsumerConfig, ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka_async.application.group.assigned import AssignedPartitions
from kafka_async.application.parts import assemble
from kafka_async.application.processing.encoding import encode
from kafka_async.errors import IllegalStateError

from ..processing.world import GROUP, leave_a_map, world
from ..support import consumer_on, filled, read_values, virtual


@virtual
async def test_a_partition_that_is_not_assigned_cannot_be_moved() -> None:
    some = world(2)
    async with consumer_on(some.cluster, group_id=GROUP, enable_auto_commit=False) as consumer:
        consumer.assign(some.partitions[:1])
        for partition in (some.partitions[1], ("t", 1)):
            with pytest.raises(IllegalStateError, match="is not assigned"):
                consumer.seek(partition, 0)  # type: ignore[arg-type]
        with pytest.raises(IllegalStateError, match="is not assigned"):
            await consumer.seek_to_end(*some.partitions)


@virtual
async def test_a_seek_that_is_looked_up_leaves_the_position_at_once_though_it_is_cancelled() -> None:
    some = world()
    some.produce(10)
    async with consumer_on(some.cluster, group_id=GROUP, enable_auto_commit=False) as consumer:
        consumer.assign(some.partitions)
        consumer.seek(some.partitions[0], 4)
        with anyio.move_on_after(0):
            await consumer.seek_to_end()
        assert consumer.next_offsets() == {}
        assert await consumer.position(some.partitions[0]) == 10


@virtual
async def test_a_seek_is_forgotten_with_its_partition() -> None:
    some = world()
    await leave_a_map(some, 100)
    async with consumer_on(some.cluster, group_id=GROUP, enable_auto_commit=False) as consumer:
        consumer.assign(some.partitions)
        consumer.seek(some.partitions[0], 50)
        consumer.assign([])
        consumer.assign(some.partitions)
        async with consumer.processing(some.handle):
            await anyio.sleep(5)
    assert some.offsets() == [5]


@virtual
async def test_what_was_done_says_nothing_of_records_that_were_read_since_the_seek() -> None:
    some = world()
    some.produce(20)
    where = some.partitions[0]
    async with consumer_on(some.cluster) as consumer:
        consumer.assign(some.partitions)
        consumer.seek(where, OffsetAndMetadata(5, encode([1, 14], some.cluster.topics["t"].id)))
        first = max(record.offset for record in (await consumer.getmany(timeout_ms=1_000, max_records=3))[where]) + 1
        async with consumer.processing(some.handle):
            await anyio.sleep(5)
    assert sorted(some.offsets()) == list(range(first, 20))


class Looks(ConsumerRebalanceListener):
    """Looks at what is assigned, and waits."""

    def __init__(self, assigned: AssignedPartitions) -> None:
        self.assigned, self.go_on = assigned, anyio.Event()
        self.seen: set[TopicPartition] = set()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.seen = {tp for tp in revoked if self.assigned.cursor(tp) is self.assigned.cursors()[tp]}
        await self.go_on.wait()


@virtual
async def test_what_unsubscribe_gives_up_is_seen_by_its_call_back_alone_and_can_be_committed_by_all_until_it_returns() -> None:
    cluster, (tp,) = filled(3)
    options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest"}
    parts = assemble(ConsumerConfig.from_options(options), transport_factory=cluster.network)
    consumer, assigned = KafkaConsumer[bytes, bytes](parts=parts), parts.assigned
    listener = Looks(assigned)
    consumer.subscribe(["t"], listener=listener)
    async with consumer:
        await read_values(consumer, 3)
        before, offsets = assigned.cursor(tp), assigned.to_commit()
        assert (assigned.held(tp), assigned.next_offsets()) == (before, offsets)
        consumer.unsubscribe()
        await anyio.sleep(0.1)
        assert listener.seen == {tp}
        assert (assigned.cursors(), assigned.next_offsets(), assigned.next_offset(tp)) == ({}, {}, None)
        with pytest.raises(IllegalStateError, match="t-0 is not assigned"):
            assigned.cursor(tp)
        assert (assigned.held(tp), assigned.to_commit()) == (before, offsets)
        listener.go_on.set()
        await consumer.getmany()
        with pytest.raises(IllegalStateError, match="t-0 is not assigned"):
            assigned.held(tp)
        assert assigned.to_commit() == {}
