"""GSSAPI: the table, and a conversation with a context that only counts."""

import itertools
from typing import Any

import pytest
from attrs import define, field

from kafka_async.errors import AuthenticationFailedError
from kafka_async.network.auth import PendingWork
from kafka_async.network.sasl.gssapi import TRANSITIONS, Gssapi, GssapiInput, GssapiState


@define(eq=False)
class Context:
    """Needs ``rounds`` tokens of the broker. What is wrapped has a ``w`` in front."""

    rounds: int = 1
    steps: list[bytes | None] = field(factory=list)

    async def step(self, token: bytes | None) -> bytes:
        self.steps.append(token)
        return b"" if self.complete else b"ours%d" % len(self.steps)

    @property
    def complete(self) -> bool:
        return len(self.steps) > self.rounds

    def wrap(self, message: bytes) -> bytes:
        return b"w" + message

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(b"w"):
            raise AuthenticationFailedError("not signed")
        return token[1:]


async def advance(mechanism: Gssapi, turn: Any) -> bytes:
    assert isinstance(turn, PendingWork)
    said = mechanism.receive(await turn.run())
    assert isinstance(said, bytes)
    return said


@pytest.mark.parametrize("rounds", [1, 2])
async def test_tokens_until_the_context_is_complete_then_the_layers(rounds: int) -> None:
    context = Context(rounds)
    mechanism = Gssapi(context)
    said = [await advance(mechanism, mechanism.start())]
    said += [await advance(mechanism, mechanism.receive(b"theirs%d" % number)) for number in range(rounds)]
    assert said == [b"ours%d" % (n + 1) for n in range(rounds)] + [b""]
    assert context.steps == [None] + [b"theirs%d" % n for n in range(rounds)]
    assert mechanism.receive(b"w\x07\x00\xff\xff") == b"w\x01\x00\x00\x00"
    assert mechanism.receive(b"") is None


async def negotiating() -> Gssapi:
    mechanism = Gssapi(Context())
    await advance(mechanism, mechanism.start())
    await advance(mechanism, mechanism.receive(b"theirs"))
    return mechanism


@pytest.mark.parametrize(
    ("offer", "text"),
    [
        (b"w\x06\x00\xff\xff", r"insists on a security layer \(offer 6\)"),
        (b"w\x00\x00\x00\x00", "insists on a security layer"),
        (b"w", "in 0 bytes; expected 4"),
        (b"w\x01\x00\x00\x00\x00", "in 5 bytes; expected 4"),
        (b"\x01\x00\x00\x00", "not signed"),
    ],
)
async def test_an_offer_that_is_none_is_refused(offer: bytes, text: str) -> None:
    mechanism = await negotiating()
    with pytest.raises(AuthenticationFailedError, match=text):
        mechanism.receive(offer)


def test_a_conversation_of_two_rounds_goes_through_every_state() -> None:
    """RFC 4752: tokens until the context stands, then the offer of layers and our choice."""
    said = [GssapiInput.TOKEN, GssapiInput.ANSWER, GssapiInput.LAST_TOKEN, GssapiInput.ANSWER, GssapiInput.ANSWER]
    states = list(itertools.accumulate(said, lambda state, what: TRANSITIONS[state, what], initial=GssapiState.COMPUTING))
    assert [state.name for state in states] == ["COMPUTING", "EXCHANGING", "COMPUTING", "NEGOTIATING", "FINISHING", "DONE"]


@pytest.mark.parametrize(
    ("state", "event"), [pair for pair in itertools.product(GssapiState, GssapiInput) if pair not in TRANSITIONS]
)
def test_whatever_is_not_in_the_table_is_a_bug(state: GssapiState, event: GssapiInput) -> None:
    with pytest.raises(RuntimeError, match=f"a conversation in state {state.name} cannot take the input {event.name}"):
        TRANSITIONS[state, event]
