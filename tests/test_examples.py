"""Every example runs as a newcomer would run it, against the mock cluster, and says what it should."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem not in ("__init__", "mock"))

SAYS = {
    "arrow": [
        r"1000 rows in .*orders\.parquet",
        "columns: topic, partition, offset, timestamp, key, value$",
        r'last value: {"order":"',
    ],
    "batches": [r"500 records stored\n500 records stored\n", r"\d+ customers, [\d,.]+ in total, 1000 records by the offsets"],
    "blocking": [r"\d+ records of orders-\d", r"1000 records read; positions: {0: \d+, 1: \d+, 2: \d+, 3: \d+}"],
    "consume": [r"^1,000 records; orders-\d is at offset \d+$", r"^ +[\d,]+ espresso$", r"^ +[\d,]+ beans 1 kg$"],
    "spark_declarative": [
        r"^1000 orders in a table of key, order, customer, item, quantity, cents, _corrupt, topic, partition, offset, timestamp",
        r"^ +\d+ beans 1 kg, [\d,.]+ in total$",
    ],
    "spark_pipeline": [
        r"^1000 orders in Parquet, 1000 of them different, ([\d,.]+) in total\n"
        r"1000 orders in \d+ rows of the database, \1 in total$",
    ],
    "web_service": [
        r"^http://127\.0\.0\.1:\d+/$",
        r'^/: HTTP/1\.1 200 OK {"records": 1000, .*"lag": {"orders-0": 0, "orders-1": 0, "orders-2": 0, "orders-3": 0}}$',
        r'^/health: HTTP/1\.1 200 OK {"state": "steady"}$',
        r"^/nothing: HTTP/1\.1 404 Not Found",
    ],
}


def run(name: str, *arguments: str, timeout: float = 110) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("KAFKA_BOOTSTRAP", "KAFKA_TOPIC")}
    warnings = [] if name.startswith("spark_") else ["-W", "error"]  # of PySpark, which we do not mend
    command = [sys.executable, *warnings, "-m", f"examples.{name}", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)  # noqa: S603  # our own


def skip_without_spark(name: str) -> None:
    """Skip an example that cannot run here, with the reason."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs java on the PATH")
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed: pip install 'kafka-async[spark]'")
    if name == "spark_declarative" and any(importlib.util.find_spec(module) is None for module in ("grpc", "pandas", "yaml")):
        pytest.skip("PySpark's extra is not installed: pip install 'pyspark[pipelines]'")


def test_every_example_is_checked() -> None:
    assert sorted(SAYS) == EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_ends_by_itself_and_says_what_it_should(name: str) -> None:
    if name == "arrow":
        pytest.importorskip("pyarrow")
    if name.startswith("spark_"):
        skip_without_spark(name)

    done = run(name)

    assert done.returncode == 0, done.stderr
    assert name.startswith("spark_") or done.stderr == ""  # Java has things to say
    for pattern in SAYS[name]:
        assert re.search(pattern, done.stdout, re.MULTILINE), done.stdout


def test_an_address_without_a_topic_is_refused() -> None:
    done = run("consume", "localhost:9092")

    assert done.returncode == 1
    assert done.stderr == "give both, HOST:PORT and TOPIC, or nothing to read from a mock cluster\n"
