"""The lag of a streaming query, from Spark's progress reports.

Spark's reports have a field for metrics of a source, which a Python source cannot fill. The offsets are in the reports.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import KafkaConfigurationError
from ...functions import check_plain
from ...model import TopicPartition
from ...values import frozen
from ..ranges.offsets import Offsets
from .plan.offsets import from_json

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress

_log = logging.getLogger("kafka_async.spark")


@frozen
class Lag:
    """The offsets that a query still has to read, as of the planning of its last batch."""

    partitions: Mapping[TopicPartition, int]
    """Offsets between the end of the batch and the end of each partition; not all have a record, as in a compacted topic.

    Of partitions with the same name in several sources, the sum.
    """
    records_per_second: float
    """How fast the batch was processed."""

    @property
    def records(self) -> int:
        """The offsets of all partitions together."""
        return sum(self.partitions.values())

    @property
    def topics(self) -> dict[str, int]:
        """The offsets of each topic."""
        found: dict[str, int] = {}
        for partition, behind in self.partitions.items():
            found[partition.topic] = found.get(partition.topic, 0) + behind
        return found

    @property
    def description(self) -> str:
        """What people read: ``150 records behind (orders: 100, payments: 50), 3.2 s at the speed of the last batch``."""
        by_topic = ", ".join(f"{topic}: {behind}" for topic, behind in sorted(self.topics.items()))
        if self.records == 0:
            return f"nothing behind ({by_topic})"
        time = "no speed is known" if self.seconds is None else f"{self.seconds:.1f} s at the speed of the last batch"
        return f"{self.records} records behind ({by_topic}), {time}"

    @property
    def seconds(self) -> float | None:
        """How long it takes to catch up at this speed if nothing is added; ``None`` if nothing was processed."""
        if self.records == 0:
            return 0.0
        return self.records / self.records_per_second if self.records_per_second > 0 else None


def lag(progress: "StreamingQueryProgress | Mapping[str, Any] | None") -> Lag | None:
    """Return how far a query is behind, from ``query.lastProgress`` or the progress that a listener got.

    ``None`` if the report does not say: before the first batch, or if Spark planned no batch for the trigger. Sources with
    offsets of a different form are ignored; Spark's own Kafka connector has the same form.
    """
    if progress is None:
        return None
    reported: Mapping[str, Any] = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    found: dict[TopicPartition, int] = {}
    known = False
    for source in reported.get("sources", ()):
        ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if ends is not None and latest is not None:
            known = True
            for partition, end in latest.items():  # two sources may read one topic, or topics of one name in two clusters
                found[partition] = found.get(partition, 0) + max(0, end - ends.get(partition, 0))
    return Lag(found, float(reported.get("processedRowsPerSecond") or 0.0)) if known else None


def _offsets(given: Any) -> Offsets | None:
    """Return the offsets in a report, without other entries; ``None`` if they are not Kafka's."""
    shaped = json.loads(given) if isinstance(given, str) else given
    if not isinstance(shaped, dict):
        return None
    try:
        return from_json({name: parts for name, parts in shaped.items() if not name.startswith("__") or "/" not in name}, "offsets")
    except KafkaConfigurationError:
        return None


def add_lag_listener(spark: "SparkSession", report: Callable[[str, Lag], Any]) -> "StreamingQueryListener":
    """Call ``report(name, lag)`` after each batch of every streaming query of a session, with its name or else its id.

    It is called in a thread of Spark's, plain. Returns the listener, for ``spark.streams.removeListener``. Raises ``TypeError`` for
    a function that cannot be called so.
    """
    check_plain(report, "report", "a plain function of a query's name and its lag", 2)
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class LagListener(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's names
            pass

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
            if (found := lag(event.progress)) is not None:
                report(event.progress.name or str(event.progress.id), found)

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
            pass

    listener = LagListener()
    spark.streams.addListener(listener)
    return listener


def report_lag(spark: "SparkSession", meter: "Meter | None" = None) -> "StreamingQueryListener":
    """Write how far each streaming query is behind to the log ``kafka_async.spark`` after each batch, and to OpenTelemetry.

    The log has a line at INFO each time. With ``opentelemetry-api`` (extra ``otel``) the gauges ``kafka_async.spark.lag.records``,
    with the labels ``query`` and ``topic``, and ``kafka_async.spark.lag.seconds``, with the label ``query``, have the last batch's
    lag; a lag in seconds that is not known is not set. ``meter``: default is ``kafka_async`` of the global provider. Returns the
    listener, for ``spark.streams.removeListener``.
    """
    instruments = _gauges(meter)

    def report(query: str, found: Lag) -> None:
        _log.info("query %s: %s", query, found.description)
        if instruments is None:
            return
        records, seconds = instruments
        for topic, behind in found.topics.items():
            records.set(behind, {"query": query, "topic": topic})
        if found.seconds is not None:
            seconds.set(found.seconds, {"query": query})

    return add_lag_listener(spark, report)


def _gauges(meter: "Meter | None") -> tuple[Any, Any] | None:
    """Return the gauges for records and for seconds; ``None`` without ``opentelemetry-api``, which needs not be there."""
    try:
        from opentelemetry.metrics import get_meter
    except ImportError:
        return None
    meter = meter or get_meter("kafka_async")
    records = meter.create_gauge("kafka_async.spark.lag.records", "{offset}", "offsets that a query still has to read")
    return records, meter.create_gauge("kafka_async.spark.lag.seconds", "s", "time to catch up at the speed of the last batch")
