"""Orders from Kafka on Spark: windows with a watermark, to Parquet and to a database, across restarts (extra ``spark``).

Every order goes to Parquet. Revenue by minute and item goes to SQLite. If Spark repeats a batch, after a crash between the work
and the checkpoint, it writes the same rows again and adds nothing. The example stops halfway and restarts from its checkpoints,
as after a deployment; at the end it compares both results.

With brokers of your own: ``python -m examples.spark_pipeline HOST:PORT TOPIC``; then it reads what is there and ends.
``PIPELINE`` names a folder to keep results and checkpoints in; the next run goes on from there.
"""

import os
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from examples.mock import source
from kafka_async.spark import register

SCHEMA = "order STRING, customer STRING, item STRING, quantity INT, cents INT"
TABLE = """
CREATE TABLE IF NOT EXISTS revenue (
    start TEXT, item TEXT, orders INTEGER NOT NULL, cents INTEGER NOT NULL, PRIMARY KEY (start, item)
)
"""


def session() -> SparkSession:
    """Return a Spark of two cores on this machine."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("orders")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)  # not needed if the package is installed, and not only on the path
    return spark


def orders(spark: SparkSession, bootstrap: str, topic: str, per_batch: int) -> DataFrame:
    """Return the stream of orders; values that are no orders are in ``_corrupt``."""
    return (
        spark.readStream.format("kafka_async")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.fetch.max.wait.ms", "100")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(per_batch))
        .option("value.format", "json")
        .option("value.schema", SCHEMA)
        .load()
    )


def to_parquet(stream: DataFrame, folder: Path) -> Any:
    """Append every order to Parquet files. Exactly once: the sink keeps a log of the batches that it has written."""
    rows = stream.where("_corrupt IS NULL").select("partition", "offset", "timestamp", "order", "item", "quantity", "cents")
    writer = rows.writeStream.format("parquet").option("path", str(folder / "orders"))
    return writer.option("checkpointLocation", str(folder / "checkpoints" / "orders")).trigger(availableNow=True).start()


def to_database(stream: DataFrame, folder: Path) -> Any:
    """Keep the revenue of each window and item up to date. Exactly once: a batch sets totals, so repeating it changes nothing."""
    windows = (
        stream.where("_corrupt IS NULL")
        .withWatermark("timestamp", "10 minutes")
        .groupBy(functions.window("timestamp", "1 minute"), "item")
        .agg(functions.count("*").alias("orders"), functions.sum("cents").alias("cents"))
        .selectExpr("CAST(window.start AS STRING) AS start", "item", "orders", "cents")
    )
    path = folder / "revenue.sqlite"

    def write(batch: DataFrame, _: int) -> None:
        with sqlite3.connect(path) as database:  # one transaction
            database.execute(TABLE)
            database.executemany("INSERT OR REPLACE INTO revenue VALUES (?, ?, ?, ?)", [tuple(row) for row in batch.collect()])
        database.close()

    writer = windows.writeStream.outputMode("update").foreachBatch(write)
    return writer.option("checkpointLocation", str(folder / "checkpoints" / "revenue")).trigger(availableNow=True).start()


def run(spark: SparkSession, bootstrap: str, topic: str, folder: Path, batches: int | None) -> None:
    """Run both queries until everything that is there is done, or stop them after ``batches`` micro-batches."""
    stream = orders(spark, bootstrap, topic, 300)
    for start in (to_parquet, to_database):
        query = start(stream, folder)
        while not query.awaitTermination(1) and (batches is None or len(query.recentProgress) < batches):
            pass
        query.stop()


def report(spark: SparkSession, folder: Path) -> None:
    """Print the results, and check that both sinks agree."""
    files = spark.read.parquet(str(folder / "orders"))
    count, unique, cents = files.selectExpr("count(*)", "count(DISTINCT partition, offset)", "sum(cents)").first() or (0, 0, 0)
    database = sqlite3.connect(folder / "revenue.sqlite")
    ((rows, counted, revenue),) = database.execute("SELECT count(*), sum(orders), sum(cents) FROM revenue")
    database.close()
    print(f"{count} orders in Parquet, {unique} of them different, {cents / 100:,.2f} in total")
    print(f"{counted} orders in {rows} rows of the database, {revenue / 100:,.2f} in total")


def main() -> None:
    """Read some of the orders, stop, and read the rest after a restart."""
    spark = session()
    with tempfile.TemporaryDirectory() as scratch, source() as (bootstrap, topic, _):
        folder = Path(os.environ.get("PIPELINE") or scratch)
        for batches in (1, None):
            run(spark, bootstrap, topic, folder, batches)
        report(spark, folder)
    spark.stop()


if __name__ == "__main__":
    main()
