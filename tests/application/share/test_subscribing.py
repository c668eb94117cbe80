"""What becomes of a share consumer's records when it subscribes to something else, on the simulated cluster."""

from collections.abc import Callable
from typing import Any

import anyio

from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.application.share.record import ShareRecord
from kafka_async.testing import Cluster
from tests.testing.test_clusters import Run, on_both

Record = ShareRecord[Any, Any]

LOCK = 60
"""Seconds that a lock lasts: what must come sooner has not waited for its end."""


def cluster_with(*topics: str) -> Cluster:
    cluster = Cluster()
    for topic in topics:
        cluster.topic(topic, partitions=1)
    cluster.group("workers", share_auto_offset_reset="earliest", share_record_lock_duration_ms=LOCK * 1000)
    return cluster


def member(cluster: Cluster, *topics: str, **options: Any) -> ShareConsumer[bytes, bytes]:
    return ShareConsumer(*topics, **{"group_id": "workers", **cluster.options(), **options})


async def take(consumer: ShareConsumer[Any, Any], count: int, within: float = LOCK / 4) -> list[Record]:
    """Return ``count`` records, accepted, that come before any lock has ended."""
    found: list[Record] = []
    with anyio.fail_after(within):
        while len(found) < count:
            found += [record for batch in (await consumer.getmany(timeout_ms=1000)).values() for record in batch]
    for record in found:
        record.accept()
    return found


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while True:
            if condition():
                return
            await anyio.sleep(0.1)


@on_both
def test_what_a_fetch_brings_after_unsubscribe_goes_to_others(run: Run) -> None:
    async def main() -> None:
        cluster = cluster_with("jobs")
        async with member(cluster, "jobs", fetch_max_wait_ms=5000) as one:
            assert await one.getmany(timeout_ms=100) == {}  # a fetch waits at the broker now
            await one.unsubscribe()
            cluster.produce("jobs", value="a")
            await anyio.sleep(1)
            async with member(cluster, "jobs") as two:
                assert [record.value for record in await take(two, 1)] == [b"a"]
            assert one.statistics().unread == 0

    run(main)


@on_both
def test_another_subscription_releases_what_was_not_handed_out(run: Run) -> None:
    async def main() -> None:
        cluster = cluster_with("jobs", "other")
        for _ in range(10):
            cluster.produce("jobs", value="a")
        async with member(cluster, "jobs") as one:
            mine = await one.getone()
            one.subscribe(["other"])
            cluster.produce("other", value="b")
            assert [record.value for record in await take(one, 1)] == [b"b"]
            async with member(cluster, "jobs") as two:
                assert len(await take(two, 9)) == 9
            mine.accept()
            await one.flush()
            assert not mine.lost

    run(main)


@on_both
def test_nothing_that_was_being_deserialized_is_handed_out_after_unsubscribe(run: Run) -> None:
    async def main() -> None:
        cluster = cluster_with("jobs")
        cluster.produce("jobs", value="a")
        reached, go_on = anyio.Event(), anyio.Event()

        async def slowly(data: bytes | None) -> bytes | None:
            reached.set()
            await go_on.wait()
            return data

        async with member(cluster, "jobs", value_deserializer=slowly) as one, anyio.create_task_group() as tasks:
            batches: list[Any] = []

            async def read() -> None:
                batches.append(await one.getmany(timeout_ms=10_000))

            tasks.start_soon(read)
            await reached.wait()
            await one.unsubscribe()
            go_on.set()
            async with member(cluster, "jobs") as two:
                assert len(await take(two, 1)) == 1
            tasks.cancel_scope.cancel()
        assert batches == []

    run(main)


@on_both
def test_unsubscribe_releases_what_waits_in_process_and_lets_handlers_end(run: Run) -> None:
    async def main() -> None:
        cluster = cluster_with("jobs")
        for _ in range(10):
            cluster.produce("jobs", value="quick")  # after which it is known that handlers are
        begun: list[bytes | None] = []
        go_on = anyio.Event()

        async def handle(record: Record) -> None:
            if record.value != b"quick":
                begun.append(record.value)
                await go_on.wait()

        async with member(cluster, "jobs") as one:
            async with one.processing(handle, concurrency=2) as processing:
                await until(lambda: processing.statistics().handled == 10)
                for number in range(10):
                    cluster.produce("jobs", value=str(number))
                await until(lambda: processing.statistics().waiting == 8)
                await one.unsubscribe()
                assert processing.statistics().waiting == 0
                async with member(cluster, "jobs") as two:
                    assert {record.value for record in await take(two, 8)} == {b"%d" % number for number in range(2, 10)}
                go_on.set()
                cluster.produce("jobs", value="later")
                await anyio.sleep(1)
                assert begun == [b"0", b"1"]
                one.subscribe(["jobs"])
                await until(lambda: len(begun) == 3)
            assert one.statistics().accepted == 13
        assert begun == [b"0", b"1", b"later"]

    run(main)
