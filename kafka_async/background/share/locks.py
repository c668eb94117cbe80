"""The locks that this member holds on records: until when, and which of them are to be renewed (KIP-932, KIP-1222).

A lock's time is counted from when the request that brought it was sent, so that it ends here before it ends at the broker. It is
looked at once half of its time is over. Until then, what the application does with its record need not be known.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import Final
from uuid import UUID

from ...model import TopicPartition
from ...values import define, evolve, field, frozen
from ...wire.messages import AcquiredRecords
from .orders import Keep

_TOGETHER: Final = 0.125
"""Share of a lock's duration by which it may be renewed early, together with others."""


_call: Final = attrgetter("call")


@frozen(eq=False)
class Lock:
    """How records of one delivery are locked.

    Records in the same state share one: a lock for each would keep Python's garbage collector busy. So it never changes; what
    happens to some of the records gives them another one.
    """

    number: int
    """Of the delivery that brought it."""
    since: float
    deadline: float
    keep: Keep = Keep.UNREAD
    call: int = 0
    """The read call that returned the record with others."""
    acknowledged: bool = False
    """The record was acknowledged; the broker has not answered yet."""
    _turned: "dict[tuple[Keep, int, bool], Lock]" = field(factory=dict, init=False, repr=False)
    """What it was turned into before: the records of a delivery are handed out and acknowledged one by one."""

    def is_renewed(self, calls: Collection[int]) -> bool:
        """Whether it is renewed if the application works on records of these read calls."""
        return self.call in calls if self.keep is Keep.WAITING else self.keep is not Keep.ALONE

    def turned(self, keep: Keep, call: int, acknowledged: bool) -> "Lock":
        """Return the lock in another state."""
        state = keep, call, acknowledged
        found = self._turned.get(state)
        if found is None:
            found = self._turned[state] = Lock(self.number, self.since, self.deadline, *state)
        return found


@define(eq=False)
class PartitionLocks:
    """The locks on one partition's records, all of them given by one broker."""

    topic_id: UUID
    node_id: int
    by_offset: dict[int, Lock] = field(factory=dict)


@define(eq=False)
class Locks:
    """Every lock of this member."""

    longest: float
    """Seconds for which a lock is renewed automatically."""
    duration: float = field(default=30.0, init=False)
    """Seconds that a lock lasts, as the brokers last reported."""
    partitions: dict[TopicPartition, PartitionLocks] = field(factory=dict, init=False)
    renewal_at: float = field(default=inf, init=False)
    """When the first lock is to be renewed, at the earliest."""
    ends_at: float = field(default=inf, init=False)
    """When the first lock ends, at the earliest."""
    _active: dict[int, float] = field(factory=dict, init=False)
    """When a record of a read call was last acknowledged, or all of them handed out."""
    _releases: list[tuple[float, TopicPartition, int, int]] = field(factory=list, init=False)
    """Heap of records that are to be released later: when, partition, number and offset."""

    def held(self, partition: TopicPartition, offsets: Iterable[int], number: int) -> dict[int, Lock]:
        """Return the locks of delivery ``number`` on these offsets that we still have and whose records are not acknowledged."""
        held = self.partitions.get(partition)
        if held is None:
            return {}
        get = held.by_offset.get
        return {
            offset: lock
            for offset in offsets
            if (lock := get(offset)) is not None and lock.number == number and not lock.acknowledged
        }

    def acknowledge(self, partition: TopicPartition, offsets: Iterable[int], number: int, now: float = 0.0) -> dict[int, Lock]:
        """The application has acknowledged these records: return the locks of those that are still ours."""
        held = self.held(partition, offsets, number)
        locks = self._change(partition, held, lambda lock: lock.turned(lock.keep, lock.call, True))
        self.active(locks.values(), now)
        return locks

    def active(self, locks: Iterable[Lock], now: float) -> None:
        """The application works on records of the same read calls."""
        for call in set(map(_call, locks)):
            if call:
                self._active[call] = now

    def _change(self, partition: TopicPartition, locks: Mapping[int, Lock], change: Callable[[Lock], Lock]) -> dict[int, Lock]:
        """Replace some locks by changed ones, and return these."""
        changed: dict[int, Lock] = {}
        former = latter = None
        for offset, lock in locks.items():
            if lock is not former or latter is None:  # neighbours share theirs
                former, latter = lock, change(lock)
            changed[offset] = latter
        if changed:
            self.partitions[partition].by_offset.update(changed)
        return changed

    def add(self, partition: TopicPartition, held: PartitionLocks, offsets: Iterable[int], number: int, since: float) -> float:
        """Take over locks that began at ``since``; return when they end."""
        deadline = since + self.duration
        known = self.partitions.get(partition)
        if known is None or (known.topic_id, known.node_id) != (held.topic_id, held.node_id):
            known = self.partitions[partition] = held
        known.by_offset.update(dict.fromkeys(offsets, Lock(number, since, deadline)))
        self.renewal_at = min(self.renewal_at, since + self.duration / 2)
        self.ends_at = min(self.ends_at, deadline)
        return deadline

    def remove(self, partition: TopicPartition, locks: Mapping[int, Lock]) -> None:
        """Their records are settled."""
        held = self.partitions.get(partition)
        if held is not None:
            by_offset = held.by_offset
            for offset, lock in locks.items():
                current = by_offset.get(offset)
                if current is not None and current.number == lock.number:
                    del by_offset[offset]

    def forget(self, partition: TopicPartition) -> list[tuple[int, Lock]]:
        """Give up the locks of a partition whose broker does not know them any more; return those that were not acknowledged."""
        held = self.partitions.pop(partition, None)
        return [(offset, lock) for offset, lock in held.by_offset.items() if not lock.acknowledged] if held is not None else []

    def supersede(self, partition: TopicPartition, ranges: Sequence[AcquiredRecords]) -> list[tuple[int, Lock]]:
        """Give up the locks on offsets that are locked for us again; return those that were not acknowledged."""
        held = self.partitions.get(partition)
        if held is None or not ranges or max(held.by_offset, default=-1) < min(batch.first_offset for batch in ranges):
            return []
        again = [o for o in held.by_offset if any(batch.first_offset <= o <= batch.last_offset for batch in ranges)]
        former = [(offset, held.by_offset.pop(offset)) for offset in again]
        return [(offset, lock) for offset, lock in former if not lock.acknowledged]

    def given_by(self, node_id: int) -> list[TopicPartition]:
        """Return the partitions on which a broker has given us locks."""
        return [partition for partition, held in self.partitions.items() if held.node_id == node_id and held.by_offset]

    @property
    def are_out(self) -> bool:
        """Some record is locked."""
        return any(held.by_offset for held in self.partitions.values())

    def due(self, now: float) -> Iterator[tuple[TopicPartition, PartitionLocks, dict[int, Lock]]]:
        """Yield, by partition, the locks that are to be renewed now."""
        if self.renewal_at > now:
            return
        soon = now + self.duration * _TOGETHER
        self.renewal_at = inf
        calls = self._calls_at_work(now)
        for partition, held in self.partitions.items():
            chosen = {}
            for offset, lock in held.by_offset.items():
                if lock.acknowledged or self.is_over(lock, now):
                    continue
                at = lock.deadline - self.duration / 2
                if at <= soon and lock.is_renewed(calls):
                    chosen[offset] = lock
                elif at > now:  # until then the application need not say that it works on the record
                    self.renewal_at = min(self.renewal_at, at)
                elif lock.keep is Keep.WAITING and now < lock.deadline:  # the application may yet go on with the others
                    self.renewal_at = min(self.renewal_at, soon)
            if chosen:
                yield partition, held, chosen

    def is_over(self, lock: Lock, now: float) -> bool:
        """Whether the time for which a lock is renewed automatically is over."""
        return now >= lock.since + self.longest

    def _calls_at_work(self, now: float) -> set[int]:
        """Return the read calls of whose records one is worked on, or was acknowledged not long ago."""
        self._active = {call: at for call, at in self._active.items() if now < at + self.duration}
        held = {lock.call for each in self.partitions.values() for lock in each.by_offset.values() if lock.keep is Keep.HELD}
        return held | self._active.keys()

    def give_up_unread(self) -> Iterator[tuple[TopicPartition, PartitionLocks, dict[int, Lock]]]:
        """Yield, by partition, the locks of records that nobody has read. They are forgotten."""
        for partition, held in self.partitions.items():
            by_offset = held.by_offset
            unread = {offset: lock for offset, lock in by_offset.items() if lock.keep is Keep.UNREAD and not lock.acknowledged}
            for offset in unread:
                del by_offset[offset]
            if unread:
                yield partition, held, unread

    def release_later(self, partition: TopicPartition, number: int, offset: int, at: float) -> None:
        """Keep a record locked until it is to be released."""
        self.keep(partition, number, (offset,), kept=True)
        heappush(self._releases, (at, partition, number, offset))

    def releases(self, now: float) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yield partition, number and offset of the records that are to be released now."""
        while self._releases and self._releases[0][0] <= now:
            yield heappop(self._releases)[1:]

    @property
    def releases_at(self) -> float:
        """When the next record is to be released."""
        return self._releases[0][0] if self._releases else inf

    def renewed(self, partition: TopicPartition, locks: Mapping[int, Lock], at: float) -> dict[int, Lock]:
        """A broker has renewed these locks; return what they are now. Their records may have been acknowledged meanwhile."""
        held = self.partitions.get(partition)
        if held is None:
            return {}
        get = held.by_offset.get
        current = {o: now for o, lock in locks.items() if (now := get(o)) is not None and now.number == lock.number}
        renewed = self._change(partition, current, lambda lock: evolve(lock, deadline=at + self.duration))
        self.renewal_at = min(self.renewal_at, at + self.duration / 2)
        return renewed

    def keep(self, partition: TopicPartition, number: int, offsets: Iterable[int], *, kept: bool) -> None:
        """Renew these locks automatically from now on, since a task works on their records, or stop doing so."""
        keep = Keep.HELD if kept else Keep.ALONE
        held = self.held(partition, offsets, number)
        changed = self._change(partition, held, lambda lock: lock.turned(keep, lock.call, lock.acknowledged))
        if kept:
            for lock in changed.values():
                self.look_at(lock)

    def handed_out(self, partition: TopicPartition, number: int, offsets: Iterable[int], keep: Keep, call: int, now: float) -> None:
        """The application has these records."""
        held = self.held(partition, offsets, number)
        changed = self._change(partition, held, lambda lock: lock.turned(keep, call, lock.acknowledged))
        self.active(changed.values(), now)

    def look_at(self, lock: Lock) -> None:
        """The lock has changed: it may have to be renewed."""
        self.renewal_at = min(self.renewal_at, lock.deadline - self.duration / 2)

    def ended(self, now: float) -> Iterator[tuple[TopicPartition, list[tuple[int, Lock]]]]:
        """Yield, by partition, the locks that have ended and whose records were not acknowledged. They are forgotten."""
        if self.ends_at > now:
            return
        self.ends_at = inf
        for partition, held in self.partitions.items():
            over = []
            for offset, lock in held.by_offset.items():
                if lock.acknowledged:
                    continue
                if lock.deadline <= now:
                    over.append((offset, lock))
                else:
                    self.ends_at = min(self.ends_at, lock.deadline)
            for offset, _ in over:
                del held.by_offset[offset]
            if over:
                yield partition, over
