"""Lets Spark find the format: it imports installed top-level modules named ``pyspark_*`` and takes their ``DefaultSource``.

Installed as ``pyspark_kafka_async``. It does nothing but import: one such module that fails breaks every format in Python.
"""

from kafka_async.adapters.spark.source import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
