"""Options from environment variables and properties files: the same checks, clear errors, and no secret in any of them."""

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from kafka_async import ConsumerConfig
from kafka_async.config.consumer_config import option_texts
from kafka_async.config.sources import environment_options, options_of_properties
from kafka_async.errors import KafkaConfigurationError

from .support import JAVAS, PACKAGE, SECRET

# --- the environment -------------------------------------------------------------------------------------------------------------


def test_variables_are_options_with_the_same_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "KAFKA_BOOTSTRAP_SERVERS": "a:1,b:2",
        "KAFKA_GROUP_ID": "billing",
        "KAFKA_MAX_POLL_RECORDS": "20",
        "KAFKA_ENABLE_AUTO_COMMIT": "false",
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA_SASL_PLAIN_USERNAME": "alice",
        "KAFKA_SASL_PLAIN_PASSWORD": f" {SECRET} ",
    }.items():
        monkeypatch.setenv(name, text)
    made = ConsumerConfig.from_env()
    assert made.bootstrap_servers == (("a", 1), ("b", 2))
    assert (made.group_id, made.max_poll_records, made.enable_auto_commit) == ("billing", 20, False)
    assert made.sasl_plain_password == f" {SECRET} ", "blanks belong to a password"
    assert {"bootstrap_servers", "group_id", "sasl_plain_password"} < made.given
    assert SECRET not in repr(made)


def test_what_the_program_gives_wins_over_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILLING_GROUP_ID", "from-the-environment")
    made = ConsumerConfig.from_env("BILLING_", group_id="from-the-program", value_deserializer=bytes.decode)
    assert (made.group_id, made.value_deserializer) == ("from-the-program", bytes.decode)


def test_variables_that_are_nothing_like_an_option_are_somebody_elses() -> None:
    others: tuple[str, ...] = (
        "HOME",
        "OPTS",
        "HEAP_OPTS",
        "PORT",
        "PORT_9092_TCP",
        "SERVICE_HOST",
        "SERVICE_PORT",
        "ASYNC_PURE",
        "VERSION",
        "JMX_OPTS",
    )
    others += (
        "LOG4J_OPTS",
        "JVM_PERFORMANCE_OPTS",
        "ADVERTISED_LISTENERS",
        "BROKER_ID",
        "CLUSTER_ID",
        "ZOOKEEPER_CONNECT",
        "LOG_DIRS",
    )
    assert environment_options("KAFKA_", option_texts(), {f"KAFKA_{name}": "x" for name in others} | {"PATH": "/bin"}) == {}


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("KAFKA_BOOTSTRAP_SERVER", "KAFKA_BOOTSTRAP_SERVERS"),
        ("KAFKA_GROUPID", "KAFKA_GROUP_ID"),
        ("KAFKA_SASL_USERNAME", "KAFKA_SASL_PLAIN_USERNAME"),
        ("KAFKA_SSL_CA_FILE", "KAFKA_SSL_CAFILE"),
    ],
)
def test_a_variable_that_is_nearly_an_option_is_a_mistake(variable: str, near: str) -> None:
    with pytest.raises(TypeError, match=f"{variable} is not an option; did you mean {near}\\?") as caught:
        environment_options("KAFKA_", option_texts(), {variable: SECRET})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text", "error"),
    [
        ("KAFKA_MAX_POLL_RECORDS", "many", "KAFKA_MAX_POLL_RECORDS='many': expected an integer"),
        ("KAFKA_CHECK_CRCS", "on", "KAFKA_CHECK_CRCS='on': expected true or false"),
        ("KAFKA_VALUE_DESERIALIZER", "json.loads", "KAFKA_VALUE_DESERIALIZER takes a Python object"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(variable: str, text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        environment_options("KAFKA_", option_texts(), {variable: text})


def test_a_prefix_is_needed() -> None:
    with pytest.raises(ValueError, match="prefix=''"):
        ConsumerConfig.from_env("")


# --- properties files ------------------------------------------------------------------------------------------------------------


def test_a_file_may_be_shared_with_a_producer(written: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka_async")
    path = written("group.id=a\nacks=all\nlinger.ms=5\ncompression.type=zstd\ntransactional.id=t\nvalue.serializer=com.example.S")
    assert ConsumerConfig.from_properties(path).group_id == "a"
    (record,) = caplog.records
    keys = "acks, compression.type, linger.ms, transactional.id, value.serializer"
    assert (record.levelname, record.getMessage()) == ("INFO", f"{path}: ignored, because only producers have them: {keys}")


def test_a_file_of_a_consumer_alone_logs_nothing(written: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ConsumerConfig.from_properties(written(JAVAS))
    assert caplog.records == []


def test_what_the_program_gives_wins_over_a_file(written: Any) -> None:
    made = ConsumerConfig.from_properties(written("group.id=a\nclient.id=c"), group_id="b", value_deserializer=bytes.decode)
    assert (made.group_id, made.client_id, made.value_deserializer) == ("b", "c", bytes.decode)


def token() -> str:
    return "token"


CONTEXT = ssl.create_default_context()
OF_AWS = f"""
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="{SECRET}";
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""
OF_KERBEROS = f"""
security.protocol=SASL_SSL
sasl.mechanism=GSSAPI
sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="{SECRET}";
"""
JKS = f"""
security.protocol=SSL
ssl.truststore.location=/nowhere/trust.jks
ssl.truststore.password={SECRET}
"""
BOTH_JKS = f"""{JKS}
ssl.keystore.location=/nowhere/key.jks
ssl.keystore.password={SECRET}
ssl.endpoint.identification.algorithm=
"""


@pytest.mark.parametrize(
    ("text", "given", "made"),
    [
        ("value.deserializer=com.example.Avro", {"value_deserializer": bytes.decode}, {}),
        ("key.deserializer=com.example.Avro", {"key_deserializer": None}, {}),
        ("interceptor.classes=com.example.Audit", {"interceptors": ()}, {}),
        ("max.poll.records=many", {"max_poll_records": 5}, {}),
        (OF_AWS, {"sasl_oauth_token_provider": token}, {"sasl_mechanism": "OAUTHBEARER"}),
        (OF_AWS, {"sasl_oauth_token_provider": token, "sasl_mechanism": "OAUTHBEARER"}, {}),
        (f"{OF_AWS}sasl.login.class=com.example.Login", {"sasl_oauth_token_provider": token}, {}),
        (OF_KERBEROS, {"sasl_kerberos_principal": "me@EXAMPLE.ORG", "sasl_kerberos_keytab": "/etc/me.keytab"}, {}),
        (OF_KERBEROS, {"sasl_kerberos_principal": "me@EXAMPLE.ORG"}, {"sasl_mechanism": "GSSAPI"}),
        (JKS, {"ssl_cafile": "/etc/ca.pem"}, {}),
        (JKS, {"ssl_truststore_certificates": "-----BEGIN CERTIFICATE-----"}, {"ssl_cafile": None}),
        (BOTH_JKS, {"ssl_cafile": "/etc/ca.pem", "ssl_certfile": "/etc/me.pem"}, {"ssl_check_hostname": False}),
        (BOTH_JKS, {"ssl_context": CONTEXT}, {"ssl_check_hostname": True}),
        ("security.protocol=SSL\nssl.cipher.suites=TLS_RSA", {"ssl_ciphers": "HIGH"}, {}),
        ("security.protocol=SSL\nssl.engine.factory.class=com.example.Tls", {"ssl_context": CONTEXT}, {}),
        ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates=-----BEGIN", {"ssl_cafile": "/a"}, {}),
    ],
)
def test_what_the_program_gives_wins_over_what_is_refused_in_a_file(
    text: str, given: dict[str, Any], made: dict[str, Any], written: Any
) -> None:
    path = written(f"group.id=a\n{text}")
    config = ConsumerConfig.from_properties(path, **given)
    expected = {"group_id": "a", **given, **made}
    assert {name: getattr(config, name) for name in expected} == expected
    with pytest.raises((ValueError, KafkaConfigurationError)):
        ConsumerConfig.from_properties(path)


@pytest.mark.parametrize(
    ("line", "given"),
    [("", {}), ("security.protocol=plaintext", {}), ("security.protocol=SASL_SSL", {"security_protocol": "PLAINTEXT"})],
    ids=["default", "file", "program"],
)
@pytest.mark.parametrize(
    ("text", "named"),
    [
        (OF_AWS, "sasl.client.callback.handler.class, sasl.jaas.config, sasl.mechanism"),
        (OF_KERBEROS, "sasl.jaas.config"),
        (BOTH_JKS, "ssl.keystore.location, ssl.keystore.password, ssl.truststore.location, ssl.truststore.password"),
        ("ssl.engine.factory.class=com.example.Tls", "ssl.engine.factory.class"),
        ("ssl.cafile=/nowhere/ca.pem\nssl.key.password=x", "ssl.cafile, ssl.key.password"),
    ],
)
def test_one_option_turns_tls_and_sasl_of_a_file_off(text: str, named: str, line: str, given: dict[str, Any], written: Any) -> None:
    """As with Java's client, which does not look at the other lines then."""
    lines = [each for each in text.splitlines() if not each.startswith("security.protocol")]
    path = written("\n".join(("group.id=a", *lines, line)))
    with pytest.warns(UserWarning, match="no effect") as caught:
        config = ConsumerConfig.from_properties(path, **given)
    (warning,) = caught
    assert str(warning.message) == f"{path}: no effect with security_protocol='PLAINTEXT': {named}"
    assert warning.filename == __file__
    assert (config.group_id, config.security_protocol) == ("a", "PLAINTEXT")
    assert config.given == ({"group_id", "security_protocol"} if line else {"group_id"})


def test_what_is_given_beside_a_line_that_has_no_effect_is_named_once(written: Any) -> None:
    path = written(f"{JKS}ssl.ciphers=HIGH")
    with pytest.warns(UserWarning, match="no effect") as caught:
        ConsumerConfig.from_properties(path, security_protocol="PLAINTEXT", ssl_cafile="/etc/ca.pem", ssl_ciphers="LOW")
    (warning,) = caught
    assert str(warning.message) == "no effect with security_protocol='PLAINTEXT': ssl_cafile, ssl_ciphers"


def test_lines_that_say_what_holds_anyway_are_no_reason_to_warn(written: Any) -> None:
    defaults = "ssl.endpoint.identification.algorithm=https\nssl.keystore.type=JKS\nssl.truststore.location=\nsasl.mechanism=GSSAPI"
    assert ConsumerConfig.from_properties(written(f"group.id=a\n{defaults}")).given == {"group_id"}


@pytest.mark.parametrize("line", ["", "security.protocol=PLAINTEXT\n"])
def test_what_a_line_of_tls_means_depends_on_the_protocol_that_the_program_gives(line: str, written: Any) -> None:
    path = written(f"{line}ssl.endpoint.identification.algorithm=")
    config = ConsumerConfig.from_properties(path, security_protocol="SSL")
    assert (config.security_protocol, config.ssl_check_hostname) == ("SSL", False)


def test_a_login_of_a_file_is_completed_by_what_the_program_gives(written: Any) -> None:
    path = written(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={PACKAGE}.scram.ScramLoginModule required username="alice";'
    )
    config = ConsumerConfig.from_properties(path, sasl_plain_password=SECRET, sasl_oauth_token_provider=None)
    assert (config.sasl_plain_username, config.sasl_plain_password) == ("alice", SECRET)
    with pytest.raises(KafkaConfigurationError, match="ScramLoginModule has no password"):
        ConsumerConfig.from_properties(path, sasl_plain_username="alice")


def test_a_file_is_utf8_or_else_what_java_reads(written: Any) -> None:
    assert ConsumerConfig.from_properties(written("group.id=jürgen")).group_id == "jürgen"
    assert ConsumerConfig.from_properties(written("group.id=jürgen", "latin-1")).group_id == "jürgen"
    assert ConsumerConfig.from_properties(written("group.id=jürgen", "utf-8-sig")).group_id == "jürgen"
    assert ConsumerConfig.from_properties(written(r"group.id=j\u00fcrgen")).group_id == "jürgen"


@pytest.mark.parametrize(
    ("text", "kind", "error"),
    [
        (
            f"sasl.jass.config={SECRET}",
            TypeError,
            r"client\.properties: unknown option 'sasl\.jass\.config'; did you mean 'sasl_jaas_config'\?$",
        ),
        ("nonsense.key=1", TypeError, r"client\.properties: unknown option 'nonsense\.key'$"),
        (f"grup.id={SECRET}", TypeError, "unknown option 'grup.id'; did you mean 'group_id'?"),
        (f"sasl.username={SECRET}", TypeError, "unknown option 'sasl.username'; did you mean 'sasl_plain_username'?"),
        (f"ssl.ca.location={SECRET}", TypeError, "unknown option 'ssl.ca.location'; did you mean 'ssl_cafile'?"),
        (f"ssl.certificate.pem={SECRET}", TypeError, "did you mean 'ssl_keystore_certificate_chain'?"),
        (f"metadata.broker.list={SECRET}", TypeError, "did you mean 'bootstrap_servers'?"),
        ("max.poll.records=many", ValueError, r"client\.properties: max\.poll\.records='many': expected an integer"),
        ("session.timeout.ms=0", ValueError, "session_timeout_ms=0: expected an integer from 1"),
        (
            f"security.protocol=SSL\nssl.truststore.location={SECRET}",
            KafkaConfigurationError,
            r"ssl\.truststore\.location: the file cannot be read",
        ),
        (f"value.deserializer=com.example.{SECRET}", KafkaConfigurationError, "give value_deserializer in the program"),
        (f"interceptor.classes=com.example.{SECRET}", KafkaConfigurationError, "give interceptors in the program"),
        (f"config.providers={SECRET}", KafkaConfigurationError, "config.providers is not supported: write the value itself"),
        (
            f"security.protocol=SASL_SSL\nsasl.jaas.config={PACKAGE}.plain.PlainLoginModule required {SECRET};",
            KafkaConfigurationError,
            r"sasl\.jaas\.config: character",
        ),
        (
            f"security.protocol=SASL_SSL\nsasl.login.callback.handler.class={SECRET}",
            KafkaConfigurationError,
            "use the option sasl_oauth_token_provider in the program",
        ),
        (rf"sasl.plain.password={SECRET}\u1", ValueError, "line 1: expected four hexadecimal digits"),
        (
            f"security.protocol=SASL_SSL\nsasl.oauthbearer.extensions={SECRET}",
            ValueError,
            r"sasl\.oauthbearer\.extensions: expected JSON",
        ),
        (SECRET, TypeError, r"unknown option \(not shown, because it may be a secret\); expected option=value on each line"),
        (f"2{SECRET} horse", TypeError, r"unknown option \(not shown, because it may be a secret\)"),
        ("acks=all\nlinger.mss=5", TypeError, "unknown option 'linger.mss'"),
        ("spring.kafka.client-id=a", TypeError, "unknown option 'spring.kafka.client-id'"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_and_no_secret_shows(text: str, kind: type[Exception], error: str, written: Any) -> None:
    with pytest.raises(kind, match=error) as caught:
        ConsumerConfig.from_properties(written(text))
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert "{" not in str(caught.value).replace('{"name": "value"}', "")


def test_a_file_that_cannot_be_read_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ConsumerConfig.from_properties(tmp_path / "missing")


def test_placeholders_of_javas_configuration_providers_are_just_text() -> None:
    """CVE-2024-31141: such placeholders read files and variables."""
    assert options_of_properties({"group.id": "${env:HOME}"}, option_texts()) == {"group_id": "${env:HOME}"}
