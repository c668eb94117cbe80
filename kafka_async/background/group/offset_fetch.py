"""Reading the group's offsets: the OffsetFetch request manager.

An error is not "there is no offset" (promise 6): the partition would be read from another place than where the group stopped. A
partition that an answer leaves out is asked for again. Nor does an error about another partition of the topic mean that nothing is
stored of it: a member starts a partition without an offset, as new or not (promise 15), when it knows of all of them.

One request is in flight at a time and asks for everything that is wanted by then. Calls that come meanwhile share the next
one: so identical requests are not repeated, and an answer is never older than its call.

Sources: KIP-447 (stable offsets), KIP-709, KIP-516 (topic ids), KIP-848 (STALE_MEMBER_EPOCH), Java's ``CommitRequestManager`` and
``OffsetsRequestManager.initWithCommittedOffsetsIfNeeded``.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import KafkaError, MalformedResponseError, StaleMemberEpochError, TopicAuthorizationFailedError, for_code
from ...events import Call
from ...model import OffsetAndMetadata, TopicPartition
from ...network import UnsentRequest
from ...trace import Fault, Listener, Recovered
from ...values import define, evolve, field, frozen
from ...wire.messages import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
)
from ..boundary import Parcel, Repositioned
from ..by_topic import by_topic, named
from ..loop.request_manager import NEVER, Backoff, Poll, RequestState, backoff_of
from ..positions.newcomers import first_strategy
from ..positions.subscription import FetchPosition, FetchState, PartitionState, SubscriptionState
from .access import REFUSED, GroupAccess
from .membership import Identity

_OUTAGE: Final = "reading committed offsets"
PATIENCE: Final = 5.0
"""Seconds for which who takes a part of an answer waits for the rest, once only partitions with errors of their own are left."""

Committed: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | None]


@define(eq=False)
class _Question:
    """One caller's request for offsets."""

    call: Call[Committed]
    partitions: frozenset[TopicPartition]
    partial: bool
    """It takes an answer without the partitions whose offset cannot be read."""
    found: dict[TopicPartition, OffsetAndMetadata | None] = field(factory=dict)
    known_since: float | None = None
    """Since when all is known but for partitions whose own error has to pass."""

    @property
    def has_part(self) -> bool:
        """Whether what is known is an answer."""
        return self.partial and bool(self.found)


@frozen
class _Start:
    """A partition that waits for its first position; only while its stamp is still this one."""

    entry: PartitionState
    stamp: int
    undecided: bool = False
    """Nothing is stored, and whether that means that it is new is not known before another partition's error has passed."""


@frozen(kw_only=True)
class _Sent:
    """What one request was sent for."""

    partitions: frozenset[TopicPartition]
    questions: tuple[_Question, ...]
    starts: tuple[_Start, ...]
    made_as: Identity
    node_id: int
    names: Mapping[UUID, str]
    topic_ids: Mapping[str, UUID | None]
    """Of all its topics, as far as they are known: what is stored belongs to these."""


@define(eq=False)
class OffsetFetchManager:
    """Reads offsets from the group. Poll it after ``PositionsManager`` and before ``FindCoordinatorManager``."""

    config: ConsumerConfig
    group: GroupAccess = field(repr=False)
    subscription: SubscriptionState = field(repr=False)
    deliver: Callable[[Parcel], None] = field(repr=False)
    """Puts a new position into the buffer, in order with the data before it."""
    on_error: Callable[[KafkaError], None] = field(repr=False)
    """Called with the reason why partitions get no position until access is given."""
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    committing: Callable[[], Set[TopicPartition]] = field(default=frozenset, repr=False)
    """Partitions with a commit under way: their offsets are read after it, since it may use another connection."""
    _questions: list[_Question] = field(factory=list, init=False)
    _starts: dict[TopicPartition, _Start] = field(factory=dict, init=False)
    _request: RequestState = field(init=False)
    _retries: dict[TopicPartition, Backoff] = field(factory=dict, init=False)
    """Partitions whose own error has to pass first, such as a pending transaction."""
    _stale: Identity | None = field(default=None, init=False)
    """The identity that was refused as stale; nothing is requested before there is another one."""
    _error: KafkaError | None = field(default=None, init=False)
    _reported: KafkaError | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._request = RequestState(backoff_of(self.config, self.random))

    def fetch(self, call: Call[Committed], partitions: frozenset[TopicPartition], now: float, *, partial: bool = False) -> None:
        """Resolve ``call`` with the stored offset of each of ``partitions``, ``None`` if there is none.

        Fails with the coordinator's or the broker's error if trying again is useless; until then it is tried again. ``partial``:
        an error of some partitions leaves these out.
        """
        if partitions:
            self._questions.append(_Question(call, partitions, partial))
        else:
            call.resolve({})

    def initialize(self, entry: PartitionState) -> bool:
        """Give a newly assigned partition its stored position, or have it reset if none is stored. Always returns ``True``."""
        known = self._starts.get(entry.partition)
        if known is None or known.entry is not entry or known.stamp != entry.stamp:
            self._starts[entry.partition] = _Start(entry, entry.stamp)
        return True

    @property
    def last_error(self) -> KafkaError | None:
        """Why the calls are not answered yet."""
        return self._error or self.group.coordinator.failure

    def expired(self, call: Call[Committed]) -> KafkaError | None:
        """The deadline of ``call`` has passed. Resolve it if it takes what is known; return why it took so long."""
        for question in self._questions:
            if question.call is call and question.has_part:
                call.resolve(question.found)
        return self.last_error

    # --- the conversation ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the request that is due."""
        self._questions = [question for question in self._questions if not question.call.done]
        self._starts = {partition: start for partition, start in self._starts.items() if self._still(start)}
        if not (self._questions or self._starts):
            return Poll()
        if self.group.failure is not None:
            for question in self._questions:
                question.call.fail(self.group.failure.with_traceback(None))
            return Poll()
        node = self.group.coordinator.coordinator
        if node is None:
            self._wait_for_coordinator(now)
            return Poll()
        # Not that of the member which the application has ended: its commits may still be under way, but we ask as nobody.
        moved_on = self._stale is not None and self._stale != self.group.identity
        if self._request.in_flight or (not moved_on and self.group.awaits_epoch(self._stale)):
            return Poll()
        if not self._request.backoff.ready(now) and not moved_on:
            return Poll(wake_at=self._request.backoff.retry_at)
        return self._ask(node.id, now)

    def poll_on_close(self, now: float) -> Poll:
        """Offset fetches send nothing when the consumer stops."""
        return Poll()

    def _still(self, start: _Start) -> bool:
        """Whether the partition is still the same assignment without a position; else an answer comes too late."""
        entry = start.entry
        current = self.subscription.get(entry.partition) is entry and entry.stamp == start.stamp
        return current and entry.state is FetchState.INITIALIZING

    def _wait_for_coordinator(self, now: float) -> None:
        coordinator = self.group.coordinator
        coordinator.request(now)
        if coordinator.fatal is None:
            return
        for question in self._questions:
            question.call.fail(coordinator.fatal)
        if self._starts and self.group.membership is None and coordinator.fatal is not self._reported:
            self._reported = coordinator.fatal  # with a membership it is the membership that reports it
            self.on_error(coordinator.fatal)

    def _ask(self, node_id: int, now: float) -> Poll:
        wanted = {partition for question in self._questions for partition in question.partitions - question.found.keys()}
        early = self.committing() if self._starts else frozenset()
        starts = {partition: start for partition, start in self._starts.items() if partition not in early}
        kept = wanted | early | starts.keys() | self._others(starts.keys())
        self._retries = {partition: backoff for partition, backoff in self._retries.items() if partition in kept}
        held = {partition: backoff.retry_at for partition, backoff in self._retries.items() if not backoff.ready(now)}
        of_held = {partition.topic for partition in held}
        starts = {partition: start for partition, start in starts.items() if not (start.undecided and partition.topic in of_held)}
        wanted |= starts.keys() | self._others(starts.keys())
        partitions = frozenset(wanted - held.keys())
        if not partitions:
            return Poll(wake_at=min(held.values(), default=NEVER))
        identity = self.group.identity
        sent = _Sent(
            partitions=partitions,
            questions=tuple(self._questions),
            starts=tuple(starts.values()),
            made_as=identity,
            node_id=node_id,
            names=self.group.topics_by_id({partition.topic for partition in partitions}),
            topic_ids={partition.topic: self.group.metadata.cluster.incarnations.last(partition.topic) for partition in partitions},
        )
        self._request.sent()
        self._stale = None
        return Poll(
            (
                UnsentRequest(
                    message=self._message(partitions, identity),
                    node_id=node_id,
                    channel=self.group.channel,
                    on_done=partial(self._answered, sent),
                    expires_at=now + self.config.request_timeout_ms / 1000,
                ),
            )
        )

    def _others(self, starts: Set[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions of the same topics whose stored offsets tell which of ``starts`` are new."""
        if not self.config.tells_new_partitions:
            return set()
        topics = self.group.metadata.topics
        names = {partition.topic for partition in starts} & topics.keys()
        return {TopicPartition(name, part.partition) for name in names for part in topics[name].partitions}

    def _message(self, partitions: Iterable[TopicPartition], identity: Identity) -> OffsetFetchRequest:
        # Only a member of the consumer protocol is checked; before its first epoch it asks without an identity.
        member = identity.consumer_protocol and identity.generation > 0
        group = OffsetFetchRequestGroup(
            group_id=self.config.group_id or "",
            member_id=identity.member_id if member else None,
            member_epoch=identity.generation if member else -1,
            topics=tuple(
                OffsetFetchRequestTopics(name=name, topic_id=self.group.metadata.topic_id(name), partition_indexes=indexes)
                for name, indexes in by_topic(sorted(partitions)).items()
            ),
        )
        return OffsetFetchRequest(groups=(group,), require_stable=True)

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def _answered(self, sent: _Sent, outcome: OffsetFetchResponse | KafkaError, now: float) -> None:
        group = self._group_of(outcome)
        if isinstance(group, KafkaError):
            self._failed(sent, group, now)
            return
        self._request.succeeded()
        self.group.coordinator.served(now)
        self._error = None
        answers = {
            TopicPartition(
                sent.names.get(topic.topic_id, "") if topic.topic_id is not None else topic.name, part.partition_index
            ): part
            for topic in group.topics
            for part in topic.partitions
        }
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for partition in sent.partitions:
            result = _read(partition, answers.get(partition))
            if isinstance(result, KafkaError):
                errors[partition] = result
            else:
                found[partition] = None if result is None else result.of(sent.topic_ids[partition.topic])
        self._note(sent, errors, now)
        if not errors:
            self.trace(Recovered(now=now, outage=_OUTAGE, subject="commit"))
        self._answer_questions(sent, found, errors, now)
        self._start_partitions(sent, found, errors)

    def _group_of(self, outcome: OffsetFetchResponse | KafkaError) -> OffsetFetchResponseGroup | KafkaError:
        if isinstance(outcome, KafkaError):
            return outcome
        group = next((group for group in outcome.groups if group.group_id == self.config.group_id), None)
        if group is None:
            return MalformedResponseError(f"an OffsetFetch response leaves the group {self.config.group_id!r} out")
        return for_code(group.error_code, group=group.group_id) if group.error_code else group

    def _failed(self, sent: _Sent, error: KafkaError, now: float) -> None:
        """The whole request failed."""
        self._request.failed(now)
        self._error = error
        self._stale = sent.made_as if isinstance(error, StaleMemberEpochError) else None
        self.group.report_error(error, sent.made_as, sent.node_id, now)
        if _passes(error):
            self._report(error, now)
            return
        self._request.backoff.retry_at = now + self._request.backoff.limit
        for question in sent.questions:
            if question.has_part:
                question.call.resolve(question.found)
            else:
                question.call.fail(error)
        if any(self._still(start) for start in sent.starts):
            self.on_error(error)

    def _report(self, error: KafkaError, now: float) -> None:
        if self.group.coordinator.is_settling_in(error, now):
            return
        text = f"committed offsets of group {self.config.group_id!r} cannot be read yet; trying again"
        self.trace(Fault(now=now, text=text, error=error, subject="commit", outage=_OUTAGE))

    def _note(self, sent: _Sent, errors: Mapping[TopicPartition, KafkaError], now: float) -> None:
        """Have each partition with an error wait for its own backoff."""
        for partition, error in errors.items():
            backoff = self._retries.setdefault(partition, backoff_of(self.config, self.random))
            backoff.failed(now)
            if not _passes(error):
                backoff.retry_at = now + backoff.limit
        for partition in sent.partitions - errors.keys():
            self._retries.pop(partition, None)
        for error in {type(error): error for error in errors.values()}.values():
            self._error = error
            self.group.report_error(error, sent.made_as, sent.node_id, now)
            if _passes(error):
                self._report(error, now)

    def _answer_questions(self, sent: _Sent, found: Committed, errors: Mapping[TopicPartition, KafkaError], now: float) -> None:
        for question in sent.questions:
            question.found.update({partition: found[partition] for partition in question.partitions & found.keys()})
            error = _lasting(errors, question.partitions)
            if question.partial:
                question.partitions -= {partition for partition, refused in errors.items() if not _passes(refused)}
            left = question.partitions - question.found.keys()
            if error is not None and not (question.has_part or (question.partial and left)):
                question.call.fail(error)
            elif not left:
                question.call.resolve(question.found)
            elif question.has_part and left <= self._retries.keys():
                question.known_since = now if question.known_since is None else question.known_since
                if now >= question.known_since + PATIENCE:
                    question.call.resolve(question.found)

    def _start_partitions(self, sent: _Sent, found: Committed, errors: Mapping[TopicPartition, KafkaError]) -> None:
        waiting = {start.entry.partition: start for start in sent.starts if self._still(start)}
        incarnations = self.group.metadata.cluster.incarnations
        undecided = self._undecided(waiting, found)
        for partition, start in waiting.items():
            # An answer about the topic that had the name before says nothing: the new one is asked for next.
            if partition not in found or incarnations.is_former(partition.topic, sent.topic_ids[partition.topic]):
                continue
            if partition in undecided:
                self._starts[partition] = evolve(start, undecided=True)
            else:
                self._start(start.entry, found)
        error = _lasting(errors, waiting.keys() | self._others(undecided))
        if error is not None:
            self.on_error(error)

    def _undecided(self, starts: Mapping[TopicPartition, _Start], found: Committed) -> set[TopicPartition]:
        """Return partitions without an offset that start as new or not by what is not known yet of others of their topics.

        What other consumers have stored tells one nothing that assigns its partitions itself.
        """
        if self.group.membership is None:
            return set()
        open_topics = {partition.topic for partition in self._others(starts.keys()) - found.keys()}
        open_topics -= {partition.topic for partition, offset in found.items() if offset is not None}
        by_others = (partition for partition, start in starts.items() if start.entry.strategy is None)
        return {partition for partition in by_others if partition.topic in open_topics and found.get(partition) is None}

    def _start(self, entry: PartitionState, found: Committed) -> None:
        self._starts.pop(entry.partition, None)
        stored = found[entry.partition]
        if stored is None:
            others = [partition for partition, offset in found.items() if offset is not None]
            self.subscription.reset(entry, entry.strategy or first_strategy(entry.partition, others))
            return
        epoch = stored.leader_epoch
        self.subscription.seek(entry, FetchPosition(stored.offset, epoch), validate=epoch is not None)
        self.deliver(
            Repositioned(
                partition=entry.partition,
                stamp=entry.stamp,
                offset=stored.offset,
                leader_epoch=epoch,
                is_committed=True,
                topic_id=stored.topic_id,
            )
        )


def _read(partition: TopicPartition, answer: OffsetFetchResponsePartitions | None) -> OffsetAndMetadata | KafkaError | None:
    """Return the stored offset of a partition, ``None`` if the broker says that there is none, or why we do not know."""
    if answer is None:
        return MalformedResponseError(f"an OffsetFetch response leaves {named([partition])} out")
    if answer.error_code:
        return for_code(answer.error_code)
    if answer.committed_offset < -1:
        return MalformedResponseError(f"offset {answer.committed_offset} as the stored offset of {named([partition])}")
    if answer.committed_offset == -1:
        return None
    epoch = answer.committed_leader_epoch
    return OffsetAndMetadata(answer.committed_offset, answer.metadata or "", epoch if epoch >= 0 else None)


def _passes(error: KafkaError) -> bool:
    """Whether the error goes away by itself: we wait for a new epoch, rejoin, or the broker recovers."""
    return error.retriable or isinstance(error, StaleMemberEpochError) or type(error) in REFUSED


def _lasting(errors: Mapping[TopicPartition, KafkaError], partitions: Iterable[TopicPartition]) -> KafkaError | None:
    """Return the error that keeps one of the partitions from an answer for good; denied topics are named together."""
    lasting = {partition: errors[partition] for partition in partitions if partition in errors and not _passes(errors[partition])}
    denied = {partition.topic for partition, error in lasting.items() if isinstance(error, TopicAuthorizationFailedError)}
    if denied:
        topics = ", ".join(map(repr, sorted(denied)))
        return TopicAuthorizationFailedError(f"topics {topics}: {TopicAuthorizationFailedError.description}")
    return next(iter(lasting.values()), None)
