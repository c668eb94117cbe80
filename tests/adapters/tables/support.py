"""A simulated cluster on TCP: scans block the thread that reads them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import define

from kafka_async import TopicPartition
from kafka_async.adapters.tables.scan import Scan, scan
from kafka_async.testing import Cluster, ThreadedCluster

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@define(eq=False)
class Scanned:
    """A cluster that is served, and scans of it. ``cluster`` may be changed while nothing reads."""

    cluster: Cluster
    served: ThreadedCluster

    def scan(self, *topics: str, **options: Any) -> Scan:
        return scan(*topics, bootstrap_servers=self.served.bootstrap, **options)

    def do(self, work: Any) -> Any:
        """Call ``work`` with the cluster, in its thread."""
        return self.served.call(work).result(10)


@contextmanager
def scanned(**options: Any) -> Iterator[Scanned]:
    """Serve a cluster for as long as the block lasts."""
    cluster = Cluster(**options)
    with ThreadedCluster(cluster) as served:
        yield Scanned(cluster, served)


@contextmanager
def filled(count: int = 100, partitions: int = 1) -> Iterator[Scanned]:
    """Serve a cluster with a topic ``a`` of ``count`` records in each partition."""
    with scanned() as found:
        found.do(lambda cluster: cluster.topic("a", partitions=partitions))
        for partition in range(partitions):
            values = [b"%d" % number for number in range(count)]
            found.do(lambda cluster, values=values, partition=partition: cluster.produce_many("a", values, partition=partition))
        yield found


def offsets(table: Any) -> Sequence[int]:
    """Return the offsets of a table or a batch."""
    found: Sequence[int] = table.column("offset").to_pylist()
    return found
