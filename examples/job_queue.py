"""A job queue: three workers of a share group that are killed at random, and every job is done (Kafka 4.2 or newer).

    .venv/bin/python -m examples.job_queue HOST:PORT TOPIC [getmany]

Each worker is a process. Every second or two the program kills one that is at work with SIGKILL and starts another in its place,
until every record of the topic is done. Records that a dead worker held go to the others: many at once, since the broker sees
its connections end, and the rest when their locks have ended (30 s by default). A job may be done twice: if a worker dies after
the work and before the broker knows of it, another one gets the record. Handlers must allow for that, as with every queue.

``process`` is the short way. With ``getmany`` the workers do the same by hand: a batch, a task for each job, an acknowledgement. A
job that fails, since what it needs is down, is not released at once but after a pause.
"""

import asyncio
import random
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_async import KafkaConsumer, ShareConsumer, ShareRecord, TopicPartition, run
from kafka_async.adapters.admin import Admin, Client
from kafka_async.config import ConsumerConfig
from kafka_async.errors import LockLostError

WORKERS: Final = 3
GROUP: Final = "job-queue"

Job = ShareRecord[Any, Any]


# --- a worker ------------------------------------------------------------------------------------------------------------------


async def work(job: Job) -> None:
    """Do a job. The lock on its record is renewed for as long as that takes, up to ``max_processing_ms``."""
    await asyncio.sleep(random.uniform(0.01, 0.05))  # noqa: S311 - this is no secret
    print(f"{job.partition}/{job.offset}", flush=True)


async def with_process(consumer: ShareConsumer[Any, Any]) -> None:
    """Ten jobs at once. A job that fails is released to be tried again, as often as the group delivers it, and after a pause that
    doubles each time: a dependency that is down for some seconds costs no job.
    """
    await consumer.process(work, concurrency=10, on_failure="release")


async def with_getmany(consumer: ShareConsumer[Any, Any]) -> None:
    """The same by hand; a batch waits for its slowest job."""

    async def carry_out(job: Job) -> None:
        try:
            async with job:
                try:
                    await work(job)
                except Exception:
                    # What is released at once comes back at once. With a few deliveries for each job, none would be left.
                    job.release(delay_ms=1000 * 2**job.delivery_count)
        except LockLostError:
            print(f"{job.partition}/{job.offset} takes too long; another worker may do it", file=sys.stderr)

    while True:
        batch = await consumer.getmany(timeout_ms=1000, max_records=10)
        await asyncio.gather(*(carry_out(job) for jobs in batch.values() for job in jobs))


async def do_jobs(bootstrap: str, topic: str, way: str) -> None:
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


@dataclass
class Worker:
    """A process that works, and the jobs that it reported as done."""

    process: asyncio.subprocess.Process
    done: list[tuple[int, int]] = field(default_factory=list)

    async def listen(self) -> None:
        """Take down partition and offset of each job. A line that it was writing when it was killed has no end."""
        if self.process.stdout is None:
            raise RuntimeError("a worker was started without a pipe")
        async for line in self.process.stdout:
            partition, slash, offset = line.decode().partition("/")
            if slash and offset.endswith("\n"):
                self.done.append((int(partition), int(offset)))

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it may have died by itself
            self.process.kill()


async def main(bootstrap: str, topic: str, way: str) -> None:
    """Have every job done by workers that are killed all the time."""
    jobs = await ends_of(bootstrap, topic)
    if not await prepare(bootstrap, jobs):
        reset = f"kafka-async offsets reset {GROUP} -t {topic} --to-earliest --execute -b {bootstrap}"
        raise SystemExit(f"group {GROUP!r} has done every job of topic {topic!r}; to have them done again: {reset}")
    command = [sys.executable, "-m", "examples.job_queue", "--worker", bootstrap, topic, way]
    workers: list[Worker] = []
    killed: list[Worker] = []

    async def start(tasks: asyncio.TaskGroup) -> None:
        workers.append(Worker(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)))
        tasks.create_task(workers[-1].listen())

    async with Client.connect(ConsumerConfig.of(bootstrap_servers=bootstrap)) as client, asyncio.TaskGroup() as tasks:
        admin = Admin(client)
        try:
            for _ in range(WORKERS):
                await start(tasks)
            while not await is_done(admin, jobs):
                await asyncio.sleep(random.uniform(1.0, 2.0))  # noqa: S311 - as above
                # One that has begun to work: on a slow machine none would ever get to it otherwise.
                if busy := [worker for worker in workers if worker.done]:
                    victim = random.choice(busy)  # noqa: S311 - as above
                    workers.remove(victim)
                    killed.append(victim)
                    victim.kill()
                    await start(tasks)
        finally:
            for worker in workers:
                worker.kill()
    done = [job for worker in (*killed, *workers) for job in worker.done]
    once = set(done)
    print(f"{len(once):,} of {sum(jobs.values()):,} jobs done by {WORKERS} workers, {len(killed)} killed")
    print(f"{len(done) - len(once)} were done twice")


async def prepare(bootstrap: str, jobs: dict[TopicPartition, int]) -> bool:
    """Configure the group. Return ``False`` if an earlier run has done every job already."""
    async with Client.connect(ConsumerConfig.of(bootstrap_servers=bootstrap)) as client:
        admin = Admin(client)
        await admin.configure_group(GROUP, {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"})
        return not any(jobs.values()) or not await is_done(admin, jobs)


async def is_done(admin: Admin, jobs: dict[TopicPartition, int]) -> bool:
    """Whether the group has settled every record that was there at the start."""
    offsets = await admin.share_offsets(GROUP)
    return all(end == 0 or (each in offsets and offsets[each].lag == 0) for each, end in jobs.items())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--worker", bootstrap, topic, way]:
            asyncio.run(do_jobs(bootstrap, topic, way))
        case [bootstrap, topic, *rest] if rest in ([], ["getmany"]):
            began = time.monotonic()
            run(main(bootstrap, topic, "".join(rest)))  # at SIGTERM it kills the workers too
            print(f"in {time.monotonic() - began:.0f} s")
        case _:
            sys.exit("usage: python -m examples.job_queue HOST:PORT TOPIC [getmany]")
