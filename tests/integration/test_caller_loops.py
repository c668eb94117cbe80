"""A consumer that is used from another event loop than the one that it was started in, or after that is gone, or in a child
of its process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from kafka_async import KafkaConsumer, ShareConsumer, TopicPartition
from kafka_async.errors import IllegalStateError, KafkaConnectionError
from tests.brokers import KafkaCluster
from tests.faults.proxy import Proxy

from .test_caller_iteration import both_backgrounds
from .tools import in_a_child, new_topic, read

pytestmark = pytest.mark.brokers

PATIENT = 8.0
"""Seconds after which a call hangs."""


def _calls(consumer: Any, partition: TopicPartition) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "getone": consumer.getone,
        "getmany": lambda: consumer.getmany(timeout_ms=60_000),
        "getarrow": lambda: consumer.getarrow(timeout_ms=60_000),
        "iterate": lambda: anext(aiter(consumer)),
        "topics": consumer.topics,
        "position": lambda: consumer.position(partition),
        "commit": consumer.commit,
        "committed": lambda: consumer.committed(partition),
        "seek_to_end": consumer.seek_to_end,
        "end_offsets": lambda: consumer.end_offsets([partition]),
        "offsets_for_times": lambda: consumer.offsets_for_times({partition: 0}),
        "start": consumer.start,
        "stop": consumer.stop,
    }


def _elsewhere(call: Callable[[], Awaitable[Any]]) -> BaseException | None:
    """Make a call in an event loop and a thread of its own; return what it raised, at once."""
    raised: list[BaseException] = []

    async def main() -> None:
        async with asyncio.timeout(PATIENT):
            await call()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # the caller looks at it
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENT * 2)
    assert not thread.is_alive(), "the call hangs"
    return raised[0] if raised else None


@both_backgrounds
async def test_from_another_event_loop_every_call_says_so_at_once(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 10)
    options: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest", "background": background}
    async with KafkaConsumer(topic, bootstrap_servers=kafka44.bootstrap_servers, **options) as consumer:
        records = aiter(consumer)
        assert (await anext(records)).offset == 0
        assert isinstance(await asyncio.to_thread(_elsewhere, lambda: anext(records)), IllegalStateError)
        await read(consumer, 5)
        found = {}
        for name, call in _calls(consumer, TopicPartition(topic, 0)).items():
            began = asyncio.get_running_loop().time()
            error = await asyncio.to_thread(_elsewhere, call)
            found[name] = (type(error), asyncio.get_running_loop().time() - began < 1)
        assert issubclass(IllegalStateError, RuntimeError)
        assert found == dict.fromkeys(found, (IllegalStateError, True))
        assert await consumer.position(TopicPartition(topic, 0)) == 10  # nothing of that has done any harm


@both_backgrounds
def test_after_its_event_loop_is_gone_every_call_says_so_at_once(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44)
    options: dict[str, Any] = {"group_id": topic, "background": background, "bootstrap_servers": kafka44.bootstrap_servers}
    consumers: list[Any] = []

    async def begin() -> None:
        consumers.append(KafkaConsumer(topic, **options))
        await consumers[0].start()

    asyncio.run(begin())
    calls = _calls(consumers[0], TopicPartition(topic, 0))
    found = {name: type(_elsewhere(call)) for name, call in calls.items() if name != "stop"}
    assert found == dict.fromkeys(found, IllegalStateError)
    error = _elsewhere(calls["stop"])  # it says so, or it stops what is left to be stopped: the thread
    assert error is None or isinstance(error, IllegalStateError)


@both_backgrounds
async def test_what_only_reads_may_be_asked_from_any_thread_whether_it_runs_an_event_loop_or_not(
    kafka44: KafkaCluster, background: str
) -> None:
    """Such as a web server's that exports metrics."""
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 10)
    partition = TopicPartition(topic, 0)
    options: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest", "background": background}
    async with KafkaConsumer(topic, bootstrap_servers=kafka44.bootstrap_servers, **options) as consumer:
        await read(consumer, 10)

        def looks() -> dict[str, Any]:
            return {
                "assignment": consumer.assignment(),
                "paused": consumer.paused(),
                "subscription": consumer.subscription(),
                "state": (consumer.state, consumer.ready, consumer.alive),
                "highwater": consumer.highwater(partition),
                "assigned-partitions": consumer.metrics()["consumer-coordinator-metrics"]["assigned-partitions"],
                "statistics": consumer.statistics().partitions[partition].position,
            }

        async def with_a_loop() -> dict[str, Any]:
            return looks()

        here = looks()
        assert here["assignment"] == {partition}
        assert await asyncio.to_thread(looks) == here
        assert await asyncio.to_thread(lambda: asyncio.run(with_a_loop())) == here


@both_backgrounds
def test_a_start_that_failed_may_be_repeated_on_another_event_loop(
    kafka44: KafkaCluster, background: str, unused_tcp_port: int
) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10)
    options: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest", "background": background}
    consumer = KafkaConsumer(topic, bootstrap_servers=f"127.0.0.1:{unused_tcp_port}", **options)

    async def later() -> int:
        proxy = Proxy("")
        await proxy.open(unused_tcp_port, kafka44.bootstrap_servers)
        try:
            async with consumer:
                return len(await read(consumer, 10))
        finally:
            await proxy.close()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(consumer.start())
    assert asyncio.run(later()) == 10


@both_backgrounds
async def test_a_consumer_that_was_made_before_a_fork_and_not_started_is_the_childs(kafka44: KafkaCluster, background: str) -> None:
    """At the top of a module that a server imports before it forks its workers (``gunicorn --preload``)."""
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 10)
    options: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest", "background": background}
    consumer = KafkaConsumer(topic, bootstrap_servers=kafka44.bootstrap_servers, **options)

    async def in_the_child() -> None:
        assert consumer.assignment() == set()
        async with consumer:
            assert len(await read(consumer, 10)) == 10

    assert await asyncio.to_thread(in_a_child, lambda: asyncio.run(in_the_child())) == "nothing"
    async with consumer:  # and the parent's
        await consumer.seek_to_beginning()
        assert len(await read(consumer, 10)) == 10


@both_backgrounds
def test_so_may_that_of_a_share_consumer_and_in_a_forked_child(
    kafka44: KafkaCluster, background: str, unused_tcp_port: int
) -> None:
    options: dict[str, Any] = {"group_id": f"g-{unused_tcp_port}", "background": background}
    consumer: ShareConsumer[Any, Any] = ShareConsumer(bootstrap_servers=f"127.0.0.1:{unused_tcp_port}", **options)

    async def later() -> None:
        proxy = Proxy("")
        await proxy.open(unused_tcp_port, kafka44.bootstrap_servers)
        try:
            async with consumer:
                assert not consumer.statistics().assignment  # an assignment would take as long as a heartbeat
        finally:
            await proxy.close()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(consumer.start())
    assert in_a_child(lambda: asyncio.run(later())) == "nothing"
    asyncio.run(later())


@both_backgrounds
async def test_an_iteration_that_goes_on_in_a_forked_child_hands_out_nothing(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 10)
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "background": background}
    async with KafkaConsumer(topic, bootstrap_servers=kafka44.bootstrap_servers, **options) as consumer:
        records = aiter(consumer)
        assert (await anext(records)).offset == 0
        assert in_a_child(lambda: cast(Any, anext(records)).__await__().send(None)) == IllegalStateError.__name__
        assert (await anext(records)).offset == 1
