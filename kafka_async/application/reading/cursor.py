"""One assigned partition on the application's side: its position, and what comes next.

What comes next is kept in the order of the log: pieces that were taken from the data already (``ahead``), the data
that is being read, and parcels that are still unopened. The type of the first piece is the condition of the partition:

- ``Portion``: records that are ready. Part of them may have been handed out; the portion knows how many.
- ``Raw``: records that call-backs still have to see, or were seeing when the call that brought them was cancelled.
- ``Refusal``: a record that a deserializer refused. A read raises that, once, before anything after it.
- ``Failure``: the partition cannot go on from here, or not before the application knows why. A read raises it, once.
- ``Halted``: that was raised, and there is nothing more until a seek.
- no piece: what is next is still bytes, or not here yet.

So a look, a commit or a pause does not have to put anything back, and none of them changes what comes next.
"""

from collections import deque
from enum import Enum
from typing import Any, Final, TypeAlias
from uuid import UUID

from ...background.boundary import FetchedData, PartitionFailed, Repositioned
from ...errors import DeserializationError, KafkaError
from ...model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ...records import RecordReader
from ...values import define, field, frozen
from .iteration import Portion

Record = ConsumerRecord[Any, Any]
Standing: TypeAlias = tuple[int, int | None]
"""The next offset to hand out, and the leader epoch of the last record before it."""


class PartitionCustody(Enum):
    """Whether records of a partition may be handed out."""

    OURS = "records are returned"
    ARRIVING = "new: on_partitions_assigned has not returned yet"
    UNSUBSCRIBED = "its topic is not subscribed any more; the rebalance that takes it away is still to come"
    LEAVING = "a rebalance takes it away"
    ASIDE = "an eager rebalance took it away, and may bring it back as it is"


class PauseReason(Enum):
    """Why a partition is paused. Reasons come and go independently: it is read again once it has none."""

    USER = "the program called pause()"
    DELAY = "its next record is not due yet (``not_before`` of ``process``)"


NOT_PAUSED: Final = frozenset[PauseReason]()


@define(eq=False)
class Raw:
    """Records that call-backs have not seen, or have not finished with."""

    records: list[Record]
    start: Standing
    end: Standing
    made: list[Record] = field(factory=list)
    """What deserializers made of the first ones before the read that called them was cancelled: the next one goes on there."""


@frozen(eq=False)
class Refusal:
    """A record that cannot be deserialized."""

    error: DeserializationError
    start: Standing
    """The position of the record: a commit must not cover an error that was not raised yet."""


@frozen(eq=False)
class Failure:
    """What came in place of data."""

    error: KafkaError
    halts: bool
    topic_id: UUID | None = None
    """The topic that it is about."""


@frozen(eq=False)
class Halted:
    """Nothing is read until a seek; the error is raised again by reads that can return nothing else, and by others now and then."""

    error: KafkaError
    raised_at: float
    topic_id: UUID | None = None


Piece: TypeAlias = Portion[Record] | Raw | Refusal | Failure | Halted
OTHER_PIECES: Final = (Raw, Refusal, Failure, Halted)
"""All but portions, which have two implementations."""


def standing_in(portion: "Portion[Record]") -> Standing:
    """Return the position in a portion that was handed out in part."""
    if not portion.place:
        return portion.start
    if portion.place >= len(portion.records):
        return portion.end
    last = portion.records[portion.place - 1]
    return last.offset + 1, last.leader_epoch


@define(eq=False)
class Stored:
    """What was committed of a partition of one topic. It begins with nothing, as another object, if a topic is created again under
    the name, and if the position was moved elsewhere: then the answer to a commit that was sent before says nothing about it.
    """

    topic_id: UUID | None = None
    """The topic that was read last; ``None`` if it has no id, or nothing was read yet."""
    committed: int | None = None
    """What was committed last, by this consumer or where it began; ``None``: nothing, or the position was moved elsewhere since."""
    attempted: int | None = None
    """The offset it tried to commit last. The answer may be on its way, so nothing below it is committed either."""
    begins: int | None = None
    """Where reading began if the group had stored nothing; ``None`` once it has, or after the position was moved elsewhere."""


@frozen(eq=False)
class Beginning:
    """Where reading of a partition began, after the assignment, a seek or a reset. Each is another one, also at the same offset."""

    offset: int
    is_cut: bool = False
    """The log was cut off here, below what had been read: nobody asked for that."""


@define(eq=False)
class Cursor:
    """One assigned partition."""

    partition: TopicPartition
    stamp: int
    """Number of the position that the application gave the partition last: grows with each assignment and seek."""
    custody: PartitionCustody = PartitionCustody.OURS
    paused: frozenset[PauseReason] = NOT_PAUSED
    """Why nothing of it is handed out or fetched. It goes on once the last reason has gone."""
    beginning: Beginning | None = None
    """Where reading began after the assignment or the last seek; records handed out before that do not count for this cursor."""
    taken_to: Standing | None = None
    """The position past everything that was taken from the data; ``None`` until the background found one."""
    ahead: deque[Piece] = field(factory=deque)
    reader: RecordReader | None = None
    data: FetchedData | None = None
    """What is being read; its bytes are released when they are used up. Without a ``reader``, a new one goes on at ``taken_to``."""
    parcels: deque[FetchedData | Repositioned | PartitionFailed] = field(factory=deque)
    corrupt_at: int | None = None
    """Offset at which data was found corrupt and fetched again."""
    until: int | None = None
    """End of the range that is read (``ranges.py``): nothing from there on is handed out as columns."""
    stored: Stored = field(factory=Stored)
    passed_records: int = 0
    """Records handed out, except those of portions that are still in ``ahead``."""
    sought: OffsetAndMetadata | None = None
    """Where the application has sought to, for ``process`` to look at."""

    def place(self, standing: Standing | None, *, is_cut: bool = False) -> None:
        """Begin to read at another position, or at the first one that was found. ``is_cut``: see ``Beginning``."""
        self.taken_to = standing
        self.beginning = None if standing is None else Beginning(standing[0], is_cut)

    def belong(self, topic_id: UUID | None) -> None:
        """What comes next belongs to this topic."""
        known = self.stored.topic_id
        if known is topic_id or topic_id is None or known == topic_id:
            return
        if known is None:
            self.stored.topic_id = topic_id
        else:
            self.stored, self.corrupt_at = Stored(topic_id), None

    def meant(self) -> UUID | None:
        """Return the topic that the application means once an error was raised that another one has the name now."""
        piece = self.ahead[0] if self.ahead else None
        return piece.topic_id if isinstance(piece, Halted) else None

    def is_of(self, topic_id: UUID | None) -> bool:
        """Whether this may be the topic that was read last; if not, one of them was deleted."""
        return None in (topic_id, self.stored.topic_id) or topic_id == self.stored.topic_id

    def forget_stored(self) -> None:
        """The position was moved elsewhere: what was committed says nothing about what comes now."""
        self.stored = Stored(self.stored.topic_id)

    def follow(self, moved: Repositioned) -> None:
        """Move to the background's position. Committing a committed offset again would erase its metadata."""
        self.belong(moved.topic_id)
        if moved.is_committed and self.stored.committed is None:
            self.stored.committed = moved.offset
        if moved.is_first:
            self.stored.begins = moved.offset
        is_cut = self.taken_to is not None and moved.offset < self.taken_to[0]
        self.place((moved.offset, moved.leader_epoch), is_cut=is_cut)

    def front(self) -> Piece | None:
        """Return the piece that comes next; portions that were handed out to their ends are passed."""
        while self.ahead:
            piece = self.ahead[0]
            if isinstance(piece, OTHER_PIECES) or piece.place < len(piece.records):
                return piece
            self.pass_front()
        return None

    def pass_front(self) -> None:
        """Drop the first piece."""
        piece = self.ahead.popleft()
        if not isinstance(piece, OTHER_PIECES):
            self.passed_records += piece.place

    @property
    def consumed_records(self) -> int:
        """Records handed out."""
        if not self.ahead:
            return self.passed_records
        portions = [piece for piece in tuple(self.ahead) if not isinstance(piece, OTHER_PIECES)]
        return self.passed_records + sum(portion.place for portion in portions)

    @property
    def standing(self) -> Standing | None:
        """The position: the next offset to hand out, with the leader epoch before it; ``None`` if there is none yet.

        Changes nothing, so any thread may ask.
        """
        for piece in tuple(self.ahead):
            if _is_spent(piece):
                continue
            if isinstance(piece, (Raw, Refusal)):
                return piece.start
            if isinstance(piece, (Failure, Halted)):
                break
            return standing_in(piece)
        return self.taken_to

    @property
    def waits_at_commit(self) -> bool:
        """Nothing was read of it yet, and all that the background has said of its position is that it is the committed offset."""
        first = self.parcels[0] if self.parcels else None
        is_committed = isinstance(first, Repositioned) and first.is_committed
        return is_committed and all(isinstance(parcel, FetchedData) for parcel in tuple(self.parcels)[1:])

    @property
    def begun_at(self) -> int | None:
        """The offset at which reading began."""
        return None if self.beginning is None else self.beginning.offset

    @property
    def position(self) -> int | None:
        """The next offset to hand out."""
        standing = self.standing
        return None if standing is None else standing[0]

    @property
    def leader_epoch(self) -> int | None:
        """Leader epoch of the last record before the position; ``None`` if unknown."""
        standing = self.standing
        return None if standing is None else standing[1]

    @property
    def to_commit(self) -> OffsetAndMetadata | None:
        """The position as it is committed."""
        standing = self.standing
        return None if standing is None else OffsetAndMetadata(standing[0], "", standing[1], self.stored.topic_id)

    @property
    def is_readable(self) -> bool:
        """Whether its records may be handed out."""
        return self.custody is PartitionCustody.OURS and not self.paused

    @property
    def is_halted(self) -> bool:
        return bool(self.ahead) and isinstance(self.ahead[0], Halted)

    @property
    def problem(self) -> KafkaError | None:
        """Why nothing more of it is read, whether that was raised already or not. From any thread."""
        first = next((piece for piece in tuple(self.ahead) if not _is_spent(piece)), None)
        return first.error if isinstance(first, (Failure, Halted)) else None

    @property
    def has_more(self) -> bool:
        """Whether a read may find something, even if only an error."""
        return self.front() is not None or self.data is not None or bool(self.parcels)

    def discard_ahead(self) -> None:
        """Forget the pieces: the position was moved elsewhere, or the partition is gone."""
        while self.ahead:
            piece = self.ahead[0]
            self.pass_front()
            if not isinstance(piece, OTHER_PIECES):
                piece.discard()


def _is_spent(piece: Piece) -> bool:
    return not isinstance(piece, OTHER_PIECES) and piece.place >= len(piece.records)
