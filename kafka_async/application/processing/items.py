"""Records on their way to a handler, and the partitions that they are of."""

from collections import deque
from collections.abc import Hashable
from typing import Any
from uuid import UUID

from ...model import ConsumerRecord
from ...values import define, field
from .done import PartitionProgress

Record = ConsumerRecord[Any, Any]


@define(eq=False)
class Part:
    """One partition: which of its records are done and which wait."""

    progress: PartitionProgress
    lanes: "dict[Hashable, deque[Item] | None]" = field(factory=dict)
    """Lanes with a record that is ready, handled or waiting to be tried again, and the records after that one."""
    ready: "deque[Item | Pack]" = field(factory=deque, init=False)
    live: bool = field(default=True, init=False)
    """``False`` if it is about to leave, or has left: nothing more of it is handled."""
    gone: bool = field(default=False, init=False)
    """It has left, or was sought elsewhere: results of its records no longer count."""
    running: int = field(default=0, init=False)
    """Records that are being handled."""
    earlier: "tuple[Part, ...]" = field(default=(), init=False)
    """The same partition before it went on elsewhere, as far as handlers still ran then: it is ours as long as this is."""
    topic_id: UUID | None = field(default=None, init=False)
    """Id of the topic that was assigned: a topic that is created again has another one."""
    paused: bool = field(default=False, init=False)
    """Nothing of it is handled for now."""
    held_up: int = field(default=0, init=False)
    """Records of it that are ``HeldUp``."""
    held_up_bytes: int = field(default=0, init=False)


@define(eq=False)
class Item:
    """One record on its way."""

    part: Part
    lane: Hashable
    """``None``: needs no order."""
    record: Record
    number: int
    """In ``part.progress``."""
    arrived: float
    """When it was received, or has become due."""
    waits_since: float
    """As ``arrived``, until it was handled: then since it may be handled again."""
    attempt: int = 1
    """0 with an ``error``, since no handler gets it."""
    error: BaseException | None = None
    """Why the record cannot be handed to a handler: it could not be deserialized, or its lane or its time could not be found."""
    raw: Record | None = None
    """The record before deserializers and interceptors; ``None``: the same."""
    held_up: bool = False
    """It counts in ``HeldUp``."""

    @property
    def items(self) -> "list[Item]":
        return [self]


@define(eq=False)
class Pack:
    """Records that are handled together."""

    items: list[Item]
    attempt: int = 1

    @property
    def arrived(self) -> float:
        return self.items[0].arrived

    @property
    def waits_since(self) -> float:
        return self.items[0].waits_since

    def waited_behind_first(self, now: float) -> float:
        """Return the seconds for which all its records but the first have waited, together."""
        return sum([now - item.waits_since for item in self.items]) - (now - self.items[0].waits_since)
