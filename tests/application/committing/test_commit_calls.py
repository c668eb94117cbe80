"""Commits that the application asks for, and those of ``process``: what is raised, and what is returned instead."""

import itertools

import pytest

from kafka_async import ConsumerConfig, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka_async.application.parts import Parts, assemble
from kafka_async.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    IllegalOperation,
    IllegalStateError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafka_async.testing.simulation import FakeBroker, FakeCluster
from kafka_async.wire import Api
from kafka_async.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

from ..support import Consumer, commit_answer, read_values, virtual

GROUP = "g"
ONE, TWO, THREE = (TopicPartition(topic, 0) for topic in ("one", "two", "three"))


def member(**options: object) -> tuple[FakeCluster, Parts, Consumer]:
    """Return a consumer of three topics with a record each, and its parts."""
    cluster = FakeCluster()
    for tp in (ONE, TWO, THREE):
        cluster.create_topic(tp.topic)
        cluster.fill(tp, 1)
    given = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        **options,
    }
    parts = assemble(ConsumerConfig.from_options({"group_id": GROUP, **given}), transport_factory=cluster.network)
    return cluster, parts, KafkaConsumer("one", "two", "three", parts=parts)


def refuse(cluster: FakeCluster, codes: dict[TopicPartition, int]) -> None:
    """Answer commits of these partitions with errors from now on. What is not refused is not stored, either."""

    def answer(broker: FakeBroker, request: OffsetCommitRequest) -> OffsetCommitResponse:
        def code(topic: OffsetCommitRequestTopic, part: OffsetCommitRequestPartition) -> int:
            name = topic.name or cluster.name_of(topic.topic_id) or ""
            return codes.get(TopicPartition(name, part.partition_index), 0)

        return commit_answer(request, code)

    cluster.control(Api.OFFSET_COMMIT, answer, keep=True)


async def give_up_three(consumer: Consumer) -> None:
    """Have read all, and be assigned the first two topics only."""
    assert len(await read_values(consumer, 3)) == 3
    consumer.subscribe(["one", "two"])
    assert await read_values(consumer, 1, seconds=1) == []
    assert set(consumer.assignment()) == {ONE, TWO}


@virtual
async def test_a_commit_of_a_partition_that_was_given_up_names_it_and_commits_the_others() -> None:
    cluster, _, consumer = member()
    async with consumer:
        await give_up_three(consumer)
        with pytest.raises(CommitFailedError, match="three-0") as raised:
            await consumer.commit({ONE: 1, TWO: 1, THREE: 1})
    assert raised.value.lost == (THREE,)
    assert (cluster.committed[GROUP, ONE], cluster.committed[GROUP, TWO]) == (1, 1)
    assert (GROUP, THREE) not in cluster.committed


@virtual
async def test_what_is_refused_and_what_was_given_up_come_back_as_one_value_each_with_its_reason() -> None:
    cluster, parts, consumer = member()
    async with consumer:
        await give_up_three(consumer)
        refuse(cluster, {TWO: OffsetMetadataTooLargeError.errno})
        refused = await parts.commits.commit_once({ONE: 1, TWO: 1, THREE: 1})
    assert {tp: type(error) for tp, error in refused.items()} == {TWO: OffsetMetadataTooLargeError, THREE: CommitFailedError}
    assert "three-0" in str(refused[THREE])


@virtual
async def test_the_first_answer_about_a_topic_that_brokers_do_not_know_is_final_unless_the_caller_waits() -> None:
    cluster, parts, consumer = member(default_api_timeout_ms=2_000, request_timeout_ms=1_000)
    async with consumer:
        assert len(await read_values(consumer, 3)) == 3
        refuse(cluster, {TWO: UnknownTopicOrPartitionError.errno})
        refused = await parts.commits.commit_once({ONE: 1, TWO: 1})
        assert {tp: type(error) for tp, error in refused.items()} == {TWO: UnknownTopicOrPartitionError}
        assert len(cluster.asked(Api.OFFSET_COMMIT)) == 1
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.commit({ONE: 1, TWO: 1})
        assert len(cluster.asked(Api.OFFSET_COMMIT)) > 2


@virtual
async def test_nothing_is_returned_of_a_commit_that_is_refused_as_a_whole() -> None:
    cluster, parts, consumer = member()
    async with consumer:
        assert len(await read_values(consumer, 3)) == 3
        cluster.control(Api.OFFSET_COMMIT, lambda broker, request: GroupAuthorizationFailedError.errno, keep=True)
        with pytest.raises(GroupAuthorizationFailedError):
            await parts.commits.commit_once({ONE: 1, TWO: 1})


@virtual
async def test_a_commit_needs_a_group_and_partitions_that_were_assigned() -> None:
    cluster, parts, consumer = member()
    alone = KafkaConsumer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers, transport_factory=cluster.network)
    alone.assign([ONE])
    async with consumer, alone:
        with pytest.raises(IllegalOperation, match="group_id"):
            await alone.commit()
        other = TopicPartition("other", 0)
        with pytest.raises(IllegalStateError, match="other-0"):
            await consumer.commit({other: 1, ONE: 1})
        refused = await parts.commits.commit_once({other: 1, ONE: 1})
    assert {tp: type(error) for tp, error in refused.items()} == {other: CommitFailedError}
    assert cluster.committed[GROUP, ONE] == 1


@virtual
async def test_an_offset_that_is_the_position_is_committed_with_its_leader_epoch_and_no_other_one() -> None:
    _, _, consumer = member()
    async with consumer:
        assert len(await read_values(consumer, 3)) == 3
        for wanted, epoch in ((1, 0), ((1, "note"), 0), (OffsetAndMetadata(1, "", 7), 7)):
            await consumer.commit({ONE: wanted, TWO: 0})
            one, two = (await consumer.committed_offsets(ONE, TWO)).values()
            assert two == OffsetAndMetadata(0), "that epoch is not known to be the one before this offset"
            assert one is not None
            assert one.leader_epoch == epoch


@virtual
async def test_committed_offsets_and_look_ups_answer_in_the_order_asked() -> None:
    _, _, consumer = member()
    async with consumer:
        await consumer.commit({ONE: 1})
        for order in itertools.permutations((ONE, TWO, THREE)):
            assert [*await consumer.committed_offsets(*order)] == [*order]
            assert [*await consumer.beginning_offsets(order)] == [*order]
            assert [*await consumer.offsets_for_times(dict.fromkeys(order, 0))] == [*order]
