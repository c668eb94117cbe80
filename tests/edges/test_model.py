"""The model itself: it complains when it must, and only then."""

from collections.abc import Callable

import pytest

from kafka_async import TopicPartition

from .model import Model

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def owning(*partitions: TopicPartition, start: int = 0, eager: bool = False) -> Model:
    model = Model(eager=eager)
    model.assigned(dict.fromkeys(partitions or (A,), start))
    model.ready(partitions or (A,))
    return model


def test_records_in_order_are_right() -> None:
    model = owning(A, B)
    model.read_entered()
    model.handed_out(A, [0, 1, 2])
    model.handed_out(B, [0])
    model.handed_out(A, [3])
    assert not model.breaches


def _skipped(model: Model) -> None:
    model.handed_out(A, [0, 2])


def _repeated(model: Model) -> None:
    model.handed_out(A, [0, 0])


def _strange(model: Model) -> None:
    model.handed_out(B, [0])


def _paused(model: Model) -> None:
    model.paused(A, True)
    model.handed_out(A, [0])


def _revoked(model: Model) -> None:
    model.call_back_begins("revoked", [A])
    model.handed_out(A, [0])


def _after_revocation(model: Model) -> None:
    model.revoked([A])
    model.handed_out(A, [0])


def _gone(model: Model) -> None:
    model.gone([A])
    model.handed_out(A, [0])


def _before_ready(model: Model) -> None:
    model.assigned({B: 0})
    model.handed_out(B, [0])


def _poison_handed_out(model: Model) -> None:
    model.poison.add((A, 0))
    model.handed_out(A, [0])


def _poison_twice(model: Model) -> None:
    model.poison.add((A, 0))
    model.poison_raised(A, 0)
    model.poison_raised(A, 0)


def _no_poison(model: Model) -> None:
    model.poison_raised(A, 0)


def _halted(model: Model) -> None:
    model.corrupt[A] = [(0, 4)]
    model.corrupt_raised(A, 0)
    model.handed_out(A, [5])


def _corrupt_early(model: Model) -> None:
    model.corrupt[A] = [(5, 9)]
    model.corrupt_raised(A, 5)


def _not_done(model: Model) -> None:
    model.read_entered()
    model.handed_out(A, [0])
    model.commit_arrived(A, 1)


def _back(model: Model) -> None:
    model.handed_out(A, [0, 1])
    model.commit_called()
    model.commit_arrived(A, 2)
    model.commit_arrived(A, 0)


def _seen_twice(model: Model) -> None:
    model.saw("interceptor", A, 0)
    model.saw("interceptor", A, 0)


def _two_call_backs(model: Model) -> None:
    model.call_back_begins("assigned", [B])
    model.call_back_begins("revoked", [A])


def _assigned_twice(model: Model) -> None:
    model.call_back_begins("assigned", [A])


def _revoked_a_stranger(model: Model) -> None:
    model.call_back_begins("revoked", [B])


def _cancelled_call_back(model: Model) -> None:
    model.call_back_begins("assigned", [B])
    model.call_back_ends("assigned", well=False)


def _after_stop(model: Model) -> None:
    model.stopped = True
    model.handed_out(A, [0])


def _flaky_behind(model: Model) -> None:
    model.handed_out(A, [0, 1])
    model.flaky_raised(A, 0)


def _wrong_position(model: Model) -> None:
    model.position_seen(A, 3, "position()")


def _unsubscribe_unsaid(model: Model) -> None:
    model.unsubscribed()
    model.call_back_begins("assigned", [A])


@pytest.mark.parametrize(
    "wrong",
    [
        _skipped,
        _repeated,
        _strange,
        _paused,
        _revoked,
        _after_revocation,
        _gone,
        _before_ready,
        _poison_handed_out,
        _poison_twice,
        _no_poison,
        _halted,
        _corrupt_early,
        _not_done,
        _back,
        _seen_twice,
        _two_call_backs,
        _assigned_twice,
        _revoked_a_stranger,
        _cancelled_call_back,
        _after_stop,
        _flaky_behind,
        _wrong_position,
        _unsubscribe_unsaid,
    ],
)
def test_the_model_complains_of(wrong: Callable[[Model], None]) -> None:
    model = owning()
    wrong(model)
    assert model.breaches


def test_what_was_done_may_be_committed() -> None:
    model = owning()
    model.handed_out(A, [0, 1])
    model.read_entered()
    model.handed_out(A, [2])
    model.commit_arrived(A, 2)
    assert model.commit_called() == {A: 3}
    model.commit_arrived(A, 3)
    assert not model.breaches


def test_a_seek_back_lets_commits_go_back() -> None:
    model = owning()
    model.handed_out(A, range(10))
    model.read_entered()
    model.commit_arrived(A, 10)
    model.sought(A, 3)
    model.commit_arrived(A, 10)
    model.handed_out(A, [3])
    model.read_entered()
    model.commit_arrived(A, 4)
    assert not model.breaches


def test_commits_that_were_under_way_when_partitions_were_assigned_again_may_go_back_as_the_seek_before_did() -> None:
    model = owning()
    model.handed_out(A, [0])
    model.read_entered()
    model.sought(A, 0)
    model.assigned_by_user({})
    model.assigned_by_user({A: 0}, owed=True)
    model.commit_arrived(A, 1)
    model.commit_arrived(A, 0)
    assert not model.breaches


def test_what_a_reader_has_in_hand_comes_again_after_another_task_gave_its_partition_up() -> None:
    model = owning()
    model.handed_out(A, [0])
    model.read_entered()
    model.handed_out(A, [1])
    model.another_task_acts()
    model.assigned_by_user({})
    model.commit_arrived(A, 1)
    model.assigned_by_user({A: 1}, owed=True)
    model.handed_out(A, [1])
    assert not model.breaches


def test_what_was_fetched_of_each_former_topic_may_come_in_their_order() -> None:
    model = owning()
    model.made_anew([A])
    model.made_anew([A])
    model.handed_out(A, [0, 1], topic=0)
    model.handed_out(A, [0, 1], topic=1)
    model.handed_out(A, [0], topic=2)
    assert not model.breaches
    model.handed_out(A, [2], topic=1)
    assert model.breaches


def test_a_partition_given_up_begins_at_its_committed_offset_if_its_last_commit_was_refused() -> None:
    for refused in (True, False):
        model = owning()
        model.handed_out(A, [0])
        model.read_entered()
        model.assigned_by_user({})
        model.assigned_by_user({A: 0}, owed=True)
        if refused:
            model.commit_refused(A, 0)
        model.handed_out(A, [0])
        assert bool(model.breaches) is not refused


def test_a_poison_record_counts_as_passed_once_it_was_raised() -> None:
    model = owning()
    model.poison.add((A, 1))
    model.handed_out(A, [0])
    model.poison_raised(A, 1)
    model.handed_out(A, [2])
    assert not model.breaches


def test_an_eager_rebalance_keeps_position_and_pause_of_what_stays() -> None:
    model = owning(eager=True)
    model.handed_out(A, [0, 1])
    model.paused(A, True)
    model.revoked([A], generation=3)
    assert model.assigned({A: 0}, generation=4) == set()
    model.ready([A])
    assert model.cursors[A].paused
    assert model.cursors[A].due == {2}


def test_what_others_had_comes_back_as_committed() -> None:
    model = owning(eager=True)
    model.handed_out(A, [0, 1])
    model.revoked([A], generation=3)
    model.taken([A])
    model.assigned({A: 5}, generation=4)
    assert model.cursors[A].due == {5}


def test_nobody_can_know_what_stayed_if_a_generation_was_missed() -> None:
    model = owning(eager=True)
    model.handed_out(A, [0, 1])
    model.revoked([A], generation=3)
    assert model.assigned({A: 0}, generation=5) == {A}
    assert model.cursors[A].due == {0, 2}


def test_what_is_not_handed_out_yet_may_be_seen_again_if_it_was_put_back() -> None:
    model = owning()
    for offset in (0, 1):
        model.saw("deserializer", A, offset)
    model.handed_out(A, [0])
    model.see_again()
    model.saw("deserializer", A, 1)
    assert not model.breaches
    model.saw("deserializer", A, 0)
    assert model.breaches


def test_a_commit_from_before_a_seek_back_may_arrive_after_the_partition_was_given_up() -> None:
    model = owning()
    model.handed_out(A, [0])
    model.read_entered()
    model.sought(A, 0)
    model.assigned_by_user({})
    model.commit_arrived(A, 1)
    assert not model.breaches
    model.commit_arrived(A, 2)
    assert model.breaches


def test_a_place_that_was_sought_twice_may_both_times_have_been_meant_for_the_former_topic() -> None:
    model = owning()
    model.handed_out(A, [0])
    model.made_anew([A])
    for offset in (7, 2):
        model.sought(A, offset)
    assert model.cursors[A].due == {0, 2}
    assert model.commit_called({A: 2}) == {}


def test_what_was_lost_before_the_application_gave_it_up_begins_where_it_is_committed() -> None:
    model = owning()
    model.handed_out(A, [0])
    model.read_entered()
    model.call_back_begins("lost", [A])
    model.unsubscribed()
    model.assigned_by_user({A: 0}, owed=True)
    assert model.cursors[A].due == {0}


def test_what_belonged_to_others_as_the_application_gave_it_up_may_begin_where_they_have_committed() -> None:
    model = owning()
    model.handed_out(A, [0])
    model.read_entered()
    model.gone([A])
    model.unsubscribed()
    model.assigned_by_user({A: 2}, owed=True)
    assert model.cursors[A].due == {1, 2}


def test_a_partition_that_left_while_an_offset_was_looked_up_may_come_back_with_it() -> None:
    model = owning(eager=True)
    model.handed_out(A, [0, 1])
    model.revoked([A], generation=3)
    model.sought_after_a_wait(A, 9)
    model.assigned({A: 2}, generation=4)
    assert model.cursors[A].due == {2, 9}
