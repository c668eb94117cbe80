"""The conversation that carries a mechanism: what each answer of a broker leads to."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from attrs import define, field

from kafka_async.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    IllegalSaslStateError,
    KafkaError,
    KafkaProtocolError,
    SaslAuthenticationFailed,
    UnknownError,
)
from kafka_async.network.auth import Authenticated, PendingWork
from kafka_async.network.sasl import SaslConversation, Turn
from kafka_async.network.sasl.conversation import LONGEST_CHALLENGE, MOST_TURNS, shown
from kafka_async.wire import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse


async def nothing() -> None:
    return


WORK = PendingWork(run=nothing)


@define(eq=False)
class Script:
    """A mechanism that says what it is told to and keeps what it hears."""

    turns: list[Turn]
    name: ClassVar[str] = "SCRIPT"
    secrets: tuple[str, ...] = ("hunter2",)
    received: list[Any] = field(factory=list)

    def start(self) -> bytes | PendingWork:
        turn = self.turns.pop(0)
        assert turn is not None
        return turn

    def receive(self, incoming: Any) -> Turn:
        self.received.append(incoming)
        return self.turns.pop(0)


def conversation(*turns: Turn) -> tuple[SaslConversation, Script]:
    """A conversation whose handshake is asked for."""
    script = Script(list(turns))
    talk = SaslConversation(script, "broker:9092")
    assert talk.start(offered=False) == SaslHandshakeRequest(mechanism="SCRIPT")
    return talk, script


def refusal(talk: SaslConversation, response: Any) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        talk.receive(response)
    assert "hunter2" not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
    return caught.value


@pytest.mark.parametrize("spell", [lambda data: b64encode(data).decode(), bytes.hex, bytes.decode])
@pytest.mark.parametrize("secret", [b"\0user\0hunter2", b"hunter2"])
def test_a_broker_that_repeats_what_we_said_does_not_have_it_shown(spell: Callable[[bytes], str], secret: bytes) -> None:
    talk, _ = conversation(b"\0user\0hunter2")
    talk.receive(SaslHandshakeResponse())
    error = refusal(talk, SaslAuthenticateResponse(error_code=58, error_message=f"bad: {spell(secret)}!"))
    assert spell(secret).rstrip("=") not in str(error)
    assert "bad: " in str(error)


def test_a_mechanism_that_is_called_like_our_password_is_not_shown() -> None:
    talk, _ = conversation(b"one")
    error = refusal(talk, SaslHandshakeResponse(error_code=33, mechanisms=("hunter2", "PLAIN")))
    assert "it offers ***, PLAIN" in str(error)


def test_challenges_go_to_the_mechanism_until_it_is_satisfied() -> None:
    talk, script = conversation(b"one", b"two", None)
    assert talk.receive(SaslHandshakeResponse(mechanisms=("SCRIPT",))) == SaslAuthenticateRequest(auth_bytes=b"one")
    assert talk.receive(SaslAuthenticateResponse(auth_bytes=b"a")) == SaslAuthenticateRequest(auth_bytes=b"two")
    assert talk.receive(SaslAuthenticateResponse(auth_bytes=b"b")) == Authenticated(session_lifetime=None)
    assert script.received == [b"a", b"b"]


def test_work_is_handed_out_when_the_broker_offers_the_mechanism_and_its_result_goes_to_the_mechanism() -> None:
    talk, script = conversation(WORK, b"one", WORK, None)
    assert talk.receive(SaslHandshakeResponse()) is WORK
    assert talk.receive("token") == SaslAuthenticateRequest(auth_bytes=b"one")
    assert talk.receive(SaslAuthenticateResponse(auth_bytes=b"a")) is WORK
    assert talk.receive("checked") == Authenticated()
    assert script.received == ["token", b"a", "checked"]


def test_a_token_is_not_asked_for_if_the_broker_does_not_offer_the_mechanism() -> None:
    talk, script = conversation(WORK, b"one", None)
    assert isinstance(refusal(talk, SaslHandshakeResponse(error_code=33, mechanisms=("PLAIN",))), AuthenticationMethodNotSupported)
    assert script.turns[0] is WORK


def test_in_a_renewal_the_token_is_there_before_the_handshake() -> None:
    script = Script([WORK, b"one", WORK, None])
    talk = SaslConversation(script, "broker:9092")
    assert talk.start(offered=True) is WORK
    assert talk.receive("token") == SaslHandshakeRequest(mechanism="SCRIPT"), "the token is there before the handshake"
    assert talk.receive(SaslHandshakeResponse()) == SaslAuthenticateRequest(auth_bytes=b"one")
    assert talk.receive(SaslAuthenticateResponse(auth_bytes=b"a")) is WORK
    assert talk.receive("checked") == Authenticated()
    assert script.received == ["token", b"a", "checked"]


def test_the_session_lifetime_of_the_last_answer_counts() -> None:
    talk, _ = conversation(b"one", b"two", None)
    talk.receive(SaslHandshakeResponse())
    talk.receive(SaslAuthenticateResponse(session_lifetime_ms=1))
    assert talk.receive(SaslAuthenticateResponse(session_lifetime_ms=2_500)) == Authenticated(session_lifetime=2.5)


@pytest.mark.parametrize("lifetime", [0, -1, -(2**63)])
def test_a_session_without_a_lifetime_above_zero_does_not_end(lifetime: int) -> None:
    talk, _ = conversation(b"one", None)
    talk.receive(SaslHandshakeResponse())
    assert talk.receive(SaslAuthenticateResponse(session_lifetime_ms=lifetime)) == Authenticated()


def test_an_unknown_mechanism_names_what_the_broker_offers() -> None:
    talk, _ = conversation(b"one")
    error = refusal(talk, SaslHandshakeResponse(error_code=33, mechanisms=("PLAIN", "GSS\x1bAPI")))
    assert isinstance(error, AuthenticationMethodNotSupported)
    assert str(error) == "broker:9092: SCRIPT: the broker does not offer this sasl_mechanism; it offers PLAIN, GSS API"


def test_a_list_of_mechanisms_without_end_is_cut() -> None:
    talk, _ = conversation(b"one")
    error = refusal(talk, SaslHandshakeResponse(error_code=33, mechanisms=("M" * 10_000,) * 1_000))
    assert len(str(error)) < 6_000


def test_refused_credentials_carry_the_brokers_words_without_the_secret() -> None:
    talk, _ = conversation(b"one")
    talk.receive(SaslHandshakeResponse())
    error = refusal(talk, SaslAuthenticateResponse(error_code=58, error_message="no user with\npassword hunter2"))
    assert isinstance(error, AuthenticationFailedError)
    assert isinstance(error.__cause__, SaslAuthenticationFailed)
    assert not error.retriable
    assert str(error) == "broker:9092: SCRIPT: the broker refused the credentials: no user with password ***"


@pytest.mark.parametrize("response", [SaslHandshakeResponse(error_code=34), SaslAuthenticateResponse(error_code=34)])
def test_a_broker_that_expects_no_sasl_says_which_option_to_look_at(response: Any) -> None:
    talk, _ = conversation(b"one")
    error = refusal(talk, response)
    assert isinstance(error, AuthenticationFailedError)
    assert isinstance(error.__cause__, IllegalSaslStateError)
    assert "security_protocol" in str(error)


@pytest.mark.parametrize("response", [SaslHandshakeResponse(error_code=-1), SaslAuthenticateResponse(error_code=-1)])
def test_an_error_that_is_not_about_us_only_ends_the_attempt(response: Any) -> None:
    talk, _ = conversation(b"one")
    error = refusal(talk, response)
    assert isinstance(error, UnknownError)


def test_a_broker_that_never_ends_is_given_up() -> None:
    talk, _ = conversation(*[b"again"] * (MOST_TURNS + 1))
    talk.receive(SaslHandshakeResponse())
    for _turn in range(MOST_TURNS):
        talk.receive(SaslAuthenticateResponse())
    assert isinstance(refusal(talk, SaslAuthenticateResponse()), KafkaProtocolError)


def test_a_challenge_that_is_too_large_never_reaches_the_mechanism() -> None:
    talk, script = conversation(b"one", None)
    talk.receive(SaslHandshakeResponse())
    error = refusal(talk, SaslAuthenticateResponse(auth_bytes=bytes(LONGEST_CHALLENGE + 1)))
    assert isinstance(error, KafkaProtocolError)
    assert not script.received


def test_a_text_of_a_broker_is_shown_on_one_line_and_cut() -> None:
    assert shown("a\r\n\x1b[2Jb\u202e") == "a   [2Jb "
    assert shown("x" * 1_000) == "x" * 300 + "..."
    assert shown("the password is s3cret", ("s3cret", "")) == "the password is ***"
