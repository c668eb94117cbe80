"""How many handlers a second: ``process`` compared with what people write or install for the same purpose.

Handlers of 0, 1 and 10 ms, 100 at once, of records with 1,000 keys over 6 partitions. Each client runs in a process of its own, in
rotation; timing runs from the first handler to the last. The clients do not promise the same: ``DOES`` says what each keeps.

What ``process`` can put around a handler is measured apart, with handlers of 0 ms, of which it is the larger part: ``AROUND``.
"""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from benchmarks.data import DISTINCT, values
from benchmarks.jobs import Shape
from benchmarks.plan import Plan, rotate
from benchmarks.report import Group
from kafka_async import Breaker, KafkaConsumer, Router

AT_ONCE: Final = 100
PARTITIONS: Final = 6
KEYS: Final = 1_000
RECORDS: Final = {0: 200_000, 1: 40_000, 10: 10_000}
"""How many records for handlers of so many milliseconds."""
SLOW: Final = "faststream"
"""Gets a tenth of the records, or it would take as long as all others together."""
DOES: Final = {
    "kafka_async.key": "`process`, order by key: order per key; commits what is done",
    "kafka_async.none": "`process`, no order: commits what is done",
    "aiokafka.gather": "`asyncio.gather` of 100: order lost within each 100, which wait for the slowest of them",
    "faststream": "`max_workers=100`: no order; commits what was handed out",
    "confluent.threads": "100 threads: order lost within each 1,000, which wait for the slowest of them",
}
PLAIN: Final = "plain"
"""What the others of ``AROUND`` are compared with."""
AROUND: Final = {
    PLAIN: "`process`, order by key, nothing else",
    "kafka_async.rate": "`rate`, never reached",
    "kafka_async.breaker": "`breaker`, closed",
    "kafka_async.decoded": "the handler decodes the JSON value with msgspec",
    "kafka_async.routed": "a `Router` of two routes by header, which decodes the same",
    "kafka_async.traced.api": "`tracing`, without an SDK",
    "kafka_async.traced": "`tracing`, with OpenTelemetry's SDK: a span and a duration each, exported to nowhere",
}
NEEDS: Final = {
    "kafka_async.decoded": "msgspec",
    "kafka_async.routed": "msgspec",
    "kafka_async.traced.api": "opentelemetry",
    "kafka_async.traced": "opentelemetry.sdk",
}
"""Packages without which one is left out."""
TYPE: Final = "ce_type"
NEVER: Final = 1e9
"""Records a second that no machine begins."""


@dataclass
class Order:
    """What the values of ``data.values`` are."""

    id: int
    user: str
    amount: float
    note: str


class Stopwatch:
    """Counts handlers that ended."""

    def __init__(self, count: int) -> None:
        self.count, self.done, self.began, self.cpu = count, 0, 0.0, 0.0
        self.ended = asyncio.Event()

    def begin(self) -> None:
        if not self.began:
            self.began, self.cpu = time.perf_counter(), time.process_time()

    def end(self) -> None:
        self.done += 1
        if self.done == self.count:
            self.stop()
            self.ended.set()

    def stop(self) -> None:
        self.began, self.cpu = time.perf_counter() - self.began, time.process_time() - self.cpu


def async_handler(watch: Stopwatch, ms: int) -> Callable[[Any], Any]:
    async def handle(record: Any) -> None:
        watch.begin()
        if ms:
            await asyncio.sleep(ms / 1000)
        watch.end()

    return handle


async def ours(bootstrap: str, topic: str, watch: Stopwatch, handler: Any, **options: Any) -> None:
    consumer = KafkaConsumer[bytes, bytes](
        topic, bootstrap_servers=bootstrap, group_id=uuid.uuid4().hex, auto_offset_reset="earliest"
    )
    async with consumer, consumer.processing(handler, concurrency=AT_ONCE, **options):
        await watch.ended.wait()


def decoding(watch: Stopwatch) -> Callable[[Any], Any]:
    """Return a handler that does itself what a route does with ``value=Order``."""
    import msgspec

    handle, decode = async_handler(watch, 0), msgspec.json.Decoder(Order).decode

    async def of_record(record: Any) -> None:
        await handle(decode(record.value))

    return of_record


def routed(watch: Stopwatch) -> Router:
    router, handle = Router(), async_handler(watch, 0)
    router.on(header=(TYPE, "order.cancelled"), value=Order)(handle)
    router.on(header=(TYPE, "order.created"), value=Order)(handle)
    return router


def traced() -> Any:
    """Return what makes a span of each attempt, and drops it in the place of a network."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    from kafka_async.adapters.tracing import Tracing

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Nowhere()))
    return Tracing(tracer_provider=provider, meter_provider=MeterProvider([InMemoryMetricReader()]))


def traced_without_sdk() -> Any:
    from kafka_async.adapters.tracing import Tracing

    return Tracing()


async def surrounded(client: str, bootstrap: str, topic: str, watch: Stopwatch) -> None:
    """One of ``AROUND``."""
    handle = async_handler(watch, 0)
    made: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
        PLAIN: lambda: (handle, {}),
        "kafka_async.rate": lambda: (handle, {"rate": NEVER}),
        "kafka_async.breaker": lambda: (handle, {"breaker": Breaker(on=ConnectionError)}),
        "kafka_async.decoded": lambda: (decoding(watch), {}),
        "kafka_async.routed": lambda: (routed(watch), {}),
        "kafka_async.traced.api": lambda: (handle, {"tracing": traced_without_sdk()}),
        "kafka_async.traced": lambda: (handle, {"tracing": traced()}),
    }
    handler, options = made[client]()
    await ours(bootstrap, topic, watch, handler, **options)


async def gathered(bootstrap: str, topic: str, watch: Stopwatch, ms: int) -> None:
    """The loop that most people write by hand."""
    from aiokafka import AIOKafkaConsumer

    handle = async_handler(watch, ms)
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=uuid.uuid4().hex, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        while not watch.ended.is_set():
            batch = await consumer.getmany(timeout_ms=1000, max_records=AT_ONCE)
            await asyncio.gather(*(handle(record) for records in batch.values() for record in records))
            await consumer.commit()


async def faststream(bootstrap: str, topic: str, watch: Stopwatch, ms: int) -> None:
    from faststream import AckPolicy
    from faststream.kafka import KafkaBroker

    handle = async_handler(watch, ms)
    broker = KafkaBroker(bootstrap, logger=None)

    async def consume(value: bytes) -> None:
        await handle(value)

    broker.subscriber(
        topic, group_id=uuid.uuid4().hex, auto_offset_reset="earliest", max_workers=AT_ONCE, ack_policy=AckPolicy.ACK_FIRST
    )(consume)
    async with broker:
        await broker.start()
        await watch.ended.wait()


def threads(bootstrap: str, topic: str, watch: Stopwatch, ms: int) -> None:
    from confluent_kafka import Consumer

    def handle(message: Any) -> None:
        if ms:
            time.sleep(ms / 1000)

    options = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer({**options, "enable.auto.commit": False, "fetch.queue.backoff.ms": 1})
    consumer.subscribe([topic])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while watch.done < watch.count:
            messages = [message for message in consumer.consume(1_000, 0.1) if message.error() is None]
            if messages:
                watch.begin()
            running: list[Future[None]] = [pool.submit(handle, message) for message in messages]
            for each in running:
                each.result()
                watch.end()
            if messages:
                consumer.commit(asynchronous=False)
    consumer.close()


def measure(client: str, bootstrap: str, topic: str, ms: int, count: int) -> dict[str, float]:
    """Run one client in this process."""
    watch = Stopwatch(count)
    runs: dict[str, Callable[[], Any]] = {
        "kafka_async.key": lambda: ours(bootstrap, topic, watch, async_handler(watch, ms), order="key"),
        "kafka_async.none": lambda: ours(bootstrap, topic, watch, async_handler(watch, ms), order="none"),
        "aiokafka.gather": lambda: gathered(bootstrap, topic, watch, ms),
        "faststream": lambda: faststream(bootstrap, topic, watch, ms),
        "confluent.threads": lambda: threads(bootstrap, topic, watch, ms),
    }
    running = surrounded(client, bootstrap, topic, watch) if client in AROUND else runs[client]()
    if running is not None:
        asyncio.run(running)
    return {"handlers_per_s": count / watch.began, "cpu_us": watch.cpu / count * 1e6}


def processing(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """Handlers a second of ``process``, of what people write or install for the same purpose, and with things around handlers."""
    for ms, records in RECORDS.items():
        yield _compared(plan, f"{ms} ms", f"handlers of {ms} ms", ms, records, list(DOES))
    clients = [client for client in AROUND if client not in NEEDS or _is_installed(NEEDS[client])]
    yield _compared(plan, "around", "around handlers of 0 ms", 0, RECORDS[0], clients)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # what it is part of is missing
        return False


def _compared(plan: Plan, scenario: str, what: str, ms: int, records: int, clients: list[str]) -> Group:
    records = records // 10 if plan.quick else records
    topic = plan.topics.empty(f"processing-{scenario.replace(' ', '-')}", PARTITIONS)
    _fill(plan.bootstrap, topic, records, events=scenario == "around")

    def run(client: str) -> dict[str, float]:
        return _in_a_process(client, plan.bootstrap, topic, ms, records // 10 if client == SLOW else records)

    title = f"processing: {what}, {AT_ONCE} at once, {KEYS:,} keys over {PARTITIONS} partitions"
    shape = Shape(partitions=PARTITIONS, records=records, headers=scenario == "around")
    return Group(command="processing", title=title, shape=shape, runs=rotate(plan, clients, run), scenario=scenario)


def _fill(bootstrap: str, topic: str, count: int, *, events: bool) -> None:
    """Write records of 100 bytes; ``events``: JSON with a type and the span of the producer in two headers."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100})
    texts = values(100) if events else [b"x" * 100] * DISTINCT
    for index in range(count):
        key = index * 7919 % KEYS
        span = b"00-%032x-%016x-01" % (index + 1, index + 1)
        headers: Any = [(TYPE, b"order.created"), ("traceparent", span)] if events else None
        producer.produce(topic, texts[index % DISTINCT], b"k%d" % key, partition=key % PARTITIONS, headers=headers)
        if index % 50_000 == 0:
            producer.flush()
    producer.flush()


def _in_a_process(client: str, bootstrap: str, topic: str, ms: int, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.processing", client, bootstrap, topic, str(ms), str(count)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)  # noqa: S603  # ours
    if ended.returncode:
        raise RuntimeError((ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1])
    values: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return values


if __name__ == "__main__":
    client, bootstrap, topic, ms, count = sys.argv[1:]
    sys.stdout.write(json.dumps(measure(client, bootstrap, topic, int(ms), int(count))) + "\n")
