"""Reads while nothing is subscribed or assigned: they wait, the log says so once, and the consumer is not ready."""

import logging
from typing import Any

import anyio
import pytest

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.testing import Cluster
from kafka_async.trace import Fault, TraceEvent
from tests.testing.test_clusters import Run, on_both

PARTITION = TopicPartition("jobs", 0)


def _filled() -> Cluster:
    cluster = Cluster()
    cluster.topic("jobs", partitions=1)
    cluster.group("workers", share_auto_offset_reset="earliest")
    cluster.produce("jobs", value=b"a")
    return cluster


def _plain(cluster: Cluster, *topics: str, **options: Any) -> KafkaConsumer[Any, Any]:
    return KafkaConsumer(*topics, auto_offset_reset="earliest", **cluster.options(), **options)


def _shared(cluster: Cluster, **options: Any) -> ShareConsumer[Any, Any]:
    return ShareConsumer(group_id="workers", **cluster.options(), **options)


def _said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return what the log says of it, by level, from the last call on."""
    said = [
        (entry.levelname, entry.getMessage()) for entry in caplog.records if "reading" in entry.message or "waits" in entry.message
    ]
    caplog.clear()
    return said


@on_both
@pytest.mark.parametrize("make", [_plain, _shared])
def test_reads_without_a_subscription_wait_and_say_so_once_and_go_on_with_one(
    make: Any, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with make(_filled()) as consumer:
            assert not consumer.ready
            assert _said(caplog) == []
            for _ in range(3):
                assert await consumer.getmany(timeout_ms=900) == {}
            assert _said(caplog) == []
            for _ in range(300):
                assert await consumer.getmany(timeout_ms=900) == {}
            [(level, text)] = _said(caplog)
            assert level == "WARNING"
            assert "a read waits, but nothing is subscribed" in text
            assert "call subscribe()" in text
            assert ("assign()" in text) == (make is _plain)
            assert "give topics to the constructor" in text
            got = []

            async def read() -> None:
                got.append((await consumer.getone()).value)

            with anyio.fail_after(4000):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read)
                    await anyio.sleep(3600)
                    assert got == []
                    consumer.subscribe(["jobs"])
            assert got == [b"a"]
            await consumer.getmany(timeout_ms=100)
            assert consumer.ready
            assert [level for level, _ in _said(caplog)] == ["INFO"]
            left = consumer.unsubscribe()
            if left is not None:
                await left
            assert not consumer.ready
            await consumer.getmany(timeout_ms=2900)
            assert _said(caplog) == []
            await consumer.getmany(timeout_ms=200)
            assert [level for level, _ in _said(caplog)] == ["WARNING"]

    with caplog.at_level(logging.INFO, "kafka_async"):
        run(main)


@on_both
def test_a_consumer_is_ready_with_what_is_assigned_to_it_and_until_that_is_nothing(run: Run) -> None:
    async def main() -> None:
        async with _plain(_filled()) as consumer:
            consumer.assign([PARTITION])
            assert (await consumer.getone()).value == b"a"
            assert consumer.ready
            consumer.assign([])
            assert not consumer.ready

    run(main)


@pytest.mark.slow
@on_both
def test_a_subscription_without_partitions_here_is_one(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """The group has more members than partitions, or no topic matches yet."""

    async def main() -> None:
        cluster = _filled()
        early = _plain(cluster)
        early.subscribe(pattern="nothing-yet-.*")
        async with _plain(cluster, "jobs", group_id="g"), _plain(cluster, "jobs", group_id="g") as late, early:
            for consumer in (early, late):
                assert await consumer.getmany(timeout_ms=20_000) == {}
                assert (consumer.assignment(), consumer.ready) == (set(), True)

    run(main)
    assert _said(caplog) == []


@on_both
def test_a_consumer_that_only_asks_does_not_say_that_it_reads_nothing(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with _plain(_filled(), group_id="g") as consumer:
            assert await consumer.end_offsets([PARTITION]) == {PARTITION: 1}
            await anyio.sleep(3600)

    run(main)
    assert caplog.records == []


def _last(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines that ended the outage from the last call on, without its length."""
    return [text.partition("] ")[2].partition(", after")[0] for level, text in _said(caplog) if level == "INFO"]


@on_both
@pytest.mark.parametrize("make", [_plain, _shared])
@pytest.mark.parametrize("reads", ["getmany", "getone", "process"])
def test_a_stop_ends_what_reads_that_waited_in_vain_have_begun(
    make: Any, reads: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(record: Any) -> None: ...

    async def main() -> None:
        async with make(_filled()) as consumer:
            with anyio.move_on_after(5):
                if reads == "getmany":
                    await consumer.getmany(timeout_ms=4_000)
                elif reads == "getone":
                    await consumer.getone()
                else:
                    await consumer.process(handle)
            assert [level for level, _ in _said(caplog)] == ["WARNING"]
        assert _last(caplog) == ["no longer needed: reading"]
        async with make(_filled()) as consumer:
            await consumer.getmany(timeout_ms=1_000)
        assert _said(caplog) == []

    with caplog.at_level(logging.INFO, "kafka_async"):
        run(main)


@on_both
@pytest.mark.parametrize(
    ("make", "how"), [(_plain, "subscribe"), (_plain, "assign"), (_plain, "assign_ranges"), (_shared, "subscribe")]
)
def test_what_is_subscribed_or_assigned_ends_it_though_no_read_waits_any_more(
    make: Any, how: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with make(_filled()) as consumer:
            await consumer.getmany(timeout_ms=4_000)
            assert [level for level, _ in _said(caplog)] == ["WARNING"]
            if make is _plain:
                consumer.assign([])
                assert _said(caplog) == []
            given: Any = {"subscribe": ["jobs"], "assign": [PARTITION], "assign_ranges": {PARTITION: (0, 1)}}
            getattr(consumer, how)(given[how])
            assert _last(caplog) == ["recovered: reading"]
            await consumer.getmany(timeout_ms=0)
            getattr(consumer, how)(given[how])
        assert _said(caplog) == []

    with caplog.at_level(logging.INFO, "kafka_async"):
        run(main)


@on_both
@pytest.mark.parametrize("make", [_plain, _shared])
def test_time_in_which_nothing_reads_does_not_count(make: Any, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with make(_filled()) as consumer:
            for _ in range(20):
                await consumer.getmany(timeout_ms=500)
                await anyio.sleep(600)
            assert _said(caplog) == []
            await consumer.getmany(timeout_ms=500)
            for _ in range(3):
                await anyio.sleep(0.5)
                await consumer.getmany(timeout_ms=500)
            assert [level for level, _ in _said(caplog)] == ["WARNING"], "of reads in a row the time between them does count"
            await anyio.sleep(600)
            await consumer.getmany(timeout_ms=5_000)
            assert _said(caplog) == [], "it goes on"

    run(main)


@on_both
def test_several_reads_count_from_the_first_of_those_that_follow_one_another(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with _plain(_filled()) as consumer, anyio.create_task_group() as tasks:
            await consumer.getmany(timeout_ms=100)
            await anyio.sleep(600)

            async def read(after: float, seconds: float) -> None:
                await anyio.sleep(after)
                await consumer.getmany(timeout_ms=1000 * seconds)

            for after, seconds in ((0.0, 2.0), (1.0, 0.5), (1.9, 10.0)):
                tasks.start_soon(read, after, seconds)
            await anyio.sleep(2.9)
            assert _said(caplog) == []
            await anyio.sleep(0.2)
            assert [level for level, _ in _said(caplog)] == ["WARNING"]

    run(main)


@on_both
@pytest.mark.parametrize("make", [_plain, _shared])
def test_a_trace_listener_that_raises_ends_its_read_and_leaves_none_behind(
    make: Any, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the member would count as reading for ever, however long its application does not."""

    def listen(event: TraceEvent) -> None:
        if isinstance(event, Fault) and event.outage == "reading":
            raise LookupError

    async def main() -> None:
        options = {"group_id": "g"} if make is _plain else {}
        async with make(_filled(), trace=listen, max_poll_interval_ms=10_000, **options) as consumer:
            with pytest.raises(LookupError):
                await consumer.getmany(timeout_ms=5_000)
            consumer.subscribe(["jobs"])
            assert (await consumer.getone()).value == b"a"
            await anyio.sleep(60)
            assert "max_poll_interval_ms" in caplog.text

    run(main)
