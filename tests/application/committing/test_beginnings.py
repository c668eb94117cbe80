"""Where reading began is stored before a partition leaves, also if nothing of it was read: whoever is next begins there.

Otherwise the next owner would begin at the end of the log, past what was written meanwhile, or at its beginning, if the group has
offsets of other partitions of the topic, as if this one were new.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

from kafka_async import ConsumerRecord, KafkaConsumer, TopicPartition
from kafka_async.testing.simulation import FakeCluster

from ..support import REBALANCES, consumer_on, filled, read_all, virtual

OLD, NEW = 10, 5
BOTH: Final = list(range(OLD, OLD + NEW))
"""What each partition gets after the first member has begun."""
every_protocol = pytest.mark.parametrize("protocol", REBALANCES.values(), ids=REBALANCES.keys())


def member(cluster: FakeCluster, protocol: Mapping[str, Any], **options: Any) -> KafkaConsumer[Any, Any]:
    return consumer_on(cluster, "t", group_id="g", auto_offset_reset="latest", request_timeout_ms=3000, **protocol, **options)


@asynccontextmanager
async def begun(cluster: FakeCluster, protocol: Mapping[str, Any], **options: Any) -> AsyncIterator[KafkaConsumer[Any, Any]]:
    """A member that has all partitions, and their positions, from which nothing was read."""
    async with member(cluster, protocol, **options) as consumer:
        await anyio.sleep(1)
        yield consumer


def write(cluster: FakeCluster, partitions: list[TopicPartition]) -> None:
    for partition in partitions:
        cluster.fill(partition, NEW)


@every_protocol
@virtual
async def test_what_came_before_the_first_read_is_read_by_the_next_member(protocol: Mapping[str, Any]) -> None:
    cluster, partitions = filled(OLD, partitions=4)
    async with begun(cluster, protocol):
        write(cluster, partitions)
    async with member(cluster, protocol) as second:
        assert await read_all([second], 5) == dict.fromkeys(partitions, BOTH)


@every_protocol
@virtual
async def test_what_a_member_gives_up_in_its_first_read_has_no_gap_and_is_not_new_to_its_next_owner(
    protocol: Mapping[str, Any],
) -> None:
    cluster, partitions = filled(OLD, partitions=4)
    async with begun(cluster, protocol) as first:
        write(cluster, partitions)
        async with member(cluster, protocol) as second:
            stays = await read_all([first], 9)  # longer than the interval: offsets of what stays are stored
            goes = await read_all([first, second], 9)
            assert first.assignment()
            assert second.assignment()
    assert not stays.keys() & goes.keys()
    assert stays | goes == dict.fromkeys(partitions, BOTH)


@every_protocol
@virtual
async def test_the_beginning_of_a_paused_partition_is_stored_with_the_interval(protocol: Mapping[str, Any]) -> None:
    cluster, partitions = filled(OLD, partitions=4)
    async with begun(cluster, protocol) as consumer:
        consumer.pause(*partitions)
        await read_all([consumer], 6)
        assert cluster.committed == {("g", partition): OLD for partition in partitions}


@every_protocol
@virtual
async def test_the_beginning_of_what_was_not_read_goes_along_with_a_commit_of_the_application(protocol: Mapping[str, Any]) -> None:
    cluster, (first, *others) = filled(OLD, partitions=4)
    async with begun(cluster, protocol, enable_auto_commit=False) as consumer:
        await consumer.commit({first: OLD + 1})
    assert cluster.committed == {("g", first): OLD + 1} | {("g", partition): OLD for partition in others}


@every_protocol
@virtual
async def test_without_auto_commit_a_member_that_leaves_stores_nothing(protocol: Mapping[str, Any]) -> None:
    cluster, _ = filled(OLD, partitions=4)
    async with begun(cluster, protocol, enable_auto_commit=False):
        pass
    assert not cluster.committed


@every_protocol
@virtual
async def test_process_stores_where_it_began_with_each_partition(protocol: Mapping[str, Any]) -> None:
    cluster, (first, *others) = filled(OLD, partitions=4)
    done: list[int] = []

    async def handler(record: ConsumerRecord[Any, Any]) -> None:
        done.append(record.offset)

    async with begun(cluster, protocol) as consumer:
        write(cluster, [first])
        with anyio.move_on_after(1):
            await consumer.process(handler)
    assert done == BOTH
    assert cluster.committed == {("g", first): OLD + NEW} | {("g", partition): OLD for partition in others}


@every_protocol
@virtual
async def test_a_beginning_takes_back_no_offset_that_the_application_has_stored_itself(protocol: Mapping[str, Any]) -> None:
    cluster, partitions = filled(OLD, partitions=2)
    async with begun(cluster, protocol, enable_auto_commit=False) as consumer:
        write(cluster, partitions)
        await read_all([consumer], 5)
        following = consumer.next_offsets()[partitions[1]].offset
        cluster.committed["g", partitions[1]] = following  # as a producer's ``send_offsets_to_transaction`` does
        await consumer.commit({partitions[0]: OLD})
        assert cluster.committed["g", partitions[1]] == following == OLD + NEW


@every_protocol
@virtual
async def test_who_looks_at_the_next_offsets_has_beginnings_stored_all_the_same(protocol: Mapping[str, Any]) -> None:
    cluster, partitions = filled(OLD, partitions=2)
    first, quiet = partitions
    async with begun(cluster, protocol, enable_auto_commit=False) as consumer:
        write(cluster, [first])
        await read_all([consumer], 5)
        assert consumer.next_offsets()[quiet].offset == OLD
        await consumer.commit({first: OLD + NEW})
        assert cluster.committed == {("g", first): OLD + NEW, ("g", quiet): OLD}
