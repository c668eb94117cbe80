"""Assertions: what is in them, who can verify them, and what is said of files that cannot be used."""

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from kafka_async.errors import KafkaConnectionError
from kafka_async.network.sasl.assertion import AssertionFile, SignedAssertion

NOW = 1_800_000_000.9
PASSPHRASE = "s3cret words"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SMALL = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505  # it has to be refused
P256 = ec.generate_private_key(ec.SECP256R1())
P384 = ec.generate_private_key(ec.SECP384R1())


def written(path: Path, key: Any, *, passphrase: str | None = None, form: PrivateFormat = PrivateFormat.PKCS8) -> str:
    """Write a key, and return the path as an option has it."""
    how: KeySerializationEncryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode())
    path.write_bytes(key.private_bytes(Encoding.PEM, form, how))
    return str(path)


def signed(path: Path, key: PrivateKeyTypes = RSA, **options: Any) -> SignedAssertion:
    return SignedAssertion(key_file=written(path / "key.pem", key), clock=lambda: NOW, **options)


def read(assertion: str, key: Any = RSA) -> dict[str, Any]:
    """Return the claims; PyJWT verifies the signature, and not the times, which are of another day."""
    times: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
    return jwt.decode(assertion, key.public_key(), algorithms=["RS256", "ES256"], options=times)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "key"), [("RS256", RSA), ("ES256", P256)])
def test_others_can_verify_what_is_signed(algorithm: Any, key: Any, tmp_path: Path) -> None:
    for _ in range(20):  # a half of a signature may begin with zeros
        made = signed(tmp_path, key, algorithm=algorithm, claims={"iss": "billing", "sub": "billing", "aud": "https://idp"})()
        assert read(made, key) == {
            "iss": "billing",
            "sub": "billing",
            "aud": "https://idp",
            "iat": 1_800_000_000,
            "exp": 1_800_000_300,
            "nbf": 1_799_999_940,
        }
        assert jwt.get_unverified_header(made) == {"alg": algorithm, "typ": "JWT"}


def test_times_are_as_configured_and_each_may_have_an_id(tmp_path: Path) -> None:
    source = signed(tmp_path, expires_after=7, valid_before=0, with_id=True)
    first, second = read(source()), read(source())
    assert (first["exp"], first["nbf"]) == (1_800_000_007, 1_800_000_000)
    assert len({first["jti"], second["jti"]}) == 2


def test_a_template_adds_to_the_header_and_wins_over_claims_but_not_over_what_depends_on_the_moment(tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    content = {"header": {"kid": "key-7", "alg": "none"}, "payload": {"sub": "other", "groups": ["a"], "exp": 1}}
    template.write_text(json.dumps(content))
    made = signed(tmp_path, claims={"iss": "billing", "sub": "billing"}, template=str(template))()
    assert jwt.get_unverified_header(made) == {"kid": "key-7", "alg": "RS256", "typ": "JWT"}
    assert read(made).items() >= {"iss": "billing", "sub": "other", "exp": 1_800_000_300}.items()
    assert read(made)["groups"] == ["a"]


@pytest.mark.parametrize("content", [{}, {"header": {"kid": "a"}}, {"payload": {"sub": "b"}}])
def test_either_half_of_a_template_may_be_missing(content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "template.json").write_text(json.dumps(content))
    assert read(signed(tmp_path, template=str(tmp_path / "template.json"))()).get("sub") == content.get("payload", {}).get("sub")


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize(("algorithm", "key"), [("RS256", RSA), ("ES256", P256)])
def test_a_passphrase_opens_the_key(algorithm: Any, key: Any, form: PrivateFormat, tmp_path: Path) -> None:
    file = written(tmp_path / "key", key, passphrase=PASSPHRASE, form=form)
    source = SignedAssertion(key_file=file, passphrase=PASSPHRASE, algorithm=algorithm)
    assert read(source(), key)["iat"]
    assert PASSPHRASE not in repr(source)


@pytest.mark.slow
def test_a_key_that_was_replaced_signs_the_next_assertion(tmp_path: Path) -> None:
    source = signed(tmp_path)
    assert read(source())
    replacement = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    written(tmp_path / "key.pem", replacement)
    assert read(source(), replacement)
    (tmp_path / "key.pem").unlink()
    with pytest.raises(KafkaConnectionError, match=r"private_key_file=.*key\.pem'.*No such file"):
        source()
    written(tmp_path / "key.pem", RSA)
    assert read(source())


@pytest.mark.parametrize(
    ("key", "options", "error"),
    [
        (SMALL, {}, "RS256 needs an RSA key of 2048 bits or more"),
        (P256, {}, "RS256 needs an RSA key of 2048 bits or more"),
        (RSA, {"algorithm": "ES256"}, "ES256 needs a key on the curve P-256"),
        (P384, {"algorithm": "ES256"}, "ES256 needs a key on the curve P-256"),
        (
            RSA,
            {"passphrase": PASSPHRASE},
            "has no passphrase, but one is given in sasl_oauthbearer_assertion_private_key_passphrase",
        ),
    ],
)
def test_a_key_that_does_not_fit_is_named(key: Any, options: dict[str, Any], error: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"sasl_oauthbearer_assertion_private_key_file='.*key.pem'.*{error}") as caught:
        signed(tmp_path, key, **options).make()
    assert PASSPHRASE not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (None, "the key needs a passphrase in sasl_oauthbearer_assertion_private_key_passphrase"),
        ("wrong", "the passphrase is wrong, or it is not a private key in PEM"),
    ],
)
def test_a_key_that_stays_closed_is_named(given: str | None, error: str, tmp_path: Path) -> None:
    file = written(tmp_path / "key", RSA, passphrase=PASSPHRASE)
    with pytest.raises(ValueError, match=error):
        SignedAssertion(key_file=file, passphrase=given).make()


@pytest.mark.parametrize(
    "content", [b"", b"hunter2", b"-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n", b"\xff\0"]
)
def test_a_file_that_is_no_key_is_named_and_not_shown(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(ValueError, match="it is not a private key in PEM") as caught:
        SignedAssertion(key_file=str(tmp_path / "key")).make()
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize("content", ["", "[]", "7", '{"header": []}', '{"payload": "x"}', '{"header": {', "\xff", "[" * 100_000])
def test_a_file_that_is_no_template_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "template.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"template_file='.*': expected JSON like"):
        signed(tmp_path, template=str(tmp_path / "template.json")).make()


def test_an_assertion_in_a_file_is_read_each_time(tmp_path: Path) -> None:
    source = AssertionFile(str(tmp_path / "token"))
    for text in ("a.b.c", "d.e.f-_"):
        (tmp_path / "token").write_text(f"{text}\n")
        assert source() == text


@pytest.mark.parametrize("content", [b"", b"hunter2", b"a.b", b"a.b.c.d", b"a.b.hunter2 d", b"\xff.b.c", b"a..c"])
def test_a_file_that_is_no_assertion_is_named_and_not_shown(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    source = AssertionFile(str(tmp_path / "token"))
    with pytest.raises(ValueError, match=r"sasl_oauthbearer_assertion_file='.*token': expected a JSON Web Token") as caught:
        source.make()
    assert "hunter2" not in str(caught.value)
    with pytest.raises(KafkaConnectionError, match="expected a JSON Web Token"):
        source()


@pytest.mark.parametrize("path", ["/nowhere/key", "/", "a\0b"])
def test_a_file_that_cannot_be_read_is_named(path: str) -> None:
    with pytest.raises(ValueError, match=r"sasl_oauthbearer_assertion_file=.*cannot be read: "):
        AssertionFile(path).make()
    with pytest.raises(ValueError, match=r"sasl_oauthbearer_assertion_private_key_file=.*cannot be read: "):
        SignedAssertion(key_file=path).make()
