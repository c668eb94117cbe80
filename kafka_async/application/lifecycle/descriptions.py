"""What each metric means, in a line that stands alone: HELP lines for Prometheus, descriptions for OpenTelemetry.

Units are in the text. OpenTelemetry's own field for them would change the names, which are Kafka's: the exporter for Prometheus
appends the unit to a name. ``METRICS.md`` has the same lines, and a test compares the two.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from ..processing.statistics import PROCESSING
from ..share import metrics as share
from . import metrics

_READS: Final = {
    "records-consumed-total": "records handed out",
    "records-consumed-rate": "records handed out per second",
    "bytes-consumed-total": "bytes of record data, as fetched, that were handed out; a share consumer counts those of keys and "
    "values",
    "bytes-consumed-rate": "bytes of record data handed out per second",
    "records-per-request-avg": "records handed out per fetch, over the consumer's whole life",
    "fetch-total": "fetches that were answered",
    "fetch-rate": "fetches that were answered per second",
    "fetch-size-avg": "average size of a Fetch response, in bytes",
    "fetch-size-max": "size of the largest Fetch response, in bytes",
    "fetch-latency-avg": "average milliseconds until a fetch is answered, including the broker's wait (fetch_max_wait_ms)",
    "fetch-latency-max": "maximum milliseconds until a fetch was answered",
    "fetch-throttle-time-avg": "milliseconds for which a quota made the consumer wait, on average over all fetches",
    "fetch-throttle-time-max": "maximum milliseconds for which a quota made the consumer wait",
}
_REQUESTS: Final = {
    "request-total": "requests sent",
    "request-rate": "requests sent per second",
    "request-size-avg": "average size of a request, in bytes",
    "request-size-max": "size of the largest request, in bytes",
    "outgoing-byte-total": "bytes sent",
    "outgoing-byte-rate": "bytes sent per second",
    "response-total": "responses received",
    "response-rate": "responses received per second",
    "incoming-byte-total": "bytes received",
    "incoming-byte-rate": "bytes received per second",
    "request-latency-avg": "average milliseconds from a request to its response, over requests of all kinds",
    "request-latency-max": "maximum milliseconds from a request to its response",
}
_HEARTBEATS: Final = {
    "heartbeat-total": "heartbeats that were answered",
    "heartbeat-rate": "heartbeats that were answered per second",
    "heartbeat-response-time-max": "maximum milliseconds until a heartbeat was answered",
    "last-heartbeat-seconds-ago": "seconds since a heartbeat was last answered; after the session timeout the group gives the "
    "partitions away; absent while the member waits for others to join, and sends none",
}
_POLLED: Final = {
    "last-poll-seconds-ago": "seconds since the application last asked for records, 0 while it waits for some; after "
    "max_poll_interval_ms it loses its partitions",
}

DESCRIPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    metrics.FETCHES: {
        "records-lag-max": "the largest current lag of the assigned partitions: records between the position and the end that "
        "readers see",
        "stopped-partitions": "assigned partitions that cannot be read: a corrupt batch, an offset outside the log, a "
        "broker that refuses, no leader for three seconds",
        **_READS,
    },
    f"{metrics.FETCHES}.topic-0": {
        "records-lag": (
            "records between the position and the end that readers see, as of the last fetch, so that it stands still while the "
            "partition is paused"
        ),
        "records-consumed-total": "records of the partition handed out since it was assigned",
    },
    metrics.CLIENT: {
        "connection-creation-total": "connections that became ready for requests",
        "connection-creation-rate": "connections that became ready for requests per second",
        "connection-close-total": "connections that ended, for whatever reason",
        "connection-close-rate": "connections that ended per second",
        **_REQUESTS,
        "poll-idle-ratio-avg": "fraction of the time, 0 to 1, that read calls wait for records: near 1, the application keeps up "
        "easily",
        **_POLLED,
    },
    f"{metrics.NODES}.host:9092 (id 0)": _REQUESTS,
    metrics.COORDINATOR: {
        "assigned-partitions": "partitions assigned to this consumer",
        "commit-total": "commit requests that were answered, successfully or with an error",
        "commit-rate": "commit requests that were answered per second",
        "commit-latency-avg": "average milliseconds until a commit is answered",
        "commit-latency-max": "maximum milliseconds until a commit was answered",
        "commit-failed-total": "commit requests without an answer, or refused for at least one partition; each attempt counts",
        "commit-failed-rate": "commit requests without an answer, or refused, per second",
        **_HEARTBEATS,
        "rebalance-total": "rebalances of this member that ended with an assignment",
        "rebalance-latency-avg": "average milliseconds that a rebalance took",
        "rebalance-latency-max": "maximum milliseconds that a rebalance took",
        "rebalance-latency-total": "milliseconds that all rebalances took",
    },
    PROCESSING: {
        "records-running": "records that are being handled",
        "records-waiting": "records that were received and wait for a handler",
        "records-retrying": "records that wait for their next attempt",
        "records-delayed": "records that are not due yet (not_before), and those behind them in their partitions",
        "partitions-delayed": "partitions that wait until their next record is due",
        "records-held-up": "records that wait for their next attempt, those behind them in their lanes, and those that are not "
        "due yet; they take no room from others",
        "bytes-held-up": "roughly how many bytes the records held up take",
        "held-up-full": "1 while the records held up have reached their limit of 64 MiB, so that no more is read of their "
        "partitions",
        "partitions-far-ahead": "partitions of which no more is read, since too many records after their oldest unfinished one "
        "are done",
        "lanes": "lanes that have records now: one for each key or partition, as order says",
        "oldest-age-seconds": "seconds since the oldest unfinished record was received; nothing after it is committed",
        "stalled": "1 if a record is unfinished for longer than stalled_after_ms, without waits for limits or resume, else 0",
        "records-done-ahead": "records that are done although an earlier one is not",
        "records-handled-total": "records whose handler returned",
        "attempt-total": "calls of the handler that have ended",
        "failure-total": "attempts that failed, counted for each record, and records that cannot be deserialized",
        "skipped-total": "records that were skipped",
        "dead-letter-total": "records that on_failure took for good",
        "redelivered-total": "records that were written to another topic, to be handled again later",
        "breaker-open": "1 while the breaker lets few handlers start, or none",
        "breaker-opened-total": "times that the breaker has opened",
        "late-result-total": "records whose handler ended after the partition had left, or after its timeout",
        "queue-time-total": "milliseconds that all records waited for their handlers",
        "handler-time-total": "milliseconds spent in handlers",
    },
    share.FETCHES: {
        "stopped-partitions": "assigned partitions that cannot be read: access is denied, a broker refuses, or has failed for "
        "three seconds, or the partition has not existed, or has had no leader, for as long",
        **_READS,
        "acknowledgements-send-total": "acknowledgements that were sent and ended, with any result",
        "acknowledgements-send-rate": "acknowledgements that were sent and ended, per second",
        "acknowledgements-error-total": "acknowledgements that were refused, or whose result is unknown",
        "acknowledgements-error-rate": "acknowledgements that were refused, or whose result is unknown, per second",
        "records-lost-total": "records whose lock ended before they were acknowledged",
    },
    share.COORDINATOR: _HEARTBEATS,
    share.READING: _POLLED,
}
"""Group of metrics -> name -> meaning. What there is one of for each partition or broker stands under an example."""


@cache
def descriptions() -> Mapping[str, str]:
    """Return the meaning of each metric by the name that KIP-714 gives it, which is how it is exported."""
    zeros = {group: dict.fromkeys(texts, 0.0) for group, texts in DESCRIPTIONS.items()}
    texts = [text for group in DESCRIPTIONS.values() for text in group.values()]
    return {point.name: text for point, text in zip(metrics.points(zeros), texts, strict=True)}
