"""Limits of single routes: how many of their handlers run at once, so that a slow route does not take all the workers.

A record whose route is at its limit is put aside with its lane, as one that waits for a later attempt is, and comes before newer
ones once a handler of the route has ended. What is put aside takes no room, so the other routes go on.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable
from typing import Any, Protocol

from ...values import define, field
from .items import Item, Pack
from .lanes import Lanes
from .process_settings import ProcessSettings
from .queues import Fate, Queue
from .router import Route

Unit = Item | Pack


class Shelf(Queue, Protocol):
    """A queue whose units can be put aside."""

    @property
    def aside(self) -> Collection[Hashable]:
        """The names under which units were put aside."""

    def put_aside(self, unit: Unit, name: Hashable) -> None:
        """A unit that was taken is not handled yet."""

    def bring_back(self, name: Hashable) -> bool:
        """Make the oldest unit that was put aside under a name ready. ``False``: none is to be handled now."""


@define(eq=False)
class Bulkheads:
    """A queue in which the records of some routes count against a limit of their own; all else is up to the queue behind it."""

    queue: Shelf
    limited: Callable[[Any], Route | None]
    """Returns the route of a record if that has a limit."""
    _running: Counter[Route] = field(factory=Counter, init=False)
    _routes: dict[Unit, Route] = field(factory=dict, init=False, repr=False)
    """Units that are being handled, and whose limit they count against."""

    @property
    def lanes(self) -> Lanes:
        return self.queue.lanes

    @property
    def held(self) -> int:
        return self.queue.held

    def take(self) -> Item | None:
        """Return the next record to handle whose route is below its limit."""
        while True:
            while (item := self.queue.take()) is not None:
                route = self.limited(item.record) if item.error is None else None
                if route is None:
                    return item
                if not self._is_full(route):
                    self._running[route] += 1
                    self._routes[item] = route
                    return item
                self.queue.put_aside(item, route)
            # Nearly never: what was brought back has left with its partition, and no handler of this route brings the next one.
            if not any(self.queue.bring_back(route) for route in self.queue.aside if not self._is_full(route)):
                return None

    def _is_full(self, route: Any) -> bool:
        return route.concurrency is not None and self._running[route] >= route.concurrency

    def _leave(self, unit: Unit) -> None:
        """A unit is not handled any more. The next one of its route is ready now, so that resting workers are woken for it."""
        route = self._routes.pop(unit, None)
        if route is not None:
            self._running[route] -= 1
            self.queue.bring_back(route)

    def succeeded(self, item: Item, now: float) -> None:
        self.queue.succeeded(item, now)
        self._leave(item)

    def gave_up(self, unit: Unit, fate: Fate, now: float) -> None:
        self.queue.gave_up(unit, fate, now)
        self._leave(unit)

    def retry(self, unit: Unit, due: float, now: float, *, counts: bool = True) -> bool:
        self._leave(unit)
        return self.queue.retry(unit, due, now, counts=counts)

    def interrupted(self, unit: Unit, now: float) -> None:
        self.queue.interrupted(unit, now)
        self._leave(unit)

    def is_open(self, unit: Unit) -> bool:
        return self.queue.is_open(unit)

    # --- batches, which a router does not have ----------------------------------------------------------------------------------

    def take_pack(self) -> Pack | None:
        return self.queue.take_pack()

    def pack_succeeded(self, pack: Pack, now: float) -> None:
        self.queue.pack_succeeded(pack, now)

    def split(self, pack: Pack, items: Collection[Item]) -> Pack:
        return self.queue.split(pack, items)

    def unhandled(self, pack: Pack, items: Collection[Item], now: float) -> None:
        self.queue.unhandled(pack, items, now)


def limited(queue: Shelf, settings: ProcessSettings) -> Queue:
    """Return the queue with the limits of the router's routes; the queue itself if there are none."""
    router = settings.router
    if router is None or all(route.concurrency is None for route in router.routes):
        return queue

    def route_of(record: Any) -> Route | None:
        route = router.route_of(record)
        return route if route is not None and route.concurrency is not None else None

    return Bulkheads(queue, route_of)
