import pickle
import socket
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'kafka-async[spark]'")

from pyspark.sql.types import BinaryType, StructField, StructType

from kafka_async.adapters.spark.source import BatchReader, KafkaDataSource
from kafka_async.adapters.spark.worker import acknowledge

IN_WORKER = {"PYTHON_WORKER_FACTORY_SECRET": "s"}
CONNECTED = """
import os, socket
os.environ.pop("PYTHON_WORKER_FACTORY_SECRET", None)
os.environ |= {settings}
server = socket.create_server(("127.0.0.1", 0))
spark = socket.create_connection(server.getsockname())
worker, _ = server.accept()
worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
"""
ASKED = "print(worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))"


linux = pytest.mark.skipif(
    not hasattr(socket, "TCP_QUICKACK"), reason="only Linux delays acknowledgements so that it can be told not to"
)


def connected(settings: dict[str, str]) -> str:
    return CONNECTED.replace("{settings}", repr(settings))


def said_by(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  # our own words
    return done.stdout.strip()


@pytest.mark.parametrize(("reused", "spared"), [("1", True), ("", False)])
def test_the_collector_passes_over_what_is_imported_where_it_runs_after_every_task(reused: str, spared: bool) -> None:
    code = (
        f"import gc, os; os.environ['SPARK_REUSE_WORKER'] = {reused!r};"
        "from kafka_async.adapters.spark.worker import spare_collector;"
        "spare_collector(); spare_collector(); print(gc.get_freeze_count() > 0)"
    )
    assert said_by(code) == str(spared)


@linux
@pytest.mark.parametrize(("settings", "at_once"), [(IN_WORKER, "1"), ({}, "0")])
def test_what_spark_sends_is_acknowledged_at_once_in_the_processes_that_it_started(settings: dict[str, str], at_once: str) -> None:
    use = "from kafka_async.adapters.spark.worker import acknowledge; acknowledge()\n"
    assert said_by(connected(settings) + use + ASKED) == at_once


@linux
def test_it_is_acknowledged_when_a_task_is_unpickled() -> None:
    source = KafkaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    reader = source.reader(StructType([StructField("value", BinaryType())]))
    code = connected(IN_WORKER)
    code += f"import pickle; reader = pickle.loads({pickle.dumps(reader)!r}); print(type(reader).__name__)\n{ASKED}"

    assert said_by(code).split() == [BatchReader.__name__, "1"]


@linux
def test_looking_for_the_connection_leaves_no_file_open() -> None:
    code = connected(IN_WORKER)
    code += "from kafka_async.adapters.spark.worker import acknowledge\nbefore = len(os.listdir('/dev/fd'))\nacknowledge()\n"
    code += "acknowledge()\nprint(len(os.listdir('/dev/fd')) - before)"

    assert said_by(code) == "2"  # copies of both ends, here in one process


def test_elsewhere_nothing_is_looked_for() -> None:
    acknowledge()
