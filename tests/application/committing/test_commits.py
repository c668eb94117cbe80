"""The one way of a commit: what is sent, what is booked, what is said, and who hears of it."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import anyio
import pytest

from kafka_async import ConsumerInterceptor, OffsetAndMetadata, TopicPartition
from kafka_async.application.committing.commits import AUTO_COMMIT, Commit, Commits, Why, refusal
from kafka_async.application.lifecycle.runtime import TaskRuntime
from kafka_async.application.reading.cursor import PartitionCustody
from kafka_async.background.boundary import Repositioned
from kafka_async.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
)
from kafka_async.events import CommitOffsets
from kafka_async.trace import Fault, Recovered, TraceEvent
from tests.virtual import run_virtual

from ..reading.unread_world import A, B, C
from ..reading.unread_world import World as UnreadWorld

NOW = 5.0
DENIED = TopicAuthorizationFailedError("t")
GONE = CommitFailedError("not ours")
BY_US = [why for why in Why if why is not Why.CALLER]


class Hearing(ConsumerInterceptor):
    def __init__(self, error: Exception | None = None) -> None:
        self.heard: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.error = error

    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.heard.append(offsets)
        error, self.error = self.error, None
        if error is not None:
            raise error


class World:
    def __init__(self, *interceptors: Hearing, **options: Any) -> None:
        self.unread = UnreadWorld(A, B, **options)
        self.seen: list[TraceEvent] = []
        runtime = TaskRuntime()
        runtime.clock = lambda: NOW
        self.commits = Commits(self.unread.unread, runtime, self.unread.unread.outbox, interceptors, self.seen.append)

    def stored(self, partition: TopicPartition) -> tuple[int | None, int | None]:
        """Return what is booked of a partition, and what was tried last."""
        stored = self.unread.entry(partition).stored
        return stored.committed, stored.attempted

    def begin(self, why: Why, **offsets: int) -> Commit:
        return self.commits.begin(at(**offsets), why, 35.0)

    def sent(self) -> list[CommitOffsets]:
        return [event for event in self.unread.handler.application_events if isinstance(event, CommitOffsets)]

    def ended(self, why: Why, refused: Mapping[TopicPartition, KafkaError], **offsets: int) -> KafkaError | None:
        """Have a commit answered, and return what the application has to know."""
        commit = self.begin(why, **offsets)
        commit.call.resolve(refused)
        told = self.commits.end(commit)
        return refusal(told) if told else None

    def faults(self) -> list[tuple[str, frozenset[TopicPartition]]]:
        found = [(event.text, event.partitions) for event in self.seen if isinstance(event, Fault)]
        self.seen.clear()
        return found


def at(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {{"a": A, "b": B, "c": C}[name]: OffsetAndMetadata(offset) for name, offset in offsets.items()}


@pytest.mark.parametrize("why", list(Why))
def test_each_commit_goes_the_same_way_and_is_tried_again_only_for_the_application(why: Why) -> None:
    world = World()
    commit = world.begin(why, a=7)
    (event,) = world.sent()
    assert (event.call, event.offsets, event.once) == (commit.call, at(a=7), why is not Why.CALLER)
    assert (commit.done, commit.call.deadline) == (False, 35.0)
    assert world.stored(A) == (7 if why is Why.GIVEN_UP else None, 7)


def test_nothing_below_what_is_committed_or_on_its_way_is_fresh() -> None:
    world = World()
    assert world.commits.fresh(at(a=0, c=0)) == at(a=0, c=0)
    world.ended(Why.INTERVAL, {}, a=5)
    assert world.commits.fresh(at(a=5, b=5)) == at(b=5)
    world.begin(Why.CALLER, a=9)
    assert world.commits.fresh(at(a=8)) == {}
    assert world.commits.fresh(at(a=9)) == at(a=9), "it may fail"


def test_a_later_commit_of_a_partition_stays_booked_though_the_answer_to_an_earlier_one_is_seen_after_it() -> None:
    world = World()
    earlier, later = world.begin(Why.INTERVAL, a=7, b=3), world.begin(Why.CALLER, a=5)
    for commit in (earlier, later):
        commit.call.resolve({})
    for commit in (later, earlier):
        world.commits.end(commit)
    assert (world.stored(A), world.stored(B)) == ((5, 5), (3, 3))


@pytest.mark.parametrize("why", list(Why))
def test_what_was_committed_is_booked_and_heard_of_and_what_was_refused_is_neither(why: Why) -> None:
    hearing = Hearing()
    world = World(hearing)
    error = world.ended(why, {B: DENIED}, a=7, b=8)
    assert error is DENIED
    assert world.stored(A) == (7, 7)
    assert world.stored(B) == (8 if why is Why.GIVEN_UP else None, 8)
    run_virtual(world.commits.intercept)
    assert hearing.heard == [at(a=7)]


def test_an_offset_of_a_topic_that_was_made_anew_is_no_error_and_not_tried_again() -> None:
    world = World()
    assert world.ended(Why.LEAVING, {A: TopicRecreatedError("t")}, a=7) is None
    assert (world.stored(A), world.faults()) == ((7, 7), [])


def test_what_is_booked_of_one_topic_says_nothing_about_the_next_of_its_name() -> None:
    world = World()
    world.unread.entry(A).belong(UUID(int=2))
    world.commits.book({A: OffsetAndMetadata(7, "", None, UUID(int=1))})
    assert world.stored(A)[0] is None
    world.commits.book({A: OffsetAndMetadata(7, "", None, UUID(int=2))})
    assert world.stored(A)[0] == 7


def test_a_refusal_names_what_is_not_ours_any_more_and_why() -> None:
    error = World().ended(Why.CALLER, {A: GONE, B: DENIED}, a=7, b=8)
    assert isinstance(error, CommitFailedError)
    assert "not assigned to this member (any more)" in str(error)
    assert (error.lost, error.__cause__) == ((A,), DENIED)


def test_the_application_is_told_and_the_log_is_not() -> None:
    world = World()
    assert world.ended(Why.CALLER, {A: DENIED}, a=7) is DENIED
    late = KafkaTimeoutError("late")
    assert world.commits.fail(world.begin(Why.CALLER, a=8), late) is late
    assert world.faults() == []


@pytest.mark.parametrize("why", BY_US)
def test_a_commit_that_nobody_asked_for_is_said_in_the_log(why: Why) -> None:
    world = World()
    late = KafkaTimeoutError("late")
    assert world.commits.fail(world.begin(why, a=8), late) is late
    assert world.faults() == [(why.value, frozenset())]
    if why is not Why.INTERVAL:
        world.ended(why, {A: DENIED}, a=9, b=9)
        assert world.faults() == [(f"some {why.value}", frozenset())]


def test_a_commit_that_failed_as_a_whole_is_told_with_its_error() -> None:
    world = World()
    commit = world.begin(Why.LEAVING, a=7)
    assert not commit.done
    commit.call.fail(GroupAuthorizationFailedError("g"))
    assert (commit.done, type(commit.failure)) == (True, GroupAuthorizationFailedError)
    assert world.commits.end(commit) == {}, "nothing is known about single partitions"
    assert world.faults() == [("consumed offsets could not be committed", frozenset())]
    assert world.stored(A) == (None, 7)


def test_an_auto_commit_that_is_refused_is_an_outage_until_its_partition_is_committed() -> None:
    world = World()
    world.ended(Why.INTERVAL, {A: DENIED}, a=7, b=7)
    (fault,) = world.seen
    assert isinstance(fault, Fault)
    assert (fault.outage, fault.partitions, fault.error) == (AUTO_COMMIT, frozenset((A,)), DENIED)
    world.seen.clear()
    world.ended(Why.INTERVAL, {}, b=8)
    assert world.seen == []
    world.ended(Why.INTERVAL, {}, a=8, b=9)
    (recovered,) = world.seen
    assert isinstance(recovered, Recovered)
    assert (recovered.outage, recovered.partitions, recovered.now) == (AUTO_COMMIT, frozenset((A,)), NOW)


def test_of_a_partition_that_has_left_nothing_is_tried_again_and_no_outage_begins() -> None:
    world = World()
    world.ended(Why.INTERVAL, {A: GONE, C: DENIED}, a=7, c=7)
    (fault,) = world.seen
    assert isinstance(fault, Fault)
    assert (fault.outage, fault.partitions) == ("", frozenset((A, C)))


def test_a_commit_of_the_application_tells_where_other_partitions_began() -> None:
    world = World(auto_offset_reset_new_partitions="earliest")
    for partition, begins in ((A, 3), (B, 4)):
        world.unread.entry(partition).stored.begins = begins
    told = world.begin(Why.CALLER, a=7)
    assert world.sent()[-1].offsets == at(a=7, b=4)
    told.call.resolve({})
    hearing = Hearing()
    world.commits.end(told)
    assert (world.stored(B), world.unread.entry(B).stored.begins) == ((4, None), None)
    assert [offsets for offsets, _ in world.commits.achieved] == [at(a=7)], "nobody is told of them"
    assert hearing.heard == []


@pytest.mark.parametrize("why", [Why.INTERVAL, Why.CALLER])
def test_beginnings_go_along_with_nothing_else_and_not_of_what_is_leaving(why: Why) -> None:
    world = World(auto_offset_reset_new_partitions="earliest")
    world.unread.entry(B).stored.begins = 4
    if why is Why.CALLER:
        world.unread.entry(B).custody = PartitionCustody.LEAVING
    world.begin(why, a=7)
    assert world.sent()[-1].offsets == at(a=7)


@pytest.mark.parametrize("why", list(Why))
@pytest.mark.parametrize("is_over", [False, True])
def test_a_beginning_is_not_sent_after_an_offset_of_its_partition_which_it_would_take_back(why: Why, is_over: bool) -> None:
    world = World(auto_offset_reset_new_partitions="earliest")
    for partition, begins in ((A, 0), (B, 100)):
        world.unread.entry(partition).stored.begins = begins
    first = world.begin(why, b=150)
    if is_over:
        first.call.withdraw()  # its request may have gone out
    world.begin(Why.CALLER, a=7)
    assert world.sent()[-1].offsets == at(a=7)


def test_commits_of_several_tasks_at_once_send_a_beginning_once_and_again_if_nobody_waits_for_it_any_more() -> None:
    world = World(auto_offset_reset_new_partitions="earliest")
    world.unread.entry(B).stored.begins = 4
    first = world.begin(Why.CALLER, a=7)
    world.begin(Why.CALLER, a=8)
    assert [event.offsets for event in world.sent()] == [at(a=7, b=4), at(a=8)]
    first.call.withdraw()
    world.begin(Why.CALLER, a=9)
    assert world.sent()[-1].offsets == at(a=9, b=4)


def test_a_beginning_that_is_refused_is_not_the_callers_and_is_sent_with_the_next_commit() -> None:
    world = World(auto_offset_reset_new_partitions="earliest")
    world.unread.entry(B).stored.begins = 4
    assert world.ended(Why.CALLER, {B: DENIED}, a=7) is None
    assert world.sent()[-1].along == frozenset((B,))
    world.begin(Why.CALLER, a=8)
    assert world.sent()[-1].offsets == at(a=8, b=4)


def test_an_interceptor_that_raises_is_heard_and_the_next_call_goes_on() -> None:
    first, second = Hearing(ZeroDivisionError()), Hearing()
    world = World(first, second)
    world.ended(Why.CALLER, {}, a=7)
    world.ended(Why.CALLER, {}, a=8)
    with pytest.raises(ZeroDivisionError):
        run_virtual(world.commits.intercept)
    run_virtual(world.commits.intercept)
    assert first.heard == [at(a=7), at(a=8)]
    assert second.heard == [at(a=7), at(a=8)]


def test_an_interceptor_after_one_that_was_cancelled_hears_of_the_commit_with_the_next_call() -> None:
    class Slow(Hearing):
        async def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:  # type: ignore[override]  # or async
            super().on_commit(offsets)
            await anyio.sleep(5)

    first, second = Slow(), Hearing()
    world = World(first, second)
    world.ended(Why.CALLER, {}, a=7)

    async def cut() -> None:
        with anyio.move_on_after(1):
            await world.commits.intercept()
        assert second.heard == []
        await world.commits.intercept()

    run_virtual(cut)
    assert (first.heard, second.heard) == ([at(a=7)], [at(a=7)])


def _seeks(world: World) -> None:
    world.unread.unread.move(world.unread.entry(A), (3, None))


def _seeks_to_where_it_is(world: World) -> None:
    world.unread.unread.move(world.unread.entry(A), (7, None))


def _seeks_to_an_end(world: World) -> None:
    world.unread.unread.move(world.unread.entry(A), None)


def _is_assigned_anew(world: World) -> None:
    world.unread.unread.assign((B,))
    world.unread.unread.assign((A, B))


@pytest.mark.parametrize("begins_anew", [_seeks, _seeks_to_where_it_is, _seeks_to_an_end, _is_assigned_anew])
@pytest.mark.parametrize("why", list(Why))
def test_the_answer_to_a_commit_says_nothing_about_a_partition_in_which_reading_began_anew_meanwhile(
    why: Why, begins_anew: Callable[[World], None]
) -> None:
    world = World()
    for partition in (A, B):
        world.unread.entry(partition).place((0, None))
    commit = world.begin(why, a=7, b=7)
    begins_anew(world)
    commit.call.resolve({})
    assert world.commits.end(commit) == {}
    assert (world.stored(A), world.stored(B)) == ((None, None), (7, 7))
    assert world.commits.fresh(at(a=4, b=4)) == at(a=4), "it is read again"


@pytest.mark.parametrize("why", list(Why))
def test_a_commit_that_was_sent_before_there_was_a_position_is_booked_once_there_is_one(why: Why) -> None:
    world = World()
    commit = world.begin(why, a=7)
    world.unread.entry(A).follow(Repositioned(partition=A, stamp=world.unread.entry(A).stamp, offset=2, is_committed=True))
    commit.call.resolve({})
    world.commits.end(commit)
    assert world.stored(A) == (7, 7)


def test_a_beginning_is_not_booked_where_reading_began_anew_meanwhile() -> None:
    world = World(auto_offset_reset_new_partitions="earliest")
    world.unread.entry(B).stored.begins = 4
    commit = world.begin(Why.CALLER, a=7)
    world.unread.unread.move(world.unread.entry(B), (2, None))
    commit.call.resolve({})
    world.commits.end(commit)
    assert (world.stored(A), world.stored(B)) == ((7, 7), (None, None))
