"""The two queues between the application's side and the background loop (the design document's EventHandler).

Decides: nothing. Owns: the queues, and the few plain numbers that change too often for events; each of those has one writer.
Each side appends to one queue and drains the other; a ``deque`` is safe for that across threads. Must never be drained by the side
that fills it. ``wake`` is called after each append and must be safe to call from the other side's thread.
"""

from collections import deque
from collections.abc import Callable, Iterator
from math import inf

from attrs import define, field

from ..errors import KafkaError
from ..events import ApplicationEvent, BackgroundEvent, ErrorEvent


@define(eq=False)
class EventHandler:
    """Carries ApplicationEvents down and BackgroundEvents up."""

    wake_background: Callable[[], None] = field(repr=False)
    wake_application: Callable[[], None] = field(repr=False)
    polled_at: float = field(default=0.0, init=False)
    """When a read call was last entered or left; written by the application."""
    reading: int = field(default=0, init=False)
    """Read calls that wait right now; written by the application."""
    progress: Callable[[], int] = field(default=lambda: 0, init=False, repr=False)
    """Returns a number that changes while the application works through an iteration's batch; set by the application."""
    session_deadline: float = field(default=inf, init=False)
    """Until when the partitions are surely ours; written by the background. Past it no buffered record is handed out."""
    application_events: deque[ApplicationEvent] = field(factory=deque, init=False)
    background_events: deque[BackgroundEvent] = field(factory=deque, init=False)

    def add(self, event: ApplicationEvent) -> None:
        """Queue an event for the background. Called by the application."""
        self.application_events.append(event)
        self.wake_background()

    def publish(self, event: BackgroundEvent) -> None:
        """Queue an event for the application. Called by the background."""
        self.background_events.append(event)
        self.wake_application()

    def publish_error(self, error: KafkaError, *, to_all: bool = False) -> None:
        """Queue an error unless the same one waits already: a caller that does not read must not find a thousand of them."""
        told = ErrorEvent(error=error, to_all=to_all)
        if not any(isinstance(event, ErrorEvent) and told.repeats(event) for event in tuple(self.background_events)):
            self.publish(told)

    def drain_application(self) -> Iterator[ApplicationEvent]:
        while self.application_events:
            yield self.application_events.popleft()

    def drain_background(self) -> Iterator[BackgroundEvent]:
        while True:
            try:
                event = self.background_events.popleft()
            except IndexError:  # asked, not looked: ``state`` may be read by another thread than the one that reads records
                return
            yield event
