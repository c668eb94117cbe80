"""``kafka-async monitor`` as a program: what it serves of a cluster, and a scaler that acts on it."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from kafka_async.adapters.cli.commands import app
from kafka_async.sync import KafkaConsumer, ShareConsumer
from kafka_async.testing import Cluster, ThreadedCluster

pytestmark = pytest.mark.brokers

PATIENCE: Final = 40.0
"""Seconds until a test gives up."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    def write(cluster: Cluster) -> None:
        cluster.topic("orders", 3)
        cluster.topic("jobs", 2)

    with ThreadedCluster(Cluster(3)) as cluster:
        cluster.call(write).result()
        yield cluster


class Monitor:
    """A running monitor."""

    def __init__(self, port: int, process: "subprocess.Popen[str]") -> None:
        self.port = port
        self.process = process

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def wait_for(self, path: str, holds: Callable[[int, str], bool]) -> str:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            status, body = self.get(path)
            if holds(status, body):
                return body
            select.select([], [], [], 0.1)
        raise AssertionError(f"{path} is {status}: {body}")


@contextmanager
def monitor(brokers: str, *arguments: str) -> Iterator[Monitor]:
    port = [] if "--port" in arguments else ["--port", "0"]
    command = [sys.executable, "-m", "kafka_async", "monitor", "-b", brokers, *port, "-i", "0.5", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:  # noqa: S603  # ours
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.fullmatch(r"kafka-async: http://127\.0\.0\.1:(\d+)/\n", line)
            assert found is not None, line
            yield Monitor(int(found[1]), process)
        finally:
            process.kill()
            process.wait(PATIENCE)


def test_a_monitor_serves_pages_and_numbers_and_ends_at_sigterm(cluster: ThreadedCluster) -> None:
    cluster.call(lambda brokers: brokers.produce_many("orders", ["x"] * 30)).result()
    options: Any = {"bootstrap_servers": cluster.bootstrap, "group_id": "pages", "auto_offset_reset": "earliest"}
    with KafkaConsumer("orders", **options) as consumer:
        while not consumer.getmany(timeout_ms=500, max_records=1):
            pass
        consumer.commit()
    with monitor(cluster.bootstrap, "--group", "pages") as running:
        page = running.wait_for("/", lambda status, body: "pages" in body)
        assert '<link rel="stylesheet" href="/page.css">' in page
        row = json.loads(running.get("/api/v1/groups/pages")[1])
        assert (row["status"], row["members"]) == ("STOP", 0)
        assert 'kafka_async_group_status{group="pages",status="STOP"} 1.0' in running.get("/metrics")[1]
        assert running.get("/", Host="evil.example")[0] == 403
        assert running.get("/ready")[0] == 200
        assert running.get("/page.js")[0] == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE) == 143


def test_a_token_from_a_file_is_asked_for(cluster: ThreadedCluster, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    with monitor(cluster.bootstrap, "--token-file", str(file)) as running:
        assert running.get("/")[0] == 401
        assert running.get("/", Authorization="Bearer secret")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["--token-file", "/nowhere"], "cannot read the file"), (["--port", "70000"], "65535"), (["--interval", "0"], "0.5")],
)
def test_wrong_usage_is_told(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(app, ["monitor", *arguments])
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_port_that_is_taken_is_one_line(cluster: ThreadedCluster) -> None:
    with monitor(cluster.bootstrap) as running:
        result = CliRunner().invoke(app, ["monitor", "-b", cluster.bootstrap, "--port", str(running.port)])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "in use" in result.stderr


# --- a scaler ------------------------------------------------------------------------------------------------------------------

TARGET: Final = 100
MOST: Final = 3


class Workers:
    """As many consumers as a scaler wants."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.running: list[tuple[ExitStack, Any]] = []

    def scale(self, count: int) -> None:
        while len(self.running) > count:
            self.running.pop()[0].close()
        while len(self.running) < count:
            stack = ExitStack()
            self.running.append((stack, stack.enter_context(self.make())))

    def work(self, records: int) -> None:
        for _, consumer in self.running:
            found = consumer.getmany(timeout_ms=200, max_records=records)
            if isinstance(consumer, ShareConsumer):
                for job in (job for jobs in found.values() for job in jobs):
                    job.accept()
                consumer.flush()
            else:
                consumer.commit()


def wanted(lag: int) -> int:
    """Return how many workers KEDA's scaler metrics-api has: ceil(lag / targetValue), none for 0, maxReplicaCount at most."""
    return min(-(-lag // TARGET), MOST)


@pytest.mark.parametrize("kind", ["offsets", "share"])
def test_a_scaler_drives_workers_from_one_to_many_to_none(cluster: ThreadedCluster, kind: str) -> None:
    topic, group = ("orders", "scaled") if kind == "offsets" else ("jobs", "scaled-share")
    where: Any = {"bootstrap_servers": cluster.bootstrap, "group_id": group}
    path = f"/keda/groups/{group}?target={TARGET}"

    def consumer() -> Any:
        if kind == "share":
            return ShareConsumer(topic, **where)
        return KafkaConsumer(topic, auto_offset_reset="latest", enable_auto_commit=False, **where)

    def produce(count: int) -> None:
        cluster.call(lambda brokers: brokers.produce_many(topic, ["x"] * count)).result()

    def lag_is(holds: Callable[[int], bool]) -> Callable[[int, str], bool]:
        return lambda status, body: status == 200 and holds(json.loads(body)["lag"])

    workers = Workers(consumer)
    counts = [1]
    until = time.monotonic() + PATIENCE
    try:
        workers.scale(1)
        produce(6)
        with monitor(cluster.bootstrap) as running:
            while running.get(path)[0] != 200:  # nothing is known before something was committed in each partition
                assert time.monotonic() < until, running.get(path)
                workers.work(10)
            produce(900)
            running.wait_for(path, lag_is(lambda lag: lag > 0))
            while counts[-1]:
                assert time.monotonic() < until, (counts, running.get(path))
                status, body = running.get(path)
                if status == 200:  # else a scaler leaves everything as it is
                    counts.append(wanted(json.loads(body)["lag"]))
                workers.scale(counts[-1])
                workers.work(40)
            produce(150)  # and it begins again from nothing
            body = running.wait_for(path, lag_is(lambda lag: lag > 0))
    finally:
        workers.scale(0)
    assert wanted(json.loads(body)["lag"]) == 2
    assert MOST in counts
