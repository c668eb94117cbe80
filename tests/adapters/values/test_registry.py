"""The schema registry: what is asked, what is refused, and that only the configured URL is contacted."""

import base64
import json
import ssl
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_async.adapters.spark.options.secrets import REFERENCES, VARIABLE
from kafka_async.adapters.values import registry as module
from kafka_async.adapters.values.registry import RegisteredSchema, Registry, RegistryError, UnknownSchemaError, UnusableSchemaError
from kafka_async.errors import KafkaConfigurationError, KafkaError
from kafka_async.network.backoff import ExponentialBackoff

from .registry_server import RegistryServer, registry_server

URL = "value.schema.registry.url"
USER = "value.schema.registry.basic.auth.user.info"
SSL = "value.schema.registry.ssl."
CA = f"{SSL}ca.location"
OAUTH = "value.schema.registry.bearer.auth."
TOKEN = f"{OAUTH}token"
ISSUER = f"{OAUTH}issuer.endpoint.url"
PROXY = "value.schema.registry.proxy"
CLIENT = {f"{OAUTH}client.id": "ann", f"{OAUTH}client.secret": "hush"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(module, "PAUSES", ExponentialBackoff(0.01, 2.0))
    with registry_server() as found:
        yield found


def test_a_schema_is_found_by_its_id_or_its_guid(server: RegistryServer) -> None:
    server.put("/schemas/ids/7", "int")
    server.put("/schemas/guids/a-b", "long")

    assert (Registry(url=server.url).schema(7), Registry(url=server.url).schema("a-b")) == (
        RegisteredSchema("int"),
        RegisteredSchema("long"),
    )


def test_the_newest_schema_of_a_subject_or_a_version(server: RegistryServer) -> None:
    server.put("/subjects/a%2Fb-value/versions/latest", "int")
    server.put("/subjects/a%2Fb-value/versions/3", "long")

    found = Registry(url=server.url)

    assert (found.newest("a/b-value"), found.newest("a/b-value", "3")) == (RegisteredSchema("int"), RegisteredSchema("long"))


def test_references_come_with_the_schema(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", "A", references=[{"name": "A", "subject": "a", "version": 2}])
    server.put("/subjects/a/versions/2?deleted=true", "B", references=[{"name": "B", "subject": "b", "version": 1}])
    server.put("/subjects/b/versions/1?deleted=true", "C")

    assert Registry(url=server.url).schema(1) == RegisteredSchema("A", ("C", "B"))


def test_ids_and_references_are_looked_for_in_the_context_of_the_subject(server: RegistryServer) -> None:
    there = [{"name": "B", "subject": "b", "version": 1}, {"name": "C", "subject": ":.more:c", "version": 1}]
    further = [{"name": "D", "subject": "d", "version": 1}, {"name": "E", "subject": ":.:e", "version": 1}]
    server.put("/schemas/ids/7", "another")
    server.put("/schemas/ids/7?subject=%3A.prod%3A", "A", references=there)
    server.put("/schemas/guids/a-b", "A", references=there)
    server.put("/subjects/%3A.prod%3Ab/versions/1?deleted=true", "B")
    server.put("/subjects/%3A.more%3Ac/versions/1?deleted=true", "C", references=further)
    server.put("/subjects/%3A.more%3Ad/versions/1?deleted=true", "D")
    server.put("/subjects/%3A.%3Ae/versions/1?deleted=true", "E")
    server.put("/subjects/%3A.prod%3Aorders-value/versions/latest", "A", references=there)
    named = "value.schema.registry.subject"

    found = Registry.of({URL: server.url, named: ":.prod:orders-value"})

    assert [found.schema(7), found.schema("a-b"), found.newest(":.prod:orders-value")] == [
        RegisteredSchema("A", ("B", "D", "E", "C"))
    ] * 3
    for subject in ("orders-value", ":.:orders-value"):
        assert Registry.of({URL: server.url, named: subject}).schema(7) == RegisteredSchema("another")


def test_schemas_that_name_each_other_are_asked_for_once(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", "A", references=[{"name": "B", "subject": "b", "version": 1}])
    server.put("/subjects/b/versions/1?deleted=true", "B", references=[{"name": "C", "subject": "c", "version": 1}])
    server.put("/subjects/c/versions/1?deleted=true", "C", references=[{"name": "B", "subject": "b", "version": 1}])

    assert Registry(url=server.url).schema(1) == RegisteredSchema("A", ("C", "B"))
    assert len(server.asked) == 3


def test_a_schema_that_refers_to_what_is_gone_for_good_says_what(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", "A", references=[{"name": "B", "subject": "b", "version": 1}])

    with pytest.raises(UnusableSchemaError, match="id 1 refers to version 1 of subject 'b', which the registry does not have"):
        Registry(url=server.url).schema(1)


@pytest.mark.parametrize("body", [b"<html>default backend</html>", b"", b"[]", b'{"error_code": "none"}'])
def test_a_404_of_something_else_is_not_believed(server: RegistryServer, body: bytes) -> None:
    server.answers["/schemas/ids/1"] = [(404, body), (404, body), (200, b'{"schema": "\\"int\\""}')]
    server.answers["/schemas/ids/2"] = (404, body)

    assert Registry(url=server.url).schema(1) == RegisteredSchema("int")
    with pytest.raises(RegistryError, match="status 404, and not from a schema registry; the path of the URL may be wrong"):
        Registry(url=server.url).schema(2)
    assert len(server.asked) < 10, "a wrong path is not tried for long"


@pytest.mark.parametrize("references", [7, ["b"], [{"subject": "b"}], [{"subject": "b", "version": "new"}]])
def test_references_that_lead_nowhere_are_an_error(server: RegistryServer, references: object) -> None:
    server.answers["/schemas/ids/1"] = (200, json.dumps({"schema": "{}", "references": references}).encode())

    with pytest.raises(RegistryError, match="the answer for id 1 has references without subject and version"):
        Registry(url=server.url).schema(1)


def test_an_unknown_id_is_no_failure_and_is_asked_for_again(server: RegistryServer) -> None:
    for _ in range(2):
        with pytest.raises(UnknownSchemaError, match="/schemas/ids/9: the registry has no such entry"):
            Registry(url=server.url).schema(9)

    assert len(server.asked) == 2


def test_a_subject_that_is_not_there_may_have_another_name(server: RegistryServer) -> None:
    with pytest.raises(UnknownSchemaError, match=r"/a-value/versions/latest: .* no such entry; .*option 'subject' names it"):
        Registry(url=server.url).newest("a-value")


def test_what_may_pass_is_tried_again(server: RegistryServer) -> None:
    server.answers["/schemas/ids/1"] = [(503, b""), (429, b""), (200, json.dumps({"schema": '"int"'}).encode())]

    assert Registry(url=server.url).schema(1) == RegisteredSchema("int")


@pytest.mark.slow
def test_a_registry_that_restarts_is_waited_for(server: RegistryServer) -> None:
    away = [(503, b"")] * 8  # 30 seconds and more of pauses, if they began with a quarter and doubled without a limit
    server.answers["/schemas/ids/1"] = [*away, (200, json.dumps({"schema": '"int"'}).encode())]

    assert Registry(url=server.url).schema(1) == RegisteredSchema("int")
    assert module.PATIENCE >= 30


def test_a_registry_that_stays_away_is_an_error(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 2.0)  # a busy machine answers late
    server.answers["/schemas/ids/1"] = (500, b"")

    with pytest.raises(RegistryError, match="status 500"):
        Registry(url=server.url).schema(1)
    assert len(server.asked) > 1


def test_nobody_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    with registry_server() as gone:
        url = gone.url

    with pytest.raises(RegistryError, match="cannot be reached: ConnectError"):
        Registry(url=url).schema(1)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ((301, b""), "expected a schema, got status 301"),
        ((401, b""), "it refused the credentials"),
        ((403, b""), "it denied the access"),
        ((200, b"<html>"), "got something that is not JSON"),
        ((200, b"[" * 100_000), "got something that is not JSON"),
        ((200, b" " * (module.MAX_ANSWER + 1)), "an answer of more than"),
        ((200, b'{"schema": "{}", "schemaType": "PROTOBUF"}'), "a schema of type 'PROTOBUF'; expected AVRO"),
        ((200, b'{"schema": "{"}'), "is not JSON"),
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

    assert Registry(url=server.url).schema(1) == RegisteredSchema("int")


def test_credentials_are_resolved_where_they_are_used(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put("/schemas/ids/1", "int")
    found = Registry.of({URL: server.url + "/", USER: "env:REGISTRY_USER"}, REFERENCES)
    monkeypatch.setenv("REGISTRY_USER", "ann:secret")
    monkeypatch.setenv(VARIABLE, "env:REGISTRY_")

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
        ({URL: "https://ann:hush@host"}, "holds credentials, which logs would show"),
        ({URL: "http://host", USER: "ann:hush"}, "without TLS; expected an https URL"),
        ({URL: "http://host", TOKEN: "hush"}, "without TLS; expected an https URL"),
        ({URL: "http://localhost", TOKEN: "hush", PROXY: "http://proxy:1"}, "without TLS; expected an https URL"),
        ({URL: "https://host", TOKEN: "hush", USER: "ann:hush"}, "two ways to log in"),
        ({URL: "https://host", ISSUER: "https://issuer"}, f"needs {OAUTH}client.id"),
        ({URL: "https://host", ISSUER: "https://issuer", f"{OAUTH}client.id": "x"}, f"needs {OAUTH}client.secret"),
        ({URL: "https://host", f"{OAUTH}client.id": "x"}, f"needs {ISSUER}"),
        ({URL: "https://host", ISSUER: "issuer", **CLIENT}, f"{ISSUER}: expected https://"),
        ({URL: "https://host", ISSUER: "http://issuer", **CLIENT}, "the secret would be sent without TLS"),
        ({URL: "https://host", f"{SSL}key.location": "x"}, f"needs {SSL}certificate.location"),
        ({URL: "https://host", PROXY: "proxy:3128"}, "proxy: expected http://"),
        ({URL: "https://host", PROXY: "socks5://ann:hush@proxy"}, "proxy: expected http://"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        Registry.of(options)

    assert complaint in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_certificate_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    found = Registry.of({URL: "https://127.0.0.1:1", CA: str(tmp_path / "ca.pem")})

    with pytest.raises(KafkaConfigurationError, match=r"ssl.ca.location=.*cannot read the file.*: No such file"):
        found.schema(1)


def test_tls_is_needed_for_https(server: RegistryServer) -> None:
    with pytest.raises(KafkaConfigurationError, match="TLS failed"):
        Registry(url=server.url.replace("http:", "https:")).schema(1)


def test_all_that_is_asked_for_one_schema_has_one_deadline(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.5)
    body = {"schema": '"A"', "references": [{"name": "B", "subject": "b", "version": 1}]}

    def late() -> tuple[int, bytes]:
        threading.Event().wait(0.6)  # nothing is left for the second, though an answer may take a second
        return 200, json.dumps(body).encode()

    server.answers["/schemas/ids/1"] = late
    server.answers["/subjects/b/versions/1?deleted=true"] = (503, b"")
    monkeypatch.setattr(module, "PAUSES", ExponentialBackoff(0.05, 0.05))

    with pytest.raises(RegistryError, match=r"status 503|ReadTimeout"):  # this if a busy machine takes a second for an answer
        Registry(url=server.url).schema(1)
    assert server.asked.count("/subjects/b/versions/1?deleted=true") <= 1, "it is asked for again only while there is time"


def test_a_token_goes_with_each_request(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put("/schemas/ids/1", "int")
    monkeypatch.setenv("REGISTRY_TOKEN", "token-7")
    monkeypatch.setenv(VARIABLE, "env:REGISTRY_")

    Registry.of({URL: server.url, TOKEN: "env:REGISTRY_TOKEN"}, REFERENCES).schema(1)

    assert server.authorization == ["Bearer token-7"]


@pytest.mark.parametrize("token", ["tok\u00e9n-7", "token-7\nx: y", ""])
def test_what_is_no_token_is_refused_at_once_and_not_shown(server: RegistryServer, token: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="expected printable ASCII") as caught:
        Registry.of({URL: server.url, TOKEN: token}).schema(1)
    assert "n-7" not in "".join(traceback.format_exception(caught.value))
    assert not server.asked


@pytest.mark.parametrize("name", [URL, PROXY, ISSUER])
@pytest.mark.parametrize("url", ["http://[half", "http://host:port", "http://host:99999"])
def test_what_is_no_url_is_an_error_that_names_the_option(name: str, url: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=f"{name}: expected http"):
        Registry.of({URL: "https://registry.example", **(CLIENT if name == ISSUER else {}), name: url})


@pytest.mark.filterwarnings("ignore:.*the token endpoint is used without TLS:RuntimeWarning")
def test_tokens_of_an_issuer_are_kept_for_their_life(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", "int")
    server.put("/schemas/ids/2", "int")
    server.answers["/token"] = (200, b'{"access_token": "of-the-issuer", "expires_in": 3600}')
    given = {URL: server.url, ISSUER: f"{server.url}/token", **CLIENT, f"{OAUTH}logical.cluster": "lsrc-1"}

    found = Registry.of(given)
    found.schema(1)
    found.schema(2)

    assert server.asked == ["/token", "/schemas/ids/1", "/schemas/ids/2"]
    assert server.authorization[1:] == ["Bearer of-the-issuer"] * 2
    assert [headers["target-sr-cluster"] for headers in server.headers[1:]] == ["lsrc-1"] * 2


@pytest.mark.filterwarnings("ignore:.*the token endpoint is used without TLS:RuntimeWarning")
async def test_tokens_of_an_issuer_are_had_where_an_event_loop_runs(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", "int")
    server.answers["/token"] = (200, b'{"access_token": "of-the-issuer", "expires_in": 3600}')

    Registry.of({URL: server.url, ISSUER: f"{server.url}/token", **CLIENT}).schema(1)

    assert server.authorization[1:] == ["Bearer of-the-issuer"]


@pytest.mark.brokers
def test_tokens_of_an_issuer_are_had_after_the_main_thread_has_ended(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", "int")
    server.answers["/token"] = (200, b'{"access_token": "of-the-issuer", "expires_in": 3600}')
    issuer = server.url.replace("127.0.0.1", "localhost")  # a name, to be looked up
    program = f"""
import threading
from kafka_async.adapters.values.registry import Registry

def work():
    threading.main_thread().join()
    Registry.of({ {URL: server.url, ISSUER: f"{issuer}/token", **CLIENT} }).schema(1)

threading.Thread(target=work).start()
"""

    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=20)  # noqa: S603 - ours

    assert server.authorization[1:] == ["Bearer of-the-issuer"]


@pytest.mark.filterwarnings("ignore:.*the token endpoint is used without TLS:RuntimeWarning")
def test_an_issuer_that_refuses_is_named_and_the_secret_is_not_shown(server: RegistryServer) -> None:
    server.answers["/token"] = (401, b'{"error": "invalid_client"}')

    with pytest.raises(KafkaError, match=r"/token: HTTP 401, no token: invalid_client") as caught:
        Registry.of({URL: server.url, ISSUER: f"{server.url}/token", **CLIENT}).schema(1)
    assert "hush" not in str(caught.value)


def test_a_proxy_is_asked_in_place_of_the_registry(server: RegistryServer) -> None:
    server.put("http://registry.example:8081/schemas/ids/1", "int")
    found = Registry.of({URL: "http://registry.example:8081", PROXY: server.url.replace("//", "//ann:secret@")})

    assert found.schema(1) == RegisteredSchema("int")
    assert server.headers[0]["Proxy-Authorization"] == "Basic " + base64.b64encode(b"ann:secret").decode()


def test_a_proxy_that_refuses_is_named_without_its_password(server: RegistryServer) -> None:
    server.answers["http://registry.example/schemas/ids/1"] = (407, b"")

    with pytest.raises(KafkaConfigurationError, match="the proxy refused the credentials") as caught:
        Registry.of({URL: "http://registry.example", PROXY: server.url.replace("//", "//ann:secret@")}).schema(1)
    assert "secret" not in str(caught.value)


def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme", reason="trustme is not installed: pip install '.[test]'")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own = authority.issue_cert("client.example")
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "client.pem"))
    own.private_key_pem.write_to_path(str(tmp_path / "client.key"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    given = {CA: str(tmp_path / "ca.pem"), f"{SSL}certificate.location": str(tmp_path / "client.pem")}
    with registry_server(context) as server:
        server.put("/schemas/ids/1", "int")
        found = Registry.of({URL: server.url, **given, f"{SSL}key.location": str(tmp_path / "client.key")})
        assert found.schema(1) == RegisteredSchema("int")

        with pytest.raises(KafkaConfigurationError, match=r"ssl.certificate.location=.*expected PEM with .* its private key"):
            Registry.of({URL: server.url, **given}).schema(1)  # the key is in another file


@pytest.mark.parametrize("password", [{}, {f"{SSL}key.password": "wrong"}])
def test_a_key_that_its_password_does_not_open_is_named(tmp_path: Path, password: dict[str, str]) -> None:
    trustme = pytest.importorskip("trustme", reason="trustme is not installed: pip install '.[test]'")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization", reason="comes with trustme")
    own = trustme.CA().issue_cert("client.example")
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "client.pem"))
    key = serialization.load_pem_private_key(own.private_key_pem.bytes(), None)
    (tmp_path / "client.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.BestAvailableEncryption(b"right"),
        )
    )
    files = {f"{SSL}certificate.location": str(tmp_path / "client.pem"), f"{SSL}key.location": str(tmp_path / "client.key")}
    with pytest.raises(KafkaConfigurationError, match=r"the right value\.schema\.registry\.ssl\.key\.password") as caught:
        Registry.of({URL: "https://127.0.0.1:1", **files, **password}).schema(1)
    assert "wrong" not in str(caught.value)
