"""What the application sends as one, the background sees as one, however fast its thread is."""

import pytest

from kafka_async import TopicPartition
from kafka_async.application.outbox import Outbox
from kafka_async.background.boundary import EventHandler
from kafka_async.events import ApplicationEvent, AssignFromUser, Call, CommitOffsets, PausePartitions, Seek

A0 = TopicPartition("a", 0)
ASSIGN = AssignFromUser(stamps={A0: 1})
SEEK = Seek(partition=A0, stamp=2, offset=5)
PAUSE = PausePartitions(partitions=frozenset({A0}))


class Fastest:
    """A background that takes all there is at each wake-up."""

    def __init__(self) -> None:
        self.turns: list[list[ApplicationEvent]] = []
        self.handler: EventHandler = EventHandler(self._turn, lambda: None)
        self.outbox = Outbox(self.handler)

    def _turn(self) -> None:
        self.turns.append(list(self.handler.drain_application()))


def test_events_of_a_block_are_carried_out_in_one_turn() -> None:
    fastest = Fastest()
    fastest.outbox.add(PAUSE)
    with fastest.outbox.together():
        fastest.outbox.add(ASSIGN)
        fastest.outbox.add(SEEK)
    assert fastest.turns == [[PAUSE], [ASSIGN, SEEK]]


def test_a_block_that_fails_sends_what_it_had() -> None:
    fastest = Fastest()

    def fail() -> None:
        with fastest.outbox.together():
            fastest.outbox.add(ASSIGN)
            raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        fail()
    fastest.outbox.add(SEEK)
    assert fastest.turns == [[ASSIGN], [SEEK]]


def test_a_block_while_events_are_held_leaves_them_held() -> None:
    fastest = Fastest()
    fastest.outbox.hold()
    with fastest.outbox.together():
        fastest.outbox.add(ASSIGN)
        fastest.outbox.add(SEEK)
    assert fastest.turns == []
    fastest.outbox.release()
    fastest.outbox.release()
    assert fastest.turns == [[ASSIGN, SEEK]]


def test_what_needs_no_order_does_not_wait_for_a_block() -> None:
    fastest = Fastest()
    commit = CommitOffsets(call=Call(9.0), offsets={})
    with fastest.outbox.together():
        fastest.outbox.add(ASSIGN)
        fastest.outbox.add(commit)
        assert fastest.turns == [[commit]]
    assert fastest.turns == [[commit], [ASSIGN]]
