"""Asks the brokers, and gives the book what they answered.

One broker does not hold up the numbers of another for longer than an interval.
"""

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

import anyio
from attrs import define, field

from ...errors import BrokerResponseError, IllegalStateError, KafkaError
from ...model import Node, OffsetAndTimestamp, TopicPartition
from ...wire import MetadataResponse
from ..admin import EARLIEST, LATEST, Admin, Group, GroupListing, batches
from .book import SLOW, Book, Findings, Layout, Offsets
from .times import Search
from .views import Snapshot

K = TypeVar("K")
V = TypeVar("V")

SHARE_OF_INTERVAL: Final = 0.7
"""How much of an interval a broker that does not answer may cost the others, and how many seconds at most."""
DEADLINE: Final = 5.0
SHORT: Final = 1.0
"""Seconds that a broker has at least, whatever the interval."""
SEARCHES: Final = 4
"""Records of one partition that are looked up by time in one poll, each with up to ``ROUNDS`` requests to its leader."""
LAYOUT_EVERY: Final = 30.0
"""Seconds between two looks at where partitions are."""


@define(eq=False)
class Survey:
    """Polls a cluster."""

    admin: Admin
    book: Book
    names: tuple[str, ...] = ()
    """Only these groups; ``()``: all."""
    wall: Callable[[], float] = time.time
    """The time of day in seconds, with which timestamps of records are compared."""
    _layout: Layout = field(factory=Layout, init=False)
    _layout_at: float = field(default=float("-inf"), init=False)
    _overdue_since: float | None = field(default=None, init=False)
    """Since when brokers are asked for the layout, and none tells it."""
    _starts_at: float = field(default=float("-inf"), init=False)
    _stable_at: float = field(default=float("-inf"), init=False)
    _nowhere: set[TopicPartition] = field(factory=set, init=False)
    """Partitions that have no leader, or are of no topic that we may see."""
    _silent: frozenset[int] = field(default=frozenset(), init=False)
    """Brokers that did not answer in the last poll."""

    @property
    def seconds(self) -> float:
        """How long a broker has in one poll."""
        return max(SHORT, min(DEADLINE, SHARE_OF_INTERVAL * self.book.interval))

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """Poll for ever: the next poll begins an interval after the last began, or as soon as that has ended."""
        while True:
            began = self._now()
            yield await self.poll()
            await anyio.sleep(max(0.0, self.book.interval - (self._now() - began)))

    async def poll(self) -> Snapshot:
        """Ask once. What a broker does not answer is not an error: it stays as it was. Raises only if nothing was ever known."""
        began = self._now()
        await self._look_around(began)
        listed, groups, offsets = await self._groups()
        wanted = self.book.partitions(offsets, groups)
        ends = await self._ends(wanted, LATEST)
        shrunk, nowhere = self.book.shrunk(ends), wanted - self._layout.leaders.keys()
        refused = {part for part, end in ends.items() if isinstance(end, BrokerResponseError) and end.invalid_metadata}
        if shrunk or refused or nowhere - self._nowhere:  # a topic was deleted, or created again; a leader has moved
            self._layout_at = float("-inf")
            await self._look_around(self._now())
            for part in refused:
                ends.pop(part)
            ends |= await self._ends(nowhere | refused, LATEST)
        self._nowhere = wanted - self._layout.leaders.keys()
        if stirred := self.book.stirred(listed, offsets, ends):
            committed, later = await self._committed(stirred)
            offsets, ends = offsets | committed, ends | later
        starts: dict[TopicPartition, int | KafkaError] = {}
        stable: dict[TopicPartition, int | KafkaError] = {}
        if began - self._starts_at >= SLOW or shrunk or self.book.replaced(self._layout):
            self._starts_at = began
            starts = await self._ends(ends, EARLIEST)
        if (held := self.book.held() & ends.keys()) and began - self._stable_at >= SLOW / 2:
            self._stable_at = began
            stable = await self._ends(held, LATEST, stable=True)
        now = self._now()
        poll = Findings(
            layout=self._layout,
            listed=listed,
            groups=groups,
            offsets=offsets,
            ends=ends,
            starts=starts,
            stable=stable,
            seconds=now - began,
            missing=self._missing(listed),
            overdue=now - self._overdue_since if self._overdue_since is not None else 0.0,
        )
        self.book.take(now, poll)
        await self._date()
        return self.book.snapshot(self._now(), poll)

    @property
    def topics(self) -> Collection[str]:
        """The topics of the cluster, as of the last poll."""
        return self._layout.topics

    def _missing(self, listed: Mapping[int, Collection[GroupListing] | KafkaError]) -> tuple[str, ...]:
        """Return the groups asked for by name that do not exist; none while a broker that may have them does not answer."""
        if any(isinstance(each, KafkaError) for each in listed.values()):
            return ()
        found = {listing.group_id for each in listed.values() if not isinstance(each, KafkaError) for listing in each}
        return tuple(name for name in self.names if name not in found)

    # --- one poll --------------------------------------------------------------------------------------------------------------

    async def _look_around(self, now: float) -> None:
        client = self.admin.client
        lost = self._silent.issuperset(client.nodes)  # whoever is asked at an address that nobody has any more is silent for ever
        if now - self._layout_at < LAYOUT_EVERY and not lost:
            return
        waves = list[list[int]]()
        left = [node for node in client.nodes if node not in self._silent]
        while left:  # any broker will do, and the answer may be long: twice as many each time, from one on
            count = 1 << len(waves)
            waves.append(left[:count])
            left = left[count:]
        found = await self._first_layout([*waves, [node for node in client.nodes if node in self._silent]])
        if lost and not isinstance(found, Layout):
            found = await self._first_layout([[None]]) or found
            if isinstance(found, Layout):
                self._silent = frozenset()
        if isinstance(found, Layout):
            self._layout, self._layout_at, self._overdue_since = found, now, None
        elif not self._layout.brokers:
            raise found or IllegalStateError("no broker says where partitions are")
        elif self._overdue_since is None:
            self._overdue_since = now

    async def _first_layout(self, waves: Sequence[Sequence[int | None]]) -> Layout | KafkaError | None:
        """Ask brokers; return what the first says that answers, or else what one of them complains of.

        Those of a wave are asked at once, and the next wave too once these have had ``SHORT`` seconds or have all failed. ``None``
        in place of a broker: whoever is at the servers to start from.
        """
        client, found, asked = self.admin.client, list[Layout | KafkaError](), set[int | None]()
        all_failed = anyio.Event()

        async def ask(node: int | None) -> None:
            try:
                with anyio.fail_after(self.seconds):
                    found.insert(0, layout_of(await (client.layout_anew() if node is None else client.layout(node_id=node))))
            except (KafkaError, TimeoutError) as error:
                self._silent |= {node} if node is not None else set()
                found.extend([error] if isinstance(error, KafkaError) else [])
                asked.discard(node)
                if not asked:
                    all_failed.set()
            else:
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for nodes in filter(None, waves):
                all_failed = anyio.Event()
                asked.update(nodes)
                for node in nodes:
                    tasks.start_soon(ask, node)
                with anyio.move_on_after(SHORT):
                    await all_failed.wait()
        return found[0] if found else None

    async def _groups(
        self,
    ) -> tuple[dict[int, list[GroupListing] | KafkaError], dict[str, Group | KafkaError], dict[str, Offsets | KafkaError]]:
        """Ask each broker for its groups, and about them, all brokers at once."""
        listed: dict[int, list[GroupListing] | KafkaError] = {}
        groups: dict[str, Group | KafkaError] = {}
        offsets: dict[str, Offsets | KafkaError] = {}

        async def ask(node: int) -> None:
            until = self._now() + self.seconds
            listed.update(await batches.list_many(self.admin.client, [node], self.seconds))
            found = listed[node]
            if isinstance(found, KafkaError):
                return
            if self.names:
                found = listed[node] = [listing for listing in found if listing.group_id in self.names]
            for some in batches.portions(self.book.due(found)):  # what a broker gets through is known as a whole
                if self._now() >= until:
                    break
                groups.update(await batches.describe_many(self.admin.client, some, until - self._now()))
                offsets.update(await batches.committed_many(self.admin.client, some, until - self._now()))
                offsets.update(await batches.share_offsets_many(self.admin.client, some, until - self._now()))

        async with anyio.create_task_group() as tasks:
            for node in await self._coordinators():
                tasks.start_soon(ask, node)
        if self.book.lost(listed):  # they were deleted, or have moved to a broker that has just joined and was not asked
            self._layout_at = float("-inf")
            await self._look_around(self._now())
            async with anyio.create_task_group() as tasks:
                for node in set(self.admin.client.nodes) - listed.keys():
                    tasks.start_soon(ask, node)
        self._silent = frozenset(node for node, each in listed.items() if isinstance(each, KafkaError) and each.retriable)
        return listed, groups, offsets

    async def _coordinators(self) -> Collection[int]:
        """Return the brokers to ask: those of the groups that are wanted, or all."""
        if not self.names:
            return self.admin.client.nodes
        found = await batches.find_many(self.admin.client, self.names, self.seconds)
        known = {node for node in found.values() if not isinstance(node, KafkaError)}
        return known if len(known) and not any(isinstance(node, KafkaError) for node in found.values()) else self.admin.client.nodes

    async def _committed(
        self, groups: Collection[GroupListing]
    ) -> tuple[dict[str, Offsets | KafkaError], dict[TopicPartition, int | KafkaError]]:
        """Ask groups for their offsets, and then where these logs end: an offset may be after an end that was told before it."""
        offsets: dict[str, Offsets | KafkaError] = {}
        offsets.update(await batches.committed_many(self.admin.client, groups, self.seconds))
        offsets.update(await batches.share_offsets_many(self.admin.client, groups, self.seconds))
        parts = {part for each in offsets.values() if not isinstance(each, KafkaError) for part in each}
        ends = await self._ends({part for part in parts if self.book.topic in (None, part.topic)}, LATEST)
        return offsets, {part: end for part, end in ends.items() if not isinstance(end, KafkaError)}

    async def _ends(
        self, partitions: Collection[TopicPartition], what: int, *, stable: bool = False
    ) -> dict[TopicPartition, int | KafkaError]:
        """Ask the leaders. One that did not list its groups is not waited for again."""
        leaders = {part: node for part, node in self._layout.leaders.items() if part in partitions and node not in self._silent}
        found = await batches.offsets_many(self.admin.client, dict.fromkeys(leaders, what), leaders, self.seconds, stable=stable)
        return {
            part: outcome.offset if isinstance(outcome, OffsetAndTimestamp) else outcome
            for part, outcome in found.items()
            if outcome is not None
        }

    async def _date(self) -> None:
        """Look up by time what is older than all samples; a handful of requests to each leader, and mostly none."""
        now, wall_ms = self._now(), 1000 * self.wall()
        failed: set[TopicPartition] = set()
        for _ in range(SEARCHES):  # one after another: what one finds may spare the next, and a request has a partition once
            if self._now() - now >= self.seconds:
                break
            searches = {part: each for part, each in self.book.searches(now, wall_ms).items() if part not in failed}
            if not searches:
                break
            failed |= await self._search(searches)
            self.book.date(now, wall_ms, searches)

    async def _search(self, searches: Mapping[TopicPartition, Search]) -> set[TopicPartition]:
        """Search, in all partitions at once. Return those whose leader did not answer."""
        open_, failed = dict(searches), set[TopicPartition]()
        while open_:
            asked = {part: search.timestamp() for part, search in open_.items()}
            leaders = self._layout.leaders
            heard = {part: leaders[part] for part in asked if part in leaders and leaders[part] not in self._silent}
            answers = await batches.offsets_many(self.admin.client, asked, heard, self.seconds)
            for part, timestamp in asked.items():
                answer = answers.get(part, IllegalStateError("not asked"))
                if isinstance(answer, KafkaError):
                    failed.add(part)
                    del open_[part]
                    continue
                open_[part].learn(timestamp, (answer.timestamp, answer.offset) if answer is not None else None)
                if open_[part].done:
                    del open_[part]
        return failed

    def _now(self) -> float:
        return self.admin.client.clock()


def layout_of(answer: MetadataResponse) -> Layout:
    """Return where partitions are. Topics that may not be described are left out."""
    topics = [topic for topic in answer.topics if topic.name is not None and not topic.error_code]
    parts = [(TopicPartition(topic.name or "", part.partition_index), part) for topic in topics for part in topic.partitions]
    return Layout(
        cluster_id=answer.cluster_id,
        controller=answer.controller_id if answer.controller_id >= 0 else None,
        brokers=tuple(Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers),
        topics={topic.name or "": topic.topic_id for topic in topics},
        leaders={name: part.leader_id for name, part in parts if part.leader_id >= 0},
        leaderless=tuple(name for name, part in parts if part.leader_id < 0),
        under_replicated=tuple(name for name, part in parts if len(part.isr_nodes) < len(part.replica_nodes)),
    )
