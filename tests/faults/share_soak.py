"""Minutes of random faults for a share group, by hand::

    .venv/bin/python -m tests.faults.share_soak --seconds 600 --rate 500 --seed 1

Three brokers behind proxies; six members: two read batches, two run ``process``, one of which is paused again and again, and two
have an async deserializer and reads that are cancelled. Jobs come all the time, some of them in one large batch, and a second topic
is deleted and made anew. Connections are cut, directions stall, brokers are killed, frozen and restarted. At the end every job must
have been handled, and none accepted twice with both told so, unless the lock of the one had ended before the other acquired the
record. ``tests/integration/test_share_cluster.py`` has a short sample. Exit code 1 says that a promise was broken.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from itertools import pairwise
from typing import Any, Final

import anyio
from attrs import define, field, frozen
from confluent_kafka import Producer

from kafka_async import Processing, ShareConsumer, ShareRecord
from kafka_async.errors import ConsumerStoppedError, LockLostError, UnknownTopicOrPartitionError
from tests.brokers import CURRENT, KafkaCluster
from tests.faults.proxy import PROXIED, Proxy, proxied
from tests.integration.share import LOCK, from_the_start, share_properties

Record = ShareRecord[Any, Any]

TOPIC: Final = "jobs"
PARTITIONS: Final = 6
PASSING: Final = "jobs-for-a-while"
"""A topic that is deleted and made anew; nobody counts its jobs."""
MEMBERS: Final = 6
LARGE: Final = 2_000
"""Jobs of a large batch."""
CALM: Final = 90.0
"""Seconds without progress on what is left once the faults are over: records that somebody lost come again when their lock ends."""


@frozen(eq=False)
class Handled:
    """One time that a job was worked on and accepted. Times are seconds of ``time.monotonic()``, which is the loop's clock."""

    job: int
    member: str
    record: Record
    acquired: float
    """When its lock began, at the latest: unread records are renewed."""
    until: float
    """When the lock ended, as it was known when the record was accepted."""
    accepted: float

    @property
    def told(self) -> bool:
        """The member was told that it counts."""
        return not self.record.lost


@define(eq=False)
class Ledger:
    """Which jobs were written, and what was said of them."""

    written: set[int] = field(factory=set)
    handled: list[Handled] = field(factory=list)

    def note(self, member: str, record: Record, acquired: float) -> None:
        if record.topic != TOPIC:
            return
        self.handled.append(Handled(int(record.value), member, record, acquired, record.deadline, time.monotonic()))

    def told(self) -> Counter[int]:
        """Return how often each job was accepted by somebody who was told that it counts."""
        return Counter(each.job for each in self.handled if each.told)

    def twice(self) -> tuple[list[int], list[int]]:
        """Return the jobs that were accepted twice and both were told: although the first lock held, and after it had ended."""
        told: dict[int, list[Handled]] = {}
        for each in self.handled:
            if each.told:
                told.setdefault(each.job, []).append(each)
        broken: list[int] = []
        ended: list[int] = []
        for job, times in sorted(told.items()):
            times.sort(key=lambda each: each.acquired)
            if len(times) > 1:
                holds = any(later.acquired < earlier.until for earlier, later in pairwise(times))
                (broken if holds else ended).append(job)
        return broken, ended

    def left(self) -> set[int]:
        """Return the jobs of which nobody was told that they are accepted."""
        return self.written - self.told().keys()

    def vanished(self) -> set[int]:
        """Return the jobs that nobody was ever handed."""
        return self.written - {each.job for each in self.handled}


def acquired(record: Record) -> float:
    """Return when the lock of a record that was just handed out began, at the latest."""
    return min(time.monotonic(), record.deadline - LOCK)


async def taken(consumer: ShareConsumer[Any, Any], size: int) -> list[Record]:
    """Return the next jobs.

    While a broker is down ``PASSING`` cannot be made anew, and a read says after each request timeout that it does not exist.
    """
    try:
        found = await consumer.getmany(timeout_ms=500, max_records=size)
    except UnknownTopicOrPartitionError as error:
        if PASSING not in str(error):
            raise
        return []
    return [record for records in found.values() for record in records]


async def read(consumer: ShareConsumer[Any, Any], name: str, ledger: Ledger) -> None:
    """Work through batches, until the consumer stops."""
    with contextlib.suppress(ConsumerStoppedError):
        while True:
            for record, since in [(record, acquired(record)) for record in await taken(consumer, 100)]:
                await asyncio.sleep(0.002)
                record.accept()
                ledger.note(name, record, since)


async def slowly(data: bytes) -> bytes:
    """A deserializer that waits."""
    await asyncio.sleep(0.0002)
    return data


async def read_impatiently(consumer: ShareConsumer[Any, Any], name: str, ledger: Ledger) -> None:
    """As ``read``, but reads are cancelled after a short time, and jobs are done one by one."""
    rng = random.Random(name)  # noqa: S311 - faults that can be repeated
    with contextlib.suppress(ConsumerStoppedError):
        while True:
            found: list[Record] = []
            with anyio.move_on_after(rng.uniform(0.001, 0.2)):
                found = await taken(consumer, 20)
            for record, since in [(record, acquired(record)) for record in found]:
                with contextlib.suppress(LockLostError):
                    async with record:
                        await asyncio.sleep(0.002)
                    ledger.note(name, record, since)


async def process(consumer: ShareConsumer[Any, Any], name: str, ledger: Ledger) -> None:
    """Work through jobs side by side, until the consumer stops; one member rests now and then, for longer than a lock lasts."""

    async def handle(record: Record) -> None:
        since = acquired(record)
        await asyncio.sleep(0.005)
        record.accept()
        ledger.note(name, record, since)

    async def rest(processing: Processing) -> None:
        while True:
            await asyncio.sleep(2 * LOCK)
            processing.pause()
            await asyncio.sleep(1.5 * LOCK)
            processing.resume()

    async with consumer.processing(handle, concurrency=20) as processing, anyio.create_task_group() as tasks:
        if name == "m4":
            tasks.start_soon(rest, processing)
        await processing.wait()
        tasks.cancel_scope.cancel()


WAYS: Final = (read, process, read_impatiently, read, process, read_impatiently)


async def make_anew(cluster: KafkaCluster, until: float) -> None:
    """Delete the topic whose jobs do not count, and make it again, with some jobs."""
    while time.monotonic() < until:
        with contextlib.suppress(Exception):  # a broker that is down or frozen; the next turn tries again
            await asyncio.to_thread(cluster.create_topic, PASSING, PARTITIONS, replicas=3)
            await asyncio.to_thread(cluster.produce, PASSING, 100, partitions=PARTITIONS)
        await asyncio.sleep(8)
        with contextlib.suppress(Exception):
            await asyncio.to_thread(cluster.delete_topics, PASSING)
        await asyncio.sleep(2)


async def write(cluster: KafkaCluster, ledger: Ledger, rate: int, until: float) -> None:
    """Write jobs all the time; those that brokers have acknowledged count."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
    )
    number, began = 0, time.monotonic()
    large_at = began + 5

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            ledger.written.add(int(message.value()))

    while (now := time.monotonic()) < until:
        while number < (now - began) * rate:
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered)
            number += 1
        if now >= large_at:
            large_at = now + 10
            for _ in range(LARGE):
                producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=delivered)
                number += 1
        producer.poll(0)
        await asyncio.sleep(0.05)
    await asyncio.to_thread(producer.flush, 60)


async def harm(cluster: KafkaCluster, proxy: Proxy, rng: random.Random, until: float) -> Counter[str]:
    """Do something bad every few seconds. Return how often what was done."""
    done: Counter[str] = Counter()
    while time.monotonic() < until:
        await asyncio.sleep(rng.uniform(2, 6))
        broker = rng.randrange(3)
        what = rng.choice(["cut", "cut", "cut one", "stall request", "stall response", "hole", "kill", "freeze"])
        done[what] += 1
        sys.stderr.write(f"--- {time.monotonic() - until:.1f} {what} {broker}\n")
        match what.split():
            case ["cut"]:
                proxy.cut()
            case ["cut", "one"]:
                proxy.cut(f"m{rng.randrange(MEMBERS)}")
            case ["stall", way]:
                proxy.everyone.stalled.add(way)  # type: ignore[arg-type]  # one of WAYS
                await asyncio.sleep(rng.uniform(1, 5))
                proxy.everyone.heal()
            case ["hole"]:
                proxy.everyone.black_hole()
                await asyncio.sleep(rng.uniform(1, 5))
                proxy.everyone.heal()
            case ["kill"]:
                await asyncio.to_thread(cluster.kill, broker)
                await asyncio.sleep(rng.uniform(1, 5))
                await asyncio.to_thread(cluster.start, broker)
            case _:
                cluster.pause(broker)
                await asyncio.sleep(rng.uniform(1, 8))
                cluster.unpause(broker)
    proxy.everyone.heal()
    return done


async def calm(ledger: Ledger) -> None:
    """Return when every job was handed out, or when nothing has changed for ``CALM`` seconds."""
    left, since = len(ledger.vanished()), time.monotonic()
    while left and time.monotonic() < since + CALM:
        await asyncio.sleep(1)
        now_left = len(ledger.vanished())
        if now_left < left:
            left, since = now_left, time.monotonic()
    await asyncio.sleep(2 * LOCK)  # the acknowledgements of the last ones


async def main(seconds: float, rate: int, seed: int) -> int:
    """Run; return the exit code."""
    listeners = {PROXIED: "PLAINTEXT"}
    ledger, rng = Ledger(), random.Random(seed)  # noqa: S311 - faults that can be repeated
    with KafkaCluster(
        CURRENT, brokers=3, properties=share_properties(3), heap_mb=256, listeners=listeners, proxied=[PROXIED]
    ) as cluster:
        for topic in (TOPIC, PASSING):
            cluster.create_topic(topic, PARTITIONS, replicas=3)
        from_the_start(cluster, TOPIC, share_delivery_count_limit="10")
        async with proxied(cluster) as proxy, anyio.create_task_group() as tasks:
            consumers: list[ShareConsumer[Any, Any]] = []
            for index in range(MEMBERS):
                way = WAYS[index]
                consumer: ShareConsumer[Any, Any] = ShareConsumer(
                    TOPIC,
                    PASSING,
                    bootstrap_servers=proxy.bootstrap_servers,
                    group_id=TOPIC,
                    client_id=f"m{index}",
                    value_deserializer=slowly if way is read_impatiently else None,
                )
                await consumer.start()
                consumers.append(consumer)
                tasks.start_soon(way, consumer, f"m{index}", ledger)
            until = time.monotonic() + seconds
            tasks.start_soon(write, cluster, ledger, rate, until)
            tasks.start_soon(make_anew, cluster, until)
            faults = await harm(cluster, proxy, rng, until)
            behind = len(ledger.vanished())
            await calm(ledger)
            stopping = time.monotonic()
            sys.stderr.write("--- stopping\n")
            refused = sum(consumer.statistics().refused for consumer in consumers)
            lost = sum(consumer.statistics().lost for consumer in consumers)
            await asyncio.gather(*(consumer.stop(timeout_ms=20_000) for consumer in consumers))
            stopped = time.monotonic() - stopping
            open_ends = sum(consumer.statistics().unanswered for consumer in consumers)
            tasks.cancel_scope.cancel()
    twice, ended = ledger.twice()
    vanished = sorted(ledger.vanished())
    unsure = ledger.left() - set(vanished)
    print(f"{dict(faults)}; {len(ledger.written)} jobs, {len(ledger.handled)} times handled, {refused} refused, {lost} lost")  # noqa: T201
    print(f"{behind} jobs were left to hand out when the faults ended")  # noqa: T201
    spread = dict(Counter(job % PARTITIONS for job in vanished))
    print(f"never handed out: {vanished[:10]} ({len(vanished)}), by partition {spread}")  # noqa: T201
    print(f"handled, and nobody was told that it counts: {len(unsure)}; stop took {stopped:.1f} s")  # noqa: T201
    print(f"accepted twice, and both were told although the first lock held: {twice[:10]} ({len(twice)})")  # noqa: T201
    print(f"accepted twice, the first lock having ended in between: {ended[:10]} ({len(ended)})")  # noqa: T201
    for each in ledger.handled:
        if each.job in twice[:3] + ended[:3]:
            times = (
                f"acquired {each.acquired - until:.2f}, accepted {each.accepted - until:.2f}, lock until {each.until - until:.2f}"
            )
            where = f"{each.record.partition}/{each.record.offset}, delivery {each.record.delivery_count}"
            print(f"  {each.job}: {each.member}, {where}, {'told' if each.told else 'lost'}; {times}")  # noqa: T201
    print(f"acknowledgements of which nothing was ever told: {open_ends}")  # noqa: T201
    return 1 if vanished or twice or open_ends else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.seconds, given.rate, given.seed)))
