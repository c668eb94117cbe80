"""The options of a share consumer: those that it has, and what to use instead of those that share groups do not have."""

import re
from pathlib import Path
from typing import Any

import pytest

import kafka_async
from kafka_async import ConsumerConfig, ShareConsumer, ShareOptions
from kafka_async.application.share.options import share_options
from kafka_async.model import ConsumerState

OWN = {"max_processing_ms", "bad_record_deliveries", "strict_max_records"}


@pytest.mark.parametrize(
    ("option", "value", "instead"),
    [
        ("auto_offset_reset", "earliest", r"share\.auto\.offset\.reset"),
        ("isolation_level", "read_committed", r"share\.isolation\.level"),
        ("enable_auto_commit", False, r"accept\(\)"),
        ("group_instance_id", "a", "no static members"),
        ("session_timeout_ms", 10_000, r"share\.session\.timeout\.ms"),
        ("max_partition_fetch_bytes", 1, "fetch_max_bytes"),
    ],
)
def test_options_that_share_groups_do_not_have_are_refused_with_what_to_use_instead(option: str, value: Any, instead: str) -> None:
    with pytest.raises(ValueError, match=f"do not have the option {option}: .*{instead}"):
        share_options({"group_id": "g", option: value})


@pytest.mark.parametrize(
    ("option", "instead"), [("share_acknowledgement_mode", r"accept\(\)"), ("share_acquire_mode", "strict_max_records=True")]
)
def test_options_of_javas_share_consumer_are_unknown_and_the_error_says_what_is_like_them(option: str, instead: str) -> None:
    with pytest.raises(TypeError, match=f"unknown option {option}: .*{instead}"):
        share_options({"group_id": "g", option: "x"})


def test_every_option_of_a_consumer_is_a_share_consumers_or_refused_by_name() -> None:
    known = set(ShareOptions.__annotations__) - OWN
    for name in ConsumerConfig.__annotations__.keys() - {"given"}:
        if name not in known:
            with pytest.raises(ValueError, match="share groups do not have the option"):
                share_options({"group_id": "g", name: None})
    assert known <= ConsumerConfig.__annotations__.keys()


def test_a_share_consumer_needs_a_group() -> None:
    with pytest.raises(ValueError, match="group_id=None: a share consumer needs the name of its group"):
        ShareConsumer("t")


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="max_procesing_ms"):
        share_options({"group_id": "g", "max_procesing_ms": 1})


@pytest.mark.parametrize(
    ("option", "value"),
    [("max_processing_ms", 0), ("max_processing_ms", True), ("bad_record_deliveries", 1.5), ("strict_max_records", 1)],
)
def test_a_bad_value_is_named(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option}={value}"):
        share_options({"group_id": "g", option: value})


def test_options_of_a_file_are_given_as_the_page_on_options_says(tmp_path: Path) -> None:
    page = (Path(kafka_async.__file__).parent / "config" / "README.md").read_text()
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "ShareConsumer" in block]
    file = tmp_path / "client.properties"
    login = 'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    file.write_text(f"bootstrap.servers=a:1,b:2\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n{login}\n")
    names: dict[str, Any] = {"ConsumerConfig": ConsumerConfig, "ShareConsumer": ShareConsumer}
    exec(program.replace("/etc/kafka/client.properties", str(file)), names)  # noqa: S102 - our own page
    config, settings = share_options({**names["options"], "max_processing_ms": 60_000})
    assert config == names["config"]
    assert (config.group_id, config.sasl_plain_password, settings.max_processing_ms) == ("workers", "p", 60_000)
    file.write_text("auto.offset.reset=earliest\n")
    with pytest.raises(ValueError, match="auto_offset_reset: a share group starts where its setting says"):
        exec(program.replace("/etc/kafka/client.properties", str(file)), names)  # noqa: S102 - our own page


def test_a_consumer_that_was_not_started_can_be_looked_at() -> None:
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer("t", group_id="g")
    assert consumer.state is ConsumerState.NEW
    assert consumer.subscription() == {"t"}
    assert consumer.metrics()["consumer-share-fetch-manager-metrics"]["records-consumed-total"] == 0
    statistics = consumer.statistics()
    assert (statistics.group_id, statistics.delivered, statistics.assignment) == ("g", 0, frozenset())
