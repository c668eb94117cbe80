"""The benchmarks run: a short one of Spark ends well, with every table, and no client fails. Run with ``--apart``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from tests.brokers import KafkaCluster

pytestmark = [pytest.mark.spark, pytest.mark.apart]  # a Spark of its own, and a dozen queries

CLIENTS = ("kafka_async.read", "jvm.default", "prebuilt.read")  # one of each kind


def test_the_benchmark_of_spark_measures_every_client_in_every_job(kafka44: KafkaCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "spark", "--quick", "-b", kafka44.bootstrap_servers, "--out", str(tmp_path)]

    done = subprocess.run(  # noqa: S603  # ours
        [*command, "--clients", *CLIENTS], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=280, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stdout, done.stdout
    groups = json.loads((tmp_path / "spark.json").read_text())["groups"]
    measured = {group["command"]: {run["client"] for run in group["runs"] if run["values"]} for group in groups}
    connectors = {"kafka_async.read", "jvm.default"}
    assert measured == {
        "spark batch": {*CLIENTS},
        "spark json": connectors,
        "spark json, 1 % bad": connectors,
        "spark json, loose": connectors,
        "spark take": connectors,
        "spark short": connectors,
        "spark stream": connectors,
        "spark latency": connectors,
    }
    tables = done.stdout.split("\n\n")[1:]
    assert [table.splitlines()[0] for table in tables] == [group["title"] for group in groups]
    for table, group in zip(tables, groups, strict=True):
        lines = table.splitlines()
        assert {line.split()[0] for line in lines[2:] if line.split()[0] in CLIENTS and ":" not in line} == measured[
            group["command"]
        ]
