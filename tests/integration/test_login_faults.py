"""Each step of a login meets each fault of a network, once."""

import asyncio
import time
from typing import Any, Final

import pytest

from kafka_async.errors import KafkaConnectionError, KafkaTimeoutError
from tests.faults.proxy import Strike, Way, in_front_of

from .secure import Secure, login
from .test_network_faults import FAULTS, RECORDS, SHORT
from .tools import new_topic, offsets, read

pytestmark = pytest.mark.brokers

AUTHENTICATION: Final = {"handshake": 17, "credentials": 36}


async def test_a_fault_while_logging_in_is_a_typed_error_or_another_try(kafka_secure: Secure) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, RECORDS)

    async def live(api: int, way: Way, strike: Strike) -> None:
        async with in_front_of(kafka_secure.cluster.listener("LOGIN")) as proxy:
            trap = proxy.everyone.set_trap(api, way, strike)
            options: dict[str, Any] = {"bootstrap_servers": proxy.bootstrap_servers, **SHORT, **login()}
            began = time.monotonic()
            try:
                async with kafka_secure.consumer("LOGIN", topic, **options) as consumer:
                    assert offsets(await read(consumer, RECORDS)) == {0: list(range(RECORDS))}
            except (KafkaConnectionError, KafkaTimeoutError):
                assert time.monotonic() - began < SHORT["request_timeout_ms"] / 1000 + 15
            assert trap.sprung.is_set()

    await asyncio.gather(*(live(api, way, strike) for api in AUTHENTICATION.values() for way, strike in FAULTS))
