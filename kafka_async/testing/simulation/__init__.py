"""A Kafka cluster in memory that speaks bytes.

    cluster.py      brokers, topics, leaders; what tests do to them
    broker.py       one broker: frames in, frames out
    handlers.py     the answers, one function per API, in a table that tests can add to
    sessions.py     Fetch with sessions (KIP-227), long poll, preferred replicas (KIP-392), leader hints (KIP-951)
    producing.py    Produce, and the transactions of producers
    admin.py        requests of tools about topics
    group_admin.py  the same about groups
    config_admin.py the same about settings
    sharing.py      share groups: heartbeats, sessions, fetches, acknowledgements
    share_partition.py  one group's view of one partition: who holds which record
    dead_letters.py what brokers write about records that a share group has given up
    share_admin.py  requests of tools about share groups
    kafka_settings.py     which settings topics, groups and brokers may have
    log.py          one partition's batches, transactions and epochs
    traffic.py      what arrived, and the control functions
    groups/         the coordinator, and committed offsets
    link.py         the network: latency, chunks, connections that break, hang or are refused
    waking.py       waiting for changes, and answers that take time
    versions.py     which versions brokers of some releases accept

It waits through anyio, so that tests run it under a virtual clock.
"""

from .broker import HANG, LOSE, Drop, FakeBroker
from .cluster import FakeCluster, FakeTopic
from .link import FakeNetwork, LastBytes
from .log import PartitionLog
from .traffic import LoggedRequest
from .versions import KAFKA_2_1, KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, KAFKA_4_4, WITH_TELEMETRY

__all__ = [
    "HANG",
    "KAFKA_2_1",
    "KAFKA_2_8",
    "KAFKA_3_9",
    "KAFKA_4_3",
    "KAFKA_4_4",
    "LOSE",
    "WITH_TELEMETRY",
    "Drop",
    "FakeBroker",
    "FakeCluster",
    "FakeNetwork",
    "FakeTopic",
    "LastBytes",
    "LoggedRequest",
    "PartitionLog",
]
