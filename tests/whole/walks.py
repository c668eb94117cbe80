"""Five paths through the package, run in the test kit: in which files does code run meanwhile?

A file of plain data, in which no function runs, is not seen. Nor is compiled code.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from kafka_async import KafkaConsumer, ShareConsumer
from kafka_async.testing import Cluster
from tests.virtual import run_virtual_asyncio

PACKAGE: Final = Path(__file__).parents[2] / "kafka_async"
Passed = set[str]


@contextmanager
def passing() -> Iterator[Passed]:
    """Collect the files of the package in which code runs within the block, without the cluster of the test kit."""
    found: set[str] = set()

    def called(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    passed: Passed = set()
    sys.setprofile(called)
    try:
        yield passed
    finally:
        sys.setprofile(None)
        paths = [Path(name) for name in found]
        names = {path.relative_to(PACKAGE).as_posix() for path in paths if path.is_relative_to(PACKAGE)}
        passed |= {name for name in names if not name.startswith("testing/")}


def _consumer(cluster: Cluster, **options: Any) -> KafkaConsumer[Any, Any]:
    return KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **cluster.options(), **options)


async def _a_record_to_getmany(cluster: Cluster) -> Passed:
    async with _consumer(cluster, enable_auto_commit=False) as consumer:
        for _ in range(2):  # once for what happens only the first time
            read = asyncio.ensure_future(consumer.getmany(timeout_ms=10_000))
            await asyncio.sleep(0.1)
            with passing() as passed:
                cluster.produce("t", value="x")
                await read
        return passed


async def _a_commit(cluster: Cluster) -> Passed:
    async with _consumer(cluster, enable_auto_commit=False) as consumer:
        for _ in range(2):
            cluster.produce("t", value="x")
            await consumer.getmany(timeout_ms=10_000)
            with passing() as passed:
                await consumer.commit()
        return passed


async def _a_record_through_process(cluster: Cluster) -> Passed:
    handled = asyncio.Event()

    async def handle(record: Any) -> None:
        handled.set()

    async with _consumer(cluster, auto_commit_interval_ms=100) as consumer, consumer.processing(handle):
        for _ in range(2):
            await asyncio.sleep(1)
            handled.clear()
            with passing() as passed:
                cluster.produce("t", value="x")
                await handled.wait()
                await asyncio.sleep(0.2)  # which commits
        return passed


async def _an_assignment(cluster: Cluster) -> Passed:
    passed: Passed = set()
    for _ in range(2):
        async with KafkaConsumer[Any, Any](group_id="g", auto_offset_reset="earliest", **cluster.options()) as consumer:
            with passing() as passed:
                consumer.subscribe(["t"])
                while not consumer.assignment():
                    await consumer.getmany(timeout_ms=100)
    return passed


async def _a_job_of_a_share_group(cluster: Cluster) -> Passed:
    async with ShareConsumer[Any, Any]("t", group_id="s", **cluster.options()) as consumer:
        for _ in range(2):
            read = asyncio.ensure_future(consumer.getmany(timeout_ms=10_000))
            await asyncio.sleep(0.1)
            with passing() as passed:
                cluster.produce("t", value="x")
                for records in (await read).values():
                    for record in records:
                        record.accept()
                await consumer.flush()
        return passed


def walks() -> dict[str, Passed]:
    """Return the files of each path."""

    def run(walk: Callable[[Cluster], Awaitable[Passed]]) -> Passed:
        async def main() -> Passed:
            cluster = Cluster()
            cluster.topic("t", partitions=1)
            cluster.group("s", share_auto_offset_reset="earliest")
            return await walk(cluster)

        return run_virtual_asyncio(main)

    return {
        "a record to getmany": run(_a_record_to_getmany),
        "a commit": run(_a_commit),
        "a record through process, and its commit": run(_a_record_through_process),
        "an assignment": run(_an_assignment),
        "a record of a share group, and its acknowledgement": run(_a_job_of_a_share_group),
    }
