"""What is assigned and where each partition is read next: SubscriptionState.

It is the only writer of all of these (in Java two threads were; see facts of KAFKA-17066, KAFKA-15529).

The state of a partition's position is a table. Only FETCHING has a position that may be fetched from (Java's ``FetchStates``;
HALTED is ours: an error was handed to the application and nothing happens until it seeks).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol

from ...model import TopicPartition
from ...states import StateTable
from ...values import define, field, frozen


@frozen(kw_only=True)
class Subscription:
    """What the application subscribed to. Exactly one of the three is set."""

    topics: frozenset[str] | None = None
    matches: Callable[[str], bool] | None = None
    """A regular expression evaluated here, on all topics of the metadata."""
    regex: str | None = None
    """A regular expression in RE2 syntax, evaluated by the coordinator (consumer protocol only)."""


class FetchState(Enum):
    INITIALIZING = "initializing"
    """Newly assigned: the committed offset is not known yet."""
    AWAIT_RESET = "awaiting reset"
    """An offset by policy or by time is being looked up."""
    AWAIT_VALIDATION = "awaiting validation"
    """There is a position, which is being compared with the log (KIP-320)."""
    FETCHING = "fetching"
    """There is a position, from which records are fetched."""
    HALTED = "halted"
    """The application got an error; nothing is fetched until it seeks."""


class PositionInput(Enum):
    POSITION = "a position that needs no check"
    VALIDATE = "a position that must be checked against the log"
    RESET = "the position is to be looked up"
    HALT = "the application got an error"


_F, _I = FetchState, PositionInput
TRANSITIONS: Final = StateTable(
    "a partition",
    {
        (_F.INITIALIZING, _I.POSITION): _F.FETCHING,
        (_F.INITIALIZING, _I.VALIDATE): _F.AWAIT_VALIDATION,
        (_F.INITIALIZING, _I.RESET): _F.AWAIT_RESET,
        (_F.INITIALIZING, _I.HALT): _F.HALTED,
        (_F.AWAIT_RESET, _I.POSITION): _F.FETCHING,
        (_F.AWAIT_RESET, _I.VALIDATE): _F.AWAIT_VALIDATION,
        (_F.AWAIT_RESET, _I.RESET): _F.AWAIT_RESET,
        (_F.AWAIT_RESET, _I.HALT): _F.HALTED,
        (_F.AWAIT_VALIDATION, _I.POSITION): _F.FETCHING,
        (_F.AWAIT_VALIDATION, _I.VALIDATE): _F.AWAIT_VALIDATION,
        (_F.AWAIT_VALIDATION, _I.RESET): _F.AWAIT_RESET,
        (_F.AWAIT_VALIDATION, _I.HALT): _F.HALTED,
        (_F.FETCHING, _I.POSITION): _F.FETCHING,
        (_F.FETCHING, _I.VALIDATE): _F.AWAIT_VALIDATION,
        (_F.FETCHING, _I.RESET): _F.AWAIT_RESET,
        (_F.FETCHING, _I.HALT): _F.HALTED,
        (_F.HALTED, _I.POSITION): _F.FETCHING,
        (_F.HALTED, _I.VALIDATE): _F.AWAIT_VALIDATION,
        (_F.HALTED, _I.RESET): _F.AWAIT_RESET,
    },
)


class FetchPosition(NamedTuple):
    """The next offset to fetch, and the leader epoch of the last record before it (``None``: not known)."""

    offset: int
    offset_epoch: int | None = None


@frozen
class PreferredReplica:
    """The follower that the leader would have us read from (KIP-392), and when that has to be asked again."""

    node_id: int
    until: float


@define(eq=False)
class Setbacks:
    """What has gone wrong with a partition since it went well last."""

    failures: int = 0
    """Errors in a row."""
    resets: int = 0
    """Times that the position was found outside the log."""
    redirected: bool = False
    """A broker named another replica to read from, and neither that one has answered since nor has a record come."""
    replica: int | None = None
    """The last one that a leader named and that could not be read from."""
    replica_failures: int = 0
    """Times in a row that it could not."""
    leader_only_until: float = 0.0
    """The leader is not asked for a replica before this time, since the last one could not be read from."""
    doubted_at: float | None = None
    """When a broker said for the first time that the log does not hold the position."""


@define(eq=False)
class PartitionState:
    """One assigned partition. Changed by ``SubscriptionState`` only."""

    partition: TopicPartition
    stamp: int
    state: FetchState = FetchState.INITIALIZING
    position: FetchPosition | None = None
    strategy: str | None = None
    """While AWAIT_RESET: ``earliest``, ``latest``, or ``None`` for the configured policy. While INITIALIZING: the same, for the
    reset that follows if nothing is stored."""
    paused: bool = False
    revoked: bool = False
    """About to leave the assignment, or set aside: not fetched, and its position not looked for any more."""
    checked_epoch: int | None = None
    """Leader epoch that the position was last checked against."""
    retry_at: float = 0.0
    """Not fetched, reset or validated before this time."""
    setbacks: Setbacks = field(factory=Setbacks)
    replica: PreferredReplica | None = None
    suspended: bool = False
    """The last response is inconsistent; nothing more is fetched until the application has read it and decides."""
    until: int | None = None
    """End of the range that the application reads; ``None``: reading has no end."""

    @property
    def fetchable(self) -> bool:
        if self.until is not None and self.position is not None and self.position.offset >= self.until:
            return False
        return self.state is FetchState.FETCHING and not self.paused and not self.revoked and not self.suspended


class PartitionListener(Protocol):
    """Looks at a partition again when something about it changed."""

    def changed(self, partition: TopicPartition) -> None: ...


@define(eq=False)
class SubscriptionState:
    """The assignment and its positions."""

    listeners: list[PartitionListener] = field(factory=list, repr=False)
    """Notified of every partition whose fetching may have to change, so that the work depends on changes, not on partitions."""
    partitions: dict[TopicPartition, PartitionState] = field(factory=dict)
    """What is assigned, and what is set aside."""
    owned: frozenset[TopicPartition] = frozenset()
    """The assigned partitions as a value."""
    changes: int = 0
    """Grows with every change but those that follow from fetching."""

    # --- assignment ------------------------------------------------------------------------------------------------------------

    def assign(
        self, stamps: Mapping[TopicPartition, int], set_aside: Collection[TopicPartition] = ()
    ) -> tuple[TopicPartition, ...]:
        """Make the partitions of ``stamps`` the assignment and return those that are gone for good.

        A partition that stays with the same stamp keeps everything; with a new stamp it starts afresh. What is ``set_aside`` was
        given up, but may come back with the next assignment: it is not owned and not fetched, and keeps everything until then.
        """
        kept = frozenset(set_aside) - stamps.keys()
        removed = tuple(partition for partition in self.partitions if partition not in stamps and partition not in kept)
        for partition in removed:
            del self.partitions[partition]
            self._changed(partition)
        for partition, stamp in stamps.items():
            known = self.partitions.get(partition)
            if known is None or known.stamp != stamp:
                self.partitions[partition] = PartitionState(partition, stamp)
                self._changed(partition)
            elif known.revoked:
                known.revoked = False
                self._changed(partition)
        self.owned = frozenset(stamps)
        self.revoke(kept)
        return removed

    def _changed(self, partition: TopicPartition) -> None:
        self.changes += 1
        for listener in self.listeners:
            listener.changed(partition)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(partition.topic for partition in self.partitions)

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self.partitions.get(partition)

    # --- positions -------------------------------------------------------------------------------------------------------------

    def _move(self, entry: PartitionState, what: PositionInput) -> None:
        TRANSITIONS.move(entry, what)
        self._changed(entry.partition)

    def renumber(self, partition: TopicPartition, stamp: int) -> PartitionState | None:
        """The application gives its position a new number: return the entry, or ``None`` if the number no longer counts."""
        entry = self.partitions.get(partition)
        if entry is None or entry.stamp > stamp:
            return None
        entry.stamp = stamp
        return entry

    def read_until(self, entry: PartitionState, until: int | None) -> None:
        """Fetch nothing from this offset on; ``None``: fetch without an end."""
        entry.until = until

    def seek(self, entry: PartitionState, position: FetchPosition, *, validate: bool = False) -> None:
        """Set a position that does not follow from fetching: a seek, a committed offset, the end of a reset."""
        entry.position = position
        entry.strategy = None
        entry.checked_epoch = None
        entry.retry_at = 0.0
        entry.setbacks.failures = 0
        entry.setbacks.doubted_at = None
        entry.suspended = False
        self._move(entry, PositionInput.VALIDATE if validate else PositionInput.POSITION)

    def reset(self, entry: PartitionState, strategy: str | None, *, not_before: float = 0.0) -> None:
        """Reset the position: ``earliest``, ``latest``, or the configured policy (``None``)."""
        entry.position = None
        entry.strategy = strategy
        entry.retry_at = not_before
        entry.setbacks.doubted_at = None
        entry.replica = None
        entry.suspended = False
        self._move(entry, PositionInput.RESET)

    def plan_reset(self, entry: PartitionState, strategy: str) -> None:
        """Reset the position to this if it turns out that nothing is stored."""
        entry.strategy = strategy

    def count_reset(self, entry: PartitionState) -> None:
        """The position was found outside the log once more."""
        entry.setbacks.resets += 1

    def doubt(self, entry: PartitionState, now: float) -> None:
        """A broker says that the log does not hold the position."""
        if entry.setbacks.doubted_at is None:
            entry.setbacks.doubted_at = now

    def advance(self, entry: PartitionState, position: FetchPosition, *, checked_epoch: int | None, suspended: bool) -> None:
        """Move on past data that was just fetched from the leader of ``checked_epoch``, unless that is known already.

        ``suspended``: the data do not hold together; the application reads them and says what comes next. Listeners are notified
        only if the state changes: the fetch manager knows already, and others have nothing to do.
        """
        if entry.checked_epoch is None:
            entry.checked_epoch = checked_epoch
        entry.position = position
        setbacks = entry.setbacks
        setbacks.failures = setbacks.resets = 0
        setbacks.redirected = False
        setbacks.doubted_at = None
        entry.suspended = entry.suspended or suspended
        if entry.state is not FetchState.FETCHING:
            self._move(entry, PositionInput.POSITION)

    def served(self, entry: PartitionState) -> None:
        """A broker answered for the partition, with records or without."""
        entry.setbacks.failures = entry.setbacks.resets = 0
        entry.setbacks.doubted_at = None

    def validate(self, entry: PartitionState) -> None:
        """Have the log compared with the position before fetching goes on."""
        self._move(entry, PositionInput.VALIDATE)

    def validated(self, entry: PartitionState, leader_epoch: int | None) -> None:
        """The log agrees with the position, as of ``leader_epoch``."""
        entry.checked_epoch = leader_epoch
        entry.setbacks.doubted_at = None
        self._move(entry, PositionInput.POSITION)

    def halt(self, entry: PartitionState) -> None:
        self._move(entry, PositionInput.HALT)

    # --- what else decides about fetching --------------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        for partition in partitions:
            entry = self.partitions.get(partition)
            if entry is not None and entry.paused is not paused:
                entry.paused = paused
                self._changed(partition)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these: they are about to be given up."""
        for partition in partitions:
            entry = self.partitions.get(partition)
            if entry is not None:
                entry.revoked = True
                self._changed(partition)

    def read_from(self, entry: PartitionState, replica: PreferredReplica | None) -> None:
        """Read from the replica that the leader prefers for us (KIP-392); ``None``: from the leader."""
        entry.replica = replica
        self._changed(entry.partition)

    def end_lease(self, entry: PartitionState) -> None:
        """Read from the leader again; the caller arranges for that."""
        entry.replica = None

    def count_redirection(self, entry: PartitionState) -> None:
        """A broker named another replica."""
        entry.setbacks.redirected = True

    def end_redirection(self, entry: PartitionState) -> None:
        """The replica that was named serves the partition."""
        entry.setbacks.redirected = False
        entry.setbacks.replica_failures = 0

    def avoid_replica(self, entry: PartitionState, node_id: int, until: float) -> None:
        """Read from the leader, and have it name no replica until then: the one that it named cannot be read from."""
        setbacks = entry.setbacks
        setbacks.replica_failures = setbacks.replica_failures + 1 if setbacks.replica == node_id else 1
        setbacks.replica = node_id
        setbacks.leader_only_until = until
        self.read_from(entry, None)

    def delay(self, entry: PartitionState, until: float) -> None:
        """Leave the partition alone until then; an error sent it here."""
        entry.setbacks.failures += 1
        self.wait(entry, until)

    def wait(self, entry: PartitionState, until: float) -> None:
        """Leave the partition alone until then: something that it needs is not known yet."""
        entry.retry_at = until
        self._changed(entry.partition)
