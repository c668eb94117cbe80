"""How a partition gets a position, and keeps one that can be trusted.

What follows a missing offset, an offset out of range, a change of leader (KIP-320: is the log that we read still there?) and a
topic that was deleted and created again. An error is not "there is no offset" (promise 6).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from ...config import ConsumerConfig, parse_duration
from ...errors import (
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    for_code,
)
from ...events import Call, PositionFound
from ...model import OffsetAndMetadata, TopicPartition
from ...network import UnsentRequest
from ...trace import Fault, Listener, Notice
from ...values import define, field
from ...wire.messages import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ..boundary import EventHandler, FetchBuffer, PartitionFailed, Repositioned
from ..cluster.cluster_view import ClusterChanges, Leader
from ..cluster.late_answers import LateAnswers
from ..cluster.metadata import MetadataManager
from ..loop.request_manager import NEVER, Poll, retry_delay
from .list_offsets import EARLIEST, LATEST, Found, ListOffsetsManager
from .newcomers import FIRST, FIRST_OF_NEW, Newcomers
from .partition_outage import PartitionOutage
from .subscription import FetchPosition, FetchState, PartitionState, SubscriptionState

_CHECKS: Final = "validating positions"
"""The outage in which a broker does not say whether a position is still in its log."""
_ENDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_WORK = (FetchState.INITIALIZING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION)


class StoredOffsets(Protocol):
    """The committed offsets of a group."""

    def initialize(self, entry: PartitionState) -> object:
        """Give a newly assigned partition its stored position, or have it reset if none is stored."""


@define(eq=False)
class PositionsManager:
    """Brings every assigned partition to a position from which it can be fetched."""

    config: ConsumerConfig
    subscription: SubscriptionState = field(repr=False)
    metadata: MetadataManager = field(repr=False)
    list_offsets: ListOffsetsManager = field(repr=False)
    buffer: FetchBuffer = field(repr=False)
    """Where a new position or the failure of a partition goes, in order with the data before it."""
    handler: EventHandler = field(repr=False)
    wall_ms: Callable[[float], int] = field(repr=False)
    """The loop's time as milliseconds since the epoch."""
    trace: Listener = field(repr=False)
    newcomers: Newcomers = field(init=False, repr=False)
    stored: StoredOffsets | None = field(default=None, repr=False)
    """Gives a new partition its first position; ``None`` without a group, for which nothing is stored."""
    _todo: set[TopicPartition] = field(factory=set, init=False)
    _busy: dict[TopicPartition, tuple[PartitionState, FetchState, Leader | None]] = field(factory=dict, init=False)
    """The requests under way, the state they belong to, and, of a check, whom it asks: neither a reset nor a check at another
    leader waits for a check that hangs."""
    _waiting: list[tuple[Call[Mapping[TopicPartition, PositionFound]], frozenset[TopicPartition]]] = field(factory=list, init=False)
    _outage: PartitionOutage = field(init=False)
    """Of partitions whose last check failed."""
    _late: LateAnswers = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._late = LateAnswers(self.metadata)
        self.newcomers = Newcomers(self.config, self.metadata)
        self._outage = PartitionOutage(self.trace, _CHECKS, "positions cannot be validated yet; trying again")

    # --- questions and hints ---------------------------------------------------------------------------------------------------

    def changed(self, partition: TopicPartition) -> None:
        """A partition's state moved; look at it at the next poll."""
        self._todo.add(partition)

    def find(self, call: Call[Mapping[TopicPartition, PositionFound]], partitions: frozenset[TopicPartition]) -> None:
        """Resolve ``call`` when all partitions have a position; a partition that is not assigned has none to wait for."""
        self._waiting.append((call, partitions))

    def cluster_changed(self, changes: ClusterChanges, now: float) -> None:
        """Act on new leaders and topics; see ``ClusterListener``."""
        self.newcomers.cluster_changed(changes, now)
        for topic in sorted(changes.recreated):
            self._topic_recreated(topic)
        self._todo |= changes.leaders
        self._check_epochs(changes.leaders)

    def _check_epochs(self, partitions: Iterable[TopicPartition]) -> None:
        """Have positions checked whose leader is in a new epoch (KIP-320)."""
        for partition in partitions:
            entry = self.subscription.get(partition)
            leader = self.metadata.cluster.leader(partition)
            if entry is None or leader is None or entry.state is not FetchState.FETCHING or entry.position is None:
                continue
            if entry.replica is not None:
                self.subscription.read_from(entry, None)
            known = None not in (entry.position.offset_epoch, leader.epoch)
            if known and leader.epoch != entry.checked_epoch:
                self.subscription.validate(entry)

    def _topic_recreated(self, topic: str) -> None:
        """Start a topic that was deleted and created again from its beginning: none of its records was read yet.

        Positions in the old topic mean nothing in the new one (KAFKA-12257). With ``auto_offset_reset="none"`` the
        application decides. While stored offsets are asked for, the group may have some of the new topic already.
        """
        for partition, entry in self.subscription.partitions.items():
            if partition.topic != topic or (entry.state is FetchState.HALTED and self._keeps(entry)):
                continue
            if entry.state is FetchState.INITIALIZING and self.stored is not None:
                if not self._keeps(entry):
                    self.subscription.plan_reset(entry, "earliest")
            else:
                self._begin_anew(entry)

    def _begin_anew(self, entry: PartitionState) -> None:
        if not self._keeps(entry):
            self.subscription.reset(entry, "earliest")
            return
        offset = entry.position.offset if entry.position is not None else -1
        text = f"topic {entry.partition.topic!r} was deleted and created again"
        self._halt(entry, OffsetOutOfRangeError(text, offsets={entry.partition: offset}))

    def is_void(self, entry: PartitionState, topic_id: UUID | None, what: str, now: float) -> bool:
        """Whether the application means the topic that had the name before. The new one is read from its beginning."""
        if not self.metadata.cluster.incarnations.is_former(entry.partition.topic, topic_id):
            return False
        self.metadata.cluster.incarnations.say(what, entry.partition, topic_id, now, self.trace, subject="fetch")
        self._begin_anew(entry)
        return True

    def out_of_range(self, entry: PartitionState, now: float) -> None:
        """The leader says that the log does not hold the position. If that is sure, reset by policy, or report it."""
        if not self._is_proven(entry, now):
            return
        offset = entry.position.offset if entry.position is not None else -1
        if self._keeps(entry):
            why = "auto_offset_reset is 'none'" if entry.until is None else f"the range that is read ends at {entry.until}"
            text = f"offset {offset} of {entry.partition} is outside the log and {why}"
            self._halt(entry, OffsetOutOfRangeError(text, offsets={entry.partition: offset}))
        else:
            text = f"offset {offset} of {entry.partition} is outside the log; reset to {self.config.auto_offset_reset}"
            self.trace(Notice(now=now, text=text, subject="fetch"))
            # At once the first time; if the position is out of range again and again, the broker is asked less and less often.
            delay = retry_delay(self.config, entry.setbacks.resets)
            self.subscription.reset(entry, None, not_before=now + delay if entry.setbacks.resets else 0.0)
            self.subscription.count_reset(entry)

    def _is_proven(self, entry: PartitionState, now: float) -> bool:
        """Whether what a leader says against a position is believed: at the second time, with metadata in between.

        Else it is asked again, or the leader that the metadata name by then. The sequence that costs records: a broker that does
        not know yet that it is no longer the leader answers for a log that is shorter than the one that we have read.
        """
        doubted_at = entry.setbacks.doubted_at
        if entry.position is not None:
            self.metadata.see_epoch(entry.partition, entry.position.offset_epoch, now)
        is_new = doubted_at is not None and self.metadata.answered_since(doubted_at)
        if is_new and not self.metadata.cluster.is_behind(entry.partition, now):
            return True
        self.subscription.doubt(entry, now)
        self.metadata.request_update(now)
        self.subscription.delay(entry, now + retry_delay(self.config, entry.setbacks.failures))
        return False

    def _keeps(self, entry: PartitionState) -> bool:
        """Whether the position may not be reset: ``auto_offset_reset`` is ``none``, or a range of offsets is read."""
        return self.config.auto_offset_reset == "none" or entry.until is not None

    def problem(self, partitions: Iterable[TopicPartition]) -> KafkaError | None:
        """Return why these partitions have no position yet."""
        partitions = tuple(partitions)
        problems = (self.metadata.problem(partition.topic) for partition in partitions)
        return self.list_offsets.last_error(partitions) or next((problem for problem in problems if problem), None)

    # --- the conversation ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Start what can be started; return the validation requests."""
        wake_at = NEVER
        checks: dict[int, list[tuple[PartitionState, Leader]]] = defaultdict(list)
        if self._outage.failing:
            self._outage.keep(self.subscription.partitions)
            self._outage.report((), filter(self._needs_no_check, self._todo), now)
        for partition in tuple(self._todo):
            entry = self.subscription.get(partition)
            if entry is None or entry.state not in _WORK or self._is_under_way(entry):
                self._todo.discard(partition)
            elif entry.retry_at > now:
                wake_at = min(wake_at, entry.retry_at)
            elif self._start(entry, checks, now):
                self._todo.discard(partition)
            else:
                wake_at = min(wake_at, entry.retry_at)
        self._answer_waiting()
        requests = tuple(self._check(node_id, entries, now) for node_id, entries in checks.items())
        return Poll(requests, min(wake_at, self._late.ask(now)))

    def _is_under_way(self, entry: PartitionState) -> bool:
        """Whether what the partition waits for has been asked for already; a check: at the present leader."""
        is_check = entry.state is FetchState.AWAIT_VALIDATION
        leader = self.metadata.cluster.leader(entry.partition) if is_check else None
        return self._busy.get(entry.partition) == (entry, entry.state, leader)

    def _needs_no_check(self, partition: TopicPartition) -> bool:
        """Whether a partition that is assigned does not wait for a check: it may have got another position meanwhile."""
        entry = self.subscription.get(partition)
        return entry is not None and entry.state is not FetchState.AWAIT_VALIDATION

    def poll_on_close(self, now: float) -> Poll:
        """Positions send nothing when the consumer stops."""
        return Poll()

    def _start(self, entry: PartitionState, checks: dict[int, list[tuple[PartitionState, Leader]]], now: float) -> bool:
        """Return whether something was started for the partition; else it is tried again at its ``retry_at``."""
        if entry.state is FetchState.INITIALIZING:
            if self.stored is not None:
                self.stored.initialize(entry)
                return True
            self.subscription.reset(entry, FIRST)
        if entry.state is FetchState.AWAIT_RESET:
            self._start_reset(entry, now)
            return True
        epoch = entry.position.offset_epoch if entry.position is not None else None
        self.metadata.see_epoch(entry.partition, epoch, now)
        leader = self.metadata.cluster.leader(entry.partition)
        if leader is None:
            self.metadata.request_update(now)
            self.subscription.wait(entry, now + self.config.retry_backoff)
            return False
        if epoch is None or leader.epoch is None:
            self.subscription.validated(entry, leader.epoch)
        else:
            self._busy[entry.partition] = (entry, entry.state, leader)
            checks[leader.node_id].append((entry, leader))
        return True

    def _answer_waiting(self) -> None:
        still = []
        for call, partitions in self._waiting:
            if call.done:
                continue
            found: dict[TopicPartition, PositionFound] = {}
            for partition in partitions:
                entry = self.subscription.get(partition)
                if entry is not None and entry.position is not None:
                    epoch = entry.position.offset_epoch
                    found[partition] = PositionFound(
                        stamp=entry.stamp,
                        offset=entry.position.offset,
                        leader_epoch=epoch,
                        topic_id=self.metadata.cluster.incarnations.last(partition.topic),
                    )
                elif entry is not None and entry.state is not FetchState.HALTED:
                    break
            else:
                call.resolve(found)
                continue
            still.append((call, partitions))
        self._waiting = still

    def _halt(self, entry: PartitionState, error: KafkaError) -> None:
        if entry.state is not FetchState.HALTED:
            self.subscription.halt(entry)
        topic_id = self.metadata.cluster.incarnations.last(entry.partition.topic)
        self.buffer.put(PartitionFailed(partition=entry.partition, stamp=entry.stamp, error=error, topic_id=topic_id))

    # --- resets ----------------------------------------------------------------------------------------------------------------

    def _start_reset(self, entry: PartitionState, now: float) -> None:
        strategy = self.newcomers.strategy(entry.partition, entry.strategy)
        if strategy == "none":
            text = f"no offset is stored for {entry.partition} and auto_offset_reset is 'none'"
            self._halt(entry, NoOffsetForPartitionError(text, partitions=(entry.partition,)))
            return
        self._busy[entry.partition] = (entry, entry.state, None)
        topic_id = self.metadata.cluster.incarnations.last(entry.partition.topic)
        if strategy in _ENDS:
            answered = partial(self._reset_answered, entry, strategy, topic_id)
            self._look_up(entry, _ENDS[strategy], answered)
        else:  # the end first: what is written between the two answers is young enough, and must not lie before that end
            self._look_up(entry, LATEST, partial(self._end_answered, entry, strategy, topic_id))

    def _look_up(self, entry: PartitionState, timestamp: int, answered: Callable[[Found | KafkaError, float], None]) -> None:
        self.list_offsets.look_up(entry.partition, timestamp, answered, lambda: self._still(entry, FetchState.AWAIT_RESET))

    def _end_answered(
        self, entry: PartitionState, strategy: str, topic_id: UUID | None, outcome: Found | KafkaError, now: float
    ) -> None:
        if isinstance(outcome, KafkaError):
            self._reset_answered(entry, strategy, topic_id, outcome, now)
        elif self._still(entry, FetchState.AWAIT_RESET):
            answered = partial(self._reset_answered, entry, strategy, topic_id, end=outcome)
            self._look_up(entry, self._timestamp(strategy, now), answered)

    def _timestamp(self, strategy: str, now: float) -> int:
        duration = parse_duration(strategy.removeprefix("by_duration:"))
        back = int(duration.total_seconds() * 1000 if duration is not None else 0)
        return max(0, self.wall_ms(now) - back)  # numbers below 0 have meanings of their own

    def _still(self, entry: PartitionState, state: FetchState) -> bool:
        """Whether the partition is still the same assignment in the same state; else an answer comes too late."""
        still = self.subscription.get(entry.partition) is entry and entry.state is state
        if not still and self._busy.get(entry.partition, ())[:2] == (entry, state):
            del self._busy[entry.partition]
            self._todo.add(entry.partition)
        return still

    def _reset_answered(
        self,
        entry: PartitionState,
        strategy: str,
        topic_id: UUID | None,
        outcome: Found | KafkaError,
        now: float,
        end: Found | None = None,
    ) -> None:
        """``end``: where the log ended before the look-up by time, for a partition without a record that is as young."""
        if not self._still(entry, FetchState.AWAIT_RESET):
            return
        self._busy.pop(entry.partition, None)
        if self.metadata.cluster.incarnations.is_former(entry.partition.topic, topic_id):
            self._todo.add(entry.partition)  # the answer is about the topic that had the name before
        elif self.newcomers.strategy(entry.partition, entry.strategy) != strategy:
            self._todo.add(entry.partition)  # the reset was changed from the beginning to the end before the first answer came
        elif isinstance(outcome, KafkaError):
            self.handler.publish_error(_of_topic(outcome, entry))
            self.subscription.delay(entry, now + self.config.retry_backoff_max)
            self._todo.add(entry.partition)
        else:
            offset = end.offset if outcome.offset < 0 and end is not None else outcome.offset
            is_first = entry.strategy in (FIRST, FIRST_OF_NEW)
            self.subscription.seek(entry, FetchPosition(offset))
            self._moved(entry, offset, None, is_first=is_first)

    # --- validation (KIP-320) --------------------------------------------------------------------------------------------------

    def _check(self, node_id: int, entries: list[tuple[PartitionState, Leader]], now: float) -> UnsentRequest:
        topics: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
        positions: dict[TopicPartition, FetchPosition | None] = {}
        for entry, leader in entries:
            positions[entry.partition] = entry.position
            topics[entry.partition.topic].append(
                OffsetForLeaderPartition(
                    partition=entry.partition.partition,
                    current_leader_epoch=-1 if leader.epoch is None else leader.epoch,
                    leader_epoch=entry.position.offset_epoch or 0 if entry.position is not None else 0,
                )
            )
        request = OffsetForLeaderEpochRequest(
            topics=tuple(OffsetForLeaderTopic(topic=name, partitions=tuple(parts)) for name, parts in topics.items()),
        )
        return UnsentRequest(
            message=request,
            node_id=node_id,
            on_done=self._late.watch(lambda outcome, at: self._checked(entries, positions, outcome, at), now),
            expires_at=now + self.config.request_timeout_ms / 1000,
        )

    def _checked(
        self,
        entries: list[tuple[PartitionState, Leader]],
        positions: Mapping[TopicPartition, FetchPosition | None],
        outcome: object,
        now: float,
    ) -> None:
        answers: dict[TopicPartition, EpochEndOffset] = {}
        if isinstance(outcome, OffsetForLeaderEpochResponse):
            answers = {TopicPartition(topic.topic, part.partition): part for topic in outcome.topics for part in topic.partitions}
        failed: dict[type | None, tuple[KafkaError | None, set[TopicPartition]]] = {}
        well: set[TopicPartition] = set()
        for entry, leader in entries:
            if self._busy.get(entry.partition) == (entry, FetchState.AWAIT_VALIDATION, leader):
                del self._busy[entry.partition]
            self._todo.add(entry.partition)
            if not self._still(entry, FetchState.AWAIT_VALIDATION) or entry.position is not positions[entry.partition]:
                continue
            if self.metadata.cluster.leader(entry.partition) != leader:
                continue  # the log of a former leader says nothing about that of the present one, which is asked now
            answer = answers.get(entry.partition)
            if isinstance(outcome, UnsupportedVersionError):
                self.subscription.validated(entry, leader.epoch)  # a broker older than 2.1 does not know
            elif answer is None or answer.error_code:
                error = for_code(answer.error_code) if answer is not None else outcome
                cause = error if isinstance(error, KafkaError) else None
                if self._is_checked_again(entry, cause, now):
                    failed.setdefault(type(cause), (cause, set()))[1].add(entry.partition)
            else:
                well.add(entry.partition)
                self._judge(entry, leader, answer, now)
        self._outage.report(failed.values(), well, now)

    def _is_checked_again(self, entry: PartitionState, error: KafkaError | None, now: float) -> bool:
        """Return whether a check is simply repeated; if not, the application gets the error, and it is repeated more slowly."""
        delay = self.config.retry_backoff if error is None or error.retriable else self.config.retry_backoff_max
        self.subscription.delay(entry, now + delay)
        if error is None or error.retriable:
            self.metadata.request_update(now)
            return True
        self.handler.publish_error(_of_topic(error, entry))
        return False

    def _judge(self, entry: PartitionState, leader: Leader, answer: EpochEndOffset, now: float) -> None:
        """Compare the position with the end offset of the epoch it was read in."""
        offset = entry.position.offset if entry.position is not None else 0
        if answer.end_offset < 0 or answer.leader_epoch < 0:
            self._read_on_without_epoch(entry, leader, now)
            return
        if answer.end_offset >= offset:
            self.subscription.validated(entry, leader.epoch)
            return
        if not self._is_proven(entry, now):
            return
        text = f"the log of {entry.partition} was truncated below offset {offset}"
        divergent = OffsetAndMetadata(answer.end_offset, "", answer.leader_epoch)
        if self._keeps(entry):
            self._halt(entry, LogTruncationError(text, {entry.partition: offset}, {entry.partition: divergent}))
        else:
            self.trace(Fault(now=now, text=f"{text}; going on from offset {divergent.offset}, where it diverged", subject="fetch"))
            self.subscription.seek(entry, FetchPosition(divergent.offset, divergent.leader_epoch))
            self._moved(entry, divergent.offset, divergent.leader_epoch)

    def _moved(self, entry: PartitionState, offset: int, epoch: int | None, *, is_first: bool = False) -> None:
        self.buffer.put(
            Repositioned(
                partition=entry.partition,
                stamp=entry.stamp,
                offset=offset,
                leader_epoch=epoch,
                is_first=is_first,
                topic_id=self.metadata.cluster.incarnations.last(entry.partition.topic),
            )
        )

    def _read_on_without_epoch(self, entry: PartitionState, leader: Leader, now: float) -> None:
        """The leader knows no epoch as high as the position's, which says nothing about the position.

        The offset was committed in another cluster, or the records were copied with their epochs. If the log does not hold the
        position, fetching shows it. (Java resets here.)
        """
        if entry.position is None:
            return
        offset, epoch = entry.position
        text = f"broker {leader.node_id} knows no leader epoch {epoch} of {entry.partition}; reading on from offset {offset}"
        self.trace(Notice(now=now, text=text, subject="fetch"))
        self.subscription.seek(entry, FetchPosition(offset))


def _of_topic(error: KafkaError, entry: PartitionState) -> KafkaError:
    """Return an authorization error with the same text for every partition of the topic; other errors as they are."""
    return for_code(error.errno, topic=entry.partition.topic) if isinstance(error, TopicAuthorizationFailedError) else error
