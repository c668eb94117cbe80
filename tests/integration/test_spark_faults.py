"""A streaming job whose driver and executors are killed: every record is in its files once."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

import pyarrow.parquet as pq

from tests.brokers import KafkaCluster
from tests.spark_home import spark_home

from .spark_job import APPLICATIONS
from .tools import new_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 24_000
BATCHES = 6
PATIENCE = 180.0
_ROOT = Path(__file__).parents[2]


@contextmanager
def driver(cluster: KafkaCluster, topic: str, directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the job in a process of its own, on two executors of their own, until it is through or killed."""
    with (directory / "driver.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603  # our own command line
            [sys.executable, "-m", "tests.integration.spark_job", cluster.bootstrap_servers, topic, str(directory)],
            cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": str(_ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.PIPE,  # its JVM ends with it
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_group(process.pid)
        process.communicate()
        for name in (directory / APPLICATIONS).read_text().split() if (directory / APPLICATIONS).exists() else ():
            shutil.rmtree(spark_home() / "work" / name, ignore_errors=True)  # copies of jars: 20 MB


def kill_group(group: int) -> None:
    """Kill what is left of a driver: its JVM, executors and workers are in its session."""
    for pid in of_session(group):
        with_pid(pid, signal.SIGKILL)


def with_pid(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def of_session(session: int) -> list[int]:
    """Return the processes of a session that a driver began."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended
            if int(fields[3]) == session:
                found.append(int(entry.name))
    return found


def executors(session: int) -> list[int]:
    """Return the executors of a driver."""
    return [pid for pid in of_session(session) if b"CoarseGrainedExecutorBackend" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _until(condition: Callable[[], object], directory: Path) -> None:
    pause, waited = threading.Event(), 0.0
    while not condition():
        assert waited < PATIENCE, (directory / "driver.log").read_text(errors="replace")[-4000:]
        pause.wait(0.05)
        waited += 0.05


def committed(directory: Path) -> int:
    """Return how many batches the job has finished."""
    return sum(entry.name.isdigit() for entry in (directory / "checkpoint" / "commits").glob("*"))


def test_every_record_is_written_once_when_an_executor_and_the_driver_are_killed(kafka44: KafkaCluster, tmp_path: Path) -> None:
    topic = new_topic(kafka44, 2)
    kafka44.produce(topic, RECORDS, partitions=2)

    with driver(kafka44, topic, tmp_path) as process:
        _until(lambda: committed(tmp_path) >= 1, tmp_path)
        with_pid(executors(process.pid)[0], signal.SIGKILL)
        _until(lambda: committed(tmp_path) >= 2, tmp_path)
        assert process.poll() is None, "it was through before it could be killed"
    at_the_kill = committed(tmp_path)
    with driver(kafka44, topic, tmp_path) as process:
        _until(lambda: process.poll() is not None, tmp_path)
        assert process.returncode == 0, (tmp_path / "driver.log").read_text(errors="replace")[-4000:]

    assert at_the_kill < BATCHES
    table = pq.read_table(written(tmp_path))
    found = sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert found == [(partition, offset) for partition in range(2) for offset in range(RECORDS // 2)]


def written(directory: Path) -> list[str]:
    """Return the files that count: those in the log of the sink."""
    names: set[str] = set()
    for log in (directory / "out" / "_spark_metadata").glob("[0-9]*"):  # some have those of all batches before
        entries = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        names |= {entry["path"].removeprefix("file://") for entry in entries if entry["action"] == "add"}
    return sorted(names)
