"""A daemon for Spark's Python workers that has imported what a task needs.

Set ``spark.python.daemon.module=kafka_async.adapters.spark.daemon`` when a session starts.

It starts no thread and opens no connection: neither outlives a fork.

Spark forks its workers from a daemon that has imported PySpark, and throws a worker away when a query stops early, as ``show()``,
``take()`` and ``limit()`` do. The next task then has a new worker, which imports Arrow and this package anew unless the daemon did.
"""

import sys


def preload() -> None:
    """Import what reading needs. Raises nothing: a worker for other work must start even if this fails."""
    try:
        _import_all()
    except Exception as error:  # said where it is read: in the executor's log
        print(f"kafka_async: preloading failed, workers import by themselves: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201


def _import_all() -> None:
    """Import what most tasks need first. The one thread that this starts is of Arrow's allocator, which expects forks."""
    import pyarrow.compute
    from anyio._backends import _asyncio
    from pyspark.sql.worker import plan_data_source_read

    from .. import sync
    from . import columns, connections, source, task

    _ = (pyarrow.compute, _asyncio, plan_data_source_read, sync, columns, connections, source, task)


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    manager()
