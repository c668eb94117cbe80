"""A process of PySpark's in which this package works: a worker of an executor, or one that plans for the driver.

It imports nothing of this package: what a task sends is unpickled here first, and the rest is imported after that.
"""

import contextlib
import gc
import os
import socket
import sys
from typing import Any, Final, TypeVar

T = TypeVar("T")

_STARTED_BY_SPARK: Final = "PYTHON_WORKER_FACTORY_SECRET"
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)  # Linux


def acknowledge() -> None:
    """Tell Spark at once that what it has sent over TCP arrived. To be called while Python unpickles the first part of a task.

    Spark sends a task in two parts with Nagle's algorithm on, so the second part, a few hundred bytes, waits until the first is
    acknowledged, and a receiver that has nothing to say delays that by 40 ms. A task of few records takes 10 ms otherwise.

    PySpark does not hand its connection to a data source, so each open file is asked. Connections to others are no worse off: the
    kernel forgets the wish after a few packets. Nothing is duplicated, since a copy would keep a connection open at its other end.
    """
    if _QUICKACK is None or _STARTED_BY_SPARK not in os.environ:
        return
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # not a socket, not of TCP, or closed by now
                connection = socket.socket(fileno=int(name))
                try:
                    connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
                finally:
                    connection.detach()


_modules = 0
"""How many modules were imported when objects were frozen last."""


def spare_collector() -> None:
    """Freeze the objects that are imported by now, in a worker process that is used again: the garbage collector then skips them.

    Such a PySpark worker collects after every task (``pyspark.daemon``) and cannot begin another one meanwhile. Visiting the
    70,000 objects of PySpark, Arrow and this package takes 30 ms, ten times as long as the work of a small task. They stay until
    the process ends anyway. Importing makes so many objects that they are visited meanwhile, too.

    Nothing is done if nothing was imported since the last time.
    """
    global _modules
    if os.environ.get("SPARK_REUSE_WORKER") and len(sys.modules) > _modules:
        _modules = len(sys.modules)
        gc.freeze()


class Arrival:
    """Goes in front of what a task needs: it is unpickled before the modules of the rest are imported."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, ()


def _arrived() -> None:
    acknowledge()
    spare_collector()


def received(_arrival: object, parts: T) -> T:
    """Return the parts of a Spark reader that a task needs, so that a task need not import the reader's own modules.

    Called where a reader is unpickled, which is in a worker, for each task.
    """
    return parts
