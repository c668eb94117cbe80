"""The one exchange of a member in the classic protocol that may wait for the other members: JoinGroup, SyncGroup or LeaveGroup."""

from collections.abc import Callable

from ....model import Node
from ....network import UnsentRequest
from ....values import define, field
from ...loop.request_manager import NEVER, RequestState
from ..lookup import CoordinatorLookup


@define(eq=False)
class CoordinatorRequest:
    """One request at a time, to the coordinator."""

    lookup: CoordinatorLookup = field(repr=False)
    request: RequestState
    sent_to: Node | None = field(default=None, init=False)
    """The broker that got the last request."""
    until: float = field(default=0.0, init=False)
    """When the request in flight expires (absolute seconds); while the leader waits for metadata, how long it does at most."""

    @property
    def in_flight(self) -> bool:
        return self.request.in_flight

    def reset(self) -> None:
        """The request of an earlier state is void; the backoff stays."""
        self.request.in_flight = False

    def send(self, make: Callable[[Node, float], UnsentRequest | None], now: float) -> tuple[UnsentRequest | None, float]:
        """Return the request that ``make`` makes, if one may be sent, or when to come back for it."""
        if self.in_flight:
            return None, NEVER
        node = self.lookup.node(now)
        if node is None or not self.request.may_send(now):
            return None, self.request.wake_at() if node is not None else NEVER
        made = make(node, now)
        if made is None:
            return None, self.request.wake_at()
        self.request.sent()
        self.sent_to = node
        self.until = made.expires_at
        return made, NEVER
