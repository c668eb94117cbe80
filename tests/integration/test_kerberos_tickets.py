"""Coming in with Kerberos tickets: a real KDC, a real libkrb5, a real broker."""

import time
from typing import Any

import pytest

from kafka_async.errors import AuthenticationFailedError

from .identity import Identity
from .kdc import READER, unavailable
from .tools import Consumer, new_topic, read

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(unavailable() is not None, reason=unavailable() or "it can"),
]


def consumer(identity: Identity, *topics: str, **options: Any) -> Consumer:
    assert identity.kdc is not None
    defaults = {
        "sasl_kerberos_domain_name": "localhost",
        "sasl_kerberos_principal": READER,
        "sasl_kerberos_keytab": identity.kdc.reader_keytab,
    }
    return identity.consumer("KERBEROS", *topics, **(defaults | options))


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_a_ticket_comes_in(kafka_identity: Identity, background: str) -> None:
    topic = new_topic(kafka_identity.cluster)
    kafka_identity.cluster.produce(topic, 20)
    async with consumer(kafka_identity, topic, group_id=f"g-{topic}", background=background) as reading:
        assert len(await read(reading, 20)) == 20


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sasl_kerberos_service_name": "nobody"}, "Kerberos, for nobody@localhost"),
        ({"sasl_kerberos_principal": "stranger@KAFKA.TEST"}, "Kerberos, for kafka@localhost"),
        ({"sasl_kerberos_keytab": "/nowhere/at.all"}, "with the keytab '/nowhere/at.all'"),
    ],
    ids=["service", "principal", "keytab"],
)
async def test_what_kerberos_refuses_is_said_at_once(kafka_identity: Identity, options: dict[str, Any], text: str) -> None:
    began = time.monotonic()
    reading = consumer(kafka_identity, "t", **options)
    with pytest.raises(AuthenticationFailedError) as caught:
        await reading.start()
    await reading.stop()
    assert text in str(caught.value)
    assert time.monotonic() - began < 10
