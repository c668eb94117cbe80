"""What clients cost before they have read anything: their import, and a process that reads one record.

Decides: which programs are compared. Owns the processes it starts, and a cluster of the test kit, which serves them on the
loopback. Must never count what the interpreter itself costs as a client's: the table has a row for it.

CPU seconds are those that the operating system counts for a whole process, its end included. A warm-up round that is not counted
makes the bytecode.
"""

import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Final

from kafka_async.testing import Cluster

ROUNDS: Final = 15
PEER: Final = "aiokafka"
"""The client that ratios are about."""

IMPORTS: Final[Mapping[str, str]] = {
    "python": "pass",
    "aiokafka": "from aiokafka import AIOKafkaConsumer",
    "kafka_async": "from kafka_async import KafkaConsumer",
    "kafka_async.made": "from kafka_async import KafkaConsumer; KafkaConsumer('t')",  # which imports the rest
    "confluent": "from confluent_kafka import Consumer",
}
_ASYNCIO: Final = """
import asyncio, os, sys
from {module} import {name}

async def main():
    consumer = {name}("t", bootstrap_servers=sys.argv[1], group_id=f"{{os.getpid()}}", auto_offset_reset="earliest")
    await consumer.start()
    await consumer.getone()
    await consumer.stop()

asyncio.run(main())
"""
RECORDS: Final[Mapping[str, str]] = {
    "aiokafka": _ASYNCIO.format(module="aiokafka", name="AIOKafkaConsumer"),
    "kafka_async": _ASYNCIO.format(module="kafka_async", name="KafkaConsumer"),
    "confluent": """
import os, sys
from confluent_kafka import Consumer

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": f"{os.getpid()}", "auto.offset.reset": "earliest"})
consumer.subscribe(["t"])
while consumer.poll(0.1) is None:
    pass
consumer.close()
""",
}


def cpu_of(program: str, bootstrap: str) -> float:
    """Run a program in a process of its own and return its CPU seconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen([sys.executable, "-c", program, bootstrap], env=environment)  # noqa: S603  # ours
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"a program ended with {process.returncode}:\n{program}")
    return used.ru_utime + used.ru_stime


def compared(programs: Mapping[str, str], bootstrap: str, rounds: int) -> dict[str, list[float]]:
    """Run the programs in rotation and return the CPU seconds of each round of each."""
    for program in programs.values():
        cpu_of(program, bootstrap)
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            found[name].append(cpu_of(program, bootstrap))
    return found


def lines(title: str, found: Mapping[str, list[float]]) -> list[str]:
    """Return the table: medians, spreads, and the median of the ratios of each round."""
    rows = [f"{title}: CPU seconds of the process (from-to), times {PEER}'s"]
    for name, seconds in found.items():
        ratio = statistics.median(own / other for own, other in zip(seconds, found[PEER], strict=True))
        rows.append(f"  {name:17} {statistics.median(seconds):.3f} ({min(seconds):.3f}-{max(seconds):.3f})  {ratio:.2f}")
    return rows


def main(say: Callable[[str], None], rounds: int) -> None:
    """What clients cost before they have read anything: their import, and a process that reads one record."""
    asyncio.run(_measure(say, rounds))


async def _measure(say: Callable[[str], None], rounds: int) -> None:
    cluster = Cluster()
    cluster.topic("t", partitions=1)
    cluster.produce("t", value=b"1")
    async with cluster:
        bootstrap = await cluster.serve()
        for title, programs in (("import", IMPORTS), ("one record, in a group", RECORDS)):
            found = await asyncio.to_thread(compared, programs, bootstrap, rounds)
            say("\n".join(lines(title, found)))
