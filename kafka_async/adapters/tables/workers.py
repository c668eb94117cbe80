"""Processes that share the reading of a scan, and send what they read as it is, in shared memory.

Workers are new processes that import this package and nothing of the program: neither forks, which threads of polars, DuckDB and
pyarrow do not survive, nor multiprocessing, which would run the program's own file again. What they need, secrets among it, goes
through standard input.

A worker that dies is an error that names what it was reading: a table is whole, or there is none.
"""

import json
import mmap
import os
import pickle
import selectors
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from ... import errors
from ...errors import ConsumerStoppedError, KafkaConfigurationError, WorkerError
from ...model import TopicPartition
from ...values import define, field
from ..ranges.planner import OffsetRange
from .streams import Job, Stretch
from .worker import END, LARGEST, TAKEN, TASK, unnamed_file

_START: Final = (
    # What is imported stays: to look for garbage among it meanwhile is a fifth of what it takes.
    "import gc, json, sys; gc.disable(); sys.path[:] = json.loads(sys.stdin.buffer.readline()); "
    "from kafka_async.adapters.tables.worker import main; main()"
)
_SURROUNDINGS: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""pyarrow imports numpy, which would start a thread for each processor, and these spin for a tenth of a second for nothing."""
_PATIENCE: Final = 5.0
"""Seconds that a worker whose connection has ended has to say how it died."""

Task = tuple[OffsetRange, ...]


@define(eq=False)
class Worker:
    """One process."""

    link: socket.socket
    process: "subprocess.Popen[bytes]"
    task: Task = ()
    """What it reads."""

    def begin(self, task: Task) -> None:
        """Have it read a task; an empty one: it may end."""
        self.task = task
        with suppress(ConnectionError):  # it has died, which its silence will tell
            if not task:
                self.link.send(END)
                return
            with unnamed_file() as file:
                file.write(pickle.dumps(task))
                socket.send_fds(self.link, [TASK], [file.fileno()])

    def taken(self) -> None:
        """It may send another batch."""
        with suppress(ConnectionError):
            self.link.send(TAKEN)

    def receive(self) -> tuple[Any, ...] | None:
        """Return its next message, a batch in place of its size; ``None``: there will be none any more."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.link, LARGEST, 1)
        except OSError:
            data, descriptors = b"", []
        if not data:
            return None
        kind, *rest = json.loads(data)
        if kind != "batch":
            return (kind, *rest)
        size, passed = rest
        try:
            mapped = mmap.mmap(descriptors[0], size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptors[0])
        return kind, pa.ipc.open_stream(pa.py_buffer(mapped)).read_next_batch(), passed

    def death(self) -> WorkerError:
        """Return the error about a process that ended before its work."""
        try:
            code = self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        if code is None:
            how = "ended its connection"
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        ranges = ", ".join(f"{piece.partition} from {piece.start} to {piece.end}" for piece in self.task) or "nothing yet"
        return WorkerError(f"a process that read a part of the scan {how}; it was reading {ranges}")


@define(eq=False)
class Workers:
    """The processes of one reading. Iterated over once; ``stop`` may be called from any thread."""

    job: Job
    tasks: Sequence[Task]
    count: int
    report: Callable[[str], None]
    _workers: list[Worker] = field(factory=list, init=False)
    _stopped: threading.Event = field(factory=threading.Event, init=False)

    def stop(self, timeout_ms: float | None = None) -> None:
        """Have the processes end, and whoever iterates get ``ConsumerStoppedError``."""
        self._stopped.set()
        for worker in list(self._workers):
            with suppress(OSError):
                worker.link.shutdown(socket.SHUT_RDWR)

    def __iter__(self) -> Iterator[Stretch]:
        try:
            job = pickle.dumps(self.job)
        except Exception as error:
            raise KafkaConfigurationError(f"processes: {_unsendable(self.job) or error}") from error
        left = deque(self.tasks)
        try:
            for _ in range(min(self.count, len(left))):
                self._workers.append(_started(job))
                if self._stopped.is_set():  # ``stop`` may not have seen this one
                    raise ConsumerStoppedError("the scan was stopped")
            with selectors.DefaultSelector() as selector:
                for worker in self._workers:
                    worker.begin(left.popleft())
                    selector.register(worker.link, selectors.EVENT_READ, worker)
                yield from self._stretches(selector, left)
        finally:
            self._end()

    def _stretches(self, selector: selectors.BaseSelector, left: "deque[Task]") -> Iterator[Stretch]:
        while selector.get_map():
            for key, _ in selector.select():
                worker: Worker = key.data
                match worker.receive():
                    case ("batch", batch, passed):
                        yield Stretch(batch, passed)
                        worker.taken()
                    case ("passed", passed):
                        yield Stretch(None, passed)
                    case ("done", passed):
                        worker.begin(left.popleft() if left else ())
                        if not worker.task:
                            selector.unregister(worker.link)
                        yield Stretch(None, passed)
                    case ("lost", text):
                        self.report(text)
                    case ("error", name, text, where):
                        raise error_of(name, text, where)
                    case _:
                        if self._stopped.is_set():
                            raise ConsumerStoppedError("the scan was stopped")
                        raise worker.death()

    def _end(self) -> None:
        self.stop()
        for worker in self._workers:
            worker.link.close()
            # It has nothing to end in order, and one that is still importing does not see that its link was closed.
            worker.process.kill()
        for worker in self._workers:
            worker.process.wait()


def _started(job: bytes) -> Worker:
    """Start a worker. It is in a process group of its own, so that Ctrl-C reaches this process alone, which then ends it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603  # our own command line
                [sys.executable, "-c", _START, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
                env={**os.environ, **_SURROUNDINGS},
            )
        except BaseException:
            ours.close()
            raise
    assert process.stdin is not None  # noqa: S101 - a pipe
    with suppress(BrokenPipeError), process.stdin as pipe:  # one that dies is noticed by its silence
        pipe.write(json.dumps(sys.path).encode() + b"\n" + job)
    return Worker(ours, process)


def _unsendable(job: Job) -> str | None:
    """Return which option of the consumer no other process can have; ``None``: something else is wrong."""
    for name, value in job.options.items():
        try:
            pickle.dumps(value)
        except Exception as error:  # whatever an object does to be pickled
            return f"the option {name} cannot be sent to another process: {error}"
    return None


def error_of(name: str, text: str, where: Mapping[str, Any]) -> Exception:
    """Return an error of a worker: one of ours again, as far as what it has told makes one."""
    cls = getattr(errors, name, None)
    if isinstance(cls, type) and issubclass(cls, errors.KafkaError):
        if "offsets" in where:
            where = {"offsets": {TopicPartition(topic, partition): offset for topic, partition, offset in where["offsets"]}}
        with suppress(TypeError):
            error: Exception = cls(text, **where)
            error.add_note("raised in a process that read a part of the scan")
            return error
    return WorkerError(f"a process that read a part of the scan failed: {name}: {text}")
