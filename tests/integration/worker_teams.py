"""``kafka-async run`` as tests run it: in a process of its own, which tests watch from outside.

Must never leave a worker behind, nor signal a process that is not one of its own.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attrs import define, field

from .tools import wait_until

ROOT = Path(__file__).parents[2]
JOB = "tests.integration.worker_job"


def is_running(pid: int) -> bool:
    """Whether a process is there, and not only its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """Return the ids of the processes that a process has started, ended ones too that it has not taken leave of."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descriptors(pid: int) -> list[str]:
    """Return what the open files of a process are."""
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has just been closed
            found.append(os.readlink(each).split(":")[0])
    return sorted(found)


@define(eq=False)
class Team:
    """A parent and its workers."""

    popen: "subprocess.Popen[bytes]"
    folder: Path
    _seen: set[int] = field(factory=set, init=False)

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def stderr(self) -> str:
        """What the parent and its workers have written to standard error."""
        return (self.folder / "stderr").read_text()

    @property
    def hold(self) -> Path:
        """While this file exists, handlers wait."""
        return self.folder / "hold"

    def events(self, *kinds: str) -> list[list[str]]:
        """Return the lines of the programs' log, all or those of some kinds: worker, process id, kind and so on."""
        with suppress(FileNotFoundError):
            lines = [line.split() for line in (self.folder / "log").read_text().splitlines()]
            return [line for line in lines if not kinds or line[2] in kinds]
        return []

    def workers(self) -> dict[int, int]:
        """Return the process ids of the workers that run, by their numbers."""
        found = {}
        for pid in children(self.pid):
            with suppress(OSError):
                for setting in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    if setting.startswith(b"KAFKA_ASYNC_WORKER="):
                        found[int(setting.partition(b"=")[2])] = pid
        self._seen.update(found.values())
        return found

    def begun(self, count: int) -> dict[int, int]:
        """Wait until this many processes have begun, each worker's newest among them; return their ids by number."""

        def newest() -> dict[int, int]:
            if len({line[1] for line in self.events("begun")}) < count:
                return {}
            told = {int(line[0]): int(line[1]) for line in self.events("begun")}
            return told if told == self.workers() else {}

        found: dict[int, int] = self.wait(newest)
        return found

    def assigned(self, *pids: int) -> None:
        """Wait until these processes have partitions."""
        wanted = {str(pid) for pid in pids}
        self.wait(lambda: wanted <= {line[1] for line in self.events("assigned") if len(line) > 3})

    def wait(self, condition: Any) -> Any:
        """Return the first true value of a condition; a failure shows what the workers wrote."""
        try:
            return wait_until(condition)
        except AssertionError as error:
            error.add_note(f"{self.stderr}\n{self.events()[-40:]}")
            raise

    def done(self) -> dict[tuple[int, int], int]:
        """Return how often each record was done, by partition and offset."""
        found: dict[tuple[int, int], int] = {}
        for line in self.events("done"):
            at = int(line[3]), int(line[4])
            found[at] = found.get(at, 0) + 1
        return found

    def handled(self, count: int) -> None:
        """Wait until this many different records are done."""
        self.wait(lambda: len(self.done()) >= count)

    def cut_short(self, *pids: int) -> list[list[str]]:
        """Return the starts of handlers in these processes that did not come to their end."""
        wanted = {str(pid) for pid in pids}
        done = {(line[1], *line[3:]) for line in self.events("done")}
        return [line for line in self.events("start") if line[1] in wanted and (line[1], *line[3:]) not in done]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the parent."""
        self.popen.send_signal(number)

    def ends(self) -> int:
        """Wait for the end of all; return the parent's exit code."""
        self.workers()
        code: int = self.wait(lambda: [self.popen.poll()] if self.popen.poll() is not None else [])[0]
        self.all_gone()
        return code

    def all_gone(self) -> None:
        """Wait until no worker that was ever seen runs."""
        self.wait(lambda: not any(map(is_running, self.known())))

    def known(self) -> set[int]:
        """Return the ids of all workers that there ever were, as far as they were seen."""
        return self._seen | {int(line[1]) for line in self.events()}


@contextmanager
def team(
    *options: str,
    target: str = f"{JOB}:main",
    cwd: Path = ROOT,
    start: Any = subprocess.Popen,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Team]:
    """Run ``kafka-async run`` until the block ends. ``environment``: for the programs, without ``JOB_``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {"LOG": str(folder / "log"), "HOLD": str(folder / "hold"), "SESSION_MS": "45000", "PROTOCOL": "consumer"}
        settings |= environment or {}
        env = os.environ | {f"JOB_{key}": value for key, value in settings.items()}
        env |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}  # the latter: no file changes but those of the test
        command: Sequence[str] = [sys.executable, "-m", "kafka_async", "run", target, *options]
        with (folder / "stderr").open("wb") as stderr:
            process = start(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
        running = Team(process, folder)
        try:
            yield running
        finally:
            running.workers()
            process.kill()
            process.wait()
            for pid in running.known():
                with suppress(ProcessLookupError):
                    if is_running(pid):  # a moment later it may be someone else's only after a whole round of ids
                        os.kill(pid, signal.SIGKILL)
