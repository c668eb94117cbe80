"""The demonstration behind ``kafka-async demo`` (extra ``cli``): a cluster, a producer and our consumer in one process.

The cluster is ``kafka_async.testing``'s, on TCP on the loopback and in a thread of its own: Kafka's protocol, no Java, nothing to
install.
"""

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Protocol, Self

from attrs import define, field, frozen

from ...application.consumer import KafkaConsumer
from ...model import ConsumerRecord, TopicPartition
from ...testing.clusters import Cluster, murmur2
from ...testing.threaded import ThreadedCluster

GROUP: Final = "demo"
"""The group that reads."""
MAX_PARTITIONS: Final = 4
"""Partitions of a topic."""
PATIENCE: Final = 10.0
"""Seconds without a record, after the last one was produced, until the rest counts as missing."""
SLICE: Final = 0.005
"""Seconds between two checks of what is due."""
UNREAD: Final = 4 * 1024 * 1024
"""Bytes that may be produced and not consumed yet."""
KEPT: Final = 2 * UNREAD
"""Bytes that the cluster keeps of a partition, so that its memory does not grow with the time that a demonstration takes."""
OVERHEAD: Final = 40
"""Bytes of a record in addition to its value: the key and its framing."""
BATCH: Final = 256
"""Records of one partition that are written at a time."""

_ITEMS: Final = ("espresso", "filter", "oat milk", "croissant", "mug", "beans 250 g", "beans 1 kg")
_NUMBER: Final = slice(10, 20)  # where a value has its number: {"order":"0000000042",...


@define(eq=False)
class MockCluster:
    """Brokers on the loopback for as long as the ``with`` block lasts."""

    brokers: int = 3
    _threaded: ThreadedCluster = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._threaded = ThreadedCluster(Cluster(self.brokers))

    def __enter__(self) -> Self:
        self._threaded.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._threaded.__exit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        """``host:port`` of every broker, separated by commas."""
        return self._threaded.bootstrap

    def create(self, topic: str) -> None:
        """Make a topic of four partitions. Raises ``RuntimeError`` outside the ``with`` block."""
        self._threaded.call(lambda cluster: cluster.topic(topic, MAX_PARTITIONS, retention_bytes=KEPT)).result()

    def append(self, topic: str, partition: int, records: Sequence[tuple[str, str | bytes]]) -> "Future[None]":
        """Write keys and values to a partition; the future ends when they are there."""
        keys = [key.encode() for key, _ in records]
        values = [value.encode() if isinstance(value, str) else value for _, value in records]

        def write(cluster: Cluster) -> None:
            cluster.simulated.produce(TopicPartition(topic, partition), *values, keys=keys)

        return self._threaded.call(write)

    def produce(self, topic: str, records: Sequence[tuple[str, str | bytes]]) -> None:
        """Write keys and values where Java's producer would, and wait until they are there."""
        parts: dict[int, list[tuple[str, str | bytes]]] = {}
        for key, value in records:
            parts.setdefault((murmur2(key.encode()) & 0x7FFFFFFF) % MAX_PARTITIONS, []).append((key, value))
        for done in [self.append(topic, partition, some) for partition, some in parts.items()]:
            done.result(PATIENCE)


@frozen(kw_only=True)
class DemoPlan:
    """What to produce: a backlog, and then live until ``records`` or ``seconds`` are reached, whichever comes first."""

    backlog: int = 0
    """Records that are there before the consumer starts."""
    records: int | None = None
    seconds: float | None = 3.0
    rate: float | None = 50_000.0
    """Records per second; ``None`` for as many as the machine can make."""
    partitions: int = field(default=MAX_PARTITIONS)
    size: int = 150
    """Bytes of a value, at least; a value without a note has about 100."""
    topic: str = "orders"

    @partitions.validator
    def _check(self, _: Any, value: int) -> None:
        if not 1 <= value <= MAX_PARTITIONS:
            raise ValueError(f"partitions={value}: expected 1 to {MAX_PARTITIONS}, which is what the topic has")

    def due(self, elapsed: float, consumed: int) -> int:
        """Return how many records may have been produced after ``elapsed`` seconds, if ``consumed`` of them were consumed."""
        ends = [consumed + max(1, UNREAD // (max(self.size, 100) + OVERHEAD))]
        if self.records is not None:
            ends.append(self.records)
        if self.rate is not None:
            ends.append(int(self.rate * (elapsed if self.seconds is None else min(elapsed, self.seconds))))
        return min(ends)

    def over(self, produced: int, elapsed: float) -> bool:
        """Say whether production ends."""
        if self.records is not None and produced >= self.records:
            return True
        return self.seconds is not None and elapsed >= self.seconds


def most_backlog(partitions: int, size: int) -> int:
    """Return how many records of ``size`` bytes a backlog may have, so that the cluster still keeps all of them."""
    return UNREAD * partitions // (max(size, 100) + OVERHEAD)


def order(number: int, size: int) -> tuple[str, str]:
    """Return key and value of an order: the customer's id, and JSON of at least ``size`` bytes."""
    mixed = number * 2_654_435_761 % 2**32  # Knuth's multiplicative hash: looks random, and is the same in every run
    customer = f"c-{mixed % 10_000:05d}"
    item, quantity = _ITEMS[mixed % len(_ITEMS)], 1 + mixed % 5
    value = f'{{"order":"{number:010d}","customer":"{customer}","item":"{item}","quantity":{quantity},"cents":{mixed % 5000}'
    room = size - len(value) - len(',"note":""}')
    return customer, f'{value},"note":"{"." * room}"}}' if room > 0 else value + "}"


@define(eq=False)
class Orders:
    """Produces a backlog at once, and orders from a thread of its own while the ``with`` block lasts."""

    cluster: MockCluster
    plan: DemoPlan
    produced: int = field(default=0, init=False)
    consumed: int = field(default=0, init=False)
    """Set by the consuming side, so that production does not get too far ahead of it."""
    delivered: bool = field(default=False, init=False)
    """Everything was produced, and the cluster has it."""
    error: Exception | None = field(default=None, init=False)
    _stop: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def fill(self) -> None:
        """Produce the backlog."""
        while self.produced < self.plan.backlog:
            self._write(min(self.plan.backlog - self.produced, BATCH * self.plan.partitions))

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._produce()
        except Exception as error:  # the consuming side reports it
            self.error = error
        self.delivered = self.error is None

    def _produce(self) -> None:
        begin = time.monotonic()
        while not self._stop.is_set():
            now = time.monotonic()
            backlog = self.plan.backlog
            if self.plan.over(self.produced - backlog, now - begin):
                break
            due = backlog + self.plan.due(now - begin, self.consumed - backlog)
            while self.produced < due and not self._stop.is_set():
                self._write(min(due - self.produced, BATCH * self.plan.partitions))
            self._stop.wait(max(0.0, now + SLICE - time.monotonic()))

    def _write(self, count: int) -> None:
        plan = self.plan
        parts: list[list[tuple[str, str]]] = [[] for _ in range(plan.partitions)]
        for number in range(self.produced, self.produced + count):
            key, value = order(number, plan.size)
            parts[int(key[2:]) % plan.partitions].append((key, value))
        self.produced += count  # before sending: they may be consumed before the cluster confirms them
        done = [self.cluster.append(plan.topic, index, some) for index, some in enumerate(parts) if some]
        for each in done:
            each.result(PATIENCE)


@define(eq=False)
class Arrivals:
    """Which orders were seen, and how often."""

    records: int = 0
    size: int = 0
    twice: int = 0
    _seen: bytearray = field(factory=bytearray, init=False)

    def add(self, records: Iterable[ConsumerRecord[bytes, bytes]]) -> None:
        """Take note of ``records``."""
        seen = self._seen
        for record in records:
            number = int(record.value[_NUMBER])
            if number >= len(seen):
                seen.extend(bytes(number + 1 - len(seen)))
            if seen[number]:
                self.twice += 1
            seen[number] = 1
            self.records += 1
            self.size += len(record.key) + len(record.value)

    def missing(self, produced: int) -> int:
        """Return how many of the first ``produced`` orders were not seen."""
        return produced - sum(self._seen[:produced])


@frozen(kw_only=True)
class DemoOutcome:
    """The outcome of a demonstration."""

    produced: int
    received: int
    missing: int
    twice: int
    size: int
    """Bytes of keys and values received."""
    seconds: float
    """From the first live record to the last."""
    backlog: int = 0
    backlog_seconds: float = 0.0
    """From the start of reading to the last record of the backlog."""
    partitions: int
    brokers: int
    error: Exception | None

    @property
    def complete(self) -> bool:
        """Every order arrived once."""
        return self.error is None and not self.missing and not self.twice and self.received == self.produced > 0

    @property
    def verdict(self) -> str:
        """The outcome as a sentence."""
        if self.complete:
            return f"All {self.produced:,} records arrived, none missing, none twice."
        text = f"{self.received:,} of {self.produced:,} records arrived, {self.missing:,} missing, {self.twice:,} twice."
        return text if self.error is None else f"{text} {self.error}"


class View(Protocol):
    """Shows how a demonstration goes, as often as it is called."""

    def caught_up(self, *, records: int, seconds: float) -> None:
        """Show how fast the backlog was read."""

    def update(self, *, produced: int, received: int, seconds: float, lag: int) -> None:
        """Show the numbers; ``seconds`` count from the first record on."""


async def demonstrate(plan: DemoPlan, cluster: MockCluster, view: View) -> DemoOutcome:
    """Produce by ``plan``, read the backlog and then consume live, and return whether all arrived. Ends by itself."""
    cluster.create(plan.topic)
    orders = Orders(cluster, plan)
    await asyncio.to_thread(orders.fill)
    consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
        plan.topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=GROUP,  # so that there is something to see in ``kafka-async top``
        auto_commit_interval_ms=1000,
        auto_offset_reset="earliest",
        client_id="kafka-async-demo",
    )
    arrivals = Arrivals()
    async with consumer:
        backlog_seconds = await _catch_up(consumer, orders, arrivals)
        view.caught_up(records=arrivals.records, seconds=backlog_seconds)
        with orders:
            seconds = await _follow(consumer, orders, arrivals, view)
            brokers = len(consumer.statistics().brokers)
    return DemoOutcome(
        produced=orders.produced,
        received=arrivals.records,
        missing=arrivals.missing(orders.produced),
        twice=arrivals.twice,
        size=arrivals.size,
        seconds=seconds,
        backlog=plan.backlog,
        backlog_seconds=backlog_seconds,
        partitions=plan.partitions,
        brokers=brokers,
        error=orders.error,
    )


async def _catch_up(consumer: KafkaConsumer[bytes, bytes], orders: Orders, arrivals: Arrivals) -> float:
    """Read the backlog, and count it only then, since counting costs more than reading. Return the seconds that reading took."""
    batches: list[list[ConsumerRecord[bytes, bytes]]] = []
    count, began = 0, time.monotonic()
    received_at = now = began
    while count < orders.plan.backlog and now - received_at < PATIENCE:
        batch = await consumer.getmany(timeout_ms=100, max_records=5_000)
        now = time.monotonic()
        received_at = now if batch else received_at
        batches += batch.values()
        count += sum(map(len, batch.values()))
    for records in batches:
        arrivals.add(records)
    orders.consumed = arrivals.records
    return now - began


async def _follow(consumer: KafkaConsumer[bytes, bytes], orders: Orders, arrivals: Arrivals, view: View) -> float:
    """Consume live. Return the seconds from the first record to the last."""
    backlog = arrivals.records
    first = last = 0.0
    received_at = time.monotonic()
    while orders.error is None and not (orders.delivered and arrivals.records >= orders.produced):
        batch = await consumer.getmany(timeout_ms=100, max_records=5_000)
        now = time.monotonic()
        for records in batch.values():
            arrivals.add(records)
        orders.consumed = arrivals.records
        if batch or not orders.delivered:
            received_at = now
        if batch:
            first, last = first or now, now
        elif now - received_at > PATIENCE:
            break
        lag = sum(consumer.current_lag(partition) or 0 for partition in consumer.assignment())
        live = orders.produced - orders.plan.backlog
        view.update(produced=live, received=arrivals.records - backlog, seconds=last - first, lag=lag)
    return last - first
