"""The demonstration behind ``kafka-async demo`` (extra ``demo``): a cluster, a producer and our consumer in one process.

Decides: what is produced, and whether all of it arrived. Owns the mock cluster and the thread that produces. Must never call a
run a success before every record was seen exactly once.

The cluster is the mock one that librdkafka carries (``test.mock.num.brokers``): real Kafka protocol over TCP on the loopback, no
Java, nothing to install. It lives as long as the producer that made it. It makes topics of four partitions, and answers an empty
fetch only when ``fetch.max.wait.ms`` has passed, which is why the consumer here asks for a short wait.
"""

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Protocol, Self

from attrs import define, field, frozen
from confluent_kafka import KafkaException, Producer

from ..application.consumer import KafkaConsumer
from ..model import ConsumerRecord, TopicPartition

MAX_PARTITIONS: Final = 4
"""What the mock cluster gives a topic."""
PATIENCE: Final = 10.0
"""Seconds without a record, after the last one was produced, until the rest counts as missing."""
SLICE: Final = 0.005
"""Seconds of production between two looks at the clock."""
UNREAD: Final = 4 * 1024 * 1024
"""Bytes that may be produced and not consumed yet. The mock cluster keeps 5 MiB of a partition and drops what is older."""
OVERHEAD: Final = 40
"""Bytes of a record beside its value: the key and what frames it."""

_ITEMS: Final = ("espresso", "filter", "oat milk", "croissant", "mug", "beans 250 g", "beans 1 kg")
_NUMBER: Final = slice(10, 20)  # where a value has its number: {"order":"0000000042",...


class MockCluster:
    """Brokers on the loopback for as long as the ``with`` block lasts."""

    def __init__(self, brokers: int = 3) -> None:
        self._brokers = brokers
        self._producer: Producer | None = None
        self.bootstrap: str = ""
        """``host:port`` of every broker, separated by commas."""

    def __enter__(self) -> Self:
        options: dict[str, Any] = {
            "test.mock.num.brokers": self._brokers,
            "log_level": 3,  # the mock announces itself at level 5
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
            "delivery.report.only.error": True,
        }
        self._producer = Producer(options)
        found = self._producer.list_topics(timeout=10).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in found)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._producer = None

    @property
    def producer(self) -> Producer:
        """The producer that the cluster lives in. Raises ``RuntimeError`` outside the ``with`` block."""
        if self._producer is None:
            raise RuntimeError("the mock cluster is not running; use it in a 'with' block")
        return self._producer

    def create(self, topic: str) -> None:
        """Have a topic of four partitions."""
        self.producer.list_topics(topic, timeout=10)


@frozen(kw_only=True)
class Plan:
    """What to produce: until ``records`` or ``seconds`` are reached, whichever comes first."""

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
            raise ValueError(f"partitions={value}: expected 1 to {MAX_PARTITIONS}, which is what the mock cluster has")

    def due(self, elapsed: float, consumed: int) -> int:
        """Return how many records may have been produced after ``elapsed`` seconds, where ``consumed`` of them were consumed."""
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
    """Produces orders from a thread of its own while the ``with`` block lasts."""

    producer: Producer
    plan: Plan
    produced: int = field(default=0, init=False)
    consumed: int = field(default=0, init=False)
    """Set by whoever consumes: production does not run away from it."""
    delivered: bool = field(default=False, init=False)
    """Everything was produced, and the cluster has acknowledged it."""
    error: Exception | None = field(default=None, init=False)
    _stop: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

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
            left = self.producer.flush(PATIENCE)
            if left:
                raise TimeoutError(f"{left} records were not acknowledged within {PATIENCE:.0f} s")
        except (KafkaException, OSError) as error:
            self.error = error
        self.delivered = self.error is None

    def _produce(self) -> None:
        begin = time.monotonic()
        while not self._stop.is_set():
            now = time.monotonic()
            if self.plan.over(self.produced, now - begin):
                break
            self._produce_until(self.plan.due(now - begin, self.consumed), now + SLICE)
            self.producer.poll(0)
            self._stop.wait(max(0.0, now + SLICE - time.monotonic()))

    def _produce_until(self, number: int, end: float) -> None:
        plan, produce = self.plan, self.producer.produce
        while self.produced < number:
            key, value = order(self.produced, plan.size)
            self.produced += 1  # before: it may have been consumed when produce() returns
            try:
                produce(plan.topic, value, key, int(key[2:]) % plan.partitions, on_delivery=self._refused)
            except BufferError:  # the producer's queue is full: let it drain
                self.produced -= 1
                self.producer.poll(SLICE)
                return
            if not self.produced % 256 and time.monotonic() >= end:
                return

    def _refused(self, error: object, _: object) -> None:
        if error is not None:
            self.error = RuntimeError(f"a record was not delivered: {error}")


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
class Outcome:
    """How a demonstration went."""

    produced: int
    received: int
    missing: int
    twice: int
    size: int
    """Bytes of keys and values received."""
    seconds: float
    """From the first record to the last."""
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
    """Shows how a demonstration goes, as often as it is told."""

    def update(self, *, produced: int, received: int, seconds: float, lag: int) -> None:
        """Show the numbers; ``seconds`` count from the first record on."""


async def demonstrate(plan: Plan, cluster: MockCluster, view: View) -> Outcome:
    """Produce as ``plan`` says, consume it as it comes, and say whether it arrived. Ends by itself."""
    cluster.create(plan.topic)
    partitions = [TopicPartition(plan.topic, number) for number in range(plan.partitions)]
    consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=10, client_id="kafka-async-demo"
    )
    consumer.assign(partitions)
    async with consumer:
        with Orders(cluster.producer, plan) as orders:
            arrivals, seconds = await _follow(consumer, orders, view)
            brokers = len(consumer.statistics().brokers)
    return Outcome(
        produced=orders.produced,
        received=arrivals.records,
        missing=arrivals.missing(orders.produced),
        twice=arrivals.twice,
        size=arrivals.size,
        seconds=seconds,
        partitions=len(partitions),
        brokers=brokers,
        error=orders.error,
    )


async def _follow(consumer: KafkaConsumer[bytes, bytes], orders: Orders, view: View) -> tuple[Arrivals, float]:
    arrivals = Arrivals()
    first = last = 0.0
    heard = time.monotonic()
    while orders.error is None and not (orders.delivered and arrivals.records >= orders.produced):
        batch = await consumer.getmany(timeout_ms=100, max_records=5_000)
        now = time.monotonic()
        for records in batch.values():
            arrivals.add(records)
        orders.consumed = arrivals.records
        if batch or not orders.delivered:
            heard = now
        if batch:
            first, last = first or now, now
        elif now - heard > PATIENCE:
            break
        lag = sum(consumer.current_lag(partition) or 0 for partition in consumer.assignment())
        view.update(produced=orders.produced, received=arrivals.records, seconds=last - first, lag=lag)
    return arrivals, last - first
