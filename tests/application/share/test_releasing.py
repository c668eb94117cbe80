"""Records that are released to be delivered again later, on the simulated cluster."""

import asyncio
from typing import Any

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.testing import Cluster
from tests.testing.test_clusters import Run, on_both
from tests.virtual import run_virtual_asyncio


def _filled(count: int) -> Cluster:
    cluster = Cluster()
    cluster.topic("jobs", partitions=1)
    cluster.group("workers", share_auto_offset_reset="earliest", share_record_lock_duration_ms=5_000)
    for number in range(count):
        cluster.produce("jobs", value=str(number))
    return cluster


def _member(cluster: Cluster) -> ShareConsumer[Any, Any]:
    return ShareConsumer("jobs", group_id="workers", **cluster.options())


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("how", ["release", "function"])
def test_a_dependency_that_is_down_for_some_seconds_costs_no_job(run: Run, how: str) -> None:
    async def main() -> None:
        cluster = _filled(50)
        done: set[int] = set()
        all_done = anyio.Event()
        up_at = anyio.current_time() + 2.5

        async def work(job: Any) -> None:
            if anyio.current_time() < up_at:
                raise ConnectionError
            done.add(job.offset)
            if len(done) == 50:
                all_done.set()

        def give_back(job: Any, error: BaseException, attempts: int) -> None:
            job.release(delay_ms=1_000 * job.delivery_count)

        async with _member(cluster) as consumer:
            async with consumer.processing(work, on_failure="release" if how == "release" else give_back) as processing:
                with anyio.move_on_after(60):
                    await all_done.wait()
                await processing.drain()
                assert processing.statistics().handled == 50, "what was given back is not"
            assert done == set(range(50))
            assert (await consumer.flush()) is not None
            assert consumer.statistics().rejected == 0

    run(main)


@on_both
def test_a_delayed_release_keeps_the_record_locked_until_its_time(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(1)
        async with _member(cluster) as consumer, _member(cluster) as other:
            job = await consumer.getone()
            began = anyio.current_time()
            job.release(delay_ms=12_000)  # longer than its lock lasts
            await consumer.flush()
            assert anyio.current_time() - began < 5, "a flush does not wait for it"
            again = await other.getone()
            assert 12 <= anyio.current_time() - began < 13
            assert (again.delivery_count, job.lost) == (2, False)
            await consumer.flush()
            assert (consumer.statistics().released, consumer.statistics().unanswered) == (1, 0)

    run(main)


@on_both
def test_a_stop_releases_at_once_what_was_to_be_released_later(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(3)
        async with _member(cluster) as consumer:
            for _ in range(3):
                (await consumer.getone()).release(delay_ms=60_000)
        assert (consumer.statistics().released, consumer.statistics().unanswered) == (3, 0)
        async with _member(cluster) as other:
            with anyio.fail_after(5):
                assert [(await other.getone()).delivery_count for _ in range(3)] == [2, 2, 2]

    run(main)


@on_both
def test_what_is_to_be_released_later_may_be_lost_before(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(1)
        async with ShareConsumer("jobs", group_id="workers", max_processing_ms=1_000, **cluster.options()) as consumer:
            job = await consumer.getone()
            job.release(delay_ms=20_000)
            await anyio.sleep(30)
            assert job.lost
            told = consumer.statistics()
            assert (told.lost, told.refused, told.unanswered, told.out) == (1, 1, 0, 0)

    run(main)


@on_both
@pytest.mark.parametrize("said", ["accept", "release", "reject"])
def test_a_record_that_is_acknowledged_in_its_block_leaves_it_well(run: Run, said: str) -> None:
    async def main() -> None:
        async with _member(_filled(1)) as consumer:
            async with await consumer.getone() as job:
                getattr(job, said)()
            await consumer.flush()
            told = consumer.statistics()
            assert (told.accepted + told.released + told.rejected, told.refused, told.lost) == (1, 0, 0)

    run(main)


def test_results_are_told_by_the_next_flush_whenever_one_is_cancelled() -> None:
    """Each one is cancelled a step of the event loop later than the one before, also just as its answer comes."""

    async def main() -> None:
        async with _member(_filled(40)) as consumer:
            (await consumer.getone()).accept()
            began = anyio.current_time()
            await consumer.flush()
            takes, returned = anyio.current_time() - began, 0
            for steps in range(39):
                (await consumer.getone()).accept()
                flush = asyncio.ensure_future(consumer.flush())
                await asyncio.sleep(takes)
                for _ in range(steps):
                    await asyncio.sleep(0)
                flush.cancel()
                try:
                    found = await flush
                    returned += 1
                except asyncio.CancelledError:
                    found = await consumer.flush()
                assert found == {TopicPartition("jobs", 0): None}, f"cancelled after {steps} steps"
            assert 0 < returned < 39, "some were cancelled before the answer, and some after it"

    run_virtual_asyncio(main)
