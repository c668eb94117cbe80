"""The blocking facade on a real broker: signal handlers that raise, other threads, forks."""

import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafka_async
from kafka_async import ConsumerState, TopicPartition
from kafka_async.errors import IllegalStateError
from kafka_async.sync import KafkaConsumer
from tests.brokers import KafkaCluster

from .groups import new_group
from .tools import PATIENCE, in_a_child, new_topic

PACKAGE = Path(kafka_async.__file__).parent

pytestmark = [
    pytest.mark.brokers,
    # An alarm may ring between the making of a coroutine and its first step, and within an import.
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


class OutOfTimeError(Exception):
    """What the handler of a soft time limit raises."""


@pytest.fixture
def alarms() -> Iterator[random.Random]:
    """Have alarms raise ``OutOfTimeError`` wherever they come."""

    def ring(number: int, frame: Any) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, ring)
    yield random.Random(1)  # noqa: S311  # not a secret
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _options(cluster: KafkaCluster, group: str | None, **options: Any) -> dict[str, Any]:
    defaults = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
    return defaults | ({"group_id": group} if group is not None else {}) | options


def _getmany(consumer: Any) -> list[int]:
    return [record.offset for records in consumer.getmany(timeout_ms=1000, max_records=500).values() for record in records]


def _getone(consumer: Any) -> list[int]:
    return [consumer.getone().offset for _ in range(1)]


def _arrow(consumer: Any) -> list[int]:
    offsets: list[int] = consumer.getarrow(timeout_ms=1000, max_records=500).column("offset").to_pylist()
    return offsets


@pytest.mark.parametrize("read", [_getmany, _getone, _arrow])
def test_a_read_call_that_an_exception_leaves_has_handed_nothing_over(
    kafka44: KafkaCluster, alarms: random.Random, read: Any
) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 60_000)
    position = interruptions = 0
    ends = time.monotonic() + 20
    with KafkaConsumer(**_options(kafka44, None)) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        read(consumer)  # with all that is imported when first asked for
        consumer.seek(partition, 0)
        while interruptions < 1500 and time.monotonic() < ends:
            if position > 50_000:
                consumer.seek(partition, 0)
                position = 0
            offsets: list[int] = []
            try:
                signal.setitimer(signal.ITIMER_REAL, alarms.choice((0.00005, 0.0003, 0.001, 0.003)) * alarms.random() + 1e-6)
                try:
                    offsets = read(consumer)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except OutOfTimeError as error:
                interruptions += 1
                found = consumer.position(partition)
                if _went_through_the_package(error):
                    assert found == position
                position = found  # else the answer had come back to us already, and was lost here
                continue
            assert offsets == list(range(position, position + len(offsets)))
            position += len(offsets)
    assert interruptions > 100


def _went_through_the_package(error: BaseException) -> bool:
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code.co_filename.startswith(str(PACKAGE)) for frame, _ in frames)


def test_what_was_not_returned_is_not_committed(kafka44: KafkaCluster, alarms: random.Random) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 20_000)
    beyond = []
    for turn in range(40):
        group = f"{topic}-{turn}"
        box: list[int] = [0]
        consumer = KafkaConsumer(topic, **_options(kafka44, group, max_poll_records=10))
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            with consumer:
                signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.02 * alarms.random())
                for record in consumer:
                    box[0] = record.offset + 1
        except OutOfTimeError:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            consumer.stop()
        committed = {partition: offset for (_, partition), offset in kafka44.committed(group).items()}.get(0, 0)
        if committed > box[0]:
            beyond.append((committed, box[0]))
    assert not beyond


def test_stop_from_another_thread_ends_a_for_loop(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 100)
    for turn in range(8):
        consumer = KafkaConsumer(topic, **_options(kafka44, f"{topic}-{turn}"))
        consumer.start()
        timer = threading.Timer(0.05 * turn, consumer.stop)
        timer.start()
        seen = [record.offset for record in consumer]
        timer.join()
        assert seen == list(range(len(seen)))


def test_leaving_with_in_another_thread_commits_what_was_handed_out_and_ends_the_loop(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 20_000)
    for turn in range(5):
        group = f"{topic}-{turn}"
        seen: list[int] = []
        after: list[int] = []
        left = threading.Event()
        errors: list[BaseException] = []

        def loop(consumer: Any, left: threading.Event, seen: list[int], after: list[int], errors: list[BaseException]) -> None:
            try:
                for record in consumer:
                    (after if left.is_set() else seen).append(record.offset)
                    time.sleep(0.0005)  # the handler's work
            except BaseException as error:  # looked at below
                errors.append(error)

        with KafkaConsumer(topic, **_options(kafka44, group)) as consumer:
            thread = threading.Thread(target=loop, args=(consumer, left, seen, after, errors))
            thread.start()
            while len(seen) < 50:
                time.sleep(0.01)  # the other thread reads
        left.set()
        thread.join(10)
        assert not thread.is_alive()
        assert not errors
        assert len(after) <= 1  # the record that was on its way
        committed = kafka44.committed(group)[topic, 0]
        assert len(seen) + len(after) - 1 <= committed <= len(seen) + len(after)


def test_two_threads_that_loop_at_once_get_each_record_once_or_an_error(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 20_000)
    seen: list[list[int]] = [[], []]
    errors: list[Exception] = []
    before = sys.getswitchinterval()
    with KafkaConsumer(topic, **_options(kafka44, None, max_poll_records=3)) as consumer:

        def loop(seen: list[int]) -> None:
            while consumer.state is not ConsumerState.CLOSED:
                try:
                    for record in consumer:
                        seen.append(record.offset)  # noqa: PERF401  # a loop is what this is about
                except IllegalStateError:
                    pass  # the other thread is in it
                except Exception as error:  # looked at below
                    errors.append(error)

        threads = [threading.Thread(target=loop, args=(each,)) for each in seen]
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            until = time.monotonic() + PATIENCE
            while len(seen[0]) + len(seen[1]) < 20_000 and time.monotonic() < until:
                time.sleep(0.01)  # the threads read
        finally:
            sys.setswitchinterval(before)
    for thread in threads:
        thread.join(PATIENCE)
    assert not errors
    assert sorted(seen[0] + seen[1]) == list(range(20_000))


@pytest.mark.parametrize("call", ["getone", "the loop goes on", "a new loop", "stop", "the block is left"])
def test_a_consumer_that_was_made_before_a_fork_says_so_in_the_child(kafka44: KafkaCluster, call: str) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10)
    with KafkaConsumer(topic, **_options(kafka44, None)) as consumer:
        loop = iter(consumer)
        assert next(loop).offset == 0
        calls: dict[str, Callable[[], Any]] = {
            "getone": consumer.getone,
            "the loop goes on": lambda: next(loop),
            "a new loop": lambda: next(iter(consumer)),
            "stop": consumer.stop,
            "the block is left": lambda: consumer.__exit__(None, None, None),
        }
        assert in_a_child(calls[call]) == IllegalStateError.__name__
        assert next(iter(consumer)).offset == 1


def test_a_consumer_that_was_made_before_a_fork_and_not_started_reads_in_the_child(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10)
    consumer = KafkaConsumer(topic, **_options(kafka44, None))

    def read() -> None:
        with consumer:
            assert [consumer.getone().offset for _ in range(10)] == list(range(10))

    assert in_a_child(read) == "nothing"
    read()


def test_two_protocols_of_a_group_are_left_in_order(kafka44: KafkaCluster) -> None:
    for protocol in ("classic", "consumer"):
        topic = new_topic(kafka44)
        kafka44.produce(topic, 50)
        group = new_group(kafka44, protocol)
        with KafkaConsumer(topic, **_options(kafka44, group.name, group_protocol=protocol)) as consumer:
            for record in consumer:
                if record.offset == 49:
                    break
        assert group.committed() == {0: 50}
