"""``kafka-async top`` as a program: as a check, in a pipe, on a terminal that it leaves as it was."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest

pytest.importorskip("typer")

from attrs import define, field
from typer.testing import CliRunner, Result

from kafka_async import TopicPartition
from kafka_async.adapters.cli.commands import app
from kafka_async.errors import RebootstrapRequiredError
from kafka_async.sync import KafkaConsumer
from kafka_async.testing import HANG, Cluster, ThreadedCluster
from kafka_async.wire import Api
from kafka_async.wire.messages.admin import ListedGroup, ListGroupsResponse
from tests.adapters.cli.support import unread

pytestmark = pytest.mark.brokers

PATIENCE: Final = 30.0
"""Seconds until a test gives up."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    """Three groups: one that has stopped, one that is done, one of another topic."""

    def write(cluster: Cluster) -> None:
        cluster.topic("orders", 3)
        cluster.topic("log", 1)
        cluster.produce_many("orders", ["x"] * 300)
        cluster.produce_many("log", ["x"] * 10)

    with ThreadedCluster(Cluster(3)) as cluster:
        cluster.call(write).result()
        for group, topic, count in (("billing", "orders", 30), ("done", "orders", 300), ("audit", "log", 10)):
            options: Any = {"bootstrap_servers": cluster.bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
            with KafkaConsumer(topic, **options) as consumer:
                read = 0
                while read < count:
                    read += sum(map(len, consumer.getmany(timeout_ms=5000, max_records=count - read).values()))
                consumer.commit()
        yield cluster


def run(cluster: ThreadedCluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["top", "-b", cluster.bootstrap, *arguments])


# --- a check -------------------------------------------------------------------------------------------------------------------


def test_once_writes_a_table_and_ends_with_the_code_of_the_worst_group(cluster: ThreadedCluster) -> None:
    result = run(cluster, "--once")
    lines = result.stdout.splitlines()

    assert result.exit_code == 2
    assert lines[0] == "kafka-async top   fake-cluster, 3 brokers   3 groups: 1 STOP"
    assert lines[2].split()[:4] == ["STATUS", "GROUP", "MEMBERS", "LAG"]
    assert lines[3].split()[:5] == ["x", "STOP", "billing", "0", "270"]
    assert {line.split()[2] for line in lines[4:]} == {"done", "audit"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--group", "done"], 0),
        (["--topic", "log"], 0),
        (["-g", "done", "-g", "billing"], 2),
        (["-g", "typo"], 3),
        (["-g", "audit", "-t", "orders"], 3),
    ],
)
def test_the_exit_code_is_that_of_the_groups_that_were_asked_for(cluster: ThreadedCluster, arguments: list[str], code: int) -> None:
    result = run(cluster, "--once", *arguments)
    assert result.exit_code == code, result.output
    assert ("group 'typo' does not exist" in result.stderr) == ("typo" in arguments)
    assert ("nothing is known of group 'audit' in topic 'orders'" in result.stderr) == ("audit" in arguments)


def test_a_broker_that_does_not_tell_where_logs_end_is_unknown_and_not_well(cluster: ThreadedCluster) -> None:
    end = cluster.call(lambda brokers: brokers.control(Api.LIST_OFFSETS, lambda *_: HANG, keep=True)).result()
    try:
        result = run(cluster, "--once", "-g", "done", "-i", "1")
    finally:
        cluster.call(lambda _: end()).result()
    assert result.exit_code == 3
    assert "Group done: UNKNOWN, not told yet" in result.stdout
    assert len(re.findall(r"UNKNOWN +orders-[012]", result.stdout)) == 3


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_a_group_of_which_nothing_is_known_is_not_well(cluster: ThreadedCluster, kind: str) -> None:
    protocol = "consumer" if kind == "classic" else kind
    listed = ListedGroup(group_id="idle", protocol_type=protocol, group_state="Empty", group_type="classic")

    def arrange(brokers: Cluster) -> Callable[[], object]:
        brokers.simulated.groups.moved["idle"] = 0
        return brokers.control(Api.LIST_GROUPS, lambda broker, _: ListGroupsResponse(groups=() if broker else (listed,)), keep=True)

    end = cluster.call(arrange).result()
    try:
        named, all_of_them = run(cluster, "--once", "-g", "idle"), run(cluster, "--once")
    finally:
        cluster.call(lambda _: end()).result()
    assert (named.exit_code, all_of_them.exit_code) == (3, 3 if kind == "classic" else 0), all_of_them.output
    assert ("nothing is known of group 'idle'" in named.stderr) == (kind == "connect")
    assert named.stdout.endswith("nothing committed\n") == (kind == "classic")


def test_json_has_no_number_that_is_older_than_three_polls() -> None:
    """People see it beside the status; a program would take it for one of now."""
    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(lambda brokers: brokers.topic("orders", 1)).result()
        options: Any = {"bootstrap_servers": cluster.bootstrap, "group_id": "g", "auto_offset_reset": "earliest"}
        with KafkaConsumer(**options) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            consumer.commit({TopicPartition("orders", 0): 0})
        command = [sys.executable, "-m", "kafka_async", "top", "-b", cluster.bootstrap, "-J", "-i", "0.5"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own program
            try:
                assert process.stdout is not None
                first = json.loads(process.stdout.readline())
                cluster.call(lambda brokers: brokers.control(Api.OFFSET_FETCH, lambda *_: HANG, keep=True)).result()
                rows = map(json.loads, process.stdout)
                late = next(row for row in rows if row["status"] == "UNKNOWN")
            finally:
                process.kill()
    assert (first["lag"], first["lag_complete"]) == (0, True)
    assert (late["lag"], late["lag_complete"]) == (None, False)


def test_a_cluster_that_cannot_be_reached_is_unknown_and_no_warning(unused_tcp_port: int) -> None:
    result = CliRunner().invoke(app, ["top", "--once", "-b", f"localhost:{unused_tcp_port}"])
    assert result.exit_code == 3
    assert result.stderr.startswith("kafka-async: Unable to bootstrap")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, a file on a disk without space")
def test_a_check_that_cannot_say_what_it_found_is_unknown_and_no_warning(cluster: ThreadedCluster) -> None:
    command = [sys.executable, "-m", "kafka_async", "top", "--once", "-b", cluster.bootstrap]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own program
    assert (done.returncode, done.stderr) == (3, "kafka-async: [Errno 28] No space left on device\n")


def test_json_is_a_group_a_line(cluster: ThreadedCluster) -> None:
    result = run(cluster, "--once", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]

    assert result.exit_code == 2
    assert (rows[0]["group"], rows[0]["status"], rows[0]["lag"]) == ("billing", "STOP", 270)
    assert rows[0]["in_rate"] is None
    assert sum(part["lag"] for part in rows[0]["partitions"]) == 270


def test_a_group_that_is_named_is_shown_with_its_partitions(cluster: ThreadedCluster) -> None:
    text = run(cluster, "--once", "-g", "billing").stdout
    assert "Group billing: STOP, no members" in text
    assert len(re.findall(r"orders-[012]\b", text)) >= 3


def test_for_some_time_it_counts_rates(cluster: ThreadedCluster) -> None:
    result = run(cluster, "--for", "2", "--interval", "0.5", "--json", "-g", "billing")
    (row,) = map(json.loads, result.stdout.splitlines())
    assert (row["in_rate"], row["out_rate"], row["clears"]) == (0.0, 0.0, False)


def test_looking_no_longer_than_the_usual_interval_is_still_two_polls(cluster: ThreadedCluster) -> None:
    began = time.monotonic()
    result = run(cluster, "--for", "1", "--json", "-g", "billing")
    (row,) = map(json.loads, result.stdout.splitlines())
    assert (row["in_rate"], row["out_rate"]) == (0.0, 0.0)
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-g", "bilings"], "group 'bilings' does not exist; did you mean 'billing'?"),
        (["-t", "order"], "topic 'order' does not exist, or may not be described; did you mean 'orders'?"),
    ],
)
def test_a_name_that_is_mistyped_is_told(cluster: ThreadedCluster, arguments: list[str], said: str) -> None:
    result = run(cluster, "--once", *arguments)
    assert (result.stderr, result.stdout) == (f"kafka-async: {said}\n", ""), "no table of nothing that begins with OK"
    assert result.exit_code == 3


def test_a_topic_that_no_group_reads_is_not_well(cluster: ThreadedCluster) -> None:
    cluster.call(lambda brokers: brokers.topic("unread", 1)).result()
    result = run(cluster, "--once", "-t", "unread")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "", "kafka-async: no group reads topic 'unread'\n")


@pytest.mark.parametrize("arguments", [["-t", "orders"], ["-g", "billing"], []], ids=" ".join)
@pytest.mark.parametrize("as_json", [[], ["-J"]], ids=["table", "JSON"])
def test_brokers_that_do_not_answer_are_told_and_nothing_is_said_of_what_only_they_know(
    cluster: ThreadedCluster, arguments: list[str], as_json: list[str]
) -> None:
    end = cluster.call(lambda brokers: brokers.control(Api.LIST_GROUPS, lambda *_: HANG, keep=True)).result()
    try:
        result = run(cluster, "--once", "-i", "1", *as_json, *arguments)
    finally:
        cluster.call(lambda _: end()).result()
    assert result.exit_code == 3
    assert re.match(r"kafka-async: (brokers 0, 1, 2 do|broker \d does) not tell of groups: .* not answered", result.stderr), (
        result.stderr
    )
    assert "no group reads" not in result.stderr
    assert ("nothing is known of group 'billing'" in result.stderr) == ("-g" in arguments)
    lines = result.stdout.splitlines()
    assert "0 groups: UNKNOWN" in lines[0] if lines else as_json or arguments
    assert "OK" not in result.stdout


def test_a_check_that_nobody_reads_keeps_its_code_and_its_errors(cluster: ThreadedCluster) -> None:
    result = unread(["top", "--once", "-b", cluster.bootstrap, "-g", "done", "-g", "typo"])
    assert (result.returncode, result.stderr) == (3, "kafka-async: group 'typo' does not exist\n")


def test_one_look_has_no_time_in_which_rates_are_counted(cluster: ThreadedCluster) -> None:
    result = run(cluster, "--once", "--for", "3")
    assert result.exit_code == 2
    assert "--once and --for do not go together" in result.stderr


def test_a_topic_that_does_not_exist_is_unknown_and_not_well(cluster: ThreadedCluster) -> None:
    result = run(cluster, "--once", "--topic", "typo")
    assert result.exit_code == 3
    assert result.stderr == "kafka-async: topic 'typo' does not exist, or may not be described\n"


def test_in_a_pipe_it_looks_once(cluster: ThreadedCluster) -> None:
    done = subprocess.run(command(cluster), capture_output=True, text=True, timeout=PATIENCE)  # noqa: S603  # ours
    assert done.returncode == 2
    assert "billing" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_demo_can_be_watched() -> None:
    demo = [sys.executable, "-m", "kafka_async", "demo", "--seconds", "60"]
    with subprocess.Popen(demo, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:  # noqa: S603  # ours
        try:
            assert process.stdout is not None
            brokers = process.stdout.readline().split()[-1]
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:  # until it has committed something
                rows = CliRunner().invoke(app, ["top", "--once", "-J", "-b", brokers]).stdout.splitlines()
                groups = {row["group"]: row["members"] for row in map(json.loads, rows) if row["lag"] is not None}
                if groups:
                    break
            assert groups == {"demo": 1}
        finally:
            process.terminate()


# --- a terminal ----------------------------------------------------------------------------------------------------------------


def command(cluster: ThreadedCluster, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "kafka_async", "top", "-b", cluster.bootstrap, "-i", "0.5", *arguments]


@define(eq=False)
class Screen:
    """A program on a terminal of our own."""

    process: "subprocess.Popen[bytes]"
    master: int
    slave: int
    seen: bytes = field(default=b"", init=False)

    def read(self, seconds: float = 0.2) -> None:
        while select.select([self.master], [], [], seconds)[0]:
            self.seen += os.read(self.master, 65536)

    def page(self) -> str:
        """Return the page that was drawn last, without colours."""
        last = self.seen.rpartition(b"\x1b[H")[2].decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last)

    def wait_for(self, *words: str) -> str:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.read()
            if all(word in self.page() for word in words):
                return self.page()
        raise AssertionError(f"{words} not in {self.page()!r}")

    def wait_for_bytes(self, data: bytes) -> None:
        until = time.monotonic() + PATIENCE
        while data not in self.seen and time.monotonic() < until:
            self.read()
        assert data in self.seen

    def press(self, keys: str) -> None:
        self.seen = b""
        os.write(self.master, keys.encode())

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.slave)


@contextmanager
def on_terminal(
    arguments: Sequence[str], width: int = 80, height: int = 24, *, controls: bool = True, **environment: str
) -> Iterator[Screen]:
    """Run a program on a terminal. ``controls``: it is the one that controls the program's session."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (height, width))
    env = {**os.environ, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment}

    def own_terminal() -> None:
        os.setsid()
        if controls:
            os.close(os.open(os.ttyname(0), os.O_RDWR))  # which makes it the terminal that controls the session

    with subprocess.Popen(  # noqa: S603  # ours
        arguments,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=env,
        preexec_fn=own_terminal,  # no threads yet
    ) as process:
        try:
            yield Screen(process, master, slave)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE)
            os.close(master)
            os.close(slave)


ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"


def test_pages_keys_and_an_end_that_leaves_the_terminal_as_it_was(cluster: ThreadedCluster) -> None:
    with on_terminal(command(cluster)) as screen:
        before = screen.modes()
        screen.wait_for("billing", "STOP", "done")
        assert screen.modes() != before
        screen.press("\r")
        screen.wait_for("billing: STOP", "no members", "orders-0")
        screen.press("\x1b")
        screen.wait_for("GROUP", "audit")
        screen.press("/aud\r")
        assert "billing" not in screen.wait_for("audit", "/aud")
        screen.press("c")
        screen.wait_for("BROKER", "LEADS")
        screen.press("q")
        assert screen.process.wait(PATIENCE) == 0
        screen.read()
        assert screen.seen.endswith(LEFT)
        assert screen.modes() == before


def test_a_terminal_that_does_not_control_the_session_shows_pages_too(cluster: ThreadedCluster) -> None:
    """As ``su -c`` and ``setsid`` start programs."""
    with on_terminal(command(cluster), controls=False) as screen:
        before = screen.modes()
        screen.wait_for("billing")
        screen.press("q")
        assert screen.process.wait(PATIENCE) == 0
        screen.read()
        assert screen.seen.endswith(LEFT)
        assert screen.modes() == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_leave_the_terminal_as_it_was(cluster: ThreadedCluster, number: signal.Signals, code: int) -> None:
    with on_terminal(command(cluster)) as screen:
        before = screen.modes()
        screen.wait_for("billing")
        screen.process.send_signal(number)
        assert screen.process.wait(PATIENCE) == code
        screen.read()
        assert LEFT in screen.seen
        assert screen.modes() == before


def test_ctrl_z_gives_the_terminal_back_and_fg_draws_again(cluster: ThreadedCluster) -> None:
    with on_terminal(command(cluster)) as screen:
        before = screen.modes()
        screen.wait_for("billing")
        screen.seen = b""
        screen.process.send_signal(signal.SIGTSTP)
        screen.wait_for_bytes(LEFT)
        _, status = os.waitpid(screen.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert screen.modes() == before
        screen.seen = b""
        screen.process.send_signal(signal.SIGCONT)
        screen.wait_for_bytes(ENTERED)
        screen.wait_for("billing")
        screen.press("q")
        assert screen.process.wait(PATIENCE) == 0
        assert screen.modes() == before


def test_a_change_of_size_draws_again(cluster: ThreadedCluster) -> None:
    with on_terminal(command(cluster)) as screen:
        screen.wait_for("billing")
        for width, height in ((60, 24), (20, 5), (120, 40)):
            termios.tcsetwinsize(screen.slave, (height, width))
            screen.seen = b""
            screen.process.send_signal(signal.SIGWINCH)
            page = screen.wait_for("STOP" if height > 5 else "kafka")
            assert max(map(len, page.splitlines())) <= width
            assert ("WORST" in page) == (width == 120)
        screen.press("q")
        assert screen.process.wait(PATIENCE) == 0


def test_a_terminal_that_does_not_know_its_size_has_a_usual_one(cluster: ThreadedCluster) -> None:
    with on_terminal(command(cluster), width=0, height=0) as screen:
        page = screen.wait_for("billing", "x STOP", "q quit")
        assert page.count("\n") == 23
        screen.press("q")
        assert screen.process.wait(PATIENCE) == 0


def test_no_color_is_obeyed_and_the_status_is_still_told(cluster: ThreadedCluster) -> None:
    with on_terminal(command(cluster), NO_COLOR="1") as screen:
        page = screen.wait_for("x STOP", ". OK")
        assert "billing" in page
        assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", screen.seen)
        screen.press("q")
        screen.process.wait(PATIENCE)


def test_a_locale_without_utf_8_gets_ascii(cluster: ThreadedCluster) -> None:
    with on_terminal(command(cluster), PYTHONUTF8="0", LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii") as screen:
        screen.wait_for("billing")
        screen.press("\r")
        screen.wait_for("billing: STOP")
        assert screen.seen.isascii()
        screen.press("q")
        screen.process.wait(PATIENCE)


def test_a_terminal_that_can_do_nothing_gets_a_table(cluster: ThreadedCluster) -> None:
    with on_terminal(command(cluster), TERM="dumb") as screen:
        assert screen.process.wait(PATIENCE) == 2
        screen.read()
        assert ENTERED not in screen.seen
        assert b"billing" in screen.seen


def test_a_cluster_that_says_nothing_is_one_line_after_the_page_and_the_code_for_unknown() -> None:
    """It can be reached, and answers with an error at the first look at where partitions are."""

    def refuse(cluster: Cluster) -> None:
        asked = []

        def decide(_broker: int, request: Any) -> type[RebootstrapRequiredError] | None:
            asked.append(request)
            return RebootstrapRequiredError if len(asked) > 1 else None

        cluster.control(Api.METADATA, decide, keep=True)

    with ThreadedCluster(Cluster(1)) as silent:
        silent.call(refuse).result()
        with on_terminal(command(silent)) as screen:
            before = screen.modes()
            assert screen.process.wait(PATIENCE) == 3
            screen.read()
            assert b"Traceback" not in screen.seen
            assert screen.seen.count(b"kafka-async: ") == 1
            assert screen.modes() == before


def test_a_terminal_that_goes_away_ends_it(cluster: ThreadedCluster) -> None:
    with on_terminal(command(cluster)) as screen:
        screen.wait_for("billing")
        screen.process.send_signal(signal.SIGHUP)
        assert screen.process.wait(PATIENCE) == 129


def test_within_tmux(cluster: ThreadedCluster) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    socket = f"kafka-async-{os.getpid()}"
    tmux = ["tmux", "-L", socket, "-f", "/dev/null"]

    def ask(*words: str) -> str:
        return subprocess.run([*tmux, *words], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout  # noqa: S603  # ours

    def wait_for(word: str) -> str:
        until = time.monotonic() + PATIENCE
        while word not in (page := ask("capture-pane", "-p")) and time.monotonic() < until:
            select.select([], [], [], 0.1)
        assert word in page
        return page

    ask("new-session", "-d", "-x", "80", "-y", "24", *command(cluster), ";", "set-option", "remain-on-exit", "on")
    try:
        assert "x STOP" in wait_for("billing")
        ask("send-keys", "Enter")
        wait_for("billing: STOP")
        server = int(ask("display-message", "-p", "#{pid}"))
        ask("send-keys", "q")
        until = time.monotonic() + PATIENCE
        while (ended := ask("display-message", "-p", "#{pane_dead} #{pane_dead_status}").split()) != ["1", "0"]:
            assert time.monotonic() < until, ended
            # On a busy machine tmux 3.3 misses the SIGCHLD of a program that has closed its terminal a moment before: the program
            # has ended, and stays a zombie.
            os.kill(server, signal.SIGCHLD)
            select.select([], [], [], 0.1)
        assert "billing" not in ask("capture-pane", "-p")
    finally:
        ask("kill-server")
