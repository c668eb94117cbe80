"""``kafka_async.application.processing.source``: processing hears of a rebalance before the listener of the application does."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from kafka_async import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka_async.application.processing.source import Chained
from kafka_async.application.reading.cursor import PauseReason
from tests.application.support import virtual

TP = frozenset({TopicPartition("t", 0)})


class Listener(ConsumerRebalanceListener):
    """A listener of the application, whose call-backs are plain functions."""

    def __init__(self, heard: list[str], error: Exception | None = None) -> None:
        self.heard, self.error = heard, error

    def _hear(self, what: str) -> None:
        self.heard.append(f"application: {what}")
        if self.error is not None:
            raise self.error

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Any:
        self._hear("revoked")

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Any:
        self._hear("assigned")

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Any:
        self._hear("lost")


class Follows:
    """Takes part in rebalances, and tells what it hears."""

    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    @contextmanager
    def calling_back(self) -> Iterator[None]:
        self.heard.append("(")
        try:
            yield
        finally:
            self.heard.append(")")

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        assert partitions == TP
        self.heard.append("revoked")

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        assert partitions == TP
        self.heard.append("assigned")

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        assert partitions == TP
        self.heard.append("lost")

    async def on_sought(self, partitions: Collection[TopicPartition]) -> None:
        assert partitions == TP
        self.heard.append("sought")

    def on_seek(self, partition: TopicPartition, target: OffsetAndMetadata) -> None:
        raise AssertionError

    def on_pauses(self, why: PauseReason) -> None:
        self.heard.append("pauses")

    def still_to_do(self, partition: TopicPartition, offset: int, topic_id: UUID | None) -> int | None:
        self.heard.append("still to do")
        return None

    async def settle(self) -> None:
        self.heard.append("settle")

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append("give up")


def chained(heard: list[str]) -> Chained:
    return Chained(Follows(heard))


async def all_of(listener: Chained) -> None:
    await listener.on_partitions_assigned(TP)
    await listener.on_partitions_revoked(TP)
    await listener.on_partitions_lost(TP)


@virtual
async def test_processing_is_told_first_and_asks_after_an_assignment_whether_the_application_sought() -> None:
    heard: list[str] = []
    await all_of(chained(heard).before(Listener(heard)))
    assert " ".join(heard) == (
        "( assigned application: assigned sought ) ( revoked application: revoked ) ( lost application: lost )"
    )


@virtual
async def test_without_a_listener_nobody_can_have_sought() -> None:
    heard: list[str] = []
    await all_of(chained(heard))
    assert " ".join(heard) == "( assigned ) ( revoked ) ( lost )"


@virtual
async def test_a_listener_that_takes_the_place_of_another_is_called_from_then_on() -> None:
    heard: list[str] = []
    former: list[str] = []
    some = chained(heard).before(Listener(former))
    await some.before(Listener(heard)).on_partitions_lost(TP)
    assert (heard, former) == (["(", "lost", "application: lost", ")"], [])


@virtual
async def test_what_was_due_before_another_listener_took_its_place_is_still_for_the_former_one() -> None:
    heard: list[str] = []
    latter: list[str] = []
    some = chained(heard).before(Listener(heard))
    due = some.on_partitions_revoked(TP)
    some.before(Listener(latter))
    await due
    assert (heard, latter) == (["(", "revoked", "application: revoked", ")"], [])


@virtual
async def test_what_a_listener_raises_is_raised_and_what_was_around_it_ends() -> None:
    heard: list[str] = []
    some = chained(heard).before(Listener(heard, ValueError("not now")))
    with pytest.raises(ValueError, match="not now"):
        await some.on_partitions_assigned(TP)
    assert heard == ["(", "assigned", "application: assigned", ")"]
