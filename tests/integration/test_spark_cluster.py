"""Spark with executors that are processes of their own: the package is shipped to them, and secrets are nowhere to be seen.

The environment that is shipped is an archive as ``venv-pack`` makes one (``spark.archives``): a venv with the package in it.
What the package stands on is not copied; a ``.pth`` file says where it is, which saves half a gigabyte and a minute.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.spark.registry_server import registry_server
from tests.brokers import KafkaCluster

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]  # three JVMs each

ROOT = Path(__file__).parent.parent.parent
SPARK_HOME = Path(sysconfig.get_path("purelib")) / "pyspark"
SECRET = "ann:correct-horse-battery"
RECORDS = 400


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "env", symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "env" / "lib" / version / "site-packages"
    shutil.copytree(ROOT / "kafka_async", site / "kafka_async", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    with tarfile.open(folder / "environment.tar.gz", "w:gz", compresslevel=1) as packed:
        packed.add(folder / "env", ".")
    return folder / "environment.tar.gz"


def environment(**more: str) -> dict[str, str]:
    """Return the environment of Spark's processes: executors take their Python from the archive, the driver has this one."""
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return inherited | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": "./environment/bin/python",
        **more,
    }


def drive(master: str, options: dict[str, str], archive: Path, folder: Path) -> tuple[dict[str, Any], str]:
    """Run the job. Return what it found, and the driver's log.

    Spark plans a read in Python too, on the driver, with the Python that the executors have: so the environment is there as well.
    """
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "environment", filter="fully_trusted")  # noqa: S202  # our own
    # Not by PYTHONPATH: the executors of local-cluster would inherit it, and find the package without the archive.
    run = "runpy.run_module('tests.integration.spark_cluster_job', None, '__main__')"
    job = f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); {run}"
    command = [sys.executable, "-c", job, master, json.dumps(options), str(archive)]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=330, check=False)  # noqa: S603  # ours
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    work = SPARK_HOME / "work" / found["application"]  # where the workers of local-cluster keep their logs, whatever they are told
    if work.is_dir():
        shutil.move(work, folder / "work")
    return found, done.stderr


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Give the address of a master with two workers."""
    program = str(SPARK_HOME / "bin" / "spark-class")
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name.rpartition('.')[2]}-{len(processes)}.log"
        command = [program, f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        settings = environment(SPARK_DAEMON_MEMORY="256m")
        with log.open("wb") as out:
            processes.append(subprocess.Popen(command, cwd=folder, env=settings, stdout=out, stderr=out))  # noqa: S603  # ours
        return log

    try:
        address = said(start("master.Master", "--port", "0"), r"Starting Spark master at (spark://\S+)")
        logs = [start("worker.Worker", "-c", "1", "-m", "600M", "-d", str(folder / "work"), address) for _ in range(2)]
        for log in logs:
            said(log, r"(Successfully registered) with master")
        yield address
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(30)


def said(log: Path, pattern: str) -> str:
    """Wait until a log has a line. Return its group."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.1)
    raise TimeoutError(f"{log.name} did not say {pattern!r}:\n{log.read_text(errors='replace')[-2000:]}")


@pytest.mark.parametrize("kind", ["local-cluster", "standalone"])
def test_a_job_runs_on_executors_that_got_the_package_and_no_one_sees_a_secret(
    kafka43: KafkaCluster, archive: Path, tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'kafka-async[spark]'")
    pytest.importorskip("fastavro", reason="fastavro is not installed: pip install 'kafka-async[avro]'")
    topic = kafka43.create_topic(f"cluster-{kind}", 2)
    kafka43.produce(topic, RECORDS, values=lambda number: b"\0\0\0\0\1" + zigzag(number), partitions=2)
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "secret").write_text(SECRET + "\n")
    with registry_server() as registry, contextlib.ExitStack() as cluster:
        registry.put("/schemas/ids/1", schema)
        options = {
            "kafka.bootstrap.servers": kafka43.bootstrap_servers,
            "subscribe": topic,
            "minPartitions": "4",
            "value.format": "avro",
            "value.schema": json.dumps(schema),
            "value.schema.registry.url": registry.url,
            "value.schema.registry.basic.auth.user.info": f"file:{tmp_path}/secret",
        }
        master = cluster.enter_context(standalone(tmp_path)) if kind == "standalone" else "local-cluster[2,1,1024]"

        found, log = drive(master, options, archive, tmp_path)

    assert found["total"] == [RECORDS, RECORDS, sum(range(RECORDS)), 0]
    assert len({process for process, _ in found["packages"]}) == 2
    assert all("/environment/lib/" in path for _, path in found["packages"]), found["packages"]
    assert set(registry.authorization) == {"Basic " + base64.b64encode(SECRET.encode()).decode()}
    logs = [path for path in tmp_path.rglob("*") if path.is_file() and (path.name in ("stderr", "stdout") or path.suffix == ".log")]
    assert logs
    for text in (found["shown"], log, *(path.read_text(errors="replace") for path in logs)):
        assert SECRET.partition(":")[2] not in text


def zigzag(number: int) -> bytes:
    """Return a number as Avro writes it."""
    number, out = number * 2, b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])
