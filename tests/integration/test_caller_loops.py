"""A consumer that is used from another event loop than the one that it was started in, or after that is gone, or in a child
of its process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.errors import IllegalStateError
from tests.brokers import KafkaCluster

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
async def test_from_another_event_loop_every_call_says_so_at_once(kafka43: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka43)
    await asyncio.to_thread(kafka43.produce, topic, 10)
    options: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest", "background": background}
    async with KafkaConsumer(topic, bootstrap_servers=kafka43.bootstrap_servers, **options) as consumer:
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
def test_after_its_event_loop_is_gone_every_call_says_so_at_once(kafka43: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka43)
    options: dict[str, Any] = {"group_id": topic, "background": background, "bootstrap_servers": kafka43.bootstrap_servers}
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
async def test_an_iteration_that_goes_on_in_a_forked_child_hands_out_nothing(kafka43: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka43)
    await asyncio.to_thread(kafka43.produce, topic, 10)
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "background": background}
    async with KafkaConsumer(topic, bootstrap_servers=kafka43.bootstrap_servers, **options) as consumer:
        records = aiter(consumer)
        assert (await anext(records)).offset == 0
        assert in_a_child(lambda: cast(Any, anext(records)).__await__().send(None)) == IllegalStateError.__name__
        assert (await anext(records)).offset == 1
