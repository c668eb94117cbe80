"""Reads at their edges: retriable errors, pauses while records are being deserialized, a stop that ends a wait."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kafka_async.errors import ConsumerStoppedError, DeserializationError, KafkaError

from .support import Ownership, offsets_of, virtual


class RegistryAwayError(Exception):
    """Raised by a deserializer whose registry cannot be reached."""

    retriable = True


class KafkaSaysLaterError(KafkaError):
    """A retriable error of the package's own tree."""

    retriable = True


Read = Callable[[Any], Awaitable[list[int]]]


async def _getone(consumer: Any) -> list[int]:
    return [(await consumer.getone()).offset]


async def _getmany(consumer: Any) -> list[int]:
    batch = await consumer.getmany(timeout_ms=1000)
    return [record.offset for records in batch.values() for record in records]


async def _iterate(consumer: Any) -> list[int]:
    return [(await anext(aiter(consumer))).offset]


READS: dict[str, Read] = {"getone": _getone, "getmany": _getmany, "iterate": _iterate}
every_read = pytest.mark.parametrize("read", READS.values(), ids=READS)


@every_read
@pytest.mark.parametrize("error", [RegistryAwayError, KafkaSaysLaterError])
@virtual
async def test_a_retriable_error_of_a_deserializer_moves_nothing(read: Read, error: type[Exception]) -> None:
    place = Ownership()
    (partition,) = place.topic("t", records=10)
    away = True

    def deserialize(data: bytes) -> bytes:
        if away and data == b"5":
            raise error("try again")
        return data

    async with place.consumer("t", value_deserializer=deserialize) as consumer:
        seen: list[int] = []
        while len(seen) < 5:
            seen += await read(consumer)
        for _ in range(3):
            with pytest.raises(Exception) as raised:  # noqa: PT011  # itself, or a DeserializationError of it
                seen += await read(consumer)
            assert isinstance(raised.value, error) or isinstance(raised.value.__cause__, error)
            assert seen == list(range(5))
            assert await consumer.position(partition) == 5
        await consumer.commit()
        assert place.committed(partition) == 5
        away = False
        while len(seen) < 10:
            seen += await read(consumer)
    assert seen == list(range(10))


@every_read
@virtual
async def test_a_partition_whose_deserializer_says_later_keeps_no_other_one_waiting(read: Read) -> None:
    place = Ownership()
    (stuck,), (well,) = place.topic("stuck"), place.topic("well")
    away = True

    def deserialize(topic: str, headers: object, data: bytes) -> bytes:
        if away and topic == "stuck":
            raise RegistryAwayError
        return data

    async with place.consumer("stuck", "well", value_deserializer=deserialize, max_poll_records=5) as consumer:
        consumer.pause(well)
        with pytest.raises(RegistryAwayError):
            await read(consumer)
        consumer.resume(well)
        await anyio.sleep(1)  # something of it is there
        seen: list[int] = []
        errors = 0
        while len(seen) < 20 and errors < 10:
            try:
                seen += await read(consumer)
            except RegistryAwayError:
                errors += 1
        assert seen == list(range(20))
        assert (await consumer.position(stuck), await consumer.position(well)) == (0, 20)
        away = False
        while len(seen) < 40:
            seen += await read(consumer)
    assert seen == [*range(20), *range(20)]


@every_read
@virtual
async def test_a_poison_record_is_raised_once_whatever_another_task_calls(read: Read) -> None:
    place = Ownership()
    (partition,) = place.topic("t", records=10)

    async def deserialize(data: bytes) -> bytes:
        await anyio.sleep(0.01)
        if data == b"5":
            raise ValueError("poison")
        return data

    seen: list[Any] = []

    async def look(consumer: Any) -> None:
        while True:
            await anyio.sleep(0.007)
            consumer.statistics()
            await consumer.position(partition)
            consumer.current_lag(partition)
            consumer.next_offsets()

    async with place.consumer("t", value_deserializer=deserialize) as consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(look, consumer)
        while len(seen) < 10:
            try:
                seen += await read(consumer)
            except DeserializationError as error:
                seen.append(f"error@{error.record.offset}")
        tasks.cancel_scope.cancel()
    assert seen == [0, 1, 2, 3, 4, "error@5", 6, 7, 8, 9]
    assert place.committed(partition) == 10


@every_read
@virtual
async def test_nothing_comes_of_a_partition_that_was_paused_while_it_was_being_deserialized(read: Read) -> None:
    place = Ownership()
    (partition,) = place.topic("t", records=10)

    async def deserialize(data: bytes) -> bytes:
        await anyio.sleep(0.1)
        return data

    async with place.consumer("t", value_deserializer=deserialize) as consumer, anyio.create_task_group() as tasks:
        came: list[int] = []

        async def reading() -> None:
            came.extend(await read(consumer))

        tasks.start_soon(reading)
        await anyio.sleep(0.15)
        consumer.pause(partition)
        seen = list(came)
        await anyio.sleep(5)
        assert came == seen
        consumer.resume(partition)
        await anyio.sleep(5)
        rest = [] if len(came) == 10 else (await offsets_of(consumer, 10 - len(came)))[partition]
        assert came + rest == list(range(10))


@virtual
async def test_a_getmany_that_waits_returns_nothing_when_the_consumer_stops() -> None:
    place = Ownership()
    place.topic("t", records=0)
    consumer = place.consumer("t")
    await consumer.start()
    results: list[Any] = []

    async def many() -> None:
        results.append(await consumer.getmany(timeout_ms=60_000))

    async def one() -> None:
        try:
            await consumer.getone()
        except ConsumerStoppedError as error:
            results.append(type(error))

    async def iterate() -> None:
        results.append([record async for record in consumer])

    async with anyio.create_task_group() as tasks:
        for read in (many, one, iterate):
            tasks.start_soon(read)
        await anyio.sleep(1)
        await consumer.stop()
    assert sorted(map(repr, results)) == sorted(map(repr, [{}, ConsumerStoppedError, []]))
    with pytest.raises(ConsumerStoppedError):
        await consumer.getmany()


@pytest.mark.slow
@virtual
async def test_records_that_come_one_by_one_with_a_commit_each_are_deserialized_once() -> None:
    place = Ownership()
    place.topic("t", records=200)
    count = 0
    shown: list[int] = []

    def deserialize(data: bytes) -> bytes:
        nonlocal count
        count += 1
        return data

    class Counting:
        def on_consume(self, records: Any) -> Any:
            shown.extend(record.offset for some in records.values() for record in some)
            return records

        def on_commit(self, offsets: Any) -> None:
            """Commits are not counted."""

    async with place.consumer("t", value_deserializer=deserialize, interceptors=(Counting(),)) as consumer:
        records = aiter(consumer)
        for offset in range(200):
            assert (await anext(records)).offset == offset
            await consumer.commit()
    assert count == 200
    assert shown == list(range(200))


@pytest.mark.parametrize("read", ["async for", "getone"])
@pytest.mark.parametrize("ends", ["cancelled", "still at work"])
@virtual
async def test_what_a_task_has_done_is_committed_whichever_task_stops(read: str, ends: str) -> None:
    """All but its current record: asking for the next one means that the one before is done."""
    place = Ownership()
    (partition,) = place.topic("t", records=100)
    seen: list[int] = []

    async def work(consumer: Any) -> None:
        records = aiter(consumer)
        while True:
            record = await (anext(records) if read == "async for" else consumer.getone())
            seen.append(record.offset)
            if len(seen) == 53:
                await anyio.sleep(3600)

    async with anyio.create_task_group() as tasks:
        async with place.consumer("t") as consumer:
            tasks.start_soon(work, consumer)
            await anyio.sleep(1)
            if ends == "cancelled":
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(1)
                    await consumer.stop()
        tasks.cancel_scope.cancel()
    assert len(seen) == 53
    assert place.committed(partition) == 52


@pytest.mark.slow
@pytest.mark.parametrize("idle", [0.0, 12.0], ids=["at once", "after a silence"])
@pytest.mark.parametrize("read", [_getone, _iterate], ids=["getone", "iterate"])
@virtual
async def test_auto_commit_keeps_its_pace_through_all_that_was_fetched_at_once(read: Read, idle: float) -> None:
    """A check that sends a commit, or finds nothing to commit, is not the last one before the fetched records end."""
    place = Ownership()
    (partition,) = place.topic("t", records=0)
    behind: list[int] = []
    async with place.consumer("t", auto_commit_interval_ms=5000) as consumer, anyio.create_task_group() as tasks:
        if idle:
            tasks.start_soon(consumer.getone)
            await anyio.sleep(idle)
        place.cluster.fill(partition, 60, per_batch=60)
        for _ in range(50):
            (offset,) = await read(consumer)
            await anyio.sleep(1.0)
            behind.append(offset - (place.committed(partition) or 0))
    assert max(behind) <= 7
