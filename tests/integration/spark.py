"""Spark sessions for tests, with Spark's own Kafka connector beside ours.

Decides: settings that suit tests. Owns nothing: the code that starts a session stops it. Must never listen beyond 127.0.0.1.
"""

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kafka_async.spark import register
from tests.brokers import KafkaCluster
from tests.spark_home import spark_environment
from tests.spark_jars import jvm_connector

OURS: Final = "kafka_async"
JVM: Final = "kafka"
Row = tuple[Any, ...]

_ROOT: Final = str(Path(__file__).parents[2])
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.executorEnv.PYTHONPATH": _ROOT,
    # Python workers are forked from a process that has imported what they need, as the page for Spark advises. Programs that tests
    # start as processes of their own do without.
    "spark.python.daemon.module": "kafka_async.adapters.spark.daemon",
    "spark.log.level": "OFF",
    # Without a checksum beside each file of a checkpoint: Hadoop starts a process, chmod, for each file that it writes.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


def new_session(master: str = "local[2]", **settings: str) -> Any:
    """Start Spark, or return the session that runs, with our source registered. In ``settings`` ``__`` stands for a dot."""
    from pyspark.sql import SparkSession

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))  # its workers inherit it
    logging.getLogger("py4j").setLevel(logging.ERROR)
    with warnings.catch_warnings(), _environment(spark_environment()):  # which Spark's processes inherit, and no other ones
        warnings.simplefilter("ignore")  # PySpark's own, about versions of pandas and the like
        builder = SparkSession.builder.master(master).config("spark.jars", jvm_connector())
        for name, value in {**_SETTINGS, **{name.replace("__", "."): value for name, value in settings.items()}}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    register(session)
    return session


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text


def source(
    session: Any,
    cluster: KafkaCluster,
    given: Mapping[str, str] | None = None,
    *,
    kind: str = OURS,
    stream: bool = False,
    **more: str,
) -> Any:
    """Return a reader of ``cluster`` with the options ``given`` and ``more``; ``__`` in a name stands for a dot."""
    reader = (session.readStream if stream else session.read).format(kind)
    reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    for name, value in {**(given or {}), **more}.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader


def rows(frame: Any) -> list[Row]:
    """Return all rows as plain tuples, in the order of topic, partition and offset."""
    found = [tuple(row) for row in frame.collect()]
    topic, partition, offset = (frame.columns.index(name) for name in ("topic", "partition", "offset"))
    return sorted(found, key=lambda row: (row[topic], row[partition], row[offset]))
