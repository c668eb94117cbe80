"""Metrics under Kafka's names, counted from trace events.

Decides: what each number means. Owns the counts. Must never read a clock: an event brings its time, and ``snapshot`` is told.

Names and groups are those of Java's ``FetchMetricsRegistry``, ``SelectorMetricsRegistry``, ``ConsumerRebalanceMetricsManager``,
``OffsetCommitMetricsManager``, ``KafkaConsumerMetrics`` and ``metrics.stats`` (two samples of 30 seconds); ``points`` has the names
of KIP-714. Where a number differs from Java's: a rate, and the idle ratio, divide by the time observed, not by a full sample, while
a consumer is young; the size of a fetch is that of its response; ``records-lag-max`` is the largest lag now;
``records-per-request-avg`` is over the whole life. What trace events cannot tell is left out, such as ``connection-count``: a
connection may be closed under another name than it was opened with (``Statistics.connections`` has the number).

Threads: events are counted by one thread, the background's, while ``snapshot`` may run in another. A meter replaces one tuple by
another in a single assignment and a reader takes that tuple once, so under the GIL it sees the meter before an event or after it,
never between; two meters may be one event apart. What was consumed
is not counted here: the application hands over its own totals.
"""

import re
from collections.abc import Iterator, Mapping
from math import inf, isnan, nan
from typing import Final

from attrs import define, field, frozen

from ..model import TopicPartition
from ..trace import MEMBERSHIP, ConnectionClosed, ConnectionOpened, RequestSent, ResponseReceived, StateChanged, TraceEvent

SAMPLE_SECONDS: Final = 30.0
"""Kafka's default of ``metrics.sample.window.ms``; the one of ``metrics.num.samples`` is 2."""
MAX_NODES: Final = 256
"""Nodes counted one by one; further ones share the name ``other``. Brokers come and go for as long as a process lives."""
FETCHES: Final = "consumer-fetch-manager-metrics"
CLIENT: Final = "consumer-metrics"
NODES: Final = "consumer-node-metrics"
COORDINATOR: Final = "consumer-coordinator-metrics"

_NO_MEMBER: Final = frozenset(("UNSUBSCRIBED", "LEAVING", "STALE", "AWAY", "FATAL"))
"""States of a membership in which no rebalance is under way."""

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
class Idle:
    """How long the application has waited for records in its read calls. Several tasks that wait at once count as one."""

    _seconds: float = 0.0
    _waiting: int = 0
    _since: float = 0.0

    def enter(self, now: float) -> None:
        """A read call begins to wait."""
        if not self._waiting:
            self._since = now
        self._waiting += 1

    def leave(self, now: float) -> None:
        """A read call has waited."""
        self._waiting -= 1
        if not self._waiting:
            self._seconds += now - self._since

    def seconds(self, now: float) -> float:
        """Return the time waited so far, in seconds."""
        return self._seconds + (now - self._since if self._waiting else 0.0)


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
    idle: Idle = field(factory=Idle, init=False)
    _since: float | None = field(default=None, init=False)
    _all: Traffic = field(factory=Traffic, init=False)
    _nodes: dict[str, Traffic] = field(factory=dict, init=False)
    _opened: Meter = field(factory=Meter, init=False)
    _closed: Meter = field(factory=Meter, init=False)
    _fetches: Meter = field(factory=Meter, init=False)
    _throttled: Meter = field(factory=Meter, init=False)
    _commits: Meter = field(factory=Meter, init=False)
    _rebalances: Meter = field(factory=Meter, init=False)
    _rebalance_began: float | None = field(default=None, init=False)
    _idle_marks: Marks = field(factory=Marks, init=False)
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
                elif event.api == "OffsetCommit":
                    self._commits.record(event.size, event.latency, event.now)
            case RequestSent():
                if self._since is None:
                    self._since = event.now
                self._all.requests.record(event.size, 0, event.now)
                self._node(event.node).requests.record(event.size, 0, event.now)
            case ConnectionOpened():
                self._opened.record(0, 0, event.now)
            case ConnectionClosed():
                self._closed.record(0, 0, event.now)
            case StateChanged() if event.subject == MEMBERSHIP:
                self._moved(event)
            case _:
                pass  # Kafka has no metric for it, or it is not ours to count

    def _moved(self, event: StateChanged) -> None:
        """Time a rebalance: from the first state of one to STABLE. Joining alone, which the consumer protocol has, is none."""
        began = self._rebalance_began
        if event.after == "STABLE":
            if began is not None and event.before != "JOINING":
                self._rebalances.record((event.now - began) * 1000, event.now - began, event.now)
            self._rebalance_began = None
        elif event.after in _NO_MEMBER:
            self._rebalance_began = None
        elif began is None:
            self._rebalance_began = event.now

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
            CLIENT: {
                **self._connections(now, since),
                **self._all.describe(now, since),
                "poll-idle-ratio-avg": min(1.0, self._idle_marks.rate(self.idle.seconds(now), now, since)),
            },
            COORDINATOR: {"assigned-partitions": len(lags), **self._coordination(now, since)},
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

    def _coordination(self, now: float, since: float) -> dict[str, float]:
        commits, rebalances = self._commits.read(now, since), self._rebalances.read(now, since)
        return {
            "commit-total": commits.count,
            "commit-rate": commits.rate,
            "commit-latency-avg": commits.seconds_average * 1000,
            "commit-latency-max": commits.seconds_max * 1000,
            "rebalance-total": rebalances.count,
            "rebalance-latency-avg": rebalances.seconds_average * 1000,
            "rebalance-latency-max": rebalances.seconds_max * 1000,
            "rebalance-latency-total": rebalances.total,
        }

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


@frozen(kw_only=True)
class Point:
    """One number under the name and with the labels that KIP-714 gives it."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...]
    total: bool
    """It only grows."""

    @property
    def detailed(self) -> bool:
        """There is one of it for each broker or partition."""
        return bool(self.labels)


def points(metrics: Mapping[str, Mapping[str, float]]) -> Iterator[Point]:
    """Yield what ``Metrics.snapshot`` gave under the names of KIP-714; what has no value yet is left out."""
    for key, numbers in metrics.items():
        group, _, of = key.partition(".")  # names of groups have no dots
        family = "org.apache.kafka." + group.removesuffix("-metrics").replace("-", ".")
        labels = _labels(group, of)
        for name, value in numbers.items():
            if not isnan(value):
                full = f"{family}.{name.replace('-', '.')}"
                yield Point(name=full, value=value, labels=labels, total=name.endswith("-total"))


_NODE_ID: Final = re.compile(r"\(id (-?\d+)\)$")


def _labels(group: str, of: str) -> tuple[tuple[str, str], ...]:
    if not of:
        return ()
    if group == NODES:
        node = _NODE_ID.search(of)
        return (("node_id", of if node is None else node[1]),)
    topic, _, partition = of.rpartition("-")
    return (("topic", topic), ("partition", partition))


def _observed(begin: float, now: float, since: float) -> float:
    # A sample begins with its first value. Where values are rare, the time since then says nothing about how often they come, so it
    # counts as a whole sample, but never as more than there was to observe.
    return max(1.0, min(now - since, max(now - begin, SAMPLE_SECONDS)))
