"""Metrics under Kafka's names, counted from trace events.

Names and groups are those of Java's ``FetchMetricsRegistry``, ``SelectorMetricsRegistry``, ``ConsumerRebalanceMetricsManager``,
``OffsetCommitMetricsManager``, ``KafkaConsumerMetrics`` and ``metrics.stats`` (two samples of 30 seconds); ``points`` has the names
of KIP-714. Where a number differs from Java's: a rate, and the idle ratio, divide by the time observed, not by a full sample, while
a consumer is young; the size of a fetch is that of its response; ``records-lag-max`` is the largest lag now;
``records-per-request-avg`` is over the whole life. ``commit-failed-total`` and ``-rate`` are not Java's. What trace events do not
show is left out, such as ``connection-count``: a connection may be closed under another name than it was opened with
(``Statistics.connections`` has the number).

Events of round trips are kept, and counted many at a time: at low rates, counting one event brings all the counters into the
processor's caches, which takes several times as long as counting one of many. Other events may hold an exception, and everything
that its traceback refers to: they are counted at once.

Threads: events come from the background's thread, and from the application's; they are counted, and the numbers are read, under a
lock. Consumed records are not counted here: the application provides its own totals.
"""

import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from math import inf, isnan, nan
from typing import Final

from ...model import TopicPartition
from ...trace import (
    MEMBERSHIP,
    ROUTINE,
    CommitFailed,
    ConnectionClosed,
    ConnectionOpened,
    RequestFailed,
    RequestSent,
    ResponseReceived,
    StateChanged,
    TraceEvent,
)
from ...values import define, field, frozen

SAMPLE_SECONDS: Final = 30.0
"""Kafka's default of ``metrics.sample.window.ms``; the one of ``metrics.num.samples`` is 2."""
KEPT: Final = 256
"""Events that are kept uncounted at most."""
MAX_NODES: Final = 256
"""Nodes counted one by one; further ones share the name ``OTHER``. Brokers come and go for as long as a process lives."""
OTHER: Final = "other"
FETCHES: Final = "consumer-fetch-manager-metrics"
CLIENT: Final = "consumer-metrics"
NODES: Final = "consumer-node-metrics"
COORDINATOR: Final = "consumer-coordinator-metrics"

_HEARTBEATS: Final = frozenset(("Heartbeat", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"))
"""The requests that keep a member's session, in each protocol."""
_JOINING: Final = frozenset(("JoinGroup", "SyncGroup"))
"""The requests that wait at the coordinator for other members; it counts who waits as alive, and most of them send no heartbeat."""
_NO_MEMBER: Final = frozenset(("UNSUBSCRIBED", "LEAVING", "STALE", "AWAY", "FATAL"))
"""States of a membership in which no rebalance is under way."""

_Sample = tuple[float, int, float, float, float, float]  # when it began; how many; bytes: sum, largest; seconds: sum, largest
_NO_SAMPLE: Final[_Sample] = (-inf, 0, 0.0, nan, 0.0, nan)


@define(eq=False)
class Meter:
    """Counts things that have a size and take time: over the whole life, and over the last 30 to 60 seconds."""

    _state: tuple[int, float, _Sample, _Sample] = (
        0,
        0.0,
        _NO_SAMPLE,
        _NO_SAMPLE,
    )  # the whole life: how many, bytes; samples: before, now

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

    def read(self, now: float, since: float) -> "MeterReading":
        """Return the counts as of ``now``; the consumer has been observed from ``since`` on."""
        count, total, before, current = self._state
        samples = [sample for sample in (before, current) if now - sample[0] < 2 * SAMPLE_SECONDS] or [_NO_SAMPLE]
        return MeterReading(
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
class MeterReading:
    """A meter read at one moment: ``count`` and ``total`` bytes of the whole life, the rest of the last ``observed`` seconds."""

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
        """Bytes of one; not a number if there was none, as in Java."""
        return self.size_sum / self.recent if self.recent else nan

    @property
    def seconds_average(self) -> float:
        """Seconds that one took; not a number if there was none."""
        return self.seconds_sum / self.recent if self.recent else nan


@define(eq=False)
class Marks:
    """The rate of a total that is only seen from time to time: since the last mark that is at least 30 seconds old."""

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
    """How long the application has waited for records in read calls. Several tasks that wait at once count as one."""

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
        """Return the metrics that Kafka has both for a client and for a node."""
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


@define(eq=False)
class Nodes:
    """What went to the brokers and came back, from all of them and from each."""

    whole: Traffic = field(factory=Traffic, init=False)
    _each: dict[str, Traffic] = field(factory=dict, init=False)
    _names: dict[tuple[tuple[str, str], ...], str] = field(factory=dict, init=False)
    """The name under which each of them was last seen, by its labels: a broker that moves to another address is the same broker."""

    def sent(self, event: RequestSent) -> None:
        """Count a request."""
        self.whole.requests.record(event.size, 0, event.now)
        (self._each.get(event.node) or self._new_name(event.node)).requests.record(event.size, 0, event.now)

    def answered(self, event: ResponseReceived) -> None:
        """Count a response."""
        self.whole.responses.record(event.size, event.latency, event.now)
        (self._each.get(event.node) or self._new_name(event.node)).responses.record(event.size, event.latency, event.now)

    def describe(self, now: float, since: float) -> dict[str, dict[str, float]]:
        """Return the metrics of each by its name."""
        each = tuple(self._each.items())  # a copy in one step: the background may add a node
        return {name: traffic.describe(now, since) for name, traffic in each}

    def _new_name(self, name: str) -> Traffic:
        labels = _labels(NODES, name)
        before = self._names.get(labels)
        if before is None and len(self._each) >= MAX_NODES:
            return self._each.setdefault(OTHER, Traffic())
        self._names[labels] = name
        traffic = self._each[name] = Traffic() if before is None else self._each.pop(before)
        return traffic


@define(eq=False)
class Reads:
    """What Fetch requests brought, and what the application has consumed of it."""

    fetches: Meter = field(factory=Meter, init=False)
    throttled: Meter = field(factory=Meter, init=False)
    _records: Marks = field(factory=Marks, init=False)
    _bytes: Marks = field(factory=Marks, init=False)

    def answered(self, event: ResponseReceived) -> None:
        """Count a Fetch response."""
        self.fetches.record(event.size, event.latency, event.now)
        if event.throttle:
            self.throttled.record(0, event.throttle, event.now)

    def describe(self, now: float, since: float, records: int, consumed_bytes: int | None) -> dict[str, float]:
        """Return the metrics; ``records`` and ``consumed_bytes`` were consumed so far."""
        fetches, throttled = self.fetches.read(now, since), self.throttled.read(now, since)
        numbers = {
            "records-consumed-total": records,
            "records-consumed-rate": self._records.rate(records, now, since),
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
            numbers["bytes-consumed-rate"] = self._bytes.rate(consumed_bytes, now, since)
        return numbers


@define(eq=False)
class Coordination:
    """Requests between a member and its coordinator."""

    commits: Meter = field(factory=Meter, init=False)
    failed: Meter = field(factory=Meter, init=False)
    heartbeats: Meter = field(factory=Meter, init=False)
    _heartbeat_at: float = field(default=nan, init=False)
    """When a heartbeat was last answered, or what joins; not a number if there was none, or it is no member any more."""
    _waits: RequestSent | None = field(default=None, init=False)
    """What joins and is not answered yet; ``None`` if a heartbeat was sent since."""
    rebalances: Meter = field(factory=Meter, init=False)
    _rebalance_began: float | None = field(default=None, init=False)

    def answered(self, event: ResponseReceived) -> None:
        """Count a commit or a heartbeat."""
        if event.api == "OffsetCommit":
            self.commits.record(event.size, event.latency, event.now)
        elif event.api in _HEARTBEATS:
            self.heartbeats.record(event.size, event.latency, event.now)
            self._heartbeat_at = event.now
        elif self._waits is not None and event.api in _JOINING and event.correlation_id == self._waits.correlation_id:
            self._waits, self._heartbeat_at = None, event.now

    def sent(self, event: RequestSent) -> None:
        """A heartbeat is due, or something that joins waits instead."""
        self._waits = event if event.api in _JOINING else None

    def failed_to_join(self) -> None:
        """It waits no more, and the coordinator has said nothing."""
        self._waits = None

    def moved(self, event: StateChanged) -> None:
        """Time a rebalance: from the first state of one to STABLE. Joining alone, as in the consumer protocol, does not count."""
        began = self._rebalance_began
        if event.after == "UNSUBSCRIBED":  # it has no coordinator, whose silence would alarm somebody
            self._waits, self._heartbeat_at = None, nan
        if event.after == "STABLE":
            if began is not None and event.before != "JOINING":
                self.rebalances.record((event.now - began) * 1000, event.now - began, event.now)
            self._rebalance_began = None
        elif event.after in _NO_MEMBER:
            self._rebalance_began = None
        elif began is None:
            self._rebalance_began = event.now

    def _silence(self, now: float) -> float:
        """Return for how long the coordinator has answered nothing; not a number while nothing is due from it.

        A member that has given its partitions up to a rebalance sends no heartbeats until the slowest member has joined: the alert
        would name all the others.
        """
        return nan if self._waits is not None else max(now - self._heartbeat_at, 0.0)  # in this order: not a number stays that

    def describe(self, now: float, since: float) -> dict[str, float]:
        """Return the metrics."""
        commits, rebalances = self.commits.read(now, since), self.rebalances.read(now, since)
        failed, heartbeats = self.failed.read(now, since), self.heartbeats.read(now, since)
        return {
            "commit-total": commits.count,
            "commit-rate": commits.rate,
            "commit-latency-avg": commits.seconds_average * 1000,
            "commit-latency-max": commits.seconds_max * 1000,
            "commit-failed-total": failed.count,
            "commit-failed-rate": failed.rate,
            "heartbeat-total": heartbeats.count,
            "heartbeat-rate": heartbeats.rate,
            "heartbeat-response-time-max": heartbeats.seconds_max * 1000,
            "last-heartbeat-seconds-ago": self._silence(now),
            "rebalance-total": rebalances.count,
            "rebalance-latency-avg": rebalances.seconds_average * 1000,
            "rebalance-latency-max": rebalances.seconds_max * 1000,
            "rebalance-latency-total": rebalances.total,
        }


@define(eq=False)
class Requests:
    """Counts trace events: requests and their responses, connections, and the life of a membership."""

    fetches: str
    """The API whose responses bring records."""
    reads: Reads = field(factory=Reads, init=False)
    coordination: Coordination = field(factory=Coordination, init=False)
    _since: float | None = field(default=None, init=False)
    _nodes: Nodes = field(factory=Nodes, init=False)
    _opened: Meter = field(factory=Meter, init=False)
    _closed: Meter = field(factory=Meter, init=False)
    _uncounted: deque[TraceEvent] = field(factory=deque, init=False, repr=False)
    _counting: threading.RLock = field(factory=threading.RLock, init=False, repr=False)
    """Reentrant: a signal handler may look at the numbers while its thread counts."""
    _is_counting: bool = field(default=False, init=False)

    def __call__(self, event: TraceEvent, /) -> None:
        """Have ``event`` counted, with others or before the next look at the numbers."""
        self._uncounted.append(event)
        if len(self._uncounted) >= KEPT or not isinstance(event, ROUTINE):
            self.count()

    def count(self) -> None:
        """Count what was kept."""
        with self._counting:
            if self._is_counting:
                return  # a signal handler: what it counted into the meter that its thread is about to set would be lost
            try:
                self._is_counting = True
                while self._uncounted:
                    self._count(self._uncounted.popleft())
            finally:
                self._is_counting = False

    def _count(self, event: TraceEvent) -> None:
        match event:
            case ResponseReceived():
                self._nodes.answered(event)
                (self.reads if event.api == self.fetches else self.coordination).answered(event)
            case CommitFailed():
                self.coordination.failed.record(0, 0, event.now)
            case RequestSent():
                if self._since is None:
                    self._since = event.now
                self._nodes.sent(event)
                if event.api in _JOINING or event.api in _HEARTBEATS:
                    self.coordination.sent(event)
            case RequestFailed() if event.api in _JOINING:
                self.coordination.failed_to_join()
            case ConnectionOpened():
                self._opened.record(0, 0, event.now)
            case ConnectionClosed():
                self._closed.record(0, 0, event.now)
            case StateChanged() if event.subject == MEMBERSHIP:
                self.coordination.moved(event)
            case _:
                pass  # Kafka has no metric for it, or it is not ours to count

    def since(self, now: float) -> float:
        """Return when the first request was sent; ``now`` if none was."""
        self.count()
        return now if self._since is None else self._since

    def describe(self, now: float) -> dict[str, dict[str, float]]:
        """Return the metrics of connections and requests, by group: of the client, and of each broker."""
        since = self.since(now)
        opened, closed = self._opened.read(now, since), self._closed.read(now, since)
        client = {
            "connection-creation-total": opened.count,
            "connection-creation-rate": opened.rate,
            "connection-close-total": closed.count,
            "connection-close-rate": closed.rate,
            **self._nodes.whole.describe(now, since),
        }
        return {CLIENT: client} | {f"{NODES}.{name}": numbers for name, numbers in self._nodes.describe(now, since).items()}


@define(eq=False)
class Metrics:
    """Counts what a consumer does; ``snapshot`` gives the numbers: times in milliseconds, sizes in bytes, rates per second."""

    requests: Requests = field(factory=lambda: Requests("Fetch"), init=False)
    idle: Idle = field(factory=Idle, init=False)
    _idle_marks: Marks = field(factory=Marks, init=False)

    def snapshot(
        self,
        now: float,
        *,
        lags: Mapping[TopicPartition, int | None],
        consumed: Mapping[TopicPartition, int],
        stopped: int | None = None,
        records_consumed: int | None = None,
        bytes_consumed: int | None = None,
        polled_at: float | None = None,
    ) -> dict[str, dict[str, float]]:
        """Return the metrics by group and name.

        ``lags`` and ``consumed`` are the lag and the records consumed of each assigned partition, ``stopped`` the number of those
        of which nothing can be read, ``records_consumed`` and ``bytes_consumed`` the totals with the partitions that are not
        assigned any more. Without ``records_consumed`` the total is that of the assigned partitions; without ``stopped`` or
        ``bytes_consumed`` there are no metrics of them. ``polled_at`` is when a read call last began, ``None`` before the first.
        Groups of one partition or broker are named ``<group>.<topic>-<partition>`` and ``<group>.<broker>``. What has no value yet
        is not a number, as in Java.
        """
        since = self.requests.since(now)
        records = sum(consumed.values()) if records_consumed is None else records_consumed
        known = [lag for lag in lags.values() if lag is not None]
        reads = self.requests.reads.describe(now, since, records, bytes_consumed)
        groups = {
            FETCHES: {"records-lag-max": max(known, default=nan), **reads},
            COORDINATOR: {"assigned-partitions": len(lags), **self.requests.coordination.describe(now, since)},
            **self.requests.describe(now),
        }
        if stopped is not None:
            groups[FETCHES]["stopped-partitions"] = stopped
        groups[CLIENT] |= {
            "last-poll-seconds-ago": nan if polled_at is None else max(0.0, now - polled_at),
            "poll-idle-ratio-avg": min(1.0, self._idle_marks.rate(self.idle.seconds(now), now, since)),
        }
        for partition in lags.keys() | consumed.keys():
            lag = lags.get(partition)
            groups[f"{FETCHES}.{partition.topic}-{partition.partition}"] = {
                "records-lag": nan if lag is None else lag,
                "records-consumed-total": consumed.get(partition, 0),
            }
        return groups


_SILENCES: Final = frozenset(("last-heartbeat-seconds-ago", "last-poll-seconds-ago"))


def of_stopped(numbers: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return the metrics of a consumer that has stopped: its silence would look like that of one that hangs."""
    return {group: {name: nan if name in _SILENCES else value for name, value in named.items()} for group, named in numbers.items()}


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
        """Whether there is one of it for each broker or partition."""
        return bool(self.labels)


def points(metrics: Mapping[str, Mapping[str, float]]) -> Iterator[Point]:
    """Yield what ``Metrics.snapshot`` gave under the names of KIP-714; what has no value yet is left out.

    A number of one partition that is also there for the whole consumer has a name of its own, so that a sum over all series of a
    name counts nothing twice.
    """
    whole = metrics.get(FETCHES, {})
    for key, numbers in metrics.items():
        group, _, of = key.partition(".")  # names of groups have no dots
        family = "org.apache.kafka." + group.removesuffix("-metrics").replace("-", ".")
        labels = _labels(group, of)
        part = ".partition" if of and group == FETCHES else ""
        for name, value in numbers.items():
            if not isnan(value):
                full = f"{family}{part if name in whole else ''}.{name.replace('-', '.')}"
                yield Point(name=full, value=value, labels=labels, total=name.endswith("-total"))


_NODE_ID: Final = r"\(id (?P<id>-?\d+)\)(?: (?P<channel>\w+))?$"


def _labels(group: str, of: str) -> tuple[tuple[str, str], ...]:
    if not of:
        return ()
    if group == NODES:
        node = re.search(_NODE_ID, of)
        if node is None:
            return (("node_id", of),)
        # A coordinator has a connection of its own besides the one for records; both are the same broker's.
        return (("node_id", node["id"]), *((("connection", node["channel"]),) if node["channel"] else ()))
    topic, _, partition = of.rpartition("-")
    return (("topic", topic), ("partition", partition))


def _observed(begin: float, now: float, since: float) -> float:
    # A sample begins with its first value. Where values are rare, the time since then says nothing about how often they come, so it
    # counts as a whole sample, but never as more than there was to observe.
    return max(1.0, min(now - since, max(now - begin, SAMPLE_SECONDS)))
