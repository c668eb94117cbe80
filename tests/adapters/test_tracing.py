"""``kafka_async.adapters.tracing``: the spans that OpenTelemetry's own SDK gets."""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

import pytest
from attrs import define, field
from opentelemetry import baggage, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags

from kafka_async import (
    Breaker,
    Failed,
    KafkaConsumer,
    ProcessingContext,
    ProcessingError,
    ProcessingStatistics,
    Reject,
    Retry,
    RetryLater,
    Skip,
)
from kafka_async.adapters.dead_letters import DeadLetters
from kafka_async.adapters.retry_topics import RetryTopics
from kafka_async.adapters.tracing import BUCKETS, DURATION, Tracing, continued
from kafka_async.testing import Cluster

Headers = list[tuple[str, bytes | None]]
WRITTEN = SpanContext(0xABC0_0000_0000_0000_0000_0000_0000_0001, 0x1234_5678_9ABC_DEF0, is_remote=True, trace_flags=TraceFlags(1))
"""The span of a producer, as a header says it."""
TRACEPARENT = b"00-%032x-%016x-01" % (WRITTEN.trace_id, WRITTEN.span_id)


@define(eq=False)
class Program:
    """A program with an SDK."""

    spans: InMemorySpanExporter = field(factory=InMemorySpanExporter)
    metrics: InMemoryMetricReader = field(factory=InMemoryMetricReader)
    provider: TracerProvider = field(factory=TracerProvider)
    tracer: trace.Tracer = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.tracer = self.provider.get_tracer("program")

    def tracing(self, parent: Literal["link", "record"] = "link", *, partitions: bool = False) -> Tracing:
        meters = MeterProvider(metric_readers=[self.metrics])
        return Tracing(parent=parent, partitions=partitions, tracer_provider=self.provider, meter_provider=meters)

    def finished(self, name: str = "process orders") -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name == name]

    def durations(self) -> list[HistogramDataPoint]:
        data = self.metrics.get_metrics_data()
        scopes = data.resource_metrics[0].scope_metrics if data is not None else []
        (metric,) = (metric for scope in scopes for metric in scope.metrics)
        assert (metric.name, metric.unit) == (DURATION, "s")
        return list(metric.data.data_points)  # type: ignore[arg-type]  # they are a histogram's


def orders(*headers: Sequence[tuple[str, bytes | None]], **record: Any) -> Cluster:
    """Return a cluster with a topic ``orders``, and a record in it for each list of headers."""
    cluster = Cluster()
    cluster.topic("orders")
    for number, each in enumerate(headers):
        cluster.produce("orders", **{"value": str(number), "headers": each, **record})
    return cluster


async def processed(cluster: Cluster, count: int, handler: Callable[..., Any], **options: Any) -> None:
    """Process until this many records are done."""
    async with (
        KafkaConsumer(
            "orders", group_id="billing", client_id="billing-1", auto_offset_reset="earliest", **cluster.options()
        ) as consumer,
        consumer.processing(handler, **options) as run,
    ):
        while _over(run.statistics()) < count:  # noqa: ASYNC110 - it is counted, and nothing tells of it
            await asyncio.sleep(0.001)


def _over(seen: ProcessingStatistics) -> int:
    return seen.handled + seen.skipped + seen.dead_letters + seen.redelivered


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def test_each_record_has_a_span_that_is_linked_to_its_producers() -> None:
    program, seen = Program(), []

    async def handle(record: Any) -> None:
        seen.append(trace.get_current_span().get_span_context())
        with program.tracer.start_as_current_span("work"):
            await asyncio.sleep(0)

    cluster = orders([("traceparent", TRACEPARENT)], [], key="k")
    run(processed(cluster, 2, handle, tracing=program.tracing()))
    linked, alone = program.finished()
    assert linked.kind is SpanKind.CONSUMER
    assert [link.context for link in linked.links] == [WRITTEN]
    assert not alone.links
    assert linked.parent is None
    assert linked.context is not None
    assert linked.context.trace_id != WRITTEN.trace_id
    assert dict(linked.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "billing",
        "messaging.client.id": "billing-1",
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.key": "k",
        "kafka_async.attempt": 1,
    }
    assert linked.status.status_code is StatusCode.UNSET
    assert seen == [linked.context, alone.context]
    assert [span.parent for span in program.finished("work")] == [linked.context, alone.context]


def test_the_producers_span_may_be_the_parent() -> None:
    program = Program()

    async def handle(record: Any) -> None:
        pass

    async def main() -> None:
        with program.tracer.start_as_current_span("main"):
            await processed(orders([("traceparent", TRACEPARENT)]), 1, handle, tracing=program.tracing("record"))

    run(main())
    (span,) = program.finished()
    (ambient,) = program.finished("main")
    assert span.parent == WRITTEN
    assert span.context is not None
    assert span.context.trace_id == WRITTEN.trace_id
    assert [link.context for link in span.links] == [ambient.context]


def test_baggage_of_a_record_reaches_its_handler_and_no_other() -> None:
    program, seen = Program(), []

    async def handle(record: Any) -> None:
        await asyncio.sleep(0.001)
        seen.append((record.value, baggage.get_baggage("customer")))

    cluster = orders([("baggage", b"customer=7")], [])
    run(processed(cluster, 2, handle, concurrency=1, tracing=program.tracing()))
    assert seen == [(b"0", "7"), (b"1", None)]


@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", None)],
        [("traceparent", b"\xff\xfe\x00")],
        [("traceparent", TRACEPARENT), ("traceparent", b"")],
        [("tracestate", b"\x80"), ("baggage", b"\xff=\xff;;,=")],
        [("", b"")],
    ],
)
def test_headers_of_any_bytes_change_nothing(headers: Headers) -> None:
    program, handled = Program(), []

    async def handle(record: Any) -> None:
        handled.append(record.headers)

    run(processed(orders(headers), 1, handle, tracing=program.tracing()))
    assert handled == [tuple(headers)]
    (span,) = program.finished()
    assert not span.links


def test_of_several_headers_the_last_counts() -> None:
    program = Program()
    old = b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"

    async def handle(record: Any) -> None:
        pass

    run(processed(orders([("traceparent", old), ("Traceparent", TRACEPARENT)]), 1, handle, tracing=program.tracing()))
    (span,) = program.finished()
    assert [link.context for link in span.links] == [WRITTEN]


def test_each_attempt_has_a_span_and_all_have_the_same_link() -> None:
    program = Program()

    async def handle(record: Any, context: Any) -> None:
        if context.attempt < 3:
            raise ConnectionError("no route")

    cluster = orders([("traceparent", TRACEPARENT)])
    run(processed(cluster, 1, handle, retry=Retry(attempts=3), tracing=program.tracing()))
    spans = program.finished()
    assert [(span.attributes or {})["kafka_async.attempt"] for span in spans] == [1, 2, 3]
    assert [(span.attributes or {}).get("error.type") for span in spans] == ["ConnectionError", "ConnectionError", None]
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert [[link.context for link in span.links] for span in spans] == [[WRITTEN]] * 3
    assert [event.name for event in spans[0].events] == ["exception"]
    points = {point.attributes.get("error.type"): point for point in program.durations() if point.attributes is not None}
    assert {error: point.count for error, point in points.items()} == {None: 1, "ConnectionError": 2}
    assert points[None].explicit_bounds == BUCKETS


@pytest.mark.parametrize(("decision", "outcome"), [(Skip(), "skipped"), (RetryLater(0.001), "retry_later")])
def test_what_a_handler_decides_is_no_error(decision: Exception, outcome: str) -> None:
    program = Program()

    async def handle(record: Any, context: Any) -> None:
        if context.attempt == 1:
            raise decision

    run(processed(orders([]), 1, handle, tracing=program.tracing()))
    span = program.finished()[0]
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["kafka_async.outcome"] == outcome
    assert "error.type" not in (span.attributes or {})


@pytest.mark.slow
def test_the_log_and_on_failure_are_in_the_last_attempts_span() -> None:
    program, logged, seen = Program(), [], []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(trace.get_current_span().get_span_context())

    async def handle(record: Any) -> None:
        raise Reject("bad")

    async def on_failure(record: Any, error: BaseException, attempts: int) -> None:
        seen.append(trace.get_current_span())
        assert seen[0].is_recording(), "it has not ended"
        await asyncio.sleep(0)

    log, handler = logging.getLogger("kafka_async"), Handler(level=logging.WARNING)
    log.addHandler(handler)
    try:
        run(processed(orders([]), 1, handle, on_failure=on_failure, tracing=program.tracing()))
    finally:
        log.removeHandler(handler)
    (span,) = program.finished()
    assert (span.attributes or {})["error.type"] == "kafka_async.Reject"
    assert seen[0].get_span_context() == span.context
    assert span.context in logged


def test_a_record_that_cannot_be_read_has_a_span_for_what_becomes_of_it() -> None:
    program, seen = Program(), []

    async def handle(record: Any) -> None: ...

    async def on_failure(record: Any, error: BaseException, attempts: int) -> None:
        seen.append(trace.get_current_span().get_span_context())

    async def main() -> None:
        cluster = orders([("traceparent", TRACEPARENT)])
        async with (
            KafkaConsumer(
                "orders", group_id="g", auto_offset_reset="earliest", value_deserializer=lambda data: 1 / 0, **cluster.options()
            ) as consumer,
            consumer.processing(handle, on_failure=on_failure, tracing=program.tracing()),
        ):
            while not seen:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.001)

    run(main())
    (span,) = program.finished()
    assert seen == [span.context]
    assert [link.context for link in span.links] == [WRITTEN]
    assert span.status.status_code is StatusCode.ERROR


def test_plain_handlers_have_their_span_on_their_thread() -> None:
    program, seen = Program(), []

    def handle(record: Any) -> None:
        seen.append((record.offset, trace.get_current_span().get_span_context()))
        if record.offset == 1:
            raise Reject

    def on_failure(record: Any, error: BaseException, attempts: int) -> None:
        seen.append((record.offset, trace.get_current_span().get_span_context()))

    run(processed(orders([], [], []), 3, handle, on_failure=on_failure, tracing=program.tracing()))
    contexts = {(span.attributes or {})["messaging.kafka.offset"]: span.context for span in program.finished()}
    assert sorted(offset for offset, _ in seen) == [0, 1, 1, 2]
    assert all(contexts[offset] == context for offset, context in seen)


def test_a_lambda_around_an_async_handler_has_its_span_too() -> None:
    program, seen = Program(), []

    async def handle(record: Any) -> None:
        await asyncio.sleep(0.001)
        seen.append(trace.get_current_span().get_span_context())
        assert trace.get_current_span().is_recording(), "it has not ended"

    run(processed(orders([]), 1, lambda record: handle(record), tracing=program.tracing()))
    (span,) = program.finished()
    assert seen == [span.context]


def test_twenty_handlers_at_once_never_see_each_others_span() -> None:
    program, seen = Program(), []

    async def handle(record: Any) -> None:
        mine = trace.get_current_span().get_span_context()
        for _ in range(5):
            await asyncio.sleep(0.001 * (record.offset % 3))
            assert trace.get_current_span().get_span_context() == mine
        seen.append(mine)
        if record.offset % 7 == 3:
            raise ValueError

    cluster = orders(*([] for _ in range(200)))
    run(processed(cluster, 200, handle, concurrency=20, order="none", on_failure="skip", tracing=program.tracing()))
    assert len({context.span_id for context in seen}) == len(program.finished()) == 200


def test_a_batch_has_one_span_with_a_link_for_each_record() -> None:
    program, sizes = Program(), []

    async def handle(records: list[Any]) -> Failed | None:
        sizes.append(len(records))
        return Failed(1, Skip()) if len(records) > 1 else None

    cluster = orders(*([("traceparent", TRACEPARENT)] for _ in range(10)))
    run(processed(cluster, 10, handle, batch=10, linger_ms=200, order="partition", tracing=program.tracing()))
    spans = program.finished()
    assert [(span.attributes or {})["messaging.batch.message_count"] for span in spans] == sizes
    assert sum(len(span.links) for span in spans) == sum(sizes) == 10
    assert [(link.attributes or {})["messaging.kafka.offset"] for span in spans for link in span.links] == list(range(10))
    assert "messaging.kafka.offset" not in (spans[0].attributes or {})


def test_a_span_of_a_batch_has_no_one_parent() -> None:
    async def handle(records: list[Any]) -> None: ...

    async def main() -> None:
        async with KafkaConsumer("orders", group_id="g", **orders().options()) as consumer:
            consumer.processing(handle, batch=2, tracing=Tracing(parent="record"))

    with pytest.raises(ValueError, match="batch"):
        run(main())


def test_an_attempt_that_is_cancelled_says_so() -> None:
    program, began = Program(), asyncio.Event()

    async def handle(record: Any) -> None:
        began.set()
        await asyncio.sleep(60)

    async def main() -> None:
        async with (
            KafkaConsumer("orders", group_id="g", auto_offset_reset="earliest", **orders([]).options()) as consumer,
            consumer.processing(handle, drain_timeout_ms=0, tracing=program.tracing()),
        ):
            await began.wait()

    run(main())
    (span,) = program.finished()
    assert (span.attributes or {})["error.type"] == "asyncio.exceptions.CancelledError"


@pytest.mark.parametrize("plain", [False, True])
def test_the_last_attempt_of_a_record_that_comes_again_ends_though_on_failure_is_not_called(plain: bool) -> None:
    program, began = Program(), threading.Event()

    async def handle(record: Any) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("as it cleans up") from None

    def handle_on_a_thread(record: Any, context: ProcessingContext) -> None:
        began.set()
        while not context.cancelled:
            time.sleep(0.001)
        raise ValueError("long after it was given up")

    def on_failure(record: Any, error: BaseException, attempts: int) -> None:
        raise AssertionError("it is another member's record")

    async def main() -> None:
        handler: Any = handle_on_a_thread if plain else handle
        async with (
            KafkaConsumer("orders", group_id="g", auto_offset_reset="earliest", **orders([]).options()) as consumer,
            consumer.processing(handler, drain_timeout_ms=0, on_failure=on_failure, tracing=program.tracing()),
        ):
            await asyncio.to_thread(began.wait)
        while not program.finished():  # noqa: ASYNC110 - a thread that is left to itself tells nobody that it ended
            await asyncio.sleep(0.001)

    run(asyncio.wait_for(main(), 20))
    (span,) = program.finished()
    assert (span.attributes or {})["error.type"] == "ValueError"


@pytest.mark.parametrize("plain", [True, False])
def test_attempts_that_a_breaker_makes_none_have_spans_that_end(plain: bool) -> None:
    program, calls, letters = Program(), list[int](), list[int]()

    def work(record: Any) -> None:
        calls.append(record.offset)
        if len(calls) < 30:
            raise ConnectionError
        if record.offset == 5:
            raise ValueError

    async def handle(record: Any) -> None:
        work(record)

    async def bury(record: Any, error: BaseException, attempts: int) -> None:
        letters.append(record.offset)

    breaker = Breaker(ConnectionError, probe_after=0.01)
    options: dict[str, Any] = {"breaker": breaker, "on_failure": bury, "tracing": program.tracing()}
    run(processed(orders(*[[]] * 20), 20, work if plain else handle, **options))
    assert letters == [5]
    assert len(program.finished()) == len(calls)


def test_a_dead_letter_continues_the_trace_and_its_headers_do_not_grow() -> None:
    program, sent = Program(), []

    class Producer:
        async def send_and_wait(self, topic: str, *, value: Any, key: Any, headers: Headers) -> None:
            sent.append(headers)

    async def handle(record: Any) -> None:
        raise Reject

    headers = [("traceparent", TRACEPARENT), ("tracestate", b"a=1"), ("kept", b"1")]
    run(processed(orders(headers), 1, handle, on_failure=DeadLetters(Producer(), "dead"), tracing=program.tracing()))
    (span,), (written,) = program.finished(), sent
    assert span.context is not None
    (parent,) = [value for name, value in written if name == "traceparent"]
    assert parent is not None
    assert parent.startswith(b"00-%032x-%016x-" % (span.context.trace_id, span.context.span_id))
    assert not [name for name, _ in written if name == "tracestate"]
    assert ("kept", b"1") in written


def test_a_copy_in_a_retry_topic_continues_the_trace_of_the_attempt_and_has_one_header_for_it() -> None:
    program, sent = Program(), list[tuple[str, Headers]]()
    cluster = orders([("traceparent", TRACEPARENT), ("kept", b"1")])
    cluster.topic("orders.billing.retry.1")

    class Producer:
        async def send_and_wait(self, topic: str, *, value: Any, key: Any, headers: Headers) -> None:
            sent.append((topic, headers))

    async def handle(record: Any) -> None:
        raise ValueError

    retry = RetryTopics(Producer(), delays=(1,), then="skip")
    run(processed(cluster, 1, handle, on_failure=retry, tracing=program.tracing()))
    (span,), ((topic, written),) = program.finished(), sent
    assert topic == "orders.billing.retry.1"
    assert span.context is not None
    (parent,) = [value for name, value in written if name == "traceparent"]
    assert parent is not None
    assert parent.startswith(b"00-%032x-%016x-" % (span.context.trace_id, span.context.span_id))
    assert len(dict(written)) == len(written)
    assert dict(written)["retry-attempts"] == b"1"


def test_headers_stay_as_they_are_without_a_span() -> None:
    assert continued((("traceparent", TRACEPARENT),)) == [("traceparent", TRACEPARENT)]


def test_a_loop_of_ones_own_has_a_block_for_each_record() -> None:
    program = Program()
    tracing = program.tracing(partitions=True)

    async def main() -> None:
        cluster = orders([("traceparent", TRACEPARENT)], [])
        async with KafkaConsumer("orders", auto_offset_reset="earliest", **cluster.options()) as consumer:
            for number in range(2):
                record = await consumer.getone()
                try:
                    with tracing.record(record, group_id="g") as span:
                        assert trace.get_current_span() is span
                        if number:
                            raise KeyError("x")
                except KeyError:
                    pass
                assert not trace.get_current_span().get_span_context().is_valid

    run(main())
    fine, failed = program.finished()
    assert [link.context for link in fine.links] == [WRITTEN]
    assert (failed.attributes or {})["error.type"] == "KeyError"
    (group, *_) = {(point.attributes or {})["messaging.consumer.group.name"] for point in program.durations()}
    assert group == "g"
    assert {(point.attributes or {})["messaging.destination.partition.id"] for point in program.durations()} == {"0"}


@pytest.mark.slow
def test_an_application_that_stops_keeps_no_span_open() -> None:
    """The record that ends processing ends its span, also if ``on_failure`` raises."""
    program = Program()

    async def handle(record: Any) -> None:
        raise ValueError("bad")

    async def on_failure(record: Any, error: BaseException, attempts: int) -> None:
        raise OSError("no producer")

    tracing = program.tracing()
    for reaction in ("stop", on_failure):
        with pytest.raises(ProcessingError):
            run(processed(orders([]), 1, handle, on_failure=reaction, tracing=tracing))
    gc.collect()
    assert [(span.attributes or {})["error.type"] for span in program.finished()] == ["ValueError"] * 2


def test_without_an_sdk_the_context_of_a_record_reaches_its_handler() -> None:
    seen = []

    async def handle(record: Any) -> None:
        seen.append((trace.get_current_span().get_span_context().trace_id, baggage.get_baggage("customer")))

    cluster = orders([("traceparent", TRACEPARENT), ("baggage", b"customer=7")])
    run(processed(cluster, 1, handle, tracing=Tracing(parent="record")))
    assert seen == [(WRITTEN.trace_id, "7")]


def test_a_parent_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="parent='child'"):
        Tracing(parent="child")  # type: ignore[arg-type]  # what is wrong here


@pytest.mark.parametrize("plain", [False, True])
def test_an_attempt_whose_time_is_over_has_one_span_and_on_failure_sees_it(plain: bool) -> None:
    program, seen = Program(), []

    async def handle(record: Any) -> None:
        await asyncio.sleep(60)

    async def on_failure(record: Any, error: BaseException, attempts: int) -> None:
        assert isinstance(error, TimeoutError)
        seen.append(trace.get_current_span().get_span_context())

    def on_failure_on_a_thread(record: Any, error: BaseException, attempts: int) -> None:
        seen.append(trace.get_current_span().get_span_context())

    reaction = on_failure_on_a_thread if plain else on_failure
    run(processed(orders([]), 1, handle, timeout_ms=20, on_failure=reaction, tracing=program.tracing()))
    (span,) = program.finished()
    assert seen == [span.context]


@pytest.mark.parametrize("why", ["it cannot be read", "its order fails"])
@pytest.mark.parametrize("reaction", ["a function", "skip"])
def test_a_record_without_an_attempt_does_not_end_the_attempt_that_processes_it(why: str, reaction: str) -> None:
    program, ended = Program(), []
    tracing = program.tracing()

    async def inner(record: Any) -> None: ...

    async def on_failure(record: Any, error: BaseException, attempts: int) -> None: ...

    def refuse(given: Any) -> Any:
        raise ArithmeticError

    async def outer(record: Any) -> None:
        decoded: dict[str, Any] = {"value_deserializer": refuse} if why == "it cannot be read" else {}
        how: dict[str, Any] = {"on_failure": on_failure if reaction == "a function" else "skip"}
        async with (
            KafkaConsumer("orders", group_id="inner", auto_offset_reset="earliest", **decoded, **orders([]).options()) as consumer,
            consumer.processing(inner, order=refuse, tracing=tracing, **how) as run,
        ):
            while not _over(run.statistics()):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.001)
        assert trace.get_current_span().is_recording(), "it has not ended"
        ended.append(record.offset)

    run(processed(orders([]), 1, outer, on_failure=on_failure, tracing=tracing))
    assert ended == [0]


def test_a_record_that_cannot_be_read_leaves_the_span_around_its_processing_alone() -> None:
    """A handler may process other records, which have spans of their own."""
    program, failed = Program(), []

    async def inner(record: Any) -> None: ...

    async def on_failure(record: Any, error: BaseException, attempts: int) -> None:
        failed.append(record.offset)

    async def outer(record: Any) -> None:
        cluster = orders([])
        async with (
            KafkaConsumer(
                "orders", group_id="inner", auto_offset_reset="earliest", value_deserializer=lambda _: 1 / 0, **cluster.options()
            ) as consumer,
            consumer.processing(inner, on_failure=on_failure, tracing=program.tracing()),
        ):
            while not failed:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.001)
        assert trace.get_current_span().is_recording(), "it has not ended"

    tracing, program.metrics = program.tracing(), InMemoryMetricReader()
    run(processed(orders([]), 1, outer, tracing=tracing))
    groups = [(span.attributes or {})["messaging.consumer.group.name"] for span in program.finished()]
    assert groups == ["inner", "billing"]
