"""Where records of a share group come from that are processed. Each has a lock of its own, and comes without an order."""

from collections.abc import Callable, Collection
from typing import Any

from ...errors import DeserializationError
from ...model import TopicPartition
from ...trace import RecordFailed
from ...values import define, field
from ..processing.limits import Barrier
from ..processing.run_state import RunState
from ..processing.work import Received, Supply
from .parts import ShareParts
from .record import ShareRecord
from .work import ShareWork

Record = ShareRecord[Any, Any]


@define(eq=False)
class ShareSource:
    """One share consumer, as far as records come from it."""

    parts: ShareParts = field(repr=False)
    work: ShareWork
    run: RunState = field(repr=False)
    poisoned: list[tuple[Record, DeserializationError]] = field(factory=list, init=False)
    """Records that cannot be deserialized, and were delivered for the last time."""
    barrier: Barrier | None = field(default=None, init=False, repr=False)
    """What may keep handlers from beginning."""
    on_read: Callable[[], None] | None = field(default=None, init=False)
    """Called as a read begins, which asks for as many records as there was room for at the pace known before."""

    @property
    def retry_backoff(self) -> float:
        return self.parts.config.retry_backoff

    async def read(self, limit: int, waiting: Collection[TopicPartition], seconds: float) -> Supply:
        """Return up to ``limit`` records as soon as there are any; none if none came within ``seconds``.

        Raises ``DeserializationError`` for one that cannot be deserialized at its last delivery; before that it is released.
        """
        if self.on_read is not None:
            self.on_read()
        down = self.barrier is not None and self.barrier.is_down
        if self.work.stuck:
            limit = 0
        elif down:
            limit = min(limit, int(self.work.held == 0))  # one to try it with; the others would only use up their deliveries
        if self.work.stuck or self.run.reads_nothing or (down and not limit):
            self.parts.exchange.demand.held_back = True
        if not self.poisoned:
            records = await self.parts.reader.read(seconds, limit, self._refuse)
            if records:
                return _by_partition(records)
        if self.poisoned:
            record, poison = self.poisoned.pop(0)
            error = DeserializationError(str(poison), record, poison.field)
            error.__cause__ = poison.__cause__
            raise error
        return {}

    def take(self, limit: int, waiting: Collection[TopicPartition]) -> Supply:
        """As ``read``, but only what is there already, in one step."""
        return _by_partition(self.parts.reader.at_once(limit))

    def refused(self, partition: TopicPartition, record: Record) -> Supply:
        """Return a record that a read has refused as ``read`` returns others."""
        return {partition: Received((record,), (record,))}

    def _refuse(self, record: Record, poison: DeserializationError) -> None:
        if record.delivery_count >= self.parts.settings.bad_record_deliveries:
            self.poisoned.append((record, poison))
            self.parts.runtime.wake_application()
            return
        record.release()
        self.run.trace(
            RecordFailed(
                now=self.run.clock(),
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                attempt=0,
                error=poison,
                outcome="released",
                final=False,
            )
        )


def _by_partition(records: list[Record]) -> Supply:
    found: dict[TopicPartition, tuple[list[Any], list[Any]]] = {}
    for record in records:
        received, raw = found.setdefault(record.topic_partition, ([], []))
        received.append(record)
        raw.append(record._raw)
    return {partition: Received(received, raw) for partition, (received, raw) in found.items()}
