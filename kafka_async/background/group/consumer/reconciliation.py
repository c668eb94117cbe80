"""From the assignment that the coordinator wants to the one that the application has: the three assignments of a member.

There is one target, the last that was received. What it names by ids that the metadata cannot name yet is left for later
(KAFKA-16198). Each target has a local epoch, so that "the same partitions again" after something else is carried out and
acknowledged again (KAFKA-16185, KAFKA-16312). Source: KIP-848, ``LocalAssignment`` and ``maybeReconcile`` in
``AbstractMembershipManager.java``.
"""

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from ....errors import KafkaError
from ....events import TopicDescription
from ....model import TopicPartition
from ....network import UnsentRequest
from ....values import define, field, frozen
from ...loop.request_manager import NEVER, Backoff
from .heartbeat import FIRST_INTERVAL, JOIN_EPOCH, HeartbeatFields, PartitionIds


class Metadata(Protocol):
    """What a member reads of the cluster's metadata (``MetadataManager``)."""

    @property
    def version(self) -> int: ...
    @property
    def covers_all(self) -> bool: ...
    @property
    def names(self) -> Mapping[UUID, str]: ...
    @property
    def topics(self) -> Mapping[str, TopicDescription]: ...
    def request_update(self, now: float) -> None: ...


@frozen
class LocalAssignment:
    """Partitions by topic id, and the number of the target that they belong to; 0: none yet."""

    local_epoch: int = 0
    partitions: PartitionIds = frozenset()


@define(eq=False)
class Reconciliation:
    """The assignments of one incarnation of a member."""

    metadata: Metadata = field(repr=False)
    backoff: Backoff = field(repr=False)
    """Between two requests for names; belongs to this object alone."""
    target: LocalAssignment = field(factory=LocalAssignment, init=False)
    current: LocalAssignment = field(factory=LocalAssignment, init=False)
    """What was carried out last: what we report to the coordinator as owned."""
    _proposal: LocalAssignment = field(factory=LocalAssignment, init=False)
    _names: Mapping[UUID, str] = field(factory=dict, init=False)
    """Names in the proposal: a topic that is deleted keeps the name under which it was assigned."""

    @property
    def is_done(self) -> bool:
        """The target is carried out."""
        return self.target == self.current

    @property
    def wake_at(self) -> float:
        """When ``propose`` asks for missing names again; absolute seconds, after the ``now`` of the last ``propose``."""
        return self.backoff.retry_at if self.backoff.failures else NEVER

    def receive(self, partitions: PartitionIds) -> None:
        """Take over what the coordinator wants; the same as the last target changes nothing."""
        if self.target.local_epoch == 0 or partitions != self.target.partitions:
            self.target = LocalAssignment(self.target.local_epoch + 1, partitions)

    def propose(self, now: float) -> frozenset[TopicPartition] | None:
        """Return the full set to ask the application for, as far as it has names; ``None`` while that would change nothing.

        Asks for new metadata if names are missing.
        """
        names: dict[UUID, str] = {}
        for topic_id in {topic_id for topic_id, _ in self.target.partitions}:
            name = self.metadata.names.get(topic_id) or self._names.get(topic_id)
            if name is not None:
                names[topic_id] = name
        known = frozenset(part for part in self.target.partitions if part[0] in names)
        if known == self.target.partitions:
            self.backoff.succeeded()
        else:
            if self.backoff.ready(now):
                self.metadata.request_update(now)
                self.backoff.failed(now)
            if known == self.current.partitions:
                return None  # nothing new to do, and nothing new to acknowledge (KAFKA-20145)
        self._names = names
        self._proposal = LocalAssignment(self.target.local_epoch, known)
        return frozenset(TopicPartition(names[topic_id], partition) for topic_id, partition in known)

    def carried_out(self) -> None:
        """The application has what was proposed."""
        self.current = self._proposal


@define(eq=False)
class Incarnation:
    """One membership from joining to the end; whatever belongs to it ends with it."""

    assignments: Reconciliation
    epoch: int = JOIN_EPOCH
    reported: HeartbeatFields | None = None
    """What the coordinator has confirmed to know of us; ``None``: nothing."""
    confirmed_at: float | None = None
    """When the last heartbeat was sent that was answered without an error."""
    joined_at: float = -NEVER
    acknowledged_at: float = -NEVER
    """When a heartbeat was last sent that told of other partitions than the one before."""
    settles_at: float = -NEVER
    """An interval after that: the others have heard of it."""
    due_at: float = 0.0
    """When the interval asks for the next heartbeat."""
    coordinator_away_since: float | None = None
    fenced: KafkaError | None = None
    """The refusal of our release of the instance id: another member has it, or has left and may come back."""


@define(eq=False)
class Sent:
    """One heartbeat on its way; ``fields`` is ``None`` if it leaves the group."""

    incarnation: Incarnation
    node_id: int
    at: float
    fields: HeartbeatFields | None


@define(eq=False)
class Conversation:
    """The exchange with the coordinator: member id, heartbeats in flight, pace."""

    member_id: str
    """The same for all incarnations."""
    backoff: Backoff
    interval: float = field(default=FIRST_INTERVAL, init=False)
    """Seconds between two heartbeats, as the coordinator wants it."""
    flying: list[Sent] = field(factory=list, init=False)
    polled_at: float = field(default=0.0, init=False)
    """When a heartbeat could last have been sent."""
    parting: tuple[UnsentRequest, ...] = field(default=(), init=False)
    """What a member that was refused still has to send; its answer is not awaited."""

    def part(self, request: UnsentRequest) -> None:
        """Send this at the next opportunity, whatever becomes of the member until then."""
        self.parting = (request,)

    def take_parting(self) -> tuple[UnsentRequest, ...]:
        """Return what is still to be sent, once."""
        parting, self.parting = self.parting, ()
        return parting

    @property
    def leave_in_flight(self) -> bool:
        """A heartbeat that leaves the group is in flight."""
        return any(sent.fields is None for sent in self.flying)
