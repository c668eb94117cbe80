"""What the integration tests share: consumers with settings for tests, reading with a deadline, waiting for a condition.

Decides: how long a test waits before it counts as failed. Owns nothing. Must never hide a record that came twice, out of order or
not at all.
"""

import asyncio
import functools
import inspect
import os
import signal
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kafka_async import ConsumerRecord, KafkaConsumer, TopicPartition
from tests.brokers import KafkaCluster

T = TypeVar("T")
Consumer = KafkaConsumer[Any, Any]
Record = ConsumerRecord[Any, Any]
Batch = Mapping[TopicPartition, list[Record]]

PATIENCE = 60.0
"""Seconds within which what must happen has happened, on a busy machine too."""
INTERVAL = 0.05
"""Seconds between two looks at a condition that nothing announces."""
QUIET = 400
"""Milliseconds of waiting to show that nothing comes: several empty long polls of ``make``'s consumers."""


def at_once(name: str, values: Iterable[Any]) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Any]:
    """Run a test for each of some values of a parameter, all at the same time: for one that mostly waits.

    What fails has a note that names the value.
    """

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
        async def one(value: Any, fixtures: Mapping[str, Any]) -> None:
            try:
                await test(**fixtures, **{name: value})
            except BaseException as error:
                error.add_note(f"{name}={value!r}")
                raise

        @functools.wraps(test)
        async def every(**fixtures: Any) -> None:
            async with asyncio.TaskGroup() as tasks:
                for value in values:
                    tasks.create_task(one(value, fixtures))

        signature = inspect.signature(test)
        every.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what pytest looks for fixtures in
            parameters=[each for each in signature.parameters.values() if each.name != name]
        )
        return every

    return decorate


def make(cluster: KafkaCluster, *topics: str, **options: Any) -> Consumer:
    """Return a consumer that reads from the beginning and whose empty fetches return soon."""
    defaults: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 100,
    }
    if "," not in cluster.bootstrap_servers and "bootstrap_servers" not in options:
        # A busy machine may hold up a lone broker for longer than the default of 10 s, and then a start fails as it should.
        defaults["socket_connection_setup_timeout_ms"] = 30_000
    return KafkaConsumer(*topics, **(defaults | options))


def topic_name() -> str:
    """Return a name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


def new_topic(cluster: KafkaCluster, partitions: int = 1, *, replicas: int | None = None, **config: str) -> str:
    """Create a topic of its own for a test; in ``config`` ``_`` stands for ``.``."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return cluster.create_topic(topic_name(), partitions, replicas=replicas, config=settings)


def _directory(cluster: KafkaCluster, broker: int) -> Path:
    """Return the directory of a running broker: that of the settings which its command line names."""
    arguments = Path(f"/proc/{cluster.pid(broker)}/cmdline").read_bytes().split(b"\0")
    return next(Path(word.decode()).parent for word in arguments if word.endswith(b"server.properties"))


def set_properties(cluster: KafkaCluster, broker: int, **properties: str) -> None:
    """Write settings of one running broker, valid from its next start; ``_`` stands for ``.``."""
    with (_directory(cluster, broker) / "server.properties").open("a") as file:
        file.writelines(f"{name.replace('_', '.')}={value}\n" for name, value in properties.items())


def spoil(cluster: KafkaCluster, topic: str, text: bytes) -> None:
    """Change one bit where ``text`` stands in the first segment of partition 0, as a failing disk would."""
    segment = _directory(cluster, 0) / "data" / f"{topic}-0" / f"{0:020}.log"
    place = segment.read_bytes().index(text)
    with segment.open("r+b") as file:
        file.seek(place)
        file.write(bytes([text[0] ^ 1]))


def in_a_child(call: Callable[[], Any]) -> str:
    """Return the name of the error that ``call`` raises in a child of this process; "" if it hangs, "nothing" if it returns."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # no test's business any more: neither fixtures nor an orderly end
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(5)
            call()
            os.write(writer, b"nothing")
        except BaseException as error:
            os.write(writer, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as said:
        return said.read().decode()


def all_of(topic: str, partitions: int = 1) -> list[TopicPartition]:
    """Return the first ``partitions`` partitions of a topic."""
    return [TopicPartition(topic, index) for index in range(partitions)]


def flat(batch: Batch) -> list[Record]:
    """Return the records of a batch in one list, partition by partition."""
    return [record for records in batch.values() for record in records]


async def read(consumer: Consumer, count: int, *partitions: TopicPartition, seconds: float = PATIENCE) -> list[Record]:
    """Read until ``count`` records came; fail when they do not come in ``seconds``. May return more than ``count``."""
    records: list[Record] = []
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while len(records) < count:
        left = deadline - clock()
        assert left > 0, (
            f"{len(records)} of {count} records in {seconds:.0f} s; offsets {summary(records)}; {consumer.statistics()}"
        )
        records += flat(await consumer.getmany(*partitions, timeout_ms=left * 1000))
    return records


async def nothing_more(consumer: Consumer, *partitions: TopicPartition) -> None:
    """Fail when a record comes."""
    batch = await consumer.getmany(*partitions, timeout_ms=QUIET)
    assert not batch, f"more records than expected: {summary(flat(batch))}"


def offsets(records: Iterable[Record]) -> dict[int, list[int]]:
    """Return the offsets in the order in which they came, by partition."""
    found: dict[int, list[int]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record.offset)
    return dict(found)


def spans(numbers: Iterable[int]) -> str:
    """Write runs of consecutive offsets as first-last, in their order."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{last}" for first, last in runs) or "none"


def summary(records: Iterable[Record]) -> dict[int, str]:
    """Return first and last offset and number of records, by partition."""
    return {partition: f"{found[0]}..{found[-1]} ({len(found)})" for partition, found in offsets(records).items()}


async def until(condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Return the first true value of ``condition``, looked at again and again; fail after ``seconds``."""

    async def look() -> T:
        return condition()

    return await eventually(look, seconds)


def wait_until(condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Return the first true value of ``condition``, as ``until`` does, for tests without an event loop."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"it did not happen in {seconds:.0f} s; the last value was {value!r}"
        time.sleep(INTERVAL)  # as in ``eventually``
    return value


async def eventually(condition: Callable[[], Awaitable[T]], seconds: float = PATIENCE) -> T:
    """Return the first true value that awaiting ``condition()`` gives; fail after ``seconds``."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while not (value := await condition()):
        assert clock() < deadline, f"it did not happen in {seconds:.0f} s; the last value was {value!r}"
        await asyncio.sleep(INTERVAL)  # the one pause between two looks at something that cannot be awaited
    return value
