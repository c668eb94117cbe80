"""Kafka on Spark through PySpark, batch and streaming, without a jar (extra ``spark``).

    source.py         the objects that Spark makes and calls
    batch.py          a batch read; stream.py, lag.py: a streaming read, and how far it is behind
    task.py           ranges of offsets to Arrow record batches, in a Python worker
    connections.py    consumers that stay connected between the tasks of a worker
    worker.py         settings of a PySpark process; daemon.py: a daemon that has imported what tasks need
    options/          the options of a job
    plan/             which offsets are read by which task
    schema.py         which columns a row has; columns.py: records as Arrow columns
    discovery/        lets Spark find the format by itself

It imports no PySpark before that is needed: programs without it may import this package.
"""

from typing import TYPE_CHECKING

from ...errors import KafkaConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Register the format ``kafka_async`` with ``spark``. Not needed if Spark finds the installed package by itself.

    Raises ``KafkaConfigurationError`` for a PySpark without the API that a streaming source needs, and ``ImportError`` without any.
    """
    try:
        from pyspark import __version__
        from pyspark.errors import AnalysisException
    except ImportError as missing:
        raise ImportError(
            "the format kafka_async needs pyspark, which the extra 'spark' brings: pip install '/path/to/clone[spark]'"
        ) from missing

    if tuple(map(int, __version__.split(".")[:2])) < (4, 2):
        raise KafkaConfigurationError(f"PySpark {__version__} is too old for a streaming source in Python; expected 4.2 or later")
    from .source import KafkaDataSource

    try:
        spark.dataSource.register(KafkaDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # found by itself: the same class
            raise
