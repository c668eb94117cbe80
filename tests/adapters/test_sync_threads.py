"""The blocking consumers and other threads: what may be asked while one of them has the consumer, and once processing is over."""

import functools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest

from kafka_async import ConsumerInterceptor, ConsumerRebalanceListener, ConsumerState, TopicPartition
from kafka_async.adapters import sync
from kafka_async.adapters.sync import Processing
from kafka_async.application.callbacks import Batch
from kafka_async.application.lifecycle.runtime import ThreadRuntime
from kafka_async.errors import ConsumerStoppedError, CoordinatorLoadInProgressError, IllegalStateError, ProcessingError
from kafka_async.sync import KafkaConsumer, ShareConsumer
from kafka_async.testing import HANG, Api, Cluster, ThreadedCluster

PATIENCE = 20.0
PARTITION = TopicPartition("t", 0)
both = pytest.mark.parametrize("made", [KafkaConsumer, ShareConsumer])


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def brokers(cluster: Cluster) -> Iterator[str]:
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
    assert consumer.assigned_once
    assert consumer.subscription() == frozenset({"t"})
    assert consumer.statistics().state is consumer.state
    assert consumer.metrics()
    if isinstance(consumer, KafkaConsumer):
        assert consumer.assignment() == {PARTITION}
        assert consumer.paused() == set()
        assert consumer.highwater(PARTITION) == consumer.last_stable_offset(PARTITION) == 1
        assert consumer.last_poll_timestamp(PARTITION) is not None
        assert consumer.group_metadata().group_id == "g"


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


def test_control_c_ends_processing_that_cannot_begin(cluster: Cluster, brokers: str) -> None:
    """It waited for what nobody told to end."""
    main = threading.main_thread().ident
    assert main is not None
    asked = threading.Event()

    def never(broker: int, request: Any) -> object:
        asked.set()
        return HANG

    def interrupt() -> None:
        asked.wait(PATIENCE)
        signal.pthread_kill(main, signal.SIGINT)

    with KafkaConsumer(bootstrap_servers=brokers, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.position(TopicPartition("t", 0))  # for which offsets are asked for, too
        end = cluster.control(Api.OFFSET_FETCH, never, keep=True)
        user = threading.Thread(target=interrupt)
        user.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            consumer.process(lambda record: None)
        assert time.monotonic() - began < PATIENCE
        user.join()
        end()
        assert not is_taken(consumer)


def test_another_thread_stops_a_consumer_whose_processing_cannot_begin(cluster: Cluster, brokers: str) -> None:
    """The consumer is lent to the event loop of that already: there was an error, and the member stayed."""
    asked = threading.Event()

    def not_yet(broker: int, request: Any) -> object:
        asked.set()
        return CoordinatorLoadInProgressError

    def stop() -> None:
        asked.wait(PATIENCE)
        consumer.stop(timeout_ms=4000)

    options: dict[str, Any] = {"group_protocol": "classic", "partition_assignment_strategy": "range"}
    with KafkaConsumer("t", bootstrap_servers=brokers, group_id="g", auto_offset_reset="earliest", **options) as consumer:
        consumer.getone()
        cluster.control(Api.OFFSET_FETCH, not_yet, keep=True)
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(stop)
            with pytest.raises(ConsumerStoppedError):
                consumer.process(lambda record: None)
            stopped.result(PATIENCE)
        assert consumer.state is ConsumerState.CLOSED
        assert cluster.members("g") == []


# --- processing that is over ---------------------------------------------------------------------------------------------------


def is_over(run: Processing) -> None:
    """Call all that a second signal, or a thread that comes late, may call. Each call returns at once."""
    for late in (run.stop, run.wait, run.drain, run.pause, run.resume, run.abort):
        late()
        caller = threading.Thread(target=late)
        caller.start()
        caller.join(PATIENCE)
        assert not caller.is_alive()


@both
def test_after_the_block_the_statistics_stay_and_a_late_stop_does_nothing(made: Any, brokers: str) -> None:
    handled = threading.Event()
    with consumer_of(made, brokers) as consumer:
        with consumer.processing(lambda record: handled.set()) as run:
            assert handled.wait(PATIENCE)
            run.drain()
            run.stop()
            run.wait()
        is_over(run)
        assert run.statistics().handled == 1
        assert consumer.getmany() == {}, "it is used as before"
    is_over(run)
    assert run.statistics().handled == 1


@both
def test_once_processing_has_failed_the_statistics_stay_and_a_late_stop_does_nothing(made: Any, brokers: str) -> None:
    def fail(record: Any) -> None:
        raise ValueError("no")

    def process(run: Processing) -> None:
        with run:
            run.wait()
            is_over(run)

    with consumer_of(made, brokers) as consumer:
        run = consumer.processing(fail)
        with pytest.raises(ProcessingError):
            process(run)
        is_over(run)
        assert run.statistics().failures == 1
    is_over(run)
    assert run.statistics().failures == 1


def test_a_processing_that_was_not_begun_says_so(brokers: str) -> None:
    consumer = consumer_of(KafkaConsumer, brokers)
    run = consumer.processing(print)
    for early in (run.stop, run.statistics):
        with pytest.raises(IllegalStateError, match="enter the block first"):
            early()


class Awaiting:
    """Call-backs that need an event loop."""

    async def __call__(self, data: bytes) -> bytes:
        return data

    async def deserialize(self, data: bytes) -> bytes:
        return data


class AwaitingInterceptor(ConsumerInterceptor):
    async def on_consume(self, records: Batch) -> Batch:
        return records


class AwaitingListener(ConsumerRebalanceListener):
    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None: ...


class Plain:
    """Its method ``deserialize`` is what is called."""

    async def __call__(self, data: bytes) -> bytes:
        raise AssertionError

    def deserialize(self, data: bytes) -> bytes:
        return data


@both
@pytest.mark.parametrize("option", ["key_deserializer", "value_deserializer"])
@pytest.mark.parametrize("given", [Awaiting(), Awaiting().__call__, functools.partial(Awaiting().deserialize)])
def test_a_deserializer_that_needs_an_event_loop_is_refused_and_does_not_pass_over_records(
    made: Any, option: str, given: Any
) -> None:
    with pytest.raises(TypeError, match=rf"{option}=.*has no event loop"):
        made("t", group_id="g", **{option: given})


@both
def test_what_is_looked_at_of_a_deserializer_is_what_is_called(made: Any, brokers: str) -> None:
    options = {"auto_offset_reset": "earliest"} if made is KafkaConsumer else {}
    with made("t", bootstrap_servers=brokers, group_id="g", value_deserializer=Plain(), **options) as consumer:
        assert consumer.getone().value == b"0"


@both
def test_a_deserializer_that_turns_out_to_need_an_event_loop_is_told_and_passes_over_nothing(made: Any, brokers: str) -> None:
    needs, options = [False], {"auto_offset_reset": "earliest"} if made is KafkaConsumer else {}

    async def later(data: bytes) -> bytes:
        await anyio.sleep(1)
        return data

    def deserialize(data: bytes) -> Any:
        return later(data) if needs[0] else data

    with made("t", bootstrap_servers=brokers, group_id="g", value_deserializer=deserialize, **options) as consumer:
        needs[0] = True
        for _ in range(2):
            with pytest.raises(IllegalStateError, match="returned something to await") as raised:
                consumer.getone()
            assert raised.type is IllegalStateError  # which the page names
        with pytest.raises(IllegalStateError, match="returned something to await"):
            consumer.process(print)
        needs[0] = False
        assert consumer.getone().value == b"0"


def test_an_interceptor_that_needs_an_event_loop_is_refused() -> None:
    with pytest.raises(TypeError, match=r"on_consume=.*has no event loop"):
        KafkaConsumer("t", interceptors=[AwaitingInterceptor()])


def test_a_listener_that_needs_an_event_loop_is_refused_and_the_subscription_stays() -> None:
    consumer = KafkaConsumer("t", group_id="g")
    with pytest.raises(TypeError, match=r"on_partitions_assigned=.*has no event loop"):
        consumer.subscribe(["u"], listener=AwaitingListener())
    assert consumer.subscription() == frozenset({"t"})
    consumer.subscribe(["u"], listener=ConsumerRebalanceListener())
    assert consumer.subscription() == frozenset({"u"})


@pytest.mark.brokers
def test_a_thread_goes_on_consuming_after_the_main_thread_has_ended(brokers: str) -> None:
    servers = brokers.replace("127.0.0.1", "localhost")  # a name, to be looked up
    program = f"""
import threading
from kafka_async.sync import KafkaConsumer

def work():
    threading.main_thread().join()
    with KafkaConsumer("t", bootstrap_servers="{servers}", auto_offset_reset="earliest") as consumer:
        print(consumer.getone().value)

threading.Thread(target=work).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603
    assert (done.returncode, done.stdout) == (0, "b'0'\n"), done.stderr


@pytest.mark.brokers
def test_a_thread_makes_an_asyncio_consumer_after_the_main_thread_has_ended(brokers: str) -> None:
    servers = brokers.replace("127.0.0.1", "localhost")
    program = f"""
import asyncio, threading
from kafka_async import KafkaConsumer

async def read():
    async with KafkaConsumer("t", bootstrap_servers="{servers}", auto_offset_reset="earliest") as consumer:
        print((await consumer.getone()).value)

def work():
    threading.main_thread().join()
    asyncio.run(read())

threading.Thread(target=work).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'0'\n", "")


@pytest.mark.brokers
def test_a_consumer_is_stopped_at_the_exit_though_no_thread_starts_any_more(cluster: Cluster, brokers: str) -> None:
    """Python 3.12.1, for one, starts none there."""
    program = f"""
import atexit, threading
from kafka_async.sync import KafkaConsumer

consumer = KafkaConsumer("t", bootstrap_servers="{brokers}", group_id="g", auto_offset_reset="earliest")
consumer.start()
print(consumer.getone().value)

def at_exit():
    threading.stack_size(2**48)
    consumer.stop()

atexit.register(at_exit)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'0'\n", "")
    assert cluster.committed("g")[TopicPartition("t", 0)].offset == 1
    assert cluster.members("g") == []


@pytest.mark.slow  # waits for some seconds
@both
def test_stop_takes_no_longer_than_it_may_though_another_thread_does_not_leave(made: Any, cluster: Cluster, brokers: str) -> None:
    """A stop that waits for that thread has less time for the rest, which a network that is down uses up."""
    inside, goes_on = threading.Event(), threading.Event()

    def deserialize(data: bytes) -> bytes:
        inside.set()
        goes_on.wait(PATIENCE)
        return data

    options = {"auto_offset_reset": "earliest"} if made is KafkaConsumer else {}
    consumer = made("t", bootstrap_servers=brokers, group_id="g", value_deserializer=deserialize, **options)
    consumer.start()
    reader = threading.Thread(target=consumer.getmany, kwargs={"timeout_ms": PATIENCE * 1000})
    reader.start()
    try:
        assert inside.wait(PATIENCE)
        cluster.half_open()
        began = time.monotonic()
        consumer.stop(timeout_ms=10_000)
        assert time.monotonic() - began < 12  # 12.5 if it took the time twice
    finally:
        goes_on.set()
        reader.join(PATIENCE)


@both
@pytest.mark.parametrize("before", [True, False])
def test_a_consumer_that_is_stopped_as_its_thread_is_launched_says_so_and_leaves_no_thread(
    made: Any, before: bool, brokers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, launch, running = consumer_of(made, brokers), ThreadRuntime.launch, set(threading.enumerate())

    def stopped(runtime: ThreadRuntime, loop: Any) -> None:
        """Launch as another thread stops the consumer."""
        if before:
            consumer.stop()
        launch(runtime, loop)
        if not before:
            consumer.stop()

    monkeypatch.setattr(ThreadRuntime, "launch", stopped)
    with pytest.raises(ConsumerStoppedError, match="while it started"):
        consumer.start()
    assert consumer.state is ConsumerState.CLOSED
    assert not [thread for thread in set(threading.enumerate()) - running if "background" in thread.name]


@both
def test_a_start_and_a_stop_by_another_thread_as_the_thread_is_launched_do_not_wait_for_each_other(
    made: Any, brokers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, launch, running = consumer_of(made, brokers), ThreadRuntime.launch, set(threading.enumerate())
    stopper = threading.Thread(target=consumer.stop)

    def stopped(runtime: ThreadRuntime, loop: Any) -> None:
        launch(runtime, loop)
        stopper.start()
        until(lambda: bool(consumer.state is ConsumerState.CLOSED))

    monkeypatch.setattr(ThreadRuntime, "launch", stopped)
    monkeypatch.setattr(sync, "LEAVE_TIME", 60.0)
    began = time.monotonic()
    with pytest.raises(ConsumerStoppedError, match="while it started"):
        consumer.start()
    stopper.join(PATIENCE)
    assert time.monotonic() - began < 12  # 15, half of the stop, if each waited for the other
    assert consumer.state is ConsumerState.CLOSED
    assert not [thread for thread in set(threading.enumerate()) - running if "background" in thread.name]


@both
@pytest.mark.parametrize("waits_for", ["topic", "group"])
def test_a_start_that_waits_ends_at_once_as_another_thread_stops_the_consumer(
    made: Any, waits_for: str, cluster: Cluster, brokers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "LEAVE_TIME", 60.0)
    running, asked, errors = set(threading.enumerate()), threading.Event(), list[str]()

    def answer(broker: int, request: Any) -> object:
        asked.set()
        return CoordinatorLoadInProgressError if getattr(request, "member_epoch", -1) >= 0 else None

    for api in (Api.METADATA,) if waits_for == "topic" else (Api.SHARE_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT):
        cluster.control(api, answer, keep=True)
    consumer = made("missing" if waits_for == "topic" else "t", bootstrap_servers=brokers, group_id="g")

    def start() -> None:
        try:
            consumer.start()
        except ConsumerStoppedError as error:
            errors.append(str(error))

    starter = threading.Thread(target=start)
    starter.start()
    assert asked.wait(PATIENCE)
    until(lambda: bool(consumer.state is ConsumerState.STARTING))  # the background asks as soon as it runs
    began = time.monotonic()
    consumer.stop()
    starter.join(PATIENCE)
    assert time.monotonic() - began < 12  # 15, half of the stop, if each waits for the other
    assert errors == ["the consumer is stopping"]
    assert not [thread for thread in set(threading.enumerate()) - running if "background" in thread.name]
