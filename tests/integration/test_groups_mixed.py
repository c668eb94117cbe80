"""Groups whose members differ: Java's client beside ours, eager and cooperative, classic and consumer protocol.

Kafka's own VerifiableConsumer speaks for Java's client. What its console consumer would show it shows as well, and its commits.
"""

import pytest

from tests.brokers import KafkaCluster

from .groups import Processes, java_tools, load, new_group, processes
from .tools import new_topic, until

pytestmark = pytest.mark.integration

PARTITIONS = 6
_PACKAGE = "org.apache.kafka.clients.consumer"
RANGE = f"{_PACKAGE}.RangeAssignor"
COOPERATIVE = f"{_PACKAGE}.CooperativeStickyAssignor"


@pytest.mark.parametrize(
    ("protocol", "arguments", "leader"),
    [
        ("classic", ("--assignment-strategy", RANGE), "ours"),
        ("classic", ("--assignment-strategy", COOPERATIVE), "java"),
        ("classic", ("--assignment-strategy", COOPERATIVE), "ours"),
        ("classic", ("--assignment-strategy", f"{_PACKAGE}.StickyAssignor"), "ours"),
        ("consumer", (), "java"),
    ],
    ids=["range", "cooperative led by java", "cooperative", "sticky", "consumer"],
)
async def test_members_of_java_and_ours_share_a_group(
    kafka_cluster3: KafkaCluster, protocol: str, arguments: tuple[str, ...], leader: str
) -> None:
    tools = java_tools()
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol)
    async with processes(group, topic, 0, *arguments) as members, load(kafka_cluster3, topic, PARTITIONS) as writing:
        # In the classic protocol the first member leads: it deals the partitions out, and the others read what it wrote.
        first, *others = (tools, None, tools) if leader == "java" else (None, tools, None)
        await members.start(java=first)
        await members.settled(PARTITIONS)
        for java in others:
            await members.start(java=java)
        await members.settled(PARTITIONS)
        await members.members[0].stop()
        await members.settled(PARTITIONS)
        await writing.stop()
        await _all_read_once(members, writing.offsets)


async def _all_read_once(members: Processes, produced: dict[int, list[int]]) -> None:
    watch = members.watch
    await until(lambda: watch.committed_all(produced))
    assert watch.read_all(produced)
    # Java's client refuses to commit while a cooperative rebalance is under way, so what it gives up then comes again.
    refused = [text for text in watch.refused if "(Java)" in text]
    assert watch.refused == refused
    assert refused or not watch.repeated()
    assert not watch.breaches


@pytest.mark.parametrize("java", [True, False], ids=["with java", "ours only"])
async def test_a_group_becomes_cooperative_by_rolling_restarts(kafka_cluster3: KafkaCluster, java: bool) -> None:
    """KIP-429: first every member learns the cooperative assignor beside the eager one, then the eager one is dropped."""
    tools = java_tools() if java else None
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, "classic")
    async with processes(group, topic, 0) as members, load(kafka_cluster3, topic, PARTITIONS) as writing:
        alive = [await members.start("--assignment-strategy", RANGE, java=client) for client in (tools, None)]
        await members.settled(PARTITIONS)
        for strategy in (f"{COOPERATIVE},{RANGE}", COOPERATIVE):
            for index, client in enumerate((tools, None)):
                await alive[index].stop()
                alive[index] = await members.start("--assignment-strategy", strategy, java=client)
                await members.settled(PARTITIONS)
        await writing.stop()
        await _all_read_once(members, writing.offsets)


@pytest.mark.parametrize(
    ("protocol", "java"),
    [("classic", True), ("consumer", True), ("classic", False)],
    ids=["from classic", "from consumer", "from classic without java"],
)
async def test_a_group_changes_its_protocol_while_it_works(kafka_cluster3: KafkaCluster, protocol: str, java: bool) -> None:
    """KIP-848: members of both protocols share the group during the change, which goes both ways."""
    other = {"classic": "consumer", "consumer": "classic"}[protocol]
    tools = java_tools() if java else None
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol)
    async with processes(group, topic, 0) as members, load(kafka_cluster3, topic, PARTITIONS) as writing:
        old = [await members.start(java=client) for client in (tools, None)]
        await members.settled(PARTITIONS)
        for member in old:
            await members.start("--group-protocol", other)
            await members.settled(PARTITIONS)
            await member.stop()
            await members.settled(PARTITIONS)
        await writing.stop()
        await _all_read_once(members, writing.offsets)
    described = kafka_cluster3.admin.describe_consumer_groups([group.name])[group.name].result()
    assert not described.members
