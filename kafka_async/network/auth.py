"""The interface between a connection and a SASL mechanism.

A mechanism is a sans-IO conversation of Kafka requests (SaslHandshake, SaslAuthenticate; KIP-43, KIP-152). What takes time on our
side, such as fetching a token or deriving a key from a password, it hands out as ``PendingWork``, which the shell awaits.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from ..model import Node
from ..values import frozen
from ..wire import Request


@frozen(kw_only=True)
class Authenticated:
    """The conversation succeeded."""

    session_lifetime: float | None = None
    """Seconds after which the broker demands a new authentication on the same connection (KIP-368); ``None``: never."""


@frozen(kw_only=True)
class PendingWork:
    """Something to wait for before the conversation goes on. Its result is given to ``receive`` in place of an answer.

    It may raise ``KafkaError``, which ends the attempt: ``AuthenticationFailedError`` if trying again is useless. It is
    cancelled when the connection ends, and if the setup timeout has passed, at the latest when another work takes its place.
    Work that a re-authentication begins with does not hold up the connection, and is repeated if it fails.
    """

    run: Callable[[], Awaitable[Any]]


class Authenticator(Protocol):
    """One conversation on one connection. A new one is made for each connection and for each re-authentication."""

    def start(self, *, offered: bool) -> "Step":
        """Return the first request or work, or ``Authenticated()`` if there is nothing to send.

        ``offered``: this is a re-authentication, so the broker has already offered the mechanism on this connection.
        """

    def receive(self, response: Any) -> "Step":
        """Take the answer of the last request, or the result of the last work, and return the next one, or the end.

        Raises ``AuthenticationFailedError`` if the broker refused us or we refuse the broker, and another ``KafkaError`` if
        the next attempt may succeed.
        """


Step: TypeAlias = Request[Any] | PendingWork | Authenticated
"""What a conversation does next."""

AuthenticatorFactory: TypeAlias = Callable[[Node], Authenticator]
"""Makes the conversation for a connection to a node (its host is part of some mechanisms' names)."""
