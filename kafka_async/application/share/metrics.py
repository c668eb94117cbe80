"""Metrics of a share consumer under the names that Java's ``KafkaShareConsumer`` gives them (KIP-932), counted from trace events.

``Custody`` counts what was handed out and acknowledged. Java has no ``records-lost-total`` and no ``stopped-partitions``; its
metrics of event queues are left out here.
"""

from math import nan
from typing import Final

from ...values import define, field
from ..lifecycle.metrics import Marks, Requests
from .custody import Counts

FETCHES: Final = "consumer-share-fetch-manager-metrics"
COORDINATOR: Final = "consumer-share-coordinator-metrics"
READING: Final = "consumer-share-metrics"


@define(eq=False)
class ShareMetrics:
    """Counts what a share consumer does; ``snapshot`` gives the numbers, in milliseconds, bytes and per second."""

    requests: Requests = field(factory=lambda: Requests("ShareFetch"), init=False)
    _sent: Marks = field(factory=Marks, init=False)
    _refused: Marks = field(factory=Marks, init=False)

    def snapshot(self, now: float, counts: Counts, polled_at: float | None, stopped: int) -> dict[str, dict[str, float]]:
        """Return the metrics by group and name.

        ``polled_at``: when a read call last began, ``None`` before the first; ``stopped``: of how many partitions nothing can be
        read.
        """
        since = self.requests.since(now)
        sent, refused = counts.accepted + counts.released + counts.rejected + counts.refused, counts.refused
        coordination = self.requests.coordination.describe(now, since)
        return {
            FETCHES: {
                "stopped-partitions": stopped,
                **self.requests.reads.describe(now, since, counts.delivered, counts.bytes),
                "acknowledgements-send-total": sent,
                "acknowledgements-send-rate": self._sent.rate(sent, now, since),
                "acknowledgements-error-total": refused,
                "acknowledgements-error-rate": self._refused.rate(refused, now, since),
                "records-lost-total": counts.lost,
            },
            COORDINATOR: {name: value for name, value in coordination.items() if name.startswith(("heartbeat", "last-heartbeat"))},
            READING: {"last-poll-seconds-ago": nan if polled_at is None else max(0.0, now - polled_at)},
            **self.requests.describe(now),
        }
