"""A topic into a table: two million records of 100 bytes as they are, and five million decoded, each time in a fresh process.

Decides: what is compared. ``kafka_async.getarrow`` reads on and on with a consumer and drops each batch; ``scan`` finds out where
the log ends, and drops them too. ``confluent.frame`` is the loop that people write: lists of values into a DataFrame. ``daft`` is
there if it is installed. Owns the processes that it starts. What is timed is a whole process, with its imports.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Final

from attrs import evolve

from benchmarks.jobs import Shape
from benchmarks.plan import Plan, rotate
from benchmarks.report import Group

SHAPE: Final = Shape(partitions=2)
DECODED: Final = Shape(partitions=2, records=5_000_000)
"""Enough that starting a second process is little of it."""
QUICK: Final = 20_000

_SCAN: Final = """
import sys
from kafka_async import scan

table = scan(sys.argv[2], bootstrap_servers=sys.argv[1], processes={processes}{values})
rows = {rows}
assert rows == int(sys.argv[3]), rows
"""
_JSON: Final = ', values="json", schema="id BIGINT, user STRING, amount DOUBLE, note STRING"'
_DROPPED: Final = "sum(batch.num_rows for batch in table)"
PROGRAMS: Final[Mapping[str, str]] = {
    "kafka_async.getarrow": """
import sys
from kafka_async import TopicPartition
from kafka_async.sync import KafkaConsumer

with KafkaConsumer(bootstrap_servers=sys.argv[1], auto_offset_reset="earliest") as consumer:
    consumer.assign([TopicPartition(sys.argv[2], number) for number in range(2)])
    left = int(sys.argv[3])
    while left:
        left -= consumer.getarrow(timeout_ms=5000, max_records=16_384).num_rows
""",
    "kafka_async.scan": _SCAN.format(processes=1, values="", rows=_DROPPED),
    "kafka_async.scan.2": _SCAN.format(processes=2, values="", rows=_DROPPED),
    "kafka_async.to_arrow": _SCAN.format(processes=1, values="", rows="table.to_arrow().num_rows"),
    "kafka_async.to_polars": _SCAN.format(processes=1, values="", rows="table.to_polars().height"),
    "confluent.frame": """
import sys
import polars
from confluent_kafka import Consumer, TopicPartition

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "none", "enable.auto.commit": False})
places = [TopicPartition(sys.argv[2], number, 0) for number in range(2)]
left = sum(consumer.get_watermark_offsets(place)[1] for place in places)
consumer.assign(places)
columns = {"partition": [], "offset": [], "timestamp": [], "key": [], "value": []}
while left:
    found = consumer.consume(10_000, 1.0)
    left -= len(found)
    columns["partition"] += [each.partition() for each in found]
    columns["offset"] += [each.offset() for each in found]
    columns["timestamp"] += [each.timestamp()[1] for each in found]
    columns["key"] += [each.key() for each in found]
    columns["value"] += [each.value() for each in found]
consumer.close()
kinds = {"partition": polars.Int32, "offset": polars.Int64, "timestamp": polars.Int64, "key": polars.Binary, "value": polars.Binary}
assert polars.DataFrame(columns, schema=kinds).height == int(sys.argv[3])
""",
}
_DAFT: Final = """
import sys
import daft

frame = daft.read_kafka(bootstrap_servers=sys.argv[1], topics=[sys.argv[2]], start="earliest", end="latest")
assert frame.to_arrow().num_rows == int(sys.argv[3])
"""
OF_JSON: Final[Mapping[str, str]] = {
    "kafka_async.json": _SCAN.format(processes=1, values=_JSON, rows=_DROPPED),
    "kafka_async.json.2": _SCAN.format(processes=2, values=_JSON, rows=_DROPPED),
}


def tables(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """How long a topic takes to become a table, from a fresh process, beside confluent-kafka in a loop, and Daft if it is there."""
    raw = {**PROGRAMS, "daft": _DAFT} if find_spec("daft") is not None else PROGRAMS
    for shape, programs, what in ((SHAPE, raw, "tables"), (DECODED, OF_JSON, "tables of JSON")):
        if plan.quick:
            shape = evolve(shape, records=QUICK)
        topic = plan.topics.filled(shape)
        runs = rotate(plan, list(programs), partial(_measured, plan.bootstrap, topic, shape.records, programs))
        yield Group(command="tables", title=f"{what}: {shape}", shape=shape, runs=runs)


def _measured(bootstrap: str, topic: str, records: int, programs: Mapping[str, str], client: str) -> dict[str, float]:
    words = [sys.executable, "-c", programs[client], bootstrap, topic, str(records)]
    began = time.monotonic()
    process = subprocess.Popen(words)  # noqa: S603  # ours
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{client} ended with {process.returncode}")
    cpu = used.ru_utime + used.ru_stime  # of what it has started too
    return {"records_per_s": records / seconds, "seconds": seconds, "cpu_us_per_record": cpu / records * 1e6}
