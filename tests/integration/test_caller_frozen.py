"""A whole process that is frozen for longer than its session, on a real broker: all its threads, the background's too."""

import asyncio
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.brokers import KafkaCluster
from tests.effort import apart

from .groups import new_group, reading
from .tools import PATIENCE, new_topic, until

pytestmark = pytest.mark.brokers

MOMENT = 0.05
"""Seconds: a record that was handed out as the process was frozen is printed a moment after it goes on."""
_MEMBER = """
import asyncio, sys, time
from kafka_async import ConsumerRebalanceListener, KafkaConsumer

class Says(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned):
        print("assigned", *sorted(p for _, p in assigned), flush=True)
    def on_partitions_revoked(self, revoked):
        print("given", *sorted(p for _, p in revoked), flush=True)
    on_partitions_lost = on_partitions_revoked

async def read(consumer, way, records):
    if way == "getone":
        return [await consumer.getone()]
    if way == "iterate":
        return [await anext(records)]
    if way == "getarrow":
        batch = await consumer.getarrow(timeout_ms=1000, max_records=1)
        return [type("Row", (), row) for row in batch.select(["partition", "offset"]).to_pylist()]
    return [r for some in (await consumer.getmany(timeout_ms=1000, max_records=1)).values() for r in some]

async def main():
    servers, topic, group, protocol, background, way = sys.argv[1:]
    options = dict(group_id=group, group_protocol=protocol, background=background, auto_offset_reset="earliest")
    if protocol == "classic":
        options |= dict(session_timeout_ms=6000, heartbeat_interval_ms=300)
    consumer = KafkaConsumer(bootstrap_servers=servers, **options)
    consumer.subscribe([topic], listener=Says())
    async with consumer:
        records = aiter(consumer)
        while True:
            for record in await read(consumer, way, records):
                print("record", record.partition, record.offset, time.monotonic(), flush=True)
            await asyncio.sleep(0.02)

asyncio.run(main())
"""


@pytest.mark.parametrize("protocol", [*apart("classic"), "consumer"])
async def test_a_process_that_was_frozen_longer_than_its_session_hands_out_nothing_that_others_own(
    kafka44: KafkaCluster, protocol: str
) -> None:
    """Each way of reading in a process of its own, half of them with the background in a thread."""
    ways = zip(("getone", "iterate", "getarrow", "getmany"), ("task", "thread") * 2, strict=True)
    await asyncio.gather(*(_freeze(kafka44, protocol, background, way) for way, background in ways))


async def _freeze(cluster: KafkaCluster, protocol: str, background: str, way: str) -> None:
    topic = new_topic(cluster, 2)
    await asyncio.to_thread(cluster.produce, topic, 4000, partitions=2)
    group = new_group(cluster, protocol, session_ms=6_000)
    arguments = [cluster.bootstrap_servers, topic, group.name, protocol, background, way]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _MEMBER, *arguments, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            while not (await process.stdout.readline()).startswith(b"record"):
                pass
            process.send_signal(signal.SIGSTOP)
            async with reading(group, topic, max_poll_records=1, enable_auto_commit=False) as other:
                await until(lambda: other.owned == {0, 1})
                taken = {0, 1}
                thawed = time.monotonic()
                process.send_signal(signal.SIGCONT)
                records = 0
                async for line in process.stdout:
                    what, *words = line.decode().split()
                    if what == "given":
                        taken -= set(map(int, words))
                    elif what == "record" and float(words[2]) > thawed + MOMENT:
                        assert int(words[0]) not in taken, f"{way}, {background}: {line!r} came before anything was given up"
                        records += 1
                    if records == 5:
                        break
                assert records == 5, f"{way}, {background}: it ended"
    finally:
        process.kill()
        await process.wait()
        await _rest(process.stdout)


async def _rest(stdout: Any) -> None:
    async for _ in stdout:
        pass
