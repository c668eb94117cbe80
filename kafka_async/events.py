"""What crosses the two queues between the application's side and the background loop.

Decides: the vocabulary. Owns: the two unions and ``Call``, the future that an application event carries. Events are values: nothing
in them changes after they are sent, except that a ``Call`` is resolved once. Must never know how an event is carried out.

The names are those of the threading refactor design and of Java's ``ApplicationEvent`` and ``BackgroundEvent``. ``stamp``
numbers the positions that the application gives a partition: it grows with every assignment and seek, and whatever carries an
older stamp is about a position that no longer counts.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from attrs import define, field, frozen

from .errors import KafkaError
from .model import ConsumerState, Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

T = TypeVar("T")


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
        """Nobody waits for work any more: the call was resolved, failed or withdrawn."""
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
        """Return the value, or raise the error with the caller's traceback. Only after ``done``."""
        kind, value = self._outcome["outcome"]
        if kind == "error":
            raise value
        if kind == "withdrawn":
            raise RuntimeError("the call was withdrawn")
        result: T = value
        return result


# --- what the background answers with -------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class PositionFound:
    """The position that the background has for a partition."""

    stamp: int
    offset: int
    leader_epoch: int | None


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
    """What is known of the cluster."""

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


# --- application -> background --------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class AssignFromUser:
    """The application assigned these partitions itself. ``stamps`` holds every partition; those that stay keep their stamp."""

    stamps: Mapping[TopicPartition, int]


@frozen(kw_only=True)
class SubscribeTopics:
    """Follow these topics without a group: every partition of them, as they come and go (aiokafka's ``group_id=None``)."""

    topics: frozenset[str]


@frozen(kw_only=True)
class SubscribeRegex:
    """Follow every topic that matches an RE2 expression; the group's coordinator evaluates it (KIP-848)."""

    regex: str


@frozen(kw_only=True)
class SubscribePattern:
    """Follow every topic for which ``matches`` says yes, evaluated on the background's metadata."""

    matches: Callable[[str], bool]
    exclude_internal: bool


@frozen(kw_only=True)
class Unsubscribe:
    """Drop the subscription and the assignment, and leave the group."""

    call: Call[None] | None = None


@frozen(kw_only=True)
class EnforceRebalance:
    """Have the group rebalance (KIP-568)."""

    reason: str


@frozen(kw_only=True)
class CommitOffsets:
    """Commit these offsets to the group; fails with ``CommitFailedError`` naming partitions that are lost."""

    call: Call[None]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@frozen(kw_only=True)
class FetchCommitted:
    """Ask for the group's committed offsets; a partition without one maps to ``None``."""

    call: Call[Mapping[TopicPartition, OffsetAndMetadata | None]]
    partitions: frozenset[TopicPartition]


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


@frozen(kw_only=True)
class Seek:
    """Read on from ``offset``; ``leader_epoch`` (of the last record read before it), where known, has the log checked (KIP-320)."""

    partition: TopicPartition
    stamp: int
    offset: int
    leader_epoch: int | None = None
    until: int | None = None
    """Fetch nothing from this offset on: the end of a range that is read."""


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
    """Whether the broker may create the topics, as far as its own settings and ``allow_auto_create_topics`` let it."""
    fail_fast: bool = False
    """Fail as soon as every bootstrap server was tried in vain, as long as there never was any metadata."""


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
    """End the background: close fetch sessions, leave, close connections. The call is resolved when all is said."""

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


# --- background -> application --------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ErrorEvent:
    """Something that the caller must know: raised by the pending or the next read."""

    error: KafkaError
    to_all: bool = False
    """It ends whatever waits, not reads alone: nothing can be asked."""

    def repeats(self, other: "ErrorEvent") -> bool:
        """Whether this tells nothing that ``other`` has not told."""
        return type(self.error) is type(other.error) and str(self.error) == str(other.error)


@frozen(kw_only=True)
class AssignPartitions:
    """The background found a new assignment; the application takes it over inside its next read call."""

    number: int
    partitions: frozenset[TopicPartition]


@frozen(kw_only=True)
class RevokePartitions:
    """Give these partitions up: before the group rebalances or, with ``lost``, because they belong to others already."""

    number: int
    partitions: frozenset[TopicPartition]
    lost: bool


@frozen(kw_only=True)
class GroupChanged:
    """Who we are in the group now."""

    member_id: str
    generation: int
    state: ConsumerState
    coordinator: Node | None


@frozen(kw_only=True)
class MetadataUpdated:
    """The cluster's metadata changed."""

    cluster: ClusterDescription


BackgroundEvent: TypeAlias = ErrorEvent | AssignPartitions | RevokePartitions | GroupChanged | MetadataUpdated
