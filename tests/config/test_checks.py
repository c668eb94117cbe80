"""``kafka_async.config.checks``: what each option takes; no secret shows in what is refused."""

from pathlib import Path
from typing import Any

import pytest

from .support import PEM, SECRET, config, refusal


def test_paths_may_be_path_objects() -> None:
    assert config(security_protocol="SSL", ssl_cafile=Path("/ca.pem")).ssl_cafile == "/ca.pem"


OIDC = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
    "sasl_oauthbearer_client_credentials_client_id": "client",
    "sasl_oauthbearer_client_credentials_client_secret": SECRET,
}


@pytest.mark.parametrize("provider", ["token", 7, object()])
def test_a_token_provider_has_to_give_tokens(provider: object) -> None:
    text = refusal(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)
    assert "sasl_oauth_token_provider: expected an object with a method token()" in text


def test_extensions_are_a_mapping() -> None:
    assert "expected a mapping" in refusal(**OIDC, sasl_oauthbearer_extensions="a=b")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("sasl_plain_password", f"{SECRET}\0"),
        ("sasl_plain_password", f"{SECRET}\ud800"),
        ("sasl_plain_password", SECRET.encode()),
        ("sasl_plain_password", ""),
        ("ssl_password", SECRET.encode()),
        ("ssl_keystore_key", SECRET),
        ("ssl_keystore_key", PEM.encode()),
        ("sasl_oauthbearer_client_credentials_client_secret", 7),
        ("sasl_oauthbearer_extensions", [("key", SECRET)]),
        ("ssl_keyfile", PEM),
        ("ssl_keyfile", PEM.encode()),
        ("ssl_certfile", PEM),
        ("ssl_cafile", PEM),
        ("ssl_crlfile", PEM),
        ("sasl_oauthbearer_ssl_cafile", PEM),
        ("sasl_kerberos_keytab", SECRET.encode()),
    ],
)
def test_a_bad_secret_is_named_and_not_shown(option: str, value: Any) -> None:
    text = refusal(**{option: value})
    assert option in text
    assert "not shown" in text


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("ssl_cafile", "ssl_truststore_certificates"),
        ("ssl_certfile", "ssl_keystore_certificate_chain"),
        ("ssl_keyfile", "ssl_keystore_key"),
    ],
)
def test_text_in_place_of_a_file_names_the_option_for_text(option: str, other: str) -> None:
    assert f"expected the path of a file (PEM text goes into {other})" in refusal(**{option: PEM})


def test_a_password_in_an_address_does_not_show() -> None:
    with pytest.raises(ValueError, match="bootstrap_servers: 'broker:9092' is not an address") as caught:
        config(bootstrap_servers=f"kafka://user:{SECRET}@broker:9092")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("option", ["client_id", "client_rack", "group_id", "group_instance_id", "group_remote_assignor"])
@pytest.mark.parametrize("value", ["\udcff", "x" * 2**15, 5])
def test_text_that_no_request_can_hold_is_named(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{option}=.*expected a string"):
        config(**{option: value})


def test_a_duration_that_no_clock_can_go_back_is_refused() -> None:
    with pytest.raises(ValueError, match="auto_offset_reset='by_duration:P99999999999D'"):
        config(auto_offset_reset="by_duration:P99999999999D")
