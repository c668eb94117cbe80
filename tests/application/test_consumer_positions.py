"""Where a consumer reads: positions, seeks, look-ups of offsets, and the offsets of a commit."""

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from kafka_async import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kafka_async.errors import (
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
)
from kafka_async.testing.simulation import FakeCluster
from kafka_async.testing.simulation.waking import TIMESTAMP
from kafka_async.wire import Api

from .support import Consumer, consumer_on, filled, iteration, numbers, read_values, virtual


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
async def test_seeks_to_ends_and_times_move_the_position() -> None:
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


def after_each_look_up(cluster: FakeCluster, happens: Callable[[], object]) -> None:
    """Let something happen whenever a broker has looked offsets up, and before the answer arrives."""
    honest = cluster.handlers[Api.LIST_OFFSETS]

    def answer(*asked: Any) -> Any:
        answer = honest(*asked)
        happens()
        return answer

    cluster.handlers[Api.LIST_OFFSETS] = answer


async def _seek_to_time(consumer: Consumer, tp: TopicPartition) -> None:
    consumer.assign([tp])
    assert await consumer.seek_to_timestamp(TIMESTAMP + 99_000) == {tp: None}


async def _begin_by_duration(consumer: Consumer, tp: TopicPartition) -> None:
    consumer.assign([tp])
    await consumer.position(tp)


BY_TIME = pytest.mark.parametrize("begin", [_seek_to_time, _begin_by_duration], ids=["seek", "duration"])


@BY_TIME
@virtual
async def test_what_is_written_while_a_time_is_looked_up_is_read(
    begin: Callable[[Consumer, TopicPartition], Coroutine[Any, Any, None]],
) -> None:
    cluster, (tp,) = filled(10)
    after_each_look_up(cluster, lambda: cluster.log(tp).append([b"meanwhile"], now=TIMESTAMP + 50_000))
    async with consumer_on(cluster, auto_offset_reset="by_duration:PT1H") as consumer:
        await begin(consumer, tp)
        assert (await consumer.getone()).offset == 10


@BY_TIME
@virtual
async def test_a_transaction_that_is_committed_while_a_time_is_looked_up_is_read(
    begin: Callable[[Consumer, TopicPartition], Coroutine[Any, Any, None]],
) -> None:
    cluster, (tp,) = filled(10)
    cluster.produce(tp, "a", "b", producer_id=7)
    after_each_look_up(cluster, lambda: cluster.log(tp).end_transaction(7, commit=True))
    async with consumer_on(cluster, auto_offset_reset="by_duration:PT1H", isolation_level="read_committed") as consumer:
        await begin(consumer, tp)
        assert (await consumer.getone()).offset == 10


@virtual
async def test_an_end_that_was_looked_up_for_a_time_is_no_place_in_a_topic_made_anew_meanwhile() -> None:
    cluster, (tp,) = filled(10, size=3)
    honest = cluster.handlers[Api.LIST_OFFSETS]

    async def last(*asked: Any) -> Any:
        cluster.handlers[Api.LIST_OFFSETS] = honest
        answer = honest(*asked)
        cluster.recreate("t")
        cluster.fill(tp, 30)
        await anyio.sleep(5)  # by then the consumer knows the new topic
        return answer

    def first(*asked: Any) -> Any:
        cluster.handlers[Api.LIST_OFFSETS] = last
        return honest(*asked)

    async with consumer_on(cluster, metadata_max_age_ms=1000) as consumer:
        consumer.assign([tp])
        await anyio.sleep(1)
        cluster.handlers[Api.LIST_OFFSETS] = first
        await consumer.seek_to_timestamp(TIMESTAMP + 99_000)
        assert await read_values(consumer, 30) == numbers(30)


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
async def test_the_latest_policy_starts_after_what_is_there() -> None:
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
async def test_next_offsets_are_past_what_was_handed_out_with_its_epoch() -> None:
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
async def test_a_consumer_without_a_group_can_neither_commit_nor_ask_what_is_committed() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster, "t") as consumer:
        with pytest.raises(IllegalOperation):
            await consumer.commit()
        with pytest.raises(IllegalOperation):
            await consumer.committed(tp)
