"""Which conversation a connection gets.

It brings randomness and threads to mechanisms that are pure.
"""

import base64
import secrets
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ...config import ConsumerConfig
from ...model import Node
from ...values import define, field
from ..auth import AuthenticatorFactory
from .assertion import Assertion, AssertionFile, SignedAssertion
from .conversation import Mechanism, SaslConversation
from .gssapi import Gssapi
from .kerberos import contexts
from .oauthbearer import OAuthBearer
from .oidc import OidcTokenProvider
from .plain import Plain
from .scram import Scram, salted_password
from .threads import on_thread
from .tokens import bearers

_NONCE_BYTES: Final = 24
_MOST_KEYS: Final = 4
_TOKEN_SHARE: Final = 0.75
"""Share of the setup timeout that a token may take: less than the 80 % that a connection waits at least (``link.py``)."""

_Maker = Callable[[Node], Mechanism]


def authenticators(config: ConsumerConfig) -> AuthenticatorFactory | None:
    """Return what makes the conversation of each connection; ``None`` if ``security_protocol`` has no SASL."""
    if not config.uses_sasl:
        return None
    make = _MAKERS[config.sasl_mechanism](config)
    return lambda node: SaslConversation(make(node), str(node))


def exposure(config: ConsumerConfig) -> str | None:
    """Return what to report of options that show a secret to eavesdroppers at each login; ``None`` if they show none."""
    return _EXPOSED.get(config.sasl_mechanism) if config.uses_sasl and not config.uses_tls else None


_EXPOSED: Final[Mapping[str, str]] = {
    "PLAIN": "sasl_mechanism='PLAIN' without TLS shows the password to eavesdroppers; use security_protocol='SASL_SSL', or SCRAM",
    "OAUTHBEARER": "sasl_mechanism='OAUTHBEARER' without TLS shows the token to eavesdroppers; use security_protocol='SASL_SSL'",
}


def _plain(config: ConsumerConfig) -> _Maker:
    username, password = config.sasl_plain_username or "", config.sasl_plain_password or ""
    return lambda node: Plain(username, password)


def _scram(config: ConsumerConfig) -> _Maker:
    name, username, password = config.sasl_mechanism, config.sasl_plain_username or "", config.sasl_plain_password or ""
    keys = SaltedPasswords(name, password)

    def make(node: Node) -> Scram:
        nonce = base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        return Scram(name, username, password, nonce=nonce, derive=keys.derive, token=config.sasl_scram_tokenauth)

    return make


def _oauthbearer(config: ConsumerConfig) -> _Maker:
    fetch = bearers(config.sasl_oauth_token_provider or _oidc(config))
    return lambda node: OAuthBearer(fetch)


def _oidc(config: ConsumerConfig) -> OidcTokenProvider:
    return OidcTokenProvider(
        config.sasl_oauthbearer_token_endpoint_url or "",
        config.sasl_oauthbearer_client_credentials_client_id,
        config.sasl_oauthbearer_client_credentials_client_secret,
        assertion=_assertion(config),
        grant_type=config.sasl_oauthbearer_grant_type,
        scope=config.sasl_oauthbearer_scope,
        extensions=config.sasl_oauthbearer_extensions,
        urlencode=config.sasl_oauthbearer_header_urlencode,
        allow_http=config.sasl_oauthbearer_allow_http,
        ssl_cafile=config.sasl_oauthbearer_ssl_cafile,
        connect_timeout=config.sasl_login_connect_timeout_ms / 1000,
        read_timeout=config.sasl_login_read_timeout_ms / 1000,
        retry_backoff=config.sasl_login_retry_backoff_ms / 1000,
        retry_backoff_max=config.sasl_login_retry_backoff_max_ms / 1000,
        timeout=_TOKEN_SHARE * config.socket_connection_setup_timeout_ms / 1000,
    )


def _assertion(config: ConsumerConfig) -> Assertion | None:
    """Return what makes assertions, if the options ask for them. Raises ``ValueError`` if a file cannot be used."""
    if config.sasl_oauthbearer_assertion_file is not None:
        found: Assertion = AssertionFile(config.sasl_oauthbearer_assertion_file)
    elif config.sasl_oauthbearer_assertion_private_key_file is not None:
        claims = {
            "iss": config.sasl_oauthbearer_assertion_claim_iss,
            "sub": config.sasl_oauthbearer_assertion_claim_sub,
            "aud": config.sasl_oauthbearer_assertion_claim_aud,
        }
        found = SignedAssertion(
            key_file=config.sasl_oauthbearer_assertion_private_key_file,
            passphrase=config.sasl_oauthbearer_assertion_private_key_passphrase,
            algorithm=config.sasl_oauthbearer_assertion_algorithm,
            claims={name: value for name, value in claims.items() if value is not None},
            template=config.sasl_oauthbearer_assertion_template_file,
            expires_after=config.sasl_oauthbearer_assertion_claim_exp_seconds,
            valid_before=config.sasl_oauthbearer_assertion_claim_nbf_seconds,
            with_id=config.sasl_oauthbearer_assertion_claim_jti_include,
        )
    else:
        return None
    found.make()
    return found


def _gssapi(config: ConsumerConfig) -> _Maker:
    make = contexts(config)
    return lambda node: Gssapi(make(node))


@define(eq=False)
class SaltedPasswords:
    """Derives keys on a thread, each once: a user's salt is the same on every broker, and so is the count of iterations."""

    _mechanism: str
    _password: str = field(repr=False)
    _known: dict[tuple[bytes, int], bytes] = field(factory=dict, repr=False, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, repr=False, init=False)

    async def derive(self, salt: bytes, iterations: int) -> bytes:
        """See ``scram.Derive``. A caller that is cancelled does not wait for the thread, which ends by itself."""
        known = self._known.get((salt, iterations))
        if known is not None:
            return known
        return await on_thread(partial(self._derive, salt, iterations))

    def _derive(self, salt: bytes, iterations: int) -> bytes:
        with self._lock:  # several connections open at once and want the same key
            known = self._known.get((salt, iterations))
            if known is None:
                known = salted_password(self._mechanism, self._password, salt, iterations)
                if len(self._known) >= _MOST_KEYS:
                    self._known.clear()
                self._known[salt, iterations] = known
            return known


_MAKERS: Final[dict[str, Callable[[ConsumerConfig], _Maker]]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": _oauthbearer,
    "GSSAPI": _gssapi,
}
"""A function for each ``sasl_mechanism``. It is called once for each consumer, what it returns once for each conversation."""
