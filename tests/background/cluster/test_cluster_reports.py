"""What the application is told about the cluster: changes only, and partitions that stay missing."""

from typing import Any

from kafka_async.background.boundary import EventHandler, FetchBuffer
from kafka_async.background.cluster.cluster_reports import ClusterReports
from kafka_async.background.cluster.cluster_view import ClusterView
from kafka_async.background.positions.subscription import PreferredReplica, SubscriptionState
from kafka_async.config import ConsumerConfig
from kafka_async.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from kafka_async.events import BackgroundEvent, ClusterReachability, ErrorEvent, MetadataUpdated, PartitionSnapshot
from kafka_async.network import Reachability
from kafka_async.trace import Fault, Recovered, TraceEvent

from ..support import A, B, C, FakeNetwork, cluster, described

TIMEOUT = 30.0
"""``request_timeout_ms``."""


class World:
    def __init__(self) -> None:
        self.handler = EventHandler(lambda: None, lambda: None)
        self.cluster = ClusterView(patience=60.0)
        self.subscription = SubscriptionState()
        self.network = FakeNetwork()
        self.seen: list[TraceEvent] = []
        config = ConsumerConfig.of()
        self.buffer = FetchBuffer(1, lambda: None, lambda: None)
        self.news = ClusterReports(
            config, self.handler, self.cluster, self.subscription, self.network, self.seen.append, self.buffer
        )

    def learn(self, *leaders: int, now: float, gone: bool = False, **fields: Any) -> list[BackgroundEvent]:
        """The cluster answers that topic ``t`` has partitions with these leaders; return what is published."""
        topics = () if gone else (described("t", leaders),)
        self.cluster.update(cluster(*topics, **fields), None, None, now)
        return self.publish(now)

    def publish(self, now: float) -> list[BackgroundEvent]:
        self.news.publish(now)
        return list(self.handler.drain_background())

    def traced(self) -> list[TraceEvent]:
        found, self.seen[:] = list(self.seen), []
        return found


def test_a_cluster_is_published_when_it_is_another_one_than_before() -> None:
    world = World()
    (first,) = world.publish(0.0)
    assert isinstance(first, MetadataUpdated)
    assert first.cluster.brokers == ()
    (second,) = world.learn(1, 2, now=1.0)
    assert isinstance(second, MetadataUpdated)
    assert second.cluster == world.cluster.describe()
    assert world.learn(1, 2, now=2.0) == [], "an answer without news"
    assert world.publish(3.0) == []
    (third,) = world.learn(2, 2, now=4.0)
    assert isinstance(third, MetadataUpdated)
    assert third.cluster.topics["t"].partitions[0].leader == 2


def test_a_cluster_that_cannot_be_reached_is_published_once_and_again_when_it_can() -> None:
    world = World()
    world.publish(0.0)
    world.network.reach = Reachability(unreachable_since=5.0, last_answer_at=1.0)
    assert world.publish(6.0) == [ClusterReachability(unreachable_since=5.0, last_answer_at=1.0)]
    assert world.publish(7.0) == []
    world.network.reach = Reachability(last_answer_at=8.0)
    assert world.publish(8.0) == [ClusterReachability(unreachable_since=None, last_answer_at=8.0)]
    world.network.reach = Reachability(last_answer_at=9.0)
    assert world.publish(9.0) == [], "answers alone are no news"


def test_a_partition_that_its_topic_lacks_is_reported_after_each_request_timeout() -> None:
    world = World()
    world.subscription.assign({A: 1, C: 1})
    assert [type(event) for event in world.learn(1, 1, now=0.0)] == [MetadataUpdated]
    assert world.traced() == [], "the assignment may be newer than the answer"
    assert world.learn(1, 1, now=10.0) == []
    (fault,) = world.traced()
    assert isinstance(fault, Fault)
    assert (fault.partitions, fault.outage) == (frozenset((C,)), "assigned partitions")
    assert isinstance(fault.error, UnknownTopicOrPartitionError)
    (error,) = world.learn(1, 1, now=TIMEOUT)
    assert isinstance(error, ErrorEvent)
    assert "has no partition 2; it has 2, from 0 on" in str(error.error)
    assert world.learn(1, 1, now=TIMEOUT + 10) == [], "not more often than that"
    assert [type(event) for event in world.learn(1, 1, now=2 * TIMEOUT)] == [ErrorEvent]


def test_a_partition_that_appears_is_missing_no_more() -> None:
    world = World()
    world.subscription.assign({A: 1, C: 1})
    world.learn(1, 1, now=0.0)
    world.learn(1, 1, now=10.0)
    world.traced()
    world.learn(1, 1, 1, now=20.0)
    (recovered,) = world.traced()
    assert isinstance(recovered, Recovered)
    assert recovered.partitions == {C}
    assert [type(event) for event in world.learn(1, 1, now=2 * TIMEOUT)] == [MetadataUpdated], "the time begins anew"


def test_a_topic_that_is_gone_altogether_says_nothing_about_its_missing_partitions() -> None:
    world = World()
    world.subscription.assign({C: 1})
    world.learn(1, 1, now=0.0)
    world.learn(1, 1, now=10.0)
    world.traced()
    assert [type(event) for event in world.learn(gone=True, now=20.0)] == [MetadataUpdated]
    assert world.traced() == [], "neither back nor reported again"
    events = world.learn(1, 1, now=TIMEOUT)
    assert [type(event) for event in events] == [MetadataUpdated, ErrorEvent], "it was missing all the time"


def test_a_partition_that_is_assigned_no_more_is_not_missing() -> None:
    world = World()
    world.subscription.assign({C: 1})
    world.learn(1, 1, now=0.0)
    world.subscription.assign({A: 2})
    assert world.learn(1, 1, now=TIMEOUT) == []
    assert world.traced() == []


def test_partitions_that_stay_without_a_leader_are_said_and_their_end_too() -> None:
    world = World()
    world.subscription.assign({A: 1, B: 1})
    world.learn(1, -1, now=0.0)
    world.learn(1, -1, now=2.0)
    assert world.traced() == [], "an election may take so long"
    world.learn(1, -1, now=3.0)
    (fault,) = world.traced()
    assert isinstance(fault, Fault)
    assert (fault.outage, fault.partitions) == ("partitions without a leader", frozenset((B,)))
    assert "has no leader; its replicas are on brokers" in str(fault.error)
    world.learn(gone=True, now=4.0)
    assert world.traced() == [], "a topic that is gone has no leaders either"
    world.learn(1, 2, now=5.0)
    (recovered,) = world.traced()
    assert isinstance(recovered, Recovered)
    assert (recovered.outage, recovered.partitions) == ("partitions without a leader", frozenset((B,)))


def test_a_partition_that_is_assigned_no_more_needs_no_leader() -> None:
    world = World()
    world.subscription.assign({B: 1})
    world.learn(1, -1, now=0.0)
    world.subscription.assign({A: 2})
    world.learn(1, -1, now=10.0)
    assert world.traced() == []


def test_partitions_that_stay_without_a_leader_or_missing_are_shown_until_that_is_over() -> None:
    world = World()
    world.subscription.assign({A: 1, B: 1, C: 1})
    world.learn(1, -1, now=0.0)
    world.learn(1, -1, now=2.9)
    assert world.buffer.unavailable == {}
    world.learn(1, -1, now=3.0)
    found = {partition: type(error) for partition, error in world.buffer.unavailable.items()}
    assert found == {B: LeaderNotAvailableError, C: UnknownTopicOrPartitionError}
    world.learn(1, -1, now=TIMEOUT)
    world.learn(1, -1, now=TIMEOUT + 1)
    assert world.buffer.unavailable.keys() == {B, C}, "that the application was told ends nothing"
    world.learn(1, 2, now=TIMEOUT + 2)
    assert world.buffer.unavailable.keys() == {C}
    world.subscription.assign({A: 2, B: 2})
    world.learn(1, 2, now=TIMEOUT + 3)
    assert world.buffer.unavailable == {}


def test_a_snapshot_has_the_cluster_and_each_owned_partition() -> None:
    world = World()
    world.subscription.assign({A: 1, B: 1})
    world.learn(1, -1, now=0.0)
    world.network.reach = Reachability(unreachable_since=5.0, last_answer_at=1.0)
    entry = world.subscription.get(A)
    assert entry is not None
    world.subscription.read_from(entry, PreferredReplica(3, 100.0))
    taken = world.news.snapshot(7)
    assert (taken.cluster_id, [node.id for node in taken.brokers], taken.wake_ups) == ("c", [1, 2, 3], 7)
    assert (taken.unreachable_since, taken.last_answer_at, taken.connections, taken.requests_in_flight) == (5.0, 1.0, 0, 0)
    assert taken.partitions == {
        A: PartitionSnapshot(state="initializing", leader=1, read_replica=3),
        B: PartitionSnapshot(state="initializing", leader=None, read_replica=None),
    }


def test_without_a_buffer_the_handler_has_what_cannot_be_read_until_it_is_not_assigned_any_more() -> None:
    """In a share group, where the application does not know what is assigned."""
    world, assigned = World(), {A, B}
    world.news = ClusterReports(
        ConsumerConfig.of(),
        world.handler,
        world.cluster,
        world.subscription,
        world.network,
        world.seen.append,
        assigned_elsewhere=lambda: assigned,
    )
    world.learn(-1, -1, now=0.0)
    assert not world.handler.unavailable, "it may be an election"
    world.learn(-1, -1, now=4.0)
    assert {tp: type(error) for tp, error in world.handler.unavailable.items()} == dict.fromkeys((A, B), LeaderNotAvailableError)
    assigned.remove(B)
    world.publish(5.0)
    assert world.handler.unavailable.keys() == {A}
    world.learn(1, -1, now=6.0)
    assert not world.handler.unavailable
    assert not world.buffer.unavailable
