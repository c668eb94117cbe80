"""``kafka_async.config.security``: which options of TLS and SASL belong together, and which contradict each other."""

import re
import ssl
from typing import Any

import pytest

from kafka_async import KafkaConsumer

from .support import LOGIN, PEM, SECRET, config, refusal

TLS_OPTIONS: list[tuple[str, Any]] = [
    ("ssl_context", ssl.create_default_context()),
    ("ssl_cafile", "ca.pem"),
    ("ssl_certfile", "cert.pem"),
    ("ssl_crlfile", "crl.pem"),
    ("ssl_ciphers", "ECDHE+AESGCM"),
    ("ssl_check_hostname", False),
    ("ssl_truststore_certificates", PEM),
    ("ssl_keystore_key", PEM),
    ("ssl_password", SECRET),
]


@pytest.mark.parametrize(("option", "value"), TLS_OPTIONS)
def test_an_option_of_tls_beside_a_login_without_tls_names_both(option: str, value: Any) -> None:
    text = refusal(security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", **{option: value}, **LOGIN)
    assert option in text
    assert "security_protocol" in text


SASL_OPTIONS: list[tuple[str, Any]] = [
    ("sasl_mechanism", "SCRAM-SHA-512"),
    ("sasl_plain_username", SECRET),
    ("sasl_plain_password", SECRET),
    ("sasl_oauth_token_provider", lambda: SECRET),
    ("sasl_oauthbearer_token_endpoint_url", f"https://idp/token?key={SECRET}"),
    ("sasl_oauthbearer_client_credentials_client_secret", SECRET),
    ("sasl_kerberos_keytab", "billing.keytab"),
]


@pytest.mark.parametrize(("option", "value"), [*TLS_OPTIONS, *SASL_OPTIONS])
def test_an_option_of_tls_or_sasl_beside_plaintext_is_taken_with_one_warning_that_names_it(option: str, value: Any) -> None:
    with pytest.warns(UserWarning, match="no effect") as caught:
        made = config(**{option: value})
    assert [str(warning.message) for warning in caught] == [f"no effect with security_protocol='PLAINTEXT': {option}"]
    assert getattr(made, option) == value
    assert not made.uses_tls
    assert not made.uses_sasl


def test_a_whole_login_beside_plaintext_is_one_warning_at_the_line_of_the_program_and_shows_no_value() -> None:
    options = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN", **LOGIN, "ssl_cafile": "ca.pem"}
    with pytest.warns(UserWarning, match="no effect") as caught:
        KafkaConsumer(**options)
    (warning,) = caught
    assert str(warning.message) == (
        "no effect with security_protocol='PLAINTEXT': ssl_cafile, sasl_mechanism, sasl_plain_username, sasl_plain_password"
    )
    assert warning.filename == __file__


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"ssl_context": ssl.create_default_context(), "ssl_cafile": "ca.pem"}, ("ssl_context", "ssl_cafile")),
        ({"ssl_context": ssl.create_default_context(), "ssl_check_hostname": False}, ("ssl_context", "ssl_check_hostname")),
        ({"ssl_cafile": "ca.pem", "ssl_truststore_certificates": PEM}, ("ssl_cafile", "ssl_truststore_certificates")),
        (
            {"ssl_certfile": "c.pem", "ssl_keystore_certificate_chain": PEM, "ssl_keystore_key": PEM},
            ("ssl_certfile", "ssl_keystore_certificate_chain"),
        ),
        ({"ssl_keyfile": "key.pem"}, ("ssl_keyfile", "ssl_certfile")),
        ({"ssl_keystore_key": PEM}, ("ssl_keystore_key", "ssl_keystore_certificate_chain")),
        ({"ssl_keystore_certificate_chain": PEM}, ("ssl_keystore_certificate_chain", "ssl_keystore_key")),
        ({"ssl_password": SECRET}, ("ssl_password", "ssl_certfile")),
        ({"ssl_crlfile": "crl.pem"}, ("ssl_crlfile", "ssl_cafile")),
    ],
)
def test_options_of_tls_that_do_not_fit_are_both_named(options: dict[str, Any], named: tuple[str, ...]) -> None:
    text = refusal(security_protocol="SSL", **options)
    assert all(name in text for name in named)


def test_a_login_names_all_that_is_missing() -> None:
    assert "sasl_mechanism='PLAIN' needs sasl_plain_username and sasl_plain_password" in refusal(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN"
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("missing", ["sasl_plain_username", "sasl_plain_password"])
def test_a_password_mechanism_needs_both_parts(mechanism: str, missing: str) -> None:
    text = refusal(security_protocol="SASL_SSL", sasl_mechanism=mechanism, **{**LOGIN, missing: None})
    assert text == f"sasl_mechanism={mechanism!r} needs {missing}"


def test_credentials_without_sasl_would_be_left_out_silently_so_they_are_refused() -> None:
    text = refusal(security_protocol="SSL", sasl_mechanism="PLAIN", **LOGIN)
    assert "sasl_plain_username" in text
    assert "security_protocol='SSL'" in text


def test_a_password_that_the_mechanism_has_no_use_for_is_refused() -> None:
    text = refusal(security_protocol="SASL_SSL", **LOGIN)
    assert "sasl_plain_username" in text
    assert "sasl_mechanism='GSSAPI'" in text


def test_a_delegation_token_is_for_scram() -> None:
    text = refusal(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_scram_tokenauth=True, **LOGIN)
    assert "sasl_scram_tokenauth" in text
    assert "it is for SCRAM" in text


def test_oauth_needs_one_source_of_tokens() -> None:
    assert "sasl_oauth_token_provider" in refusal(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER")
    text = refusal(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=lambda: "token",
        sasl_oauthbearer_token_endpoint_url="https://idp/token",
    )
    assert "sasl_oauthbearer_token_endpoint_url" in text
    assert "sasl_oauth_token_provider" in text


def test_options_of_oauth_need_oauth() -> None:
    text = refusal(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_oauthbearer_scope="kafka", **LOGIN)
    assert "sasl_oauthbearer_scope" in text
    assert "sasl_mechanism='PLAIN'" in text


OIDC = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
    "sasl_oauthbearer_client_credentials_client_id": "client",
    "sasl_oauthbearer_client_credentials_client_secret": SECRET,
}


@pytest.mark.parametrize("missing", ["client_id", "client_secret"])
def test_a_token_endpoint_needs_the_credentials_of_a_client(missing: str) -> None:
    option = f"sasl_oauthbearer_client_credentials_{missing}"
    assert f"token_endpoint_url needs {option}" in refusal(**OIDC | {option: None})


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://idp/token", "expected https, or sasl_oauthbearer_allow_http=True"),
        ("file:///etc/passwd", "expected 'https://host/path'"),
        (f"https://me:{SECRET}@idp/token", "expected no user name and password in it"),
    ],
)
def test_the_address_of_a_token_endpoint_is_checked_and_not_shown(url: str, text: str) -> None:
    refused = refusal(**OIDC | {"sasl_oauthbearer_token_endpoint_url": url})
    assert text in refused
    assert SECRET not in refused


def test_a_token_endpoint_without_tls_has_to_be_allowed() -> None:
    url = "http://localhost/token"
    assert config(**OIDC, sasl_oauthbearer_allow_http=True) is not None
    made = config(**OIDC | {"sasl_oauthbearer_token_endpoint_url": url, "sasl_oauthbearer_allow_http": True})
    assert made.sasl_oauthbearer_token_endpoint_url == url


ASKING = {name: OIDC[name] for name in ("security_protocol", "sasl_mechanism", "sasl_oauthbearer_token_endpoint_url")}
JWT_BEARER = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}
CLIENT = {"client_credentials_client_id": "client", "client_credentials_client_secret": SECRET}
KEY = {"assertion_private_key_file": "key.pem", "assertion_claim_iss": "client", "assertion_claim_aud": "https://idp/token"}
FILE = {"assertion_file": "token"}


def asking(**options: Any) -> dict[str, Any]:
    return ASKING | {f"sasl_oauthbearer_{name}": value for name, value in options.items()}


@pytest.mark.parametrize(
    "options",
    [
        KEY,
        FILE,
        KEY | JWT_BEARER,
        FILE | JWT_BEARER,
        FILE | {"client_credentials_client_id": "client"},
        FILE | CLIENT | JWT_BEARER,
        {"assertion_private_key_file": "key.pem", "assertion_template_file": "template.json"},
        KEY | {"assertion_algorithm": "ES256", "assertion_private_key_passphrase": SECRET, "assertion_claim_jti_include": True},
    ],
)
def test_an_assertion_proves_who_asks(options: dict[str, Any]) -> None:
    assert SECRET not in repr(config(**asking(**options)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"client_credentials_client_id": "c"}, "client_secret, or an assertion in sasl_oauthbearer_assertion_private_key_file"),
        (JWT_BEARER, "needs sasl_oauthbearer_assertion_file or sasl_oauthbearer_assertion_private_key_file"),
        (JWT_BEARER | CLIENT, "needs sasl_oauthbearer_assertion_file or sasl_oauthbearer_assertion_private_key_file"),
        (FILE | JWT_BEARER | {"client_credentials_client_secret": SECRET}, "client_secret needs .*client_id"),
        (KEY | CLIENT, "client_secret is set together with .*private_key_file: the assertion takes the secret's place"),
        (FILE | CLIENT, "client_secret is set together with sasl_oauthbearer_assertion_file"),
        (FILE | {"header_urlencode": True}, "header_urlencode is set together with sasl_oauthbearer_assertion_file"),
        (FILE | KEY, "private_key_file is set together with sasl_oauthbearer_assertion_file: the file has a whole assertion"),
        (FILE | {"assertion_algorithm": "ES256"}, "assertion_algorithm is set together with sasl_oauthbearer_assertion_file"),
        (CLIENT | {"assertion_claim_iss": "c"}, "claim_iss is set without sasl_oauthbearer_assertion_private_key_file"),
        (KEY | {"assertion_claim_iss": None}, "private_key_file needs sasl_oauthbearer_assertion_claim_iss, or .*template_file"),
        (KEY | {"assertion_claim_aud": None}, "private_key_file needs sasl_oauthbearer_assertion_claim_aud, or .*template_file"),
        (KEY | {"assertion_algorithm": "none"}, "assertion_algorithm='none': expected one of 'RS256', 'ES256'"),
        (KEY | {"assertion_claim_exp_seconds": 86_401}, "claim_exp_seconds=86401: expected an integer from 0 to 86400"),
        (KEY | {"grant_type": "password"}, "grant_type='password': expected one of 'client_credentials', 'urn:ietf"),
        (
            KEY | {"assertion_private_key_file": f"-----BEGIN PRIVATE KEY-----{SECRET}"},
            "private_key_file: expected the path of a file",
        ),
    ],
)
def test_assertions_that_cannot_work_are_refused_by_name(options: dict[str, Any], text: str) -> None:
    refused = refusal(**asking(**options))
    assert re.search(text, refused), refused
    assert SECRET not in refused


def test_assertions_are_for_a_token_endpoint() -> None:
    text = refusal(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=str, **{
        f"sasl_oauthbearer_{name}": value for name, value in FILE.items()
    })  # fmt: skip
    assert "sasl_oauthbearer_assertion_file is set together with sasl_oauth_token_provider" in text


def test_a_password_without_a_mechanism_meets_the_default() -> None:
    text = refusal(security_protocol="SASL_SSL", **LOGIN)
    assert "sasl_plain_username is set together with sasl_mechanism='GSSAPI' (the default): it is for PLAIN and SCRAM" in text


@pytest.mark.parametrize("option", ["domain_name", "principal", "keytab"])
def test_options_of_kerberos_need_gssapi(option: str) -> None:
    text = refusal(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", **LOGIN, **{f"sasl_kerberos_{option}": "x"})
    assert f"sasl_kerberos_{option} is set together with sasl_mechanism='PLAIN'" in text
