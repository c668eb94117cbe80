"""Fixtures for tests against real Apache Kafka brokers.

Decides: which clusters there are and how they are set up. Owns: the clusters, one of each per session, started when first asked
for. Must never let a machine without Java pass for a success where CI demands the brokers.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.brokers import CURRENT, OLDER, KafkaCluster, available, required
from tests.faults.proxy import PROXIED

from .identity import Identity, identity_broker
from .secure import Secure, secure_broker

_SINGLE = {
    # Everybody may do everything, but where a test makes a rule.
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
    """Skip what needs a broker where none can run, with the reason; fail it where CI demands one."""
    reason = available()
    if reason is not None and required():
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def kafka43(real_brokers: None) -> Iterator[KafkaCluster]:
    """One broker of the newest Kafka. A test that breaks it brings it back."""
    with KafkaCluster(CURRENT, properties=_SINGLE) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka39(real_brokers: None) -> Iterator[KafkaCluster]:
    """One broker of the last 3.x line, which forgets fetch sessions (KIP-227) soon when there are more than a few."""
    with KafkaCluster(OLDER, properties=_SINGLE | _FEW_SESSIONS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _three_brokers(real_brokers: None) -> Iterator[KafkaCluster]:
    properties = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "broker.rack": "rack-{broker}",
    }
    listeners = {PROXIED: "PLAINTEXT"}
    with KafkaCluster(CURRENT, brokers=3, properties=properties, heap_mb=256, listeners=listeners, proxied=[PROXIED]) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster3(_three_brokers: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three brokers, broker n in rack ``rack-n``; whatever a test does to them is healed after it."""
    yield _three_brokers
    _three_brokers.heal()


@pytest.fixture(scope="session")
def kafka_secure(real_brokers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """One broker with TLS, SASL and an authorizer."""
    with secure_broker(tmp_path_factory.mktemp("certificates")) as secure:
        yield secure


@pytest.fixture(scope="session")
def kafka_identity(real_brokers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Identity]:
    """One broker that takes tokens and tickets, with the token endpoint and the KDC that give them."""
    with identity_broker(tmp_path_factory.mktemp("kdc")) as identity:
        yield identity


@pytest.fixture(scope="session")
def spark(real_brokers: None) -> Iterator[Any]:
    """Spark in this process, with our source and Spark's own connector."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'kafka-async[spark]'")
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
