"""The goals for this package's speed and use of resources, with the metrics that measure them. Plain data."""

from collections.abc import Callable
from typing import Final

from attrs import frozen

from benchmarks.jobs import Shape


@frozen
class Target:
    """A goal for one client: a ratio to the best of ``peers``, or a plain value if there are none.

    ``limit`` is a minimum if more of ``metric`` is better, else a maximum. ``applies`` says for which records the goal is meant,
    ``scenarios`` for which faults; if empty, for all.
    """

    command: str
    client: str
    metric: str
    limit: float
    peers: tuple[str, ...] = ()
    applies: Callable[[Shape], bool] = lambda shape: True
    scenarios: tuple[str, ...] = ()


def _small(shape: Shape) -> bool:
    """100 B, uncompressed, 1 and 6 partitions: the cost of a record decides."""
    return shape.size == 100 and shape.codec == "none" and shape.partitions in (1, 6) and not shape.headers


def _large_or_compressed(shape: Shape) -> bool:
    """1 KB uncompressed, or 100 B in any codec: the cost of a byte decides, and all clients pay it alike."""
    size_decides = shape.size == 1000 and shape.codec == "none"
    codec_decides = shape.size == 100 and shape.codec != "none"
    return (size_decides or codec_decides) and shape.partitions in (1, 6) and not shape.headers


def _of(size: int) -> Callable[[Shape], bool]:
    return lambda shape: shape.size == size


def _plain_of(size: int) -> Callable[[Shape], bool]:
    return lambda shape: shape.size == size and shape.codec == "none"


GETMANY: Final = "kafka_async.getmany"
AIOKAFKA: Final = ("aiokafka.getmany",)
# With its pauses or without, whichever did better: a ratio to a client that waits for a timer would flatter ours.
CONFLUENT: Final = ("confluent.consume", "confluent.tuned")
PEERS: Final = ("aiokafka.getmany", "aiokafka.iterate", *CONFLUENT, "confluent.aio", "kafka_python.poll")

SCAN: Final = "kafka_async.scan"
SPARK: Final = "kafka_async.read"
JVM: Final = ("jvm.default",)
TUNED: Final = ("jvm.tuned",)

KEEPING: Final = ("broker-killed", "coordinator-killed", "rolling-restart", "connections-cut", "black-hole")
"""Faults in which no member dies or sleeps, and which are shorter than a session: each keeps its partitions."""
STALLS: Final = {"connections-cut": 0.3, "black-hole": 6, "rolling-restart": 1}
"""Seconds that a record may wait; for the black hole, its own 5 s and one more."""


def _faults(client: str) -> tuple[Target, ...]:
    """What must hold for members of a group in either protocol."""
    return (
        *(Target("faults", client, metric, 0) for metric in ("lost", "deaths")),
        *(Target("faults", client, "stall_s", limit, scenarios=(name,)) for name, limit in STALLS.items()),
        Target("faults", client, "rebalances", 0, scenarios=KEEPING),
    )


TARGETS: Final = (
    Target("throughput", GETMANY, "records_per_s", 4, CONFLUENT, _small),
    Target("throughput", GETMANY, "records_per_s", 6, AIOKAFKA, _small),
    Target("throughput", "kafka_async.iterate", "records_per_s", 12, ("aiokafka.iterate",), _small),
    Target("throughput", "kafka_async.arrow", "records_per_s", 8, CONFLUENT, _small),
    Target("throughput", GETMANY, "cpu_us_per_record", 1 / 3, CONFLUENT, _small),
    Target("throughput", GETMANY, "cpu_us_per_record", 1 / 6, AIOKAFKA, _small),
    Target("throughput", GETMANY, "records_per_s", 1.5, PEERS, _large_or_compressed),
    Target("latency", GETMANY, "p50_ms", 1, PEERS),
    Target("latency", GETMANY, "p99_ms", 1, PEERS),
    Target("latency", GETMANY, "cpu_percent", 0.45, AIOKAFKA),
    Target("partitions", GETMANY, "cpu_growth", 1.5),
    Target("partitions", GETMANY, "cpu_percent_few", 3.5),
    Target("partitions", GETMANY, "cpu_percent_many", 3.5),
    Target("partitions", GETMANY, "cpu_percent_many", 1, CONFLUENT),
    Target("memory", GETMANY, "reading_mib", 100),
    Target("memory", GETMANY, "slow_mib", 100),
    Target("idle", GETMANY, "cpu_percent", 1),
    Target("rebalance", GETMANY, "first_ms", 1, ("confluent.consume",)),
    Target("rebalance", GETMANY, "second_ms", 1, ("confluent.consume",)),
    Target("rebalance", GETMANY, "kept_gap_ms", 1, ("confluent.consume",)),
    Target("distance", GETMANY, "records_per_s", 0.9, ("raw.fetch",), scenarios=("20 ms",)),
    Target("tables", SCAN, "records_per_s", 0.6, ("kafka_async.getarrow",), scenarios=("raw",)),
    Target("tables", SCAN, "peak_rss_mib", 300, scenarios=("raw",)),
    Target("tables", "kafka_async.json", "cpu_us_per_record", 1.5, scenarios=("values",)),
    Target("tables", "kafka_async.avro", "cpu_us_per_record", 1 / 3, ("fastavro",), scenarios=("values",)),
    Target("tables", "kafka_async.ten", "cpu_s", 1.5, scenarios=("ten",)),
    Target("tables", "kafka_async.json.2", "records_per_s", 1.6, ("kafka_async.json",), scenarios=("json",)),
    *_faults(GETMANY),
    *_faults(f"{GETMANY} (848)"),
    Target("spark batch", SPARK, "rows_per_s", 3.2, JVM, _of(100)),
    Target("spark batch", SPARK, "rows_per_s", 2.3, TUNED, _of(100)),
    Target("spark batch", SPARK, "rows_per_s", 2.9, JVM, _of(1000)),
    Target("spark batch", SPARK, "rows_per_s", 2, TUNED, _of(1000)),
    Target("spark batch", SPARK, "rows_per_s", 1 / 1.15, ("prebuilt.read",), _of(100)),
    Target("spark batch", "kafka_async.value", "rows_per_s", 5.5, JVM, _plain_of(100)),
    Target("spark batch", "kafka_async.value", "rows_per_s", 4, JVM, _of(100)),
    Target("spark batch", SPARK, "cpu_s", 2 / 3, JVM),
    Target("spark json", SPARK, "rows_per_s", 4, JVM),
    Target("spark json, 1 % bad", SPARK, "rows_per_s", 1.5, JVM),
    Target("spark json, loose", SPARK, "rows_per_s", 1.5, JVM),
    Target("spark json", SPARK, "cpu_s", 2 / 3, JVM),
    Target("spark take", SPARK, "seconds", 0.7),
    Target("spark short", SPARK, "rows_per_s", 0.25, JVM),
    Target("spark short", SPARK, "seconds", 1.2),
    Target("spark stream", SPARK, "rows_per_s", 1.6, JVM),
    Target("spark stream", SPARK, "cpu_s", 2 / 3, JVM),
    Target("spark latency", SPARK, "batch_ms", 1.15, JVM),
)
