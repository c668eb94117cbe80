"""Chaos: groups of three in both protocols under load, while brokers, members and the network fail at random.

``python -m tests.faults.chaos --minutes 10`` starts three brokers behind proxies, lets things happen, and then checks the log of
everything that was delivered: nothing is lost, the order is kept, a record comes twice only if the kill of a member explains it,
and no record waited longer than the session timeout and ten seconds. A new coordinator gives every member a whole session again,
the dead ones too (Kafka's ``GroupMetadataManager`` starts all timers anew when it loads a group), so where the coordinator moved
before a dead member's session was over, the wait may be longer by just that; who coordinates is looked up all the time. The seed
that it prints repeats the same sequence of events.

Decides: what happens, and when the cluster is whole enough for the next thing: one broker is down at a time, and its replicas are
in sync again before another one fails, so that no record that was acknowledged is lost by Kafka itself. Owns: the members and the
load. Must never forgive a duplicate or a wait that no kill explains.
"""

import argparse
import asyncio
import json
import random
import struct
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from attrs import define, evolve, field, frozen
from confluent_kafka import ElectionType

from kafka_async.errors import KafkaError
from kafka_async.testing.server import encode_response
from kafka_async.wire import Api, decode_response
from kafka_async.wire.messages import FetchRequest, PartitionData
from tests.brokers import CURRENT, KafkaCluster
from tests.integration.groups import PROTOCOLS, Load, Process, Processes, load, new_group, processes
from tests.integration.tools import eventually, make, new_topic, read

from .proxy import PROXIED, Proxy, proxied

MEMBERS: Final = 3
PARTITIONS: Final = 6
RATE: Final = 300
"""Records a second."""
SESSION_MS: Final = 10_000
PATIENCE: Final = SESSION_MS / 1000 + 10
"""Seconds that a record may wait at most."""
REFUSALS: Final = (2, 8, 76, 87, 109, 116)
"""What a broker says of a partition that it cannot read."""
MADE_ANEW: Final = 100
"""Records of a topic before it is deleted; afterwards it has twice as many."""
LOADING: Final = 2.0
"""Seconds from the election of a coordinator until it has loaded the group."""
LOOKING: Final = 0.25
"""Seconds between two looks at who coordinates."""
SETTLING: Final = 90.0
"""Seconds in which everything is whole again after the last event."""
_OFFSETS: Final = "__consumer_offsets"
_SETTINGS: Final = {"metadata.max.age.ms": 3000, "request.timeout.ms": 6000, "client.id": "chaos"}


@frozen(kw_only=True)
class Outcome:
    """What came of it. ``faults``: what must not be; empty if all is well."""

    seed: int
    events: dict[str, int]
    records: int
    lost: int
    duplicates: dict[str, int]
    """Records that came twice, by protocol, each explained by a kill."""
    longest_wait: dict[str, float]
    """Seconds from the acknowledgment of a record to its delivery, by protocol."""
    longest_wait_during: dict[str, tuple[str, ...]]
    """What happened meanwhile, by protocol: the last event before it, and those that began in it, with their seconds of it."""
    faults: tuple[str, ...]

    def to_json(self) -> str:
        """Return it as text for people and programs."""
        found = {"seed": self.seed, "events": self.events, "records": self.records, "lost": self.lost}
        waits = {"longest_wait_s": self.longest_wait, "longest_wait_during": self.longest_wait_during}
        return json.dumps(found | {"duplicates": self.duplicates} | waits | {"faults": self.faults}, indent=1)


@define(eq=False)
class Turmoil:
    """The cluster, the groups, the load, and everything that can happen to them."""

    cluster: KafkaCluster
    proxy: Proxy
    topic: str
    groups: Sequence[Processes]
    writing: Load
    chance: random.Random
    happened: list[tuple[float, str]] = field(factory=list)
    """When, and what."""
    moves: dict[str, list[tuple[float, float]]] = field(factory=lambda: defaultdict(list))
    """When a group got a new coordinator, by protocol: between which two moments."""
    reigns: dict[str, tuple[int, float]] = field(factory=dict)
    """Leader epoch of the partition that keeps a group, by protocol, and a moment at which it still was that."""
    kills: dict[str, list[float]] = field(factory=lambda: defaultdict(list))
    """When a member was killed, by protocol."""
    leaves: list[tuple[float, Process]] = field(factory=list)
    """When a member of the classic protocol left, and who came for it. That it left is stored with the next generation: a new
    coordinator that comes before counts it as a member for a whole session."""
    breaches: list[str] = field(factory=list)
    """What an event itself has found wrong."""
    excused: dict[str, set[tuple[int, int]]] = field(factory=dict)
    """Records that may come again, by protocol: read by a member that was killed, but not known to be committed."""

    # ---- brokers

    async def kill_broker(self) -> None:
        """A broker dies and comes back."""
        broker = self._any_broker()
        await asyncio.to_thread(self.cluster.kill, broker)
        await self._pass(1, 5)
        await asyncio.to_thread(self.cluster.start, broker)

    async def stop_broker(self) -> None:
        """A broker is shut down in good order and comes back."""
        broker = self._any_broker()
        await asyncio.to_thread(self.cluster.stop, broker)
        await self._pass(1, 3)
        await asyncio.to_thread(self.cluster.start, broker)

    async def freeze_broker(self) -> None:
        """A broker stops in the middle of whatever it does (SIGSTOP), and goes on."""
        broker = self._any_broker()
        self.cluster.pause(broker)
        await self._pass(1, 7)
        self.cluster.unpause(broker)

    async def rolling_restart(self) -> None:
        """One broker after the other is restarted."""
        for broker in range(3):
            await asyncio.to_thread(self.cluster.restart, broker)
            await self.whole()

    async def move_leaders(self) -> None:
        """Every partition is led by its preferred replica again."""
        await asyncio.to_thread(self._elect)

    async def move_partition(self) -> None:
        """A partition gets its replicas in another order."""
        replicas = self.chance.sample(range(3), 3)
        await asyncio.to_thread(self.cluster.reassign, self.topic, {self.chance.randrange(PARTITIONS): replicas})
        await asyncio.to_thread(self._elect)

    async def add_partition(self) -> None:
        """The topic grows by a partition, which is then written to."""
        count = self.writing.partitions + 1
        await asyncio.to_thread(self.cluster.add_partitions, self.topic, count)
        await self._pass(2, 2)
        self.writing.partitions = count

    async def refuse_partition(self) -> None:
        """Brokers cannot read a partition for a few seconds."""
        line, index, code = self.proxy.everyone, self.chance.randrange(PARTITIONS), self.chance.choice(REFUSALS)
        line.edit = lambda api, version, answer: _refused(api, version, answer, index, code)
        await self._pass(1, 5)
        line.edit = None

    async def make_topic_anew(self) -> None:
        """A topic is deleted and created again while a group reads it: the group reads all of the new one."""
        topic = await asyncio.to_thread(new_topic, self.cluster)
        await asyncio.to_thread(self.cluster.produce, topic, MADE_ANEW)
        options: dict[str, Any] = {"bootstrap_servers": self.proxy.bootstrap_servers, "group_id": topic}
        seen: set[bytes | None] = set()
        async with make(self.cluster, topic, **options) as consumer:
            await read(consumer, MADE_ANEW)
            await asyncio.to_thread(self._recreate, topic)
            await self._pass(0.5, 4)
            if self.chance.random() < 0.5:
                await consumer.commit()
            seen |= {record.value for records in (await consumer.getmany()).values() for record in records}
        async with make(self.cluster, topic, **options) as consumer:
            while seen < (wanted := {b"new %d" % number for number in range(2 * MADE_ANEW)}):
                batch = await consumer.getmany(timeout_ms=SETTLING * 1000)
                seen |= {record.value for records in batch.values() for record in records}
                if not batch:
                    self.breaches.append(f"{len(wanted - seen)} records of a topic that was made anew were lost")
                    break
        await asyncio.to_thread(self.cluster.delete_topics, topic)

    def _recreate(self, topic: str) -> None:
        self.cluster.delete_topics(topic)
        self.cluster.create_topic(topic)
        self.cluster.produce(topic, 2 * MADE_ANEW, values=lambda number: b"new %d" % number)

    # ---- network

    async def cut(self) -> None:
        """Every connection is reset, several times."""
        for _ in range(self.chance.randint(1, 5)):
            self.proxy.cut()
            await self._pass(0.1, 1)

    async def black_hole(self) -> None:
        """Nothing comes through for a while."""
        self.proxy.everyone.black_hole()
        await self._pass(1, 5)
        self.proxy.everyone.heal()

    async def half_open(self) -> None:
        """Nothing comes through in one direction, then all of that is reset."""
        self.proxy.everyone.stalled.add(self.chance.choice(("request", "response")))
        await self._pass(1, 5)
        self.proxy.cut()
        self.proxy.everyone.heal()

    async def forget(self) -> None:
        """Every connection that is open carries nothing any more and nobody says so; new ones are good."""
        self.proxy.forget()
        await self._pass(7, 9)  # a request has timed out by then

    async def bad_line(self) -> None:
        """Everything is slow and in pieces."""
        line = self.proxy.everyone
        line.latency, line.piece = self.chance.uniform(0.01, 0.1), self.chance.choice((None, 7, 100))
        line.rate = self.chance.choice((None, 100_000.0))
        await self._pass(2, 6)
        line.heal()

    # ---- members

    async def kill_member(self) -> None:
        """A member of each group dies; another one comes."""
        for group in self.groups:
            await self._kill(group, self.chance.choice(group.alive))
            await group.start()

    async def bounce_member(self) -> None:
        """A member of each group leaves in good order; another one comes."""
        for group in self.groups:
            left_at = time.monotonic()
            await self.chance.choice(group.alive).stop()
            newcomer = await group.start()
            if group.group.protocol == "classic":
                self.leaves.append((left_at, newcomer))

    # ---- coordinators

    async def watch(self) -> None:
        """Look who coordinates the groups, past the proxies, until cancelled."""
        async with make(self.cluster, request_timeout_ms=1_000, default_api_timeout_ms=2_000) as client:
            while True:
                asked_at = time.monotonic()
                with suppress(KafkaError):  # the broker that was asked is dead or frozen: there is a next look
                    told = (await client.describe_topics(_OFFSETS)).topics[_OFFSETS].partitions
                    for group in self.groups:
                        self.see(group.group.protocol, told[group.group.place].leader_epoch or 0, asked_at, time.monotonic())
                await asyncio.sleep(LOOKING)

    def see(self, protocol: str, epoch: int, asked_at: float, told_at: float) -> None:
        """Take note of the leader epoch of the partition that keeps a group. No election goes unseen: each has a number."""
        known, seen_at = self.reigns.get(protocol, (epoch, asked_at))
        if epoch > known:
            self.moves[protocol].append((seen_at, told_at))
        if epoch >= known:  # else the broker that answered has been away
            self.reigns[protocol] = epoch, asked_at

    # ---- what all of them need

    async def whole(self) -> None:
        """Wait until every replica is in sync, for then one broker may fail."""
        await eventually(lambda: asyncio.to_thread(self.cluster.in_sync), SETTLING)

    def _elect(self) -> None:
        self.cluster.admin.elect_leaders(ElectionType.PREFERRED, None).result()

    def _any_broker(self) -> int:
        return self.chance.randrange(3)

    async def _pass(self, low: float, high: float) -> None:
        await asyncio.sleep(self.chance.uniform(low, high))  # the moments are what is random here

    async def _kill(self, group: Processes, member: Process) -> None:
        watch = group.watch
        self.kills[group.group.protocol].append(time.monotonic())
        member.kill()
        await member.gone()
        excused = self.excused.setdefault(group.group.protocol, set())
        for partition in member.left:
            read = max(watch.consumed[partition], default=-1)
            excused |= {(partition, offset) for offset in range(watch.committed.get(partition, 0), read + 1)}

    def _note(self, what: str) -> None:
        self.happened.append((time.monotonic(), what))
        _say(what)

    def _meanwhile(self, begin: float, end: float) -> tuple[str, ...]:
        before = [(when, what) for when, what in self.happened if when < begin][-1:]
        within = [(when, what) for when, what in self.happened if begin <= when < end]
        return tuple(f"{what} {when - begin:+.1f}" for when, what in before + within)

    def _patience(self, protocol: str, begin: float, end: float) -> float:
        """Return how long a record may wait that was acknowledged at ``begin`` and read at ``end``."""
        gone: list[tuple[float, float | None]] = [(killed_at, None) for killed_at in self.kills[protocol]]
        if protocol == "classic":
            gone += [(left_at, newcomer.assigned_at) for left_at, newcomer in self.leaves]
        longer = 0.0
        for gone_at, stored_at in gone:
            over_at = gone_at + SESSION_MS / 1000
            for earliest, latest in self.moves[protocol]:
                if gone_at - LOADING <= latest and earliest <= (stored_at or over_at):
                    over_at = latest + LOADING + SESSION_MS / 1000
            counted_until = over_at if stored_at is None else min(over_at, stored_at)
            if begin <= counted_until and gone_at <= end:
                longer = max(longer, over_at - gone_at - SESSION_MS / 1000)
        return PATIENCE + longer

    # ---- the course of it

    async def rage(self, seconds: float, events: "Sequence[Event]") -> None:
        """Let ``events`` happen for so long, in random order, none a second time before all have happened."""
        deadline = time.monotonic() + seconds
        deck: list[Event] = []
        while time.monotonic() < deadline:
            deck = deck or self.chance.sample(events, len(events))
            event = deck.pop()
            self._note(event.__name__)
            await event(self)
            await self._pass(0.5, 2)
            await self.whole()

    def outcome(self, seed: int) -> Outcome:
        """Check the log of everything that was delivered."""
        faults = list(self.breaches)
        duplicates: dict[str, int] = {}
        longest: dict[str, float] = {}
        during: dict[str, tuple[str, ...]] = {}
        lost = 0
        for group in self.groups:
            name, watch = group.group.protocol, group.watch
            missing = [place for place in self.writing.acknowledged if place not in watch.seen]
            lost += len(missing)
            faults += [f"{name}: lost {missing[:5]}"] if missing else []
            faults += [f"{name}: {breach}" for breach in watch.breaches]
            repeated = {(partition, offset) for partition, offsets in watch.repeated().items() for offset in offsets}
            strange = sorted(repeated - self.excused.get(name, set()))
            faults += [f"{name}: {len(strange)} records came twice without a kill, {strange[:5]}"] if strange else []
            duplicates[name] = len(repeated)
            waits = [(watch.seen[place] - when, when) for place, when in self.writing.acknowledged.items() if place in watch.seen]
            wait, since = max(waits, default=(0.0, 0.0))
            longest[name], during[name] = round(wait, 2), self._meanwhile(since, since + wait)
            late = [wait for wait, since in waits if wait > PATIENCE and wait > self._patience(name, since, since + wait)]
            faults += [f"{name}: {len(late)} records waited too long, up to {max(late):.2f} s"] if late else []
        return Outcome(
            seed=seed,
            events=dict(Counter(what for _, what in self.happened)),
            records=len(self.writing.acknowledged),
            lost=lost,
            duplicates=duplicates,
            longest_wait=longest,
            longest_wait_during=during,
            faults=tuple(faults),
        )


Event = Callable[[Turmoil], Awaitable[None]]

EVENTS: Final[tuple[Event, ...]] = (
    Turmoil.kill_broker,
    Turmoil.stop_broker,
    Turmoil.freeze_broker,
    Turmoil.rolling_restart,
    Turmoil.move_leaders,
    Turmoil.move_partition,
    Turmoil.add_partition,
    Turmoil.refuse_partition,
    Turmoil.make_topic_anew,
    Turmoil.cut,
    Turmoil.black_hole,
    Turmoil.half_open,
    Turmoil.forget,
    Turmoil.bad_line,
    Turmoil.kill_member,
    Turmoil.bounce_member,
)


def _refused(api: int, version: int, answer: bytes, index: int, code: int) -> bytes:
    """Return a broker's answer; in one to Fetch a partition has an error in place of records."""
    if api != Api.FETCH:
        return answer
    response = decode_response(FetchRequest, version, answer)
    topics = tuple(
        evolve(topic, partitions=tuple(_part(part, index, code) for part in topic.partitions)) for topic in response.responses
    )
    (correlation_id,) = struct.unpack_from(">i", answer)
    return encode_response(evolve(response, responses=topics), Api.FETCH, version, correlation_id)[4:]


def _part(part: PartitionData, index: int, code: int) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code) if part.partition_index == index else part


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


@asynccontextmanager
async def _groups(cluster: KafkaCluster, proxy: Proxy, topic: str, settings: Path) -> AsyncIterator[list[Processes]]:
    """Start the members of a group in each protocol, all behind the proxy."""
    arguments = ("--command-config", str(settings))
    async with AsyncExitStack() as stack:
        found = []
        for protocol in PROTOCOLS:
            members = processes(
                new_group(cluster, protocol, session_ms=SESSION_MS),
                topic,
                MEMBERS,
                *arguments,
                bootstrap_servers=proxy.bootstrap_servers,
            )
            found.append(await stack.enter_async_context(members))
            _say(f"group {found[-1].group.name} speaks {protocol}")
        for group in found:
            await group.settled(PARTITIONS, SETTLING)
        yield found


async def chaos(cluster: KafkaCluster, seconds: float, *, seed: int | None = None, events: Sequence[Event] = EVENTS) -> Outcome:
    """Run it on three brokers with a ``PROXIED`` listener; return what came of it."""
    seed = random.randrange(1 << 32) if seed is None else seed  # noqa: S311  # not a secret
    _say(f"seed {seed}")
    topic = new_topic(cluster, PARTITIONS, min_insync_replicas="2")
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as settings:
        settings.writelines(f"{name}={value}\n" for name, value in _SETTINGS.items())
        settings.flush()
        async with (
            proxied(cluster) as proxy,
            _groups(cluster, proxy, topic, Path(settings.name)) as groups,
            AsyncExitStack() as stack,
        ):
            async with load(cluster, topic, PARTITIONS, RATE) as writing:
                turmoil = Turmoil(cluster, proxy, topic, groups, writing, random.Random(seed))  # noqa: S311  # as above
                stack.push_async_callback(_end, asyncio.create_task(turmoil.watch()))
                await turmoil.rage(seconds, events)
            await _settle(groups, writing)
            return turmoil.outcome(seed)


async def _end(task: "asyncio.Task[None]") -> None:
    """Cancel a task. Raises what it raised before."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _settle(groups: Sequence[Processes], writing: Load) -> None:
    """Give every group the time to read and to commit the rest. What is missing then is the outcome's to say."""

    async def finished() -> bool:
        return all(not group.watch.unread(writing.offsets) and group.watch.committed_all(writing.offsets) for group in groups)

    try:
        await eventually(finished, SETTLING)
    except AssertionError as error:
        _say(f"not everything was read and committed: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long things happen (default 10)")
    parser.add_argument("--seed", type=int, help="repeats the events of an earlier run")
    names = [event.__name__ for event in EVENTS]
    parser.add_argument("--events", nargs="+", choices=names, default=names, metavar="NAME", help=f"of {', '.join(names)}")
    return parser


def main() -> int:
    """Run it on a cluster of its own; print the outcome as JSON; return 1 if something is wrong."""
    options = _parser().parse_args()
    events = [event for event in EVENTS if event.__name__ in options.events]
    arguments: dict[str, Any] = {"brokers": 3, "heap_mb": 256, "listeners": {PROXIED: "PLAINTEXT"}, "proxied": [PROXIED]}
    with KafkaCluster(CURRENT, **arguments) as cluster:
        outcome = asyncio.run(chaos(cluster, options.minutes * 60, seed=options.seed, events=events))
    sys.stdout.write(outcome.to_json() + "\n")
    return int(bool(outcome.faults))


if __name__ == "__main__":
    sys.exit(main())
