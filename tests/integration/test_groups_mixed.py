"""Groups whose members differ: Java's client beside ours, eager and cooperative, classic and consumer protocol.

Kafka's own VerifiableConsumer speaks for Java's client where its commits matter, its console consumer where it is what people run.
"""

import asyncio
import re
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import pytest
from attrs import define, field

from tests.brokers import KafkaCluster

from .groups import HEARTBEAT_MS, Group, Processes, Reading, both, java_tools, load, new_group, processes, reading
from .tools import PATIENCE, new_topic, until

pytestmark = pytest.mark.brokers

PARTITIONS = 6
_PACKAGE = "org.apache.kafka.clients.consumer"
RANGE = f"{_PACKAGE}.RangeAssignor"
COOPERATIVE = f"{_PACKAGE}.CooperativeStickyAssignor"
_PLACE: Final = re.compile(rb"Partition:(\d+)\tOffset:(\d+)\t")


@pytest.mark.parametrize(
    ("protocol", "arguments", "leader"),
    [
        pytest.param("classic", ("--assignment-strategy", RANGE), "ours", id="range", marks=pytest.mark.apart),
        pytest.param("classic", ("--assignment-strategy", COOPERATIVE), "java", id="cooperative led by java"),
        pytest.param("classic", ("--assignment-strategy", COOPERATIVE), "ours", id="cooperative", marks=pytest.mark.apart),
        pytest.param("classic", ("--assignment-strategy", f"{_PACKAGE}.StickyAssignor"), "ours", id="sticky"),
        pytest.param("consumer", (), "java", id="consumer"),
    ],
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
        await _commits_go_on(members)
        await writing.stop()
        await _all_read_once(members, writing.offsets)


async def _commits_go_on(members: Processes) -> None:
    """Wait until every partition is committed further: a last commit that Java's client refuses is not followed by another."""
    before = dict(members.watch.committed)
    await until(lambda: all(members.watch.committed.get(index, -1) > before.get(index, -1) for index in range(PARTITIONS)))


async def _all_read_once(members: Processes, produced: dict[int, list[int]]) -> None:
    watch = members.watch
    await until(lambda: watch.committed_all(produced))
    assert not watch.unread(produced)
    # Java's client refuses to commit while a cooperative rebalance is under way, so what it gives up then comes again.
    refused = [text for text in watch.refused if "(Java)" in text]
    assert watch.refused == refused
    assert refused or not watch.repeated()
    assert not watch.breaches


@pytest.mark.parametrize("java", [pytest.param(True, id="with java"), pytest.param(False, id="ours only", marks=pytest.mark.apart)])
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
        await _commits_go_on(members)
        await writing.stop()
        await _all_read_once(members, writing.offsets)


@pytest.mark.parametrize(
    ("protocol", "java"),
    [
        pytest.param("classic", True, id="from classic"),
        pytest.param("consumer", True, id="from consumer", marks=pytest.mark.apart),
        pytest.param("classic", False, id="from classic without java", marks=pytest.mark.apart),
    ],
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
        await _commits_go_on(members)
        await writing.stop()
        await _all_read_once(members, writing.offsets)
    described = kafka_cluster3.admin.describe_consumer_groups([group.name])[group.name].result()
    assert not described.members


@define(eq=False)
class Console:
    """Kafka's console consumer, a member of a group: what it printed."""

    process: asyncio.subprocess.Process
    offsets: dict[int, list[int]] = field(factory=lambda: defaultdict(list))
    """Offsets by partition, in the order in which they were printed."""

    async def listen(self) -> None:
        """Take lines until the process closes its output."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            place = _PLACE.match(line)
            assert place is not None, line
            partition, offset = map(int, place.groups())
            self.offsets[partition].append(offset)

    @property
    def count(self) -> int:
        """Records printed."""
        return sum(map(len, self.offsets.values()))


@asynccontextmanager
async def console(group: Group, topic: str) -> AsyncIterator[Console]:
    """Run the console consumer as a member; at the end of the block it leaves the group and everything that it printed is here."""
    command = [*java_tools(), "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    command += ["--bootstrap-server", group.cluster.bootstrap_servers]
    command += ["--topic", topic, "--group", group.name, "--from-beginning"]
    properties = {"group.protocol": group.protocol}
    if group.protocol == "classic":
        properties |= {"session.timeout.ms": str(group.session_ms), "heartbeat.interval.ms": str(HEARTBEAT_MS)}
    for name, value in properties.items():
        command += ["--command-property", f"{name}={value}"]
    for name in ("print.partition", "print.offset"):
        command += ["--formatter-property", f"{name}=true"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found = Console(process)
    listening = asyncio.create_task(found.listen())
    try:
        yield found
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(PATIENCE):
            await listening
            await process.wait()


@both
async def test_the_console_consumer_and_ours_share_a_group_and_either_may_leave_first(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol)
    async with load(kafka_cluster3, topic, PARTITIONS) as writing, console(group, topic) as theirs:
        async with reading(group, topic) as first:
            await _share_equally(first, theirs)
        await _prints(theirs, range(PARTITIONS))
        async with reading(group, topic) as second:
            await _share_equally(second, theirs)
            theirs.process.terminate()
            await until(lambda: len(second.owned) == PARTITIONS)
            await writing.stop()
            wanted = sum(map(len, writing.offsets.values()))
            await until(lambda: len(first.records) + len(second.records) + theirs.count >= wanted)
    found = {partition: list(offsets) for partition, offsets in theirs.offsets.items()}
    for member in (first, second):
        for partition, offsets in member.offsets.items():
            found.setdefault(partition, []).extend(offsets)
    assert {partition: sorted(offsets) for partition, offsets in found.items()} == writing.offsets  # each exactly once
    assert group.committed() == {partition: offsets[-1] + 1 for partition, offsets in writing.offsets.items()}


async def _share_equally(ours: Reading, theirs: Console) -> None:
    """Wait until ours has half of the partitions and the console consumer prints records of all the others."""
    await until(lambda: len(ours.owned) == PARTITIONS // 2)
    await _prints(theirs, [partition for partition in range(PARTITIONS) if partition not in ours.owned])


async def _prints(theirs: Console, partitions: Iterable[int]) -> None:
    """Wait until the console consumer prints more records of each of these partitions."""
    before = {partition: len(theirs.offsets[partition]) for partition in partitions}
    await until(lambda: all(len(theirs.offsets[partition]) > count for partition, count in before.items()))
