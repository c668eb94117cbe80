"""The one way of a commit, whoever wants it: begun, answered, booked, reported, and passed to the interceptors.

The others only choose offsets.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ...background.by_topic import named
from ...errors import CommitFailedError, KafkaError, TopicRecreatedError
from ...events import Call, CommitOffsets, Refusals
from ...model import OffsetAndMetadata, TopicPartition
from ...trace import Fault, Listener, Recovered
from ...values import define, field, frozen
from ..callbacks import settled
from ..outbox import Outbox
from ..reading.cursor import Cursor, PartitionCustody, Stored
from ..reading.unread import Unread

if TYPE_CHECKING:
    from ..lifecycle.runtime import Runtime

AUTO_COMMIT: Final = "auto-commit"
"""The outage while the cluster refuses auto-commits by interval."""

NO_ANSWER: Final = "no broker has answered in time"
"""Why a commit failed that was under way at the end."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Why(Enum):
    """Why offsets are committed. A value is what the log says if they cannot be, to an application that did not ask for it."""

    CALLER = "offsets could not be committed"
    """The application asked for it: it gets the error, and nothing is logged."""
    INTERVAL = "auto-commit failed; trying again"
    LEAVING = "consumed offsets could not be committed"
    """Partitions leave in a rebalance, or the consumer stops."""
    GIVEN_UP = "consumed offsets of partitions that were given up could not be committed"
    """``unsubscribe`` and ``assign``, which do not wait. What they commit counts as committed at once: nothing tries it again."""


@frozen(eq=False)
class Commit:
    """A commit under way."""

    why: Why
    offsets: Offsets
    call: Call[Refusals]
    beginnings: Offsets = field(factory=dict)
    """What is sent along; nobody is told what becomes of it. See ``Commits._beginnings``."""
    stored: Mapping[TopicPartition, Stored] = field(factory=dict)
    """Where it is booked. A partition that has another by then was sought in, or is ours anew."""

    @property
    def done(self) -> bool:
        return self.call.done

    @property
    def failure(self) -> KafkaError | None:
        """The error of a commit that is done, if it says nothing about single partitions."""
        try:
            self.call.result()
        except KafkaError as error:
            return error
        return None


def _to_tell(refused: Refusals) -> Refusals:
    """Return what the caller has to know of. That an offset of a deleted topic was dropped is said in the log."""
    return {partition: error for partition, error in refused.items() if not isinstance(error, TopicRecreatedError)}


def refusal(refused: Refusals) -> KafkaError:
    """Return the error for a commit in which these partitions were refused; it names those that are not assigned to us (any
    more).
    """
    lost = tuple(sorted(partition for partition, error in refused.items() if isinstance(error, CommitFailedError)))
    first = next(iter(refused.values()))
    if not lost:
        return first
    text = f"not assigned to this member (any more), so their offsets were not committed: {named(lost)}"
    failed = CommitFailedError(text, lost)
    failed.__cause__ = next((error for error in refused.values() if not isinstance(error, CommitFailedError)), first)
    return failed


def _cause(refused: Refusals) -> KafkaError:
    """Return the one error of a whole commit, or else what ``refusal`` does."""
    first, *others = refused.values()
    return first if all(error is first for error in others) else refusal(refused)


@define(eq=False)
class Commits:
    """The commits of one consumer."""

    unread: Unread = field(repr=False)
    runtime: "Runtime" = field(repr=False)
    outbox: Outbox = field(repr=False)
    interceptors: tuple[Any, ...]
    trace: Listener = field(repr=False)
    achieved: deque[tuple[Offsets, Iterator[Any]]] = field(factory=deque, init=False)
    """What was committed, and the interceptors that do not know it yet. Every read looks at it, so it is not a method."""
    _refused: set[TopicPartition] = field(factory=set, init=False)
    """Partitions of ours whose last auto-commit was refused."""
    _told: dict[TopicPartition, Commit] = field(factory=dict, init=False)
    """The commit with which the beginning of a partition was sent last, while that is under way."""

    def fresh(self, consumed: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the consumed offsets that are past the committed ones."""
        return {partition: offset for partition, offset in consumed.items() if self._is_fresh(partition, offset)}

    def _is_fresh(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bool:
        cursor = self.unread.partitions.get(partition)
        if cursor is None:
            return True
        return offset.offset > (-1 if cursor.stored.committed is None else cursor.stored.committed) and offset.offset >= (
            cursor.stored.attempted or 0
        )

    def begin(self, offsets: Offsets, why: Why, deadline: float, *, once: bool = False) -> Commit:
        """Send ``offsets`` on their way. ``deadline``: seconds of the loop's clock.

        ``once``: also for a caller the first answer about a partition is final.
        """
        beginnings = self._beginnings(offsets) if why is Why.CALLER else {}
        sent = {**beginnings, **offsets}
        stored = {partition: self.unread.partitions[partition].stored for partition in sent if partition in self.unread.partitions}
        for partition in offsets.keys() & stored.keys():
            stored[partition].attempted = offsets[partition].offset
        commit = Commit(why, offsets, Call(deadline, self.runtime.wake_application), beginnings, stored)
        if beginnings:
            under_way = {partition: other for partition, other in self._told.items() if not other.done}
            self._told = {**under_way, **dict.fromkeys(beginnings, commit)}
        once, along = once or why is not Why.CALLER, frozenset(beginnings)
        self.outbox.add(CommitOffsets(call=commit.call, offsets=sent, once=once, along=along))
        if why is Why.GIVEN_UP:
            self.book(offsets)
        return commit

    def _beginnings(self, committed: Collection[TopicPartition]) -> Offsets:
        """Return where reading of those other partitions began of which the group has nothing stored.

        They go along with a commit of the application, so that whoever is given one of them next knows that it was there
        (promise 15): otherwise it would count as new once others of its topic have an offset.

        Not where an offset was sent already, answered or not: the beginning would come after it and take it back.
        """
        if not self.unread.config.tells_new_partitions:
            return {}
        others = {
            tp: cursor
            for tp, cursor in self.unread.partitions.items()
            if tp not in committed and cursor.custody is PartitionCustody.OURS
        }
        self.unread.locate_all(others.values())  # also what nothing was read of yet has begun
        return {
            partition: OffsetAndMetadata(cursor.stored.begins, "", None, cursor.stored.topic_id)
            for partition, cursor in others.items()
            if cursor.stored.begins is not None and cursor.stored.attempted is None
            if not self._is_being_told(partition, cursor)
        }

    def _is_being_told(self, partition: TopicPartition, cursor: Cursor) -> bool:
        """Whether the beginning of a partition is on its way: commits that are made meanwhile need not wait for it."""
        commit = self._told.get(partition)
        return commit is not None and not commit.done and commit.stored.get(partition) is cursor.stored

    def end(self, commit: Commit) -> Refusals:
        """Book and report what became of a commit that is done. Return what the application has to know, if it asked for it.

        Of a commit with a ``failure`` nothing is known about single partitions.
        """
        try:
            outcome = commit.call.result()
        except KafkaError as error:
            self.fail(commit, error)
            return {}
        self._book_answer(
            commit, {partition: offset for partition, offset in commit.beginnings.items() if partition not in outcome}
        )
        refused = {partition: error for partition, error in outcome.items() if partition in commit.offsets}
        if achieved := {partition: offset for partition, offset in commit.offsets.items() if partition not in refused}:
            self.achieved.append((achieved, iter(self.interceptors)))
        told = _to_tell(refused)
        if commit.why is not Why.GIVEN_UP:  # booked when it began; the partitions may be ours anew
            # What was dropped needs no other attempt.
            self._book_answer(commit, {partition: offset for partition, offset in commit.offsets.items() if partition not in told})
        if commit.why is Why.INTERVAL:
            self._report_interval(commit, refused)
        elif commit.why is not Why.CALLER and told:
            self._report(f"some {commit.why.value}", refusal(told))
        return told

    def fail(self, commit: Commit, error: KafkaError) -> KafkaError:
        """Report a commit of which nothing is known; return the error."""
        if commit.why is Why.INTERVAL and not error.retriable:
            self._report_interval(commit, dict.fromkeys(commit.offsets, error))
        elif commit.why is not Why.CALLER:
            self._report(commit.why.value, error)
        return error

    def _book_answer(self, commit: Commit, offsets: Offsets) -> None:
        """As ``book``, but not where reading began anew meanwhile, since what is read again would not be committed up to there, and
        not where a later commit was begun, which may have been answered and booked.
        """
        now = {tp: cursor.stored for tp in offsets if (cursor := self.unread.partitions.get(tp)) is not None}
        same = {tp: offset for tp, offset in offsets.items() if tp in now and commit.stored.get(tp, now[tp]) is now[tp]}
        self.book({tp: offset for tp, offset in same.items() if now[tp].attempted in (None, offset.offset)})

    def book(self, offsets: Offsets) -> None:
        """Remember that ``offsets`` are committed."""
        for partition, offset in offsets.items():
            cursor = self.unread.partitions.get(partition)
            if cursor is not None and cursor.is_of(offset.topic_id):
                cursor.stored.committed, cursor.stored.begins = offset.offset, None

    async def intercept(self) -> None:
        """Pass what was committed to the interceptors. Raises what one raises.

        The next call goes on with the interceptor after that one, also if this one is cancelled.
        """
        while self.achieved:
            entry = offsets, left = self.achieved[0]
            for interceptor in left:
                await settled(interceptor.on_commit(offsets), f"{interceptor!r}.on_commit()")
            if self.achieved and self.achieved[0] is entry:  # else another task has come to its end
                self.achieved.popleft()

    def _report(self, text: str, error: KafkaError) -> None:
        """Report that a commit that the caller did not ask for failed; it stops nothing."""
        self.trace(Fault(now=self.runtime.clock(), text=text, error=error, subject="commit"))

    def _report_interval(self, commit: Commit, refused: Refusals) -> None:
        """Report the refused offsets of an auto-commit by interval, and that those refused before are committed."""
        told = _to_tell(refused)
        # Of a partition that has left meanwhile nothing is tried again, and nothing would end an outage.
        gone = {
            partition: error
            for partition, error in told.items()
            if isinstance(error, CommitFailedError) or partition not in self.unread.partitions
        }
        denied = {partition: error for partition, error in told.items() if partition not in gone}
        now, well = self.runtime.clock(), frozenset(commit.offsets.keys() - refused.keys()) & self._refused
        self._refused = (self._refused - well) | denied.keys()
        if denied:
            text = "auto-commit was refused; trying again at the next interval"
            error, partitions = _cause(denied), frozenset(denied)
            self.trace(Fault(now=now, text=text, error=error, subject="commit", outage=AUTO_COMMIT, partitions=partitions))
        if gone:
            text = "auto-commit was refused; records since the last commit may be read again"
            self.trace(Fault(now=now, text=text, error=_cause(gone), subject="commit", partitions=frozenset(gone)))
        if well:
            self.trace(Recovered(now=now, outage=AUTO_COMMIT, subject="commit", partitions=well))
