"""A ``Custody`` without a cluster: deliveries, losses and results by hand."""

from typing import Any

from kafka_async.application.lifecycle.runtime import TaskRuntime
from kafka_async.application.share.custody import Custody, Held
from kafka_async.background.boundary import EventHandler, Exchange
from kafka_async.background.share.orders import Delivery
from kafka_async.errors import InvalidRecordStateError
from kafka_async.model import TopicPartition
from kafka_async.records import RecordReader
from tests.background.support import records

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
ERROR = InvalidRecordStateError("over")


class World:
    def __init__(self, *, deserializes: bool = False, half: int = 1) -> None:
        self.now = 0.0
        self.woken = 0
        self.exchange = Exchange(EventHandler(self._wake, lambda: None))
        self.exchange.topics = frozenset(("t", "u"))
        self.custody = Custody(self.exchange, lambda: self.now, half, Held(TaskRuntime()), deserializes)
        self.numbers = 0

    def _wake(self) -> None:
        self.woken += 1

    def deliver(self, start: int, count: int, partition: TopicPartition = TP, deadline: float = 30.0) -> int:
        self.numbers += 1
        reader = RecordReader(partition.topic, partition.partition, records(start, count), start)
        found = reader.read(count)
        self.exchange.delivered += count
        self.exchange.report(Delivery(partition, self.numbers, found, [1] * count, deadline))
        return self.numbers

    def take(self, size: int, *, kept: bool = False) -> list[Any]:
        self.custody.sort()
        return self.custody.hand_out(size, kept=kept)

    def orders(self) -> list[Any]:
        found = list(self.exchange.orders)
        self.exchange.orders.clear()
        return found


def offsets(found: list[Any]) -> list[int]:
    return [record.offset for record in found]
