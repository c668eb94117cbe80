from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.adapters.admin import Admin, Client, DescribedMember, GroupListing, ShareOffset
from kafka_async.config import ConsumerConfig
from kafka_async.errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    GroupSubscribedToTopicError,
    IllegalStateError,
    MalformedResponseError,
    TopicAuthorizationFailedError,
    UnknownError,
)
from kafka_async.testing.simulation import HANG, KAFKA_3_9, LOSE, FakeBroker, FakeCluster
from kafka_async.wire import (
    Api,
    ConsumerProtocolAssignment,
    FindCoordinatorResponse,
    OffsetFetchResponse,
    Response,
    encode_assignment,
    messages,
)
from kafka_async.wire.messages import admin
from tests.application.support import virtual

NOT_COORDINATOR, LOADING, NO_ACCESS, UNSUPPORTED, NOT_FOUND = 16, 14, 30, 35, 69
NO_TOPIC_ACCESS, SUBSCRIBED = 29, 86
OLD = {**KAFKA_3_9, Api.LIST_GROUPS: 3, Api.DESCRIBE_GROUPS: 5}
"""A broker without the consumer protocol."""


@asynccontextmanager
async def asking(cluster: FakeCluster, **options: Any) -> AsyncIterator[Admin]:
    config = ConsumerConfig.from_options({"bootstrap_servers": cluster.bootstrap_servers, **options})
    async with Client.connect(config, cluster.network) as client:
        yield Admin(client)


def answer(cluster: FakeCluster, api: Api, *responses: Response) -> None:
    """Have the cluster give these answers, one after the other, and the last one again and again."""
    left = list(responses)
    cluster.handlers[api] = lambda *_: left.pop(0) if len(left) > 1 else left[0]


def listed(name: str, kind: str = "Classic") -> admin.ListedGroup:
    return admin.ListedGroup(group_id=name, protocol_type="consumer", group_state="Stable", group_type=kind)


def modern(code: int = 0, **fields: Any) -> admin.ConsumerGroupDescribeResponse:
    group = admin.DescribedConsumerGroup(error_code=code, group_id="g", **fields)
    return admin.ConsumerGroupDescribeResponse(groups=(group,))


def classic(code: int = 0, **fields: Any) -> admin.DescribeGroupsResponse:
    return admin.DescribeGroupsResponse(groups=(admin.DescribedGroup(error_code=code, group_id="g", **fields),))


def assigned(*partitions: int) -> bytes:
    topic = messages.group.ConsumerProtocolTopicPartition(topic="t", partitions=partitions)
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=(topic,)))


# --- delete --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@virtual
async def test_a_group_whose_deletion_was_not_answered_and_that_is_gone_by_now_was_deleted() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.groups.offsets.store("g", tp, OffsetAndMetadata(1))
    cluster.control(Api.DELETE_GROUPS, lambda *_: LOSE)
    async with asking(cluster) as found:
        await found.delete_group("g")
        with pytest.raises(GroupIdNotFound):
            await found.delete_group("g")


def deleted(topic: str, *codes: int) -> admin.OffsetDeleteResponseTopic:
    parts = (admin.OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes))
    return admin.OffsetDeleteResponseTopic(name=topic, partitions=tuple(parts))


@virtual
async def test_an_offset_that_is_not_deleted_comes_with_why_and_with_those_that_are() -> None:
    cluster = FakeCluster()
    topics = deleted("dead", 0, 0), deleted("live", SUBSCRIBED, SUBSCRIBED), deleted("secret", NO_TOPIC_ACCESS, 0)
    answer(cluster, Api.OFFSET_DELETE, admin.OffsetDeleteResponse(topics=topics))

    async with asking(cluster) as asked:
        with pytest.raises(GroupSubscribedToTopicError) as raised:
            await asked.delete_offsets("g", [TopicPartition("dead", 0)])

    assert raised.value.args == (
        "live-0,1: Offsets of a topic cannot be deleted while the group is subscribed to it; "
        f"secret-0: {TopicAuthorizationFailedError.description.rstrip('.')}; deleted: dead-0,1 secret-1",
    )


@pytest.mark.slow
@virtual
async def test_a_code_that_is_not_known_stays_the_one_that_was_answered() -> None:
    cluster = FakeCluster()
    answer(cluster, Api.OFFSET_DELETE, admin.OffsetDeleteResponse(topics=(deleted("t", 999),)))

    async with asking(cluster) as asked:
        with pytest.raises(UnknownError, match="t-0: The broker answered with error code 999") as raised:
            await asked.delete_offsets("g", [TopicPartition("t", 0)])

    assert raised.value.errno == 999


@virtual
@pytest.mark.parametrize(("message", "why"), [(None, "Not authorized to access the topic"), ("gone", "gone; moved: t-1$")])
async def test_a_partition_in_which_a_share_group_is_not_moved_comes_with_why_and_with_those_that_are(
    message: str | None, why: str
) -> None:
    cluster = FakeCluster()
    parts = (
        admin.AlteredPartition(partition_index=0, error_code=NO_TOPIC_ACCESS, error_message=message),
        admin.AlteredPartition(partition_index=1),
    )
    topic = admin.AlteredTopic(topic_name="t", topic_id=None, partitions=parts)
    answer(cluster, Api.ALTER_SHARE_GROUP_OFFSETS, admin.AlterShareGroupOffsetsResponse(responses=(topic,)))

    async with asking(cluster) as asked:
        with pytest.raises(TopicAuthorizationFailedError, match=f"t-0: {why}"):
            await asked.move_share_group("g", {TopicPartition("t", 0): 1, TopicPartition("t", 1): 1})


@virtual
async def test_a_topic_that_a_share_group_does_not_forget_comes_with_why_and_with_those_that_it_does() -> None:
    cluster = FakeCluster()
    topics = (
        admin.DeletedOffsets(topic_name="a", topic_id=None, error_code=NO_TOPIC_ACCESS),
        admin.DeletedOffsets(topic_name="b", topic_id=None),
    )
    answer(cluster, Api.DELETE_SHARE_GROUP_OFFSETS, admin.DeleteShareGroupOffsetsResponse(responses=topics))

    async with asking(cluster) as asked:
        with pytest.raises(TopicAuthorizationFailedError) as raised:
            await asked.forget_share_offsets("g", ["a", "b"])

    assert raised.value.args == (f"a: {TopicAuthorizationFailedError.description.rstrip('.')}; forgotten: b",)


# --- list ----------------------------------------------------------------------------------------------------------------------


@virtual
async def test_every_broker_is_asked_for_its_groups() -> None:
    cluster = FakeCluster(size=3)
    per_broker = {0: ("z", "b"), 1: (), 2: ("a",)}

    def handler(broker: FakeBroker, *_: Any) -> Response:
        return admin.ListGroupsResponse(groups=tuple(listed(name, "Consumer") for name in per_broker[broker.node_id]))

    cluster.handlers[Api.LIST_GROUPS] = handler

    async with asking(cluster) as asked:
        found = await asked.list_groups()

    assert [group.group_id for group in found] == ["a", "b", "z"]
    assert found[0] == GroupListing(group_id="a", kind="consumer", protocol="consumer", state="Stable")


@virtual
async def test_a_broker_that_is_loading_its_groups_is_asked_again() -> None:
    cluster = FakeCluster()
    ready = admin.ListGroupsResponse(groups=(listed("a"),))
    answer(cluster, Api.LIST_GROUPS, admin.ListGroupsResponse(error_code=LOADING), ready)

    async with asking(cluster) as asked:
        assert [group.group_id for group in await asked.list_groups()] == ["a"]


@virtual
async def test_an_old_broker_leaves_state_and_type_out() -> None:
    cluster = FakeCluster(max_versions=OLD)
    answer(cluster, Api.LIST_GROUPS, admin.ListGroupsResponse(groups=(listed("a"),)))

    async with asking(cluster) as asked:
        assert await asked.list_groups() == [GroupListing(group_id="a", kind="", protocol="consumer", state="")]


# --- describe ------------------------------------------------------------------------------------------------------------------


@virtual
async def test_a_group_of_the_consumer_protocol_is_described() -> None:
    cluster = FakeCluster(size=2)
    topic = admin.NamedTopicPartitions(topic_id=None, topic_name="t", partitions=(1, 0))
    member = admin.ConsumerGroupMember(
        member_id="m",
        instance_id="i",
        member_epoch=4,
        client_id="c",
        client_host="/h",
        assignment=admin.NamedAssignment(topic_partitions=(topic,)),
    )
    answer(
        cluster,
        Api.CONSUMER_GROUP_DESCRIBE,
        modern(group_state="Stable", group_epoch=5, assignor_name="uniform", members=(member,)),
    )

    async with asking(cluster) as asked:
        group = await asked.describe("g")

    assert (group.kind, group.state, group.epoch, group.assignor, group.coordinator.id) == ("consumer", "Stable", 5, "uniform", 0)
    partitions = (TopicPartition("t", 0), TopicPartition("t", 1))
    assert group.members == (
        DescribedMember(member_id="m", instance_id="i", client_id="c", host="/h", epoch=4, partitions=partitions),
    )


@pytest.mark.parametrize("code", [NOT_FOUND, UNSUPPORTED, None])
def test_a_group_that_is_not_of_the_consumer_protocol_is_described_as_a_classic_one(code: int | None) -> None:
    @virtual
    async def test() -> None:
        cluster = FakeCluster() if code is not None else FakeCluster(max_versions=OLD)
        member = admin.DescribedGroupMember(member_id="m", client_id="c", client_host="/h", member_assignment=assigned(1, 0))
        if code is not None:
            answer(cluster, Api.CONSUMER_GROUP_DESCRIBE, modern(code))
        state: dict[str, Any] = {"group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range"}
        answer(cluster, Api.DESCRIBE_GROUPS, classic(**state, members=(member,)))

        async with asking(cluster) as asked:
            group = await asked.describe("g")

        assert (group.kind, group.state, group.epoch, group.assignor) == ("classic", "Stable", None, "range")
        assert group.members[0].partitions == (TopicPartition("t", 0), TopicPartition("t", 1))
        assert group.members[0].epoch is None

    test()


@pytest.mark.parametrize(("protocol", "data"), [("connect", b"\x00\x01other bytes"), ("consumer", b"")])
def test_a_member_without_an_assignment_of_consumers_has_no_partitions(protocol: str, data: bytes) -> None:
    @virtual
    async def test() -> None:
        cluster = FakeCluster()
        member = admin.DescribedGroupMember(member_id="m", member_assignment=data)
        answer(cluster, Api.CONSUMER_GROUP_DESCRIBE, modern(NOT_FOUND))
        answer(cluster, Api.DESCRIBE_GROUPS, classic(group_state="Stable", protocol_type=protocol, members=(member,)))

        async with asking(cluster) as asked:
            assert (await asked.describe("g")).members[0].partitions == ()

    test()


@pytest.mark.parametrize("gone", [classic(NOT_FOUND), classic(group_state="Dead")])
def test_a_group_that_does_not_exist_is_an_error(gone: Response) -> None:
    @virtual
    async def test() -> None:
        cluster = FakeCluster()
        answer(cluster, Api.CONSUMER_GROUP_DESCRIBE, modern(NOT_FOUND))
        answer(cluster, Api.DESCRIBE_GROUPS, gone)
        answer(cluster, Api.LIST_GROUPS, admin.ListGroupsResponse(groups=(listed("another"),)))

        async with asking(cluster) as asked:
            with pytest.raises(GroupIdNotFound, match="group 'g' does not exist"):
                await asked.describe("g")

    test()


@pytest.mark.parametrize("kind", ["Streams"])
def test_a_group_of_another_kind_is_not_said_to_be_missing(kind: str) -> None:
    @virtual
    async def test() -> None:
        cluster = FakeCluster()
        answer(cluster, Api.CONSUMER_GROUP_DESCRIBE, modern(NOT_FOUND))
        answer(cluster, Api.DESCRIBE_GROUPS, classic(NOT_FOUND))
        answer(cluster, Api.LIST_GROUPS, admin.ListGroupsResponse(groups=(listed("another"), listed("g", kind))))

        async with asking(cluster) as asked:
            assert await asked.find("g") == GroupListing(group_id="g", kind=kind.lower(), protocol="consumer", state="Stable")
            with pytest.raises(IllegalStateError, match=f"group 'g' is a {kind.lower()} group, not a group of consumers"):
                await asked.describe("g")

    test()


@virtual
async def test_a_share_group_is_described_with_its_lag() -> None:
    cluster = FakeCluster()
    answer(cluster, Api.CONSUMER_GROUP_DESCRIBE, modern(NOT_FOUND))
    answer(cluster, Api.DESCRIBE_GROUPS, classic(NOT_FOUND))
    answer(cluster, Api.LIST_GROUPS, admin.ListGroupsResponse(groups=(listed("g", "Share"),)))
    described = admin.DescribedShareGroup(group_id="g", group_state="Stable", assignor_name="simple", group_epoch=3)
    answer(cluster, Api.SHARE_GROUP_DESCRIBE, admin.ShareGroupDescribeResponse(groups=(described,)))
    parts = (admin.SharePartitionOffset(partition_index=0, start_offset=5, lag=2), admin.SharePartitionOffset(partition_index=1))
    topic = admin.ShareTopicOffsets(topic_name="t", topic_id=None, partitions=parts)
    stands = admin.ShareGroupOffsets(group_id="g", topics=(topic,))
    answer(cluster, Api.DESCRIBE_SHARE_GROUP_OFFSETS, admin.DescribeShareGroupOffsetsResponse(groups=(stands,)))

    async with asking(cluster) as asked:
        group = await asked.describe("g")
        assert (group.kind, group.state, group.assignor, group.epoch) == ("share", "Stable", "simple", 3)
        assert await asked.share_offsets("g") == {
            TopicPartition("t", 0): ShareOffset(5, 2),
            TopicPartition("t", 1): ShareOffset(None, None),
        }


TO, COPY, ALLOWED = (
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.group.enable",
)


def refused_configs(kind: int, code: int) -> Callable[[FakeBroker, Any], object]:
    """Have brokers refuse to describe resources of a kind."""

    def decide(broker: FakeBroker, request: messages.DescribeConfigsRequest) -> object:
        (asked,) = request.resources
        if asked.resource_type != kind:
            return None
        result = messages.DescribeConfigsResult(error_code=code, resource_type=kind, resource_name=asked.resource_name)
        return messages.DescribeConfigsResponse(results=(result,))

    return decide


@pytest.mark.parametrize(
    ("name", "config", "problem"),
    [
        ("dlq.t", {ALLOWED: True}, None),
        ("dlq.t", {ALLOWED: False}, "the topic does not have errors.deadletterqueue.group.enable=true"),
        ("dlq.t", {}, "the topic does not have errors.deadletterqueue.group.enable=true"),
        ("letters", {ALLOWED: True}, "does not begin with 'dlq.', which the brokers' errors.deadletterqueue.topic.name.prefix"),
        ("dlq.t", None, "the topic does not exist"),
    ],
)
def test_where_dead_letters_go_is_told_with_what_speaks_against_it(
    name: str, config: dict[str, object] | None, problem: str | None
) -> None:
    @virtual
    async def test() -> None:
        cluster = FakeCluster()
        if config is not None:
            cluster.create_topic(name, config=config)
        async with asking(cluster) as asked:
            assert await asked.dead_letters("g") is None
            await asked.configure_group("g", {TO: name})
            found = await asked.dead_letters("g")
            assert found is not None
            assert (found.name, found.with_records, found.problem is None) == (name, False, problem is None)
            assert problem is None or problem in str(found.problem)
            await asked.configure_group("g", {COPY: "true"})
            assert (again := await asked.dead_letters("g")) is not None
            assert again.with_records

    test()


@virtual
async def test_a_cluster_that_was_not_brought_to_the_level_of_dead_letters_is_told() -> None:
    cluster = FakeCluster()
    cluster.create_topic("dlq.t", config={ALLOWED: True})
    async with asking(cluster) as asked:
        await asked.configure_group("g", {TO: "dlq.t"})
        level = messages.FinalizedFeatureKey(name="share.version", max_version_level=1, min_version_level=1)
        before = messages.ApiVersionsResponse(finalized_features_epoch=7, finalized_features=(level,))
        cluster.control(Api.API_VERSIONS, lambda *_: before)
        found = await asked.dead_letters("g")
    assert found is not None
    assert "share.version=1" in str(found.problem)


@pytest.mark.parametrize(("kind", "code"), [(2, 29), (4, 31)])
def test_what_may_not_be_looked_at_speaks_against_nothing(kind: int, code: int) -> None:
    @virtual
    async def test() -> None:
        cluster = FakeCluster()
        cluster.create_topic("dlq.t", config={ALLOWED: True})
        async with asking(cluster) as asked:
            await asked.configure_group("g", {TO: "dlq.t"})
            cluster.control(Api.DESCRIBE_CONFIGS, refused_configs(kind, code), keep=True)
            found = await asked.dead_letters("g")
        assert found is not None
        assert found.problem is None

    test()


@virtual
async def test_what_one_broker_does_not_tell_another_does() -> None:
    """The first hangs. Each has the same rule for names, and tells only its own settings."""
    cluster = FakeCluster(size=2)
    cluster.create_topic("letters", config={ALLOWED: True})

    def decide(broker: FakeBroker, request: messages.DescribeConfigsRequest) -> object:
        return HANG if broker.node_id == 0 and request.resources[0].resource_type == 4 else None

    async with asking(cluster) as asked:
        await asked.configure_group("g", {TO: "letters"})
        cluster.control(Api.DESCRIBE_CONFIGS, decide, keep=True)
        found = await asked.dead_letters("g")
    assert found is not None
    assert "does not begin with 'dlq.'" in str(found.problem)
    assert anyio.current_time() < 10


@virtual
async def test_older_brokers_have_no_dead_letters() -> None:
    cluster = FakeCluster()
    setting = messages.DescribeConfigsResourceResult(name="share.auto.offset.reset", value="latest")
    result = messages.DescribeConfigsResult(resource_type=32, resource_name="g", configs=(setting,))
    answer(cluster, Api.DESCRIBE_CONFIGS, messages.DescribeConfigsResponse(results=(result,)))
    async with asking(cluster) as asked:
        assert await asked.dead_letters("g") is None


@virtual
async def test_a_coordinator_that_has_moved_is_looked_for_again() -> None:
    cluster = FakeCluster(size=2)
    brokers = [0, 1]

    def find(broker: FakeBroker, request: Any, *_: Any) -> Response:
        number = brokers.pop(0)
        found = messages.Coordinator(key="g", node_id=number, host=f"b{number}", port=9092)
        return FindCoordinatorResponse(coordinators=(found,))

    def describe(broker: FakeBroker, *_: Any) -> Response:
        return modern(NOT_COORDINATOR) if broker.node_id == 0 else modern(group_state="Empty")

    cluster.handlers[Api.FIND_COORDINATOR] = find
    cluster.handlers[Api.CONSUMER_GROUP_DESCRIBE] = describe

    async with asking(cluster) as asked:
        assert (await asked.describe("g")).coordinator.id == 1


@pytest.mark.parametrize("place", [Api.FIND_COORDINATOR, Api.CONSUMER_GROUP_DESCRIBE, Api.DESCRIBE_GROUPS])
def test_no_access_is_raised_at_once(place: Api) -> None:
    refusals: dict[Api, Callable[[], Response]] = {
        Api.FIND_COORDINATOR: lambda: FindCoordinatorResponse(coordinators=(messages.Coordinator(key="g", error_code=NO_ACCESS),)),
        Api.CONSUMER_GROUP_DESCRIBE: lambda: modern(NO_ACCESS),
        Api.DESCRIBE_GROUPS: lambda: classic(NO_ACCESS),
    }

    @virtual
    async def test() -> None:
        cluster = FakeCluster()
        answer(cluster, Api.CONSUMER_GROUP_DESCRIBE, modern(NOT_FOUND))
        answer(cluster, place, refusals[place]())

        async with asking(cluster) as asked:
            with pytest.raises(GroupAuthorizationFailedError):
                await asked.describe("g")

    test()


@virtual
async def test_an_answer_without_the_group_is_malformed() -> None:
    cluster = FakeCluster()
    answer(cluster, Api.CONSUMER_GROUP_DESCRIBE, admin.ConsumerGroupDescribeResponse())

    async with asking(cluster, default_api_timeout_ms=300) as asked:
        with pytest.raises(MalformedResponseError, match="leaves the group 'g' out"):
            await asked.describe("g")


# --- committed -----------------------------------------------------------------------------------------------------------------


def stored(code: int = 0, *parts: messages.OffsetFetchResponsePartitions) -> OffsetFetchResponse:
    topic = messages.OffsetFetchResponseTopics(name="t", partitions=parts)
    return OffsetFetchResponse(groups=(messages.OffsetFetchResponseGroup(group_id="g", error_code=code, topics=(topic,)),))


@virtual
async def test_all_committed_offsets_are_found_by_name() -> None:
    cluster = FakeCluster()
    parts = (
        messages.OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, committed_leader_epoch=2, metadata="x"),
        messages.OffsetFetchResponsePartitions(partition_index=1, committed_offset=0, metadata=None),
        messages.OffsetFetchResponsePartitions(partition_index=2),
    )
    answer(cluster, Api.OFFSET_FETCH, stored(LOADING), stored(0, *parts))

    async with asking(cluster) as asked:
        found = await asked.committed("g")

    assert found == {TopicPartition("t", 0): OffsetAndMetadata(7, "x", 2), TopicPartition("t", 1): OffsetAndMetadata(0, "", None)}
    (last,) = cluster.asked(Api.OFFSET_FETCH)[-1:]
    assert last.version == 9
    assert last.request.groups[0].topics is None


@virtual
async def test_a_partition_that_cannot_be_read_is_an_error_and_no_missing_offset() -> None:
    cluster = FakeCluster()
    answer(cluster, Api.OFFSET_FETCH, stored(0, messages.OffsetFetchResponsePartitions(partition_index=0, error_code=NO_ACCESS)))

    async with asking(cluster) as asked:
        with pytest.raises(GroupAuthorizationFailedError):
            await asked.committed("g")
