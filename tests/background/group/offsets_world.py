"""A coordinator's manager, metadata and a membership under a test's control, for the managers of the group's offsets."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from attrs import define, field

from kafka_async.background.boundary import EventHandler
from kafka_async.background.cluster.cluster_view import ClusterView
from kafka_async.background.cluster.metadata import MetadataManager
from kafka_async.background.cluster.wanted_topics import WantedTopics
from kafka_async.background.group.access import GroupAccess
from kafka_async.background.group.find_coordinator import FindCoordinatorManager
from kafka_async.background.group.membership import CommitFailure, Identity
from kafka_async.background.loop.request_manager import Poll
from kafka_async.background.positions.subscription import Subscription, SubscriptionState
from kafka_async.config import ConsumerConfig
from kafka_async.errors import KafkaError
from kafka_async.events import Call, TopicDescription
from kafka_async.model import ConsumerState, Node, TopicPartition
from kafka_async.network import Channel, UnsentRequest
from kafka_async.trace import TraceEvent
from kafka_async.wire.messages import Coordinator, FindCoordinatorResponse, MetadataResponse, MetadataResponseBroker

from ..support import FakeNetwork

ONE, TWO = Node(1, "one", 9092), Node(2, "two", 9092)
A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)
MEMBER = Identity(member_id="m", generation=5, consumer_protocol=True)
NEXT = Identity(member_id="m", generation=6, consumer_protocol=True)
CLASSIC = Identity(member_id="m", generation=5, instance_id="static")
CLASSIC_NEXT = Identity(member_id="m", generation=6, instance_id="static")


def found(node: Node = ONE, error_code: int = 0, key: str = "g") -> FindCoordinatorResponse:
    """Return an answer that names ``node``."""
    answer = Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_code=error_code, error_message=None)
    return FindCoordinatorResponse(coordinators=(answer,))


@define(eq=False)
class FakeMembership:
    """A ``Membership`` that only has the properties that a test gives it, and writes down what it is told."""

    identity: Identity = MEMBER
    awaits_epoch: bool = False
    is_being_named: bool = False
    is_leaving: bool = False
    failure: KafkaError | None = None
    channel: Channel = Channel.GROUP
    state: ConsumerState = ConsumerState.STEADY
    wanted_topics: frozenset[str] | None = frozenset()
    group_topics: frozenset[str] = frozenset()
    session_deadline: float = 45.0
    is_denied: bool = False
    refusals: list[tuple[CommitFailure, Identity]] = field(factory=list)

    def refused(self, failure: CommitFailure, identity: Identity, now: float) -> None:
        self.refusals.append((failure, identity))

    def subscribe(self, subscription: Subscription, now: float) -> None:
        raise AssertionError("not for the managers of offsets")

    def leave(self, call: Call[None] | None, now: float) -> None:
        raise AssertionError("not for the managers of offsets")

    def revoked(self, number: int, now: float) -> None:
        raise AssertionError("not for the managers of offsets")

    def assigned(self, number: int, now: float) -> None:
        raise AssertionError("not for the managers of offsets")

    def enforce_rebalance(self, reason: str, now: float) -> None:
        raise AssertionError("not for the managers of offsets")

    def poll(self, now: float) -> Poll:
        return Poll()

    def poll_on_close(self, now: float) -> Poll:
        return Poll()


@define(eq=False)
class Brokers:
    """Those of the metadata, which are not asked for: that somebody wants to is noted."""

    cluster: ClusterView
    wanted: list[float]
    are_old: bool = False
    is_out_of_reach: bool = False

    @property
    def nodes(self) -> Mapping[int, Node]:
        return self.cluster.nodes

    def answered_since(self, moment: float) -> bool:
        return not self.are_old

    def request_update(self, now: float) -> None:
        self.wanted.append(now)


@define(eq=False)
class World:
    """Group ``g``, coordinated by broker 1, with the topics a, b and c. ``random`` always returns 0.5: no jitter."""

    options: dict[str, Any] = field(factory=dict)
    traced: list[TraceEvent] = field(factory=list)
    errors: list[Any] = field(factory=list)
    owned: frozenset[TopicPartition] = frozenset((A, B, C))
    config: ConsumerConfig = field(init=False)
    metadata: MetadataManager = field(init=False)
    brokers: Brokers = field(init=False)
    coordinator: FindCoordinatorManager = field(init=False)
    group: GroupAccess = field(init=False)
    metadata_wanted: list[float] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.config = ConsumerConfig.from_options({"group_id": "g", **self.options})
        self.metadata = MetadataManager(
            config=self.config,
            wanted_topics=WantedTopics(SubscriptionState()),
            network=FakeNetwork(),
            handler=EventHandler(lambda: None, lambda: None),
            random=self.random,
            trace=self.traced.append,
        )
        self.metadata.cluster.nodes = {1: ONE, 2: TWO}
        self.brokers = Brokers(self.metadata.cluster, self.metadata_wanted)
        self.coordinator = FindCoordinatorManager(
            config=self.config,
            brokers=self.brokers,
            random=self.random,
            trace=self.traced.append,
        )
        self.group = GroupAccess(coordinator=self.coordinator, metadata=self.metadata, owned=lambda: self.owned)

    @staticmethod
    def random() -> float:
        return 0.5

    def join(self, identity: Identity = MEMBER) -> FakeMembership:
        """Become a member."""
        membership = FakeMembership(identity)
        self.group.membership = membership
        return membership

    def find(self, now: float, node: Node = ONE) -> None:
        """Have the coordinator found."""
        self.coordinator.request(now)
        (request,) = self.coordinator.poll(now).requests
        request.on_done(found(node), now)

    def learn_metadata(self, now: float) -> None:
        """Have the metadata answered, so that they are not asked for again soon."""
        brokers = tuple(MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port) for node in (ONE, TWO))
        only(self.metadata.poll(now)).on_done(MetadataResponse(brokers=brokers), now)

    def give_ids(self, *topics: str) -> dict[str, UUID]:
        """Have the metadata know these topics and their ids."""
        ids = {topic: UUID(int=number + 1) for number, topic in enumerate(topics)}
        for topic, topic_id in ids.items():
            self.metadata.cluster.topics[topic] = TopicDescription(name=topic, topic_id=topic_id, internal=False, partitions=())
        return ids


def only(poll: Poll) -> UnsentRequest:
    """Return the one request of a poll."""
    (request,) = poll.requests
    return request
