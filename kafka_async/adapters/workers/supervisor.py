"""The parent of the workers: starts them, listens to them, and ends them.

Each worker is a new process in a session of its own, so that Ctrl-C in a terminal reaches the parent alone, which then asks all
workers to end, once and at the same time. Two pipes lead to it: it writes reports to one, and waits for the end of the other, which
comes when the parent is gone.

It neither imports the program nor talks to Kafka: it has to outlive whatever goes wrong there.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from attrs import define, field

from .reports import LARGEST, CannotRun, read_line
from .team import Deed, Team, WorkerSlot

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRY: Final = "kafka_async.adapters.workers.entry"
WORKER: Final = "KAFKA_ASYNC_WORKER"
"""The environment variable that says which worker a process is, from 1."""
WORKERS: Final = "KAFKA_ASYNC_WORKERS"
"""The one that says how many there are."""
STOPPED_BY: Final = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGINT: 128 + signal.SIGINT}
"""A signal that ends the parent -> its exit code, as in shells."""
_CHUNK: Final = 65536


@define(eq=False)
class Process:
    """One worker's process."""

    slot: WorkerSlot
    popen: "subprocess.Popen[bytes]"
    life: int
    """Our end of the pipe whose end it waits for."""
    reports: int
    _unread: bytes = field(default=b"", init=False)
    refused: CannotRun | None = field(default=None, init=False)
    is_silent: bool = field(default=False, init=False)
    """Nothing more will come."""

    @classmethod
    def start(cls, slot: WorkerSlot, target: str, workers: int, stop_timeout: float) -> "Process":
        """Start it. Raises ``OSError``."""
        with ExitStack() as ours, ExitStack() as theirs:
            life_read, life = os.pipe()
            reports, reports_write = os.pipe()
            for stack, descriptors in ((ours, (life, reports)), (theirs, (life_read, reports_write))):
                for descriptor in descriptors:
                    stack.callback(os.close, descriptor)
            os.set_blocking(reports, False)
            popen = subprocess.Popen(  # noqa: S603  # our own entry
                [sys.executable, "-m", ENTRY, target, str(life_read), str(reports_write), repr(stop_timeout)],
                stdin=subprocess.DEVNULL,
                pass_fds=(life_read, reports_write),
                start_new_session=True,
                env={**os.environ, WORKER: str(slot.number), WORKERS: str(workers)},
            )
            ours.pop_all()
        return cls(slot, popen, life, reports)

    def lines(self) -> "Iterator[bytes]":
        """Yield the whole lines that have come."""
        with suppress(BlockingIOError):
            while True:
                chunk = os.read(self.reports, _CHUNK)
                if not chunk:
                    self.is_silent = True
                    return
                *whole, self._unread = (self._unread + chunk).split(b"\n")
                yield from whole
                if len(self._unread) > LARGEST:
                    raise ValueError(f"a line of more than {LARGEST} bytes")

    def send(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with suppress(ProcessLookupError):
            self.popen.send_signal(number)

    def close(self) -> None:
        """Close our ends."""
        os.close(self.life)
        os.close(self.reports)


@define(eq=False)
class Supervisor:
    """Runs a team until nothing is left to do."""

    target: str
    """``module:function``; imported by workers alone."""
    team: Team
    tell: Callable[[str], None]
    """Shows a line to people."""
    changes: AsyncIterator[object] | None = None
    """Files of the program have changed; then all are replaced at once."""
    _processes: dict[int, Process] = field(factory=dict, init=False)
    """By the worker's number."""
    _woken: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def run(self) -> int:
        """Return the exit code."""
        loop = asyncio.get_running_loop()
        watching = asyncio.create_task(self._watch()) if self.changes is not None else None
        if watching is not None:
            watching.add_done_callback(lambda _: self._woken.set())
        with self._signals(loop):
            try:
                while True:
                    self._woken.clear()
                    if watching is not None and watching.done():
                        watching.result()  # it cannot watch
                    self._step(loop)
                    if self.team.is_over:
                        return self.team.exit_code
                    await self._wait(self.team.next_at(loop.time()) - loop.time())
            finally:
                if watching is not None:
                    watching.cancel()
                for process in tuple(self._processes.values()):  # only after an error of ours: they end when their pipe does
                    self._forget(loop, process)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, 3600.0)):
                await self._woken.wait()

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        for process in tuple(self._processes.values()):
            self._look(loop, process)
        for deed, slot in self.team.due(loop.time()):
            self._carry_out(loop, deed, slot)
        while self.team.news:
            self.tell(self.team.news.popleft())
        _reap_orphans({process.popen.pid for process in self._processes.values()})

    def _carry_out(self, loop: asyncio.AbstractEventLoop, deed: Deed, slot: WorkerSlot) -> None:
        if deed is Deed.START:
            try:
                process = Process.start(slot, self.target, len(self.team.slots), self.team.policy.stop_timeout)
            except OSError as error:
                self.team.not_started(slot, str(error), loop.time(), jitter=random.random())  # noqa: S311  # no secret
                return
            self._processes[slot.number] = process
            loop.add_reader(process.reports, self._woken.set)
            self.team.started(slot, loop.time())
            return
        self._processes[slot.number].send(signal.SIGTERM if deed is Deed.TERM else signal.SIGKILL)

    def _look(self, loop: asyncio.AbstractEventLoop, process: Process) -> None:
        """Take what a process has reported, and see whether it has ended."""
        code = process.popen.poll()  # before its last reports are read
        try:
            for line in process.lines():
                told = read_line(line)
                if isinstance(told, CannotRun):
                    process.refused = told
                else:
                    self.team.reported(process.slot, told, loop.time())
        except ValueError as error:  # what comes after it cannot be understood either
            self.tell(f"worker {process.slot.number}: {error}; it is ended")
            process.send(signal.SIGKILL)
            process.is_silent = True
        if process.is_silent:
            loop.remove_reader(process.reports)
        if code is not None:
            self._forget(loop, process)
            self.team.exited(
                process.slot,
                code,
                loop.time(),
                jitter=random.random(),  # noqa: S311  # no secret
                refused=process.refused,
            )

    def _forget(self, loop: asyncio.AbstractEventLoop, process: Process) -> None:
        loop.remove_reader(process.reports)
        process.close()
        del self._processes[process.slot.number]

    async def _watch(self) -> None:
        assert self.changes is not None  # noqa: S101  # the caller has looked
        async for _ in self.changes:
            self.tell("files have changed: all workers are replaced")
            self.team.reload(asyncio.get_running_loop().time())
            self._woken.set()

    @contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> "Iterator[None]":
        """Take the signals of a supervisor: TERM and INT end all, HUP replaces one after the other, CHLD is the end of one."""

        def stop(number: signal.Signals, exit_code: int) -> None:
            if self.team.stop(loop.time(), exit_code):
                self.tell(f"{number.name}: workers are {'killed' if self.team.is_killing else 'asked to end'}")
            self._woken.set()

        def renew() -> None:
            self.tell("SIGHUP: workers are replaced, one after the other")
            self.team.renew()
            self._woken.set()

        handlers: dict[signal.Signals, Callable[[], object]] = {signal.SIGHUP: renew, signal.SIGCHLD: self._woken.set}
        handlers |= {number: partial(stop, number, exit_code) for number, exit_code in STOPPED_BY.items()}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)


def _reap_orphans(ours: set[int]) -> None:
    """As process 1 of a container: take leave of ended processes that nobody else waits for."""
    if os.getpid() != 1:
        return
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in ours:
            return
        with suppress(ChildProcessError):
            os.waitpid(ended.si_pid, os.WNOHANG)
