"""``for record in consumer`` of the blocking consumers, and its end by ``consumer_timeout_ms``, which is kafka-python's."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

import kafka_async
from kafka_async import ConsumerConfig, ConsumerInterceptor, ConsumerRecord, TopicPartition
from kafka_async.sync import KafkaConsumer, ShareConsumer
from kafka_async.testing import Cluster, ThreadedCluster

PATIENCE = 20.0
PARTITION = TopicPartition("t", 0)


@pytest.fixture
def served() -> Iterator[ThreadedCluster]:
    cluster = Cluster()
    cluster.topic("t")
    with ThreadedCluster(cluster) as served:
        write(served, 0, 1, 2)
        yield served


def write(served: ThreadedCluster, *numbers: int) -> None:
    def produce(cluster: Cluster) -> None:
        for number in numbers:
            cluster.produce("t", value=b"%d" % number)

    served.call(produce).result()


def consumer_of(served: ThreadedCluster, **options: Any) -> KafkaConsumer[Any, Any]:
    options = {"group_id": "g", "auto_offset_reset": "earliest", **options}
    return KafkaConsumer("t", bootstrap_servers=served.bootstrap, **options)


def share_consumer_of(served: ThreadedCluster, **options: Any) -> ShareConsumer[Any, Any]:
    def begin_at_the_earliest(cluster: Cluster) -> None:
        cluster.group("s", share_auto_offset_reset="earliest")

    served.call(begin_at_the_earliest).result()
    return ShareConsumer("t", bootstrap_servers=served.bootstrap, group_id="s", **options)


def all_accepted(consumer: ShareConsumer[Any, Any]) -> list[int]:
    seen: list[int] = []
    for record in consumer:
        with record:
            seen.append(int(record.value))
    return seen


def all_of(consumer: KafkaConsumer[Any, Any]) -> list[int]:
    return [int(record.value) for record in consumer]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"value_deserializer": int}], ids=["bytes", "deserialized"])
def test_an_iteration_ends_when_nothing_has_come_for_so_long_and_another_goes_on_from_there(
    served: ThreadedCluster, options: dict[str, Any]
) -> None:
    with consumer_of(served, consumer_timeout_ms=1000, **options) as consumer:
        assert all_of(consumer) == [0, 1, 2]
        write(served, 3, 4)
        assert all_of(consumer) == [3, 4]
        assert all_of(consumer) == []
        write(served, 5)
        assert int(consumer.getone().value) == 5


def test_an_iteration_that_may_not_wait_takes_what_is_there(served: ThreadedCluster) -> None:
    with consumer_of(served, consumer_timeout_ms=0) as consumer:
        seen: list[int] = []
        while len(seen) < 3:
            seen += all_of(consumer)
    assert seen == [0, 1, 2]


def test_the_last_record_before_the_end_is_done(served: ThreadedCluster) -> None:
    """The caller asked for the next one. So it is committed though an exception leaves the block, which commits nothing held."""

    def use() -> None:
        with consumer_of(served, consumer_timeout_ms=1000) as consumer:
            assert all_of(consumer) == [0, 1, 2]
            raise LookupError

    with pytest.raises(LookupError):
        use()
    with consumer_of(served) as consumer:
        assert consumer.committed(PARTITION) == 3


def goes_on_waiting(
    served: ThreadedCluster,
    made: KafkaConsumer[Any, Any] | ShareConsumer[Any, Any],
    held: Callable[[Any], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Records come though the iteration has waited for them. ``held``: what to be in while one is worked on."""
    seen: list[int] = []
    waits, last = threading.Event(), threading.Event()

    def read() -> None:
        for record in consumer:
            with held(record):
                seen.append(int(record.value))
            (waits if seen[-1] < 3 else last).set()

    with made as consumer:
        reader = threading.Thread(target=read)
        reader.start()
        assert waits.wait(PATIENCE)
        write(served, 3)
        assert last.wait(PATIENCE)
    reader.join(PATIENCE)
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"consumer_timeout_ms": float("inf")}, {"consumer_timeout_ms": -1}], ids=str)
def test_an_iteration_without_an_end_goes_on_waiting(served: ThreadedCluster, options: dict[str, Any]) -> None:
    goes_on_waiting(served, consumer_of(served, **options))


class Dropping(ConsumerInterceptor):
    """Drops the records before an offset, and takes some seconds for each call."""

    def __init__(self, before: int, seconds: float = 0.0) -> None:
        self.before = before
        self.seconds = seconds
        self.seen = 0

    def on_consume(
        self, records: dict[TopicPartition, list[ConsumerRecord[Any, Any]]]
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        self.seen += sum(map(len, records.values()))
        threading.Event().wait(self.seconds)
        return {tp: [record for record in found if record.offset >= self.before] for tp, found in records.items()}


@pytest.mark.slow
def test_records_that_an_interceptor_drops_have_come_too(served: ThreadedCluster) -> None:
    """The time is about nothing coming. Else what is dropped would hide what was fetched behind it."""
    write(served, *range(3, 200))
    dropping = Dropping(100)
    found: list[int] = []
    with consumer_of(served, consumer_timeout_ms=0, interceptors=[dropping]) as consumer:
        while not dropping.seen:
            found = all_of(consumer)
        assert found == list(range(100, 200))
        assert dropping.seen == 200


def test_the_time_for_the_next_record_begins_after_those_that_were_dropped(served: ThreadedCluster) -> None:
    write(served, *range(3, 40))
    dropping = Dropping(30, 0.1)
    found: list[int] = []
    with consumer_of(served, consumer_timeout_ms=300, interceptors=[dropping], max_poll_records=8) as consumer:
        while not dropping.seen:
            found = all_of(consumer)
    assert found == list(range(30, 40)), "no iteration ended amid records"


@pytest.mark.parametrize("value", ["1000", None, True, float("nan")], ids=repr)
def test_a_time_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^consumer_timeout_ms=.*: expected a number of milliseconds$"):
        KafkaConsumer("t", consumer_timeout_ms=value)
    with pytest.raises(ValueError, match=r"^consumer_timeout_ms=.*: expected a number of milliseconds$"):
        ShareConsumer("t", group_id="g", consumer_timeout_ms=value)


def test_the_asyncio_consumers_say_who_takes_it() -> None:
    options: Any = {"consumer_timeout_ms": 1000, "group_id": "g"}
    for kind in (kafka_async.KafkaConsumer, kafka_async.ShareConsumer):
        with pytest.warns(DeprecationWarning, match=r"consumer_timeout_ms is ignored: .*kafka_async\.sync; getmany"):
            kind("t", **options)


def test_a_consumer_from_a_configuration_takes_it(served: ThreadedCluster) -> None:
    config = ConsumerConfig.of(bootstrap_servers=served.bootstrap, group_id="g", auto_offset_reset="earliest")
    with KafkaConsumer.from_config(config, "t", consumer_timeout_ms=1000) as consumer:
        assert all_of(consumer) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"value_deserializer": bytes}], ids=["bytes", "deserialized"])
def test_an_iteration_of_a_share_consumer_ends_and_another_goes_on_from_there(
    served: ThreadedCluster, options: dict[str, Any]
) -> None:
    with share_consumer_of(served, consumer_timeout_ms=1000, **options) as consumer:
        assert all_accepted(consumer) == [0, 1, 2]
        write(served, 3, 4)
        assert all_accepted(consumer) == [3, 4]
        assert all_accepted(consumer) == []
        write(served, 5)
        record = consumer.getone()
        record.accept()
        assert int(record.value) == 5


def test_an_iteration_of_a_share_consumer_that_may_not_wait_takes_what_is_there(served: ThreadedCluster) -> None:
    with share_consumer_of(served, consumer_timeout_ms=0) as consumer:
        seen: list[int] = []
        while len(seen) < 3:
            seen += all_accepted(consumer)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("options", [{}, {"consumer_timeout_ms": -1}], ids=str)
def test_an_iteration_of_a_share_consumer_without_an_end_goes_on_waiting(served: ThreadedCluster, options: dict[str, Any]) -> None:
    goes_on_waiting(served, share_consumer_of(served, **options), held=lambda record: record)
