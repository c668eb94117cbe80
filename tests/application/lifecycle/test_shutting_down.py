"""A program that shuts down by cancelling every task of its event loop, also those that it did not make."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafka_async import KafkaConsumer, ShareConsumer
from kafka_async.testing.simulation import FakeCluster
from tests.virtual import run_virtual_asyncio

from ..support import filled

KINDS = pytest.mark.parametrize("kind", ["classic", "consumer", "share"])


def _member(cluster: FakeCluster, kind: str) -> Any:
    options: Any = {"bootstrap_servers": cluster.bootstrap_servers, "transport_factory": cluster.network, "group_id": "g"}
    if kind == "share":
        cluster.groups.own["g"] = {"share.auto.offset.reset": "earliest"}
        return ShareConsumer("t", **options)
    options |= {"group_protocol": kind, "auto_offset_reset": "earliest", "auto_commit_interval_ms": 3_600_000}
    return KafkaConsumer("t", **options)


async def _everything_is_cancelled() -> None:
    """The recipe that people copy for SIGTERM."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _run(main: Callable[[], Awaitable[None]]) -> None:
    run_virtual_asyncio(main)


async def _read(member: Any, count: int) -> None:
    while count > 0:
        count -= sum(map(len, (await member.getmany(timeout_ms=1000, max_records=count)).values()))


@KINDS
@pytest.mark.parametrize("leaves", ["the block", "stop"])
def test_a_stop_after_every_task_was_cancelled_commits_and_leaves(kind: str, leaves: str) -> None:
    async def main() -> None:
        cluster, (tp,) = filled(20)

        async def service() -> None:
            if leaves == "the block":
                async with _member(cluster, kind) as member:
                    await _read(member, 20)
                    await member.getmany(timeout_ms=600_000)  # the twenty are done
            else:
                member = _member(cluster, kind)
                await member.start()
                try:
                    await _read(member, 20)
                    await member.getmany(timeout_ms=600_000)
                finally:
                    await asyncio.sleep(1)  # something else is shut down first
                    await member.stop()

        task = asyncio.create_task(service())
        await asyncio.sleep(30)
        assert cluster.groups.members("g")
        await _everything_is_cancelled()
        assert task.cancelled()
        assert cluster.groups.members("g") == []
        if kind != "share":
            assert cluster.groups.offsets.positions["g", tp] == 20

    _run(main)


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_commit_on_the_way_out_counts(kind: str) -> None:
    async def main() -> None:
        cluster, (tp,) = filled(20)

        async def service() -> None:
            member = _member(cluster, kind)
            await member.start()
            try:
                await _read(member, 20)
                await member.getmany(timeout_ms=600_000)
            finally:
                await member.commit({tp: 7})
                await member.stop()

        task = asyncio.create_task(service())
        await asyncio.sleep(1)
        await _everything_is_cancelled()
        assert task.cancelled()
        assert cluster.groups.members("g") == []

    _run(main)


def test_a_reader_that_goes_on_goes_on() -> None:
    """Somebody cancelled a task that is not his, and the readers are none of those."""

    async def main() -> None:
        cluster, (tp,) = filled(20)
        async with _member(cluster, "consumer") as member:
            await _read(member, 20)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)
            cluster.fill(tp, 20)
            await _read(member, 20)
            assert member.alive

    _run(main)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_stop_without_any_time_sends_the_request_to_leave(protocol: str) -> None:
    async def main() -> None:
        cluster, _ = filled(20)
        member = _member(cluster, protocol)
        await member.start()
        await _read(member, 20)
        before = asyncio.get_running_loop().time()
        await member.stop(timeout_ms=0)
        assert asyncio.get_running_loop().time() - before < 1
        await asyncio.sleep(1)
        assert cluster.groups.members("g") == []

    _run(main)
