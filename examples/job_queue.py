"""A job queue: three workers of a share group that are killed at random, and every job is done (Kafka 4.2 or newer).

    .venv/bin/python -m examples.job_queue HOST:PORT TOPIC [getmany]

Each worker is a process. The program kills one with SIGKILL every second or two and starts another in its place, until every record
of the topic is done. What a worker had in its hands goes to the others at once, since its connections end with it. A job may be
done twice: a worker that dies after the work and before the broker knows of it leaves the record to another one. Work must
bear that, as in every queue.

``process`` is the short way. With ``getmany`` the workers do the same by hand: a batch, a task for each job, and its fate.
"""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from kafka_async import KafkaConsumer, ShareConsumer, ShareRecord, TopicPartition
from kafka_async.adapters.admin import Admin, Client
from kafka_async.config import ConsumerConfig

WORKERS: Final = 3
GROUP: Final = "job-queue"

Job = ShareRecord[Any, Any]


# --- a worker ------------------------------------------------------------------------------------------------------------------


async def work(job: Job) -> None:
    """Do a job. The lock on its record is renewed for as long as that takes, up to ``max_processing_ms``."""
    await asyncio.sleep(random.uniform(0.01, 0.05))  # noqa: S311 - this is no secret
    print(f"{job.partition}/{job.offset}", flush=True)


async def with_process(consumer: ShareConsumer[Any, Any]) -> None:
    """Ten jobs at once. A job that fails is left to another attempt, as often as the group delivers it."""
    await consumer.process(work, concurrency=10, on_failure="release")


async def with_getmany(consumer: ShareConsumer[Any, Any]) -> None:
    """The same by hand; a batch waits for its slowest job."""

    async def carry_out(job: Job) -> None:
        with suppress(Exception):  # it was released
            async with job:
                await work(job)

    while True:
        batch = await consumer.getmany(timeout_ms=1000, max_records=10)
        await asyncio.gather(*(carry_out(job) for jobs in batch.values() for job in jobs))


async def worker(bootstrap: str, topic: str, way: str) -> None:
    """Work until killed."""
    async with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=GROUP) as consumer:
        await (with_getmany if way == "getmany" else with_process)(consumer)


# --- the program that starts and kills them --------------------------------------------------------------------------------------


async def ends_of(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """Return how many records there are, by partition. Raises ``SystemExit`` for a topic that does not exist."""
    async with KafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        found = (await consumer.describe_topics(topic)).topics.get(topic)
        if found is None:
            raise SystemExit(f"topic {topic!r} does not exist")
        return await consumer.end_offsets([TopicPartition(topic, part.partition) for part in found.partitions])


def lines_of(text: str) -> Iterator[tuple[int, int]]:
    """Return partition and offset of each job that a worker reported as done; it may have been killed in the middle of a line."""
    for line in text.splitlines():
        partition, slash, offset = line.partition("/")
        if slash and offset.isdecimal():
            yield int(partition), int(offset)


async def main(bootstrap: str, topic: str, way: str) -> None:
    """Have every job done by workers that do not live long."""
    jobs = await ends_of(bootstrap, topic)
    async with Client.connect(ConsumerConfig.of(bootstrap_servers=bootstrap)) as client:
        admin = Admin(client)
        await admin.configure_group(GROUP, {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"})
        command = [sys.executable, "-m", "examples.job_queue", "--worker", bootstrap, topic, way]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(WORKERS)]  # noqa: ASYNC220, S603
        reported: list[str] = []
        killed = 0
        try:
            while not await is_done(admin, jobs):
                await asyncio.sleep(random.uniform(1.0, 2.0))  # noqa: S311 - as above
                victim = workers.pop(random.randrange(WORKERS))  # noqa: S311 - as above
                victim.kill()
                reported.append(victim.communicate()[0])
                killed += 1
                workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))  # noqa: ASYNC220, S603 - ourselves
        finally:
            for process in workers:
                process.kill()
                reported.append(process.communicate()[0])
    done = [job for text in reported for job in lines_of(text)]
    once = set(done)
    print(
        f"{len(once):,} of {sum(jobs.values()):,} jobs done by {WORKERS} workers, {killed} killed; {len(done) - len(once)} repeated"
    )


async def is_done(admin: Admin, jobs: dict[TopicPartition, int]) -> bool:
    """Whether the group has settled every record that was there at the start."""
    offsets = await admin.share_offsets(GROUP)
    return all(end == 0 or (each in offsets and offsets[each].lag == 0) for each, end in jobs.items())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--worker", bootstrap, topic, way]:
            asyncio.run(worker(bootstrap, topic, way))
        case [bootstrap, topic, *rest] if rest in ([], ["getmany"]):
            began = time.monotonic()
            asyncio.run(main(bootstrap, topic, "".join(rest)))
            print(f"in {time.monotonic() - began:.0f} s")
        case _:
            sys.exit("usage: python -m examples.job_queue HOST:PORT TOPIC [getmany]")
