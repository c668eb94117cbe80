"""What whoever reports on this process is told of its consumers."""

import re
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kafka_async.adapters.workers.reports import report_of
from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.errors import IllegalStateError, NoBrokersAvailable
from kafka_async.model import ConsumerState
from kafka_async.started import started
from kafka_async.testing import HANG, Api, Cluster
from tests.testing.test_clusters import Run, on_both

from .support import consumer_on, filled, virtual


def names_of(*consumers: Any) -> list[str]:
    """Return the names of those that are started."""
    found = {consumer: name for name, consumer, _ in started()}
    return [found.get(consumer, "") for consumer in consumers]


def is_ready(*consumers: Any) -> bool:
    """Whether a process with these consumers is ready."""
    return report_of([told for told in started() if told[1] in consumers], 0).assigned_once


@virtual
async def test_a_consumer_keeps_its_name_when_another_with_its_id_stops() -> None:
    cluster, _ = filled()
    first, second, third = (consumer_on(cluster, "t", client_id="billing") for _ in range(3))
    await first.start()
    async with second:
        assert names_of(first, second) == ["billing", "billing-2"]
        await first.stop()
        assert names_of(first, second) == ["", "billing-2"]
        async with third:
            assert names_of(second, third) == ["billing-2", "billing"], "it follows the one that has stopped"


@virtual
async def test_a_consumer_that_could_not_start_has_its_name_when_it_can() -> None:
    cluster, _ = filled()
    first, second = (consumer_on(cluster, "t", client_id="billing") for _ in range(2))
    cluster.stop(0)
    with pytest.raises(NoBrokersAvailable):
        await first.start()
    cluster.start(0)
    async with second, first:
        assert names_of(first, second) == ["billing", "billing-2"]


async def start_that_fails(consumer: Any) -> None:
    """Start one that hears nothing from its group."""
    with anyio.move_on_after(1):
        await consumer.start()


async def until_undone(consumer: Any) -> None:
    """Wait until its failed start is being undone."""
    while consumer.state is not ConsumerState.CLOSED:  # noqa: ASYNC110 - as a health check does
        await anyio.sleep(0.01)


@virtual
async def test_a_consumer_whose_name_is_taken_while_its_failed_start_is_undone_gets_another() -> None:
    cluster, _ = filled()
    first = consumer_on(cluster, "t", client_id="billing", group_id="g")
    second = consumer_on(cluster, "t", client_id="billing")
    listen = cluster.control(Api.CONSUMER_GROUP_HEARTBEAT, lambda _broker, _request: HANG, keep=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start_that_fails, first)
        await until_undone(first)
        await second.start()
        assert first.state is ConsumerState.CLOSED, "the start is still being undone"
    listen()
    async with first:
        assert names_of(first, second) == ["billing-2", "billing"]
    await second.stop()


@virtual
async def test_a_consumer_that_is_started_twice_keeps_its_name() -> None:
    cluster, _ = filled()
    failing = consumer_on(cluster, "t", client_id="billing", group_id="g")
    running = consumer_on(cluster, "t", client_id="billing")
    cluster.control(Api.CONSUMER_GROUP_HEARTBEAT, lambda _broker, _request: HANG, keep=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start_that_fails, failing)
        await until_undone(failing)
        await running.start()
    assert failing.state is ConsumerState.NEW
    with pytest.raises(IllegalStateError):
        await running.start()
    assert names_of(running) == ["billing"]
    await running.stop()


@virtual
async def test_a_name_that_looks_numbered_is_given_once() -> None:
    cluster, _ = filled()
    consumers = [consumer_on(cluster, "t", client_id=name) for name in ("audit", "audit", "audit-2")]
    for consumer in consumers:
        await consumer.start()
    assert names_of(*consumers) == ["audit", "audit-2", "audit-2-2"]
    for consumer in consumers:
        await consumer.stop()


@virtual
async def test_a_consumer_that_only_asks_is_not_waited_for() -> None:
    cluster, (tp,) = filled()
    async with consumer_on(cluster) as asking:
        assert not is_ready(asking), "the program may not have subscribed yet"
        async with consumer_on(cluster, "t", group_id="g") as reading:
            assert await asking.end_offsets([tp]) == {tp: 20}
            assert is_ready(asking, reading)
        asking.assign([tp])
        assert is_ready(asking)


@pytest.mark.slow
@virtual
async def test_a_consumer_whose_pattern_matches_nothing_yet_is_waited_for() -> None:
    cluster, _ = filled()
    late = consumer_on(cluster, group_id="late")
    late.subscribe(pattern=re.compile("none"))
    async with consumer_on(cluster, "t", group_id="g") as reading, anyio.create_task_group() as tasks:
        tasks.start_soon(late.start)
        while late.state is ConsumerState.NEW:
            await anyio.lowlevel.checkpoint()
        assert (is_ready(reading), is_ready(reading, late)) == (True, False)
        await anyio.sleep(60)
        assert is_ready(reading, late), "it was told that there are no partitions"
        await late.stop()


@on_both
def test_a_share_consumer_is_waited_for(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("jobs", partitions=1)
        consumer: ShareConsumer[Any, Any] = ShareConsumer(group_id="workers", **cluster.options())
        async with consumer:
            assert not is_ready(consumer)

    run(main)
