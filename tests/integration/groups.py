"""What the tests of groups share: groups in either protocol, members that are kept reading, journals of rebalances.

Decides: how short the sessions of tests are. Owns: the tasks that keep members reading, until their ``async with`` ends. Must never
hide what a member raised: it is raised again when the block ends.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from attrs import define, field, frozen
from confluent_kafka import KafkaError, Producer

from kafka_async import ConsumerRebalanceListener, TopicPartition
from tests.brokers import CURRENT, KafkaCluster, class_archive, jars

from .tools import PATIENCE, Consumer, Record, all_of, at_once, flat, make, offsets, spans, until

PROTOCOLS: Final = ("classic", "consumer")
both = pytest.mark.parametrize("protocol", PROTOCOLS)
"""Runs a test once in each group protocol."""
both_at_once = at_once("protocol", PROTOCOLS)
"""Runs a test in both group protocols at the same time: for one that mostly waits, and never holds the event loop."""

SESSION_MS: Final = 10_000
"""Session timeout of members, unless a test sets another."""
HEARTBEAT_MS: Final = 300
_JAVA: Final = "org.apache.kafka.tools.VerifiableConsumer"


@frozen(kw_only=True)
class Group:
    """A group of one test."""

    cluster: KafkaCluster
    protocol: str
    name: str
    session_ms: int

    def options(self) -> dict[str, Any]:
        """Return the options of a member. In the consumer protocol the broker decides about sessions."""
        options: dict[str, Any] = {"group_id": self.name, "group_protocol": self.protocol}
        if self.protocol == "classic":
            options |= {"session_timeout_ms": self.session_ms, "heartbeat_interval_ms": HEARTBEAT_MS}
        return options

    def member(self, *topics: str, **options: Any) -> Consumer:
        """Return a consumer of the group, not started."""
        return make(self.cluster, *topics, **(self.options() | options))

    def outsider(self) -> Consumer:
        """Return a consumer that asks and commits for the group without being a member."""
        return make(self.cluster, group_id=self.name, enable_auto_commit=False)

    @property
    def place(self) -> int:
        """The partition of ``__consumer_offsets`` that keeps the group; its leader is the coordinator."""
        return _place(self.name)

    def committed(self) -> dict[int, int]:
        """Return the committed offsets by partition (of the one topic) as an independent client reads them."""
        return {partition: offset for (_, partition), offset in self.cluster.committed(self.name).items()}

    async def commits(self, topic: str, partitions: int = 1) -> dict[int, int]:
        """Return the committed offsets by partition, after the group's coordinator has moved.

        librdkafka's admin client (2.x) crashes if a coordinator answers that it is none any more, so this asks with ours.
        """
        async with self.outsider() as outsider:
            found = await outsider.committed_offsets(*all_of(topic, partitions))
        return {partition.partition: offset.offset for partition, offset in found.items() if offset is not None}


def new_group(cluster: KafkaCluster, protocol: str, *, session_ms: int = SESSION_MS, place: int | None = None) -> Group:
    """Return a group that no other test uses. ``place``: the partition of ``__consumer_offsets`` that is to keep it."""
    name = f"g-{uuid.uuid4().hex[:12]}"
    while place is not None and _place(name) != place:
        name = f"g-{uuid.uuid4().hex[:12]}"
    if protocol == "consumer":
        settings = {"consumer.session.timeout.ms": str(session_ms), "consumer.heartbeat.interval.ms": str(HEARTBEAT_MS)}
        cluster.alter_config("group", name, settings)
    return Group(cluster=cluster, protocol=protocol, name=name, session_ms=session_ms)


def group_of_each_protocol(cluster: KafkaCluster, *, session_ms: int = SESSION_MS) -> list[Group]:
    """Return two groups with the same coordinator, one in each protocol: what happens to it happens to both."""
    return [new_group(cluster, protocol, session_ms=session_ms, place=0) for protocol in PROTOCOLS]


def _place(name: str) -> int:
    """Return the partition of ``__consumer_offsets`` that keeps a group: Java's hash of its name, over four of them."""
    value = 0
    for letter in name:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    value -= (value & 0x80000000) << 1
    return (0 if value == -0x80000000 else abs(value)) % 4


@define(eq=False)
class Journal(ConsumerRebalanceListener):
    """Records the calls of a listener, in order: (what, partition numbers)."""

    entries: list[tuple[str, frozenset[int]]] = field(factory=list)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.entries.append(("revoked", _numbers(revoked)))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.entries.append(("assigned", _numbers(assigned)))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.entries.append(("lost", _numbers(lost)))

    def all_of(self, kind: str) -> list[frozenset[int]]:
        """Return the partitions of each entry of a kind."""
        return [partitions for what, partitions in self.entries if what == kind]


def _numbers(partitions: Iterable[TopicPartition]) -> frozenset[int]:
    return frozenset(partition.partition for partition in partitions)


@define(eq=False)
class Reading:
    """A member that a task keeps reading."""

    consumer: Consumer
    journal: Journal
    records: list[Record] = field(factory=list)
    seen: dict[tuple[int, int], float] = field(factory=dict)
    """When a record (partition, offset) was last read, in seconds of the monotonic clock."""
    errors: list[Exception] = field(factory=list)
    """What read calls raised; the member reads on. A test that wants errors takes them out with ``raised``."""
    task: "asyncio.Task[None] | None" = None

    @property
    def owned(self) -> frozenset[int]:
        """Numbers of the partitions that are assigned now."""
        return _numbers(self.consumer.assignment())

    @property
    def offsets(self) -> dict[int, list[int]]:
        """Offsets read so far, by partition."""
        return offsets(self.records)

    def raised(self, error: type[Exception]) -> list[Exception]:
        """Fail unless the reads raised this error and no other; take out what they raised, and return it."""
        assert {type(each) for each in self.errors} == {error}, self.errors
        found, self.errors = self.errors, []
        return found

    async def loop(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                records = flat(await self.consumer.getmany(timeout_ms=500))
                self.records += records
                self.seen |= dict.fromkeys(((record.partition, record.offset) for record in records), time.monotonic())
            except Exception as error:  # noqa: BLE001,RUF100  # the test looks at what was raised
                self.errors.append(error)
                await asyncio.sleep(0)

    async def pause(self) -> None:
        """Stop reading, with everything that was read worked off."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
            self.task = None

    def go_on(self) -> None:
        """Read on."""
        self.task = asyncio.create_task(self.loop())

    async def stop(self, timeout_ms: float | None = None) -> None:
        """Leave the group."""
        await self.pause()
        await self.consumer.stop(timeout_ms)


@asynccontextmanager
async def reading(group: Group, *topics: str, journal: Journal | None = None, **options: Any) -> AsyncIterator[Reading]:
    """Start a member of the group, with a journal as its listener, and keep it reading; stop it at the end.

    Raises what its reads raised and the test has not taken out of ``errors``.
    """
    journal = journal or Journal()
    consumer = group.member(**options)
    consumer.subscribe(topics, listener=journal)
    member = Reading(consumer, journal)
    try:
        await consumer.start()
        member.go_on()
        yield member
    finally:
        await member.stop()
    if member.errors:
        raise ExceptionGroup("reads of a member raised", member.errors)


@asynccontextmanager
async def several(group: Group, count: int, *topics: str, **options: Any) -> AsyncIterator[list[Reading]]:
    """Start ``count`` members at the same time."""
    async with AsyncExitStack() as stack:
        members = [reading(group, *topics, **options) for _ in range(count)]
        yield list(await asyncio.gather(*(stack.enter_async_context(member) for member in members)))


async def shared(members: Collection[Reading], partitions: int) -> None:
    """Wait until every partition has exactly one owner and every member has its fair share, or one partition more."""

    def fair() -> bool:
        counts = [len(member.owned) for member in members]
        owned = frozenset[int]().union(*(member.owned for member in members))
        return sum(counts) == partitions == len(owned) and max(counts) - min(counts) <= 1

    try:
        await until(fair)
    except AssertionError as error:
        raise AssertionError(f"{error}: {[sorted(member.owned) for member in members]}") from None


async def exactly(members: Collection[Reading], expected: dict[int, list[int]]) -> None:
    """Wait until the members have read these offsets, each once and in order within a member."""

    def count() -> int:
        return sum(len(member.records) for member in members)

    wanted = sum(map(len, expected.values()))
    await until(lambda: count() >= wanted)
    found: dict[int, list[int]] = {}
    for member in members:
        for partition, numbers in member.offsets.items():
            assert numbers == sorted(set(numbers)), f"partition {partition} was read as {numbers}"
            found.setdefault(partition, []).extend(numbers)
    for partition, numbers in expected.items():
        assert Counter(found.pop(partition, [])) == Counter(numbers), (
            f"partition {partition}: {_difference(members, partition, numbers)}"
        )
    assert not found, f"read from partitions that have no records: {found}"


def _difference(members: Collection[Reading], partition: int, expected: list[int]) -> str:
    """Say which offsets were not read, which were read and not produced, and what each member read of a partition."""
    read = Counter(offset for member in members for offset in member.offsets.get(partition, ()))
    missing, extra = Counter(expected) - read, read - Counter(expected)
    each = [spans(member.offsets.get(partition, [])) for member in members]
    rebalances = [member.journal.entries for member in members]
    return (
        f"missing {spans(missing)}, too many {spans(extra)}; expected {spans(expected)}, read by each member {each}; "
        f"their rebalances {rebalances}"
    )


@define(eq=False)
class Watch:
    """What the members of a group, each in its process, report: the checks of Kafka's ``verifiable_consumer.py``.

    Consumed and committed offsets of the whole group are kept by partition. A breach of an invariant is noted, not raised, so that
    the processes can go on and the test fails with all of them.
    """

    consumed: dict[int, list[int]] = field(factory=lambda: defaultdict(list))
    """Offsets by partition in the order in which they were reported, by whichever member."""
    committed: dict[int, int] = field(factory=dict)
    owner: dict[int, "Process"] = field(factory=dict)
    breaches: list[str] = field(factory=list)
    refused: list[str] = field(factory=list)
    """Commits that failed: of which member, and why."""
    seen: dict[tuple[int, int], float] = field(factory=dict)
    """When a record (partition, offset) was first reported, in seconds of the monotonic clock."""

    @property
    def count(self) -> int:
        """Records consumed, each as often as it was."""
        return sum(map(len, self.consumed.values()))

    def repeated(self) -> dict[int, list[int]]:
        """Return the offsets that were consumed more than once, by partition. Order is checked as each member reports."""
        counts = {partition: Counter(numbers) for partition, numbers in self.consumed.items()}
        found = {partition: [number for number, times in count.items() if times > 1] for partition, count in counts.items()}
        return {partition: numbers for partition, numbers in found.items() if numbers}

    def unread(self, produced: Mapping[int, list[int]]) -> dict[int, str]:
        """Return the offsets that no member reported, by partition: none when every record was read, some perhaps again."""
        left = {partition: sorted(set(numbers) - set(self.consumed[partition])) for partition, numbers in produced.items()}
        return {partition: f"{spans(numbers)} of {spans(produced[partition])}" for partition, numbers in left.items() if numbers}

    def committed_all(self, produced: Mapping[int, list[int]]) -> bool:
        """Whether the last commit of every partition is behind its last record."""
        return all(self.committed.get(partition) == numbers[-1] + 1 for partition, numbers in produced.items() if numbers)

    def breach(self, process: "Process", text: str) -> None:
        """Note that something happened that must not."""
        self.breaches.append(f"{process.name}: {text}")


@define(eq=False)
class Process:
    """A member in a process of its own (``tests.verifiable_consumer``)."""

    name: str
    watch: Watch
    process: asyncio.subprocess.Process
    ousts: str | None = None
    """Its ``group_instance_id`` in the classic protocol, where a newcomer ousts the older bearer of its name."""
    task: "asyncio.Task[None] | None" = None
    positions: dict[int, int] = field(factory=dict)
    starts: dict[int, int] = field(factory=dict)
    """First offset that was read of each partition since it was assigned."""
    owned: set[int] = field(factory=set)
    ousted: set[int] = field(factory=set)
    """Partitions that a newcomer of the same name has by now. Only the answer to its next request tells a member so."""
    claimed: dict[int, tuple["Process", int]] = field(factory=dict)
    """Partitions that another member reports as its own, since when (ms). Pipes are read in any order, so whether this one gave
    them up in time is known when its own report is read."""
    left: set[int] = field(factory=set)
    """Partitions that it owned when it ended."""
    rebalances: int = 0
    """Times that something was assigned or revoked."""
    assigned_at: float | None = None
    """When partitions were assigned for the first time, in seconds of ``time.monotonic``."""
    ended: bool = False

    async def listen(self) -> None:
        """Take events until the process closes its output."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self._take(json.loads(line))
        for partition in [partition for partition, owner in self.watch.owner.items() if owner is self]:
            del self.watch.owner[partition]
        for partition, (other, _) in self.claimed.items():
            self.watch.breach(other, f"partition {partition} was assigned and {self.name} had it until its end")
        self.left, self.owned = self.owned, set()
        self.ended = True

    def _take(self, event: dict[str, Any]) -> None:
        match event["name"]:
            case "partitions_assigned":
                self._assigned({entry["partition"] for entry in event["partitions"]}, event["timestamp"])
            case "partitions_revoked":
                self._revoked({entry["partition"] for entry in event["partitions"]}, event["timestamp"])
            case "records_consumed":
                for entry in event["partitions"]:
                    self._consumed(entry["partition"], entry["minOffset"], entry["maxOffset"], entry["count"])
            case "offsets_committed" if event["success"]:
                for entry in event["offsets"]:
                    self._committed(entry["partition"], entry["offset"])
            case "offsets_committed":
                self.watch.refused.append(f"{self.name}: {event['error']}")

    def _assigned(self, partitions: set[int], at: int) -> None:
        self.rebalances += bool(partitions)
        if partitions and self.assigned_at is None:
            self.assigned_at = time.monotonic()
        self.owned |= partitions
        for partition in partitions:
            other = self.watch.owner.get(partition)
            if other is not None and other is not self and other.process.returncode is None:
                if self.ousts is not None and self.ousts == other.ousts:
                    other.ousted.add(partition)
                else:
                    other.claimed[partition] = (self, at)
            self.watch.owner[partition] = self
            self.positions.pop(partition, None)
            self.starts.pop(partition, None)

    def _revoked(self, partitions: set[int], at: int) -> None:
        self.rebalances += bool(partitions)
        self.owned -= partitions
        for partition in partitions:
            other, since = self.claimed.pop(partition, (self, at))
            if since < at:
                self.watch.breach(other, f"partition {partition} was assigned {at - since} ms before {self.name} gave it up")
            if self.watch.owner.get(partition) is self:
                del self.watch.owner[partition]

    def _consumed(self, partition: int, first: int, last: int, count: int) -> None:
        if partition not in self.owned:
            self.watch.breach(self, f"records of partition {partition}, which is not assigned")
        if last - first + 1 != count:
            self.watch.breach(self, f"{count} records in {first}..{last} of partition {partition}")
        if self.positions.get(partition, first) != first:
            self.watch.breach(self, f"partition {partition} jumped from {self.positions[partition]} to {first}")
        late = partition in self.ousted or partition in self.claimed
        if not late and first < self.watch.committed.get(partition, 0):
            self.watch.breach(self, f"partition {partition} read from {first}, behind the commit {self.watch.committed[partition]}")
        self.starts.setdefault(partition, first)
        self.positions[partition] = last + 1
        self.watch.consumed[partition].extend(range(first, last + 1))
        now = time.monotonic()
        for offset in range(first, last + 1):
            self.watch.seen.setdefault((partition, offset), now)

    def _committed(self, partition: int, offset: int) -> None:
        if partition not in self.owned:
            self.watch.breach(self, f"a commit of partition {partition}, which is not assigned")
        if offset > self.positions.get(partition, offset):
            self.watch.breach(self, f"partition {partition}: commit {offset} ahead of position {self.positions[partition]}")
        if partition in self.claimed:
            self.watch.committed[partition] = max(offset, self.watch.committed.get(partition, 0))
        elif partition not in self.ousted:
            self.watch.committed[partition] = offset
        elif offset > (start := self.watch.owner[partition].starts.get(partition, offset)):
            # The report may be late, the commit may not: whoever came after began at the last one.
            self.watch.breach(self, f"partition {partition}: commit {offset} after it was ousted by one that began at {start}")

    def kill(self) -> None:
        """Crash (SIGKILL)."""
        self.process.kill()

    async def stop(self) -> None:
        """Close cleanly (SIGTERM)."""
        if self.process.returncode is None:
            self.process.terminate()
        await self.gone()

    async def gone(self) -> int:
        """Wait for the end of the process and its last event; return its exit code."""
        async with asyncio.timeout(60):
            code = await self.process.wait()
            if self.task is not None:
                await self.task
        return code


@define(eq=False)
class Processes:
    """The members of one group as processes. ``bootstrap_servers``: where they find the cluster, if not at its own addresses."""

    group: Group
    topic: str
    settings: Path
    """A properties file for members in the classic protocol; in the consumer protocol the broker says how often to heartbeat."""
    arguments: tuple[str, ...] = ()
    bootstrap_servers: str | None = None
    watch: Watch = field(factory=Watch)
    members: list[Process] = field(factory=list)

    async def start(self, *arguments: str, java: list[str] | None = None) -> Process:
        """Start one more member; ``java``: ``java_tools()``, to start Kafka's own VerifiableConsumer instead of ours."""
        servers = self.bootstrap_servers or self.group.cluster.bootstrap_servers
        options = ["--bootstrap-server", servers, "--topic", self.topic]
        options += ["--group-id", self.group.name, "--group-protocol", self.group.protocol]
        if _value_of("--group-protocol", arguments, self.group.protocol) == "classic":
            options += ["--session-timeout", str(self.group.session_ms), "--command-config", str(self.settings)]
        program = [sys.executable, "-m", "tests.verifiable_consumer"]
        if java is not None:
            program = [*java, _JAVA]
        process = await asyncio.create_subprocess_exec(
            *program, *options, *self.arguments, *arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if java else None
        )
        name = f"{self.group.protocol} member {len(self.members)}" + (" (Java)" if java else "")
        ousts = _value_of("--group-instance-id", arguments, "") if self.group.protocol == "classic" else ""
        member = Process(name, self.watch, process, ousts=ousts or None)
        member.task = asyncio.create_task(member.listen())
        self.members.append(member)
        return member

    @property
    def alive(self) -> list[Process]:
        """Members that run."""
        return [member for member in self.members if member.process.returncode is None and not member.ended]

    @property
    def rebalances(self) -> int:
        """How often something was assigned to or revoked from the members that run."""
        return sum(member.rebalances for member in self.alive)

    async def settled(self, partitions: int, seconds: float = PATIENCE) -> None:
        """Wait until every partition has an owner and every living member has something."""

        def fair() -> bool:
            counts = [len(member.owned) for member in self.alive]
            return len(self.watch.owner) == partitions == sum(counts) and max(counts) - min(counts) <= 1

        try:
            await until(fair, seconds)
        except AssertionError as error:
            owned = {member.name: sorted(member.owned) for member in self.alive}
            raise AssertionError(f"{error}: {owned}; {self.watch.breaches}") from None

    async def end(self) -> None:
        """End every process that is left."""
        for member in self.alive:
            member.process.terminate()
        try:
            for member in self.members:
                await member.gone()
        finally:
            for member in self.alive:
                member.kill()


def java_tools() -> list[str]:
    """Return the command that starts one of Kafka's tools, but for its class; skip the test if the broker's jars have none."""
    directory = jars(CURRENT)
    if not (directory / f"kafka-tools-{CURRENT}.jar").is_file():
        pytest.skip("Kafka's own consumer tools (org.apache.kafka:kafka-tools) are not among the broker's jars")
    archive = f"-XX:SharedArchiveFile={class_archive(CURRENT)}"
    return ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", archive, "-cp", f"{directory}/*"]


@asynccontextmanager
async def processes(
    group: Group, topic: str, count: int, *arguments: str, bootstrap_servers: str | None = None
) -> AsyncIterator[Processes]:
    """Start ``count`` members as processes; end them at the end of the block."""
    with TemporaryDirectory() as directory:
        settings = Path(directory) / "classic.properties"
        settings.write_text(f"heartbeat.interval.ms={HEARTBEAT_MS}\n")
        found = Processes(group, topic, settings, arguments, bootstrap_servers)
        try:
            for _ in range(count):
                await found.start()
            yield found
        finally:
            await found.end()


def _value_of(option: str, arguments: Sequence[str], otherwise: str) -> str:
    return arguments[arguments.index(option) + 1] if option in arguments else otherwise


_BURSTS: Final = 5
"""How often a second a load writes. Each time costs requests of the producer, the replicas and the consumers."""


@define(eq=False)
class Load:
    """Records written all the time, ``rate`` a second, in turn to every partition.

    ``offsets``: what was acknowledged, by partition, and after ``stop`` what the leaders have: where leaders move, the word of the
    producer is not enough. ``acknowledged``: when, in seconds of the monotonic clock, by (partition, offset). ``partitions`` may
    grow while it writes, a second after the topic did.
    """

    cluster: KafkaCluster
    topic: str
    partitions: int
    rate: int
    offsets: dict[int, list[int]] = field(factory=lambda: defaultdict(list))
    acknowledged: dict[tuple[int, int], float] = field(factory=dict)
    _begin: dict[int, int] = field(factory=dict)
    _enough: threading.Event = field(factory=threading.Event)
    _task: "asyncio.Task[None] | None" = None

    def _run(self) -> None:
        settings = {"bootstrap.servers": self.cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        producer = Producer(settings | {"topic.metadata.refresh.interval.ms": 500})
        index = 0
        while not self._enough.wait(1 / _BURSTS):
            for _ in range(self.rate // _BURSTS):
                producer.produce(self.topic, b"%d" % index, partition=index % self.partitions, on_delivery=self._delivered)
                index += 1
            producer.poll(0)
        assert not producer.flush(60), "records were not acknowledged in 60 s"
        for partition, end in self.cluster.end_offsets(self.topic).items():
            there = range(self._begin.get(partition, 0), end)
            odd = sorted(set(self.offsets[partition]) - set(there))
            assert not odd, f"partition {partition} has {there}, but {odd} were acknowledged"
            self.offsets[partition] = list(there)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        known = self.offsets[message.partition()]
        offset = message.offset()
        if offset is None:
            # A retry of what had arrived: the broker knows it by its sequence numbers, but not where it is any more. Nobody else
            # writes here, and an idempotent producer is answered in order.
            offset = known[-1] + 1 if known else self._begin.get(message.partition(), 0)
        known.append(offset)
        self.acknowledged[message.partition(), offset] = time.monotonic()

    def start(self) -> None:
        """Write from now on."""
        self._begin = self.cluster.end_offsets(self.topic)
        self._task = asyncio.create_task(asyncio.to_thread(self._run))

    async def stop(self) -> None:
        """Write no more, and wait until everything is acknowledged."""
        self._enough.set()
        if self._task is not None:
            await self._task


def longest_wait(members: Collection[Reading], writing: Load) -> float:
    """Return the seconds that a record waited at most from its acknowledgment until a member read it: all have been read."""
    seen = {place: when for member in members for place, when in member.seen.items()}
    return max(seen[place] - when for place, when in writing.acknowledged.items())


@asynccontextmanager
async def load(cluster: KafkaCluster, topic: str, partitions: int, rate: int = 300) -> AsyncIterator[Load]:
    """Write records in the background; at the end of the block all of them are acknowledged."""
    writing = Load(cluster, topic, partitions, rate)
    writing.start()
    try:
        yield writing
    finally:
        await writing.stop()
