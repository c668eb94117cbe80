"""Acknowledgements on their way to one broker: what goes into the next request, and what a response means for each (KIP-932).

A broker's success is not always true. It accepts acknowledgements of offsets below the group's start offset without checking who
holds or held them (``SharePartition.acknowledge``), and the start offset moves past records that another member accepted. So a
success counts only if no other member can have had the record: its lock had not ended when the response came, and the connection
that locked it has not broken. One case is left. When the leadership of a partition moves, its locks are gone. We do not notice if
it returns to the same broker before a request of ours about the partition reaches the other leader. If another member accepted
the record meanwhile, and the start offset has moved past it, both members get a success. The protocol does not show this: share
requests have no leader epoch, their responses have one only together with an error, and metadata comes too late to vouch for an
acknowledgement. A reader asks about all its partitions every 0.1 to 0.5 s, so leadership has to leave and return within that
time, or while nothing is read or acknowledged.

A broker takes all the acknowledgements of one partition in a request or none of them: one lock that has ended makes it refuse the
others, whose records stay locked. So refused acknowledgements are split in halves that are sent again, each in a request of its
own, until single ones are refused. A broker also refuses the renewals of a group that allows none
(``share.renew.acknowledge.enable``), with the same error. To ask about each of these would take two requests for every record, and
acknowledgements have to wait for them. So the first and the last one of refused renewals are sent by themselves, and if both are
refused, so are the others. Sources: ``SharePartition.acknowledge``; ``ShareConsumeRequestManager`` for the errors.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from math import inf
from typing import Final, TypeAlias
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import (
    FencedLeaderEpochError,
    InvalidRecordStateError,
    KafkaError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from ...model import TopicPartition
from ...values import define, field
from ...wire.messages import AcknowledgementBatch, AcquiredRecords
from ..loop.request_manager import retry_delay
from .locks import Lock
from .orders import AcknowledgeType

LINGER: Final = 0.02
"""How many seconds acknowledgements wait for further ones if no fetch takes them along."""

_ENDS: Final = 2
"""The first and the last of refused renewals tell of the others: as far apart as they are, one cause seldom spoils just these."""

_FINAL: Final = (NotLeaderOrFollowerError, FencedLeaderEpochError, UnknownTopicOrPartitionError, UnknownTopicIdError)
"""Retriable for a fetch, but the broker's locks are gone."""


Entry: TypeAlias = tuple[AcknowledgeType, Lock | None]
"""How a record is acknowledged, and its lock."""


@define(eq=False)
class RenewalTrial:
    """What came of renewals that were refused together, and are sent again in parts."""

    agreed: bool = False
    refused: int = 0
    """How many were refused one by one."""

    @property
    def is_in_vain(self) -> bool:
        """The group seems to allow no renewals."""
        return self.refused >= _ENDS and not self.agreed


@define(eq=False)
class AcknowledgementPortion:
    """Acknowledgements of one partition that are sent together."""

    partition: TopicPartition
    topic_id: UUID
    renewal: bool = False
    """Renews locks instead of settling records."""
    entries: dict[int, Entry] = field(factory=dict)
    """By offset. Gaps and records of no use to us have no lock; no caller waits for their result."""
    retry_at: float = 0.0
    failures: int = 0
    since: float = 0.0
    sent_at: float = 0.0
    """When it was last sent: locks that it renews last at least from then on."""
    sent_to: int | None = None
    """The broker to which it was last sent."""
    was_sent: KafkaError | None = None
    """Why it is not known whether a request that carried it was carried out."""
    doubt: KafkaError | None = None
    """Why the connection over which its records were locked was lost: others may have had them since."""
    awaited: float = inf
    """Number of the first flush that waits for it; infinity: none does."""
    trial: RenewalTrial | None = None
    """Of renewals that were refused before, together with others."""

    def batches(self) -> tuple[AcknowledgementBatch, ...]:
        """Return the entries as ranges of one type each, in ascending order."""
        found: list[AcknowledgementBatch] = []
        first = last = -2
        kind = AcknowledgeType.GAP
        for offset in sorted(self.entries):
            if offset == last + 1 and self.entries[offset][0] is kind:
                last = offset
                continue
            if first >= 0:
                found.append(AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(int(kind),)))
            first = last = offset
            kind = self.entries[offset][0]
        if first >= 0:
            found.append(AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(int(kind),)))
        return tuple(found)

    def part(self, offsets: Iterable[int]) -> "AcknowledgementPortion":
        """Return a portion of some of the entries."""
        entries = {offset: self.entries[offset] for offset in offsets}
        return AcknowledgementPortion(
            self.partition,
            self.topic_id,
            self.renewal,
            entries,
            since=self.since,
            was_sent=self.was_sent,
            doubt=self.doubt,
            awaited=self.awaited,
            trial=self.trial,
        )

    def is_of(self, partitions: Mapping[TopicPartition, UUID]) -> bool:
        """Whether it concerns one of these partitions. That of a topic which was made anew is another one."""
        return partitions.get(self.partition) == self.topic_id

    @property
    def is_ours(self) -> bool:
        """Nobody waits for its result."""
        return all(lock is None for _, lock in self.entries.values())


Settle = Callable[[AcknowledgementPortion, KafkaError | None, float], None]
"""Called with entries whose result is known, and with the reason if they do not count."""


@define(eq=False)
class Acknowledgements:
    """What is to be acknowledged at one broker."""

    config: ConsumerConfig
    settle: Settle = field(repr=False)
    patience: Callable[[], float] = field(repr=False)
    """Returns for how many seconds an acknowledgement is tried again: after the lock has ended it is of no use."""
    linger: Callable[[], float] = field(default=lambda: LINGER, repr=False)
    """Returns for how many seconds acknowledgements wait for further ones."""
    _fresh: dict[tuple[TopicPartition, bool], AcknowledgementPortion] = field(factory=dict, init=False)
    _again: deque[AcknowledgementPortion] = field(factory=deque, init=False)
    _due_at: float = field(default=0.0, init=False)
    """When fresh acknowledgements have waited long enough."""

    def __bool__(self) -> bool:
        return bool(self._fresh or self._again)

    def add(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        entries: Mapping[int, Entry],
        now: float,
        *,
        renewal: bool = False,
    ) -> None:
        """Have records acknowledged, or locks renewed."""
        if not self._fresh:
            self._due_at = now + self.linger()
        if renewal:
            self._due_at = now
        portion = self._fresh.get((partition, renewal))
        if portion is None or portion.topic_id != topic_id:
            if portion is not None:
                self._again.append(portion)
            portion = self._fresh[partition, renewal] = AcknowledgementPortion(partition, topic_id, renewal, since=now)
        portion.entries.update(entries)
        if not renewal:  # a record that is settled has no lock to renew
            self.renew_no_more(partition, entries)

    def renew_no_more(self, partition: TopicPartition, offsets: Container[int]) -> None:
        """Leave these records out of renewals that are not sent: a broker that has their locks would keep them for nobody."""
        renewals = [portion for portion in self._again if portion.renewal and portion.partition == partition]
        if (fresh := self._fresh.get((partition, True))) is not None:
            renewals.append(fresh)
        for portion in renewals:
            portion.entries = {offset: entry for offset, entry in portion.entries.items() if offset not in offsets}
        if not all(portion.entries for portion in renewals):
            self._drop_empty()

    def _drop_empty(self) -> None:
        self._fresh = {key: portion for key, portion in self._fresh.items() if portion.entries}
        self._again = deque(portion for portion in self._again if portion.entries)

    def renewed(self, partition: TopicPartition, locks: Mapping[int, Lock]) -> None:
        """These locks last longer. Their records may have been acknowledged meanwhile: those acknowledgements have more time."""
        for portion in self.portions:
            if portion.partition == partition and not portion.renewal:
                for offset in portion.entries.keys() & locks.keys():
                    kind, lock = portion.entries[offset]
                    if lock is not None and lock.number == locks[offset].number:
                        portion.entries[offset] = (kind, locks[offset])

    def hurry(self, now: float) -> None:
        """Somebody waits: send what there is."""
        self._due_at = min(self._due_at, now)

    def due_at(self) -> float:
        """Return when something must be sent even without a fetch; infinity if there is nothing to send."""
        times = [portion.retry_at for portion in self._again]
        if self._fresh:
            times.append(self._due_at)
        return min(times, default=inf)

    def has(self, now: float, *, renewals: bool) -> bool:
        """Some lock may be renewed now, or some record acknowledged."""
        fresh = any(renewal is renewals for _, renewal in self._fresh)
        return fresh or any(portion.renewal is renewals and portion.retry_at <= now for portion in self._again)

    def has_others(self, partitions: Mapping[TopicPartition, UUID]) -> bool:
        """Something concerns partitions other than these, which may be those of a former topic of the same name."""
        return not all(portion.is_of(partitions) for portion in self.portions)

    def take(self, now: float, *, renewal: bool, only: Mapping[TopicPartition, UUID] | None = None) -> list[AcknowledgementPortion]:
        """Return what goes into the next request, at most one portion of each partition; refused ones go first.

        ``only``: those of these partitions.
        """
        taken: dict[TopicPartition, AcknowledgementPortion] = {}
        kept: deque[AcknowledgementPortion] = deque()
        for portion in self._again:
            fits = (
                portion.renewal is renewal
                and portion.retry_at <= now
                and portion.partition not in taken
                and (only is None or portion.is_of(only))
            )
            if fits:
                taken[portion.partition] = portion
            else:
                kept.append(portion)
        self._again = kept
        for (partition, renews), portion in tuple(self._fresh.items()):
            if renews is renewal and partition not in taken and (only is None or portion.is_of(only)):
                del self._fresh[partition, renews]
                if portion.entries:
                    taken[partition] = portion
        return list(taken.values())

    def drop(self, why: Callable[[AcknowledgementPortion], KafkaError | None], now: float) -> None:
        """Settle those for which the broker cannot answer any more. ``why``: returns the reason, ``None`` if it still can."""
        fresh, again, dropped = (
            dict(self._fresh),
            deque[AcknowledgementPortion](),
            list[tuple[AcknowledgementPortion, KafkaError]](),
        )
        for portion in self._again:
            if (error := why(portion)) is None:
                again.append(portion)
            else:
                dropped.append((portion, error))
        for key, portion in self._fresh.items():
            if (error := why(portion)) is not None:
                dropped.append((fresh.pop(key), error))
        self._fresh, self._again = fresh, again
        for portion, error in dropped:
            self.settle(portion, _doubted(portion, error), now)

    def supersede(self, partition: TopicPartition, ranges: Sequence[AcquiredRecords], error: KafkaError, now: float) -> None:
        """These offsets are locked for us again: acknowledgements under the former locks must not affect the new ones."""
        first = min((batch.first_offset for batch in ranges), default=0)
        for portion in self.portions:
            if portion.partition != partition or max(portion.entries, default=-1) < first:
                continue
            again = [o for o in portion.entries if any(batch.first_offset <= o <= batch.last_offset for batch in ranges)]
            if again:
                former = portion.part(again)
                for offset in again:
                    del portion.entries[offset]
                self.settle(former, _doubted(former, error), now)
        self._drop_empty()

    def expire(self, now: float, error: KafkaError | None) -> float:
        """Give up acknowledgements that were tried for as long as locks last; return when to look again."""
        patience = self.patience()  # always added, here and below: a subtraction rounds differently, and the loop would spin
        late = [portion for portion in self.portions if portion.since + patience <= now]
        if late:
            self._fresh = {key: portion for key, portion in self._fresh.items() if portion.since + patience > now}
            self._again = deque(portion for portion in self._again if portion.since + patience > now)
        for portion in late:
            self.settle(portion, _doubted(portion, _too_late(error)), now)
        return min((portion.since for portion in self.portions), default=inf) + patience

    @property
    def portions(self) -> list[AcknowledgementPortion]:
        """What is not sent, or is to be sent again."""
        return [*self._again, *self._fresh.values()]

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def answered(self, portion: AcknowledgementPortion, error: KafkaError | None, now: float) -> None:
        """Take over the answer about a portion."""
        if error is None:
            self._agreed(portion, now)
        elif isinstance(error, InvalidRecordStateError):
            self._refused(portion, error, now)
        elif error.retriable and not isinstance(error, _FINAL):
            if portion.renewal:
                portion.entries = self._still_to_renew(portion, now)
                if not portion.entries:
                    return
            portion.retry_at = now + retry_delay(self.config, portion.failures)
            portion.failures += 1
            self._again.append(portion)
        else:
            self.settle(portion, error, now)

    def _still_to_renew(self, portion: AcknowledgementPortion, now: float) -> dict[int, Entry]:
        """Leave out locks that have ended and records that were acknowledged since it was sent (see ``renew_no_more``)."""
        said = [each.entries for each in self.portions if not each.renewal and each.partition == portion.partition]
        return {
            offset: entry
            for offset, entry in portion.entries.items()
            if entry[1] is not None and entry[1].deadline > now and not any(offset in entries for entries in said)
        }

    def again(self, portion: AcknowledgementPortion) -> None:
        """Its request was refused as a whole: it was not carried out, and is sent again."""
        self._again.append(portion)

    def unanswered(self, portion: AcknowledgementPortion, error: KafkaError, *, locks_gone: bool = True) -> None:
        """Whether its request was carried out is not known, so it is sent again. ``locks_gone``: others may have the records."""
        portion.was_sent = error
        portion.doubt = error if locks_gone else portion.doubt
        self._again.append(portion)

    def disconnected(self, error: KafkaError) -> None:
        """The connection over which the records were locked is gone. They may still be ours, so acknowledgements are sent."""
        waiting = [portion for portion in self.portions if not portion.renewal]
        self._fresh = {}
        self._again = deque(waiting)
        for portion in waiting:
            portion.doubt = portion.doubt or error

    def _agreed(self, portion: AcknowledgementPortion, now: float) -> None:
        """The broker reported success. That proves nothing for records that others may have had; these are settled separately."""
        if portion.trial is not None:
            portion.trial.agreed = True
        if portion.renewal or portion.is_ours:
            self.settle(portion, None, now)
        elif portion.doubt is not None:
            self.settle(portion, _unsure(portion.doubt), now)
        else:
            over = [offset for offset, (_, lock) in portion.entries.items() if lock is not None and lock.deadline <= now]
            if not over:
                self.settle(portion, None, now)
                return
            in_time = portion.entries.keys() - set(over)
            if in_time:
                self.settle(portion.part(sorted(in_time)), None, now)
            self.settle(portion.part(over), _unsure(None), now)

    def _refused(self, portion: AcknowledgementPortion, error: KafkaError, now: float) -> None:
        """Something in the portion does not count: find out what, so that the rest does."""
        over = [offset for offset, (_, lock) in portion.entries.items() if lock is not None and lock.deadline <= now]
        if portion.is_ours or len(portion.entries) == 1 or len(over) == len(portion.entries):
            self.settle(portion, _doubted(portion, error), now)
            if portion.trial is not None and not over:
                self._refused_alone(portion.trial, error, now)
            return
        if over:
            self.settle(portion.part(over), _doubted(portion, error), now)
        rest = sorted(portion.entries.keys() - set(over))
        middle = (len(rest) + 1) // 2
        parts = [rest] if over else [rest[:middle], rest[middle:]]
        if portion.renewal and portion.trial is None and not over:
            portion.trial = RenewalTrial()
            parts = [rest[:1], rest[-1:], rest[1:-1]]
        self._again.extendleft(portion.part(part) for part in reversed(parts) if part)

    def _refused_alone(self, trial: RenewalTrial, error: KafkaError, now: float) -> None:
        """A renewal was refused, of a lock that has not ended: perhaps there is no use in asking about the others."""
        trial.refused += 1
        if trial.is_in_vain:
            others = [portion for portion in self._again if portion.trial is trial]
            self._again = deque(portion for portion in self._again if portion.trial is not trial)
            for portion in others:
                self.settle(portion, error, now)


def _doubted(portion: AcknowledgementPortion, error: KafkaError) -> KafkaError:
    """Return the error of a refused portion. If it was sent before without an answer, it may have been carried out then."""
    if portion.was_sent is None:
        return error
    unsure = InvalidRecordStateError(f"{error}; it was sent before, and may have counted then: {portion.was_sent}")
    unsure.__cause__ = portion.was_sent
    return unsure


def _unsure(cause: KafkaError | None) -> KafkaError:
    """Return the error for a success that proves nothing."""
    why = "the lock had ended when the response came" if cause is None else f"the connection that locked it is gone: {cause}"
    error = InvalidRecordStateError(f"it is unknown whether it counts, since another member may have had the record: {why}")
    error.__cause__ = cause
    return error


def _too_late(cause: KafkaError | None) -> KafkaError:
    error = InvalidRecordStateError("the lock expired before the record's acknowledgement could be sent")
    error.__cause__ = cause
    return error
