"""Programs that ``kafka-async run`` runs in tests. What they do is a line each in the file ``JOB_LOG``, in order.

A line is the worker's number, its process id, and what it did, such as ``1 4711 done 0 17``.
"""

import asyncio
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from kafka_async import ConsumerConfig, ConsumerRebalanceListener, ConsumerRecord, KafkaConsumer, TopicPartition

LARGE: Final = 150 << 20
"""Bytes that a record with the value ``grow`` takes for good."""
taken: Final[list[bytes]] = []


def say(*words: object) -> None:
    """Write a line, whole even if others write at the same time."""
    line = " ".join(map(str, (os.environ["KAFKA_ASYNC_WORKER"], os.getpid(), *words)))
    file = os.open(os.environ["JOB_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def tell_of_signals() -> None:
    """Tell of each SIGTERM and SIGINT, and handle it as before."""

    def wrap(number: signal.Signals) -> None:
        before = signal.getsignal(number)

        def handle(*arguments: Any) -> None:
            say("signal", number.name)
            assert callable(before)
            before(*arguments)

        signal.signal(number, handle)

    wrap(signal.SIGTERM)
    wrap(signal.SIGINT)


class Listener(ConsumerRebalanceListener):
    """Tells of what is assigned."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Tell of it."""
        say("assigned", *sorted(tp.partition for tp in assigned))


def held() -> bool:
    """Whether handlers are to wait: there is a file named ``JOB_HOLD``."""
    return Path(os.environ["JOB_HOLD"]).exists()


async def handle(record: ConsumerRecord[bytes, bytes]) -> None:
    """Take a moment, or as long as the test wants."""
    say("start", record.partition, record.offset)
    if record.value == b"block":
        time.sleep(600)  # noqa: ASYNC251  # what a program does that hangs
    if record.value == b"grow" and not taken:
        taken.append(os.urandom(1 << 20) * (LARGE >> 20))
    await asyncio.sleep(0.002)
    while held():  # noqa: ASYNC110  # another process makes the file
        await asyncio.sleep(0.02)
    say("done", record.partition, record.offset)


async def main() -> None:
    """Handle the records of ``JOB_TOPIC`` in ``JOB_GROUP``."""
    tell_of_signals()
    say("begun")
    protocol = os.environ["JOB_PROTOCOL"]
    options: dict[str, Any] = {"bootstrap_servers": os.environ["JOB_BOOTSTRAP"], "group_id": os.environ["JOB_GROUP"]}
    options |= {"group_protocol": protocol}
    if "JOB_STATIC" in os.environ:
        options |= {"group_instance_id": f"static-{os.environ['KAFKA_ASYNC_WORKER']}"}
    if protocol == "classic":
        options |= {"session_timeout_ms": int(os.environ["JOB_SESSION_MS"]), "heartbeat_interval_ms": 300}
    consumer = KafkaConsumer(auto_offset_reset="earliest", fetch_max_wait_ms=100, auto_commit_interval_ms=200, **options)
    consumer.subscribe([os.environ["JOB_TOPIC"]], listener=Listener())
    try:
        async with consumer:
            await consumer.process(handle, order="none", concurrency=5)
    finally:
        say("ended")


async def gated() -> None:
    """Begin when the test wants it."""
    while held():  # noqa: ASYNC110  # another process makes the file
        await asyncio.sleep(0.02)
    await main()


async def idle() -> None:
    """Do nothing until the end."""
    say("begun")
    await asyncio.Event().wait()


async def fails() -> None:
    """Fail at once."""
    say("begun")
    raise SystemExit(7)


async def misconfigured() -> None:
    """Have an option that is wrong."""
    ConsumerConfig.from_properties("wrong.properties")


async def mistyped() -> None:
    """Have an option that no consumer has."""
    options: dict[str, Any] = {"grop_id": "billing"}
    KafkaConsumer("orders", **options)


async def misaddressed() -> None:
    """Have an option with a value that is wrong."""
    KafkaConsumer("orders", bootstrap_servers="a:b")


async def several() -> None:
    """Have one in a task of several."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(idle())
        tasks.create_task(misconfigured())


def plain() -> None:
    """Be no coroutine."""
