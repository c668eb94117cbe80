"""What becomes of records that are out when a share consumer stops, on the simulated cluster."""

from typing import Any

import anyio

from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.testing import Cluster
from tests.testing.test_clusters import Run, on_both


@on_both
def test_what_is_said_after_the_end_does_not_count_and_the_record_says_so(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("jobs", partitions=1)
        cluster.group("workers", share_auto_offset_reset="earliest")
        for value in ("in time", "too late", "nothing"):
            cluster.produce("jobs", value=value)
        consumer: ShareConsumer[Any, Any] = ShareConsumer("jobs", group_id="workers", **cluster.options())
        async with consumer:
            with anyio.fail_after(60):
                in_time, too_late, nothing = [await consumer.getone() for _ in range(3)]
            in_time.accept()
        too_late.accept()
        nothing.renew()
        assert [record.lost for record in (in_time, too_late, nothing)] == [False, True, True]
        told = consumer.statistics()
        assert (told.accepted, told.refused, told.unanswered, told.out) == (1, 1, 0, 0)
        async with ShareConsumer("jobs", group_id="workers", **cluster.options()) as other:
            with anyio.fail_after(60):
                again = [await other.getone() for _ in range(2)]
            assert [record.value for record in again] == [b"too late", b"nothing"]

    run(main)


async def _left(cluster: Cluster) -> list[Any]:
    """Return what another member gets."""
    async with ShareConsumer("jobs", group_id="workers", **cluster.options()) as other:
        batch = await other.getmany(timeout_ms=2_000)
        return [record.value for records in batch.values() for record in records]


def _filled(*values: str) -> Cluster:
    cluster = Cluster()
    cluster.topic("jobs", partitions=1)
    cluster.group("workers", share_auto_offset_reset="earliest")
    for value in values:
        cluster.produce("jobs", value=value)
    return cluster


@on_both
def test_a_stop_waits_for_tasks_that_work_on_records(run: Run) -> None:
    async def main() -> None:
        cluster = _filled("one", "two", "three")
        consumer: ShareConsumer[Any, Any] = ShareConsumer("jobs", group_id="workers", **cluster.options())
        at_work = anyio.Event()
        done = []

        async def work() -> None:
            async for job in consumer:
                async with job:
                    at_work.set()
                    await anyio.sleep(3)  # virtual seconds
                done.append(job)

        await consumer.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await at_work.wait()
            for _ in range(2):
                tasks.start_soon(consumer.stop)
        assert [job.value for job in done] == [b"one"]
        assert not done[0].lost
        assert (consumer.statistics().accepted, consumer.statistics().refused) == (1, 0)
        assert await _left(cluster) == [b"two", b"three"]

    run(main)


@on_both
def test_a_stop_waits_for_a_task_for_a_third_of_its_time_only_and_never_for_its_own(run: Run) -> None:
    async def main() -> None:
        cluster = _filled("one")
        consumer: ShareConsumer[Any, Any] = ShareConsumer("jobs", group_id="workers", **cluster.options())
        at_work = anyio.Event()

        async def work() -> None:
            async with await consumer.getone():
                at_work.set()
                await anyio.sleep(1000)

        await consumer.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await at_work.wait()
            began = anyio.current_time()
            await consumer.stop(timeout_ms=9_000)
            assert 3 <= anyio.current_time() - began < 4
            tasks.cancel_scope.cancel()
        async with ShareConsumer("jobs", group_id="workers", **cluster.options()) as own:
            began = anyio.current_time()
            async with await own.getone() as job:
                await own.stop(timeout_ms=9_000)
            assert anyio.current_time() - began < 1
            assert job.lost
        assert await _left(cluster) == [b"one"]

    run(main)
