"""A process of PySpark's in which this package works: a worker of an executor, or one that plans for the driver."""

import contextlib
import functools
import gc
import os
import socket
from typing import Final

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


@functools.cache
def spare_collector() -> None:
    """Freeze the objects that are imported by now, once in a worker process that is used again, so that the garbage collector skips
    them.

    Such a PySpark worker collects after every task (``pyspark.daemon``) and cannot begin another one meanwhile. Visiting the
    70,000 objects of PySpark, Arrow and this package takes 30 ms, ten times as long as the work of a small task. They stay until
    the process ends anyway.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        gc.freeze()
