"""Leaders that do not answer: the cluster is asked who leads by now, long before their requests time out.

The sequence that costs a request timeout: the leader freezes with our request, its connection stays open, and the cluster elects
another one within seconds. Once the metadata do not list the broker any more, its connections are closed and its requests fail.
"""

from collections.abc import Callable
from typing import Any

from ...network import LATE
from ...values import define, field
from ..loop.request_manager import NEVER
from .metadata import MetadataManager


def ask_if_late(metadata: MetadataManager, sent_at: float, late_at: float, now: float) -> float:
    """Ask the cluster if an answer is late, and again after twice the time. Return when to look next."""
    if late_at > now:
        return late_at
    metadata.request_update(now)
    return now + (now - sent_at)


@define(eq=False)
class LateAnswers:
    """The requests of one kind that are on their way to leaders."""

    metadata: MetadataManager = field(repr=False)
    _sent: dict[int, tuple[float, float]] = field(factory=dict, init=False)
    """When each was sent, and when the cluster is asked about it next; by number."""
    _count: int = field(default=0, init=False)

    def watch(self, on_done: Callable[[Any, float], None], now: float) -> Callable[[Any, float], None]:
        """Return what a request that is sent now is to call in place of ``on_done``."""
        self._count = number = self._count + 1
        self._sent[number] = (now, now + LATE)

        def done(outcome: Any, at: float) -> None:
            del self._sent[number]
            on_done(outcome, at)

        return done

    def ask(self, now: float) -> float:
        """Ask the cluster about those that are late. Return when to look next."""
        if not self._sent:
            return NEVER
        sent = self._sent.items()
        self._sent = {number: (at, ask_if_late(self.metadata, at, late_at, now)) for number, (at, late_at) in sent}
        return min(late_at for _, late_at in self._sent.values())
