"""A topic that is deleted and created again under its name: nothing that belongs to the former one has an effect on the new one."""

import logging
import pickle
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

import anyio
import pytest

from kafka_async import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka_async.errors import CorruptRecordException, KafkaError, OffsetOutOfRangeError
from kafka_async.testing.simulation import KAFKA_3_9, KAFKA_4_3, FakeCluster
from kafka_async.wire import Api

from .support import Consumer, consumer_on, filled, numbers, read_values, virtual

BY_NAME_AND_ID = pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4_3], ids=["by name", "by id"])
EACH_PROTOCOL = pytest.mark.parametrize("protocol", ["classic", "consumer"])
OLD, NEW = 100, 300


def made_anew(cluster: FakeCluster, *partitions: TopicPartition) -> None:
    """Delete the topic, create it again and fill it."""
    cluster.recreate("t")
    for partition in partitions:
        cluster.fill(partition, NEW)


async def check_that_all_is_read(cluster: FakeCluster, *partitions: TopicPartition, after: int = 0) -> None:
    """Check that the next member of the group reads every record of the new topic from ``after`` on."""
    async with consumer_on(cluster, "t", group_id="g") as consumer:
        found = await read_values(consumer, (NEW - after) * len(partitions), seconds=30)
    assert sorted(found) == sorted(numbers(NEW - after, after) * len(partitions))


# Commits.


async def _just_stop(consumer: Consumer, tp: TopicPartition) -> int:
    """What was read is committed at the end."""
    return 0


async def _interval(consumer: Consumer, tp: TopicPartition) -> int:
    """Auto-commit is due at the next read."""
    await anyio.sleep(6)
    return sum(map(len, (await consumer.getmany(timeout_ms=0, max_records=1)).values()))


async def _commit(consumer: Consumer, tp: TopicPartition) -> int:
    await consumer.commit()
    return 0


async def _commit_offsets(consumer: Consumer, tp: TopicPartition) -> int:
    await consumer.commit({tp: OLD})
    return 0


async def _unsubscribe(consumer: Consumer, tp: TopicPartition) -> int:
    consumer.unsubscribe()
    await anyio.sleep(1)
    return 0


WAYS = [_just_stop, _interval, _commit, _commit_offsets, _unsubscribe]


@BY_NAME_AND_ID
@EACH_PROTOCOL
@pytest.mark.parametrize("way", WAYS, ids=[way.__name__.strip("_") for way in WAYS])
@pytest.mark.parametrize("seconds", [0.7, 1, 3, 7])
@virtual
async def test_what_was_read_of_the_former_topic_is_not_committed_for_the_new_one(
    release: Mapping[Api, int], protocol: str, way: Callable[[Consumer, TopicPartition], Awaitable[int]], seconds: float
) -> None:
    if release is KAFKA_3_9 and protocol == "consumer":
        return
    cluster, (tp,) = filled(OLD, max_versions=release)
    async with consumer_on(cluster, "t", group_id="g", group_protocol=protocol) as consumer:
        assert len(await read_values(consumer, OLD)) == OLD
        made_anew(cluster, tp)
        await anyio.sleep(seconds)
        read = await way(consumer, tp)
        assert not cluster.committed
    await check_that_all_is_read(cluster, tp, after=read)


@BY_NAME_AND_ID
@EACH_PROTOCOL
@pytest.mark.parametrize("way", WAYS, ids=[way.__name__.strip("_") for way in WAYS])
@virtual
async def test_a_place_that_was_sought_before_anything_came_is_not_committed_for_the_new_topic(
    release: Mapping[Api, int], protocol: str, way: Callable[[Consumer, TopicPartition], Awaitable[int]]
) -> None:
    if release is KAFKA_3_9 and protocol == "consumer":
        return
    cluster, (tp,) = filled(OLD, max_versions=release)
    async with consumer_on(cluster, "t", group_id="g", group_protocol=protocol) as consumer:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=0)
        consumer.seek(tp, OLD)
        made_anew(cluster, tp)
        await anyio.sleep(3)
        read = await way(consumer, tp)
        assert not cluster.committed
    await check_that_all_is_read(cluster, tp, after=read)


async def _take_many(consumer: Consumer) -> int:
    return sum(map(len, (await consumer.getmany(timeout_ms=5_000, max_records=5)).values()))


async def _take_arrow(consumer: Consumer) -> int:
    return int((await consumer.getarrow(timeout_ms=5_000, max_records=5)).num_rows)


@pytest.mark.parametrize("take", [_take_many, _take_arrow])
@virtual
async def test_what_a_task_has_in_hand_of_the_new_topic_is_not_committed_by_a_stop(
    take: Callable[[Consumer], Awaitable[int]],
) -> None:
    cluster, (tp,) = filled(OLD)
    async with consumer_on(cluster, group_id="g") as consumer:
        consumer.assign([tp])  # as a subscriber it would be assigned the partition anew
        assert len(await read_values(consumer, OLD)) == OLD
        made_anew(cluster, tp)
        await anyio.sleep(10)  # the position is that of the former topic, and records of the new one are here
        assert await take(consumer) == 5
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.stop)
            await anyio.sleep(1)
        assert cluster.committed.get(("g", tp), 0) == 0
    await check_that_all_is_read(cluster, tp)


@pytest.mark.parametrize("stored", [7, None])
@virtual
async def test_what_the_group_has_stored_of_the_new_topic_is_where_a_member_begins_that_knew_the_former_one(
    stored: int | None,
) -> None:
    cluster, (tp,) = filled(OLD)
    async with consumer_on(cluster, group_id="g", auto_offset_reset="latest") as consumer:
        assert await consumer.end_offsets([tp]) == {tp: OLD}
        made_anew(cluster, tp)
        if stored is not None:
            cluster.committed["g", tp] = stored  # another member has read some of it
        consumer.assign([tp])
        record = await consumer.getone()
        assert (record.offset, record.value) == (stored or 0, numbers(1, stored or 0)[0])


@BY_NAME_AND_ID
@virtual
async def test_a_commit_that_is_tried_again_is_dropped_when_the_topic_is_another_one(release: Mapping[Api, int]) -> None:
    """The broker does not know the topic for a while, and then it knows another one of that name."""
    cluster, (tp,) = filled(OLD, max_versions=release)
    async with consumer_on(cluster, "t", group_id="g", enable_auto_commit=False) as consumer:
        await read_values(consumer, OLD)
        cluster.delete_topic("t")
        await anyio.sleep(1)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(consumer.commit)
                await anyio.sleep(3)
                cluster.create_topic("t")
                cluster.fill(tp, NEW)
        assert not cluster.committed
    await check_that_all_is_read(cluster, tp)


@virtual
async def test_an_offset_that_is_dropped_holds_up_no_other_one_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster, _ = filled(OLD)
    (other,) = cluster.create_topic("u")
    cluster.fill(other, 5)
    told: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    class Told:
        def on_consume(self, records: Any) -> Any:
            return records

        def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            told.append(dict(offsets))

    options: dict[str, Any] = {"group_id": "g", "interceptors": (Told(),), "enable_auto_commit": False}
    with caplog.at_level(logging.WARNING, "kafka_async"):
        async with consumer_on(cluster, "t", "u", **options) as consumer:
            await read_values(consumer, OLD + 5)
            cluster.recreate("t")
            await anyio.sleep(2)
            for _ in range(5):
                await consumer.commit()
    assert cluster.committed == {("g", other): 5}
    assert [set(each) for each in told] == [{other}] * 5
    said = [entry.getMessage() for entry in caplog.records if "former topic" in entry.getMessage()]
    assert len(said) == 1
    assert "topic 't' was deleted and created again: an offset to commit of the former topic is dropped" in said[0]


@EACH_PROTOCOL
@virtual
async def test_what_is_revoked_is_not_committed_for_the_new_topic(protocol: str) -> None:
    cluster, tps = filled(OLD, partitions=2)
    async with consumer_on(cluster, "t", group_id="g", group_protocol=protocol) as consumer:
        await read_values(consumer, 2 * OLD)
        made_anew(cluster, *tps)
        consumer.pause(*tps)
        await anyio.sleep(2)
        async with consumer_on(cluster, "t", group_id="g", group_protocol=protocol, enable_auto_commit=False) as second:
            while len(second.assignment()) != 1:
                await consumer.getmany(timeout_ms=500)
                await second.getmany(timeout_ms=500)
            assert not cluster.committed
    await check_that_all_is_read(cluster, *tps)


@virtual
async def test_the_new_topic_is_committed_as_any_other_once_it_is_read() -> None:
    cluster, (tp,) = filled(OLD)
    async with consumer_on(cluster, "t", group_id="g") as consumer:
        await read_values(consumer, OLD)
        made_anew(cluster, tp)
        await anyio.sleep(2)
        assert await read_values(consumer, 50) == numbers(50)
    assert cluster.committed == {("g", tp): 50}


@virtual
async def test_a_call_back_that_commits_at_revocation_commits_nothing_for_the_new_topic() -> None:
    cluster, (tp,) = filled(OLD)

    class Commits(ConsumerRebalanceListener):
        consumer: Consumer

        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            await self.consumer.commit()

        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None: ...

    listener = Commits()
    consumer = listener.consumer = consumer_on(cluster, group_id="g", enable_auto_commit=False)
    consumer.subscribe(["t"], listener=listener)
    async with consumer:
        await read_values(consumer, OLD)
        made_anew(cluster, tp)
        await anyio.sleep(2)
    assert not cluster.committed


# Positions and seeks.


def former(cluster: FakeCluster) -> UUID:
    return cluster.topics["t"].id


async def _seek(consumer: Consumer, tp: TopicPartition, offset: OffsetAndMetadata) -> None:
    consumer.seek(tp, offset.offset)


async def _seek_with_id(consumer: Consumer, tp: TopicPartition, offset: OffsetAndMetadata) -> None:
    await read_values(consumer, 10)
    consumer.seek(tp, offset)


async def _seek_with_pickled_id(consumer: Consumer, tp: TopicPartition, offset: OffsetAndMetadata) -> None:
    await read_values(consumer, 10)
    consumer.seek(tp, pickle.loads(pickle.dumps(offset)))  # noqa: S301  # ours


@pytest.mark.parametrize("way", [_seek, _seek_with_id, _seek_with_pickled_id])
@virtual
async def test_a_seek_to_an_offset_of_the_former_topic_begins_the_new_one(
    way: Callable[[Consumer, TopicPartition, OffsetAndMetadata], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, (tp,) = filled(OLD)
    with caplog.at_level(logging.WARNING, "kafka_async"):
        async with consumer_on(cluster, "t") as consumer:
            await read_values(consumer, 50)
            kept = consumer.next_offsets()[tp]
            assert (kept, kept.topic_id) == (OffsetAndMetadata(50, "", 0), former(cluster))
            made_anew(cluster, tp)
            await anyio.sleep(2)
            await way(consumer, tp, kept)
            assert await read_values(consumer, NEW) == numbers(NEW)
            assert consumer.next_offsets()[tp].topic_id == former(cluster)
    assert sum("a position of the former topic is dropped" in entry.getMessage() for entry in caplog.records) == 1


@virtual
async def test_a_seek_to_what_was_committed_of_the_former_topic_begins_the_new_one() -> None:
    cluster, (tp,) = filled(OLD)
    async with consumer_on(cluster, "t", group_id="g", enable_auto_commit=False) as consumer:
        await read_values(consumer, 50)
        await consumer.commit()
        found = await consumer.committed_offsets(tp)
        made_anew(cluster, tp)
        await anyio.sleep(2)
        await read_values(consumer, 10)
        target = found[tp]
        assert target is not None
        consumer.seek(tp, target)
        assert await read_values(consumer, NEW) == numbers(NEW)


@virtual
async def test_a_seek_to_an_offset_of_the_former_topic_without_a_policy_is_an_error() -> None:
    cluster, (tp,) = filled(OLD)
    async with consumer_on(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        await read_values(consumer, OLD)
        kept = consumer.next_offsets()[tp]
        made_anew(cluster, tp)
        await anyio.sleep(2)
        with pytest.raises(OffsetOutOfRangeError, match="deleted and created again"):
            await consumer.getone()
        consumer.seek(tp, kept)
        with pytest.raises(OffsetOutOfRangeError, match="deleted and created again"):
            await consumer.getone()
        consumer.seek(tp, OffsetAndMetadata(7, topic_id=former(cluster)))
        assert await read_values(consumer, 5) == numbers(5, 7)


@virtual
async def test_data_that_was_given_back_for_room_is_not_fetched_from_the_new_topic_at_its_old_place() -> None:
    cluster = FakeCluster()
    tp, other = cluster.create_topic("t", 2)
    for partition in (tp, other):
        cluster.fill(partition, OLD)
    async with consumer_on(cluster, "t", fetch_buffer_bytes=4000, max_partition_fetch_bytes=1000) as consumer:
        await consumer.getmany(other, timeout_ms=1000, max_records=1)
        await consumer.getmany(tp, timeout_ms=1000, max_records=1)
        made_anew(cluster, tp, other)
        await anyio.sleep(2)
        with anyio.move_on_after(60):
            while (await consumer.position(tp), await consumer.position(other)) != (NEW, NEW):
                await read_values(consumer, 1, tp, seconds=2)
                await read_values(consumer, 1, other, seconds=2)
        assert await consumer.position(tp) == NEW


def _next_look_up_held(cluster: FakeCluster) -> anyio.Event:
    """Have the next look-up of offsets answered as of then, but not before the event that is returned is set."""
    held = anyio.Event()
    honest = cluster.handlers[Api.LIST_OFFSETS]

    async def late(*asked: Any) -> Any:
        answer = honest(*asked)
        cluster.handlers[Api.LIST_OFFSETS] = honest
        await held.wait()
        return answer

    cluster.handlers[Api.LIST_OFFSETS] = late
    return held


@pytest.mark.slow
@pytest.mark.parametrize("first", [10, 3], ids=["unopened", "begun"])
@virtual
async def test_data_that_was_given_back_for_room_while_the_beginning_is_looked_up_is_no_place_in_the_new_topic(first: int) -> None:
    """The first batch was handed out, and the second one is given back; or the rest of the first one is."""
    cluster, (tp,) = filled(0)
    (other,) = cluster.create_topic("u")
    (asked,) = cluster.create_topic("v")
    cluster.fill(tp, 20, size=300)
    sizes = {"fetch_buffer_bytes": 4000, "max_partition_fetch_bytes": 1000}  # less than two batches
    async with consumer_on(cluster, "t", "u", "v", metadata_max_age_ms=1000, **sizes) as consumer:
        assert len(await read_values(consumer, first, tp)) == first
        await anyio.sleep(1)
        cluster.fill(other, 20, size=300)
        assert len(await read_values(consumer, 3, other)) == 3
        held = _next_look_up_held(cluster)
        made_anew(cluster, tp)
        await anyio.sleep(2)
        cluster.fill(asked, 10)
        assert await read_values(consumer, 10, asked) == numbers(10)
        held.set()
        found = await read_values(consumer, NEW + 20, tp, seconds=30)
        assert found[-NEW:] == numbers(NEW)


@virtual
async def test_a_look_up_that_was_answered_by_the_former_topic_is_made_again() -> None:
    """``earliest`` of the former topic lies within the new one."""
    cluster, (tp,) = filled(OLD)
    cluster.log(tp).delete_before(50)
    held = _next_look_up_held(cluster)
    async with consumer_on(cluster, metadata_max_age_ms=1000) as consumer:
        consumer.assign([tp])
        await consumer.getmany(timeout_ms=500)
        made_anew(cluster, tp)
        await consumer.getmany(timeout_ms=3000)
        held.set()
        assert await read_values(consumer, NEW) == numbers(NEW)


@pytest.mark.parametrize("policy", ["earliest", "none"])
@virtual
async def test_a_broker_that_still_names_the_former_topic_has_nothing_handled_twice(policy: str) -> None:
    cluster, (tp,) = filled(OLD)
    honest = cluster.handlers[Api.METADATA]
    former: list[Any] = []

    def note(*asked: Any) -> Any:
        former.append(honest(*asked))
        return former[-1]

    def behind(*asked: Any) -> Any:
        cluster.handlers[Api.METADATA] = honest
        return former[-1]

    cluster.handlers[Api.METADATA] = note
    async with consumer_on(cluster, group_id="g", auto_offset_reset=policy, metadata_max_age_ms=1000) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        assert await read_values(consumer, OLD) == numbers(OLD)
        cluster.handlers[Api.METADATA] = honest
        made_anew(cluster, tp)
        with suppress(OffsetOutOfRangeError):
            await anyio.sleep(2)
            await consumer.getmany(max_records=1)
        consumer.seek(tp, 0)
        assert await read_values(consumer, 50) == numbers(50)
        cluster.handlers[Api.METADATA] = behind
        await anyio.sleep(5)
        assert cluster.handlers[Api.METADATA] is honest
        assert await read_values(consumer, 2 * NEW, seconds=20) == numbers(NEW - 50, 50)
    assert cluster.committed == {("g", tp): NEW}


# What stops a partition.


@pytest.mark.parametrize("raised", [True, False])
@virtual
async def test_what_was_corrupt_in_the_former_topic_does_not_stop_the_new_one(raised: bool) -> None:
    cluster, (tp,) = filled(30)
    cluster.log(tp).corrupt(15)
    async with consumer_on(cluster, "t", metadata_max_age_ms=1000) as consumer:
        assert await read_values(consumer, 10, seconds=5) == numbers(10)
        if raised:
            with pytest.raises(CorruptRecordException):
                await consumer.getone()
        made_anew(cluster, tp)
        await anyio.sleep(5)
        assert await read_values(consumer, NEW) == numbers(NEW)
        assert consumer.ready


# Processing.


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110  # handlers note what they have done, and nothing else
            await anyio.sleep(0.1)


@pytest.mark.parametrize("keep_done", [True, False])
@BY_NAME_AND_ID
@virtual
async def test_what_handlers_did_with_the_former_topic_is_not_committed_for_the_new_one(
    release: Mapping[Api, int], keep_done: bool
) -> None:
    cluster, (tp,) = filled(OLD, max_versions=release)
    done: list[bytes] = []
    gate = anyio.Event()

    async def handle(record: Any) -> None:
        if record.offset == 50 and not gate.is_set():
            await gate.wait()
        done.append(record.value)

    consumer = consumer_on(cluster, "t", group_id="g")
    async with consumer, consumer.processing(handle, keep_done=keep_done, order="none"):
        await until(lambda: len(done) == OLD - 1)
        cluster.recreate("t")
        await anyio.sleep(8)
        gate.set()
        await anyio.sleep(8)
        assert cluster.committed.get(("g", tp), 0) == 0
        done.clear()
        cluster.fill(tp, NEW)
        await until(lambda: len(done) == NEW)
    assert sorted(done) == sorted(numbers(NEW))
    assert cluster.committed == {("g", tp): NEW}


@virtual
async def test_a_map_of_what_is_done_is_that_of_the_topic_that_is_read() -> None:
    """What is done beyond the commit is marked with the id of the new topic, so that a restart understands it."""
    cluster, (tp,) = filled(OLD)
    done: list[int] = []
    gates = [anyio.Event(), anyio.Event()]
    gates[0].set()

    async def handle(record: Any) -> None:
        if record.value == b"1":
            await gates[0].wait()
        done.append(record.offset)

    consumer = consumer_on(cluster, "t", group_id="g")
    async with consumer, consumer.processing(handle, order="none", drain_timeout_ms=100):
        await until(lambda: len(done) == OLD)
        gates.reverse()
        cluster.recreate("t")
        cluster.fill(tp, 20)
        await until(lambda: len(done) == OLD + 19)
    done.clear()
    gates.reverse()
    consumer = consumer_on(cluster, "t", group_id="g")
    async with consumer, consumer.processing(handle, order="none"):
        await until(lambda: len(done) == 1)
        await anyio.sleep(1)
    assert done == [1]


@virtual
async def test_errors_of_a_topic_that_is_gone_end_no_reading() -> None:
    cluster, (tp,) = filled(OLD)
    async with consumer_on(cluster, "t", group_id="g") as consumer:
        await read_values(consumer, OLD)
        cluster.delete_topic("t")
        with suppress(KafkaError):
            await read_values(consumer, 1, seconds=20)
        cluster.create_topic("t")
        cluster.fill(tp, NEW)
        assert await read_values(consumer, NEW) == numbers(NEW)
    assert cluster.committed == {("g", tp): NEW}
