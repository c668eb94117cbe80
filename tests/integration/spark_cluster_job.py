"""The program that ``test_spark_cluster.py`` runs: a driver of a cluster with executors of their own.

Its arguments are ``MASTER OPTIONS ARCHIVE FOLDER SETTINGS``. It reads the topic at once, and as a stream to files in the folder.
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
from pyspark.sql.streaming.query import StreamingQuery

from kafka_async.spark import register


def where(_: Iterable[Any]) -> Iterator[tuple[int, str, str]]:
    """Say in which process a task runs, which package it has, and the command of the daemon that it was forked from."""
    import os
    from pathlib import Path

    import kafka_async

    yield os.getppid(), os.path.abspath(kafka_async.__file__), Path(f"/proc/{os.getppid()}/cmdline").read_text()


def page(session: SparkSession, name: str) -> str:
    """Return a page of what Spark tells programs of the application."""
    context = session.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{name}"
    with urllib.request.urlopen(address) as answer:  # noqa: S310  # the page of our own driver
        text: str = answer.read().decode()
        return text


def shown(session: SparkSession) -> str:
    """Return what Spark's web page knows of the application: settings, and the plans of its queries."""
    return "".join(page(session, name) for name in ("environment", "sql?details=true&planDescription=true", "stages", "jobs"))


def copied(session: SparkSession, options: dict[str, str], folder: str) -> Iterator[StreamingQuery]:
    """Copy the topic to files as a stream that ends with it, twice from one checkpoint: then there is nothing left."""
    stream = (
        session.readStream.format("kafka_async").options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="200").load()
    )
    writer = (
        stream.writeStream.format("parquet").option("path", f"{folder}/rows").option("checkpointLocation", f"{folder}/checkpoint")
    )
    for _ in range(2):
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        yield query


def executors(session: SparkSession, queries: list[StreamingQuery]) -> list[str]:
    """Return the executors on which the tasks of streaming queries ran."""
    runs = {str(query.runId) for query in queries}
    stages = {stage for job in json.loads(page(session, "jobs")) if job.get("jobGroup") in runs for stage in job["stageIds"]}
    attempts = [attempt for stage in stages for attempt in json.loads(page(session, f"stages/{stage}?details=true"))]
    return sorted({task["executorId"] for attempt in attempts for task in attempt["tasks"].values()})


def main() -> None:
    master, options, archive, folder, more = sys.argv[1:]
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.archives": f"{archive}#environment",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
        **json.loads(more),
    }
    session = SparkSession.builder.master(master).appName("cluster").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("INFO")
    register(session)
    frame = session.read.format("kafka_async").options(**json.loads(options)).load()
    (total,) = frame.selectExpr("count(*)", "count(DISTINCT partition, offset)", "sum(id)", "count(_corrupt)").collect()
    queries = list(copied(session, json.loads(options), folder))
    packages = session.sparkContext.parallelize(range(4), 4).mapPartitions(where).distinct().collect()
    explained = io.StringIO()
    with contextlib.redirect_stdout(explained):
        frame.explain(extended=True)
    result = {
        "total": list(total),
        "batches": [[batch.numInputRows for batch in query.recentProgress if batch.numInputRows] for query in queries],
        "executors": executors(session, queries),
        "packages": packages,
        "shown": shown(session) + explained.getvalue(),
        "application": session.sparkContext.applicationId,
    }
    session.stop()
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
