import re
from pathlib import Path

import pytest

pytest.importorskip("typer")

import typer

from kafka_async import IsolationLevel
from kafka_async.adapters.cli.consumer_options import consumer_options


def test_settings_take_the_type_of_their_option() -> None:
    options = consumer_options(
        [
            "fetch.max.wait.ms=5",
            "check_crcs=false",
            "client.id=a=b",
            "isolation.level=read_committed",
            "bootstrap.servers=a:1,b:2",
            "security.protocol=SSL",
            "group.protocol=classic",
            "partition.assignment.strategy=range, sticky",
        ]
    )

    assert options == {
        "fetch_max_wait_ms": 5,
        "check_crcs": False,
        "client_id": "a=b",
        "isolation_level": "read_committed",
        "bootstrap_servers": "a:1,b:2",
        "security_protocol": "SSL",
        "group_protocol": "classic",
        "partition_assignment_strategy": ("range", "sticky"),
    }
    assert IsolationLevel.READ_COMMITTED.name.lower() == options["isolation_level"]
    with pytest.raises(typer.BadParameter):
        consumer_options(["value.deserializer=json.loads"])


def test_what_was_typed_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# of the cluster\nbootstrap.servers=a:1\n\nclient.id = web\nfetch.min.bytes=7\ncheck.crcs=false\n")

    options = consumer_options(
        ["check.crcs=true"],
        file=file,
        defaults={"bootstrap_servers": "localhost:9092", "max_poll_records": 3},
        chosen={"fetch_min_bytes": 9, "client_id": None},
    )

    assert options == {
        "bootstrap_servers": "a:1",
        "client_id": "web",
        "fetch_min_bytes": 9,
        "check_crcs": True,
        "max_poll_records": 3,
    }


def test_a_file_of_a_java_consumer_is_taken_although_its_classes_are_not_loaded(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "client.id=web\nkey.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
        "value.deserializer=io.confluent.kafka.serializers.KafkaAvroDeserializer\ninterceptor.classes=com.example.Audit\n"
        "security.protocol=SSL\nssl.truststore.location=/nowhere/trust.jks\n"
    )

    options = consumer_options(["ssl.cafile=/etc/ca.pem"], file=file)

    assert options == {"client_id": "web", "security_protocol": "SSL", "ssl_cafile": "/etc/ca.pem"}
    with pytest.raises(typer.BadParameter, match=r"ssl\.truststore\.location"):
        consumer_options(None, file=file)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sasl.plain.pasword=hunter-2", "did you mean"),
        ("sasl.password=hunter-2", "did you mean 'sasl_plain_password'"),
        ("check.crcs=perhaps", "expected true or false"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"client.id=web\n{text}\n")

    with pytest.raises(typer.BadParameter, match=complaint) as raised:
        consumer_options(None, file=file)

    assert str(file) in raised.value.message
    assert "hunter" not in raised.value.message


def test_a_file_of_javas_tools_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="web" password="hunter-2";'
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n"
        "value.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
    )

    options = consumer_options(None, file=file)

    assert options == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "web",
        "sasl_plain_password": "hunter-2",
    }


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="No such file"):
        consumer_options(None, file=tmp_path / "nothing")


SASL = ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.plain.username=web"]


@pytest.mark.parametrize("password", [" begins with a blank", "ends with one ", "@ sign", "a=b"])
def test_a_password_is_taken_as_it_is(password: str) -> None:
    typed = password.replace("@", "@@", 1) if password.startswith("@") else password

    assert consumer_options([*SASL, f"sasl.plain.password={typed}"])["sasl_plain_password"] == password


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_value_may_come_from_a_file(tmp_path: Path, end: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(b" hunter-2 \n " + end.encode())

    assert consumer_options([*SASL, f"sasl.plain.password=@{file}"])["sasl_plain_password"] == " hunter-2 \n "


@pytest.mark.parametrize(
    "setting",
    [
        "sasl.plain.pasword=hunter-2",
        "sasl.plain.password:hunter-2",
        "sasl.plain.password:hunter-2=",
        "sasl.plain.password hunter-2",
        "hunter-2",
        "hunter-2=",
        "sasl.plain.password=@hunter-2",
        "sasl.plain.password=hunter-2\0",
        "ssl.keystore.key=hunter-2",
    ],
)
def test_a_secret_that_was_mistyped_is_not_shown(setting: str) -> None:
    with pytest.raises(typer.BadParameter) as raised:
        consumer_options([*SASL, setting])

    assert "hunter" not in raised.value.message


def test_an_option_of_javas_client_says_where_it_can_be_given() -> None:
    with pytest.raises(typer.BadParameter, match=r"'sasl\.jaas\.config'; .* properties files may have \(-F, "):
        consumer_options(["sasl.jaas.config=x"])


def test_an_unknown_option_is_named_and_says_where_the_known_ones_are_listed() -> None:
    with pytest.raises(typer.BadParameter, match=re.escape("'fetch.max.wait'; did you mean 'fetch_max_wait_ms'?")) as raised:
        consumer_options(["fetch.max.wait=5"])

    assert "'kafka-async options' lists the options" in raised.value.message
