"""Which partitions have appeared while the application was subscribed."""

from uuid import UUID

import pytest
from attrs import define, field

from kafka_async import TopicPartition
from kafka_async.background.cluster.cluster_view import ClusterChanges
from kafka_async.background.positions.newcomers import FIRST, FIRST_OF_NEW, Newcomers, first_strategy
from kafka_async.background.positions.subscription import Subscription
from kafka_async.config import ConsumerConfig
from kafka_async.errors import KafkaError, UnknownTopicOrPartitionError
from kafka_async.events import PartitionDescription, TopicDescription

CONFIG = ConsumerConfig(auto_offset_reset="latest")
A0, A1, A2, A3, B0 = *(TopicPartition("a", number) for number in range(4)), TopicPartition("b", 0)


def topic(name: str, partitions: int, number: int | None = 1) -> TopicDescription:
    parts = tuple(
        PartitionDescription(partition=each, leader=1, leader_epoch=0, replicas=(1,), isr=(1,)) for each in range(partitions)
    )
    topic_id = None if number is None else UUID(int=number)
    return TopicDescription(name=name, topic_id=topic_id, internal=False, partitions=parts)


@define(eq=False)
class Cluster:
    """The metadata, and who watches them."""

    topics: dict[str, TopicDescription] = field(factory=dict)
    covers_all: bool = False
    missing: set[str] = field(factory=set)
    newcomers: Newcomers = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.newcomers = Newcomers(CONFIG, self)

    def problem(self, topic: str) -> KafkaError | None:
        return UnknownTopicOrPartitionError() if topic in self.missing else None

    def answer(self, *topics: TopicDescription, recreated: frozenset[str] = frozenset()) -> None:
        self.topics |= {each.name: each for each in topics}
        self.missing -= self.topics.keys()
        self.newcomers.cluster_changed(ClusterChanges(frozenset(), recreated), 0.0)

    def answer_all(self, *topics: TopicDescription) -> None:
        """Have metadata of all topics answered: there are no others, and nobody remembers what they were."""
        self.topics.clear()
        self.covers_all = True
        self.answer(*topics)

    def subscribe(self, *names: str) -> None:
        self.newcomers.subscribe(Subscription(topics=frozenset(names)) if names else None)

    def first(self, partition: TopicPartition) -> str:
        return self.newcomers.strategy(partition, FIRST)


def test_what_was_there_at_the_first_sight_is_read_by_policy_and_what_comes_later_from_its_beginning() -> None:
    cluster = Cluster()
    cluster.subscribe("a")
    cluster.answer(topic("a", 2))
    cluster.answer(topic("a", 4))

    assert [cluster.first(each) for each in (A0, A1, A2, A3)] == ["latest", "latest", "earliest", "earliest"]


def test_a_topic_that_did_not_exist_when_it_was_subscribed_is_new_as_a_whole() -> None:
    cluster = Cluster(missing={"a"})
    cluster.subscribe("a")
    cluster.answer(topic("a", 1))

    assert cluster.first(A0) == "earliest"


def test_a_topic_that_nobody_has_asked_about_yet_is_not_taken_for_a_new_one() -> None:
    cluster = Cluster()
    cluster.subscribe("a")
    cluster.answer(topic("b", 1))
    assert cluster.first(A0) == "latest"
    cluster.answer(topic("a", 1))
    assert cluster.first(A0) == "latest"


def test_a_topic_that_appears_under_a_pattern_is_new_as_a_whole() -> None:
    cluster = Cluster()
    cluster.newcomers.subscribe(Subscription(matches=lambda name: True))
    cluster.answer(topic("x", 1))  # an answer about some topics says nothing about the others
    cluster.covers_all = True
    cluster.answer(topic("a", 2))
    cluster.answer(topic("a", 3), topic("b", 1, 2))

    assert [cluster.first(each) for each in (A0, A2, B0)] == ["latest", "earliest", "earliest"]


def test_a_topic_that_stays_subscribed_is_known_as_before() -> None:
    cluster = Cluster()
    cluster.subscribe("a")
    cluster.answer(topic("a", 2))
    cluster.answer(topic("a", 3), topic("b", 1, 2))
    cluster.subscribe("a", "b")

    assert [cluster.first(each) for each in (A0, A2, B0)] == ["latest", "earliest", "latest"]


def test_a_new_subscription_begins_with_what_is_there() -> None:
    cluster = Cluster()
    cluster.subscribe("a")
    cluster.answer(topic("a", 2))
    cluster.answer(topic("a", 3))
    cluster.subscribe()
    assert cluster.first(A2) == "latest"
    cluster.subscribe("a")
    assert cluster.first(A2) == "latest"


def test_all_partitions_of_a_topic_that_was_made_anew_are_new() -> None:
    cluster = Cluster()
    cluster.subscribe("a")
    cluster.answer(topic("a", 2))
    cluster.answer(topic("a", 2, 9), recreated=frozenset({"a"}))

    assert [cluster.first(each) for each in (A0, A1)] == ["earliest", "earliest"]


@pytest.mark.parametrize(("first", "second", "expected"), [(1, 1, "latest"), (1, 9, "earliest"), (None, None, "earliest")])
def test_under_a_pattern_a_topic_that_was_away_is_new_if_it_was_made_anew_or_may_have_been(
    first: int | None, second: int | None, expected: str
) -> None:
    cluster = Cluster()
    cluster.newcomers.subscribe(Subscription(matches=lambda name: True))
    cluster.answer_all(topic("a", 2, first))
    cluster.answer_all(topic("b", 1, first))
    cluster.answer_all(topic("a", 2, second), topic("b", 1, first))

    assert [cluster.first(each) for each in (A0, A1, A2)] == [expected, expected, "earliest"]


@pytest.mark.parametrize("wanted", ["earliest", "latest", "by_duration:P1D"])
def test_what_the_application_asks_for_comes_first(wanted: str) -> None:
    assert Cluster().newcomers.strategy(A0, wanted) == wanted


def test_an_offset_that_is_out_of_range_is_reset_by_policy_even_in_a_new_partition() -> None:
    cluster = Cluster()
    cluster.subscribe("a")
    cluster.answer(topic("a", 0))
    cluster.missing = {"a"}
    cluster.answer(topic("b", 1))

    assert cluster.newcomers.strategy(A0, None) == "latest"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ((), FIRST),
        ((A0,), FIRST_OF_NEW),
        ((A0, A1), FIRST_OF_NEW),
        ((A0, A3), FIRST_OF_NEW),  # both are new; the member that has the other one was faster
        ((B0,), FIRST),
    ],
)
def test_stored_offsets_of_other_partitions_show_whether_one_is_new(stored: tuple[TopicPartition, ...], expected: str) -> None:
    assert first_strategy(A2, stored) == expected


@pytest.mark.parametrize(("topics", "expected"), [((), "latest"), (("a",), "earliest"), (("b",), "latest")])
def test_stored_offsets_of_others_tell_a_consumer_nothing_that_was_given_its_partitions(
    topics: tuple[str, ...], expected: str
) -> None:
    cluster = Cluster()
    cluster.subscribe(*topics)
    cluster.answer(topic("a", 4), topic("b", 1))

    assert cluster.newcomers.strategy(A2, FIRST_OF_NEW) == expected
