"""Processes of PySpark's: what they import, and what is set in them."""

import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from pyspark.cloudpickle import dumps
from pyspark.sql.types import BinaryType, StructField, StructType

from kafka_async.adapters.spark.connections import connections
from kafka_async.adapters.spark.source import KafkaDataSource
from kafka_async.testing import Cluster, ThreadedCluster

CONNECTED = """
import os, socket
os.environ.pop("PYTHON_WORKER_FACTORY_SECRET", None)
os.environ |= {settings}
server = socket.create_server(("127.0.0.1", 0))
spark = socket.create_connection(server.getsockname())
worker, _ = server.accept()
worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
before = sorted(os.listdir("/proc/self/fd"))
"""
ASKED = """
spark.sendall(b"x")  # it still works
print(worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK), before == sorted(os.listdir("/proc/self/fd")), worker.recv(1))
"""
needs_linux = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only on Linux a delay can be turned off")


def said_by(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  # our own words
    return done.stdout.strip()


@pytest.mark.brokers
@pytest.mark.parametrize(("reused", "spared"), [("1", True), ("", False)])
def test_the_collector_passes_over_imports_if_it_runs_after_every_task(reused: str, spared: bool) -> None:
    code = (
        f"import gc, os; os.environ['SPARK_REUSE_WORKER'] = {reused!r};"
        "from kafka_async.adapters.spark.worker import spare_collector;"
        "spare_collector(); spare_collector(); print(gc.get_freeze_count() > 0)"
    )
    assert said_by(code) == str(spared)


@pytest.mark.brokers
def test_the_collector_passes_over_what_is_imported_later_too() -> None:
    code = (
        "import gc, os; os.environ['SPARK_REUSE_WORKER'] = '1';"
        "from kafka_async.adapters.spark.worker import spare_collector;"
        "spare_collector(); first = gc.get_freeze_count(); import kafka_async.adapters.sync; spare_collector();"
        "second = gc.get_freeze_count(); kept = [[] for _ in range(100)]; spare_collector();"
        "print(second > first + 5000, gc.get_freeze_count() <= second)"
    )
    assert said_by(code) == "True True", "and what a task makes is not frozen"


@pytest.mark.brokers
def test_the_collector_does_not_visit_pyspark_while_a_new_worker_imports_what_a_task_needs() -> None:
    source = KafkaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    schema = StructType([StructField("value", BinaryType())])
    for reader in source.reader(schema), source.streamReader(schema):
        sent = dumps(reader)  # type: ignore[no-untyped-call]  # Spark's own
        code = (
            "import gc, os, pickle, sys; os.environ['SPARK_REUSE_WORKER'] = '1'; import pyspark.worker;"
            "before = len(gc.get_objects());"
            f"pickle.loads({sent!r}); made = len(gc.get_objects());"
            "print('kafka_async.adapters.spark.task' in sys.modules, gc.get_freeze_count() > 0.9 * before, 0 < made < before)"
        )
        assert said_by(code) == "True True True"


@pytest.mark.brokers
def test_no_path_of_a_task_imports_pandas() -> None:
    assert said_by("import tests.adapters.spark.every_path") == "[]"


@pytest.mark.brokers
def test_a_task_makes_no_python_functions_of_arrows() -> None:
    code = (
        "import sys; from tests.adapters.spark.test_columns import TYPES, records, spark_schema;"
        "from kafka_async.adapters.spark.columns import BatchBuilder;"
        "names = tuple(name for name in TYPES if name != 'headers');"
        "BatchBuilder(names, spark_schema(*names)).build(records().finish());"
        "print('pyarrow.compute' in sys.modules)"
    )
    assert said_by(code) == "False"


@pytest.mark.brokers
def test_arrows_functions_are_called_as_its_public_module_has_them_called() -> None:
    code = "from pyarrow import _compute, compute; print(_compute.call_function is compute.call_function)"
    assert said_by(code) == "True"


@pytest.mark.brokers
def test_what_a_task_unpickles_does_not_bring_what_only_the_driver_needs() -> None:
    source = KafkaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    schema = StructType([StructField("value", BinaryType())])
    sent = dumps((source, source.reader(schema), source.streamReader(schema)))  # type: ignore[no-untyped-call]  # Spark's own
    ours = "kafka_async.adapters."
    found = said_by(
        f"import pickle, sys; all = pickle.loads({sent!r});"
        f"print(*sorted(name.removeprefix('{ours}') for name in sys.modules if name.startswith('{ours}')))"
    )
    assert not set(found.split()) & {
        *(f"spark.{name}" for name in ("batch", "stream", "plan.lookup", "plan.admission")),
        "values.formats",
        "values.registry",
    }


@pytest.mark.brokers
def test_the_daemon_imports_what_a_task_needs_and_starts_no_thread() -> None:
    code = (
        "import sys, threading; from kafka_async.adapters.spark.daemon import preload; preload();"
        "print(*(name in sys.modules for name in ('kafka_async.adapters.sync', 'pyarrow', 'pandas')), threading.active_count())"
    )
    assert said_by(code) == "True True False 1"


@pytest.mark.brokers
def test_a_worker_of_the_daemon_has_nothing_left_to_import() -> None:
    """Spark throws workers away, so what each imports anew takes time of every query that stops early."""
    cluster = Cluster()
    cluster.topic("t")
    cluster.produce("t", value="a")
    with ThreadedCluster(cluster) as served:
        source = KafkaDataSource({"kafka.bootstrap.servers": served.bootstrap, "subscribe": "t"})
        reader = source.reader(source.schema())
        sent = dumps((reader, reader.partitions()))  # type: ignore[no-untyped-call]  # Spark's own
        code = (
            "import pickle, sys; from kafka_async.adapters.spark.daemon import preload; preload(); before = {*sys.modules};"
            f"import pyspark.worker; reader, parts = pickle.loads({sent!r});"
            "rows = [batch.num_rows for batch in reader.read(parts[0])]; print(rows, *sorted({*sys.modules} - before))"
        )
        said = said_by(code)
        connections().close()
    assert said == "[1]"


@pytest.mark.brokers
def test_the_daemon_starts_without_what_cannot_be_imported() -> None:
    code = (
        "import sys; sys.modules['kafka_async.adapters.sync'] = None;"
        "from kafka_async.adapters.spark.daemon import preload; preload(); print('here')"
    )
    assert said_by(code) == "here"


@pytest.mark.brokers
@needs_linux
@pytest.mark.parametrize(("settings", "at_once"), [({"PYTHON_WORKER_FACTORY_SECRET": "s"}, "1"), ({}, "0")])
def test_a_task_is_acknowledged_as_it_is_unpickled_in_processes_that_spark_started(settings: dict[str, str], at_once: str) -> None:
    source = KafkaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    schema = StructType([StructField("value", BinaryType())])
    for reader in source.reader(schema), source.streamReader(schema):
        sent = dumps(reader)  # type: ignore[no-untyped-call]  # Spark's own
        code = f"{CONNECTED.replace('{settings}', repr(settings))}import pickle; pickle.loads({sent!r})\n{ASKED}"
        assert said_by(code) == f"{at_once} True b'x'"


@pytest.mark.brokers
def test_a_worker_of_the_daemon_reads_no_directory_of_an_archive_again(tmp_path: Path) -> None:
    """A worker invalidates the caches of importers: those of pyspark.zip would read 1,500 entries for each package in it."""
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("in_archive.py", "")
    code = (
        f"import sys, zipimport; sys.path.insert(0, {str(path)!r}); import in_archive;"
        "known = lambda: any(isinstance(each, zipimport.zipimporter) for each in sys.path_importer_cache.values());"
        "first = known(); from kafka_async.adapters.spark.daemon import preload; preload();"
        "print(first, known())"
    )
    assert said_by(code) == "True False"


@pytest.mark.brokers
def test_connections_of_the_process_are_nobodys_but_their_owners() -> None:
    """A connection that was duplicated would stay open at its server when its owner closes it.

    In a process of its own: others' threads open and close files at any time.
    """
    code = (
        "import os, socket; from kafka_async.adapters.spark.daemon import preload;"
        "from kafka_async.adapters.spark.source import KafkaDataSource;"
        "pair = socket.socketpair(); before = sorted(os.listdir('/proc/self/fd'));"
        "source = KafkaDataSource({'kafka.bootstrap.servers': '127.0.0.1:1', 'subscribe': 't'});"
        "preload(); source.reader(source.schema()); source.streamReader(source.schema());"
        "print(sorted(os.listdir('/proc/self/fd')) == before)"
    )
    assert said_by(code) == "True"
