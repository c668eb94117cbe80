import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("confluent_kafka")

from typer.testing import CliRunner, Result

from kafka_async.adapters.commands import Progress, app
from kafka_async.adapters.demo import MockCluster, Outcome

TOPIC = "orders"


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    """A mock cluster whose topic has values 0 to 9, in turn in partitions 0 and 1; number 7 is null and number 3 not UTF-8."""
    with MockCluster() as cluster:
        cluster.create(TOPIC)
        for number in range(10):
            value = None if number == 7 else b"\xff3" if number == 3 else b"%d" % number
            headers: list[tuple[str, str | bytes | None]] = [("source", b"web")]
            cluster.producer.produce(
                TOPIC, value=value, key=b"k%d" % number, partition=number % 2, timestamp=1000 + number, headers=headers
            )
        assert cluster.producer.flush(10) == 0
        yield cluster.bootstrap


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    logger = logging.getLogger("kafka_async")
    before = (logger.propagate, logger.level, list(logger.handlers))
    yield
    logger.propagate, logger.level, logger.handlers = before[0], before[1], before[2]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def consume(brokers: str, *arguments: str, end: bool = True) -> Result:
    return run("consume", TOPIC, "-b", brokers, "-X", "fetch.max.wait.ms=10", *(["-e"] if end else []), *arguments)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kafka_async", *arguments]


# --- consume -------------------------------------------------------------------------------------------------------------------


def test_a_topic_is_written_value_by_value_up_to_its_end(brokers: str) -> None:
    result = consume(brokers)

    assert result.exit_code == 0
    assert sorted(result.stdout_bytes.split(b"\n")) == sorted([b"", b"0", b"1", b"2", b"\xff3", b"4", b"5", b"6", b"", b"8", b"9"])
    assert f"% Reached end of topic {TOPIC} [1] at offset 5" in result.stderr


def test_quiet_writes_only_records(brokers: str) -> None:
    assert consume(brokers, "-q").stderr == ""


def test_one_partition_comes_in_order(brokers: str) -> None:
    assert consume(brokers, "-p", "1", "-Z", "-D", "|").stdout_bytes == b"1|\xff3|5|NULL|9|"


def test_a_format_replaces_value_and_delimiter(brokers: str) -> None:
    result = consume(brokers, "-p", "0", "-f", r"%t/%p/%o %k=%s %T %h;")

    assert result.stdout.startswith("orders/0/0 k0=0 1000 source=web;orders/0/1 k2=2 1002 source=web;")


def test_keys_come_before_values_with_a_key_delimiter(brokers: str) -> None:
    assert consume(brokers, "-p", "0", "-K", "%:").stdout.splitlines()[:2] == ["k0%:0", "k2%:2"]


def test_json_is_one_object_per_line(brokers: str) -> None:
    lines = [json.loads(line) for line in consume(brokers, "-J", "-p", "1").stdout.splitlines()]

    assert [line["payload"] for line in lines] == ["1", "\udcff3", "5", None, "9"]
    assert lines[0]["headers"] == ["source", "web"]
    assert lines[0]["tstype"] == "create"


@pytest.mark.parametrize(
    ("offset", "values"),
    [("beginning", "0 2 4 6 8"), ("3", "6 8"), ("-2", "6 8"), ("-100", "0 2 4 6 8"), ("end", ""), ("s@5000", "")],
)
def test_reading_begins_where_it_was_asked_to(brokers: str, offset: str, values: str) -> None:
    result = consume(brokers, "-p", "0", "-o", offset)

    assert result.exit_code == 0
    assert result.stdout.split() == values.split()


def test_count_ends_after_that_many_records(brokers: str) -> None:
    assert consume(brokers, "-p", "0", "-c", "3", end=False).stdout.split() == ["0", "2", "4"]


def test_isolation_and_other_options_reach_the_consumer(brokers: str) -> None:
    result = consume(brokers, "--isolation-level", "read_committed", "-X", "background=thread", "-X", "check.crcs=FALSE", "-p", "0")

    assert result.stdout.split() == ["0", "2", "4", "6", "8"]


def test_a_topic_that_does_not_exist_is_one_line_and_exit_code_1(brokers: str) -> None:
    result = run("consume", "nothing-here", "-b", brokers)

    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"kafka-async: .*'nothing-here' does not exist\n", result.stderr)


def test_a_partition_that_does_not_exist_is_named(brokers: str) -> None:
    result = consume(brokers, "-p", "9")

    assert result.exit_code == 1
    assert "topic 'orders' has no partition 9; it has 4, from 0 on" in result.stderr


def test_brokers_that_do_not_answer_are_one_line_and_exit_code_1(unused_tcp_port: int) -> None:
    result = run("consume", TOPIC, "-b", f"127.0.0.1:{unused_tcp_port}", "-X", "request.timeout.ms=500")

    assert result.exit_code == 1
    assert result.stderr.startswith("kafka-async: ")
    assert str(unused_tcp_port) in result.stderr
    assert result.stderr.count("\n") == 1


def test_debug_shows_the_traceback(unused_tcp_port: int) -> None:
    result = run("consume", TOPIC, "-b", f"127.0.0.1:{unused_tcp_port}", "-X", "request.timeout.ms=500", "--debug")

    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-o", "soon"], "expected 'beginning', 'end'"),
        (["-o", "stored"], "'stored' needs --group"),
        (["--group-protocol", "classic"], "--group-protocol needs --group"),
        (["-G", "g", "-o", "5"], "'offsets reset' moves a group"),
        (["-G", "g", "-p", "0"], "the group assigns partitions"),
        (["-G", "g", "--group-protocol", "modern"], "expected one of 'auto', 'classic', 'consumer'"),
        (["-G", " "], "group_id"),
        (["-o", "s@yesterday"], "s@MILLISECONDS"),
        (["-f", "%x"], "unknown token '%x'"),
        (["-D", r"\q"], "unknown escape"),
        (["-f", "%s", "-J"], "-f and -J do not go together"),
        (["-X", "fetch.max.wait=5"], "did you mean 'fetch_max_wait_ms'"),
        (["-X", "fetch.max.wait.ms=soon"], "expected an integer"),
        (["-X", "fetch.max.wait.ms=-5"], "expected an integer from 0"),
        (["-X", "check.crcs=perhaps"], "expected true or false"),
        (["-X", "trace=print"], "takes a Python object"),
        (["-X", "check.crcs"], "expected option=value"),
        (["--isolation-level", "total"], "read_committed"),
        (["-b", "nowhere:port"], "is not an address"),
        (["-c", "0"], "--count"),
        (["-p", "x"], "--partition"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what_was_expected(arguments: list[str], complaint: str) -> None:
    result = run("consume", TOPIC, *arguments)

    assert result.exit_code == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


# --- demo ----------------------------------------------------------------------------------------------------------------------


def test_the_demo_says_that_everything_arrived() -> None:
    result = run("demo", "--records", "3000", "--rate", "max", "--partitions", "2", "--size", "300")

    assert result.exit_code == 0
    assert "3,000 records in" in result.stdout
    assert "2 partitions on 3 brokers" in result.stdout
    assert result.stdout.endswith("All 3,000 records arrived, none missing, none twice.\n")


def test_a_demo_that_loses_a_record_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose_one(*_: object) -> Outcome:
        return Outcome(produced=9, received=8, missing=1, twice=0, size=800, seconds=1.0, partitions=4, brokers=3, error=None)

    monkeypatch.setattr("kafka_async.adapters.demo.demonstrate", lose_one)

    result = run("demo", "--records", "9")

    assert result.exit_code == 1
    assert result.stdout.endswith("8 of 9 records arrived, 1 missing, 0 twice.\n")


@pytest.mark.parametrize("rate", ["0", "-5", "fast", "nan", "inf"])
def test_a_rate_that_cannot_be_is_refused(rate: str) -> None:
    result = run("demo", "--rate", rate)

    assert result.exit_code == 2
    assert "expected records per second" in result.stderr


def test_a_rate_may_be_written_for_people() -> None:
    assert run("demo", "--records", "100", "--rate", "20,000/s").exit_code == 0


def test_progress_is_shown_no_more_often_than_asked() -> None:
    lines: list[str] = []
    progress = Progress(lines.append, 1.0)
    for tenth in range(35):
        progress.update(produced=9000, received=tenth * 100, seconds=tenth / 10, lag=5)

    assert [line.split()[0] for line in lines] == ["1,000", "2,000", "3,000"]
    assert "1,000 records/s   lag 5   produced 9,000" in lines[0]


# --- the process ---------------------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_ends_the_command_quietly(brokers: str) -> None:
    with subprocess.Popen(  # noqa: S603  # our own program
        command("consume", TOPIC, "-b", brokers, "-q", "-X", "fetch.max.wait.ms=10"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        with MockClusterWriter(brokers) as write:
            while process.poll() is None:
                write(b"more")
        assert (process.returncode, process.stderr.read()) == (0, b"")


class MockClusterWriter:
    """Writes into the cluster of the fixture from a producer of its own."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        options: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 3}
        self._producer = Producer(options)

    def __enter__(self) -> "MockClusterWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(5)

    def __call__(self, value: bytes) -> None:
        self._producer.produce(TOPIC, value=value, partition=3)
        self._producer.flush(1)


def test_interrupting_stops_cleanly_with_exit_code_130(brokers: str) -> None:
    with subprocess.Popen(  # noqa: S603  # our own program
        command("consume", TOPIC, "-b", brokers, "-q", "-p", "0", "-X", "fetch.max.wait.ms=10"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("absent", "arguments", "extra"),
    [("typer", ["--help"], "cli"), ("rich", ["demo"], "cli"), ("confluent_kafka", ["demo"], "demo")],
)
def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(absent: str, arguments: list[str], extra: str) -> None:
    code = f"import sys; sys.modules[{absent!r}] = None; sys.argv[1:] = {arguments!r}; import kafka_async.__main__"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=os.environ)  # noqa: S603  # our own program

    assert done.returncode == 2
    assert done.stderr == f"kafka-async: needs {absent}: pip install 'kafka-async[{extra}]'\n"


def test_python_m_runs_the_command_line() -> None:
    done = subprocess.run(command("--help"), capture_output=True, text=True, timeout=60)  # noqa: S603  # our own program

    assert done.returncode == 0
    assert "consume" in done.stdout
    assert "demo" in done.stdout
