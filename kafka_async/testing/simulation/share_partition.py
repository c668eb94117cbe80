"""What a share group knows about one partition's records: who holds which, how often each was delivered, which are done.

``now`` is an argument; locks are found to have ended when it is checked. Source: the behaviour of ``SharePartition`` in Kafka 4.4;
KIP-932, KIP-1191, KIP-1206, KIP-1222.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import groupby
from math import inf
from typing import Final, NamedTuple

from attrs import define, field

from ...wire.messages import AcknowledgementBatch, AcquiredRecords
from .dead_letters import REJECTED, TOO_OFTEN, GivenUp
from .log import PartitionLog, StoredBatch

INVALID_REQUEST, INVALID_RECORD_STATE = 42, 121
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class RecordState(Enum):
    """The state of an offset, as in Kafka's ``RecordState``."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    ACKNOWLEDGED = "acknowledged"
    ARCHIVED = "archived"


_S = RecordState
DONE: Final = (_S.ACKNOWLEDGED, _S.ARCHIVED)


@define(eq=False)
class InFlightOffset:
    """One offset."""

    state: RecordState = _S.AVAILABLE
    count: int = 0
    member: str = ""
    until: float = inf
    """When the lock ends."""


class Limits(NamedTuple):
    """Settings of the group."""

    lock: float = 30.0
    """Seconds."""
    deliveries: int = 5
    locks: int = 2000
    """Offsets from the first one that is not done to the last one that a member got: done ones between these count as well."""
    committed: bool = False
    """Records of aborted transactions are not delivered."""
    renews: bool = True
    """Locks may be renewed (KIP-1240)."""


class WantedRecords(NamedTuple):
    """What a fetch may take."""

    records: int
    size: int
    strict: bool
    """Take no more than ``records`` (KIP-1206)."""


@define(eq=False, repr=False)
class SharePartition:
    """One partition of one group."""

    start: int
    """Every record before it is done."""
    leader_epoch: int
    """Locks are not kept: the leader of another epoch knows none."""
    flight: dict[int, InFlightOffset] = field(factory=dict)
    """Offsets from ``start`` on that were delivered at least once."""
    end: int = field(init=False)
    """The last offset of the last batch of which a member got records; less than ``start`` if all of it is done."""
    given_up: list[GivenUp] = field(factory=list)
    """What was given up since the list was last taken."""
    _locked: dict[int, InFlightOffset] = field(factory=dict)
    """Those of ``flight`` that a member has: each request looks at their time, and thousands of others may be in flight."""
    _taken: set[int] = field(factory=set)
    """Those of ``flight`` that nobody can get: locked or done."""

    def __attrs_post_init__(self) -> None:
        self.end = self.start - 1

    # --- time ------------------------------------------------------------------------------------------------------------------

    def expire(self, now: float, limits: Limits) -> None:
        """End the locks whose time is over."""
        for offset, each in [(offset, each) for offset, each in self._locked.items() if each.until <= now]:
            self._give_back(offset, each, limits)
        self._advance()

    def next_deadline(self) -> float:
        """Return when the first lock ends."""
        return min((each.until for each in self._locked.values()), default=inf)

    @property
    def settled(self) -> int:
        """Records from ``start`` on that are done."""
        return sum(each.state in DONE for each in self.flight.values())

    def release(self, member: str, limits: Limits) -> None:
        """Take back what a member holds."""
        for offset, each in [(offset, each) for offset, each in self._locked.items() if each.member == member]:
            self._give_back(offset, each, limits)
        self._advance()

    def forget_locks(self) -> None:
        """Another leader has come. It knows of no lock, and of no delivery under one: only what became of these is written down."""
        for offset, each in list(self._locked.items()):
            each.state = _S.AVAILABLE
            each.count -= 1
            self._unlock(offset, each)
            if not each.count:
                del self.flight[offset]
        self.end = max(self.flight, default=self.start - 1)

    def take_given_up(self) -> list[GivenUp]:
        """Return what was given up, once."""
        found, self.given_up = self.given_up, []
        return found

    def _give_back(self, offset: int, each: InFlightOffset, limits: Limits) -> None:
        each.state = _S.ARCHIVED if each.count >= limits.deliveries else _S.AVAILABLE
        self._unlock(offset, each)
        if each.state is _S.ARCHIVED:
            self.given_up.append(GivenUp(offset, each.count, TOO_OFTEN))

    def _unlock(self, offset: int, each: InFlightOffset) -> None:
        each.member, each.until = "", inf
        del self._locked[offset]
        if each.state is _S.AVAILABLE:
            self._taken.discard(offset)

    def _advance(self) -> None:
        while self.start in self.flight and self.flight[self.start].state in DONE:
            del self.flight[self.start]
            self._taken.discard(self.start)
            self.start += 1

    def log_moved(self, log: PartitionLog) -> None:
        """Follow the start of the log."""
        if log.start > self.start:
            self._start_at(log.start)

    def _start_at(self, start: int) -> None:
        self.start = start
        for offset in [offset for offset in self.flight if offset < start]:
            del self.flight[offset]
            self._locked.pop(offset, None)
            self._taken.discard(offset)
        self._advance()

    # --- acquiring -------------------------------------------------------------------------------------------------------------

    def acquire(
        self, log: PartitionLog, member: str, wanted: WantedRecords, limits: Limits, now: float
    ) -> tuple[bytes, tuple[AcquiredRecords, ...]]:
        """Lock records for a member; return the batches that hold them, and which of their offsets the member gets."""
        found: list[bytes] = []
        ranges: list[AcquiredRecords] = []
        size, count = 0, 0
        room = limits.locks - max(0, self.end - self.start + 1)
        most = min(wanted.records, room) if room > 0 else wanted.records
        for batch in self._readable(log, limits):
            if count >= most or (room <= 0 and batch.base_offset > self.end):  # without room only what was given back can be had
                break
            free = [offset for offset in self._offsets(batch) if offset not in self._taken]
            if wanted.strict:
                free = free[: most - count]
            if not free:
                continue
            if found and size + len(batch.data) > wanted.size:
                break
            found.append(batch.data)
            size += len(batch.data)
            count += len(free)
            self.end = max(self.end, batch.last_offset)
            ranges += self._lock(free, member, now + limits.lock)
        return b"".join(found), tuple(ranges)

    def _readable(self, log: PartitionLog, limits: Limits) -> Iterator[StoredBatch]:
        end = log.last_stable_offset if limits.committed else log.high_watermark
        place = self.start
        for batch in log.between(self.start, end):
            self._skip(range(place, batch.base_offset))
            place = batch.last_offset + 1
            if limits.committed and log.is_aborted(batch):
                self._archive(self._offsets(batch))
                continue
            yield batch

    def _skip(self, gap: range) -> None:
        """Compaction has removed these offsets."""
        if gap and gap.start == self.start and not any(offset in gap for offset in self._locked):
            self._start_at(gap.stop)  # at once, as there may be very many
        else:
            self._archive(gap)

    def _archive(self, offsets: Iterable[int]) -> None:
        """Nobody can get these offsets: all that no member has are done, so that ``start`` can pass them."""
        for offset in offsets:
            if offset not in self._taken:
                self.flight[offset] = InFlightOffset(_S.ARCHIVED)
                self._taken.add(offset)
        self._advance()

    def _offsets(self, batch: StoredBatch) -> range:
        return range(max(batch.base_offset, self.start), batch.last_offset + 1)

    def _lock(self, offsets: Iterable[int], member: str, until: float) -> Iterator[AcquiredRecords]:
        for offset in offsets:
            each = self.flight.setdefault(offset, InFlightOffset())
            each.state, each.member, each.until = _S.ACQUIRED, member, until
            each.count += 1
            self._locked[offset] = each
            self._taken.add(offset)
        # Neighbours with the same delivery count make one range.
        for (_, count), run in groupby(enumerate(offsets), lambda at: (at[1] - at[0], self.flight[at[1]].count)):
            some = [offset for _, offset in run]
            yield AcquiredRecords(first_offset=some[0], last_offset=some[-1], delivery_count=count)

    # --- acknowledging ---------------------------------------------------------------------------------------------------------

    def acknowledge(
        self, member: str, batches: Iterable[AcknowledgementBatch], limits: Limits, now: float, *, renewals: bool
    ) -> int:
        """Accept acknowledgements, all or none; return the error code."""
        results: dict[int, int] = {}
        last = -1
        for batch in batches:
            offsets = range(batch.first_offset, batch.last_offset + 1)
            types = batch.acknowledge_types
            if not offsets or batch.first_offset <= last or len(types) not in (1, len(offsets)):
                return INVALID_REQUEST
            if any(not GAP <= kind <= (RENEW if renewals else REJECT) for kind in types):
                return INVALID_REQUEST
            if RENEW in types and not limits.renews:
                return INVALID_RECORD_STATE
            last = batch.last_offset
            kinds = types * len(offsets) if len(types) == 1 else types
            results |= {offset: kind for offset, kind in zip(offsets, kinds, strict=True) if offset >= self.start}
        for offset in results:
            known = self.flight.get(offset)
            if known is None and offset > self.end:
                return INVALID_REQUEST
            if known is None or known.state is not _S.ACQUIRED or known.member != member:
                return INVALID_RECORD_STATE
        for offset, kind in results.items():
            self._settle(offset, kind, limits, now)
        self._advance()
        return 0

    def _settle(self, offset: int, kind: int, limits: Limits, now: float) -> None:
        each = self.flight[offset]
        if kind == RENEW:
            each.until = now + limits.lock
        elif kind == RELEASE:
            self._give_back(offset, each, limits)
        else:
            each.state = _S.ACKNOWLEDGED if kind == ACCEPT else _S.ARCHIVED
            if kind == REJECT:
                self.given_up.append(GivenUp(offset, each.count, REJECTED))
            self._unlock(offset, each)
