"""One function per client: connect, assign every partition, read in the library's own idiom until the sink ends it.

Every client but ``confluent.tuned`` runs at its own defaults except: no group, no commits, start at the offset the job names. A
function imports its library itself, so that a process holds one client only. ``WAIT_MS`` bounds each read, so that a timed run also
ends without traffic.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from benchmarks.jobs import Job
from benchmarks.sinks import Sink

RAW: Final = "raw.fetch"
WAIT_MS: Final = 1000


def _our_options(job: Job) -> dict[str, Any]:
    return {"bootstrap_servers": job.bootstrap, "auto_offset_reset": job.reset}


@asynccontextmanager
async def _ours(job: Job, sink: Sink) -> AsyncIterator[Any]:
    from kafka_async import KafkaConsumer, TopicPartition

    consumer: KafkaConsumer[Any, Any] = KafkaConsumer(**_our_options(job))
    async with consumer:
        consumer.assign([TopicPartition(job.topic, p) for p in range(job.partitions)])
        sink.probe = lambda: consumer.statistics().wake_ups
        yield consumer


async def ours_getmany(job: Job, sink: Sink) -> None:
    """This package, lists of records."""
    async with _ours(job, sink) as consumer:
        while True:
            batch = await consumer.getmany(timeout_ms=WAIT_MS, max_records=job.max_records)
            if _account(job, sink, batch.values()):
                return
            if job.pause:
                await asyncio.sleep(job.pause)


async def ours_iterate(job: Job, sink: Sink) -> None:
    """This package, ``async for``."""
    async with _ours(job, sink) as consumer:
        await _iterate(consumer, job, sink)


async def ours_arrow(job: Job, sink: Sink) -> None:
    """This package, Arrow columns."""
    async with _ours(job, sink) as consumer:
        while True:
            batch = await consumer.getarrow(timeout_ms=WAIT_MS, max_records=job.max_records)
            values = batch.column("value")
            if sink.take(values.to_pylist()) if job.mode == "latency" else sink.take_sized(len(values), _bytes(values)):
                return
            if job.pause:
                await asyncio.sleep(job.pause)


async def ours_views(job: Job, sink: Sink) -> None:
    """This package, Arrow columns whose keys and values are views."""
    import pyarrow as pa
    import pyarrow.compute as pc

    async with _ours(job, sink) as consumer:
        while True:
            batch = await consumer.getarrow(timeout_ms=WAIT_MS, max_records=job.max_records, view=True)
            values = batch.column("value")
            views = pa.Array.from_buffers(pa.list_(pa.int32(), 4), len(values), [None], children=[_numbers_of(values)])
            size = pc.sum(pc.list_element(views, 0)).as_py() or 0  # a view begins with the length
            if sink.take(values.to_pylist()) if job.mode == "latency" else sink.take_sized(len(values), size):
                return
            if job.pause:
                await asyncio.sleep(job.pause)


def _numbers_of(views: Any) -> Any:
    """Return a column of views as the four numbers that make up each view."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int32(), 4 * len(views), [None, views.buffers()[1]])


def _bytes(values: Any) -> int:
    """Return the bytes of a binary column without making an object per value."""
    import pyarrow.compute as pc

    return pc.sum(pc.binary_length(values)).as_py() or 0


def ours_sync(job: Job, sink: Sink) -> None:
    """This package, the blocking facade."""
    from kafka_async import TopicPartition, sync

    consumer: sync.KafkaConsumer[Any, Any] = sync.KafkaConsumer(**_our_options(job))
    with consumer:
        consumer.assign([TopicPartition(job.topic, p) for p in range(job.partitions)])
        while True:
            batch = consumer.getmany(timeout_ms=WAIT_MS, max_records=job.max_records)
            if _account(job, sink, batch.values()):
                return
            if job.pause:
                time.sleep(job.pause)


@asynccontextmanager
async def _aiokafka(job: Job) -> AsyncIterator[Any]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap, auto_offset_reset=job.reset, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(job.topic, p) for p in range(job.partitions)])
        yield consumer
    finally:
        await consumer.stop()


async def aiokafka_getmany(job: Job, sink: Sink) -> None:
    """aiokafka, lists of records."""
    async with _aiokafka(job) as consumer:
        while True:
            batch = await consumer.getmany(timeout_ms=WAIT_MS, max_records=job.max_records)
            if _account(job, sink, batch.values()):
                return
            if job.pause:
                await asyncio.sleep(job.pause)


async def aiokafka_iterate(job: Job, sink: Sink) -> None:
    """aiokafka, ``async for``."""
    async with _aiokafka(job) as consumer:
        await _iterate(consumer, job, sink)


def _account(job: Job, sink: Sink, lists: Iterable[Sequence[Any]]) -> bool:
    """Count records; look at their values only if they carry the time of sending.

    Looking at each value costs the harness more than the faster clients need for the record.
    """
    if job.mode == "latency":
        return sink.take([record.value for records in lists for record in records])
    count = sum(map(len, lists))
    return sink.take_sized(count, count * job.size)


async def _iterate(consumer: Any, job: Job, sink: Sink) -> None:
    """Hand over in steps: a call per record would cost more than some clients need for the record."""
    if job.mode == "latency":
        async for record in consumer:
            if sink.take([record.value]):
                return
    count = 0
    async for _record in consumer:
        count += 1
        if count >= job.at_once:
            if sink.take_sized(count, count * job.size):
                return
            count = 0
            if job.pause:
                await asyncio.sleep(job.pause)


def _confluent_options(job: Job) -> dict[str, Any]:
    options = {"bootstrap.servers": job.bootstrap, "auto.offset.reset": job.reset}
    return options | {"enable.auto.commit": False, "group.id": "benchmark"}  # a group id is obligatory; it is not used


def _confluent_partitions(job: Job) -> list[Any]:
    """Return the partitions with their first offsets; without an offset the library would ask the group's coordinator first."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    offset = OFFSET_BEGINNING if job.reset == "earliest" else OFFSET_END
    return [TopicPartition(job.topic, p, offset) for p in range(job.partitions)]


def _take_messages(job: Job, sink: Sink, messages: list[Any]) -> bool:
    """Look at the first message for an error only: none is expected, and a check of each would be charged to the library."""
    if messages and (error := messages[0].error()) is not None:
        raise RuntimeError(str(error))
    if job.mode == "latency":
        return sink.take([message.value() for message in messages])
    return sink.take_sized(len(messages), len(messages) * job.size)


def confluent_consume(job: Job, sink: Sink) -> None:
    """confluent-kafka, blocking ``consume``."""
    _confluent(job, sink, {})


def confluent_tuned(job: Job, sink: Sink) -> None:
    """confluent-kafka, blocking ``consume``, without the pauses of its defaults.

    librdkafka stops fetching a partition for ``fetch.queue.backoff.ms``, 1000 by default, whenever ``queued.min.messages`` wait to
    be read. A reader that empties the queue sooner waits for the rest of that second, so with the defaults its rate says
    little about the cost of a record.
    """
    _confluent(job, sink, {"fetch.queue.backoff.ms": 1})


def _confluent(job: Job, sink: Sink, options: dict[str, Any]) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(_confluent_options(job) | options)
    consumer.assign(_confluent_partitions(job))
    while not _take_messages(job, sink, consumer.consume(job.at_once, WAIT_MS / 1000)):
        if job.pause:
            time.sleep(job.pause)
    consumer.close()


async def confluent_aio(job: Job, sink: Sink) -> None:
    """confluent-kafka, ``AIOConsumer.consume``."""
    from confluent_kafka.aio import AIOConsumer

    consumer = AIOConsumer(_confluent_options(job))
    await consumer.assign(_confluent_partitions(job))
    while not _take_messages(job, sink, await consumer.consume(job.at_once, WAIT_MS / 1000)):
        if job.pause:
            await asyncio.sleep(job.pause)
    await consumer.close()


def raw_fetch(job: Job, sink: Sink) -> None:
    """One request after another, without making records of the responses: the limit over a long line."""
    from benchmarks.distance import raw_fetch

    raw_fetch(job, sink)


def kafka_python_poll(job: Job, sink: Sink) -> None:
    """kafka-python, blocking ``poll``."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=job.bootstrap, auto_offset_reset=job.reset, enable_auto_commit=False)
    consumer.assign([TopicPartition(job.topic, p) for p in range(job.partitions)])
    while True:
        batch = consumer.poll(timeout_ms=WAIT_MS, max_records=job.max_records)
        if _account(job, sink, batch.values()):
            break
        if job.pause:
            time.sleep(job.pause)
    consumer.close()


CLIENTS: Final[dict[str, Callable[[Job, Sink], Coroutine[Any, Any, None] | None]]] = {
    "kafka_async.getmany": ours_getmany,
    "kafka_async.iterate": ours_iterate,
    "kafka_async.arrow": ours_arrow,
    "kafka_async.views": ours_views,
    "kafka_async.sync": ours_sync,
    "aiokafka.getmany": aiokafka_getmany,
    "aiokafka.iterate": aiokafka_iterate,
    "confluent.consume": confluent_consume,
    "confluent.tuned": confluent_tuned,
    "confluent.aio": confluent_aio,
    "kafka_python.poll": kafka_python_poll,
    RAW: raw_fetch,
}
"""Every client by the name that ``--clients`` takes; a blocking one is a plain function."""
