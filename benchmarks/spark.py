"""This package's Spark source compared with Spark's own connector, in one Spark session.

Decides: which jobs are compared, and what is counted. Owns the session and the checkpoints. Must never report a run whose result
does not match the records written.

Every variant of a job has one warm-up run that is not counted, then one run in each round, in rotation, so that the JVM is warm for
all. CPU is that of the JVM, of the Python workers that it starts, and of this process, from ``/proc``; not that of the broker.
``jvm.tuned`` has larger fetches and hands 10,000 records at once to Spark; that number alone makes most of the difference.
"""

import compileall
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import define, evolve, field

from benchmarks.jobs import SMALL_BATCH, Codec, Shape
from benchmarks.plan import Plan, rotate, traffic
from benchmarks.report import Group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VARIANTS: Final = ("kafka_async.read", "kafka_async.value", "jvm.default", "jvm.tuned", "prebuilt.read", "prebuilt.value")
"""``value`` names one column in the schema of the read, which the JVM's connector cannot. ``prebuilt`` reads nothing: the limit."""

_CODECS: Final[tuple[Codec, ...]] = ("none", "lz4", "zstd")
_BATCH_ONLY: Final = ("kafka_async.value", "prebuilt.read", "prebuilt.value")

SHAPES: Final = (
    *(
        Shape(size=size, records=records, codec=codec, partitions=partitions, batch=SMALL_BATCH)
        for size, records in ((100, 2_000_000), (1000, 1_000_000))
        for codec in _CODECS
        for partitions in (1, 6)
    ),
    Shape(),
    Shape(partitions=6),
)
"""Batches as Kafka's own producer makes them, and larger ones, for which Spark's connector takes a very different time."""
FEW: Final = 17
"""Records of a topic so small that a query costs only its start and its end."""
PER_TRIGGER: Final = 1_000_000
"""Offsets in a micro-batch of the catch-up."""
RATE: Final = 200
"""Records a second that small micro-batches are made of."""
FIRST: Final = 5
"""Micro-batches that do not count: code is compiled and connections are opened in them."""
START_TIMEOUT: Final = 60.0
"""Seconds that these may take, before the timed part begins."""

LOOK_EVERY: Final = 0.2
"""Seconds between two readings of the CPU time of all processes."""

_TUNED: Final = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
_FIELDS: Final = "id BIGINT, user STRING, amount DOUBLE, note STRING"
_LOOSE: Final = "id STRING, user STRING, amount STRING, note STRING"
_SUMS: Final = ("count(*)", "sum(id)", "count(user)", "sum(amount)", "sum(length(note))")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def spark(plan: Plan, shapes: Sequence[Shape]) -> Iterator[Group]:
    """This package's Spark source and Spark's own connector: batch, JSON to columns, catch-up, short queries, micro-batches."""
    with Bench.open(plan) as bench:
        for shape in shapes:
            yield bench.compare("spark batch", f"Spark batch, count and sum: {shape}", shape, plan.clients, bench.batch)
        plain = [variant for variant in plan.clients if variant not in _BATCH_ONLY]
        widest = max(map(_width, shapes))
        for shape in (shape for shape in shapes if _width(shape) == widest):
            half = evolve(shape, records=shape.records // 2)
            for command, each in (("spark json", half), ("spark json, 1 % bad", evolve(half, bad=True))):
                yield bench.compare(command, f"Spark, JSON to columns: {each}", each, plain, bench.json)
            yield bench.compare(
                "spark json, loose", f"Spark, JSON to columns, numbers in STRING fields: {half}", half, plain, bench.loose_json
            )
            yield bench.compare("spark stream", f"Spark catch-up, AvailableNow: {shape}", shape, plain, bench.catch_up)
        few = Shape(records=FEW)
        yield bench.compare("spark take", f"Spark, take(5): {few}", few, plain, bench.take)
        yield bench.compare("spark short", f"Spark, a stream from start to end: {few}", few, plain, bench.catch_up)
        yield bench.latency(plain)


@define(eq=False)
class Bench:
    """The session, and what it costs."""

    plan: Plan
    session: "SparkSession"
    _cpu: "CpuMeter"
    _checkpoints: Path
    _made: int = field(default=0, init=False)

    @classmethod
    @contextlib.contextmanager
    def open(cls, plan: Plan) -> Iterator["Bench"]:
        """Give a bench with a session of its own for the length of the block."""
        from pyspark import cloudpickle
        from pyspark.sql import SparkSession

        import kafka_async
        from benchmarks import prebuilt
        from kafka_async.spark import register
        from tests.spark_jars import jvm_connector

        # A query that stops early imports this package anew. What pip installs is compiled; an editable install may not be.
        compileall.compile_dir(Path(kafka_async.__file__).parent, quiet=1)
        os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        settings: dict[str, bool | float | int | str | None] = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.jars": jvm_connector(),
        }
        before = set(_children(os.getpid()))
        session = SparkSession.builder.master(f"local[{os.cpu_count()}]").config(map=settings).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        register(session)
        cloudpickle.register_pickle_by_value(prebuilt)  # type: ignore[no-untyped-call]  # workers do not have this package
        session.dataSource.register(prebuilt.PrebuiltSource)
        (java,) = set(_children(os.getpid())) - before
        with tempfile.TemporaryDirectory() as folder, CpuMeter(java) as cpu:
            try:
                yield cls(plan, session, cpu, Path(folder))
            finally:
                session.stop()

    def compare(
        self, command: str, title: str, shape: Shape, variants: Sequence[str], job: Callable[[str, str, Shape], None]
    ) -> Group:
        """Run a job in every variant, round by round."""
        topic = self.plan.topics.filled(shape)

        def measure(variant: str) -> dict[str, float]:
            cpu, begin = self._cpu.seconds(), time.monotonic()
            job(variant, topic, shape)
            seconds = time.monotonic() - begin
            return {"rows_per_s": shape.records / seconds, "seconds": seconds, "cpu_s": self._cpu.seconds() - cpu}

        for variant in variants:
            with contextlib.suppress(RuntimeError):
                measure(variant)
        return Group(command=command, title=title, shape=shape, runs=rotate(self.plan, variants, measure))

    def batch(self, variant: str, topic: str, shape: Shape) -> None:
        """Count the records and add the lengths of their values."""
        made = {"records": str(shape.records), "partitions": str(shape.partitions), "size": str(shape.size), "topic": topic}
        options = made if variant.startswith("prebuilt.") else {}
        (row,) = self._read(variant, topic, options).selectExpr("count(*)", "sum(length(value))").collect()
        _check(row, (shape.records, shape.records * shape.size))

    def json(self, variant: str, topic: str, shape: Shape, fields: str = _FIELDS) -> None:
        """Decode JSON values and add up their fields."""
        from pyspark.sql import functions

        if variant.startswith("kafka_async."):
            frame = self._read(variant, topic, {"value.format": "json", "value.schema": fields, "columns": _names()})
        else:
            decoded = functions.from_json(functions.col("value").cast("string"), fields)
            frame = self._read(variant, topic).select(decoded.alias("decoded")).select("decoded.*")
        (row,) = frame.selectExpr(*_SUMS).collect()
        # Of a value that is cut off Spark's connector keeps the fields before the cut, and we keep none: they are not compared.
        _check((row[0], shape.bad or row[2]), (shape.records, shape.bad or shape.records))

    def loose_json(self, variant: str, topic: str, shape: Shape) -> None:
        """The same, with two numbers of each value in fields of type STRING."""
        self.json(variant, topic, shape, _LOOSE)

    def take(self, variant: str, topic: str, _: Shape) -> None:
        """Read a few rows and stop, as ``show()`` does: Spark throws the worker away then, so that each query has a new one."""
        _check([len(self._read(variant, topic).take(5))], [5])

    def catch_up(self, variant: str, topic: str, shape: Shape) -> None:
        """Read the topic as a stream until there is no more, a part of it at a time."""
        options = {"maxOffsetsPerTrigger": str(PER_TRIGGER), "startingOffsets": "earliest"}
        frame = self._stream(variant, topic, options).selectExpr("length(value)")
        query = frame.writeStream.format("noop").option("checkpointLocation", self._checkpoint()).trigger(availableNow=True).start()
        query.awaitTermination()
        _check([sum(progress.numInputRows for progress in query.recentProgress)], [shape.records])

    def latency(self, variants: Sequence[str]) -> Group:
        """Return the time of micro-batches of few records."""
        topic = self.plan.topics.empty("spark", 4)
        with traffic(self.plan, topic, 4, RATE):
            runs = rotate(self.plan, variants, lambda variant: self._micro_batches(variant, topic))
        title = f"Spark micro-batches: {RATE} records/s of 100 B, 4 partitions"
        return Group(command="spark latency", title=title, shape=Shape(partitions=4, records=0), runs=runs)

    def _micro_batches(self, variant: str, topic: str) -> dict[str, float]:
        rows = self._stream(variant, topic, {}).selectExpr("length(value)")
        query = rows.writeStream.format("noop").option("checkpointLocation", self._checkpoint()).start()
        try:
            deadline = time.monotonic() + START_TIMEOUT
            while len(_taken(query)) < FIRST and time.monotonic() < deadline:
                query.awaitTermination(1)
            query.awaitTermination(int(self.plan.seconds))
            taken = _taken(query)[FIRST:]
        finally:
            query.stop()
        if not taken:
            raise RuntimeError(f"no micro-batch within {self.plan.seconds:.0f} s after the first {FIRST}")
        return {
            "batch_ms": statistics.median(each["triggerExecution"] for each in taken),
            "add_ms": statistics.median(each["addBatch"] for each in taken),
            "latest_ms": statistics.median(each["latestOffset"] for each in taken),
        }

    def _read(self, variant: str, topic: str, options: Mapping[str, str] | None = None) -> "DataFrame":
        reader = self.session.read.format(_format(variant)).options(**self._options(variant, topic), **(options or {}))
        return (reader.schema("value BINARY") if variant.endswith(".value") else reader).load()

    def _stream(self, variant: str, topic: str, options: Mapping[str, str]) -> "DataFrame":
        return self.session.readStream.format(_format(variant)).options(**self._options(variant, topic), **options).load()

    def _options(self, variant: str, topic: str) -> dict[str, str]:
        tuned = _TUNED if variant == "jvm.tuned" else {}
        return {"kafka.bootstrap.servers": self.plan.bootstrap, "subscribe": topic, **tuned}

    def _checkpoint(self) -> str:
        self._made += 1
        return str(self._checkpoints / str(self._made))


def _width(shape: Shape) -> tuple[bool, bool, int]:
    """Order the shapes; the last ones are for jobs that are not run with every shape."""
    return shape.size == 100, shape.codec == "none", shape.partitions


def _taken(query: Any) -> list[dict[str, int]]:
    """Return how long each part of each micro-batch took that had records."""
    return [each.durationMs for each in query.recentProgress if each.numInputRows]


def _format(variant: str) -> str:
    kind = variant.partition(".")[0]
    return "kafka" if kind == "jvm" else kind


def _names() -> str:
    return ",".join(part.split()[0] for part in _FIELDS.split(","))


def _check(found: Sequence[Any], expected: Sequence[int]) -> None:
    """Raise ``RuntimeError`` if a job gave a wrong result."""
    if list(found) != list(expected):
        raise RuntimeError(f"the result is {list(found)}, expected {list(expected)}")


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return []


@define(eq=False)
class CpuMeter:
    """Adds up the CPU of a process and all its descendants, including those that have ended since.

    It reads the numbers periodically while the ``with`` block lasts, so nobody has to wait for a process that ends.
    """

    root: int
    _seen: dict[tuple[int, str], float] = field(factory=dict, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _over: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="CPU meter", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def seconds(self) -> float:
        """Return the CPU seconds so far, those of this process too."""
        with self._lock:
            self._look(self.root)
            return time.process_time() + sum(self._seen.values())

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            self.seconds()

    def _look(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            self._seen[pid, fields[19]] = (int(fields[11]) + int(fields[12])) / _TICKS  # with its time of birth: numbers come again
        for child in _children(pid):
            self._look(child)
