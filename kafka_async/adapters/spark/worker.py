"""A process of PySpark's in which this package works: a worker of an executor, or one that plans for the driver.

Decides: what is set in such a process. Owns: a handle of the connection to Spark. Must never touch a process that Spark did not
start, or fail: all of this only saves time.
"""

import contextlib
import functools
import gc
import os
import socket
import stat
from typing import Any, Final

_STARTED_BY_SPARK: Final = "PYTHON_WORKER_FACTORY_SECRET"
_INET: Final = (socket.AF_INET, socket.AF_INET6)
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)  # Linux


@functools.cache
def spare_collector() -> None:
    """Have the garbage collector pass over what is imported by now, once in a worker process that is used again.

    Such a worker of PySpark's collects after every task (``pyspark.daemon``) and cannot begin another one meanwhile. To look at the
    70,000 objects of PySpark, Arrow and this package takes it 30 ms, ten times as long as the work of a small task. They stay until
    the process ends anyway.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        gc.freeze()


def acknowledge() -> None:
    """Tell Spark at once that what it sent has arrived.

    Spark sends a task in two parts and leaves Nagle's algorithm on: the second part, a few hundred bytes, waits until the first is
    acknowledged, and that is delayed by 40 ms where nobody asks for it. A task of few records takes 10 ms otherwise. To be called
    between the two, which is while Python unpickles the first.
    """
    if _QUICKACK is None:
        return
    for connection in _to_spark():
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)  # not kept by the kernel: it is for what has come so far


class SentToWorkers:
    """Base of what Spark sends to its workers: it is acknowledged as it is unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        acknowledge()
        self.__dict__.update(state)


@functools.cache
def _to_spark() -> tuple[socket.socket, ...]:
    """Return the connection to Spark, if it is TCP.

    Nobody hands it to a data source, so it is looked for among the open files, before this package connects to anything. Another
    connection that may be there is taken along: sooner acknowledged, it is none the worse.
    """
    found: dict[object, socket.socket] = {}
    if _STARTED_BY_SPARK in os.environ:
        with contextlib.suppress(OSError):
            for name in os.listdir("/dev/fd"):
                _note(int(name), found)
    return tuple(found.values())


def _note(number: int, found: dict[object, socket.socket]) -> None:
    """Add a copy of an open file where it is a TCP connection that is not there yet; PySpark itself has several copies."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # OSError: closed by now, or not connected
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return
        copy = stack.enter_context(socket.socket(fileno=os.dup(number)))
        ends = copy.getsockname(), copy.getpeername()
        if copy.family in _INET and copy.type == socket.SOCK_STREAM and ends not in found:
            found[ends] = copy
            stack.pop_all()
