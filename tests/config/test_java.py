"""``kafka_async.config.java``: Java's options in our words."""

import re
from typing import Any

import pytest

from kafka_async import ConsumerConfig
from kafka_async.errors import KafkaConfigurationError
from kafka_async.model import IsolationLevel

from .support import JAVAS, PACKAGE, SECRET

# --- properties files ------------------------------------------------------------------------------------------------------------


def test_a_file_of_javas_is_read_with_its_words(written: Any) -> None:
    made = ConsumerConfig.from_properties(written(JAVAS))
    assert made.bootstrap_servers == (("a", 1), ("b", 2))
    assert (made.group_id, made.group_protocol, made.enable_auto_commit, made.max_poll_records) == ("billing", "classic", False, 20)
    assert made.isolation_level is IsolationLevel.READ_COMMITTED
    assert len(made.partition_assignment_strategy) == 2
    assert made.key_deserializer is None
    text: Any = made.value_deserializer
    assert [text(data) for data in ("ä".encode(), None)] == ["ä", None]
    assert (made.security_protocol, made.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (made.sasl_plain_username, made.sasl_plain_password) == ("alice", SECRET)
    assert (made.ssl_cafile, made.ssl_check_hostname) == ("/etc/kafka/ca.pem", False)
    assert SECRET not in repr(made)


def test_pem_text_over_several_lines_is_text_with_blanks_in_place_of_their_ends(written: Any) -> None:
    pem = f"-----BEGIN CERTIFICATE-----\n{'Aa+/' * 16}\nAa0=\n-----END CERTIFICATE-----\n"
    lines = " \\\n".join(pem.splitlines())
    made = ConsumerConfig.from_properties(
        written(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates={lines}")
    )
    assert made.ssl_truststore_certificates == pem


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("security.protocol=Plaintext", "security_protocol", "PLAINTEXT"),
        ("group.protocol=Consumer", "group_protocol", "consumer"),
        ("metadata.recovery.strategy=REBOOTSTRAP", "metadata_recovery_strategy", "rebootstrap"),
        ("metadata.recovery.strategy=None", "metadata_recovery_strategy", "none"),
    ],
)
def test_words_that_java_takes_in_any_case_are_taken_in_any_case(text: str, option: str, value: str, written: Any) -> None:
    assert getattr(ConsumerConfig.from_properties(written(text)), option) == value


@pytest.mark.parametrize(
    ("retriever", "grant"),
    [
        ("", "client_credentials"),
        ("DefaultJwtRetriever", "client_credentials"),
        ("ClientCredentialsJwtRetriever", "client_credentials"),
        ("JwtBearerJwtRetriever", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
    ],
)
def test_how_javas_client_asks_for_tokens_with_an_assertion_is_translated(retriever: str, grant: str, written: Any) -> None:
    made = ConsumerConfig.from_properties(
        written(rf"""
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.jaas.config={PACKAGE}.oauthbearer.OAuthBearerLoginModule required ;
sasl.oauthbearer.token.endpoint.url=https://login.example.com/token
{f"sasl.oauthbearer.jwt.retriever.class={PACKAGE}.oauthbearer.{retriever}" if retriever else ""}
sasl.oauthbearer.assertion.algorithm=es256
sasl.oauthbearer.assertion.private.key.file=/etc/kafka/key.pem
sasl.oauthbearer.assertion.private.key.passphrase={SECRET}
sasl.oauthbearer.assertion.claim.iss=billing
sasl.oauthbearer.assertion.claim.aud=https://login.example.com
sasl.oauthbearer.assertion.claim.exp.seconds=60
sasl.oauthbearer.assertion.claim.jti.include=true
""")
    )
    assert (made.sasl_oauthbearer_grant_type, made.sasl_oauthbearer_assertion_algorithm) == (grant, "ES256")
    assert made.sasl_oauthbearer_assertion_private_key_passphrase == SECRET
    assert (made.sasl_oauthbearer_assertion_claim_exp_seconds, made.sasl_oauthbearer_assertion_claim_jti_include) == (60, True)
    assert SECRET not in repr(made)


def test_a_class_that_asks_otherwise_is_refused(written: Any) -> None:
    path = written(f"security.protocol=SASL_SSL\nsasl.oauthbearer.jwt.retriever.class={PACKAGE}.oauthbearer.FileJwtRetriever")
    with pytest.raises(KafkaConfigurationError, match=r"jwt\.retriever\.class is not supported: Java classes are not loaded"):
        ConsumerConfig.from_properties(path)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("queued_max_messages_kbytes", "did you mean 'fetch_buffer_bytes'?"),
        ("fetch.wait.max.ms", "did you mean 'fetch_max_wait_ms'?"),
        ("fetch_message_max_bytes", "did you mean 'max_partition_fetch_bytes'?"),
        ("oauth_cb", "did you mean 'sasl_oauth_token_provider'?"),
        ("enable_partition_eof", "current_lag(partition) is 0 at the end of a partition"),
        ("statistics_interval_ms", "call statistics() or metrics() instead"),
        ("enable_auto_offset_store", "it is not needed: auto-commit covers a record when the next one is asked for"),
    ],
)
def test_an_option_of_librdkafka_is_refused_with_what_takes_its_place(name: str, answer: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"unknown option {name!r}; {answer}") + "$"):
        ConsumerConfig.from_options({name: 1})


@pytest.mark.parametrize("name", ["nonsense_key", "socket_options", "socket_timeout_ms", "metric_reporters", "log_level", "debug"])
def test_a_name_that_is_like_no_option_has_no_answer(name: str) -> None:
    with pytest.raises(TypeError, match=f"unknown option '{name}'$"):
        ConsumerConfig.from_options({name: 1})


@pytest.mark.parametrize("name", ["metric.reporters", "sasl.oauthbearer.jwt.validator.class"])
def test_a_class_without_an_effect_here_is_accepted(written: Any, name: str) -> None:
    assert ConsumerConfig.from_properties(written(f"security.protocol=SSL\n{name}=com.example.Mine")).given == {"security_protocol"}


def test_an_option_of_producers_that_a_program_gives_is_refused_as_one() -> None:
    options: dict[str, Any] = {"linger_ms": 5}
    with pytest.raises(TypeError, match=r"unknown option 'linger_ms'; it is an option of producers$"):
        ConsumerConfig.from_options(options)
