"""Offsets by time, beginning and end: the ListOffsets request manager.

A look-up serves a caller (``offsets_for_times``, ``end_offsets``) or a reset (``positions.py``) alike. An answer is given once per
look-up; retriable errors are retried until ``wanted`` returns false.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from ...config import ConsumerConfig
from ...errors import (
    BrokerResponseError,
    InvalidRequestError,
    KafkaError,
    MalformedResponseError,
    RequestWithdrawnError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
    for_code,
)
from ...events import Call
from ...model import OffsetAndTimestamp, TopicPartition
from ...network import UnsentRequest
from ...trace import Listener
from ...values import define, field, frozen
from ...wire.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ..cluster.cluster_view import ClusterChanges, Leader
from ..cluster.late_answers import LateAnswers
from ..cluster.metadata import MetadataManager
from ..loop.request_manager import IDLE, NEVER, Backoff, Poll, backoff_of
from .partition_outage import PartitionOutage

LATEST: Final = -1
EARLIEST: Final = -2
_LOOKUPS: Final = "looking up offsets"
"""The outage in which leaders do not answer look-ups."""
_PATIENCE: Final = 600.0
"""Seconds after which the outage of a partition that nobody looks up any more is over.

A program that asks every few minutes, in vain, gets one warning, and one more every ten minutes, as in any outage.
"""


@frozen
class Found:
    """The answer to one look-up. ``offset`` is -1 if no record is that recent."""

    offset: int
    timestamp: int
    leader_epoch: int | None

    def public(self) -> OffsetAndTimestamp | None:
        return OffsetAndTimestamp(self.offset, self.timestamp, self.leader_epoch) if self.offset >= 0 else None


@frozen(eq=False)
class _Asked:
    """A request that is under way. Compared by identity: one broker may have two for the same look-up."""

    node_id: int


@define(eq=False)
class _OffsetLookup:
    number: int
    partition: TopicPartition
    timestamp: int
    on_answer: Callable[[Found | KafkaError, float], None]
    wanted: Callable[[], bool]
    backoff: Backoff
    asked: _Asked | None = None
    """The request whose answer counts; ``None``: the look-up is to be sent."""
    leaderless: bool = False
    """Waits because the leader is not known, not because a broker refused."""
    error: KafkaError | None = None
    alone: bool = False
    """Its topic is not subscribed, so errors about the topic are answered to the caller."""
    missed_at: float | None = None
    """When the leader was first found to be unknown."""


@define(eq=False)
class ListOffsetsManager:
    """Asks each partition's leader for offsets."""

    config: ConsumerConfig
    metadata: MetadataManager = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    _lookups: dict[int, _OffsetLookup] = field(factory=dict, init=False)
    """By number, so that an answer to one of ten thousand finds it at once."""
    _lookup_count: int = field(default=0, init=False)
    _outage: PartitionOutage = field(init=False)
    """Of partitions whose last look-up failed and was tried again."""
    _late: LateAnswers = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._late = LateAnswers(self.metadata)
        self._outage = PartitionOutage(self.trace, _LOOKUPS, "offsets cannot be looked up yet; trying again", _PATIENCE)

    @property
    def topics(self) -> frozenset[str]:
        """Topics whose leaders must be known for the look-ups that wait."""
        return frozenset(lookup.partition.topic for lookup in self._lookups.values())

    def look_up(
        self,
        partition: TopicPartition,
        timestamp: int,
        on_answer: Callable[[Found | KafkaError, float], None],
        wanted: Callable[[], bool],
        *,
        alone: bool = False,
    ) -> None:
        """Look one offset up (``timestamp`` in milliseconds, LATEST or EARLIEST); dropped once ``wanted()`` returns false.

        ``alone``: a topic that is denied, or that does not exist for a request timeout, fails the look-up; its readers get the
        error anyway.
        """
        backoff = backoff_of(self.config, self.random)
        self._lookup_count += 1
        self._lookups[self._lookup_count] = _OffsetLookup(
            self._lookup_count, partition, timestamp, on_answer, wanted, backoff, alone=alone
        )

    def answer_call(
        self, call: Call[Mapping[TopicPartition, OffsetAndTimestamp | None]], timestamps: Mapping[TopicPartition, int]
    ) -> None:
        """Resolve ``call`` when every one of the partitions has an answer; the first fatal error fails it."""
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

        def answered(partition: TopicPartition, outcome: Found | KafkaError, now: float) -> None:
            if isinstance(outcome, KafkaError):
                call.fail(outcome)
                return
            found[partition] = outcome.public()
            if len(found) == len(timestamps):
                call.resolve({tp: found[tp] for tp in timestamps})

        for partition, timestamp in timestamps.items():
            self.look_up(partition, timestamp, partial(answered, partition), lambda: not call.done, alone=True)
        if not timestamps:
            call.resolve({})

    def last_error(self, partitions: Iterable[TopicPartition]) -> KafkaError | None:
        """Return why look-ups of these partitions have no answer yet."""
        wanted = set(partitions)
        errors = (lookup.error for lookup in self._lookups.values() if lookup.partition in wanted)
        return next((error for error in errors if error is not None), None)

    # --- the conversation ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return one request per leader and isolation for the look-ups that may be sent."""
        if not self._lookups and not self._outage.failing:
            return IDLE
        self._lookups = {number: lookup for number, lookup in self._lookups.items() if lookup.wanted()}
        by_leader: dict[Leader, list[_OffsetLookup]] = defaultdict(list)
        wake_at = NEVER
        if self._outage.failing:
            wake_at = self._outage.lapse({lookup.partition for lookup in self._lookups.values()}, now)
        for lookup in tuple(self._lookups.values()):
            if lookup.asked is not None:
                continue
            if not lookup.backoff.ready(now):
                wake_at = min(wake_at, lookup.backoff.retry_at)
                continue
            leader = self.metadata.cluster.leader(lookup.partition)
            if leader is None:
                wake_at = min(wake_at, self._unknown_leader(lookup, now))
            else:
                by_leader[Leader(leader.node_id, None)].append(lookup)
        requests = tuple(
            self._request(leader.node_id, group, now) for leader, lookups in by_leader.items() for group in _distinct(lookups)
        )
        return Poll(requests, min(wake_at, self._late.ask(now)))

    def poll_on_close(self, now: float) -> Poll:
        """A look-up sends nothing when the consumer stops."""
        return Poll()

    def cluster_changed(self, changes: ClusterChanges, now: float) -> None:
        """Ask at once for partitions that only waited for their leader to be known, or for an answer of a former leader."""
        for lookup in self._lookups.values() if changes.leaders else ():
            if lookup.partition not in changes.leaders:
                continue
            if lookup.leaderless:
                lookup.leaderless = False
                lookup.backoff.succeeded()
            leader = self.metadata.cluster.leader(lookup.partition)
            if lookup.asked is not None and leader is not None and lookup.asked.node_id != leader.node_id:
                lookup.asked = None  # a broker that has frozen would be waited for until the request times out

    def _unknown_leader(self, lookup: _OffsetLookup, now: float) -> float:
        """Request metadata for the leader, or end the look-up. Return when to look again."""
        refusal = self._refusal(lookup, now) if lookup.alone else None
        if refusal is not None:
            self._answer(lookup, refusal, now)
            return NEVER
        lookup.leaderless = True
        cluster = self.metadata.cluster
        why = cluster.missing(lookup.partition) or self.metadata.problem(lookup.partition.topic)
        lookup.error = why or cluster.leaderless(lookup.partition)
        lookup.backoff.failed(now)
        self.metadata.request_update(now)
        return lookup.backoff.retry_at

    def _refusal(self, lookup: _OffsetLookup, now: float) -> KafkaError | None:
        """Return what ends the look-up without a leader. A topic that does not exist may be about to appear."""
        since = lookup.missed_at = now if lookup.missed_at is None else lookup.missed_at
        refusal = self.metadata.refusal(lookup.partition.topic, since)
        if isinstance(refusal, UnknownTopicOrPartitionError) and now - since < self.config.request_timeout_ms / 1000:
            return None
        return refusal

    def _request(self, node_id: int, lookups: list[_OffsetLookup], now: float) -> UnsentRequest:
        topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        asked = _Asked(node_id)
        for lookup in lookups:
            lookup.asked = asked
            leader = self.metadata.cluster.leader(lookup.partition)
            epoch = leader.epoch if leader is not None and leader.epoch is not None else -1
            topics[lookup.partition.topic].append(
                ListOffsetsPartition(
                    partition_index=lookup.partition.partition, current_leader_epoch=epoch, timestamp=lookup.timestamp
                )
            )
        timeout_ms = self.config.request_timeout_ms
        request = ListOffsetsRequest(
            isolation_level=self.config.isolation_level.value,
            topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(parts)) for name, parts in topics.items()),
            timeout_ms=timeout_ms,
        )
        return UnsentRequest(
            message=request,
            node_id=node_id,
            on_done=self._late.watch(lambda outcome, at: self._answered(asked, lookups, outcome, at), now),
            expires_at=now + timeout_ms / 1000,
            withdrawn=lambda: not any(lookup.asked is asked and lookup.wanted() for lookup in lookups),
        )

    def _answered(self, asked: _Asked, lookups: list[_OffsetLookup], outcome: object, now: float) -> None:
        lookups = [lookup for lookup in lookups if lookup.asked is asked]  # the others ask the next leader by now
        for lookup in lookups:
            lookup.asked = None
        if isinstance(outcome, RequestWithdrawnError):
            return  # what is wanted again by now is asked for again
        answers: dict[TopicPartition, ListOffsetsPartitionResponse] = {}
        error: KafkaError | None = outcome if isinstance(outcome, KafkaError) else None
        if isinstance(outcome, ListOffsetsResponse):
            answers = {
                TopicPartition(topic.name, part.partition_index): part for topic in outcome.topics for part in topic.partitions
            }
        again: dict[TopicPartition, KafkaError] = {}
        well: set[TopicPartition] = set()
        for lookup in lookups:
            failure = error if error is not None else self._settle(lookup, answers.get(lookup.partition), now)
            if failure is None:
                well.add(lookup.partition)
            elif self._is_repeated(lookup, failure, now):
                again[lookup.partition] = failure
        failed = [(next(iter(again.values())), again.keys())] if again else ()
        self._outage.report(failed, well - again.keys(), now)

    def _settle(self, lookup: _OffsetLookup, answer: ListOffsetsPartitionResponse | None, now: float) -> KafkaError | None:
        """Answer a lookup, or return why that cannot be done."""
        if answer is None:
            return MalformedResponseError(f"a ListOffsets response leaves {lookup.partition} out")
        by_time = lookup.timestamp not in (EARLIEST, LATEST)
        if by_time and answer.error_code == UnsupportedForMessageFormatError.errno:
            self._answer(lookup, Found(-1, -1, None), now)  # segments from before timestamps existed: no offset, as in Java
        elif answer.error_code:
            return for_code(answer.error_code)
        elif answer.offset < 0 and not by_time:
            return MalformedResponseError(f"offset {answer.offset} for the end of {lookup.partition}")
        else:
            epoch = answer.leader_epoch if answer.leader_epoch >= 0 else None
            self.metadata.see_epoch(lookup.partition, epoch, now)
            self._answer(lookup, Found(answer.offset, answer.timestamp, epoch), now)
        return None

    def _answer(self, lookup: _OffsetLookup, outcome: Found | KafkaError, now: float) -> None:
        if self._lookups.pop(lookup.number, None) is not None:
            lookup.on_answer(outcome, now)

    def _is_repeated(self, lookup: _OffsetLookup, error: KafkaError, now: float) -> bool:
        """Return whether a lookup that failed is tried again; if not, its caller gets the error."""
        named = _naming(error, lookup.partition)
        if not error.retriable or isinstance(error, (UnsupportedVersionError, InvalidRequestError)):
            self._answer(lookup, named, now)
            return False
        lookup.error = named
        lookup.backoff.failed(now)
        if error.invalid_metadata or not isinstance(error, BrokerResponseError):  # what has not answered may lead no more
            self.metadata.request_update(now)
        return True


def _naming(error: KafkaError, partition: TopicPartition) -> KafkaError:
    """Return a broker's error with the partition it is about in its text."""
    errno = getattr(error, "errno", None)
    if errno is None:
        return error
    return for_code(errno, f"{partition}: {error.args[0] if error.args else ''}")


def _distinct(lookups: list[_OffsetLookup]) -> list[list[_OffsetLookup]]:
    """Split look-ups so that no request asks for one partition twice: the answer could not tell them apart."""
    groups: list[dict[TopicPartition, _OffsetLookup]] = []
    for lookup in lookups:
        for group in groups:
            if lookup.partition not in group:
                group[lookup.partition] = lookup
                break
        else:
            groups.append({lookup.partition: lookup})
    return [list(group.values()) for group in groups]
