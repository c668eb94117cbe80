"""One trace point serves logs, metrics and hooks.

Logging is one listener among others (``LoggingListener``), and nothing else in the package writes to a log. A normal event is INFO
or DEBUG. A fault is one WARNING for as long as it lasts, and its end is an INFO line with its length. ``LOGGING.md`` says what an
operator reads.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from .errors import LONGEST_REASON, DeserializationError, one_line, shown
from .model import TopicPartition, at_offset
from .values import define, field, frozen

LONGEST: Final = 2000
"""Characters of a line in the log that is not for debugging. Names in it may come from brokers."""

STOP: Final = "stop"
"""Outcome of the record that ends ``process``."""
COMES_AGAIN: Final = "comes again"
"""Outcome of a record whose handler was cancelled and raised another error, or that is not ours any more."""

MEMBERSHIP: Final = "membership"
"""Subject of the changes that either group protocol reports."""


@frozen(kw_only=True)
class ConnectionOpened:
    """A connection is ready for requests, after version negotiation and authentication."""

    now: float
    node: str


@frozen(kw_only=True)
class ConnectionClosed:
    """A connection ended; ``error`` is ``None`` if we closed it on purpose."""

    now: float
    node: str
    error: BaseException | None = None


class RequestSent(NamedTuple):
    """A request was written to a connection.

    Events of every round trip are tuples, which are made in a quarter of the time.
    """

    now: float
    node: str
    api: str
    version: int
    correlation_id: int
    size: int
    """Bytes, with the length prefix."""


class ResponseReceived(NamedTuple):
    """A request was answered."""

    now: float
    node: str
    api: str
    correlation_id: int
    size: int
    """Bytes, with the length prefix."""
    latency: float
    """Seconds from the moment the request was written."""
    throttle: float = 0.0
    """Seconds for which the broker throttled us (KIP-219)."""


@frozen(kw_only=True)
class RequestFailed:
    """A request was not sent, or not answered; ``error`` is the reason."""

    now: float
    node: str
    api: str
    error: BaseException


@frozen(kw_only=True)
class StateChanged:
    """A state machine moved: a partition's position, the membership, the consumer."""

    now: float
    subject: str
    before: str
    after: str
    reason: str = ""


class Fetched(NamedTuple):
    """One partition's part of a Fetch response was put into the buffer."""

    now: float
    topic: str
    partition: int
    size: int
    """Bytes of record data."""
    latency: float


@frozen(kw_only=True)
class CommitFailed:
    """A request to commit offsets was not answered, or was refused for these partitions; it may be tried again."""

    now: float
    partitions: frozenset[TopicPartition]
    error: BaseException
    """Why, for one of them."""


@frozen(kw_only=True)
class Fault:
    """A fault that the consumer deals with by itself. ``text`` says what failed and what happens next."""

    now: float
    text: str
    error: BaseException | None = None
    subject: str = ""
    """Which logger writes it: ``network``, ``group``, ``fetch`` or ``commit``; empty for ``kafka_async`` itself."""
    outage: str = ""
    """What fails until ``Recovered`` (or ``Unassigned``) ends it, such as ``heartbeats``; empty if it is over already."""
    partitions: frozenset[TopicPartition] = frozenset()
    """The partitions that it is about. An outage of partitions is one of each of them."""


@frozen(kw_only=True)
class Recovered:
    """The subject of an ``outage`` works again. It may be reported without an outage before it, and is then not logged."""

    now: float
    outage: str
    subject: str = ""
    partitions: frozenset[TopicPartition] = frozenset()
    needed: bool = True
    """``False``: it may still fail, but is not needed any more, as the connection to a broker that has left the cluster, what a
    ``process`` or a consumer that has ended was waiting for, or an offset that nobody looks up any more.
    """


@frozen(kw_only=True)
class Unassigned:
    """These partitions left the assignment: they are no longer read, and their outages no longer concern this consumer."""

    now: float
    partitions: frozenset[TopicPartition]


@frozen(kw_only=True)
class Notice:
    """A normal event that a person may want to know about, such as a new assignment or an offset reset."""

    now: float
    text: str
    subject: str = ""
    partitions: frozenset[TopicPartition] = frozenset()


@frozen(kw_only=True)
class RecordFailed:
    """A handler of ``process`` failed for one record; ``outcome`` says what happens to the record."""

    now: float
    topic: str
    partition: int
    offset: int
    attempt: int
    """0: no handler had the record, since it cannot be deserialized, or its order or its time cannot be found."""
    error: BaseException
    outcome: str
    """``"tried again in 0.5 s"``, ``"tried again in 60 s through TOPIC"``, ``"released"``, ``"skipped"``,
    ``"dead letter"``, ``COMES_AGAIN`` or ``STOP``.
    """
    final: bool
    """The record counts as done, though no handler returned for it."""


@frozen(kw_only=True)
class ProcessingFailed:
    """``process`` has failed: it drains, and raises this error. The log has it too, since nobody may wait for that task."""

    now: float
    error: BaseException


TraceEvent: TypeAlias = (
    ConnectionOpened
    | ConnectionClosed
    | RequestSent
    | ResponseReceived
    | RequestFailed
    | StateChanged
    | Fetched
    | CommitFailed
    | Fault
    | Recovered
    | Unassigned
    | Notice
    | RecordFailed
    | ProcessingFailed
)


class Listener(Protocol):
    """Takes trace events.

    Called on the background loop, and inside calls of the application (rebalances, commits), which are different threads with
    ``background="thread"``. Must be quick and must not raise.
    """

    def __call__(self, event: TraceEvent, /) -> None: ...


def partition_names(partitions: Iterable[TopicPartition], mark: str = "-") -> str:
    """Return partitions as ``orders-0,1,2 payments-0``, in order. ``mark``: what stands behind a topic."""
    by_topic: dict[str, list[str]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}{mark}{','.join(numbers)}" for topic, numbers in by_topic.items())


def first_of(names: Sequence[str], most: int) -> str:
    """Return at most so many of the names, and how many there are besides."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def plural(count: int) -> str:
    """Return the ending of a noun after ``count``."""
    return "" if count == 1 else "s"


_OF_ONE: Final = {"are": "is", "were": "was"}


def counted(count: int, noun: str, verb: str = "") -> str:
    """Return ``1 broker`` or ``12,000 brokers``. ``verb``: ``are`` or ``were``, which follows, as ``is`` or ``was`` after 1."""
    said = f"{count:,} {noun}{plural(count)}"
    return f"{said} {_OF_ONE[verb] if count == 1 else verb}" if verb else said


def attempted(attempt: int, error: BaseException | None) -> str:
    """Say after which attempt a record failed. ``error``: why no handler had it, if it was none."""
    if attempt:
        return f"after attempt {attempt}"
    return "before a handler had it" + (", since it cannot be deserialized" if isinstance(error, DeserializationError) else "")


def connection_outage(node: str) -> str:
    """Return the name of the outage that ends when a connection to ``node`` is open."""
    return f"the connection to {node}"


@define
class _Outage:
    """An outage of one partition, or of the whole consumer."""

    since: float
    logged_at: float
    """When it was last a WARNING."""
    subject: str
    faults: int = 0


@frozen(kw_only=True)
class _Ended:
    """An outage that is over, of one partition or of several."""

    outage: str
    subject: str
    partitions: frozenset[TopicPartition]
    seconds: float
    """Since it began for the first of them."""
    faults: int

    @property
    def length(self) -> str:
        return f"{self.seconds:.1f} s and {self.faults} failure{plural(self.faults)}"


_SUBJECTS: Final = ("network", "group", "fetch", "commit")
ROUTINE: Final = (RequestSent, ResponseReceived, Fetched)
"""Events of every round trip. They are logged at DEBUG, by the loggers of ``network`` and ``fetch``."""
_MANY: Final = 1024
"""Bound for the texts that are remembered. They name partitions and brokers, so they are few; a bound all the same."""
_MOST_OUTAGES: Final = 50_000
"""The same for outages: each partition may have several."""


@define(kw_only=True, eq=False)
class LoggingListener:
    """The default listener: writes to loggers of the standard library, ``kafka_async`` and one below it for each subject.

    Each line begins with the consumer that writes it; ``extra`` fields hold the same and more for programs that read logs:
    ``client_id``, ``group_id``, ``partitions`` (a list of ``topic-number``), ``outage``, ``outage_seconds`` and ``error`` (the name
    of its class), ``None`` if there is none.
    """

    logger: logging.Logger = field(factory=lambda: logging.getLogger("kafka_async"))
    client_id: str = ""
    group_id: str | None = None
    quiet_for: float = 60.0
    """Seconds for which a fault that is not an outage is not repeated at WARNING with the same text."""
    remind_after: float = 600.0
    """Seconds after which an outage that goes on is a WARNING again."""
    _seen: dict[str, float] = field(factory=dict, init=False, repr=False)
    _outages: dict[tuple[str, TopicPartition | None], _Outage] = field(factory=dict, init=False, repr=False)
    _loggers: dict[str, logging.Logger] = field(init=False, repr=False)
    _passing: int = field(default=0, init=False, repr=False)
    """Failures of records that are tried again, since one was logged."""
    _passing_logged_at: float | None = field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._loggers = {"": self.logger} | {subject: self.logger.getChild(subject) for subject in _SUBJECTS}

    def __call__(self, event: TraceEvent, /) -> None:
        match event:
            case Fault():
                self._fault(event)
            case Recovered():
                self._recovered(event)
            case Unassigned():
                self._unassigned(event)
            case Notice():
                self._write(logging.INFO, event.subject, event.text, event.partitions)
            case ConnectionOpened():
                self._debug("network", event)
                self._recovered(Recovered(now=event.now, outage=connection_outage(event.node), subject="network"))
            case StateChanged():
                self._debug("group" if event.subject == MEMBERSHIP else "", event)
            case CommitFailed():
                self._debug("commit", event)
            case RecordFailed() | ProcessingFailed():
                self._processing(event)
            case Fetched():
                self._debug("fetch", event)
            case _:
                self._debug("network", event)

    @property
    def is_verbose(self) -> bool:
        """Whether what is ``ROUTINE`` is logged."""
        return any(self._loggers[subject].isEnabledFor(logging.DEBUG) for subject in ("network", "fetch"))

    def _processing(self, event: RecordFailed | ProcessingFailed) -> None:
        if isinstance(event, RecordFailed):
            self._record_failed(event)
            return
        text = f"process() has failed and handles nothing more ({shown(event.error, LONGEST_REASON)})"
        self._write(logging.ERROR, "", text, error=event.error)

    def _record_failed(self, event: RecordFailed) -> None:
        """Say what becomes of a record; each time, if it counts as done without a handler having returned.

        While a dependency is down everything fails and is tried again: of that there is one line in ``quiet_for``, with a number.
        """
        level, more = logging.WARNING, ""
        if event.outcome == STOP:  # raised as well
            level = logging.INFO
        elif not event.final:
            self._passing += 1
            if self._passing_logged_at is not None and event.now - self._passing_logged_at < self.quiet_for:
                level = logging.DEBUG
            else:
                more = f"; {self._passing} failures since the last such line" if self._passing > 1 else ""
                self._passing, self._passing_logged_at = 0, event.now
        if self.logger.isEnabledFor(level):  # the error's text may be long
            where = at_offset(event.topic, event.partition, event.offset)
            reason = f"{attempted(event.attempt, event.error)} ({shown(event.error, LONGEST_REASON)})"
            text = f"{where}: {event.outcome} {reason}{more}"
            self._write(level, "", text, error=event.error)

    def _fault(self, event: Fault) -> None:
        news = self._begun(event) if event.outage else event.partitions
        if news is None or not (event.outage or self._is_fresh(event)):
            self._debug(event.subject, event)
            return
        text = f"{event.text} ({shown(event.error, LONGEST_REASON)})" if event.error is not None else event.text
        self._write(logging.WARNING, event.subject, text, news, error=event.error, outage=event.outage or None)

    def _begun(self, event: Fault) -> frozenset[TopicPartition] | None:
        """Count a fault into its outages. Return the partitions that it is news of, ``None`` if it is no news at all."""
        news: list[TopicPartition | None] = []
        for partition in event.partitions or (None,):
            outage = self._outages.get((event.outage, partition))
            if outage is None:
                if len(self._outages) >= _MOST_OUTAGES:
                    self._outages.pop(next(iter(self._outages.copy())), None)  # other threads may change it
                outage = self._outages[event.outage, partition] = _Outage(event.now, event.now, event.subject)
                news.append(partition)
            elif event.now - outage.logged_at >= self.remind_after:
                outage.logged_at = event.now
                news.append(partition)
            outage.faults += 1
        return frozenset(partition for partition in news if partition is not None) if news else None

    def _is_fresh(self, event: Fault) -> bool:
        last = self._seen.get(event.text)
        if last is not None and event.now - last < self.quiet_for:
            return False
        if len(self._seen) >= _MANY:
            self._seen.clear()
        self._seen[event.text] = event.now
        return True

    def _recovered(self, event: Recovered) -> None:
        if over := self._take(event.outage, event.partitions or (None,), event.now):
            text = f"recovered: {over.outage}, after {over.length}"
            self._write_end(over, text if event.needed else f"no longer needed: {over.outage}, after {over.length}")

    def _unassigned(self, event: Unassigned) -> None:
        """End the outages of partitions that left: if they come back and fail again, that is another outage."""
        for name in sorted({name for name, partition in self._outages.copy() if partition in event.partitions}):
            if over := self._take(name, event.partitions, event.now):
                self._write_end(over, f"no longer assigned: {over.outage}, after {over.length}")

    def _take(self, name: str, partitions: Iterable[TopicPartition | None], now: float) -> _Ended | None:
        """Remember these outages no more; return what they were as one."""
        found = {partition: self._outages.pop((name, partition), None) for partition in partitions}
        over = {partition: outage for partition, outage in found.items() if outage is not None}
        if not over:
            return None
        return _Ended(
            outage=name,
            subject=next(iter(over.values())).subject,
            partitions=frozenset(partition for partition in over if partition is not None),
            seconds=now - min(outage.since for outage in over.values()),
            faults=sum(outage.faults for outage in over.values()),
        )

    def _write_end(self, over: _Ended, text: str) -> None:
        self._write(logging.INFO, over.subject, text, over.partitions, outage=over.outage, outage_seconds=over.seconds)

    def _debug(self, subject: str, event: TraceEvent) -> None:
        if self._loggers[subject].isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, subject, str(event), longest=None)

    def _write(
        self,
        level: int,
        subject: str,
        text: str,
        partitions: Iterable[TopicPartition] = (),
        *,
        error: BaseException | None = None,
        outage: str | None = None,
        outage_seconds: float | None = None,
        longest: int | None = LONGEST,
    ) -> None:
        logger = self._loggers[subject]
        if not logger.isEnabledFor(level):
            return
        names = list(map(str, sorted(partitions)))
        who = ", group ".join(filter(None, (self.client_id, self.group_id)))
        line = f"{text}: {partition_names(partitions)}" if names else text
        fields = {
            "client_id": self.client_id or None,
            "group_id": self.group_id,
            "partitions": names,
            "outage": outage,
            "outage_seconds": outage_seconds,
            "error": None if error is None else type(error).__name__,
        }
        whole = f"[{who}] {line}" if who else line
        logger.log(level, "%s", one_line(whole, longest) if longest else whole, extra=fields)
