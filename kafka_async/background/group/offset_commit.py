"""Storing the group's offsets: the OffsetCommit request manager.

No offset is stored for a caller who has given up (promise 7), nor one of a partition that this member has lost in between (promise
6).

Order: commits of one partition are stored in the order in which they were asked for; a commit waits only for partitions that both
name. One partition that cannot be stored holds up no other one: the rest is stored at the first attempt, and the caller learns
which ones were refused, and why. With ``once`` (auto-commit, the commits of a revocation or a stop) there is one attempt, and its
answer is the result; so it is for partitions that only go along, since the caller does not wait for them.

An offset goes out under the id of the topic that it belongs to, or by name to brokers that know no ids there. If another topic has
the name by now, it is dropped: it would skip records of that one.

What belongs to a member is sent under the identity of the moment of sending. A partition counts as lost from the first turn in
which it is not owned, even if it comes back: another member may have moved its offset meanwhile. A member that the application
ends stays in the group for its commits (``is_storing``); those of a lone consumer wait until it has left, and a new subscription
for them (``is_storing_alone``).

Sources: KIP-320 (leader epochs), KIP-345, KIP-516 (topic ids), KIP-848 (STALE_MEMBER_EPOCH), Java's ``CommitRequestManager`` and
``ConsumerCoordinator.OffsetCommitResponseHandler``.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import (
    BrokerResponseError,
    CommitFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaError,
    KafkaTimeoutError,
    MalformedResponseError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
    RequestWithdrawnError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from ...events import Call, Refusals
from ...model import OffsetAndMetadata, TopicPartition
from ...network import Channel, UnsentRequest
from ...trace import CommitFailed, Fault, Listener, Notice, Recovered
from ...values import define, field
from ...wire.messages import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse
from ..by_topic import named
from ..loop.request_manager import NEVER, Poll, RequestState, backoff_of
from .access import MEMBER_EPOCH, REFUSED, GroupAccess
from .membership import Identity

_OUTAGE: Final = "commits"
"""The outage from a commit that has to be tried again until one is stored, and no other waits for its next attempt."""
_OF_A_REBALANCE: Final = (IllegalGenerationError, RebalanceInProgressError, StaleMemberEpochError)
"""Errors of a member's commit if the group moves on while it is in flight: normal, and no fault."""
_COORDINATOR: Final = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    RequestTimedOutError,
)
"""Retriable codes that concern the coordinator, although they are given for a partition."""


class _Verdict(Enum):
    """What the error of a partition means for its commit, the gravest first."""

    REFUSED = "we are not the member whose offsets these are"
    FATAL = "no later attempt can succeed, for any partition"
    STALE = "a new epoch of ours is on its way"
    AGAIN = "another attempt may succeed"
    UNUSABLE = "no later attempt can succeed for this partition"
    MISSING = "another attempt may succeed for this partition, as far as the broker knows"


@define(eq=False)
class _Commit:
    """One caller's commit."""

    call: Call[Refusals]
    pending: dict[TopicPartition, OffsetAndMetadata]
    """What is neither stored nor refused yet."""
    made_as: Identity | None
    """The member whose offsets these are; ``None`` for a consumer that assigns its partitions itself."""
    once: frozenset[TopicPartition]
    """Partitions about which the first answer is final."""
    request: RequestState
    sent: frozenset[TopicPartition] = frozenset()
    """The partitions of the request in flight."""
    stored: int = 0
    refused: dict[TopicPartition, KafkaError] = field(factory=dict)
    held_back: dict[TopicPartition, KafkaError] = field(factory=dict)
    """Pending partitions with an error of their own."""
    lost: set[TopicPartition] = field(factory=set)
    """Pending partitions that are not ours any more; what is in flight may still be stored."""
    stale: Identity | None = None
    """The identity that was refused as stale; the commit waits for another one."""
    error: KafkaError | None = None

    @property
    def on_its_way(self) -> frozenset[TopicPartition]:
        return self.sent if self.request.in_flight else frozenset()

    @property
    def has_results(self) -> bool:
        """Something is known about a partition, so that the caller must learn it even if the rest fails."""
        return bool(self.stored or self.refused or self.held_back)

    def refuse(self, partition: TopicPartition, error: KafkaError) -> None:
        self.pending.pop(partition, None)
        self.held_back.pop(partition, None)
        self.refused[partition] = error

    def end(self, error: KafkaError) -> None:
        """Answer the caller: what is not stored yet is not going to be, because of ``error``."""
        if self.has_results:
            rest = {partition: self.held_back.get(partition, error) for partition in self.pending}
            self.call.resolve({**self.refused, **rest})
        else:
            self.call.fail(error)


@define(eq=False)
class _Flight:
    """A request that was made and not answered yet, whoever still waits for it."""

    channel: Channel
    partitions: frozenset[TopicPartition]


@define(eq=False)
class OffsetCommitManager:
    """Stores offsets in the group. Poll it after the membership and before ``FindCoordinatorManager``."""

    config: ConsumerConfig
    group: GroupAccess = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    by_id: Callable[[], bool] = field(default=lambda: True, repr=False)
    """Returns whether the brokers take offsets under the ids of topics."""
    _commits: list[_Commit] = field(factory=list, init=False)
    _flights: list[_Flight] = field(factory=list, init=False)
    _failing: bool = field(default=False, init=False)
    """The outage goes on. It may outlast the commits that began it: their callers give up, and another one is stored."""

    def commit(
        self,
        call: Call[Refusals],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now: float,
        *,
        once: bool = False,
        along: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """Store ``offsets`` and resolve ``call`` with the partitions that were refused, and why.

        A partition that is not ours (any more) is refused with ``CommitFailedError``, an offset of a topic that was deleted and
        created again with ``TopicRecreatedError``. The call fails as a whole if nothing is
        known about any partition: the group refuses us, or there is no response before the deadline. After errors of the
        coordinator, and of single partitions unless ``once`` is set or they only go ``along``, the commit is repeated until then.
        """
        if not offsets:
            call.resolve({})
            return
        made_as = self.group.identity if self.group.membership is not None else None
        state = RequestState(backoff_of(self.config, self.random))
        self._commits.append(_Commit(call, dict(offsets), made_as, frozenset(offsets) if once else along, state))

    def last_error(self, call: Call[Any]) -> KafkaError | None:
        """Return why ``call`` is not answered yet."""
        mine = next((commit.error for commit in self._commits if commit.call is call), None)
        return mine or self.group.coordinator.failure

    def expired(self, call: Call[Any]) -> KafkaError | None:
        """The deadline of ``call`` has passed. Resolve it if anything is known about a partition; return why it took so long."""
        cause = self.last_error(call)
        for commit in self._commits:
            if commit.call is call and commit.has_results:
                late = KafkaTimeoutError(f"the commit of {named(commit.pending)} was not answered before its deadline")
                late.__cause__ = cause
                commit.end(late)
        return cause

    def committing(self) -> frozenset[TopicPartition]:
        """Return the partitions whose offset in the group is about to change."""
        return frozenset(p for commit in self._commits for p in commit.pending.keys() - commit.held_back.keys())

    def is_storing(self, now: float) -> bool:
        """Whether offsets that a member committed are neither stored nor refused, and can be stored only while it is one.

        A partition with an error of its own holds nobody up, nor does one whose topic is gone, nor what waits behind them.
        """
        return any(commit.made_as is not None for commit in self._storing(now))

    def is_storing_alone(self, now: float) -> bool:
        """The same of what a lone consumer committed, which can be stored only while it is no member."""
        return any(commit.made_as is None for commit in self._storing(now))

    def _storing(self, now: float) -> Iterator[_Commit]:
        self._sift(now)
        stuck: set[TopicPartition] = set()
        for commit in self._commits:
            stuck |= commit.held_back.keys() | self._unsure(commit)
            if commit.pending.keys() - commit.lost - stuck:
                yield commit

    # --- the conversation ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the commits that may go out."""
        self._sift(now)
        if not self._commits:
            return Poll()
        node = self.group.coordinator.coordinator
        if node is not None:
            return self._due(node.id, now)
        self.group.coordinator.request(now)
        if self.group.coordinator.fatal is not None:
            for commit in self._commits:
                commit.end(self.group.coordinator.fatal)
        return Poll()

    def poll_on_close(self, now: float) -> Poll:
        """Send every commit that is still awaited, in order and whatever the backoff; fail it if there is no coordinator."""
        self._sift(now)
        waiting = [commit for commit in self._commits if commit.pending.keys() - commit.on_its_way]
        node = self.group.coordinator.coordinator or self.group.coordinator.latest
        if node is not None:
            rests = ((commit, commit.pending.keys() - commit.on_its_way - self._unsure(commit)) for commit in waiting)
            return Poll(tuple(self._request(commit, rest, node.id, now, final=True) for commit, rest in rests if rest))
        for commit in waiting:
            error = CommitFailedError("the consumer stops and the coordinator of its group is not known")
            error.__cause__ = self.group.coordinator.failure
            commit.end(error)
        return Poll()

    def _sift(self, now: float) -> None:
        """Drop commits that are not awaited any more, and refuse lost partitions and offsets of former topics."""
        commits = [commit for commit in self._commits if not commit.call.done]
        for commit in commits:
            self._drop_former(commit, now)
        members = [commit for commit in commits if commit.made_as is not None]
        if members:
            author, identity = self.group.author, self.group.stored_as
            failure = author.failure if author is not None else None
            owned = self.group.owned() if identity.generation > 0 else frozenset()
            for commit in members:
                same = commit.made_as is not None and identity.member_id == commit.made_as.member_id
                commit.lost.update(partition for partition in commit.pending if not same or partition not in owned)
                if failure is not None and not commit.request.in_flight:
                    commit.end(failure.with_traceback(None))
                elif commit.lost:
                    self._finish_if_done(commit)
        self._commits = [commit for commit in commits if not commit.call.done]

    def _drop_former(self, commit: _Commit, now: float) -> None:
        incarnations = self.group.metadata.cluster.incarnations
        for partition in commit.pending.keys() - commit.on_its_way:
            topic_id = commit.pending[partition].topic_id
            if incarnations.is_former(partition.topic, topic_id):
                incarnations.say("an offset to commit", partition, topic_id, now, self.trace, subject="commit")
                text = f"{partition}: its topic was deleted and created again, so its offset was not committed"
                commit.refuse(partition, TopicRecreatedError(text, (partition,)))
        unsure = self._unsure(commit)
        if unsure:
            self.group.metadata.request_update(now)
        for partition in unsure & commit.once:
            commit.refuse(partition, _naming(UnknownTopicOrPartitionError(), partition))
        if not commit.pending:
            commit.call.resolve(commit.refused)

    def _unsure(self, commit: _Commit) -> set[TopicPartition]:
        """Return partitions of topics that are gone, or not known yet, if brokers know topics by name alone."""
        if self.by_id():
            return set()
        known = self.group.metadata.topics
        waiting = (tp for tp in commit.pending.keys() - commit.on_its_way if commit.pending[tp].topic_id is not None)
        return {tp for tp in waiting if tp.topic not in known}

    def _due(self, node_id: int, now: float) -> Poll:
        requests: list[UnsentRequest] = []
        wake_at = NEVER
        ahead: dict[TopicPartition, KafkaError | None] = dict.fromkeys(self._elsewhere())
        for commit in self._commits:
            if commit.once:
                self._refuse_behind(commit, ahead)
            free = commit.pending.keys() - ahead.keys() - self._unsure(commit)
            ahead.update((partition, commit.held_back.get(partition)) for partition in commit.pending)
            if not free:
                continue
            due_at = self._due_at(commit, now)
            if due_at <= now:
                requests.append(self._request(commit, free, node_id, now))
            else:
                wake_at = min(wake_at, due_at)
        return Poll(tuple(requests), wake_at)

    def _elsewhere(self) -> set[TopicPartition]:
        """Return partitions with a commit under way on another connection than the next one.

        The sequence that takes a committed offset back: a commit is given up for a later one while it is on its way; the later one
        goes by another connection, since a JoinGroup waits on the first; and the broker reads that connection first.
        """
        channel = self.group.channel
        return {tp for flight in self._flights if flight.channel is not channel for tp in flight.partitions}

    def _refuse_behind(self, commit: _Commit, ahead: Mapping[TopicPartition, KafkaError | None]) -> None:
        """Partitions that an earlier commit keeps trying are refused where there is one attempt: it would wait just as long."""
        for partition in commit.pending.keys() & ahead.keys() & commit.once:
            error = ahead[partition]
            if error is not None:
                commit.refuse(partition, error)
        self._finish_if_done(commit)

    def _due_at(self, commit: _Commit, now: float) -> float:
        if commit.request.in_flight or self.group.awaits_epoch(commit.stale):
            return NEVER
        if commit.made_as is None and self.group.is_leaving:
            # The sequence that ends in a refusal otherwise: the coordinator moves, the request to leave and the commit both have to
            # be sent again, and the backoff of the commit is over first.
            return NEVER
        return now if self.group.has_moved_on(commit.stale) else commit.request.wake_at()

    def _request(
        self, commit: _Commit, partitions: Collection[TopicPartition], node_id: int, now: float, *, final: bool = False
    ) -> UnsentRequest:
        identity = self.group.stored_as if commit.made_as is not None else Identity()
        topics: dict[tuple[str, UUID | None], list[OffsetCommitRequestPartition]] = defaultdict(list)
        for partition, offset in commit.pending.items():
            if partition not in partitions:
                continue
            topics[partition.topic, offset.topic_id or self.group.metadata.topic_id(partition.topic)].append(
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
                OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=tuple(parts))
                for (name, topic_id), parts in topics.items()
            ),
        )
        commit.request.sent()
        commit.sent = asked = frozenset(partitions)
        commit.stale = None
        flight = _Flight(self.group.channel, asked)
        self._flights.append(flight)
        answered = partial(self._answered, commit, asked, identity, {id_: name for name, id_ in topics if id_ is not None}, node_id)

        def landed(outcome: OffsetCommitResponse | KafkaError, at: float) -> None:
            self._flights.remove(flight)
            if not isinstance(outcome, RequestWithdrawnError):
                answered(outcome, at)

        return UnsentRequest(
            message=message,
            node_id=node_id,
            channel=flight.channel,
            on_done=landed,
            expires_at=now + self.config.request_timeout_ms / 1000,
            withdrawn=lambda: commit.call.done,
            lowest_version=MEMBER_EPOCH if identity.consumer_protocol and identity.generation >= 0 else 0,
            final=final,
        )

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def _answered(
        self,
        commit: _Commit,
        asked: frozenset[TopicPartition],
        made_as: Identity,
        names: Mapping[UUID, str],
        node_id: int,
        outcome: OffsetCommitResponse | KafkaError,
        now: float,
    ) -> None:
        if isinstance(outcome, KafkaError):
            errors: dict[TopicPartition, KafkaError] = dict.fromkeys(asked & commit.pending.keys(), outcome)
        else:
            errors = self._take_stored(commit, asked, _codes(outcome, names))
        if errors:
            self.trace(CommitFailed(now=now, partitions=frozenset(errors), error=next(iter(errors.values()))))
        verdicts = {partition: self._judge(error, made_as) for partition, error in errors.items()}
        self._refuse(commit, errors, verdicts)
        if errors.keys() & commit.pending.keys():
            commit.request.failed(now)
            self._carry_out(commit, made_as, errors, verdicts, now)
        else:
            self.group.coordinator.served(now)
            if self._failing and all(other is commit or other.error is None or other.call.done for other in self._commits):
                self._failing = False
                self.trace(Recovered(now=now, outage=_OUTAGE, subject="commit"))
            commit.request.succeeded()
        self._finish_if_done(commit)
        for different in {type(error): error for error in errors.values()}.values():
            self.group.report_error(different, made_as, node_id, now)

    def _take_stored(
        self, commit: _Commit, asked: frozenset[TopicPartition], codes: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError]:
        """Record what was stored; return the errors of the rest."""
        errors: dict[TopicPartition, KafkaError] = {}
        for partition in tuple(commit.pending):
            if partition not in asked:
                continue
            code = codes.get(partition)
            if code is None:
                errors[partition] = MalformedResponseError(f"an OffsetCommit response leaves {named([partition])} out")
            elif code:
                errors[partition] = for_code(code, group=self.config.group_id)
            else:
                del commit.pending[partition]
                commit.held_back.pop(partition, None)
                commit.lost.discard(partition)
                commit.stored += 1
        return errors

    def _refuse(
        self, commit: _Commit, errors: Mapping[TopicPartition, KafkaError], verdicts: Mapping[TopicPartition, _Verdict]
    ) -> None:
        """Record the errors of single partitions: they hold up no other one."""
        for partition, verdict in verdicts.items():
            error = errors[partition]
            if verdict is _Verdict.UNUSABLE or (verdict is _Verdict.MISSING and partition in commit.once):
                commit.refuse(partition, _naming(error, partition))
            elif verdict is _Verdict.MISSING:
                commit.held_back[partition] = _naming(error, partition)
            else:
                commit.held_back.pop(partition, None)

    def _carry_out(
        self,
        commit: _Commit,
        made_as: Identity,
        errors: Mapping[TopicPartition, KafkaError],
        verdicts: Mapping[TopicPartition, _Verdict],
        now: float,
    ) -> None:
        """Do what the gravest of the errors that are left demands, for the whole commit."""
        left = {partition: verdict for partition, verdict in verdicts.items() if partition in commit.pending}
        gravest = next(verdict for verdict in _Verdict if verdict in left.values())
        commit.error = error = next(errors[partition] for partition, verdict in left.items() if verdict is gravest)
        if gravest is _Verdict.REFUSED:
            commit.end(self._refusal(commit, error))
        elif gravest is _Verdict.FATAL:
            commit.end(error)
        else:
            commit.stale = made_as if gravest is _Verdict.STALE else None
            if commit.call.done:
                return
            if isinstance(error, _OF_A_REBALANCE):
                text = f"a rebalance came between, so offsets of group {self.config.group_id!r} are committed once more"
                self.trace(Notice(now=now, text=text, subject="commit"))
            elif not self.group.coordinator.is_settling_in(error, now):
                text = f"offsets of group {self.config.group_id!r} could not be committed yet; trying again"
                self._failing = True
                self.trace(Fault(now=now, text=text, error=error, subject="commit", outage=_OUTAGE))

    def _judge(self, error: KafkaError, made_as: Identity) -> _Verdict:
        identity = self.group.stored_as
        if isinstance(error, IllegalGenerationError) and identity != made_as and identity.member_id == made_as.member_id:
            return _Verdict.AGAIN  # a rebalance ended while the commit was out: what we still own is stored in the new generation
        if isinstance(error, IllegalGenerationError) and not made_as.consumer_protocol and self.group.awaits_epoch(made_as):
            return _Verdict.STALE  # it has ended, and the answer to our JoinGroup is still on its way, on another connection
        if type(error) in REFUSED:
            return _Verdict.REFUSED
        if isinstance(error, (StaleMemberEpochError, RebalanceInProgressError)):
            again = _Verdict.STALE if isinstance(error, StaleMemberEpochError) else _Verdict.AGAIN
            return again if made_as.generation > 0 else _Verdict.REFUSED
        if isinstance(error, GroupAuthorizationFailedError) or not isinstance(error, (BrokerResponseError, MalformedResponseError)):
            return _Verdict.AGAIN if error.retriable else _Verdict.FATAL
        if not error.retriable:
            return _Verdict.UNUSABLE
        return _Verdict.AGAIN if isinstance(error, _COORDINATOR) else _Verdict.MISSING

    def _finish_if_done(self, commit: _Commit) -> None:
        """Give up what was lost and is not in flight; answer the caller when nothing is left to be stored."""
        for partition in commit.lost & (commit.pending.keys() - commit.on_its_way):
            text = f"{named([partition])}: not assigned to this member (any more), so its offset was not committed"
            lost = CommitFailedError(text, (partition,))
            lost.__cause__ = commit.error
            commit.refuse(partition, lost)
        if not commit.pending:
            commit.call.resolve(commit.refused)

    def _refusal(self, commit: _Commit, error: KafkaError) -> CommitFailedError:
        """Return the error of a commit by a consumer that is not a member (any more), with what to do about it."""
        if isinstance(error, FencedInstanceIdError):
            why = f"another consumer has taken over group_instance_id {self.config.group_instance_id!r}"
        elif commit.made_as is None:
            why = (
                f"group {self.config.group_id!r} has members, so a consumer that assigns its partitions itself cannot commit to it"
            )
        else:
            why = (
                f"this consumer is not a member of group {self.config.group_id!r} any more, and others may have its partitions "
                "by now: its heartbeats stopped for longer than the session timeout, or reads were further apart than "
                f"max_poll_interval_ms ({self.config.max_poll_interval_ms}); handle records faster, lower max_poll_records "
                f"({self.config.max_poll_records}) or raise max_poll_interval_ms"
            )
        failed = CommitFailedError(f"the commit was refused: {why}", tuple(sorted(commit.pending)))
        failed.__cause__ = error
        return failed


def _codes(response: OffsetCommitResponse, names: Mapping[UUID, str]) -> dict[TopicPartition, int]:
    """Return the error code of each partition. A response uses topic names or topic ids, as its request did."""
    return {
        TopicPartition(
            names.get(topic.topic_id, "") if topic.topic_id is not None else topic.name, part.partition_index
        ): part.error_code
        for topic in response.topics
        for part in topic.partitions
    }


def _naming(error: KafkaError, partition: TopicPartition) -> KafkaError:
    """Return an error about one partition with its name in the text; a denial names the topic."""
    if not isinstance(error, BrokerResponseError):
        return error
    what = f"topic {partition.topic!r}" if isinstance(error, TopicAuthorizationFailedError) else named([partition])
    return for_code(error.errno, f"{what}: {error.description}")
