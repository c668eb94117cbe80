"""The two queues."""

from kafka_async.background.boundary import EventHandler
from kafka_async.errors import OffsetOutOfRangeError, TopicAuthorizationFailedError
from kafka_async.events import ErrorEvent, PausePartitions, ResumePartitions

from .support import A


class World:
    def __init__(self) -> None:
        self.woken: list[str] = []
        self.handler = EventHandler(lambda: self.woken.append("background"), lambda: self.woken.append("application"))


def test_each_side_wakes_the_other_and_keeps_the_order() -> None:
    world = World()
    first, second = PausePartitions(partitions=frozenset((A,))), ResumePartitions(partitions=frozenset((A,)))
    world.handler.add(first)
    world.handler.add(second)
    assert world.woken == ["background", "background"]
    assert list(world.handler.drain_application()) == [first, second]
    assert list(world.handler.drain_application()) == []
    world.handler.publish_error(OffsetOutOfRangeError("x"))
    assert world.woken[2:] == ["application"]


def test_an_event_that_comes_while_the_queue_is_drained_is_drained_too() -> None:
    world = World()
    event = PausePartitions(partitions=frozenset((A,)))
    world.handler.add(event)
    drained = 0
    for _ in world.handler.drain_application():
        drained += 1
        if drained == 1:
            world.handler.add(event)
    assert drained == 2


def test_an_error_that_waits_already_is_not_queued_again() -> None:
    world = World()
    for _ in range(1000):
        world.handler.publish_error(TopicAuthorizationFailedError("t"))
    world.handler.publish_error(TopicAuthorizationFailedError("u"))
    world.handler.publish_error(OffsetOutOfRangeError("t"))
    errors = [event.error for event in world.handler.drain_background() if isinstance(event, ErrorEvent)]
    assert [str(error.args[0]) for error in errors] == ["t", "u", "t"]
    world.handler.publish_error(TopicAuthorizationFailedError("t"))
    assert len(list(world.handler.drain_background())) == 1
