"""Read calls that are cancelled, interrupted or overlap, with deserializers that wait: no record is lost or repeated."""

import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from kafka_async.application.callbacks import Deserializers
from kafka_async.application.inbox import Inbox
from kafka_async.application.lifecycle.lifecycle import Happening, Lifecycle
from kafka_async.application.lifecycle.runtime import TaskRuntime
from kafka_async.application.reading.in_vain import InVain
from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.application.share.custody import Custody, Held
from kafka_async.application.share.reading import ShareReader
from kafka_async.background.boundary import Demand, EventHandler, Exchange
from kafka_async.background.share.orders import Acknowledge, AcknowledgeType, Delivery
from kafka_async.errors import DeserializationError, IllegalStateError, TopicAuthorizationFailedError
from kafka_async.events import ShareEvent
from kafka_async.model import GroupMetadata, TopicPartition
from kafka_async.records import RecordReader
from kafka_async.testing import Cluster
from tests.background.support import records as data
from tests.testing.test_clusters import Run, on_both


class Slow:
    """A deserializer that waits, at one of its calls for a gate."""

    def __init__(self, gate_at: int = 0) -> None:
        self.gate_at = gate_at
        self.at_gate = anyio.Event()
        self.gate = anyio.Event()
        self.calls: list[bytes] = []

    async def __call__(self, data: bytes) -> str:
        self.calls.append(data)
        if len(self.calls) == self.gate_at:
            self.at_gate.set()
            await self.gate.wait()
        await anyio.sleep(0.001)
        if data == b"bad":
            raise ValueError("not this one")
        return data.decode()


def _filled(*values: str, partitions: int = 1) -> Cluster:
    cluster = Cluster()
    cluster.topic("jobs", partitions=partitions)
    cluster.group("workers", share_auto_offset_reset="earliest")
    for number, value in enumerate(values):
        cluster.produce("jobs", value=value, partition=number % partitions)
    return cluster


def _member(cluster: Cluster, deserializer: Any, **options: Any) -> ShareConsumer[Any, Any]:
    return ShareConsumer("jobs", group_id="workers", value_deserializer=deserializer, **{**cluster.options(), **options})


async def _unread(consumer: ShareConsumer[Any, Any], count: int) -> None:
    """Wait until so many records were delivered and are unread."""
    with anyio.fail_after(60):
        while consumer.statistics().unread < count:  # noqa: ASYNC110 - nothing else tells
            await anyio.sleep(0.01)


async def _cancelled_at(gate: Slow, read: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Cancel a read call while the deserializer waits at the gate."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await gate.at_gate.wait()
        tasks.cancel_scope.cancel()
    gate.gate.set()


@on_both
def test_a_read_that_is_cancelled_in_the_second_delivery_leaves_the_first_one_unread(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(*"abcd", partitions=2)  # each partition is a delivery of its own
        slow = Slow(gate_at=3)
        async with _member(cluster, slow) as consumer:
            assert await consumer.getmany(timeout_ms=0) == {}
            await _unread(consumer, 4)
            await _cancelled_at(slow, lambda: consumer.getmany(timeout_ms=1000))
            assert consumer.statistics().unread == 4
            with anyio.fail_after(10):
                records = [await consumer.getone() for _ in range(4)]
            assert sorted((record.value, record.delivery_count) for record in records) == [(value, 1) for value in "abcd"]
            assert len(slow.calls) == 5  # only the call that was cancelled was made again
            assert (consumer.statistics().unread, consumer.statistics().out) == (0, 4)

    run(main)


@on_both
def test_processing_that_is_paused_and_resumed_all_the_time_handles_every_job_once(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(*map(str, range(200)), partitions=4)
        handled: list[str] = []
        all_done = anyio.Event()

        async def handle(record: Any) -> None:
            handled.append(record.value)
            if len(handled) == 200:
                all_done.set()

        async with _member(cluster, Slow()) as consumer, consumer.processing(handle, concurrency=5) as processing:
            with anyio.fail_after(60):
                while not all_done.is_set():
                    processing.pause()
                    await anyio.sleep(0.003)
                    processing.resume()
                    with anyio.move_on_after(0.007):
                        await all_done.wait()
            await processing.drain()
            assert (consumer.statistics().unread, consumer.statistics().lost, consumer.statistics().accepted) == (0, 0, 200)
        assert sorted(handled, key=int) == list(map(str, range(200)))

    run(main)


@on_both
def test_reads_that_are_cancelled_everywhere_lose_and_repeat_nothing(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(*map(str, range(60)), partitions=3)
        found: list[tuple[str, int]] = []
        async with _member(cluster, Slow()) as consumer:
            with anyio.fail_after(60):
                for attempt in itertools.count():
                    if len(found) == 60:
                        break
                    with anyio.move_on_after(0.0005 * (attempt % 9 + 1)):
                        for records in (await consumer.getmany(timeout_ms=100, max_records=7)).values():
                            found += [(record.value, record.delivery_count) for record in records]
            assert consumer.statistics().unread == 0
        assert sorted(found) == sorted((str(number), 1) for number in range(60))

    run(main)


@on_both
def test_two_tasks_that_read_with_a_slow_deserializer_share_the_records(run: Run) -> None:
    async def main() -> None:
        cluster = _filled(*map(str, range(30)))
        found: list[str] = []

        async with _member(cluster, Slow()) as consumer, anyio.create_task_group() as tasks:

            async def read() -> None:
                while len(found) < 30:
                    with anyio.move_on_after(1):
                        record = await consumer.getone()
                        record.accept()
                        found.append(record.value)

            for _ in range(2):
                tasks.start_soon(read)
        assert sorted(found, key=int) == list(map(str, range(30)))

    run(main)


@on_both
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_bad_record_is_reported_once_and_its_neighbours_are_returned(run: Run, cancelled: bool) -> None:
    async def main() -> None:
        cluster = _filled("a", "bad", "c")
        slow = Slow(gate_at=2)
        found: list[str] = []
        errors: list[bytes] = []
        async with _member(cluster, slow) as consumer:
            if cancelled:
                await _cancelled_at(slow, lambda: consumer.getmany(timeout_ms=1000))
            slow.gate.set()
            for _ in range(8):
                try:
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        for record in records:
                            found.append(record.value)
                            record.accept()
                except DeserializationError as error:
                    errors.append(error.record.value)
            await consumer.flush()
            assert (found, errors) == (["a", "c"], [b"bad"])
            told = consumer.statistics()
            assert (told.accepted, told.released, told.rejected, told.unread, told.out) == (2, 1, 1, 0, 0)

    run(main)


async def _read_bad(consumer: ShareConsumer[Any, Any]) -> int:
    """Read until there is nothing; return how many errors were raised."""
    errors, quiet = 0, 0
    while quiet < 3:
        try:
            quiet = 0 if await consumer.getmany(timeout_ms=500) else quiet + 1
        except DeserializationError:
            errors += 1
    return errors


@on_both
def test_a_bad_record_is_reported_though_another_one_had_its_offset_before(run: Run) -> None:
    """Another member rejects a record that this one reported, and then the topic is made anew."""

    async def main() -> None:
        cluster = _filled("bad")
        async with _member(cluster, Slow()) as one:
            with pytest.raises(DeserializationError):
                await one.getone()
            async with _member(cluster, Slow()) as two:  # which gets the second delivery, since the first member does not read
                await one.flush()
                assert await _read_bad(two) == 1
                assert two.statistics().rejected == 1
            cluster.recreate("jobs")
            cluster.produce("jobs", value="bad")
            with anyio.fail_after(60), pytest.raises(DeserializationError):
                await one.getone()
            assert await _read_bad(one) == 0
            assert (one.statistics().released, one.statistics().rejected) == (2, 1)

    run(main)


@on_both
def test_a_deserializer_that_asks_for_another_attempt_holds_nothing_back_for_good(run: Run) -> None:
    class DownError(Exception):
        retriable = True

    async def main() -> None:
        cluster = _filled("a", "b", "c")
        down = True

        async def read_value(data: bytes) -> bytes:
            if data == b"b" and down:
                raise DownError
            return data

        async with _member(cluster, read_value) as consumer:
            assert (await consumer.getone()).value == b"a"
            for _ in range(2):
                with pytest.raises(DownError):
                    await consumer.getone()
            down = False
            assert [(await consumer.getone()).value for _ in range(2)] == [b"b", b"c"]

    run(main)


@pytest.mark.slow
@on_both
def test_records_whose_deserializers_take_longer_than_a_lock_lasts_are_returned_at_their_first_delivery(run: Run) -> None:
    async def read_value(data: bytes) -> str:
        await anyio.sleep(31 / 3)
        return data.decode()

    async def main() -> None:
        cluster = _filled("a", "b", "c")  # their locks last 30 s
        async with _member(cluster, read_value) as consumer:
            batches = await consumer.getmany(timeout_ms=1000)
            records = [record for batch in batches.values() for record in batch]
            assert [(record.value, record.delivery_count) for record in records] == [("a", 1), ("b", 1), ("c", 1)]
            for record in records:
                record.accept()
            assert await consumer.flush() == {TopicPartition("jobs", 0): None}

    run(main)


@on_both
def test_a_topic_that_is_unsubscribed_while_its_record_is_deserialized_is_not_returned(run: Run) -> None:
    async def main() -> None:
        cluster = _filled("a", "b")
        cluster.topic("others", partitions=1)
        cluster.produce("others", value="x")
        slow = Slow(gate_at=1)
        async with _member(cluster, slow) as consumer:
            found: list[Any] = []

            async def read() -> None:
                found.append((await consumer.getone()).value)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await slow.at_gate.wait()
                consumer.subscribe(["others"])
                slow.gate.set()
            assert found == ["x"]
            assert consumer.statistics().unread == 0
        async with _member(cluster, Slow()) as other:
            with anyio.fail_after(10):
                assert [(await other.getone()).value for _ in range(2)] == ["a", "b"]

    run(main)


@on_both
def test_a_tiny_buffer_gets_records_that_grow_when_they_are_decompressed(run: Run) -> None:
    async def main() -> None:
        cluster = _filled()
        for _ in range(12):
            cluster.produce("jobs", value="x" * 200_000, compression="gzip")
        async with _member(cluster, None, fetch_buffer_bytes=500) as consumer:
            with anyio.fail_after(60):
                for _ in range(12):
                    (await consumer.getone()).accept()

    run(main)


class Reading:
    """A reader without a cluster: what the background delivers is put into its queue by hand."""

    def __init__(self, deserializer: Any = None) -> None:
        self.runtime = TaskRuntime()
        self.handler: EventHandler[ShareEvent] = EventHandler(self._wake, self.runtime.wake_application)
        self.exchange = Exchange(self.handler)
        self.exchange.topics = frozenset(("t",))
        self.lifecycle = Lifecycle(self.handler, self.runtime)
        self.inbox = Inbox(self.handler, GroupMetadata(group_id="g"))
        self.custody = Custody(self.exchange, self.runtime.clock, 1, Held(self.runtime), deserializer is not None)
        deserializers = None if deserializer is None else Deserializers.of(None, deserializer)
        in_vain = InVain(lambda event: None, self.runtime, "nothing is subscribed")
        self.reader = ShareReader(self.lifecycle, self.handler, self.runtime, self.inbox, self.custody, deserializers, 3, in_vain)
        self.woken = self.deliveries = 0
        self.lifecycle.move(Happening.START)
        self.lifecycle.move(Happening.STARTED)

    def _wake(self) -> None:
        self.woken += 1

    def deliver(self, start: int, count: int, times: int = 1) -> None:
        found = RecordReader("t", 0, data(start, count), start).read(count)
        self.exchange.delivered += count
        self.deliveries += 1
        self.exchange.report(Delivery(TopicPartition("t", 0), self.deliveries, found, [times] * count, self.runtime.clock() + 30.0))


@on_both
def test_a_read_says_what_it_wants_while_it_waits_and_what_it_missed_if_it_did_not_wait(run: Run) -> None:
    async def main() -> None:
        reading = Reading()
        demand = reading.exchange.demand
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading.reader.read, 5.0, 7)
            await anyio.sleep(1)
            assert (demand.wanted, demand.asked, demand.missed, reading.handler.reading) == (7, 7, 0, 1)
            assert reading.woken == 1, "the background reads on only for somebody who wants records"
        assert (demand.wanted, demand.missed, reading.handler.reading) == (0, 0, 0)
        assert (demand.read_at, reading.handler.polled_at) == (anyio.current_time(),) * 2
        assert await reading.reader.read(0.0, 5) == []
        assert (demand.wanted, demand.asked, demand.missed) == (0, 5, 5)
        reading.deliver(0, 3)
        assert [record.offset for record in await reading.reader.read(0.0, 2)] == [0, 1]
        assert (demand.asked, demand.missed) == (2, 0)

    run(main)


class Looked(Demand):
    """Remembers when the last read was, as a background with a thread of its own sees it when nobody wants records any more."""

    def __init__(self) -> None:
        self.count, self.read_at, self.seen = 0, 0.0, list[float]()
        super().__init__()
        self.seen.clear()

    @property
    def wanted(self) -> int:
        return self.count

    @wanted.setter
    def wanted(self, count: int) -> None:
        self.count = count
        if not count:
            self.seen.append(self.read_at)


@on_both
def test_a_read_that_has_waited_for_long_is_no_old_one_at_any_moment_of_its_end(run: Run) -> None:
    """What was delivered to it would be given back, since nothing was read for so long."""

    async def main() -> None:
        reading = Reading()
        reading.exchange.demand = demand = Looked()
        assert await reading.reader.read(60.0, 1) == []
        assert demand.seen == [anyio.current_time()]

    run(main)


@on_both
def test_whoever_takes_over_ends_the_reads_that_wait_and_reads_itself(run: Run) -> None:
    async def main() -> None:
        reading = Reading()
        errors: list[str] = []

        async def read() -> None:
            with pytest.raises(IllegalStateError) as error:
                await reading.reader.read(60.0, 1)
            errors.append(str(error.value))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.sleep(1)
            reading.reader.take_over()
        assert anyio.current_time() < 2
        assert len(errors) == 1
        reading.deliver(0, 1)
        assert len(await reading.reader.read(1.0, 5)) == 1

    run(main)


@on_both
@pytest.mark.parametrize("deserializer", [None, bytes.decode], ids=["as they are", "deserialized"])
def test_records_at_once_are_those_that_need_nothing_done(run: Run, deserializer: Any) -> None:
    async def main() -> None:
        reading = Reading(deserializer)
        assert reading.reader.at_once(5) == []
        reading.deliver(0, 3)
        at_once = [record.offset for record in reading.reader.at_once(2)]
        assert at_once == ([0, 1] if deserializer is None else [])
        assert reading.reader.at_hand(fairly=False) is None or deserializer is None
        reading.lifecycle.move(Happening.PART)
        assert reading.reader.at_once(5) == [], "nothing is handed out any more"

    run(main)


@on_both
def test_a_record_at_hand_is_taken_only_if_nothing_else_has_to_be_looked_at(run: Run) -> None:
    async def main() -> None:
        reading = Reading()
        reading.deliver(0, 4)
        assert reading.reader.at_hand(fairly=False) is None, "a report waits"
        reading.custody.sort()
        record = reading.reader.at_hand(fairly=False)
        assert record is not None
        assert record.offset == 0
        assert reading.exchange.demand.read_at == anyio.current_time()
        assert reading.reader.at_hand(fairly=True) is None, "others have had no turn"
        assert [each.offset for each in await reading.reader.read(1.0, 1)] == [1]
        fair = reading.reader.at_hand(fairly=True)
        assert fair is not None
        assert fair.offset == 2
        reading.handler.publish_error(TopicAuthorizationFailedError("t"))
        assert reading.reader.at_hand(fairly=False) is None
        with pytest.raises(TopicAuthorizationFailedError):
            await reading.reader.read(1.0, 1)
        assert [each.offset for each in await reading.reader.read(1.0, 1)] == [3]

    run(main)


@on_both
def test_a_bad_record_is_given_back_and_raised_once_or_passed_to_whoever_takes_such(run: Run) -> None:
    async def main() -> None:
        def refuse(data: bytes) -> str:
            raise ValueError("not this one")

        refused: list[tuple[int, str]] = []
        reading = Reading(refuse)
        reading.deliver(0, 1)
        assert await reading.reader.read(0.0, 1, lambda record, why: refused.append((record.offset, str(why.__cause__)))) == []
        assert refused == [(0, "not this one")]
        assert not reading.exchange.demand.wanted
        reading.deliver(1, 1)
        with pytest.raises(DeserializationError, match="not this one"):
            await reading.reader.read(0.0, 1)
        kinds = [order.kind for order in reading.exchange.orders if isinstance(order, Acknowledge)]
        assert kinds == [AcknowledgeType.RELEASE]
        reading.deliver(1, 1, times=2)  # it comes again
        assert await reading.reader.read(0.0, 1) == [], "said once"

    run(main)


@on_both
def test_what_is_known_of_bad_records_that_never_came_back_does_not_grow(run: Run) -> None:
    """Another member may have rejected them."""

    async def main() -> None:
        def refuse(data: bytes) -> str:
            raise ValueError("not this one")

        reading = Reading(refuse)
        reading.deliver(0, 1001)
        for _ in range(1001):
            with pytest.raises(DeserializationError):
                await reading.reader.read(0.0, 1)
        reading.deliver(1, 1, times=2)
        assert await reading.reader.read(0.0, 1) == []
        reading.deliver(0, 1, times=2)
        with pytest.raises(DeserializationError):
            await reading.reader.read(0.0, 1)

    run(main)
