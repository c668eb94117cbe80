"""How a membership gets its coordinator."""

from ...errors import KafkaError
from ...model import Node
from ...values import define, field
from .membership import CoordinatorAccess, MembershipHost


@define(eq=False)
class CoordinatorLookup:
    """The group's coordinator, for a membership that cannot go on without it."""

    coordinator: CoordinatorAccess = field(repr=False)
    host: MembershipHost = field(repr=False)
    _reported: KafkaError | None = field(default=None, init=False)

    @property
    def known(self) -> Node | None:
        """The coordinator, if it can be sent to."""
        return self.coordinator.coordinator

    @property
    def last_known(self) -> Node | None:
        """The coordinator or the last one known: for final requests, which have no time for a search."""
        return self.coordinator.coordinator or self.coordinator.latest

    def node(self, now: float) -> Node | None:
        """Return the coordinator; request a search if it is unknown, and report once why there is none."""
        node = self.coordinator.coordinator
        if node is None:
            self.coordinator.request(now)
            fatal = self.coordinator.fatal
            if fatal is not None and fatal is not self._reported:
                self.host.publish_error(fatal, final=True)
            self._reported = fatal
        return node
