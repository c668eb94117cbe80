"""The seam for SASL: what a connection needs of a mechanism.

Decides: nothing. Owns: the interface between a connection and a mechanism. Must never do I/O; a mechanism is a sans-IO
conversation of Kafka requests (SaslHandshake, SaslAuthenticate; KIP-43, KIP-152).
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from attrs import frozen

from ..model import Node
from ..wire import Request


@frozen(kw_only=True)
class Authenticated:
    """The conversation succeeded."""

    session_lifetime: float | None = None
    """Seconds after which the broker demands a new authentication on the same connection (KIP-368); ``None``: never."""


class Authenticator(Protocol):
    """One conversation on one connection. A new one is made for each connection and for each re-authentication."""

    def start(self) -> Request[Any] | Authenticated:
        """Return the first request, or ``Authenticated()`` where there is nothing to say."""

    def receive(self, response: Any) -> Request[Any] | Authenticated:
        """Take the answer of the last request and return the next one, or the end.

        Raises ``AuthenticationFailedError`` where the broker refused us or we refuse the broker.
        """


AuthenticatorFactory: TypeAlias = Callable[[Node], Authenticator]
"""Makes the conversation for a connection to a node (its host is part of some mechanisms' names)."""
