"""Which options of TLS and SASL belong together, and which contradict each other.

Decides: what is refused, and what has no effect and is only warned of. Must never show a value: only the names of options,
``security_protocol`` and ``sasl_mechanism`` stand in what is raised here.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ..values import defaults_of
from .checks import endpoint_fault

if TYPE_CHECKING:
    from .consumer_config import ConsumerConfig

TLS: Final = (
    "ssl_context",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_crlfile",
    "ssl_ciphers",
    "ssl_check_hostname",
    "ssl_truststore_certificates",
    "ssl_keystore_certificate_chain",
    "ssl_keystore_key",
)
_EITHER: Final = (
    ("ssl_cafile", "ssl_truststore_certificates"),
    ("ssl_certfile", "ssl_keystore_certificate_chain"),
    ("ssl_keyfile", "ssl_keystore_key"),
)
_TOGETHER: Final = (
    ("ssl_keyfile", ("ssl_certfile",)),
    ("ssl_keystore_key", ("ssl_keystore_certificate_chain",)),
    ("ssl_keystore_certificate_chain", ("ssl_keystore_key",)),
    ("ssl_password", ("ssl_certfile", "ssl_keystore_key")),
    ("ssl_crlfile", ("ssl_cafile", "ssl_truststore_certificates")),
)
_PASSWORD: Final = ("sasl_plain_username", "sasl_plain_password")
_CLIENT_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
_CLIENT_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105  # the name of an option
_ASSERTION_FILE: Final = "sasl_oauthbearer_assertion_file"
_KEY_FILE: Final = "sasl_oauthbearer_assertion_private_key_file"
_TEMPLATE: Final = "sasl_oauthbearer_assertion_template_file"
_ISSUER: Final = "sasl_oauthbearer_assertion_claim_iss"
_AUDIENCE: Final = "sasl_oauthbearer_assertion_claim_aud"
_SIGNED: Final = (
    _KEY_FILE,
    "sasl_oauthbearer_assertion_private_key_passphrase",
    "sasl_oauthbearer_assertion_algorithm",
    _ISSUER,
    "sasl_oauthbearer_assertion_claim_sub",
    _AUDIENCE,
    "sasl_oauthbearer_assertion_claim_exp_seconds",
    "sasl_oauthbearer_assertion_claim_nbf_seconds",
    "sasl_oauthbearer_assertion_claim_jti_include",
    _TEMPLATE,
)
"""Options of assertions that are signed here."""
_OAUTH: Final = (
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_token_endpoint_url",
    _CLIENT_ID,
    _CLIENT_SECRET,
    "sasl_oauthbearer_grant_type",
    _ASSERTION_FILE,
    *_SIGNED,
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_extensions",
    "sasl_oauthbearer_header_urlencode",
    "sasl_oauthbearer_ssl_cafile",
    "sasl_oauthbearer_allow_http",
)
_KERBEROS: Final = ("sasl_kerberos_domain_name", "sasl_kerberos_principal", "sasl_kerberos_keytab")
_TOKEN: Final = ("sasl_scram_tokenauth",)
SASL: Final = (*_PASSWORD, *_TOKEN, *_OAUTH, *_KERBEROS)


def check_security(config: "ConsumerConfig") -> None:
    """Raise ``ValueError`` for options of TLS and SASL that contradict each other.

    With ``security_protocol="PLAINTEXT"`` none of them has an effect, so none is refused: programs turn TLS and SASL on and off by
    that one option (see ``without_effect``).
    """
    if config.security_protocol != "PLAINTEXT":
        _check_tls(config)
        _check_sasl(config)


def without_effect(config: "ConsumerConfig") -> tuple[str, ...]:
    """Return the options of TLS and SASL that are set although ``security_protocol="PLAINTEXT"`` uses neither."""
    if config.security_protocol != "PLAINTEXT":
        return ()
    return tuple(_set_among((*TLS, "sasl_mechanism", *SASL), config))


def _check_tls(config: "ConsumerConfig") -> None:
    if not config.uses_tls:
        _refuse(TLS, config, f"security_protocol={config.security_protocol!r}", "it needs 'SSL' or 'SASL_SSL'")
    if config.ssl_context is not None:
        _refuse(TLS[1:], config, "ssl_context", "the context decides")
    for first, second in _EITHER:
        if getattr(config, first) is not None:
            _refuse((second,), config, first, "one of them is enough")
    for option, needed in _TOGETHER:
        if getattr(config, option) is not None and all(getattr(config, name) is None for name in needed):
            raise ValueError(f"{option} is set without {' or '.join(needed)}; set both")


def _check_sasl(config: "ConsumerConfig") -> None:
    if not config.uses_sasl:
        _refuse(SASL, config, f"security_protocol={config.security_protocol!r}", "it needs 'SASL_SSL' or 'SASL_PLAINTEXT'")
        return
    mechanism = f"sasl_mechanism={config.sasl_mechanism!r}"
    if config.sasl_mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        for name in _PASSWORD:
            if getattr(config, name) is None:
                raise ValueError(f"{mechanism} needs {name}")
    else:
        _refuse(_PASSWORD, config, mechanism, "it is for PLAIN and SCRAM")
    if not config.sasl_mechanism.startswith("SCRAM"):
        _refuse(_TOKEN, config, mechanism, "it is for SCRAM")
    if config.sasl_mechanism == "OAUTHBEARER":
        _check_oauth(config)
    else:
        _refuse(_OAUTH, config, mechanism, "it is for OAUTHBEARER")
    if config.sasl_mechanism != "GSSAPI":
        _refuse(_KERBEROS, config, mechanism, "it is for GSSAPI")


def _check_oauth(config: "ConsumerConfig") -> None:
    provider, url, *rest = _OAUTH
    if config.sasl_oauth_token_provider is not None:
        _refuse((url, *rest), config, provider, "one source of tokens is enough")
        return
    if config.sasl_oauthbearer_token_endpoint_url is None:
        raise ValueError(f"sasl_mechanism='OAUTHBEARER' needs {provider} or {url}")
    _check_grant(config, url)
    fault = endpoint_fault(config.sasl_oauthbearer_token_endpoint_url, config.sasl_oauthbearer_allow_http)
    if fault is not None:
        raise ValueError(fault)


def _check_grant(config: "ConsumerConfig", url: str) -> None:
    """Check what proves to the token endpoint who asks: a secret, or an assertion."""
    assertion = _assertion(config)
    secret = config.sasl_oauthbearer_client_credentials_client_secret
    if config.sasl_oauthbearer_grant_type != "client_credentials":
        if assertion is None:
            grant = f"sasl_oauthbearer_grant_type={config.sasl_oauthbearer_grant_type!r}"
            raise ValueError(f"{grant} needs {_ASSERTION_FILE} or {_KEY_FILE}")
        if secret is not None:
            _need_client(config, _CLIENT_SECRET)
    elif assertion is not None:
        _refuse((_CLIENT_SECRET, "sasl_oauthbearer_header_urlencode"), config, assertion, "the assertion takes the secret's place")
    else:
        _need_client(config, url)
        if secret is None:
            raise ValueError(f"{url} needs {_CLIENT_SECRET}, or an assertion in {_KEY_FILE} or {_ASSERTION_FILE}")


def _assertion(config: "ConsumerConfig") -> str | None:
    """Return the option that assertions come from, and check those that go with it."""
    if config.sasl_oauthbearer_assertion_file is not None:
        _refuse(_SIGNED, config, _ASSERTION_FILE, "the file has a whole assertion")
        return _ASSERTION_FILE
    if config.sasl_oauthbearer_assertion_private_key_file is None:
        for name in _set_among(_SIGNED, config):
            raise ValueError(f"{name} is set without {_KEY_FILE}; set both")
        return None
    if config.sasl_oauthbearer_assertion_template_file is None:
        for name in (_ISSUER, _AUDIENCE):  # RFC 7523 section 3
            if getattr(config, name) is None:
                raise ValueError(f"{_KEY_FILE} needs {name}, or {_TEMPLATE} with that claim")
    return _KEY_FILE


def _need_client(config: "ConsumerConfig", needing: str) -> None:
    if config.sasl_oauthbearer_client_credentials_client_id is None:
        raise ValueError(f"{needing} needs {_CLIENT_ID}")


def _refuse(names: Iterable[str], config: "ConsumerConfig", other: str, why: str) -> None:
    """Raise for the first option of ``names`` that is set: it makes no sense with ``other``."""
    for name in _set_among(names, config):
        raise ValueError(f"{name} is set together with {other}: {why}")


def _set_among(names: Iterable[str], config: "ConsumerConfig") -> Iterator[str]:
    defaults = defaults_of(type(config))
    return (name for name in names if getattr(config, name) != defaults[name])
