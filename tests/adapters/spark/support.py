"""A consumer that answers from tables, for the driver's side of the source."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from attrs import Factory, define

from kafka_async import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kafka_async.adapters.spark.options.source_options import SourceOptions
from kafka_async.adapters.spark.plan.lookup import Lookup
from kafka_async.errors import KafkaError, KafkaTimeoutError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kafka_async.events import ClusterDescription, PartitionDescription, TopicDescription
from kafka_async.records import ColumnBuilder, Columns

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@define(eq=False)
class Cluster:
    """Logs as (begin, end), what happens next, and what was asked."""

    logs: dict[TopicPartition, tuple[int, int]]
    times: dict[TopicPartition, OffsetAndTimestamp | None] = Factory(dict)
    committed: dict[TopicPartition, OffsetAndMetadata | None] = Factory(dict)
    internal: set[str] = Factory(set)
    ids: dict[str, int] = Factory(dict)
    cluster_id: str = "c"
    former: list[dict[str, int]] = Factory(list)
    """Ids of topics in the next answers: the brokers that give them do not know yet that topics were created again."""
    failures: list[KafkaError] = Factory(list)
    commit_failures: list[KafkaError] = Factory(list)
    commits: list[dict[TopicPartition, int]] = Factory(list)
    commit_ids: list[dict[TopicPartition, UUID | None]] = Factory(list)
    """The ids of the topics that committed offsets belong to."""
    leased: list[dict[str, str]] = Factory(list)
    asked: list[str] = Factory(list)
    stale: list[int] = Factory(list)
    """What the next answers to where partitions end say at most."""
    on_topics: Callable[[], object] = lambda: None
    """Called when topics were described."""
    lacking: list[set[TopicPartition]] = Factory(list)
    """What the brokers do not have that describe topics next: they are behind the others."""
    sizes: dict[TopicPartition, Callable[[int], int | None]] = Factory(dict)
    """Bytes of the value at an offset; ``None``: there is no record."""
    reading: list[tuple[TopicPartition, int, int]] = Factory(list)
    """Ranges that are being fetched."""
    _positions: dict[TopicPartition, int] = Factory(dict)
    waited_ms: list[float | None] = Factory(list)
    """How long it was waited for partitions that are not there."""

    @contextmanager
    def lease(self, kafka: Mapping[str, str]) -> Iterator[Any]:
        self.leased.append(dict(kafka))
        if self.failures:
            raise self.failures.pop(0)
        yield self

    def describe_topics(self, *names: str) -> ClusterDescription:
        self.asked.append("topics")
        topics: dict[str, list[int]] = {}
        lacking = self.lacking.pop(0) if self.lacking else set()
        ids = self.ids | (self.former.pop(0) if self.former else {})
        for topic, partition in (each for each in self.logs if each not in lacking):
            topics.setdefault(topic, []).append(partition)
        described = {
            name: TopicDescription(
                name=name,
                topic_id=UUID(int=ids.get(name, 1)),
                internal=name in self.internal,
                partitions=tuple(
                    PartitionDescription(partition=number, leader=0, leader_epoch=0, replicas=(0,), isr=(0,)) for number in numbers
                ),
            )
            for name, numbers in topics.items()
            if not names or name in names
        }
        self.on_topics()
        return ClusterDescription(cluster_id=self.cluster_id, brokers=(), topics=described)

    def beginning_offsets(self, partitions: Any, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        self.asked.append("begins")
        self._find(partitions, timeout_ms)
        return {partition: self.logs[partition][0] for partition in partitions}

    def end_offsets(self, partitions: Any, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        self.asked.append("ends")
        self._find(partitions, timeout_ms)
        most = self.stale.pop(0) if self.stale else None
        return {partition: min(self.logs[partition][1], most or self.logs[partition][1]) for partition in partitions}

    def _find(self, partitions: Any, timeout_ms: float | None) -> None:
        """Nobody answers for what is not there."""
        if set(partitions) - self.logs.keys():
            self.waited_ms.append(timeout_ms)
            raise KafkaTimeoutError("late") if timeout_ms is not None else UnknownTopicOrPartitionError("topic does not exist")

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return {partition: self.times.get(partition) for partition in times}

    def committed_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return {partition: self.committed.get(partition) for partition in partitions}

    def assign(self, partitions: Any) -> None:
        assert set(partitions) <= self.logs.keys()

    def assign_ranges(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        if ranges:
            self.asked.append("records")
        self.reading = [(partition, start, end) for partition, (start, end) in ranges.items()]
        for partition, start, _ in self.reading:
            self._positions[partition] = start
            if start < self.logs[partition][0]:
                raise OffsetOutOfRangeError("gone", {partition: start})

    def next_columns(self, wanted: Any, *, batch_bytes: int | None = None, timeout_ms: float | None = None) -> Columns | None:
        """Hand out one partition after the other, a hundred records at a time."""
        into, rows = ColumnBuilder(), 0
        while self.reading and not rows:
            partition, start, end = self.reading.pop(0)
            while start < end and rows < 100:
                if (size := self.sizes[partition](start)) is not None:
                    into.append((start, 0, 0, None, bytes(size), (), None, 0))
                    rows += 1
                start += 1
            self._positions[partition] = start
            if start < end:
                self.reading.insert(0, (partition, start, end))
        if not rows:
            return None
        into.end_run(partition.topic, partition.partition, rows)
        return into.finish()

    def position(self, partition: TopicPartition) -> int:
        return self._positions[partition]

    def pause(self, *partitions: TopicPartition) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.asked.append("commit")
        if self.commit_failures:
            raise self.commit_failures.pop(0)
        self.commits.append({partition: offset.offset for partition, offset in offsets.items()})
        self.commit_ids.append({partition: offset.topic_id for partition, offset in offsets.items()})


def options(**given: str) -> SourceOptions:
    """Return options; ``__`` stands for a dot, and what is needed has a default."""
    named = {name.replace("__", "."): text for name, text in given.items()}
    if not {"subscribe", "subscribePattern", "assign"} & named.keys():
        named["subscribe"] = "a"
    return SourceOptions.parse({"kafka.bootstrap.servers": "b0:9092"} | named)


def lookup(cluster: Cluster, settings: SourceOptions) -> Lookup:
    """Return a look-up for which time passes only while it waits."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Lookup(settings, lease=cluster.lease, sleep=sleep, clock=lambda: now[0])
