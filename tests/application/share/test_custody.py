"""What the application's side does with unread records and with those that are out: deliveries, losses and results by hand."""

from typing import Any

import pytest

from kafka_async.application.callbacks import Deserialized
from kafka_async.application.runtime import TaskRuntime
from kafka_async.application.share.custody import Custody, Held
from kafka_async.background.boundary import EventHandler
from kafka_async.background.share.exchange import (
    Acknowledge,
    AcknowledgeType,
    Delivery,
    Exchange,
    Keep,
    Lost,
    RecordsDropped,
    RecordsHandedOut,
    ReleaseLater,
    Renewed,
    Settled,
)
from kafka_async.errors import DeserializationError, IllegalStateError, InvalidRecordStateError
from kafka_async.model import ConsumerRecord, TopicPartition
from kafka_async.records import RecordReader
from tests.background.support import records

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
ERROR = InvalidRecordStateError("over")


class World:
    def __init__(self, *, deserializes: bool = False) -> None:
        self.now = 0.0
        self.exchange = Exchange(EventHandler(lambda: None, lambda: None))
        self.exchange.topics = frozenset(("t", "u"))
        self.custody = Custody(self.exchange, lambda: self.now, 1, Held(TaskRuntime()), deserializes)
        self.numbers = 0

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


def test_records_are_handed_out_in_the_order_of_their_delivery_and_the_background_is_told() -> None:
    world = World()
    world.deliver(0, 3)
    world.deliver(10, 2, OTHER)
    assert offsets(world.take(4)) == [0, 1, 2, 10]
    assert world.orders() == [
        RecordsHandedOut(TP, 1, (0, 1, 2), Keep.WAITING, 1),
        RecordsHandedOut(OTHER, 2, (10,), Keep.WAITING, 1),
    ]
    assert offsets(world.take(1)) == [11]
    assert world.orders() == [RecordsHandedOut(OTHER, 2, (11,))]
    assert (world.custody.unread, world.custody.out, world.exchange.unread) == (0, 5, 0)


def test_process_has_its_records_renewed_whatever_happens() -> None:
    world = World()
    world.deliver(0, 2)
    world.take(2, kept=True)
    assert world.orders() == [RecordsHandedOut(TP, 1, (0, 1), Keep.HELD)]


def test_records_whose_locks_have_ended_are_not_handed_out_and_make_room() -> None:
    world = World()
    world.deliver(0, 3)
    world.deliver(3, 3, deadline=60.0)
    world.exchange.report(Lost(TP, ((2, 4),), ERROR))
    world.now = 40.0
    assert offsets(world.take(10)) == [3, 5]
    assert (world.exchange.unread, world.custody.unread, world.custody.counts.lost) == (0, 0, 1)


def test_a_loss_makes_room_though_nobody_reads() -> None:
    world = World()
    world.deliver(0, 3)
    world.exchange.report(Lost(TP, ((1, 0), (1, 1), (1, 2)), ERROR))
    world.custody.sort()
    assert (world.exchange.unread, world.custody.unread) == (0, 0)


def test_records_of_topics_that_are_not_wanted_any_more_are_released_and_others_stay() -> None:
    world = World()
    world.deliver(0, 2)
    world.deliver(10, 2, OTHER)
    world.custody.want(frozenset(("u",)))
    assert world.orders() == [RecordsDropped(TP, 1, (0, 1))]
    assert offsets(world.take(10)) == [10, 11]


def deserialized(world: World, size: int, done: int, poison: bool = False) -> None:
    world.custody.sort()
    piece = world.custody.to_deserialize(size)
    assert piece is not None
    made = [record._replace(value=f"value {record.offset}") for record in piece.records[:done]]
    error = DeserializationError("bad", piece.records[done]) if poison else None
    world.custody.deserialized(piece, piece.records, Deserialized(records=made, done=done, poison=error))


def test_records_at_work_in_deserializers_stay_unread_and_what_is_done_is_done_once() -> None:
    world = World(deserializes=True)
    world.deliver(0, 4)
    world.deliver(4, 4)
    assert world.take(8) == []
    deserialized(world, 8, 4)
    deserialized(world, 8, 1)
    assert world.custody.unread == 8
    found = world.take(3)
    assert [record.value for record in found] == ["value 0", "value 1", "value 2"]
    assert [record.value for record in world.take(8)] == ["value 3", "value 4"], "what is not ready waits"
    piece = world.custody.to_deserialize(1)
    assert piece is not None
    assert offsets(piece.records) == [5]


def test_a_record_that_cannot_be_deserialized_waits_for_its_turn() -> None:
    world = World(deserializes=True)
    world.deliver(0, 4)
    deserialized(world, 8, 2, poison=True)
    assert world.custody.to_deserialize(8) is None, "it comes first"
    assert world.custody.take_bad() is None
    assert offsets(world.take(8)) == [0, 1]
    bad = world.custody.take_bad()
    assert bad is not None
    assert (bad[0].offset, bad[1].args[0]) == (2, "bad")
    deserialized(world, 8, 1)
    assert offsets(world.take(8)) == [3]


def test_deserializers_that_worked_on_records_that_are_gone_have_worked_in_vain() -> None:
    world = World(deserializes=True)
    world.deliver(0, 2)
    world.custody.sort()
    piece = world.custody.to_deserialize(8)
    assert piece is not None
    given = piece.records
    world.exchange.report(Lost(TP, ((1, 0),), ERROR))
    world.custody.sort()
    world.custody.deserialized(piece, given, Deserialized(records=list(given), done=2))
    assert world.take(8) == []
    deserialized(world, 8, 1)
    assert offsets(world.take(8)) == [1]


def test_a_record_is_acknowledged_once_and_later_if_so_wanted() -> None:
    world = World()
    world.deliver(0, 3)
    first, second, third = world.take(3)
    world.orders()
    first.accept()
    second.release(delay_ms=1500)
    third.renew()
    third.reject()
    for record in (first, second, third):
        with pytest.raises(IllegalStateError, match="before; a record can be acknowledged only once"):
            record.accept()
    assert world.orders() == [
        Acknowledge(TP, 0, 1, AcknowledgeType.ACCEPT),
        ReleaseLater(TP, 1, 1, 1.5),
        Acknowledge(TP, 2, 1, AcknowledgeType.RENEW),
        Acknowledge(TP, 2, 1, AcknowledgeType.REJECT),
    ]
    with pytest.raises(ValueError, match="delay_ms='soon'"):
        first.release(delay_ms="soon")


def test_results_are_counted_and_refused_records_are_lost() -> None:
    world = World()
    number = world.deliver(0, 4)
    found = world.take(4)
    for record in found[:3]:
        record.accept()
    world.exchange.report(Settled(TP, number, (0, 1), AcknowledgeType.ACCEPT, None))
    world.exchange.report(Settled(TP, number, (2,), AcknowledgeType.ACCEPT, ERROR))
    world.exchange.report(Renewed(TP, ((number, 3),), 50.0))
    world.now = 40.0
    assert [record.lost for record in found] == [False, False, True, False]
    counts = world.custody.counts
    assert (counts.accepted, counts.refused, counts.unanswered, world.custody.out) == (2, 1, 0, 1)
    world.custody.close()
    assert found[3].lost
    found[3].accept()
    assert (counts.refused, counts.unanswered) == (2, 0)


def test_a_raw_record_is_kept_beside_the_deserialized_one() -> None:
    world = World(deserializes=True)
    world.deliver(0, 1)
    world.custody.sort()
    deserialized(world, 1, 1)
    (record,) = world.take(1)
    assert record.fields() == ConsumerRecord(*record.fields())
    assert record.value == "value 0"
