"""Which record is handled next."""

from time import perf_counter

import pytest

from kafka_async import TopicPartition
from kafka_async.application.processing.items import Pack
from kafka_async.application.processing.work import Work

from .support import BY_KEY, BY_PARTITION, OTHER, TP, packs, record, records, started, work

# Order.


def test_a_lane_runs_one_at_a_time() -> None:
    some = work(BY_KEY)
    some.receive(TP, [record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"a")], 0.0)
    first = some.take()
    assert first is not None
    assert first.record.offset == 0
    assert started(some) == [2]
    some.succeeded(first, 0.0)
    assert started(some) == [1]


def test_records_without_a_key_need_no_order() -> None:
    some = work(BY_KEY)
    some.receive(TP, records(range(4)), 0.0)
    assert started(some) == [0, 1, 2, 3]


def test_the_same_key_in_two_partitions_is_two_lanes() -> None:
    some = work(BY_KEY)
    some.receive(TP, [record(0, b"a")], 0.0)
    some.receive(OTHER, [record(0, b"a", OTHER)], 0.0)
    assert started(some) == [0, 0]


def test_a_callable_names_lanes_across_partitions() -> None:
    some = work(BY_KEY, one_set_of_lanes=True)
    some.receive(TP, [record(0, b"a")], 0.0)
    some.receive(OTHER, [record(5, b"a", OTHER)], 0.0)
    item = some.take()
    assert item is not None
    assert started(some) == []
    some.succeeded(item, 0.0)
    assert started(some) == [5]


def test_a_lane_across_partitions_goes_on_when_one_of_them_leaves() -> None:
    some = work(BY_KEY, one_set_of_lanes=True)
    some.receive(TP, [record(0, b"a"), record(1, b"b")], 0.0)
    some.receive(OTHER, [record(5, b"a", OTHER), record(6, b"b", OTHER)], 0.0)
    item = some.take()
    assert item is not None
    some.forget([TP])
    assert started(some) == [6], "the lane of what runs stays closed"
    some.succeeded(item, 0.0)
    assert started(some) == [5]
    assert some.late_results == 1


def test_by_partition_all_records_of_a_partition_are_one_lane() -> None:
    some = work(BY_PARTITION)
    some.receive(TP, records(range(3)), 0.0)
    some.receive(OTHER, records(range(3), partition=OTHER), 0.0)
    assert started(some) == [0, 0]


def test_a_record_whose_lane_cannot_be_found_is_a_failure_of_that_record() -> None:
    some = work(lambda each: 1 // 0 if each.offset == 1 else [] if each.offset == 2 else "lane")
    some.receive(TP, records(range(4)), 0.0)
    items = [item for item in iter(some.take, None) if item is not None]
    assert [(item.record.offset, type(item.error)) for item in items] == [(0, type(None)), (1, ZeroDivisionError), (2, TypeError)]


# Fairness.


def test_partitions_take_turns() -> None:
    some = work()
    for partition, count in ((0, 5), (1, 2), (2, 1)):
        tp = TopicPartition("t", partition)
        some.receive(tp, [record(10 * partition + n, None, tp) for n in range(count)], 0.0)
    assert started(some) == [0, 10, 20, 1, 11, 2, 3, 4]


@pytest.mark.slow
def test_a_lane_with_100_000_records_keeps_nobody_waiting_and_costs_no_more_than_many_lanes() -> None:
    count = 100_000
    taken: dict[bytes, float] = {}
    for key in (b"one", b"many"):
        some = work(BY_KEY, most=2 * count)
        one = key == b"one"
        some.receive(TP, [record(n, b"hot" if one else b"%d" % n) for n in range(count)], 0.0)
        some.receive(TP, [record(count, b"cold")], 0.0)
        some.receive(OTHER, [record(0, b"hot", OTHER)], 0.0)
        order = []
        began = perf_counter()
        while (item := some.take()) is not None:
            order.append(item.record)
            some.succeeded(item, 0.0)
        taken[key] = perf_counter() - began
        assert len(order) == count + 2
        if one:
            assert {each.key for each in order[:3]} == {b"hot", b"cold"}
            assert OTHER.partition in {each.partition for each in order[:3]}
    assert taken[b"one"] < 5 * taken[b"many"] + 0.5


@pytest.mark.slow
def test_a_thousand_partitions_all_get_their_turn() -> None:
    some = work(BY_PARTITION, most=100_000)
    for index in range(1_000):
        tp = TopicPartition("t", index)
        some.receive(tp, [record(n, None, tp) for n in range(20)], 0.0)
    handled = []
    for _ in range(2_000):
        item = some.take()
        assert item is not None
        handled.append(item.record.partition)
        some.succeeded(item, 0.0)
    assert sorted(handled[:1_000]) == list(range(1_000))
    assert sorted(handled[1_000:]) == list(range(1_000))


# Leaving.


def test_nothing_of_a_partition_that_leaves_is_begun() -> None:
    some = work(BY_KEY)
    some.receive(TP, [record(0, b"a"), record(1, b"a"), record(2, b"b")], 0.0)
    some.receive(OTHER, [record(0, b"a", OTHER)], 0.0)
    item = some.take()
    assert item is not None
    some.leave([TP])
    assert started(some) == [0]
    some.succeeded(item, 0.0)
    assert started(some) == []
    assert some.to_commit({})[TP].offset == 1, "what was done in time counts"


# Batches.


def test_a_batch_is_of_one_lane() -> None:
    some = work(BY_KEY, batch=3)
    some.receive(TP, [record(n, b"ab"[n % 2 : n % 2 + 1]) for n in range(8)], 0.0)
    assert packs(some) == [[0, 2, 4], [1, 3, 5]]


def test_a_batch_without_order_takes_what_there_is() -> None:
    some = work(batch=4)
    some.receive(TP, records(range(6)), 0.0)
    assert packs(some) == [[0, 1, 2, 3], [4, 5]]


def test_a_batch_has_no_record_of_a_paused_partition() -> None:
    some = work(BY_KEY, batch=10, one_set_of_lanes=True)
    some.receive(TP, [record(0, b"a")], 0.0)
    some.receive(OTHER, [record(5, b"a", OTHER)], 0.0)
    some.receive(TP, [record(1, b"a")], 0.0)
    some.suspend([OTHER])
    pack = some.take_pack()
    assert pack is not None
    assert [item.record.offset for item in pack.items] == [0]
    some.pack_succeeded(pack, 0.0)
    assert packs(some) == []
    assert some.held == some.suspended == 2, "the last one stands behind the paused one"
    some.suspend([])
    assert packs(some) == [[5, 1]]


@pytest.mark.parametrize("when", ["as it is tried again", "before it is tried again", "while it waits"])
@pytest.mark.parametrize(("key", "paused", "left"), [
    (None, TP, [[5]]), (None, OTHER, [[0, 1]]), (b"a", TP, []), (b"a", OTHER, [[0]]),
])  # fmt: skip
def test_a_batch_that_is_tried_again_is_without_the_records_of_a_paused_partition(
    when: str, key: bytes | None, paused: TopicPartition, left: list[list[int]]
) -> None:
    some = work(BY_KEY, batch=3, one_set_of_lanes=True)
    some.receive(TP, [record(0, key)], 0.0)
    some.receive(OTHER, [record(5, key, OTHER)], 0.0)
    some.receive(TP, [record(1, key)], 0.0)
    pack = some.take_pack()
    assert pack is not None
    assert len(pack.items) == 3
    if when == "before it is tried again":
        some.suspend([paused])
    some.retry(pack, 1.0 if when == "while it waits" else 0.0, 0.0)
    if when != "before it is tried again":
        some.suspend([paused])
    some.expire(1.0)
    assert some.suspended == 3 - sum(map(len, left)), "the others are still to be handled"
    taken = []
    while (pack := some.take_pack()) is not None:
        assert pack.attempt == 2
        taken.append(sorted(item.record.offset for item in pack.items))
        some.pack_succeeded(pack, 1.0)
    assert taken == left
    assert some.held == some.suspended
    some.suspend([])
    assert sorted(offset for batch in packs(some) for offset in batch) == sorted({0, 1, 5} - {n for each in left for n in each})


def pack_of_two_partitions() -> tuple[Work, Pack]:
    some = work(batch=3)
    some.receive(TP, records([0]), 0.0)
    some.receive(OTHER, records([5], partition=OTHER), 0.0)
    pack = some.take_pack()
    assert pack is not None
    return some, pack


@pytest.mark.parametrize(("first", "resumed", "left"), [
    ([TP, OTHER], OTHER, [[5]]), ([TP, OTHER], TP, [[0]]), ([TP], TP, [[0]]), ([OTHER], OTHER, [[5]]),
])  # fmt: skip
def test_a_batch_that_waits_while_all_its_partitions_are_paused_goes_on_with_the_first_that_is_resumed(
    first: list[TopicPartition], resumed: TopicPartition, left: list[list[int]]
) -> None:
    some, pack = pack_of_two_partitions()
    some.retry(pack, 1.0, 0.0)
    some.suspend(first)
    some.expire(1.0)
    some.suspend([TP, OTHER])
    assert packs(some) == []
    some.suspend({TP, OTHER} - {resumed})
    assert packs(some) == left
    assert some.suspended == 1


@pytest.mark.parametrize(("leaves", "stays"), [(TP, OTHER), (OTHER, TP)])
def test_a_batch_of_a_partition_that_has_left_waits_in_one_that_stays(leaves: TopicPartition, stays: TopicPartition) -> None:
    some, pack = pack_of_two_partitions()
    some.retry(pack, 0.0, 0.0)
    some.forget([leaves])
    some.suspend([stays])
    assert packs(some) == []
    assert some.held == some.suspended == 1
    some.suspend([])
    assert packs(some) == [[0] if stays == TP else [5]]


def test_what_stands_behind_a_paused_partition_in_a_lane_is_suspended_too() -> None:
    some = work(BY_KEY, one_set_of_lanes=True)
    some.receive(OTHER, [record(5, b"a", OTHER)], 0.0)
    some.receive(TP, [record(0, b"a"), record(1, b"b")], 0.0)
    some.suspend([OTHER])
    assert started(some) == [1]
    assert (some.held, some.suspended) == (3, 2)


def test_what_waited_of_a_paused_partition_that_leaves_is_not_suspended() -> None:
    some = work(BY_PARTITION)
    some.receive(TP, records(range(100)), 0.0)
    some.receive(OTHER, records(range(50), partition=OTHER), 0.0)
    running = some.take()
    assert running is not None
    some.suspend([TP])
    some.leave([TP])
    assert (some.held, some.suspended) == (51, 0)


@pytest.mark.parametrize("key", [None, b"a"])
def test_records_of_a_batch_that_was_broken_up_keep_their_attempt_and_are_handled_with_no_other(key: bytes | None) -> None:
    some = work(BY_KEY, batch=3, one_set_of_lanes=True)
    some.receive(TP, records(range(2), key), 0.0)
    some.receive(OTHER, [record(5, key, OTHER)], 0.0)
    pack = some.take_pack()
    assert pack is not None
    assert len(pack.items) == 3
    some.retry(pack, 0.0, 0.0)
    pack = some.take_pack()
    assert pack is not None
    assert pack.attempt == 2
    some.receive(TP, [record(2, key)], 0.0)
    some.forget([OTHER])
    some.interrupted(pack, 0.0)
    taken = []
    while (pack := some.take_pack()) is not None:
        taken.append((pack.attempt, [item.record.offset for item in pack.items]))
        some.pack_succeeded(pack, 0.0)
    assert taken == [(2, [0, 1]), (1, [2])]


def test_what_has_no_record_for_the_attempt_of_a_batch_keeps_its_turn() -> None:
    some = work(batch=2)
    some.receive(TP, records(range(4)), 0.0)
    some.receive(OTHER, records(range(5, 9), partition=OTHER), 0.0)
    for item in some.parts[OTHER].ready:
        for each in item.items:
            each.attempt = 4
    assert packs(some) == [[0, 1], [5, 6], [2, 3], [7, 8]]


def test_the_lane_of_a_batch_is_closed_until_it_is_done() -> None:
    some = work(BY_PARTITION, batch=2)
    some.receive(TP, records(range(4)), 0.0)
    pack = some.take_pack()
    assert pack is not None
    assert packs(some) == []
    some.pack_succeeded(pack, 0.0)
    assert packs(some) == [[2, 3]]


def test_a_batch_that_is_not_full_waits_for_more() -> None:
    some = work(BY_KEY, batch=2, linger=1.0)
    some.receive(TP, [record(0, b"a")], 0.0)
    assert packs(some) == []
    assert some.due_at == 1.0
    some.receive(TP, [record(1, b"a"), record(2, b"b")], 0.5)
    assert packs(some) == [[0, 1]], "full"
    assert not some.expire(1.4)
    assert some.expire(1.5)
    assert packs(some) == [[2]], "long enough"


def test_a_batch_without_order_waits_for_more() -> None:
    some = work(batch=3, linger=1.0)
    some.receive(TP, records(range(2)), 0.0)
    some.receive(OTHER, records(range(2), partition=OTHER), 0.5)
    assert sorted(map(len, packs(some))) == [3]
    assert some.expire(1.5)
    assert packs(some) == [[1]]


def test_what_lingers_of_a_partition_that_leaves_is_forgotten() -> None:
    some = work(BY_KEY, batch=3, linger=1.0)
    some.receive(TP, [record(0, b"a"), record(1, None)], 0.0)
    some.receive(OTHER, [record(0, b"a", OTHER)], 0.0)
    some.forget([TP])
    assert some.expire(1.0)
    assert packs(some) == [[0]]
    assert some.held == 1


def test_the_rest_of_a_lane_lingers_from_when_it_came() -> None:
    some = work(BY_KEY, batch=2, linger=1.0)
    some.receive(TP, records(range(3), b"a"), 0.0)
    pack = some.take_pack()
    assert pack is not None
    some.pack_succeeded(pack, 0.3)
    assert packs(some) == []
    assert some.expire(1.0)
    assert packs(some) == [[2]]


def test_what_was_in_a_batch_that_is_tried_again_lingers_from_when_it_came() -> None:
    some = work(BY_KEY, batch=10, linger=60.0)
    some.receive(TP, records(range(3), b"a"), 0.0)
    assert some.expire(60.0)
    pack = some.take_pack()
    assert pack is not None
    assert some.retry(pack, 61.0, 60.0)
    assert some.expire(61.0)
    again = some.take_pack()
    assert again is not None
    some.unhandled(again, again.items[1:], 61.5)
    some.pack_succeeded(again, 62.0)
    assert packs(some) == [[1, 2]]


def test_whoever_looks_at_the_time_is_told_when_a_batch_is_due_sooner() -> None:
    some, told = work(BY_KEY, batch=3, linger=1.0), list[float | None]()
    some.lanes.due_sooner = lambda: told.append(some.due_at)
    some.receive(TP, [record(0, b"a"), record(1, b"b")], 0.0)
    assert told == [1.0], "the second is not due sooner"
    some.expire(1.0)
    taken = [some.take_pack(), some.take_pack()]
    some.receive(TP, [record(2, b"a"), record(3, b"b")], 1.2)
    assert told == [1.0]
    for pack in taken:
        assert pack is not None
        some.pack_succeeded(pack, 1.5)
    assert told == [1.0, 2.2]


def test_a_batch_that_is_broken_up_keeps_the_order_of_its_lane() -> None:
    some = work(BY_KEY, batch=4, one_set_of_lanes=True)
    some.receive(OTHER, [record(9, b"a", OTHER)], 0.0)
    some.receive(TP, records(range(5), b"a"), 0.0)
    pack = some.take_pack()
    assert pack is not None
    some.forget([OTHER])
    some.interrupted(pack, 0.0)
    assert packs(some) == [[0, 1, 2, 3]]
