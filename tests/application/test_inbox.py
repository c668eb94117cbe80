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


class Growing(RevokePartitions):
    """While somebody looks at this, another thread sorts more."""

    def __getattribute__(self, name: str) -> Any:
        if name == "lost":
            grows.proposals.append(_revocation())
        return super().__getattribute__(name)


def _revocation(kind: type[RevokePartitions] = RevokePartitions) -> RevokePartitions:
    return kind(number=1, partitions=frozenset([TopicPartition("t", 0)]), lost=False)


grows = Inbox(EventHandler(lambda: None, lambda: None), GroupMetadata(group_id="g"))


def test_a_look_for_losses_bears_that_another_thread_sorts() -> None:
    grows.proposals.extend([_revocation(Growing), _revocation()])
    assert not grows.has_losses
    assert len(grows.proposals) == 3


def _inbox() -> tuple[EventHandler, Inbox]:
    entered.clear()
    go_on.clear()
    handler = EventHandler(lambda: None, lambda: None)
    return handler, Inbox(handler, GroupMetadata(group_id="g", group_instance_id=None))


def _group(kind: type[GroupChanged], generation: int, subscription: int = 0) -> GroupChanged:
    return kind(member_id="m", generation=generation, state=ConsumerState.STEADY, coordinator=None, subscription=subscription)


def test_what_is_said_of_a_group_before_the_background_has_come_to_a_new_subscription_is_not_about_that() -> None:
    handler, inbox = _inbox()
    first = inbox.subscribe(joins=True)
    handler.publish(_group(GroupChanged, 1, first))
    inbox.sort()
    assert inbox.group_state is ConsumerState.STEADY
    unsubscribed, second = inbox.subscribe(leaves=True), inbox.subscribe(joins=True)
    seen = [inbox.group_state]
    for number in (first, unsubscribed, second):
        handler.publish(_group(GroupChanged, 1, number))
        inbox.sort()
        seen.append(inbox.group_state)
    assert seen == [ConsumerState.JOINING] * 3 + [ConsumerState.STEADY]
    inbox.subscribe(joins=True)
    assert inbox.group_state is ConsumerState.STEADY
    inbox.subscribe(leaves=True)
    handler.publish(_group(GroupChanged, 1, second))
    inbox.sort()
    assert inbox.group_state is None


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
