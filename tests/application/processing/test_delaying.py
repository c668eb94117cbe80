"""Records that are held until they are due, on a simulated cluster under virtual time."""

from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest

from kafka_async import Retry, TopicPartition
from kafka_async.errors import ProcessingError
from kafka_async.testing.simulation.waking import TIMESTAMP
from tests.application.support import consumer_on, virtual

from .world import Record, World, processed, until, world

EACH_PROTOCOL = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def _after(some: World, seconds: float) -> Callable[[Record], float]:
    """Return a function that makes every record due so long after now."""
    due = some.cluster.network.date() + seconds * 1000
    return lambda record: due


def _seconds(some: World) -> float:
    return (some.cluster.network.date() - TIMESTAMP) / 1000


@pytest.mark.slow
@virtual
async def test_a_record_is_handled_when_it_is_due_and_neither_before_nor_long_after() -> None:
    some, at = world(), dict[int, float]()
    some.produce(5)
    times = {0: None, 1: 10_000, 2: 10_250, 3: None, 4: 600_000}

    async def handle(record: Record) -> None:
        at[record.offset] = _seconds(some) * 1000

    def not_before(record: Record) -> float | None:
        due = times[record.offset]
        return None if due is None else TIMESTAMP + due

    async with processed(some, handle, not_before=not_before) as run:
        await until(lambda: 0 in at)
        assert run.statistics().delayed == 4
        assert run.statistics().delayed_until == {some.partitions[0]: TIMESTAMP + 10_000}
        assert run.statistics().waiting == 0
        await until(lambda: 3 in at)
        assert some.committed() in (1, 2, 3, 4)
        await until(lambda: some.committed() == 4)
        await anyio.sleep(550)
        assert 4 not in at
        await until(lambda: len(at) == 5, 60)
        assert run.statistics().delayed == 0
        assert run.statistics().delayed_until == {}
        assert run.metrics()["consumer-processing-metrics"]["records-delayed"] == 0
    for offset, due in times.items():
        assert (due or 0) <= at[offset] < (due or 10_250) + 100
    assert some.committed() == 5


@pytest.mark.slow
@virtual
async def test_other_partitions_go_on_while_one_waits_and_nothing_of_it_is_fetched() -> None:
    some = world(2)
    late = some.partitions[0]
    some.produce(500)
    some.produce(500, partition=1)
    due = _after(some, 3600)
    async with some.consumer(max_poll_records=50) as consumer:
        async with consumer.processing(
            some.handle, concurrency=2, not_before=lambda record: due(record) if record.partition == 0 else None
        ) as run:
            await until(lambda: len(some.done) == 500)
            assert {record.partition for record in some.done} == {1}
            assert run.statistics().delayed <= 20
            assert consumer.paused() == set()
            before = consumer.statistics().buffered_bytes
            some.produce(10_000)
            some.produce(500, partition=1)
            await until(lambda: len(some.done) == 1000)
            await anyio.sleep(100)
            assert consumer.statistics().partitions[late].buffered_bytes <= before
            assert not run.statistics().stalled
        assert some.committed(1) == 1000
        assert not some.committed()


@pytest.mark.slow
@virtual
async def test_a_wall_clock_that_is_set_forward_lets_go_and_one_that_is_set_back_does_no_harm() -> None:
    some = world()
    some.produce(3)
    clock = some.cluster.clock
    assert clock.began is not None
    async with processed(some, not_before=lambda record: TIMESTAMP + (record.offset + 1) * 200_000) as run:
        await until(lambda: run.statistics().delayed == 3)
        clock.began += 200_000
        await until(lambda: len(some.done) == 1, 1.1)
        clock.began -= 300_000
        await anyio.sleep(490)
        assert len(some.done) == 1
        await until(lambda: len(some.done) == 2, 20)
        assert 400 <= _seconds(some) < 401


@pytest.mark.slow
@virtual
async def test_stop_and_drain_do_not_wait_for_what_is_not_due() -> None:
    some = world()
    some.produce(20)
    not_before = _after(some, 3600)
    async with processed(some, not_before=lambda record: not_before(record) if record.offset >= 7 else None) as run:
        await until(lambda: len(some.done) == 7)
        with anyio.fail_after(1):
            await run.drain()
        assert some.committed() == 7
        run.resume()
        with anyio.fail_after(1):
            run.stop()
            await run.wait()
    assert _seconds(some) < 10
    assert some.committed() == 7
    async with processed(some, not_before=lambda record: None):
        await until(lambda: len(some.done) == 20)
    assert sorted(some.offsets()) == list(range(20))


@pytest.mark.parametrize("paused", [False, True])
@virtual
async def test_what_becomes_due_after_a_drain_begins_with_resume(paused: bool) -> None:
    some = world()
    some.produce(3)
    async with processed(some, not_before=_after(some, 10)) as run:
        await until(lambda: run.statistics().delayed == 3)
        if paused:
            run.pause()
        await run.drain()
        await anyio.sleep(60)
        assert run.statistics().delayed == 0
        assert some.started == []
        run.resume()
        await until(lambda: len(some.done) == 3, 1)


@pytest.mark.slow
@virtual
async def test_a_record_that_becomes_due_after_a_drain_is_not_stalled_before_resume() -> None:
    some = world()
    some.produce(1)
    some.seconds = lambda record: 30.0
    async with processed(some, not_before=_after(some, 10), stalled_after_ms=20_000) as run:
        await until(lambda: run.statistics().delayed == 1)
        await run.drain()
        await anyio.sleep(600)
        assert run.statistics().waiting == 1
        assert not run.statistics().stalled
        run.resume()
        await anyio.sleep(19)
        assert not run.statistics().stalled
        await anyio.sleep(2)
        assert run.statistics().stalled


@virtual
async def test_drains_at_once_all_return_though_a_record_becomes_due_as_they_do() -> None:
    some = world()
    some.produce(2, keys=2)
    some.seconds = lambda record: 5.0
    clock, due = some.cluster.clock, _after(some, 3600)

    async def handle(record: Record) -> None:
        await some.handle(record)
        if record.offset == 0 and clock.began is not None:
            clock.began += 3_600_000  # the next one is due by the time that the drains return

    async with (
        consumer_on(some.cluster, "t") as consumer,  # without a group: a commit would let time pass as well
        consumer.processing(handle, not_before=lambda record: due(record) if record.offset else None) as run,
    ):

        async def drain(count: int) -> None:
            for _ in range(count):
                await run.drain()

        await until(lambda: len(some.started) == 1)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as drains:
                for count in (1, 1, 2, 1, 1):
                    drains.start_soon(drain, count)
        run.resume()
        await until(lambda: len(some.done) == 2, 6)


@virtual
async def test_a_pause_of_the_program_and_the_delay_do_not_end_each_other() -> None:
    some = world()
    some.produce(4)
    (tp,) = some.partitions
    async with some.consumer() as consumer, consumer.processing(some.handle, not_before=_after(some, 100)) as run:
        await until(lambda: run.statistics().delayed == 4)
        consumer.pause(tp)
        assert consumer.paused() == {tp}
        consumer.resume(tp)
        await anyio.sleep(50)
        assert not some.done
        consumer.pause(tp)
        await anyio.sleep(60)
        assert not some.done
        assert run.statistics().delayed == 0
        consumer.resume(tp)
        await until(lambda: len(some.done) == 4, 1)
        some.produce(1)
        await until(lambda: len(some.done) == 5, 1)


@pytest.mark.parametrize("way", ["seek", "seek_to_end", "seek_to_beginning"])
@virtual
async def test_a_seek_works_at_once_and_drops_what_was_not_due(way: str) -> None:
    some = world()
    some.produce(30)
    (tp,) = some.partitions
    held = _after(some, 3600)
    asked: list[int] = []

    def not_before(record: Record) -> float | None:
        asked.append(record.offset)
        return held(record) if 3 <= record.offset < 30 and len(asked) < 6 else None

    async with some.consumer() as consumer, consumer.processing(some.handle, not_before=not_before) as run:
        await until(lambda: len(some.done) == 3)
        assert run.statistics().delayed
        if way == "seek":
            consumer.seek(tp, 20)
        elif way == "seek_to_end":
            await consumer.seek_to_end(tp)
        else:
            await consumer.seek_to_beginning(tp)
        assert run.statistics().delayed == 0
        some.produce(5)
        first = {"seek": 20, "seek_to_end": 30, "seek_to_beginning": 0}[way]
        asked.extend(range(9))
        await until(lambda: len(some.done) == 3 + 35 - first, 5)
        assert sorted(some.offsets()[3:]) == list(range(first, 35))
        await until(lambda: some.committed() == 35)


@EACH_PROTOCOL
@virtual
async def test_what_is_revoked_while_it_waits_is_held_by_the_next_member_and_after_that_by_us_again(protocol: str) -> None:
    some = world(2)
    for partition in range(2):
        some.produce(3, partition=partition)
    options: dict[str, Any] = {"group_protocol": protocol}
    not_before = _after(some, 100)
    async with processed(some, consumer=options, not_before=not_before) as run:
        await until(lambda: len(run.statistics().delayed_until) == 2)
        async with processed(some, consumer=options, not_before=not_before) as other:
            await until(lambda: len(other.statistics().delayed_until) == 1)
            assert len(run.statistics().delayed_until) == 1
            assert _seconds(some) < 60
        await until(lambda: len(run.statistics().delayed_until) == 2)
        assert not some.done
        await until(lambda: len(some.done) == 6)
        assert 100 <= _seconds(some) < 101
    assert sorted(some.offsets()) == [0, 0, 1, 1, 2, 2]
    assert [some.committed(0), some.committed(1)] == [3, 3]


@virtual
async def test_a_topic_that_is_made_anew_while_a_record_waits_is_read_at_once() -> None:
    some = world()
    some.produce(30)
    due = _after(some, 3600)
    old = True
    async with processed(some, not_before=lambda record: due(record) if old else None) as run:
        await until(lambda: run.statistics().delayed > 0)
        old = False
        some.cluster.recreate("t")
        some.produce(5)
        await until(lambda: len(some.done) == 5, 60)
    assert sorted(some.offsets()) == list(range(5))


@virtual
async def test_a_partition_that_the_program_assigned_is_read_once_metadata_say_that_its_topic_was_made_anew() -> None:
    some = world()
    some.produce(30)
    (tp,) = some.partitions
    due = _after(some, 3600)
    old = True
    async with consumer_on(some.cluster) as consumer:
        consumer.assign([tp])
        async with consumer.processing(some.handle, not_before=lambda record: due(record) if old else None) as run:
            await until(lambda: run.statistics().delayed > 0)
            old = False
            some.cluster.recreate("t")
            some.produce(5)
            await until(lambda: len(some.done) == 5, 310)
    assert sorted(some.offsets()) == list(range(5))


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("soon", "not_before returned 'soon': expected milliseconds since the epoch, or None"),
        (True, "not_before returned True"),
        (float("nan"), "before the year 10000"),
        (float("inf"), "before the year 10000"),
        (TIMESTAMP * 1000, "before the year 10000"),
        (lambda: 3, "without calling it"),
        (KeyError("no header"), "no header"),
    ],
)
@virtual
async def test_a_bad_time_is_the_failure_of_its_record(returned: Any, text: str) -> None:
    some = world()
    some.produce(3)
    failures: list[tuple[int, str, int]] = []

    def not_before(record: Record) -> Any:
        if record.offset != 1:
            return None
        if isinstance(returned, Exception):
            raise returned
        return returned

    async def on_failure(record: Record, error: BaseException, attempts: int) -> None:
        failures.append((record.offset, str(error), attempts))

    async with processed(some, not_before=not_before, on_failure=on_failure, retry=Retry(attempts=5)):
        await until(lambda: some.committed() == 3)
    assert sorted(some.offsets()) == [0, 2]
    ((offset, error, attempts),) = failures
    assert (offset, attempts) == (1, 0), "no handler had it"
    assert text in error


@virtual
async def test_by_default_a_bad_time_stops_processing_and_names_the_record() -> None:
    some = world()
    some.produce(3)
    with pytest.raises(ProcessingError, match=r"t-0 at offset 0.*expected milliseconds since the epoch"):
        async with processed(some, not_before=lambda record: "later"):
            await anyio.sleep(100)
    assert not some.committed()


@virtual
async def test_a_function_that_cannot_return_a_time_is_refused_before_anything_runs() -> None:
    async def later(record: Record) -> float:
        return 0.0

    some = world()
    async with some.consumer() as consumer:
        for bad in (later, 3, "x"):
            with pytest.raises(TypeError, match="not_before"):
                consumer.processing(some.handle, not_before=cast("Any", bad))


@virtual
async def test_batches_and_lanes_get_what_is_due() -> None:
    some = world()
    some.produce(40, keys=4)
    batches: list[list[int]] = []

    async def handle(records: list[Record]) -> None:
        batches.append([record.offset for record in records])

    half = _after(some, 50)
    async with processed(
        some, handle, batch=10, linger_ms=20, not_before=lambda record: half(record) if record.offset >= 20 else None
    ):
        await until(lambda: sum(map(len, batches)) == 20)
        assert {offset for batch in batches for offset in batch} == set(range(20))
        await until(lambda: sum(map(len, batches)) == 40)
    assert some.committed() == 40


@pytest.mark.slow
@virtual
async def test_a_record_is_not_late_or_stalled_because_it_was_not_due() -> None:
    some = world()
    some.produce(2)
    some.seconds = lambda record: 30.0
    async with processed(some, not_before=_after(some, 600), stalled_after_ms=20_000, order="partition") as run:
        await anyio.sleep(599)
        assert run.statistics().oldest is None
        assert run.statistics().oldest_age == 0
        await anyio.sleep(15)
        assert run.statistics().oldest == (*TopicPartition("t", 0), 0)
        assert 13 < run.statistics().oldest_age < 15
        assert run.statistics().seconds_in_queue < 1
        await anyio.sleep(10)
        assert run.statistics().stalled
