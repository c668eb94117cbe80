"""The handle of one record: its fields, what may be said about it, and its block."""

from collections.abc import Callable
from typing import Any

import pytest

from kafka_async.application.share.record import ShareRecord
from kafka_async.background.share.orders import Acknowledge, AcknowledgeType, Lost, RecordsHandedOut, ReleaseLater, Renewed, Settled
from kafka_async.errors import IllegalStateError, LockLostError
from kafka_async.model import ConsumerRecord

from .world import ERROR, TP, World

ACCEPT, RELEASE, REJECT, RENEW = (AcknowledgeType[name] for name in ("ACCEPT", "RELEASE", "REJECT", "RENEW"))


def one(world: World, **how: Any) -> ShareRecord[Any, Any]:
    world.deliver(7, 1, **how)
    (record,) = world.take(1)
    world.orders()
    assert isinstance(record, ShareRecord)
    return record


def work(record: ShareRecord[Any, Any], inside: Callable[[], None], error: Exception | None = None) -> None:
    """Do something in the record's block, and leave it."""
    with record:
        inside()
        if error is not None:
            raise error


def said(world: World) -> list[AcknowledgeType]:
    return [order.kind for order in world.orders() if isinstance(order, Acknowledge)]


def test_it_has_the_fields_of_a_record_and_how_often_it_was_delivered() -> None:
    record = one(World())
    for name, value in zip(ConsumerRecord._fields, record.fields(), strict=True):
        assert getattr(record, name) == value
    assert (record.topic, record.partition, record.offset, record.value) == ("t", 0, 7, b"x")
    assert (record.topic_partition, record.delivery_count, record.deadline) == (TP, 1, 30.0)
    match record:
        case ShareRecord("t", 0, 7, None, b"x"):
            pass
        case _:
            raise AssertionError("it can be taken apart like a record")
    assert repr(record) == "<ShareRecord t-0 at offset 7 key=None value=b'x' delivery_count=1>"


@pytest.mark.parametrize(
    ("call", "kind", "name"), [("accept", ACCEPT, "accepted"), ("release", RELEASE, "released"), ("reject", REJECT, "rejected")]
)
def test_it_is_acknowledged_once_and_a_second_time_says_what_was_said_before(call: str, kind: AcknowledgeType, name: str) -> None:
    world = World()
    record = one(world)
    getattr(record, call)()
    assert said(world) == [kind]
    for again in ("accept", "release", "reject", "renew"):
        with pytest.raises(IllegalStateError, match=f"t-0 at offset 7 was {name} before; a record can be acknowledged only once"):
            getattr(record, again)()
    assert world.orders() == []


def test_it_can_be_renewed_often_and_is_acknowledged_all_the_same() -> None:
    world = World()
    record = one(world)
    record.renew()
    record.renew()
    record.accept()
    assert said(world) == [RENEW, RENEW, ACCEPT]


def test_a_delay_is_checked_before_anything_is_said() -> None:
    world = World()
    record = one(world)
    for delay in ("soon", float("nan"), None):
        with pytest.raises(ValueError, match="delay_ms"):
            record.release(delay_ms=delay)  # type: ignore[arg-type]  # what a careless caller passes
    record.release(delay_ms=250)
    assert world.orders() == [ReleaseLater(TP, 1, 7, 0.25)]


def test_its_deadline_moves_with_each_renewal_and_after_it_the_record_is_lost() -> None:
    world = World()
    record = one(world)
    world.exchange.report(Renewed(TP, ((1, 7),), 45.0))
    assert record.deadline == 45.0
    world.now = 44.9
    assert not record.lost
    world.now = 45.0
    assert record.lost


def test_what_was_acknowledged_in_time_is_not_lost_unless_it_did_not_count() -> None:
    world = World()
    record = one(world)
    record.accept()
    world.now = 40.0
    assert not record.lost
    world.exchange.report(Settled(TP, 1, (7,), ACCEPT, ERROR))
    assert record.lost


def test_a_block_accepts_what_is_left_well_and_releases_what_an_exception_leaves() -> None:
    world = World()
    with one(world):
        pass
    assert said(world) == [ACCEPT]
    with pytest.raises(ValueError, match="no"), one(world):
        raise ValueError("no")
    assert said(world) == [RELEASE]


def test_what_is_said_inside_a_block_stands() -> None:
    world = World()
    rejected = one(world)
    work(rejected, rejected.reject)
    assert said(world) == [REJECT]
    accepted = one(world)
    with pytest.raises(ValueError, match="no"):
        work(accepted, accepted.accept, ValueError("no"))
    assert said(world) == [ACCEPT]


def test_a_block_of_a_record_that_was_acknowledged_is_not_entered() -> None:
    record = one(World())
    record.accept()
    with pytest.raises(IllegalStateError, match="was accepted before"), record:
        raise AssertionError("entered")


@pytest.mark.parametrize(("lost", "why"), [("by a report", f": {ERROR}"), ("by the time", "")])
def test_a_block_whose_lock_ends_inside_says_so_at_its_end_and_nothing_to_the_broker(lost: str, why: str) -> None:
    world = World()
    record = one(world)

    def inside() -> None:
        if lost == "by a report":
            world.exchange.report(Lost(TP, ((1, 7),), ERROR))
        else:
            world.now = 30.0

    with pytest.raises(LockLostError) as error:
        work(record, inside)
    assert str(error.value) == f"t-0 at offset 7: the lock has ended, so others may get the record, or have it already{why}"
    assert error.value.__cause__ is (ERROR if why else None)
    assert error.value.record is record
    assert said(world) == []


def test_a_block_that_is_entered_too_late_says_why() -> None:
    world = World()
    record = one(world)
    world.exchange.report(Lost(TP, ((1, 7),), ERROR))
    with pytest.raises(LockLostError, match=r"or have it already: .*over"), record:
        raise AssertionError("entered")


def test_an_exception_that_leaves_a_block_whose_lock_has_ended_is_the_users_own() -> None:
    world = World()
    record = one(world)
    with pytest.raises(ValueError, match="no"):
        work(record, lambda: setattr(world, "now", 30.0), ValueError("no"))
    assert said(world) == []


def test_a_record_that_was_handed_out_alone_is_told_to_the_background_only_while_it_matters() -> None:
    world = World()
    world.deliver(7, 1)
    world.custody.sort()
    record = world.custody.hand_out_one()
    assert record is not None
    assert world.exchange.notes == {(1, 7): RecordsHandedOut(TP, 1, (7,))}
    record.accept()
    assert world.exchange.notes == {}
