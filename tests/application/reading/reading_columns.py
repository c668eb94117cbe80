"""A program that reads columns for the first time, and prints what was imported meanwhile, and where."""

import asyncio
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from kafka_async import KafkaConsumer
from kafka_async.testing import Cluster


class Watch(MetaPathFinder):
    """Notes the threads that import of pyarrow and pandas."""

    def __init__(self) -> None:
        self.seen: dict[str, bool] = {}
        """By package: whether the event loop stood still meanwhile."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        package = name.partition(".")[0]
        if package in ("pyarrow", "pandas"):
            self.seen[package] = self.seen.get(package, False) or threading.current_thread() is threading.main_thread()


async def main() -> None:
    """Read a batch of columns."""
    watch = Watch()
    sys.meta_path.insert(0, watch)
    cluster = Cluster()
    cluster.topic("t", partitions=1)
    for number in range(10):
        cluster.produce("t", key=b"k", value=b"%d" % number, headers=[("a", b"1")])
    options = cluster.options()
    async with KafkaConsumer("t", auto_offset_reset="earliest", **options) as consumer, KafkaConsumer("t", **options) as other:
        first = asyncio.create_task(consumer.getarrow(timeout_ms=5000))
        later = []
        while not first.done():  # others find a part of what is being imported, and have to wait for the rest
            await asyncio.sleep(0.005)
            later.append(asyncio.create_task(other.getarrow()))
        await asyncio.gather(*later)
        batch = first.result()
    sys.stdout.write(f"{batch.num_rows} {watch.seen}")


asyncio.run(main())
