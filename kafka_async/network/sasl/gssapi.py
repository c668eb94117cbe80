"""GSSAPI: Kerberos, as a table of steps.

No protection is agreed on: TLS does that. What may ask a KDC is handed out as ``PendingWork``. RFC 4752 (SASL GSSAPI), RFC 2743,
Java ``SaslClientAuthenticator`` with the JDK's ``GssKrb5Client``.
"""

from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from ...errors import AuthenticationFailedError
from ...states import StateTable
from ...values import define, field
from ..auth import PendingWork
from .conversation import Turn

_NO_LAYER: Final = 1
"""RFC 4752 section 3.3: bit of "no security layer" in the first octet."""


class SecurityContext(Protocol):
    """One Kerberos context on the initiator's side. Its methods raise ``KafkaError`` only."""

    async def step(self, token: bytes | None) -> bytes:
        """Take the broker's token (``None`` at first) and return ours, empty if there is none. May ask a KDC."""

    @property
    def complete(self) -> bool:
        """Both sides know each other; the broker has proven who it is."""

    def wrap(self, message: bytes) -> bytes:
        """Return ``message`` signed, not encrypted."""

    def unwrap(self, token: bytes) -> bytes:
        """Return the message in a signed token."""


class GssapiState(Enum):
    """Where a conversation stands."""

    COMPUTING = "computing"
    """Our next token is being made."""
    EXCHANGING = "exchanging"
    """The broker has our token and answers with its own."""
    NEGOTIATING = "negotiating"
    """The context is complete; the broker says which layers of protection it offers."""
    FINISHING = "finishing"
    """The broker has our choice and sends nothing more."""
    DONE = "done"


class GssapiInput(Enum):
    """What can happen to a conversation."""

    TOKEN = "token"  # noqa: S105  # the name of an input
    """Our token is made and the context needs another of the broker's."""
    LAST_TOKEN = "last token"  # noqa: S105  # the name of an input
    """Our token is made and the context is complete."""
    ANSWER = "answer"


_S = GssapiState
_I = GssapiInput

TRANSITIONS: Final = StateTable(
    "a conversation",
    {
        (_S.COMPUTING, _I.TOKEN): _S.EXCHANGING,
        (_S.COMPUTING, _I.LAST_TOKEN): _S.NEGOTIATING,
        (_S.EXCHANGING, _I.ANSWER): _S.COMPUTING,
        (_S.NEGOTIATING, _I.ANSWER): _S.FINISHING,
        (_S.FINISHING, _I.ANSWER): _S.DONE,
    },
)


@define(eq=False)
class Gssapi:
    """One conversation of GSSAPI over ``context``."""

    name: ClassVar[str] = "GSSAPI"
    secrets: ClassVar[tuple[str, ...]] = ()
    _context: SecurityContext = field(repr=False)
    state: GssapiState = field(default=GssapiState.COMPUTING, init=False)

    def start(self) -> PendingWork:
        """See ``Mechanism``."""
        return self._step(None)

    def receive(self, incoming: Any) -> Turn:
        """Take our own token when it is made, else the broker's words.

        Raises ``AuthenticationFailedError`` if the broker insists on protecting each message by Kerberos, which Kafka has no
        room for, or sends what does not belong in the conversation.
        """
        TRANSITIONS.move(self, self._input())
        match self.state:
            case _S.EXCHANGING | _S.NEGOTIATING:
                return bytes(incoming)
            case _S.COMPUTING:
                return self._step(bytes(incoming))
            case _S.FINISHING:
                return self._context.wrap(_choice(self._context.unwrap(bytes(incoming))))
            case _S.DONE:
                return None

    def _input(self) -> GssapiInput:
        if self.state is not _S.COMPUTING:
            return _I.ANSWER
        return _I.LAST_TOKEN if self._context.complete else _I.TOKEN

    def _step(self, token: bytes | None) -> PendingWork:
        return PendingWork(run=partial(self._context.step, token))


def _choice(offer: bytes) -> bytes:
    """Return our answer to the broker's ``offer`` of layers: none, so no buffer either, and the name that the ticket has.

    An offer is an octet of layers and three octets with the largest message; RFC 4752 section 3.1. That says too that the three
    have to be 0 if no layer is offered, but the JDK's server names its buffer of 64 KiB all the same, so they are not looked at.
    """
    if len(offer) != 4:
        raise AuthenticationFailedError(f"the broker offers security layers in {len(offer)} bytes; expected 4")
    if not offer[0] & _NO_LAYER:
        raise AuthenticationFailedError(f"the broker insists on a security layer (offer {offer[0]}); expected that it allows none")
    return bytes((_NO_LAYER, 0, 0, 0))
