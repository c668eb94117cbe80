"""What is done and could not be committed comes again: whatever ends the processing says so, once."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kafka_async.errors import CoordinatorLoadInProgressError
from kafka_async.testing.simulation import FakeBroker
from kafka_async.wire import Api
from tests.application.support import Consumer, consumer_on, virtual

from .world import GROUP, World, until, world

SAID = "consumed offsets could not be committed"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.levelname for entry in caplog.records if SAID in entry.message]


def refuse(some: World) -> Callable[[], None]:
    """Refuse every commit for now, as a coordinator does that still loads the offsets."""

    def loading(broker: FakeBroker, request: Any) -> int:
        return CoordinatorLoadInProgressError.errno

    return some.cluster.control(Api.OFFSET_COMMIT, loading, keep=True)


def assigned(some: World, **options: Any) -> Consumer:
    """A consumer whose partitions the user assigned: nothing is called back at the end."""
    consumer = consumer_on(some.cluster, group_id=GROUP, **options)
    consumer.assign(some.partitions)
    return consumer


OPTIONS = {"auto_commit_interval_ms": 600_000, "request_timeout_ms": 6_000, "default_api_timeout_ms": 6_000}


@pytest.mark.parametrize("auto_commit", [True, False], ids=["auto-commit", "without it"])
@pytest.mark.parametrize("who", ["subscribed", "assigned"])
@pytest.mark.parametrize("how", ["stop", "cancelled", "left", "aborted", "failed"])
@virtual
async def test_every_end_says_once_that_what_was_done_could_not_be_committed(
    how: str, who: str, auto_commit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    some = world()
    some.produce(10)
    consumer = (some.consumer if who == "subscribed" else lambda **options: assigned(some, **options))(
        **OPTIONS, enable_auto_commit=auto_commit
    )
    await consumer.start()
    scope = anyio.CancelScope()

    async def process() -> None:
        with scope:
            await consumer.process(some.handle)

    async with anyio.create_task_group() as tasks:
        if how in ("stop", "cancelled"):
            tasks.start_soon(process)
            await until(lambda: len(some.done) == 10)
            some.cluster.stop(0)
            if how == "cancelled":
                scope.cancel()
                await until(lambda: scope.cancelled_caught)
            await consumer.stop()
        else:
            try:
                async with consumer.processing(some.handle) as run:
                    await until(lambda: len(some.done) == 10)
                    some.cluster.stop(0)
                    if how == "aborted":
                        run.abort()
                    if how == "failed":
                        raise ZeroDivisionError
            except ZeroDivisionError:
                pass
            await consumer.stop()
    assert some.committed() is None
    assert said(caplog) == ["WARNING"]


@pytest.mark.parametrize("timeout_ms", [0, 2_000])
@virtual
async def test_a_stop_that_may_take_no_time_says_it_too(timeout_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    some = world()
    some.produce(10)
    async with some.consumer(**OPTIONS) as consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.process, some.handle)
        await until(lambda: len(some.done) == 10)
        some.cluster.stop(0)
        await consumer.stop(timeout_ms)
    assert said(caplog) == ["WARNING"]


@pytest.mark.parametrize("how", ["nothing came", "nothing was done", "all is committed"])
@virtual
async def test_an_end_in_an_outage_says_nothing_if_nothing_comes_again(how: str, caplog: pytest.LogCaptureFixture) -> None:
    some = world()
    some.produce(0 if how == "nothing came" else 10)
    some.seconds = lambda record: 0.01 if how == "all is committed" else 1_000
    interval = 100 if how == "all is committed" else 600_000
    consumer = some.consumer(**{**OPTIONS, "auto_commit_interval_ms": interval})
    async with consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: consumer.process(some.handle, drain_timeout_ms=0))
        await anyio.sleep(5)
        some.cluster.stop(0)
        await consumer.stop()
    assert said(caplog) == []


@virtual
async def test_what_a_revocation_could_not_commit_is_said(caplog: pytest.LogCaptureFixture) -> None:
    some = world(2)
    for partition in range(2):
        some.produce(10, partition=partition)
    async with some.consumer(auto_commit_interval_ms=600_000) as first, first.processing(some.handle):
        await until(lambda: len(some.done) == 20)
        goes_on = refuse(some)
        async with some.consumer():
            await until(lambda: len(first.assignment()) == 1)
            goes_on()
        assert said(caplog) == ["WARNING"]
        (entry,) = [entry for entry in caplog.records if SAID in entry.message]
        (left,) = set(some.partitions) - first.assignment()
        assert str(left.partition) in entry.message.rsplit("t-", 1)[1]
    assert said(caplog) == ["WARNING"], "the other one was committed at the end"


@pytest.mark.parametrize("processes", [True, False])
@virtual
async def test_a_commit_of_what_was_given_up_that_is_under_way_at_the_stop_is_said(
    processes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    some = world()
    some.produce(10)
    consumer = assigned(some, **OPTIONS)
    await consumer.start()
    if processes:
        async with consumer.processing(some.handle):
            await until(lambda: len(some.done) == 10)
            some.cluster.stop(0)
            consumer.assign([])
    else:
        await consumer.getmany(timeout_ms=1_000)
        some.cluster.stop(0)
        consumer.unsubscribe()
    await consumer.stop(1_000)
    assert sum("of partitions that were given up could not be committed" in entry.message for entry in caplog.records) == 1
    assert said(caplog) == []


@virtual
async def test_what_processing_could_not_commit_is_left_to_auto_commit_though_a_record_is_not_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 10_000.0 if record.offset == 5 else 0.01
    async with some.consumer(**OPTIONS, enable_auto_commit=True) as consumer:
        async with consumer.processing(some.handle, drain_timeout_ms=0):
            await until(lambda: len(some.done) == 9)
            goes_on = refuse(some)
        assert some.committed() is None
        goes_on()
    assert some.committed() == 5
    assert said(caplog) == []


@pytest.mark.parametrize("how", ["the last one is known", "an earlier run has committed it"])
@virtual
async def test_auto_commit_does_not_overwrite_a_map_of_done_records_with_an_empty_one(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a partition in which only the map has grown, it has nothing to commit but the same offset."""
    some = world()
    some.produce(10)
    some.seconds = lambda record: {5: 10_000.0, 9: 20.0}.get(record.offset, 0.01)
    options = {**OPTIONS, "auto_commit_interval_ms": 1_000, "enable_auto_commit": True}
    async with some.consumer(**options) as consumer:
        async with consumer.processing(some.handle, drain_timeout_ms=0):
            await until(lambda: len(some.done) == 8)
            await anyio.sleep(3)
            if how != "an earlier run has committed it":
                goes_on = refuse(some)
                await until(lambda: len(some.done) == 9)
        if how == "an earlier run has committed it":
            goes_on = refuse(some)
            async with consumer.processing(some.handle, drain_timeout_ms=0):
                await until(lambda: len(some.done) == 9)
        assert some.committed() == 5
        stored = some.metadata()
        assert stored
        assert said(caplog) == ["WARNING"], "what was done since comes again"
        goes_on()
        await anyio.sleep(1)
    assert (some.committed(), some.metadata()) == (5, stored)
    some.done.clear()
    some.seconds = lambda record: 0.01
    async with some.consumer() as consumer, consumer.processing(some.handle):
        await anyio.sleep(5)
    assert some.offsets() == [5, 9]


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@virtual
async def test_a_stop_that_cancels_a_revocation_says_what_became_of_its_commit(
    protocol: str, auto_commit: bool, refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It was said that it had failed as soon as the wait for it was cancelled, though it was on its way, and was stored."""
    some = world()
    some.produce(10)
    consumer = some.consumer(**OPTIONS, group_protocol=protocol, enable_auto_commit=auto_commit)
    await consumer.start()
    async with consumer.processing(some.handle):
        await until(lambda: len(some.done) == 10)
        if refused:
            refuse(some)
        consumer.unsubscribe()
        await consumer.stop(0)
    assert some.committed() == (None if refused else 10)
    assert said(caplog) == (["WARNING"] if refused else [])


@pytest.mark.parametrize("auto_commit", [True, False])
@virtual
async def test_a_position_past_a_marker_alone_is_nothing_that_comes_again(
    auto_commit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    some = world()
    some.produce(10)
    options = {**OPTIONS, "auto_commit_interval_ms": 200, "isolation_level": "read_committed", "enable_auto_commit": auto_commit}
    async with some.consumer(**options) as consumer, consumer.processing(some.handle):
        await until(lambda: some.committed() == 10)
        refuse(some)
        some.cluster.log(some.partitions[0]).end_transaction(7, commit=False)
        some.cluster.changed()
        await anyio.sleep(2)
        assert await consumer.position(some.partitions[0]) == 11
        await consumer.stop()
    assert some.committed() == 10
    assert said(caplog) == []
