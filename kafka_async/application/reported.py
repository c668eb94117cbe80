"""Errors that the background reported, until a call raises them.

None is kept twice: a program that looks at the state and never reads would collect them.
"""

from ..errors import KafkaError
from ..events import ErrorEvent
from ..values import define, field


@define(eq=False)
class Reported:
    """What is to be raised, the oldest first."""

    final: KafkaError | None = None
    """The membership ended for good: raised by every read and commit until the application subscribes again."""
    _events: list[ErrorEvent] = field(factory=list, init=False)

    def __bool__(self) -> bool:
        return bool(self._events) or self.final is not None

    def add(self, event: ErrorEvent) -> None:
        """Keep the error of ``event`` unless the same one is waiting already."""
        if event.final:
            self.final = event.error
        elif not any(event.repeats(other) for other in self._events):
            self._events.append(event)

    def clear(self) -> None:
        """Forget everything: the application wants something else now (promise 14)."""
        self.final = None
        self._events.clear()

    def raise_any(self) -> None:
        """Raise the next error: for reads, and for requests that reading depends on."""
        if self._events:
            raise _again(self._events.pop(0).error)
        self.raise_final()

    def raise_lasting(self) -> None:
        """Raise the next error that ends any waiting call; those that concern reads alone are left to them."""
        event = next((event for event in self._events if event.to_all), None)
        if event is not None:
            self._events.remove(event)
            raise _again(event.error)

    def raise_final(self) -> None:
        """Raise the final error, if there is one."""
        if self.final is not None:
            raise _again(self.final)


def _again(error: KafkaError) -> KafkaError:
    """Return ``error`` without the frames of the calls that raised it before: they would keep the local variables of those calls
    alive.
    """
    return error.with_traceback(None)
