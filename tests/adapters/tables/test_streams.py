"""Readings that end early, on whatever thread, in whatever loop."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_async.adapters.tables.streams import Opened
from kafka_async.errors import ConsumerStoppedError
from kafka_async.testing import HANG
from kafka_async.wire import Api

from .support import Scanned, filled


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def threads() -> int:
    gc.collect()
    return sum(thread.name.startswith("kafka_async") for thread in threading.enumerate())


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for less than the 60 seconds after which a reading that was not ended gives up by itself."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        threading.Event().wait(0.01)


@pytest.fixture
def many() -> Any:
    with filled(1000, partitions=3) as found:
        yield found


def of_a_loop(table: Any) -> None:
    for batch in table:
        assert batch.num_rows
        break


def of_a_reader(table: Any) -> None:
    reader = table.to_arrow_batch_reader()
    assert reader.read_next_batch().num_rows
    del reader


def of_a_stream(table: Any) -> None:
    reader = pa.RecordBatchReader.from_stream(table)
    assert reader.read_next_batch().num_rows
    reader.close()


def of_a_failing_callback(table: Any) -> None:
    def failing() -> None:
        for _ in table:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()


def of_a_head(table: Any) -> None:
    assert table.head(5).num_rows == 5


@pytest.mark.slow
@pytest.mark.parametrize("leave", [of_a_loop, of_a_reader, of_a_stream, of_a_failing_callback, of_a_head])
def test_what_is_left_early_leaves_nothing_open(many: Scanned, leave: Callable[[Any], None]) -> None:
    table = many.scan("a", fetch_max_bytes=2000, max_partition_fetch_bytes=2000)
    table.count()
    before = threads()
    assert before == 0
    leave(table)
    assert threads() == 0
    assert table.count() == 3000


@pytest.mark.slow
def test_no_file_stays_open(many: Scanned) -> None:
    table = many.scan("a")
    table.count()
    wait_until(lambda: not threads())
    before = open_files()
    for _ in range(5):
        of_a_loop(table)
        table.count()
    wait_until(lambda: open_files() <= before + 1)  # the cluster closes its ends later


async def test_iteration_in_a_loop(many: Scanned) -> None:
    table, seen = many.scan("a"), 0
    async for batch in table:
        seen += batch.num_rows
    assert seen == 3000
    assert table.count() == 3000, "blocking, also where a loop runs"


async def test_the_loop_goes_on_while_a_scan_waits(many: Scanned) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticking = asyncio.ensure_future(tick())
    async for _ in many.scan("a"):
        pass
    ticking.cancel()
    assert ticks > 3


@pytest.mark.slow
async def test_leaving_an_iteration_of_a_loop_leaves_nothing_open(many: Scanned) -> None:
    batches = aiter(many.scan("a", fetch_max_bytes=2000))
    assert (await anext(batches)).num_rows
    await batches.aclose()  # type: ignore[attr-defined]  # a generator
    assert threads() == 0


@pytest.mark.slow
async def test_a_cancelled_iteration_ends_its_reading(many: Scanned) -> None:
    many.do(lambda cluster: cluster.control(Api.FETCH, lambda *_: HANG, keep=True))

    async def reading() -> None:
        async for _ in many.scan("a"):
            pass

    task = asyncio.ensure_future(reading())
    await asyncio.sleep(0.3)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 30  # 60 if it waited until the reading gives up
    await asyncio.to_thread(wait_until, lambda: threads() == 0)


async def test_two_scans_at_once(many: Scanned) -> None:
    table = many.scan("a")

    async def count() -> int:
        return sum([batch.num_rows async for batch in table])

    assert {*await asyncio.gather(count(), count(), asyncio.to_thread(table.count))} == {3000}


@pytest.mark.slow
def test_a_reading_is_closed_from_another_thread(many: Scanned) -> None:
    many.do(lambda cluster: cluster.control(Api.METADATA, lambda *_: HANG, keep=True))
    opened, caught = Opened(), []

    def connect() -> None:
        try:
            with opened.consumer({"bootstrap_servers": many.served.bootstrap}):
                pass
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    wait_until(lambda: threads() > 0)
    opened.close()
    thread.join(10)
    assert not thread.is_alive()
    assert [type(error) for error in caught] == [ConsumerStoppedError]
    with pytest.raises(ConsumerStoppedError, match="the scan was stopped"), opened.consumer({}):
        pass
