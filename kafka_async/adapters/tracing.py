"""Traces of records that are processed: a span for each attempt, linked to the producer's span (extra ``otel``).

A span is current while the handler runs, while its failure is logged, and while ``on_failure`` deals with the record. Nothing has
to be detached after that: ``process`` runs each attempt in a copy of its own of the context variables, and drops it.

Names follow OpenTelemetry's conventions for messaging of 2026 (semantic conventions 1.44), which are still in development.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from inspect import isawaitable
from types import TracebackType
from typing import Any, Final, Literal

from attrs import define, field

from ..application.processing.context import ProcessingContext
from ..application.processing.retry import RetryLater, Skip, blame, check_return, decided
from ..errors import said
from ..functions import is_async, takes_context
from ..lazy import public_name

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.metrics import Histogram, MeterProvider, get_meter
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer, TracerProvider
except ImportError as missing:
    raise ImportError(
        "traces in OpenTelemetry need opentelemetry-api, which the extra 'otel' brings: pip install '/path/to/clone[otel]'"
    ) from missing

SCOPE: Final = "kafka_async"
DURATION: Final = "messaging.process.duration"
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds; those that the conventions advise."""

Headers = Sequence[tuple[str, bytes | None]]
Attributes = dict[str, str | int | bool]
_LOG: Final = logging.getLogger("kafka_async")


class _Received(Getter[Headers]):
    """Reads the headers of a record. Of several with one name the last counts; any bytes are text, so nothing raises."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        for name, value in reversed(carrier):
            if name.lower() == key:
                return [value.decode("latin-1")] if value is not None else None
        return None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


class _Written(Setter[list[tuple[str, bytes | None]]]):
    def set(self, carrier: list[tuple[str, bytes | None]], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


_RECEIVED: Final = _Received()
_SENT: Final = _Written()


def continued(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Return headers for a record that is written again: with the current span in place of the one that they name.

    Without a current span they stay as they are. For dead letters, retry topics, and programs that copy records.
    """
    if not trace.get_current_span().get_span_context().is_valid:
        return list(headers)
    fields = propagate.get_global_textmap().fields
    kept = [header for header in headers if header[0].lower() not in fields]
    propagate.inject(kept, setter=_SENT)
    return kept


@define(eq=False)
class _Attempt:
    """One call of the handler."""

    span: Span
    context: Context
    duration: Histogram
    attributes: Attributes
    """Of the duration."""
    began: float
    error: BaseException | None = field(default=None, init=False)
    """Why it failed, while ``on_failure`` runs."""
    ended: bool = field(default=False, init=False)

    def end(self, error: BaseException | None = None) -> None:
        """End the span; only the first call counts. ``error``: why the handler failed."""
        if self.ended:
            return
        self.ended = True
        attributes = self.attributes
        if isinstance(error, RetryLater | Skip):
            self.span.set_attribute("kafka_async.outcome", "skipped" if isinstance(error, Skip) else "retry_later")
        elif error is not None:
            kind = _error_type(error)
            attributes = attributes | {"error.type": kind}
            self.span.set_attribute("error.type", kind)
            if isinstance(error, Exception):
                self.span.record_exception(error)
            self.span.set_status(Status(StatusCode.ERROR, said(error)))
        # Before the span ends, and with it: then the measurement is an example that leads to the trace.
        self.duration.record(time.perf_counter() - self.began, attributes, context=self.context)
        self.span.end()


_Place = tuple[object, str, int, int]
"""Which ``process`` handles a record, and its topic, partition and offset."""
_open: Final[ContextVar[tuple[_Place, _Attempt] | None]] = ContextVar("kafka_async span", default=None)
"""The attempt of this context. It goes on in ``on_failure``, which runs in the same one."""


Begin = Callable[[Any, int], _Attempt]
"""Begins the span of an attempt, by its number, with what the handler is given."""
Again = Callable[[Any, int, BaseException], bool]
"""Says whether a record may be handled again after an attempt, by its number, that failed with an error."""


class Tracing:
    """For ``process(..., tracing=Tracing())``: a span ``process TOPIC`` of kind CONSUMER for each attempt.

    ``parent="link"`` (default): each attempt is a trace of its own, with a link to the span that wrote the record; with ``batch``
    one for each of its records (the SDK keeps 128 of them unless ``OTEL_SPAN_LINK_COUNT_LIMIT`` says more).
    ``parent="record"``: it is a child of that span instead, and has a link to the span in which ``process`` was called; not for
    batches. The baggage of a record is that of its handler.

    ``on_failure`` runs inside the last attempt's span, which ends after it; for a batch the span has ended by then. ``RetryLater``
    and ``Skip`` are no errors: they are in the attribute ``kafka_async.outcome``.

    The histogram ``messaging.process.duration`` (seconds) has the same times; ``partitions=True`` counts partitions apart.
    ``tracer_provider``, ``meter_provider``: instead of the global ones. Without an SDK nothing is recorded, but the context of a
    record still reaches its handler.

    Raises ``ValueError`` for another ``parent``.
    """

    def __init__(
        self,
        *,
        parent: Literal["link", "record"] = "link",
        partitions: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        if parent not in ("link", "record"):
            raise ValueError(f'parent={parent!r}: expected "link" or "record"')
        self._is_parent = parent == "record"
        self._tracer: Tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = meter_provider.get_meter(SCOPE) if meter_provider is not None else get_meter(SCOPE)
        self._duration = meter.create_histogram(
            DURATION,
            unit="s",
            description="Duration of processing operation.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._partitions = partitions
        self._measured: dict[tuple[str, int, str | None], Attributes] = {}

    def record(self, record: Any, *, group_id: str | None = None, client_id: str | None = None) -> AbstractContextManager[Span]:
        """Return a block in which a record is processed, for loops over ``getmany`` and ``async for``; it gives the span.

        ``group_id``, ``client_id``: for the span's attributes.
        """
        return _Block(lambda: self._begin(record, (record,), 1, batch=False, about=_about(group_id, client_id)))

    def around(
        self,
        handler: Callable[..., Any],
        on_failure: Any,
        *,
        again: Again,
        batch: int | None,
        group_id: str | None,
        client_id: str | None,
    ) -> tuple[Callable[..., Any], Any]:
        """Return a handler with its spans, and what deals with its failures; ``process`` calls this.

        Raises ``ValueError`` for ``parent="record"`` with ``batch``: a span has one parent.
        """
        if self._is_parent and batch is not None:
            raise ValueError('tracing: parent="record" is for single records; with batch=... use parent="link"')
        about = _about(group_id, client_id)

        def begin(argument: Any, attempt: int) -> _Attempt:
            records = (argument,) if batch is None else argument
            made = self._begin(records[0], records, attempt, batch=batch is not None, about=about)
            _enter(made, _place(begin, records[0]))
            return made

        # A batch fails record by record, so its span cannot wait for all of them.
        reacts = callable(on_failure) and batch is None
        return _around(handler, begin, again if reacts else None), _after(on_failure, begin) if reacts else on_failure

    def over(self, record: Any, on_failure: Any) -> None:
        """End the span of an attempt that ``on_failure`` was to be part of and is not; ``process`` calls this.

        Its partition has left, or ``process`` ends: the record is handled again, here or by another member. Without an attempt of
        this record, what is open is that in whose handler ``process`` was called. It goes on.
        """
        found = _open.get()
        if found is not None and found[0] == _place(getattr(on_failure, "begin", None), record):
            found[1].end(found[1].error)

    def _begin(self, first: Any, records: Sequence[Any], attempt: int, *, batch: bool, about: Attributes) -> _Attempt:
        source, links = self._sources(records, batch=batch)
        attributes: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": first.topic,
            "messaging.destination.partition.id": str(first.partition),
            "kafka_async.attempt": attempt,
            **about,
        }
        attributes |= {"messaging.batch.message_count": len(records)} if batch else _single(first)
        span = self._tracer.start_span(
            f"process {first.topic}",
            context=source if self._is_parent else Context(),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        group = about.get("messaging.consumer.group.name")
        measured = self._attributes_of_duration(first.topic, first.partition, str(group) if group is not None else None)
        return _Attempt(span, trace.set_span_in_context(span, source), self._duration, measured, time.perf_counter())

    def _sources(self, records: Sequence[Any], *, batch: bool) -> tuple[Context, list[Link]]:
        """Return the context that came with a record, and the links to what is not the parent."""
        fields = propagate.get_global_textmap().fields
        if batch:
            links = [
                Link(origin, {"messaging.kafka.offset": record.offset, **_key(record)})
                for record in records
                if (origin := _origin(_extracted(record.headers, fields))).is_valid
            ]
            return Context(), links
        (record,) = records
        source = _extracted(record.headers, fields)
        other = trace.get_current_span().get_span_context() if self._is_parent else _origin(source)
        return source, [Link(other)] if other.is_valid else []

    def _attributes_of_duration(self, topic: str, partition: int, group: str | None) -> Attributes:
        key = (topic, partition if self._partitions else -1, group)
        made = self._measured.get(key)
        if made is None:
            made = {"messaging.system": "kafka", "messaging.operation.name": "process", "messaging.destination.name": topic}
            if group is not None:
                made["messaging.consumer.group.name"] = group
            if self._partitions:
                made["messaging.destination.partition.id"] = str(partition)
            self._measured[key] = made
        return made


def _enter(attempt: _Attempt, place: _Place) -> None:
    """Make the span current, in a context that nobody uses for anything else."""
    _open.set((place, attempt))
    attach(attempt.context)


def _around(handler: Callable[..., Any], begin: Begin, again: Again | None) -> Callable[..., Any]:
    with_context = takes_context(handler)

    async def rest(attempt: _Attempt, result: Any, context: ProcessingContext) -> Any:
        try:
            value = await result
            check_return(value)
        except BaseException as error:
            _failed(attempt, error, again, context)
            raise
        attempt.end()
        return value

    def traced(argument: Any, context: ProcessingContext) -> Any:
        attempt = begin(argument, context.attempt)
        try:
            result = handler(argument, context) if with_context else handler(argument)
            if isawaitable(result):  # perhaps of a lambda around an async function: the event loop awaits it
                return rest(attempt, result, context)
            check_return(result)
        except BaseException as error:
            _failed(attempt, error, again, context)
            raise
        attempt.end()
        return result

    async def awaited(argument: Any, context: ProcessingContext) -> Any:
        return await traced(argument, context)

    return awaited if is_async(handler) else traced


def _failed(attempt: _Attempt, error: BaseException, again: Again | None, context: ProcessingContext) -> None:
    """The handler has failed: end the span, unless ``on_failure`` comes next, which is part of it."""
    error = decided(_of_record(error))
    skipped = not isinstance(error, Exception) or isinstance(error, Skip)
    # The result of a thread that was given up does not count, so nothing comes after it.
    if skipped or again is None or context.cancelled or again(context.record, context.attempt, error):
        attempt.end(error)
    else:
        attempt.error = error


def _of_record(error: BaseException) -> BaseException:
    """Return why the record failed, if ``Failed`` says so; nobody but a batch's handler need use it."""
    told = blame(error)
    return error if told is None or len(told.errors) != 1 else next(iter(told.errors.values()))


def _after(on_failure: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return what calls ``on_failure`` inside the span of the last attempt, and ends it."""

    def attempt_of(record: Any, error: BaseException, attempts: int) -> _Attempt:
        found = _open.get()
        if found is not None and found[0] == _place(begin, record):
            return found[1]
        # There was no attempt: it could not be deserialized. What is open is that in whose handler ``process`` was called.
        attempt = begin(record, attempts)
        attempt.error = error
        return attempt

    async def rest(attempt: _Attempt, result: Any) -> Any:
        try:
            return await result
        finally:
            attempt.end(attempt.error)

    def plain(record: Any, error: BaseException, attempts: int) -> Any:
        attempt = attempt_of(record, error, attempts)
        result = None
        try:
            result = on_failure(record, error, attempts)
        finally:
            if not isawaitable(result):
                attempt.end(attempt.error)
        return rest(attempt, result) if isawaitable(result) else result

    async def awaited(record: Any, error: BaseException, attempts: int) -> Any:
        return await plain(record, error, attempts)

    wrapped: Callable[..., Any] = awaited if is_async(on_failure) else plain
    vars(wrapped).update(raw_records=getattr(on_failure, "raw_records", False), begin=begin)
    return wrapped


class _Block:
    """A block around the processing of a record, in somebody else's context: what was current before is so again after it."""

    def __init__(self, begin: Callable[[], _Attempt]) -> None:
        self._begin = begin

    def __enter__(self) -> Span:
        self._attempt = self._begin()
        self._token = attach(self._attempt.context)
        return self._attempt.span

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._attempt.end(error)
        detach(self._token)


def _place(begin: Begin | None, record: Any) -> _Place:
    return begin, record.topic, record.partition, record.offset


def _about(group_id: str | None, client_id: str | None) -> Attributes:
    named = {"messaging.consumer.group.name": group_id, "messaging.client.id": client_id}
    return {name: value for name, value in named.items() if value is not None}


def _single(record: Any) -> Attributes:
    """Return the attributes of a span for one record."""
    tombstone: Attributes = {"messaging.kafka.message.tombstone": True} if record.value is None else {}
    return {"messaging.kafka.offset": record.offset, **_key(record), **tombstone}


def _key(record: Any) -> Attributes:
    """Return the key, if it is text, or a number."""
    key = record.key
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return {}
        if not key.isprintable():
            return {}
    return {"messaging.kafka.message.key": str(key)} if isinstance(key, str | int) else {}


def _extracted(headers: Headers, fields: Collection[str]) -> Context:
    """Return the context that headers bring. Nothing that is ambient here gets into it."""
    if not any(name.lower() in fields for name, _ in headers):
        return Context()
    try:
        return propagate.extract(headers, Context(), _RECEIVED)
    except Exception as error:  # a propagator that is not robust; a record of strange headers is handled like any other
        _LOG.debug("the headers of a record are not a context", exc_info=error)
        return Context()


def _origin(context: Context) -> SpanContext:
    return trace.get_current_span(context).get_span_context()


def _error_type(error: BaseException) -> str:
    return public_name(type(error)).removeprefix("builtins.")
