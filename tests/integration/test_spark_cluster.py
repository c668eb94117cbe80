"""Spark with executors that are processes of their own: the package gets to them, and secrets are nowhere to be seen.

The package is the project's wheel, installed in a venv. That is shipped as an archive, as ``venv-pack`` makes one
(``spark.archives``), or is there on each machine. What the package stands on is not copied; a ``.pth`` file says where it is,
which saves half a gigabyte and a minute.
"""

import base64
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
from attrs import frozen

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from pyarrow.dataset import dataset

from kafka_async.adapters.spark.options.secrets import VARIABLE
from tests.adapters.values.registry_server import registry_server
from tests.brokers import KafkaCluster
from tests.spark_home import installed_home, spark_environment, spark_home

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
SECRET = "ann:correct-horse-battery"
RECORDS = 400
DAEMON = "kafka_async.adapters.spark.daemon"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with the wheel of this project installed."""
    folder = tmp_path_factory.mktemp("environment")
    sources = folder / "sources"  # a copy: a build leaves files where it takes place
    shutil.copytree(ROOT / "kafka_async", sources / "kafka_async", ignore=shutil.ignore_patterns("__pycache__", "_*.c", "*.so"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, sources)
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), str(sources))
    venv.create(folder / "env", symlinks=True)
    (wheel,) = folder.glob("*.whl")
    pip("--python", str(folder / "env"), "install", "--no-index", str(wheel))
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    folders = dict.fromkeys((sysconfig.get_path("purelib"), str(installed_home().parent)))  # the second may be that of a base below
    (site / "dependencies.pth").write_text("".join(f"{path}\n" for path in folders))
    return folder / "env"


def pip(*arguments: str) -> None:
    """Run pip, which neither fetches anything nor looks at what the package needs."""
    command = [sys.executable, "-m", "pip", "--quiet", *arguments, "--no-deps"]
    # Compiled in a third of the time, and nobody measures it. With the path that other tests give Spark's workers, pip would find
    # the package there and install nothing.
    settings = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | {"CFLAGS": "-O0"}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603  # ours
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def archive(installed: Path) -> Path:
    """A packed environment."""
    with tarfile.open(installed.parent / "environment.tar.gz", "w:gz", compresslevel=1) as packed:
        packed.add(installed, ".")
    return installed.parent / "environment.tar.gz"


def environment(home: Path | None = None, **more: str) -> dict[str, str]:
    """Return the environment of Spark's processes: executors take their Python from the archive, the driver has this one.

    ``home``: that of Spark, instead of the one from which processes start quickly.

    Nothing is said in it of what secrets may be referred to: a job's own settings, or ``--files``, must do.
    """
    inherited = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", VARIABLE)}
    return inherited | {
        **spark_environment(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": "./environment/bin/python",
        **more,
    }


def drive(
    master: str,
    options: dict[str, str],
    archive: Path,
    folder: Path,
    spark: dict[str, str],
    variables: dict[str, str],
    home: Path,
) -> tuple[dict[str, Any], str]:
    """Run the job with settings of ``spark`` and of the driver's environment. Return what it found, and the driver's log.

    Spark plans a read in Python too, on the driver, with the Python that the executors have: so the environment is there as well.
    """
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "environment", filter="fully_trusted")  # noqa: S202  # our own
    # Not by PYTHONPATH: the executors of local-cluster would inherit it, and find the package without the archive.
    run = "runpy.run_module('tests.integration.spark_cluster_job', None, '__main__')"
    job = f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); {run}"
    arguments = [master, json.dumps(options), str(archive), str(folder), json.dumps(spark)]
    found, log = result([sys.executable, "-c", job, *arguments], folder, environment(home, **variables))
    work = home / "work" / found["application"]  # where the workers of local-cluster keep their logs, whatever they are told
    if work.is_dir():
        shutil.move(work, folder / "work")
    return found, log


def result(command: list[str], folder: Path, settings: dict[str, str]) -> tuple[dict[str, Any], str]:
    """Run a driver. Return the JSON that it prints last, and its log."""
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=330, check=False)  # noqa: S603  # ours
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found, done.stderr


@frozen
class Standalone:
    """A master with two workers: its address, and where their logs are."""

    address: str
    folder: Path


@pytest.fixture(scope="module")
def standalone(real_brokers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp("standalone")
    program = str(spark_home() / "bin" / "spark-class")
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
        yield Standalone(address, folder)
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


@pytest.mark.parametrize(
    "kind",
    [pytest.param("local-cluster", marks=pytest.mark.apart), "standalone"],  # the second is a cluster as people run it
)
def test_a_job_runs_on_executors_that_got_the_package_and_no_one_sees_a_secret(
    request: pytest.FixtureRequest, kafka44: KafkaCluster, archive: Path, tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("fastavro", reason="fastavro is not installed: pip install '.[avro]'")
    topic = kafka44.create_topic(f"cluster-{kind}", 2)
    kafka44.produce(topic, RECORDS, values=lambda number: b"\0\0\0\0\1" + zigzag(number), partitions=2)
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "secret").write_text(SECRET + "\n")
    folders, master, home = [tmp_path], "local-cluster[2,1,1024]", installed_home()  # as most users have it
    reference, allowed = f"file:{tmp_path}/secret", {VARIABLE: f"file:{tmp_path}/"}
    spark = {f"spark.executorEnv.{VARIABLE}": allowed[VARIABLE], "spark.python.daemon.module": DAEMON}
    if kind == "standalone":
        reference, allowed = "file:secret", {}
        spark = {"spark.files": str(tmp_path / "secret")}  # as --files has it
        cluster: Standalone = request.getfixturevalue("standalone")
        folders, master, home = [tmp_path, cluster.folder], cluster.address, spark_home()
    with registry_server() as registry:
        registry.put("/schemas/ids/1", schema)
        options = {
            "kafka.bootstrap.servers": kafka44.bootstrap_servers,
            "subscribe": topic,
            "minPartitions": "4",
            "value.format": "avro",
            "value.schema": json.dumps(schema),
            "value.schema.registry.url": registry.url,
            "value.schema.registry.basic.auth.user.info": reference,
        }

        found, log = drive(master, options, archive, tmp_path, spark, allowed, home)

    assert found["total"] == [RECORDS, RECORDS, sum(range(RECORDS)), 0]
    streamed = dataset(tmp_path / "rows", format="parquet").to_table(["partition", "offset", "id"]).to_pylist()
    expected = [{"partition": number % 2, "offset": number // 2, "id": number} for number in range(RECORDS)]
    assert sorted(streamed, key=lambda row: int(row["id"])) == expected
    assert found["batches"] == [[200, 200], []], "the second query finds in the checkpoint that all is done"
    assert len(found["executors"]) == 2
    assert len({process for process, _, _ in found["packages"]}) == 2
    assert all("/environment/lib/" in path for _, path, _ in found["packages"]), found["packages"]
    assert {DAEMON in command for _, _, command in found["packages"]} == {kind == "local-cluster"}
    assert set(registry.authorization) == {"Basic " + base64.b64encode(SECRET.encode()).decode()}
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    logs = [path for path in files if path.name in ("stderr", "stdout") or path.suffix == ".log"]
    checkpoint = [path for path in files if "checkpoint" in path.parts]
    assert logs
    assert checkpoint
    for text in (found["shown"], log, *(path.read_text(errors="replace") for path in logs + checkpoint)):
        assert SECRET.partition(":")[2] not in text
        assert "preloading failed" not in text


def test_the_source_of_an_installed_wheel_is_found_on_each_machine_without_being_registered(
    kafka44: KafkaCluster, installed: Path, standalone: Standalone, tmp_path: Path
) -> None:
    topic = kafka44.create_topic("installed", 2)
    kafka44.produce(topic, RECORDS, values=lambda number: b"%d" % number, partitions=2)
    python = str(installed / "bin" / "python")
    job = tmp_path / "job.py"  # not beside the checkout's package, which would be found first
    job.write_bytes(Path(__file__).with_name("spark_installed_job.py").read_bytes())
    settings = environment(PYSPARK_DRIVER_PYTHON=python, PYSPARK_PYTHON=python)

    found, _ = result([python, str(job), standalone.address, kafka44.bootstrap_servers, topic], tmp_path, settings)

    assert found["total"] == [RECORDS, RECORDS, sum(range(RECORDS))]
    assert len({process for process, _ in found["packages"]}) == 2
    assert {Path(path).parents[4] for _, path in found["packages"]} == {installed}


def zigzag(number: int) -> bytes:
    """Return a number as Avro writes it."""
    number, out = number * 2, b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])
