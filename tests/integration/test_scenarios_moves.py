"""Leaders and coordinators that move, on the simulated cluster of three and on a real one, with equal results.

On real brokers a leader moves as its operators move it: the partition gets its replicas in another order, and the first of them is
elected. A coordinator is the leader of the group's partition of ``__consumer_offsets``, and moves with that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import pytest
from attrs import define, field
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as AdminPartition

from kafka_async import ConsumerConfig, ConsumerRebalanceListener, TopicPartition
from kafka_async.adapters.admin import Client
from kafka_async.testing import Cluster, RealCluster
from kafka_async.wire.messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.brokers import KafkaCluster
from tests.virtual import run_virtual_asyncio

from .groups import Group
from .scenarios import Ownership, indexes, jobs, settled, told, until, values, worker
from .tools import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

BROKERS: Final = 3
OFFSETS: Final = "__consumer_offsets"
EARLIEST: Final = -2


@define(eq=False)
class Real:
    """Three real brokers, and what their operators do."""

    brokers: KafkaCluster

    async def move_leader(self, partition: TopicPartition) -> int:
        """Have the next broker lead a partition; return its number."""
        return await self._move(*partition)

    async def move_coordinator(self, group: str) -> int:
        """Have the next broker coordinate a group; return its number."""
        place = Group(cluster=self.brokers, protocol="classic", name=group, session_ms=0).place
        return await self._move(OFFSETS, place)

    async def _move(self, topic: str, partition: int) -> int:
        chosen = (await asyncio.to_thread(self.brokers.leader, topic, partition) + 1) % BROKERS
        replicas = [(chosen + step) % BROKERS for step in range(BROKERS)]
        await asyncio.to_thread(self.brokers.reassign, topic, {partition: replicas})
        await eventually(lambda: asyncio.to_thread(self._elected, topic, partition, chosen))
        await self._known(topic, partition, chosen)
        return chosen

    def _elected(self, topic: str, partition: int, broker: int) -> bool:
        self.brokers.admin.elect_leaders(ElectionType.PREFERRED, [AdminPartition(topic, partition)]).result()
        return self.brokers.leader(topic, partition) == broker

    async def _known(self, topic: str, partition: int, leader: int) -> None:
        """Wait for every broker: until the old leader sees that it is none any more, it answers as one, and what it says counts."""
        part = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
        question = ListOffsetsRequest(topics=(ListOffsetsTopic(name=topic, partitions=(part,)),))
        async with Client.connect(ConsumerConfig.from_options({"bootstrap_servers": self.brokers.bootstrap_servers})) as client:

            async def knows(broker: int) -> bool:
                (answer,) = (await client.ask(question, broker)).topics
                return (answer.partitions[0].error_code == 0) == (broker == leader)

            for broker in range(BROKERS):
                await eventually(lambda: knows(broker))  # noqa: B023  # it is awaited before the next one


@define(eq=False)
class Simulated:
    """The same for the simulated cluster."""

    cluster: Cluster

    async def move_leader(self, partition: TopicPartition) -> int:
        chosen = (self.cluster.simulated.partition(partition).leader + 1) % BROKERS
        self.cluster.move_leader(partition, chosen)
        return chosen

    async def move_coordinator(self, group: str) -> int:
        chosen = ((self.cluster.simulated.groups.coordinator(group) or 0) + 1) % BROKERS
        self.cluster.move_coordinator(group, chosen)
        return chosen


Moves = Real | Simulated
Scenario = Callable[[Ownership, Moves, str], Awaitable[Any]]
SCENARIOS: Final[dict[str, Scenario]] = {}


def moving(scenario: Scenario) -> Scenario:
    SCENARIOS[scenario.__name__] = scenario
    return scenario


@define(eq=False)
class Journal(ConsumerRebalanceListener):
    """What a member is told of its partitions."""

    entries: list[tuple[str, int]] = field(factory=list)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._note("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._note("lost", lost)

    def _note(self, what: str, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self.entries.append((what, len(partitions)))


@moving
async def a_leader_that_moves_and_comes_back(p: Ownership, moves: Moves, protocol: str) -> Any:
    """A reader follows: nothing is lost or comes twice, later records and commits carry later epochs."""
    p.filled("a", partitions=2)
    async with p.member(protocol) as consumer:
        epochs, found = [], []
        for value in ("b", "c", None):
            record = await consumer.getone()
            found.append(record.value)
            epochs.append(-1 if record.leader_epoch is None else record.leader_epoch)
            await consumer.commit()
            if value is not None:
                leader = await moves.move_leader(p.tp())
                p.cluster.produce(p.t, value=value, partition=0)
                follows = await until(lambda: consumer.statistics().partitions[p.tp()].leader == leader)  # noqa: B023  # awaited here
                found.append(follows)
        stored = (await consumer.committed_offsets(p.tp()))[p.tp()]
        assert stored is not None
        return found, epochs[0] < epochs[1] < epochs[2], stored.leader_epoch == epochs[2], p.committed(), indexes(consumer)


@moving
async def leaders_that_move_while_there_is_much_to_read(p: Ownership, moves: Moves, protocol: str) -> Any:
    """What was fetched from the old leaders is handed out, and the new ones go on where it ends."""
    p.spread(60, partitions=3)
    async with p.member(protocol, max_poll_records=5) as consumer:
        found = await values(consumer, 5)
        for partition in range(3):
            await moves.move_leader(p.tp(partition))
        for number in range(60, 90):
            p.cluster.produce(p.t, value=str(number), partition=number % 3)
        found += await values(consumer, 85)
        await consumer.commit()
        early = await values(consumer, 1, 2)
        return sorted(int(value) for value in found if value is not None), early, p.committed()


@moving
async def a_coordinator_that_moves_and_comes_back(p: Ownership, moves: Moves, protocol: str) -> Any:
    """Members stay members, and keep what they have: the new coordinator reads the group from the log of the old one."""
    p.filled("a", partitions=2)
    journal = Journal()
    one = p.new(group_id=p.g, group_protocol=protocol)
    one.subscribe([p.t], listener=journal)
    async with one:
        found = await values(one, 1)
        await one.commit()
        members = p.cluster.members(p.g)
        generations = [one.group_metadata().generation_id]
        for value in ("b", "c"):
            await moves.move_coordinator(p.g)
            p.cluster.produce(p.t, value=value, partition=0)
            found += await values(one, 1)
            await one.commit()
            generations.append(one.group_metadata().generation_id)
        same = p.cluster.members(p.g) == members
        return found, same, len(set(generations)), journal.entries, p.committed(), indexes(one)


@moving
async def a_group_that_rebalances_after_its_coordinator_moved(p: Ownership, moves: Moves, protocol: str) -> Any:
    """The new coordinator carries on: a member joins there, and one leaves."""
    p.spread(4, partitions=4)
    async with p.member(protocol) as one:
        found = await values(one, 4)
        await one.commit()
        await moves.move_coordinator(p.g)
        async with p.joining(protocol, one) as two:
            shared = await until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two)
            twice = await values(two, 1, 2)
        alone = await until(lambda: len(one.assignment()) == 4, one)
        await moves.move_coordinator(p.g)
        await one.commit()
        return sorted(map(str, found)), shared, twice, alone, p.committed(), len(p.cluster.members(p.g))


@moving
async def a_static_member_whose_coordinator_moves_while_it_is_away(p: Ownership, moves: Moves, protocol: str) -> Any:
    """The new coordinator knows the instance id, and the member is back without a rebalance for the other one."""
    p.spread(0, partitions=2)
    async with p.member(protocol) as one:
        journal = Journal()
        async with p.joining(protocol, one, group_instance_id="two") as before:
            shared = await until(lambda: len(one.assignment()) == len(before.assignment()) == 1, one, before)
            had = before.assignment()
        await moves.move_coordinator(p.g)
        one.subscribe([p.t], listener=journal)
        async with p.member(protocol, group_instance_id="two") as after:
            back = await until(lambda: after.assignment() == had, one, after)
            return shared, back, journal.entries, len(p.cluster.members(p.g))


@moving
async def a_member_that_leaves_before_it_knows_that_its_coordinator_moved(p: Ownership, moves: Moves, protocol: str) -> Any:
    """It leaves at the new coordinator, so that its partitions are free at once."""
    p.spread(2, partitions=2)
    if protocol == "classic":
        options: dict[str, Any] = {"heartbeat_interval_ms": 20_000, "session_timeout_ms": 60_000}
    else:
        options = {}
        p.cluster.group(p.g, consumer_heartbeat_interval_ms=15_000, consumer_session_timeout_ms=60_000)
    async with p.member(protocol, **options) as one:
        found = await values(one, 2)
        before = len(p.cluster.members(p.g))
        await moves.move_coordinator(p.g)
    async with worker(p, group_id=f"{p.g}-share") as member:
        joined = await until(lambda: bool(member.statistics().assignment))
        await moves.move_coordinator(f"{p.g}-share")
    return sorted(map(str, found)), before, len(p.cluster.members(p.g)), joined, len(p.cluster.members(f"{p.g}-share"))


@moving
async def jobs_that_are_held_as_the_leader_moves(p: Ownership, moves: Moves, protocol: str) -> Any:
    """The new leader does not know who holds what: the acknowledgement does not count, and every job comes again."""
    p.filled("a", "b")
    p.from_the_start()
    async with worker(p) as one:
        (held,) = await jobs(one, 1)
        await moves.move_leader(p.tp())
        held.accept()
        said = await settled(one)
        rest = await jobs(one, 2)
        return told([held]), said == ["NoneType"], sorted(record.value for record in rest)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_three_real_brokers_and_simulated_ones_move_alike(name: str, protocol: str, kafka_cluster3: KafkaCluster) -> None:
    async def real() -> Any:
        with RealCluster(kafka_cluster3.bootstrap_servers) as cluster:
            return await SCENARIOS[name](Ownership(cluster), Real(kafka_cluster3), protocol)

    async def simulated() -> Any:
        cluster = Cluster(brokers=BROKERS)
        return await SCENARIOS[name](Ownership(cluster), Simulated(cluster), protocol)

    assert run_virtual_asyncio(simulated) == asyncio.run(real())
