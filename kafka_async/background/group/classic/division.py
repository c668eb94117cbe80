"""How the group of a member in the classic protocol divides its partitions: the assignors that the member offers, and the one that
the group agreed on.

What an assignor of the user raises is raised.
"""

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from ....model import TopicPartition
from ....values import define, field
from ....wire import JoinGroupResponse
from ....wire.messages import JoinGroupRequestProtocol, SyncGroupRequestAssignment
from .assignment import Assignor, RebalanceProtocol
from .assignors import common_protocol
from .leader import Leadership, MembershipMetadata, read_assignment
from .requests import PROTOCOL_TYPE, offers

if TYPE_CHECKING:
    from ....wire.messages.admin import DescribedGroup


@define(eq=False)
class Division:
    """The assignors of one member."""

    assignors: Sequence[Assignor] = field(repr=False)
    """Best first; of this consumer alone (``assignors_from``)."""
    metadata: MembershipMetadata = field(repr=False)
    rack: str
    protocol: RebalanceProtocol = field(init=False)
    chosen: Assignor = field(init=False)
    """The one that the group agreed on."""
    leadership: Leadership | None = field(default=None, init=False)
    """``None`` while another member leads."""
    plan: tuple[SyncGroupRequestAssignment, ...] = field(default=(), init=False)
    """The leader's work, to be sent with the SyncGroup."""

    def __attrs_post_init__(self) -> None:
        self.protocol = common_protocol(self.assignors)
        self.chosen = self.assignors[0]

    @property
    def is_cooperative(self) -> bool:
        return self.protocol is RebalanceProtocol.COOPERATIVE

    def offer(
        self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int
    ) -> tuple[JoinGroupRequestProtocol, ...]:
        """Return the JoinGroup's entry for each assignor."""
        return offers(self.assignors, topics, owned, generation, self.rack)

    def offers(self, name: str | None, protocol_type: str | None) -> Assignor | None:
        """Return the assignor of that name; ``None`` if we have not offered it."""
        known = protocol_type in (None, PROTOCOL_TYPE)
        return next((assignor for assignor in self.assignors if known and assignor.name == name), None)

    def begin(self, assignor: Assignor, response: JoinGroupResponse, now: float) -> None:
        """The group agreed on ``assignor``. Raises ``MalformedResponseError`` for a member's subscription that cannot be read."""
        leads = response.leader == response.member_id
        self.leadership = Leadership.of(response, now) if leads else None
        self.chosen = assignor
        self.plan = ()

    def make_plan(self) -> None:
        """Divide the partitions, as their leader."""
        if self.leadership is not None:
            self.plan = self.leadership.plan(self.chosen, self.protocol, self.metadata)

    def ready_at(self) -> float:
        """Return when the leader knows enough of the group's topics, if nothing comes; never if it does not know them at all."""
        leadership = self.leadership
        return leadership.look_at(self.metadata) if leadership is not None and leadership.is_informed(self.metadata) else inf

    def take(self, assignment: bytes, generation: int) -> frozenset[TopicPartition]:
        """Return what the leader gave this member, and have the assignor remember it."""
        partitions = read_assignment(assignment)
        self.chosen.on_assignment(partitions, generation)
        return partitions

    @property
    def topics(self) -> frozenset[str]:
        """Topics of the whole group, while we lead it."""
        return self.leadership.topics if self.leadership is not None else frozenset()

    @property
    def undivided(self) -> frozenset[str]:
        """Topics of the group of which the plan has no partition, since they were not known."""
        return self.leadership.topics - self.leadership.counts.keys() if self.leadership is not None else frozenset()

    def changes(self) -> tuple[str, ...]:
        """Return the topics that have changed since the leader divided them."""
        return self.leadership.changes(self.metadata) if self.leadership is not None else ()

    @property
    def must_learn(self) -> bool:
        """Whether we lead a group whose partitions were divided before we came (KIP-814), and do not know yet what it has."""
        return self.leadership is not None and self.leadership.must_learn

    def learn(self, group: "DescribedGroup") -> None:
        """Take in what the members of the group that we lead have. Raises ``MalformedResponseError``."""
        if self.leadership is not None and not group.error_code and group.group_state == "Stable":
            self.leadership.learn(member.member_assignment for member in group.members)

    def leave_unlearned(self) -> None:
        """What the group has is not to be found out; topics that change from now on are noticed."""
        if self.leadership is not None:
            self.leadership.must_learn = False

    def forget(self) -> None:
        """We lead no more."""
        self.leadership = None
