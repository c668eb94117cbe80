"""The records that the benchmarks read: believable, the same in every run, written once per shape."""

import os
import random
import time
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not marked as re-exported

from benchmarks.jobs import Job, Shape
from benchmarks.sinks import STAMP

DISTINCT: Final = 10_000
"""Different values before they repeat: more than fit a batch, so that a codec finds only what real JSON offers it."""
CHUNK: Final = 1000
"""Records in a row for one partition, as a batching producer sends them. Record counts are multiples of it."""
LINGER_MS: Final = 500
"""Longer than any batch takes to fill up: batches must not differ in size by chance, because the speed of a peer depends on it."""

_WORDS: Final = (
    "order",
    "customer",
    "shipped",
    "pending",
    "invoice",
    "parcel",
    "warehouse",
    "returned",
    "express",
    "standard",
    "monday",
    "friday",
    "morning",
    "evening",
    "berlin",
    "oslo",
)


def values(size: int) -> list[bytes]:
    """Return ``DISTINCT`` JSON texts of exactly ``size`` bytes. Raises ``ValueError`` below 90, since the fields do not fit."""
    if size < 90:
        raise ValueError(f"size {size}: expected at least 90 bytes, the fixed fields take that much")
    rng = random.Random(20_201)  # noqa: S311  # test data, the same in every run
    return [_value(rng, size) for _ in range(DISTINCT)]


def _value(rng: random.Random, size: int) -> bytes:
    amount = f"{rng.uniform(1, 9999):.2f}"
    head = f'{{"id":{rng.randrange(10**7, 10**8)},"user":"{rng.randbytes(4).hex()}","amount":{amount},"note":"'
    words: list[str] = []
    length = len(head)
    while length < size:
        words.append(rng.choice(_WORDS) if rng.random() < 0.7 else rng.randbytes(3).hex())
        length += len(words[-1]) + 1
    return (head + " ".join(words))[: size - 2].ljust(size - 2).encode() + b'"}'


def topic_name(prefix: str, shape: Shape) -> str:
    """Return the topic of a shape."""
    name = f"{prefix}-{shape.size}-{shape.codec}-{shape.partitions}-{shape.records}-{shape.batch}"
    return name + ("-headers" if shape.headers else "") + ("-bad" if shape.bad else "")


class Topics:
    """The benchmark's topics on one cluster: made when first asked for, deleted at the end."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._prefix = f"benchmark-{random.randrange(16**6):06x}"  # noqa: S311  # a name, not a secret
        self._made: set[str] = set()

    def filled(self, shape: Shape) -> str:
        """Return a topic that holds the records of ``shape``."""
        name = topic_name(self._prefix, shape)
        if name not in self._made:
            self._create(name, shape.partitions)
            _fill(self._bootstrap, name, shape)
        return name

    def empty(self, kind: str, partitions: int) -> str:
        """Return a topic without records, one per ``kind`` and number of partitions."""
        name = f"{self._prefix}-{kind}-{partitions}"
        if name not in self._made:
            self._create(name, partitions)
        return name

    def close(self) -> None:
        """Delete every topic made."""
        if self._made:
            for result in self._admin.delete_topics(list(self._made)).values():
                result.result()
            self._made.clear()

    def _create(self, name: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        self._made.add(name)
        deadline = time.monotonic() + 60
        while not self._led(name, partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {name}: no leaders for {partitions} partitions within 60 s")
            time.sleep(0.1)

    def _led(self, name: str, partitions: int) -> bool:
        topic = self._admin.list_topics(timeout=10).topics.get(name)
        return topic is not None and len(topic.partitions) == partitions and all(p.leader >= 0 for p in topic.partitions.values())


def _fill(bootstrap: str, topic: str, shape: Shape) -> None:
    """Write the records of a shape: 8-byte keys, partitions in turn. Raises ``KafkaException`` for the first that failed."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": shape.codec,
            "batch.size": shape.batch,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": 200_000,
            "enable.idempotence": True,
            "log_level": 0,
        }
    )
    failed: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    texts = values(shape.size)
    if shape.bad:
        texts = [text[:-2] + b"  " if number % 100 == 0 else text for number, text in enumerate(texts)]
    chunk = max(1, min(CHUNK, shape.records // shape.partitions))
    headers = [("trace", b"4bf92f3577b34da6"), ("source", b"benchmark")] if shape.headers else None
    for number, first in enumerate(range(0, shape.records, chunk)):
        messages = [
            {"value": texts[index % DISTINCT], "key": b"%08d" % (index % 10**8)}
            for index in range(first, min(first + chunk, shape.records))
        ]
        _offer(producer, topic, number % shape.partitions, messages, headers, delivered)
    producer.flush()
    if failed:
        raise KafkaException(failed[0])


def _offer(producer: Producer, topic: str, partition: int, messages: list[dict[str, Any]], headers: Any, delivered: Any) -> None:
    """Queue records for one partition, waiting for room; one by one with headers, which a batch call cannot carry."""
    while len(producer) > 150_000:
        producer.poll(0.05)
    if headers is None:
        if producer.produce_batch(topic, messages, partition=partition, on_delivery=delivered) != len(messages):
            raise RuntimeError(f"the producer's queue took only part of a batch of {len(messages)}")
    else:
        for message in messages:
            producer.produce(topic, partition=partition, headers=headers, on_delivery=delivered, **message)
    producer.poll(0)


def produce_paced(job: Job) -> None:
    """Write ``job.records`` records per second round the partitions, each stamped with its time of sending, until terminated.

    It also ends when its parent is gone. Values are 100 bytes. The schedule is absolute: a late record does not delay the next.
    """
    producer = Producer({"bootstrap.servers": job.bootstrap, "linger.ms": 0, "log_level": 0})
    filler = values(100)[0][STAMP.size :]
    begin = time.monotonic()
    number = 0
    parent = os.getppid()
    while os.getppid() == parent:
        due = begin + number / job.records
        while (wait := due - time.monotonic()) > 0:
            producer.poll(0)
            time.sleep(min(wait, 0.5))
        producer.produce(job.topic, STAMP.pack(time.monotonic_ns()) + filler, partition=number % job.partitions)
        number += 1
