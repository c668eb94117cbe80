"""What the tests of groups share: groups in either protocol, members that are kept reading, journals of rebalances.

Decides: how short the sessions of tests are. Owns: the tasks that keep members reading, until their ``async with`` ends. Must never
hide what a member raised: it is raised again when the block ends.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import pytest
from attrs import define, field, frozen

from kafka_async import ConsumerRebalanceListener, TopicPartition
from tests.brokers import KafkaCluster

from .tools import Consumer, Record, flat, make, offsets, until

PROTOCOLS: Final = ("classic", "consumer")
both = pytest.mark.parametrize("protocol", PROTOCOLS)
"""Runs a test once in each group protocol."""

SESSION_MS: Final = 6_000
"""Session timeout of members, unless a test says otherwise."""
HEARTBEAT_MS: Final = 300


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

    def committed(self) -> dict[int, int]:
        """Return the committed offsets by partition (of the one topic) as an independent client reads them."""
        return {partition: offset for (_, partition), offset in self.cluster.committed(self.name).items()}


def new_group(cluster: KafkaCluster, protocol: str, *, session_ms: int = SESSION_MS) -> Group:
    """Return a group that no other test uses."""
    name = f"g-{uuid.uuid4().hex[:12]}"
    if protocol == "consumer":
        settings = {"consumer.session.timeout.ms": str(session_ms), "consumer.heartbeat.interval.ms": str(HEARTBEAT_MS)}
        cluster.alter_config("group", name, settings)
    return Group(cluster=cluster, protocol=protocol, name=name, session_ms=session_ms)


@define(eq=False)
class Journal(ConsumerRebalanceListener):
    """Notes what a listener is told, in order: (what, partition numbers)."""

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
    errors: list[Exception] = field(factory=list)
    """What read calls raised; the member reads on."""
    task: "asyncio.Task[None] | None" = None

    @property
    def owned(self) -> frozenset[int]:
        """Numbers of the partitions that are assigned now."""
        return _numbers(self.consumer.assignment())

    @property
    def offsets(self) -> dict[int, list[int]]:
        """Offsets read so far, by partition."""
        return offsets(self.records)

    async def loop(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                self.records += flat(await self.consumer.getmany(timeout_ms=500))
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
    """Start a member of the group, with a journal as its listener, and keep it reading; stop it at the end."""
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
    assert {partition: sorted(numbers) for partition, numbers in found.items()} == expected
