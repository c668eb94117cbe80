"""All groups of a cluster, and the answers to the requests about them, one function per API.

Sessions do not end on their own: the time is checked at each request.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from attrs import define, evolve, field

from ....model import OffsetAndMetadata, TopicPartition
from ....wire import Api
from ....wire.messages import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    SyncGroupRequest,
    SyncGroupResponse,
    TopicPartitions,
)
from ..kafka_settings import GROUP
from ..sharing import Shares
from ..traffic import Caller
from ..waking import Answering
from .assignor import ASSIGNORS, Part, by_topic
from .classic import ClassicGroup, ClassicMember, State
from .consumer import LEAVES, ConsumerGroup, ConsumerMember, Refused, owned_by
from .fellows import Fellow
from .offsets import CommittedOffsets
from .patterns import is_valid

if TYPE_CHECKING:
    from ..broker import FakeBroker
    from ..cluster import FakeCluster

UNKNOWN_TOPIC, METADATA_TOO_LARGE, NO_COORDINATOR, NOT_COORDINATOR, REBALANCING = 3, 12, 15, 16, 27
ILLEGAL_GENERATION, INCONSISTENT, UNKNOWN_MEMBER, INVALID_REQUEST, UNSUPPORTED_VERSION = 22, 23, 25, 42, 35
GROUP_ID_NOT_FOUND, UNSTABLE_OFFSET, UNKNOWN_TOPIC_ID, BAD_PATTERN = 69, 88, 100, 128
INVALID_SESSION, TOPIC_FORBIDDEN, UNSUPPORTED_ASSIGNOR = 26, 29, 112
SESSION: Final = (1000, 1_800_000)
"""Milliseconds that a session of a classic member may last. By default ``group.min.session.timeout.ms`` is 6,000."""
_MOST_METADATA: Final = 4096
"""Bytes of text that a commit may carry (``offset.metadata.max.bytes``)."""
_COMMITS_OF_CONSUMER_GROUPS: Final = 9
"""Version of OffsetCommit from which it can carry a member epoch."""


@define(eq=False, repr=False)
class Groups:
    """The coordinators of a cluster: there is one for each group."""

    cluster: "FakeCluster"
    classic: dict[str, ClassicGroup] = field(factory=dict)
    consumer: dict[str, ConsumerGroup] = field(factory=dict)
    offsets: CommittedOffsets = field(factory=CommittedOffsets)
    settings: dict[str, str] = field(factory=lambda: {name: known.default for name, known in GROUP.items()})
    """Settings of groups, as DescribeConfigs returns them."""
    own: dict[str, dict[str, str]] = field(factory=dict)
    """Settings of single groups."""
    moved: dict[str, int] = field(factory=dict)
    """Groups that a test has moved to a broker."""
    shares: Shares = field(init=False)
    _ids: int = 0

    def __attrs_post_init__(self) -> None:
        self.shares = Shares(self.cluster)

    # --- who coordinates -------------------------------------------------------------------------------------------------------

    def coordinator(self, key: str) -> int | None:
        """Return the broker that coordinates a group or transaction; ``None`` if all are down."""
        chosen = self.moved.get(key)
        up = [node for node in sorted(self.cluster.brokers) if self.cluster.is_up(node)]
        return chosen if chosen in up else next(iter(up), None)

    def elsewhere(self, broker: "FakeBroker", key: str) -> int:
        """Return the error code if another broker coordinates the group or transaction, 0 if this one does."""
        return 0 if self.coordinator(key) == broker.node_id else NOT_COORDINATOR

    def settings_of(self, group_id: str) -> dict[str, str]:
        """Return the settings of a group."""
        return self.settings | self.own.get(group_id, {})

    # --- for tests -------------------------------------------------------------------------------------------------------------

    def names(self) -> set[str]:
        """Return the groups that have, or had, members or committed offsets."""
        return {*self.classic, *self.consumer, *self.shares.groups, *self.offsets.positions.groups}

    def members(self, group_id: str) -> list[str]:
        """Return the ids of the members of a group of either protocol."""
        self.expire(group_id)
        found: dict[str, Any] = {}
        tables: tuple[Mapping[str, Any], ...] = (self.classic, self.consumer, self.shares.groups)
        for table in tables:
            if group_id in table:
                found |= table[group_id].members
        return list(found)

    def settled(self, group_id: str) -> bool:
        """Return whether the group has members and each of them knows its whole assignment."""
        self.expire(group_id)
        classic, consumer = self.classic.get(group_id), self.consumer.get(group_id)
        share = self.shares.groups.get(group_id)
        if share is not None and share.members:
            return share.settled()
        if classic is not None and classic.members:
            return classic.settled()
        return consumer is not None and bool(consumer.members) and consumer.settled()

    def kick(self, group_id: str, member: str | None = None) -> None:
        """Forget a member, or all: their next request is answered as that of an unknown member."""
        now = self.cluster.clock.now()
        self.shares.kick(group_id, member)
        for gone in self.members(group_id) if member is None else [member]:
            if group_id in self.classic:
                self.classic[group_id].remove([gone], now)
            if group_id in self.consumer:
                self.consumer[group_id].members.pop(gone, None)
                self._aim(self.consumer[group_id])
        self.cluster.changed()

    def rebalance(self, group_id: str) -> None:
        """Make every member of a group join again, or swap partitions in the consumer protocol."""
        if group_id in self.classic and self.classic[group_id].members:
            self.classic[group_id].prepare(self.cluster.clock.now())
        if group_id in self.consumer:
            self.consumer[group_id].rotate()
            self.consumer[group_id].play(self.cluster.clock.now())
        self.cluster.changed()

    def seat(self, group_id: str, topics: Iterable[str], wanted: Iterable[TopicPartition] | None) -> Fellow:
        """Have a member join whose part a test plays: in the group's protocol, or that of the release if it is new."""
        fellow = Fellow(self._new_id(), frozenset(topics), None if wanted is None else frozenset(wanted))
        classic = self.classic.get(group_id)
        # A classic group that had members stays one: the consumer that is away for a moment speaks that protocol.
        taken = classic is not None and bool(classic.members or classic.generation)
        modern = Api.CONSUMER_GROUP_HEARTBEAT in self.cluster.max_versions and not taken
        (self._consumer if modern else self._classic)(group_id).seat(fellow)
        self.rejoin(group_id)
        return fellow

    def claim(self, group_id: str, fellow: Fellow, wanted: frozenset[TopicPartition]) -> None:
        """Have such a member take certain partitions."""
        fellow.wanted = wanted
        fellow.topics |= {tp.topic for tp in wanted}
        if group_id in self.consumer:
            self.consumer[group_id].members[fellow.id].topics = fellow.topics
        self.rejoin(group_id)

    def rejoin(self, group_id: str) -> None:
        """Make a group rebalance since what its members want has changed."""
        if group_id in self.classic:
            self.classic[group_id].prepare(self.cluster.clock.now())
        if group_id in self.consumer:
            self._aim(self.consumer[group_id])
        self.cluster.changed()

    def held(self, group_id: str, member_id: str) -> frozenset[TopicPartition]:
        """Return what a member has whose part a test plays."""
        classic, consumer = self.classic.get(group_id), self.consumer.get(group_id)
        if classic is not None and member_id in classic.members:
            fellow = classic.members[member_id].fellow
            return frozenset() if fellow is None else fellow.owned
        parts = consumer.members[member_id].assigned if consumer is not None and member_id in consumer.members else ()
        named = ((self.cluster.name_of(topic_id), index) for topic_id, index in parts)
        return frozenset(TopicPartition(name, index) for name, index in named if name is not None)

    def expire(self, group_id: str) -> None:
        """Remove the members whose session has ended."""
        now = self.cluster.clock.now()
        self.shares.expire(group_id)
        if group_id in self.classic:
            self.classic[group_id].expire(now)
        if group_id in self.consumer and self.consumer[group_id].expire(now):
            self._aim(self.consumer[group_id])

    def delete(self, group_id: str) -> None:
        """Forget a group and what it has committed."""
        self.classic.pop(group_id, None)
        self.consumer.pop(group_id, None)
        self.offsets.forget(group_id)
        self.shares.forget_group(group_id)

    def _is_shared(self, group_id: str) -> bool:
        """Whether it is a share group: it stays one when its members are gone. Groups of the other two kinds change places then."""
        return group_id in self.shares.groups

    # --- classic ---------------------------------------------------------------------------------------------------------------

    def _new_id(self, client_id: str = "") -> str:
        self._ids += 1
        return f"{client_id or 'member'}-{self._ids}"

    def _classic(self, group_id: str) -> ClassicGroup:
        """Return a classic group; one of the other protocol becomes one, which only those do in whose members no program is."""
        before = self.consumer.pop(group_id, None)
        if group_id not in self.classic:
            self.classic[group_id] = ClassicGroup(group_id, self._new_id, self.cluster.changed, self._parts_of)
            self._seat_again(self.classic[group_id], before)
        return self.classic[group_id]

    def _consumer(self, group_id: str) -> ConsumerGroup:
        before = self.classic.pop(group_id, None)
        if group_id not in self.consumer:
            self.consumer[group_id] = ConsumerGroup(group_id)
            self._seat_again(self.consumer[group_id], before)
        return self.consumer[group_id]

    @staticmethod
    def _seat_again(group: ClassicGroup | ConsumerGroup, before: ClassicGroup | ConsumerGroup | None) -> None:
        for member in before.members.values() if before is not None else ():
            if member.fellow is not None:
                group.seat(member.fellow)

    def _parts_of(self, topics: Iterable[str]) -> frozenset[TopicPartition]:
        known = ((name, self.cluster.topics[name]) for name in topics if name in self.cluster.topics)
        return frozenset(TopicPartition(name, part.index) for name, topic in known for part in topic.partitions)

    def join(self, broker: "FakeBroker", request: JoinGroupRequest, version: int, error: int) -> Answering[JoinGroupResponse]:
        """KIP-62, KIP-394: wait until all members have joined, or the rebalance timeout has passed."""
        self.expire(request.group_id)
        taken = _has_programs(self.consumer.get(request.group_id)) or self._is_shared(request.group_id)
        code = error or self.elsewhere(broker, request.group_id) or (INCONSISTENT if taken else 0)
        if not code and not SESSION[0] <= request.session_timeout_ms <= SESSION[1]:
            code = INVALID_SESSION
        if code:
            return JoinGroupResponse(error_code=code, member_id=request.member_id)
        group, caller = self._classic(request.group_id), broker.caller
        outcome = group.join(request, version, self.cluster.clock.now(), caller)
        member = outcome if isinstance(outcome, ClassicMember) else group.members.get(outcome.member_id)
        if member is not None:
            member.caller = caller
        if isinstance(outcome, JoinGroupResponse):
            return outcome
        return (yield from self._joined(group, outcome))

    def _joined(self, group: ClassicGroup, member: ClassicMember) -> Answering[JoinGroupResponse]:
        member.waits += 1
        generation = group.generation
        try:
            # A generation that is over before this has its turn, since a member left, is answered, too: the member joins anew.
            while group.state is State.PREPARING and group.generation == generation and group.members.get(member.id) is member:
                yield group.next_deadline(self.cluster.clock.now())
                group.expire(self.cluster.clock.now())
        finally:
            member.waits -= 1
            member.seen = self.cluster.clock.now()
        if group.members.get(member.id) is not member:
            return JoinGroupResponse(error_code=UNKNOWN_MEMBER, member_id=member.id)
        return group.answer(member)

    def sync(self, broker: "FakeBroker", request: SyncGroupRequest, version: int, error: int) -> Answering[SyncGroupResponse]:
        """Wait for the leader's assignment."""
        code = error or self._speaks(broker, request)
        if code:
            return SyncGroupResponse(error_code=code)
        group = self.classic[request.group_id]
        member, generation = group.members[request.member_id], group.generation
        if group.state is State.COMPLETING and member.id == group.leader:
            group.assign(request.assignments, self.cluster.clock.now())
        member.waits += 1
        try:
            while group.state is State.COMPLETING and group.generation == generation:
                yield group.next_deadline(self.cluster.clock.now())
                group.expire(self.cluster.clock.now())
        finally:
            member.waits -= 1
        code = group.check(request.member_id, request.group_instance_id, None)
        if not code and (group.state is not State.STABLE or group.generation != generation):
            code = REBALANCING
        if code:
            return SyncGroupResponse(error_code=code)
        member.synced = generation
        self.cluster.changed()
        return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment)

    def heartbeat(self, broker: "FakeBroker", request: HeartbeatRequest, version: int, error: int) -> HeartbeatResponse:
        """Keep the session alive, and report that the group rebalances."""
        return HeartbeatResponse(error_code=error or self._speaks(broker, request))

    def _speaks(self, broker: "FakeBroker", request: SyncGroupRequest | HeartbeatRequest) -> int:
        self.expire(request.group_id)
        group = self.classic.get(request.group_id)
        if self.elsewhere(broker, request.group_id) or group is None:
            return self.elsewhere(broker, request.group_id) or UNKNOWN_MEMBER
        code = group.check(request.member_id, request.group_instance_id, request.generation_id)
        if code:
            return code
        group.members[request.member_id].seen = self.cluster.clock.now()
        return REBALANCING if group.state is State.PREPARING else 0

    def leave(self, broker: "FakeBroker", request: LeaveGroupRequest, version: int, error: int) -> LeaveGroupResponse:
        """KIP-345: several members may be named, static ones by their instance id alone."""
        self.expire(request.group_id)
        code = error or self.elsewhere(broker, request.group_id)
        if code:
            return LeaveGroupResponse(error_code=code)
        results = tuple(self._left(request.group_id, member) for member in request.members)
        alone = results[0].error_code if version < 3 and results else 0
        return LeaveGroupResponse(error_code=alone, members=results)

    def _left(self, group_id: str, who: MemberIdentity) -> MemberResponse:
        group = self.classic.get(group_id)
        if group is None:
            return MemberResponse(member_id=who.member_id, group_instance_id=who.group_instance_id, error_code=UNKNOWN_MEMBER)
        holder = group.static(who.group_instance_id)
        key = holder.id if holder is not None and not who.member_id else who.member_id
        waiting = group.pending.pop(key, None) is not None
        code = 0 if waiting else group.check(key, who.group_instance_id, None)
        if not code:
            group.remove([key], self.cluster.clock.now())
        return MemberResponse(member_id=who.member_id, group_instance_id=who.group_instance_id, error_code=code)

    # --- consumer --------------------------------------------------------------------------------------------------------------

    def beat(
        self, broker: "FakeBroker", request: ConsumerGroupHeartbeatRequest, version: int, error: int
    ) -> ConsumerGroupHeartbeatResponse:
        """KIP-848."""
        self.expire(request.group_id)
        taken = _has_programs(self.classic.get(request.group_id))
        code = error or self.elsewhere(broker, request.group_id) or (INCONSISTENT if taken else 0)
        if code:
            return ConsumerGroupHeartbeatResponse(error_code=code)
        if self._is_shared(request.group_id):
            return ConsumerGroupHeartbeatResponse(error_code=GROUP_ID_NOT_FOUND)
        group = self._consumer(request.group_id)
        group.session = float(self.settings_of(request.group_id)["consumer.session.timeout.ms"]) / 1000
        try:
            known = request if request.member_id else evolve(request, member_id=self._new_id())
            return self._beat(group, known, broker.caller)
        except Refused as refused:
            return ConsumerGroupHeartbeatResponse(error_code=refused.code)

    def _beat(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerGroupHeartbeatResponse:
        now = self.cluster.clock.now()
        if request.member_epoch <= LEAVES:
            group.leave(request)
            self._aim(group)
            return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
            raise Refused(UNSUPPORTED_ASSIGNOR)
        member = group.enter(request, now) if request.member_epoch == 0 else group.stay(request)
        member.caller = caller
        self._subscribe(member, request, now)
        self._aim(group)
        before = member.assigned, member.revoking, member.epoch
        group.reconcile(member, owned_by(request), now)
        group.play(now)
        if before != (member.assigned, member.revoking, member.epoch):
            self.cluster.changed()
        whole = request.member_epoch == 0 or request.subscribed_topic_names is not None or before[0] != member.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=int(self.settings_of(group.id)["consumer.heartbeat.interval.ms"]),
            assignment=_assignment_of(member.assigned) if whole else None,
        )

    def _subscribe(self, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, now: float) -> None:
        member.seen = now
        if request.rebalance_timeout_ms >= 0:
            member.rebalance = request.rebalance_timeout_ms / 1000
        if request.server_assignor is not None:
            member.assignor = request.server_assignor
        if request.subscribed_topic_names is not None:
            member.topics = frozenset(request.subscribed_topic_names)
        if request.subscribed_topic_regex is not None:
            if not is_valid(request.subscribed_topic_regex):
                raise Refused(BAD_PATTERN)
            member.pattern = request.subscribed_topic_regex

    def _aim(self, group: ConsumerGroup) -> None:
        fellows = {key: member.fellow for key, member in group.members.items() if member.fellow is not None}
        claims = {key: frozenset(self._ids_of(each.wanted)) for key, each in fellows.items() if each.wanted is not None}
        if group.aim({key: frozenset(self._matching(member)) for key, member in group.members.items()}, claims):
            self.cluster.changed()
        group.play(self.cluster.clock.now())

    def _ids_of(self, partitions: Iterable[TopicPartition]) -> Iterator[Part]:
        yield from ((self.cluster.topics[tp.topic].id, tp.partition) for tp in partitions if tp.topic in self.cluster.topics)

    def _matching(self, member: ConsumerMember) -> Iterator[Part]:
        for name, topic in self.cluster.topics.items():
            if not topic.error and (name in member.topics or (member.pattern and re.fullmatch(member.pattern, name))):
                yield from ((topic.id, part.index) for part in topic.partitions)

    # --- offsets ---------------------------------------------------------------------------------------------------------------

    def commit(self, broker: "FakeBroker", request: OffsetCommitRequest, version: int, error: int) -> OffsetCommitResponse:
        """Accept commits of members in their generation or epoch, and of anybody if the group has no members."""
        self.expire(request.group_id)
        missing = GROUP_ID_NOT_FOUND if self._is_shared(request.group_id) else 0
        code = error or self.elsewhere(broker, request.group_id) or missing or self._refuses(request, version)
        if not code and request.group_id not in self.consumer:
            self._classic(request.group_id)  # a commit makes the group, and it stays when its offsets go
        return OffsetCommitResponse(topics=tuple(self._commit(request.group_id, topic, code) for topic in request.topics))

    def _refuses(self, request: OffsetCommitRequest, version: int) -> int:
        epoch = request.generation_id_or_member_epoch
        consumer, classic = self.consumer.get(request.group_id), self.classic.get(request.group_id)
        if consumer is not None and (consumer.members or epoch >= 0):
            if version < _COMMITS_OF_CONSUMER_GROUPS and consumer.members:
                return UNSUPPORTED_VERSION
            return consumer.check(request.member_id, epoch)
        if classic is None or not classic.members:
            return 0 if epoch < 0 else UNKNOWN_MEMBER if classic is not None else ILLEGAL_GENERATION
        code = classic.check(request.member_id, request.group_instance_id, epoch)
        if not code:
            classic.members[request.member_id].seen = self.cluster.clock.now()
        return code or (REBALANCING if classic.state is State.COMPLETING else 0)

    def refuses_transaction(self, group_id: str, member_id: str, instance: str | None, epoch: int) -> int:
        """Return why a transaction may not take offsets, 0 if it may. Without a member id it always may (KIP-447)."""
        self.expire(group_id)
        consumer, classic = self.consumer.get(group_id), self.classic.get(group_id)
        if epoch < 0 and not member_id:
            return 0
        if consumer is not None:
            return consumer.check(member_id, epoch)
        return classic.check(member_id, instance, epoch) if classic is not None else ILLEGAL_GENERATION

    def _commit(self, group_id: str, topic: OffsetCommitRequestTopic, code: int) -> OffsetCommitResponseTopic:
        name = topic.name or self.cluster.name_of(topic.topic_id) or ""
        results = []
        for part in topic.partitions:
            refused = code or self._unknown(name, topic.topic_id, part)
            if not refused:
                epoch = part.committed_leader_epoch
                said = OffsetAndMetadata(part.committed_offset, part.committed_metadata or "", epoch if epoch >= 0 else None)
                self.offsets.store(group_id, TopicPartition(name, part.partition_index), said)
            results.append(OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=refused))
        return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(results))

    def _unknown(self, name: str, topic_id: UUID | None, part: OffsetCommitRequestPartition) -> int:
        if not name:
            return UNKNOWN_TOPIC_ID
        known = self.cluster.topics.get(name)
        if known is not None and known.error:
            return known.error
        if self.cluster.find(name, part.partition_index) is None:
            return UNKNOWN_TOPIC
        return METADATA_TOO_LARGE if len((part.committed_metadata or "").encode()) > _MOST_METADATA else 0

    def fetch_offsets(self, broker: "FakeBroker", request: OffsetFetchRequest, version: int, error: int) -> OffsetFetchResponse:
        """KIP-709, KIP-447."""
        return OffsetFetchResponse(
            groups=tuple(self._fetch_group(broker, each, version, error, request.require_stable) for each in request.groups)
        )

    def _fetch_group(
        self, broker: "FakeBroker", asked: OffsetFetchRequestGroup, version: int, error: int, stable: bool
    ) -> OffsetFetchResponseGroup:
        self.expire(asked.group_id)
        code = error or self.elsewhere(broker, asked.group_id)
        group = self.consumer.get(asked.group_id)
        if not code and asked.member_id and asked.member_epoch >= 0 and group is not None:
            code = group.check(asked.member_id, asked.member_epoch)
        if code:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
        topics = self._all_topics(asked.group_id) if asked.topics is None else asked.topics
        return OffsetFetchResponseGroup(
            group_id=asked.group_id, topics=tuple(self._fetch_topic(asked.group_id, topic, stable) for topic in topics)
        )

    def _all_topics(self, group_id: str) -> Iterable[OffsetFetchRequestTopics]:
        found: dict[str, list[int]] = {}
        for tp in self.offsets.of(group_id):
            found.setdefault(tp.topic, []).append(tp.partition)
        for name, indexes in found.items():
            topic = self.cluster.topics.get(name)
            if topic is not None and topic.error == TOPIC_FORBIDDEN:
                continue  # brokers do not name what the client may not see
            yield OffsetFetchRequestTopics(name=name, topic_id=topic.id if topic else None, partition_indexes=tuple(indexes))

    def _fetch_topic(self, group_id: str, topic: OffsetFetchRequestTopics, stable: bool) -> OffsetFetchResponseTopics:
        name = topic.name or self.cluster.name_of(topic.topic_id)
        parts = tuple(self._fetch_one(group_id, name, index, stable) for index in topic.partition_indexes)
        return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=parts)

    def _fetch_one(self, group_id: str, name: str | None, index: int, stable: bool) -> OffsetFetchResponsePartitions:
        if name is None:
            return OffsetFetchResponsePartitions(partition_index=index, error_code=UNKNOWN_TOPIC_ID)
        if (known := self.cluster.topics.get(name)) is not None and known.error == TOPIC_FORBIDDEN:
            return OffsetFetchResponsePartitions(partition_index=index, error_code=TOPIC_FORBIDDEN)
        key = group_id, TopicPartition(name, index)
        if stable and self.offsets.undecided(*key):
            return OffsetFetchResponsePartitions(partition_index=index, error_code=UNSTABLE_OFFSET)
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=self.offsets.positions.get(key, -1),
            committed_leader_epoch=self.offsets.epochs.get(key, -1),
            metadata=self.offsets.metadata.get(key, ""),
        )


def _has_programs(group: ClassicGroup | ConsumerGroup | None) -> bool:
    """Return whether a group has members other than those whose part a test plays, which speak either protocol."""
    return group is not None and any(member.fellow is None for member in group.members.values())


def _assignment_of(parts: frozenset[Part]) -> Assignment:
    topics = by_topic(parts).items()
    return Assignment(topic_partitions=tuple(TopicPartitions(topic_id=each, partitions=found) for each, found in topics))


def find_coordinator(broker: "FakeBroker", request: FindCoordinatorRequest, version: int, error: int) -> FindCoordinatorResponse:
    """Find the coordinator of a group or a transaction: the first broker that is up, unless a test has moved it."""
    return FindCoordinatorResponse(coordinators=tuple(_found(broker, key, error) for key in request.coordinator_keys))


def _found(broker: "FakeBroker", key: str, error: int) -> Coordinator:
    cluster = broker.cluster
    node = cluster.groups.coordinator(key)
    if error or node is None:
        return Coordinator(key=key, error_code=error or NO_COORDINATOR)
    chosen = cluster.brokers[node]
    return Coordinator(key=key, node_id=node, host=chosen.host, port=chosen.port)
