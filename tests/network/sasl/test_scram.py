"""SCRAM against the examples of its RFCs, and against brokers that lie."""

import base64
import hashlib
import hmac
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import AuthenticationFailedError, KafkaError
from kafka_async.network.auth import PendingWork
from kafka_async.network.sasl.scram import (
    LEAST_ITERATIONS,
    LONGEST_MESSAGE,
    MOST_ITERATIONS,
    Scram,
    salted_password,
)


@frozen(kw_only=True)
class Example:
    """One conversation from beginning to end, as an RFC prints it."""

    mechanism: str
    nonce: str
    client_first: bytes
    server_first: bytes
    client_final: bytes
    server_final: bytes


RFC_5802 = Example(
    mechanism="SCRAM-SHA-1",
    nonce="fyko+d2lbbFgONRv9qkxdawL",
    client_first=b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    server_first=b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    client_final=b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    server_final=b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = Example(
    mechanism="SCRAM-SHA-256",
    nonce="rOprNGfwEbeRWgbNEkqO",
    client_first=b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    server_first=b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    client_final=b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    server_final=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)

NONCE = RFC_7677.nonce
SERVER_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="


async def never(salt: bytes, iterations: int) -> bytes:
    raise AssertionError("no test waits")


def begun() -> Scram:
    """A conversation whose first words are said."""
    scram = Scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE, derive=never)
    scram.start()
    return scram


def refusal(scram: Scram, incoming: Any) -> str:
    """What is said when ``incoming`` is refused."""
    with pytest.raises(AuthenticationFailedError) as caught:
        scram.receive(incoming)
    assert "pencil" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("example", [RFC_5802, RFC_7677], ids=["RFC 5802", "RFC 7677"])
def test_the_examples_of_the_rfcs(example: Example) -> None:
    scram = Scram(example.mechanism, "user", "pencil", nonce=example.nonce, derive=never)
    assert scram.start() == example.client_first
    assert isinstance(scram.receive(example.server_first), PendingWork)
    fields = dict(part.split("=", 1) for part in example.server_first.decode().split(","))
    key = salted_password(example.mechanism, "pencil", base64.b64decode(fields["s"]), int(fields["i"]))
    assert scram.receive(key) == example.client_final
    assert scram.receive(example.server_final) is None


@pytest.mark.slow
@given(
    mechanism=st.sampled_from(["sha256", "sha512"]),
    username=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=10),
    password=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=10),
    salt=st.binary(min_size=1, max_size=32),
)
def test_a_broker_that_knows_the_password_and_we_convince_each_other(
    mechanism: str, username: str, password: str, salt: bytes
) -> None:
    """The broker's side of RFC 5802 section 3, with what a broker stores."""
    scram = Scram(f"SCRAM-SHA-{mechanism[3:]}", username, password, nonce="abc", derive=never)
    first = scram.start().decode().removeprefix("n,,")
    name = first.split(",")[0].removeprefix("n=")
    assert name.replace("=2C", ",").replace("=3D", "=") == username
    demands = f"r=abcdef,s={base64.b64encode(salt).decode()},i=4096"
    scram.receive(demands.encode())

    salted = hashlib.pbkdf2_hmac(mechanism, password.encode(), salt, 4096)
    stored = hashlib.new(mechanism, hmac.digest(salted, b"Client Key", mechanism)).digest()
    server_key = hmac.digest(salted, b"Server Key", mechanism)
    final = scram.receive(salted)
    assert isinstance(final, bytes)
    without_proof, proof = final.decode().split(",p=")
    signed = f"{first},{demands},{without_proof}".encode()
    mask = hmac.digest(stored, signed, mechanism)
    client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), mask, strict=True))
    assert hashlib.new(mechanism, client_key).digest() == stored
    assert scram.receive(b"v=" + base64.b64encode(hmac.digest(server_key, signed, mechanism))) is None


@pytest.mark.parametrize("count", [0, 1, LEAST_ITERATIONS - 1, MOST_ITERATIONS + 1, 2_000_000_000, 10**60])
def test_a_count_of_iterations_out_of_bounds_is_refused_before_anything_is_derived(count: int) -> None:
    text = refusal(begun(), f"r={SERVER_NONCE},s={SALT},i={count}".encode())
    assert "iterations: expected 4096 to 1000000" in text
    assert len(text) < 120


@pytest.mark.parametrize("count", [LEAST_ITERATIONS, MOST_ITERATIONS])
def test_the_bounds_themselves_are_accepted(count: int) -> None:
    assert isinstance(begun().receive(f"r={SERVER_NONCE},s={SALT},i={count}".encode()), PendingWork)


@pytest.mark.parametrize("count", ["-4096", "+4096", "4_096", "4096 ", "", "0x1000", "four"])
def test_a_count_that_is_no_plain_number_is_refused(count: str) -> None:
    assert "iterations: expected" in refusal(begun(), f"r={SERVER_NONCE},s={SALT},i={count}".encode())


@pytest.mark.parametrize("nonce", ["", "other", NONCE, NONCE[:-1], NONCE.lower() + "more"])
def test_a_nonce_that_does_not_go_on_from_ours_is_refused(nonce: str) -> None:
    assert "nonce" in refusal(begun(), f"r={nonce},s={SALT},i=4096".encode())


@pytest.mark.parametrize("salt", ["%%%", "W22Z\n", "=", "W22ZaJ0SNY7soEsUEjb6gQ=", "ä"])
def test_a_salt_that_is_not_base64_is_refused(salt: str) -> None:
    assert "not SCRAM's" in refusal(begun(), f"r={SERVER_NONCE},s={salt},i=4096".encode())


def test_an_empty_salt_is_refused() -> None:
    assert "salt is empty" in refusal(begun(), f"r={SERVER_NONCE},s=,i=4096".encode())


def test_a_mandatory_extension_is_refused() -> None:
    assert "extension" in refusal(begun(), f"m=new,r={SERVER_NONCE},s={SALT},i=4096".encode())


def test_an_optional_extension_is_ignored() -> None:
    assert isinstance(begun().receive(f"r={SERVER_NONCE},s={SALT},i=4096,x=whatever".encode()), PendingWork)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"hello",
        b"\xff\xfe",
        f"s={SALT},r={SERVER_NONCE},i=4096".encode(),
        f"r={SERVER_NONCE},s={SALT}".encode(),
        f"r={SERVER_NONCE},s={SALT},i=4096,".encode() + b"x" * LONGEST_MESSAGE,
    ],
    ids=["empty", "words", "binary", "order", "short", "long"],
)
def test_what_is_not_a_message_of_scram_is_refused(message: bytes) -> None:
    assert "not SCRAM's" in refusal(begun(), message)


def finished() -> Scram:
    """A conversation that waits for the broker's proof."""
    scram = begun()
    scram.receive(RFC_7677.server_first)
    scram.receive(salted_password("SCRAM-SHA-256", "pencil", base64.b64decode(SALT), 4096))
    return scram


def test_a_broker_without_the_password_is_refused() -> None:
    forged = base64.b64encode(b"\0" * 32)
    assert "could not prove" in refusal(finished(), b"v=" + forged)


@pytest.mark.parametrize("message", [b"", b"v=", b"v=AAAA", b"v=%", b"w=AAAA"])
def test_a_missing_proof_of_the_broker_is_refused(message: bytes) -> None:
    refusal(finished(), message)


def test_the_brokers_refusal_is_repeated_within_bounds_and_without_the_password() -> None:
    text = refusal(finished(), b"e=invalid-proof pencil \x1b[31m\n" + b"x" * 100_000)
    assert text.startswith("the broker refused the credentials: invalid-proof *** ")
    assert text.isprintable()
    assert len(text) < 400


@pytest.mark.slow
@given(message=st.one_of(st.binary(max_size=200), st.text("rsive=,0123456789+/A", max_size=60).map(str.encode)))
def test_nothing_but_a_typed_error_comes_of_junk(message: bytes) -> None:
    for scram in (begun(), finished()):
        try:
            turn = scram.receive(message)
        except KafkaError:
            continue
        assert isinstance(turn, PendingWork)


def test_a_delegation_token_is_announced_at_first() -> None:
    conversation = Scram("SCRAM-SHA-256", "id", "hmac", nonce="abc", derive=never, token=True)
    assert conversation.start() == b"n,,n=id,r=abc,tokenauth=true"
