"""The user's call-backs: when they are called, with what, and what happens when they fail, wait or are cancelled."""

from collections.abc import Collection, Mapping
from typing import Any

import anyio
import pytest
from attrs import Factory, define, field

from kafka_async import (
    ConsumerInterceptor,
    ConsumerRebalanceListener,
    ConsumerRecord,
    KafkaConsumer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka_async.application.callbacks import Deserialized, Deserializers
from kafka_async.errors import DeserializationError
from kafka_async.testing.simulation import FakeCluster

from .support import Records, cancelled_at, consumer_on, numbers, offsets, read_values, virtual

Seen = list[tuple[str, set[TopicPartition]]]


@define(eq=False)
class Listener(ConsumerRebalanceListener):
    """Remembers what it is told; waits and raises when told so."""

    seen: Seen = field(factory=list)
    wait_in: str = ""
    entered: anyio.Event = Factory(anyio.Event)
    go_on: anyio.Event = Factory(anyio.Event)
    raise_in: str = ""

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._told("revoked", revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await self._told("assigned", assigned)

    async def _told(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.seen.append((what, set(partitions)))
        if what == self.wait_in:
            self.entered.set()
            await self.go_on.wait()
        if what == self.raise_in:
            raise ValueError(f"in {what}")


def two_topics() -> tuple[FakeCluster, TopicPartition, TopicPartition]:
    cluster = FakeCluster()
    (one,) = cluster.create_topic("one")
    (two,) = cluster.create_topic("two")
    cluster.fill(one, 20)
    cluster.fill(two, 5)
    return cluster, one, two


# Rebalance listeners.


@virtual
async def test_a_listener_is_called_inside_the_read_calls() -> None:
    cluster, one, two = two_topics()
    listener = Listener()
    async with consumer_on(cluster) as consumer:
        consumer.subscribe(["one"], listener=listener)
        await anyio.sleep(1)
        assert listener.seen == []
        await read_values(consumer, 20)
        assert listener.seen == [("assigned", {one})]
        consumer.subscribe(["two"], listener=listener)
        assert await read_values(consumer, 5) == numbers(5)
        assert listener.seen[1:] == [("revoked", {one}), ("assigned", {two})]


@virtual
async def test_a_plain_listener_may_seek_when_partitions_are_assigned() -> None:
    cluster, one, _ = two_topics()

    class Seeking(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            for partition in assigned:
                consumer.seek(partition, 15)

    consumer = consumer_on(cluster)
    consumer.subscribe(["one"], listener=Seeking())
    async with consumer:
        assert await read_values(consumer, 5) == numbers(5, 15)
        assert await consumer.position(one) == 20


@virtual
async def test_a_listener_may_ask_for_positions() -> None:
    cluster, _, _ = two_topics()
    positions: list[int] = []

    class Asking(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            positions.extend([await consumer.position(partition) for partition in assigned])

    consumer = consumer_on(cluster)
    consumer.subscribe(["one"], listener=Asking())
    async with consumer:
        await read_values(consumer, 20)
    assert positions == [0]


@pytest.mark.parametrize("where", ["revoked", "assigned"])
@virtual
async def test_what_a_listener_raises_reaches_the_caller_and_the_assignment_holds(where: str) -> None:
    cluster, one, two = two_topics()
    listener = Listener(raise_in=where)
    async with consumer_on(cluster, "one") as consumer:
        assert await read_values(consumer, 20) == numbers(20)
        consumer.subscribe(["two"], listener=listener)
        with pytest.raises(ValueError, match=f"in {where}"):
            await consumer.getone()
        listener.raise_in = ""
        assert await read_values(consumer, 5) == numbers(5)
        assert consumer.assignment() == {two}
        assert listener.seen == [("revoked", {one}), ("assigned", {two})]


@pytest.mark.slow
@virtual
async def test_no_record_of_a_revoked_partition_is_returned_while_its_revocation_goes_on() -> None:
    cluster, one, _ = two_topics()
    listener = Listener(wait_in="revoked")
    async with consumer_on(cluster, "one") as consumer, anyio.create_task_group() as tasks:
        assert len(await read_values(consumer, 5)) == 5
        consumer.subscribe(["two"], listener=listener)
        await anyio.sleep(1)
        tasks.start_soon(consumer.getone)
        await listener.entered.wait()
        assert await consumer.getmany(timeout_ms=500) == {}
        listener.go_on.set()
        await anyio.sleep(1)
        assert one not in consumer.assignment()


@pytest.mark.parametrize("where", ["revoked", "assigned"])
@virtual
async def test_a_read_that_is_cancelled_in_a_listener_leaves_no_half_made_assignment(where: str) -> None:
    cluster, _, two = two_topics()
    listener = Listener(wait_in=where)
    async with consumer_on(cluster, "one") as consumer:
        await read_values(consumer, 5)
        consumer.subscribe(["two"], listener=listener)
        await anyio.sleep(1)
        with anyio.move_on_after(1):
            await consumer.getone()
        assert listener.entered.is_set()
        listener.go_on.set()
        assert await read_values(consumer, 5) == numbers(5)
        assert consumer.assignment() == {two}
        assert listener.seen[-1] == ("assigned", {two})


@pytest.mark.slow
@virtual
async def test_a_read_may_be_cancelled_at_any_await_of_a_rebalance() -> None:
    for place in range(1, 10):
        cluster, _, two = two_topics()
        listener = Listener()
        async with consumer_on(cluster, "one") as consumer:
            await read_values(consumer, 5)
            consumer.subscribe(["two"], listener=listener)
            await anyio.sleep(1)
            cut = await cancelled_at(place, consumer.getone())
            rest = await read_values(consumer, 4 if cut else 5)
            assert len(rest) + bool(cut) == 5, f"place {place}"
            assert consumer.assignment() == {two}


class Growing(ConsumerRebalanceListener):
    """Raises when the first partition is assigned, after the topic has grown, and waits when the second one is."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.waits = anyio.Event()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        if TopicPartition("one", 1) in assigned:
            self.waits.set()
            await anyio.sleep(5)
        else:
            self.cluster.add_partitions("one", 2)
            await anyio.sleep(5)
            raise ValueError("in the first")


@pytest.mark.parametrize("stops", [False, True])
@virtual
async def test_what_a_listener_raises_is_not_lost_if_the_read_is_cancelled_in_the_next_assignment(
    stops: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, _, _ = two_topics()
    async with consumer_on(cluster, metadata_max_age_ms=1000) as consumer:
        listener = Growing(cluster)
        consumer.subscribe(["one"], listener=listener)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.getone)
            await listener.waits.wait()
            tasks.cancel_scope.cancel()
        if stops:
            await consumer.stop()
            assert "in the first" in caplog.text
            return
        with pytest.raises(ValueError, match="in the first"):
            await consumer.getmany(timeout_ms=10_000)
        assert consumer.assignment() == {TopicPartition("one", 0), TopicPartition("one", 1)}
        assert await read_values(consumer, 20) == numbers(20)


@virtual
async def test_an_unsubscription_while_a_listener_waits_wins() -> None:
    cluster, one, _ = two_topics()
    listener = Listener(wait_in="revoked")
    async with consumer_on(cluster, "one") as consumer, anyio.create_task_group() as tasks:
        await read_values(consumer, 5)
        consumer.subscribe(["two"], listener=listener)
        await anyio.sleep(1)

        async def read() -> None:
            await consumer.getmany(timeout_ms=2000)

        tasks.start_soon(read)
        await listener.entered.wait()
        consumer.unsubscribe()
        listener.go_on.set()
        await anyio.sleep(3)
        assert consumer.assignment() == set()
        consumer.assign([one])
        assert await read_values(consumer, 20) == numbers(20)


@virtual
async def test_a_pending_iteration_drops_what_it_has_of_a_revoked_partition() -> None:
    cluster, one, two = two_topics()
    async with consumer_on(cluster, "one", max_poll_records=20) as consumer:
        assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]
        consumer.subscribe(["two"])
        await anyio.sleep(1)
        await consumer.getmany()
        record = await consumer.getone()
        assert (record.topic, record.offset) == ("two", 0)
        assert consumer.assignment() == {two}
        assert one not in consumer.statistics().partitions


# Interceptors.


@define(eq=False)
class Interceptor:
    """Drops odd offsets."""

    batches: list[dict[TopicPartition, list[int]]] = field(factory=list)
    broken: bool = False

    def on_consume(self, records: Records) -> Records:
        self.batches.append(offsets(records))
        if self.broken:
            raise ValueError("broken")
        kept = {tp: [record for record in part if record.offset % 2 == 0] for tp, part in records.items()}
        return {tp: part for tp, part in kept.items() if part}

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise AssertionError("nothing is committed without a group")


@virtual
async def test_an_interceptor_decides_what_the_application_gets() -> None:
    cluster, one, _ = two_topics()
    interceptor = Interceptor()
    async with consumer_on(cluster, "one", interceptors=[interceptor]) as consumer:
        assert offsets(await consumer.getmany(timeout_ms=1000)) == {one: list(range(0, 20, 2))}
        assert await consumer.position(one) == 20
    assert [n for batch in interceptor.batches for n in batch[one]] == list(range(20))


@virtual
async def test_an_interceptor_that_only_wants_commits_passes_records_on() -> None:
    cluster, one, _ = two_topics()
    committed: list[object] = []

    class Committed(ConsumerInterceptor):
        def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            committed.append(offsets)

    async with consumer_on(cluster, "one", interceptors=[Committed()], group_id="g") as consumer:
        assert offsets(await consumer.getmany(timeout_ms=1000)) == {one: list(range(20))}
        await consumer.commit()
    assert committed == [{one: OffsetAndMetadata(20, "", 0)}]


@virtual
async def test_an_interceptor_that_keeps_nothing_is_waited_out() -> None:
    cluster, one, _ = two_topics()

    class Nothing(Interceptor):
        async def on_consume(self, records: Records) -> Records:  # type: ignore[override] # async is allowed as well
            return {}

    async with consumer_on(cluster, "one", interceptors=[Nothing()]) as consumer:
        assert await consumer.getmany(timeout_ms=1000) == {}
        assert await consumer.position(one) == 20


@pytest.mark.parametrize("value", ["x", 5, [5], [object()], {}])
def test_what_is_no_interceptor_is_refused_when_the_consumer_is_made(value: Any) -> None:
    with pytest.raises(ValueError, match=r"interceptors=.*expected a sequence of objects with on_consume\(\) and on_commit\(\)"):
        KafkaConsumer(interceptors=value)


@virtual
async def test_a_partition_of_which_an_interceptor_keeps_nothing_is_left_out() -> None:
    cluster, one, _ = two_topics()

    class Late(Interceptor):
        def on_consume(self, records: Records) -> Records:
            return {tp: [record for record in part if record.offset >= 7] for tp, part in records.items()}

    async with consumer_on(cluster, "one", interceptors=[Late()]) as consumer:
        assert offsets(await consumer.getmany(timeout_ms=1000, max_records=5)) == {one: [7, 8, 9]}
        await consumer.seek_to_beginning(one)
        assert (await consumer.getone(one)).offset == 7


@virtual
async def test_an_interceptor_that_moves_records_to_another_partition_is_named() -> None:
    cluster, _, two = two_topics()

    class Moving(Interceptor):
        def on_consume(self, records: Records) -> Records:
            return dict.fromkeys([two], next(iter(records.values())))

    async with consumer_on(cluster, "one", interceptors=[Moving()]) as consumer:
        with pytest.raises(TypeError, match=r"Moving.*topic='two'.*expected only partitions it was given"):
            await consumer.getmany(timeout_ms=1000)


@virtual
async def test_what_an_interceptor_raises_reaches_the_caller_and_costs_no_record() -> None:
    cluster, _, _ = two_topics()
    interceptor = Interceptor(broken=True)
    async with consumer_on(cluster, "one", interceptors=[interceptor]) as consumer:
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                await consumer.getmany(timeout_ms=1000)
        interceptor.broken = False
        assert len(await read_values(consumer, 10)) == 10


# Deserializers.


class Methods:
    """A deserializer in kafka-python's form."""

    def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
        return f"{topic}:{data.decode()}"


async def later(data: bytes) -> str:
    await anyio.sleep(0.001)
    return data.decode()


@pytest.mark.parametrize(
    ("deserializer", "expected"),
    [
        (bytes.decode, "0"),
        (int, 0),
        (lambda topic, headers, data: (topic, headers, data), ("one", (), b"0")),
        (Methods(), "one:0"),
        (later, "0"),
    ],
)
@virtual
async def test_every_form_of_deserializer_is_called_as_it_wants(deserializer: Any, expected: Any) -> None:
    cluster, _, _ = two_topics()
    async with consumer_on(cluster, "one", value_deserializer=deserializer) as consumer:
        record = await consumer.getone()
    assert (record.value, record.key, record.serialized_value_size) == (expected, None, 1)


@virtual
async def test_keys_have_a_deserializer_of_their_own() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.produce(tp, "v", "w", keys=[b"1", b"x"])
    async with consumer_on(cluster, "t", key_deserializer=int) as consumer:
        assert (await consumer.getone()).key == 1
        with pytest.raises(DeserializationError) as caught:
            await consumer.getone()
        assert (caught.value.field, caught.value.record.key) == ("key", b"x")


class Down(Exception):
    """A registry that is down."""

    retriable = True


@virtual
async def test_an_error_that_is_raised_again_and_again_gets_one_note() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.produce(tp, "v")
    down = Down()

    def deserializer(data: bytes) -> bytes:
        raise down

    async with consumer_on(cluster, "t", value_deserializer=deserializer) as consumer:
        for _ in range(3):
            with pytest.raises(Down):
                await consumer.getone()
    assert len(down.__notes__) == 1


class Sealed(Exception):
    """Cannot be asked anything."""

    @property
    def retriable(self) -> bool:
        raise KeyError("sealed")


@virtual
async def test_an_error_that_cannot_be_asked_whether_it_passes_is_that_of_its_record() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.produce(tp, "0", "1")

    def deserializer(data: bytes) -> bytes:
        if data == b"0":
            raise Sealed
        return data

    async with consumer_on(cluster, "t", value_deserializer=deserializer) as consumer:
        with pytest.raises(DeserializationError, match="at offset 0"):
            await consumer.getone()
        assert (await consumer.getone()).value == b"1"


@virtual
async def test_the_error_of_a_large_record_says_why_and_does_not_repeat_it() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.produce(tp, b"x" * 500_000 + b"\xff")
    async with consumer_on(cluster, "t", value_deserializer=bytes.decode) as consumer:
        with pytest.raises(DeserializationError, match=r"at offset 0 cannot be deserialized: .*invalid start byte") as caught:
            await consumer.getone()
        assert len(str(caught.value)) < 300
        assert len(caught.value.record.value) == 500_001


@pytest.mark.parametrize("deserializer", [int, later, Methods(), lambda topic, headers, data: data.decode()])
async def test_a_key_that_is_missing_and_a_tombstone_stay_none_and_no_deserializer_sees_them(deserializer: Any) -> None:
    tombstone: ConsumerRecord[Any, Any] = ConsumerRecord("t", 0, 5, 0, 0, None, None, (), None, -1, -1, None)
    deserializers = Deserializers.of(deserializer, deserializer)
    assert deserializers is not None
    assert await deserializers.apply([tombstone]) == Deserialized(records=[tombstone], done=1)


def test_without_deserializers_there_is_nothing_to_call() -> None:
    assert Deserializers.of(None, None) is None
