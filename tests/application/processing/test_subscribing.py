"""The subscription changes while handlers run: on a fake cluster, under virtual time."""

import logging
from collections import Counter
from collections.abc import Collection
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from kafka_async import ConsumerRebalanceListener, TopicPartition
from kafka_async.errors import CoordinatorLoadInProgressError
from kafka_async.wire import Api
from tests.application.support import consumer_on, virtual

from .world import GROUP, Record, until, world


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@virtual
async def test_a_subscription_that_is_made_anew_during_a_read_drains_and_commits_what_leaves(protocol: str) -> None:
    """The read that carries the rebalance out began before ``subscribe``, which puts another listener in our place."""
    some = world()
    (other,) = some.cluster.create_topic("u", 1)
    some.produce(200, keys=10)
    some.cluster.produce(other, *map(str, range(50)))
    done: Counter[str] = Counter()

    async def handle(record: Record) -> None:
        await anyio.sleep(0.1)
        done[record.topic] += 1

    options = {"group_protocol": protocol, "auto_commit_interval_ms": 100_000}
    async with some.consumer(**options) as consumer, consumer.processing(handle):
        await until(lambda: done["t"] > 50)
        consumer.subscribe(["u"])
        await until(lambda: done["u"] == 50)
        left_at = done["t"]
        assert some.committed() == left_at
        consumer.subscribe(["t", "u"])
        await until(lambda: done["t"] == 200)
        consumer.unsubscribe()
        await until(lambda: some.committed() == 200)
        consumer.subscribe(["t"])
        some.produce(5)
        await until(lambda: done["t"] == 205)
    assert done == {"t": 205, "u": 50}, "nothing was handled twice"
    assert (some.committed(), some.cluster.committed[GROUP, other]) == (205, 50)


@pytest.mark.parametrize("ending", ["the end of the block", "drain", "an error"])
@virtual
async def test_what_is_done_is_committed_if_the_block_ends_right_after_unsubscribe(
    ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The call-back of ``unsubscribe`` commits, and so does the end: each waited for the other, and nothing was committed."""
    some = world()
    some.produce(20, keys=20)
    some.seconds = lambda record: 1.0 if record.offset >= 10 else 0.1
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 100_000}

    async def use(consumer: Any) -> None:
        async with consumer.processing(some.handle, concurrency=4) as run:
            await until(lambda: sum(record.offset < 10 for record in some.done) == 10 and len(some.started) > len(some.done))
            consumer.unsubscribe()
            if ending == "drain":
                await run.drain()
            elif ending == "an error":
                raise ArithmeticError

    async with some.consumer(**options) as consumer:
        began = anyio.current_time()
        if ending == "an error":
            with pytest.raises(ArithmeticError):
                await use(consumer)
        else:
            await use(consumer)
        assert anyio.current_time() - began < 4
        assert some.committed() == len(some.done) > 10
        assert not caplog.records
        consumer.subscribe(["t"])
        left = 20 - len(some.done)
        while left:
            left -= len(await consumer.getmany(timeout_ms=1_000, max_records=1))
        await anyio.sleep(101)
        await consumer.getmany(timeout_ms=100)
        await until(lambda: some.committed() == 20)


@pytest.mark.slow
@virtual
async def test_the_consumer_commits_by_itself_again_though_a_listener_takes_long_to_hear_of_unsubscribe() -> None:
    some = world()
    some.produce(20, keys=20)
    some.seconds = lambda record: 10_000.0 if record.offset == 5 else 0.01

    class SlowListener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await anyio.sleep(100)

    async with some.consumer(enable_auto_commit=True, auto_commit_interval_ms=500) as consumer:
        consumer.subscribe(["t"], listener=SlowListener())
        async with consumer.processing(some.handle, drain_timeout_ms=0):
            await until(lambda: len(some.done) == 19)
            consumer.unsubscribe()
            began = anyio.current_time()
        assert anyio.current_time() - began < 5, "what is done was committed, and the rest is not waited for"
        assert some.committed() == 5
        consumer.subscribe(["t"])
        found = list[int]()
        with anyio.fail_after(300):
            while 19 not in found:
                for records in (await consumer.getmany(timeout_ms=1_000)).values():
                    found += [record.offset for record in records]
        assert found[0] == 5
        await anyio.sleep(1)
        await consumer.getmany(timeout_ms=1_000)
        assert some.committed() == 20


@pytest.mark.parametrize("next_one", [False, True])
@virtual
async def test_the_listener_that_was_there_hears_of_unsubscribe(next_one: bool) -> None:
    some = world()
    some.cluster.create_topic("u", 1)
    some.produce(5)
    heard: list[tuple[str, str, list[str]]] = []

    class Listener(ConsumerRebalanceListener):
        def __init__(self, name: str) -> None:
            self.name = name

        async def on_partitions_revoked(self, revoked: Any) -> None:
            heard.append((self.name, "revoked", [tp.topic for tp in revoked]))

        async def on_partitions_assigned(self, assigned: Any) -> None:
            heard.append((self.name, "assigned", [tp.topic for tp in assigned]))

    async with some.consumer() as consumer:
        consumer.subscribe(["t"], listener=Listener("first"))
        async with consumer.processing(some.handle):
            await until(lambda: len(some.done) == 5)
            consumer.unsubscribe()
            if next_one:
                consumer.subscribe(["u"], listener=Listener("second"))
                await until(lambda: ("second", "assigned", ["u"]) in heard)
            await anyio.sleep(1)
        assert heard == [("first", "revoked", ["t"]), *([("second", "assigned", ["u"])] if next_one else [])]


@pytest.mark.parametrize("ending", ["the end of the block", "stop", "drain"])
@pytest.mark.parametrize("kept", [0, 1])
@virtual
async def test_what_is_done_of_partitions_that_are_assigned_no_longer_is_committed_and_holds_up_no_other(
    ending: str, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    some = world(2)
    for partition in range(2):
        some.produce(20, keys=20, partition=partition)
    some.seconds = lambda record: 5.0 if record.offset >= 10 else 0.1
    consumer = consumer_on(some.cluster, group_id=GROUP, enable_auto_commit=False, auto_commit_interval_ms=100_000)
    consumer.assign(some.partitions)
    async with consumer, consumer.processing(some.handle, concurrency=4) as run:
        await until(lambda: sum(record.offset < 10 for record in some.done) == 20)
        started = len(some.started)
        if kept:
            consumer.assign(some.partitions[1:])
        else:
            consumer.unsubscribe()
        if ending == "stop":
            await consumer.stop()
        elif ending == "drain":
            await run.drain()
            assert some.committed(1) == (20 if kept else 10)
    begun = [record.partition for record in some.started[started:]]
    assert 0 not in begun, "nothing of a partition that has left is begun"
    assert some.committed(0) == 10
    assert some.committed(1) == (10 if not kept else 20 if ending == "drain" else 12)
    assert "could not be committed" not in caplog.text


@pytest.mark.slow
@virtual
async def test_processing_that_ends_within_an_eager_rebalance_leaves_what_was_not_done() -> None:
    """What left in it stands past all that was received, and is committed by nobody."""
    some = world(4)
    for partition in range(4):
        some.produce(200, keys=20, partition=partition)
    some.seconds = lambda record: 0.1
    left = anyio.Event()

    class SlowListener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                left.set()
                await anyio.sleep(1)

    options = {"group_protocol": "classic", "enable_auto_commit": True, "auto_commit_interval_ms": 500}
    async with some.consumer(**options) as first, anyio.create_task_group() as others:
        first.subscribe(["t"], listener=SlowListener())
        async with first.processing(some.handle, concurrency=4):
            await until(lambda: len(some.done) > 50)
            second = some.consumer(**options)
            others.start_soon(second.start)
            await left.wait()
        await first.stop()
    try:
        async with second.processing(some.handle):
            await until(lambda: len({(record.partition, record.offset) for record in some.done}) == 800, 300)
    finally:
        await second.stop()


@pytest.mark.slow
@virtual
async def test_processing_that_ends_between_the_two_halves_of_an_eager_rebalance_leaves_what_was_not_done() -> None:
    """What left comes back as it was, past all that was received: the consumer's own commits would cover what is not done."""
    some = world(4)
    for partition in range(4):
        some.produce(200, keys=20, partition=partition)
    some.seconds = lambda record: 0.1
    options = {"group_protocol": "classic", "enable_auto_commit": True, "auto_commit_interval_ms": 500}
    found: set[tuple[int, int]] = set()
    async with some.consumer(**options) as first, some.consumer(**options) as idle:

        async def read() -> None:
            for consumer in (first, idle):
                for records in (await consumer.getmany(timeout_ms=100, max_records=1)).values():
                    found.update((record.partition, record.offset) for record in records)

        await read()  # a member that was never read from would hold nothing up
        while not (first.assignment() and idle.assignment()):
            await read()
        before = set(first.assignment())
        async with first.processing(some.handle, concurrency=4):
            await until(lambda: len(some.done) > 50)
            refused = CoordinatorLoadInProgressError.errno
            commits_again = some.cluster.control(Api.OFFSET_COMMIT, lambda broker, request: refused, keep=True)
            passing = some.consumer(**options)
            async with anyio.create_task_group() as others:
                others.start_soon(passing.start)
                await until(lambda: not first.assignment())
                await anyio.sleep(10)  # the call-back has returned, and the idle one holds up the rest of the rebalance
                others.cancel_scope.cancel()
        commits_again()
        with anyio.fail_after(100):
            while len(found | {(record.partition, record.offset) for record in some.done}) < 800:
                await read()
        assert first.assignment() == before


@pytest.mark.parametrize("within", [True, False])
@virtual
async def test_a_partition_that_came_back_and_leaves_again_keeps_its_map_when_processing_ends(within: bool) -> None:
    """What was sought back to the committed offset was committed once more, without the map: 197 of 4,000 were handled again."""
    some = world(2)
    for partition in range(2):
        some.produce(20, partition=partition)
    some.seconds = lambda record: 10_000.0 if record.offset == 5 else 0.01
    options = {"group_protocol": "classic", "enable_auto_commit": True, "auto_commit_interval_ms": 500}
    told: list[Any] = []

    class SlowListener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            told.append(revoked)
            await anyio.sleep(1)

    async with some.consumer(**options) as first, some.consumer(**options) as idle:
        first.subscribe(["t"], listener=SlowListener())
        idle.unsubscribe()
        async with first.processing(some.handle, drain_timeout_ms=0) as run:
            await until(lambda: len(some.done) == 38)
            run.pause()
            async with anyio.create_task_group() as joining:
                joining.start_soon(_joins, idle)
                await until(lambda: bool(idle.assignment()) and len(first.assignment()) == 1)
                joining.cancel_scope.cancel()
            before = [some.metadata(partition) for partition in range(2)]
            assert all(before)
            told.clear()
            async with anyio.create_task_group() as passing:
                passing.start_soon(some.consumer(**options).start)
                await until(lambda: bool(told))
                if not within:
                    await until(lambda: not first.assignment())
                passing.cancel_scope.cancel()
        await first.stop()
        assert [some.committed(partition) for partition in range(2)] == [5, 5]
        assert [some.metadata(partition) for partition in range(2)] == before


async def _joins(consumer: Any) -> None:
    """Join the group and read nothing of it."""
    consumer.subscribe(["t"])
    while True:
        consumer.pause(*consumer.assignment())
        await consumer.getmany(timeout_ms=100, max_records=1)


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 10])
@virtual
async def test_what_an_eager_rebalance_brings_back_is_not_committed_before_reading_goes_back_in_it(turns: int) -> None:
    """It comes back as it was, past all that was received, of which a part is not done."""
    some = world()
    some.produce(200, keys=20)
    some.seconds = lambda record: 0.1
    asked = anyio.Event()
    async with (
        some.consumer(group_protocol="classic", auto_commit_interval_ms=500) as consumer,
        consumer.processing(some.handle, concurrency=4) as run,
    ):
        await until(lambda: len(some.done) > 50)
        some.cluster.control(Api.OFFSET_FETCH, lambda broker, request: asked.set(), keep=True)
        consumer.enforce_rebalance()
        await asked.wait()
        for _ in range(turns):
            await checkpoint()
        await run.drain()
        assert {record.offset for record in some.done} >= set(range(some.committed() or 0))


@pytest.mark.parametrize("turns", range(3))
@virtual
async def test_what_comes_back_with_nothing_new_to_commit_is_not_committed_before_reading_goes_back_in_it(
    turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As it left there was no commit that says how far it is done, so it comes back past all that was received."""
    some = world()
    some.produce(50)
    some.seconds = lambda record: 1_000.0 if record.offset >= 10 else 0.01
    begun = anyio.Event()

    class Noticing(logging.Handler):
        """Sees the moment at which process begins with the partition, since its metadata is another program's."""

        def emit(self, entry: logging.LogRecord) -> None:
            if "metadata of another program" in entry.getMessage():
                begun.set()

    caplog.set_level(logging.INFO)
    log, noticing = logging.getLogger("kafka_async"), Noticing()
    log.addHandler(noticing)
    try:
        async with (
            some.consumer(group_protocol="classic", auto_commit_interval_ms=500) as consumer,
            consumer.processing(some.handle, concurrency=2, drain_timeout_ms=0) as run,
        ):
            await until(lambda: len(some.done) == 10)
            await anyio.sleep(5)
            assert some.committed() == 10
            some.cluster.metadata[GROUP, some.partitions[0]] = "of another program"
            consumer.enforce_rebalance()
            with anyio.fail_after(60):
                await begun.wait()
            for _ in range(turns):
                await checkpoint()
            await run.drain()
            assert some.committed() == 10
    finally:
        log.removeHandler(noticing)


@virtual
async def test_the_position_as_partitions_leave_is_where_they_are_done_up_to_though_nothing_new_is_committed() -> None:
    """A listener that keeps positions, and seeks to them when the partitions come back, passes over no record."""
    some, kept = world(), list[int]()
    some.produce(50)
    some.seconds = lambda record: 1_000.0 if record.offset >= 10 else 0.01

    class Keeping(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            kept.extend([await consumer.position(partition) for partition in revoked])

        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            for partition, position in zip(assigned, kept, strict=False):
                consumer.seek(partition, position)

    async with some.consumer(group_protocol="classic", auto_commit_interval_ms=500) as consumer:
        consumer.subscribe(["t"], listener=Keeping())
        async with consumer.processing(some.handle, concurrency=2, drain_timeout_ms=0):
            await until(lambda: len(some.done) == 10)
            await anyio.sleep(5)
            assert some.committed() == 10
            started = len(some.started)
            consumer.enforce_rebalance()
            await until(lambda: len(some.started) == started + 2)
            assert kept == [10]
            assert [record.offset for record in some.started[started:]] == [10, 11]
            assert some.committed() == 10
