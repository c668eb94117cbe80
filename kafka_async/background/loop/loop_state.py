"""The life of the loop: its turns, and whether it was asked to stop."""

from ...events import Call
from ...trace import Fault, Listener, TraceEvent
from ...values import define, field


@define(eq=False)
class LoopState:
    """The life of one background."""

    listener: Listener = field(repr=False)
    wake_ups: int = 0
    """Turns since start."""
    stopping: Call[None] | None = None
    """The call of ``stop``, resolved at the end; ``None`` before that."""
    is_cut: bool = False
    """Every connection is being closed, since the tasks that served them were cancelled."""

    def trace(self, event: TraceEvent) -> None:
        """Pass a trace event on, except faults caused by an end of the loop: connections are closed with requests in flight."""
        if (self.stopping is None and not self.is_cut) or not isinstance(event, Fault):
            self.listener(event)
