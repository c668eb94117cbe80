"""OAUTHBEARER byte by byte, and against brokers that refuse."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import AuthenticationFailedError
from kafka_async.network.auth import Authenticated, PendingWork
from kafka_async.network.sasl.conversation import SaslConversation
from kafka_async.network.sasl.oauthbearer import Bearer, OAuthBearer, first_message
from kafka_async.wire import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse

TOKEN = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="  # RFC 7628 section 4.1 prints it
PARTS = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJyZWFkZXIifQ.c2lnbmF0dXJlLXRoYXQtaXMtc2VjcmV0"


def talk(token: str = TOKEN, **extensions: Any) -> tuple[OAuthBearer, bytes | None]:
    """Return a conversation whose token has arrived, and what it says."""
    bearer = Bearer(token=token, extensions=extensions)

    async def fetch() -> Bearer:
        return bearer

    mechanism = OAuthBearer(fetch)
    assert isinstance(mechanism.start(), PendingWork)
    return mechanism, mechanism.receive(bearer)


def test_the_token_is_fetched_first_and_then_said() -> None:
    mechanism, said = talk()
    assert said == b"n,,\x01auth=Bearer " + TOKEN.encode() + b"\x01\x01"
    assert mechanism.receive(b"") is None


def test_extensions_go_along() -> None:
    _, said = talk(logicalCluster="lkc-1", poolId="a b\tc=,~")
    assert said == b"n,,\x01auth=Bearer " + TOKEN.encode() + b"\x01logicalCluster=lkc-1\x01poolId=a b\tc=,~\x01\x01"


@pytest.mark.parametrize("token", ["", "two words", "new\nline", "\x01", "a=b", "t\u00f6ken", None, 7, b"bytes", "x" * 5 + "\n"])
def test_a_token_that_would_break_the_format_is_refused_and_not_shown(token: Any) -> None:
    with pytest.raises(AuthenticationFailedError, match="not a bearer token") as caught:
        first_message(Bearer(token=token))
    assert str(token).strip() == "" or str(token).strip() not in str(caught.value)


@pytest.mark.parametrize(
    ("extensions", "text"),
    [
        ({"auth": "x"}, "'auth': expected a name"),
        ({"": "x"}, "'': expected a name"),
        ({"a1": "x"}, "'a1': expected a name"),
        ({1: "x"}, "1: expected a name"),
        ({"a": ""}, "'a': expected a value"),
        ({"a": "secret\x01auth=Bearer other"}, "'a': expected a value"),
        ({"a": "secr\u00e9t"}, "'a': expected a value"),
        ({"a": None}, "'a': expected a value"),
        (["a"], "are list: expected a mapping"),
    ],
)
def test_extensions_that_would_break_the_format_are_refused_and_not_shown(extensions: Any, text: str) -> None:
    with pytest.raises(AuthenticationFailedError, match=text) as caught:
        first_message(Bearer(token=TOKEN, extensions=extensions))
    assert "secr" not in str(caught.value)


@pytest.mark.slow
@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_a_message_has_exactly_the_fields_that_were_given(token: str, extensions: dict[str, str]) -> None:
    try:
        said = first_message(Bearer(token=token, extensions=extensions))
    except AuthenticationFailedError:
        return
    fields = said.removeprefix(b"n,,\x01").removesuffix(b"\x01\x01").split(b"\x01")
    assert fields == [b"auth=Bearer " + token.encode(), *(f"{name}={value}".encode() for name, value in extensions.items())]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (json.dumps({"status": "invalid_token", "openid-configuration": "file:///etc/passwd"}).encode(), "invalid_token"),
        (json.dumps({"status": f"not this: {PARTS}"}).encode(), r"not this: \*\*\*"),
        (json.dumps({"status": "bad signature " + PARTS.rpartition(".")[2]}).encode(), r"bad signature \*\*\*"),
        (json.dumps({"status": "x" * 10_000}).encode(), r"x{300}\.\.\.$"),
        (json.dumps({"status": "two\nlines"}).encode(), "two lines"),
        (b'{"scope": "all"}', "gave no reason"),
        (b"\xff\xfe", "gave no reason"),
        (b"[" * 100_000, "gave no reason"),
        (b"7", "gave no reason"),
    ],
)
def test_a_refusal_is_acknowledged_and_the_broker_has_to_end_it(answer: bytes, text: str) -> None:
    mechanism, _ = talk(PARTS)
    assert mechanism.receive(answer) == b"\x01"
    with pytest.raises(AuthenticationFailedError, match=text) as caught:
        mechanism.receive(b"")
    assert PARTS not in str(caught.value)
    assert "passwd" not in str(caught.value)


def test_the_token_does_not_show() -> None:
    mechanism, _ = talk(PARTS)
    assert PARTS not in repr(mechanism)
    assert PARTS not in repr(Bearer(token=PARTS, extensions={"a": PARTS}))
    assert PARTS in mechanism.secrets


def test_a_whole_conversation_with_a_session_that_ends() -> None:
    mechanism = OAuthBearer(lambda: pytest.fail("not here"))
    conversation = SaslConversation(mechanism, "one:9092")
    assert conversation.start(offered=False) == SaslHandshakeRequest(mechanism="OAUTHBEARER")
    assert isinstance(conversation.receive(SaslHandshakeResponse()), PendingWork)
    said = conversation.receive(Bearer(token=TOKEN))
    assert said == SaslAuthenticateRequest(auth_bytes=first_message(Bearer(token=TOKEN)))
    end = conversation.receive(SaslAuthenticateResponse(session_lifetime_ms=60_000))
    assert end == Authenticated(session_lifetime=60.0)


def test_a_broker_that_repeats_the_token_in_its_error_does_not_get_it_into_ours() -> None:
    mechanism, _ = talk(PARTS)
    conversation = SaslConversation(mechanism, "one:9092")
    with pytest.raises(AuthenticationFailedError, match=r"\{\"status\":\"\*\*\*\"\}"):
        conversation.receive(SaslAuthenticateResponse(error_code=58, error_message=f'{{"status":"{PARTS}"}}'))
