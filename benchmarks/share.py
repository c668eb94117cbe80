"""Share groups: jobs a second with handlers of 5 ms and with none, and how long a job waits, beside Java and confluent-kafka::

    .venv/bin/python -m benchmarks share

Each client is one member in a process of its own, with one partition of a broker that this starts, and explicit acknowledgements.
Timing starts with the first record and ends when the last acknowledgement was answered. Java's handlers are threads, and so are
confluent-kafka's: both take one batch at a time and go on when all of it is done, as their interfaces ask. Ours are tasks.

A handler sleeps. The timer of an event loop is coarser than that of a thread: epoll waits for whole milliseconds. With one handler
there is a line for each kind of sleep by itself, in the same rotation: no client can be faster than its own.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.brokers import CURRENT, KafkaCluster, jars

JAVA: Final = Path(__file__).with_name("ShareWorker.java")
CASES: Final = {
    "one handler of 5 ms": (2_000, 5, 1),
    "50 handlers of 5 ms": (20_000, 5, 50),
    "no work": (200_000, 0, 1),
}
"""Records, milliseconds that a handler takes, and how many there are at once."""
RATE, SECONDS = 200, 10
"""Of the latencies: jobs a second, and for how long."""
ROUNDS: Final = 3


async def _ours(bootstrap: str, topic: str, group: str, count: int, ms: int, at_once: int) -> dict[str, float]:
    from kafka_async import ShareConsumer

    waits: list[float] = []
    began = 0.0
    done = asyncio.Event()

    async with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        if ms:

            async def handle(record: Any) -> None:
                nonlocal began
                began = began or time.perf_counter()
                waits.append(time.time() * 1000 - record.timestamp)
                await asyncio.sleep(ms / 1000)
                if len(waits) == count:
                    done.set()

            async with consumer.processing(handle, concurrency=at_once) as run:
                await done.wait()
                await run.drain()
        else:
            while len(waits) < count:
                batch = await consumer.getmany(timeout_ms=1000)
                now = time.time() * 1000
                began = began or (time.perf_counter() if batch else 0.0)
                for records in batch.values():
                    for record in records:
                        waits.append(now - record.timestamp)
                        record.accept()
            await consumer.flush()
        seconds = time.perf_counter() - began
        if consumer.statistics().refused:
            raise RuntimeError("acknowledgements were refused")
    return _summary(seconds, waits)


SLEEPS: Final = ("asyncio.sleep alone", "time.sleep alone")
"""What the handlers do, without a client."""


async def _sleep_in_task(count: int, ms: int) -> None:
    for _ in range(count):
        await asyncio.sleep(ms / 1000)


def _sleep(kind: str, count: int, ms: int) -> dict[str, float]:
    began = time.perf_counter()
    if kind == SLEEPS[0]:
        asyncio.run(_sleep_in_task(count, ms))
    else:
        for _ in range(count):
            time.sleep(ms / 1000)
    return {"seconds": time.perf_counter() - began, "done": count}


def _confluent(bootstrap: str, topic: str, group: str, count: int, ms: int, at_once: int) -> dict[str, float]:
    from confluent_kafka import ShareConsumer

    waits: list[float] = []
    began = 0.0
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"})
    consumer.subscribe([topic])
    with ThreadPoolExecutor(at_once) as pool:
        while len(waits) < count:
            messages = [message for message in consumer.poll(1.0) or () if message.error() is None]
            began = began or (time.perf_counter() if messages else 0.0)
            now = time.time() * 1000
            waits += [now - message.timestamp()[1] for message in messages]
            if ms:
                list(pool.map(lambda _: time.sleep(ms / 1000), messages))
            for message in messages:
                consumer.acknowledge(message)
        consumer.commit_sync()
    seconds = time.perf_counter() - began
    consumer.close()
    return _summary(seconds, waits)


def _summary(seconds: float, waits: list[float]) -> dict[str, float]:
    waits.sort()
    return {
        "seconds": seconds,
        "done": len(waits),
        "median_ms": waits[len(waits) // 2],
        "p99_ms": waits[len(waits) * 99 // 100],
    }


def _command(client: str, *arguments: str) -> list[str]:
    if client == "Java":
        return ["java", "-Xmx512m", "-cp", f"{jars(CURRENT)}/*", str(JAVA), *arguments]
    return [sys.executable, "-m", "benchmarks.share", client, *arguments]


CLIENTS: Final = ("kafka_async", "confluent-kafka", "Java")


def _run(client: str, cluster: KafkaCluster, case: tuple[int, int, int], *, paced: bool) -> dict[str, float]:
    """Run one client once, in a process of its own, with a topic and a group of its own."""
    count, ms, at_once = case
    topic = cluster.create_topic(f"bench-{uuid.uuid4().hex[:8]}")
    cluster.alter_config("group", topic, {"share.auto.offset.reset": "earliest"})
    if not paced:
        for start in range(0, count, 20_000):
            cluster.produce(topic, min(20_000, count - start), start=start)
    command = _command(client, cluster.bootstrap_servers, topic, topic, str(count), str(ms), str(at_once))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603 - ours
        if paced:
            threading.Thread(target=_write, args=(cluster, topic, count), daemon=True).start()
        out, _ = process.communicate(timeout=120)
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return found


def _write(cluster: KafkaCluster, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    time.sleep(8)  # the member has joined
    producer, began = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}), time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        producer.produce(topic, b"x" * 100)
        producer.poll(0)
    producer.flush()


def main(say: Callable[[str], None] = print, rounds: int = ROUNDS) -> None:
    """Run every client in rotation, and print medians over the rounds (min-max)."""
    properties = {
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
    }
    with KafkaCluster(CURRENT, properties=properties) as cluster:
        for name, case in CASES.items():
            compared = (*CLIENTS, *SLEEPS) if case[1] and case[2] == 1 else CLIENTS
            rates: dict[str, list[float]] = {client: [] for client in compared}
            for _ in range(rounds):
                for client in compared:
                    found = _sleep(client, *case[:2]) if client in SLEEPS else _run(client, cluster, case, paced=False)
                    rates[client].append(found["done"] / found["seconds"])
            for client, seen in rates.items():
                say(f"{name:24} {client:20} {statistics.median(seen):10,.0f} jobs/s ({min(seen):,.0f}-{max(seen):,.0f})")
        for client in CLIENTS:
            found = _run(client, cluster, (RATE * SECONDS, 0, 1), paced=True)
            say(f"{f'latency at {RATE} jobs/s':24} {client:20} median {found['median_ms']:.1f} ms, 99 % {found['p99_ms']:.1f} ms")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        client, bootstrap, topic, group, *numbers = sys.argv[1:]
        count, ms, at_once = map(int, numbers)
        if client == "kafka_async":
            print(json.dumps(asyncio.run(_ours(bootstrap, topic, group, count, ms, at_once))))  # noqa: T201
        else:
            print(json.dumps(_confluent(bootstrap, topic, group, count, ms, at_once)))  # noqa: T201
    else:
        main()
