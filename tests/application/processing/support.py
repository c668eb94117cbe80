"""Records and work for the tests of processing."""

from collections.abc import Callable, Hashable, Iterable
from operator import itemgetter
from typing import Any
from uuid import UUID

from kafka_async import ConsumerRecord, TopicPartition
from kafka_async.application.processing.lanes import Lanes
from kafka_async.application.processing.work import Work

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID = UUID(int=7)
BY_KEY = itemgetter(5)
BY_PARTITION = itemgetter(1)

Record = ConsumerRecord[Any, Any]


def record(offset: int, key: bytes | None = None, partition: TopicPartition = TP, epoch: int | None = 0) -> Record:
    """Return a record as the decoder makes it."""
    size = -1 if key is None else len(key)
    return ConsumerRecord(*partition, offset, 1_000, 0, key, str(offset).encode(), (), None, size, 1, epoch)


def records(offsets: Iterable[int], key: bytes | None = None, partition: TopicPartition = TP) -> list[Record]:
    return [record(offset, key, partition) for offset in offsets]


def work(
    lane_of: Callable[[Record], Hashable] | None = None, most: int = 1_000, *, batch: int = 1, linger: float = 0.0, **more: Any
) -> Work:
    return Work(lane_of, most, Lanes(batch, linger), **more)


def started(some: Work) -> list[int]:
    """Take everything that is ready; return the offsets."""
    offsets = []
    while (item := some.take()) is not None:
        offsets.append(item.record.offset)
    return offsets


def packs(some: Work) -> list[list[int]]:
    """Take every batch that is ready; return the offsets of each."""
    taken = []
    while (pack := some.take_pack()) is not None:
        taken.append([item.record.offset for item in pack.items])
    return taken
