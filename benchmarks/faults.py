"""What faults cost: three members of a group read under load, through proxies, while a broker, the network or a member fails.

Decides: the scenarios, and what is measured from the reports of the members. Owns the processes of the members and the producer.
The scenarios are the same for every client, which knows nothing of them. Must never count what happened before the fault.

A record waits from its acknowledgment by Kafka to its delivery. So the time that the cluster itself needs to replace a broker's
leaders, during which nothing is acknowledged, is not charged to the client.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, cast

from attrs import define, evolve, field
from confluent_kafka import KafkaException, Producer

from benchmarks.fault_members import SESSION_MS
from benchmarks.jobs import Job, Protocol
from tests.brokers import KafkaCluster
from tests.faults.proxy import PROXIED, Proxy, Strike, Way, proxied

MEMBERS: Final = 3
PARTITIONS: Final = 6
RATE: Final = 300
"""Records a second."""
CALM: Final = 2.0
"""Seconds of load between the last member's first record and the fault, and after the fault."""
PATIENCE: Final = 60.0
"""Seconds after which a record that has not come counts as lost."""
SETTLING: Final = 120.0
"""Seconds in which three members of any client share the partitions, even on a busy machine."""
LATELY: Final = 3.0
"""Seconds in which a member of a settled group reads a record of each of its partitions, even on a busy machine."""
GROWTH: Final = 20
"""How often the topic of ``topic-grows`` gets two more partitions."""
METADATA_MS: Final = 3000
"""``metadata.max.age.ms`` of the members of ``topic-grows``, so that a member learns of each growth within the run."""
_TICK: Final = 0.02


@define(eq=False)
class Load:
    """A producer with ``acks=all``; ``acknowledged``: seconds by (partition, offset)."""

    bootstrap: str
    topic: str
    partitions: int = PARTITIONS
    acknowledged: dict[tuple[int, int], float] = field(factory=dict)
    ends: dict[int, int] = field(factory=dict)
    """The offset after the last acknowledged record, by partition."""
    over: threading.Event = field(factory=threading.Event)
    task: "asyncio.Task[None] | None" = None

    async def stop(self) -> None:
        """Write no more; return when everything is acknowledged."""
        self.over.set()
        if self.task is not None:
            await self.task

    def run(self) -> None:
        """Write until it is over; return when everything is acknowledged."""
        options = {"enable.idempotence": True, "linger.ms": 5, "log_level": 0, "topic.metadata.refresh.interval.ms": 200}
        producer = Producer({"bootstrap.servers": self.bootstrap, **options})
        number = 0
        while not self.over.wait(_TICK):
            for _ in range(int(RATE * _TICK)):
                with contextlib.suppress(KafkaException):  # a partition that the producer does not know yet
                    producer.produce(self.topic, bytes(100), partition=number % self.partitions, on_delivery=self._delivered)
                number += 1
            producer.poll(0)
        producer.flush(PATIENCE)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            return
        partition, offset = message.partition(), message.offset()
        if offset is None:
            # A retry of what had arrived: the broker knows it by its sequence numbers, but not where it is any more. Nobody else
            # writes here, and an idempotent producer is answered in order.
            offset = self.ends.get(partition, 0)
        self.ends[partition] = offset + 1
        self.acknowledged[partition, offset] = time.monotonic()


@define(eq=False)
class Member:
    """A process of ``benchmarks.fault_members`` and what it reported: seconds and what."""

    process: asyncio.subprocess.Process
    output: asyncio.StreamReader
    read: list[tuple[float, int, int]] = field(factory=list)
    """When, partition, offset."""
    assigned: list[float] = field(factory=list)
    failed: list[str] = field(factory=list)
    told_to_end: bool = False
    task: "asyncio.Task[None] | None" = None

    async def listen(self) -> None:
        """Take reports until the process ends."""
        async for line in self.output:
            event = json.loads(line)
            at = event["at"] / 1e9
            for partition, offsets in event.get("read", {}).items():
                self.read += [(at, int(partition), offset) for offset in offsets]
            if "assigned" in event:
                self.assigned.append(at)
            if "failed" in event:
                self.failed.append(event["failed"])

    def signal(self, number: int) -> None:
        """Send a signal to it, and to what it has started."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Crash it."""
        self.told_to_end = True
        self.signal(signal.SIGKILL)

    async def end(self) -> None:
        """Have it end within ten seconds."""
        if self.process.returncode is None:
            self.told_to_end = True
            self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), 10)
        except TimeoutError:
            self.signal(signal.SIGKILL)
        if self.task is not None:
            await self.task


@define(eq=False)
class Run:
    """One client in one scenario."""

    cluster: KafkaCluster
    proxy: Proxy
    client: str
    job: Job
    load: Load
    members: list[Member] = field(factory=list)

    async def start_member(self) -> Member:
        """Start one more member."""
        command = [sys.executable, "-m", "benchmarks.fault_members", self.client, self.job.to_json()]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        member = Member(process, cast("asyncio.StreamReader", process.stdout))
        member.task = asyncio.create_task(member.listen())
        self.members.append(member)
        return member

    async def settled(self) -> None:
        """Wait until every member has read its share of the partitions lately, and every partition was read."""
        deadline = time.monotonic() + SETTLING
        while not self._all_read():
            if time.monotonic() > deadline or any(member.process.returncode is not None for member in self.members):
                last = [(member.process.returncode, len(member.read), *member.failed[-1:]) for member in self.members]
                raise RuntimeError(f"the group did not settle; exit status, records read, last error of each: {last}")
            await asyncio.sleep(0.1)

    def _all_read(self) -> bool:
        since = time.monotonic() - LATELY
        lately = [{partition for at, partition, _ in member.read[-1500:] if at > since} for member in self.members]
        fair = all(len(partitions) == PARTITIONS // MEMBERS for partitions in lately)  # else there is a rebalance to come
        return fair and len(set().union(*lately)) == PARTITIONS

    def owed(self, since: float) -> set[tuple[int, int]]:
        """Return what the group has to read: all, or, if it begins at the ends of the partitions, what came after it had begun."""
        return {place for place, at in self.load.acknowledged.items() if self.job.reset == "earliest" or at >= since}

    def measured(self, since: float, until: float) -> dict[str, float]:
        """Return what the fault cost. From ``until`` on the members are leaving, which does not count."""
        came: dict[tuple[int, int], float] = {}
        times: Counter[tuple[int, int]] = Counter()
        for at, partition, offset in sorted(entry for member in self.members for entry in member.read):
            came.setdefault((partition, offset), at)
            times[partition, offset] += at >= since
        after = {place: at for place, at in self.load.acknowledged.items() if at >= since}
        waits = sorted(max(0.0, came[place] - at) for place, at in after.items() if place in came)
        return {
            "stall_s": waits[-1],
            "p99_s": waits[int(0.99 * len(waits))],
            "lost": sum(place not in came for place in self.owed(since)),
            "duplicates": sum(count - 1 for count in times.values() if count > 1),
            "rebalances": max(sum(since <= at < until for at in member.assigned) for member in self.members),
            "errors": sum(len(member.failed) for member in self.members),
            "deaths": sum(member.process.returncode is not None and not member.told_to_end for member in self.members),
            "records": len(after),
        }


# The scenarios. Each returns when the fault is over.


async def broker_killed(run: Run) -> None:
    """SIGKILL to a leader that does not coordinate the group, which comes back after 6 s."""
    await _kill(run, await asyncio.to_thread(_leader, run))


async def coordinator_killed(run: Run) -> None:
    """SIGKILL to the group's coordinator, which comes back after 6 s."""
    await _kill(run, await asyncio.to_thread(run.cluster.coordinator, run.job.group))


def _leader(run: Run) -> int:
    """Return a broker that leads partitions and is not the coordinator: commits that wait for that are a scenario of their own."""
    coordinator = run.cluster.coordinator(run.job.group)
    leaders = [run.cluster.leader(run.job.topic, partition) for partition in range(PARTITIONS)]
    return next(leader for leader in leaders if leader != coordinator)


async def _kill(run: Run, broker: int) -> None:
    await asyncio.to_thread(run.cluster.kill, broker)
    await asyncio.sleep(6)
    await asyncio.to_thread(run.cluster.start, broker)


async def broker_frozen(run: Run) -> None:
    """SIGSTOP to a leader that does not coordinate the group, for 5 s."""
    broker = await asyncio.to_thread(_leader, run)
    run.cluster.pause(broker)
    await asyncio.sleep(5)
    run.cluster.unpause(broker)


async def rolling_restart(run: Run) -> None:
    """Each broker is shut down cleanly and restarted, one after the other."""
    for broker in range(3):
        await asyncio.to_thread(run.cluster.restart, broker)
        await asyncio.sleep(2)


async def connections_cut(run: Run) -> None:
    """All connections are reset every 2 s, five times."""
    for _ in range(5):
        run.proxy.cut()
        await asyncio.sleep(2)


async def black_hole(run: Run) -> None:
    """For 5 s nothing passes; then everything that was held back passes."""
    run.proxy.everyone.black_hole()
    await asyncio.sleep(5)
    run.proxy.everyone.heal()


async def member_killed(run: Run) -> None:
    """SIGKILL to a member; another one comes."""
    run.members[0].kill()
    await run.start_member()
    await asyncio.sleep(SESSION_MS / 1000)


async def member_frozen(run: Run) -> None:
    """SIGSTOP to a member for 15 s, longer than its session, so that the others have its partitions when it goes on."""
    run.members[0].signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(15)
    finally:
        run.members[0].signal(signal.SIGCONT)


DAMAGE: Final[tuple[tuple[int, Way, Strike], ...]] = (
    (1, "response", Strike.LENGTH),
    (1, "response", Strike.CORRELATION),
    (1, "response", Strike.HALF),
    (8, "response", Strike.LENGTH),
    (8, "response", Strike.CORRELATION),
    (12, "response", Strike.CORRELATION),
    (68, "response", Strike.CORRELATION),
)
"""API key, direction, and what happens to one frame: Fetch, OffsetCommit, Heartbeat, ConsumerGroupHeartbeat."""


async def hostile_frames(run: Run) -> None:
    """Responses to a fetch, a commit and a heartbeat with a wrong length or correlation id, or cut short, one each second."""
    for api, way, strike in DAMAGE:
        run.proxy.everyone.set_trap(api, way, strike)
        await asyncio.sleep(1)
    run.proxy.everyone.traps.clear()


async def topic_grows(run: Run) -> None:
    """The topic gets two more partitions 20 times, 2 s apart; members die in between; new partitions have no committed offset."""
    for number in range(1, GROWTH + 1):
        run.load.partitions += 2
        await asyncio.to_thread(run.cluster.add_partitions, run.job.topic, run.load.partitions)
        await asyncio.sleep(number % 4 / 4)  # the next death comes at another moment: before it is known, as it is assigned, ...
        if number % 5 == 1:
            run.members[-MEMBERS].kill()
            await run.start_member()
        await asyncio.sleep(2 - number % 4 / 4)
    await asyncio.sleep(SESSION_MS / 1000)


Scenario = Callable[[Run], Awaitable[None]]
SCENARIOS: Final[dict[str, Scenario]] = {
    "broker-killed": broker_killed,
    "coordinator-killed": coordinator_killed,
    "broker-frozen": broker_frozen,
    "rolling-restart": rolling_restart,
    "connections-cut": connections_cut,
    "black-hole": black_hole,
    "member-killed": member_killed,
    "member-frozen": member_frozen,
    "hostile-frames": hostile_frames,
    "topic-grows": topic_grows,
}
LATEST: Final = (topic_grows,)
"""Scenarios whose members begin at the ends of the partitions. Elsewhere they begin at the first record."""


@contextlib.contextmanager
def fault_cluster() -> Iterator[KafkaCluster]:
    """Give three brokers with a proxy in front of each, for the length of the block."""
    with KafkaCluster(brokers=3, heap_mb=256, listeners={PROXIED: "PLAINTEXT"}, proxied=[PROXIED]) as cluster:
        yield cluster


def suffer(cluster: KafkaCluster, client: str, protocol: Protocol, scenario: str) -> dict[str, float]:
    """Run one client through one scenario; return what was measured. The cluster is whole again afterwards."""
    try:
        return asyncio.run(_suffer(cluster, client, protocol, SCENARIOS[scenario]))
    finally:
        cluster.heal()
        _wait_in_sync(cluster)


async def _suffer(cluster: KafkaCluster, client: str, protocol: Protocol, scenario: Scenario) -> dict[str, float]:
    name = f"faults-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, PARTITIONS, config={"min.insync.replicas": "2"})
    if protocol == "consumer":
        cluster.alter_config("group", name, {"consumer.session.timeout.ms": str(SESSION_MS)})
    async with proxied(cluster) as proxy, _loaded(cluster, name) as load:
        servers = proxy.bootstrap_servers
        job = Job(mode="member", bootstrap=servers, topic=name, partitions=PARTITIONS, group=name, protocol=protocol)
        if scenario in LATEST:
            job = evolve(job, reset="latest", metadata_ms=METADATA_MS)
        async with _running(Run(cluster, proxy, client, job, load)) as run:
            await run.settled()
            await asyncio.sleep(CALM)
            since = time.monotonic()
            await scenario(run)
            await asyncio.sleep(CALM)
            await load.stop()
            await _drained(run, since)
            until = time.monotonic()
        return run.measured(since, until)


@asynccontextmanager
async def _loaded(cluster: KafkaCluster, topic: str) -> AsyncIterator[Load]:
    load = Load(cluster.bootstrap_servers, topic)
    load.task = asyncio.create_task(asyncio.to_thread(load.run))
    try:
        yield load
    finally:
        await load.stop()


@asynccontextmanager
async def _running(run: Run) -> AsyncIterator[Run]:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_end, run)
        for _ in range(MEMBERS):
            await run.start_member()
        yield run


async def _end(run: Run) -> None:
    await asyncio.gather(*(member.end() for member in run.members))


async def _drained(run: Run, since: float) -> None:
    """Wait until nothing is missing, or until it counts as lost."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        read = {(partition, offset) for member in run.members for _, partition, offset in member.read}
        if run.owed(since) <= read:
            return
        await asyncio.sleep(0.2)


def _wait_in_sync(cluster: KafkaCluster) -> None:
    """Wait until every replica is in sync, so that the next scenario begins with a whole cluster."""
    deadline = time.monotonic() + PATIENCE
    while not cluster.in_sync() and time.monotonic() < deadline:
        time.sleep(0.3)
