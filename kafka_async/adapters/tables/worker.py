"""A process that reads a part of a scan: started by ``workers.py``, with what is to be done on standard input.

Each batch goes to the parent in memory of its own that has no name anywhere (``memfd_create``): only a file descriptor is sent, and
the parent maps what this process has written. So do tasks come here: the pieces of thousands of partitions are more than a message
may hold. Whatever else it tells the parent is data, and never an object to be made. When the parent is gone, so is this process,
whatever it is waiting for.
"""

import gc
import io
import json
import os
import pickle
import queue
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from ...errors import BrokerResponseError, CorruptRecordException, OffsetOutOfRangeError
from ...values import define, field
from ..ranges.planner import OffsetRange
from .streams import Job, Opened, read

AHEAD: Final = 2
"""Batches that the parent has not taken yet, at most."""
TASK: Final = b"T"
TAKEN: Final = b"A"
END: Final = b"E"
LARGEST: Final = 1 << 17
"""Bytes of a message at most; neither batches nor tasks are part of it."""
_LONGEST: Final = LARGEST // 16
"""Characters of a text in a message at most; one takes 12 bytes if it takes most."""
_MOST_OFFSETS: Final = 100
"""Partitions of an error whose offsets the parent gets to know."""


@define(eq=False)
class Parent:
    """The process that wants the batches."""

    link: socket.socket
    _tasks: "queue.SimpleQueue[tuple[OffsetRange, ...] | None]" = field(factory=queue.SimpleQueue, init=False)
    _room: threading.Semaphore = field(factory=lambda: threading.Semaphore(AHEAD), init=False)

    def listen(self) -> None:
        """Take its messages, until it is gone. Then end this process: nobody is there for whom anything could be done in order."""
        try:
            with suppress(ConnectionError):  # it may have died with messages of ours unread
                while (received := socket.recv_fds(self.link, len(TASK), 1))[0]:
                    self._take(received[0], received[1])
        finally:
            os._exit(0)

    def _take(self, kind: bytes, descriptors: list[int]) -> None:
        if kind == TASK:
            with io.FileIO(descriptors[0]) as file:
                file.seek(0)
                self._tasks.put(pickle.load(file))  # noqa: S301  # of the process that started this one
        elif kind == TAKEN:
            self._room.release()
        else:
            self._tasks.put(None)

    def tasks(self) -> Iterator[tuple[OffsetRange, ...]]:
        """Yield what is to be read."""
        while (task := self._tasks.get()) is not None:
            yield task

    def tell(self, *message: Any) -> None:
        """Send a message; of a long text only what it begins with."""
        self.link.send(json.dumps([part[:_LONGEST] if isinstance(part, str) else part for part in message]).encode())

    def send(self, batch: Any, passed: int) -> None:
        """Send a batch, once the parent has room for it."""
        self._room.acquire()
        with unnamed_file() as file:
            with pa.ipc.new_stream(file, batch.schema) as stream:
                stream.write_batch(batch)
            socket.send_fds(self.link, [json.dumps(("batch", file.tell(), passed)).encode()], [file.fileno()])


def unnamed_file() -> Any:
    """Return a file in memory without a name. Where there are none, it is on disk and has lost its name."""
    if hasattr(os, "memfd_create"):
        return io.FileIO(os.memfd_create("kafka_async scan"), "w+")
    return tempfile.TemporaryFile(buffering=0)


def main() -> None:
    """Read what the parent says. What goes wrong is told to it, and not to standard error."""
    parent = Parent(socket.socket(fileno=int(sys.argv[1])))
    try:
        job: Job = pickle.load(sys.stdin.buffer)  # noqa: S301  # of the process that started this one
        gc.freeze()
        gc.enable()  # what started this process has turned it off
        threading.Thread(target=parent.listen, name="kafka_async scan worker", daemon=True).start()
        for stretch in read(job, parent.tasks(), Opened(), lambda text: parent.tell("lost", text)):
            if stretch.batch is None:
                parent.tell("done", stretch.passed)
            elif stretch.batch.num_rows:
                parent.send(stretch.batch, stretch.passed)
            else:  # all of them are left out, such as those of bad values
                parent.tell("passed", stretch.passed)
    except Exception as error:
        with suppress(OSError):
            # A broker's error puts its name in front of its text: the parent's will do that again.
            text = " ".join(map(str, error.args)) if isinstance(error, BrokerResponseError) else str(error)
            parent.tell("error", type(error).__name__, text, _where(error))
        sys.exit(1)


def _where(error: Exception) -> dict[str, Any]:
    """Return what an error says besides its text."""
    if isinstance(error, OffsetOutOfRangeError):
        return {"offsets": [(*partition, offset) for partition, offset in list(error.offsets.items())[:_MOST_OFFSETS]]}
    if isinstance(error, CorruptRecordException):
        return {"topic": error.topic, "partition": error.partition, "offset": error.offset}
    return {}
