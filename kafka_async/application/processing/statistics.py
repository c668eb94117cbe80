"""One snapshot of what processing does."""

from collections.abc import Mapping
from typing import Final

from ...model import TopicPartition
from ...values import frozen

PROCESSING: Final = "consumer-processing-metrics"
"""The group of metrics."""


@frozen(kw_only=True)
class ProcessingStatistics:
    """One snapshot. Counts are records since the beginning unless stated otherwise; times are seconds."""

    running: int
    """Being handled now."""
    waiting: int
    """Received, due, and neither running nor waiting for a retry."""
    retrying: int
    """Waiting for their next attempt now."""
    delayed: int
    """Received, and not due yet (``not_before``) or behind such a record of their partition, now."""
    delayed_until: Mapping[TopicPartition, int]
    """The partitions that wait until their next record is due, each with that time, in milliseconds since the epoch."""
    held_up: int
    """``retrying``, the records behind those in their lanes, and ``delayed``. They take no room from other records."""
    held_up_bytes: int
    """What they take, about."""
    full: bool
    """Whether that has reached its limit of 64 MiB: no more is read of the partitions that they are in."""
    far_ahead: int
    """Partitions of which no more is read now, since too much after their oldest unfinished record is done."""
    lanes: int
    """Lanes that have records now."""
    oldest_age: float
    """Since the record that has been unfinished for longest was received; 0 if all are done."""
    oldest: tuple[str, int, int] | None
    """Its topic, partition and offset."""
    stalled: bool
    """Whether a record has been unfinished for longer than ``stalled_after_ms``, without what it waits for limits or ``resume``."""
    done_ahead: int
    """Done although an earlier record is not, now."""
    handled: int
    """Whose handler returned."""
    attempts: int
    """Calls of the handler that have ended."""
    failures: int
    skipped: int
    dead_letters: int
    redelivered: int
    """Written to another topic, to be handled again later."""
    breaker: str | None
    """``closed``, ``open`` (no handler starts), ``half-open`` (one record is tried), ``rising`` (ramping up), or ``None``."""
    breaker_opened: int
    """How often it has opened."""
    late_results: int
    """Whose handler ended after its partition had left, or after its timeout."""
    seconds_in_queue: float
    seconds_in_handlers: float

    def metrics(self) -> dict[str, float]:
        """Return the same as metrics by name; times are milliseconds, unless the name says seconds."""
        return {
            "records-running": self.running,
            "records-waiting": self.waiting,
            "records-retrying": self.retrying,
            "records-delayed": self.delayed,
            "partitions-delayed": len(self.delayed_until),
            "records-held-up": self.held_up,
            "bytes-held-up": self.held_up_bytes,
            "held-up-full": float(self.full),
            "partitions-far-ahead": self.far_ahead,
            "lanes": self.lanes,
            "oldest-age-seconds": self.oldest_age,
            "stalled": float(self.stalled),
            "records-done-ahead": self.done_ahead,
            "records-handled-total": self.handled,
            "attempt-total": self.attempts,
            "failure-total": self.failures,
            "skipped-total": self.skipped,
            "dead-letter-total": self.dead_letters,
            "redelivered-total": self.redelivered,
            "breaker-open": float(self.breaker not in (None, "closed")),
            "breaker-opened-total": self.breaker_opened,
            "late-result-total": self.late_results,
            "queue-time-total": self.seconds_in_queue * 1000,
            "handler-time-total": self.seconds_in_handlers * 1000,
        }


NOTHING: Final = ProcessingStatistics(
    running=0,
    waiting=0,
    retrying=0,
    delayed=0,
    delayed_until={},
    held_up=0,
    held_up_bytes=0,
    full=False,
    far_ahead=0,
    lanes=0,
    oldest_age=0.0,
    oldest=None,
    stalled=False,
    done_ahead=0,
    handled=0,
    attempts=0,
    failures=0,
    skipped=0,
    dead_letters=0,
    redelivered=0,
    breaker=None,
    breaker_opened=0,
    late_results=0,
    seconds_in_queue=0.0,
    seconds_in_handlers=0.0,
)
"""Before the first record."""
