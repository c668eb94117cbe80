"""Many handlers at once on a simulated cluster, under virtual time: their order, how many run, and what is read ahead."""

from collections import Counter, defaultdict

import anyio

from kafka_async.trace import Fetched, TraceEvent
from tests.application.support import virtual
from tests.virtual import run_virtual_asyncio

from .world import Record, processed, until, world


@virtual
async def test_all_records_are_handled_in_order_within_a_key_and_committed() -> None:
    some = world(4)
    some.seconds = lambda record: (record.offset * 7 % 5) / 100
    for partition in range(4):
        some.produce(500, keys=20, partition=partition)
    async with processed(some, concurrency=30) as run:
        await until(lambda: len(some.done) == 2_000)
        assert run.statistics().handled == 2_000
    assert some.peak == 30
    by_lane = defaultdict(list)
    for record in some.done:
        by_lane[record.partition, record.key].append(record.offset)
    assert len(by_lane) == 80
    assert all(offsets == sorted(offsets) for offsets in by_lane.values())
    assert [some.committed(partition) for partition in range(4)] == [500] * 4


@virtual
async def test_by_partition_one_record_of_each_is_handled_at_a_time() -> None:
    some = world(3)
    for partition in range(3):
        some.produce(20, partition=partition)
    async with processed(some, concurrency=10, order="partition"):
        await until(lambda: len(some.done) == 60)
    assert some.peak == 3


@virtual
async def test_without_order_as_many_run_as_may() -> None:
    some = world()
    some.produce(200, keys=1)
    some.running = Counter()
    peak = 0
    now = 0

    async def handle(record: Record) -> None:
        nonlocal peak, now
        now += 1
        peak = max(peak, now)
        await anyio.sleep(0.1)
        now -= 1
        some.done.append(record)

    async with processed(some, handle, concurrency=7, order="none"):
        await until(lambda: len(some.done) == 200)
    assert peak == 7


@virtual
async def test_a_callable_says_what_is_handled_one_after_the_other() -> None:
    some = world(2)
    for partition in range(2):
        some.produce(10, partition=partition)
    async with processed(some, order=lambda record: record.offset % 2):
        await until(lambda: len(some.done) == 20)
    assert some.peak == 2


@virtual
async def test_a_batch_is_a_list_of_one_lane() -> None:
    some = world()
    some.produce(40, keys=4)
    batches: list[list[Record]] = []

    async def handle(records: list[Record]) -> None:
        batches.append(records)
        await anyio.sleep(0.1)

    async with processed(some, handle, batch=5, linger_ms=50) as run:
        await until(lambda: run.statistics().handled == 40)
    assert {len(batch) for batch in batches} == {5}
    assert all(len({record.key for record in batch}) == 1 for batch in batches)
    assert some.committed() == 40


@virtual
async def test_a_batch_that_is_not_full_waits_no_longer_than_it_may() -> None:
    some = world()
    some.produce(3, keys=1)
    batches: list[tuple[float, int]] = []

    async def handle(records: list[Record]) -> None:
        batches.append((anyio.current_time(), len(records)))

    async with processed(some, handle, batch=5, linger_ms=2_000):
        began = anyio.current_time()
        await until(lambda: bool(batches))
    assert batches[0][1] == 3
    assert 2 <= batches[0][0] - began < 2.5


@virtual
async def test_the_next_batch_of_a_lane_waits_no_longer_than_it_may_either() -> None:
    """It begins to wait as the one before it ends, when nothing is received that would tell anybody."""
    some = world()
    began: dict[int, float] = {}

    async def handle(records: list[Record]) -> None:
        began.update((record.offset, anyio.current_time()) for record in records)
        await anyio.sleep(0.05)

    async with processed(some, handle, batch=10, linger_ms=100, stalled_after_ms=60_000):
        some.produce(1, keys=1)
        await until(lambda: 0 in began)
        some.produce(1, keys=1)
        came = anyio.current_time()
        await until(lambda: 1 in began)
    assert began[1] - came < 0.2


@virtual
async def test_a_record_that_cannot_be_deserialized_waits_no_longer_than_a_batch_may() -> None:
    some = world()
    letters: list[tuple[float, int]] = []

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append((anyio.current_time(), record.offset))

    def refuse(data: bytes) -> None:
        raise ValueError(data)

    how = {"batch": 10, "linger_ms": 100, "on_failure": write}
    async with processed(some, lambda records: None, consumer={"value_deserializer": refuse}, **how):
        some.produce(1, keys=1)
        came = anyio.current_time()
        await until(lambda: bool(letters))
    assert letters[0][0] - came < 0.2


@virtual
async def test_what_is_received_and_not_done_is_bounded() -> None:
    some = world(2)
    some.produce(2_000, keys=100)
    some.produce(2_000, keys=100, partition=1)
    async with processed(some, concurrency=5) as run:
        most = 0
        while len(some.done) < 300:
            await anyio.sleep(0.02)
            found = run.statistics()
            most = max(most, found.running + found.waiting + found.retrying)
    assert 40 <= most <= 50


@virtual
async def test_a_hot_key_does_not_keep_other_partitions_waiting() -> None:
    some = world(2)
    some.produce(1_000, keys=1)
    some.seconds = lambda record: 1.0 if record.partition == 0 else 0.01
    async with processed(some, concurrency=4, drain_timeout_ms=0):
        await anyio.sleep(10)
        some.produce(10, keys=10, partition=1)
        began = anyio.current_time()
        await until(lambda: sum(record.partition == 1 for record in some.done) == 10)
        assert anyio.current_time() - began < 2


@virtual
async def test_pause_begins_nothing_and_resume_goes_on() -> None:
    some = world()
    some.produce(100, keys=100)
    async with processed(some, concurrency=2) as run:
        await until(lambda: len(some.done) > 10)
        run.pause()
        await anyio.sleep(1)
        count = len(some.started)
        assert len(some.done) == count
        await anyio.sleep(60)
        assert len(some.started) == count
        run.resume()
        await until(lambda: len(some.done) == 100)


def test_what_comes_as_drain_is_called_is_done_when_it_returns() -> None:
    """A read could not be interrupted any more, and its records were handled in the quiet that was asked for."""

    async def main() -> None:
        some = world()
        quiet: list[int] = []

        async def drain() -> None:
            await run.drain()
            quiet.append(len(some.done))

        def trace(event: TraceEvent) -> None:
            if isinstance(event, Fetched):
                tasks.start_soon(drain)  # in the next turn of the event loop, before the read that waits for these records

        async with anyio.create_task_group() as tasks, processed(some, consumer={"trace": trace}) as run:
            await anyio.sleep(1)
            some.produce(1)
            await until(lambda: bool(quiet))
            await anyio.sleep(1)
            assert quiet == [len(some.done)]

    run_virtual_asyncio(main)


@virtual
async def test_drain_returns_though_another_task_resumes_meanwhile() -> None:
    """There was always a read that could bring more, and it waited for one that could not."""
    some, ended = world(), list[float]()
    some.seconds = lambda record: 1.0

    async def drain() -> None:
        await run.drain()
        ended.append(anyio.current_time())

    some.produce(1)
    async with processed(some) as run, anyio.create_task_group() as tasks:
        await until(lambda: bool(some.started))
        tasks.start_soon(drain)
        await anyio.sleep(0.5)
        assert not ended
        run.resume()
        await anyio.sleep(10)
        assert ended
        assert some.committed() == 1
        tasks.cancel_scope.cancel()


@virtual
async def test_drain_waits_for_all_that_was_received_and_commits_it() -> None:
    some = world()
    some.produce(1_000)
    async with processed(some, concurrency=2) as run:
        await until(lambda: len(some.done) > 10)
        await run.drain()
        found = run.statistics()
        assert (found.running, found.waiting, found.retrying) == (0, 0, 0)
        assert some.committed() == len(some.done) < 1_000
        some.produce(1)
        run.resume()
        await until(lambda: len(some.done) == 1_001)
