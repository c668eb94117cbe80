"""What groups have committed."""

from attrs import define, field

from ....model import OffsetAndMetadata, TopicPartition


@define(eq=False)
class CommittedOffsets:
    """Offsets, their metadata and their leader epochs (if they came with one), by group and partition."""

    positions: dict[tuple[str, TopicPartition], int] = field(factory=dict)
    metadata: dict[tuple[str, TopicPartition], str] = field(factory=dict)
    epochs: dict[tuple[str, TopicPartition], int] = field(factory=dict)
    pending: dict[int, dict[tuple[str, TopicPartition], OffsetAndMetadata]] = field(factory=dict)
    """By producer id: what its transaction will commit."""

    def store(self, group: str, tp: TopicPartition, offset: OffsetAndMetadata) -> None:
        """Commit an offset."""
        self.positions[group, tp] = offset.offset
        self.metadata[group, tp] = offset.metadata
        if offset.leader_epoch is None:
            self.epochs.pop((group, tp), None)
        else:
            self.epochs[group, tp] = offset.leader_epoch

    def of(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return everything that a group has committed."""
        return {
            tp: OffsetAndMetadata(offset, self.metadata.get((name, tp), ""), self.epochs.get((name, tp)))
            for (name, tp), offset in self.positions.items()
            if name == group
        }

    def undecided(self, group: str, tp: TopicPartition) -> bool:
        """Return whether a transaction that is still open will commit this partition."""
        return any((group, tp) in found for found in self.pending.values())

    def forget(self, group: str) -> None:
        """Drop what a group has committed."""
        for table in (self.positions, self.metadata, self.epochs):
            for key in [key for key in table if key[0] == group]:
                table.pop(key, None)

    def drop(self, group: str, tp: TopicPartition) -> None:
        """Drop one offset."""
        for table in (self.positions, self.metadata, self.epochs):
            table.pop((group, tp), None)

    def forget_topic(self, topic: str) -> None:
        """Drop what was committed for a deleted topic."""
        for key in [key for key in self.positions if key[1].topic == topic]:
            self.drop(*key)

    def decide(self, producer_id: int, commit: bool) -> None:
        """End a transaction."""
        for (group, tp), offset in self.pending.pop(producer_id, {}).items():
            if commit:
                self.store(group, tp, offset)
