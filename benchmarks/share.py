"""Share groups: jobs a second with handlers of 5 ms and with none, and how long a job waits; also for Java and confluent-kafka::

    .venv/bin/python -m benchmarks share

Each client is one member in a process of its own, with one partition of a broker that this starts, and explicit acknowledgements.
Timing starts with the first record and ends when the last acknowledgement was answered. Java's handlers are threads, and so are
confluent-kafka's. Ours are measured in three ways: plain handlers of ``process`` and the blocking facade sleep on threads as theirs
do, async handlers on the event loop.

A handler sleeps. The timer of an event loop is coarser than that of a thread: epoll waits for whole milliseconds. So each kind of
sleep is also measured alone, in the same rotation: no client can be faster than its own.

If all handlers take the same time, they end together, and nothing but that time is measured. Real work is uneven: a few jobs
wait for a slow database. So in one case the handlers take ``SLOW_MS`` for every 50th record, by its offset, and 3 ms for the
others: 5 ms on average, and the same for each client. Both peers take one batch at a time and go on when all of it is done, since
their interfaces require that: in explicit mode Java's ``poll`` raises ``IllegalStateException`` while a record of the last batch is
not acknowledged, and so does confluent-kafka's. Java could acknowledge the slow ones with RENEW and poll; but then ``poll`` returns
only those, and new ones when all of them are settled (``ShareConsumerImpl.collect``). A larger batch helps them, because a slow job
then keeps fewer handlers waiting for less of the time. So in this case they are also measured with ``BATCH`` records at once, as
many as a broker locks for a partition.

Latencies leave out the first records, which meet a cold broker and client, or a member that has not joined yet.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.jobs import Shape
from benchmarks.plan import Plan, rotate
from benchmarks.report import Group
from tests.brokers import CURRENT, KafkaCluster, jars

JAVA: Final = Path(__file__).with_name("ShareWorker.java")
SLOW_MS, EVERY = 103, 50
"""For uneven handlers: how long the slow ones take, and that every 50th is slow."""
BATCH: Final = 2_000
"""The records that a broker locks for a partition (``group.share.partition.max.record.locks``); clients take 500 by default."""


class Case(NamedTuple):
    """What the members do."""

    records: int
    ms: int
    """That a handler takes."""
    at_once: int
    slow_ms: int = 0
    """That every 50th handler takes instead, if not 0."""
    batch: int = 500
    """Records that one read may return."""

    def seconds(self, offset: int) -> float:
        """Return how long the handler of the record at this offset takes."""
        return (self.slow_ms if self.slow_ms and offset % EVERY == EVERY - 1 else self.ms) / 1000


CASES: Final = {
    "one handler of 5 ms": Case(1_000, 5, 1),
    "50 handlers of 5 ms": Case(20_000, 5, 50),
    "50 uneven handlers": Case(20_000, 3, 50, SLOW_MS),
    "no work": Case(200_000, 0, 1),
}
RATE, SECONDS, WARM_UP = 200, 15, 5
"""Of the latencies: jobs a second, for how long, and how many of these seconds do not count."""
LATENCY: Final = f"latency at {RATE} jobs/s"


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


async def _ours(bootstrap: str, topic: str, case: Case) -> dict[str, float]:
    """Async handlers; without work a loop around ``getmany``."""
    done = asyncio.Event()
    watch = _Watch(case.records, done.set)

    async def handle(record: Any) -> None:
        watch.begin(record)
        await asyncio.sleep(case.seconds(record.offset))
        watch.end()

    return await _process(bootstrap, topic, case, watch, handle if case.ms else None, done)


async def _ours_plain(bootstrap: str, topic: str, case: Case) -> dict[str, float]:
    """Plain handlers, which ``process`` calls on threads."""
    done, loop = asyncio.Event(), asyncio.get_running_loop()
    watch = _Watch(case.records, lambda: loop.call_soon_threadsafe(done.set))
    return await _process(bootstrap, topic, case, watch, _sleeper(watch, case), done)


def _sleeper(watch: _Watch, case: Case) -> Callable[[Any], None]:
    def handle(record: Any) -> None:
        watch.begin(record)
        time.sleep(case.seconds(record.offset))
        watch.end()

    return handle


async def _process(
    bootstrap: str, topic: str, case: Case, watch: _Watch, handler: Callable[[Any], Any] | None, done: asyncio.Event
) -> dict[str, float]:
    from kafka_async import ShareConsumer

    async with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=topic) as consumer:
        if handler is not None:
            async with consumer.processing(handler, concurrency=case.at_once) as run:
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


def _ours_blocking(bootstrap: str, topic: str, case: Case) -> dict[str, float]:
    """The blocking facade: a ``for`` loop with one handler, ``processing`` with several."""
    from kafka_async.sync import ShareConsumer

    done = threading.Event()
    watch = _Watch(case.records, done.set)
    handle = _sleeper(watch, case)
    with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=topic) as consumer:
        if case.at_once > 1:
            with consumer.processing(handle, concurrency=case.at_once) as run:
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


SLEEPS: Final = ("asyncio.sleep", "time.sleep")
"""What the handlers do, without a client."""


async def _sleep_in_tasks(case: Case) -> None:
    offsets = iter(range(case.records))

    async def sleep() -> None:
        for offset in offsets:
            await asyncio.sleep(case.seconds(offset))

    await asyncio.gather(*(sleep() for _ in range(case.at_once)))


def _sleep_on_threads(case: Case) -> None:
    offsets = iter(range(case.records))  # several threads may take from it

    def sleep() -> None:
        for offset in offsets:
            time.sleep(case.seconds(offset))

    threads = [threading.Thread(target=sleep) for _ in range(case.at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _sleep(kind: str, case: Case) -> dict[str, float]:
    began = time.perf_counter()
    if kind == SLEEPS[0]:
        asyncio.run(_sleep_in_tasks(case))
    else:
        _sleep_on_threads(case)
    return {"jobs_per_s": case.records / (time.perf_counter() - began)}


def _confluent(bootstrap: str, topic: str, case: Case) -> dict[str, float]:
    from confluent_kafka import ShareConsumer

    waits: list[float] = []
    began = 0.0
    options = {"share.acknowledgement.mode": "explicit", "max.poll.records": case.batch}
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": topic, **options})
    consumer.subscribe([topic])
    with ThreadPoolExecutor(case.at_once) as pool:
        while len(waits) < case.records:
            messages = [message for message in consumer.poll(1.0) or () if message.error() is None]
            began = began or (time.perf_counter() if messages else 0.0)
            now = time.time() * 1000
            waits += [now - message.timestamp()[1] for message in messages]
            if case.ms:
                list(pool.map(lambda message: time.sleep(case.seconds(message.offset())), messages))
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


OURS: Final = {"kafka_async.async": _ours, "kafka_async.plain": _ours_plain, "kafka_async.sync": _ours_blocking}
OTHERS: Final = ("confluent", "java")
LARGER: Final = f".{BATCH}"
"""Ending of the names of those that take larger batches."""
WITHOUT_WORK: Final = ("kafka_async.async", *OTHERS)
"""The case without handlers."""


def _compared(case: Case) -> list[str]:
    """Return who is measured in a case."""
    if not case.ms:
        return list(WITHOUT_WORK)
    return [*OURS, *OTHERS, *(other + LARGER for other in OTHERS if case.slow_ms), *SLEEPS]


def _command(client: str, bootstrap: str, topic: str, case: Case) -> list[str]:
    arguments = [bootstrap, topic, *map(str, case)]
    if client == "java":
        return ["java", "-Xmx512m", "-cp", f"{jars(CURRENT)}/*", str(JAVA), *arguments, str(EVERY), str(RATE * WARM_UP)]
    return [sys.executable, "-m", "benchmarks.share", client, *arguments]


def _run(client: str, cluster: KafkaCluster, case: Case, *, paced: bool = False) -> dict[str, float]:
    """Run one client once, in a process of its own, with a topic and a group of its own."""
    if client.endswith(LARGER):
        client, case = client.removesuffix(LARGER), case._replace(batch=BATCH)
    topic = cluster.create_topic(f"bench-{uuid.uuid4().hex[:8]}")
    cluster.alter_config("group", topic, {"share.auto.offset.reset": "earliest"})
    if not paced:
        for start in range(0, case.records, 20_000):
            cluster.produce(topic, min(20_000, case.records - start), start=start)
    command = _command(client, cluster.bootstrap_servers, topic, case)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603 - ours
        if paced:
            threading.Thread(target=_write, args=(cluster, topic, case.records), daemon=True).start()
        try:
            out, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()  # else the end of the block would wait for it
            raise RuntimeError(f"{client} took longer than 120 s") from None
    if process.returncode or not out:
        raise RuntimeError(f"{client} ended with {process.returncode}")
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return found


def _write(cluster: KafkaCluster, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    time.sleep(12)  # the member has joined; one whose first assignment was empty asks again after 5 s
    producer, began = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}), time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        producer.produce(topic, b"x" * 100)
        producer.poll(0)
    producer.flush()


def share(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """Share groups: jobs a second, and how long a job waits; on a broker of its own."""
    properties = {
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
    }
    with KafkaCluster(CURRENT, properties=properties) as cluster:
        for name, case in CASES.items():
            if not plan.scenarios or name in plan.scenarios:
                yield _rates(plan, cluster, name, case._replace(records=case.records // 20) if plan.quick else case)
        if not plan.scenarios or LATENCY in plan.scenarios:
            yield _waits(plan, cluster)


def _rates(plan: Plan, cluster: KafkaCluster, name: str, case: Case) -> Group:
    def measure(client: str) -> dict[str, float]:
        if client in SLEEPS:
            return _sleep(client, case)
        found = _run(client, cluster, case)
        return {"jobs_per_s": found["done"] / found["seconds"]}

    runs = rotate(plan, _compared(case), measure)
    return Group(command="share", title=f"share groups: {name}", shape=Shape(records=case.records), runs=runs, scenario=name)


def _waits(plan: Plan, cluster: KafkaCluster) -> Group:
    def measure(client: str) -> dict[str, float]:
        found = _run(client, cluster, Case(RATE * SECONDS, 0, 1), paced=True)
        return {"p50_ms": found["median_ms"], "p99_ms": found["p99_ms"]}

    runs = rotate(plan, WITHOUT_WORK, measure)
    return Group(command="share latency", title=f"share groups: {LATENCY}", shape=Shape(records=0), runs=runs, scenario=LATENCY)


if __name__ == "__main__":
    client, bootstrap, topic, *numbers = sys.argv[1:]
    run: Callable[..., Any] = OURS.get(client, _confluent)
    found = run(bootstrap, topic, Case(*map(int, numbers)))
    sys.stdout.write(json.dumps(asyncio.run(found) if asyncio.iscoroutine(found) else found) + "\n")
