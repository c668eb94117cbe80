"""``kafka-async run``: whatever ends or hangs, the workers go on or end, no record is lost, and nothing is left behind."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

from attrs import define

from kafka_async.testing import Cluster
from kafka_async.testing.threaded import ThreadedCluster
from tests.brokers import KafkaCluster

from .groups import new_group
from .tools import new_topic
from .worker_teams import JOB, Team, children, descriptors, is_running, team

pytestmark = pytest.mark.brokers

PARTITIONS = 4
SESSION_MS = 2000
WRONG = "wrong.properties: interceptor.classes: Java classes are not loaded; give interceptors in the program"
both_protocols = pytest.mark.parametrize("protocol", ["consumer", "classic"])


@define
class Memory:
    """A cluster in memory, its topic and its group."""

    thread: ThreadedCluster

    def produce(self, *values: bytes) -> None:
        """Append records, in turn to each partition."""
        self.thread.call(lambda cluster: cluster.produce_many("orders", values)).result()

    def committed(self) -> int:
        """Return how many records the group has committed."""
        return sum(each.offset for each in self.thread.call(lambda cluster: cluster.committed("billing")).result().values())

    def members(self) -> list[str]:
        """Return the members of the group."""
        return self.thread.call(lambda cluster: cluster.members("billing")).result()

    def settings(self, protocol: str = "consumer") -> dict[str, str]:
        """Return what the program needs to know."""
        return {"BOOTSTRAP": self.thread.bootstrap, "TOPIC": "orders", "GROUP": "billing", "PROTOCOL": protocol}


@pytest.fixture
def memory() -> Iterator[Memory]:
    """A topic of four partitions. Members of its groups have sessions of 45 s: one that does not leave is there for so long."""
    cluster = Cluster()
    cluster.topic("orders", PARTITIONS)
    with ThreadedCluster(cluster) as thread:
        yield Memory(thread)


@contextmanager
def two(
    settings: Mapping[str, str], *options: str, target: str = f"{JOB}:main", start: Any = subprocess.Popen
) -> Iterator[tuple[Team, dict[int, int]]]:
    """Run two workers, and wait until both have partitions."""
    with team("--workers", "2", *options, target=target, start=start, environment=settings) as running:
        pids = running.begun(2)
        running.assigned(*pids.values())
        yield running, pids


def busy(running: Team, pids: dict[int, int]) -> None:
    """Wait until each of the workers has a record in a handler."""
    wanted = {str(pid) for pid in pids.values()}
    running.wait(lambda: wanted <= {line[1] for line in running.events("start")})


def replaced_one_by_one(running: Team, before: dict[int, int]) -> None:
    """Wait until both workers were replaced, and check that the second one was not asked to end before the first one was back."""
    after = running.begun(4)
    running.assigned(*after.values())
    assert set(after.values()).isdisjoint(before.values())
    lines = running.events()
    ends = [line for line in lines if line[2] == "ended"]
    assert {line[1] for line in ends} == {str(pid) for pid in before.values()}, "in order, and no other"
    first, second = (line[0] for line in ends)
    begun_again = lines.index([first, str(after[int(first)]), "begun"])
    asked = lines.index([second, str(before[int(second)]), "signal", "SIGTERM"])
    assert begun_again < asked


# --- killed, frozen ------------------------------------------------------------------------------------------------------------


@both_protocols
def test_a_killed_worker_comes_back_and_no_record_is_lost(kafka44: KafkaCluster, protocol: str) -> None:
    topic, group = new_topic(kafka44, PARTITIONS), new_group(kafka44, protocol, session_ms=SESSION_MS)
    settings = {"BOOTSTRAP": kafka44.bootstrap_servers, "TOPIC": topic, "GROUP": group.name, "PROTOCOL": protocol}
    with two(settings | {"SESSION_MS": str(SESSION_MS)}) as (running, pids):
        kafka44.produce(topic, 400, partitions=PARTITIONS)
        busy(running, pids)
        os.kill(pids[1], signal.SIGKILL)
        kafka44.produce(topic, 200, partitions=PARTITIONS)
        running.handled(600)
        again = running.begun(3)
        running.assigned(again[1])  # once the session of the killed one is over
        assert again[2] == pids[2]
        assert "worker 1 was ended by signal 9" in running.stderr
        running.send(signal.SIGTERM)
        assert running.ends() == 143
    assert sum(group.committed().values()) == 600


@both_protocols
def test_workers_of_a_killed_parent_finish_commit_and_leave(kafka44: KafkaCluster, protocol: str) -> None:
    topic, group = new_topic(kafka44, PARTITIONS), new_group(kafka44, protocol, session_ms=45_000)
    settings = {"BOOTSTRAP": kafka44.bootstrap_servers, "TOPIC": topic, "GROUP": group.name, "PROTOCOL": protocol}
    with two(settings) as (running, pids):
        running.hold.touch()
        kafka44.produce(topic, 400, partitions=PARTITIONS)
        busy(running, pids)
        running.send(signal.SIGKILL)
        running.popen.wait()
        running.hold.unlink()
        running.all_gone()
        assert running.cut_short(*pids.values()) == []
        assert len(running.events("ended")) == 2
        assert sum(group.committed().values()) == len(running.done())
    assert kafka44.admin.describe_consumer_groups([group.name])[group.name].result().members == []


@both_protocols
def test_a_frozen_worker_is_killed_and_replaced(kafka44: KafkaCluster, protocol: str) -> None:
    topic, group = new_topic(kafka44, PARTITIONS), new_group(kafka44, protocol, session_ms=SESSION_MS)
    settings = {"BOOTSTRAP": kafka44.bootstrap_servers, "TOPIC": topic, "GROUP": group.name, "PROTOCOL": protocol}
    with two(settings | {"SESSION_MS": str(SESSION_MS)}, "--silent-after", "3", "--stop-timeout", "0.5") as (running, pids):
        os.kill(pids[1], signal.SIGSTOP)
        kafka44.produce(topic, 40, partitions=PARTITIONS)
        again = running.begun(3)
        assert again[2] == pids[2]
        running.handled(40)
        assert "worker 1: it was silent for 3 s; it is replaced" in running.stderr
        assert "worker 1 has not ended: it is killed" in running.stderr


def test_a_parent_that_was_frozen_replaces_nobody(memory: Memory) -> None:
    """What the workers have reported meanwhile counts, however late it is read."""
    with two(memory.settings(), "--silent-after", "3", "--health-port", "0") as (running, pids):
        page = Page.of(running)
        running.send(signal.SIGSTOP)
        time.sleep(4)
        running.send(signal.SIGCONT)
        assert page.number("kafka_async_worker_report_age_seconds", 1) < 3
        assert running.workers() == pids


# --- asked to end --------------------------------------------------------------------------------------------------------------


@both_protocols
def test_ctrl_c_in_a_terminal_is_one_sigterm_for_each_worker(memory: Memory, protocol: str) -> None:
    terminal, other_end = os.openpty()

    def start(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """As a shell: the leader of a session takes the first terminal that it opens, and is in the foreground."""
        line = f'exec "$@" < {os.ttyname(other_end)}'
        return subprocess.Popen(["/bin/sh", "-c", line, "sh", *command], **options, start_new_session=True)  # noqa: S603  # ours

    try:
        with two(memory.settings(protocol), start=start) as (running, pids):
            running.hold.touch()
            memory.produce(*[b"x"] * 400)
            busy(running, pids)
            os.write(terminal, b"\x03")
            running.wait(lambda: len(running.events("signal")) >= 2)
            running.hold.unlink()
            assert running.ends() == 130
            assert sorted(line[1:] for line in running.events("signal")) == sorted(
                [str(pid), "signal", "SIGTERM"] for pid in pids.values()
            )
            assert running.cut_short(*pids.values()) == []
            assert memory.committed() == len(running.done())
    finally:
        os.close(terminal)
        os.close(other_end)
    assert memory.members() == []


def test_a_second_sigterm_kills(memory: Memory) -> None:
    with two(memory.settings()) as (running, pids):
        running.hold.touch()
        memory.produce(*[b"x"] * 40)
        busy(running, pids)
        running.send(signal.SIGTERM)
        running.send(signal.SIGTERM)  # at once: the same request, as timeout(1) sends it
        running.wait(lambda: len(running.events("signal")) == 2)
        later = time.monotonic() + 1
        running.wait(lambda: time.monotonic() > later)
        assert running.stderr.count("it is killed") == 0
        running.send(signal.SIGTERM)
        assert running.ends() == 143
        assert running.events("ended", "done") == []
        assert running.stderr.count("it is killed") == 2


def test_a_sigterm_while_programs_are_imported_ends_all_at_once(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(f"from {JOB} import say\nimport time\nsay('importing')\ntime.sleep(600)\n")
    with team("--workers", "2", target="slow:main", cwd=tmp_path) as running:
        running.wait(lambda: len(running.events("importing")) == 2)
        running.send(signal.SIGTERM)
        assert running.ends() == 143  # long before the default of --stop-timeout


# --- cannot run ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "text", "why"),
    [
        ("program_nowhere:main", "", "program_nowhere cannot be imported: ModuleNotFoundError: No module named 'program_nowhere'"),
        ("program:main", "1 / 0", "program cannot be imported: ZeroDivisionError: division by zero"),
        (f"{JOB}:nothing", "", f"{JOB} has no nothing"),
        (f"{JOB}:plain", "", f"{JOB}:plain: expected an 'async def' function without arguments, got function"),
        (f"{JOB}:misconfigured", "", WRONG),
        (f"{JOB}:several", "", WRONG),
        (f"{JOB}:mistyped", "", "unknown option 'grop_id'; did you mean 'group_id'?"),
        (f"{JOB}:misaddressed", "", "bootstrap_servers: 'a:b' is not an address; expected 'host:port' with a port from 1 to 65535"),
    ],
    ids=[
        "no module",
        "import raises",
        "no such name",
        "not async",
        "wrong option",
        "wrong option in a task",
        "no such option",
        "bad value",
    ],
)
def test_a_program_that_cannot_run_ends_all_with_one_line(tmp_path: Path, target: str, text: str, why: str) -> None:
    (tmp_path / "program.py").write_text(text)
    (tmp_path / "wrong.properties").write_text("interceptor.classes=com.example.Spy")
    with team("--workers", "2", target=target, cwd=tmp_path) as running:
        assert running.ends() == 2
        lines = [line for line in running.stderr.splitlines() if line.startswith("kafka-async:")]
        assert lines == [f"kafka-async: the program cannot run: {why}"]


def test_one_that_ends_early_three_times_ends_all() -> None:
    with team("--workers", "2", target=f"{JOB}:fails") as running:
        assert running.ends() == 7
        assert 3 <= len(running.events("begun")) <= 6  # as often as the other one has come back
        assert "failed with exit code 7; 3 times in a row" in running.stderr


# --- replaced ------------------------------------------------------------------------------------------------------------------


@both_protocols
def test_sighup_hands_over_one_by_one_and_each_record_is_handled_once(memory: Memory, protocol: str) -> None:
    with two(memory.settings(protocol), "--health-port", "0", target=f"{JOB}:gated") as (running, pids):
        page = Page.of(running)
        memory.produce(*[b"x"] * 400)
        running.handled(400)
        running.hold.touch()
        running.send(signal.SIGHUP)
        running.wait(lambda: running.events("ended"))
        memory.produce(*[b"x"] * 400)
        running.wait(lambda: page.number("kafka_async_worker_starts_total", 1) == page.number("kafka_async_worker_up", 1) + 1)
        assert len(running.events("signal")) == 1, "the new one runs, and is held up before it has partitions"
        running.hold.unlink()
        replaced_one_by_one(running, pids)
        running.handled(800)
        assert running.cut_short(*pids.values()) == []
        assert set(running.done().values()) == {1}
        running.send(signal.SIGTERM)
        assert running.ends() == 143
    assert memory.committed() == 800


@both_protocols
def test_workers_that_grow_are_drained_and_replaced_one_at_a_time(memory: Memory, protocol: str) -> None:
    with two(memory.settings(protocol), "--max-rss", "150M") as (running, pids):
        memory.produce(*[b"grow"] * PARTITIONS, *[b"x"] * 400)
        running.wait(lambda: running.events("ended"))
        memory.produce(*[b"x"] * 400)
        replaced_one_by_one(running, pids)
        running.handled(800 + PARTITIONS)
        assert running.cut_short(*pids.values()) == []
        assert set(running.done().values()) == {1}
        assert running.stderr.count("more than 150: it is replaced") == 2


def test_twenty_restarts_leave_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    program = tmp_path / "program.py"
    program.write_text(f"from {JOB} import idle\n")

    with team("--workers", "5", "--reload", target="program:idle", cwd=tmp_path) as running:
        pids = running.begun(5)
        changed(running, program)
        before = descriptors(running.pid)
        while len(running.events("begun")) < 25:
            old = set(pids.values())
            program.touch()
            running.wait(lambda old=old: old.isdisjoint(running.workers().values()))
            pids = running.begun(len({line[1] for line in running.events("begun")}))
        running.wait(lambda: descriptors(running.pid) == before)
        assert sorted(children(running.pid)) == sorted(pids.values())
        assert all(map(is_running, pids.values()))


def changed(running: Team, program: Path) -> None:
    """Change a file until that is noticed: nothing shows from when on files are watched."""
    workers = len(running.workers())

    def is_noticed() -> bool:
        program.touch()
        return "files have changed" in running.stderr

    running.wait(is_noticed)
    running.begun(2 * workers)


def test_a_changed_file_replaces_all_and_a_broken_one_waits_for_the_next_change(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    program = tmp_path / "program.py"
    good = f"from {JOB} import idle\n"
    program.write_text(good)
    with team("--workers", "2", "--reload", target="program:idle", cwd=tmp_path) as running:
        old = set(running.begun(2).values())
        changed(running, program)
        assert old.isdisjoint(running.workers().values())
        program.write_text("def idle(:\n")
        running.wait(lambda: "SyntaxError: invalid syntax (program.py, line 1); it starts again when a file" in running.stderr)
        running.wait(lambda: running.workers() == {})
        assert "starts again in" not in running.stderr
        broken = {line[1] for line in running.events()}
        program.write_text(good)
        running.wait(lambda: len({line[0] for line in running.events("begun") if line[1] not in broken}) == 2)


# --- probes --------------------------------------------------------------------------------------------------------------------


@define
class Page:
    """What the parent answers."""

    address: str

    @classmethod
    def of(cls, running: Team) -> "Page":
        """Wait until it listens."""
        words: list[str] = running.wait(lambda: [word for word in running.stderr.split() if word.startswith("http://")])
        return cls(words[0].removesuffix("/ready"))

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text."""
        try:
            with urllib.request.urlopen(f"{self.address}{path}", timeout=30) as answer:  # noqa: S310  # our own address
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def number(self, name: str, worker: int) -> float:
        """Return a metric of a worker."""
        start = f'{name}{{worker="{worker}"}} '
        return next(float(line.removeprefix(start)) for line in self.get("/metrics")[1].splitlines() if line.startswith(start))


def test_probes_and_metrics(memory: Memory) -> None:
    settings = memory.settings()
    with team("--workers", "2", "--health-port", "0", target=f"{JOB}:gated", start=held_back, environment=settings) as running:
        page = Page.of(running)
        assert page.get("/alive") == (200, "alive\n")
        assert page.get("/ready") == (503, "not assigned partitions yet: worker 1, 2\n")
        running.wait(lambda: page.number("kafka_async_worker_up", 1) == page.number("kafka_async_worker_up", 2) == 1)
        assert page.get("/ready")[0] == 503
        running.hold.unlink()
        pids = running.begun(2)
        running.wait(lambda: page.get("/ready") == (200, "ready\n"))
        os.kill(pids[2], signal.SIGKILL)
        running.wait(lambda: page.number("kafka_async_worker_up", 2) == 0)
        assert page.get("/ready")[0] == 200
        assert page.get("/alive")[0] == 200
        running.begun(3)
        assert page.number("kafka_async_worker_starts_total", 2) == 2
        assert 'kafka_async_worker_starts_total{worker="1"} 1' in page.get("/metrics")[1]
        assert 'worker="1",client_id="' in page.get("/metrics")[1]


def held_back(command: Sequence[str], env: dict[str, str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a program that waits for the test."""
    Path(env["JOB_HOLD"]).touch()
    return subprocess.Popen(command, env=env, **options)  # noqa: S603  # ours
