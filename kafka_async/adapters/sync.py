"""The blocking facade: the same consumer for programs without an event loop.

Decides: nothing; every method runs the coroutine of the asyncio consumer in the caller's thread. Owns: that consumer, whose
background loop has a thread of its own. Must never need an event loop in the caller's thread: it works in scripts, in notebooks
that run a loop already, and in a worker process after a fork, as long as the consumer was made after the fork.

With ``ThreadSignal`` those coroutines block where they would wait, so they end at their first step.
"""

import re
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self
from uuid import UUID

from typing_extensions import TypeVar

from ..application.callbacks import ConsumerRebalanceListener
from ..application.consumer import ARROW_ROWS
from ..application.consumer import KafkaConsumer as AsyncConsumer
from ..application.ranges import RANGE_BATCH_BYTES
from ..application.runtime import ThreadRuntime
from ..errors import ConsumerStoppedError, IllegalStateError
from ..events import ClusterDescription
from ..model import (
    ConsumerRecord,
    ConsumerState,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Statistics,
    SubscriptionPattern,
    TopicPartition,
)
from ..records import ALL_COLUMNS, Columns

if TYPE_CHECKING:
    import pyarrow

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
T = TypeVar("T")
P = ParamSpec("P")


LEAVE_TIME: Final = 5.0
"""Seconds that ``stop`` gives another thread to leave its read call; one that is in a call-back of the user may not."""


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise IllegalStateError("an 'async def' call-back needs an event loop; give the blocking consumer plain functions")


def _exclusive(method: Callable[P, T]) -> Callable[P, T]:
    """Let one thread at a time into the consumer, and say so to a second one (Java: ConcurrentModificationException)."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        owner: Any = args[0]
        lock: threading.RLock = owner._lock
        if not lock.acquire(blocking=False):
            raise IllegalStateError("the blocking consumer is in use by another thread; it serves one at a time")
        try:
            return method(*args, **kwargs)
        finally:
            lock.release()

    return guarded


class KafkaConsumer(Generic[K, V]):
    """A Kafka consumer that blocks the calling thread; arguments and results are those of ``kafka_async.KafkaConsumer``.

    Use it as ``with KafkaConsumer(...) as consumer``. Call-backs must be plain functions. It is used by one thread at a time
    (``IllegalStateError`` otherwise); ``stop`` may be called from any.
    """

    def __init__(self, *topics: str, **options: Any) -> None:
        options.pop("background", None)
        self._consumer: AsyncConsumer[K, V] = AsyncConsumer(*topics, runtime=ThreadRuntime.for_threads(), **options)
        self._lock = threading.RLock()

    # --- life ------------------------------------------------------------------------------------------------------------------

    @_exclusive
    def start(self) -> None:
        """Connect; see ``kafka_async.KafkaConsumer.start``."""
        _finish(self._consumer.start())

    def stop(self, timeout_ms: float | None = None) -> None:
        """Stop within ``timeout_ms``. A read that waits in another thread ends with ``ConsumerStoppedError``."""
        self._consumer.interrupt()
        # A thread that is in a read call leaves it now; stopping beside it would read what it is changing.
        left = self._lock.acquire(timeout=LEAVE_TIME)
        try:
            _finish(self._consumer.stop(timeout_ms))
        finally:
            if left:
                self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        _finish(self._consumer.__aexit__(*exc_info))

    def __repr__(self) -> str:
        return f"<blocking {self._consumer!r}>"

    # --- read ------------------------------------------------------------------------------------------------------------------

    @_exclusive
    def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K, V]:
        """Return the next record, waiting for it as long as it takes."""
        return _finish(self._consumer.getone(*partitions))

    @_exclusive
    def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records by partition as soon as there are any; ``{}`` where none came within ``timeout_ms``."""
        return _finish(self._consumer.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records))

    @_exclusive
    def getarrow(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
        columns: Collection[str] | None = None,
    ) -> "pyarrow.RecordBatch":
        """Return records as an Arrow record batch (extra ``arrow``)."""
        return _finish(self._consumer.getarrow(*partitions, timeout_ms=timeout_ms, max_records=max_records, columns=columns))

    def arrow_batches(
        self, *partitions: TopicPartition, max_records: int = ARROW_ROWS, columns: Collection[str] | None = None
    ) -> "Iterator[pyarrow.RecordBatch]":
        """Iterate over Arrow record batches until the consumer is stopped. Closing the iterator early loses nothing."""
        while True:
            try:
                batch = self.getarrow(*partitions, timeout_ms=3_600_000, max_records=max_records, columns=columns)
            except ConsumerStoppedError:
                return
            if batch.num_rows:
                yield batch

    @_exclusive
    def assign_ranges(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Read exactly these offsets; see ``kafka_async.KafkaConsumer.assign_ranges``."""
        self._consumer.assign_ranges(ranges)

    @_exclusive
    def next_columns(
        self, columns: Collection[str] = ALL_COLUMNS, *, batch_bytes: int = RANGE_BATCH_BYTES, timeout_ms: float | None = None
    ) -> Columns | None:
        """Return the next records of the ranges as columns; ``None``: all are read."""
        return _finish(self._consumer.next_columns(columns, batch_bytes=batch_bytes, timeout_ms=timeout_ms))

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Iterate over records until the consumer is stopped."""
        while True:
            try:
                yield self.getone()
            except ConsumerStoppedError:
                return

    # --- what ------------------------------------------------------------------------------------------------------------------

    @_exclusive
    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics or to a pattern."""
        self._consumer.subscribe(topics, pattern, listener)

    @_exclusive
    def unsubscribe(self) -> None:
        """Give up subscription and assignment."""
        self._consumer.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._consumer.subscription()

    @_exclusive
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        self._consumer.assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return self._consumer.assignment()

    @_exclusive
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition ids of a topic as far as metadata is at hand."""
        return self._consumer.partitions_for_topic(topic)

    @_exclusive
    def topics(self) -> set[str]:
        """Ask the cluster for all topics."""
        return _finish(self._consumer.topics())

    @_exclusive
    def describe_topics(self, *topics: str) -> ClusterDescription:
        """Ask the cluster about topics."""
        return _finish(self._consumer.describe_topics(*topics))

    # --- where -----------------------------------------------------------------------------------------------------------------

    @_exclusive
    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that will be returned."""
        return _finish(self._consumer.position(partition))

    @_exclusive
    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from ``offset``."""
        self._consumer.seek(partition, offset)

    @_exclusive
    def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Go to the first offset."""
        return _finish(self._consumer.seek_to_beginning(*partitions))

    @_exclusive
    def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Go to the end."""
        return _finish(self._consumer.seek_to_end(*partitions))

    @_exclusive
    def seek_to_timestamp(
        self, when: int | Mapping[TopicPartition, int], *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Go to the first record at or after a time (milliseconds)."""
        return _finish(self._consumer.seek_to_timestamp(when, *partitions))

    @_exclusive
    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look offsets up by time (milliseconds)."""
        return _finish(self._consumer.offsets_for_times(timestamps))

    @_exclusive
    def beginning_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """Look up first offsets."""
        return _finish(self._consumer.beginning_offsets(partitions, timeout_ms))

    @_exclusive
    def end_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """Look up the offsets that come next."""
        return _finish(self._consumer.end_offsets(partitions, timeout_ms))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark as of the last fetch."""
        return self._consumer.highwater(partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset as of the last fetch."""
        return self._consumer.last_stable_offset(partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return when the high watermark was last heard (milliseconds)."""
        return self._consumer.last_poll_timestamp(partition)

    @_exclusive
    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the distance from the position to the end as of the last fetch."""
        return self._consumer.current_lag(partition)

    @_exclusive
    def pause(self, *partitions: TopicPartition) -> None:
        """Return no more records of these partitions for now."""
        self._consumer.pause(*partitions)

    @_exclusive
    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._consumer.resume(*partitions)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return self._consumer.paused()

    # --- commit ----------------------------------------------------------------------------------------------------------------

    @_exclusive
    def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata] | None = None) -> None:
        """Commit offsets to the group."""
        _finish(self._consumer.commit(offsets))

    @_exclusive
    def committed_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets."""
        return _finish(self._consumer.committed_offsets(*partitions))

    @_exclusive
    def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Go to the committed offsets and return them."""
        return _finish(self._consumer.seek_to_committed(*partitions))

    @_exclusive
    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what ``commit()`` would commit now (KIP-1094)."""
        return self._consumer.next_offsets()

    def group_metadata(self) -> GroupMetadata:
        """Return who we are in the group."""
        return self._consumer.group_metadata()

    @_exclusive
    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group rebalance."""
        self._consumer.enforce_rebalance(reason)

    @_exclusive
    def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of the group."""
        return _finish(self._consumer.committed(partition))

    # --- see -------------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """What the consumer is doing."""
        return self._consumer.state

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by group and name."""
        return self._consumer.metrics()

    @_exclusive
    def client_instance_id(self, timeout_ms: float | None = None) -> UUID:
        """Return the id by which the cluster's operators know this client (KIP-714)."""
        return _finish(self._consumer.client_instance_id(timeout_ms))

    @_exclusive
    def statistics(self) -> Statistics:
        """Return one frozen snapshot."""
        return self._consumer.statistics()
