"""Members of a group for the rebalance benchmark: subscribe, read in the library's own idiom, note when which partition was read.

``python -m benchmarks.members CLIENT JOB`` says ``steady`` as soon as records of as many partitions as the job names have come,
reads until it is terminated, and prints what it noted. Owns the notes. Must never look at a record beyond its partition.
"""

import asyncio
import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from benchmarks.jobs import Job

WAIT_MS: Final = 200
"""Most milliseconds of a read call, so that a member notices that it is to end."""
HEARTBEAT_MS: Final = 500
"""In both protocols: the consumer protocol's is the broker's to say."""
SESSION_MS: Final = 10_000


class Notes:
    """When records came: nanoseconds of the clock that all processes share."""

    def __init__(self, wanted: int) -> None:
        self.over = False
        self._wanted = wanted
        self._began = 0
        self._times: dict[int, list[int]] = defaultdict(list)

    def begin(self) -> None:
        """The library is imported; the consumer is made now."""
        self._began = time.monotonic_ns()

    def take(self, partitions: Iterable[int]) -> None:
        """Note that a record of each of these partitions has come."""
        now = time.monotonic_ns()
        known = len(self._times)
        for partition in partitions:
            self._times[partition].append(now)
        if known < self._wanted <= len(self._times):
            _say("steady")

    def end(self, *_: object) -> None:
        """Have the member end."""
        self.over = True

    def to_json(self) -> str:
        """Return the notes as one line."""
        return json.dumps({"began": self._began, "times": self._times})


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def ours_getmany(job: Job, notes: Notes) -> None:
    """This package."""
    from kafka_async import KafkaConsumer

    options: dict[str, Any] = {"group_id": job.group, "group_protocol": job.protocol, "auto_offset_reset": "latest"}
    if job.protocol == "classic":
        options |= {"partition_assignment_strategy": ("cooperative-sticky",)}
        options |= {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
    notes.begin()
    async with KafkaConsumer(job.topic, bootstrap_servers=job.bootstrap, **options) as consumer:
        while not notes.over:
            notes.take(partition.partition for partition in await consumer.getmany(timeout_ms=WAIT_MS))


def confluent_consume(job: Job, notes: Notes) -> None:
    """confluent-kafka."""
    from confluent_kafka import Consumer

    options: dict[str, Any] = {"group.id": job.group, "group.protocol": job.protocol, "auto.offset.reset": "latest"}
    if job.protocol == "classic":
        options |= {"partition.assignment.strategy": "cooperative-sticky"}
        options |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    notes.begin()
    consumer = Consumer({"bootstrap.servers": job.bootstrap, **options})
    consumer.subscribe([job.topic])
    while not notes.over:
        for message in consumer.consume(1, WAIT_MS / 1000):  # one: it waits for as many as it is asked for
            partition = message.partition()
            if message.error() is not None or partition is None:
                raise RuntimeError(str(message.error()))
            notes.take([partition])
    consumer.close()


MEMBERS: Final[dict[str, Callable[[Job, Notes], Coroutine[Any, Any, None] | None]]] = {
    "kafka_async.getmany": ours_getmany,
    "confluent.consume": confluent_consume,
}
"""Clients that can be members, by the name that ``--clients`` takes; a blocking one is a plain function."""


def main() -> None:
    """Be a member until terminated."""
    name, text = sys.argv[1:]
    job = Job.from_json(text)
    notes = Notes(job.partitions)
    signal.signal(signal.SIGTERM, notes.end)
    running = MEMBERS[name](job, notes)
    if running is not None:
        asyncio.run(running)
    _say(notes.to_json())


if __name__ == "__main__":
    main()
