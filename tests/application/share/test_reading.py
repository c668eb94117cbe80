"""Read calls that are cancelled, interrupted or overlap, with deserializers that wait: no record is lost or repeated."""

import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.errors import DeserializationError
from kafka_async.testing import Cluster
from tests.testing.test_clusters import Run, on_both


class Slow:
    """A deserializer that waits, at one of its calls for a gate."""

    def __init__(self, gate_at: int = 0) -> None:
        self.gate_at = gate_at
        self.at_gate = anyio.Event()
        self.gate = anyio.Event()
        self.calls: list[bytes] = []

    async def __call__(self, data: bytes) -> str:
        self.calls.append(data)
        if len(self.calls) == self.gate_at:
            self.at_gate.set()
            await self.gate.wait()
        await anyio.sleep(0.001)
        if data == b"bad":
            raise ValueError("not this one")
        return data.decode()


def _filled(*values: str, partitions: int = 1) -> Cluster:
    cluster = Cluster()
    cluster.topic("jobs", partitions=partitions)
    cluster.group("workers", share_auto_offset_reset="earliest")
    for number, value in enumerate(values):
        cluster.produce("jobs", value=value, partition=number % partitions)
    return cluster


def _member(cluster: Cluster, deserializer: Any, **options: Any) -> ShareConsumer[Any, Any]:
    return ShareConsumer("jobs", group_id="workers", value_deserializer=deserializer, **{**cluster.options(), **options})


async def _unread(consumer: ShareConsumer[Any, Any], count: int) -> None:
    """Wait until so many records were delivered and are unread."""
    with anyio.fail_after(60):
        while consumer.statistics().unread < count:  # noqa: ASYNC110 - nothing else tells
            await anyio.sleep(0.01)


async def _cancelled_at(gate: Slow, read: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Cancel a read call while the deserializer waits at the gate."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await gate.at_gate.wait()
        tasks.cancel_scope.cancel()
    gate.gate.set()


@on_both
def test_a_read_that_is_cancelled_in_the_second_delivery_leaves_the_first_one_unread(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(*"abcd", partitions=2)  # each partition is a delivery of its own
        slow = Slow(gate_at=3)
        async with _member(cluster, slow) as consumer:
            assert await consumer.getmany(timeout_ms=0) == {}
            await _unread(consumer, 4)
            await _cancelled_at(slow, lambda: consumer.getmany(timeout_ms=1000))
            assert consumer.statistics().unread == 4
            with anyio.fail_after(10):
                records = [await consumer.getone() for _ in range(4)]
            assert sorted((record.value, record.delivery_count) for record in records) == [(value, 1) for value in "abcd"]
            assert len(slow.calls) == 5  # only the call that was cancelled was made again
            assert (consumer.statistics().unread, consumer.statistics().out) == (0, 4)

    run(main)


@on_both
def test_processing_that_is_paused_and_resumed_all_the_time_handles_every_job_once(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(*map(str, range(200)), partitions=4)
        handled: list[str] = []
        all_done = anyio.Event()

        async def handle(record: Any) -> None:
            handled.append(record.value)
            if len(handled) == 200:
                all_done.set()

        async with _member(cluster, Slow()) as consumer, consumer.processing(handle, concurrency=5) as processing:
            with anyio.fail_after(60):
                while not all_done.is_set():
                    processing.pause()
                    await anyio.sleep(0.003)
                    processing.resume()
                    with anyio.move_on_after(0.007):
                        await all_done.wait()
            await processing.drain()
            assert (consumer.statistics().unread, consumer.statistics().lost, consumer.statistics().accepted) == (0, 0, 200)
        assert sorted(handled, key=int) == list(map(str, range(200)))

    run(main)


@on_both
def test_reads_that_are_cancelled_everywhere_lose_and_repeat_nothing(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(*map(str, range(60)), partitions=3)
        found: list[tuple[str, int]] = []
        async with _member(cluster, Slow()) as consumer:
            with anyio.fail_after(60):
                for attempt in itertools.count():
                    if len(found) == 60:
                        break
                    with anyio.move_on_after(0.0005 * (attempt % 9 + 1)):
                        for records in (await consumer.getmany(timeout_ms=100, max_records=7)).values():
                            found += [(record.value, record.delivery_count) for record in records]
            assert consumer.statistics().unread == 0
        assert sorted(found) == sorted((str(number), 1) for number in range(60))

    run(main)


@on_both
def test_two_tasks_that_read_with_a_slow_deserializer_share_the_records(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(*map(str, range(30)))
        found: list[str] = []

        async with _member(cluster, Slow()) as consumer, anyio.create_task_group() as tasks:

            async def read() -> None:
                while len(found) < 30:
                    with anyio.move_on_after(1):
                        record = await consumer.getone()
                        record.accept()
                        found.append(record.value)

            for _ in range(2):
                tasks.start_soon(read)
        assert sorted(found, key=int) == list(map(str, range(30)))

    run(main)


@on_both
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_bad_record_is_reported_once_and_its_neighbours_are_returned(run: Run, cancelled: bool) -> None:
    async def main() -> None:
        cluster = _filled("a", "bad", "c")
        slow = Slow(gate_at=2)
        found: list[str] = []
        errors: list[bytes] = []
        async with _member(cluster, slow) as consumer:
            if cancelled:
                await _cancelled_at(slow, lambda: consumer.getmany(timeout_ms=1000))
            slow.gate.set()
            for _ in range(8):
                try:
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        for record in records:
                            found.append(record.value)
                            record.accept()
                except DeserializationError as error:
                    errors.append(error.record.value)
            await consumer.flush()
            assert (found, errors) == (["a", "c"], [b"bad"])
            told = consumer.statistics()
            assert (told.accepted, told.released, told.rejected, told.unread, told.out) == (2, 1, 1, 0, 0)

    run(main)


@on_both
def test_a_deserializer_that_asks_for_another_attempt_holds_nothing_back_for_good(run: Run) -> None:
    class DownError(Exception):
        retriable = True

    async def main() -> None:
        cluster = _filled("a", "b", "c")
        down = True

        async def read_value(data: bytes) -> bytes:
            if data == b"b" and down:
                raise DownError
            return data

        async with _member(cluster, read_value) as consumer:
            assert (await consumer.getone()).value == b"a"
            for _ in range(2):
                with pytest.raises(DownError):
                    await consumer.getone()
            down = False
            assert [(await consumer.getone()).value for _ in range(2)] == [b"b", b"c"]

    run(main)


@on_both
def test_a_topic_that_is_unsubscribed_while_its_record_is_deserialized_is_not_returned(run: Run) -> None:
    async def main() -> None:
        cluster = _filled("a", "b")
        cluster.topic("others", partitions=1)
        cluster.produce("others", value="x")
        slow = Slow(gate_at=1)
        async with _member(cluster, slow) as consumer:
            found: list[Any] = []

            async def read() -> None:
                found.append((await consumer.getone()).value)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await slow.at_gate.wait()
                consumer.subscribe(["others"])
                slow.gate.set()
            assert found == ["x"]
            assert consumer.statistics().unread == 0
        async with _member(cluster, Slow()) as other:
            with anyio.fail_after(10):
                assert [(await other.getone()).value for _ in range(2)] == ["a", "b"]

    run(main)


@on_both
def test_a_tiny_buffer_gets_records_that_grow_when_they_are_decompressed(run: Run) -> None:
    async def main() -> None:
        cluster = _filled()
        for _ in range(12):
            cluster.produce("jobs", value="x" * 200_000, compression="gzip")
        async with _member(cluster, None, fetch_buffer_bytes=500) as consumer:
            with anyio.fail_after(60):
                for _ in range(12):
                    (await consumer.getone()).accept()

    run(main)
