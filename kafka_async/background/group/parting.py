"""Leaving a group: which member leaves, which calls wait for it, and how long it may take."""

from ...events import Call
from ...network import Channel
from ...values import define, field
from .membership import Identity


@define(eq=False)
class MembershipParting:
    """The end of one membership after the other."""

    who: Identity = field(factory=Identity, init=False)
    """The member that leaves; a new one may exist already."""
    channel: Channel = field(default=Channel.GROUP, init=False)
    until: float = field(default=0.0, init=False)
    """When it is given up (absolute seconds): the session ends by itself."""
    _calls: list[Call[None]] = field(factory=list, init=False)

    def wait(self, call: Call[None] | None) -> None:
        """Resolve ``call`` when the member has left."""
        if call is not None:
            self._calls.append(call)

    def done(self) -> None:
        """The member has left, or there is nothing to leave."""
        calls, self._calls = self._calls, []
        for call in calls:
            call.resolve(None)
