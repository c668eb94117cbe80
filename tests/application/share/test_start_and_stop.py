"""How a share consumer starts, starts again and stops, on the simulated cluster."""

from contextlib import suppress
from typing import Any

import anyio
import pytest

from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.errors import ConsumerStoppedError, CoordinatorNotAvailableError, IllegalStateError, UnknownTopicOrPartitionError
from kafka_async.model import ConsumerState
from kafka_async.testing import Cluster
from kafka_async.wire import Api
from tests.testing.test_clusters import Run, on_both


def _filled(*values: str) -> Cluster:
    cluster = Cluster()
    cluster.topic("jobs", partitions=1)
    cluster.group("workers", share_auto_offset_reset="earliest")
    for value in values:
        cluster.produce("jobs", value=value)
    return cluster


def _member(cluster: Cluster, *topics: str, **options: Any) -> ShareConsumer[Any, Any]:
    return ShareConsumer(*topics or ("jobs",), group_id="workers", **{**cluster.options(), **options})


@on_both
def test_a_start_waits_for_the_assignment_and_can_be_made_once(run: Run) -> None:
    async def main() -> None:
        cluster = _filled("a")
        consumer = _member(cluster)
        assert (consumer.ready, consumer.alive) == (False, False)
        with pytest.raises(IllegalStateError):
            await consumer.getone()
        await consumer.start()
        assert (consumer.ready, consumer.alive) == (True, True)
        with pytest.raises(IllegalStateError, match="started already"):
            await consumer.start()
        await consumer.stop()
        await consumer.stop()
        assert (consumer.state, consumer.alive) == (ConsumerState.CLOSED, False)
        with pytest.raises(ConsumerStoppedError):
            await consumer.start()

    run(main)


@on_both
def test_a_start_that_fails_is_undone_and_can_be_made_again(run: Run) -> None:
    async def main() -> None:
        cluster = _filled()
        consumer = _member(cluster, "later", allow_auto_create_topics=False)
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.start(timeout_ms=2_000)
        assert cluster.members("workers") == []
        cluster.topic("later", partitions=1)
        cluster.produce("later", value="x")
        await consumer.start()
        with anyio.fail_after(30):
            assert (await consumer.getone()).value == b"x"
        await consumer.stop()

    run(main)


@pytest.mark.slow
@on_both
def test_a_stop_at_any_moment_of_a_start_ends_both(run: Run) -> None:
    async def starts(consumer: ShareConsumer[Any, Any]) -> None:
        with suppress(ConsumerStoppedError):
            await consumer.start()

    async def main() -> None:
        cluster = _filled("a")
        for milliseconds in range(40):
            consumer = _member(cluster)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(starts, consumer)
                await anyio.sleep(milliseconds / 1000)
                await consumer.stop()
            assert consumer.state is ConsumerState.CLOSED, milliseconds
            assert cluster.members("workers") == [], milliseconds

    run(main)


@on_both
def test_a_start_without_an_assignment_returns_and_reads_wait(run: Run) -> None:
    async def main() -> None:
        cluster = _filled("a")
        with cluster.failing(Api.SHARE_GROUP_HEARTBEAT, CoordinatorNotAvailableError, None):
            consumer = _member(cluster, request_timeout_ms=3_000)
            began = anyio.current_time()
            await consumer.start()
            assert anyio.current_time() - began < 4
            assert not consumer.ready
        with anyio.fail_after(60):
            assert (await consumer.getone()).value == b"a"
        await consumer.stop()

    run(main)


@on_both
def test_a_member_that_stops_releases_records_of_partitions_that_others_read_by_then(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("jobs", partitions=2)
        cluster.group("workers", share_auto_offset_reset="earliest")
        for index in (0, 1):
            cluster.produce("jobs", value=str(index), partition=index)
        one = _member(cluster)
        await one.start()
        with anyio.fail_after(60):
            assert sorted([(await one.getone()).value, (await one.getone()).value]) == [b"0", b"1"]
        async with _member(cluster) as two:
            await cluster.assigned("workers", members=2)
            assert await one.getmany(timeout_ms=1000) == {}
            await one.stop()
            with anyio.fail_after(10):  # their locks would end later
                again = [await two.getone(), await two.getone()]
            assert sorted((record.value, record.delivery_count) for record in again) == [(b"0", 2), (b"1", 2)]

    run(main)


@on_both
def test_a_member_that_stops_while_it_polls_takes_nothing_that_comes_afterwards(run: Run) -> None:
    """Its poll is waited for: the broker would lock the next records for a member that is gone, which costs them a delivery."""

    async def main() -> None:
        cluster = _filled()
        for moment in (0.05, 0.2, 0.35):
            consumer = _member(cluster)
            async with anyio.create_task_group() as tasks:
                await consumer.start()
                tasks.start_soon(consumer.getmany)
                await anyio.sleep(moment)
                began = anyio.current_time()
                await consumer.stop()
                assert anyio.current_time() - began < 1
            cluster.produce("jobs", value="next")
            async with _member(cluster) as other:
                with anyio.fail_after(60):
                    job = await other.getone()
                assert job.delivery_count == 1
                job.accept()

    run(main)


@on_both
def test_a_stop_waits_for_no_broker_that_does_not_answer_its_poll(run: Run) -> None:
    async def main() -> None:
        cluster = _filled()
        consumer = _member(cluster)
        await consumer.start()
        assert await consumer.getmany(timeout_ms=100) == {}
        cluster.half_open()
        began = anyio.current_time()
        await consumer.stop(timeout_ms=20_000)
        assert anyio.current_time() - began <= 20

    run(main)
