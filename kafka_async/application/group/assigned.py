"""The partitions that are assigned, as calls see them: where each stands, and where it is to go on.

While the call-back of ``unsubscribe`` runs, only it sees the partitions that are given up. All may commit them: they are ours until
it returns, and it may wait for tasks that are about to.
"""

from collections.abc import Callable, Collection
from typing import Final
from uuid import UUID

from ...errors import IllegalStateError
from ...model import OffsetAndMetadata, TopicPartition
from ...values import define, field
from ..arguments import one_partition, partition_set
from ..reading.cursor import Cursor, PartitionCustody, PauseReason
from ..reading.unread import Unread
from .rebalancing import Rebalancing

LOOKED_UP: Final = {"earliest": OffsetAndMetadata(-1), "latest": OffsetAndMetadata(2**63 - 1)}
"""Where a seek goes whose offset has to be looked up: before or after all offsets, where no commit is."""


@define(eq=False)
class AssignedPartitions:
    """The assignment of one consumer."""

    unread: Unread
    rebalancing: Rebalancing
    on_seek: Callable[[TopicPartition, OffsetAndMetadata], None] | None = field(default=None, init=False)
    """Called when a partition was sought elsewhere (for ``process``)."""

    def _is_given_up(self, cursor: Cursor) -> bool:
        unsubscribing = self.rebalancing.is_unsubscribing and not self.rebalancing.listening.is_inside
        return unsubscribing and cursor.custody is PartitionCustody.LEAVING

    def cursors(self) -> dict[TopicPartition, Cursor]:
        """Return what is assigned. From any thread."""
        return {tp: cursor for tp, cursor in tuple(self.unread.partitions.items()) if not self._is_given_up(cursor)}

    def cursor(self, partition: TopicPartition) -> Cursor:
        """Return one partition. Raises ``IllegalStateError`` if it is not assigned."""
        cursor = self.held(partition)
        if self._is_given_up(cursor):
            raise IllegalStateError(f"{one_partition(partition)} is not assigned")
        return cursor

    def held(self, partition: TopicPartition) -> Cursor:
        """As ``cursor``, but also one that ``unsubscribe`` is giving up."""
        try:
            cursor = self.unread.partitions.get(partition) if isinstance(partition, tuple) else None
        except TypeError:  # a tuple without a hash, such as a record
            cursor = None
        if cursor is None:
            raise IllegalStateError(f"{one_partition(partition)} is not assigned")
        return cursor

    def only(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        """Return the same. Raises ``IllegalStateError`` if one is not assigned."""
        for partition in partitions:
            self.cursor(partition)
        return partitions

    def chosen(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        """Return these partitions, or all if there are none. Raises ``IllegalStateError`` if one, or nothing, is assigned."""
        chosen = partition_set(partitions) or tuple(self.cursors())
        if not chosen:
            raise IllegalStateError("no partitions are assigned")
        return self.only(chosen)

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset to read of each partition that has a position, and can be committed.

        To the call-back of ``unsubscribe`` that is what leaves: until it returns, the group knows of nothing that ``assign`` added.
        """
        self.unread.settle()
        only_leaving = self.rebalancing.is_unsubscribing and self.rebalancing.listening.is_inside
        return self.unread.positions(lambda cursor: not only_leaving or cursor.custody is PartitionCustody.LEAVING)

    def hand_over(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As ``to_commit``, for an application that may store these itself: no beginning may come after them and take them back.

        Where nothing was read yet, they are the beginnings.
        """
        offsets = self.to_commit()
        for partition, offset in offsets.items():
            stored = self.unread.partitions[partition].stored
            if offset.offset != stored.begins:
                stored.begins = None
        return offsets

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As ``to_commit``, without what ``unsubscribe`` is giving up."""
        self.unread.settle()
        return self.unread.positions(lambda cursor: not self._is_given_up(cursor))

    def next_offset(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """As ``next_offsets``, for one partition, however many there are."""
        self.unread.settle()
        cursor = self.unread.partitions.get(partition)
        return None if cursor is None or self._is_given_up(cursor) else cursor.to_commit

    def meant(self, cursor: Cursor) -> UUID | None:
        """Return the topic that an offset of the partition belongs to, as the application sees it; ``None``: not known."""
        return cursor.meant() or cursor.stored.topic_id or self.rebalancing.inbox.topic_id(cursor.partition.topic)

    def seek(self, partition: TopicPartition, target: OffsetAndMetadata) -> None:
        """Read on from ``target``, in the topic that it belongs to."""
        cursor = self.cursor(partition)
        self.unread.settle()
        cursor.belong(target.topic_id or self.meant(cursor))
        self.unread.move(cursor, (target.offset, target.leader_epoch))
        self.unread.refetch(cursor)
        self._note(cursor, target)

    def seek_by_lookup(self, partition: TopicPartition, strategy: str) -> None:
        """Leave the position. The caller has another one looked up: the ``earliest`` or the ``latest``."""
        cursor = self.cursor(partition)
        self.unread.settle()
        self.unread.move(cursor, None)
        self._note(cursor, LOOKED_UP[strategy])

    def _note(self, cursor: Cursor, target: OffsetAndMetadata) -> None:
        cursor.sought = target
        if self.on_seek is not None:
            self.on_seek(cursor.partition, target)

    def take_sought(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return to which offsets partitions were sought, each once. If something was read since, metadata says nothing of that."""
        found = {}
        for partition in partitions:
            cursor = self.unread.partitions.get(partition)
            if cursor is not None and cursor.sought is not None:
                target, cursor.sought = cursor.sought, None
                as_it_was = cursor.begun_at == cursor.position == target.offset
                found[partition] = target if as_it_was else target._replace(metadata="")
        return found

    def pause(self, partitions: Collection[TopicPartition], *, paused: bool) -> None:
        """Hand out nothing of these partitions, or go on. Raises ``IllegalStateError`` if one is not assigned."""
        self.unread.pause([self.cursor(partition).partition for partition in partitions], paused=paused)

    def paused(self) -> set[TopicPartition]:
        """Return what the program has paused. From any thread."""
        return {partition for partition, cursor in self.cursors().items() if PauseReason.USER in cursor.paused}
