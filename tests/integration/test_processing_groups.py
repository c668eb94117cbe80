"""Handlers side by side on a real broker: order, commits, restarts, members that come and go, crashes."""

import asyncio
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from attrs import Factory, define

from kafka_async.application.processing.processing import Processing
from tests.brokers import KafkaCluster

from .groups import Group, both, new_group
from .tools import Consumer, Record, new_topic, until

pytestmark = pytest.mark.brokers

PARTITIONS: Final = 4


@define(eq=False)
class Handled:
    """What handlers did, of however many members."""

    seconds: Callable[[Record], float]
    started: list[tuple[int, int]] = Factory(list)
    done: list[tuple[int, int]] = Factory(list)
    keys: dict[tuple[int, int], bytes | None] = Factory(dict)
    running: Counter[tuple[int, bytes | None]] = Factory(Counter)
    overlapped: list[tuple[int, int]] = Factory(list)
    now: int = 0
    peak: int = 0

    async def __call__(self, record: Record) -> None:
        place, lane = (record.partition, record.offset), (record.partition, record.key)
        self.started.append(place)
        self.keys[place] = record.key
        self.running[lane] += 1
        if record.key is not None and self.running[lane] > 1:
            self.overlapped.append(place)
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            await asyncio.sleep(self.seconds(record))
        finally:
            self.now -= 1
            self.running[lane] -= 1
        self.done.append(place)

    def in_order(self) -> bool:
        """Whether the first time that each record of a lane was done came after all before it."""
        lanes: dict[tuple[int, bytes | None], list[int]] = defaultdict(list)
        for partition, offset in dict.fromkeys(self.done):
            lanes[partition, self.keys[partition, offset]].append(offset)
        return all(offsets == sorted(offsets) for offsets in lanes.values())


def up_to(most: float) -> Callable[[Record], float]:
    return lambda record: (record.offset * 7919 % 101) / 100 * most


@asynccontextmanager
async def processed(
    group: Group, topic: str, handler: Any, *, options: Any = None, **how: Any
) -> AsyncIterator[tuple[Consumer, Processing]]:
    settings = {"auto_commit_interval_ms": 200, **(options or {})}
    async with group.member(topic, **settings) as consumer, consumer.processing(handler, **how) as run:
        yield consumer, run


def fill(cluster: KafkaCluster, count: int, keys: int, partitions: int = PARTITIONS) -> str:
    topic = new_topic(cluster, partitions)
    cluster.produce(topic, count, partitions=partitions, keys=lambda index: b"k%d" % (index % keys))
    return topic


@both
async def test_20_000_records_in_order_per_key_and_all_committed(kafka44: KafkaCluster, protocol: str) -> None:
    count = 20_000
    topic = fill(kafka44, count, 200)
    group, handled = new_group(kafka44, protocol), Handled(up_to(0.01))
    async with processed(group, topic, handled, concurrency=100):
        await until(lambda: len(handled.done) >= count, 100)
    assert handled.peak == 100
    assert not handled.overlapped
    assert handled.in_order()
    assert len(set(handled.done)) == len(handled.started) == count
    assert group.committed() == dict.fromkeys(range(PARTITIONS), count // PARTITIONS)


@both
async def test_of_a_handler_that_never_ends_only_its_record_comes_again(kafka44: KafkaCluster, protocol: str) -> None:
    count = 5_000
    topic = fill(kafka44, count, 500, 1)
    group, handled = new_group(kafka44, protocol), Handled(lambda record: 1_000 if record.offset == 7 else 0.0)
    async with processed(group, topic, handled, order="none", drain_timeout_ms=500):
        await until(lambda: len(handled.done) == count - 1)
    assert group.committed() == {0: 7}
    again = Handled(lambda record: 0.0)
    async with processed(group, topic, again):
        await until(lambda: bool(again.done))
        await asyncio.sleep(1)
    assert again.started == [(0, 7)]
    assert group.committed() == {0: count}


@pytest.mark.parametrize("keep_done", [True, False])
async def test_40_000_records_behind_one_that_is_not_done_make_intake_wait_if_a_restart_would_repeat_them(
    kafka44: KafkaCluster, keep_done: bool
) -> None:
    count = 40_000
    topic = fill(kafka44, count, 1_000, 1)
    group, first = new_group(kafka44, "consumer"), asyncio.Event()
    done: set[int] = set()

    async def handle(record: Record) -> None:
        if record.offset % 2 == 0 and record.offset < 200:
            await first.wait()
        done.add(record.offset)

    async with processed(group, topic, handle, order="none", concurrency=150, keep_done=keep_done) as (_, run):
        if keep_done:  # the map that is committed has them all
            await until(lambda: len(done) == count - 100)
        else:
            await until(lambda: run.statistics().far_ahead == 1)
            await asyncio.sleep(1)
            found = run.statistics()
            assert 10_000 <= found.done_ahead <= 10_000 + 1_500
            assert found.waiting + found.running <= 1_500
        first.set()
        await until(lambda: len(done) == count)
    assert group.committed() == {0: count}


@both
async def test_members_come_and_go_under_load_and_no_record_is_handled_twice(kafka44: KafkaCluster, protocol: str) -> None:
    count = 8_000
    topic = fill(kafka44, count, 200)
    group, handled = new_group(kafka44, protocol), Handled(up_to(0.03))
    options = {"partition_assignment_strategy": ("cooperative-sticky",)} if protocol == "classic" else {}

    async def member(seconds: float) -> None:
        async with processed(group, topic, handled, concurrency=20, options=options):
            if seconds:
                await asyncio.sleep(seconds)
            else:
                await until(lambda: len(set(handled.done)) >= count, 100)

    async with asyncio.TaskGroup() as members:
        members.create_task(member(0))
        await until(lambda: len(handled.done) > 300)
        members.create_task(member(4))
        await until(lambda: len(handled.done) > 1_500)
        members.create_task(member(0))
    assert len(set(handled.done)) == count
    assert len(handled.started) == count, "begun twice"
    assert not handled.overlapped
    assert handled.in_order(), "across members too"
    assert group.committed() == dict.fromkeys(range(PARTITIONS), count // PARTITIONS)


@both
async def test_a_session_that_is_lost_cancels_what_runs_and_commits_nothing_of_it(kafka44: KafkaCluster, protocol: str) -> None:
    topic = fill(kafka44, 10, 10, 1)
    group = new_group(kafka44, protocol, session_ms=6_000)
    cancelled: list[int] = []
    calls: list[int] = []

    async def handle(record: Record) -> None:
        calls.append(record.offset)
        try:
            await asyncio.sleep(1_000 if len(calls) <= 10 else 0)
        except asyncio.CancelledError:
            cancelled.append(record.offset)
            raise

    async with processed(group, topic, handle) as (_, run):
        await until(lambda: len(calls) == 10)
        await asyncio.sleep(0.5)
        time.sleep(9)  # noqa: ASYNC251 - a loop that is blocked for longer than the session
        await until(lambda: len(cancelled) == 10)
        await until(lambda: run.statistics().handled == 10)
    assert sorted(calls[10:]) == list(range(10))
    assert group.committed() == {0: 10}


@both
async def test_the_lag_reaches_0_on_compacted_and_transactional_topics(kafka44: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka44)
    for _ in range(2):
        kafka44.produce(topic, 50, transaction="commit")
        kafka44.produce(topic, 50, transaction="abort")
    group, handled = new_group(kafka44, protocol), Handled(lambda record: 0.0)
    async with processed(group, topic, handled, options={"isolation_level": "read_committed"}) as (consumer, _):
        end = (await consumer.end_offsets(consumer.assignment())).popitem()[1]
        await until(lambda: len(handled.done) == 100)
        await until(lambda: group.committed() == {0: end})
    assert end == 204


@both
async def test_killed_twice_in_the_middle_every_record_is_handled(kafka44: KafkaCluster, protocol: str) -> None:
    count = 6_000
    topic = fill(kafka44, count, 300)
    group = new_group(kafka44, protocol, session_ms=6_000)
    done: list[tuple[int, int]] = []
    for seed in (1, 2):
        done += await _killed_after(group, topic, str(seed), 1_000)
    handled = Handled(lambda record: 0.0)
    async with processed(group, topic, handled, concurrency=50):
        await until(
            lambda: set(done) | set(handled.done) >= {(p, o) for p in range(PARTITIONS) for o in range(count // PARTITIONS)}, 60
        )
    repeated = len(done) + len(handled.done) - count
    assert repeated < 2 * 1_500, "what was done in less than a second before each kill"
    assert group.committed() == dict.fromkeys(range(PARTITIONS), count // PARTITIONS)


async def _killed_after(group: Group, topic: str, seed: str, count: int) -> list[tuple[int, int]]:
    """Process in another program until ``count`` records are done, kill it, and return all that it had done."""
    arguments = [group.cluster.bootstrap_servers, group.name, group.protocol, topic, seed, str(group.session_ms)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.processing_job", *arguments, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    done: list[tuple[int, int]] = []
    began = time.monotonic()
    while line := await process.stdout.readline():
        if len(done) == count:
            process.kill()
        assert time.monotonic() - began < 120
        if line.endswith(b"\n"):
            partition, offset = map(int, line.split())
            done.append((partition, offset))
    await process.wait()
    return done
