"""The command line as a program beside a real broker: its output, its signals, its secrets, whatever the terminal is."""

import json
import signal
import subprocess
import sys

import pytest

pytest.importorskip("typer")

import kafka_async
from tests.brokers import KafkaCluster

from .cli import QUICK, kafka
from .tools import PATIENCE, new_topic, topic_name

pytestmark = pytest.mark.brokers

HOSTILE = "red\x1b[31m c1\x9b31m bidi\u202e line\u2028 del\x7f"


def test_the_version_names_python_and_the_decoder_without_a_broker() -> None:
    assert kafka("--version").stdout.startswith(f"kafka-async {kafka_async.__version__} (Python 3.")


def test_topics_come_with_their_partitions_and_a_mistyped_one_raises(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 3)

    listed = kafka("topics", "list", "-b", kafka44.bootstrap_servers, "--json").stdout.splitlines()
    mistyped = kafka("consume", f"{topic}s", "-b", kafka44.bootstrap_servers, *QUICK, "-e")

    assert {"topic": topic, "partitions": 3, "replicas": 1, "internal": False} in [json.loads(line) for line in listed]
    assert mistyped.returncode == 1
    assert f"did you mean {topic!r}" in mistyped.stderr


def test_json_of_hostile_records_has_nothing_that_a_terminal_obeys(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 1, values=lambda _: HOSTILE.encode(), keys=lambda _: HOSTILE.encode(), headers=[("h", HOSTILE.encode())])

    done = kafka("consume", topic, "-b", kafka44.bootstrap_servers, *QUICK, "-q", "-e", "-J")

    assert done.returncode == 0, done.stderr
    assert all(character.isprintable() for character in done.stdout.removesuffix("\n"))
    assert json.loads(done.stdout)["payload"] == HOSTILE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["SIGTERM", "Ctrl-C", "SIGHUP"])
def test_a_member_whose_output_nobody_reads_can_be_ended(kafka44: KafkaCluster, number: signal.Signals) -> None:
    """It commits nothing that was not written, and ends."""
    topic = new_topic(kafka44)
    kafka44.produce(topic, 3000, 100)  # more than a pipe holds
    group = topic_name()
    command = ["-m", "kafka_async", "consume", topic, "-b", kafka44.bootstrap_servers, "-G", group, *QUICK, "-q"]
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # noqa: S603  # ours
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(1) == b"0"
            process.send_signal(number)
            assert process.wait(PATIENCE) == 128 + number
            assert process.stderr.read() == b""
        finally:
            process.kill()
    assert kafka44.committed(group).get((topic, 0), 0) < 3000


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_foreign_text_is_shown_whatever_the_locale(kafka44: KafkaCluster, locale: dict[str, str]) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 1, values=lambda _: "größe".encode(), headers=[("größe", b"1")])

    done = kafka("consume", topic, "-b", kafka44.bootstrap_servers, *QUICK, "-q", "-e", "-J", **locale)

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["payload"] == "größe"


@pytest.mark.parametrize("arguments", [("topics", "list"), ("groups", "list")])
def test_a_closed_standard_output_is_one_line(kafka44: KafkaCluster, arguments: tuple[str, ...]) -> None:
    line = " ".join([f"'{sys.executable}' -m kafka_async", *arguments, "-b", kafka44.bootstrap_servers, ">&-"])

    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603  # ours

    assert (done.returncode, done.stderr) == (1, "kafka-async: standard output is closed\n")
