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

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem not in ("__init__", "job_queue", "mock"))

SAYS = {
    "table": [
        r"^1,000 offsets of 4 partitions, about \d+ kB, about \d+ s$",
        r"^{'item': '.*', 'quantity': \d, 'cents': \d+, '_kafka_partition': 0, '_kafka_offset': 0}$",
        r"^1000 orders, [\d,.]+ in total$",
        r"^ +[\d,.]+ oat milk$",
    ],
    "arrow": [
        r"1000 rows in .*orders\.parquet",
        "columns: topic, partition, offset, timestamp, key, value$",
        r'last value: {"order":"',
    ],
    "avro_values": [r"^plain: ([\d,.]+) in total\nasync: \1 in total$"],
    "batches": [r"500 records stored\n500 records stored\n", r"\d+ customers, [\d,.]+ in total, 1000 records by the offsets"],
    "blocking": [r"\d+ records of orders-\d", r"1000 records read; positions: {0: \d+, 1: \d+, 2: \d+, 3: \d+}"],
    "consume": [r"^1,000 records; orders-\d is at offset \d+$", r"^ +[\d,]+ espresso$", r"^ +[\d,]+ beans 1 kg$"],
    "exactly_once": [r"^[1-9]\d* customers at once\n\d+ customers at once\n1000 orders counted, 1000 by the offsets$"],
    "fastapi_service": [
        r"^http://127\.0\.0\.1:\d+/\n{'billed': 1000, 'refused': 0, 'unread': 0}$",
        r"^/alive 200 {'state': 'steady'}\n/ready 200 {'state': 'steady'}$",
        r'^org_apache_kafka_consumer_processing_records_handled_total{client_id="billing-1"} 1000\nleft the group: 1000 billed$',
    ],
    "metrics": [
        r"^http://127\.0\.0\.1:\d+/metrics$",
        r"^# TYPE org_apache_kafka_consumer_fetch_manager_records_consumed_total counter$",
        r'^org_apache_kafka_consumer_fetch_manager_records_consumed_total{client_id="billing-1"} 1000$',
        r'^org_apache_kafka_consumer_fetch_manager_records_lag{client_id="billing-1",topic="orders",partition="0"} 0$',
        r'^org_apache_kafka_consumer_node_request_total{client_id="billing-1",node_id="\d+"} \d+$',
        r'^org_apache_kafka_consumer_last_poll_seconds_ago{client_id="billing-1"} \d',
    ],
    "probes": [
        r"^http://127\.0\.0\.1:\d+/ready\n/alive: 200 OK, steady\n/ready: 200 OK, steady\nthe cluster is gone$",
        r"^/alive: 200 OK, no broker can be reached\n/ready: 503 Service Unavailable, no broker can be reached$",
    ],
    "retry_topics": [
        r"^\d+ orders came again later\nbilled by attempt: {1: 920, 3: 61}\n19 set aside, the first of them from orders$"
    ],
    "rewind": [
        r"^\d+ records not stored: database is locked; reading them again$",
        r"^1000 records stored and committed\n1000 orders in the database$",
    ],
    "shutdown": [r"^([23]\d\d) records handled, \1 committed$"],
    "spark_declarative": [
        r"^1000 orders in a table of key, order, customer, item, quantity, cents, _corrupt, _corrupt_reason, topic, partition, "
        "offset, timestamp",
        r"^ +\d+ beans 1 kg, [\d,.]+ in total$",
    ],
    "routes": [
        r"^100 orders of 250\.00 in total, 2 cancelled$",
        r"^set aside: InvalidValue: b'{\"id\": \"ten\"}', NoRoute: b'\?'$",
    ],
    "spark_pipeline": [
        r"^1000 orders in Parquet, 1000 of them different, ([\d,.]+) in total\n"
        r"1000 orders in \d+ rows of the database, \1 in total$",
    ],
    "tested": [r"^80 orders billed, 1 record set aside, 81 offsets committed: \d+ s in \d+\.\d\d s$"],
    "waiting": [r"^no cluster yet \(NoBrokersAvailable\); trying again in 0\.1 s$", r"^1000 records read$"],
    "workers": [
        r"^http://127\.0\.0\.1:\d+/ready\nready\n1000 orders handled by two processes\nthe supervisor ended with 143$",
    ],
    "web_service": [
        r"^http://127\.0\.0\.1:\d+/$",
        r'^/: HTTP/1\.1 200 OK {"records": 1000, .*"lag": {"orders-0": 0, "orders-1": 0, "orders-2": 0, "orders-3": 0}}$',
        r'^/health: HTTP/1\.1 200 OK {"state": "steady"}$',
        r"^/nothing: HTTP/1\.1 404 Not Found",
    ],
}

LOG = re.compile(r"^\[consumer-[^\]]*\] .*\n", re.MULTILINE)
"""A line of the log: those that tell of a cluster that is away are part of what two examples show."""


def run(name: str, *arguments: str, timeout: float = 280) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("KAFKA_BOOTSTRAP", "KAFKA_TOPIC")}
    if name.startswith("spark_"):
        from tests.spark_home import spark_environment

        environment |= spark_environment()
    warnings = [] if name.startswith("spark_") else ["-W", "error"]  # of PySpark, which we do not mend
    command = [sys.executable, *warnings, "-m", f"examples.{name}", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)  # noqa: S603  # our own


def skip_without_spark(name: str) -> None:
    """Skip an example that cannot run here, with the reason."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs java on the PATH")
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed: pip install '.[spark]'")
    if name == "spark_declarative" and any(importlib.util.find_spec(module) is None for module in ("grpc", "pandas", "yaml")):
        pytest.skip("PySpark's extra is not installed: pip install 'pyspark[pipelines]'")


def test_every_example_is_checked() -> None:
    assert sorted(SAYS) == EXAMPLES


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.spark if name.startswith("spark_") else pytest.mark.brokers) for name in EXAMPLES]
)
def test_an_example_ends_by_itself_and_says_what_it_should(name: str) -> None:
    if name == "arrow":
        pytest.importorskip("pyarrow")
    if name == "avro_values":
        pytest.importorskip("authlib", reason="needs confluent-kafka[schemaregistry,avro]")
    if name.startswith("spark_"):
        skip_without_spark(name)

    done = run(name)

    assert done.returncode == 0, done.stderr
    assert name.startswith("spark_") or LOG.sub("", done.stderr) == ""  # Java has things to say
    for pattern in SAYS[name]:
        assert re.search(pattern, done.stdout, re.MULTILINE), done.stdout


@pytest.mark.brokers
def test_an_address_without_a_topic_is_refused() -> None:
    done = run("consume", "localhost:9092")

    assert done.returncode == 1
    assert done.stderr == "give both, HOST:PORT and TOPIC, or nothing to read from a mock cluster\n"


@pytest.mark.brokers
@pytest.mark.parametrize(
    ("name", "absent", "remedy"),
    [
        ("avro_values", "confluent_kafka", "'confluent-kafka[schemaregistry,avro]'"),
        ("arrow", "pyarrow", "'.[arrow]' from a clone"),
        ("fastapi_service", "uvicorn", "fastapi httpx uvicorn"),
        ("spark_pipeline", "pyspark", "'.[spark]' from a clone"),
    ],
)
def test_an_example_that_lacks_a_library_says_what_to_install(
    tmp_path: Path, name: str, absent: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an environment without it: the name leads to nothing."""
    finder = "import sys\nclass Gone:\n    def find_spec(self, name, path=None, target=None):\n"
    finder += (
        f"        if name.partition('.')[0] == {absent!r}: raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(finder + "sys.meta_path.insert(0, Gone())\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    done = run(name)

    assert (done.returncode, done.stderr) == (1, f"this example needs {absent}: pip install {remedy}\n")
