"""How many handlers a second: ``process`` compared with what people write or install for the same purpose.

Handlers of 0, 1 and 10 ms, 100 at once, of records with 1,000 keys over 6 partitions. Each client runs in a process of its own, in
rotation; timing runs from the first handler to the last. The clients do not promise the same: ``DOES`` says what each keeps. What
stands around a handler (``AROUND``) is measured with handlers of 0 ms, of records with small values in JSON and one header.
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
from functools import partial
from typing import Any, Final

from benchmarks.jobs import Shape
from benchmarks.plan import Plan, rotate
from benchmarks.report import Group
from kafka_async import Breaker, KafkaConsumer, Router
from kafka_async.application.processing.process_options import ProcessOptions

AT_ONCE: Final = 100
PARTITIONS: Final = 6
KEYS: Final = 1_000
RECORDS: Final = {0: 200_000, 1: 40_000, 10: 10_000}
"""How many records for handlers of so many milliseconds."""
KIND: Final = "ce_type"
AROUND_SCENARIO: Final = "around a handler"
SLOW: Final = "faststream"
"""Gets a tenth of the records, or it would take as long as all others together."""
DOES: Final = {
    "kafka_async.key": "`process`, order by key: order per key; commits what is done",
    "kafka_async.none": "`process`, no order: commits what is done",
    "aiokafka.gather": "`asyncio.gather` of 100: order lost within each 100, which wait for the slowest of them",
    "faststream": "`max_workers=100`: no order; commits what was handed out",
    "confluent.threads": "100 threads: order lost within each 1,000, which wait for the slowest of them",
}

AROUND: Final = {
    "kafka_async.plain": "`process` with nothing around the handler, order by key",
    "kafka_async.traces": "`tracing=Tracing()`: a span for each attempt, which a provider of OpenTelemetry's SDK records and drops",
    "kafka_async.router": "a `Router` with two routes by header, and values as dataclasses",
    "kafka_async.rate": "`rate=` that is never reached",
    "kafka_async.breaker": "a `Breaker` that stays closed",
}


@dataclass
class Order:
    """The value of a record."""

    id: int
    item: str


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


async def ours(bootstrap: str, topic: str, watch: Stopwatch, ms: int, order: Any) -> None:
    consumer = KafkaConsumer[bytes, bytes](
        topic, bootstrap_servers=bootstrap, group_id=uuid.uuid4().hex, auto_offset_reset="earliest"
    )
    async with consumer, consumer.processing(async_handler(watch, ms), concurrency=AT_ONCE, order=order):
        await watch.ended.wait()


async def around(bootstrap: str, topic: str, watch: Stopwatch, what: str) -> None:
    """Handle records with one thing around the handler, or with none."""
    handler: Any = async_handler(watch, 0)
    options: ProcessOptions = {"concurrency": AT_ONCE}
    match what:
        case "traces":
            from opentelemetry.sdk.trace import TracerProvider

            from kafka_async.adapters.tracing import Tracing

            options["tracing"] = Tracing(tracer_provider=TracerProvider())
        case "router":
            handler = Router()
            handler.on(topic=topic, header=(KIND, "order.cancelled"), value=str)(async_handler(watch, 0))
            handler.on(topic=topic, header=(KIND, "order.created"), value=Order)(async_handler(watch, 0))
        case "rate":
            options["rate"] = 10_000_000
        case "breaker":
            options["breaker"] = Breaker(on=(ConnectionError,))
    consumer = KafkaConsumer[bytes, bytes](
        topic, bootstrap_servers=bootstrap, group_id=uuid.uuid4().hex, auto_offset_reset="earliest"
    )
    async with consumer, consumer.processing(handler, **options):
        await watch.ended.wait()


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
        "kafka_async.key": lambda: ours(bootstrap, topic, watch, ms, "key"),
        "kafka_async.none": lambda: ours(bootstrap, topic, watch, ms, "none"),
        "aiokafka.gather": lambda: gathered(bootstrap, topic, watch, ms),
        "faststream": lambda: faststream(bootstrap, topic, watch, ms),
        "confluent.threads": lambda: threads(bootstrap, topic, watch, ms),
    }
    for name in AROUND:
        runs[name] = partial(around, bootstrap, topic, watch, name.partition(".")[2])
    running = runs[client]()
    if running is not None:
        asyncio.run(running)
    return {"handlers_per_s": count / watch.began, "cpu_us": watch.cpu / count * 1e6}


def processing(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """Handlers a second of ``process``, and of what people write or install for the same purpose."""
    for ms, records in RECORDS.items():
        records = records // 10 if plan.quick else records
        topic = plan.topics.empty(f"processing-{ms}", PARTITIONS)
        _fill(plan.bootstrap, topic, records)

        def run(client: str, ms: int = ms, records: int = records, topic: str = topic) -> dict[str, float]:
            return _in_a_process(client, plan.bootstrap, topic, ms, records // 10 if client == SLOW else records)

        title = f"processing: handlers of {ms} ms, {AT_ONCE} at once, {KEYS:,} keys over {PARTITIONS} partitions"
        shape = Shape(partitions=PARTITIONS, records=records)
        yield Group(command="processing", title=title, shape=shape, runs=rotate(plan, list(DOES), run), scenario=f"{ms} ms")

    records = RECORDS[0] // 10 if plan.quick else RECORDS[0]
    topic = plan.topics.empty("processing-around", PARTITIONS)
    _fill(plan.bootstrap, topic, records, b'{"id":1,"item":"mug"}', [(KIND, b"order.created")])

    def run_around(client: str) -> dict[str, float]:
        return _in_a_process(client, plan.bootstrap, topic, 0, records)

    yield Group(
        command="processing",
        title="processing: what stands around a handler of 0 ms",
        shape=Shape(partitions=PARTITIONS, records=records),
        runs=rotate(plan, list(AROUND), run_around),
        scenario=AROUND_SCENARIO,
    )


def _fill(bootstrap: str, topic: str, count: int, value: bytes = b"x" * 100, headers: Sequence[tuple[str, bytes]] = ()) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100})
    for index in range(count):
        key = index * 7919 % KEYS
        producer.produce(topic, value, b"k%d" % key, partition=key % PARTITIONS, headers=list(headers))
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
