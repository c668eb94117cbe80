"""The consumers of this process that are started, for whoever reports on the process (``kafka-async run``, tests).

It keeps none of them alive.
"""

import threading
from collections.abc import Iterator, Set
from itertools import count
from typing import Any, Final, Protocol
from weakref import ReferenceType, WeakKeyDictionary, ref

from .model import ConsumerState
from .values import frozen


class Started(Protocol):
    """A consumer, or a share consumer."""

    @property
    def state(self) -> ConsumerState: ...
    @property
    def assigned_once(self) -> bool: ...
    @property
    def alive(self) -> bool: ...
    def metrics(self) -> dict[str, dict[str, float]]: ...


class Chosen(Protocol):
    """What a consumer is to read: topics, a pattern, partitions."""

    @property
    def is_nothing(self) -> bool: ...


@frozen
class _Note:
    name: str
    chosen: ReferenceType[Chosen] | None
    """Weak, because the function that chooses topics may refer to the consumer."""


_known: "WeakKeyDictionary[Started, _Note]" = WeakKeyDictionary()
_lock: Final = threading.Lock()


def note(consumer: Any, client_id: str, chosen: Chosen | None = None) -> None:
    """A consumer is being started. ``chosen`` tells whether it has anything to read; without it, it always has."""
    with _lock:
        if consumer.state is not ConsumerState.NEW:  # this start is refused, and changes nothing
            return
        taken = {each.name for other, each in _known.items() if other is not consumer and other.state is not ConsumerState.CLOSED}
        before = _known.get(consumer)
        # One that is started again keeps its name, unless another took it while the last start was being undone.
        if before is None or before.name in taken:
            _known[consumer] = _Note(_free(client_id, taken), None if chosen is None else ref(chosen))


def _free(client_id: str, taken: Set[str]) -> str:
    """Return a name that is not taken: no consumer has it, or one that is stopped, or whose failed start is being undone."""
    if client_id not in taken:
        return client_id
    return next(name for number in count(2) if (name := f"{client_id}-{number}") not in taken)


def started() -> Iterator[tuple[str, Started, bool]]:
    """Yield the consumers that are started and not stopped: a name, the consumer, and whether it has anything to read.

    The name is ``client_id``; a number follows if others had the same when it was started. It stays: metrics go by it.
    """
    with _lock:
        known = tuple(_known.items())
    for consumer, each in known:
        if consumer.state not in (ConsumerState.NEW, ConsumerState.CLOSED):
            chosen = None if each.chosen is None else each.chosen()
            yield each.name, consumer, chosen is None or not chosen.is_nothing
