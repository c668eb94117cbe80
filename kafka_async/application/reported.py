"""Errors that the background told of, until a call raises them.

Decides: which call raises which error. Owns: those that nobody has raised yet. Must never keep one twice: whoever looks at the
state and never reads must not collect them.
"""

from attrs import define, field

from ..events import ErrorEvent


@define(eq=False)
class Reported:
    """What is to be raised, the oldest first."""

    _events: list[ErrorEvent] = field(factory=list, init=False)

    def __bool__(self) -> bool:
        return bool(self._events)

    def add(self, event: ErrorEvent) -> None:
        """Keep the error of ``event`` unless the same one waits already."""
        if not any(event.repeats(other) for other in self._events):
            self._events.append(event)

    def raise_any(self) -> None:
        """Raise the next error: for reads, and for what is a step on the way to records."""
        if self._events:
            raise self._events.pop(0).error

    def raise_lasting(self) -> None:
        """Raise the next error that ends whatever waits; what concerns reads alone is left to them."""
        event = next((event for event in self._events if event.to_all), None)
        if event is not None:
            self._events.remove(event)
            raise event.error
