"""TLS from options: what is read, what is demanded of a broker, and what is said when something does not fit."""

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from attrs import frozen
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import (
    CertificateRevocationListBuilder,
    RevokedCertificateBuilder,
    load_pem_x509_certificate,
)

from kafka_async import KafkaConsumer
from kafka_async.config import ConsumerConfig
from kafka_async.errors import AuthenticationFailedError, SslAuthenticationError, TlsHandshakeError
from kafka_async.network import TcpConnector
from kafka_async.network.tls import tls_context, tls_error

KEY_PASSWORD = "opens-the-key"


def encrypted(pem: bytes) -> bytes:
    """The private key behind a password, as Kafka's ``ssl.keystore.key`` may have it."""
    key = load_pem_private_key(pem, None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode()))


@frozen(kw_only=True)
class Files:
    """An authority and a certificate that it signed, as files."""

    directory: Path
    authority: trustme.CA
    server: trustme.LeafCert

    def __getitem__(self, name: str) -> str:
        return str(self.directory / name)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    client = authority.issue_cert("client@example.org")
    other = trustme.CA().issue_cert("other@example.org")
    key = client.private_key_pem.bytes()
    contents = {
        "ca.pem": authority.cert_pem.bytes(),
        "client.pem": client.cert_chain_pems[0].bytes(),
        "client.key": key,
        "client.both": client.private_key_and_cert_chain_pem.bytes(),
        "client.locked": encrypted(key),
        "other.key": other.private_key_pem.bytes(),
        "empty": b"",
        "words": b"these are words\n",
    }
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    return Files(directory=directory, authority=authority, server=authority.issue_cert("broker.example.org", "127.0.0.1"))


def made(**options: Any) -> ssl.SSLContext:
    context = tls_context(ConsumerConfig.from_options({"security_protocol": "SSL", **options}))
    assert context is not None
    return context


def text(files: Files, name: str) -> str:
    return Path(files[name]).read_text()


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str = "broker.example.org") -> ssl.SSLObject:
    """Go through a handshake in memory; return the server's side. Raises what either side raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ours.do_handshake()  # nothing is left to do, or it raises
    theirs.do_handshake()
    return theirs


def server_context(files: Files, *, asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files.server.configure_cert(context)
    if asks:
        files.authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_without_tls_there_is_no_context() -> None:
    assert tls_context(ConsumerConfig.from_options({})) is None


@pytest.mark.filterwarnings("ignore:no effect with security_protocol='PLAINTEXT'. ssl_context:UserWarning")
def test_a_context_makes_no_plain_connection_speak_tls() -> None:
    config = ConsumerConfig.from_options({"security_protocol": "PLAINTEXT", "ssl_context": ssl.create_default_context()})
    assert tls_context(config) is None
    assert TcpConnector.from_config(config).ssl_context is None


def test_the_defaults_verify_certificate_and_name_and_speak_nothing_old() -> None:
    context = made()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_context_of_the_callers_own_is_used_as_it_is() -> None:
    context = ssl.create_default_context()
    assert made(ssl_context=context) is context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_authority_of_a_file_is_trusted(files: Files, version: ssl.TLSVersion) -> None:
    server = server_context(files)
    server.minimum_version = server.maximum_version = version
    handshake(made(ssl_cafile=files["ca.pem"]), server)
    handshake(made(ssl_truststore_certificates=text(files, "ca.pem")), server)


def test_an_intermediate_authority_or_the_brokers_own_certificate_is_trusted_without_the_root() -> None:
    """As Java does with any certificate in a truststore."""
    root = trustme.CA()
    intermediate = root.create_child_ca()
    leaf = intermediate.issue_cert("broker.example.org")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(server)
    for anchor in (root.cert_pem, intermediate.cert_pem, leaf.cert_chain_pems[0]):
        handshake(made(ssl_truststore_certificates=anchor.bytes().decode()), server)
    for stranger in (trustme.CA().cert_pem, root.issue_cert("broker.example.org").cert_chain_pems[0]):
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            handshake(made(ssl_truststore_certificates=stranger.bytes().decode()), server)
        assert "ssl_cafile" in str(tls_error("broker:9093", caught.value))
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        handshake(made(ssl_truststore_certificates=leaf.cert_chain_pems[0].bytes().decode()), server, "elsewhere.example.org")


def test_other_authorities_are_not_trusted(files: Files) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made(), server_context(files))


def test_another_name_is_refused_unless_the_check_is_turned_off(files: Files) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        handshake(made(ssl_cafile=files["ca.pem"]), server_context(files), "elsewhere.example.org")
    relaxed = made(ssl_cafile=files["ca.pem"], ssl_check_hostname=False)
    assert relaxed.verify_mode is ssl.CERT_REQUIRED, "only the name is not checked"
    handshake(relaxed, server_context(files), "elsewhere.example.org")


@pytest.mark.parametrize(
    "changed",
    [
        lambda pem: pem.replace("\n", " "),
        lambda pem: pem.replace("\n", "\r\n"),
        lambda pem: "".join(f"    {line}\n" for line in pem.splitlines()),
        lambda pem: f"friendlyName: Müller {pem}",
    ],
    ids=["blanks", "CRLF", "indented", "beyond ASCII"],
)
def test_pem_text_is_taken_in_the_forms_that_java_takes(files: Files, changed: Callable[[str], str]) -> None:
    authorities = text(files, "ca.pem"), trustme.CA().cert_pem.bytes().decode()
    for several in ("".join(authorities), "".join(reversed(authorities))):
        client = {
            "ssl_truststore_certificates": changed(several),
            "ssl_keystore_certificate_chain": changed(text(files, "client.pem") + authorities[0]),
            "ssl_keystore_key": changed(text(files, "client.locked")),
            "ssl_password": KEY_PASSWORD,
        }
        side = handshake(made(**client), server_context(files, asks=True))
        assert "client@example.org" in str(side.getpeercert())


def identities(files: Files) -> Iterator[dict[str, Any]]:
    yield {"ssl_certfile": files["client.pem"], "ssl_keyfile": files["client.key"]}
    yield {"ssl_certfile": files["client.both"]}
    yield {"ssl_certfile": files["client.pem"], "ssl_keyfile": files["client.locked"], "ssl_password": KEY_PASSWORD}
    chain = text(files, "client.pem")
    yield {"ssl_keystore_certificate_chain": chain, "ssl_keystore_key": text(files, "client.key")}
    yield {"ssl_keystore_certificate_chain": chain, "ssl_keystore_key": text(files, "client.locked"), "ssl_password": KEY_PASSWORD}


def test_a_certificate_of_ours_is_shown_to_a_broker_that_asks(files: Files) -> None:
    for options in identities(files):
        side = handshake(made(ssl_cafile=files["ca.pem"], **options), server_context(files, asks=True))
        assert "client@example.org" in str(side.getpeercert()), options


def test_pem_text_never_becomes_a_file_that_stays(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    options = {"ssl_keystore_certificate_chain": text(files, "client.pem"), "ssl_keystore_key": text(files, "client.key")}
    made(**options)
    monkeypatch.delattr(os, "memfd_create", raising=False)  # a system that cannot keep it in memory
    made(**options)
    assert not list(tmp_path.iterdir())
    assert not open_files("memfd:kafka_async") | open_files(str(tmp_path))


def open_files(words: str) -> set[str]:
    """Return which of this process's open files have ``words`` in their names: others are of threads of other tests."""
    found = set()
    for link in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").exists() else ():
        with suppress(OSError):  # it has been closed meanwhile
            found.add(str(link.readlink()))
    return {name for name in found if words in name}


def refused(options: dict[str, Any]) -> str:
    with pytest.raises(ValueError, match=r"ssl_") as caught:
        made(**options)
    assert "PRIVATE KEY" not in str(caught.value)
    assert KEY_PASSWORD not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
def test_a_file_that_cannot_be_used_is_named_with_its_option(files: Files) -> None:
    both = {"ssl_certfile": files["client.pem"]}
    inline = {"ssl_keystore_certificate_chain": text(files, "client.pem")}
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"ssl_cafile": "/nowhere/ca.pem"}, ("ssl_cafile='/nowhere/ca.pem'", "No such file")),
        ({"ssl_cafile": files["empty"]}, ("ssl_cafile", "found none")),
        ({"ssl_cafile": files["words"]}, ("ssl_cafile", "found none")),
        ({"ssl_certfile": "/nowhere/cert.pem"}, ("ssl_certfile='/nowhere/cert.pem'", "No such file")),
        ({**both, "ssl_keyfile": "/nowhere/key.pem"}, ("cannot read the file '/nowhere/key.pem'",)),
        ({**both, "ssl_keyfile": files["other.key"]}, ("ssl_keyfile", "does not belong to the certificate")),
        (both, ("ssl_certfile", "private key")),
        ({**both, "ssl_keyfile": files["client.locked"]}, ("ssl_keyfile", "encrypted; set ssl_password")),
        ({**both, "ssl_keyfile": files["client.locked"], "ssl_password": "wrong"}, ("ssl_password",)),
        ({**inline, "ssl_keystore_key": text(files, "other.key")}, ("ssl_keystore_key", "does not belong")),
        ({**inline, "ssl_keystore_key": text(files, "client.locked")}, ("ssl_keystore_key", "set ssl_password")),
        ({"ssl_cafile": files["ca.pem"], "ssl_crlfile": "/nowhere/crl.pem"}, ("ssl_crlfile='/nowhere/crl.pem'", "No such")),
        ({"ssl_truststore_certificates": "-----BEGIN nothing"}, ("ssl_truststore_certificates",)),
        ({"ssl_ciphers": "NONE-SUCH"}, ("ssl_ciphers='NONE-SUCH'",)),
    ]
    for options, expected in cases:
        said = refused(options)
        assert all(part in said for part in expected), said


def test_a_consumer_is_not_made_of_a_file_that_cannot_be_read() -> None:
    with pytest.raises(ValueError, match=r"ssl_cafile='/nowhere/ca\.pem'"):
        KafkaConsumer("t", security_protocol="SSL", ssl_cafile="/nowhere/ca.pem")


def test_a_revocation_list_is_demanded_when_it_is_given(files: Files) -> None:
    """trustme makes no lists: a file without one for the authority refuses every certificate."""
    context = made(ssl_cafile=files["ca.pem"], ssl_crlfile=files["ca.pem"])
    with pytest.raises(ssl.SSLCertVerificationError, match="CRL") as caught:
        handshake(context, server_context(files))
    assert "ssl_crlfile" in str(tls_error("broker:9093", caught.value))


def revocations(authority: trustme.CA, *revoked: bytes) -> bytes:
    """The list of an authority, in PEM, with the certificates that it has revoked."""
    now = datetime.now(UTC)
    issuer = load_pem_x509_certificate(authority.cert_pem.bytes()).subject
    made = CertificateRevocationListBuilder(issuer, now - timedelta(days=1), now + timedelta(days=1))
    for serial in (load_pem_x509_certificate(pem).serial_number for pem in revoked):
        made = made.add_revoked_certificate(RevokedCertificateBuilder(serial, now - timedelta(days=1)).build())
    key: Any = load_pem_private_key(authority.private_key_pem.bytes(), None)
    return made.sign(key, SHA256()).public_bytes(Encoding.PEM)


def test_the_brokers_certificate_is_looked_up_in_the_list_of_its_authority_alone(tmp_path: Path) -> None:
    root = trustme.CA()
    authority = root.create_child_ca()
    leaf = authority.issue_cert("broker.example.org")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(server)
    root.cert_pem.write_to_path(tmp_path / "ca.pem")

    def client(*lists: bytes) -> ssl.SSLContext:
        (tmp_path / "crl.pem").write_bytes(b"".join(lists))
        return made(ssl_cafile=tmp_path / "ca.pem", ssl_crlfile=tmp_path / "crl.pem")

    handshake(client(revocations(authority)), server)
    handshake(client(revocations(authority), revocations(root, authority.cert_pem.bytes())), server)
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked") as caught:
        handshake(client(revocations(authority, leaf.cert_chain_pems[0].bytes())), server)
    assert "it was revoked" in str(tls_error("broker:9093", caught.value))
    with pytest.raises(ssl.SSLCertVerificationError, match="CRL"):
        handshake(client(revocations(root)), server)


def test_a_refused_certificate_says_why_and_what_to_do(files: Files) -> None:
    with pytest.raises(ssl.SSLCertVerificationError) as unknown:
        handshake(made(), server_context(files))
    with pytest.raises(ssl.SSLCertVerificationError) as elsewhere:
        handshake(made(ssl_cafile=files["ca.pem"]), server_context(files), "elsewhere.example.org")
    for caught, advice in ((unknown, "ssl_cafile"), (elsewhere, "advertised.listeners")):
        error = tls_error("broker:9093", caught.value)
        assert isinstance(error, SslAuthenticationError)
        assert not error.retriable
        assert str(error).startswith("broker:9093: the broker's certificate was refused: ")
        assert advice in str(error)


@pytest.mark.parametrize(
    ("reason", "kind", "says"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", SslAuthenticationError, "ssl_certfile"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", SslAuthenticationError, "ssl_certfile"),
        ("TLSV1_ALERT_UNKNOWN_CA", SslAuthenticationError, "ssl_certfile"),
        ("WRONG_VERSION_NUMBER", TlsHandshakeError, "security_protocol"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", TlsHandshakeError, "PROTOCOL_VERSION"),
        ("TLSV1_ALERT_INTERNAL_ERROR", TlsHandshakeError, "INTERNAL_ERROR"),
    ],
)
def test_a_reason_of_openssl_is_put_into_the_words_of_the_options(reason: str, kind: type[Exception], says: str) -> None:
    error = ssl.SSLError(1, f"[SSL: {reason}] words (_ssl.c:1000)")
    error.reason = reason
    meaning = tls_error("broker:9093", error)
    assert type(meaning) is kind
    assert isinstance(meaning, AuthenticationFailedError) is not meaning.retriable
    assert says in str(meaning)
