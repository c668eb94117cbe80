"""A request that the layer above gives to the network.

Java: ``NetworkClientDelegate.UnsentRequest``; the channel replaces Java's invented node id ``Integer.MAX_VALUE - id`` for the
coordinator (``CoordinatorRequestManager``).
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from ..values import define
from ..wire import Request

LATE: Final = 1.0
"""Seconds past the longest wait of a request after which its broker is suspected: frozen, or out of reach with open connections.

Nothing fails by that. But a manager with a choice asks another broker, long before the request times out.
"""


class Channel(Enum):
    """Which of a broker's connections carries a request.

    A broker answers the requests of one connection one after the other. So the coordinator has a connection of its own, and so
    have fetches: neither a heartbeat nor a look-up of metadata or offsets ever waits behind a long-poll fetch to the same broker.
    While a JoinGroup waits on GROUP for the other members, commits and offset fetches go on MAIN.
    """

    MAIN = "main"
    FETCH = "fetch"
    GROUP = "group"

    __hash__ = object.__hash__  # members are one of a kind; Enum's own is a call of Python for each look into a dictionary


def never_withdrawn() -> bool:
    """Return ``False``. The default, which need not be called."""
    return False


@define(eq=False, kw_only=True)
class UnsentRequest:
    """One request, its destination, its deadline and the call-back for the answer."""

    message: Request[Any]
    """The request in its newest shape; the version is chosen when it is written."""
    on_done: Callable[[Any, float], None]
    """Called exactly once with ``(response | KafkaError, now)``, whatever happens to the request.

    So what is noted of a request that is under way ends here, and needs no other end. It runs inside the delegate's own methods, so
    it must be pure code that does not call the delegate.
    """
    expires_at: float
    """Absolute seconds. Time in the queue counts.

    Before it is written: ``KafkaTimeoutError``, and nothing was sent. After: the connection is closed, because a broker answers
    in order and the other requests in flight would wait behind the lost response; ``KafkaTimeoutError`` for this request,
    ``KafkaConnectionError`` for the others. It is therefore the request timeout, not the deadline of a caller, which uses
    ``withdrawn``.
    """
    node_id: int | None = None
    """``None``: the least loaded node."""
    channel: Channel = Channel.MAIN
    withdrawn: Callable[[], bool] = never_withdrawn
    """Asked right before writing; ``True`` drops the request, which ends with ``RequestWithdrawnError``."""
    lowest_version: int = 0
    highest_version: int = 0x7FFF
    """Bounds of the caller's own, passed to ``BrokerVersions.choose``."""
    max_wait: float = 0.0
    """Seconds for which a broker may legitimately hold the answer back (a long-poll fetch)."""
    abandonable: bool = False
    """Once it is withdrawn, the broker may never answer it: the next request does not wait for that, but has the connection
    closed and a new one opened.
    """
    final: bool = False
    """Still sent while the delegate drains and while the broker throttles us: leaving a group, a last commit."""

    @property
    def name(self) -> str:
        """The API, for texts and trace events."""
        return self.message.api_name
