"""The orders of ``spark_pipeline`` as a Spark Declarative Pipeline: tables are declared, and Spark keeps them up to date.

A streaming table takes the orders from Kafka, a materialized view sums them up by item. The pipeline is two files,
``spark-pipeline.yml`` and a Python file next to it. This example writes them to a folder and runs them with ``pyspark.pipelines``;
``PIPELINE`` names a folder to keep them in, together with the tables. It needs ``pyspark[pipelines]``. With brokers of
your own: ``python -m examples.spark_declarative HOST:PORT TOPIC``.
"""

import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from examples.mock import source

SPEC = """\
name: orders
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""

TABLES = '''\
"""Orders from Kafka, and what was sold of each item."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    return (
        spark.readStream.format("kafka_async")
        .option("kafka.bootstrap.servers", {bootstrap!r})
        .option("kafka.fetch.max.wait.ms", "100")
        .option("subscribe", {topic!r})
        .option("startingOffsets", "earliest")
        .option("value.format", "json")
        .option("value.schema", "order STRING, customer STRING, item STRING, quantity INT, cents INT")
        .load()
    )


@dp.materialized_view
def revenue() -> DataFrame:
    sums = functions.count("*").alias("orders"), functions.sum("cents").alias("cents")
    return spark.read.table("orders").groupBy("item").agg(*sums)
'''

REGISTERING = """\
from kafka_async.adapters.spark.discovery import DefaultSource
"""
"""Lets Spark find the source if the package is only on the path: a module named ``pyspark_*`` next to it."""


def write(folder: Path, bootstrap: str, topic: str) -> None:
    """Write the pipeline's files."""
    (folder / "transformations").mkdir(exist_ok=True)
    (folder / "spark-pipeline.yml").write_text(SPEC.format(folder=folder))
    (folder / "transformations" / "orders.py").write_text(TABLES.format(bootstrap=bootstrap, topic=topic))
    (folder / "pyspark_orders_source.py").write_text(REGISTERING)


def run(folder: Path) -> None:
    """Run the pipeline. Raises ``SystemExit`` with the end of its output if it fails."""
    path = [str(folder), str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }
    import pyspark

    for module in ("grpc", "yaml"):  # of pyspark[pipelines]; what runs the pipeline is another process
        import_module(module)
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run",
        "--remote", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
        "--conf", "spark.sql.shuffle.partitions=2", "--conf", f"spark.sql.warehouse.dir={folder}/warehouse",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  # ours
    if done.returncode:
        raise SystemExit((done.stdout + done.stderr)[-4000:])


def report(folder: Path) -> None:
    """Print what is in the tables."""
    import pyarrow.dataset as ds

    orders = ds.dataset(folder / "warehouse" / "orders", format="parquet").to_table()
    revenue = ds.dataset(folder / "warehouse" / "revenue", format="parquet").to_table()
    print(f"{orders.num_rows} orders in a table of {', '.join(orders.column_names)}")
    for row in sorted(revenue.to_pylist(), key=lambda row: str(row["item"])):
        print(f"{row['orders']:>8,} {row['item']}, {row['cents'] / 100:,.2f} in total")


def main() -> None:
    """Write the pipeline, run it, and look at its tables."""
    with tempfile.TemporaryDirectory() as scratch, source() as (bootstrap, topic, _):
        folder = Path(os.environ.get("PIPELINE") or scratch)
        write(folder, bootstrap, topic)
        run(folder)
        report(folder)


if __name__ == "__main__":
    main()
