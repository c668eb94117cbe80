"""What crosses the two queues between the application's side and the background loop.

Events are values: nothing in them changes after they are sent, except that a ``Call`` is resolved once.

The names are those of Kafka's threading refactor design and of Java's ``ApplicationEvent`` and ``BackgroundEvent``. ``stamp``
numbers the positions that the application gives a partition: it grows with every assignment and seek, and an event with an older
stamp is about a position that no longer counts. ``subscription`` numbers the application's calls of subscribe, unsubscribe
and assign in the same way: each event of the background about the group has the number of the last call that it carried out, and
the application drops events with an earlier number.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from .errors import KafkaError
from .model import ConsumerState, Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from .values import define, field, frozen

T = TypeVar("T")

Refusals: TypeAlias = Mapping[TopicPartition, KafkaError]
"""The partitions of a commit that were not committed, and why not."""


@define(eq=False)
class Call(Generic[T]):
    """The answer to one application event: asked by the application, resolved once by the background loop.

    ``deadline`` is absolute. A caller that gives up (timeout or cancellation) calls ``withdraw``; from then on the background drops
    the work instead of doing it late. ``wake`` is called after the call was resolved, from the background's side.
    """

    deadline: float
    wake: Callable[[], None] = field(default=lambda: None, repr=False)
    # One dict with one key: setdefault is the atomic "first one wins" between a caller that withdraws and a loop that resolves.
    _outcome: dict[str, tuple[str, Any]] = field(factory=dict, init=False)

    def _settle(self, kind: str, value: Any) -> bool:
        mine = (kind, value)
        won = self._outcome.setdefault("outcome", mine) is mine
        if won and kind != "withdrawn":
            self.wake()
        return won

    @property
    def done(self) -> bool:
        """Nobody waits for it any more: the call was resolved, failed or withdrawn."""
        return bool(self._outcome)

    @property
    def withdrawn(self) -> bool:
        return self._outcome.get("outcome", ("", None))[0] == "withdrawn"

    def resolve(self, value: T) -> None:
        self._settle("value", value)

    def fail(self, error: BaseException) -> None:
        self._settle("error", error)

    def withdraw(self) -> None:
        self._settle("withdrawn", None)

    def result(self) -> T:
        """Return the value, or raise the error with the caller's traceback alone. Only after ``done``."""
        kind, value = self._outcome["outcome"]
        if kind == "error":
            raise value.with_traceback(None)
        if kind == "withdrawn":
            raise RuntimeError("the call was withdrawn")
        result: T = value
        return result

    def answer(self) -> T | None:
        """Return the value; ``None`` if there is none: not yet, an error, or nobody waits any more."""
        kind, value = self._outcome.get("outcome", ("", None))
        return value if kind == "value" else None


# --- what the background answers with -------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class PositionFound:
    """The position that the background has for a partition."""

    stamp: int
    offset: int
    leader_epoch: int | None
    topic_id: UUID | None = None


@frozen(kw_only=True)
class PartitionDescription:
    """One partition in the cluster's metadata."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@frozen(kw_only=True)
class TopicDescription:
    """One topic in the cluster's metadata."""

    name: str
    topic_id: Any
    internal: bool
    partitions: tuple[PartitionDescription, ...]


@frozen(kw_only=True)
class ClusterDescription:
    """What is known about the cluster."""

    cluster_id: str | None
    brokers: tuple[Node, ...]
    topics: Mapping[str, TopicDescription]


@frozen(kw_only=True)
class PartitionSnapshot:
    """The background's view of one assigned partition."""

    state: str
    leader: int | None
    read_replica: int | None


@frozen(kw_only=True)
class BackgroundSnapshot:
    """The background's half of the statistics."""

    cluster_id: str | None
    brokers: tuple[Node, ...]
    connections: int
    requests_in_flight: int
    wake_ups: int
    partitions: Mapping[TopicPartition, PartitionSnapshot]
    unreachable_since: float | None = None
    """Since when no broker can be reached (seconds of the loop's clock); ``None`` while one can."""
    last_answer_at: float | None = None
    """When the last response of any broker came (seconds of the loop's clock)."""


# --- application -> background --------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class AssignFromUser:
    """The application assigned these partitions itself. ``stamps`` holds every partition; those that stay keep their stamp."""

    stamps: Mapping[TopicPartition, int]
    subscription: int = 0


@frozen(kw_only=True)
class SubscribeTopics:
    """Follow these topics: as a member of the group, or every partition of them if there is no group (aiokafka's way)."""

    topics: frozenset[str]
    subscription: int = 0


@frozen(kw_only=True)
class SubscribeRegex:
    """Follow every topic that matches an RE2 expression; the group's coordinator evaluates it (KIP-848)."""

    regex: str
    subscription: int = 0


@frozen(kw_only=True)
class SubscribePattern:
    """Follow every topic for which ``matches`` returns true, evaluated on the background's metadata."""

    matches: Callable[[str], bool]
    exclude_internal: bool
    subscription: int = 0


@frozen(kw_only=True)
class Unsubscribe:
    """Drop the subscription and the assignment, and leave the group."""

    call: Call[None] | None = None
    subscription: int = 0


@frozen(kw_only=True)
class EnforceRebalance:
    """Have the group rebalance (KIP-568)."""

    reason: str


@frozen(kw_only=True)
class CommitOffsets:
    """Commit these offsets to the group. Those that have a topic id are not committed for another topic of the same name.

    The answer names the partitions that were refused, and why; all others are committed. A partition that is not assigned to this
    member (any more) is refused with ``CommitFailedError``. The call fails as a whole only if nothing is known about any
    partition: the deadline passed, or the group refuses us.
    """

    call: Call[Refusals]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    once: bool = False
    """The first answer about a partition is final: one that cannot be committed is not tried again until the deadline."""
    along: frozenset[TopicPartition] = frozenset()
    """Partitions of ``offsets`` that the caller did not name: for them the first answer is final in any case."""


@frozen(kw_only=True)
class FetchCommitted:
    """Ask for the group's committed offsets; a partition without one maps to ``None``."""

    call: Call[Mapping[TopicPartition, OffsetAndMetadata | None]]
    partitions: frozenset[TopicPartition]
    partial: bool = False
    """Leave out those whose offset cannot be read, instead of failing because of them."""


@frozen(kw_only=True)
class PartitionsRevoked:
    """The application carried ``RevokePartitions`` out."""

    number: int


@frozen(kw_only=True)
class PartitionsAssigned:
    """The application carried ``AssignPartitions`` out, call-backs included."""

    number: int


@frozen(kw_only=True)
class AssignmentApplied:
    """The application took over an assignment that the background proposed with ``AssignPartitions``."""

    stamps: Mapping[TopicPartition, int]
    set_aside: frozenset[TopicPartition] = frozenset()
    """Partitions that were given up for a ``returning`` revocation: their positions are kept until the next assignment."""


@frozen(kw_only=True)
class Seek:
    """Read on from ``offset``; ``leader_epoch`` (of the last record read before it), if known, has the log checked (KIP-320)."""

    partition: TopicPartition
    stamp: int
    offset: int
    leader_epoch: int | None = None
    until: int | None = None
    """Fetch nothing from this offset on: the end of a range that is read."""
    topic_id: UUID | None = None
    """The topic that the offset belongs to. If another one has its name by now, that one is read from its beginning."""


@frozen(kw_only=True)
class ResetOffset:
    """Move to the beginning (``earliest``), the end (``latest``) or by the policy (``None``)."""

    stamps: Mapping[TopicPartition, int]
    strategy: str | None


@frozen(kw_only=True)
class HaltPartition:
    """Stop fetching the partition until the next seek: its data cannot be read at the application's position."""

    partition: TopicPartition
    stamp: int
    topic_id: UUID | None = None
    """The topic whose data it is."""


@frozen(kw_only=True)
class PausePartitions:
    partitions: frozenset[TopicPartition]


@frozen(kw_only=True)
class ResumePartitions:
    partitions: frozenset[TopicPartition]


@frozen(kw_only=True)
class FindPositions:
    """Resolve when every one of the partitions has a position."""

    call: Call[Mapping[TopicPartition, PositionFound]]
    partitions: frozenset[TopicPartition]


@frozen(kw_only=True)
class ListOffsets:
    """Look offsets up by timestamp (milliseconds; -1 end, -2 beginning). Partitions without an answer map to ``None``."""

    call: Call[Mapping[TopicPartition, OffsetAndTimestamp | None]]
    timestamps: Mapping[TopicPartition, int]


@frozen(kw_only=True)
class TopicMetadata:
    """Ask the cluster afresh about ``topics`` (``None``: all). Topics that do not exist are missing in the answer."""

    call: Call[ClusterDescription]
    topics: frozenset[str] | None
    create: bool = False
    """Whether the broker may create the topics, if its own settings and ``allow_auto_create_topics`` allow it."""
    fail_fast: bool = False
    """Fail as soon as every bootstrap server was tried in vain, unless there has been metadata before."""


@frozen(kw_only=True)
class TakeSnapshot:
    """Ask for the background's half of the statistics."""

    call: Call[BackgroundSnapshot]


@frozen(kw_only=True)
class FindClientInstanceId:
    """Ask for the id by which the cluster's operators know this client (KIP-714)."""

    call: Call[UUID]


@frozen(kw_only=True)
class Stop:
    """End the background: close fetch sessions, leave, close connections. The call is resolved when everything has been sent."""

    call: Call[None]


ApplicationEvent: TypeAlias = (
    AssignFromUser
    | SubscribeTopics
    | SubscribePattern
    | SubscribeRegex
    | Unsubscribe
    | EnforceRebalance
    | CommitOffsets
    | FetchCommitted
    | PartitionsRevoked
    | PartitionsAssigned
    | AssignmentApplied
    | Seek
    | ResetOffset
    | HaltPartition
    | PausePartitions
    | ResumePartitions
    | FindPositions
    | ListOffsets
    | TopicMetadata
    | TakeSnapshot
    | FindClientInstanceId
    | Stop
)
"""What a consumer asks of its background."""

ShareEvent: TypeAlias = SubscribeTopics | Unsubscribe | TopicMetadata | TakeSnapshot | FindClientInstanceId | Stop
"""The same of a share consumer, except what is about records and locks (``background/share/orders.py``)."""


# --- background -> application --------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ErrorEvent:
    """An error that the caller must see: raised by the pending or the next read."""

    error: KafkaError
    to_all: bool = False
    """It ends every waiting call, not only reads: no request can be sent."""
    final: bool = False
    """The membership has ended for good; every read and commit fails with it until the application subscribes again."""
    subscription: int = 0

    def repeats(self, other: "ErrorEvent") -> bool:
        """Whether this repeats what ``other`` reports."""
        same = type(self.error) is type(other.error) and str(self.error) == str(other.error)
        return same and self.subscription == other.subscription and (other.final or not self.final)


@frozen(kw_only=True)
class AssignPartitions:
    """The background found a new assignment; the application takes it over inside its next read call."""

    number: int
    partitions: frozenset[TopicPartition]
    successive: bool = True
    """It belongs to the generation right after the one of the last ``returning`` revocation: no other member owned the
    partitions that come back.
    """
    subscription: int = 0


@frozen(kw_only=True)
class RevokePartitions:
    """Give these partitions up: before the group rebalances or, with ``lost``, because they belong to others already."""

    number: int
    partitions: frozenset[TopicPartition]
    lost: bool
    returning: bool = False
    """An eager rebalance: everything is given up, and what stays comes back with the next assignment."""
    subscription: int = 0


@frozen(kw_only=True)
class GroupChanged:
    """Who we are in the group now."""

    member_id: str
    generation: int
    state: ConsumerState
    coordinator: Node | None
    subscription: int = 0
    denied: bool = False
    """We are refused for a reason that an operator can remove. Until then the error that was published as final stands."""


@frozen(kw_only=True)
class MetadataUpdated:
    """The cluster's metadata changed."""

    cluster: ClusterDescription


@frozen(kw_only=True)
class ClusterReachability:
    """Whether any broker can be reached has changed. Seconds of the loop's clock."""

    unreachable_since: float | None
    """When the first attempt failed, once every known broker was tried in vain; ``None``: a broker answers again."""
    last_answer_at: float | None
    """When the last response of any broker came."""


BackgroundEvent: TypeAlias = ErrorEvent | AssignPartitions | RevokePartitions | GroupChanged | MetadataUpdated | ClusterReachability
