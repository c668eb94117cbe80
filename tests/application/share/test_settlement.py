"""What ``process`` locks of a share group's records, on the simulated cluster."""

import asyncio
import sys
from collections.abc import Callable
from threading import Event
from types import FrameType
from typing import Any

import anyio
import pytest

from kafka_async.application.processing.processing import Processing
from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.testing import Cluster
from kafka_async.testing.clock import VirtualLoop
from tests.testing.test_clusters import Run, on_both


def _filled(count: int) -> Cluster:
    cluster = Cluster()
    cluster.topic("jobs", partitions=1)
    cluster.group("workers", share_auto_offset_reset="earliest")
    for number in range(count):
        cluster.produce("jobs", value=str(number))
    return cluster


def _member(cluster: Cluster) -> ShareConsumer[Any, Any]:
    return ShareConsumer("jobs", group_id="workers", **cluster.options())


async def _take(consumer: ShareConsumer[Any, Any], count: int) -> dict[int, int]:
    """Return how often each of so many records has been delivered."""
    found: dict[int, int] = {}
    with anyio.fail_after(60):
        while len(found) < count:
            batch = await consumer.getmany(timeout_ms=1_000)
            found |= {record.offset: record.delivery_count for records in batch.values() for record in records}
    return found


@on_both
@pytest.mark.parametrize("by", ["stop", "the end of the block"])
def test_records_that_nobody_handled_cost_one_delivery_when_processing_ends(run: Run, by: str) -> None:
    async def main() -> None:
        cluster = _filled(20)
        begun = anyio.Event()

        async def handle(record: Any) -> None:
            if record.offset >= 20:
                begun.set()
                await anyio.sleep(1)

        async with _member(cluster) as consumer:
            async with consumer.processing(handle, concurrency=3):
                await anyio.sleep(20)  # it is known then that handlers take no time
                for _ in range(20):
                    cluster.produce("jobs", value="job")
                await begun.wait()
                await anyio.sleep(0.1)
                if by == "stop":
                    await consumer.stop()
            if by != "stop":
                await anyio.sleep(0.5)  # nobody reads
        async with _member(cluster) as other:
            deliveries = await _take(other, 17)
        assert set(deliveries) == set(range(23, 40))
        assert max(deliveries.values()) == 2  # of those that had been read ahead

    run(main)


@on_both
@pytest.mark.parametrize("how", [Processing.pause, Processing.drain])
def test_nothing_is_locked_while_processing_rests_and_all_is_handled_afterwards(run: Run, how: Callable[[Any], Any]) -> None:
    async def main() -> None:
        cluster = _filled(10)
        handled: set[int] = set()
        changed = anyio.Event()

        async def handle(record: Any) -> None:
            nonlocal changed
            handled.add(record.offset)
            changed.set()
            changed = anyio.Event()

        async def until(count: int) -> None:
            with anyio.fail_after(60):
                while len(handled) < count:
                    await changed.wait()

        async with _member(cluster) as consumer, consumer.processing(handle, concurrency=2) as processing:
            await until(10)
            resting = how(processing)
            if resting is not None:
                await resting
            await anyio.sleep(1)
            for number in range(10):
                cluster.produce("jobs", value=str(number))
            async with _member(cluster) as other:
                taken = await _take(other, 10)
                assert taken == dict.fromkeys(range(10, 20), 1)
            processing.resume()
            await until(20)

    run(main)


@on_both
def test_jobs_behind_one_that_takes_longer_than_a_lock_are_all_done(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(40)
        deliveries: dict[int, int] = {}
        done: set[int] = set()
        all_done = anyio.Event()

        async def handle(record: Any) -> None:
            deliveries[record.offset] = record.delivery_count
            await anyio.sleep(100 if record.offset == 0 else 0.01)  # a lock lasts 30 s
            done.add(record.offset)
            if len(done) == 40:
                all_done.set()

        async with _member(cluster) as consumer, consumer.processing(handle, concurrency=1):
            with anyio.move_on_after(300):
                await all_done.wait()
        assert done == set(range(40))
        # What waits too long is given back once: taken back at once and given back again, it would soon have no delivery left.
        assert max(deliveries.values()) <= 2

    run(main)


@pytest.mark.slow
@on_both
@pytest.mark.parametrize(("members", "concurrency"), [(1, 1), (1, 3), (6, 1)])
def test_jobs_that_all_take_longer_than_a_lock_are_all_done(run: Run, members: int, concurrency: int) -> None:
    async def main() -> None:
        cluster = _filled(12 * members)
        cluster.group("workers", share_record_lock_duration_ms=2_000)
        deliveries: dict[int, int] = {}
        running, most_running = 0, 0
        all_done = anyio.Event()

        async def handle(record: Any) -> None:
            nonlocal running, most_running
            running += 1
            most_running = max(running, most_running)
            deliveries[record.offset] = record.delivery_count
            await anyio.sleep(6 + record.offset % 3)
            running -= 1
            if len(deliveries) == 12 * members and not running:
                all_done.set()

        async def work() -> None:
            async with _member(cluster) as consumer, consumer.processing(handle, concurrency=concurrency):
                await all_done.wait()

        with anyio.move_on_after(12 * 10 / concurrency):  # no handler waits for others
            async with anyio.create_task_group() as tasks:
                for _ in range(members):
                    tasks.start_soon(work)
        assert (set(deliveries), most_running) == (set(range(12 * members)), concurrency * members)
        assert max(deliveries.values()) <= 3

    run(main)


@on_both
def test_a_record_that_no_handler_had_is_said_to_be_one_at_each_delivery(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    given: list[int] = []

    async def main() -> None:
        async def handle(record: Any) -> None: ...

        async def bury(record: Any, error: BaseException, attempts: int) -> None:
            given.append(attempts)

        options: dict[str, Any] = {"value_deserializer": lambda data: 1 / 0, "bad_record_deliveries": 2}
        async with (
            ShareConsumer("jobs", group_id="workers", **options, **_filled(1).options()) as consumer,
            consumer.processing(handle, on_failure=bury),
        ):
            with anyio.fail_after(60):
                while not given:  # noqa: ASYNC110 - nothing tells of it, and time is virtual
                    await anyio.sleep(0.1)

    run(main)
    assert given == [0]
    said = [
        entry.getMessage()
        for entry in caplog.records
        if "before a handler had it, since it cannot be deserialized" in entry.message
    ]
    assert [text.partition("jobs-0 at offset 0: ")[2].partition(" before")[0] for text in said] == ["released", "dead letter"]


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("also", [[], [b"1"]], ids=["alone", "with another"])
def test_a_refused_record_behind_handlers_that_hang_is_others_after_the_time_of_a_lock(run: Run, also: list[bytes]) -> None:
    async def main() -> None:
        cluster = _filled(20)
        cluster.group("workers", share_record_lock_duration_ms=5_000)
        hanging: set[int] = set()

        async def handle(record: Any) -> None:
            if record.value >= 100:
                hanging.add(record.offset)
                await anyio.sleep(200)

        async def until(met: Callable[[], bool]) -> None:
            with anyio.fail_after(60):
                while not met():  # noqa: ASYNC110 - nothing tells of it, and time is virtual
                    await anyio.sleep(0.1)

        options: dict[str, Any] = {"value_deserializer": int, "bad_record_deliveries": 1}
        async with (
            ShareConsumer("jobs", group_id="workers", **options, **cluster.options()) as consumer,
            consumer.processing(handle, concurrency=2, on_failure="skip") as processing,
        ):
            await anyio.sleep(20)  # it is known then that handlers take no time
            for value in (b"100", b"101"):
                cluster.produce("jobs", value=value)
            await until(lambda: hanging == {20, 21})
            for value in (b"bad", *also):
                cluster.produce("jobs", value=value)
            await until(lambda: processing.statistics().waiting == 1 + len(also))
            began = anyio.current_time()
            async with _member(cluster) as other:
                assert await _take(other, 1 + len(also)) == dict.fromkeys(range(22, 23 + len(also)), 2)
                assert 4 < anyio.current_time() - began < 15, "a lock, and until the handlers are looked at"

    run(main)


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("plain", [False, True])
def test_no_more_is_locked_than_handlers_get_to_in_time_also_if_a_plain_function_returns_something_to_await(
    run: Run, plain: bool
) -> None:
    async def main() -> None:
        async def handle(record: Any) -> None:
            await anyio.sleep(3)

        handler: Any = (lambda record: handle(record)) if plain else handle
        async with (
            _member(_filled(200)) as consumer,
            consumer.processing(handler, concurrency=2, drain_timeout_ms=0) as processing,
        ):
            await anyio.sleep(100)
            found = processing.statistics()
            assert found.handled > 60
            assert found.waiting < 10, "as many as they get to while the locks are young"

    run(main)


@pytest.mark.slow
def test_records_behind_plain_handlers_that_hang_are_others_after_the_time_of_a_lock() -> None:
    go_on, returns = Event(), Event()

    async def main() -> None:
        cluster = _filled(20)
        cluster.group("workers", share_record_lock_duration_ms=5_000)
        begun: set[int] = set()

        def handle(record: Any) -> None:
            begun.add(record.offset)
            if record.offset == 20:
                go_on.wait(30)
                returns.set()

        async def until(met: Callable[[], bool]) -> None:
            with anyio.fail_after(60):
                while not met():  # noqa: ASYNC110 - nothing tells of it, and time is virtual
                    await anyio.sleep(0.1)

        async with _member(cluster) as consumer, consumer.processing(handle, concurrency=1, drain_timeout_ms=0) as processing:
            await until(lambda: processing.statistics().handled == 20)
            await anyio.sleep(20)  # it is known then that handlers take no time
            for _ in range(3):
                cluster.produce("jobs", value="job")
            await until(lambda: processing.statistics().waiting == 2)
            began = anyio.current_time()
            async with _member(cluster) as other:
                assert await _take(other, 2) == {21: 2, 22: 2}
                assert 4 < anyio.current_time() - began < 15, "a lock, and until the handlers are looked at"
            await anyio.sleep(20)
            assert begun == set(range(21)), "nothing is read before the handler returns, though the other member gave both back"
            go_on.set()
            await asyncio.to_thread(returns.wait)  # a sign of life of the threads, for which time would not wait any more
            await until(lambda: processing.statistics().handled == 23)

    try:
        anyio.run(main, backend="asyncio", backend_options={"loop_factory": lambda: VirtualLoop(hung_after=0.5)})
    finally:
        go_on.set()


def test_a_record_whose_thread_has_just_ended_is_done_though_its_topic_is_given_up_at_that_moment() -> None:
    begun, go_on, moment = Event(), Event(), Event()

    async def main() -> None:
        cluster = _filled(1)
        cluster.topic("others", partitions=1)
        cluster.group("workers", share_record_lock_duration_ms=5_000)

        def handle(record: Any) -> None:
            begun.set()
            go_on.wait(30)

        async with _member(cluster) as consumer, consumer.processing(handle, concurrency=1) as processing:
            with anyio.fail_after(60):
                while not begun.is_set():  # noqa: ASYNC110 - nothing tells of it, and time is virtual
                    await anyio.sleep(0.1)
            go_on.set()
            while processing.statistics().running:
                moment.wait(0.01)  # the event loop is blocked, so it has not seen the result
            moment.wait(0.01)
            consumer.subscribe(["others"])
            await anyio.sleep(1)
            assert processing.statistics().handled == 1
            async with _member(cluster) as other:
                assert await other.getmany(timeout_ms=20_000) == {}, "it was accepted"

    try:
        anyio.run(main, backend="asyncio", backend_options={"loop_factory": VirtualLoop})
    finally:
        go_on.set()


class Asking(VirtualLoop):
    """Calls a function each time somebody asks for the time."""

    asked: Callable[[], None] | None = None

    def time(self) -> float:
        if self.asked is not None:
            self.asked()
        return super().time()


def _is_in(function: str) -> bool:
    """Whether a function of this name is being called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


@pytest.mark.parametrize("moment", range(3))
def test_a_record_whose_thread_ends_while_its_topic_is_given_up_is_done(moment: int) -> None:
    """With ``rate`` the time is asked for when the results have been taken in, before it is looked at what is under way."""
    begun, go_on, a_little, loop = Event(), Event(), Event(), Asking()

    async def main() -> None:
        cluster = _filled(1)
        cluster.topic("others", partitions=1)
        cluster.group("workers", share_record_lock_duration_ms=5_000)
        left = moment

        def handle(record: Any) -> None:
            begun.set()
            go_on.wait(30)

        def asked() -> None:
            nonlocal left
            if left == 0:
                loop.asked = None
                go_on.set()
                while processing.statistics().running:
                    a_little.wait(0.01)
            left -= 1

        async with _member(cluster) as consumer, consumer.processing(handle, concurrency=1, rate=1_000.0) as processing:
            with anyio.fail_after(60):
                while not begun.is_set():  # noqa: ASYNC110 - nothing tells of it, and time is virtual
                    await anyio.sleep(0.1)
            loop.asked = asked
            consumer.subscribe(["others"])
            assert loop.asked is None, "it was asked that often"
            await anyio.sleep(1)
            assert processing.statistics().handled == 1
            async with _member(cluster) as other:
                assert await other.getmany(timeout_ms=20_000) == {}, "it was accepted"

    try:
        anyio.run(main, backend="asyncio", backend_options={"loop_factory": lambda: loop})
    finally:
        go_on.set()


def test_a_record_whose_thread_ends_while_those_that_wait_are_given_back_is_done() -> None:
    begun, go_on, a_little, loop = Event(), Event(), Event(), Asking(hung_after=0.5)
    handled: list[tuple[int, int]] = []

    async def main() -> None:
        cluster = _filled(20)
        cluster.group("workers", share_record_lock_duration_ms=5_000)

        def handle(record: Any) -> None:
            if record.offset == 20 and not begun.is_set():
                begun.set()
                go_on.wait(30)
            handled.append((record.offset, record.delivery_count))

        def asked() -> None:
            if _is_in("take_back"):  # so that no thread begins what others get
                loop.asked = None
                go_on.set()
                while processing.statistics().running:
                    a_little.wait(0.01)

        async def until(met: Callable[[], bool]) -> None:
            with anyio.fail_after(60):
                while not met():  # noqa: ASYNC110 - nothing tells of it, and time is virtual
                    await anyio.sleep(0.1)

        async with _member(cluster) as consumer, consumer.processing(handle, concurrency=1) as processing:
            await until(lambda: processing.statistics().handled == 20)
            await anyio.sleep(20)  # it is known then that handlers take no time
            for _ in range(3):
                cluster.produce("jobs", value="job")
            await until(lambda: processing.statistics().waiting == 2)
            loop.asked = asked
            await until(lambda: processing.statistics().handled == 23)
            assert handled[20:] == [(20, 1), (21, 2), (22, 2)], "the others were given back"

    try:
        anyio.run(main, backend="asyncio", backend_options={"loop_factory": lambda: loop})
    finally:
        go_on.set()
