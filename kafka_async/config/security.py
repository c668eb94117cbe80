"""Which options of TLS and SASL belong together, and which contradict each other.

Only the names of options, ``security_protocol`` and ``sasl_mechanism`` stand in what is raised here.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from .checks import endpoint_fault

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
NAMES: Final = ("security_protocol", "sasl_mechanism", *TLS, *SASL)
"""The options that belong together."""


Values = Mapping[str, Any]


def check_security(values: Values, changed: Collection[str]) -> None:
    """Raise ``ValueError`` for options of TLS and SASL that contradict each other.

    ``values``: those of all ``NAMES``, each checked by itself. ``changed``: those that are not the defaults.

    With ``security_protocol="PLAINTEXT"`` none of them has an effect, so none is refused: programs turn TLS and SASL on and off by
    that one option (see ``without_effect``).
    """
    if values["security_protocol"] != "PLAINTEXT":
        _check_tls(values, changed)
        _check_sasl(values, changed)


def without_effect(security_protocol: str, changed: Collection[str]) -> tuple[str, ...]:
    """Return the options of TLS and SASL that are set although ``security_protocol="PLAINTEXT"`` uses neither."""
    if security_protocol != "PLAINTEXT":
        return ()
    return tuple(_among((*TLS, "sasl_mechanism", *SASL), changed))


def _check_tls(values: Values, changed: Collection[str]) -> None:
    if not values["security_protocol"].endswith("SSL"):
        _refuse(TLS, changed, f"security_protocol={values['security_protocol']!r}", "it needs 'SSL' or 'SASL_SSL'")
    if values["ssl_context"] is not None:
        _refuse(TLS[1:], changed, "ssl_context", "the context decides")
    for first, second in _EITHER:
        if values[first] is not None:
            _refuse((second,), changed, first, "one of them is enough")
    for option, needed in _TOGETHER:
        if values[option] is not None and all(values[name] is None for name in needed):
            raise ValueError(f"{option} is set without {' or '.join(needed)}; set both")


def _check_sasl(values: Values, changed: Collection[str]) -> None:
    if not values["security_protocol"].startswith("SASL"):
        _refuse(SASL, changed, f"security_protocol={values['security_protocol']!r}", "it needs 'SASL_SSL' or 'SASL_PLAINTEXT'")
        return
    mechanism = f"sasl_mechanism={values['sasl_mechanism']!r}{'' if 'sasl_mechanism' in changed else ' (the default)'}"
    if values["sasl_mechanism"] in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        if missing := [name for name in _PASSWORD if values[name] is None]:
            raise ValueError(f"{mechanism} needs {' and '.join(missing)}")
    else:
        _refuse(_PASSWORD, changed, mechanism, "it is for PLAIN and SCRAM")
    if not values["sasl_mechanism"].startswith("SCRAM"):
        _refuse(_TOKEN, changed, mechanism, "it is for SCRAM")
    if values["sasl_mechanism"] == "OAUTHBEARER":
        _check_oauth(values, changed)
    else:
        _refuse(_OAUTH, changed, mechanism, "it is for OAUTHBEARER")
    if values["sasl_mechanism"] != "GSSAPI":
        _refuse(_KERBEROS, changed, mechanism, "it is for GSSAPI")


def _check_oauth(values: Values, changed: Collection[str]) -> None:
    provider, url, *rest = _OAUTH
    if values["sasl_oauth_token_provider"] is not None:
        _refuse((url, *rest), changed, provider, "one source of tokens is enough")
        return
    if values["sasl_oauthbearer_token_endpoint_url"] is None:
        raise ValueError(f"sasl_mechanism='OAUTHBEARER' needs {provider} or {url}")
    _check_grant(values, changed, url)
    fault = endpoint_fault(values["sasl_oauthbearer_token_endpoint_url"], values["sasl_oauthbearer_allow_http"])
    if fault is not None:
        raise ValueError(fault)


def _check_grant(values: Values, changed: Collection[str], url: str) -> None:
    """Check what proves to the token endpoint who asks: a secret, or an assertion."""
    assertion = _assertion(values, changed)
    secret = values["sasl_oauthbearer_client_credentials_client_secret"]
    if values["sasl_oauthbearer_grant_type"] != "client_credentials":
        if assertion is None:
            grant = f"sasl_oauthbearer_grant_type={values['sasl_oauthbearer_grant_type']!r}"
            raise ValueError(f"{grant} needs {_ASSERTION_FILE} or {_KEY_FILE}")
        if secret is not None:
            _need_client(values, _CLIENT_SECRET)
    elif assertion is not None:
        _refuse((_CLIENT_SECRET, "sasl_oauthbearer_header_urlencode"), changed, assertion, "the assertion takes the secret's place")
    else:
        _need_client(values, url)
        if secret is None:
            raise ValueError(f"{url} needs {_CLIENT_SECRET}, or an assertion in {_KEY_FILE} or {_ASSERTION_FILE}")


def _assertion(values: Values, changed: Collection[str]) -> str | None:
    """Return the option that assertions come from, and check those that go with it."""
    if values["sasl_oauthbearer_assertion_file"] is not None:
        _refuse(_SIGNED, changed, _ASSERTION_FILE, "the file has a whole assertion")
        return _ASSERTION_FILE
    if values["sasl_oauthbearer_assertion_private_key_file"] is None:
        for name in _among(_SIGNED, changed):
            raise ValueError(f"{name} is set without {_KEY_FILE}; set both")
        return None
    if values["sasl_oauthbearer_assertion_template_file"] is None:
        for name in (_ISSUER, _AUDIENCE):  # RFC 7523 section 3
            if values[name] is None:
                raise ValueError(f"{_KEY_FILE} needs {name}, or {_TEMPLATE} with that claim")
    return _KEY_FILE


def _need_client(values: Values, needing: str) -> None:
    if values["sasl_oauthbearer_client_credentials_client_id"] is None:
        raise ValueError(f"{needing} needs {_CLIENT_ID}")


def _refuse(names: Iterable[str], changed: Collection[str], other: str, why: str) -> None:
    """Raise for the first option of ``names`` that is set: it makes no sense with ``other``."""
    for name in _among(names, changed):
        raise ValueError(f"{name} is set together with {other}: {why}")


def _among(names: Iterable[str], changed: Collection[str]) -> list[str]:
    return [name for name in names if name in changed]
