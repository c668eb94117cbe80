"""When the managers are polled: those that may have something to do, and no others.

None is polled later than in a turn that polls all of them (``tests/background/loop/test_agenda.py`` compares the two).

A consumer that reads takes a turn for every Fetch response, hundreds of them a second, and only the fetch manager has anything to
do in it. So there are two kinds of turns: one polls the fetch manager alone, the other every manager. That saves 13 % of the CPU
time of a round trip (195 and 169 us in Python 3.11, medians of nine pairs of 1,500 trips each). All are polled if

- one of the others is due: its ``wake_at`` has come,
- an event of the application was carried out, or a call of it waits for an answer,
- one of the others got an answer,
- something changed that they depend on: the picture of the cluster, a wish for a new one, the assignment or a position that does
  not follow from fetching, a connection.

It does not matter which managers a change concerns: changes are rare, and managers use each other in the order in which they are
polled.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from ...values import define, field
from ..cluster.metadata import MetadataManager
from ..positions.subscription import SubscriptionState
from .environment import Network
from .request_manager import NEVER, Poll, RequestManager

_Changes: TypeAlias = tuple[int, int, int]


@define(eq=False, kw_only=True)
class Agenda:
    """The managers, and when they are due."""

    managers: tuple[RequestManager, ...]
    """In the order in which they are polled."""
    fetch: RequestManager
    """The one of them that is polled in every turn."""
    subscription: SubscriptionState = field(repr=False)
    metadata: MetadataManager = field(repr=False)
    network: Network = field(repr=False)
    _due_at: float = field(default=-NEVER, init=False)
    """When the first of the others is due."""
    _touched: bool = field(default=True, init=False)
    _seen: _Changes = field(default=(-1, -1, -1), init=False)
    """The state that the others depend on, as of their last poll."""
    _seen_network: int = field(default=-1, init=False)
    """The same of connections, which no manager changes."""

    def touch(self) -> None:
        """Poll every manager in the next turn."""
        self._touched = True

    def poll(self, now: float) -> Poll:
        """Poll the managers that may have something to do."""
        if self._touched or self._due_at <= now or self.network.changes != self._seen_network or self._changes() != self._seen:
            return self.poll_all(now)
        poll = self.fetch.poll(now)
        if self._changes() != self._seen:  # fetching has found out something that later managers act on now
            after = self._poll(self.managers[self.managers.index(self.fetch) + 1 :], now)
            return Poll(poll.requests + after.requests, min(poll.wake_at, self._due_at))
        return poll if poll.wake_at <= self._due_at else Poll(poll.requests, self._due_at)

    def poll_all(self, now: float) -> Poll:
        """Poll every manager."""
        self._touched = False
        self._seen = self._changes()
        self._seen_network = self.network.changes
        self._due_at = NEVER
        return self._poll(self.managers, now)

    def _poll(self, managers: tuple[RequestManager, ...], now: float) -> Poll:
        requests: list[Any] = []
        wake_at = NEVER
        for manager in managers:
            poll = manager.poll(now)
            if manager is self.fetch:
                requests.extend(poll.requests)
                wake_at = poll.wake_at
                continue
            for request in poll.requests:  # an answer to one of them makes every manager be polled in the next turn
                request.on_done = self._touching(request.on_done)
                requests.append(request)
            self._due_at = min(self._due_at, poll.wake_at)
        return Poll(tuple(requests), min(wake_at, self._due_at))

    def _touching(self, on_done: Callable[[Any, float], None]) -> Callable[[Any, float], None]:
        def answered(outcome: Any, now: float) -> None:
            self._touched = True
            on_done(outcome, now)

        return answered

    def _changes(self) -> _Changes:
        """Return numbers that grow with every change of what the managers depend on."""
        metadata = self.metadata
        return metadata.cluster.version, metadata.schedule.wishes, self.subscription.changes
