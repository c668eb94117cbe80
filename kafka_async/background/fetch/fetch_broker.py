"""One broker that partitions are fetched from, whichever kind of consumer does it."""

from typing import Generic, TypeVar

from ...network import LATE
from ...values import define
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

    def sent(self, expected: int, max_wait: float, now: float) -> None:
        """A request is on its way, which the broker may hold back for ``max_wait`` seconds."""
        self.expected = expected
        self.sent_at = now
        self.suspected_at = now + max_wait + LATE

    def suspect(self, metadata: MetadataManager, now: float) -> float:
        """Ask the cluster about a broker that does not answer, and again after twice the time. Return when to look next.

        The sequence that costs a request timeout: the leader freezes with our request, its connection stays open, and the cluster
        elects another one within seconds.
        """
        if self.suspected_at <= now:
            self.suspected_at = now + (now - self.sent_at)
            metadata.request_update(now)
        return self.suspected_at

    @property
    def outage(self) -> str:
        """What the log calls the time in which it cannot be fetched from."""
        return f"fetching from broker {self.node_id}"
