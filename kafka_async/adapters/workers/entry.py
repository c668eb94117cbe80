"""A worker: finds the program, runs it, reports on it, and ends with its parent.

The parent's end of a pipe is open for as long as the parent lives, whatever kills it. When it closes, the program is ended as
SIGTERM ends it, and if that takes too long, the process.
"""

import asyncio
import importlib
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Final

from attrs import define, field

from ...errors import KafkaConfigurationError, KafkaError
from ...functions import is_async, signature_of
from ...started import started
from ..running import EXIT_CODE, Terminated, until_terminated
from .reports import INTERVAL, CannotRun, Report, report_of

_log = logging.getLogger("kafka_async.workers")

PAUSE: Final = 0.1
"""Seconds between two parts of a report, and between the first reports: others may wait for this worker's assignment."""
SOON: Final = 100
"""How many reports come so soon, if it is not assigned partitions before."""
REFUSED: Final = 2
"""Exit code of a program that cannot run as it is."""
LATER: Final = 75
"""That of one that may run later: EX_TEMPFAIL, as in ``sysexits.h``."""
_ASSEMBLING: Final = (("kafka_async.application.parts", "assemble"), ("kafka_async.application.share.parts", "assemble_share"))
"""Modules and functions that make a consumer of its options."""


class RefusedProgram(Exception):
    """There is no such program."""


@define(eq=False)
class ParentProcess:
    """The process that started this one."""

    life: int
    """File descriptor that is at its end when the parent is gone."""
    reports: int
    stop_timeout: float
    gone: threading.Event = field(factory=threading.Event, init=False)
    _tell: Callable[[], object] | None = field(default=None, init=False)
    """Called when the parent is gone, once the program runs."""
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _unsent: bytes = field(default=b"", init=False)

    @classmethod
    def of(cls, life: int, reports: int, stop_timeout: float) -> "ParentProcess":
        """Take over the file descriptors, which programs that this one starts must not have."""
        for descriptor in (life, reports):
            os.set_inheritable(descriptor, False)
        os.set_blocking(reports, False)
        return cls(life, reports, stop_timeout)

    def watch(self) -> None:
        """End this process when the parent is gone; to be called on a thread of its own."""
        with suppress(OSError):
            while os.read(self.life, 1):
                pass
        with self._lock:
            self.gone.set()
            if self._tell is None:
                os._exit(EXIT_CODE)  # nothing has begun
            with suppress(RuntimeError):  # the program has just ended
                self._tell()
        time.sleep(self.stop_timeout)
        os._exit(EXIT_CODE)  # nobody else is there to kill what hangs

    def begin(self, tell: Callable[[], object]) -> None:
        """The program runs from now on."""
        with self._lock:
            self._tell = tell

    def send(self, report: Report | CannotRun) -> None:
        """Send a report. One that finds no room is left out: the parent may be stopped, and the next one says more."""
        if self.sent():
            data = report.line()
            self._unsent = data[self._write(data) :]
            if len(self._unsent) == len(data):
                self._unsent = b""

    def sent(self) -> bool:
        """Send the rest of a report for which there was no room. Returns whether there is no rest any more."""
        if self._unsent:
            self._unsent = self._unsent[self._write(self._unsent) :]
        return not self._unsent

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self.reports, data)
        except BlockingIOError:
            return 0
        except OSError:  # it is gone, which the other pipe tells
            return len(data)


def find(target: str) -> Callable[[], Coroutine[Any, Any, object]]:
    """Return the ``async def`` function that ``module:function`` names. Raises ``RefusedProgram``."""
    name, colon, path = target.partition(":")
    if not (name and colon and path):
        raise RefusedProgram(f"expected module:function, got {target!r}")
    try:
        found: Any = importlib.import_module(name)
    except Exception as error:
        if not (isinstance(error, ModuleNotFoundError) and error.name is not None and f"{name}.".startswith(f"{error.name}.")):
            traceback.print_exc()  # of the program itself: people want to see the line
        raise RefusedProgram(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise RefusedProgram(f"{name} has no {path}") from None
    if not is_async(found):
        raise RefusedProgram(f"{target}: expected an 'async def' function without arguments, got {type(found).__name__}")
    try:
        signature_of(found).bind()
    except TypeError:
        raise RefusedProgram(f"{target}: expected a function without arguments, got {path}{signature_of(found)}") from None
    main: Callable[[], Coroutine[Any, Any, object]] = found
    return main


async def attended(main: Callable[[], Coroutine[Any, Any, object]], parent: ParentProcess) -> None:
    """Run the program, and report on it."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    parent.begin(lambda: loop.call_soon_threadsafe(gone.set))
    reporting = asyncio.create_task(_report(parent), name="kafka_async worker's reports")
    try:
        await until_terminated(main(), gone)
    finally:
        reporting.cancel()


async def _report(parent: ParentProcess) -> None:
    """Never returns."""
    complained = False
    for number in count():
        try:
            report = report_of(started(), memory())
        except Exception:
            if not complained:
                _log.exception("the consumers of this worker cannot be asked")
            complained, report = True, Report(rss=memory())  # silence would have the process replaced, again and again
        parent.send(report)
        while not parent.sent():  # noqa: ASYNC110  # longer than a pipe is large: nothing tells when the parent has read
            await asyncio.sleep(PAUSE)
        await asyncio.sleep(INTERVAL if report.assigned_once or number >= SOON else PAUSE)


def memory() -> int:
    """Return how many bytes of memory this process has."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: the most that it ever had
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def main() -> None:
    """Run what the command line names: the program, two file descriptors, and seconds."""
    target, life, reports, stop_timeout = sys.argv[1:]
    sys.argv[1:] = []  # the program has no arguments
    parent = ParentProcess.of(int(life), int(reports), float(stop_timeout))
    threading.Thread(target=parent.watch, name="kafka_async worker", daemon=True).start()
    try:
        program = find(target)
        with asyncio.Runner() as runner:
            runner.run(attended(program, parent))
    except Terminated:
        sys.exit(EXIT_CODE)
    except RefusedProgram as error:
        parent.send(CannotRun(str(error)))
        sys.exit(REFUSED)
    except (KafkaError, TypeError, ValueError, ExceptionGroup) as error:  # a group: of the program's tasks
        why = reason(error)
        if why is None:
            raise
        parent.send(why)
        sys.exit(LATER if why.for_now else REFUSED)


def reason(error: Exception) -> CannotRun | None:
    """Return why the program cannot run, now or at all; ``None``: it has failed, and people want the traceback."""
    errors = list(_alone(error))
    if all(isinstance(each, KafkaConfigurationError) or _is_of_options(each) for each in errors):
        return CannotRun(str(errors[0]))
    if all(isinstance(each, KafkaError) and each.retriable for each in errors):
        return CannotRun(f"{type(errors[0]).__name__}: {errors[0]}", for_now=True)
    return None


def _is_of_options(error: Exception) -> bool:
    """Whether an option is wrong: one that no consumer has, or a bad value. Other errors of these types are faults of a program.

    Options are checked where a consumer is made, or its configuration.
    """
    return isinstance(error, TypeError | ValueError) and any(
        f"{module}.".startswith("kafka_async.config.") or (module, frame.f_code.co_name) in _ASSEMBLING
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if (module := frame.f_globals.get("__name__")) is not None
    )


def _alone(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from _alone(each)
    else:
        yield error


if __name__ == "__main__":
    main()
