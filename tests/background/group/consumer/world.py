"""A coordinator, metadata and an application under a test's control, around one ``ConsumerMembership``."""

from collections.abc import Callable, Mapping
from uuid import UUID

from attrs import define, field

from kafka_async.background.group.consumer.consumer_membership import ConsumerMembership
from kafka_async.background.group.consumer.group_settings import GroupSettings
from kafka_async.background.group.consumer.states import MemberState
from kafka_async.background.group.membership import PollProgress
from kafka_async.background.loop.request_manager import Poll
from kafka_async.background.positions.subscription import Subscription
from kafka_async.config import ConsumerConfig
from kafka_async.errors import FencedInstanceIdError, FencedMemberEpochError, KafkaError, UnreleasedInstanceIdError
from kafka_async.events import PartitionDescription, TopicDescription
from kafka_async.model import Node, TopicPartition
from kafka_async.network import UnsentRequest
from kafka_async.trace import Fault, TraceEvent
from kafka_async.wire import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka_async.wire.messages import Assignment, TopicPartitions

ONE, TWO = Node(1, "one", 9092), Node(2, "two", 9092)
A, B, LATE = UUID(int=1), UUID(int=2), UUID(int=3)
"""Topic ids; the metadata cannot name ``LATE`` until a test lets it."""
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
INTERVAL = 5.0


PARTITION = PartitionDescription(partition=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,))


def topic(name: str, topic_id: UUID | None = None, *, internal: bool = False) -> TopicDescription:
    return TopicDescription(name=name, topic_id=topic_id, internal=internal, partitions=(PARTITION,))


def answer(
    assignment: Mapping[UUID, tuple[int, ...]] | None = None,
    *,
    epoch: int = 1,
    interval: float = INTERVAL,
    member_id: str | None = "m",
) -> ConsumerGroupHeartbeatResponse:
    """Return a good answer; ``None`` leaves the assignment as it is."""
    parts = None if assignment is None else tuple(TopicPartitions(topic_id=i, partitions=p) for i, p in assignment.items())
    return ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=round(interval * 1000),
        assignment=None if parts is None else Assignment(topic_partitions=parts),
    )


def refusal(code: int, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


@define(eq=False)
class FakeCoordinator:
    """The group's coordinator, as the test sets it."""

    coordinator: Node | None = ONE
    latest: Node | None = ONE
    is_out_of_reach: bool = False
    fatal: KafkaError | None = None
    searches: int = 0
    losses: list[tuple[int, KafkaError | None]] = field(factory=list)
    served_at: float | None = None

    def request(self, now: float) -> None:
        self.searches += 1

    def lost(self, node_id: int, error: KafkaError | None, now: float) -> None:
        self.losses.append((node_id, error))

    def served(self, now: float) -> None:
        self.served_at = now

    def is_settling_in(self, error: KafkaError, now: float) -> bool:
        return False


@define(eq=False)
class FakeMetadata:
    version: int = 1
    covers_all: bool = True
    names: dict[UUID, str] = field(factory=lambda: {A: "a", B: "b"})
    topics: dict[str, TopicDescription] = field(factory=lambda: {"a": topic("a", A), "b": topic("b", B)})
    updates: list[float] = field(factory=list)

    def request_update(self, now: float) -> None:
        self.updates.append(now)


@define(eq=False)
class FakeHost:
    """An application that does nothing by itself."""

    taken: frozenset[TopicPartition] = frozenset()
    polled_at: float = 0.0
    polling: bool = True
    assignments: list[tuple[int, frozenset[TopicPartition]]] = field(factory=list)
    losses: list[tuple[int, frozenset[TopicPartition]]] = field(factory=list)
    stopped: list[frozenset[TopicPartition]] = field(factory=list)
    errors: list[KafkaError] = field(factory=list)
    final: KafkaError | None = None

    def publish_revocation(
        self, number: int, partitions: frozenset[TopicPartition], *, lost: bool, returning: bool = False
    ) -> None:
        assert lost
        assert not returning
        self.losses.append((number, partitions))

    def publish_assignment(self, number: int, partitions: frozenset[TopicPartition], *, successive: bool = True) -> None:
        assert successive
        self.assignments.append((number, partitions))

    def publish_error(self, error: KafkaError, *, final: bool = False) -> None:
        self.errors.append(error)
        self.final = error if final else self.final

    def stop_fetching(self, partitions: frozenset[TopicPartition]) -> None:
        self.stopped.append(partitions)

    def owned(self) -> frozenset[TopicPartition]:
        return self.taken

    def progress(self) -> PollProgress:
        return PollProgress(polled_at=self.polled_at, polling=self.polling)

    def partition_counts(self) -> Mapping[str, int]:
        return {}


def config(**options: object) -> ConsumerConfig:
    return ConsumerConfig.from_options({"group_id": "g", **options})


@define(eq=False)
class World:
    """One member and everything that it talks to. Every turn checks what holds in every turn."""

    config: ConsumerConfig = field(factory=config)
    takes_over: bool = False
    coordinator: FakeCoordinator = field(factory=FakeCoordinator)
    metadata: FakeMetadata = field(factory=FakeMetadata)
    host: FakeHost = field(factory=FakeHost)
    events: list[TraceEvent] = field(factory=list)
    asked_to_fall_back: list[KafkaError] = field(factory=list)
    flying: list[UnsentRequest] = field(factory=list)
    member: ConsumerMembership = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.member = ConsumerMembership.of(
            config=self.config,
            coordinator=self.coordinator,
            metadata=self.metadata,
            host=self.host,
            settings=GroupSettings(config=self.config, random=lambda: 0.5, trace=self.events.append),
            member_id="m",
            random=lambda: 0.5,
            trace=self.events.append,
            fall_back=self._fall_back,
        )

    def _fall_back(self, error: KafkaError) -> bool:
        self.asked_to_fall_back.append(error)
        return self.takes_over

    # --- driving ---------------------------------------------------------------------------------------------------------------

    def turn(self, now: float) -> Poll:
        poll = self.member.poll(now)
        self._note(poll)
        assert poll.wake_at > now or poll.requests, "a turn that sends nothing must not ask for another one at once"
        assert sum(not is_leave(request) for request in self.flying) <= 1
        assert sum(is_leave(request) for request in self.flying) <= 1
        return poll

    def close(self, now: float) -> Poll:
        poll = self.member.poll_on_close(now)
        self._note(poll)
        return poll

    def _note(self, poll: Poll) -> None:
        self.flying.extend(poll.requests)

    def sent(self, now: float) -> ConsumerGroupHeartbeatRequest | None:
        """Take a turn and return what it sent."""
        requests = self.turn(now).requests
        return message(requests[0]) if requests else None

    def reply(self, outcome: object, now: float, *, which: int = 0) -> None:
        """Answer a request in flight; the oldest one unless told otherwise."""
        self.flying.pop(which).on_done(outcome, now)

    def exchange(self, outcome: object, now: float) -> ConsumerGroupHeartbeatRequest:
        """Take a turn that must send something, and answer it."""
        request = self.sent(now)
        assert request is not None
        self.reply(outcome, now, which=-1)
        return request

    def carry_out(self, now: float) -> None:
        """The application does what it was asked for last."""
        number, partitions = self.host.assignments[-1]
        self.host.taken = partitions
        self.member.assigned(number, now)

    def release(self, now: float) -> None:
        """The application gives up what it lost last."""
        number, partitions = self.host.losses[-1]
        self.host.taken -= partitions
        self.member.revoked(number, now)

    # --- looking ---------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> MemberState:
        return self.member.member_state

    def faults(self, part: str) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Fault) and part in event.text]


def message(request: UnsentRequest) -> ConsumerGroupHeartbeatRequest:
    assert isinstance(request.message, ConsumerGroupHeartbeatRequest)
    return request.message


def is_leave(request: UnsentRequest) -> bool:
    return message(request).member_epoch < 0


def names(*topics: str) -> Subscription:
    return Subscription(topics=frozenset(topics))


# --- the way into each state, with a heartbeat in flight if the state allows one -----------------------------------------------


def unsubscribed(world: World) -> None:
    """A world begins like this."""


def joining(world: World) -> None:
    world.member.subscribe(names("a", "b"), 0.0)
    world.turn(0.0)


def reclaiming(world: World) -> None:
    joining(world)
    world.reply(UnreleasedInstanceIdError(), 0.0)
    world.turn(1.0)


def reconciling(world: World) -> None:
    joining(world)
    world.reply(answer({LATE: (0,)}), 0.0)
    world.turn(0.0)
    world.turn(INTERVAL)


def assigning(world: World) -> None:
    joining(world)
    world.reply(answer({A: (0, 1)}), 0.0)
    world.turn(0.0)
    world.turn(INTERVAL)


def acknowledging(world: World) -> None:
    assigning(world)
    world.carry_out(INTERVAL)


def stable(world: World) -> None:
    assigning(world)
    world.reply(answer(), INTERVAL)
    world.carry_out(INTERVAL)
    world.exchange(answer(), INTERVAL)
    world.turn(2 * INTERVAL)


def fenced(world: World) -> None:
    stable(world)
    world.reply(FencedMemberEpochError(), 2 * INTERVAL)


def stale(world: World) -> None:
    stable(world)
    world.reply(answer(), 2 * INTERVAL)
    world.host.polling = False
    world.turn(1000.0)


def away(world: World) -> None:
    stale(world)
    world.release(1000.0)


def leaving(world: World) -> None:
    stable(world)
    world.reply(answer(), 2 * INTERVAL)
    world.host.taken = frozenset()
    world.member.leave(None, 2 * INTERVAL)
    world.turn(2 * INTERVAL)


def fatal(world: World) -> None:
    stable(world)
    world.reply(FencedInstanceIdError(), 2 * INTERVAL)


WAYS: Mapping[MemberState, Callable[[World], None]] = {
    MemberState.UNSUBSCRIBED: unsubscribed,
    MemberState.JOINING: joining,
    MemberState.RECLAIMING: reclaiming,
    MemberState.RECONCILING: reconciling,
    MemberState.ASSIGNING: assigning,
    MemberState.ACKNOWLEDGING: acknowledging,
    MemberState.STABLE: stable,
    MemberState.FENCED: fenced,
    MemberState.STALE: stale,
    MemberState.AWAY: away,
    MemberState.LEAVING: leaving,
    MemberState.FATAL: fatal,
}


def reach(state: MemberState, **options: object) -> World:
    """Return a world whose member is in ``state``, at a time of ``2 * INTERVAL`` (1000.0 for STALE and AWAY) at the latest."""
    world = World(config=config(**options))
    WAYS[state](world)
    assert world.state is state
    return world
