"""Options as text: what a text means, and that a text which may be a secret does not show."""

from typing import Any

import pytest
from attrs import fields_dict

from kafka_async.config import ConsumerConfig
from kafka_async.config.consumer_config import option_texts
from kafka_async.config.texts import OBJECTS, option_name

SECRET = "hunter2-is-not-shown"
NAMES = sorted(fields_dict(ConsumerConfig).keys() - {"given"})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("group_id", " billing", " billing"),
        ("max_poll_records", " 20 ", 20),
        ("receive_buffer_bytes", "-1", -1),
        ("enable_auto_commit", "False", False),
        ("check_crcs", " TRUE", True),
        ("security_protocol", "SASL_SSL", "SASL_SSL"),
        ("group_protocol", "consumer", "consumer"),
        ("isolation_level", "read_committed", "read_committed"),
        ("client_rack", "", ""),
        ("bootstrap_servers", "a:1, b:2", "a:1, b:2"),
        ("partition_assignment_strategy", "range, sticky", ("range", "sticky")),
        ("sasl_oauthbearer_extensions", '{"logicalCluster": "lkc-1"}', {"logicalCluster": "lkc-1"}),
        ("sasl_plain_password", f" {SECRET} ", f" {SECRET} "),
        ("ssl_cafile", "/etc/kafka/ca.pem", "/etc/kafka/ca.pem"),
    ],
)
def test_a_text_is_the_value_that_it_means(name: str, text: str, value: Any) -> None:
    assert option_texts().value(name, text) == value
    beside = {"security_protocol": "SSL"} if name == "ssl_cafile" else {}
    if name not in ("security_protocol", "sasl_oauthbearer_extensions", "sasl_plain_password"):
        ConsumerConfig.from_options({name: value, **beside})


@pytest.mark.parametrize("name", sorted(set(NAMES) - OBJECTS))
def test_every_option_that_is_no_object_can_be_given_as_text(name: str) -> None:
    default = fields_dict(ConsumerConfig)[name].default
    texts = {bool: "true", int: str(default)}
    kind: Any = fields_dict(ConsumerConfig)[name].type
    assert option_texts().value(name, "{}" if name == "sasl_oauthbearer_extensions" else texts.get(kind, "text")) is not None


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_an_object_cannot_be_given_as_text(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} takes a Python object") as caught:
        option_texts().value(name, SECRET)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("max_poll_records", "many", "max_poll_records='many': expected an integer"),
        ("max_poll_records", "1_000", "max_poll_records='1_000': expected an integer"),
        ("max_poll_records", "\u0664", "expected an integer"),
        ("max_poll_records", "", "max_poll_records='': expected an integer"),
        ("check_crcs", "yes", "check_crcs='yes': expected true or false"),
    ],
)
def test_a_text_that_means_nothing_is_named_with_what_is_expected(name: str, text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        option_texts().value(name, text)


@pytest.mark.parametrize("text", [SECRET, f'["{SECRET}"]', f'{{"{SECRET}": 1}}'])
def test_a_text_that_may_be_a_secret_is_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"sasl\.oauthbearer\.extensions: expected JSON") as caught:
        option_texts().value("sasl_oauthbearer_extensions", text, "sasl.oauthbearer.extensions")
    assert SECRET not in str(caught.value)


def test_the_name_of_an_option_may_have_dots_and_capitals() -> None:
    assert option_name(" group.id") == option_name("GROUP_ID") == "group_id"


def test_secrets_are_the_options_that_do_not_show() -> None:
    secrets = {name for name, each in option_texts().fields.items() if each.repr is False}
    assert {"sasl_plain_password", "ssl_password", "ssl_keystore_key"} <= secrets
    assert not secrets & {"group_id", "sasl_plain_username"}
