"""References to secrets: which options take them, where they lead, and that nothing shows what was found there."""

import traceback
import warnings
from pathlib import Path

import pytest
from attrs import fields_dict

from kafka_async.adapters.spark.connections import Connections
from kafka_async.adapters.spark.options.secrets import (
    REFERENCES,
    REGISTRY_SECRETS,
    VARIABLE,
    is_reference,
    resolve,
    resolve_one,
)
from kafka_async.adapters.spark.options.source_options import SPARK, SourceOptions
from kafka_async.adapters.values.registry import NAMES, Registry
from kafka_async.adapters.values.secrets import Hidden
from kafka_async.config import ConsumerConfig
from kafka_async.config.java import NAMES as JAVAS
from kafka_async.errors import KafkaConfigurationError, KafkaConnectionError, KafkaError

HERE = "tests.adapters.spark.options.test_secrets"
PASSWORD = "sasl_plain_password"
FOUND = "what-was-found-7"
SERVERS = "kafka.bootstrap.servers"
URL = "value.schema.registry.url"
USER_INFO = "value.schema.registry.basic.auth.user.info"
OPTIONS = sorted(
    {SPARK.dotted(name) for name in (fields_dict(ConsumerConfig).keys() - {"given"}) | JAVAS}
    | {"kafka.ssl.truststore.password", "kafka.schema.registry.url"}
)
VALUES = [
    *("value.format", "value.schema", "value.mode", "value.prefix", "value.timezone", URL, f"{URL[:-3]}subject"),
    *("key.format", "key.schema", "key.prefix", *REGISTRY_SECRETS),
    *(f"{URL[:-3]}{name}" for name in NAMES if name != "url"),
]


def secret() -> str:
    return "from a function"


@pytest.fixture
def referred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Return references of each kind that lead to what nothing may show."""
    monkeypatch.setenv("TOLD_TO_NOBODY", FOUND)
    monkeypatch.setenv(VARIABLE, f"env:TOLD_ file:{tmp_path}/")
    (tmp_path / "secret").write_text(f"{FOUND}\n")
    return {"env": "env:TOLD_TO_NOBODY", "file": f"file:{tmp_path}/secret"}


def failure(given: dict[str, str]) -> str:
    """Return all that is told of an attempt to connect with options, as Spark prints it."""
    try:
        options = SourceOptions.parse(given)
        if "value.schema.registry.url" in options.value:
            Registry.of(options.value, REFERENCES).schema(1)
        with Connections().lease({**options.looking, "default_api_timeout_ms": "1", "socket_connection_setup_timeout_ms": "1"}):
            pass
    except (KafkaError, ValueError, TypeError, OSError):
        return traceback.format_exc()
    raise AssertionError("nobody is there to connect to")


@pytest.mark.parametrize("kind", ["env", "file"])
@pytest.mark.parametrize("option", OPTIONS)
def test_no_option_shows_what_a_reference_leads_to(option: str, kind: str, referred: dict[str, str]) -> None:
    given = {"subscribe": "a", SERVERS: "127.0.0.1:1", option: referred[kind]}
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    for protocol in ({}, login, {"kafka.security.protocol": "SSL"}):
        with warnings.catch_warnings(
            record=True, action="always"
        ) as warned:  # without TLS and SASL their options are named as having no effect
            assert FOUND not in failure(protocol | given)
        assert [str(warning.message) for warning in warned if FOUND in str(warning.message)] == []


def test_only_options_that_hold_secrets_are_looked_up(referred: dict[str, str]) -> None:
    looked_up = set()
    for option in OPTIONS:
        try:
            kafka = SourceOptions.parse({"subscribe": "a", SERVERS: "127.0.0.1:1", option: referred["env"]}).looking
        except KafkaConfigurationError:
            continue  # it takes no reference
        looked_up |= {option for value in resolve(kafka).values() if FOUND in str(value)}
    assert looked_up == {
        "kafka.sasl.jaas.config",
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase",
        "kafka.sasl.oauthbearer.client.credentials.client.secret",
        "kafka.sasl.plain.password",
        "kafka.ssl.key.password",
        "kafka.ssl.keystore.key",
        "kafka.ssl.password",
    }


@pytest.mark.parametrize("option", VALUES)
def test_no_option_of_values_shows_what_a_reference_leads_to(option: str, referred: dict[str, str]) -> None:
    given = {"subscribe": "a", SERVERS: "127.0.0.1:1", URL: "https://127.0.0.1:1", option: referred["env"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafka_async.adapters.values.registry.PATIENCE", 0.0)
        assert FOUND not in failure(given)


def test_an_error_says_which_options_take_no_reference() -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        SourceOptions.parse({"subscribe": "a", SERVERS: "b:1", "kafka.isolation.level": "file:/etc/passwd"})
    assert str(caught.value) == "kafka.isolation.level='file:/etc/passwd': only options that hold secrets take references"


def test_a_broker_may_be_called_env() -> None:
    assert SourceOptions.parse({"subscribe": "a", SERVERS: "env:9092,file:9092"}).kafka["bootstrap_servers"] == "env:9092,file:9092"


@pytest.mark.parametrize("option", ["kafka.sasl.plain.password", USER_INFO, "kafka.sasl.jaas.config"])
def test_functions_are_not_called(option: str) -> None:
    with pytest.raises(KafkaConfigurationError):
        SourceOptions.parse({"subscribe": "a", SERVERS: "b:1", option: f"call:{HERE}:secret"})


def test_references_are_resolved_and_the_rest_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "from the environment")
    monkeypatch.setenv(VARIABLE, f"env:BROKER_, file:{tmp_path}/")
    (tmp_path / "secret").write_text("from a file\n")
    options = {
        "client_id": "env:BROKER_PASSWORD",
        PASSWORD: "env:BROKER_PASSWORD",
        "ssl_password": f"file:{tmp_path}/secret",
        "request_timeout_ms": 5,
    }

    assert resolve(options) == {
        "client_id": "env:BROKER_PASSWORD",
        PASSWORD: "from the environment",
        "ssl_password": "from a file",
        "request_timeout_ms": 5,
    }


def test_a_provider_is_the_object_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{HERE}:")
    assert resolve_one("sasl_oauth_token_provider", f"{HERE}:secret") is secret


def test_a_password_with_a_colon_is_a_password() -> None:
    assert not is_reference(PASSWORD, "hunter:two")
    assert resolve_one(PASSWORD, "hunter:two") == "hunter:two"


def test_a_location_names_a_file_itself() -> None:
    assert resolve_one("ssl_truststore_location", "file:/etc/ca.pem") == "file:/etc/ca.pem"


@pytest.mark.parametrize(
    ("name", "reference", "why"),
    [
        (PASSWORD, "env:NO_SUCH_VARIABLE_HERE", "has no such variable"),
        (PASSWORD, "file:/no/such/file", "the file cannot be read: No such file or directory"),
        (PASSWORD, "file:/dev/zero", "the file has more than 1048576 bytes"),
        ("a_provider", "no.such.module:f", "there is nothing to import with this name"),
        ("a_provider", f"{HERE}:nothing", "there is nothing to import with this name"),
        ("a_provider", f"{HERE}:PASSWORD", "it cannot be called"),
    ],
)
def test_what_leads_nowhere_is_named(name: str, reference: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "env: file: tests no")
    with pytest.raises(KafkaConfigurationError) as caught:
        resolve_one(name, reference)

    given = "kafka.sasl.plain.password" if name == PASSWORD else "kafka.a.provider"  # as people write it
    assert str(caught.value).startswith(f"{given}={reference!r}: ")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        (PASSWORD, "env:OTHER"),
        (PASSWORD, "file:HERE/elsewhere/secret"),
        (PASSWORD, "file:HERE/secrets/../elsewhere/secret"),
        (PASSWORD, "file:HERE/secrets/link"),
        (PASSWORD, "file:brought-by-files"),
        (PASSWORD, "file:HERE/secretsbeside"),
        ("a_provider", "os:getcwd"),
    ],
)
def test_who_runs_the_executors_says_what_may_be_read(
    name: str, reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("secrets", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "secret").write_text("x")
    (tmp_path / "secretsbeside").write_text("x")
    (tmp_path / "secrets" / "link").symlink_to(tmp_path / "elsewhere" / "secret")
    monkeypatch.setenv("OTHER", "x")
    monkeypatch.setenv(VARIABLE, f"env:KAFKA_ file:{tmp_path}/secrets/ {HERE}:")
    assert resolve_one(PASSWORD, f"file:{tmp_path}/secrets/secret") == "x"
    assert resolve_one("a_provider", f"{HERE}:secret") is secret
    with pytest.raises(KafkaConfigurationError, match=f"it may not be read; {VARIABLE} in the environment of driver and exec"):
        resolve_one(name, reference.replace("HERE", str(tmp_path)))


def test_without_a_limit_files_are_those_of_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "secret").write_text("x")
    with pytest.raises(KafkaConfigurationError, match="it may not be read"):
        resolve_one(PASSWORD, f"file:{tmp_path}/secret")
    with pytest.raises(KafkaConfigurationError, match="cannot be read: No such file"):
        resolve_one(PASSWORD, "file:/etc/kafka/secrets/none-of-this-name")


@pytest.mark.parametrize(("name", "reference"), [(PASSWORD, "env:PATH"), ("sasl_oauth_token_provider", f"{HERE}:secret")])
def test_without_a_limit_no_variable_and_no_function_can_be_referred_to(
    name: str, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(KafkaConfigurationError, match="it may not be read"):
        resolve_one(name, reference)


def test_an_empty_limit_allows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(KafkaConfigurationError, match="it may not be read"):
        resolve_one(PASSWORD, "env:PATH")


@pytest.mark.parametrize(("retriable", "expected"), [(True, KafkaConnectionError), (False, KafkaConfigurationError)])
def test_an_error_of_any_layer_is_raised_without_the_secret(retriable: bool, expected: type[KafkaError]) -> None:
    hidden = Hidden()
    hidden.add("hunter2\n")
    error = (KafkaConnectionError if retriable else KafkaError)("refused: 'hunter2\\n'")
    error.__cause__ = ValueError("no hunter2 here")
    with pytest.raises(expected) as caught, hidden.from_errors():
        raise error
    assert str(caught.value) == "refused: '***'"
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_an_error_without_a_secret_is_raised_as_it_is() -> None:
    hidden = Hidden()
    hidden.add("hunter2")
    with pytest.raises(ZeroDivisionError), hidden.from_errors():
        _ = 1 / 0


@pytest.mark.parametrize("text", ["what.was.Found required k=v;", "PlainLoginModule required name=what-was-found-7;", FOUND])
def test_a_text_that_is_no_login_is_not_shown(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLD_TO_NOBODY", text)
    monkeypatch.setenv(VARIABLE, "env:TOLD_")
    given = {"subscribe": "a", SERVERS: "127.0.0.1:1", "kafka.sasl.jaas.config": "env:TOLD_TO_NOBODY"}
    told = failure(given | {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"})
    assert "kafka.sasl.jaas.config" in told
    assert "what.was" not in told
    assert FOUND not in told


def test_a_file_that_is_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"file:{tmp_path}/")
    (tmp_path / "secret").write_bytes(b"\xff\xfe")

    with pytest.raises(KafkaConfigurationError, match="the file is not UTF-8 text"):
        resolve_one(PASSWORD, f"file:{tmp_path}/secret")
