"""What is known of all groups, poll after poll.

Pure: the time is an argument, and what a poll found is a value (``Findings``).

What a broker does not answer stays as it was, and grows older. A group that no broker lists any more is forgotten, once all have
answered; one that comes back as another kind of group begins anew.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from attrs import define, field, frozen

from ...errors import BrokerResponseError, KafkaError, KafkaTimeoutError
from ...model import Node, OffsetAndMetadata, TopicPartition
from ...trace import counted
from ..admin import DescribedMember, Group, GroupListing, ShareOffset
from .status import Status, worst
from .times import EndTimes, Search
from .views import TOO_OLD, BrokerView, ClusterOverview, GroupView, Heard, MemberView, PartitionView, Snapshot
from .window import GAP, INTERVALS, SETTLED, Judgement, Members, Seen, Window

Offsets = Mapping[TopicPartition, OffsetAndMetadata | ShareOffset | KafkaError]

RARELY: Final = 6
"""A group without members that has nothing to do is asked each so many polls, and when records come for it."""
HISTORY: Final = 60
"""Samples of a sparkline."""
HOUR: Final = 3600.0
SLOW: Final = 60.0
"""Seconds between two questions for what changes slowly: the starts of logs, and open transactions."""
_FORGOTTEN_AFTER: Final = 60.0
"""Seconds for which a log is kept that no group has."""
TRIES: Final = 4
"""Searches by time for one record: where the producers' clocks disagree, more would bring nothing."""
_MOST_WAITED: Final = 4
"""Polls in which a group waits for its turn; a coordinator that does not answer for longer is a gap."""
SKEWED: Final = 0.5
BOUNCING: Final = 10
"""Rebalances in an hour that are worth a note."""


@frozen(kw_only=True)
class Layout:
    """Brokers, and where partitions are."""

    cluster_id: str | None = None
    controller: int | None = None
    brokers: tuple[Node, ...] = ()
    topics: Mapping[str, UUID | None] = field(factory=dict)
    leaders: Mapping[TopicPartition, int] = field(factory=dict)
    leaderless: tuple[TopicPartition, ...] = ()
    under_replicated: tuple[TopicPartition, ...] = ()


@frozen(kw_only=True)
class Findings:
    """What one poll has found."""

    layout: Layout
    listed: Mapping[int, Collection[GroupListing] | KafkaError]
    """By broker."""
    groups: Mapping[str, Group | KafkaError]
    offsets: Mapping[str, Offsets | KafkaError]
    ends: Mapping[TopicPartition, int | KafkaError] = field(factory=dict)
    starts: Mapping[TopicPartition, int | KafkaError] = field(factory=dict)
    stable: Mapping[TopicPartition, int | KafkaError] = field(factory=dict)
    seconds: float = 0.0
    missing: tuple[str, ...] = ()
    overdue: float = 0.0
    """Seconds for which no broker has told the layout, although they were asked."""


@define
class _Known:
    """What is known of a group."""

    listing: GroupListing
    heard: Heard
    group: Group | None = None
    offsets: Offsets = field(factory=dict)
    taken_at: float | None = None
    problem: KafkaError | None = None
    """Why the last question about it brought nothing."""
    told: int = 0
    """The number of the poll that brought its offsets."""
    waited: int = 0
    """Polls since then in which its broker answered, and did not get to it."""
    quiet: int = 0
    """Polls in which nothing changed."""
    windows: dict[TopicPartition, Window] = field(factory=dict)
    rebalances: "deque[tuple[float, int]]" = field(factory=deque)
    """When how many were seen, in the last hour."""
    rebalanced: int = 0
    rebalancing_since: float | None = None
    history: "deque[int]" = field(factory=lambda: deque(maxlen=HISTORY))
    idle: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it was listed without members."""
        return self.listing.state == "Empty"

    @property
    def members(self) -> tuple[DescribedMember, ...] | None:
        """Its members. A group that is listed without any has none, whether it was described or not; ``None``: not known."""
        return self.group.members if self.group is not None else () if self.is_empty else None

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions of its members."""
        return frozenset() if self.group is None else self.group.owned


@frozen
class _Dated:
    """The last look-ups by time for a group."""

    offset: int | None
    """The record's; ``None``: its leader did not answer."""
    tries: int
    until: float
    """When another record may be looked up for it."""


@define
class _Log:
    """What is known of one log."""

    topic_id: UUID | None = None
    times: EndTimes = field(factory=EndTimes)
    start: int | None = None
    stable: int | None = None
    dated: dict[str, _Dated] = field(factory=dict)
    """What was looked up by time for which group."""
    unwanted_since: float | None = None
    """Since when no group has had it; ``None``: one has."""

    @property
    def end(self) -> int | None:
        return self.times.latest


@define
class _Logs:
    """What is known of the logs. It holds for one topic: another one of that name has other logs, whatever their ends are."""

    of: dict[TopicPartition, _Log] = field(factory=dict)
    failed: set[TopicPartition] = field(factory=set)
    """Those whose end was not told in the last poll."""

    def take(self, now: float, poll: Findings) -> None:
        for partition in {*self.replaced(poll.layout), *self._forgotten(now)}:
            del self.of[partition]
        self.failed = set()
        for partition, end in poll.ends.items():
            log = self.of.setdefault(partition, _Log())
            log.topic_id = poll.layout.topics.get(partition.topic) or log.topic_id
            if isinstance(end, KafkaError):
                self.failed.add(partition)
            else:
                log.times.add(now, end)
        for partition, start in poll.starts.items():
            if not isinstance(start, KafkaError):
                self.of[partition].start = start
        for partition, stable in poll.stable.items():
            if not isinstance(stable, KafkaError):
                self.of[partition].stable = stable
        for log in self.of.values():  # one that was begun anew, of which only the end was told yet
            if log.start is not None and log.end is not None and log.start > log.end:
                log.start = log.end

    def replaced(self, layout: Layout) -> list[TopicPartition]:
        """Return those whose topic has been deleted, and created again."""
        return [
            partition
            for partition, log in self.of.items()
            if log.topic_id is not None and layout.topics.get(partition.topic) not in (None, log.topic_id)
        ]

    def _forgotten(self, now: float) -> list[TopicPartition]:
        """Return those that no group has had for a while: what comes back later is not the same any more.

        Not at once: while a coordinator moves, one list of groups may lack some.
        """
        since = {partition: log.unwanted_since for partition, log in self.of.items()}
        return [partition for partition, at in since.items() if at is not None and now - at > _FORGOTTEN_AFTER]

    def note_wanted(self, now: float, wanted: Collection[TopicPartition]) -> None:
        """Take which partitions groups have."""
        for partition, log in self.of.items():
            log.unwanted_since = None if partition in wanted else now if log.unwanted_since is None else log.unwanted_since


@define
class Book:
    """All that is known."""

    interval: float
    """Seconds between two polls."""
    allowed: int = 0
    topic: str | None = None
    """Only partitions of this topic, and groups that have one; ``None``: all."""
    _groups: dict[str, _Known] = field(factory=dict)
    _logs: _Logs = field(factory=_Logs)
    _answered: dict[int, float] = field(factory=dict)
    """When each broker last listed its groups."""
    _notes: dict[int, str] = field(factory=dict)
    """What each broker said in place of it, of those that were asked in the last poll."""
    _polls: "deque[float]" = field(factory=lambda: deque(maxlen=GAP + 1))
    """When the last polls ended."""
    _number: int = 0
    _errors: int = 0
    _rates_since: float = float("-inf")

    def oldest(self, now: float) -> float:
        """Return the seconds after which what was told is not known any more: three polls, however long these took.

        A group may wait for its turn while its broker gets through others, and polls may take longer than an interval.
        """
        return max(GAP * self.interval, now - self._polls[0] if self._polls else 0.0)

    # --- what to ask -----------------------------------------------------------------------------------------------------------

    def due(self, listed: Iterable[GroupListing]) -> list[GroupListing]:
        """Return the groups to ask about in the next poll; first those that were not told for the longest time.

        So a broker that does not get through all of them in time goes on with the others next time.
        """
        number = self._number + 1
        wanted = [
            listing
            for listing in listed
            if (known := self._groups.get(listing.group_id)) is None
            or not known.idle
            or known.listing.state != listing.state
            or known.listing.kind != listing.kind
            or number - known.told >= RARELY
        ]
        return sorted(wanted, key=lambda listing: self._groups[listing.group_id].told if listing.group_id in self._groups else -1)

    def lost(self, listed: Mapping[int, Collection[GroupListing] | KafkaError]) -> set[str]:
        """Return the groups that no broker lists any more; none while a broker does not answer, which may have got them."""
        names: set[str] = set()
        for outcome in listed.values():
            if isinstance(outcome, KafkaError):
                return set()
            names.update(listing.group_id for listing in outcome)
        return self._groups.keys() - names

    def partitions(
        self, offsets: Mapping[str, Offsets | KafkaError], groups: Mapping[str, Group | KafkaError]
    ) -> set[TopicPartition]:
        """Return the partitions whose ends are wanted, now that a poll has found these offsets and groups."""
        found = {part for known in self._groups.values() for part in (*known.offsets, *known.windows, *known.owned)}
        found |= {part for each in offsets.values() if not isinstance(each, KafkaError) for part in each}
        found |= {part for group in groups.values() if isinstance(group, Group) for part in group.owned}
        return {part for part in found if self.topic in (None, part.topic)}

    def held(self) -> set[TopicPartition]:
        """Return the partitions in which an open transaction may hold up a group."""
        return {
            part for known in self._groups.values() for part, window in known.windows.items() if window.may_wait_for_a_transaction
        }

    def replaced(self, layout: Layout) -> bool:
        """Return whether a topic has been deleted, and created again."""
        return bool(self._logs.replaced(layout))

    def shrunk(self, ends: Mapping[TopicPartition, int | KafkaError]) -> bool:
        """Return whether a log is shorter than it was: its topic may have been created again, which only its id tells."""
        return any(
            isinstance(end, int) and (log := self._logs.of.get(part)) is not None and log.end is not None and end < log.end
            for part, end in ends.items()
        )

    def stirred(
        self,
        listed: Mapping[int, Collection[GroupListing] | KafkaError],
        asked: Collection[str],
        ends: Mapping[TopicPartition, int | KafkaError],
    ) -> list[GroupListing]:
        """Return the groups without members that had nothing to do, were not ``asked`` in this poll, and have new records by now.

        What they have committed is wanted too: of a program that is no member it is as new as the records.
        """
        return [
            listing
            for found in listed.values()
            if not isinstance(found, KafkaError)
            for listing in found
            if listing.group_id not in asked
            and (known := self._groups.get(listing.group_id)) is not None
            and known.idle
            and any(
                window.last is not None
                and window.last.lag == 0
                and isinstance(end := ends.get(part), int)
                and end != window.last.end
                for part, window in known.windows.items()
            )
        ]

    def searches(self, now: float, wall_ms: float) -> dict[TopicPartition, Search]:
        """Return what to look up by time: partitions in which a group is so far behind that no sample is as old.

        Of each partition one record, the oldest of those that were looked up least often. A group that stays where it is costs
        nothing any more once the time of its record is known; one that moves is looked up again after a minute, or a tenth of
        the record's age. ``wall_ms``: the time of day, in milliseconds.
        """
        found: dict[TopicPartition, tuple[int, int, Search]] = {}
        for name, part, offset in self._behind():
            log = self._logs.of.get(part)
            if log is None or (tries := _tries(now, log.dated.get(name), offset)) >= TRIES:
                continue
            if part in found and found[part][:2] <= (tries, offset):
                continue
            if (search := log.times.search(now, wall_ms, offset)) is not None:
                found[part] = (tries, offset, search)
        return {part: search for part, (_, _, search) in found.items()}

    def _behind(self) -> Iterator[tuple[str, TopicPartition, int]]:
        for name, known in self._groups.items():
            for part, window in known.windows.items():
                if (oldest := window.oldest) is not None and window.last is not None and window.last.waiting:
                    yield name, part, oldest

    def date(self, now: float, wall_ms: float, searches: Mapping[TopicPartition, Search]) -> None:
        """Take what was found by time."""
        for part, search in searches.items():
            log = self._logs.of[part]
            for timestamp, offset in sorted(search.found, reverse=True):
                log.times.anchor(now - max(0.0, wall_ms - timestamp) / 1000, offset)
            log.dated = {name: dated for name, dated in log.dated.items() if name in self._groups}
        for name, part, offset in self._behind() if searches else ():
            if part in searches and offset == searches[part].offset:
                dated = self._logs.of[part].dated
                tries, age = _tries(now, dated.get(name), offset), self._logs.of[part].times.age(now, offset)
                if not searches[part].done:
                    dated[name] = _Dated(None, 0, now + SLOW)
                else:  # the younger the record, the more it matters how far the group has got since
                    dated[name] = _Dated(offset, tries + 1, now + min(SLOW, 0.1 * age.seconds if age is not None else SLOW))

    def reset_rates(self, now: float) -> None:
        """Count rates from now on."""
        self._rates_since = now

    # --- what was found --------------------------------------------------------------------------------------------------------

    def take(self, now: float, poll: Findings) -> None:
        """Take what a poll found. ``now``: when it ended."""
        self._number += 1
        self._polls.append(now)
        self._logs.take(now, poll)
        self._errors += sum(
            isinstance(each, KafkaError)
            for answers in (poll.listed, poll.groups, poll.offsets, poll.ends)
            for each in answers.values()
        )
        listed: dict[str, GroupListing] = {}
        for node in self._notes.keys() - poll.listed.keys():  # it was not asked: it coordinates none of the groups any more
            del self._notes[node]
        for node, outcome in poll.listed.items():
            if isinstance(outcome, KafkaError):
                self._notes[node] = _said(outcome)
                continue
            self._answered[node] = now
            self._notes.pop(node, None)
            listed |= {listing.group_id: listing for listing in outcome}
        for name in self.lost(poll.listed):
            del self._groups[name]
        for listing in listed.values():
            self._take_group(now, poll, listing)
        for name, known in self._groups.items():
            if known.told == self._number or (known.idle and known.problem is None and name in listed):
                self._sample(now, known, poll)
        self._logs.note_wanted(now, self.partitions({}, {}))

    def _take_group(self, now: float, poll: Findings, listing: GroupListing) -> None:
        name = listing.group_id
        known = self._groups.get(name)
        if known is None or known.listing.kind != listing.kind:
            known = self._groups[name] = _Known(listing, Heard(now))
        before, known.listing = known.group, listing
        group, offsets = poll.groups.get(name), poll.offsets.get(name)
        self._note_state(now, known, group.state if isinstance(group, Group) else "")
        if not known.idle and (offsets is None or isinstance(offsets, KafkaTimeoutError)):
            known.waited = min(known.waited + 1, _MOST_WAITED)
        known.heard = Heard(now, now if isinstance(group, Group) or known.is_empty else known.heard.members_at)
        if group is None and offsets is None:
            return  # it was not asked
        known.problem = next((each for each in (offsets, group) if isinstance(each, KafkaError)), None)
        if isinstance(group, Group):
            known.group = group
            self._count_rebalances(now, known, before, group)
        elif group is not None and (not group.retriable or known.is_empty):  # it may not be described, or they have left meanwhile
            known.group = None
        if offsets is not None and not isinstance(offsets, KafkaError):
            known.quiet = known.quiet + 1 if offsets == known.offsets else 0
            known.offsets = offsets
            known.told = self._number

    def _note_state(self, now: float, known: _Known, described: str) -> None:
        """Find out whether a group rebalances. Its listing tells, too: groups of Kafka Streams are not described."""
        states = {known.listing.state, described} - {""}
        if not states.isdisjoint(SETTLED):
            known.rebalancing_since = None
        elif states and known.rebalancing_since is None:
            known.rebalancing_since = now

    def _count_rebalances(self, now: float, known: _Known, before: Group | None, after: Group) -> None:
        if before is not None:
            steps = _steps(before, after)
            known.rebalanced += steps
            if steps:
                known.rebalances.append((now, steps))
        while known.rebalances and now - known.rebalances[0][0] > HOUR:
            known.rebalances.popleft()

    def _sample(self, now: float, known: _Known, poll: Findings) -> None:
        """Give the windows of a group what is known now. Its offsets may be of an earlier poll, if it is asked rarely."""
        known.taken_at = now  # of a group that is asked rarely: its broker still lists it without members
        share = known.listing.kind == "share"
        owned = known.owned
        wanted = self._wanted(known, owned)
        between = max(self.interval, poll.seconds) * (1 + known.waited)  # a long poll is no gap, nor is it to wait for one's turn
        known.waited = 0
        for part in known.windows.keys() - wanted:
            if known.windows[part].is_over:
                del known.windows[part]
        for part in wanted | known.windows.keys():
            offset = known.offsets.get(part)
            unheard = part in self._logs.failed or (part in poll.layout.leaders and part not in poll.ends)
            if isinstance(offset, KafkaError) or unheard:
                continue
            window = known.windows.setdefault(part, Window(self.allowed))
            window.add(now, self._seen(part, offset, share, poll.layout), self._members(known, part, owned), between)
        if (lag := _total(known.windows.values())) is not None:
            known.history.append(lag)
        known.idle = known.is_empty and (lag == 0 or known.quiet >= INTERVALS)

    def _wanted(self, known: _Known, owned: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that a group has now."""
        return {part for part in {*known.offsets, *owned} if self.topic in (None, part.topic)}

    def _seen(self, part: TopicPartition, offset: OffsetAndMetadata | ShareOffset | None, share: bool, layout: Layout) -> Seen:
        log = self._logs.of.get(part, _Log())
        end = log.end if part in layout.leaders else None
        common = {"end": end, "start": log.start, "topic_id": layout.topics.get(part.topic)}
        if isinstance(offset, ShareOffset):
            return Seen(committed=offset.start, reported=offset.lag, share=True, **common)  # type: ignore[arg-type]  # one dict for two
        committed = offset.offset if offset is not None else None
        return Seen(committed=committed, stable=log.stable, share=share, **common)  # type: ignore[arg-type]  # likewise

    def _members(self, known: _Known, part: TopicPartition, owned: Collection[TopicPartition]) -> Members:
        group, who = known.group, known.members
        return Members(
            state=known.listing.state or (group.state if group is not None else ""),
            count=len(who) if who is not None else None,
            owned=part in owned or not owned,
            rebalancing_since=known.rebalancing_since,
        )

    # --- what is shown ---------------------------------------------------------------------------------------------------------

    def snapshot(self, now: float, poll: Findings) -> Snapshot:
        """Return what there is to show after a poll."""
        groups = [(known, self._view(now, name, known)) for name, known in self._groups.items()]
        shown = [view for known, view in groups if view.partitions or not self._is_of_others(now, known)]
        return Snapshot(
            number=self._number,
            groups=tuple(sorted(shown, key=lambda view: (*(-each for each in view.trouble), view.name))),
            cluster=self._cluster(now, poll),
            poll_seconds=poll.seconds,
            oldest=self.oldest(now),
            errors=self._errors,
            missing=poll.missing,
            lacks_topic=self.topic is not None and self.topic not in poll.layout.topics,
        )

    def _is_of_others(self, now: float, known: _Known) -> bool:
        """Return whether a group without partitions reads other topics than the one that is wanted.

        Only a group whose offsets were told is known to. One that is refused, or answered too late, may be of the topic.
        """
        return self.topic is not None and known.taken_at is not None and not (known.problem is not None and self._late(now, known))

    def _late(self, now: float, known: _Known) -> bool:
        return known.taken_at is None or now - known.taken_at > self.oldest(now)

    def _cluster(self, now: float, poll: Findings) -> ClusterOverview:
        layout, leads = poll.layout, list(poll.layout.leaders.values())
        return ClusterOverview(
            cluster_id=layout.cluster_id,
            controller=layout.controller,
            brokers=tuple(
                BrokerView(
                    node_id=node.id,
                    address=f"{node.host}:{node.port}",
                    rack=node.rack,
                    leads=leads.count(node.id),
                    age_seconds=now - self._answered[node.id] if node.id in self._answered else None,
                    note=self._notes.get(node.id, ""),
                    asked=node.id in poll.listed,
                )
                for node in sorted(layout.brokers, key=lambda node: node.id)
            ),
            leaderless=layout.leaderless,
            under_replicated=layout.under_replicated,
            overdue=poll.overdue,
        )

    def _view(self, now: float, name: str, known: _Known) -> GroupView:
        owned = known.owned
        owners = _owners(known.group)
        parts = tuple(
            self._partition(now, part, window, self._members(known, part, owned), owners.get(part))
            if (window := known.windows.get(part)) is not None and window.last is not None
            else _untold(part, owners.get(part))
            for part in sorted(known.windows.keys() | self._wanted(known, owned))
        )
        known_lags = [part.lag for part in parts if part.lag is not None]
        status, notes = self._status(now, known, parts)
        return GroupView(
            name=name,
            kind=known.listing.kind,
            state=known.listing.state or (known.group.state if known.group is not None else ""),
            status=status,
            notes=notes,
            members=_members_of(known.members),
            partitions=parts,
            lag=sum(known_lags) if known_lags else None,
            complete=bool(parts) and len(known_lags) == len(parts),
            rebalances=known.rebalanced,
            rebalances_hour=sum(steps for _, steps in known.rebalances),
            taken_at=known.taken_at,
            heard=known.heard,
            now=now,
            history=tuple(known.history),
        )

    def _status(self, now: float, known: _Known, parts: Collection[PartitionView]) -> tuple[Status, tuple[str, ...]]:
        notes = []
        if known.problem is not None:
            notes.append(_said(known.problem))
        if self._late(now, known):
            notes.append(TOO_OLD if known.taken_at is not None else "not known yet")
            return Status.UNKNOWN, tuple(notes)
        status = worst(part.status for part in parts)
        nothing = not any(part.lag is not None for part in parts)
        if nothing and status is Status.OK and (parts or known.listing.reads):
            status = Status.UNKNOWN
            notes += [] if parts else ["nothing committed" if known.listing.kind != "share" else "not begun"]
        worst_part = max(parts, key=lambda part: part.status.severity, default=None)
        if worst_part is not None and worst_part.note:
            notes.append(worst_part.note)
        return status, (*notes, *_remarks(known, parts))

    def _partition(self, now: float, part: TopicPartition, window: Window, members: Members, owner: str | None) -> PartitionView:
        told = now - window.sampled_at
        late = told > self.oldest(now)
        verdict = Judgement(Status.UNKNOWN, f"not told for {told:.0f} s") if late else window.judge(now, members)
        rates = window.rates(self._rates_since)
        last = window.last
        assert last is not None  # noqa: S101  # the caller has looked
        log = self._logs.of.get(part)
        age = None
        if log is not None and (oldest := window.oldest) is not None and last.lag is not None:
            age = log.times.age(now, last.end if last.lag == 0 and last.end is not None else oldest)
        return PartitionView(
            partition=part,
            status=verdict.status,
            note=verdict.note,
            lag=last.lag,
            committed=last.committed,
            end=last.end,
            start=last.start,
            age=age,
            owner=owner,
            unmoved=window.unmoved(now),
            in_rate=rates.arriving,
            out_rate=rates.done,
            lost=last.lost,
            retention_in=window.retention_in(now),
            taken_at=window.sampled_at,
        )


def _tries(now: float, dated: _Dated | None, offset: int) -> int:
    """Return how often the record at ``offset`` was looked up for a group; ``TRIES`` if it is not to be looked up now."""
    if dated is None:
        return 0
    if dated.offset == offset:
        return dated.tries
    return 0 if now >= dated.until else TRIES


def _untold(part: TopicPartition, owner: str | None) -> PartitionView:
    """Return a partition whose end, or what is committed there, no broker has told yet. Without it the lag would look complete."""
    return PartitionView(
        partition=part,
        status=Status.UNKNOWN,
        note="not told yet",
        lag=None,
        committed=None,
        end=None,
        start=None,
        age=None,
        owner=owner,
        unmoved=None,
        in_rate=None,
        out_rate=None,
        lost=0,
        retention_in=None,
        taken_at=None,
    )


def _owners(group: Group | None) -> dict[TopicPartition, str]:
    found: dict[TopicPartition, str] = {}
    for member in group.members if group is not None else ():
        who = f"{member.client_id}@{member.host.lstrip('/')}"
        for part in member.partitions:
            found[part] = f"{found[part]}, {who}" if part in found else who
    return found


def _members_of(members: Iterable[DescribedMember] | None) -> tuple[MemberView, ...] | None:
    if members is None:
        return None
    return tuple(
        MemberView(member_id=member.member_id, owner=f"{member.client_id}@{member.host.lstrip('/')}", partitions=member.partitions)
        for member in members
    )


def _steps(before: Group, after: Group) -> int:
    """Return how many rebalances lie between two looks at a group; at least, in the classic protocol, which shows no generation."""
    if before.epoch is not None and after.epoch is not None:
        return max(0, after.epoch - before.epoch)
    if before.state == after.state == "Stable":
        return int({member.member_id for member in before.members} != {member.member_id for member in after.members})
    return int(before.state in ("Stable", "Empty") and after.state not in ("Stable", "Empty", "Dead"))


def _total(windows: Iterable[Window]) -> int | None:
    lags = [window.last.lag for window in windows if window.last is not None and window.last.lag is not None]
    return sum(lags) if lags else None


def _remarks(known: _Known, parts: Collection[PartitionView]) -> Iterator[str]:
    """Say what is odd about a group, and is not trouble by itself."""
    lags = sorted((part.lag or 0 for part in parts), reverse=True)
    if len(lags) > 1 and lags[0] > SKEWED * sum(lags) and lags[0] >= 1000:
        yield f"{100 * lags[0] // sum(lags)} % of the lag in one partition"
    members = known.group.members if known.group is not None else ()
    idle = sum(not member.partitions for member in members)
    if idle and idle < len(members):
        yield f"{counted(idle, 'member')} without partitions"
    hour = sum(steps for _, steps in known.rebalances)
    if hour >= BOUNCING:
        yield f"{hour} rebalances in the last hour"


def _said(error: KafkaError) -> str:
    """Return an error in a few words, as a note."""
    text = " ".join(map(str, error.args)) if isinstance(error, BrokerResponseError) else str(error)
    return " ".join(text.split()) or type(error).__name__
