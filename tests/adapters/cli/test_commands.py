import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer
from typer.testing import CliRunner, Result

import kafka_async
from kafka_async import TopicPartition
from kafka_async.adapters.cli.commands import app
from kafka_async.adapters.cli.demo import DemoOutcome, MockCluster
from kafka_async.adapters.cli.demonstration import ProgressLine
from kafka_async.adapters.cli.formats import CODES
from kafka_async.testing import Api, Cluster
from kafka_async.testing.threaded import ThreadedCluster

pytestmark = pytest.mark.brokers

TOPIC = "orders"
FIRST = {f"{partition}/{offset}" for partition in range(2) for offset in range(5)}
"""Partition and offset of each record that the fixture has written; a test may have written to partition 3 since."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    """A cluster whose topic has values 0 to 9, in turn in partitions 0 and 1; number 7 is null and number 3 not UTF-8."""

    def write(cluster: Cluster) -> None:
        cluster.topic(TOPIC, 4)
        for number in range(10):
            value = None if number == 7 else b"\xff3" if number == 3 else b"%d" % number
            headers = [("source", b"web")]
            cluster.produce(TOPIC, value=value, key=b"k%d" % number, partition=number % 2, timestamp=1000 + number, headers=headers)

    with ThreadedCluster(Cluster(3)) as cluster:
        cluster.call(write).result()
        yield cluster.bootstrap


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


def test_an_empty_format_writes_nothing_as_in_kcat(brokers: str) -> None:
    result = consume(brokers, "-p", "0", "-f", "")

    assert (result.exit_code, result.stdout_bytes) == (0, b"")


def test_keys_come_before_values_with_a_key_delimiter(brokers: str) -> None:
    assert consume(brokers, "-p", "0", "-K", "%:").stdout.splitlines()[:2] == ["k0%:0", "k2%:2"]


def test_json_is_one_object_per_line(brokers: str) -> None:
    lines = [json.loads(line) for line in consume(brokers, "-J", "-p", "1").stdout.splitlines()]

    assert [line["payload"] for line in lines] == ["1", "\udcff3", "5", None, "9"]
    assert lines[0]["headers"] == ["source", "web"]
    assert lines[0]["tstype"] == "create"


@pytest.mark.parametrize(
    ("offset", "values"),
    [
        ("beginning", "0 2 4 6 8"),
        ("3", "6 8"),
        ("5", ""),
        ("-2", "6 8"),
        ("-100", "0 2 4 6 8"),
        ("end", ""),
        ("s@5000", ""),
    ],
)
def test_reading_begins_where_it_was_asked_to(brokers: str, offset: str, values: str) -> None:
    result = consume(brokers, "-p", "0", "-o", offset)

    assert result.exit_code == 0
    assert result.stdout.split() == values.split()


def test_an_offset_beyond_the_end_is_an_error_that_names_the_end(brokers: str) -> None:
    result = consume(brokers, "-p", "0", "-p", "3", "-o", "6")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "kafka-async: offset 6 is beyond the end: orders [0] ends at 5, orders [3] ends at 0\n"


def test_count_ends_after_that_many_records(brokers: str) -> None:
    assert consume(brokers, "-p", "0", "-c", "3", end=False).stdout.split() == ["0", "2", "4"]


def test_isolation_and_other_options_reach_the_consumer(brokers: str) -> None:
    result = consume(brokers, "--isolation-level", "read_committed", "-X", "background=thread", "-X", "check.crcs=FALSE", "-p", "0")

    assert result.stdout.split() == ["0", "2", "4", "6", "8"]


def test_a_topic_that_does_not_exist_is_one_line_and_exit_code_1(brokers: str) -> None:
    result = run("consume", "nothing-here", "-b", brokers)

    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"kafka-async: .*'nothing-here' does not exist\n", result.stderr)


def test_a_mistyped_topic_gets_the_name_of_one_that_exists(brokers: str) -> None:
    for command in (["consume"], ["topics", "describe"]):
        assert "'order' does not exist; did you mean 'orders'?" in run(*command, "order", "-b", brokers).stderr


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


def test_a_file_shared_with_a_producer_is_read_and_the_log_names_what_was_ignored(unused_tcp_port: int, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers=127.0.0.1:{unused_tcp_port}\nrequest.timeout.ms=500\nacks=all\nlinger.ms=5\n")
    result = run("consume", TOPIC, "-F", str(file), "--debug")

    assert result.exit_code == 1
    assert "INFO" in result.stderr
    assert f"{file}: ignored, because only producers have them: acks, linger.ms" in result.stderr


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
        (["-o", "s@yesterday"], "s@MILLISECONDS or s@DATE"),
        (["-X", "group.id=g"], "group_id: give the group with --group"),
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
        (["-c", "0"], "'--count': expected 1 or more"),
        (["-c", "x"], "'--count': expected a whole number"),
        (["-p", "x"], "-p 'x': expected a partition such as 0, or several as in 0,1"),
        (["-p", "0,-1"], "-p '-1': expected a partition"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what_was_expected(arguments: list[str], complaint: str) -> None:
    result = run("consume", TOPIC, *arguments)

    assert result.exit_code == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("typed", "meant"), [("consum", "consume"), ("topic", "topics"), ("xyz", None)])
def test_a_command_that_is_mistyped_may_have_meant_another(typed: str, meant: str | None) -> None:
    result = run(typed)
    assert result.exit_code == 2
    assert f"No such command '{typed}'." in result.stderr
    assert ("Did you mean" in result.stderr) == (meant is not None)
    assert meant is None or f"Did you mean '{meant}'?" in result.stderr


def test_an_option_that_does_not_say_where_reading_begins_is_told(brokers: str) -> None:
    """``auto.offset.reset=latest`` was taken without a word, and everything was written."""
    command = ("consume", TOPIC, "-b", brokers, "-e", "-X", "auto.offset.reset=latest")
    said = "% auto.offset.reset counts where offsets are gone; reading begins at the beginning, unless -o says otherwise\n"
    assert said in run(*command).stderr
    assert said not in run(*command, "-o", "end").stderr
    assert run(*command, "-q").stderr == ""


def test_partitions_may_be_given_in_one_text(brokers: str) -> None:
    command = ("consume", TOPIC, "-b", brokers, "-e", "-q", "-f", r"%p/%o\n")
    assert sorted(run(*command, "-p", "0,1").stdout) == sorted(run(*command, "-p", "0", "-p", "1", "-p", "0").stdout)


@pytest.mark.parametrize("command", [("consume",), ("share", "consume")], ids=" ".join)
@pytest.mark.parametrize("code", ["%t", "%p", "%o", "%k", "%K", "%s", "%S", "%R", "%T", "%h", "%%", r"\xNN"])
def test_the_codes_of_a_format_are_in_the_help_line_by_line(command: tuple[str, ...], code: str) -> None:
    (line,) = (line.strip() for line in CODES.splitlines() if code in line and "For example" not in line)

    assert line in map(str.strip, run(*command, "--help").stdout.splitlines())


@pytest.mark.parametrize("command", [(), ("topics",), ("groups",), ("offsets",), ("deadletters",), ("share",)], ids=" ".join)
def test_a_list_of_commands_says_in_whole_sentences_what_each_is_for(command: tuple[str, ...]) -> None:
    listed = run(*command, "--help").stdout.partition("Commands:")[2]

    assert listed.strip()
    assert all(line.endswith(".") and not line.endswith("...") for line in listed.split("\n") if line.strip())


@pytest.mark.parametrize("command", [("topics", "list"), ("consume", "t"), ("share", "consume", "t", "-G", "g")], ids=" ".join)
def test_a_store_without_the_extra_that_reads_it_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    """Options are read before there is an event loop, and so before the errors of commands are shown."""
    (tmp_path / "trust.p12").touch()
    store = f"ssl.truststore.type=PKCS12\nssl.truststore.location={tmp_path / 'trust.p12'}\nssl.truststore.password=hunter-2\n"
    (tmp_path / "client.properties").write_text(f"security.protocol=SSL\n{store}")
    without = "import sys; sys.modules['cryptography.hazmat.primitives.serialization.pkcs12'] = None; "
    program = [sys.executable, "-c", without + "from kafka_async.adapters.cli.main import main; main()"]
    words = [*program, *command, "-F", str(tmp_path / "client.properties")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - our own program

    line = "kafka-async: ssl.truststore.location: stores of type PKCS12 need cryptography, which the extra 'pkcs12' brings: "
    assert (done.returncode, done.stderr) == (2, line + "pip install '/path/to/clone[pkcs12]'\n")


def test_a_file_with_options_is_read_and_its_group_is_left_alone(brokers: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={brokers}\ngroup.id=billing\ngroup.instance.id=one\nfetch.max.wait.ms=10\n")

    result = run("consume", TOPIC, "-F", str(file), "-p", "0", "-e", "-q")

    assert (result.stdout.split(), result.stderr) == (["0", "2", "4", "6", "8"], "")
    assert "billing" not in run("groups", "list", "-F", str(file)).stdout


ALL_LEFT = list(range(80, 100))


@pytest.mark.parametrize(
    ("reset", "given", "code", "rest"),
    [
        ("latest", (), 0, ALL_LEFT),
        ("by_duration:PT0S", (), 0, ALL_LEFT),
        ("earliest", (), 0, ALL_LEFT),
        ("none", (), 1, []),
        ("none", ("-X", "auto.offset.reset=earliest"), 0, ALL_LEFT),
        ("earliest", ("-X", "auto.offset.reset=latest"), 0, []),
    ],
)
def test_records_that_are_there_are_read_whatever_a_file_says_unless_it_makes_a_loss_an_error(
    reset: str, given: tuple[str, ...], code: int, rest: list[int], tmp_path: Path
) -> None:
    """The start of the log overtakes the reading: what is left of the log begins there."""
    fetches = 0

    def write(cluster: Cluster) -> None:
        cluster.topic(TOPIC)
        for _ in range(100):
            cluster.produce(TOPIC, value="1")

        def delete_later(_broker: int, _request: object) -> None:
            nonlocal fetches
            fetches += 1
            if fetches == 5:
                cluster.delete_before(TopicPartition(TOPIC, 0), 80)

        cluster.control(Api.FETCH, delete_later, keep=True)

    file = tmp_path / "client.properties"
    file.write_text(f"auto.offset.reset={reset}\nmax.partition.fetch.bytes=1\n")
    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(write).result()
        result = run("consume", TOPIC, "-b", cluster.bootstrap, "-F", str(file), "-e", "-q", "-f", r"%o\n", *given)

    offsets = [int(line) for line in result.stdout.splitlines()]
    before = [offset for offset in offsets if offset < 80]
    assert (result.exit_code, before) == (code, list(range(len(before))))
    assert len(before) < 80
    assert offsets[len(before) :] == rest
    assert bool(result.stderr) is bool(code), result.stderr


# --- topics --------------------------------------------------------------------------------------------------------------------


def test_topics_are_listed_with_their_partitions(brokers: str) -> None:
    table = run("topics", "list", "-b", brokers).stdout
    found = [json.loads(line) for line in run("topics", "list", "-b", brokers, "--json").stdout.splitlines()]

    assert ["orders", "4", "3"] in [line.split() for line in table.splitlines()]
    assert {"topic": "orders", "partitions": 4, "replicas": 3, "internal": False} in found


def test_a_topic_is_described_with_leaders_and_offsets(brokers: str) -> None:
    rows = [json.loads(line) for line in run("topics", "describe", TOPIC, "-b", brokers, "--json").stdout.splitlines()]
    table = run("topics", "describe", TOPIC, "-b", brokers).stdout.splitlines()

    assert [(row["partition"], row["begin"], row["end"]) for row in rows[:3]] == [(0, 0, 5), (1, 0, 5), (2, 0, 0)]
    assert all(row["leader"] in row["replicas"] for row in rows)
    assert table[0].split() == ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "BEGIN", "END"]
    assert table[1].split()[0:2] == ["orders", "0"]
    assert table[1].split()[-2:] == ["0", "5"]


# --- options -------------------------------------------------------------------------------------------------------------------


def test_options_are_listed_and_explained() -> None:
    listed, described = run("options"), run("options", "fetch.max.wait.ms")

    assert (listed.exit_code, described.exit_code) == (0, 0)
    assert "  fetch_max_wait_ms = 500\n" in listed.stdout
    assert described.stdout.startswith("fetch_max_wait_ms: int\n")


def test_an_unknown_option_gets_the_name_of_one_that_exists() -> None:
    result = run("options", "fetch.max.wait")

    assert result.exit_code == 2
    assert "did you mean 'fetch_max_wait_ms'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("-c", "1", "--count", "2"), "-c is given 2 times; it has one value"),
        (("-b", "a:1", "-b", "b:2"), "-b is given 2 times; it has one value"),
        (("-o", "end", "-o", "5"), "'end' and '5': expected one beginning"),
        (("-o", "e@2026-01-31", "-G", "g"), "e@ and --group do not go together"),
    ],
)
def test_an_option_with_one_value_is_given_once(arguments: tuple[str, ...], complaint: str) -> None:
    result = run("consume", TOPIC, *arguments)

    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())


def test_reading_ends_before_the_first_record_of_a_time(brokers: str) -> None:
    result = run("consume", TOPIC, "-b", brokers, "-q", "-o", "e@1970-01-01T00:00:01.006", "-f", "%T ")

    assert result.exit_code == 0
    assert sorted(result.stdout.split()) == ["1000", "1001", "1002", "1003", "1004", "1005"]


def test_reading_may_begin_and_end_at_a_time(brokers: str) -> None:
    result = run("consume", TOPIC, "-b", brokers, "-q", "-o", "s@1002", "-o", "e@1970-01-01T00:00:01.005", "-f", "%T ")

    assert sorted(result.stdout.split()) == ["1002", "1003", "1004"]


# --- demo ----------------------------------------------------------------------------------------------------------------------


def test_the_demo_says_that_everything_arrived() -> None:
    result = run("demo", "--records", "3000", "--rate", "max", "--partitions", "2", "--size", "300")

    assert result.exit_code == 0
    assert "3,000 records live in" in result.stdout
    assert "2 partitions on 3 brokers" in result.stdout
    verdict, hint = result.stdout.splitlines()[-2:]
    assert verdict == "All 3,000 records arrived, none missing, none twice."
    assert "kafka-async top" in hint


def test_the_demo_reads_a_backlog_before_it_goes_live() -> None:
    result = run("demo", "--records", "100", "--backlog", "2000")

    assert result.exit_code == 0
    assert re.search(r"^A backlog of 2,000 records, read in [0-9.]+ s: [0-9,]+ records/s. Now live:$", result.stdout, re.MULTILINE)
    assert result.stdout.splitlines()[-2] == "All 2,100 records arrived, none missing, none twice."


def test_a_backlog_that_the_cluster_would_not_keep_is_refused() -> None:
    result = run("demo", "--backlog", "100", "--size", "900000", "--partitions", "1")

    assert result.exit_code == 2
    assert "--backlog 100: the cluster keeps 4 records of this size in 1 partitions" in result.stderr


def test_a_demo_that_loses_a_record_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose_one(*_: object) -> DemoOutcome:
        return DemoOutcome(produced=9, received=8, missing=1, twice=0, size=800, seconds=1.0, partitions=4, brokers=3, error=None)

    monkeypatch.setattr("kafka_async.adapters.cli.demonstration.demonstrate", lose_one)

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
    progress = ProgressLine(lines.append, lines.append, 1.0)
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


@pytest.mark.parametrize("swallowed", [False, True], ids=["raised", "swallowed"])
@pytest.mark.parametrize(
    "module",
    ["kafka_async.adapters.cli.launch", "kafka_async.adapters.cli.commands", "typer", "kafka_async.config", "kafka_async.wire"],
)
def test_interrupting_an_import_ends_the_program_without_a_traceback(module: str, swallowed: bool) -> None:
    # Python itself swallows an interrupt that comes while the lock of an import is given up.
    code = f"""
import contextlib, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            with contextlib.suppress(KeyboardInterrupt) if {swallowed} else contextlib.nullcontext():
                signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["topics", "list", "-b", "127.0.0.1:1"]
from kafka_async.adapters.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=os.environ)  # noqa: S603  # our own program

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_hardly_anything_is_imported_before_ctrl_c_is_looked_after() -> None:
    """What a console script does before our first line is Python's own (``re`` and ``sys``); what comes from us is little."""
    code = "import re, sys; known = set(sys.modules); import kafka_async.adapters.cli.main; print(*(set(sys.modules) - known))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)  # noqa: S603  # our own program

    ours = {"kafka_async", "kafka_async.lazy", "kafka_async.adapters", "kafka_async.adapters.cli", "kafka_async.adapters.cli.main"}
    python = {"_typing", "typing", "typing.io", "typing.re", "collections.abc", "contextlib", "signal"}
    assert set(done.stdout.split()) <= ours | python


@pytest.mark.parametrize(
    ("absent", "arguments", "extra"),
    [("typer", ["--help"], "cli"), ("rich", ["demo"], "cli")],
)
def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(absent: str, arguments: list[str], extra: str) -> None:
    code = f"import sys; sys.modules[{absent!r}] = None; sys.argv[1:] = {arguments!r}; import kafka_async.__main__"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=os.environ)  # noqa: S603  # our own program

    assert done.returncode == 2
    assert done.stderr == f"kafka-async: needs {absent}, which the extra {extra!r} brings: pip install '/path/to/clone[{extra}]'\n"


def test_the_version_is_shown() -> None:
    result = run("--version")

    assert result.exit_code == 0
    assert result.stdout.startswith(f"kafka-async {kafka_async.__version__} (Python 3.")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["SIGTERM", "Ctrl-C", "SIGHUP"])
def test_a_command_whose_output_nobody_reads_can_be_ended(number: signal.Signals) -> None:
    with MockCluster() as cluster:
        cluster.create(TOPIC)
        cluster.append(TOPIC, 0, [("", b"%d" % value) for value in range(9_000)]).result()
        arguments = command("consume", TOPIC, "-b", cluster.bootstrap, "-q", "-f", "%s " + "x" * 100)
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # noqa: S603  # our own program
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                assert process.stdout.read(1) == b"0"  # the rest is more than a pipe holds
                process.send_signal(number)
                assert process.wait(20) == 128 + number
                assert process.stderr.read() == b""
            finally:
                process.kill()


def sh(line: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of shell, in which ``kafka-async`` is our own program."""
    text = line.replace("kafka-async", f"'{sys.executable}' -m kafka_async")
    return subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, timeout=100, env=os.environ | environment)  # noqa: S603  # our own program


@pytest.mark.parametrize("arguments", ["--help", "--version", "topics list -b {brokers}", "consume orders -b {brokers} -e"])
def test_a_closed_standard_output_is_one_line(brokers: str, arguments: str) -> None:
    done = sh(f"kafka-async {arguments.format(brokers=brokers)} >&-")

    assert (done.returncode, done.stderr) == (1, "kafka-async: standard output is closed\n")


def test_a_closed_standard_error_costs_only_the_messages(brokers: str) -> None:
    done = sh(f"kafka-async consume orders -b {brokers} -p 0 -e 2>&-")

    assert (done.returncode, done.stdout.split()) == (0, ["0", "2", "4", "6", "8"])


def test_a_warning_is_one_line_that_names_no_code(brokers: str) -> None:
    done = sh(f"kafka-async topics describe orders -b {brokers} -X sasl.plain.password=secret --json")

    assert (done.returncode, done.stdout.count("\n")) == (0, 4)
    assert done.stderr == "kafka-async: no effect with security_protocol='PLAINTEXT': sasl_plain_password\n"


@pytest.mark.parametrize("group", [[], ["-G", "unread"]], ids=["alone", "group"])
def test_messages_that_nobody_reads_cost_no_records(brokers: str, group: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        line = command("consume", TOPIC, "-b", brokers, "-e", "-f", r"%p/%o\n", *group)
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=writing, text=True, timeout=100)  # noqa: S603  # our own program
    finally:
        os.close(writing)

    assert done.returncode == 0
    assert set(done.stdout.split()) >= FIRST


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a file on a disk without space")
def test_messages_to_a_full_disk_cost_no_records(brokers: str) -> None:
    done = sh(f"kafka-async consume orders -b {brokers} -e -f '%p/%o\\n' 2>/dev/full")

    assert done.returncode == 0
    assert set(done.stdout.split()) >= FIRST


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a file on a disk without space")
@pytest.mark.parametrize(
    "arguments", ["--help", "--version", "options", "topics list -b {brokers}", "consume orders -b {brokers} -q -e"]
)
def test_a_full_disk_is_one_line(brokers: str, arguments: str) -> None:
    done = sh(f"kafka-async {arguments.format(brokers=brokers)} >/dev/full")

    assert (done.returncode, done.stderr) == (1, "kafka-async: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}])
def test_a_foreign_name_is_shown_whatever_the_locale(locale: dict[str, str]) -> None:
    options: dict[str, Any] = {"test.mock.num.brokers": 1, "log_level": 3}
    mock = Producer(options)  # librdkafka's cluster has any name; Kafka, and so the simulated one, only ASCII
    mock.list_topics("orders", timeout=10)
    mock.list_topics("größe", timeout=10)
    (address,) = (f"{broker.host}:{broker.port}" for broker in mock.list_topics(timeout=10).brokers.values())
    table = sh(f"kafka-async topics list -b {address}", **locale)
    lines = sh(f"kafka-async topics list -b {address} --json", **locale)

    assert (table.returncode, table.stderr) == (0, "")
    assert [line.split()[0] for line in table.stdout.splitlines()[1:]] in (["größe", "orders"], [r"gr\xf6\xdfe", "orders"])
    assert [json.loads(line)["topic"] for line in lines.stdout.splitlines()] == ["größe", "orders"]


def test_a_foreign_name_is_understood_in_a_locale_without_its_letters(brokers: str, tmp_path: Path) -> None:
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    (tmp_path / "größe.properties").write_text("client.id=größe\n")
    config = f"-F '{tmp_path}/größe.properties' -X client.rack=@'{tmp_path}/größe.properties'"

    member = sh(f"kafka-async consume orders -b {brokers} -q -c 1 -f '%t' -G größe {config}", **locale)
    table = sh(f"kafka-async offsets show größe -b {brokers}", **locale)
    line = sh(f"kafka-async groups list -b {brokers} --json", **locale)
    mistyped = sh(f"kafka-async offsets show grösse -b {brokers}", **locale)

    assert (member.returncode, member.stderr) == (table.returncode, table.stderr) == (0, "")
    assert "größe" in [json.loads(each)["group"] for each in line.stdout.splitlines()]
    assert mistyped.stderr == "kafka-async: group 'gr\\xf6sse' does not exist; did you mean 'gr\\xf6\\xdfe'?\n"


def test_an_argument_that_is_no_text_is_an_error_that_does_not_show_it() -> None:
    done = sh("kafka-async consume orders -b localhost -X sasl.plain.password=$(printf 'secret\\377')")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kafka-async: argument 6 is not text in ")
    assert "secret" not in done.stderr


def test_an_interrupt_while_modules_are_imported_shows_no_traceback() -> None:
    code = """
import importlib.abc, sys
class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "kafka_async.adapters.cli.commands":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
import kafka_async.__main__
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)  # noqa: S603  # our own program

    assert (done.returncode, done.stderr) == (130, "")


def test_python_m_runs_the_command_line() -> None:
    done = subprocess.run(command("--help"), capture_output=True, text=True, timeout=100)  # noqa: S603  # our own program

    assert done.returncode == 0
    assert "consume" in done.stdout
    assert "demo" in done.stdout
