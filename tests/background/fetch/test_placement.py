"""Which broker each partition is fetched from, whichever kind of consumer asks, and brokers that do not answer."""

from typing import Any

from kafka_async.background.boundary import EventHandler
from kafka_async.background.cluster.metadata import MetadataManager
from kafka_async.background.cluster.wanted_topics import WantedTopics
from kafka_async.background.fetch.fetch_broker import FetchBroker
from kafka_async.background.fetch.placement import Placement
from kafka_async.background.loop.request_manager import Backoff
from kafka_async.background.positions.subscription import SubscriptionState
from kafka_async.config import ConsumerConfig
from kafka_async.model import TopicPartition
from kafka_async.network import LATE
from kafka_async.wire.messages import MetadataRequest

from ..support import MIDDLE, A, B, FakeNetwork, cluster, described


class Session(dict[TopicPartition, str]):
    """A session that only remembers what is wanted of it."""

    def want(self, partition: TopicPartition, how: str | None) -> None:
        if how is None:
            self.pop(partition, None)
        else:
            self[partition] = how


class World:
    def __init__(self) -> None:
        subscription = SubscriptionState()
        subscription.assign({A: 1, B: 1})
        self.metadata = MetadataManager(
            config=ConsumerConfig.of(),
            wanted_topics=WantedTopics(subscription),
            network=FakeNetwork(),
            handler=EventHandler(lambda: None, lambda: None),
            random=lambda: MIDDLE,
            trace=lambda event: None,
        )
        self.placement: Placement[FetchBroker[Session]] = Placement(self.metadata, self.make)

    def make(self, node_id: int) -> FetchBroker[Session]:
        return FetchBroker(node_id, Backoff(0.1, 1.0, lambda: MIDDLE), Session())

    def learn(self, *leaders: int, now: float = 0.0, **fields: Any) -> None:
        for request in self.metadata.poll(now).requests:
            assert isinstance(request.message, MetadataRequest)
            request.on_done(cluster(described("t", leaders), **fields), now)

    def wanted(self) -> dict[int, dict[TopicPartition, str]]:
        return {node: dict(broker.session) for node, broker in self.placement.brokers.items()}

    def asks(self, now: float) -> bool:
        """Whether the cluster is asked."""
        return bool(self.metadata.poll(now).requests)


def test_a_partition_is_in_the_session_of_one_broker_at_most() -> None:
    world = World()
    world.placement.put(A, 1, "from 0")
    world.placement.put(B, 2, "from 0")
    assert world.wanted() == {1: {A: "from 0"}, 2: {B: "from 0"}}
    world.placement.put(A, 2, "from 7")
    assert world.wanted() == {1: {}, 2: {A: "from 7", B: "from 0"}}
    world.placement.put(A, None)
    world.placement.put(A, None)
    assert (world.wanted(), world.placement.placed) == ({1: {}, 2: {B: "from 0"}}, {B: 2})


def test_a_partition_without_a_leader_is_looked_at_again_when_the_cluster_is_known_in_another_version() -> None:
    world = World()
    world.learn(1, -1)
    assert world.placement.collect(0.0)
    leader = world.placement.leader(A, 0.0)
    assert leader is not None
    assert leader.node_id == 1
    assert not world.asks(0.0)
    assert world.placement.leader(B, 1.0) is None
    assert not world.placement.collect(1.0)
    assert world.placement.changed == set()
    world.learn(1, 2, now=1.0)
    assert world.placement.collect(1.0)
    assert world.placement.changed == {B}
    assert not world.placement.collect(1.0), "each version once"


def test_a_leader_whose_address_is_not_known_is_none() -> None:
    world = World()
    world.learn(1, 9)
    assert world.placement.leader(B, 0.0) is None


def test_timers_are_due_once_in_their_order_and_the_same_one_is_set_once() -> None:
    timers = World().placement.timers
    for partition, at in ((A, 5.0), (B, 3.0), (A, 5.0), (A, 9.0)):
        timers.set(partition, at)
    assert (timers.next, list(timers.due(2.0))) == (3.0, [])
    assert list(timers.due(5.0)) == [B, A]
    assert (timers.next, list(timers.due(9.0))) == (9.0, [A])
    timers.set(A, 9.0)
    assert list(timers.due(9.0)) == [A], "it was forgotten when it was due"


def test_a_timer_makes_its_partition_be_looked_at() -> None:
    world = World()
    world.placement.timers.set(A, 5.0)
    world.placement.collect(4.9)
    assert world.placement.changed == set()
    world.placement.collect(5.0)
    assert world.placement.changed == {A}


def test_a_broker_that_does_not_answer_is_suspected_after_its_time_and_again_after_twice_that() -> None:
    world = World()
    world.learn(1, 1)
    broker = world.placement.broker(1)
    assert broker is world.placement.broker(1)
    broker.sent(1000, 0.5, 10.0)
    assert broker.suspect(world.metadata, 11.0) == 10.5 + LATE
    assert not world.asks(11.0)
    late = 10.5 + LATE
    again = broker.suspect(world.metadata, late)
    assert again == late + (late - 10.0)
    assert world.asks(late)


def test_a_broker_that_throttles_us_is_not_suspected_while_the_request_waits_for_that() -> None:
    world = World()
    world.learn(1, 1)
    broker = world.placement.broker(1)
    broker.throttled_until = 15.0
    broker.sent(1000, 0.5, 10.1)
    assert broker.suspect(world.metadata, 15.0 + LATE) == 15.5 + LATE
    assert not world.asks(15.0 + LATE)
    broker.sent(1000, 0.5, 16.1)
    assert broker.suspected_at == 16.6 + LATE, "that is over"
