"""How many handlers a second: ``process`` compared with what people write or install for the same purpose.

    python -m benchmarks.processing [-b HOST:PORT] [--rounds 3] [--quick]

Handlers of 0, 1 and 10 ms, 100 at once, of records with 1,000 keys over 6 partitions. Each client runs in a process of its own, in
rotation; timing runs from the first handler to the last. Each row notes whether order is kept and only what is done is committed.
If FastStream is not installed (extra ``bench``), its rows are left out, with the reason.
"""

import argparse
import asyncio
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from kafka_async import KafkaConsumer
from tests.brokers import KafkaCluster

AT_ONCE: Final = 100
PARTITIONS: Final = 6
KEYS: Final = 1_000
RECORDS: Final = {0: 200_000, 1: 40_000, 10: 10_000}
"""How many records for handlers of so many milliseconds."""
SLOW: Final = "FastStream, max_workers=100"
"""Gets a tenth of the records, or it would take as long as all others together."""
DOES: Final = {
    "process, order by key": "order per key; commits what is done",
    "process, no order": "commits what is done",
    "aiokafka, gather of 100": "order lost within each 100, which wait for their slowest",
    "FastStream, max_workers=100": "no order; commits what was handed out (ack first)",
    "confluent-kafka, 100 threads": "order lost within each 1,000, which wait for their slowest",
}


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
        "process, order by key": lambda: ours(bootstrap, topic, watch, ms, "key"),
        "process, no order": lambda: ours(bootstrap, topic, watch, ms, "none"),
        "aiokafka, gather of 100": lambda: gathered(bootstrap, topic, watch, ms),
        "FastStream, max_workers=100": lambda: faststream(bootstrap, topic, watch, ms),
        "confluent-kafka, 100 threads": lambda: threads(bootstrap, topic, watch, ms),
    }
    running = runs[client]()
    if running is not None:
        asyncio.run(running)
    return {"per_second": count / watch.began, "cpu_us": watch.cpu / count * 1e6}


@contextmanager
def brokers(given: str | None) -> Iterator[tuple[str, dict[int, str]]]:
    """Give bootstrap servers and a topic for each time that handlers take."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # the package does not mark it

    with KafkaCluster() if given is None else _nothing() as cluster:
        bootstrap = given if cluster is None else cluster.bootstrap_servers
        assert bootstrap is not None  # noqa: S101 - one of them is there
        admin, producer = (
            AdminClient({"bootstrap.servers": bootstrap}),
            Producer({"bootstrap.servers": bootstrap, "linger.ms": 100}),
        )
        topics = {ms: f"processing-{ms}-{uuid.uuid4().hex[:8]}" for ms in RECORDS}
        for created in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics.values()]).values():
            created.result(60)
        for ms, topic in topics.items():
            for index in range(RECORDS[ms]):
                key = index * 7919 % KEYS
                producer.produce(topic, b"x" * 100, b"k%d" % key, partition=key % PARTITIONS)
                if index % 50_000 == 0:
                    producer.flush()
            producer.flush()
        yield bootstrap, topics


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


def main() -> None:
    """Measure each client for each time in rotation and print medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processing", description=__doc__)
    parser.add_argument("-b", "--bootstrap", help="brokers to use instead of one of its own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    parser.add_argument("--worker", nargs=5, metavar=("CLIENT", "BOOTSTRAP", "TOPIC", "MS", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        client, bootstrap, topic, ms, count = options.worker
        sys.stdout.write(json.dumps(measure(client, bootstrap, topic, int(ms), int(count))) + "\n")
        return
    clients = list(DOES)
    if importlib.util.find_spec("faststream") is None:
        clients.remove(SLOW)
        sys.stdout.write("FastStream is not installed (pip install 'faststream[kafka]'): left out\n")
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    with brokers(options.bootstrap) as (bootstrap, topics):
        for number in range(options.rounds):
            for ms, topic in topics.items():
                count = RECORDS[ms] // (10 if options.quick else 1)
                for client in clients[number % len(clients) :] + clients[: number % len(clients)]:
                    few = count // 10 if client == SLOW else count
                    found.setdefault((client, ms), []).append(_in_a_process(client, bootstrap, topic, ms, few))
    for client in clients:
        cells = []
        for ms in RECORDS:
            runs = found[client, ms]
            per_second, cpu = (statistics.median(run[name] for run in runs) for name in ("per_second", "cpu_us"))
            cells.append(f"{per_second:>9,.0f} ({cpu:.1f})")
        sys.stdout.write("  ".join([f"{client:<30}", *cells, DOES[client]]) + "\n")


def _in_a_process(client: str, bootstrap: str, topic: str, ms: int, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.processing", "--worker", client, bootstrap, topic, str(ms), str(count)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)  # noqa: S603  # ours
    values: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return values


if __name__ == "__main__":
    main()
