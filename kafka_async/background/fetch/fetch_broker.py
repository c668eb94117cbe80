"""One broker that partitions are fetched from, whichever kind of consumer does it."""

from typing import Generic, TypeVar

from ...config import ConsumerConfig
from ...errors import FrameSizeError
from ...network import LATE
from ...values import define
from ..cluster.late_answers import ask_if_late
from ..cluster.metadata import MetadataManager
from ..loop.request_manager import NEVER, Backoff

S = TypeVar("S")


@define(eq=False)
class FetchBroker(Generic[S]):
    """The conversation with one broker, which has one Fetch request of ours at a time."""

    node_id: int
    backoff: Backoff
    session: S
    expected: int | None = None
    """Bytes that the request in flight may bring; ``None``: none is in flight."""
    sent_at: float = 0.0
    suspected_at: float = NEVER
    """When the answer is so late that the cluster is asked whether other brokers lead the partitions by now."""
    throttled_until: float = -NEVER
    """The network writes nothing to it before that: its last answer said so (KIP-219). Fetches have their own connection, so no
    other answer throttles them, and none that came before the connection was lost.
    """
    _too_long_at: float = -NEVER
    """When an answer was longer than we accept."""
    _told_at: float = -NEVER
    """When the application was told so."""

    def sent(self, expected: int, max_wait: float, now: float) -> None:
        """A request is on its way, which the broker may hold back for ``max_wait`` seconds."""
        self.expected = expected
        self.sent_at = now
        self.suspected_at = max(now, self.throttled_until) + max_wait + LATE

    def suspect(self, metadata: MetadataManager, now: float) -> float:
        """Ask the cluster about a broker that does not answer, and again after twice the time. Return when to look next."""
        self.suspected_at = ask_if_late(metadata, self.sent_at, self.suspected_at, now)
        return self.suspected_at

    def too_long(self, error: FrameSizeError, config: ConsumerConfig, now: float) -> FrameSizeError | None:
        """Note that an answer was longer than we accept. Return what to tell the application of it: ``None``, if one answer is all
        there is, whose length may have been corrupted, or after less than a request timeout.

        The same is asked for again and again: a batch that is larger than every limit is sent all the same if it is the first one.
        """
        patience = config.request_timeout_ms / 1000
        before, self._too_long_at = self._too_long_at, now
        if now - before > patience or now - self._told_at < patience:
            return None
        self._told_at = now
        limit = f"receive_message_max_bytes={config.receive_message_max_bytes}"
        text = f"broker {self.node_id} answers fetches with more than {limit} accepts"
        return FrameSizeError(f"{text}; it must be larger than the largest batch of records ({error})")

    @property
    def outage(self) -> str:
        """What the log calls the time in which it cannot be fetched from."""
        return f"fetching from broker {self.node_id}"
