"""KIP-368 on a real broker: sessions of 4 s under load, and a session that is not renewed.

A session is renewed when 95 % of it are over at the latest, so a busy machine may be 0.2 s late."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark what it re-exports
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafka_async import TopicPartition
from kafka_async.errors import AuthenticationFailedError
from kafka_async.trace import ConnectionClosed, Fault, RequestFailed, RequestSent, TraceEvent
from tests.effort import apart

from .secure import REAUTH_MS, SIMPLE, Secure, login
from .tools import PATIENCE, all_of, eventually, new_topic, read

pytestmark = pytest.mark.brokers

RECORDS = 50_000
SESSIONS = 3


@pytest.mark.parametrize("protocol", ["classic", *apart("consumer")])
async def test_sessions_are_renewed_under_load_without_losing_a_request(kafka_secure: Secure, protocol: str) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, RECORDS, 200)
    (partition,) = all_of(topic)
    seen: list[TraceEvent] = []
    mechanism = "SCRAM-SHA-512" if protocol == "classic" else "PLAIN"
    options: dict[str, Any] = {"group_protocol": protocol, "group_id": f"g-{topic}", "enable_auto_commit": False}
    options |= {"trace": seen.append, **login(mechanism=mechanism)}
    if protocol == "classic":
        options["heartbeat_interval_ms"] = 100
    async with kafka_secure.consumer("REAUTH", topic, **options) as consumer:
        await read(consumer, 1)
        seen.clear()
        expected = beginning = await consumer.position(partition)
        ends = time.monotonic() + SESSIONS * REAUTH_MS / 1000
        commits = 0
        while time.monotonic() < ends or not commits:
            for record in (await consumer.getmany(timeout_ms=1_000, max_records=5_000)).get(partition, ()):
                assert record.offset == expected
                expected += 1
            if expected == RECORDS:
                await consumer.commit()
                commits += 1
                consumer.seek(partition, beginning)
                expected = beginning
        assert await consumer.committed(partition) == RECORDS
        assert commits
        seen = list(seen)  # what stopping ends is not counted
    assert not [event for event in seen if isinstance(event, Fault | RequestFailed | ConnectionClosed) and event.error is not None]
    handshakes = Counter(event.node for event in seen if isinstance(event, RequestSent) and event.api == "SaslHandshake")
    assert {lane.rsplit(" ", 1)[-1] for lane in handshakes} >= {"fetch", "group"}
    assert min(handshakes[node] for node in handshakes if node.endswith(("fetch", "group"))) >= SESSIONS - 1
    assert sum(isinstance(event, RequestSent) and "Heartbeat" in event.api for event in seen) >= SESSIONS


async def test_a_password_that_was_changed_is_said_and_reading_goes_on_when_it_is_back(kafka_secure: Secure) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 10)
    set_password(kafka_secure, "mallory", SIMPLE)
    options = login("mallory", "SCRAM-SHA-512", SIMPLE)
    async with kafka_secure.consumer("REAUTH", **options) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await read(consumer, 10)
        set_password(kafka_secure, "mallory", "another-one")
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(AuthenticationFailedError, match="refused the credentials") as caught:
                await read(consumer, 1)
        assert SIMPLE not in str(caught.value)
        assert time.monotonic() - began < 4 * REAUTH_MS / 1000
        set_password(kafka_secure, "mallory", SIMPLE)
        kafka_secure.cluster.produce(topic, 5, start=10)

        async def more() -> list[int]:
            try:
                return [record.offset for record in await read(consumer, 5)]
            except AuthenticationFailedError:
                return []

        assert await eventually(more) == [10, 11, 12, 13, 14]


def set_password(secure: Secure, user: str, password: str) -> None:
    """Store a password; it holds for the next authentication."""
    upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode())
    for result in secure.cluster.admin.alter_user_scram_credentials([upsertion]).values():
        result.result()
