"""Partitions that an eager rebalance takes away for a moment, and what an application does in that moment."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.errors import CoordinatorLoadInProgressError
from kafka_async.wire import Api

from .others import GROUP
from .support import Ownership, offsets_of, virtual

NEVER: Final = 10**9
"""Milliseconds of an interval that never ends."""


@contextmanager
def no_assignment(place: Ownership) -> Generator[None, None, None]:
    """Let the group rebalance, and the member find no coordinator to join it as long as the block lasts."""
    with place.kit.failing(Api.JOIN_GROUP, CoordinatorLoadInProgressError, None):
        place.kit.rebalance(GROUP)
        yield


async def _gives_up(consumer: Any, *only: TopicPartition) -> None:
    """Give everything up, with nearly all of it unread."""
    await anyio.sleep(4)  # a heartbeat says that the group rebalances
    with anyio.fail_after(60):
        while consumer.assignment():
            await consumer.getmany(*only, timeout_ms=500, max_records=1)


def _filled(place: Ownership, partitions: int, batches: int = 40) -> list[TopicPartition]:
    tps = place.topic("t", partitions, records=0)
    for partition in tps:
        for _ in range(batches):
            place.cluster.produce(partition, *[bytes(1000)] * 10)
    return tps


@pytest.mark.slow
@virtual
async def test_a_partition_that_gave_way_to_another_one_goes_on_after_a_rebalance() -> None:
    """A read of one partition with a full buffer carries out the revocation, and a read of all comes before the assignment."""
    place = Ownership("classic")
    one, two = _filled(place, 2)
    small = {"fetch_buffer_bytes": 12_000, "max_partition_fetch_bytes": 10_000, "auto_commit_interval_ms": NEVER}
    async with place.consumer("t", **small) as consumer:
        seen: dict[TopicPartition, list[int]] = {one: [], two: []}

        async def read(*only: TopicPartition, count: int = 30) -> None:
            for partition, records in (await consumer.getmany(*only, timeout_ms=500, max_records=count)).items():
                seen[partition] += [record.offset for record in records]

        while len(seen[one]) < 400:
            await read(one)
        with no_assignment(place):
            with anyio.fail_after(60):
                while consumer.assignment():
                    await consumer.getmany(one, timeout_ms=20_000)  # there is nothing more of it, and no room but for the other
            assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] >= 400, "totals never fall"
            await read()
            await anyio.sleep(1)
        with anyio.fail_after(100):
            while sum(map(len, seen.values())) < 800:
                await read()
        assert all(offsets == list(range(400)) for offsets in seen.values())


@virtual
async def test_what_was_set_aside_for_a_group_is_gone_once_the_group_is_left() -> None:
    place = Ownership("classic")
    (partition,) = _filled(place, 1)
    async with place.consumer("t", auto_commit_interval_ms=NEVER) as consumer:
        await consumer.getmany(timeout_ms=1000, max_records=30)
        await consumer.commit({partition: 5})
        with no_assignment(place):
            await _gives_up(consumer)
            place.cluster.committed[GROUP, partition] = 5  # as another member has it
            consumer.unsubscribe()
            await anyio.sleep(1)
            consumer.assign([partition])
            found = await offsets_of(consumer, 395)
        assert found == {partition: list(range(5, 400))}


@virtual
async def test_a_pause_is_gone_with_the_subscription_that_it_was_for() -> None:
    place = Ownership("classic")
    one, two = _filled(place, 2, batches=2)
    async with place.consumer("t", auto_commit_interval_ms=NEVER) as consumer:
        consumer.pause(two)
        await consumer.getmany(timeout_ms=1000, max_records=1)
        with no_assignment(place):
            await _gives_up(consumer)
            consumer.unsubscribe()
            consumer.subscribe(["t"])
        found = await offsets_of(consumer, 39)
        assert consumer.paused() == set()
        assert set(found) == {one, two}


@virtual
async def test_a_pause_and_a_position_outlast_a_rebalance_that_brings_the_partition_back() -> None:
    place = Ownership("classic")
    one, two = _filled(place, 2, batches=2)
    async with place.consumer("t", auto_commit_interval_ms=NEVER) as consumer:
        consumer.pause(two)
        first = await consumer.getmany(one, timeout_ms=1000, max_records=7)
        with no_assignment(place):
            await anyio.sleep(4)
            with anyio.fail_after(60):
                while consumer.assignment():
                    assert await consumer.getmany(two, timeout_ms=500) == {}
        found = await offsets_of(consumer, 13, seconds=30)
        assert consumer.paused() == {two}
        assert [record.offset for record in first[one]] == list(range(7))
        assert found == {one: list(range(7, 20))}
