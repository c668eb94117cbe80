"""A process of PySpark's in which this package works: a worker of an executor, or one that plans for the driver."""

import functools
import gc
import os


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
