"""The page on the command line, and the README: each of their commands ends well on a cluster that has what they name."""

import itertools
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

import kafka_async
from kafka_async import RetryLater
from kafka_async.adapters.cli.commands import app
from kafka_async.sync import KafkaConsumer, ShareConsumer
from kafka_async.testing import Cluster, ThreadedCluster

PACKAGE = Path(kafka_async.__file__).parent
PAGE = (PACKAGE / "adapters" / "cli" / "README.md").read_text()
LINES = [
    line.removeprefix("$ ").removeprefix(".venv/bin/")
    for page in (PAGE, (PACKAGE.parent / "README.md").read_text())
    for line in page.splitlines()
    if re.match(r"(\$ |\.venv/bin/)?kafka-async ", line)
]
ELSEWHERE = ("--install-completion", " -s ", " --values ", " -X security.protocol=", " -F ")
"""What other tests look at: the first would change the shell of whoever runs this, the second asks a schema registry, values here
are no JSON, and nobody logs in to a simulated cluster (``integration/test_cli_passwords.py``).
"""
COMMANDS = [line for line in LINES if not any(word in line for word in ELSEWHERE)]
DONE, LATER, UNFINISHED = 602, 58, 17
"""Of the group on the page: records that it was given, records that came since, and the offset that holds it up."""


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    def write(cluster: Cluster) -> None:
        cluster.topic("orders", 1)
        cluster.topic("orders-dead", 1)
        cluster.produce_many("orders", ["order"] * DONE, partition=0)

    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(write).result()
        yield cluster


@pytest.fixture
def brokers(cluster: ThreadedCluster) -> str:
    """A topic with orders, and a group that one unfinished record holds up."""
    handled = itertools.count(1)
    enough = threading.Event()

    def handle(record: Any) -> None:
        if record.offset == UNFINISHED:
            raise RetryLater(3600)
        if next(handled) == DONE - 1:
            enough.set()

    options: Any = {"bootstrap_servers": cluster.bootstrap, "group_id": "billing", "auto_offset_reset": "earliest"}
    with KafkaConsumer("orders", **options) as consumer, consumer.processing(handle, order="none"):
        assert enough.wait(30)
    cluster.call(lambda brokers: brokers.produce_many("orders", ["order"] * LATER, partition=0)).result()
    return cluster.bootstrap


def ran(command: str, brokers: str) -> str:
    words = [word for word in shlex.split(command, comments=True)[1:] if word not in ("-b", "localhost:9092")]
    where = [] if words[0] == "options" else ["-b", brokers]
    result = CliRunner().invoke(app, [*words, *where])
    assert result.exit_code == (2 if words[0] == "top" else 0), result.output  # as a check it says that the group has stopped
    return result.output


def test_the_pages_have_commands() -> None:
    assert len(COMMANDS) > 8


@pytest.mark.parametrize(
    "command",
    [pytest.param(command, marks=[pytest.mark.slow] if " --for " in command else []) for command in COMMANDS],
    ids=lambda command: command.partition("  ")[0],
)
def test_every_command_of_the_pages_ends_well(command: str, brokers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    if " workers" in command:  # a share group
        with ShareConsumer("orders", bootstrap_servers=brokers, group_id="workers"):
            pass
    assert ran(command, brokers)


def test_a_group_that_does_not_move_is_explained_as_on_the_page(brokers: str) -> None:
    shown = re.search(r"^\$ (kafka-async groups describe billing)\n\.\.\.\n(TOPIC.*\n.*)$", PAGE, re.MULTILINE)
    assert shown is not None
    (head, row) = (line.split() for line in shown[2].splitlines())
    rows = [line.split() for line in ran(shown[1], brokers).splitlines()]

    assert head in rows
    assert row in rows
