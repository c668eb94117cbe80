"""Options of security that only Java's client has, in the words of this one.

Decides: which of our options says the same, which mean nothing here, and what to use in place of the rest. Owns nothing. Must never
show a value that may be a secret, nor resolve a reference to one (``secrets``).

A job of Spark's own connector moves over by the name of its format, so these stand in many jobs.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from ...errors import KafkaConfigurationError
from .jaas import OPTION, Login, parse_login
from .secrets import is_reference

_JAAS: Final = "sasl_jaas_config"
_HANDLER: Final = "sasl_login_callback_handler_class"
_RETRIEVER: Final = "sasl_oauthbearer_jwt_retriever_class"
_CHECK: Final = "ssl_endpoint_identification_algorithm"
_STORES: Final = ("ssl_keystore", "ssl_truststore")
_PEM: Final = ("kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain", "kafka.ssl.truststore.certificates")

NAMES: Final = frozenset(
    (
        *(_JAAS, _HANDLER, _RETRIEVER, _CHECK, "ssl_key_password", "ssl_protocol", "ssl_enabled_protocols", "security_providers"),
        *(f"{store}_{what}" for store in _STORES for what in ("location", "type", "password")),
    )
)
"""What ``in_our_words`` takes, beside our own."""

MEANINGLESS: Final = frozenset(
    (
        *(f"sasl_login_refresh_{what}" for what in ("buffer_seconds", "min_period_seconds", "window_factor", "window_jitter")),
        *(f"sasl_kerberos_{what}" for what in ("kinit_cmd", "min_time_before_relogin", "ticket_renew_jitter")),
        "sasl_kerberos_ticket_renew_window_factor",
        # What is looked up in tokens: brokers do that.
        *(f"sasl_oauthbearer_{what}" for what in ("scope_claim_name", "sub_claim_name", "expected_audience", "expected_issuer")),
        *(f"sasl_oauthbearer_jwks_endpoint_{what}" for what in ("url", "refresh_ms", "retry_backoff_ms", "retry_backoff_max_ms")),
        "sasl_oauthbearer_clock_skew_seconds",
        "sasl_oauthbearer_jwt_validator_class",
        "ssl_keymanager_algorithm",
        "ssl_trustmanager_algorithm",
        "ssl_secure_random_implementation",
    )
)
"""Options that this client does without: sessions, tokens and tickets are renewed in time by themselves."""

_TOKENS: Final = "kafka.sasl.mechanism=OAUTHBEARER and kafka.sasl.oauth.token.provider=module:callable, which returns a token"
_NO_CLASS: Final = f"classes of Java are not loaded; for tokens of your own use {_TOKENS}"
_OPENSSL: Final = "providers of Java's cryptography are not loaded; OpenSSL, with which Python was built, does that work"
_ASSERTED: Final = (
    *(f"claim_{what}" for what in ("aud", "exp_seconds", "iss", "jti_include", "nbf_seconds", "sub")),
    *("algorithm", "file", "private_key_file", "private_key_passphrase", "template_file"),
)
_ASSERTION: Final = f"tokens are asked for with client credentials only; use {_TOKENS}"

REFUSED: Final[Mapping[str, str]] = {
    "sasl_client_callback_handler_class": _NO_CLASS,
    "sasl_login_class": _NO_CLASS,
    "ssl_engine_factory_class": "classes of Java are not loaded; use kafka.ssl.truststore.* and kafka.ssl.keystore.* with PEM",
    "ssl_provider": _OPENSSL,
    "ssl_cipher_suites": "use kafka.ssl.ciphers, in OpenSSL's words, for ciphers up to TLS 1.2",
    "config_providers": "use env:NAME, file:/path or call:module:function as the value of the option itself",
    **{f"sasl_oauthbearer_assertion_{what}": _ASSERTION for what in _ASSERTED},
}
"""What has no counterpart by the same name, and what to use."""

_USE_INSTEAD: Final[Mapping[str, str]] = {
    "Krb5LoginModule": "kafka.sasl.kerberos.principal and kafka.sasl.kerberos.keytab (without them: the tickets of the process)",
    "IAMLoginModule": f"{_TOKENS}; kafka_async.MskTokenProvider makes those of Amazon MSK",
}
_CREDENTIALS: Final = "sasl_oauthbearer_client_credentials_client_"
_OAUTH: Final = {"clientId": f"{_CREDENTIALS}id", "clientSecret": f"{_CREDENTIALS}secret", "scope": "sasl_oauthbearer_scope"}
_EXTENSION: Final = "extension_"
LOGIN_SECRETS: Final = ("sasl_plain_password", _OAUTH["clientSecret"])
"""Our options for what is secret in ``sasl.jaas.config``."""


def dotted(name: str) -> str:
    """Return the name under which people give an option."""
    return f"kafka.{name.replace('_', '.')}"


def in_our_words(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the options, those of Java in our words; ``sasl.jaas.config`` stays where it is a reference to the text.

    Raises ``KafkaConfigurationError`` that names the option and what to use in its place, never a value that may be secret.
    """
    ours = {name: text for name, text in kafka.items() if name not in NAMES}
    if _JAAS in kafka:
        if is_reference(_JAAS, kafka[_JAAS]):
            ours[_JAAS] = kafka[_JAAS]
        else:
            ours = with_login({**ours, _JAAS: kafka[_JAAS]})
    _check_classes(kafka)
    _check_versions(kafka)
    for name, text in (_stores(kafka) | _host_name(kafka)).items():
        _put(ours, name[0], text, dotted(name[1]))
    return ours


def with_login(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, ``sasl.jaas.config`` in our words: that is for who connects, since it may have been a reference."""
    ours = {name: value for name, value in kafka.items() if name != _JAAS}
    if _JAAS in kafka:
        for name, text in _credentials(parse_login(kafka[_JAAS]), ours).items():
            _put(ours, name, text, OPTION)
    return ours


def _put(ours: dict[str, Any], name: str, text: str, option: str) -> None:
    if ours.setdefault(name, text) != text:
        raise KafkaConfigurationError(f"{option} and {dotted(name)} say different things; leave one of them out")


# --- sasl.jaas.config ------------------------------------------------------------------------------------------------------------


def _credentials(login: Login, ours: Mapping[str, Any]) -> dict[str, str]:
    """Return what a login says, by our names."""
    if login.kind in ("PlainLoginModule", "ScramLoginModule"):
        return _password(login, ours)
    if login.kind == "OAuthBearerLoginModule":
        return _oauth(login)
    other = "expected PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule; for tokens of your own use " + _TOKENS
    instead = f"use {_USE_INSTEAD[login.kind]}" if login.kind in _USE_INSTEAD else other
    raise KafkaConfigurationError(f"{OPTION}: the login module {login.module:.100} is not supported; {instead}")


def _password(login: Login, ours: Mapping[str, Any]) -> dict[str, str]:
    if login.options.get("tokenauth", "").lower() == "true":
        raise KafkaConfigurationError(f"{OPTION}: delegation tokens (tokenauth) are not supported; use a user's name and password")
    found = {}
    for name in ("username", "password"):
        option = f"sasl_plain_{name}"
        if name in login.options:
            found[option] = login.options[name]
        elif option not in ours:
            raise KafkaConfigurationError(f'{OPTION}: {login.kind} has no {name}; expected {name}="...", or {dotted(option)}')
    return found


def _oauth(login: Login) -> dict[str, str]:
    if any(name.startswith("unsecuredLogin") for name in login.options):
        raise KafkaConfigurationError(f"{OPTION}: tokens without a signature (unsecuredLogin...) are not made; use {_TOKENS}")
    if any(name.startswith("ssl.") for name in login.options):
        raise KafkaConfigurationError(f"{OPTION}: ssl options of the token endpoint: use kafka.sasl.oauthbearer.ssl.cafile")
    found = {ours: login.options[name] for name, ours in _OAUTH.items() if name in login.options}
    extensions = {name.removeprefix(_EXTENSION): text for name, text in login.options.items() if name.startswith(_EXTENSION)}
    return found | ({"sasl_oauthbearer_extensions": json.dumps(extensions)} if extensions else {})


def _check_classes(kafka: Mapping[str, str]) -> None:
    """Let those classes pass that do what this client does by itself: ask an endpoint with client credentials."""
    for name, known in (
        (_HANDLER, ("OAuthBearerLoginCallbackHandler",)),
        (
            _RETRIEVER,
            ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever"),
        ),
    ):
        if name in kafka and kafka[name].strip().rpartition(".")[2] not in known:
            raise KafkaConfigurationError(f"{dotted(name)} is not supported: {_NO_CLASS}")
    if kafka.get("security_providers", "").strip():
        raise KafkaConfigurationError(f"{dotted('security_providers')} is not supported: {_OPENSSL}")


# --- TLS -------------------------------------------------------------------------------------------------------------------------


def _check_versions(kafka: Mapping[str, str]) -> None:
    for name, spoken in ("ssl_protocol", {"TLS", "TLSv1.2", "TLSv1.3"}), ("ssl_enabled_protocols", {"TLSv1.2", "TLSv1.3"}):
        if name in kafka and not spoken & {version.strip() for version in kafka[name].split(",")}:
            raise KafkaConfigurationError(f"{dotted(name)}={kafka[name]!r}: TLS 1.2 and 1.3 are spoken, and nothing below")


def _stores(kafka: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Return what keystore and truststore are, by our name and Java's."""
    found = {}
    for store, ours, pem in zip(_STORES, ("ssl_certfile", "ssl_cafile"), _PEM, strict=True):
        location, kind, password = (f"{store}_{what}" for what in ("location", "type", "password"))
        if (kind in kafka or location in kafka) and (given := kafka.get(kind, "").strip()).upper() != "PEM":
            what = f"{dotted(kind)}={given!r}" if kind in kafka else f"{dotted(location)} without {dotted(kind)}"
            how = (
                f"convert it to PEM (keytool, openssl): a file as {dotted(location)} with {dotted(kind)}=PEM, or the text as {pem}"
            )
            raise KafkaConfigurationError(f"{what}: stores of Java (JKS, PKCS12) are not read; {how}")
        if password in kafka:
            raise KafkaConfigurationError(f"{dotted(password)}: PEM has no password of a store; a key's is kafka.ssl.key.password")
        if location in kafka:
            found[ours, location] = kafka[location]
    if "ssl_key_password" in kafka:
        found["ssl_password", "ssl_key_password"] = kafka["ssl_key_password"]
    return found


def _host_name(kafka: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Return whether host names are checked, by our name and Java's; nothing where there is no TLS that could."""
    if _CHECK not in kafka:
        return {}
    word = kafka[_CHECK].strip().lower()
    if word not in ("https", ""):
        raise KafkaConfigurationError(f"{dotted(_CHECK)}={kafka[_CHECK]!r}: expected https, or nothing to check no host names")
    if kafka.get("security_protocol", "PLAINTEXT").endswith("PLAINTEXT"):
        return {}
    return {("ssl_check_hostname", _CHECK): "true" if word else "false"}
