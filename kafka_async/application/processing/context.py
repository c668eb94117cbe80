"""What a handler gets beside its record or its value."""

from collections.abc import Callable
from typing import Any

from ...model import ConsumerRecord, OffsetAndMetadata, TopicPartition

Record = ConsumerRecord[Any, Any]


class ProcessingContext:
    """The context of a handler's call."""

    __slots__ = ("_completed", "attempt", "cancelled", "record")

    def __init__(
        self,
        record: Record,
        attempt: int,
        completed: "Callable[[TopicPartition, ProcessingContext], OffsetAndMetadata | None]",
    ) -> None:
        self.record = record
        """The record; the first of a batch. A handler that a router calls with a value finds its record here."""
        self.attempt = attempt
        """1 for the first attempt."""
        self.cancelled = False
        """The result no longer counts: the partition was revoked, or the timeout has passed. Threads should check it themselves."""
        self._completed = completed

    def completed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return what would be committed for ``partition`` if this handler had returned: offset, records done after it, leader
        epoch.

        For programs that store offsets in a database, in the same transaction as the results; ``seek`` to it at the next start.
        Between this call and the return of the handler no other handler of the partition may call it: await nothing from here on,
        or hold an ``asyncio.Lock``. On threads this is exact with ``order="partition"`` only.

        The metadata has every record that is done, however long that is. A commit leaves out what would be too long for brokers
        (``offset.metadata.max.bytes``). With ``keep_done=False`` there is none.

        Raises ``RetryLater`` if the result may no longer count: the session may be over, the partition has left or was sought
        elsewhere, or this call's time is over. So call it within the transaction, which is then undone. The record is handled
        again, here or by another member, and this was no attempt. ``None``: nothing is known of the partition, or this is a share
        group.
        """
        return self._completed(partition, self)
