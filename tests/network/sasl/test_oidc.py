"""Client credentials against an endpoint on loopback, honest and hostile."""

import asyncio
import base64
import gzip
import itertools
import json
import logging
import ssl
import threading
import time
from typing import Any
from urllib.parse import quote_plus

import anyio
import pytest
import trustme

from kafka_async.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError
from kafka_async.network.sasl.oidc import LONGEST_ANSWER, OidcTokenProvider
from kafka_async.testing.clock import VirtualLoop
from tests.token_endpoint import Reply, TokenEndpoint
from tests.virtual import run_virtual_asyncio

pytestmark = pytest.mark.filterwarnings("ignore:.*used without TLS:RuntimeWarning")

SECRET = "s3cr/t:+ \u00fc"  # it is one, for these tests


def provider(endpoint: TokenEndpoint, **arguments: Any) -> OidcTokenProvider:
    options: dict[str, Any] = {"allow_http": True, "retry_backoff": 0.001, "timeout": 60} | arguments
    return OidcTokenProvider(endpoint.url, "client", SECRET, **options)


def answer(**content: Any) -> Reply:
    return Reply(body=json.dumps(content).encode())


@pytest.mark.slow
async def test_it_asks_with_the_credentials_of_a_client() -> None:
    with TokenEndpoint() as endpoint:
        token = await provider(endpoint, scope="read write").token()
        (asked,) = endpoint.asked
        assert token == endpoint.tokens[0]
    assert asked.form == {"grant_type": "client_credentials", "scope": "read write"}
    assert asked.headers["Authorization"] == "Basic " + base64.b64encode(f"client:{SECRET}".encode()).decode()
    assert asked.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert asked.headers["Accept"] == "application/json"


async def test_name_and_secret_can_be_encoded_as_the_rfc_has_it() -> None:
    with TokenEndpoint() as endpoint:
        await OidcTokenProvider(endpoint.url, "a:b c", SECRET, allow_http=True, urlencode=True).token()
    encoded = base64.b64decode(endpoint.asked[0].headers["Authorization"].removeprefix("Basic "))
    assert encoded == b"a%3Ab+c:s3cr%2Ft%3A%2B+%C3%BC"


async def test_a_token_is_asked_for_once_in_its_life_however_many_want_it() -> None:
    with TokenEndpoint() as endpoint:
        tokens = provider(endpoint)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(tokens.token)
        await tokens.token()
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    ("said", "low", "high"),
    [
        ({"expires_in": 60}, 60, 60),
        ({"expires_in": "3599"}, 3599, 3599),  # some servers say numbers in strings
        ({"expires_in": 10**400}, 2**53, 2**53),
        ({}, 880, 901),
        ({"expires_in": True}, 880, 901),
        ({"expires_in": "soon"}, 880, 901),
        ({"expires_in": -1}, 880, 901),
    ],
)
async def test_its_life_is_what_the_answer_says_or_else_the_token(said: dict[str, Any], low: float, high: float) -> None:
    with TokenEndpoint() as endpoint:
        value = endpoint.token(900)
    with TokenEndpoint(answer(access_token=value, **said)) as endpoint:
        token = await provider(endpoint).fetch()
    assert token.value == value
    assert token.lifetime is not None
    assert low <= token.lifetime <= high


async def test_a_token_that_cannot_be_read_has_no_known_life() -> None:
    with TokenEndpoint(answer(access_token="opaque")) as endpoint:  # no secret
        assert (await provider(endpoint).fetch()).lifetime is None


async def test_a_fault_that_passes_is_tried_again() -> None:
    with TokenEndpoint(Reply(500), Reply(503, b"<html>"), Reply(429), answer(access_token="good")) as endpoint:
        assert await provider(endpoint).token() == "good"
    assert len(endpoint.asked) == 4


def test_a_fault_that_stays_is_reported_with_its_reason() -> None:
    """Time passes as in reality until the endpoint has been asked for the fifth time; then all of it is over at once."""
    later = Reply(503, json.dumps({"error": "temporarily_unavailable", "error_description": "later"}).encode())
    loop = VirtualLoop(hung_after=60)
    time_flies = loop.thread_begins()

    def fifth(endpoint: TokenEndpoint) -> Reply:
        loop.call_soon_threadsafe(time_flies)
        return later

    patient = {"timeout": 100, "read_timeout": 1000, "connect_timeout": 1000}
    with (
        TokenEndpoint(*[later] * 4, fifth, *[later] * 1000) as endpoint,
        asyncio.Runner(loop_factory=lambda: loop) as runner,
        pytest.raises(KafkaConnectionError, match=r"/token: HTTP 503: temporarily_unavailable: later$"),
    ):
        runner.run(provider(endpoint, **patient, retry_backoff_max=0.02).token())
    assert len(endpoint.asked) > 3


@pytest.mark.slow
def test_an_endpoint_where_nobody_listens_is_a_connection_error() -> None:
    with TokenEndpoint() as endpoint:
        pass
    with pytest.raises(KafkaConnectionError, match="ConnectError"):
        run_virtual_asyncio(provider(endpoint).token)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (
            Reply(401, b'{"error": "invalid_client", "error_description": "unknown client"}'),
            "HTTP 401.*invalid_client: unknown client$",
        ),
        (Reply(400, b'{"error": 7, "more": "secret things"}'), "HTTP 400, no token$"),
        (Reply(403, b"root:x:0:0:root:/root:/bin/bash"), "HTTP 403, no token$"),
        (Reply(404), "HTTP 404"),
        (Reply(204, b""), "HTTP 204"),
        (Reply(200, b"<html>welcome</html>"), "no access_token; expected"),
        (Reply(200, b"[" * 100_000), "no access_token"),
        (Reply(200, b"\xff" * 10), "no access_token"),
        (Reply(200, b'["access_token"]'), "no access_token"),
        (answer(access_token="two words"), "no access_token"),  # no secret
        (answer(access_token=7), "no access_token"),
        (answer(access_token="x", token_type="mac"), "token_type is 'mac'; expected 'Bearer'"),  # no secret
        (Reply(200, gzip.compress(b'{"access_token": "x"}'), {"Content-Encoding": "gzip"}), "uncompressed JSON"),
        (answer(access_token="x" * (LONGEST_ANSWER + 1)), "bytes at most"),
    ],
)
async def test_an_answer_that_is_no_token_is_refused_at_once(reply: Reply, text: str) -> None:
    with TokenEndpoint(reply) as endpoint, pytest.raises(AuthenticationFailedError, match=text) as caught:
        await provider(endpoint).token()
    assert len(endpoint.asked) == 1
    assert "secret things" not in str(caught.value)
    assert "root" not in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    with (
        TokenEndpoint() as elsewhere,
        TokenEndpoint(Reply(status, b"", {"Location": elsewhere.url})) as endpoint,
        pytest.raises(AuthenticationFailedError, match="a redirect, which is not followed"),
    ):
        await provider(endpoint).token()
    assert not elsewhere.asked


@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_without_end_is_cut_off(status: int) -> None:
    sent = 0

    def endless() -> Any:
        nonlocal sent
        for chunk in itertools.repeat(b" " * 65536):
            sent += len(chunk)
            yield chunk

    with TokenEndpoint(Reply(status, endless())) as endpoint:
        if status == 200:
            with pytest.raises(AuthenticationFailedError, match="bytes at most"):
                await provider(endpoint).token()
        else:
            await provider(endpoint).token()  # the second answer is good
    assert sent < 64 * LONGEST_ANSWER  # what the sockets' buffers took


@pytest.mark.parametrize("arguments", [{"timeout": 0.2}, {"timeout": 0.2, "read_timeout": 0.05}])
async def test_an_endpoint_that_says_nothing_costs_the_timeout(arguments: dict[str, Any]) -> None:
    def mute(endpoint: TokenEndpoint) -> Reply:
        endpoint.ended.wait(60)
        return Reply(500)

    with TokenEndpoint(*[mute] * 10) as endpoint:
        before = time.monotonic()
        with pytest.raises(KafkaConnectionError):
            await provider(endpoint, **{"read_timeout": 60, **arguments}).token()
        assert time.monotonic() - before < 40  # 60 if it waited for the answer


async def test_a_body_that_drips_costs_the_timeout() -> None:
    def drip(endpoint: TokenEndpoint) -> Reply:
        return Reply(200, (b" " for _ in iter(lambda: endpoint.ended.wait(0.01), True)))

    with TokenEndpoint(drip) as endpoint, pytest.raises(KafkaConnectionError, match=r"no token within 0\.3 s"):
        await provider(endpoint, timeout=0.3).token()


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://host/x",
        "//host/x",
        "host/x",
        "",
        "https://",
        "https://host:port/",
        "https://[host/",
        "HTTPS:host",
        "https://host/a\x7fb",
    ],
)
def test_only_an_address_of_the_web_is_taken(url: str) -> None:
    with pytest.raises(ValueError, match="expected 'https://host/path'"):
        OidcTokenProvider(url, "client", SECRET, allow_http=True)


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="no user name and password") as caught:
        OidcTokenProvider("https://me:hidden@host/token", "client", SECRET)
    assert "hidden" not in str(caught.value)


def test_http_needs_to_be_allowed_and_warns() -> None:
    with pytest.raises(ValueError, match="sasl_oauthbearer_allow_http"):
        OidcTokenProvider("http://localhost/token", "client", SECRET)
    with pytest.warns(RuntimeWarning, match="http://localhost/token: the token endpoint is used without TLS"):
        OidcTokenProvider("http://localhost/token?key=hidden", "client", SECRET, allow_http=True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"client_id": "a:b"}, "colon"),
        ({"extensions": {"auth": "x"}}, "SASL extension 'auth'"),
        ({"ssl_cafile": "/nowhere/ca.pem"}, "/nowhere/ca.pem.*cannot be read"),
        ({"ssl_cafile": __file__}, "cannot be read as certificates"),
    ],
)
def test_arguments_that_cannot_work_are_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        OidcTokenProvider("https://host/token", **({"client_id": "client", "client_secret": SECRET} | arguments))


def test_extensions_go_with_each_token() -> None:
    assert OidcTokenProvider("https://host/token", "client", SECRET, extensions={"a": "b"}).extensions() == {"a": "b"}


async def test_the_endpoint_has_to_prove_who_it_is(tmp_path: Any) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    cafile = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(cafile)
    with TokenEndpoint(context=context) as endpoint:
        with pytest.raises(AuthenticationFailedError, match="CERTIFICATE_VERIFY_FAILED"):
            await OidcTokenProvider(endpoint.url, "client", SECRET).token()
        assert not endpoint.asked
        assert await OidcTokenProvider(endpoint.url, "client", SECRET, ssl_cafile=cafile).token() == endpoint.tokens[0]


async def test_an_endpoint_that_wants_a_certificate_of_ours_gives_no_token(tmp_path: Any) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    cafile = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(cafile)
    with TokenEndpoint(context=context) as endpoint:
        provider = OidcTokenProvider(endpoint.url, "client", SECRET, ssl_cafile=cafile, timeout=1.0)
        with pytest.raises(KafkaConnectionError, match="https://localhost"):
            await provider.token()


@pytest.mark.parametrize("ending", ["its time", "the caller"])
async def test_a_request_that_ends_during_the_handshake_leaves_no_connection(ending: str) -> None:
    greeted, gone = asyncio.Event(), list[asyncio.Event]()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone.append(ended := asyncio.Event())
        if await reader.read(1):
            greeted.set()
        await reader.read()
        ended.set()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        for seconds in (0.5, 5, 50) if ending == "its time" else (100,):  # a busy machine may not even have connected in the first
            token = asyncio.create_task(OidcTokenProvider(url, "client", SECRET, timeout=seconds, connect_timeout=200).token())
            handshake = asyncio.create_task(greeted.wait())
            await asyncio.wait([token, handshake], return_when=asyncio.FIRST_COMPLETED)
            handshake.cancel()
            if ending == "the caller":
                token.cancel()
            with pytest.raises((KafkaConnectionError, asyncio.CancelledError)):
                await token
            if greeted.is_set():
                break
        assert greeted.is_set()
        async with asyncio.timeout(30):
            for ended in gone:
                await ended.wait()


async def test_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / ".netrc").write_text("machine localhost login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with TokenEndpoint() as proxy, TokenEndpoint() as endpoint:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/token"))
        await provider(endpoint).token()
    assert not proxy.asked
    assert base64.b64decode(endpoint.asked[0].headers["Authorization"].removeprefix("Basic ")).startswith(b"client:")


@pytest.mark.slow
async def test_the_keys_of_a_session_are_not_written_to_the_file_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with TokenEndpoint(context=context) as endpoint:
        await OidcTokenProvider(endpoint.url, "client", SECRET, ssl_cafile=tmp_path / "ca.pem").token()
    assert not (tmp_path / "keys").exists()


async def test_the_query_of_an_address_is_sent_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with TokenEndpoint(Reply(401)) as endpoint:
        tokens = OidcTokenProvider(f"{endpoint.url}?code=k%2Fey&v=1", "client", SECRET, allow_http=True)
        with pytest.raises(AuthenticationFailedError) as caught:
            await tokens.token()
    assert endpoint.asked[0].path == "/token?code=k%2Fey&v=1"
    assert endpoint.url in caplog.text
    assert "code" not in f"{caplog.text} {caught.value!r} {tokens!r}"


async def test_no_secret_is_shown_whatever_the_endpoint_repeats(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    basic = base64.b64encode(f"client:{SECRET}".encode()).decode()
    echo = json.dumps(
        {"error": SECRET, "error_description": f"not {basic} nor {quote_plus(SECRET)} but\nthat {'x' * 1000}"}
    ).encode()
    shown: list[str] = []
    with TokenEndpoint(Reply(401, echo), Reply(503, echo)) as endpoint:
        tokens = provider(endpoint)
        for _ in range(2):
            try:
                shown.append(await tokens.token())
            except KafkaError as error:
                shown[:0] = [str(error), repr(error), repr(tokens), repr(vars(error))]
    text = "".join(shown[:-1]) + caplog.text
    assert "***" in text
    assert SECRET not in text
    assert basic not in text
    assert quote_plus(SECRET) not in text
    assert shown[-1] == endpoint.tokens[0]
    assert endpoint.tokens[0] not in text


# --- assertions ------------------------------------------------------------------------------------------------------------------

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def asserting(endpoint: TokenEndpoint, assertion: Any, **arguments: Any) -> OidcTokenProvider:
    options: dict[str, Any] = {"allow_http": True, "retry_backoff": 0.001, "timeout": 60} | arguments
    return OidcTokenProvider(endpoint.url, assertion=assertion, **options)


async def test_an_assertion_takes_the_place_of_the_secret() -> None:
    given = answer(access_token="good")  # no secret
    with TokenEndpoint(given, given) as endpoint:
        await asserting(endpoint, lambda: "a.b.c", scope="read").token()
        await asserting(endpoint, lambda: "a.b.c", client_id="client").token()
    first, second = endpoint.asked
    assert first.form == {
        "grant_type": "client_credentials",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": "a.b.c",
        "scope": "read",
    }
    assert second.form["client_id"] == "client"
    assert "Authorization" not in first.headers.keys() | second.headers.keys()


async def test_an_assertion_is_exchanged_for_a_token() -> None:
    given = answer(access_token="good")  # no secret
    with TokenEndpoint(given, given) as endpoint:
        await asserting(endpoint, lambda: "a.b.c", grant_type=JWT_BEARER, scope="read").token()
        await asserting(endpoint, lambda: "a.b.c", grant_type=JWT_BEARER, client_id="client", client_secret=SECRET).token()
    first, second = endpoint.asked
    assert first.form == {"grant_type": JWT_BEARER, "assertion": "a.b.c", "scope": "read"}
    assert "Authorization" not in first.headers
    assert second.form == {"grant_type": JWT_BEARER, "assertion": "a.b.c"}
    assert second.headers["Authorization"].startswith("Basic ")


async def test_each_request_has_an_assertion_of_its_own() -> None:
    """An endpoint that has taken one, and whose answer was lost, does not take it again."""
    numbers = itertools.count()

    async def make() -> str:
        return f"a.b.{next(numbers)}"

    with TokenEndpoint(Reply(503), Reply(503), answer(access_token="good")) as endpoint:
        await asserting(endpoint, make).token()
    assert [asked.form["client_assertion"] for asked in endpoint.asked] == ["a.b.0", "a.b.1", "a.b.2"]


async def test_a_plain_function_makes_assertions_in_a_thread() -> None:
    threads: list[threading.Thread] = []

    def make() -> str:
        threads.append(threading.current_thread())
        return "a.b.c"

    with TokenEndpoint(answer(access_token="good")) as endpoint:
        await asserting(endpoint, make).token()
    assert threads[0] is not threading.current_thread()


async def test_an_assertion_that_fails_for_a_while_is_made_again() -> None:
    results: list[Any] = [OSError("hidden: hunter2"), KafkaConnectionError("the file is being written"), "no assertion", 7, "a.b.c"]

    def make() -> Any:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    with TokenEndpoint(answer(access_token="good")) as endpoint:
        assert await asserting(endpoint, make).token() == "good"
    assert len(endpoint.asked) == 1


def test_an_assertion_that_goes_on_failing_is_the_error_and_is_not_shown() -> None:
    def fails() -> str:
        raise OSError("hunter2")

    with TokenEndpoint() as endpoint:
        with pytest.raises(KafkaConnectionError, match="/token: the assertion raised OSError: no token") as caught:
            run_virtual_asyncio(asserting(endpoint, fails, retry_backoff_max=1).token)
        with pytest.raises(KafkaConnectionError, match="is no JSON Web Token; it is not shown") as shown:
            run_virtual_asyncio(asserting(endpoint, lambda: "hunter2 hunter2", retry_backoff_max=1).token)
    assert "hunter2" not in f"{caught.value} {shown.value}"
    assert not endpoint.asked


async def test_an_assertion_that_has_expired_is_said_to_have() -> None:
    with TokenEndpoint(Reply(400, b'{"error": "invalid_grant"}')) as endpoint:
        old = endpoint.token(-650)
        with pytest.raises(
            AuthenticationFailedError, match=r"HTTP 400, no token: invalid_grant \(the assertion expired 6\d\d s ago\)$"
        ):
            await asserting(endpoint, lambda: old, grant_type=JWT_BEARER).token()


async def test_no_assertion_is_shown_whatever_the_endpoint_repeats(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = json.dumps({"error": "assertion a.b.hunter2", "error_description": "signature hunter2"}).encode()
    with TokenEndpoint(Reply(401, echo)) as endpoint:
        tokens = asserting(endpoint, lambda: "a.b.hunter2")
        with pytest.raises(AuthenticationFailedError) as caught:
            await tokens.token()
    assert "***" in str(caught.value)
    assert "hunter2" not in f"{caught.value!r} {tokens!r} {caplog.text}"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "expected client_id and client_secret, or an assertion"),
        ({"client_id": "client"}, "expected client_id and client_secret, or an assertion"),
        ({"client_secret": SECRET}, "client_secret is given without client_id"),
        ({"client_id": "c", "client_secret": SECRET, "assertion": str}, "client_secret and assertion are both given"),
        ({"client_id": "c", "client_secret": SECRET, "grant_type": JWT_BEARER}, "needs an assertion"),
    ],
)
def test_what_does_not_prove_who_asks_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        OidcTokenProvider("https://host/token", **arguments)
    assert SECRET not in str(caught.value)
