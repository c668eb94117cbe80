"""The blocking facade's ``process`` on a real broker: handlers on threads, signals, other threads, the end."""

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import pytest

from kafka_async import ConsumerRebalanceListener, Reject, Retry, TopicPartition
from kafka_async.errors import IllegalStateError, ProcessingError
from kafka_async.sync import KafkaConsumer
from tests.brokers import KafkaCluster

from .groups import Group, both, new_group
from .tools import PATIENCE, Record, new_topic

pytestmark = pytest.mark.brokers


def fill(cluster: KafkaCluster, count: int, partitions: int = 2) -> str:
    topic = new_topic(cluster, partitions)
    cluster.produce(topic, count, partitions=partitions, keys=lambda index: b"k%d" % (index % 20))
    return topic


def member(group: Group, topic: str, **options: Any) -> "KafkaConsumer[Any, Any]":
    defaults = {"bootstrap_servers": group.cluster.bootstrap_servers, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}
    return KafkaConsumer(topic, **{**defaults, **group.options(), "auto_commit_interval_ms": 200, **options})


def until(condition: Any, seconds: float = PATIENCE) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


class Threads:
    """A handler that takes a little time, and what it saw."""

    def __init__(self, seconds: float = 0.002) -> None:
        self.seconds = seconds
        self.lock = threading.Lock()
        self.done: list[tuple[int, int]] = []
        self.running: set[tuple[int, bytes]] = set()
        self.peak = 0
        self.names: set[str] = set()

    def __call__(self, record: Record) -> None:
        with self.lock:
            assert (record.partition, record.key) not in self.running
            self.running.add((record.partition, record.key))
            self.peak = max(self.peak, len(self.running))
            self.names.add(threading.current_thread().name)
        time.sleep(self.seconds)
        with self.lock:
            self.running.remove((record.partition, record.key))
            self.done.append((record.partition, record.offset))


@both
def test_handlers_run_on_threads_and_what_they_did_is_committed(kafka44: KafkaCluster, protocol: str) -> None:
    topic = fill(kafka44, 2_000)
    group, handled = new_group(kafka44, protocol), Threads()
    with member(group, topic) as consumer:
        with consumer.processing(handled, concurrency=8) as run:
            until(lambda: len(handled.done) == 2_000)
            assert run.statistics().attempts >= 1_900
            run.drain()
            assert group.committed() == {0: 1_000, 1: 1_000}
        assert consumer.getmany(timeout_ms=100) == {}, "read as before"
    assert handled.peak == 8
    assert len(set(handled.done)) == len(handled.done)
    assert threading.current_thread().name not in handled.names


@both
def test_stop_from_another_thread_ends_process_and_commits(kafka44: KafkaCluster, protocol: str) -> None:
    topic = fill(kafka44, 300)
    group, handled = new_group(kafka44, protocol), Threads(0.05)
    consumer = member(group, topic)
    consumer.start()
    ended: list[float] = []

    def stop() -> None:
        until(lambda: len(handled.done) >= 20)
        began = time.monotonic()
        consumer.stop()
        ended.append(time.monotonic() - began)

    thread = threading.Thread(target=stop)
    thread.start()
    consumer.process(handled, concurrency=4)
    thread.join()
    assert ended[0] < 15, "it waits for what runs, which is short, and not until its own timeout"
    done = len(handled.done)
    assert sum(group.committed().values()) <= done < 300
    again = Threads(0)
    with member(group, topic) as following, following.processing(again):
        until(lambda: len(again.done) == 300 - done)
        time.sleep(0.5)
    assert not set(again.done) & set(handled.done), "what was done out of order is known"


def test_the_error_of_a_record_comes_out_of_process(kafka44: KafkaCluster) -> None:
    topic = fill(kafka44, 20, 1)
    group = new_group(kafka44, "consumer")

    def refuse(record: Record) -> None:
        if record.offset == 7:
            raise Reject("not this one")

    with member(group, topic) as consumer, pytest.raises(ProcessingError) as caught:
        consumer.process(refuse, order="partition", retry=Retry(attempts=5))
    assert caught.value.record.offset == 7
    assert isinstance(caught.value.__cause__, Reject)
    assert group.committed() == {0: 7}


def test_system_exit_of_a_handler_ends_the_program_and_commits_what_is_done(kafka44: KafkaCluster) -> None:
    topic = fill(kafka44, 5, 1)
    group = new_group(kafka44, "consumer")

    def leave(record: Record) -> None:
        if record.offset == 3:
            raise SystemExit(4)

    with member(group, topic) as consumer, pytest.raises(SystemExit):
        consumer.process(leave, order="partition")
    assert group.committed() == {0: 3}


@pytest.fixture
def interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("interrupts_the_wait", [True, False])
@both
def test_control_c_drains_and_commits(kafka44: KafkaCluster, interrupts: None, protocol: str, interrupts_the_wait: bool) -> None:
    """A signal that comes just before a wait does not interrupt it; nor does one that another thread takes."""
    topic = fill(kafka44, 40, 1)
    group, handled = new_group(kafka44, protocol), Threads(2.0)

    def interrupt() -> None:
        until(lambda: handled.running)
        if interrupts_the_wait:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with member(group, topic) as consumer, pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the thread interrupts it
        thread.start()
        consumer.process(handled, concurrency=4, order="none")
    thread.join()
    assert len(handled.done) == 4
    assert group.committed() == {0: 4}


def test_a_second_control_c_gives_up_what_runs(kafka44: KafkaCluster, interrupts: None) -> None:
    topic = fill(kafka44, 5, 1)
    group, release, begun = new_group(kafka44, "consumer"), threading.Event(), threading.Event()
    hanging: list[threading.Thread] = []

    def hang(record: Record) -> None:
        hanging.append(threading.current_thread())
        begun.set()
        release.wait(60)

    def interrupt() -> None:
        begun.wait(PATIENCE)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(3)
        release.set()

    thread = threading.Thread(target=interrupt)
    began = time.monotonic()
    with member(group, topic) as consumer, pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the thread interrupts it
        thread.start()
        consumer.process(hang, concurrency=1, drain_timeout_ms=50_000)
    thread.join()
    hanging[0].join(PATIENCE)  # it was left behind
    assert time.monotonic() - began < 40
    assert group.committed() in ({}, {0: 0})


def test_the_consumer_is_in_use_meanwhile(kafka44: KafkaCluster) -> None:
    topic = fill(kafka44, 5, 1)
    group, handled = new_group(kafka44, "classic"), Threads(0)
    found: list[IllegalStateError] = []

    def ask(record: Record) -> None:
        try:
            consumer.getmany()
        except IllegalStateError as error:
            found.append(error)

    with member(group, topic) as consumer:
        with consumer.processing(ask) as run:
            until(lambda: len(found) == 5)
            with pytest.raises(IllegalStateError, match="event loop"):
                consumer.getmany()
            assert consumer.ready
            assert consumer.statistics().records_consumed == 5
            with pytest.raises(IllegalStateError), run:
                pass
        consumer.seek(TopicPartition(topic, 0), 0)
        with consumer.processing(handled):
            until(lambda: len(handled.done) == 5)


def test_stop_inside_the_block_ends_it(kafka44: KafkaCluster) -> None:
    topic = fill(kafka44, 50, 1)
    group, handled = new_group(kafka44, "consumer"), Threads(0.01)
    with member(group, topic) as consumer, consumer.processing(handled, order="partition") as run:
        until(lambda: len(handled.done) >= 5)
        consumer.stop()
        run.wait()
    assert group.committed() == {0: len(handled.done)}


async def _handle(record: Record) -> None:
    return


@pytest.mark.parametrize("how", [{"handler": _handle}, {"handler": print, "on_failure": _handle}], ids=["handler", "on_failure"])
def test_coroutine_functions_are_refused_before_anything_runs(kafka44: KafkaCluster, how: Any) -> None:
    with member(new_group(kafka44, "consumer"), "orders") as consumer, pytest.raises(TypeError, match="plain function"):
        consumer.processing(**how)


class Uses(ConsumerRebalanceListener):
    """A listener that uses the consumer while ``process`` has it: it keeps offsets of its own, and takes its time."""

    def __init__(self) -> None:
        self.consumer: KafkaConsumer[Any, Any] | None = None
        self.kept: dict[TopicPartition, int] = {}
        self.wrong: list[BaseException] = []

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        for partition in assigned:
            if partition in self.kept:
                self.use(partial(self.reader.seek, partition, self.kept[partition]))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.use(self.reader.commit)
        time.sleep(0.3)
        for partition in revoked:
            self.use(partial(self.keep, partition))

    def keep(self, partition: TopicPartition) -> None:
        self.kept[partition] = self.reader.position(partition)

    @property
    def reader(self) -> "KafkaConsumer[Any, Any]":
        assert self.consumer is not None
        return self.consumer

    def use(self, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            self.wrong.append(error)
            raise


@both
def test_a_listener_uses_the_consumer_while_members_come_and_go_and_one_stops_meanwhile(
    kafka44: KafkaCluster, protocol: str
) -> None:
    topic, group, work = fill(kafka44, 2000, partitions=4), new_group(kafka44, protocol), Threads(0.001)
    listeners = [Uses(), Uses()]

    def run(listener: Uses, consumer: "KafkaConsumer[Any, Any]") -> None:
        with consumer:
            consumer.process(work, concurrency=4)

    consumers = []
    for listener in listeners:
        consumer = member(group, topic)
        consumer.subscribe([topic], listener=listener)
        listener.consumer = consumer
        consumers.append(consumer)
    threads = [threading.Thread(target=run, args=pair) for pair in zip(listeners, consumers, strict=True)]
    threads[0].start()
    until(lambda: len(work.done) > 100)
    threads[1].start()
    until(lambda: all(consumer.assignment() for consumer in consumers))
    consumers[0].stop()
    threads[0].join(PATIENCE)
    until(lambda: len(set(work.done)) == 2000)
    consumers[1].stop()
    threads[1].join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert [listener.wrong for listener in listeners] == [[], []]
    assert listeners[0].kept, "partitions were revoked while it processed"
