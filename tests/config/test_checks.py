"""``kafka_async.config.checks``: what each option takes; no secret shows in what is refused."""

from pathlib import Path
from typing import Any

import pytest

from kafka_async.values import evolve

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


@pytest.mark.parametrize("option", ["ssl_truststore_certificates", "ssl_keystore_certificate_chain", "ssl_keystore_key"])
def test_pem_text_in_lines_stays_as_it_is_and_others_become_such(option: str) -> None:
    block = f"-----BEGIN X509 CRL-----\n{'Aa+/' * 16}\n{'Aa0=' * 3}\n-----END X509 CRL-----\n"
    old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AA\n\nAa==\n-----END RSA PRIVATE KEY-----"
    kept = f"one\n{block}two\n{block}{block}{old}", "-----BEGIN nothing"
    for given, meant in [(whole, whole) for whole in kept] + [
        (block.replace("\n", ""), block),
        (block.replace("\n", " ") * 2, f"{block}\n{block}"),
        (f"one {block}", f"one \n{block}"),
    ]:
        options: dict[str, Any] = {"ssl_keystore_key": block, "ssl_keystore_certificate_chain": block, option: given}
        made = config(security_protocol="SSL", **options)
        assert getattr(made, option) == meant
        assert getattr(evolve(made), option) == meant


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
