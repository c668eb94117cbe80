"""One broker that knows its clients by tokens and tickets: OAUTHBEARER with and without signatures, GSSAPI.

Decides: who vouches for whom. Owns: the token endpoint and the KDC. Must never trust an issuer outside this process.

UNSIGNED takes any unsigned JWT (Kafka's validator for trials), SIGNED only what the token endpoint has signed (KIP-768), KERBEROS
tickets. A session ends with its token (KIP-368).
"""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from tests.brokers import CURRENT, KafkaCluster
from tests.token_endpoint import TokenEndpoint

from .kdc import SERVICE, Kdc, kdc, unavailable
from .tools import Consumer, make

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_AN_HOUR_MS: Final = "3600000"


@frozen(kw_only=True)
class Identity:
    """The broker and who vouches for its clients. ``kdc`` is ``None`` if Python cannot speak Kerberos."""

    cluster: KafkaCluster
    endpoint: TokenEndpoint
    kdc: Kdc | None

    def consumer(self, listener: str, *topics: str, **options: Any) -> Consumer:
        """A consumer that comes in by ``listener``."""
        defaults = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI" if listener == "KERBEROS" else "OAUTHBEARER",
            "bootstrap_servers": self.cluster.listener(listener),
        }
        return make(self.cluster, *topics, **(defaults | options))


def unsigned(lifetime: float = 3600, **claims: Any) -> str:
    """Return a JWT without a signature."""
    now = time.time()
    content = {"sub": "reader", "iat": int(now), "exp": now + lifetime} | claims
    parts = ({"alg": "none"}, content)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


@contextmanager
def identity_broker(directory: Path) -> Iterator[Identity]:
    """Start the broker, and before it who vouches for its clients. The KDC keeps its files in ``directory``."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(TokenEndpoint())
        tickets = stack.enter_context(kdc(directory)) if unavailable() is None else None
        listeners = {"UNSIGNED": "SASL_PLAINTEXT", "SIGNED": "SASL_PLAINTEXT"}
        options = [f"-D{_OAUTH.replace('common.security', 'sasl')}.allowed.urls={endpoint.keys_url}"]
        properties = _tokens(endpoint)
        if tickets is not None:
            listeners["KERBEROS"] = "SASL_PLAINTEXT"
            options.append(f"-Djava.security.krb5.conf={tickets.settings}")
            properties |= _tickets(tickets)
        cluster = KafkaCluster(CURRENT, properties=properties, listeners=listeners, java_options=options)
        yield Identity(cluster=stack.enter_context(cluster), endpoint=endpoint, kdc=tickets)


def _tokens(endpoint: TokenEndpoint) -> dict[str, str]:
    login = f"{_OAUTH}.OAuthBearerLoginModule required"
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connections.max.reauth.ms": _AN_HOUR_MS,
        "listener.name.unsigned.oauthbearer.sasl.jaas.config": f'{login} unsecuredLoginStringClaim_sub="broker";',
        "listener.name.signed.oauthbearer.sasl.jaas.config": f"{login};",
        "listener.name.signed.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        "listener.name.signed.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": endpoint.keys_url,
        "listener.name.signed.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.signed.oauthbearer.sasl.oauthbearer.expected.issuer": "https://issuer.test",
        "listener.name.signed.oauthbearer.sasl.oauthbearer.clock.skew.seconds": "0",
    }


def _tickets(tickets: Kdc) -> dict[str, str]:
    login = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    return {
        "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.kerberos.sasl.kerberos.service.name": "kafka",
        "listener.name.kerberos.gssapi.sasl.jaas.config": f'{login} keyTab="{tickets.service_keytab}" principal="{SERVICE}";',
    }
