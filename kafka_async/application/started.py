"""The consumers of this process that are started, for whoever reports on the process (``kafka-async run``).

It keeps none of them alive.
"""

import threading
from collections.abc import Iterator
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from ..model import ConsumerState


class Started(Protocol):
    """A consumer, or a share consumer."""

    @property
    def state(self) -> ConsumerState: ...
    @property
    def assigned_once(self) -> bool: ...
    @property
    def alive(self) -> bool: ...
    def metrics(self) -> dict[str, dict[str, float]]: ...


_known: "WeakKeyDictionary[Started, str]" = WeakKeyDictionary()
_lock: Final = threading.Lock()


def note(consumer: Any, client_id: str) -> None:
    """A consumer is being started."""
    with _lock:
        _known[consumer] = client_id


def started() -> Iterator[tuple[str, Started]]:
    """Yield the consumers that are started and not stopped, each with its ``client_id``."""
    with _lock:
        known = tuple(_known.items())
    for consumer, client_id in known:
        if consumer.state not in (ConsumerState.NEW, ConsumerState.CLOSED):
            yield client_id, consumer
