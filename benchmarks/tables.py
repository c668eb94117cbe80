"""A topic into a table: two million records of 100 bytes as they are, and five million decoded, each time in a fresh process; what
decoding alone costs; and the first ten records.

Decides: what is compared. ``kafka_async.getarrow`` reads on and on with a consumer and drops each batch; ``scan`` finds out where
the log ends, and drops them too. ``confluent.frame`` is the loop that people write: lists of values into a DataFrame. ``daft`` is
there if it is installed. Owns the processes that it starts. What is timed is a whole process, with its imports, except for decoding
alone. Peak memory is that of the process that has the table, without those that read for it.
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
VALUES: Final = Shape(records=500_000)
"""How many values are decoded where nothing is read."""
TEN: Final = Shape(records=1000)

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
_VALUES: Final = """
import io, json, sys, time
import fastavro
import pyarrow as pa
from kafka_async.adapters.values.typed import decoder

kinds = {{"id": "long", "user": "string", "amount": "double", "active": "boolean", "count": "int"}}
tags = {{"type": "array", "items": "string"}}
parts = [{{"name": "city", "type": "string"}}, {{"name": "zip", "type": "int"}}]
address = {{"type": "record", "name": "Address", "fields": parts}}
kinds |= {{"tags": tags, "address": address}}
schema = {{"type": "record", "name": "Order", "fields": [{{"name": name, "type": kind}} for name, kind in kinds.items()]}}
ddl = "id BIGINT, user STRING, amount DOUBLE, active BOOLEAN, count INT, tags ARRAY<STRING>, address STRUCT<city: STRING, zip: INT>"
parsed = fastavro.parse_schema(schema)

def order(number):
    address = {{"city": "Oslo", "zip": number % 10_000}}
    own = {{"id": number * 7919, "user": f"user-{{number % 5000}}", "amount": number / 4, "active": number % 2 == 0}}
    return {{**own, "count": number % 100, "tags": ["new", "express"][: number % 3], "address": address}}

def in_avro(value):
    body = io.BytesIO()
    fastavro.schemaless_writer(body, parsed, value)
    return body.getvalue()

batch = 16_384
values = [{encode}(order(number)) for number in range(batch)]
records = pa.record_batch({{
    "topic": pa.array(["orders"] * batch).dictionary_encode(),
    "partition": pa.array([0] * batch, pa.int32()),
    "offset": pa.array(range(batch), pa.int64()),
    "value": pa.array(values, pa.binary()),
}})
{prepare}
times = -(-int(sys.argv[3]) // batch)
began = time.process_time()
for _ in range(times):
    {decode}
print((time.process_time() - began) / times / batch * 1e6)
"""
_IN_JSON: Final = "(lambda value: json.dumps(value).encode())"
_OURS: Final = "rows = reading.batch(records).num_rows"
VALUES_ALONE: Final[Mapping[str, str]] = {
    "kafka_async.json": _VALUES.format(
        encode=_IN_JSON, prepare='reading = decoder("json", schema=ddl, on_bad="column")', decode=_OURS
    ),
    "kafka_async.avro": _VALUES.format(
        encode="in_avro", prepare='reading = decoder("avro", schema=schema, on_bad="column")', decode=_OURS
    ),
    "fastavro": _VALUES.format(
        encode="in_avro",
        prepare="",
        decode="rows = [fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in values]",
    ),
}
FIRST: Final[Mapping[str, str]] = {
    "kafka_async.ten": """
import sys
from kafka_async import scan

assert scan(sys.argv[2], bootstrap_servers=sys.argv[1], until={0: 10}).to_polars().height == 10
""",
    "kafka_async.ten.json": """
import sys
from kafka_async import scan

table = scan(sys.argv[2], bootstrap_servers=sys.argv[1], until={0: 10}, values="json", schema="infer")
assert table.to_polars().height == 10
""",
    "polars": "import polars; polars.DataFrame({'offset': range(10)})",
}
_PEAK: Final = """
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""
"""Prints the kilobytes of memory that a program had at most: ``ru_maxrss`` would be this process's, which has started it."""
OF_JSON: Final[Mapping[str, str]] = {
    "kafka_async.json": _SCAN.format(processes=1, values=_JSON, rows=_DROPPED),
    "kafka_async.json.2": _SCAN.format(processes=2, values=_JSON, rows=_DROPPED),
}


def tables(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """How long a topic takes to become a table, from a fresh process, beside confluent-kafka in a loop, and Daft if it is there."""
    raw = {**PROGRAMS, "daft": _DAFT} if find_spec("daft") is not None else PROGRAMS
    yield _of_topics(plan, "raw", "tables", SHAPE, raw)
    shape = evolve(VALUES, records=QUICK) if plan.quick else VALUES
    runs = rotate(plan, list(VALUES_ALONE), partial(_decoded, shape.records))
    yield Group(command="tables", title="values of 7 fields, decoded without a broker", shape=shape, runs=runs, scenario="values")
    topic = plan.topics.filled(TEN)
    runs = rotate(plan, list(FIRST), partial(_first, plan.bootstrap, topic))
    yield Group(command="tables", title="from import to a frame of 10 records", shape=TEN, runs=runs, scenario="ten")
    yield _of_topics(plan, "json", "tables of JSON", DECODED, OF_JSON)


def _of_topics(plan: Plan, scenario: str, what: str, shape: Shape, programs: Mapping[str, str]) -> Group:
    if plan.quick:
        shape = evolve(shape, records=QUICK)
    topic = plan.topics.filled(shape)
    runs = rotate(plan, list(programs), partial(_measured, plan.bootstrap, topic, shape.records, programs))
    return Group(command="tables", title=f"{what}: {shape}", shape=shape, runs=runs, scenario=scenario)


def _measured(bootstrap: str, topic: str, records: int, programs: Mapping[str, str], client: str) -> dict[str, float]:
    words = [sys.executable, "-c", programs[client] + _PEAK, bootstrap, topic, str(records)]
    began = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)  # noqa: S603  # ours
    assert process.stdout is not None  # noqa: S101 - a pipe
    with process.stdout as said:
        peak = said.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{client} ended with {process.returncode}")
    cpu = used.ru_utime + used.ru_stime  # of what it has started too
    return {
        "records_per_s": records / seconds,
        "seconds": seconds,
        "cpu_s": cpu,
        "cpu_us_per_record": cpu / records * 1e6,
        "peak_rss_mib": int(peak.split()[-1]) / 1024,
    }


def _first(bootstrap: str, topic: str, client: str) -> dict[str, float]:
    """Return what a program costs that reads ten records; by record it would mean nothing."""
    found = _measured(bootstrap, topic, 10, FIRST, client)
    return {name: found[name] for name in ("seconds", "cpu_s", "peak_rss_mib")}


def _decoded(records: int, client: str) -> dict[str, float]:
    """Return what decoding costs, judged by the program itself: what it is decoded from is made before."""
    words = [sys.executable, "-c", VALUES_ALONE[client], "", "", str(records)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603  # ours
    if done.returncode:
        raise RuntimeError(f"{client} ended with {done.returncode}")
    return {"cpu_us_per_record": float(done.stdout)}
