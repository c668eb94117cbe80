"""The schema registry: what is asked, what is refused, and that only the configured URL is contacted."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_async.adapters.spark import registry as module
from kafka_async.adapters.spark.registry import Found, Registry, RegistryError, UnknownSchemaError
from kafka_async.errors import KafkaConfigurationError

from .registry_server import RegistryServer, registry_server

URL = "value.schema.registry.url"
USER = "value.schema.registry.basic.auth.user.info"
CA = "value.schema.registry.ssl.ca.location"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    with registry_server() as found:
        yield found


def test_a_schema_is_asked_for_once(server: RegistryServer) -> None:
    server.put("/schemas/ids/7", "int")

    assert Registry(url=server.url).schema(7) == Registry(url=server.url).schema(7) == Found("int")
    assert server.asked == ["/schemas/ids/7"]


def test_the_newest_schema_of_a_subject_or_a_version(server: RegistryServer) -> None:
    server.put("/subjects/a%2Fb-value/versions/latest", "int")
    server.put("/subjects/a%2Fb-value/versions/3", "long")

    found = Registry(url=server.url)

    assert (found.newest("a/b-value"), found.newest("a/b-value", "3")) == (Found("int"), Found("long"))


def test_references_come_with_the_schema(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", "A", references=[{"name": "A", "subject": "a", "version": 2}])
    server.put("/subjects/a/versions/2", "B", references=[{"name": "B", "subject": "b", "version": 1}])
    server.put("/subjects/b/versions/1", "C")

    assert Registry(url=server.url).schema(1) == Found("A", ("C", "B"))


def test_schemas_that_name_each_other_are_asked_for_once(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", "A", references=[{"name": "B", "subject": "b", "version": 1}])
    server.put("/subjects/b/versions/1", "B", references=[{"name": "C", "subject": "c", "version": 1}])
    server.put("/subjects/c/versions/1", "C", references=[{"name": "B", "subject": "b", "version": 1}])

    assert Registry(url=server.url).schema(1) == Found("A", ("C", "B"))
    assert len(server.asked) == 3


@pytest.mark.parametrize("references", [7, ["b"], [{"subject": "b"}], [{"subject": "b", "version": "new"}]])
def test_references_that_lead_nowhere_are_an_error(server: RegistryServer, references: object) -> None:
    server.answers["/schemas/ids/1"] = (200, json.dumps({"schema": "{}", "references": references}).encode())

    with pytest.raises(RegistryError, match="the answer for id 1 has references without subject and version"):
        Registry(url=server.url).schema(1)


def test_an_unknown_id_is_no_failure_and_is_asked_for_again(server: RegistryServer) -> None:
    for _ in range(2):
        with pytest.raises(UnknownSchemaError, match="/schemas/ids/9: the registry has none such"):
            Registry(url=server.url).schema(9)

    assert len(server.asked) == 2


def test_what_may_pass_is_tried_again(server: RegistryServer) -> None:
    server.answers["/schemas/ids/1"] = [(503, b""), (429, b""), (200, json.dumps({"schema": '"int"'}).encode())]

    assert Registry(url=server.url).schema(1) == Found("int")


def test_a_registry_that_stays_away_is_an_error(server: RegistryServer) -> None:
    server.answers["/schemas/ids/1"] = (500, b"")

    with pytest.raises(RegistryError, match="status 500"):
        Registry(url=server.url).schema(1)
    assert len(server.asked) == module.ATTEMPTS


def test_nobody_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    with registry_server() as gone:
        url = gone.url

    with pytest.raises(RegistryError, match="cannot be reached: ConnectionRefusedError"):
        Registry(url=url).schema(1)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ((301, b""), "expected a schema, got status 301"),
        ((401, b""), "it refused the credentials"),
        ((403, b""), "it denied the access"),
        ((200, b"<html>"), "got no JSON"),
        ((200, b"[" * 100_000), "got no JSON"),
        ((200, b" " * (module.MAX_ANSWER + 1)), "an answer of more than"),
        ((200, b'{"schema": "{}", "schemaType": "PROTOBUF"}'), "a schema of type 'PROTOBUF'; expected AVRO"),
        ((200, b'{"schema": "{"}'), "is no JSON"),
    ],
)
def test_other_answers_are_refused_at_once(server: RegistryServer, answer: tuple[int, bytes], complaint: str) -> None:
    server.answers["/schemas/ids/1"] = answer

    with pytest.raises(KafkaConfigurationError) as caught:
        Registry(url=server.url).schema(1)

    assert complaint in str(caught.value)
    assert server.asked == ["/schemas/ids/1"]  # a redirect is not followed


def test_no_proxy_is_used(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put("/schemas/ids/1", "int")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert Registry(url=server.url).schema(1) == Found("int")


def test_credentials_are_resolved_where_they_are_used(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put("/schemas/ids/1", "int")
    found = Registry.of({URL: server.url + "/", USER: "env:REGISTRY_USER"})
    monkeypatch.setenv("REGISTRY_USER", "ann:secret")

    found.schema(1)

    assert server.authorization == ["Basic " + base64.b64encode(b"ann:secret").decode()]
    assert "secret" not in repr(found)
    assert "REGISTRY_USER" not in repr(found)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({URL: "ftp://host"}, "expected https://"),
        ({URL: "registry:8081"}, "expected https://"),
        ({URL: "https://"}, "expected https://"),
        ({URL: "https://host/?a=b"}, "expected https://"),
        ({URL: "https://ann:secret@host"}, "holds credentials, which logs would show"),
        ({URL: "http://host", USER: "ann:secret"}, "without TLS; expected an https URL"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        Registry.of(options)

    assert complaint in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_certificate_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    found = Registry.of({URL: "https://127.0.0.1:1", CA: str(tmp_path / "ca.pem")})

    with pytest.raises(KafkaConfigurationError, match=r"ssl.ca.location=.*cannot be read"):
        found.schema(1)


def test_tls_is_needed_for_https(server: RegistryServer) -> None:
    with pytest.raises(KafkaConfigurationError, match="TLS failed"):
        Registry(url=server.url.replace("http:", "https:")).schema(1)
