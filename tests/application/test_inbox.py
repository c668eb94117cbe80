"""What the background has reported, sorted by whichever thread asks first."""

import threading
from typing import Any

from kafka_async import ConsumerState, GroupMetadata, TopicPartition
from kafka_async.application.inbox import Inbox
from kafka_async.background.boundary import EventHandler
from kafka_async.events import GroupChanged, RevokePartitions

entered, go_on = threading.Event(), threading.Event()


class Held(GroupChanged):
    """A thread that deals with this waits until another one has dealt with what came after it, but not for ever."""

    def __getattribute__(self, name: str) -> Any:
        if name == "member_id":
            entered.set()
            go_on.wait(0.5)
        return super().__getattribute__(name)


class HeldRevocation(RevokePartitions):
    """The same."""

    def __getattribute__(self, name: str) -> Any:
        if name == "subscription":
            entered.set()
            go_on.wait(0.5)
        return super().__getattribute__(name)


def _inbox() -> tuple[EventHandler, Inbox]:
    entered.clear()
    go_on.clear()
    handler = EventHandler(lambda: None, lambda: None)
    return handler, Inbox(handler, GroupMetadata(group_id="g", group_instance_id=None))


def _group(kind: type[GroupChanged], generation: int) -> GroupChanged:
    return kind(member_id="m", generation=generation, state=ConsumerState.STEADY, coordinator=None)


def test_two_threads_that_ask_see_no_older_generation_after_a_newer_one() -> None:
    handler, inbox = _inbox()
    handler.publish(_group(Held, 1))
    handler.publish(_group(GroupChanged, 2))
    other = threading.Thread(target=inbox.sort)
    other.start()
    assert entered.wait(5)
    inbox.sort()
    assert inbox.group.generation_id == 2
    go_on.set()
    other.join()
    assert inbox.group.generation_id == 2


def test_a_revocation_that_another_thread_has_taken_is_something_to_deal_with_at_any_moment() -> None:
    handler, inbox = _inbox()
    handler.publish(HeldRevocation(partitions=frozenset([TopicPartition("t", 0)]), number=1, lost=False))
    other = threading.Thread(target=inbox.sort)
    other.start()
    assert entered.wait(5)
    assert not inbox.is_empty
    inbox.sort()
    assert len(inbox.proposals) == 1
    go_on.set()
    other.join()
    assert len(inbox.proposals) == 1
