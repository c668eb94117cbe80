"""Fixtures for tests against real Apache Kafka brokers.

Decides: which clusters there are and how they are set up. Owns: the clusters, one of each per session, started when first asked
for; ``tests/clusters.py`` decides when they rest. Must never let a machine without Java pass for a success if CI demands brokers.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.brokers import CURRENT, OLDER, PREVIOUS, KafkaCluster, available, required
from tests.clusters import SHARED
from tests.faults.proxy import PROXIED

from .identity import Identity, identity_broker
from .secure import Secure, secure_broker
from .share import share_properties

_SINGLE = {
    # Everything is allowed, unless a test makes a rule.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "true",
    "log.cleaner.backoff.ms": "100",  # 15 s by default, which is how long a test of compaction would wait
    "message.max.bytes": str(16 << 20),
    "replica.fetch.max.bytes": str(16 << 20),
}
_FEW_SESSIONS = {"max.incremental.fetch.session.cache.slots": "8", "min.incremental.fetch.session.eviction.ms": "100"}


@pytest.fixture(scope="session")
def real_brokers() -> None:
    """Skip what needs a broker if none can run, with the reason; fail it if CI demands one."""
    reason = available()
    if reason is not None and required():
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)


@contextmanager
def _shared(kind: str, cluster: KafkaCluster) -> Iterator[None]:
    """``kind``: the name of the fixture that yields the cluster."""
    SHARED.add(kind, cluster)
    try:
        yield
    finally:
        SHARED.remove(kind)


@pytest.fixture(scope="session")
def kafka44(real_brokers: None) -> Iterator[KafkaCluster]:
    """One broker of the newest Kafka. A test that breaks it brings it back."""
    with KafkaCluster(CURRENT, properties=_SINGLE) as cluster, _shared("kafka44", cluster):
        yield cluster


@pytest.fixture(scope="session")
def kafka_share(real_brokers: None) -> Iterator[KafkaCluster]:
    """One broker that serves share groups, directly and through a proxy."""
    listeners = {PROXIED: "PLAINTEXT"}
    cluster = KafkaCluster(CURRENT, properties=share_properties(), listeners=listeners, proxied=[PROXIED])
    with cluster, _shared("kafka_share", cluster):
        yield cluster


@pytest.fixture(scope="session")
def kafka43(real_brokers: None) -> Iterator[KafkaCluster]:
    """One broker of the release before the newest."""
    with _older(PREVIOUS) as cluster, _shared("kafka43", cluster):
        yield cluster


@pytest.fixture(params=["kafka39", "kafka43"])
def older(request: pytest.FixtureRequest) -> KafkaCluster:
    """One broker of each older release that is tested."""
    cluster: KafkaCluster = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture(scope="session")
def kafka39(real_brokers: None) -> Iterator[KafkaCluster]:
    """One broker of the last 3.x line, which forgets fetch sessions (KIP-227) soon when there are more than a few."""
    with _older(OLDER) as cluster, _shared("kafka39", cluster):
        yield cluster


def _older(version: str) -> KafkaCluster:
    return KafkaCluster(version, properties=_SINGLE | _FEW_SESSIONS, listeners={PROXIED: "PLAINTEXT"}, proxied=[PROXIED])


@pytest.fixture(scope="session")
def _three_brokers(real_brokers: None) -> Iterator[KafkaCluster]:
    properties = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "broker.rack": "rack-{broker}",
    }
    listeners = {PROXIED: "PLAINTEXT"}
    cluster = KafkaCluster(CURRENT, brokers=3, properties=properties, heap_mb=256, listeners=listeners, proxied=[PROXIED])
    with cluster, _shared("_three_brokers", cluster):
        yield cluster


@pytest.fixture
def kafka_cluster3(_three_brokers: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three brokers, broker n in rack ``rack-n``; whatever a test does to them is healed after it, and its topics go."""
    yield _three_brokers
    _three_brokers.heal()
    _three_brokers.clear()


@pytest.fixture(scope="session")
def kafka_secure(real_brokers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """One broker with TLS, SASL and an authorizer."""
    with secure_broker(tmp_path_factory.mktemp("certificates")) as secure, _shared("kafka_secure", secure.cluster):
        yield secure


@pytest.fixture(scope="session")
def kafka_identity(real_brokers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Identity]:
    """One broker that takes tokens and tickets, with the token endpoint and the KDC that give them."""
    with identity_broker(tmp_path_factory.mktemp("kdc")) as identity, _shared("kafka_identity", identity.cluster):
        yield identity


@pytest.fixture(scope="session")
def spark(real_brokers: None) -> Iterator[Any]:
    """Spark in this process, with our source and Spark's own connector."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
    from .spark import new_session

    session = new_session()
    yield session
    session.stop()


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """Fail a test that leaves a task or a background thread behind."""
    before = asyncio.all_tasks()
    running = set(threading.enumerate())
    yield
    tasks = {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
    assert not tasks, f"tasks are left: {tasks}"
    threads = [thread for thread in set(threading.enumerate()) - running if thread.name.startswith("kafka_async")]
    for thread in threads:
        thread.join(2.0)  # its last step, after stop() returned, is to end
    assert not any(thread.is_alive() for thread in threads), f"threads are left: {threads}"
