"""Coming in with tokens: providers, a token endpoint, signatures that a real broker checks, sessions that end with their token."""

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kafka_async import AbstractTokenProvider
from kafka_async.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError
from tests.token_endpoint import Reply

from .identity import Identity, unsigned
from .tools import Consumer, new_topic, read, until

pytestmark = [pytest.mark.brokers, pytest.mark.filterwarnings("ignore:.*used without TLS:RuntimeWarning")]

SECRET = "pencil-of-the-client"  # for these tests
AT_ONCE = 20.0
"""Seconds; far below ``default_api_timeout_ms`` and enough for a busy machine."""


class Own(AbstractTokenProvider):
    """Makes a new unsigned token each time."""

    def __init__(self, lifetime: float = 3600) -> None:
        self.lifetime = lifetime
        self.made: list[str] = []

    async def token(self) -> str:
        self.made.append(unsigned(self.lifetime, number=len(self.made)))
        return self.made[-1]


def client(identity: Identity, **options: Any) -> dict[str, Any]:
    """Options for tokens from the endpoint."""
    defaults = {
        "sasl_oauthbearer_token_endpoint_url": identity.endpoint.url,
        "sasl_oauthbearer_client_credentials_client_id": "client",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
        "sasl_oauthbearer_allow_http": True,
    }
    return defaults | options


async def comes_in(identity: Identity, listener: str, **options: Any) -> None:
    """Read what was written over the plain listener, in a group."""
    topic = new_topic(identity.cluster)
    identity.cluster.produce(topic, 20)
    async with identity.consumer(listener, topic, group_id=f"g-{topic}", **options) as consumer:
        assert len(await read(consumer, 20)) == 20


async def refused(consumer: Consumer) -> KafkaError:
    """Start ``consumer`` in vain; return what was raised, which must come at once."""
    began = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        await consumer.start()
    await consumer.stop()
    assert time.monotonic() - began < AT_ONCE
    return caught.value


@pytest.mark.parametrize("provider", [Own(), unsigned, Own().token], ids=["object", "plain callable", "async callable"])
async def test_an_own_provider_comes_in(kafka_identity: Identity, provider: Any) -> None:
    await comes_in(kafka_identity, "UNSIGNED", sasl_oauth_token_provider=provider)


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_client_credentials_come_in_and_ask_once(
    kafka_identity: Identity, background: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asked, tokens = kafka_identity.endpoint.asked, kafka_identity.endpoint.tokens
    asked.clear()
    await comes_in(kafka_identity, "SIGNED", background=background, **client(kafka_identity))
    assert len(asked) == 1
    assert tokens[-1] not in caplog.text
    assert SECRET not in caplog.text


def put(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.fixture
def key(kafka_identity: Identity, tmp_path: Path) -> Iterator[Path]:
    """The file of a private key that the token endpoint trusts, by the name "one"."""
    made = ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "key.pem"
    put(path, made)
    (tmp_path / "template.json").write_text('{"header": {"kid": "one"}}')
    kafka_identity.endpoint.trusted["one"] = made.public_key()
    yield path
    kafka_identity.endpoint.trusted.clear()


def asserting(identity: Identity, key: Path, grant: str, **options: Any) -> dict[str, Any]:
    """Options for tokens from the endpoint by an assertion."""
    defaults = {
        "sasl_oauthbearer_token_endpoint_url": identity.endpoint.url,
        "sasl_oauthbearer_grant_type": grant,
        "sasl_oauthbearer_assertion_private_key_file": key,
        "sasl_oauthbearer_assertion_algorithm": "ES256",
        "sasl_oauthbearer_assertion_claim_iss": "client",
        "sasl_oauthbearer_assertion_claim_sub": "client",
        "sasl_oauthbearer_assertion_claim_aud": identity.endpoint.url,
        "sasl_oauthbearer_assertion_claim_jti_include": True,
        "sasl_oauthbearer_assertion_template_file": key.with_name("template.json"),
        "sasl_oauthbearer_allow_http": True,
    }
    return defaults | options


GRANTS = pytest.mark.parametrize("grant", ["client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"])


@GRANTS
async def test_an_assertion_comes_in_and_asks_once(
    kafka_identity: Identity, key: Path, grant: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asked = kafka_identity.endpoint.asked
    asked.clear()
    await comes_in(kafka_identity, "SIGNED", **asserting(kafka_identity, key, grant))
    (form,) = [each.form for each in asked]
    assert form["grant_type"] == grant
    assert (form.get("assertion") or form["client_assertion"]) not in caplog.text


@GRANTS
async def test_a_key_that_is_not_trusted_gets_the_reason_of_the_endpoint(kafka_identity: Identity, key: Path, grant: str) -> None:
    kafka_identity.endpoint.trusted["one"] = ec.generate_private_key(ec.SECP256R1()).public_key()
    error = await refused(kafka_identity.consumer("SIGNED", "t", **asserting(kafka_identity, key, grant)))
    assert isinstance(error, AuthenticationFailedError)
    assert re.search(r"HTTP 400, no token: invalid_(client|grant): InvalidSignatureError", str(error))


async def test_a_session_is_renewed_by_an_assertion_of_the_key_that_is_there_by_then(kafka_identity: Identity, key: Path) -> None:
    endpoint = kafka_identity.endpoint
    endpoint.lifetime, before = 4, len(endpoint.tokens)
    try:
        topic = new_topic(kafka_identity.cluster)
        async with kafka_identity.consumer("SIGNED", topic, **asserting(kafka_identity, key, "client_credentials")) as consumer:
            replacement = ec.generate_private_key(ec.SECP256R1())
            endpoint.trusted["one"] = replacement.public_key()
            put(key, replacement)
            kafka_identity.cluster.produce(topic, 10)
            await read(consumer, 10)
            await until(lambda: len(endpoint.tokens) >= before + 2)
            kafka_identity.cluster.produce(topic, 10)
            assert [record.offset for record in await read(consumer, 10)] == list(range(10, 20))
    finally:
        endpoint.lifetime = 3600


async def test_extensions_do_no_harm(kafka_identity: Identity) -> None:
    """Kafka ignores extensions that its validator does not know, so what is seen is that they do no harm."""
    extensions = {"logicalCluster": "lkc-1"}
    await comes_in(kafka_identity, "SIGNED", **client(kafka_identity, sasl_oauthbearer_extensions=extensions))


@pytest.mark.parametrize(
    "claims", [{"aud": "another"}, {"iss": "https://evil.test"}, {"exp": time.time() - 60}], ids=["audience", "issuer", "expired"]
)
async def test_a_token_that_the_broker_refuses_is_said_at_once_and_not_shown(
    kafka_identity: Identity, claims: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = kafka_identity.endpoint.token(**claims)
    error = await refused(kafka_identity.consumer("SIGNED", "t", sasl_oauth_token_provider=lambda: token))
    assert isinstance(error, AuthenticationFailedError)
    assert kafka_identity.cluster.listener("SIGNED") in str(error)
    shown = f"{error!r} {error.__cause__!r} {caplog.text}"
    assert token not in shown
    assert token.rpartition(".")[2] not in shown


async def test_a_token_that_was_changed_is_refused(kafka_identity: Identity) -> None:
    head, _, signature = kafka_identity.endpoint.token().split(".")
    forged = f"{head}.{unsigned(sub='admin', aud='kafka', iss='https://issuer.test').split('.')[1]}.{signature}"
    error = await refused(kafka_identity.consumer("SIGNED", "t", sasl_oauth_token_provider=lambda: forged))
    assert isinstance(error, AuthenticationFailedError)


async def test_a_client_that_the_endpoint_refuses_gets_its_reason(kafka_identity: Identity) -> None:
    kafka_identity.endpoint.script(Reply(401, b'{"error": "invalid_client"}'))
    error = await refused(kafka_identity.consumer("SIGNED", "t", **client(kafka_identity)))
    assert isinstance(error, AuthenticationFailedError)
    assert "HTTP 401, no token: invalid_client" in str(error)


async def test_an_endpoint_that_is_away_is_named_when_time_is_up(kafka_identity: Identity) -> None:
    options = client(kafka_identity, sasl_oauthbearer_token_endpoint_url="http://127.0.0.1:9/token")
    options |= {"socket_connection_setup_timeout_ms": 1000, "request_timeout_ms": 2000}
    error = await refused(kafka_identity.consumer("SIGNED", "t", **options))
    assert isinstance(error, KafkaConnectionError)
    assert "http://127.0.0.1:9/token" in str(error)


async def test_a_session_is_renewed_with_a_new_token_while_reading_goes_on(kafka_identity: Identity) -> None:
    """Tokens live 3 s, and the broker cuts whoever talks on after that. Nobody is cut, nothing is lost, nothing comes twice."""
    provider = Own(3.0)
    topic = new_topic(kafka_identity.cluster)
    group = f"g-{topic}"
    began = time.monotonic()
    async with kafka_identity.consumer("UNSIGNED", topic, group_id=group, sasl_oauth_token_provider=provider) as consumer:
        connected = len(provider.made)
        count = 0
        while time.monotonic() - began < 6.5:
            kafka_identity.cluster.produce(topic, 50, start=count)
            records = await read(consumer, 50)
            assert [record.offset for record in records] == list(range(count, count + 50))
            count += 50
            await consumer.commit()
    assert len(provider.made) >= connected + 3
    assert kafka_identity.cluster.committed(group) == {(topic, 0): count}


async def test_a_token_endpoint_gives_a_new_token_before_the_old_one_ends(kafka_identity: Identity) -> None:
    endpoint = kafka_identity.endpoint
    endpoint.lifetime, before = 4, len(endpoint.tokens)
    try:
        topic = new_topic(kafka_identity.cluster)
        async with kafka_identity.consumer("SIGNED", topic, **client(kafka_identity)) as consumer:
            kafka_identity.cluster.produce(topic, 10)
            await read(consumer, 10)
            await until(lambda: len(endpoint.tokens) >= before + 2)
            kafka_identity.cluster.produce(topic, 10)
            assert [record.offset for record in await read(consumer, 10)] == list(range(10, 20))
    finally:
        endpoint.lifetime = 3600
    assert len(set(endpoint.tokens)) == len(endpoint.tokens)
