"""How many records a member locks ahead: jobs that take long are left to other members."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.application.share.pace import Pace
from kafka_async.background.boundary import EventHandler, Exchange
from kafka_async.errors import LockLostError
from kafka_async.testing import Cluster
from kafka_async.wire import Api
from kafka_async.wire.messages import ShareFetchRequest
from tests.effort import apart
from tests.testing.test_clusters import Run, on_both

Handler = Callable[[Any], Awaitable[None]]


def _filled(count: int) -> Cluster:
    cluster = Cluster()
    cluster.topic("jobs", partitions=1)
    cluster.group("workers", share_auto_offset_reset="earliest")
    for _ in range(count):
        cluster.produce("jobs", value="job")
    return cluster


def _member(cluster: Cluster) -> ShareConsumer[Any, Any]:
    return ShareConsumer("jobs", group_id="workers", **cluster.options())


def _measured() -> tuple[Exchange, Pace]:
    exchange = Exchange(EventHandler(lambda: None, lambda: None))
    return exchange, Pace(exchange)


def _read(pace: Pace, exchange: Exchange, now: float, records: int) -> None:
    pace.begin(now)
    exchange.taken += records
    pace.end(now, records)


def test_the_time_between_read_calls_is_what_records_take() -> None:
    exchange, pace = _measured()
    _read(pace, exchange, 1.0, 4)
    assert exchange.demand.pace == 0
    pace.begin(3.0)
    assert exchange.demand.pace == 0.5


def test_the_time_for_which_a_call_waits_does_not_count() -> None:
    exchange, pace = _measured()
    for now in (0.0, 100.0, 200.0):
        pace.begin(now)
        exchange.taken += 1
        pace.end(now + 99.0, 1)
    pace.begin(300.0)
    assert exchange.demand.pace == 1.0


def test_tasks_that_read_in_a_burst_count_together() -> None:
    exchange, pace = _measured()
    for _ in range(5):
        _read(pace, exchange, 0.0, 1)
    assert exchange.demand.pace == 0
    pace.begin(1.0)
    assert exchange.demand.pace == 0.2


def test_tasks_whose_calls_wait_together_count_together() -> None:
    exchange, pace = _measured()
    for _ in range(5):
        pace.begin(0.0)
    for _ in range(5):
        exchange.taken += 1
        pace.end(10.0, 1)
    pace.begin(11.0)
    assert exchange.demand.pace == 0.2


def test_records_that_take_no_time_have_a_pace() -> None:
    exchange, pace = _measured()
    _read(pace, exchange, 0.0, 500)
    pace.begin(0.0)
    assert 0 < exchange.demand.pace < 0.001


def test_a_long_job_among_short_ones_is_not_forgotten_at_once() -> None:
    exchange, pace = _measured()
    _read(pace, exchange, 0.0, 1)
    _read(pace, exchange, 8.0, 10)  # after a job of 8 s
    assert exchange.demand.pace == 8.0
    paces = []
    for _ in range(40):
        _read(pace, exchange, 8.0, 10)
        paces.append(exchange.demand.pace)
    assert paces[:2] == [6.0, 4.5]
    assert paces[-1] < 0.001


def _read_on(pace: Pace, exchange: Exchange, now: float, calls: int, records: int, seconds: float) -> float:
    """Read so many records with each call, of which each takes so long. Return when the last ones are done."""
    for _ in range(calls):
        _read(pace, exchange, now, records)
        now += records * seconds
        pace.begin(now)
    return now


def test_a_pause_is_forgotten_after_as_many_records_in_large_reads_as_in_small_ones() -> None:
    exchange, pace = _measured()
    now = _read_on(pace, exchange, 0.0, 1, 500, 0.0002)  # a pause of 100 ms, by which each of the 500 takes 200 us
    assert exchange.demand.pace == pytest.approx(0.0002)
    _read_on(pace, exchange, now, 1, 500, 0.000001)
    assert exchange.demand.pace == pytest.approx(0.000001)


def test_a_pause_among_fast_records_hardly_changes_the_average() -> None:
    exchange, pace = _measured()
    now = _read_on(pace, exchange, 0.0, 40, 500, 0.000004)
    _read_on(pace, exchange, now, 1, 80, 0.0005)  # a pause of 40 ms
    assert exchange.demand.pace == pytest.approx(0.0005)
    assert exchange.demand.average < 0.00001


def test_the_average_soon_follows_records_that_take_longer() -> None:
    exchange, pace = _measured()
    now = _read_on(pace, exchange, 0.0, 1_000, 500, 0.000001)
    _read_on(pace, exchange, now, 200, 1, 0.003)  # 0.6 s
    assert 0.002 < exchange.demand.average <= 0.003


def test_records_that_take_longer_than_a_pause_are_not_averaged_with_those_before_them() -> None:
    exchange, pace = _measured()
    now = _read_on(pace, exchange, 0.0, 1_000, 500, 0.000004)
    _read_on(pace, exchange, now, 2, 1, 1.0)
    assert exchange.demand.average == pytest.approx(1.0)


def test_a_pace_that_was_forgotten_has_no_average_of_what_was_before() -> None:
    exchange, pace = _measured()
    now = _read_on(pace, exchange, 0.0, 100, 500, 0.000004)
    pace.measurements.forget()
    _read_on(pace, exchange, now, 10, 1, 0.009)
    assert exchange.demand.average == pytest.approx(0.009)


async def _iterate(consumer: ShareConsumer[Any, Any], handle: Handler) -> None:
    async for record in consumer:
        async with record:
            await handle(record)


async def _getone(consumer: ShareConsumer[Any, Any], handle: Handler) -> None:
    while True:
        async with await consumer.getone() as record:
            await handle(record)


async def _read_batches(consumer: ShareConsumer[Any, Any], handle: Handler) -> None:
    while True:
        for records in (await consumer.getmany(timeout_ms=1_000, max_records=5)).values():
            for record in records:
                async with record:
                    await handle(record)


async def _process(consumer: ShareConsumer[Any, Any], handle: Handler) -> None:
    await consumer.process(handle, concurrency=1)


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("read", [_iterate, _read_batches, _process])
def test_two_members_share_jobs_that_take_long(
    run: Run, read: Callable[[ShareConsumer[Any, Any], Handler], Awaitable[None]]
) -> None:
    async def main() -> None:
        cluster = _filled(60)
        done = [0, 0]
        all_done = anyio.Event()

        async def work(index: int) -> None:
            await anyio.sleep(index)  # the second one finds the first at work

            async def handle(record: Any) -> None:
                await anyio.sleep(1)
                done[index] += 1
                if sum(done) == 60:
                    all_done.set()

            async with _member(cluster) as consumer:
                await read(consumer, handle)

        with anyio.fail_after(45):  # one member would take 60 s
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work, 0)
                tasks.start_soon(work, 1)
                await all_done.wait()
                tasks.cancel_scope.cancel()
        assert min(done) >= 20

    run(main)


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("read", [_iterate, _getone, _process])
@pytest.mark.parametrize("lock", [5.0, *apart(15.0)])
@pytest.mark.parametrize("brokers", [1, 3])
def test_jobs_longer_than_a_lock_are_shared_by_many_members_and_cost_no_delivery(
    run: Run, read: Callable[[ShareConsumer[Any, Any], Handler], Awaitable[None]], lock: float, brokers: int
) -> None:
    async def main() -> None:
        cluster = Cluster(brokers=brokers)
        cluster.topic("jobs", partitions=brokers)
        cluster.group("workers", share_auto_offset_reset="earliest", share_record_lock_duration_ms=int(1000 * lock))
        for index in range(40):
            cluster.produce("jobs", value="job", partition=index % brokers)
        deliveries = list[int]()
        all_done = anyio.Event()

        async def handle(record: Any) -> None:
            await anyio.sleep(8)
            deliveries.append(record.delivery_count)
            if len(deliveries) == 40:
                all_done.set()

        async def work() -> None:
            async with _member(cluster) as consumer:
                await read(consumer, handle)

        with anyio.fail_after(50):  # 32 s, if no member has nothing to do
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(work)
                await all_done.wait()
                tasks.cancel_scope.cancel()
        assert max(deliveries) <= (1 if brokers == 1 else 2)

    run(main)


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("read", [_iterate, _getone, _process])
def test_a_few_jobs_longer_than_a_lock_do_not_cost_the_others_all_their_deliveries(
    run: Run, read: Callable[[ShareConsumer[Any, Any], Handler], Awaitable[None]]
) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("jobs", partitions=1)
        cluster.group("workers", share_auto_offset_reset="earliest", share_record_lock_duration_ms=2_000)
        with cluster.transaction() as transaction:
            transaction.produce("jobs", *map(str, range(600)))
        deliveries = dict[int, int]()
        all_done = anyio.Event()

        async def handle(record: Any) -> None:
            number = int(record.value)
            await anyio.sleep(5 if number % 20 == 19 else 0.005)
            deliveries[number] = record.delivery_count
            if len(deliveries) == 600:
                all_done.set()

        async def work() -> None:
            async with _member(cluster) as consumer:
                await read(consumer, handle)

        with anyio.fail_after(60):  # 25 s, if no member has nothing to do
            async with anyio.create_task_group() as tasks:
                for _ in range(6):
                    tasks.start_soon(work)
                await all_done.wait()
                tasks.cancel_scope.cancel()
        assert max(deliveries.values()) <= 3

    run(main)


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("read", [_iterate, _getone, _process])
def test_connections_that_break_again_and_again_do_not_cost_unread_jobs_all_their_deliveries(
    run: Run, read: Callable[[ShareConsumer[Any, Any], Handler], Awaitable[None]]
) -> None:
    async def main() -> None:
        cluster = _filled(400)
        done = set[int]()
        all_done = anyio.Event()

        async def handle(record: Any) -> None:
            await anyio.sleep(0.001)
            done.add(record.offset)
            if len(done) % 30 == 0:
                cluster.cut()
            if len(done) == 400:
                all_done.set()

        async with _member(cluster) as consumer, anyio.create_task_group() as tasks:
            tasks.start_soon(_again, read, consumer, handle)
            with anyio.move_on_after(200):
                await all_done.wait()
            assert len(done) == 400
            tasks.cancel_scope.cancel()

    run(main)


async def _again(
    read: Callable[[ShareConsumer[Any, Any], Handler], Awaitable[None]], consumer: ShareConsumer[Any, Any], handle: Handler
) -> None:
    while True:
        with contextlib.suppress(LockLostError):
            await read(consumer, handle)


@on_both
@pytest.mark.parametrize("timeout_ms", [0, 5_000])
def test_batches_that_take_as_long_with_few_records_as_with_many_stay_whole(run: Run, timeout_ms: float) -> None:
    async def main() -> None:
        cluster = _filled(400)
        sizes = list[int]()
        async with _member(cluster) as consumer:
            while sum(sizes) < 400:
                batch = await consumer.getmany(timeout_ms=timeout_ms, max_records=100)
                for record in [record for records in batch.values() for record in records]:
                    record.accept()
                sizes += [sum(map(len, batch.values()))] if batch else []
                await anyio.sleep(20 if batch else 0.1)
        assert sizes[1:4] == [100] * 3  # the first call may find what was read ahead of it

    run(main)


@on_both
def test_calls_that_do_not_wait_find_records_though_nothing_is_read_ahead(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(20)
        found = list[int]()
        async with ShareConsumer("jobs", group_id="workers", strict_max_records=True, **cluster.options()) as consumer:
            with anyio.fail_after(10):
                while len(found) < 20:
                    for records in (await consumer.getmany(max_records=5)).values():
                        assert len(records) <= 5
                        for record in records:
                            record.accept()
                            found.append(record.offset)
                    await anyio.sleep(0.02)
        assert found == list(range(20))

    run(main)


@on_both
def test_a_process_does_not_go_by_the_pace_of_reads_before_it(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(600)
        async with _member(cluster) as consumer:
            for _ in range(600):
                (await consumer.getone()).accept()

            async def handle(record: Any) -> None:
                await anyio.sleep(10)

            async with consumer.processing(handle, concurrency=1):
                await anyio.sleep(1)
                for _ in range(600):
                    cluster.produce("jobs", value="job")
                await anyio.sleep(2)
                statistics = consumer.statistics()
                assert statistics.unread + statistics.out <= 40

    run(main)


@pytest.mark.slow
@on_both
def test_a_read_call_gets_as_many_records_as_it_wants_however_long_they_took(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(60)
        async with _member(cluster) as consumer:
            for record in [await consumer.getone() for _ in range(60)]:
                record.accept()
            await anyio.sleep(1_000)
            reading = [logged.request for logged in cluster.requests(Api.SHARE_FETCH)]
            assert await consumer.getmany(timeout_ms=1_000, max_records=40) == {}
            asked = [logged.request for logged in cluster.requests(Api.SHARE_FETCH)][len(reading) :]
            assert max(request.max_records for request in asked if isinstance(request, ShareFetchRequest)) == 40

    run(main)


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("read", [_iterate, _read_batches, _process])
def test_one_large_batch_is_shared_by_members_whose_jobs_take_some_time(
    run: Run, read: Callable[[ShareConsumer[Any, Any], Handler], Awaitable[None]]
) -> None:
    async def main() -> None:
        cluster = _filled(0)
        cluster.group("workers", share_partition_max_record_locks=4000)
        done = [0, 0]
        all_done = anyio.Event()

        async def work(index: int) -> None:
            async def handle(record: Any) -> None:
                await anyio.sleep(0.003)
                done[index] += 1
                if sum(done) == 3000:
                    all_done.set()

            async with _member(cluster) as consumer:
                await read(consumer, handle)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work, 0)
                tasks.start_soon(work, 1)
                await cluster.assigned("workers", members=2)
                with cluster.transaction() as transaction:
                    transaction.produce("jobs", *("job" for _ in range(3000)))
                await all_done.wait()
                tasks.cancel_scope.cancel()
        assert min(done) >= 1000, done

    run(main)


@pytest.mark.slow
@on_both
def test_an_application_that_is_fast_gets_whole_batches(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(0)
        with cluster.transaction() as transaction:
            for _ in range(4):
                transaction.produce("jobs", *("job" for _ in range(3000)))
        async with _member(cluster) as consumer:
            found = 0
            with anyio.fail_after(60):
                while found < 12_000:
                    for records in (await consumer.getmany(timeout_ms=1000)).values():
                        found += len(records)
                        for record in records:
                            record.accept()
            assert consumer.statistics().wake_ups < 500
            asked = [logged.request for logged in cluster.requests(Api.SHARE_FETCH)]
            modes = [each.share_acquire_mode for each in asked if isinstance(each, ShareFetchRequest)]
            assert modes[0] == 1, "the pace is not known yet"
            assert modes[-1] == 0

    run(main)


@pytest.mark.slow
@on_both
def test_a_program_that_pauses_now_and_then_still_gets_whole_batches(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(0)
        cluster.group("workers", share_auto_offset_reset="earliest", share_record_lock_duration_ms=3_000)
        for _ in range(6):
            with cluster.transaction() as transaction:
                transaction.produce("jobs", *("job" for _ in range(3000)))
        async with _member(cluster) as consumer:
            found = 0
            with anyio.fail_after(60):
                while found < 18_000:
                    for records in (await consumer.getmany(timeout_ms=1000, max_records=450)).values():
                        found += len(records)
                        for record in records:
                            record.accept()
                        if found % 3000 == 2700:  # the last pace that is known as the next fetch is sent
                            await anyio.sleep(0.06)
            asked = [logged.request for logged in cluster.requests(Api.SHARE_FETCH)]
            modes = [each.share_acquire_mode for each in asked if isinstance(each, ShareFetchRequest)]
            assert modes == [1] + [0] * (len(modes) - 1), "only the first one comes before the pace is known"

    run(main)
