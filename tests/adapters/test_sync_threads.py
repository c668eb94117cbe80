"""The blocking consumers and other threads: what may be asked while one of them has the consumer."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_async import ConsumerState
from kafka_async.errors import IllegalStateError
from kafka_async.sync import KafkaConsumer, ShareConsumer
from kafka_async.testing import Cluster, ThreadedCluster

PATIENCE = 20.0
both = pytest.mark.parametrize("made", [KafkaConsumer, ShareConsumer])


@pytest.fixture
def brokers() -> Iterator[str]:
    cluster = Cluster()
    cluster.topic("t")
    cluster.group("g", share_auto_offset_reset="earliest")
    cluster.produce("t", value=b"0")
    with ThreadedCluster(cluster) as served:
        yield served.bootstrap


def consumer_of(made: Any, brokers: str) -> Any:
    options = {"auto_offset_reset": "earliest"} if made is KafkaConsumer else {}
    return made("t", bootstrap_servers=brokers, group_id="g", **options)


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends
        threading.Event().wait(0.01)


def is_taken(consumer: Any) -> bool:
    """Whether another thread has the consumer."""
    try:
        consumer.getmany()
    except IllegalStateError:
        return True
    return False


def answers(consumer: Any) -> None:
    """Ask all that a health check may want to know."""
    assert consumer.ready
    assert consumer.alive
    assert consumer.subscription() == frozenset({"t"})
    assert consumer.statistics().state is consumer.state
    assert consumer.metrics()


@both
def test_a_health_check_is_answered_while_another_thread_waits_for_a_record(made: Any, brokers: str) -> None:
    consumer = consumer_of(made, brokers)
    seen: list[bytes] = []

    def read() -> None:
        while consumer.state is not ConsumerState.CLOSED:
            try:
                for record in consumer:
                    seen.append(record.value)  # noqa: PERF401  # an error must not lose what was seen
            except IllegalStateError:
                pass  # we were just asking whether the consumer is taken

    with consumer:
        reader = threading.Thread(target=read)
        reader.start()
        until(lambda: bool(seen))
        until(lambda: is_taken(consumer) and consumer.ready)
        answers(consumer)
    reader.join(PATIENCE)
    assert not reader.is_alive()


@both
def test_a_health_check_is_answered_while_another_thread_processes(made: Any, brokers: str) -> None:
    consumer = consumer_of(made, brokers)
    handling, go_on = threading.Event(), threading.Event()
    inside: list[Any] = []

    def handle(record: Any) -> None:
        inside.append(consumer.statistics())  # a handler may ask too
        handling.set()
        go_on.wait(PATIENCE)

    with consumer:
        processor = threading.Thread(target=consumer.process, args=(handle,))
        processor.start()
        assert handling.wait(PATIENCE)
        assert is_taken(consumer)
        answers(consumer)
        go_on.set()
    processor.join(PATIENCE)
    assert not processor.is_alive()
    assert len(inside) == 1
