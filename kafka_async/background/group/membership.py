"""The interface of both memberships: what the other parts see of a member, in either protocol.

A membership never applies an assignment by itself. It proposes through ``RevokePartitions`` and ``AssignPartitions``; the
application carries both out, nearly always inside its own read call, and answers with ``PartitionsRevoked`` and
``PartitionsAssigned``, which carry the number of what they answer. An answer to an old number is ignored.
"""

from enum import Enum
from typing import Protocol

from ...errors import KafkaError
from ...events import Call
from ...model import ConsumerState, Node, TopicPartition
from ...network import Channel
from ...values import frozen
from ..loop.request_manager import RequestManager
from ..positions.subscription import Subscription


@frozen(kw_only=True)
class Identity:
    """The identity that OffsetCommit and OffsetFetch carry."""

    member_id: str = ""
    generation: int = -1
    """Generation (classic) or member epoch (consumer protocol); -1: not a member, a commit of a lone consumer."""
    instance_id: str | None = None
    consumer_protocol: bool = False
    """The epoch is a member epoch (KIP-848), so STALE_MEMBER_EPOCH means: wait for the new one and try again."""


class CommitFailure(Enum):
    """Our membership, as far as a refused commit or offset fetch shows it."""

    UNKNOWN_MEMBER = "the coordinator does not know us"
    ILLEGAL_GENERATION = "the group has moved on"
    FENCED_INSTANCE = "another member has our group_instance_id"
    REBALANCING = "a rebalance is under way"


class CoordinatorAccess(Protocol):
    """The coordinator, as far as a membership needs it (``FindCoordinatorManager``)."""

    @property
    def coordinator(self) -> Node | None: ...

    @property
    def latest(self) -> Node | None:
        """The last one known, for final requests."""

    @property
    def fatal(self) -> KafkaError | None: ...

    @property
    def is_out_of_reach(self) -> bool:
        """No broker can be reached."""

    def request(self, now: float) -> None: ...

    def lost(self, node_id: int, error: KafkaError | None, now: float) -> None: ...

    def served(self, now: float) -> None: ...

    def is_settling_in(self, error: KafkaError, now: float) -> bool:
        """Whether this answer of the coordinator is no fault yet."""


class Membership(RequestManager, Protocol):
    """One consumer's membership in its group.

    ``poll`` is called once per turn of the loop, after the coordinator's manager. Everything below is called between polls.
    """

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Join with this subscription, or have the group take over its change."""

    def leave(self, call: Call[None] | None, now: float) -> None:
        """Leave the group (unsubscribe); resolves ``call`` when the leave request was answered, or there was nothing to leave.

        The application gives up its partitions by itself.
        """

    def revoked(self, number: int, now: float) -> None:
        """The application carried ``RevokePartitions`` number ``number`` out: data dropped, offsets committed, call-back done."""

    def assigned(self, number: int, now: float) -> None:
        """The application carried ``AssignPartitions`` number ``number`` out."""

    def refused(self, failure: CommitFailure, identity: Identity, now: float) -> None:
        """A commit or offset fetch made as ``identity`` was refused; ignored if we have another identity by now."""

    def enforce_rebalance(self, reason: str, now: float) -> None:
        """Have the group rebalance (KIP-568); the consumer protocol has no such thing and logs a Notice."""

    @property
    def identity(self) -> Identity: ...

    @property
    def channel(self) -> Channel:
        """The connection to the coordinator on which commits and offset fetches need not wait for anything of ours."""

    @property
    def state(self) -> ConsumerState:
        """STEADY, JOINING, REBALANCING, COORDINATOR_LOST or FATAL."""

    @property
    def failure(self) -> KafkaError | None:
        """Why the membership has ended for good (FATAL); ``None`` again when the application subscribes or unsubscribes."""

    @property
    def is_leaving(self) -> bool:
        """A request to leave is due, or not answered yet."""

    @property
    def is_being_named(self) -> bool:
        """The coordinator is about to answer with a member id, and waits for that member from then on (KIP-394)."""

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """Topics of the subscription, whose metadata the membership needs; ``None``: all."""

    @property
    def group_topics(self) -> frozenset[str]:
        """Topics of the whole group, whose metadata a leader needs besides."""

    @property
    def awaits_epoch(self) -> bool:
        """A heartbeat that may bring a new epoch is under way or due: a commit refused as stale should wait for it."""

    @property
    def is_denied(self) -> bool:
        """The coordinator refuses us for a reason that an operator can remove, and has not accepted us since."""

    @property
    def session_deadline(self) -> float:
        """Until when our partitions are certainly ours (absolute seconds): last heartbeat response plus the session timeout.

        Infinity while that is not known (consumer protocol before the first answer) or there is nothing to lose.
        """


@frozen(kw_only=True)
class PollProgress:
    """The application's side as a membership sees it: when it last read, for ``max_poll_interval_ms``."""

    polled_at: float
    polling: bool
    """A read call is waiting right now; then the interval does not run."""


class MembershipHost(Protocol):
    """What a membership may use; given to it when it is made."""

    def publish_revocation(
        self, number: int, partitions: frozenset[TopicPartition], *, lost: bool, returning: bool = False
    ) -> None:
        """Have the application give the partitions up; answered by ``revoked(number)``.

        ``lost``: they may belong to others already. ``returning``: what stays comes back with the next assignment (eager protocol).
        """

    def publish_assignment(self, number: int, partitions: frozenset[TopicPartition], *, successive: bool = True) -> None:
        """Have the application take over the full set ``partitions``; answered by ``assigned(number)``.

        ``successive``: what comes back after a ``returning`` revocation belonged to no other member in between.

        The application itself revokes what it holds and is not in the set first (stops returning its records, commits, calls back).
        """

    def publish_error(self, error: KafkaError, *, final: bool = False) -> None:
        """Raise ``error`` from the caller's pending or next call; ``final``: from every one until it subscribes again."""

    def stop_fetching(self, partitions: frozenset[TopicPartition]) -> None:
        """Fetch no more of partitions that are about to be revoked."""

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions that the application has taken over; of a member that only stays, those that it had."""

    def progress(self) -> PollProgress: ...
