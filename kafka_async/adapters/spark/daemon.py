"""A daemon for Spark's Python workers that has imported what a task needs.

Set ``spark.python.daemon.module=kafka_async.adapters.spark.daemon`` when a session starts.

It starts no thread and opens no connection: neither outlives a fork.

Spark forks its workers from a daemon that has imported PySpark, and throws a worker away when a query stops early, as ``show()``,
``take()`` and ``limit()`` do. The next task then has a new worker, which imports Arrow and this package anew unless the daemon did.
"""

import sys
from zipimport import zipimporter


def preload() -> None:
    """Import what reading needs. Raises nothing: a worker for other work must start even if this fails."""
    try:
        _import_all()
        _forget_archives()
    except Exception as error:  # said where it is read: in the executor's log
        print(f"kafka_async: preloading failed, workers import by themselves: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201


def _import_all() -> None:
    """Import what most tasks need. The one thread that this starts is of Arrow's allocator, which expects forks."""
    import pyarrow.compute
    import pyspark.worker
    from anyio._backends import _asyncio
    from pyspark.sql.worker import plan_data_source_read

    from ...application.lifecycle import otlp, starting
    from ...background.cluster import telemetry
    from ...config import texts
    from ...network import transport
    from .. import sync
    from . import columns, connections, source, task

    otlp.missing()
    _ = (pyarrow.compute, pyspark.worker, _asyncio, plan_data_source_read, starting, telemetry, transport, sync)
    _ = (texts, columns, connections, source, task)


def _forget_archives() -> None:
    """Have workers not read the directories of ``pyspark.zip`` and of Spark's jar anew, which takes each 80 ms.

    A worker invalidates the caches of all importers that are known here, since Spark adds a folder to its path. In Python 3.11 and
    3.12 that reads a directory again for each package within an archive. Importers that are not known are made when needed.
    """
    for place, importer in [*sys.path_importer_cache.items()]:
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[place]


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    manager()
