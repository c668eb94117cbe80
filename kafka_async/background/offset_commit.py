"""Storing the group's offsets: the OffsetCommit request manager.

Decides: when offsets are stored, in which order, what is tried again and what is refused for good. Owns: the commits that are not
answered yet. Must never store an offset for a caller who has given up (promise 7), or one of a partition that this member has
lost in between (promise 6).

Order: commits of one partition are stored in the order in which they were asked for. A commit waits for an earlier one only where
both name the same partition, so one bad topic does not hold up the others.

What belongs to a member is sent under the identity of the moment of sending. A partition counts as lost from the first turn in
which it is not owned, even if it comes back: somebody else may have moved its offset meanwhile.

Sources: KIP-320 (leader epochs), KIP-345, KIP-516 (topic ids), KIP-848 (STALE_MEMBER_EPOCH), Java's ``CommitRequestManager`` and
``ConsumerCoordinator.OffsetCommitResponseHandler``.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final
from uuid import UUID

from attrs import define, field

from ..config import ConsumerConfig
from ..errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidCommitOffsetSizeError,
    KafkaError,
    MalformedResponseError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    for_code,
)
from ..events import Call
from ..model import OffsetAndMetadata, TopicPartition
from ..network import UnsentRequest
from ..trace import Fault, Listener
from ..wire.messages import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse
from .group_access import MEMBER_EPOCH, REFUSED, GroupAccess, named
from .membership import Identity
from .request_manager import NEVER, Poll, RequestState, backoff_of

_DENIED: Final = TopicAuthorizationFailedError.errno


class _Verdict(Enum):
    """What the error of a partition means for its commit, the gravest first."""

    REFUSED = "we are not the member whose offsets these are"
    FATAL = "no attempt will do better"
    STALE = "a new epoch of ours is on its way"
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
class OffsetCommitManager:
    """Stores offsets in the group. Poll it after the membership and before ``FindCoordinatorManager``."""

    config: ConsumerConfig
    group: GroupAccess = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    _commits: list[_Commit] = field(factory=list, init=False)

    def commit(self, call: Call[None], offsets: Mapping[TopicPartition, OffsetAndMetadata], now: float) -> None:
        """Store ``offsets`` and resolve ``call``; tried again until the call is done, which its deadline sees to.

        Fails with ``CommitFailedError`` whose ``lost`` names the partitions that are not ours (any more), the others being stored;
        with ``TopicAuthorizationFailedError`` likewise; with the coordinator's or the broker's error where no attempt does better.
        """
        if not offsets:
            call.resolve(None)
            return
        made_as = self.group.identity if self.group.membership is not None else None
        self._commits.append(_Commit(call, dict(offsets), made_as, RequestState(backoff_of(self.config, self.random))))

    def last_error(self, call: Call[Any]) -> KafkaError | None:
        """Return why ``call`` is not answered yet."""
        mine = next((commit.error for commit in self._commits if commit.call is call), None)
        return mine or self.group.coordinator.failure

    # --- the conversation ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the commits that may go out."""
        self._sift()
        if not self._commits:
            return Poll()
        node = self.group.coordinator.coordinator
        if node is not None:
            return self._due(node.id, now)
        self.group.coordinator.request(now)
        if self.group.coordinator.fatal is not None:
            for commit in self._commits:
                commit.call.fail(self.group.coordinator.fatal)
        return Poll()

    def poll_on_close(self, now: float) -> Poll:
        """Send every commit that somebody still waits for, in order and whatever the backoff; fail it where nobody can be asked."""
        self._sift()
        waiting = [commit for commit in self._commits if not commit.request.in_flight]
        node = self.group.coordinator.coordinator or self.group.coordinator.latest
        if node is not None:
            return Poll(tuple(self._request(commit, node.id, now, last_word=True) for commit in waiting))
        for commit in waiting:
            error = CommitFailedError(
                "the consumer stops and the coordinator of its group is not known", tuple(sorted(commit.lost))
            )
            error.__cause__ = self.group.coordinator.failure
            commit.call.fail(error)
        return Poll()

    def _sift(self) -> None:
        """Drop what nobody waits for any more, and give up what was lost."""
        commits = [commit for commit in self._commits if not commit.call.done]
        members = [commit for commit in commits if commit.made_as is not None]
        if members:
            identity = self.group.identity
            owned = self.group.owned() if identity.generation > 0 else frozenset()
            for commit in members:
                same = commit.made_as is not None and identity.member_id == commit.made_as.member_id
                commit.lost.update(partition for partition in commit.pending if not same or partition not in owned)
                if commit.lost and not commit.request.in_flight:
                    self._finish_if_done(commit)
        self._commits = [commit for commit in commits if not commit.call.done]

    def _due(self, node_id: int, now: float) -> Poll:
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
                requests.append(self._request(commit, node_id, now))
            else:
                wake_at = min(wake_at, due_at)
        return Poll(tuple(requests), wake_at)

    def _due_at(self, commit: _Commit, now: float) -> float:
        if commit.request.in_flight or self.group.awaits_epoch(commit.stale):
            return NEVER
        return now if self.group.has_moved_on(commit.stale) else commit.request.wake_at()

    def _request(self, commit: _Commit, node_id: int, now: float, *, last_word: bool = False) -> UnsentRequest:
        identity = self.group.identity if commit.made_as is not None else Identity()
        topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for partition, offset in commit.pending.items():
            topics[partition.topic].append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        message = OffsetCommitRequest(
            group_id=self.config.group_id or "",
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=tuple(
                OffsetCommitRequestTopic(name=name, topic_id=self.group.metadata.topic_id(name), partitions=tuple(parts))
                for name, parts in topics.items()
            ),
        )
        commit.request.sent()
        commit.stale = None
        return UnsentRequest(
            message=message,
            node_id=node_id,
            lane=self.group.lane,
            on_done=partial(self._answered, commit, identity, self.group.topics_by_id(topics), node_id),
            expires_at=now + self.config.request_timeout_ms / 1000,
            withdrawn=lambda: commit.call.done,
            lowest_version=MEMBER_EPOCH if identity.consumer_protocol and identity.generation >= 0 else 0,
            last_word=last_word,
        )

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def _answered(
        self,
        commit: _Commit,
        made_as: Identity,
        names: Mapping[UUID, str],
        node_id: int,
        outcome: OffsetCommitResponse | KafkaError,
        now: float,
    ) -> None:
        if isinstance(outcome, KafkaError):
            errors: dict[TopicPartition, KafkaError] = dict.fromkeys(commit.pending, outcome)
        else:
            errors = self._take_stored(commit, _codes(outcome, names))
        if errors:
            commit.request.failed(now)
            self._carry_out(commit, made_as, node_id, errors, now)
        else:
            commit.request.succeeded()
            self._finish_if_done(commit)

    def _take_stored(self, commit: _Commit, codes: Mapping[TopicPartition, int]) -> dict[TopicPartition, KafkaError]:
        """Book what was stored and what we may not store; return the errors of the rest."""
        errors: dict[TopicPartition, KafkaError] = {}
        for partition in tuple(commit.pending):
            code = codes.get(partition)
            if code is None:
                errors[partition] = MalformedResponseError(f"an OffsetCommit response leaves {named([partition])} out")
            elif code in (0, _DENIED):
                del commit.pending[partition]
                commit.lost.discard(partition)
                commit.stored += code == 0
                commit.denied |= {partition.topic} if code == _DENIED else set()
            else:
                errors[partition] = for_code(code, group=self.config.group_id)
        return errors

    def _carry_out(
        self, commit: _Commit, made_as: Identity, node_id: int, errors: Mapping[TopicPartition, KafkaError], now: float
    ) -> None:
        """Do what the gravest of the partitions' errors demands, for the whole commit."""
        verdicts = {partition: self._judge(error, made_as) for partition, error in errors.items()}
        gravest = next(verdict for verdict in _Verdict if verdict in verdicts.values())
        partition = next(partition for partition, verdict in verdicts.items() if verdict is gravest)
        commit.error = error = errors[partition]
        if gravest is _Verdict.REFUSED:
            commit.lost.update(commit.pending)
            commit.call.fail(self._refusal(commit, error))
        elif gravest is _Verdict.FATAL:
            commit.call.fail(_naming(error, partition))
        else:
            commit.stale = made_as if gravest is _Verdict.STALE else None
            if not commit.call.done:
                text = f"offsets of group {self.config.group_id!r} could not be committed yet; trying again"
                self.trace(Fault(now=now, text=text, error=error))
        for different in {type(error): error for error in errors.values()}.values():
            self.group.heard(different, made_as, node_id, now)

    def _judge(self, error: KafkaError, made_as: Identity) -> _Verdict:
        identity = self.group.identity
        if isinstance(error, IllegalGenerationError) and identity != made_as and identity.member_id == made_as.member_id:
            return _Verdict.AGAIN  # a rebalance ended while the commit was out: what we still own is stored in the new generation
        if isinstance(error, IllegalGenerationError) and not made_as.consumer_protocol and self.group.awaits_epoch(made_as):
            return _Verdict.STALE  # it has ended, and the answer to our JoinGroup is still on its way, on another connection
        if type(error) in REFUSED:
            return _Verdict.REFUSED
        if isinstance(error, (StaleMemberEpochError, RebalanceInProgressError)):
            again = _Verdict.STALE if isinstance(error, StaleMemberEpochError) else _Verdict.AGAIN
            return again if made_as.generation > 0 else _Verdict.REFUSED
        return _Verdict.AGAIN if error.retriable else _Verdict.FATAL

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
            text = f"{named(commit.lost)}: not assigned to this member (any more), so the offsets were not committed{rest}"
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
            why = (
                f"group {self.config.group_id!r} has members, so a consumer that assigns its partitions itself cannot commit to it"
            )
        else:
            why = (
                f"this consumer is not a member of group {self.config.group_id!r} any more and its partitions may be others': "
                "its heartbeats stopped for longer than the session timeout, or reads were further apart than max_poll_interval_ms "
                f"({self.config.max_poll_interval_ms}); handle records faster, lower max_poll_records "
                f"({self.config.max_poll_records}) or raise max_poll_interval_ms"
            )
        failed = CommitFailedError(f"the commit was refused: {why}", tuple(sorted(commit.lost)))
        failed.__cause__ = error
        return failed


def _codes(response: OffsetCommitResponse, names: Mapping[UUID, str]) -> dict[TopicPartition, int]:
    """Return the error code of each partition. A response goes by topic name or by topic id, as its request did."""
    return {
        TopicPartition(
            names.get(topic.topic_id, "") if topic.topic_id is not None else topic.name, part.partition_index
        ): part.error_code
        for topic in response.topics
        for part in topic.partitions
    }


def _naming(error: KafkaError, partition: TopicPartition) -> KafkaError:
    """Return an error about one offset with the partition in its text; other errors are about the whole commit."""
    if isinstance(error, (OffsetMetadataTooLargeError, InvalidCommitOffsetSizeError)):
        return for_code(error.errno, f"{named([partition])}: {error.description}")
    return error
