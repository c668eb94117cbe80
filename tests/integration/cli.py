"""The command line in this process and in others, as tests of it on real brokers run it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.testing import CliRunner, Result

from kafka_async.adapters.cli.commands import app
from tests.brokers import KafkaCluster

from .tools import PATIENCE, new_topic

QUICK = ("-X", "fetch.max.wait.ms=100", "-X", "request.timeout.ms=10000")


def run(cluster: KafkaCluster, *arguments: str) -> Result:
    return invoke(*arguments, "-b", cluster.bootstrap_servers, *QUICK)


def invoke(*arguments: str) -> Result:
    """Run the command line in this process. Raises what it would show as a traceback."""
    result = CliRunner().invoke(app, [*arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def consume(cluster: KafkaCluster, topic: str, group: str, *arguments: str) -> Result:
    return run(cluster, "consume", topic, "--group", group, "-f", r"%p/%o\n", *arguments)


@contextmanager
def member(cluster: KafkaCluster, topic: str, group: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a member in a process of its own, from the moment at which it has read one record."""
    command = ["-m", "kafka_async", "consume", topic, "-b", cluster.bootstrap_servers, "-G", group, "-f", r"%p/%o\n"]
    with subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, *command, *QUICK, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


def filled(cluster: KafkaCluster, count: int = 20, partitions: int = 2) -> str:
    """Make a topic whose record ``n`` has the timestamp ``1_000_000 + n`` (ms), which any retention would be too short for."""
    topic = new_topic(cluster, partitions, retention_ms="-1")
    cluster.produce(topic, count, partitions=partitions, timestamps=lambda index: 1_000_000 + index)
    return topic


def kafka(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the program to its end. Its output is read as UTF-8."""
    command = [sys.executable, "-m", "kafka_async", *arguments]
    settings = os.environ | {"PYTHONIOENCODING": "utf-8"} | environment
    return subprocess.run(  # noqa: S603  # our own program
        command, capture_output=True, encoding="utf-8", timeout=PATIENCE, env=settings, check=False
    )


def is_unknown(cluster: KafkaCluster, command: tuple[str, str], group: str) -> None:
    """Check that a command about a group that does not exist says so in one line."""
    result = run(cluster, *command, group)

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"group {group!r} does not exist" in result.stderr
    assert result.stderr.count("\n") == 1


def is_not_made_if_mistyped(cluster: KafkaCluster, group: str) -> None:
    """Check that moving a group with a mistyped name names the right one, and makes none."""
    topic = filled(cluster)
    consume(cluster, topic, group, "-e")

    result = run(cluster, "offsets", "reset", f"{group}x", "-t", topic, "--to-earliest", "--execute")

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"group '{group}x' does not exist; did you mean '{group}'? --create creates it" in result.stderr
    assert f"{group}x" not in {line["group"] for line in lines(run(cluster, "groups", "list", "--json"))}
