"""Which conversation the options lead to, and where keys are derived."""

import base64
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from kafka_async import KafkaConsumer
from kafka_async.config import ConsumerConfig
from kafka_async.model import Node
from kafka_async.network.auth import PendingWork
from kafka_async.network.sasl import authenticators, exposure
from kafka_async.network.sasl import factory as factory_module
from kafka_async.network.sasl.factory import SaltedPasswords
from kafka_async.network.sasl.scram import salted_password
from kafka_async.wire import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse
from tests.token_endpoint import Reply, TokenEndpoint

NODE = Node(1, "one", 9092)
LOGIN = {"sasl_plain_username": "user", "sasl_plain_password": "pencil"}
SALT = b"salt" * 4
OIDC: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
}


def config(**options: Any) -> ConsumerConfig:
    return ConsumerConfig.from_options({"security_protocol": "SASL_SSL", **options})


def test_without_sasl_there_is_no_conversation() -> None:
    options = ConsumerConfig.from_options({"security_protocol": "SSL"})
    assert (authenticators(options), exposure(options)) == (None, None)


def test_plain_says_name_and_password() -> None:
    options = config(sasl_mechanism="PLAIN", **LOGIN)
    make = authenticators(options)
    assert make is not None
    conversation = make(NODE)
    assert conversation.start(offered=False) == SaslHandshakeRequest(mechanism="PLAIN")
    assert conversation.receive(SaslHandshakeResponse()) == SaslAuthenticateRequest(auth_bytes=b"\0user\0pencil")
    assert exposure(options) is None


def test_plain_without_tls_is_reported() -> None:
    text = exposure(config(sasl_mechanism="PLAIN", security_protocol="SASL_PLAINTEXT", **LOGIN))
    assert text is not None
    assert "SASL_SSL" in text
    assert "pencil" not in text


def first_words(conversation: Any) -> str:
    conversation.start(offered=False)
    said: bytes = conversation.receive(SaslHandshakeResponse()).auth_bytes
    return said.decode()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_conversation_of_scram_has_a_nonce_of_its_own(mechanism: str) -> None:
    options = config(sasl_mechanism=mechanism, security_protocol="SASL_PLAINTEXT", **LOGIN)
    make = authenticators(options)
    assert make is not None
    said = {first_words(make(NODE)) for _ in range(100)}
    assert len(said) == 100
    assert all(words.startswith("n,,n=user,r=") and len(words) == 44 for words in said)
    assert exposure(options) is None, "SCRAM shows no password"


async def test_a_key_is_derived_on_a_thread_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def derive(*arguments: Any) -> bytes:
        threads.append(threading.current_thread())
        return salted_password(*arguments)

    monkeypatch.setattr(factory_module, "salted_password", derive)
    make = authenticators(config(sasl_mechanism="SCRAM-SHA-256", **LOGIN))
    assert make is not None
    said: list[Any] = []

    async def converse() -> None:
        conversation = make(NODE)
        nonce = first_words(conversation).split("r=")[1]
        demands = f"r={nonce}more,s={base64.b64encode(SALT).decode()},i=4096"
        work = conversation.receive(SaslAuthenticateResponse(auth_bytes=demands.encode()))
        assert isinstance(work, PendingWork)
        said.append(conversation.receive(await work.run()))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(converse)
    assert len(said) == 3
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


async def test_keys_that_are_kept_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may say another salt each time."""
    derived: list[bytes] = []

    def derive(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        derived.append(salt)
        return salted_password(mechanism, password, salt, iterations)

    monkeypatch.setattr(factory_module, "salted_password", derive)
    keys = SaltedPasswords("SCRAM-SHA-256", "pencil")
    salts = [bytes([number + 1]) for number in range(20)]
    for salt in [*salts, salts[-1], salts[0]]:
        assert await keys.derive(salt, 4096) == salted_password("SCRAM-SHA-256", "pencil", salt, 4096)
    assert derived == [*salts, salts[0]], "the last is kept, the first is not"
    assert "pencil" not in repr(keys)


async def token_of(made: Any) -> bytes:
    """Return what a conversation of OAUTHBEARER says once it has its token."""
    assert made is not None
    conversation = made(NODE)
    assert conversation.start(offered=False) == SaslHandshakeRequest(mechanism="OAUTHBEARER")
    work = conversation.receive(SaslHandshakeResponse())
    assert isinstance(work, PendingWork)
    said: bytes = conversation.receive(await work.run()).auth_bytes
    return said


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
async def test_a_token_provider_is_asked_and_its_token_is_not_for_everybody(protocol: str) -> None:
    options = config(sasl_mechanism="OAUTHBEARER", security_protocol=protocol, sasl_oauth_token_provider=lambda: "own")
    assert await token_of(authenticators(options)) == b"n,,\x01auth=Bearer own\x01\x01"
    assert (exposure(options) is not None) == (protocol == "SASL_PLAINTEXT")


@pytest.mark.filterwarnings("ignore:.*used without TLS:RuntimeWarning")
async def test_a_token_endpoint_is_asked_once_for_all_conversations() -> None:
    with TokenEndpoint() as endpoint:
        options = config(
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=endpoint.url,
            sasl_oauthbearer_client_credentials_client_id="client",
            sasl_oauthbearer_client_credentials_client_secret="pencil",  # for this test
            sasl_oauthbearer_scope="kafka",
            sasl_oauthbearer_extensions={"cluster": "one"},
            sasl_oauthbearer_allow_http=True,
        )
        made = authenticators(options)
        said = [await token_of(made), await token_of(made)]
        (asked,) = endpoint.asked
    assert asked.form["scope"] == "kafka"
    assert said == [b"n,,\x01auth=Bearer " + endpoint.tokens[0].encode() + b"\x01cluster=one\x01\x01"] * 2


@pytest.fixture
def key(tmp_path: Path) -> Any:
    """A private key, which is in the file ``key.pem`` with a passphrase."""
    made = generate_private_key(public_exponent=65537, key_size=2048)
    data = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pencil"))
    (tmp_path / "key.pem").write_bytes(data)
    return made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*used without TLS:RuntimeWarning")
@pytest.mark.parametrize("grant", ["client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"])
async def test_options_make_assertions_that_a_token_endpoint_takes(grant: str, key: Any, tmp_path: Path) -> None:
    (tmp_path / "template.json").write_text('{"header": {"kid": "one"}}')
    with TokenEndpoint() as endpoint:
        endpoint.trusted["one"] = key.public_key()
        options = config(
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=endpoint.url,
            sasl_oauthbearer_grant_type=grant,
            sasl_oauthbearer_assertion_private_key_file=tmp_path / "key.pem",
            sasl_oauthbearer_assertion_private_key_passphrase="pencil",  # for this test
            sasl_oauthbearer_assertion_claim_iss="client",
            sasl_oauthbearer_assertion_claim_sub="client",
            sasl_oauthbearer_assertion_claim_aud=endpoint.url,
            sasl_oauthbearer_assertion_claim_exp_seconds=120,
            sasl_oauthbearer_assertion_claim_nbf_seconds=10,
            sasl_oauthbearer_assertion_claim_jti_include=True,
            sasl_oauthbearer_assertion_template_file=tmp_path / "template.json",
            sasl_oauthbearer_allow_http=True,
        )
        said = await token_of(authenticators(options))
    (claims,) = endpoint.asserted
    assert (claims["iss"], claims["sub"], claims["exp"] - claims["iat"]) == ("client", "client", 120)
    assert claims["iat"] - claims["nbf"] == 10
    assert said == b"n,,\x01auth=Bearer " + endpoint.tokens[0].encode() + b"\x01\x01"
    assert "pencil" not in repr(options)


@pytest.mark.filterwarnings("ignore:.*used without TLS:RuntimeWarning")
async def test_an_assertion_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c\n")
    with TokenEndpoint(Reply(body=b'{"access_token": "good"}')) as endpoint:
        options = config(
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=endpoint.url,
            sasl_oauthbearer_assertion_file=tmp_path / "token",
            sasl_oauthbearer_allow_http=True,
        )
        assert await token_of(authenticators(options)) == b"n,,\x01auth=Bearer good\x01\x01"
    assert endpoint.asked[0].form["client_assertion"] == "a.b.c"


@pytest.mark.parametrize("option", ["file", "private_key_file"])
async def test_a_file_that_is_missing_is_said_before_anything_connects(option: str, tmp_path: Path) -> None:
    names = ("iss", "aud") if option != "file" else ()
    claims: dict[str, Any] = {f"sasl_oauthbearer_assertion_claim_{name}": "a" for name in names}
    options: dict[str, Any] = {**OIDC, **claims, f"sasl_oauthbearer_assertion_{option}": tmp_path / "missing"}
    consumer: KafkaConsumer[Any, Any] = KafkaConsumer(**options)
    with pytest.raises(ValueError, match=f"sasl_oauthbearer_assertion_{option}=.*No such file"):
        await consumer.start()
    await consumer.stop()
