"""References to secrets: what they lead to, and that nothing tells."""

from pathlib import Path

import pytest

from kafka_async.adapters.spark.secrets import is_reference, resolve, resolve_one
from kafka_async.errors import KafkaConfigurationError

HERE = "tests.adapters.spark.test_secrets"
PASSWORD = "sasl_plain_password"


def secret() -> str:
    return "from a function"


def broken() -> str:
    raise ValueError("the secret itself")


def number() -> int:
    return 1


def test_references_are_resolved_and_the_rest_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "from the environment")
    (tmp_path / "secret").write_text("from a file\n")
    options = {
        "bootstrap_servers": "localhost:9092",
        PASSWORD: "env:BROKER_PASSWORD",
        "ssl_password": f"file:{tmp_path}/secret",
        "sasl_oauth_token": f"call:{HERE}:secret",
        "request_timeout_ms": 5,
    }

    assert resolve(options) == {
        "bootstrap_servers": "localhost:9092",
        PASSWORD: "from the environment",
        "ssl_password": "from a file",
        "sasl_oauth_token": "from a function",
        "request_timeout_ms": 5,
    }


def test_a_provider_is_the_object_itself() -> None:
    assert resolve_one("sasl_oauth_token_provider", f"{HERE}:secret") is secret


def test_a_password_with_a_colon_is_a_password() -> None:
    assert not is_reference(PASSWORD, "hunter:two")
    assert resolve_one(PASSWORD, "hunter:two") == "hunter:two"


def test_a_location_names_a_file_itself() -> None:
    assert resolve_one("ssl_truststore_location", "file:/etc/ca.pem") == "file:/etc/ca.pem"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("env:NO_SUCH_VARIABLE_HERE", "has no such variable"),
        ("file:/no/such/file", "the file cannot be read: No such file or directory"),
        ("file:/dev/zero", "the file has more than 1048576 bytes"),
        ("call:no.such.module:f", "there is nothing to import by this name"),
        (f"call:{HERE}:nothing", "there is nothing to import by this name"),
        (f"call:{HERE}:PASSWORD", "it cannot be called"),
        ("call:nonsense", "expected module:callable"),
        (f"call:{HERE}:number", "the function returned int; expected str"),
    ],
)
def test_what_leads_nowhere_is_named(reference: str, why: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        resolve_one(PASSWORD, reference)

    assert str(caught.value).startswith(f"{PASSWORD}={reference!r}: ")
    assert why in str(caught.value)


def test_what_a_function_raises_is_not_told() -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        resolve_one(PASSWORD, f"call:{HERE}:broken")

    assert "the function raised ValueError" in str(caught.value)
    assert "the secret itself" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff\xfe")

    with pytest.raises(KafkaConfigurationError, match="the file is no UTF-8 text"):
        resolve_one(PASSWORD, f"file:{tmp_path}/secret")
