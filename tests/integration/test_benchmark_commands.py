"""Short runs of the benchmarks measure every client, and keep the numbers as the page takes them. Run with ``--apart``."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import page
from benchmarks.processing import AROUND
from benchmarks.tables import OF_JSON
from benchmarks.tables import PROGRAMS as TABLES
from tests.brokers import KafkaCluster

pytestmark = [pytest.mark.brokers, pytest.mark.apart]

OURS_AND_PEERS = ("kafka_async.getmany", "aiokafka.getmany", "confluent.tuned")
HANDLERS = {"kafka_async.key", "kafka_async.none", "aiokafka.gather", "confluent.threads"}
COLD = {"python", "kafka_async.import", "kafka_async.made", "aiokafka", "confluent", "kafka_python"}
FASTSTREAM = {"faststream"} if importlib.util.find_spec("faststream") else set()


@pytest.mark.parametrize(
    ("command", "options", "clients", "last"),
    [
        ("throughput", ["--clients", *OURS_AND_PEERS, "java.perf"], {*OURS_AND_PEERS, "java.perf"}, None),
        ("latency", ["--clients", *OURS_AND_PEERS], {*OURS_AND_PEERS}, None),
        ("processing", [], HANDLERS | FASTSTREAM, set(AROUND)),
        ("imports", [], COLD, None),
        ("tables", [], set(TABLES), set(OF_JSON)),
        ("watching", [], {"kafka_async.top", "confluent.one_by_one"}, None),
    ],
)
def test_a_command_measures_every_client(
    command: str, options: list[str], clients: set[str], last: set[str] | None, kafka44: KafkaCluster, tmp_path: Path
) -> None:
    program = [sys.executable, "-m", "benchmarks", command, "--quick", "-b", kafka44.bootstrap_servers, "--out", str(tmp_path)]

    done = subprocess.run(  # noqa: S603  # ours
        [*program, *options], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=280, check=False
    )

    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / f"{command}.json").read_text())
    measured = [{run["client"] for run in group["runs"] if run["values"]} for group in found["groups"]]
    assert measured[0] == clients, done.stdout
    if last is not None:
        assert measured[-1] == last, done.stdout
    found["about"]["commit"] = "0" * 12  # whatever is being changed here meanwhile
    (tmp_path / f"{command}.json").write_text(json.dumps(found))
    kept = page.gather([tmp_path / f"{command}.json"])
    assert kept["groups"][0]["series"].keys() == clients
