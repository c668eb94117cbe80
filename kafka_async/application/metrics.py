"""Metrics under Kafka's names, counted from trace events.

Decides: what each number means. Owns the counts. Must never read a clock: an event brings its time, and ``snapshot`` is told.

Names and groups are those of Java's ``FetchMetricsRegistry``, ``SelectorMetricsRegistry`` and ``metrics.stats`` (two samples of
30 seconds). Where a number differs from Java's: a rate divides by the time observed, not by a full sample, while a consumer is
young; the size of a fetch is that of its response; ``records-lag-max`` is the largest lag now; ``records-per-request-avg`` is
over the whole life. What trace events cannot tell is left out, such as ``connection-count``: a connection may be closed under
another name than it was opened with (``Statistics.connections`` has the number).

Threads: events are counted by one thread, the background's, while ``snapshot`` may run in another. A meter replaces one tuple by
another in a single assignment and a reader takes that tuple once, so under the GIL it sees the meter before an event or after it,
never between; two meters may be one event apart. What was consumed
is not counted here: the application hands over its own totals.
"""

from collections.abc import Mapping
from math import inf, nan
from typing import Final

from attrs import define, field, frozen

from ..model import TopicPartition
from ..trace import ConnectionClosed, ConnectionOpened, RequestSent, ResponseReceived, TraceEvent

SAMPLE_SECONDS: Final = 30.0
"""Kafka's default of ``metrics.sample.window.ms``; the one of ``metrics.num.samples`` is 2."""
MAX_NODES: Final = 256
"""Nodes counted one by one; further ones share the name ``other``. Brokers come and go for as long as a process lives."""
FETCHES: Final = "consumer-fetch-manager-metrics"
CLIENT: Final = "consumer-metrics"
NODES: Final = "consumer-node-metrics"

_Sample = tuple[float, int, float, float, float, float]  # when it began; how many; bytes: sum, largest; seconds: sum, largest
_NO_SAMPLE: Final[_Sample] = (-inf, 0, 0.0, nan, 0.0, nan)


@define(eq=False)
class Meter:
    """Counts what has a size and takes time: for ever, and over the last 30 to 60 seconds."""

    _state: tuple[int, float, _Sample, _Sample] = (
        0,
        0.0,
        _NO_SAMPLE,
        _NO_SAMPLE,
    )  # for ever: how many, bytes; samples: before, now

    def record(self, size: float, seconds: float, now: float) -> None:
        """Count one thing of ``size`` bytes that took ``seconds``, seen at ``now``."""
        count, total, before, current = self._state
        start, number, size_sum, size_max, seconds_sum, seconds_max = current
        if now - start < SAMPLE_SECONDS:
            if size > size_max:
                size_max = size
            if seconds > seconds_max:
                seconds_max = seconds
            current = (start, number + 1, size_sum + size, size_max, seconds_sum + seconds, seconds_max)
        else:
            before, current = current, (now, 1, size, size, seconds, seconds)
        self._state = (count + 1, total + size, before, current)

    def read(self, now: float, since: float) -> "Reading":
        """Return the counts as of ``now``; the consumer has been observed from ``since`` on."""
        count, total, before, current = self._state
        samples = [sample for sample in (before, current) if now - sample[0] < 2 * SAMPLE_SECONDS] or [_NO_SAMPLE]
        return Reading(
            count=count,
            total=total,
            recent=sum(sample[1] for sample in samples),
            size_sum=sum(sample[2] for sample in samples),
            size_max=max(sample[3] for sample in samples),
            seconds_sum=sum(sample[4] for sample in samples),
            seconds_max=max(sample[5] for sample in samples),
            observed=_observed(samples[0][0], now, since),
        )


@frozen
class Reading:
    """What a meter said at one moment: ``count`` and ``total`` bytes for ever, the rest of the last ``observed`` seconds."""

    count: int
    total: float
    recent: int
    size_sum: float
    size_max: float
    seconds_sum: float
    seconds_max: float
    observed: float

    @property
    def rate(self) -> float:
        """How many per second."""
        return self.recent / self.observed

    @property
    def byte_rate(self) -> float:
        """Bytes per second."""
        return self.size_sum / self.observed

    @property
    def size_average(self) -> float:
        """Bytes of one; not a number where there was none, as in Java."""
        return self.size_sum / self.recent if self.recent else nan

    @property
    def seconds_average(self) -> float:
        """Seconds that one took; not a number where there was none."""
        return self.seconds_sum / self.recent if self.recent else nan


@define(eq=False)
class Marks:
    """Tells the rate of a total that is only seen from time to time: since the last mark that is at least 30 seconds old."""

    _before: tuple[float, float] | None = None
    _latest: tuple[float, float] | None = None

    def rate(self, total: float, now: float, since: float) -> float:
        """Return the growth per second; ``total`` was nothing at ``since``."""
        before = self._before or (since, 0.0)
        latest = self._latest or before
        if now - latest[0] >= SAMPLE_SECONDS:
            before, self._before, self._latest = latest, latest, (now, total)
        return max(0.0, total - before[1]) / max(1.0, now - before[0])


@define(eq=False)
class Traffic:
    """What went to one broker, or to all, and came back."""

    requests: Meter = field(factory=Meter)
    responses: Meter = field(factory=Meter)

    def describe(self, now: float, since: float) -> dict[str, float]:
        """Return the metrics that Kafka has for a client as for a node."""
        requests, responses = self.requests.read(now, since), self.responses.read(now, since)
        return {
            "request-total": requests.count,
            "request-rate": requests.rate,
            "request-size-avg": requests.size_average,
            "request-size-max": requests.size_max,
            "outgoing-byte-total": requests.total,
            "outgoing-byte-rate": requests.byte_rate,
            "response-total": responses.count,
            "response-rate": responses.rate,
            "incoming-byte-total": responses.total,
            "incoming-byte-rate": responses.byte_rate,
            "request-latency-avg": responses.seconds_average * 1000,
            "request-latency-max": responses.seconds_max * 1000,
        }


@define(eq=False, kw_only=True)
class Metrics:
    """Counts trace events; ``snapshot`` gives the numbers: times in milliseconds, sizes in bytes, rates per second."""

    client_id: str
    _since: float | None = field(default=None, init=False)
    _all: Traffic = field(factory=Traffic, init=False)
    _nodes: dict[str, Traffic] = field(factory=dict, init=False)
    _opened: Meter = field(factory=Meter, init=False)
    _closed: Meter = field(factory=Meter, init=False)
    _fetches: Meter = field(factory=Meter, init=False)
    _throttled: Meter = field(factory=Meter, init=False)
    _record_marks: Marks = field(factory=Marks, init=False)
    _byte_marks: Marks = field(factory=Marks, init=False)

    def __call__(self, event: TraceEvent, /) -> None:
        """Count ``event``. Constant time, whatever came before."""
        match event:
            case ResponseReceived():
                self._all.responses.record(event.size, event.latency, event.now)
                self._node(event.node).responses.record(event.size, event.latency, event.now)
                if event.api == "Fetch":
                    self._fetches.record(event.size, event.latency, event.now)
                    if event.throttle:
                        self._throttled.record(0, event.throttle, event.now)
            case RequestSent():
                if self._since is None:
                    self._since = event.now
                self._all.requests.record(event.size, 0, event.now)
                self._node(event.node).requests.record(event.size, 0, event.now)
            case ConnectionOpened():
                self._opened.record(0, 0, event.now)
            case ConnectionClosed():
                self._closed.record(0, 0, event.now)
            case _:
                pass  # Kafka has no metric for it, or it is not ours to count

    def snapshot(
        self,
        now: float,
        *,
        lags: Mapping[TopicPartition, int | None],
        consumed: Mapping[TopicPartition, int],
        records_consumed: int | None = None,
        bytes_consumed: int | None = None,
    ) -> dict[str, dict[str, float]]:
        """Return the metrics by group and name.

        ``lags`` and ``consumed`` are the lag and the records consumed of each assigned partition, ``records_consumed`` and
        ``bytes_consumed`` the totals with the partitions that are not assigned any more. Without ``records_consumed`` the total is
        that of the assigned partitions; without ``bytes_consumed`` there are no metrics of it. Groups of one partition or broker
        are named ``<group>.<topic>-<partition>`` and ``<group>.<broker>``. What has no value yet is not a number, as in Java.
        """
        since = now if self._since is None else self._since
        records = sum(consumed.values()) if records_consumed is None else records_consumed
        known = [lag for lag in lags.values() if lag is not None]
        groups = {
            FETCHES: {"records-lag-max": max(known, default=nan), **self._reading(now, since, records, bytes_consumed)},
            CLIENT: {**self._connections(now, since), **self._all.describe(now, since)},
        }
        for partition in lags.keys() | consumed.keys():
            lag = lags.get(partition)
            groups[f"{FETCHES}.{partition.topic}-{partition.partition}"] = {
                "records-lag": nan if lag is None else lag,
                "records-consumed-total": consumed.get(partition, 0),
            }
        for name, traffic in tuple(self._nodes.items()):  # a copy in one step: the background may add a node
            groups[f"{NODES}.{name}"] = traffic.describe(now, since)
        return groups

    def _reading(self, now: float, since: float, records: int, consumed_bytes: int | None) -> dict[str, float]:
        fetches, throttled = self._fetches.read(now, since), self._throttled.read(now, since)
        numbers = {
            "records-consumed-total": records,
            "records-consumed-rate": self._record_marks.rate(records, now, since),
            "records-per-request-avg": records / fetches.count if fetches.count else nan,
            "fetch-total": fetches.count,
            "fetch-rate": fetches.rate,
            "fetch-size-avg": fetches.size_average,
            "fetch-size-max": fetches.size_max,
            "fetch-latency-avg": fetches.seconds_average * 1000,
            "fetch-latency-max": fetches.seconds_max * 1000,
            "fetch-throttle-time-avg": throttled.seconds_sum / fetches.recent * 1000 if fetches.recent else nan,
            "fetch-throttle-time-max": (throttled.seconds_max if throttled.recent else 0.0) * 1000 if fetches.recent else nan,
        }
        if consumed_bytes is not None:
            numbers["bytes-consumed-total"] = consumed_bytes
            numbers["bytes-consumed-rate"] = self._byte_marks.rate(consumed_bytes, now, since)
        return numbers

    def _connections(self, now: float, since: float) -> dict[str, float]:
        opened, closed = self._opened.read(now, since), self._closed.read(now, since)
        return {
            "connection-creation-total": opened.count,
            "connection-creation-rate": opened.rate,
            "connection-close-total": closed.count,
            "connection-close-rate": closed.rate,
        }

    def _node(self, name: str) -> Traffic:
        traffic = self._nodes.get(name)
        if traffic is None:
            traffic = self._nodes.setdefault(name if len(self._nodes) < MAX_NODES else "other", Traffic())
        return traffic


def _observed(begin: float, now: float, since: float) -> float:
    # A sample begins with its first value. Where values are rare, the time since then says nothing about how often they come, so it
    # counts as a whole sample, but never as more than there was to observe.
    return max(1.0, min(now - since, max(now - begin, SAMPLE_SECONDS)))
