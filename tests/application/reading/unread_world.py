"""An ``Unread`` without a loop and without a network."""

from functools import cache
from typing import Any

from kafka_async import TopicPartition
from kafka_async.application.outbox import Outbox
from kafka_async.application.reading.cursor import Cursor, Raw
from kafka_async.application.reading.iteration import HANDOUT, PORTION
from kafka_async.application.reading.turns import TURNS, Turns
from kafka_async.application.reading.unread import Unread
from kafka_async.background.boundary import EventHandler, FetchBuffer, FetchedData, PartitionFailed
from kafka_async.config import ConsumerConfig
from kafka_async.errors import KafkaError
from kafka_async.events import HaltPartition, Seek
from kafka_async.records import ALL_COLUMNS, ColumnBuilder
from kafka_async.testing.simulation import PartitionLog

from ..support import offsets

A, B, C = (TopicPartition("t", index) for index in range(3))


@cache
def _batch(count: int, size: int, codec: int) -> bytes:
    log = PartitionLog()
    log.append([bytes(size)] * count, codec=codec)
    return bytes(log.batches[0].data)


class World:
    """An ``Unread`` and what it sent."""

    def __init__(self, *partitions: TopicPartition, half: type[Turns] = TURNS, **options: Any) -> None:
        config = ConsumerConfig.from_options(options)
        self.buffer = FetchBuffer(config.fetch_buffer_bytes, lambda: None, lambda: None)
        self.handler = EventHandler(lambda: None, lambda: None)
        self.unread = Unread(config, self.buffer, Outbox(self.handler), HANDOUT(), half=half)
        self.unread.assign(partitions)
        self.ends: dict[TopicPartition, int] = {}

    @property
    def refetched(self) -> list[tuple[TopicPartition, int]]:
        return [(event.partition, event.offset) for event in self.handler.application_events if isinstance(event, Seek)]

    @property
    def checked(self) -> list[tuple[TopicPartition, int, int | None]]:
        """What is fetched again, and with which leader epoch before it the log is compared first."""
        return [
            (event.partition, event.offset, event.leader_epoch)
            for event in self.handler.application_events
            if isinstance(event, Seek)
        ]

    @property
    def halted(self) -> list[TopicPartition]:
        return [event.partition for event in self.handler.application_events if isinstance(event, HaltPartition)]

    def asks_in_vain(self, *partitions: TopicPartition) -> None:
        """A read waits for partitions for which there is no room."""
        self.buffer.hungry = self.buffer.starving = True
        self.unread.ask_for(partitions, waiting=False)

    def entry(self, partition: TopicPartition) -> Cursor:
        return self.unread.partitions[partition]

    def fetched(
        self,
        partition: TopicPartition,
        start: int,
        count: int,
        *,
        corrupt: bool = False,
        stamp: int | None = None,
        epoch: int = 0,
    ) -> None:
        log = PartitionLog(end=start)
        log.append([str(n).encode() for n in range(start, start + count)], epoch=epoch)
        if corrupt:
            log.corrupt(start)
        data = log.batches[0].data
        stamp = self.entry(partition).stamp if stamp is None else stamp
        self.buffer.put(FetchedData(partition=partition, stamp=stamp, fetch_offset=start, records=data))

    def failed(self, partition: TopicPartition, error: KafkaError) -> None:
        self.buffer.put(PartitionFailed(partition=partition, stamp=self.entry(partition).stamp, error=error))

    def take(self, count: int = 100, *only: TopicPartition) -> dict[TopicPartition, list[int]]:
        batch = self.unread.take(count, only)
        self.unread.taken = None
        return offsets(batch)

    def more(self, partition: TopicPartition, start: int, count: int, parcels: int, *, size: int = 1, codec: int = 0) -> int:
        """Have so many parcels of ``count`` records wait; return the end."""
        end = start
        cursor = self.entry(partition)
        waiting = len(cursor.parcels) + sum(parcel.partition == partition for parcel in self.buffer.parcels)
        for _ in range(parcels - waiting):
            end = self.ends.get(partition, start)
            data = end.to_bytes(8, "big") + _batch(count, size, codec)[8:]  # the checksum does not cover the offset
            self.buffer.put(FetchedData(partition, cursor.stamp, end, data))
            self.ends[partition] = end = end + count
        return self.ends[partition]

    def read(self, way: str, count: int) -> dict[TopicPartition, int]:
        """Read in one of the ways; return how many records of each partition came."""
        if way == "columns":
            into = ColumnBuilder(ALL_COLUMNS)
            self.unread.take_columns(count, into)
            self.unread.taken = None
            rows = into.finish()
            counts: dict[TopicPartition, int] = {}
            for topic, number, length in rows.runs:
                partition = TopicPartition(topic, number)
                counts[partition] = counts.get(partition, 0) + length
            return counts
        if way == "call-backs":
            for cursor, raw in self.unread.stage(count).items():
                self.unread.replace(cursor, raw, [PORTION(raw.records, raw.records, raw.start, raw.end)])
            return {tp: len(found) for tp, found in self.take(count).items()}
        if way == "portion":
            portion = self.unread.portion(count)
            if portion is None:
                return {}
            found = portion.records[portion.place :]
            portion.place = len(portion.records)
            return {TopicPartition(found[0].topic, found[0].partition): len(found)}
        return {tp: len(found) for tp, found in self.take(count).items()}

    def staged(self, count: int) -> dict[TopicPartition, Raw]:
        return {cursor.partition: raw for cursor, raw in self.unread.stage(count).items()}
