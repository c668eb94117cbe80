"""The checks of Kafka's own ``consumer_test.py``, on members that are processes of their own.

A scenario with a fault of the brokers, or one that mostly waits, has a group in each protocol at the same time; the others are
repeated under both.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.brokers import KafkaCluster
from tests.effort import apart

from .groups import PROTOCOLS, Load, Process, Processes, both, both_at_once, load, new_group, processes
from .tools import new_topic, until

pytestmark = pytest.mark.brokers

PARTITIONS = 6


@asynccontextmanager
async def _group_of_each_protocol(
    cluster: KafkaCluster, count: int, session_ms: int
) -> AsyncIterator[list[tuple[Processes, Load]]]:
    """Start a group in each protocol, each on a topic of its own under load."""
    async with AsyncExitStack() as stack:
        groups = []
        for protocol in PROTOCOLS:
            topic = new_topic(cluster, PARTITIONS)
            group = new_group(cluster, protocol, session_ms=session_ms)
            members = await stack.enter_async_context(processes(group, topic, count))
            groups.append((members, Load(cluster, topic, PARTITIONS, 300)))
        for members, _ in groups:
            await members.settled(PARTITIONS)
        yield groups


@asynccontextmanager
async def _without_a_rebalance(groups: list[tuple[Processes, Load]]) -> AsyncIterator[None]:
    """Write while the block runs; then nothing was rebalanced, lost or read twice, and everything is committed."""
    before = [members.rebalances for members, _ in groups]
    for _, writing in groups:
        writing.start()
    try:
        yield
    finally:
        for _, writing in groups:
            await writing.stop()
    for members, writing in groups:
        await until(lambda: members.watch.committed_all(writing.offsets))  # noqa: B023  # awaited here
        assert not members.watch.breaches
        assert not members.watch.unread(writing.offsets)
        assert not members.watch.repeated()
    assert [members.rebalances for members, _ in groups] == before


@pytest.mark.slow
@pytest.mark.apart  # under much load; test_groups_faults.py restarts brokers one by one in each run, under little
async def test_brokers_that_are_restarted_one_by_one_cause_no_rebalance(kafka_cluster3: KafkaCluster) -> None:
    async with _group_of_each_protocol(kafka_cluster3, 2, 20_000) as groups, _without_a_rebalance(groups):
        for broker in range(3):
            await asyncio.to_thread(kafka_cluster3.restart, broker)


@pytest.mark.slow
@pytest.mark.apart  # test_groups_faults.py kills a coordinator in each run
async def test_a_broker_that_dies_causes_no_rebalance(kafka_cluster3: KafkaCluster) -> None:
    async with _group_of_each_protocol(kafka_cluster3, 2, 20_000) as groups:
        async with _without_a_rebalance(groups):
            victim = kafka_cluster3.coordinator(groups[0][0].group.name)
            await asyncio.to_thread(kafka_cluster3.kill, victim)
            counts = [members.watch.count for members, _ in groups]
            # The others take over when the dead broker's session is over; from then on everything goes on.
            await until(lambda: all(members.watch.count > count + 1000 for (members, _), count in zip(groups, counts, strict=True)))
        await asyncio.to_thread(kafka_cluster3.heal)


@pytest.mark.parametrize("protocol", ["consumer", *apart("classic")])
async def test_members_that_are_bounced_cleanly_leave_no_gap_and_read_nothing_twice(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol)
    async with processes(group, topic, 3) as members:
        await members.settled(PARTITIONS)
        async with load(kafka_cluster3, topic, PARTITIONS) as writing:
            for member in list(members.members):
                await member.stop()
                await members.start()
                await members.settled(PARTITIONS)
        await until(lambda: members.watch.committed_all(writing.offsets))
        assert not members.watch.unread(writing.offsets)
        assert not members.watch.repeated()
    assert not members.watch.breaches
    assert {member.process.returncode for member in members.members} == {0}


@both_at_once
async def test_members_that_are_killed_lose_nothing_and_are_replaced_within_their_session(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol, session_ms=3_000)
    async with processes(group, topic, 3) as members:
        await members.settled(PARTITIONS)
        async with load(kafka_cluster3, topic, PARTITIONS) as writing:
            members.members[0].kill()
            await members.members[0].gone()
            await members.settled(PARTITIONS, seconds=2 * group.session_ms / 1000 + 30)
        await until(lambda: members.watch.committed_all(writing.offsets))
        assert not members.watch.unread(writing.offsets)
        assert len(members.watch.owner) == PARTITIONS
    assert not members.watch.breaches


@both_at_once
async def test_static_members_are_bounced_without_a_rebalance_of_the_others(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol, session_ms=20_000)
    async with processes(group, topic, 0) as members, load(kafka_cluster3, topic, PARTITIONS) as writing:
        stays = await members.start("--group-instance-id", "stays")
        bounced = await members.start("--group-instance-id", "bounced")
        await members.settled(PARTITIONS)
        before, owned = stays.rebalances, set(bounced.owned)
        # The consumer protocol keeps the name of a member that was killed until its session is over.
        for kill in (False, protocol == "classic"):
            bounced.kill() if kill else await bounced.stop()
            await bounced.gone()
            bounced = await members.start("--group-instance-id", "bounced")
            await until(lambda member=bounced: member.owned == owned)  # type: ignore[misc]  # bound at once, used at once
        assert stays.rebalances == before
        await writing.stop()
        await until(lambda: members.watch.committed_all(writing.offsets))
        assert not members.watch.unread(writing.offsets)
    assert not members.watch.breaches


@pytest.mark.apart  # test_groups_life.py has static members in each run; these are killed under load
@both_at_once
async def test_a_static_member_that_is_killed_is_waited_for_until_its_session_is_over(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    """The classic protocol lets its next process take over; the consumer protocol keeps the name for the one that died."""
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol, session_ms=12_000)  # a busy machine starts four programs meanwhile
    async with processes(group, topic, 0) as members, load(kafka_cluster3, topic, PARTITIONS) as writing:
        stays = await members.start("--group-instance-id", "stays")
        killed = await members.start("--group-instance-id", "killed")
        await members.settled(PARTITIONS)
        before, owned, kept = stays.rebalances, set(killed.owned), set(stays.owned)
        killed.kill()
        await killed.gone()
        back = await members.start("--group-instance-id", "killed")
        if protocol == "classic":
            await until(lambda: back.owned == owned)
            back.kill()
            await back.gone()
        else:
            assert await back.gone() == 1
        assert (stays.rebalances, stays.owned) == (before, kept)
        await until(lambda: len(stays.owned) == PARTITIONS)  # nobody came back in time
        await members.start("--group-instance-id", "killed")
        await members.settled(PARTITIONS)
        await writing.stop()
        await until(lambda: members.watch.committed_all(writing.offsets))
        assert not members.watch.unread(writing.offsets)
    assert not members.watch.breaches


@both
async def test_of_two_static_members_with_one_name_one_survives(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    """The classic protocol fences the older one; the consumer protocol refuses the newcomer.

    The older one learns that it is fenced with its next request. What it was handed by then is read again; its commits are refused.
    """
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol)
    async with processes(group, topic, 0) as members, load(kafka_cluster3, topic, PARTITIONS) as writing:
        old = await members.start("--group-instance-id", "one")
        await members.settled(PARTITIONS)
        await _goes_on(members)
        new = await members.start("--group-instance-id", "one")
        dead, alive = (old, new) if protocol == "classic" else (new, old)
        assert await dead.gone() == 1
        await members.settled(PARTITIONS)
        await _goes_on(members)
        await writing.stop()
        await until(lambda: members.watch.committed_all(writing.offsets))
        assert members.alive == [alive]
        assert not members.watch.unread(writing.offsets)
        again = [(partition, number) for partition, numbers in members.watch.repeated().items() for number in numbers]
        assert all(protocol == "classic" and number >= new.starts[partition] for partition, number in again), again
    assert not members.watch.breaches


@pytest.mark.parametrize("protocol", ["classic", *apart("consumer")])
async def test_a_group_that_grows_and_shrinks_has_a_valid_assignment_after_every_step(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol)
    async with processes(group, topic, 0) as members, load(kafka_cluster3, topic, PARTITIONS) as writing:
        for _ in range(3):
            await members.start()
            await members.settled(PARTITIONS)
            await _goes_on(members)
        for member in members.members[:2]:
            await member.stop()
            await members.settled(PARTITIONS)
            await _goes_on(members)
        await writing.stop()
        await until(lambda: members.watch.committed_all(writing.offsets))
        assert not members.watch.unread(writing.offsets)
        assert not members.watch.repeated()
    assert not members.watch.breaches


async def _goes_on(members: Processes) -> None:
    """Every living member reads."""
    seen = {member: dict(member.positions) for member in members.alive}
    await until(lambda: all(_moved(member, positions) for member, positions in seen.items()))


def _moved(member: Process, positions: dict[int, int]) -> bool:
    return any(offset > positions.get(partition, -1) for partition, offset in member.positions.items())


async def test_a_member_ends_by_itself_after_its_messages_and_reports_each_of_them(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, 100)
    group = new_group(kafka_cluster3, "classic")
    async with processes(group, topic, 1, "--max-messages", "40", "--verbose") as members:
        assert await members.members[0].gone() == 0
    assert members.watch.consumed[0] == list(range(40))
    assert members.watch.committed == {0: 40}
    assert group.committed() == {0: 40}
