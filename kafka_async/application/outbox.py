"""The application's end of the queue to the background.

While partitions are being given up for ``unsubscribe``, later events of the application wait here. Sent past it, a ``subscribe``
would reach the background before the end of the former subscription, and be ended by it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic

from typing_extensions import TypeVar

from ..background.boundary import EventHandler
from ..events import (
    ApplicationEvent,
    CommitOffsets,
    FetchCommitted,
    FindClientInstanceId,
    ListOffsets,
    PartitionsAssigned,
    PartitionsRevoked,
    Stop,
    TakeSnapshot,
    TopicMetadata,
)
from ..values import define, field

_INDEPENDENT: Final = (
    CommitOffsets,
    FetchCommitted,
    FindClientInstanceId,
    ListOffsets,
    PartitionsAssigned,
    PartitionsRevoked,
    Stop,
    TakeSnapshot,
    TopicMetadata,
)
"""Events that need no place in the order: the call-back that is waited for may commit and look things up."""

E_contra = TypeVar("E_contra", contravariant=True, default=ApplicationEvent)


@define(eq=False)
class Outbox(Generic[E_contra]):
    """Where the application's parts put their events."""

    handler: EventHandler[E_contra] = field(repr=False)
    _waiting: list[E_contra] | None = field(default=None, init=False)

    def add(self, event: E_contra) -> None:
        """Send an event. Those about subscription, assignment and positions keep their order."""
        if self._waiting is None or isinstance(event, _INDEPENDENT):
            self.handler.add(event)
        else:
            self._waiting.append(event)

    def add_now(self, event: E_contra) -> None:
        """Send an event before all those that wait."""
        self.handler.add(event)

    def hold(self) -> None:
        """Hold later events until ``release``."""
        if self._waiting is None:
            self._waiting = []

    def release(self) -> None:
        """Send what waited."""
        waiting, self._waiting = self._waiting or [], None
        if waiting:
            self.handler.add_all(waiting)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send the events of the block at its end, all at once.

        Else the background's thread may act on a part: it would look up positions for partitions that are about to get theirs.
        """
        held = self._waiting is not None
        self.hold()
        try:
            yield
        finally:
            if not held:
                self.release()
