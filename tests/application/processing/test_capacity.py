"""How much is held: in records, in bytes, and ahead of the oldest record that is not done."""

from typing import Any

import anyio
import pytest

from kafka_async import ConsumerRecord, KafkaConsumer, ShareConsumer
from kafka_async.application.processing.capacity import Room
from kafka_async.application.processing.work import step_of
from kafka_async.testing import Cluster
from tests.application.support import virtual

from .support import OTHER, TP, record, records, work


def large(offset: int, size: int) -> ConsumerRecord[Any, Any]:
    return record(offset, b"k")._replace(serialized_value_size=size)


def test_records_that_fit_are_not_counted_in_bytes() -> None:
    room = Room(100, 10_000)
    room.receive([10, 100])

    def counted() -> int:
        raise AssertionError

    assert room.limit(90, 10, counted) == 90


@pytest.mark.parametrize(("held", "room_left"), [(0, 10), (5_000, 5), (9_999, 1), (10_000, 0), (20_000, 0)])
def test_there_is_room_for_as_many_as_fit(held: int, room_left: int) -> None:
    room = Room(100, 10_000)
    room.receive([1_000, 1_000])
    assert room.limit(50, 10, lambda: held) == room_left


def test_one_record_fits_always_if_none_is_held() -> None:
    room = Room(100, 10)
    room.receive([1_000])
    assert room.limit(50, 0, lambda: 0) == 1


def test_what_is_done_gives_its_bytes_back() -> None:
    some = work(most=Room(100, 10_000))  # type: ignore[arg-type]  # a number would be one of records
    some.receive(TP, [large(offset, 999) for offset in range(10)], 0.0)
    assert some.intake().limit == 0
    first, *others = [item for _ in range(10) if (item := some.take()) is not None]
    for item in others[:4]:
        some.succeeded(item, 0.0)
    assert some.intake().limit == 4
    some.succeeded(first, 0.0)
    assert some.intake().limit == 5


def test_one_large_record_takes_nothing_of_the_bound_in_records() -> None:
    """Each partition that held none got one more although room was full, and a read was made for each record that was done."""
    some = work(most=Room(10, 10_000))  # type: ignore[arg-type]  # a number would be one of records
    some.assign(TP)
    some.assign(OTHER)
    some.receive(TP, [large(0, 2_000), *records(range(1, 10))], 0.0)
    intake = some.intake()
    assert (intake.limit, intake.step, intake.most) == (0, step_of(10), 10)


def test_the_records_done_ahead_are_limited_whatever_one_intake_could_bring() -> None:
    """With 5,000 handlers 50,000 records are held; once 9,999 were done ahead, one more intake brought 40,000."""
    some = work(most=50_000, keep_done=False)
    done, offset = 0, 0
    oldest = None
    while True:
        intake = some.intake()
        if not intake.limit or TP in intake.waiting:
            break
        some.receive(TP, records(range(offset, offset + intake.limit)), 0.0)
        offset += intake.limit
        while (item := some.take()) is not None:
            if oldest is None:
                oldest = item
            else:
                some.succeeded(item, 0.0)
                done += 1
    assert 9_000 <= done <= 10_000


@virtual
async def _holds_no_more(kind: Any, size: int, most: int) -> None:
    cluster = Cluster()
    cluster.topic("jobs", partitions=1)
    cluster.group("workers", share_auto_offset_reset="earliest")
    for number in range(60):
        cluster.produce("jobs", key=str(number), value=b"x" * size)
    more = {"auto_offset_reset": "earliest"} if kind is KafkaConsumer else {}
    done: list[Any] = []
    peak = 0

    async def handle(record: Any) -> None:
        nonlocal peak
        told = run.statistics()
        peak = max(peak, told.running + told.waiting)
        await anyio.sleep(1)
        done.append(record)

    options: dict[str, Any] = {"group_id": "workers", "fetch_buffer_bytes": 3 * size, **cluster.options(), **more}
    async with kind("jobs", **options) as consumer, consumer.processing(handle, concurrency=20, max_held_bytes=10 * size) as run:
        with anyio.fail_after(500):
            while len(done) < 60:  # noqa: ASYNC110 - time is virtual
                await anyio.sleep(0.5)
    assert 5 <= peak <= most, "nine fit, and what was fetched ahead before it was known how large they are"


@pytest.mark.parametrize("kind", [KafkaConsumer, ShareConsumer])
def test_what_is_held_is_limited_in_bytes(kind: Any) -> None:
    _holds_no_more(kind, 10_000, 15)


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), ("1", TypeError), (1.5, TypeError)])
def test_a_bad_limit_is_named(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"max_held_bytes={value!r}"):
        KafkaConsumer("t", group_id="g").processing(print, max_held_bytes=value)
