"""The group's stored offsets: the OffsetCommit and OffsetFetch request manager.

Decides: when offsets are stored or read, in which order, what is tried again and what is refused for good. Owns: the commits and
questions that are not answered yet, and the partitions that wait for their first position. Must never take an error for "there is no
offset" (promise 6), store an offset for a caller who has given up (promise 7), or store one of a partition that this member has lost in
between.

Order: commits of one partition are stored in the order in which they were asked for; a commit waits for an earlier one only where both
name the same partition, so one bad topic does not hold up the others. Offset fetches are one at a time: what is asked while one is in
flight shares the next one, so identical questions are not repeated, and an answer is never older than its question.

What belongs to a member is sent under the identity of the moment of sending. A partition counts as lost from the first turn in which it
is not owned, even if it comes back: somebody else may have moved its offset meanwhile.

Sources: KIP-320 (leader epochs), 345, 447 (stable offsets), 516 (topic ids), 848 (STALE_MEMBER_EPOCH), Java's ``CommitRequestManager``
and ``ConsumerCoordinator.OffsetCommitResponseHandler``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final
from uuid import UUID

from attrs import define, field, frozen

from ..config import ConsumerConfig
from ..errors import (
    CommitFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFound,
    IllegalGenerationError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    MalformedResponseError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    for_code,
)
from ..events import Call
from ..model import OffsetAndMetadata, TopicPartition
from ..network import Lane, UnsentRequest
from ..trace import Fault, Listener
from ..wire.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
)
from .fetch_buffer import Parcel, Repositioned
from .find_coordinator import FindCoordinatorManager, backoff_of
from .membership import CommitFailure, Identity, Membership
from .metadata import MetadataManager
from .request_manager import NEVER, Backoff, Poll, RequestState
from .subscription import FetchPosition, FetchState, PartitionState, SubscriptionState

Committed = Mapping[TopicPartition, OffsetAndMetadata | None]

MEMBER_EPOCH: Final = 9
"""Lowest version of OffsetCommit that carries a member epoch (KIP-848); below it the number would be taken for a generation."""

_COORDINATOR_LOST: Final = (
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    RequestTimedOutError,
    KafkaConnectionError,
    KafkaTimeoutError,
    KafkaProtocolError,
)
_REFUSED: Final[Mapping[type[KafkaError], CommitFailure]] = {
    UnknownMemberIdError: CommitFailure.UNKNOWN_MEMBER,
    GroupIdNotFound: CommitFailure.UNKNOWN_MEMBER,
    FencedMemberEpochError: CommitFailure.ILLEGAL_GENERATION,
    IllegalGenerationError: CommitFailure.ILLEGAL_GENERATION,
    FencedInstanceIdError: CommitFailure.FENCED_INSTANCE,
}


class _Verdict(Enum):
    """What the error of a commit means for it, the gravest first."""

    REFUSED = "we are not the member whose offsets these are"
    FATAL = "no attempt will do better"
    STALE = "the group has a newer epoch of ours on its way"
    AGAIN = "another attempt may do better"


@define(eq=False)
class _Commit:
    """One caller's commit."""

    call: Call[None]
    pending: dict[TopicPartition, OffsetAndMetadata]
    """What is not stored yet."""
    made_as: Identity | None
    """The member whose offsets these are; ``None`` for a consumer that assigns its partitions itself."""
    request: RequestState
    stored: int = 0
    lost: set[TopicPartition] = field(factory=set)
    denied: set[str] = field(factory=set)
    """Topics that we may not read, and whose offsets we therefore may not store."""
    stale: Identity | None = None
    """The identity that was refused as stale; the commit waits for another one."""
    error: KafkaError | None = None


@define(eq=False)
class _Question:
    """One caller's question for stored offsets."""

    call: Call[Committed]
    partitions: frozenset[TopicPartition]
    found: dict[TopicPartition, OffsetAndMetadata | None] = field(factory=dict)


@frozen
class _Start:
    """A partition that waits for its first position. It counts only while the partition's stamp is still this one."""

    entry: PartitionState
    stamp: int


@frozen
class _Asked:
    """What one OffsetFetch request will answer."""

    partitions: frozenset[TopicPartition]
    questions: tuple[_Question, ...]
    starts: tuple[_Start, ...]
    identity: Identity
    node_id: int
    names: Mapping[UUID, str]


@define(eq=False)
class OffsetCommitManager:
    """Stores and reads the group's offsets.

    Poll it after the managers that call ``commit``, ``fetch`` and ``initialize``, and before ``FindCoordinatorManager``.
    """

    config: ConsumerConfig
    coordinator: FindCoordinatorManager = field(repr=False)
    metadata: MetadataManager = field(repr=False)
    subscription: SubscriptionState = field(repr=False)
    deliver: Callable[[Parcel], None] = field(repr=False)
    """Puts a new position into the buffer, in order with the data before it."""
    identity: Callable[[], Identity] = field(repr=False)
    """Who commits at this moment."""
    owned: Callable[[], frozenset[TopicPartition]] = field(repr=False)
    """The partitions that the application has taken over from the group; asked only while there is a ``membership``."""
    on_error: Callable[[KafkaError], None] = field(repr=False)
    """Told why partitions get no first position until somebody gives us access."""
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    membership: Membership | None = None
    """Our place in the group; ``None`` while the application assigns partitions itself. Set by whoever puts the managers together, and
    changed when the kind of subscription changes."""

    _commits: list[_Commit] = field(factory=list, init=False)
    _questions: list[_Question] = field(factory=list, init=False)
    _starts: dict[TopicPartition, _Start] = field(factory=dict, init=False)
    _fetching: RequestState = field(init=False)
    _fetch_stale: Identity | None = field(default=None, init=False)
    _retries: dict[TopicPartition, Backoff] = field(factory=dict, init=False)
    _fetch_error: KafkaError | None = field(default=None, init=False)
    _reported: KafkaError | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._fetching = RequestState(backoff_of(self.config, self.random))

    # --- what is asked of it ---------------------------------------------------------------------------------------------------

    def commit(self, call: Call[None], offsets: Mapping[TopicPartition, OffsetAndMetadata], now: float) -> None:
        """Store ``offsets`` and resolve ``call``; tried again until the call is done, which its deadline sees to.

        Fails with ``CommitFailedError`` whose ``lost`` names the partitions that are not ours (any more), the others being stored; with
        ``TopicAuthorizationFailedError`` likewise; with the coordinator's or the broker's error where no attempt would do better.
        """
        if not offsets:
            call.resolve(None)
            return
        made_as = self.identity() if self.membership is not None else None
        request = RequestState(backoff_of(self.config, self.random))
        self._commits.append(_Commit(call, dict(offsets), made_as, request))

    def fetch(self, call: Call[Committed], partitions: frozenset[TopicPartition], now: float) -> None:
        """Resolve ``call`` with the stored offset of each of ``partitions``, ``None`` where there is none."""
        if partitions:
            self._questions.append(_Question(call, partitions))
        else:
            call.resolve({})

    def initialize(self, entry: PartitionState) -> bool:
        """Give a newly assigned partition its stored position, or have it reset where none is stored."""
        known = self._starts.get(entry.partition)
        if known is None or known.entry is not entry or known.stamp != entry.stamp:
            self._starts[entry.partition] = _Start(entry, entry.stamp)
        return True

    def last_error(self, call: Call[Any]) -> KafkaError | None:
        """Return why ``call`` is not answered yet."""
        mine = next((commit.error for commit in self._commits if commit.call is call), None)
        asked = self._fetch_error if any(question.call is call for question in self._questions) else None
        return mine or asked or self.coordinator.failure

    # --- the conversation ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the commits that may go out, and an offset fetch if one is due."""
        self._sift()
        if not (self._commits or self._questions or self._starts):
            return Poll()
        node = self.coordinator.coordinator
        if node is None:
            self._wait_for_coordinator(now)
            return Poll()
        commits, commit_at = self._due_commits(node.id, now)
        fetches, fetch_at = self._due_fetch(node.id, now)
        return Poll((*commits, *fetches), min(commit_at, fetch_at))

    def poll_on_close(self, now: float) -> Poll:
        """Send every commit that somebody still waits for, in order, without regard to backoff; fail it where nobody can be asked."""
        self._sift()
        waiting = [commit for commit in self._commits if not commit.request.in_flight]
        node = self.coordinator.coordinator or self.coordinator.latest
        if node is not None:
            return Poll(tuple(self._commit_request(commit, node.id, now, last_word=True) for commit in waiting))
        for commit in waiting:
            error = CommitFailedError("the consumer stops and the coordinator of its group is not known", tuple(sorted(commit.lost)))
            error.__cause__ = self.coordinator.failure
            commit.call.fail(error)
        return Poll()

    def _sift(self) -> None:
        """Drop what nobody waits for any more, and give up what was lost."""
        self._questions = [question for question in self._questions if not question.call.done]
        self._starts = {partition: start for partition, start in self._starts.items() if self._still(start)}
        commits = [commit for commit in self._commits if not commit.call.done]
        if any(commit.made_as is not None for commit in commits):
            identity, owned = self.identity(), self.owned()
            for commit in commits:
                self._note_losses(commit, identity, owned)
        self._commits = [commit for commit in commits if not commit.call.done]

    def _wait_for_coordinator(self, now: float) -> None:
        self.coordinator.request(now)
        fatal = self.coordinator.fatal
        if fatal is None:
            return
        for call in [commit.call for commit in self._commits] + [question.call for question in self._questions]:
            call.fail(fatal)
        if self._starts and self.membership is None and fatal is not self._reported:  # a membership reports it itself
            self._reported = fatal
            self.on_error(fatal)

    def _awaits_epoch(self, stale: Identity | None) -> bool:
        """Whether we were refused as ``stale`` and the heartbeat that may bring the new epoch is still out."""
        return stale is not None and self.identity() == stale and self.membership is not None and self.membership.awaits_epoch

    def _names(self, topics: Iterable[str]) -> dict[UUID, str]:
        """Return the topics by id. A request goes by id (version 10) only where every topic has one; the wire package sees to it."""
        ids = ((self.metadata.topic_id(topic), topic) for topic in topics)
        return {topic_id: topic for topic_id, topic in ids if topic_id is not None}

    # --- commits ---------------------------------------------------------------------------------------------------------------

    def _note_losses(self, commit: _Commit, identity: Identity, owned: frozenset[TopicPartition]) -> None:
        if commit.made_as is None:
            return
        same = self.membership is not None and identity.generation > 0 and identity.member_id == commit.made_as.member_id
        commit.lost.update(partition for partition in commit.pending if not same or partition not in owned)
        if commit.lost and not commit.request.in_flight:
            self._finish_if_done(commit)

    def _due_commits(self, node_id: int, now: float) -> tuple[list[UnsentRequest], float]:
        requests: list[UnsentRequest] = []
        wake_at = NEVER
        ahead: set[TopicPartition] = set()
        for commit in self._commits:
            blocked = not ahead.isdisjoint(commit.pending)
            ahead.update(commit.pending)
            if blocked:
                continue
            due_at = self._due_at(commit, now)
            if due_at <= now:
                requests.append(self._commit_request(commit, node_id, now))
            else:
                wake_at = min(wake_at, due_at)
        return requests, wake_at

    def _due_at(self, commit: _Commit, now: float) -> float:
        if commit.request.in_flight or self._awaits_epoch(commit.stale):
            return NEVER
        if commit.stale is not None and self.identity() != commit.stale:
            return now  # the new epoch is here
        return commit.request.wake_at()

    def _commit_request(self, commit: _Commit, node_id: int, now: float, *, last_word: bool = False) -> UnsentRequest:
        identity = self.identity()
        offsets = dict(commit.pending)
        topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for partition, offset in offsets.items():
            topics[partition.topic].append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        names = self._names(topics)
        commit.request.sent()
        commit.stale = None
        return UnsentRequest(
            message=OffsetCommitRequest(
                group_id=self.config.group_id or "",
                generation_id_or_member_epoch=identity.generation,
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                topics=tuple(
                    OffsetCommitRequestTopic(name=name, topic_id=self.metadata.topic_id(name), partitions=tuple(parts))
                    for name, parts in topics.items()
                ),
            ),
            node_id=node_id,
            lane=Lane.GROUP,
            on_done=partial(self._commit_answered, commit, identity, names, node_id),
            expires_at=now + self.config.request_timeout_ms / 1000,
            withdrawn=lambda: commit.call.done,
            lowest_version=MEMBER_EPOCH if identity.consumer_protocol and identity.generation >= 0 else 0,
            last_word=last_word,
        )

    def _commit_answered(
        self, commit: _Commit, identity: Identity, names: Mapping[UUID, str], node_id: int, outcome: object, now: float
    ) -> None:
        errors: dict[TopicPartition, KafkaError] = {}
        if isinstance(outcome, OffsetCommitResponse):
            codes = {
                TopicPartition(names.get(topic.topic_id, "") if topic.topic_id else topic.name, part.partition_index): part.error_code
                for topic in outcome.topics
                for part in topic.partitions
            }
            self._take_stored(commit, codes)
            for partition in commit.pending:
                text = f"an OffsetCommit response leaves {_named([partition])} out"
                errors[partition] = _error_of(codes[partition]) if partition in codes else MalformedResponseError(text)
        elif isinstance(outcome, KafkaError):
            errors = dict.fromkeys(commit.pending, outcome)
        self._settle(commit, identity, node_id, errors, now)

    def _take_stored(self, commit: _Commit, codes: Mapping[TopicPartition, int]) -> None:
        for partition in tuple(commit.pending):
            code = codes.get(partition)
            if code == 0:
                commit.stored += 1
                commit.lost.discard(partition)
            elif code == TopicAuthorizationFailedError.errno:
                commit.denied.add(partition.topic)
            if code in (0, TopicAuthorizationFailedError.errno):
                del commit.pending[partition]

    def _settle(
        self, commit: _Commit, identity: Identity, node_id: int, errors: Mapping[TopicPartition, KafkaError], now: float
    ) -> None:
        """Carry the gravest of the partitions' errors out for the whole commit."""
        commit.request.succeeded() if not errors else commit.request.failed(now)
        if not errors:
            self._finish_if_done(commit)
            return
        verdicts = {partition: self._judge(error, identity) for partition, error in errors.items()}
        verdict = next(verdict for verdict in _Verdict if verdict in verdicts.values())
        partition = next(partition for partition, mine in verdicts.items() if mine is verdict)
        commit.error = errors[partition]
        self._tell(commit.error, identity, node_id, now)
        if verdict is _Verdict.REFUSED:
            commit.lost.update(commit.pending)
            commit.call.fail(self._refusal(commit, commit.error))
        elif verdict is _Verdict.FATAL:
            commit.call.fail(_naming(commit.error, partition))
        else:
            commit.stale = identity if verdict is _Verdict.STALE else None
            text = f"offsets of group {self.config.group_id!r} could not be committed yet; trying again"
            if not commit.call.done:
                self.trace(Fault(now=now, text=text, error=commit.error))

    def _judge(self, error: KafkaError, sent_as: Identity) -> _Verdict:
        identity = self.identity()
        if isinstance(error, IllegalGenerationError) and identity != sent_as and identity.member_id == sent_as.member_id:
            return _Verdict.AGAIN  # a rebalance ended while the commit was out; what we still own is stored under the new generation
        if type(error) in _REFUSED:
            return _Verdict.REFUSED
        if isinstance(error, StaleMemberEpochError):
            return _Verdict.STALE if self.membership is not None else _Verdict.REFUSED
        if isinstance(error, RebalanceInProgressError):
            return _Verdict.AGAIN if self.membership is not None else _Verdict.REFUSED
        return _Verdict.AGAIN if error.retriable else _Verdict.FATAL

    def _tell(self, error: KafkaError, identity: Identity, node_id: int, now: float) -> None:
        """Let the coordinator's manager and the membership know what an answer shows about them."""
        if isinstance(error, _COORDINATOR_LOST):
            self.coordinator.lost(node_id, error, now)
        if error.invalid_metadata and not isinstance(error, (KafkaConnectionError, KafkaProtocolError)):
            self.metadata.request_update(now)
        failure = CommitFailure.REBALANCING if isinstance(error, RebalanceInProgressError) else _REFUSED.get(type(error))
        if failure is not None and self.membership is not None and identity.generation > 0:
            self.membership.refused(failure, identity, now)

    def _finish_if_done(self, commit: _Commit) -> None:
        """Answer the caller when nothing is left to be stored."""
        for partition in commit.lost:
            commit.pending.pop(partition, None)
        if commit.pending:
            return
        denied = None
        if commit.denied:
            topics = ", ".join(map(repr, sorted(commit.denied)))
            denied = TopicAuthorizationFailedError(f"topics {topics}: {TopicAuthorizationFailedError.description}")
        if commit.lost:
            rest = "; the others were committed" if commit.stored else ""
            text = f"{_named(commit.lost)}: not assigned to this member (any more), so the offsets were not committed{rest}"
            lost = CommitFailedError(text, tuple(sorted(commit.lost)))
            lost.__cause__ = denied or commit.error
            commit.call.fail(lost)
        elif denied is not None:
            commit.call.fail(denied)
        else:
            commit.call.resolve(None)

    def _refusal(self, commit: _Commit, error: KafkaError) -> CommitFailedError:
        """Return the error of a commit by somebody who is not a member (any more), with what to do about it."""
        if isinstance(error, FencedInstanceIdError):
            why = f"another consumer has taken over group_instance_id {self.config.group_instance_id!r}"
        elif commit.made_as is None:
            why = f"group {self.config.group_id!r} has members, so a consumer that assigns its partitions itself cannot commit to it"
        else:
            why = (
                f"this consumer is not a member of group {self.config.group_id!r} any more and its partitions may be others' already: "
                "its heartbeats stopped for longer than the session timeout, or reads were further apart than max_poll_interval_ms "
                f"({self.config.max_poll_interval_ms}); handle records faster, lower max_poll_records "
                f"({self.config.max_poll_records}) or raise max_poll_interval_ms"
            )
        failed = CommitFailedError(f"the commit was refused: {why}", tuple(sorted(commit.lost)))
        failed.__cause__ = error
        return failed
