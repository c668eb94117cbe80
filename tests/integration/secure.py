"""One broker with every kind of door: TLS with good and bad certificates, SASL with and without TLS, an authorizer.

Decides: who may come in where. Owns: the certificates, made for the run. Must never hold a secret that opens anything else.

The super user is whoever comes over the plain listener (ANONYMOUS): the tests' own admin. A resource without an ACL is open to all,
so a test that wants a denial gives the resource an ACL for another user.
"""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import trustme
from attrs import frozen
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark what it re-exports
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tests.brokers import CURRENT, KafkaCluster

from .tools import Consumer, make

PASSWORD: Final = "correct-horse-battery-staple"
"""Alice's. Long enough to be found wherever it might leak."""
SIMPLE: Final = "bob-opens-little"
ODD: Final = "pä,ss=\u00a0\ufb01"
"""Eve's: RFC 4013 would turn its no-break space into a space and its ligature into two letters."""

PLAIN_USERS: Final = {"alice": PASSWORD, "bob": SIMPLE}
SCRAM_USERS: Final = {"alice": PASSWORD, "bob": SIMPLE}
ODD_USERS: Final = {"eve": ODD, "odd,name=": SIMPLE}
"""Stored by an admin client: StorageTool has its own idea of commas."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
REAUTH_MS: Final = 4_000
"""Sessions on the listener REAUTH live this long."""

_LISTENERS: Final = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SELFSIGNED": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "REAUTH": "SASL_PLAINTEXT",
    "TLSLOGIN": "SASL_SSL",
}


@frozen(kw_only=True)
class Secure:
    """The broker and what a client needs to come in."""

    cluster: KafkaCluster
    directory: Path

    @property
    def authority(self) -> str:
        """The file with the authority that signed the good certificates."""
        return str(self.directory / "ca.pem")

    def file(self, name: str) -> str:
        """Path of a file with PEM."""
        return str(self.directory / name)

    def text(self, name: str) -> str:
        """The PEM itself."""
        return (self.directory / name).read_text()

    def consumer(self, listener: str, *topics: str, **options: Any) -> Consumer:
        """A consumer that comes in by ``listener``; with TLS it trusts the authority unless options say otherwise."""
        protocol = _LISTENERS[listener]
        defaults: dict[str, Any] = {"security_protocol": protocol, "bootstrap_servers": self.cluster.listener(listener)}
        if protocol.endswith("SSL") and not options.keys() & {"ssl_context", "ssl_truststore_certificates"}:
            defaults["ssl_cafile"] = self.authority
        return make(self.cluster, *topics, **(defaults | options))

    @contextmanager
    def only(self, user: str, kind: str, name: str, *operations: str) -> Iterator[None]:
        """Within the block only ``user`` (and super users) may do ``operations`` (all by default) on the resource."""
        bindings = [acl(user, kind, name, operation) for operation in operations or ("ALL",)]
        self.allow(*bindings)
        try:
            yield
        finally:
            anybody: Any = None  # the package's types do not know that this is allowed
            everything = AclBindingFilter(
                ResourceType[kind], name, ResourcePatternType.LITERAL, anybody, anybody, AclOperation.ANY, AclPermissionType.ANY
            )
            self.cluster.admin.delete_acls([everything])[everything].result()

    def allow(self, *bindings: AclBinding) -> None:
        """Add ACLs; they hold for the next request."""
        for result in self.cluster.admin.create_acls(list(bindings)).values():
            result.result()


def acl(user: str, kind: str, name: str, operation: str) -> AclBinding:
    """A permission for ``user`` from everywhere."""
    return AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


def login(user: str = "alice", mechanism: str = "SCRAM-SHA-256", password: str | None = None) -> dict[str, str]:
    """Options with which ``user`` comes in."""
    known = SCRAM_USERS | ODD_USERS
    return {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password or known[user]}


@contextmanager
def secure_broker(directory: Path) -> Iterator[Secure]:
    """Start the broker; certificates go to ``directory``."""
    _make_certificates(directory)
    scram = [f"SCRAM-SHA-{size}=[name={user},password={password}]" for size in (256, 512) for user, password in SCRAM_USERS.items()]
    with KafkaCluster(CURRENT, properties=_properties(directory), listeners=_LISTENERS, scram=scram) as cluster:
        odd: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), password.encode())
            for user, password in ODD_USERS.items()
        ]
        for result in cluster.admin.alter_user_scram_credentials(odd).values():
            result.result()
        yield Secure(cluster=cluster, directory=directory)


def _make_certificates(directory: Path) -> None:
    authority = trustme.CA()
    alone = trustme.CA()
    now = datetime.datetime.now(datetime.UTC)
    yesterday, before = now - datetime.timedelta(days=1), now - datetime.timedelta(days=2)
    certificates = {
        "good": authority.issue_cert("127.0.0.1"),
        "expired": authority.issue_cert("127.0.0.1", not_before=before, not_after=yesterday),
        "elsewhere": authority.issue_cert("broker.example.org"),
        "client": authority.issue_cert("client@example.org"),
        "stranger": alone.issue_cert("stranger@example.org"),
    }
    (directory / "ca.pem").write_bytes(authority.cert_pem.bytes())
    for name, certificate in certificates.items():
        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        (directory / f"{name}.pem").write_bytes(_pkcs8(certificate.private_key_pem.bytes()) + chain)
    (directory / "selfsigned.pem").write_bytes(_pkcs8(alone.private_key_pem.bytes()) + alone.cert_pem.bytes())


def _pkcs8(pem: bytes) -> bytes:
    """The only format of private keys that Java reads."""
    return load_pem_private_key(pem, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _properties(directory: Path) -> dict[str, str]:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "delegation.token.secret.key": "for delegation tokens of the tests",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "good.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    }
    for name in ("expired", "elsewhere", "selfsigned"):
        properties[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
        properties[f"listener.name.{name}.ssl.keystore.location"] = str(directory / f"{name}.pem")
    users = " ".join(f'user_{user}="{password}"' for user, password in PLAIN_USERS.items())
    for listener in ("login", "reauth", "tlslogin"):
        package = f"listener.name.{listener}"
        properties[f"{package}.plain.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        )
        for size in (256, 512):
            properties[f"{package}.scram-sha-{size}.sasl.jaas.config"] = (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            )
    for mechanism in MECHANISMS:
        properties[f"listener.name.reauth.{mechanism.lower()}.connections.max.reauth.ms"] = str(REAUTH_MS)
    return properties
