"""Coming in: TLS and SASL against a real broker, and what is said when the door stays shut."""

import base64
import logging
import ssl
import time
import traceback
from pathlib import Path
from typing import Any

import anyio
import pytest

from kafka_async.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaError,
    NoBrokersAvailable,
    SaslAuthenticationFailed,
    SslAuthenticationError,
)
from kafka_async.trace import TraceEvent

from .groups import java_tools
from .secure import ODD, PASSWORD, SIMPLE, Secure, login
from .tools import Consumer, make, new_topic, read

pytestmark = pytest.mark.brokers

AT_ONCE = 20.0
"""Seconds; far below ``default_api_timeout_ms`` and enough for a busy machine."""


async def refused(consumer: Consumer) -> KafkaError:
    """Start ``consumer`` in vain; return what was raised, which must come at once."""
    began = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        await consumer.start()
    await consumer.stop()
    assert time.monotonic() - began < AT_ONCE
    shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    assert not any(secret in shown for secret in (PASSWORD, SIMPLE, ODD))
    return caught.value


async def comes_in(secure: Secure, listener: str, **options: Any) -> None:
    """Read what was written over the plain listener."""
    topic = new_topic(secure.cluster)
    secure.cluster.produce(topic, 20)
    async with secure.consumer(listener, topic, **options) as consumer:
        assert len(await read(consumer, 20)) == 20


# SASL.


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_every_mechanism_comes_in_over_tls(kafka_secure: Secure, mechanism: str) -> None:
    await comes_in(kafka_secure, "TLSLOGIN", **login(mechanism=mechanism))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_mechanisms_come_in_without_tls(kafka_secure: Secure, mechanism: str) -> None:
    await comes_in(kafka_secure, "LOGIN", **login(mechanism=mechanism))


@pytest.mark.parametrize("user", ["odd,name=", "eve"])
async def test_names_and_passwords_of_any_kind_come_in_as_kafka_stores_them(kafka_secure: Secure, user: str) -> None:
    """Eve's password is another one after SASLprep; Kafka stores it as it is, and so do we say it."""
    await comes_in(kafka_secure, "LOGIN", **login(user))


async def test_a_delegation_token_comes_in(kafka_secure: Secure, tmp_path: Path) -> None:
    """Alice asks for a token with Java's tool; whoever has it reads as she does (KIP-48)."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    settings = tmp_path / "alice.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} required username="alice" password="{PASSWORD}";\n'
    )
    command = [*java_tools(), "org.apache.kafka.tools.DelegationTokenCommand", "--create", "--max-life-time-period", "-1"]
    command += ["--bootstrap-server", kafka_secure.cluster.listener("LOGIN"), "--command-config", str(settings)]
    done = await anyio.run_process(command)
    token, hmac = done.stdout.decode().splitlines()[-1].split()[:2]
    given = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": token, "sasl_plain_password": hmac}
    await comes_in(kafka_secure, "LOGIN", **given, sasl_scram_tokenauth=True)
    error = await refused(kafka_secure.consumer("LOGIN", **given))
    assert isinstance(error, AuthenticationFailedError)


async def test_a_group_comes_in_on_every_connection(kafka_secure: Secure) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 5)
    async with kafka_secure.consumer("TLSLOGIN", topic, group_id=f"g-{topic}", **login()) as consumer:
        await read(consumer, 5)
        await consumer.commit()
    assert kafka_secure.cluster.committed(f"g-{topic}") == {(topic, 0): 5}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_is_said_at_once(kafka_secure: Secure, mechanism: str) -> None:
    error = await refused(kafka_secure.consumer("LOGIN", "t", **login(mechanism=mechanism, password="wrong")))
    assert isinstance(error, AuthenticationFailedError)
    assert isinstance(error.__cause__, SaslAuthenticationFailed)
    assert str(error).startswith(kafka_secure.cluster.listener("LOGIN"))
    assert f"{mechanism}: the broker refused the credentials: Authentication failed" in str(error)


async def test_a_mechanism_that_the_listener_does_not_offer_names_those_that_it_does(kafka_secure: Secure) -> None:
    error = await refused(kafka_secure.consumer("LOGIN", "t", **login(mechanism="SCRAM-SHA-512")))
    assert isinstance(error, AuthenticationMethodNotSupported)
    assert "SCRAM-SHA-512: the broker does not offer this sasl_mechanism; it offers " in str(error)
    assert "PLAIN" in str(error)
    assert "SCRAM-SHA-256" in str(error)


async def test_sasl_to_a_port_without_it_names_the_option(kafka_secure: Secure) -> None:
    options = {"bootstrap_servers": kafka_secure.cluster.bootstrap_servers}
    error = await refused(kafka_secure.consumer("LOGIN", "t", **login(), **options))
    assert isinstance(error, AuthenticationFailedError)
    assert "security_protocol" in str(error)


async def test_no_sasl_to_a_port_that_demands_it_names_sasl(kafka_secure: Secure) -> None:
    error = await refused(make(kafka_secure.cluster, "t", bootstrap_servers=kafka_secure.cluster.listener("LOGIN")))
    assert isinstance(error, NoBrokersAvailable)
    assert "does the port demand SASL?" in str(error)


# Secrets.


def told(consumer: Consumer, seen: list[TraceEvent], errors: list[BaseException], log: str) -> str:
    """Everything that a program can show of a consumer."""
    traces = "".join("".join(traceback.format_exception(error)) for error in errors)
    return f"{consumer!r} {consumer.metrics()!r} {consumer.statistics()!r} {seen!r} {errors!r} {traces} {log}"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_no_secret_shows_in_logs_traces_metrics_or_errors(
    kafka_secure: Secure, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 3)
    seen: list[TraceEvent] = []
    options = {"trace": seen.append, "group_id": f"g-{topic}", "ssl_keystore_key": kafka_secure.text("client.pem")}
    options["ssl_keystore_certificate_chain"] = kafka_secure.text("client.pem")
    async with kafka_secure.consumer("TLSLOGIN", topic, **login(mechanism=mechanism), **options) as consumer:
        await read(consumer, 3)
        await consumer.commit()
    wrong = kafka_secure.consumer("TLSLOGIN", topic, **login(mechanism=mechanism, password=SIMPLE), **options)
    error = await refused(wrong)
    shown = told(consumer, seen, [], caplog.text) + told(wrong, seen, [error], "")
    assert "SaslAuthenticate" in shown, "the log does show what happened"
    raw = f"\0alice\0{PASSWORD}".encode()
    key = kafka_secure.text("client.pem").splitlines()[1]
    for secret in (PASSWORD, SIMPLE, base64.b64encode(PASSWORD.encode()).decode(), raw.hex(), key):
        assert secret not in shown


# TLS.


async def test_tls_comes_in_with_a_file_with_text_and_with_a_context(kafka_secure: Secure) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 20)
    for options in (
        {"ssl_cafile": kafka_secure.authority},
        {"ssl_truststore_certificates": kafka_secure.text("ca.pem")},
        {"ssl_context": ssl.create_default_context(cafile=kafka_secure.authority)},
    ):
        async with kafka_secure.consumer("TLS", topic, **options) as consumer:
            assert len(await read(consumer, 20)) == 20


async def test_mutual_tls_comes_in(kafka_secure: Secure) -> None:
    await comes_in(kafka_secure, "MUTUAL", ssl_certfile=kafka_secure.file("client.pem"))


async def test_mutual_tls_with_text_and_in_a_thread_comes_in(kafka_secure: Secure) -> None:
    text = kafka_secure.text("client.pem")
    options = {"ssl_keystore_certificate_chain": text, "ssl_keystore_key": text}
    await comes_in(kafka_secure, "MUTUAL", background="thread", **options)


@pytest.mark.parametrize("certificate", [None, "stranger.pem"])
async def test_a_broker_that_refuses_our_certificate_is_said_at_once(kafka_secure: Secure, certificate: str | None) -> None:
    options = {"ssl_certfile": kafka_secure.file(certificate)} if certificate else {}
    error = await refused(kafka_secure.consumer("MUTUAL", "t", **options))
    assert isinstance(error, SslAuthenticationError)
    assert "the broker refused our TLS credentials" in str(error)
    assert "ssl_certfile" in str(error)


@pytest.mark.parametrize(
    ("listener", "why", "advice"),
    [
        ("EXPIRED", "expired", "needs a new certificate"),
        ("ELSEWHERE", "not valid for '127.0.0.1'", "advertised.listeners"),
        ("SELFSIGNED", "self", "ssl_cafile"),
    ],
)
async def test_a_bad_certificate_is_said_at_once_with_what_to_do(
    kafka_secure: Secure, listener: str, why: str, advice: str
) -> None:
    error = await refused(kafka_secure.consumer(listener, "t"))
    assert isinstance(error, SslAuthenticationError)
    assert "the broker's certificate was refused" in str(error)
    assert why in str(error)
    assert advice in str(error)


async def test_an_unknown_authority_is_refused_before_the_password_is_said(kafka_secure: Secure) -> None:
    context = ssl.create_default_context()
    error = await refused(kafka_secure.consumer("TLSLOGIN", "t", ssl_context=context, **login(mechanism="PLAIN")))
    assert isinstance(error, SslAuthenticationError)
    assert "ssl_cafile" in str(error)


async def test_another_host_name_is_accepted_if_the_check_is_turned_off(kafka_secure: Secure) -> None:
    await comes_in(kafka_secure, "ELSEWHERE", ssl_check_hostname=False)


async def test_plain_to_a_tls_port_names_the_option(kafka_secure: Secure) -> None:
    error = await refused(make(kafka_secure.cluster, "t", bootstrap_servers=kafka_secure.cluster.listener("TLS")))
    assert isinstance(error, SslAuthenticationError)
    assert "this is a TLS port, set security_protocol='SSL' or 'SASL_SSL'" in str(error)


async def test_tls_to_a_plain_port_names_the_option(kafka_secure: Secure) -> None:
    error = await refused(kafka_secure.consumer("TLS", "t", bootstrap_servers=kafka_secure.cluster.bootstrap_servers))
    assert isinstance(error, NoBrokersAvailable)
    assert "does the port speak TLS? (security_protocol)" in str(error)
