"""Members whose part a test plays: the consumer under test has company, and no second consumer has to run."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, ParamSpec

import pytest

from kafka_async import ConsumerRebalanceListener, KafkaConsumer, SubscriptionPattern, TopicPartition
from kafka_async.errors import CommitFailedError, InvalidRegularExpressionError
from kafka_async.testing import Cluster, Member
from tests.virtual import run_virtual, run_virtual_asyncio, virtual_on

P = ParamSpec("P")
KINDS: Final[dict[str, dict[str, Any]]] = {
    "eager": {"group_protocol": "classic", "partition_assignment_strategy": ("range",)},
    "cooperative": {"group_protocol": "classic", "partition_assignment_strategy": ("cooperative-sticky",)},
    "consumer": {"group_protocol": "consumer"},
}
in_every_way = pytest.mark.parametrize("kind", KINDS)


def virtual(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test under virtual time, on asyncio and then on trio."""

    return virtual_on(test, run_virtual_asyncio, run_virtual)


class Journal(ConsumerRebalanceListener):
    """What the consumer's listener is told."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._note("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._note("lost", lost)

    def _note(self, what: str, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self.entries.append((what, sorted(tp.partition for tp in partitions)))


def made(kind: str, partitions: int = 4) -> tuple[Cluster, KafkaConsumer[Any, Any]]:
    cluster = Cluster()
    cluster.topic("orders", partitions=partitions)
    consumer = KafkaConsumer(
        "orders", group_id="billing", auto_offset_reset="earliest", **KINDS[kind], **cluster.options()
    )  # heartbeats every 3 or 5 s
    return cluster, consumer


async def owns(consumer: KafkaConsumer[Any, Any], *partitions: int, member: Member | None = None, others: int = 0) -> None:
    """Read until the consumer has exactly these partitions, and ``member`` as many as it should."""
    for _ in range(100):
        await consumer.getmany(timeout_ms=500)
        there = member is None or len(member.assignment()) == others
        if there and sorted(tp.partition for tp in consumer.assignment()) == list(partitions):
            return
    raise AssertionError(f"the consumer has {sorted(consumer.assignment())}, the member {member and sorted(member.assignment())}")


@in_every_way
@virtual
async def test_a_member_that_joins_gets_its_share_and_gives_it_back(kind: str) -> None:
    cluster, consumer = made(kind)
    async with consumer:
        await owns(consumer, 0, 1, 2, 3)
        other = cluster.join("billing", "orders")
        while len(other.assignment()) != 2:
            await consumer.getmany(timeout_ms=500)
        assert len(consumer.assignment()) == 2
        assert other.assignment() | consumer.assignment() == {TopicPartition("orders", index) for index in range(4)}
        await cluster.assigned("billing", members=2)
        other.leave()
        other.leave()
        await owns(consumer, 0, 1, 2, 3)
        assert len(cluster.members("billing")) == 1


@in_every_way
@virtual
async def test_a_member_takes_what_the_test_says(kind: str) -> None:
    cluster, consumer = made(kind)
    journal = Journal()
    consumer.subscribe(["orders"], listener=journal)
    async with consumer:
        await owns(consumer, 0, 1, 2, 3)
        journal.entries.clear()
        other = cluster.join("billing", partitions=[("orders", 1)])
        assert other.assignment() == set(), "the consumer has not given it up"
        await owns(consumer, 0, 2, 3, member=other, others=1)
        assert other.assignment() == {TopicPartition("orders", 1)}
        revoked = [0, 1, 2, 3] if kind == "eager" else [1]
        assert journal.entries[0] == ("revoked", revoked)
        other.take(("orders", 0), ("orders", 3))
        await owns(consumer, 1, 2, member=other, others=2)
        other.take()
        await owns(consumer, 0, 1, 2, 3)


@in_every_way
@virtual
async def test_a_member_may_be_there_first(kind: str) -> None:
    cluster, consumer = made(kind)
    other = cluster.join("billing", partitions=[("orders", 0), ("orders", 1)])
    assert len(other.assignment()) == 2
    assert cluster.members("billing") == [other.id]
    async with consumer:
        assert sorted(tp.partition for tp in consumer.assignment()) == [2, 3]


@in_every_way
@virtual
async def test_what_a_member_has_committed_is_where_the_consumer_goes_on(kind: str) -> None:
    cluster, consumer = made(kind, partitions=1)
    cluster.produce_many("orders", ["0", "1", "2"], partition=0)
    journal = Journal()
    consumer.subscribe(["orders"], listener=journal)
    async with consumer:
        assert (await consumer.getone()).value == b"0"
        (me,) = cluster.members("billing")
        other = cluster.join("billing", partitions=[("orders", 0)])
        cluster.kick("billing", me)  # its session is over, and the other member has the partition at once
        assert len(other.assignment()) == 1
        other.commit({("orders", 0): 2})
        with pytest.raises(CommitFailedError):
            await consumer.commit()
        other.leave()
        assert (await consumer.getone()).value == b"2"
        assert ("lost", [0]) in journal.entries


async def _read_by(pattern: str) -> list[str]:
    """Return the topics whose records a consumer gets that subscribes to a pattern."""
    cluster = Cluster()
    topics = ("orders", "orders.retry.1", "o.-")
    for topic in topics:
        cluster.topic(topic)
        cluster.produce(topic, value="v")
    consumer = KafkaConsumer[Any, Any](
        group_id="billing", group_protocol="consumer", auto_offset_reset="earliest", **cluster.options()
    )
    consumer.subscribe(pattern=SubscriptionPattern(pattern))
    async with consumer:
        await cluster.assigned("billing")
        return sorted({tp.topic for tp in consumer.assignment()})


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?!.*\.retry\.).*",
        r"(?=o).*",
        r".*(?<=s)",
        r".*(?<!1)",
        r"(o)rders|\1",
        r"(?P<o>o)rders|(?P=o)",
        r"(o)?(?(1)rders|x)",
        r"(?>o)rders",
        r"o*+rders",
        r"o{1,2}+rders",
        r"(?#a comment)orders",
        r"(?x) orders",
        r"orders\Z",
        r"\u006frders",
        r"(",
    ],
)
def test_a_pattern_that_brokers_refuse_is_refused(pattern: str) -> None:
    """They use RE2, so a service whose tests had passed with Python's expressions did not start."""
    with pytest.raises(InvalidRegularExpressionError):
        run_virtual_asyncio(lambda: _read_by(pattern))


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        (r"orders.*", ["orders", "orders.retry.1"]),
        (r"(?i)ORDERS", ["orders"]),
        (r"(?:o|x)rders(?P<rest>\.retry\.\d+)??", ["orders", "orders.retry.1"]),
        (r"[(?=!]*o[*+.]+-", ["o.-"]),
        (r"\++|\*+|x{1,2}|orders", ["orders"]),
        (r"[]\](?>x]*orders", ["orders"]),
    ],
)
def test_a_pattern_that_brokers_accept_reads_what_matches(pattern: str, topics: list[str]) -> None:
    assert run_virtual_asyncio(lambda: _read_by(pattern)) == topics
