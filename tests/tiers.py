"""The three tiers of tests, told apart by markers.

- ``fast``: logic, virtual time, sockets within the process; what one runs while working. Every test without another tier is in it.
- ``brokers``: starts a broker, a mock cluster or another program.
- ``spark``: starts Spark, and brokers for it to read from.

Decides: which tier a test is in, and what it must not do there. Must never let a fast test start a process unnoticed:
that makes the tier slow.
"""

import atexit
import contextlib
import os
import socket
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import define, field

FAST: Final = "fast"
BROKERS: Final = "brokers"
SPARK: Final = "spark"
TIERS: Final = (FAST, BROKERS, SPARK)
SECONDS: Final = {FAST: 120, BROKERS: 300, SPARK: 600}
"""How long a test of each tier may take on a busy machine, with what it starts for itself and for those after it."""
MARKERS: Final = (
    "fast: logic, virtual time, sockets within the process; given to every test without another tier",
    "brokers: starts a broker, a mock cluster or another program",
    "spark: starts Spark, and brokers for it to read from",
)

_PROCESSES: Final = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
"""Audit events of Python that tell that a process begins."""
_LISTENING: Final = "0A"
"""State of a socket in ``/proc/net/tcp``."""
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)


def tier_of(markers: Iterable[str]) -> str:
    """Return the tier of a test with these markers. Raises ``ValueError`` if it is in two."""
    names = set(markers)
    found = [tier for tier in TIERS if tier in names]
    if len(found) > 1:
        raise ValueError(f"is marked {' and '.join(found)}: a test is in one tier")
    return found[0] if found else FAST


def tier_needed(fixtures: Iterable[str]) -> str:
    """Return the lowest tier in which a test with these fixtures, and theirs, may be."""
    names = set(fixtures)
    return SPARK if "spark" in names else BROKERS if "real_brokers" in names else FAST


@define(eq=False)
class Watch:
    """Sees what the process does while a test runs. There is one, since Python never takes an audit hook back."""

    _tier: str = field(default=SPARK, init=False)
    _seen: list[str] = field(factory=list, init=False)
    _ended: bool = field(default=False, init=False)

    def end(self) -> None:
        """See no more: Python takes this module apart before it makes its last calls."""
        self._ended = True

    @contextmanager
    def over(self, tier: str) -> Iterator[None]:
        """Fail the test that runs within the block if it does what its tier must not."""
        before = self._tier, self._seen
        self._tier, self._seen = tier, []
        try:
            yield
        finally:
            (self._tier, self._seen), seen = before, self._seen
        if seen:
            pytest.fail(f"a test of the tier {tier!r} {', '.join(dict.fromkeys(seen))}: see tests/tiers.py")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an audit event of Python."""
        if self._ended or self._tier == SPARK:
            return
        if event in _PROCESSES:
            self._note_process(arguments)
        elif event == "socket.connect" and self._tier == FAST:
            self._note_connection(arguments[1])

    def _note_process(self, arguments: tuple[Any, ...]) -> None:
        command = " ".join(map(str, arguments[1])) if len(arguments) > 1 and isinstance(arguments[1], list | tuple) else ""
        if self._tier == FAST:
            self._seen.append(f"starts a process ({command[:200]})")
        elif "spark-submit" in command or "org.apache.spark" in command:
            self._seen.append("starts Spark")

    def _note_connection(self, address: Any) -> None:
        if isinstance(address, tuple) and not _collects_garbage_of_spark() and is_another_program(address[1]):
            self._seen.append(f"connects to another program, at {address[0]}:{address[1]}")


def _collects_garbage_of_spark() -> bool:
    """Return whether Python throws an object away that Spark's driver has to know of: it may be an earlier test's, at any time."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name in ("_garbage_collect_object", "garbage_collect_object"):  # the second on a thread of its own
            return True
    return False


def is_another_program(port: int) -> bool:
    """Return whether another process listens on a port of this machine; ``False`` if Linux's files do not show it."""
    return not _listens_itself(port) and _somebody_listens(port)  # the second takes Linux ten milliseconds


def _listens_itself(port: int) -> bool:
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it has been closed meanwhile
            if stat.S_ISSOCK(os.stat(int(file)).st_mode):
                with socket.socket(fileno=os.dup(int(file))) as ours:
                    listens = ours.family in _INTERNET and ours.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    if listens and ours.getsockname()[1] == port:
                        return True
    return False


def _somebody_listens(port: int) -> bool:
    for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            columns = line.split()
            if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                return True
    return False


WATCH: Final = Watch()


def install() -> None:
    """Begin to watch this process."""
    sys.addaudithook(WATCH.audit)
    atexit.register(WATCH.end)
