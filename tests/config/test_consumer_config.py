"""Options: the defaults; of TLS and SASL what belongs together, what contradicts what, and that no secret shows."""

import functools
from typing import Any

import pytest
from attrs import fields

from kafka_async import ConsumerConfig, KafkaConsumer
from kafka_async.model import IsolationLevel

from .support import LOGIN, PEM, SECRET, config

JAVAS = {
    "group_id": None,
    "group_instance_id": None,
    "group_remote_assignor": None,
    "session_timeout_ms": 45_000,  # KIP-735
    "heartbeat_interval_ms": 3_000,
    "partition_assignment_strategy": ("range", "cooperative-sticky"),
    "max_poll_records": 500,
    "max_poll_interval_ms": 300_000,
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "isolation_level": IsolationLevel.READ_UNCOMMITTED,
    "allow_auto_create_topics": True,
    "exclude_internal_topics": True,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 52_428_800,
    "fetch_max_wait_ms": 500,
    "max_partition_fetch_bytes": 1_048_576,
    "check_crcs": True,
    "client_rack": "",
    "request_timeout_ms": 30_000,
    "default_api_timeout_ms": 60_000,
    "retry_backoff_ms": 100,
    "retry_backoff_max_ms": 1_000,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 1_000,
    "socket_connection_setup_timeout_ms": 10_000,
    "socket_connection_setup_timeout_max_ms": 30_000,
    "connections_max_idle_ms": 540_000,
    "metadata_max_age_ms": 300_000,
    "metadata_cluster_check_enable": True,
    "metadata_recovery_strategy": "rebootstrap",
    "metadata_recovery_rebootstrap_trigger_ms": 300_000,
    "client_dns_lookup": "use_all_dns_ips",
    "bootstrap_resolve_timeout_ms": 0,
    "enable_metrics_push": True,
}
"""Those of Kafka 4.4, but for ``group_protocol``, which is ``auto`` here, and the socket buffers, which the system tunes."""


@pytest.mark.parametrize("option", JAVAS)
def test_the_default_is_javas(option: str) -> None:
    assert getattr(config(), option) == JAVAS[option]


def test_defaults_of_security_are_javas() -> None:
    plain = config()
    assert (plain.security_protocol, plain.sasl_mechanism, plain.ssl_check_hostname) == ("PLAINTEXT", "GSSAPI", True)
    assert not plain.uses_tls
    assert not plain.uses_sasl


@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [("PLAINTEXT", False, False), ("SSL", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
)
def test_a_security_protocol_says_whether_tls_and_sasl_are_used(protocol: str, tls: bool, sasl: bool) -> None:
    options = {"sasl_mechanism": "SCRAM-SHA-512", **LOGIN} if sasl else {}
    made = config(security_protocol=protocol, **options)
    assert (made.uses_tls, made.uses_sasl) == (tls, sasl)


def test_what_is_the_default_anyway_is_no_reason_to_warn() -> None:
    assert config(ssl_check_hostname=True, sasl_mechanism="GSSAPI", ssl_cafile=None).security_protocol == "PLAINTEXT"


def test_auto_commit_may_be_asked_for_without_a_group_and_commits_nothing() -> None:
    assert config(group_id=None, enable_auto_commit=True).enable_auto_commit


def test_an_option_that_only_aiokafka_has_is_left_out_with_one_warning() -> None:
    with pytest.warns(DeprecationWarning, match="ignored") as caught:
        made = KafkaConsumer(api_version="auto", group_id="g")  # type: ignore[call-arg]  # a program that moves over
    assert made is not None
    assert [str(warning.message) for warning in caught] == [
        "option api_version is ignored: versions are negotiated with each broker"
    ]
    assert caught[0].filename == __file__


def test_another_client_id_changes_nothing_else_and_does_not_count_as_given() -> None:
    made = config(bootstrap_servers="a:1,[::1]:2", isolation_level="read_committed", max_poll_records=None, group_id="g")
    named = made.with_client_id("consumer-g-1")
    assert named.client_id == "consumer-g-1"
    assert named.given == made.given
    assert named.with_client_id(made.client_id) == made


def test_secrets_do_not_show_in_the_configuration() -> None:
    shown = repr(
        config(
            security_protocol="SASL_SSL",
            sasl_mechanism="PLAIN",
            ssl_keystore_certificate_chain=PEM,
            ssl_keystore_key=PEM,
            ssl_truststore_certificates=PEM,
            ssl_password=SECRET,
            **LOGIN,
        )
    )
    assert "user" in shown
    assert SECRET not in shown
    token = config(
        sasl_oauthbearer_extensions={"key": SECRET},
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"https://idp/token?key={SECRET}",
        sasl_oauthbearer_client_credentials_client_id="client",
        sasl_oauthbearer_client_credentials_client_secret=SECRET,
    )
    assert "'https://idp/token'" in repr(token)
    assert SECRET not in repr(token)
    provider = functools.partial(str, SECRET)
    assert SECRET not in repr(
        config(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)
    )


def test_nothing_is_taken_from_the_environment_or_from_placeholders(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2024-31141: Java's configuration providers read files and variables that a value names."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    made = config(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_plain_username="u", sasl_plain_password="${env:KAFKA_PASSWORD}"
    )
    assert made.sasl_plain_password == "${env:KAFKA_PASSWORD}"


@pytest.mark.filterwarnings("ignore:no effect with")
@pytest.mark.parametrize("name", [option.name for option in fields(ConsumerConfig)])
def test_a_value_of_megabytes_is_not_repeated_in_the_error_about_it(name: str) -> None:
    text, said = "x" * 1_000_000, ""
    for value in (text, [text], (text, text), {text: 1}):
        options: Any = {"bootstrap_servers": "host:1", name: value}
        try:
            KafkaConsumer("t", **options)
        except (ValueError, TypeError) as error:
            said += str(error)
    assert len(said) < 8_000
