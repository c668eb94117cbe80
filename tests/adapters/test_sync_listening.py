"""The blocking consumer and call-backs that use it while handlers run, as those of the asyncio consumer may."""

import signal
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_async import ConsumerInterceptor, ConsumerRebalanceListener, ConsumerState, TopicPartition
from kafka_async.adapters.sync import Processing
from kafka_async.application.callbacks import Batch
from kafka_async.errors import IllegalStateError
from kafka_async.sync import KafkaConsumer
from kafka_async.testing import Cluster, ThreadedCluster

from .test_sync_threads import PATIENCE, until

EACH = 3
PARTITIONS = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def brokers(cluster: Cluster) -> Iterator[str]:
    for partition in cluster.topic("t", 2):
        for number in range(EACH):
            cluster.produce("t", value=b"%d" % number, partition=partition.partition)
    with ThreadedCluster(cluster) as served:
        yield served.bootstrap


class Listener(ConsumerRebalanceListener):
    """Calls functions of the test. What they raise is kept, too: processing may not last until it is raised."""

    def __init__(self, **functions: Callable[[Collection[TopicPartition]], object]) -> None:
        self.functions = functions
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []
        self.failures: list[BaseException] = []
        self.thread = threading.current_thread()

    def _call(self, name: str, partitions: Collection[TopicPartition]) -> None:
        self.thread = threading.current_thread()
        try:
            self.functions.get(name, len)(partitions)
        except BaseException as error:
            self.failures.append(error)
            raise
        finally:
            self.calls.append((name, frozenset(partitions)))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._call("revoked", revoked)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._call("assigned", assigned)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._call("lost", lost)

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


@contextmanager
def consuming(brokers: str, listener: Listener) -> Iterator["KafkaConsumer[Any, Any]"]:
    consumer: KafkaConsumer[Any, Any] = KafkaConsumer(
        bootstrap_servers=brokers,
        group_id="g",
        group_protocol="classic",
        partition_assignment_strategy="range",
        heartbeat_interval_ms=100,
        auto_offset_reset="earliest",
    )
    consumer.subscribe(["t"], listener=listener)
    with consumer:
        yield consumer


@contextmanager
def processing(
    brokers: str, listener: Listener, listen: Callable[["KafkaConsumer[Any, Any]"], None] = lambda consumer: None
) -> Iterator[tuple["KafkaConsumer[Any, Any]", Processing]]:
    """Begin to process; all records that are there have been handled."""
    with consuming(brokers, listener) as consumer, consumer.processing(lambda record: None) as run:
        until(lambda: run.statistics().handled >= EACH * len(PARTITIONS))
        listen(consumer)
        yield consumer, run


def until_a_listener_alone_holds_it_up(consumer: "KafkaConsumer[Any, Any]") -> None:
    """Wait until the block of ``processing`` is being left and all is done in it, but for a listener that is at work."""
    until(lambda: "consumer-processing-metrics" not in consumer.metrics())


def in_another_thread(call: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result(PATIENCE)


def test_a_listener_uses_the_consumer_in_a_rebalance_while_handlers_run(cluster: Cluster, brokers: str) -> None:
    stored: dict[TopicPartition, int] = {}

    def revoked(partitions: Collection[TopicPartition]) -> None:
        consumer = users[0]
        assert consumer.assignment() == PARTITIONS == partitions
        consumer.commit()  # what is done
        for partition in partitions:
            assert consumer.next_offsets()[partition].offset == consumer.position(partition) == EACH
            assert consumer.committed(partition) == EACH
            assert consumer.current_lag(partition) == 0
            stored[partition] = consumer.position(partition)

    def assigned(partitions: Collection[TopicPartition]) -> None:
        if not users:
            return
        consumer = users[0]
        assert consumer.assignment() == PARTITIONS
        for partition in partitions:
            assert stored[partition] == EACH
            consumer.seek(partition, 1)  # where the test's database says
        consumer.pause(*partitions)
        assert consumer.paused() == partitions
        consumer.resume(*partitions)

    users: list[KafkaConsumer[Any, Any]] = []
    listener = Listener(revoked=revoked, assigned=assigned)
    with processing(brokers, listener, users.append) as (consumer, run):
        cluster.rebalance("g")
        until(lambda: run.statistics().handled >= EACH * 2 + (EACH - 1) * 2 or bool(listener.failures))
        assert listener.names() == ["assigned", "revoked", "assigned"]
        assert consumer.alive
    assert {tp: offset.offset for tp, offset in cluster.committed("g").items()} == dict.fromkeys(PARTITIONS, EACH)


def test_what_a_listener_must_not_do_while_handlers_run_raises_there(cluster: Cluster, brokers: str) -> None:
    """Read, since handlers are given the records, and let other threads in."""
    users: list[KafkaConsumer[Any, Any]] = []

    def revoked(partitions: Collection[TopicPartition]) -> None:
        consumer = users[0]
        for refused in (consumer.getone, consumer.getmany, lambda: in_another_thread(lambda: consumer.pause(*partitions))):
            with pytest.raises(IllegalStateError):
                refused()

    listener = Listener(revoked=revoked)
    with processing(brokers, listener, users.append) as (consumer, _):
        cluster.rebalance("g")
        until(lambda: len(listener.calls) == 3)
        with pytest.raises(IllegalStateError):
            consumer.pause(*PARTITIONS)  # as without a rebalance


def test_what_a_listener_raises_while_handlers_run_ends_them(cluster: Cluster, brokers: str) -> None:
    def revoked(partitions: Collection[TopicPartition]) -> None:
        raise OSError("the database is away")

    def rebalance() -> None:
        with processing(brokers, Listener(revoked=revoked)) as (_, run):
            cluster.rebalance("g")
            run.wait()

    with pytest.raises(OSError, match="the database is away"):
        rebalance()


def test_a_listener_uses_the_consumer_as_stop_of_another_thread_calls_it(cluster: Cluster, brokers: str) -> None:
    """Processing has ended then, and the consumer is still lent to its event loop."""
    users: list[KafkaConsumer[Any, Any]] = []
    offsets: dict[TopicPartition, int] = {}

    def revoked(partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            offsets[partition] = users[0].position(partition)
            users[0].commit({partition: 2})

    with processing(brokers, Listener(revoked=revoked), users.append) as (consumer, _):
        in_another_thread(consumer.stop)
        assert offsets == dict.fromkeys(PARTITIONS, EACH)
        assert {tp: offset.offset for tp, offset in cluster.committed("g").items()} == dict.fromkeys(PARTITIONS, 2)
        assert consumer.state is ConsumerState.CLOSED


def test_a_listener_that_does_not_return_does_not_hold_up_stop(cluster: Cluster, brokers: str) -> None:
    goes_on = threading.Event()
    listener = Listener(revoked=lambda partitions: goes_on.wait(PATIENCE))
    try:
        with processing(brokers, listener) as (consumer, _):
            in_another_thread(lambda: consumer.stop(timeout_ms=1000))
            assert consumer.state is ConsumerState.CLOSED
            assert listener.names() == ["assigned"]
    finally:
        goes_on.set()
    listener.thread.join(PATIENCE)
    assert listener.names() == ["assigned", "revoked"]


@pytest.mark.parametrize("name", ["revoked", "assigned"])
def test_a_block_that_ends_waits_for_a_listener_that_is_at_work(cluster: Cluster, brokers: str, name: str) -> None:
    """That runs on the event loop of the block. It was broken off, and the next read or ``stop`` raised a ``CancelledError``."""
    entered = threading.Event()
    users: list[KafkaConsumer[Any, Any]] = []

    def at_work(partitions: Collection[TopicPartition]) -> None:
        if users:
            entered.set()
            until_a_listener_alone_holds_it_up(users[0])
            for partition in partitions:
                assert users[0].position(partition) <= EACH

    listener = Listener(**{name: at_work})
    with consuming(brokers, listener) as consumer:
        with consumer.processing(lambda record: None) as run:
            until(lambda: run.statistics().handled >= EACH * len(PARTITIONS))
            users.append(consumer)
            cluster.rebalance("g")
            assert entered.wait(PATIENCE)
        assert listener.names() == ["assigned", "revoked", "assigned"][: 2 if name == "revoked" else 3]
        users.clear()
        until(lambda: consumer.getmany(timeout_ms=100) == {} and len(listener.calls) >= 3)
        assert listener.names() == ["assigned", "revoked", "assigned"]
        assert consumer.assignment() == PARTITIONS
    assert not listener.failures
    assert cluster.members("g") == []


def test_a_second_signal_gives_up_a_listener_that_does_not_return(cluster: Cluster, brokers: str) -> None:
    """The next read says so. The listener, should it go on, may use the consumer as any other thread may."""
    main = threading.main_thread().ident
    assert main is not None
    waits, entered, goes_on = threading.Event(), threading.Event(), threading.Event()
    users: list[KafkaConsumer[Any, Any]] = []

    def revoked(partitions: Collection[TopicPartition]) -> None:
        if not entered.is_set():
            entered.set()
            goes_on.wait(PATIENCE)
            users[0].pause(*partitions)

    def signals() -> None:
        waits.wait(PATIENCE)
        cluster.rebalance("g")
        entered.wait(PATIENCE)
        signal.pthread_kill(main, signal.SIGINT)
        until_a_listener_alone_holds_it_up(users[0])
        signal.pthread_kill(main, signal.SIGINT)

    def interrupted(consumer: "KafkaConsumer[Any, Any]") -> None:
        with consumer.processing(lambda record: None) as run:
            until(lambda: run.statistics().handled >= EACH * len(PARTITIONS))
            waits.set()
            run.wait()

    listener = Listener(revoked=revoked)
    with consuming(brokers, listener) as consumer:
        users.append(consumer)
        user = threading.Thread(target=signals)
        user.start()
        with pytest.raises(KeyboardInterrupt):
            interrupted(consumer)
        user.join(PATIENCE)
        with pytest.raises(TimeoutError, match="a call-back of the rebalance listener did not return in time"):
            until(lambda: bool(consumer.getmany(timeout_ms=100)))
        until(lambda: consumer.getmany(timeout_ms=100) == {} and listener.names() == ["assigned", "assigned"])
        goes_on.set()
        until(lambda: len(listener.calls) == 3)
        assert not listener.failures
        assert consumer.paused() == PARTITIONS
    assert cluster.members("g") == []


def test_a_listener_stops_the_consumer_while_handlers_run(cluster: Cluster, brokers: str) -> None:
    users: list[KafkaConsumer[Any, Any]] = []
    listener = Listener(revoked=lambda partitions: users[0].stop(timeout_ms=4000))
    with processing(brokers, listener, users.append) as (consumer, run):
        cluster.rebalance("g")
        run.wait()
        until(lambda: consumer.state is ConsumerState.CLOSED)
    listener.thread.join(PATIENCE)
    assert cluster.members("g") == []


class Measuring(ConsumerInterceptor):
    """Looks how far behind the consumer is."""

    def __init__(self) -> None:
        self.consumer: KafkaConsumer[Any, Any] | None = None
        self.lags: list[int | None] = []

    def on_consume(self, records: Batch) -> Batch:
        assert self.consumer is not None
        for partition in records:
            self.lags.append(self.consumer.current_lag(partition))
            with pytest.raises(IllegalStateError):
                self.consumer.committed(partition)  # this would wait, as in a plain function that cannot await it
        return records


def test_an_interceptor_uses_the_consumer_while_handlers_run(brokers: str) -> None:
    interceptor = Measuring()
    handled = threading.Semaphore(0)
    with KafkaConsumer("t", bootstrap_servers=brokers, auto_offset_reset="earliest", interceptors=[interceptor]) as consumer:
        interceptor.consumer = consumer
        with consumer.processing(lambda record: handled.release()):
            for _ in range(EACH * len(PARTITIONS)):
                assert handled.acquire(timeout=PATIENCE)
    assert interceptor.lags
    assert None not in interceptor.lags
