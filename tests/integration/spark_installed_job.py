"""The program that ``test_spark_cluster.py`` runs with the wheel installed: nothing registers the source.

Its arguments are ``MASTER SERVERS TOPIC``. Prints one line of JSON: what was read, and where the executors' package comes from.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession


def where(_: Iterable[Any]) -> Iterator[tuple[int, str]]:
    """Say in which process a task runs, and which package it has."""
    import kafka_async

    yield os.getppid(), os.path.abspath(kafka_async.__file__)


def main() -> None:
    master, servers, topic = sys.argv[1:]
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
    }
    session = SparkSession.builder.master(master).appName("installed").config(map=settings).getOrCreate()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "minPartitions": "4"}
    frame = session.read.format("kafka_async").options(**options).load()
    (total,) = frame.selectExpr("count(*)", "count(DISTINCT partition, offset)", "sum(CAST(value AS STRING))").collect()
    packages = session.sparkContext.parallelize(range(4), 4).mapPartitions(where).distinct().collect()
    session.stop()
    sys.stdout.write(json.dumps({"total": list(total), "packages": packages}) + "\n")


if __name__ == "__main__":
    main()
