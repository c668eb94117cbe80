"""Members of groups whose coordinator lets nobody begin anew whom it knows: brokers before KAFKA-19233.

They refuse epoch 0 of a member that is in the group, unless that is the epoch that the member had before: then an answer may have
been lost. To leave is granted whatever the epoch.
"""

from typing import Any

import anyio
import pytest
from attrs import define

from kafka_async import ShareConsumer, TopicPartition
from kafka_async.errors import FencedMemberEpochError
from kafka_async.testing import Api, Drop

from .others import GROUP
from .support import Ownership, offsets_of, virtual


@define(eq=False)
class OldCoordinator:
    """Has the coordinators of ``place`` answer as they did then."""

    place: Ownership
    refused: int = 0
    """How often a member was refused."""
    loses: int = 0
    """How many requests to leave are still to be lost on the way."""

    def __attrs_post_init__(self) -> None:
        self.place.kit.control(Api.CONSUMER_GROUP_HEARTBEAT, self._answer, keep=True)
        self.place.kit.control(Api.SHARE_GROUP_HEARTBEAT, self._answer, keep=True)

    def _answer(self, broker: int, request: Any) -> Any:
        if request.member_epoch < 0 and self.loses:
            self.loses -= 1
            return Drop()
        known = self.members.get(request.member_id)
        if request.member_epoch != 0 or known is None or known.previous <= 0:
            return None
        self.refused += 1
        return FencedMemberEpochError

    @property
    def members(self) -> dict[str, Any]:
        groups = self.place.cluster.groups
        tables: tuple[dict[str, Any], ...] = (groups.consumer, groups.shares.groups)
        return {key: member for table in tables if GROUP in table for key, member in table[GROUP].members.items()}


async def _in_a_later_epoch(old: OldCoordinator, consumer: Any, other: Any) -> None:
    """Have ``other`` come and go, until the member of ``consumer`` has an epoch before its own that is not 0."""
    async with other:
        await anyio.sleep(1)
        with anyio.move_on_after(10):
            while True:
                await consumer.getmany(timeout_ms=100)
    with anyio.fail_after(30):
        while any(member.previous <= 0 for member in old.members.values()):
            await consumer.getmany(timeout_ms=100)


async def _comes_back(old: OldCoordinator, consumer: Any, topic: str, *, wait: float, lost: bool) -> None:
    old.loses = int(lost)
    consumer.unsubscribe()
    if wait:
        await anyio.sleep(wait)
    consumer.subscribe([topic])
    before = anyio.current_time()
    assert await offsets_of(consumer, 20) == {TopicPartition(topic, 0): list(range(20))}
    assert anyio.current_time() - before < 2
    assert (old.refused, old.loses, len(old.members)) == (1, 0, 1)


ways = pytest.mark.parametrize(
    ("wait", "lost"), [(0.0, False), (0.001, True)], ids=["before it was asked to leave", "when that was lost"]
)


@pytest.mark.slow
@ways
@virtual
async def test_a_member_of_a_consumer_group_that_comes_back_at_once_leaves_before_it_joins(wait: float, lost: bool) -> None:
    place = Ownership()
    place.topic("t", 2)
    place.topic("new")
    old = OldCoordinator(place)
    async with place.consumer("t") as consumer:
        await _in_a_later_epoch(old, consumer, place.consumer("t"))
        await _comes_back(old, consumer, "new", wait=wait, lost=lost)


@pytest.mark.slow
@virtual
async def test_a_member_of_a_share_group_that_was_not_heard_to_leave_leaves_before_it_joins() -> None:
    place = Ownership()
    place.kit.group(GROUP, share_auto_offset_reset="earliest")
    place.topic("t", 2)
    place.topic("new")
    old = OldCoordinator(place)

    def member() -> Any:
        return ShareConsumer("t", group_id=GROUP, **place.kit.options())

    async with member() as consumer:
        await _in_a_later_epoch(old, consumer, member())
        old.loses = 1
        with anyio.move_on_after(0.01):
            await consumer.unsubscribe()
        consumer.subscribe(["new"])
        before = anyio.current_time()
        assert await offsets_of(consumer, 20) == {TopicPartition("new", 0): list(range(20))}
        assert anyio.current_time() - before < 2
        assert (old.refused, old.loses, len(old.members)) == (1, 0, 1)
