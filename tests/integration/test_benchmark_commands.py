"""Short runs of the benchmarks measure every client, and keep the numbers as the page takes them. Run with ``--apart``."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import page
from benchmarks.tables import PROGRAMS as TABLES
from tests.brokers import KafkaCluster

pytestmark = [pytest.mark.brokers, pytest.mark.apart]

OURS_AND_PEERS = ("kafka_async.getmany", "aiokafka.getmany", "confluent.tuned")
HANDLERS = {"kafka_async.key", "kafka_async.none", "aiokafka.gather", "confluent.threads"}
COLD = {"python", "kafka_async.import", "kafka_async.made", "aiokafka", "confluent", "kafka_python"}
FASTSTREAM = {"faststream"} if importlib.util.find_spec("faststream") else set()


@pytest.mark.parametrize(
    ("command", "options", "clients"),
    [
        ("throughput", ["--clients", *OURS_AND_PEERS, "java.perf"], {*OURS_AND_PEERS, "java.perf"}),
        ("latency", ["--clients", *OURS_AND_PEERS], {*OURS_AND_PEERS}),
        ("processing", [], HANDLERS | FASTSTREAM),
        ("imports", [], COLD),
        ("tables", [], set(TABLES)),
        ("watching", [], {"kafka_async.top", "confluent.one_by_one"}),
    ],
)
def test_a_command_measures_every_client(
    command: str, options: list[str], clients: set[str], kafka44: KafkaCluster, tmp_path: Path
) -> None:
    program = [sys.executable, "-m", "benchmarks", command, "--quick", "-b", kafka44.bootstrap_servers, "--out", str(tmp_path)]

    done = subprocess.run(  # noqa: S603  # ours
        [*program, *options], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=280, check=False
    )

    assert done.returncode == 0, done.stderr
    group, *_ = json.loads((tmp_path / f"{command}.json").read_text())["groups"]
    assert {run["client"] for run in group["runs"] if run["values"]} == clients, done.stdout
    found = json.loads((tmp_path / f"{command}.json").read_text())
    found["about"]["commit"] = "0" * 12  # whatever is being changed here meanwhile
    (tmp_path / f"{command}.json").write_text(json.dumps(found))
    kept = page.gather([tmp_path / f"{command}.json"])
    assert kept["groups"][0]["series"].keys() == clients
