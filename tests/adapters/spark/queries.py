"""A streaming query without Spark."""

import json
from typing import Any
from uuid import UUID

from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafka_async import TopicPartition
from kafka_async.adapters.spark.stream import StreamReader
from kafka_async.adapters.spark.task import TaskReader
from kafka_async.adapters.values.decoding import ValueDecoder

from .support import A0, A1, Cluster, lookup, options

ALL = ReadAllAvailable()
A2 = TopicPartition("a", 2)


class Query:
    """Asks a source as Spark does: every offset goes through JSON."""

    def __init__(self, cluster: Cluster, *decoders: ValueDecoder, **given: str) -> None:
        settings = options(**given)
        by_part = {decoder.part: decoder for decoder in decoders}
        tasks = TaskReader(kafka={}, decoders=by_part, names=(), schema=None, fail_on_data_loss=True, poll_timeout_ms=1)
        self.now = 0.0
        self.reader = StreamReader(settings, tasks, lookup(cluster, settings), clock=lambda: self.now)

    def latest(self, start: dict[str, Any], limit: Any = ALL) -> dict[str, Any]:
        self.now += 10.0
        end: dict[str, Any] = json.loads(json.dumps(self.reader.latestOffset(json.loads(json.dumps(start)), limit)))
        return end

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> dict[TopicPartition, tuple[int, int]]:
        found = self.reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
        return {piece.partition: (piece.start, piece.end) for task in found for piece in task.value[0]}


def ended(offsets: dict[str, Any], **ids: int) -> dict[str, Any]:
    """Return the end of a batch with the ids of its topics, which are 1 unless given."""
    named = (f"{topic}:{UUID(int=ids.get(topic, 1))}" for topic in offsets if "/" not in topic)
    return offsets | {f"__topics__/{','.join(named)}/c": {}}


def cluster() -> Cluster:
    return Cluster(logs={A0: (0, 10), A1: (0, 20)})
