"""What ``process(keep_done=True)`` left in a commit's metadata: what of the lag is done, and which record holds the rest up."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from attrs import frozen

from ...application.consumer import KafkaConsumer
from ...application.processing.encoding import DoneMap, decode, encode, is_ours
from ...errors import IllegalStateError
from ...model import OffsetAndMetadata, TopicPartition
from ...trace import counted


@frozen(kw_only=True)
class Committed:
    """A committed offset, and what is known to be done after it."""

    offset: int
    done: DoneMap | None
    """``None``: the metadata hold no map of this topic."""
    topic_id: UUID | None
    of_another_topic: bool = False
    """There is a map, but of an earlier topic of the name, so that nobody will use it."""

    @classmethod
    def read(cls, committed: OffsetAndMetadata, topic_id: UUID | None) -> "Committed":
        """Return what a commit says about a topic that has this id now."""
        done = decode(committed.metadata, committed.offset, topic_id)
        return cls(
            offset=committed.offset,
            done=done,
            topic_id=topic_id,
            of_another_topic=done is None and is_ours(committed.metadata),
        )

    def holds(self, offset: int) -> bool:
        """Whether the record at ``offset`` is done."""
        return offset < self.offset or (self.done is not None and offset in self.done)

    def done_from(self, offset: int) -> int:
        """Return how many offsets from ``offset`` on are done."""
        return sum(end - first for first, end in self.done.done_from(offset)) if self.done is not None else 0

    @property
    def note(self) -> str:
        """The map in words; empty if there is none."""
        if self.of_another_topic:
            return "its map of what is done is of an earlier topic of this name"
        after = self.done_from(self.offset)
        return f"offset {self.offset} unfinished, {after} after it done" if after else ""

    def lost_by(self, new: int) -> str:
        """Return what a commit of ``new`` without a map makes the group do again; empty if nothing."""
        again = self.done_from(new)
        return f"{counted(again, 'done offset')} after it will be handled again" if again else ""

    def skip(self, partition: TopicPartition, offset: int) -> OffsetAndMetadata:
        """Return what to commit so that one offset counts as done and everything else stays as it is: an offset of this topic.

        Raises ``IllegalStateError`` for an offset that is done or passed, or that the metadata have no room for.
        """
        name = f"{partition.topic}:{partition.partition}"
        if self.holds(offset):
            raise IllegalStateError(f"offset {offset} of {name} is done already; the group is at {self.offset}")
        if offset > self.offset and self.done is None:
            raise IllegalStateError(
                f"{name} is at offset {self.offset}; a later one can be passed only where process(keep_done=True) has kept what is "
                f"done. Pass {self.offset}, or move the group with 'offsets reset'"
            )
        spans = sorted([*(self.done.done_from(self.offset) if self.done is not None else ()), (offset, offset + 1)])
        start = self.offset
        while spans and spans[0][0] == start:  # what is done from the front on is the commit itself
            start = spans.pop(0)[1]
        metadata = encode(_runs(start, spans), self.topic_id)
        kept = decode(metadata, start, self.topic_id)
        if any(first not in (kept or ()) or end - 1 not in (kept or ()) for first, end in spans):
            raise IllegalStateError(f"the metadata of {name} have no room for another offset that is done")
        return OffsetAndMetadata(start, metadata, topic_id=self.topic_id)


def commit_around(records: Iterable[tuple[int, bool]], end: int, topic_id: UUID | None) -> OffsetAndMetadata:
    """Return what to commit of a partition whose records up to ``end`` are done or not: offset and whether, in order.

    Offsets between two records that are done have no records any more, and count as done. Runs that the metadata have no room for
    are left out, from the end. It is an offset of this topic: one that was made anew of the same name has other records there.
    """
    spans: list[tuple[int, int]] = []
    start: int | None = None
    adjacent = False
    for offset, done in records:
        if start is None:
            start = None if done else offset
        elif done and adjacent:
            spans[-1] = (spans[-1][0], offset + 1)
        elif done:
            spans.append((offset, offset + 1))
        adjacent = done and start is not None
    start = end if start is None else start
    return OffsetAndMetadata(start, encode(_runs(start, spans), topic_id), topic_id=topic_id)


def _runs(start: int, spans: list[tuple[int, int]]) -> list[int]:
    """Return spans that are done as lengths of runs that are in turn not done and done."""
    runs: list[int] = []
    for first, end in spans:
        if runs and first == start:
            runs[-1] += end - first
        else:
            runs += (first - start, end - first)
        start = end
    return runs


async def read_maps(
    consumer: KafkaConsumer[Any, Any], committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, Committed]:
    """Return what commits say, for partitions whose metadata hold a map. Topic ids are asked for only if there is one."""
    topics = {partition.topic for partition, offset in committed.items() if is_ours(offset.metadata)}
    if not topics:
        return {}
    cluster = await consumer.describe_topics(*topics)
    ids = {name: topic.topic_id for name, topic in cluster.topics.items()}
    return maps_of(committed, {partition: ids.get(partition.topic) for partition in committed})


def maps_of(
    committed: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[TopicPartition, UUID | None]
) -> dict[TopicPartition, Committed]:
    """Return what commits say, for those of the partitions of ``topic_ids`` whose metadata hold a map."""
    kept = {partition: committed[partition] for partition in topic_ids if partition in committed}
    return {each: Committed.read(offset, topic_ids[each]) for each, offset in kept.items() if is_ours(offset.metadata)}
