"""The background loop beside real work: blocked handlers, the blocking facade, cancellation, bounded memory, quick ends."""

import asyncio
import gc
import itertools
import multiprocessing
import random
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import pytest

from kafka_async import ConsumerState, TopicPartition
from kafka_async import sync as blocking
from kafka_async.errors import ConsumerStoppedError, IllegalStateError
from tests.brokers import KafkaCluster
from tests.effort import apart

from .tools import PATIENCE, Record, eventually, flat, make, new_topic, nothing_more, offsets, read

pytestmark = pytest.mark.brokers

RANDOM_RECORDS = 40_000
OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}


async def test_a_handler_that_blocks_for_seconds_does_not_stop_the_background_thread(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    partition = TopicPartition(topic, 0)
    kafka44.produce(topic, 10)
    async with make(kafka44, topic, background="thread") as consumer:
        records = await read(consumer, 10)
        kafka44.produce(topic, 500, start=10)  # blocks this event loop
        deadline = time.monotonic() + PATIENCE
        while consumer.highwater(partition) != 510:  # and so does this handler
            assert time.monotonic() < deadline
        threading.Event().wait(3.0)
        batch = await consumer.getmany(max_records=1000)  # there already: nothing to wait for
        records += flat(batch)
    assert [record.offset for record in records] == list(range(510))


def test_the_blocking_consumer_reads_in_every_way(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 2)
    produced = kafka44.produce(topic, 400, partitions=2)
    with blocking.KafkaConsumer(topic, bootstrap_servers=kafka44.bootstrap_servers, **OPTIONS) as consumer:
        records: list[Record] = [consumer.getone() for _ in range(10)]
        for record in consumer:
            records.append(record)
            if len(records) == 50:
                break
        iterator = iter(consumer)
        records.append(next(iterator))
        iterator.close()  # type: ignore[attr-defined]  # a generator, closed early
        while len(records) < 400:
            records += flat(consumer.getmany(timeout_ms=10_000))
        assert offsets(records) == produced.offsets
        assert consumer.getmany(timeout_ms=200) == {}
        assert consumer.position(TopicPartition(topic, 0)) == 200
        assert consumer.end_offsets([TopicPartition(topic, 1)]) == {TopicPartition(topic, 1): 200}
        consumer.seek(TopicPartition(topic, 1), 198)
        assert consumer.getarrow(timeout_ms=10_000)["offset"].to_pylist() == [198, 199]
        consumer.seek(TopicPartition(topic, 1), 198)
        views = consumer.getarrow(timeout_ms=10_000, max_records=1, view=True)
        assert (str(views["value"].type), views["offset"].to_pylist()) == ("binary_view", [198])
        batches = consumer.arrow_batches(view=True)
        views = next(batches)
        batches.close()  # type: ignore[attr-defined]  # as above
        assert (str(views["value"].type), views["offset"].to_pylist()) == ("binary_view", [199])
    with pytest.raises(ConsumerStoppedError):
        consumer.getone()


def test_the_blocking_consumer_can_be_used_and_stopped_from_other_threads(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 5)
    consumer = blocking.KafkaConsumer(topic, bootstrap_servers=kafka44.bootstrap_servers, **OPTIONS)
    seen: list[int] = []
    fifth = threading.Event()

    def iterate() -> None:
        with consumer:
            for record in consumer:
                seen.append(record.offset)
                if len(seen) == 5:
                    fifth.set()

    thread = threading.Thread(target=iterate, daemon=True)
    thread.start()
    assert fifth.wait(PATIENCE)
    with pytest.raises(IllegalStateError, match="another thread"):
        consumer.getmany()
    consumer.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert seen == [0, 1, 2, 3, 4]


async def test_the_blocking_consumer_works_beside_a_running_event_loop(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 5)
    with blocking.KafkaConsumer(topic, bootstrap_servers=kafka44.bootstrap_servers, **OPTIONS) as consumer:
        assert [consumer.getone().offset for _ in range(5)] == [0, 1, 2, 3, 4]


def _read_in_child(bootstrap: str, topic: str, answer: Connection) -> None:
    with blocking.KafkaConsumer(topic, bootstrap_servers=bootstrap, **OPTIONS) as consumer:
        answer.send([consumer.getone().offset for _ in range(20)])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 and later: of forks beside threads
def test_a_forked_process_reads_while_its_parent_does(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 20)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    with ours, theirs, blocking.KafkaConsumer(topic, bootstrap_servers=kafka44.bootstrap_servers, **OPTIONS) as consumer:
        first = [consumer.getone().offset for _ in range(5)]
        child = context.Process(target=_read_in_child, args=(kafka44.bootstrap_servers, topic, theirs))
        child.start()
        try:
            assert ours.poll(PATIENCE), "the child did not answer"
            assert ours.recv() == list(range(20))
            child.join(PATIENCE)
            assert child.exitcode == 0
        finally:
            child.kill()
            child.join()
        assert first + [consumer.getone().offset for _ in range(15)] == list(range(20))


@pytest.mark.parametrize(
    ("background", "deserialize"), [("task", True), ("thread", False), *apart(("task", False), ("thread", True))]
)
async def test_reads_cancelled_at_random_moments_lose_and_repeat_nothing(
    kafka44: KafkaCluster, background: str, deserialize: bool
) -> None:
    async def slow(value: bytes) -> bytes:
        if value.startswith(b"7"):
            await asyncio.sleep(0)
        return value

    topic = new_topic(kafka44)
    kafka44.produce(topic, RANDOM_RECORDS, settings={"batch.size": 2000})
    options = {"value_deserializer": slow} if deserialize else {}
    moments = random.Random(20261120)  # noqa: S311  # a fixed seed, not a secret
    loop = asyncio.get_running_loop()
    seen: list[int] = []
    cancelled = 0
    limits = {"fetch_buffer_bytes": 8 << 10, "max_partition_fetch_bytes": 2 << 10}  # a few records per fetch: most reads wait
    async with make(kafka44, topic, background=background, **limits, **options) as consumer:
        attempts = itertools.count()
        while (attempt := next(attempts)) < 300 or (cancelled <= 20 and len(seen) < RANDOM_RECORDS - 100):
            one = attempt % 3 == 0
            task: asyncio.Task[list[Record]] = asyncio.create_task(
                _one(consumer.getone()) if one else _many(consumer.getmany(timeout_ms=1000, max_records=moments.randint(1, 30)))
            )
            timer = loop.call_later(moments.choice((0.0, 0.0001, 0.0005, 0.002)) * moments.random(), task.cancel)
            try:
                seen += [record.offset for record in await task]
            except asyncio.CancelledError:
                cancelled += 1
            timer.cancel()
        seen += [record.offset for record in await read(consumer, RANDOM_RECORDS - len(seen))]
        await nothing_more(consumer)
    assert seen == list(range(RANDOM_RECORDS))
    assert cancelled > 20


async def _one(getone: "asyncio.Future[Record] | object") -> list[Record]:
    return [await getone]  # type: ignore[misc]  # a coroutine of the consumer's type


async def _many(getmany: object) -> list[Record]:
    return flat(await getmany)  # type: ignore[misc]  # as above


_CANCELLED_RUN = """
import asyncio, sys
from kafka_async import KafkaConsumer

async def main():
    async with KafkaConsumer(sys.argv[2], bootstrap_servers=sys.argv[1], background=sys.argv[3]) as consumer:
        async with asyncio.timeout(0.5):
            async for record in consumer:
                pass

try:
    asyncio.run(main())
except TimeoutError:
    sys.exit(7)
"""

_INTERRUPTED_RUN = """
import asyncio, os, signal, sys
from kafka_async import KafkaConsumer

async def main():
    consumer = KafkaConsumer(sys.argv[2], bootstrap_servers=sys.argv[1], background=sys.argv[3])
    async with consumer:
        asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGINT)
        async for record in consumer:
            pass

try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.mark.parametrize("background", ["task", "thread"])
@pytest.mark.parametrize("program", [_CANCELLED_RUN, _INTERRUPTED_RUN], ids=["timeout", "Ctrl-C"])
async def test_a_run_that_is_cancelled_ends_without_a_word(kafka44: KafkaCluster, program: str, background: str) -> None:
    topic = new_topic(kafka44)
    arguments = [kafka44.bootstrap_servers, topic, background]
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


_SLOW_READER = """
import asyncio, sys
from pathlib import Path
from kafka_async import KafkaConsumer, TopicPartition

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

async def main():
    limit = 8 << 20
    options = dict(auto_offset_reset="earliest", fetch_buffer_bytes=limit, fetch_max_wait_ms=100, max_poll_records=10)
    async with KafkaConsumer(sys.argv[2], bootstrap_servers=sys.argv[1], **options) as consumer:
        await consumer.getmany(timeout_ms=10_000)
        before = resident()
        most = held = 0
        for turn in range(400):
            await consumer.getmany(timeout_ms=100)
            await asyncio.sleep(0.005)
            most = max(most, resident())
            held = max(held, consumer.statistics().buffered_bytes)
        print(held, (most - before) >> 20)

asyncio.run(main())
"""


async def test_memory_is_bounded_while_a_slow_reader_falls_behind(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 6)
    settings = {"batch.size": 65_536}
    await asyncio.to_thread(kafka44.produce, topic, 64_000, 1000, partitions=6, settings=settings)
    command = [sys.executable, "-c", _SLOW_READER, kafka44.bootstrap_servers, topic]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    await asyncio.to_thread(kafka44.delete_topics, topic)  # other tests need the disk, too
    assert done.returncode == 0, done.stderr
    held, grown_mib = map(int, done.stdout.split())
    assert 2 << 20 < held < 9 << 20  # prefetched, and never more than the buffer and one batch
    assert grown_mib < 30  # of 64 MiB in the topic


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_an_idle_consumer_wakes_for_its_long_polls_only(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44, 20)
    async with make(kafka44, topic, background=background, fetch_max_wait_ms=500) as consumer:
        await nothing_more(consumer)
        before = consumer.statistics().wake_ups
        assert await consumer.getmany(timeout_ms=3000) == {}
        assert consumer.statistics().wake_ups - before <= 60  # six long polls; a loop that spins makes thousands


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_stop_is_quick_with_and_without_a_fetch_in_flight(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10)
    clock = asyncio.get_running_loop().time
    for topics in ([], [topic]):
        consumer = make(kafka44, *topics, background=background, fetch_max_wait_ms=10_000)
        await consumer.start()
        await nothing_more(consumer) if not topics else await read(consumer, 10)
        began = clock()
        await consumer.stop()
        assert clock() - began < 9


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_stop_ends_pending_reads(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44)
    consumer = make(kafka44, topic, background=background)
    await consumer.start()
    reads = [
        asyncio.create_task(_one(consumer.getone())),
        asyncio.create_task(_many(consumer.getmany(timeout_ms=60_000))),
    ]
    await nothing_more(consumer)
    await consumer.stop()
    async with asyncio.timeout(20):
        results = await asyncio.gather(*reads, return_exceptions=True)
    assert isinstance(results[0], ConsumerStoppedError)
    assert results[1] == [], "as in aiokafka, getmany has nothing to return"


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_a_stop_that_is_cancelled_or_called_twice_at_once_still_stops(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44)
    for moment in (0.0, 0.001, 0.01):
        consumer = make(kafka44, topic, background=background)
        await consumer.start()
        stopping = [asyncio.create_task(consumer.stop()) for _ in range(2)]
        asyncio.get_running_loop().call_later(moment, stopping[0].cancel)
        async with asyncio.timeout(20):
            await asyncio.gather(*stopping, return_exceptions=True)
        assert consumer.state is ConsumerState.CLOSED


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing_behind(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 1)
    for step in range(20):
        consumer = make(kafka44, topic, background=background)
        starting = asyncio.create_task(consumer.start())
        asyncio.get_running_loop().call_later(step * 0.002, starting.cancel)
        await asyncio.wait([starting])
        if not starting.cancelled():
            assert (await consumer.getone()).offset == 0
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await consumer.getone()


async def _abandon(cluster: KafkaCluster, topic: str) -> None:
    """Start a consumer, end its background loop as a closing event loop does, and forget it."""
    consumer = make(cluster, topic)
    await consumer.start()
    loops = [task for task in asyncio.all_tasks() if "kafka_async background" in task.get_name()]
    for task in loops:
        task.cancel()
    await asyncio.gather(*loops, return_exceptions=True)


async def test_a_consumer_that_was_not_stopped_says_so(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)

    async def forgotten() -> bool:
        return gc.collect() == 0

    with pytest.warns(ResourceWarning, match="was not stopped"):  # noqa: PT031  # the garbage collector raises it, some time
        await _abandon(kafka44, topic)
        await eventually(forgotten)
