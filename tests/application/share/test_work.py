"""What becomes of a share group's records in ``process``: waiting, handled, tried again, lost. Without a loop."""

from typing import Any

import pytest

from kafka_async.application.processing.lanes import Lanes
from kafka_async.application.processing.queues import Fate
from kafka_async.application.share.work import ShareWork
from kafka_async.model import TopicPartition

TP = TopicPartition("t", 0)


class Job:
    """A record, as far as work uses it."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.topic_partition = TP
        self.serialized_key_size, self.serialized_value_size = -1, 1
        self._said: str | None = None

    @property
    def said(self) -> str | None:
        return self._said

    def accept(self) -> None:
        self._said = "accepted"

    def release(self) -> None:
        self._said = "released"

    def reject(self) -> None:
        self._said = "rejected"


def held(count: int, *, batch: int = 1) -> tuple[ShareWork, list[Any]]:
    work = ShareWork(100, Lanes(batch, 0.0))
    jobs: list[Any] = [Job(offset) for offset in range(count)]
    work.receive(TP, jobs, 0.0)
    return work, jobs


def test_what_waits_for_its_retry_takes_no_room_and_is_let_go_if_it_is_lost() -> None:
    work, jobs = held(3)
    for _ in jobs:
        item = work.take()
        assert item is not None
        assert work.retry(item, 5.0, 1.0)
    assert (work.load, work.lanes.held_up.records, work.intake().limit) == (0, 3, 100)
    work.lose(jobs[1])
    assert (work.load, work.lanes.held_up.records) == (0, 2)
    assert work.expire(5.0)
    assert (work.load, work.lanes.held_up.records, work.intake().limit) == (2, 0, 98)


def test_a_record_whose_handler_returns_is_accepted() -> None:
    work, jobs = held(2)
    item = work.take()
    assert item is not None
    assert work.running == 1
    work.succeeded(item, 1.0)
    assert [job.said for job in jobs] == ["accepted", None]
    assert (work.held, work.running, work.settled, work.intake().limit) == (1, 0, 1, 99)


def test_what_a_handler_says_itself_stands() -> None:
    work, jobs = held(1)
    item = work.take()
    assert item is not None
    jobs[0].release()
    work.succeeded(item, 1.0)
    assert jobs[0].said == "released"
    assert work.held == 0


@pytest.mark.parametrize(
    ("fate", "said"), [(Fate.DONE, "accepted"), (Fate.REFUSED, "rejected"), (Fate.RETURNED, "released")], ids=str
)
def test_a_record_that_was_given_up_meets_its_fate(fate: Fate, said: str) -> None:
    work, jobs = held(1)
    item = work.take()
    assert item is not None
    work.gave_up(item, fate, 1.0)
    assert jobs[0].said == said


def test_a_record_that_is_lost_is_handled_by_nobody_and_says_nothing() -> None:
    work, jobs = held(3)
    running = work.take()
    assert running is not None
    assert work.lose(jobs[0])
    assert work.lose(jobs[1])
    assert not work.lose(jobs[1])
    following = work.take()
    assert following is not None
    assert following.record is jobs[2]
    work.succeeded(running, 1.0)
    assert (work.late_results, jobs[0].said, work.held) == (1, None, 1)


def test_a_retry_of_what_was_lost_meanwhile_is_forgotten() -> None:
    work, jobs = held(1)
    item = work.take()
    assert item is not None
    assert work.retry(item, 5.0, 1.0)
    assert (work.due_at, work.retrying) == (5.0, 1)
    work.lose(jobs[0])
    assert not work.expire(6.0)
    assert work.take() is None


def test_a_record_that_is_tried_again_waits_for_a_handler_from_then_on_and_has_been_held_since_it_came() -> None:
    work, jobs = held(1)
    item = work.take()
    assert item is not None
    assert work.retry(item, 5.0, 1.0, counts=False)
    assert work.expire(6.0)
    assert item.waits_since == 6.0
    assert work.oldest == (TP, 0, 0.0)
    assert work.waiting((), 0.0) == jobs


def test_what_a_handler_did_not_get_to_waits_for_it_from_then_on() -> None:
    work, jobs = held(2, batch=2)
    pack = work.take_pack()
    assert pack is not None
    (_, second) = pack.items
    work.unhandled(pack, [second], 5.0)
    assert second.waits_since == 5.0
    assert work.oldest == (TP, 0, 0.0)
    assert work.waiting((), 0.0) == jobs


def test_what_was_interrupted_comes_first_with_what_is_left_of_its_batch() -> None:
    work, jobs = held(4, batch=3)
    pack = work.take_pack()
    assert pack is not None
    assert [item.record.offset for item in pack.items] == [0, 1, 2]
    work.lose(jobs[0])
    jobs[1].reject()
    work.interrupted(pack, 1.0)
    again = work.take_pack()
    assert again is not None
    assert [item.record.offset for item in again.items] == [2]
    assert work.oldest == (TP, 2, 0.0)
    assert [record.offset for record in work.left] == [2, 3]


def test_the_records_of_a_batch_may_end_apart() -> None:
    work, jobs = held(6, batch=6)
    pack = work.take_pack()
    assert pack is not None
    items = list(pack.items)
    work.pack_succeeded(work.split(pack, items[:2]), 1.0)
    work.unhandled(pack, items[4:], 1.0)
    work.gave_up(work.split(pack, items[2:3]), Fate.REFUSED, 1.0)
    assert work.retry(pack, 5.0, 1.0)
    assert [job.said for job in jobs] == ["accepted", "accepted", "rejected", None, None, None]
    assert (work.running, work.retrying, work.held) == (0, 1, 3)
    again = work.take_pack()
    assert again is not None
    assert sorted(item.record.offset for item in again.items) == [4, 5]


def test_what_is_laid_out_for_threads_has_not_begun_and_is_something_to_do() -> None:
    some, _ = held(3)
    some.take()
    laid_out = [unit for _ in range(2) if (unit := some.take()) is not None]
    assert some.stuck_since(1.0, 2) is None
    assert some.stuck_since(2.0, 2) == 1.0
    for unit in reversed(laid_out):
        some.interrupted(unit, 3.0)
    assert some.stuck_since(4.0) == 1.0, "taking it back was no progress"
    some.take()
    assert some.stuck_since(5.0) is None
    assert some.stuck_since(6.0) == 5.0
    some.take()
    assert some.stuck_since(7.0) is None
    assert some.stuck_since(8.0) is None, "all have begun"
