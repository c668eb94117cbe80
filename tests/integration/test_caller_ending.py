"""How a consumer ends on a real broker: what is committed, who waits for whom."""

import asyncio
import signal
import subprocess
import sys
from typing import Any

import pytest

from kafka_async import TopicPartition
from tests.brokers import KafkaCluster

from .groups import Journal, both, new_group
from .test_caller_iteration import both_backgrounds
from .tools import PATIENCE, flat, new_topic, read, until

pytestmark = pytest.mark.brokers


class OfTheApplicationError(Exception):
    """Something goes wrong in the application."""


@both
@both_backgrounds
@pytest.mark.parametrize("how", ["error", "cancelled"])
async def test_leaving_by_an_exception_takes_back_nothing_that_the_application_committed(
    kafka44: KafkaCluster, protocol: str, background: str, how: str
) -> None:
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 100)
    group = new_group(kafka44, protocol)
    partition = TopicPartition(topic, 0)

    async def work() -> None:
        async with group.member(topic, background=background) as consumer:
            count = 0
            while count < 50:
                count += len(flat(await consumer.getmany(timeout_ms=1000, max_records=50 - count)))
            await consumer.commit({partition: 50})
            if how == "error":
                raise OfTheApplicationError
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await until(group.committed)
    if how == "cancelled":
        task.cancel()
    with pytest.raises(OfTheApplicationError if how == "error" else asyncio.CancelledError):
        await task
    assert group.committed() == {0: 50}


@both
@both_backgrounds
async def test_a_second_stop_waits_for_the_first(kafka44: KafkaCluster, protocol: str, background: str) -> None:
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 100)
    group = new_group(kafka44, protocol)
    left: list[str] = []

    class Slow(Journal):
        async def on_partitions_revoked(self, revoked: Any) -> None:  # type: ignore[override]  # either
            await asyncio.sleep(0.5)
            left.append("left")

    consumer = group.member(background=background)
    consumer.subscribe([topic], listener=Slow())
    async with consumer:
        await read(consumer, 100)
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0.05)
    assert left == ["left"]
    assert group.committed() == {0: 100}
    async with asyncio.timeout(20):
        await stopping


_TERMINATED = """
import asyncio, signal, sys
from kafka_async import KafkaConsumer

async def main():
    servers, topic, group, protocol, background = sys.argv[1:]
    options = dict(bootstrap_servers=servers, group_id=group, group_protocol=protocol, background=background)
    async with KafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
        loop = asyncio.get_running_loop()
        stopping = []
        loop.add_signal_handler(signal.SIGTERM, lambda: stopping.append(asyncio.create_task(consumer.stop())))
        count = 0
        async for record in consumer:
            count += 1
            if count == 100:
                print("read", flush=True)

asyncio.run(main())
"""


_EVERY_TASK = """
import asyncio, signal, sys
from kafka_async import KafkaConsumer

async def serve():
    servers, topic, group, protocol, background = sys.argv[1:]
    options = dict(bootstrap_servers=servers, group_id=group, group_protocol=protocol, background=background)
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", auto_commit_interval_ms=3_600_000, **options)
    await consumer.start()
    try:
        count = 0
        while True:
            count += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
            if count == 100:
                print("read", flush=True)
                count = 0
    finally:
        await consumer.stop()

async def shut_down(done):
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    done.set_result(None)

loop = asyncio.new_event_loop()
done = loop.create_future()
loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(shut_down(done)))
task = loop.create_task(serve())
loop.run_until_complete(done)
loop.close()
"""


_SCRIPT = """
import sys
import kafka_async

async def main():
    servers, topic, group, protocol, background = sys.argv[1:]
    options = dict(bootstrap_servers=servers, group_id=group, group_protocol=protocol, background=background)
    async with kafka_async.KafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
        async for record in consumer:
            if record.offset == 99:
                await consumer.commit()
                print("read", flush=True)

kafka_async.run(main())
"""


@both
@both_backgrounds
@pytest.mark.parametrize(
    ("program", "code"), [(_TERMINATED, 0), (_EVERY_TASK, 0), (_SCRIPT, 143)], ids=["its own handler", "every task", "run"]
)
async def test_a_service_that_is_terminated_commits_and_leaves(
    kafka44: KafkaCluster, protocol: str, background: str, program: str, code: int
) -> None:
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 100)
    group = new_group(kafka44, protocol)
    assert group.committed() == {}  # the coordinator serves, so the program has nothing to warn of
    arguments = [kafka44.bootstrap_servers, topic, group.name, protocol, background]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", program, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await process.stdout.readline() == b"read\n"
        process.terminate()
        _, errors = await process.communicate()
    assert (process.returncode, errors) == (code, b"")
    assert group.committed() == {0: 100}
    async with group.member(topic, background=background) as next_one, asyncio.timeout(group.session_ms / 2000):
        while next_one.assignment() != {TopicPartition(topic, 0)}:  # soon: the group knows that the other one has left
            await next_one.getmany(timeout_ms=100)


@both
@both_backgrounds
@pytest.mark.parametrize("ends", ["cancelled", "well", "failed"])
async def test_what_a_task_holds_that_did_not_end_well_is_not_consumed(
    kafka44: KafkaCluster, protocol: str, background: str, ends: str
) -> None:
    """The recipe for a web service: a task reads and works, and is cancelled when the service goes down."""
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 200)
    group = new_group(kafka44, protocol)
    billed: list[int] = []
    at_work = asyncio.Event()

    async def work(consumer: Any) -> None:
        for _ in range(2):
            for record in flat(await consumer.getmany(timeout_ms=5000, max_records=100)):
                billed.append(record.offset)
                if len(billed) == 120:
                    at_work.set()
                    if ends == "failed":
                        raise OfTheApplicationError
                    if ends == "cancelled":
                        await asyncio.sleep(60)

    async with group.member(topic, background=background) as consumer:
        working = asyncio.create_task(work(consumer))
        await at_work.wait()
        if ends == "cancelled":
            working.cancel()
        await asyncio.wait([working])
        assert working.done()
        if not working.cancelled():
            working.exception()
    assert group.committed() == {0: 200 if ends == "well" else 100}


@both
@both_backgrounds
async def test_a_getmany_that_waits_returns_nothing_when_the_consumer_stops(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    topic = new_topic(kafka44)
    consumer = new_group(kafka44, protocol).member(topic, background=background)
    await consumer.start()
    waiting = asyncio.create_task(_many(consumer))
    await asyncio.sleep(0.3)
    await consumer.stop()
    async with asyncio.timeout(20):
        assert await waiting == {}


async def _many(consumer: Any) -> Any:
    return await consumer.getmany(timeout_ms=60_000)


_FORGOTTEN = """
import asyncio, sys
from kafka_async import KafkaConsumer

async def main():
    consumer = KafkaConsumer(sys.argv[2], bootstrap_servers=sys.argv[1], background=sys.argv[3])
    await consumer.start()

asyncio.run(main())
"""


@both_backgrounds
async def test_a_stop_that_was_forgotten_is_said(kafka44: KafkaCluster, background: str) -> None:
    command = [sys.executable, "-W", "always", "-c", _FORGOTTEN, kafka44.bootstrap_servers, new_topic(kafka44), background]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "ResourceWarning" in done.stderr
    assert "was not stopped" in done.stderr


@both
@both_backgrounds
async def test_handlers_that_stop_through_tasks_and_threads_do_not_wait_for_themselves(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 20)
    group = new_group(kafka44, protocol)
    loop, done = asyncio.get_running_loop(), list[int]()

    async def handle(record: Any) -> None:
        if record.offset == 18:
            await asyncio.wait_for(consumer.stop(), 60)
        elif record.offset == 19:
            await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(consumer.stop(), loop).result(60))
        else:
            await asyncio.sleep(0.5)
            done.append(record.offset)

    consumer = group.member(topic, background=background)
    async with consumer:
        began = loop.time()
        await consumer.process(handle, concurrency=20, order="none")
        assert loop.time() - began < 15
    assert sorted(done) == list(range(18))
    assert group.committed() == {0: 18}


def test_a_second_sigterm_ends_a_program_that_does_not_end() -> None:
    program = """
import asyncio, os, signal
from kafka_async import run

async def main():
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        await asyncio.Event().wait()
    finally:
        asyncio.get_running_loop().call_later(1.1, os.kill, os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=PATIENCE, check=False)  # noqa: S603  # our own program
    assert done.returncode == -signal.SIGTERM
