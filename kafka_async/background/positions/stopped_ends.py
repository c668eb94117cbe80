"""Where the logs of partitions end that are not fetched: lag must not stand still because reading does."""

from functools import partial
from typing import Final

from ...config import ConsumerConfig
from ...errors import KafkaError
from ...model import IsolationLevel, TopicPartition
from ...values import define, field
from ..boundary import FetchBuffer, Watermarks
from ..loop.request_manager import IDLE, NEVER, Poll
from .list_offsets import LATEST, Found, ListOffsetsManager
from .subscription import FetchState, SubscriptionState

INTERVAL: Final = 10.0
"""Seconds between two look-ups of the end of a partition."""


@define(eq=False)
class StoppedEnds:
    """Keeps the watermarks of partitions that are halted, or that a broker refuses to read.

    Poll it before ``ListOffsetsManager``.
    """

    config: ConsumerConfig
    subscription: SubscriptionState = field(repr=False)
    list_offsets: ListOffsetsManager = field(repr=False)
    buffer: FetchBuffer = field(repr=False)
    _halted: set[TopicPartition] = field(factory=set, init=False)
    _due: dict[TopicPartition, float] = field(factory=dict, init=False)
    """When the end of each stopped partition is looked up next."""

    def changed(self, partition: TopicPartition) -> None:
        """See ``PartitionListener``."""
        if self._is_halted(partition):
            self._halted.add(partition)
        else:
            self._halted.discard(partition)

    def _is_halted(self, partition: TopicPartition) -> bool:
        entry = self.subscription.get(partition)
        return entry is not None and entry.state is FetchState.HALTED

    def poll(self, now: float) -> Poll:
        """Begin the look-ups that are due."""
        stopped = self._halted | self.buffer.refused.keys()
        if not stopped and not self._due:
            return IDLE
        self._due = {partition: self._due.get(partition, now) for partition in stopped}
        for partition, at in self._due.items():
            if at <= now:
                self._due[partition] = NEVER  # before there is an answer, which may take long
                self.list_offsets.look_up(partition, LATEST, partial(self._found, partition), partial(self._is_stopped, partition))
        return Poll(wake_at=min(self._due.values())) if self._due else IDLE

    def poll_on_close(self, now: float) -> Poll:
        """A look-up sends nothing when the consumer stops."""
        return Poll()

    def _is_stopped(self, partition: TopicPartition) -> bool:
        return partition in self._due

    def _found(self, partition: TopicPartition, outcome: Found | KafkaError, now: float) -> None:
        if not self._is_stopped(partition):
            return
        self._due[partition] = now + INTERVAL
        if isinstance(outcome, KafkaError):
            return
        end, known = outcome.offset, self.buffer.watermarks.get(partition)
        committed_only = self.config.isolation_level is IsolationLevel.READ_COMMITTED
        self.buffer.watermarks[partition] = Watermarks(
            high_watermark=max(end, known.high_watermark) if committed_only and known is not None else end,
            last_stable_offset=end if committed_only or known is None else min(known.last_stable_offset, end),
            log_start_offset=-1 if known is None else known.log_start_offset,
            fetched_at=now,
        )
