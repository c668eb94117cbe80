"""Records that tasks work on or that wait their turn, on the simulated cluster: whose locks last, and who is told of a lost one."""

import asyncio
import time
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from kafka_async import sync
from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.errors import IllegalStateError, LockLostError
from kafka_async.testing import Cluster, ThreadedCluster
from kafka_async.trace import RequestSent, ResponseReceived, TraceEvent
from tests.testing.test_clusters import Run, on_both
from tests.virtual import VirtualLoop, run_virtual_asyncio

LOCK = 5


def _filled(count: int, *, batch: bool = False, **settings: Any) -> Cluster:
    cluster = Cluster()
    cluster.topic("jobs", partitions=1)
    cluster.group("workers", **{"share_auto_offset_reset": "earliest", "share_record_lock_duration_ms": LOCK * 1000, **settings})
    for number in range(count):
        cluster.produce("jobs", value=str(number))
    return cluster


def _member(cluster: Cluster, **options: Any) -> ShareConsumer[Any, Any]:
    return ShareConsumer("jobs", group_id="workers", **{**cluster.options(), **options})


async def _taken(consumer: ShareConsumer[Any, Any], seconds: float) -> dict[int, int]:
    """Return what comes within a time, and how often each was delivered."""
    found: dict[int, int] = {}
    until = anyio.current_time() + seconds
    while (left := until - anyio.current_time()) > 0:
        for records in (await consumer.getmany(timeout_ms=left * 1000)).values():
            for record in records:
                record.accept()
                found[record.offset] = record.delivery_count
    return found


# --- unread ---------------------------------------------------------------------------------------------------------------------


@on_both
@pytest.mark.parametrize("behind", ["one long job", "a cancelled read", "one long job of process", "a pause"])
def test_a_member_that_does_not_read_keeps_the_others_work_for_one_lock_only(run: Run, behind: str) -> None:
    async def main() -> None:
        cluster = _filled(0)
        at_work = anyio.Event()

        async def work(job: Any) -> None:
            at_work.set()
            await anyio.sleep(200)

        async def be_away(consumer: ShareConsumer[Any, Any]) -> None:
            if behind == "a cancelled read":
                with anyio.move_on_after(0.5):
                    await consumer.getone()
                at_work.set()
                await anyio.sleep(200)
            elif behind == "one long job":
                async with await consumer.getone() as job:
                    await work(job)
            else:
                async with consumer.processing(work, concurrency=1) as processing:
                    if behind == "a pause":
                        await at_work.wait()
                        processing.pause()
                    await anyio.sleep(200)

        async with _member(cluster) as first, anyio.create_task_group() as tasks:
            tasks.start_soon(be_away, first)
            await anyio.sleep(0.3)
            for number in range(10):
                cluster.produce("jobs", value=str(number))
            with anyio.fail_after(10):
                if behind == "a cancelled read":
                    await anyio.sleep(0.5)
                await at_work.wait()
            async with _member(cluster) as second:
                found = await _taken(second, 2 * LOCK)
            assert len(found) >= 9, found
            assert max(found.values()) <= 2, "what was given back is not read ahead again"
            tasks.cancel_scope.cancel()

    run(main)


@on_both
def test_read_ahead_is_renewed_while_reads_go_on(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(10)
        async with _member(cluster) as consumer:
            counts = []
            for _ in range(10):
                job = await consumer.getone()
                await anyio.sleep(0.8 * LOCK)
                counts.append(job.delivery_count)
                job.accept()
            assert counts == [1] * 10
            assert await consumer.flush()

    run(main)


@on_both
def test_unread_records_are_released_after_max_poll_interval_if_that_is_shorter(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(20, share_record_lock_duration_ms=60_000)
        async with _member(cluster, max_poll_interval_ms=2_000) as first:
            for _ in range(11):  # it reads ahead once it is known how long the application takes for ten
                (await first.getone()).accept()
            await anyio.sleep(3)
            async with _member(cluster) as second:
                assert await _taken(second, 3) == dict.fromkeys(range(11, 20), 2)
            assert first.statistics().unread == 0
            cluster.produce("jobs", value="20")
            with anyio.fail_after(30):
                assert (await first.getone()).offset == 20

    run(main)


def test_a_record_whose_lock_has_ended_while_the_event_loop_was_blocked_comes_again_once_it_has_ended_at_the_broker() -> None:
    """It counts from when the record came, while the request for it waited there."""

    async def main() -> None:
        cluster = _filled(0)
        asked: list[float] = []

        def on_event(event: TraceEvent) -> None:
            loop = cast("VirtualLoop", asyncio.get_running_loop())
            if isinstance(event, RequestSent) and event.api == "ShareFetch":
                if not asked:
                    loop.call_later(0.4, partial(cluster.produce, "jobs", value="0"))
                asked.append(event.now)
            if isinstance(event, ResponseReceived) and event.api == "ShareFetch" and len(asked) == 1:
                loop.block(LOCK - 0.2)

        async with _member(cluster, trace=on_event) as consumer:
            job = await consumer.getone()
            assert job.delivery_count == 2
            assert anyio.current_time() - asked[0] < 1.5 * LOCK
            job.accept()
            assert list((await consumer.flush()).values()) == [None]

    run_virtual_asyncio(main)


# --- waiting their turn ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("by_hand", [False, True])
def test_records_of_one_call_that_wait_their_turn_are_renewed(run: Run, by_hand: bool) -> None:
    async def main() -> None:
        cluster = _filled(12)
        async with _member(cluster) as worker, _member(cluster) as other, anyio.create_task_group() as tasks:
            jobs: list[Any] = []
            with anyio.fail_after(60):
                while len(jobs) < 5:
                    jobs = [job for found in (await worker.getmany(timeout_ms=1000)).values() for job in found]
            others: dict[int, int] = {}

            async def take() -> None:
                others.update(await _taken(other, 30))

            tasks.start_soon(take)
            for job in jobs:
                if by_hand:
                    await anyio.sleep(2)
                    job.accept()
                    continue
                async with job:
                    await anyio.sleep(2)
            assert await worker.flush()
            assert (worker.statistics().lost, worker.statistics().accepted) == (0, len(jobs))
            tasks.cancel_scope.cancel()
        assert not others.keys() & {job.offset for job in jobs}

    run(main)


@on_both
def test_records_of_one_call_that_nobody_works_on_go_to_others(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(8)
        async with _member(cluster) as first, _member(cluster) as second:
            found: list[Any] = []
            with anyio.fail_after(60):
                while not found:
                    found = [job for jobs in (await first.getmany(timeout_ms=1000)).values() for job in jobs]
            taken = await _taken(second, 2 * LOCK)
            assert taken.keys() >= {job.offset for job in found}
            assert all(job.lost for job in found)

    run(main)


# --- a lost lock ----------------------------------------------------------------------------------------------------------------


@on_both
def test_entering_a_lost_job_raises_and_does_nothing(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(2)
        async with _member(cluster) as consumer:
            first, second = await consumer.getone(), await consumer.getone()
            await anyio.sleep(LOCK + 1)
            done = []
            for job in (first, second):
                with pytest.raises(LockLostError, match=r"jobs-0 at offset \d: the lock has ended") as told:
                    async with job:
                        done.append(job)
                assert told.value.record is job
            assert done == []
            assert consumer.statistics().refused == 0, "it was not acknowledged"
            assert (await consumer.getone()).delivery_count == 2

    run(main)


@on_both
def test_a_lock_that_is_lost_inside_cancels_the_block_and_is_told(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(1)
        async with _member(cluster, max_processing_ms=2 * LOCK * 1000) as consumer:
            began = anyio.current_time()

            async def work() -> None:
                async with await consumer.getone():
                    await anyio.sleep(1000)

            with pytest.raises(LockLostError, match=f"max_processing_ms={2 * LOCK * 1000} is over"):
                await work()
            assert LOCK < anyio.current_time() - began < 3 * LOCK
            await anyio.lowlevel.checkpoint()  # nothing is left of the cancellation
            assert (await consumer.getone()).delivery_count == 2

    run(main)


@on_both
def test_code_in_the_block_that_minds_the_cancellation_has_its_own_way(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(2)
        async with _member(cluster, max_processing_ms=LOCK * 1000) as consumer:

            async def work() -> None:
                async with await consumer.getone():
                    try:
                        await anyio.sleep(1000)
                    finally:
                        raise LookupError

            with pytest.raises(LookupError):
                await work()
            await anyio.lowlevel.checkpoint()
            with anyio.CancelScope() as scope:  # a cancellation from outside stays one
                async with await consumer.getone() as job:
                    scope.cancel()
                    await anyio.sleep(1000)
            assert scope.cancelled_caught
            assert not job.lost

    run(main)


@on_both
def test_a_block_that_swallows_its_cancellation_is_told_at_the_end(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(1)
        async with _member(cluster, max_processing_ms=1000) as consumer:
            job = await consumer.getone()

            async def work() -> None:
                async with job:
                    with suppress(BaseException):  # code that swallows what it should not
                        await anyio.sleep(LOCK + 1)

            with pytest.raises(LockLostError):
                await work()
            assert job.lost

    run(main)


@on_both
def test_the_outermost_of_nested_blocks_decides(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(2)
        async with _member(cluster) as consumer:
            async with await consumer.getone() as job:
                async with job:
                    async with job:
                        pass
                    with pytest.raises(LookupError):
                        async with job:
                            raise LookupError
                assert consumer.statistics().unanswered == 0
                await anyio.sleep(3 * LOCK)  # it is still renewed
                assert not job.lost
            assert consumer.statistics().unanswered == 1
            await consumer.flush()
            assert (consumer.statistics().accepted, consumer.statistics().released) == (1, 0)
            with pytest.raises(IllegalStateError):
                async with job:
                    pass

    run(main)


@pytest.mark.slow
@on_both
def test_a_handler_with_a_block_of_its_own_hears_of_the_loss_from_process(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(1, share_delivery_count_limit=2)
        began = []
        async with _member(cluster, max_processing_ms=LOCK * 1000) as consumer:

            async def handle(job: Any) -> None:
                began.append(job.delivery_count)
                async with job:
                    await anyio.sleep(1000)

            async with consumer.processing(handle):
                await anyio.sleep(4 * LOCK)
            assert began == [1, 2]
            assert consumer.statistics().lost == 2

    run(main)


@pytest.mark.slow  # waits for some seconds
async def test_a_lost_lock_cancels_the_block_too_if_the_background_has_a_thread_of_its_own() -> None:
    with ThreadedCluster(_filled(1)) as served:  # on a busy machine the second lock would be over, too, if it were short
        options: Any = {"bootstrap_servers": served.bootstrap, "background": "thread", "max_processing_ms": LOCK * 1000}

        async def work(consumer: ShareConsumer[Any, Any]) -> None:
            async with await consumer.getone():
                await asyncio.sleep(1000)

        async with ShareConsumer("jobs", group_id="workers", **options) as member, asyncio.timeout(60):
            with pytest.raises(LockLostError):
                await work(member)
            assert (await member.getone()).delivery_count == 2


# --- threads --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_thread_is_told_of_a_lost_lock_at_the_end() -> None:
    with (
        ThreadedCluster(_filled(1, share_record_lock_duration_ms=1000)) as served,
        sync.ShareConsumer("jobs", group_id="workers", max_processing_ms=1000, bootstrap_servers=served.bootstrap) as consumer,
    ):
        job = consumer.getone()

        def work() -> None:
            with job:
                while not job.lost:
                    time.sleep(0.05)

        with pytest.raises(LockLostError):
            work()
        with pytest.raises(LockLostError), job:
            pass


def test_of_acknowledgements_of_several_threads_one_counts() -> None:
    with (
        ThreadedCluster(_filled(20, share_record_lock_duration_ms=30_000)) as served,
        sync.ShareConsumer("jobs", group_id="workers", bootstrap_servers=served.bootstrap) as consumer,
    ):
        refused: list[IllegalStateError] = []
        for _ in range(20):
            another = consumer.getone()

            def acknowledge(record: Any = another) -> None:
                try:
                    record.accept()
                except IllegalStateError as error:
                    refused.append(error)

            threads = [Thread(target=acknowledge) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(refused) == 60
        assert consumer.statistics().accepted + consumer.statistics().unanswered == 20
