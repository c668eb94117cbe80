"""The program that ``test_spark_cluster.py`` runs: a driver of a cluster with executors of their own, ``MASTER OPTIONS ARCHIVE``.

Prints one line of JSON: what was read, where the executors' package comes from, and whatever Spark shows of the job.
"""

import contextlib
import io
import json
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from kafka_async.spark import register


def where(_: Iterable[Any]) -> Iterator[tuple[int, str]]:
    """Say in which process a task runs, and which package it has."""
    import os

    import kafka_async

    yield os.getppid(), os.path.abspath(kafka_async.__file__)


def shown(session: SparkSession) -> str:
    """Return what Spark's web page knows of the application: settings, and the plans of its queries."""
    context = session.sparkContext
    base = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
    pages = []
    for page in ("environment", "sql?details=true&planDescription=true", "stages", "jobs"):
        with urllib.request.urlopen(f"{base}/{page}") as answer:  # noqa: S310  # the page of our own driver
            pages.append(answer.read().decode())
    return "".join(pages)


def main() -> None:
    master, options, archive = sys.argv[1:]
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.archives": f"{archive}#environment",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    session = SparkSession.builder.master(master).appName("cluster").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("INFO")
    register(session)
    frame = session.read.format("kafka_async").options(**json.loads(options)).load()
    (total,) = frame.selectExpr("count(*)", "count(DISTINCT partition, offset)", "sum(id)", "count(_corrupt)").collect()
    packages = session.sparkContext.parallelize(range(4), 4).mapPartitions(where).distinct().collect()
    explained = io.StringIO()
    with contextlib.redirect_stdout(explained):
        frame.explain(extended=True)
    result = {
        "total": list(total),
        "packages": packages,
        "shown": shown(session) + explained.getvalue(),
        "application": session.sparkContext.applicationId,
    }
    session.stop()
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
