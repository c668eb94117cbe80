"""A Kafka cluster in memory that speaks bytes.

    cluster.py      brokers, topics, leaders; what tests do to them; the log of requests; ``control``
    broker.py       one broker: frames in, frames out
    handlers.py     the answers, one function per API, in a table that can be added to
    sessions.py     Fetch with sessions (KIP-227), long poll, preferred replicas (KIP-392), leader hints (KIP-951)
    log.py          one partition's batches, transactions and epochs
    link.py         the network: latency, chunks, connections that break, hang or are refused
    versions.py     which versions brokers of some releases accept

It must never sleep in real time: it waits through anyio, so that tests run it under a virtual clock.
"""

from .broker import HANG, Drop, FakeBroker
from .cluster import FakeCluster, FakeTopic, LoggedRequest
from .link import LastBytes
from .log import PartitionLog
from .versions import KAFKA_2_1, KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, WITH_TELEMETRY

__all__ = [
    "HANG",
    "KAFKA_2_1",
    "KAFKA_2_8",
    "KAFKA_3_9",
    "KAFKA_4_3",
    "WITH_TELEMETRY",
    "Drop",
    "FakeBroker",
    "FakeCluster",
    "FakeTopic",
    "LastBytes",
    "LoggedRequest",
    "PartitionLog",
]
