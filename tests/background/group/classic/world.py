"""One member in the classic protocol with everything around it in the test's hand: coordinator, metadata, application, clock."""

from collections.abc import Mapping
from math import inf
from typing import Any

from attrs import define, evolve, field

from kafka_async.background.group.classic.assignment import Assignor
from kafka_async.background.group.classic.assignors import assignors_from
from kafka_async.background.group.classic.classic_membership import ClassicMembership
from kafka_async.background.group.classic.requests import PROTOCOL_TYPE
from kafka_async.background.group.membership import Identity, PollProgress
from kafka_async.background.loop.request_manager import Poll
from kafka_async.background.positions.subscription import Subscription
from kafka_async.config import ConsumerConfig
from kafka_async.errors import KafkaError, RequestWithdrawnError, UnknownTopicOrPartitionError
from kafka_async.events import PartitionDescription, TopicDescription
from kafka_async.model import Node, TopicPartition
from kafka_async.network import Channel, UnsentRequest
from kafka_async.trace import StateChanged, TraceEvent
from kafka_async.wire import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
    encode_assignment,
    encode_subscription,
)
from kafka_async.wire.messages import ConsumerProtocolTopicPartition, JoinGroupResponseMember

ONE, TWO = Node(1, "one", 9092, "r1"), Node(2, "two", 9092, "r2")
A0, A1, A2, B0 = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0))
A, AB = Subscription(topics=frozenset("a")), Subscription(topics=frozenset("ab"))
ME = "me-1"


def config(**options: Any) -> ConsumerConfig:
    return ConsumerConfig.from_options({"group_id": "g", "heartbeat_interval_ms": 3_000, "session_timeout_ms": 9_000, **options})


def topic(name: str, partitions: int, *, internal: bool = False) -> TopicDescription:
    return TopicDescription(
        name=name,
        topic_id=None,
        internal=internal,
        partitions=tuple(
            PartitionDescription(partition=number, leader=1, leader_epoch=0, replicas=(1 + number % 2,), isr=())
            for number in range(partitions)
        ),
    )


@define(eq=False)
class Metadata:
    topics: dict[str, TopicDescription] = field(factory=lambda: {"a": topic("a", 3), "b": topic("b", 1)})
    nodes: Mapping[int, Node] = field(factory=lambda: {1: ONE, 2: TWO})
    version: int = 1
    covers_all: bool = False
    updates: int = 0
    problems: dict[str, KafkaError] = field(factory=dict)
    answered_at: float = inf
    """When the last answer came."""

    def answered_since(self, moment: float) -> bool:
        return self.answered_at > moment

    def request_update(self, now: float) -> None:
        self.updates += 1

    def problem(self, topic: str) -> KafkaError | None:
        return self.problems.get(topic)

    def update(self, *topics: TopicDescription, gone: tuple[str, ...] = ()) -> None:
        self.topics.update({topic.name: topic for topic in topics})
        for name in gone:
            self.topics.pop(name, None)
            self.problems[name] = UnknownTopicOrPartitionError()
        self.version += 1


@define(eq=False)
class Coordinator:
    coordinator: Node | None = ONE
    latest: Node | None = ONE
    fatal: KafkaError | None = None
    is_out_of_reach: bool = False
    wanted: int = 0
    reports: list[tuple[int, KafkaError | None]] = field(factory=list)
    served_at: float | None = None

    def request(self, now: float) -> None:
        self.wanted += 1

    def lost(self, node_id: int, error: KafkaError | None, now: float) -> None:
        self.reports.append((node_id, error))
        if self.coordinator is not None and self.coordinator.id == node_id:
            self.coordinator = None

    def served(self, now: float) -> None:
        self.served_at = now

    def is_settling_in(self, error: KafkaError, now: float) -> bool:
        return False

    def found(self, node: Node) -> None:
        self.coordinator = self.latest = node


@define(eq=False)
class Host:
    """The application: what it was asked for, what it holds."""

    have: frozenset[TopicPartition] = frozenset()
    revocations: list[tuple[int, frozenset[TopicPartition], bool]] = field(factory=list)
    assignments: list[tuple[int, frozenset[TopicPartition]]] = field(factory=list)
    errors: list[KafkaError] = field(factory=list)
    final: KafkaError | None = None
    returning: list[bool] = field(factory=list)
    """Of the revocations."""
    successive: list[bool] = field(factory=list)
    """Of the assignments."""
    stopped: set[TopicPartition] = field(factory=set)
    seen: PollProgress = field(factory=lambda: PollProgress(polled_at=0.0, polling=True))

    def publish_revocation(
        self, number: int, partitions: frozenset[TopicPartition], *, lost: bool, returning: bool = False
    ) -> None:
        self.revocations.append((number, partitions, lost))
        self.returning.append(returning)

    def publish_assignment(self, number: int, partitions: frozenset[TopicPartition], *, successive: bool = True) -> None:
        self.assignments.append((number, partitions))
        self.successive.append(successive)

    def publish_error(self, error: KafkaError, *, final: bool = False) -> None:
        self.errors.append(error)
        self.final = error if final else self.final

    def stop_fetching(self, partitions: frozenset[TopicPartition]) -> None:
        self.stopped |= partitions

    def owned(self) -> frozenset[TopicPartition]:
        return self.have

    def progress(self) -> PollProgress:
        return self.seen

    def partition_counts(self) -> Mapping[str, int]:
        return {}


@define(eq=False)
class World:
    """Drives the member; every turn checks that it is not woken for something that it cannot do."""

    options: dict[str, Any] = field(factory=dict)
    assignors: tuple[Assignor, ...] | None = None
    metadata: Metadata = field(factory=Metadata)
    coordinator: Coordinator = field(factory=Coordinator)
    host: Host = field(factory=Host)
    flying: list[UnsentRequest] = field(factory=list)
    events: list[TraceEvent] = field(factory=list)
    member: ClassicMembership = field(init=False)

    def __attrs_post_init__(self) -> None:
        options = config(**self.options)
        self.member = ClassicMembership.of(
            config=options,
            coordinator=self.coordinator,
            metadata=self.metadata,
            host=self.host,
            assignors=self.assignors or assignors_from(options),
            random=lambda: 0.5,
            trace=self.events.append,
        )

    # --- time ------------------------------------------------------------------------------------------------------------------

    def turn(self, now: float) -> Poll:
        poll = self.member.poll(now)
        assert poll.wake_at > now
        for request in tuple(self.flying):
            if request.withdrawn():
                self.flying.remove(request)
                request.on_done(RequestWithdrawnError(), now)
        self.flying.extend(poll.requests)
        return poll

    def sent(self, now: float) -> list[str]:
        """Take a turn and name what it sent."""
        return [request.name for request in self.turn(now).requests]

    def message(self, name: str) -> Any:
        """Return the message of the newest request with this name that is not answered."""
        return next(request for request in reversed(self.flying) if request.name == name).message

    def reply(self, outcome: Any, now: float) -> None:
        """Answer the request that the outcome is for; an error answers the newest one."""
        name = type(outcome).__name__.removesuffix("Response")
        request = next(r for r in reversed(self.flying) if isinstance(outcome, KafkaError) or r.name == name)
        self.flying.remove(request)
        if isinstance(outcome, JoinGroupResponse) and not outcome.error_code and outcome.protocol_name is None:
            message: Any = request.message
            outcome = evolve(outcome, protocol_name=message.protocols[0].name)
        request.on_done(outcome, now)

    # --- walks -----------------------------------------------------------------------------------------------------------------

    def join(self, now: float, *partitions: TopicPartition, generation: int = 1, leader: str = "other") -> None:
        """Carry a JoinGroup through up to the proposal, as a follower."""
        self.turn(now)
        self.reply(joined(generation=generation, leader=leader), now)
        self.turn(now)
        self.reply(synced(*partitions), now)

    def take_over(self, now: float) -> None:
        """Have the application carry the last assignment out."""
        number, partitions = self.host.assignments[-1]
        self.host.have = partitions
        self.member.assigned(number, now)

    def give_up(self, now: float) -> None:
        """Have the application carry the last revocation out."""
        number, partitions, _ = self.host.revocations[-1]
        self.host.have -= partitions
        self.member.revoked(number, now)

    def settle(self, now: float, *partitions: TopicPartition, generation: int = 1) -> "World":
        """Subscribe, join and take over."""
        self.member.subscribe(A, now)
        self.join(now, *partitions, generation=generation)
        self.take_over(now)
        self.turn(now)
        return self

    def moves(self) -> list[str]:
        """The states gone through."""
        return [event.after for event in self.events if isinstance(event, StateChanged)]


def world(**options: Any) -> World:
    return World(options)


def cooperative(**options: Any) -> World:
    return World({"partition_assignment_strategy": ("cooperative-sticky",), **options})


def said(
    topics: str, *owned: TopicPartition, generation: int = -1, user_data: bytes | None = None, rack: str | None = None
) -> bytes:
    return encode_subscription(
        ConsumerProtocolSubscription(
            topics=tuple(topics),
            user_data=user_data,
            owned_partitions=tuple(ConsumerProtocolTopicPartition(topic=p.topic, partitions=(p.partition,)) for p in owned),
            generation_id=generation,
            rack_id=rack,
        )
    )


def joined(
    *,
    generation: int = 1,
    leader: str = "other",
    protocol: str | None = None,
    members: Mapping[str, bytes] | None = None,
    **more: Any,
) -> JoinGroupResponse:
    """A JoinGroup answer for ``ME``; the assignor is the first that was offered unless it is given."""
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        leader=leader,
        member_id=ME,
        members=tuple(JoinGroupResponseMember(member_id=key, metadata=data) for key, data in (members or {}).items()),
        **more,
    )


def synced(*partitions: TopicPartition) -> SyncGroupResponse:
    topics = tuple(ConsumerProtocolTopicPartition(topic=p.topic, partitions=(p.partition,)) for p in partitions)
    return SyncGroupResponse(
        assignment=encode_assignment(ConsumerProtocolAssignment(assigned_partitions=topics)) if topics else b""
    )


def beaten(error_code: int = 0) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error_code)


def left(error_code: int = 0) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error_code)


def identity(generation: int = 1, member_id: str = ME, instance_id: str | None = None) -> Identity:
    return Identity(member_id=member_id, generation=generation, instance_id=instance_id)


MAIN, GROUP = Channel.MAIN, Channel.GROUP
