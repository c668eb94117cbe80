"""Share groups: jobs a second with handlers of 5 ms and with none, and how long a job waits, beside Java and confluent-kafka::

    .venv/bin/python -m benchmarks share

Each client is one member in a process of its own, with one partition of a broker that this starts, and explicit acknowledgements.
Timing starts with the first record and ends when the last acknowledgement was answered. Java's handlers are threads, and so are
confluent-kafka's: both take one batch at a time and go on when all of it is done, as their interfaces ask. Ours are measured in
three ways: plain handlers of ``process`` and the blocking facade sleep on threads as theirs do, async handlers on the event loop.

A handler sleeps. The timer of an event loop is coarser than that of a thread: epoll waits for whole milliseconds. So there is a
line for each kind of sleep by itself, in the same rotation: no client can be faster than its own.

Latencies leave out the first records, which find broker and client cold, or a member that has not joined yet.
"""

import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.brokers import CURRENT, KafkaCluster, jars

JAVA: Final = Path(__file__).with_name("ShareWorker.java")
CASES: Final = {
    "one handler of 5 ms": (1_000, 5, 1),
    "50 handlers of 5 ms": (20_000, 5, 50),
    "no work": (200_000, 0, 1),
}
"""Records, milliseconds that a handler takes, and how many there are at once."""
RATE, SECONDS, WARM_UP = 200, 15, 5
"""Of the latencies: jobs a second, for how long, and how many of these seconds do not count."""
LATENCY: Final = f"latency at {RATE} jobs/s"
ROUNDS: Final = 3


class _Watch:
    """When the work began, how long records had waited, and whether all is done. For any thread."""

    def __init__(self, count: int, done: Callable[[], object] = lambda: None) -> None:
        self.count = count
        self.done = done
        self.began = 0.0
        self.waits: list[float] = []
        self._ended = itertools.count(1)

    def begin(self, record: Any) -> None:
        self.began = self.began or time.perf_counter()
        self.waits.append(time.time() * 1000 - record.timestamp)

    def end(self) -> None:
        if next(self._ended) == self.count:
            self.done()

    def summary(self, refused: int) -> dict[str, float]:
        seconds = time.perf_counter() - self.began
        if refused:
            raise RuntimeError("acknowledgements were refused")
        return _summary(seconds, self.waits)


async def _ours(bootstrap: str, topic: str, group: str, count: int, ms: int, at_once: int) -> dict[str, float]:
    """Async handlers; without work a loop around ``getmany``."""
    done = asyncio.Event()
    watch = _Watch(count, done.set)

    async def handle(record: Any) -> None:
        watch.begin(record)
        await asyncio.sleep(ms / 1000)
        watch.end()

    return await _process(bootstrap, topic, group, at_once, watch, handle if ms else None, done)


async def _ours_plain(bootstrap: str, topic: str, group: str, count: int, ms: int, at_once: int) -> dict[str, float]:
    """Plain handlers, which ``process`` calls on threads."""
    done, loop = asyncio.Event(), asyncio.get_running_loop()
    watch = _Watch(count, lambda: loop.call_soon_threadsafe(done.set))
    return await _process(bootstrap, topic, group, at_once, watch, _sleeper(watch, ms), done)


def _sleeper(watch: _Watch, ms: int) -> Callable[[Any], None]:
    def handle(record: Any) -> None:
        watch.begin(record)
        time.sleep(ms / 1000)
        watch.end()

    return handle


async def _process(
    bootstrap: str, topic: str, group: str, at_once: int, watch: _Watch, handler: Callable[[Any], Any] | None, done: asyncio.Event
) -> dict[str, float]:
    from kafka_async import ShareConsumer

    async with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        if handler is not None:
            async with consumer.processing(handler, concurrency=at_once) as run:
                await done.wait()
                await run.drain()
        else:
            while len(watch.waits) < watch.count:
                batch = await consumer.getmany(timeout_ms=1000)
                now = time.time() * 1000
                watch.began = watch.began or (time.perf_counter() if batch else 0.0)
                for records in batch.values():
                    for record in records:
                        watch.waits.append(now - record.timestamp)
                        record.accept()
            await consumer.flush()
        return watch.summary(consumer.statistics().refused)


def _ours_blocking(bootstrap: str, topic: str, group: str, count: int, ms: int, at_once: int) -> dict[str, float]:
    """The blocking facade: a ``for`` loop with one handler, ``processing`` with several."""
    from kafka_async.sync import ShareConsumer

    done = threading.Event()
    watch = _Watch(count, done.set)
    handle = _sleeper(watch, ms)
    with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        if at_once > 1:
            with consumer.processing(handle, concurrency=at_once) as run:
                done.wait()
                run.drain()
        else:
            for record in consumer:
                handle(record)
                record.accept()
                if done.is_set():
                    break
            consumer.flush()
        return watch.summary(consumer.statistics().refused)


SLEEPS: Final = ("asyncio.sleep alone", "time.sleep alone")
"""What the handlers do, without a client."""


async def _sleep_in_tasks(count: int, ms: int, at_once: int) -> None:
    async def sleep() -> None:
        for _ in range(count // at_once):
            await asyncio.sleep(ms / 1000)

    await asyncio.gather(*(sleep() for _ in range(at_once)))


def _sleep_on_thread(times: int, ms: int) -> None:
    for _ in range(times):
        time.sleep(ms / 1000)


def _sleep(kind: str, count: int, ms: int, at_once: int) -> dict[str, float]:
    began = time.perf_counter()
    if kind == SLEEPS[0]:
        asyncio.run(_sleep_in_tasks(count, ms, at_once))
    else:
        threads = [threading.Thread(target=_sleep_on_thread, args=(count // at_once, ms)) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
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
    done = len(waits)
    waits = sorted(waits[RATE * WARM_UP :] or waits)
    return {
        "seconds": seconds,
        "done": done,
        "median_ms": waits[len(waits) // 2],
        "p99_ms": waits[len(waits) * 99 // 100],
    }


def _command(client: str, *arguments: str) -> list[str]:
    if client == "Java":
        return ["java", "-Xmx512m", "-cp", f"{jars(CURRENT)}/*", str(JAVA), *arguments, str(RATE * WARM_UP)]
    return [sys.executable, "-m", "benchmarks.share", client, *arguments]


OURS: Final = {"async handler": _ours, "plain handler": _ours_plain, "blocking": _ours_blocking}
OTHERS: Final = ("confluent-kafka", "Java")
CLIENTS: Final = ("async handler", *OTHERS)
"""Of cases without work, where no handler is called."""


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


def main(say: Callable[[str], None] = print, rounds: int = ROUNDS, only: Collection[str] = ()) -> None:
    """Run every client in rotation, and print medians over the rounds (min-max). ``only``: some of the cases."""
    properties = {
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
    }
    with KafkaCluster(CURRENT, properties=properties) as cluster:
        for name, case in CASES.items():
            if only and name not in only:
                continue
            compared = (*OURS, *OTHERS, *SLEEPS) if case[1] else CLIENTS
            rates: dict[str, list[float]] = {client: [] for client in compared}
            for _ in range(rounds):
                for client in compared:
                    found = _sleep(client, *case) if client in SLEEPS else _run(client, cluster, case, paced=False)
                    rates[client].append(found["done"] / found["seconds"])
            for client, seen in rates.items():
                say(f"{name:24} {client:20} {statistics.median(seen):10,.0f} jobs/s ({min(seen):,.0f}-{max(seen):,.0f})")
        if only and LATENCY not in only:
            return
        waits: dict[str, list[tuple[float, float]]] = {client: [] for client in CLIENTS}
        for _ in range(rounds):
            for client in CLIENTS:
                found = _run(client, cluster, (RATE * SECONDS, 0, 1), paced=True)
                waits[client].append((found["median_ms"], found["p99_ms"]))
        for client, pairs in waits.items():
            middle, late = (statistics.median(each) for each in zip(*pairs, strict=True))
            say(f"{LATENCY:24} {client:20} median {middle:.1f} ms, 99 % {late:.1f} ms, of each round {pairs}")


if __name__ == "__main__":
    client, bootstrap, topic, group, *numbers = sys.argv[1:]
    count, ms, at_once = map(int, numbers)
    run: Callable[..., Any] = OURS.get(client, _confluent)
    found = run(bootstrap, topic, group, count, ms, at_once)
    sys.stdout.write(json.dumps(asyncio.run(found) if asyncio.iscoroutine(found) else found) + "\n")
