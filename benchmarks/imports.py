"""What clients cost before they have read anything: their import, and a process that reads one record.

Decides: which programs are compared. Owns the processes it starts, and a cluster of the test kit, which serves them on the
loopback. Must never count what the interpreter itself costs as a client's: the table has a row for it.

CPU seconds are those that the operating system counts for a whole process, its end included. A warm-up round that is not counted
makes the bytecode.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import anyio.from_thread

from benchmarks.jobs import Shape
from benchmarks.plan import Plan, rotate
from benchmarks.report import Group
from kafka_async.testing import Cluster

SHAPE: Final = Shape(records=1)

IMPORTS: Final[Mapping[str, str]] = {
    "python": "pass",
    "kafka_async.import": "from kafka_async import KafkaConsumer",
    "kafka_async.made": "from kafka_async import KafkaConsumer; KafkaConsumer('t')",  # which imports the rest
    "aiokafka": "from aiokafka import AIOKafkaConsumer",
    "confluent": "from confluent_kafka import Consumer",
    "kafka_python": "from kafka import KafkaConsumer",
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
    "kafka_async.getone": _ASYNCIO.format(module="kafka_async", name="KafkaConsumer"),
    "aiokafka": _ASYNCIO.format(module="aiokafka", name="AIOKafkaConsumer"),
    "confluent": """
import os, sys
from confluent_kafka import Consumer

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": f"{os.getpid()}", "auto.offset.reset": "earliest"})
consumer.subscribe(["t"])
while consumer.poll(0.1) is None:
    pass
consumer.close()
""",
    "kafka_python": """
import os, sys
from kafka import KafkaConsumer

consumer = KafkaConsumer("t", bootstrap_servers=sys.argv[1], group_id=f"{os.getpid()}", auto_offset_reset="earliest")
next(consumer)
consumer.close()
""",
}
PROGRAMS: Final = {"import": IMPORTS, "one record, in a group": RECORDS}


def cpu_of(program: str, bootstrap: str) -> float:
    """Run a program in a process of its own and return its CPU seconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen([sys.executable, "-c", program, bootstrap], env=environment)  # noqa: S603  # ours
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"a program ended with {process.returncode}: {program.strip().splitlines()[0]} ...")
    return used.ru_utime + used.ru_stime


def imports(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """What clients cost before they have read anything: their import, and a process that reads one record."""
    for name, programs in PROGRAMS.items():
        with _served() as bootstrap:
            for program in programs.values():
                cpu_of(program, bootstrap)

            def measure(client: str, programs: Mapping[str, str] = programs, bootstrap: str = bootstrap) -> dict[str, float]:
                return {"cpu_s": cpu_of(programs[client], bootstrap)}

            yield Group(
                command="imports", title=f"imports: {name}", shape=SHAPE, runs=rotate(plan, list(programs), measure), scenario=name
            )


@contextlib.contextmanager
def _served() -> Iterator[str]:
    """Serve a topic with one record on the loopback, on a thread, for the length of the block."""
    cluster = Cluster()
    cluster.topic("t", partitions=1)
    cluster.produce("t", value=b"1")
    with anyio.from_thread.start_blocking_portal() as portal, portal.wrap_async_context_manager(cluster):
        yield portal.call(cluster.serve)
