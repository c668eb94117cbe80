"""Polling whoever may have something to do, beside polling everybody: the same script of events, and nothing may come later.

Two backgrounds live through the same random script: calls of the application, answers, errors, connections that come and go, and
turns at odd moments. One polls by its agenda, the other one polls every manager in every turn. After each turn both must have sent,
published, traced and delivered the same.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from kafka_async.errors import KafkaConnectionError, KafkaTimeoutError, RequestWithdrawnError
from kafka_async.events import (
    AssignFromUser,
    AssignmentApplied,
    AssignPartitions,
    BackgroundEvent,
    Call,
    CommitOffsets,
    FetchCommitted,
    FindPositions,
    ListOffsets,
    PartitionsAssigned,
    PartitionsRevoked,
    PausePartitions,
    ResetOffset,
    ResumePartitions,
    RevokePartitions,
    SubscribeTopics,
    TopicMetadata,
    Unsubscribe,
)
from kafka_async.model import OffsetAndMetadata, TopicPartition
from kafka_async.network import Reachability, UnsentRequest
from kafka_async.wire import Api, BrokerVersions, VersionRange
from kafka_async.wire.codec import encode_assignment
from kafka_async.wire.messages import (
    Coordinator,
    EpochEndOffset,
    FetchRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kafka_async.wire.messages.group import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerProtocolAssignment,
    ConsumerProtocolTopicPartition,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TopicPartitions,
)

from ..support import A, B, C, World, cluster, data, described, fetched, records, topic_id

PARTITIONS = (A, B, C)
OFFERED = BrokerVersions(ranges={api: VersionRange(0, 20) for api in Api})
STEPS = 150
RETRIABLE = (3, 5, 6, 7, 74, 75, 78)
"""Error codes of partitions: unknown, without a leader, led elsewhere, late, fenced and unknown epochs, offset not available."""
OF_GROUPS = (14, 15, 16, 22, 25, 27, 110, 113)
"""Error codes of groups: loading, no coordinator, not the coordinator, generation, member, rebalance, fenced and stale epochs."""


class Pair:
    """The two backgrounds and what they live through."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.random = Random(seed)  # noqa: S311  # for a script that repeats
        self.lazy = World(**options)
        self.eager = World(**options)
        self.now = 0.0
        self.stamp = 0
        self.number = 0
        self.epoch = 0
        self.calls: list[tuple[Call[Any], Call[Any]]] = []
        self.proposals: list[BackgroundEvent] = []

    @property
    def worlds(self) -> tuple[World, World]:
        return self.lazy, self.eager

    # --- a turn ----------------------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        self.eager.background.agenda.touch()
        for world in self.worlds:
            world.poll(self.now)
        events = [world.events() for world in self.worlds]
        seen = [{**self._seen(world), "events": list(map(repr, said))} for world, said in zip(self.worlds, events, strict=True)]
        assert seen[0] == seen[1], f"at {self.now}"
        self.proposals += events[0]

    def _seen(self, world: World) -> Mapping[str, Any]:
        trace, world.seen[:] = [repr(event) for event in world.seen], []
        return {
            "requests": [(repr(r.message), r.node_id, r.channel, r.expires_at, r.final) for r in world.unsent],
            "trace": trace,
            "parcels": [repr(parcel) for parcel in world.buffer.parcels],
            "session": world.handler.session_deadline,
            "calls": [call.done for call, _ in self.calls] if world is self.lazy else [call.done for _, call in self.calls],
        }

    # --- what may happen -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (20, self.answer),
            (4, self.fail),
            (2, self.send),
            (2, self.carry_out),
            (4, self.read),
            (1, self.connect),
            (8, lambda: None),
        ]
        self.random.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()
        self.turn()
        due_at = min(world.wake_at for world in self.worlds)
        odd = self.now + self.random.choice((0.0, 0.001, 0.03, 0.2, 1.0))
        on_time = self.random.random() < 0.3
        self.now = max(self.now, min(due_at, self.now + 60.0 if on_time else odd))

    def answer(self) -> None:
        self._end(lambda request: self._reply(request))

    def fail(self) -> None:
        error = self.random.choice((KafkaConnectionError("cut"), KafkaTimeoutError("late")))
        self._end(lambda request: error)

    def _end(self, reply: Callable[[UnsentRequest], object]) -> None:
        count = len(self.lazy.unsent)
        if count:
            place = self.random.randrange(count)
            requests = [world.unsent.pop(place) for world in self.worlds]
            outcome = reply(requests[0])
            for request in requests:
                request.on_done(RequestWithdrawnError() if request.withdrawn() else outcome, self.now)

    def read(self) -> None:
        for world in self.worlds:
            world.handler.polled_at = self.now
            world.read_all()

    def connect(self) -> None:
        usable, offered = self.random.random() < 0.7, self.random.choice((None, OFFERED))
        since = None if usable else self.now
        for world in self.worlds:
            world.network.usable, world.network.offered = usable, offered
            world.network.reach = Reachability(since, None)

    def carry_out(self) -> None:
        while self.proposals:
            event = self.proposals.pop(0)
            for world in self.worlds:
                if isinstance(event, AssignPartitions):
                    stamps = {tp: self.stamp + n for n, tp in enumerate(sorted(event.partitions), 1)}
                    world.stamps = stamps
                    world.send(AssignmentApplied(stamps=stamps))
                    world.send(PartitionsAssigned(number=event.number))
                elif isinstance(event, RevokePartitions):
                    world.stamps = {tp: stamp for tp, stamp in world.stamps.items() if tp not in event.partitions}
                    world.send(AssignmentApplied(stamps=dict(world.stamps)))
                    world.send(PartitionsRevoked(number=event.number))
            self.stamp += 10

    def call(self) -> tuple[Call[Any], Call[Any]]:
        deadline = self.now + self.random.choice((0.05, 1.0, 20.0))
        calls = Call[Any](deadline), Call[Any](deadline)
        self.calls.append(calls)
        return calls

    def send(self) -> None:  # noqa: C901  # one match, an event a case
        some = frozenset(self.random.sample(PARTITIONS, self.random.randint(1, 3)))
        what = self.random.randrange(11)
        if what == 0 and self.calls:
            for call in self.random.choice(self.calls):
                call.withdraw()
            return
        self.number += 1
        self.stamp += 10
        offset, calls = self.random.randrange(5), self.call() if what >= 5 else (Call(0.0), Call(0.0))
        for world, call in zip(self.worlds, calls, strict=True):
            held = frozenset(world.stamps)
            match what:
                case 0 | 1:
                    if world.background.group is None:
                        world.stamps = {tp: self.stamp + n for n, tp in enumerate(sorted(some))}
                        world.send(AssignFromUser(stamps=dict(world.stamps), subscription=self.number))
                    else:
                        world.send(SubscribeTopics(topics=frozenset(("t",)), subscription=self.number))
                case 2:
                    for partition in sorted(some & held):
                        world.seek(partition, offset, 0)
                case 3:
                    world.send((PausePartitions if offset < 2 else ResumePartitions)(partitions=some & held))
                case 4:
                    world.send(ResetOffset(stamps=dict.fromkeys(some & held, self.stamp), strategy="latest"))
                    world.stamps |= dict.fromkeys(some & held, self.stamp)
                case 5:
                    world.send(FindPositions(call=call, partitions=some))
                case 6:
                    world.send(ListOffsets(call=call, timestamps=dict.fromkeys(sorted(some), -1)))
                case 7:
                    world.send(TopicMetadata(call=call, topics=frozenset(("t", "u")), fail_fast=offset < 2))
                case 8:
                    world.send(FetchCommitted(call=call, partitions=some))
                case 9:
                    offsets = {tp: OffsetAndMetadata(offset) for tp in sorted(some & held)}
                    world.send(CommitOffsets(call=call, offsets=offsets, once=offset < 2))
                case _:
                    world.stamps = {}
                    world.send(Unsubscribe(call=call, subscription=self.number))

    # --- a cluster -------------------------------------------------------------------------------------------------------------

    def _reply(self, request: UnsentRequest) -> object:  # noqa: C901 - one match, an answer for each request
        unlucky = self.random.random() < 0.15
        code = self.random.choice(RETRIABLE) if unlucky else 0
        of_group = self.random.choice(OF_GROUPS) if unlucky else 0
        offset = self.random.randrange(10)
        match request.message:
            case MetadataRequest():
                leaders = (1, 2, -1) if unlucky else (1, 1, 2)
                self.epoch += unlucky
                return cluster(described("t", leaders, epoch=self.epoch), brokers=(1, 2) if offset else (1,))
            case FetchRequest() as fetch:
                return self._fetched(fetch, code, offset)
            case ListOffsetsRequest(topics=topics):
                parts = [(topic.name, part.partition_index) for topic in topics for part in topic.partitions]
                return ListOffsetsResponse(
                    topics=tuple(
                        ListOffsetsTopicResponse(
                            name=name,
                            partitions=(ListOffsetsPartitionResponse(partition_index=index, error_code=code, offset=offset),),
                        )
                        for name, index in parts
                    )
                )
            case OffsetForLeaderEpochRequest(topics=asked):
                ends = [(topic.topic, part.partition) for topic in asked for part in topic.partitions]
                return OffsetForLeaderEpochResponse(
                    topics=tuple(
                        OffsetForLeaderTopicResult(
                            topic=name,
                            partitions=(EpochEndOffset(partition=index, error_code=code, leader_epoch=0, end_offset=offset),),
                        )
                        for name, index in ends
                    )
                )
            case FindCoordinatorRequest():
                error = 15 if unlucky else 0
                node = self.random.choice((1, 2))
                return FindCoordinatorResponse(
                    coordinators=(Coordinator(key="g", node_id=node, host=f"b{node}", port=9092, error_code=error),)
                )
            case OffsetFetchRequest(groups=groups):
                return self._stored(groups[0].topics or (), of_group, offset)
            case OffsetCommitRequest(topics=committed):
                return OffsetCommitResponse(
                    topics=tuple(
                        OffsetCommitResponseTopic(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=tuple(
                                OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=of_group)
                                for part in topic.partitions
                            ),
                        )
                        for topic in committed
                    )
                )
            case ConsumerGroupHeartbeatRequest(member_epoch=epoch):
                share = TopicPartitions(topic_id=topic_id("t"), partitions=tuple(range(self.random.randint(0, 3))))
                return ConsumerGroupHeartbeatResponse(
                    error_code=of_group if of_group not in (22, 27) else 0,
                    member_id="me",
                    member_epoch=max(1, epoch) if epoch >= 0 else epoch,
                    heartbeat_interval_ms=5000,
                    assignment=Assignment(topic_partitions=(share,)) if offset < 3 else None,
                )
            case JoinGroupRequest(member_id=member, protocols=protocols):
                return JoinGroupResponse(
                    error_code=of_group if of_group < 100 else 0,
                    generation_id=self.number,
                    protocol_name=protocols[0].name,
                    leader="another",
                    member_id=member or "me",
                )
            case SyncGroupRequest():
                owned = ConsumerProtocolTopicPartition(topic="t", partitions=tuple(range(self.random.randint(0, 3))))
                assignment = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=(owned,)))
                return SyncGroupResponse(error_code=of_group if of_group < 100 else 0, assignment=assignment)
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=of_group if of_group < 100 else 0)
            case LeaveGroupRequest():
                return LeaveGroupResponse()
        return KafkaConnectionError("no answer to that")

    def _fetched(self, fetch: FetchRequest, code: int, offset: int) -> object:
        if offset == 9:
            return fetched(error_code=self.random.choice((70, 71)))
        parts = [
            data(
                TopicPartition("t", part.partition),
                records(part.fetch_offset, offset) if not code and 0 < offset < 6 else b"",
                error_code=1 if offset == 8 else code,
            )
            for topic in fetch.topics
            for part in topic.partitions
        ]
        return fetched(*parts)

    def _stored(self, topics: Any, code: int, offset: int) -> object:
        return OffsetFetchResponse(
            groups=(
                OffsetFetchResponseGroup(
                    group_id="g",
                    error_code=code,
                    topics=tuple(
                        OffsetFetchResponseTopics(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=tuple(
                                OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset - 2)
                                for index in topic.partition_indexes
                            ),
                        )
                        for topic in topics
                    ),
                ),
            )
        )


MODES: Mapping[str, Mapping[str, Any]] = {
    "alone": {},
    "consumer": {"group_id": "g", "group_protocol": "consumer"},
    "classic": {"group_id": "g", "group_protocol": "classic"},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(16))
def test_nothing_comes_later_than_with_polling_everybody(mode: str, seed: int) -> None:
    pair = Pair(seed, **MODES[mode], metadata_max_age_ms=20_000)
    for _ in range(STEPS):
        pair.step()
