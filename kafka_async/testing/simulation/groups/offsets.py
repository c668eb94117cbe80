"""What groups have committed."""

from collections.abc import Iterator, MutableMapping
from typing import Any

from attrs import define, field

from ....model import OffsetAndMetadata, TopicPartition


@define(eq=False)
class CommittedPositions(MutableMapping[tuple[str, TopicPartition], int]):
    """Offsets by group and partition, kept group by group: a question about one does not cost a look at thousands of others."""

    groups: dict[str, dict[TopicPartition, int]] = field(factory=dict)

    def __getitem__(self, key: tuple[str, TopicPartition]) -> int:
        group, tp = key
        return self.groups[group][tp]

    def __setitem__(self, key: tuple[str, TopicPartition], offset: int) -> None:
        group, tp = key
        self.groups.setdefault(group, {})[tp] = offset

    def __delitem__(self, key: tuple[str, TopicPartition]) -> None:
        group, tp = key
        found = self.groups[group]
        del found[tp]
        if not found:
            del self.groups[group]

    def __iter__(self) -> Iterator[tuple[str, TopicPartition]]:
        return ((group, tp) for group, found in self.groups.items() for tp in found)

    def __len__(self) -> int:
        return sum(map(len, self.groups.values()))


@define(eq=False)
class CommittedOffsets:
    """Offsets, their metadata and their leader epochs (if they came with one), by group and partition."""

    positions: CommittedPositions = field(factory=CommittedPositions)
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
            tp: OffsetAndMetadata(offset, self.metadata.get((group, tp), ""), self.epochs.get((group, tp)))
            for tp, offset in self.positions.groups.get(group, {}).items()
        }

    def undecided(self, group: str, tp: TopicPartition) -> bool:
        """Return whether a transaction that is still open will commit this partition."""
        return any((group, tp) in found for found in self.pending.values())

    def forget(self, group: str) -> None:
        """Drop what a group has committed."""
        for tp in list(self.positions.groups.get(group, {})):
            self.drop(group, tp)

    def drop(self, group: str, tp: TopicPartition) -> None:
        """Drop one offset."""
        tables: tuple[MutableMapping[tuple[str, TopicPartition], Any], ...] = (self.positions, self.metadata, self.epochs)
        for table in tables:
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
