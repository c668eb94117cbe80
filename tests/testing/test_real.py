"""``RealCluster`` against brokers that are simulated: what it asks them, and what it makes of their answers."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anyio
import pytest

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    NoBrokersAvailable,
    TopicAuthorizationFailedError,
)
from kafka_async.testing import Api, Cluster, RealCluster, ThreadedCluster
from kafka_async.wire import encode_assignment, encode_subscription
from kafka_async.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, ConsumerProtocolTopicPartition
from kafka_async.wire.messages.admin import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from tests.virtual import run_virtual_asyncio


@pytest.fixture
def real() -> Iterator[RealCluster]:
    with ThreadedCluster(Cluster(brokers=2)) as served, RealCluster(served.bootstrap) as cluster:
        yield cluster


async def test_members_of_a_share_group_are_waited_for_named_and_removed(real: RealCluster) -> None:
    real.topic("jobs", 2)
    real.group("workers", share_auto_offset_reset="earliest")
    assert real.members("workers") == []
    options = {"group_id": "workers", **real.options()}
    async with ShareConsumer("jobs", **options), ShareConsumer("jobs", **options):
        await real.assigned("workers", members=2)
        one, two = real.members("workers")
        real.kick("workers", one)
        assert real.members("workers") == [two]
        real.kick("workers")
        assert real.members("workers") == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_members_of_other_groups_are_waited_for_named_and_removed(real: RealCluster, protocol: Any) -> None:
    real.topic("t")
    async with KafkaConsumer("t", group_id="g", group_protocol=protocol, **real.options()):
        await real.assigned("g")
        assert len(real.members("g")) == 1
        real.kick("g")
        assert real.members("g") == []


@pytest.mark.slow
def test_a_group_that_is_not_assigned_in_time_is_described(real: RealCluster) -> None:
    expected = "group 'g' has 0 members, not all assigned; 1 were expected within 60 s"
    with pytest.raises(TimeoutError, match=re.escape(expected)):
        run_virtual_asyncio(lambda: real.assigned("g"))


@pytest.mark.parametrize("by", ["real", "simulated"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_topic_that_is_made_anew_keeps_its_settings_and_its_number_of_replicas(by: str, replicas: int) -> None:
    with ThreadedCluster(Cluster(brokers=2)) as served, RealCluster(served.bootstrap) as real:
        real.topic("t", 3, replicas=replicas, message_timestamp_type="LogAppendTime")
        real.produce("t", value="a")
        if by == "real":
            real.recreate("t")
        else:
            served.call(lambda cluster: cluster.recreate("t")).result()
        assert real.records("t") == []
        real.produce("t", value="b", timestamp=1000)
        (record,) = real.records("t")
        assert record.timestamp > 1000
        made = served.call(lambda cluster: [len(each.replicas) for each in cluster.simulated.topics["t"].partitions]).result()
        assert made == [replicas] * 3


@pytest.mark.parametrize("addresses", ["127.0.0.1:1,{}", "{},127.0.0.1:1"])
def test_one_bootstrap_server_that_answers_is_enough(addresses: str) -> None:
    with ThreadedCluster(Cluster()) as served, RealCluster(addresses.format(served.bootstrap)) as real:
        real.topic("t")
        real.produce("t", value="a")
        assert [each.value for each in real.records("t")] == [b"a"]


def test_each_bootstrap_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(NoBrokersAvailable, match=r"no broker answers at 127\.0\.0\.1:1: .*refused.*; 127\.0\.0\.1:2: .*refused"):
        RealCluster("127.0.0.1:1,127.0.0.1:2").connect()


def _writes(real: Any) -> None:
    with real.transaction() as writing:
        writing.produce("t", "v", partition=3)


OF_A_TOPIC: dict[str, Callable[[Any], object]] = {
    "produce": lambda some: some.produce("t", value="v"),
    "produce with a key": lambda some: some.produce("t", key="k", value="v"),
    "records": lambda some: some.records("t"),
    "delete": lambda some: some.delete("t"),
    "recreate": lambda some: some.recreate("t"),
    "add_partitions": lambda some: some.add_partitions("t", 9),
}
OF_A_PARTITION: dict[str, Callable[[Any], object]] = {
    "produce to": lambda some: some.produce("t", value="v", partition=3),
    "produce many to": lambda some: some.produce_many("t", ["v"], partition=3),
    "records of": lambda some: some.records("t", partition=3),
    "end": lambda some: some.end(("t", 3)),
    "delete_before": lambda some: some.delete_before(("t", 3), 0),
    "transaction": _writes,
}


@pytest.mark.parametrize("call", [*OF_A_TOPIC, *OF_A_PARTITION])
def test_a_topic_that_is_not_there_is_named(call: str, real: RealCluster) -> None:
    for some in (real, Cluster()):
        with pytest.raises(ValueError, match=r"^there is no topic 't'; create it with cluster\.topic\('t'\)$"):
            {**OF_A_TOPIC, **OF_A_PARTITION}[call](some)


@pytest.mark.parametrize("call", OF_A_PARTITION)
def test_a_partition_that_is_not_there_is_named(call: str, real: RealCluster) -> None:
    for some in (real, Cluster()):
        some.topic("t", 3)
        with pytest.raises(ValueError, match=r"^topic 't' has no partition 3; it has 3$"):
            OF_A_PARTITION[call](some)


@pytest.mark.parametrize("call", [*OF_A_TOPIC, *OF_A_PARTITION])
def test_a_topic_that_the_user_may_not_see_is_named(call: str) -> None:
    with ThreadedCluster(Cluster()) as served, RealCluster(served.bootstrap) as real:
        real.topic("t", 4)
        served.call(lambda cluster: cluster.deny("t")).result()
        with pytest.raises(TopicAuthorizationFailedError, match="'t'"):
            {**OF_A_TOPIC, **OF_A_PARTITION}[call](real)


OF_GROUPS = (Api.CONSUMER_GROUP_DESCRIBE, Api.SHARE_GROUP_DESCRIBE, Api.DESCRIBE_GROUPS)


def loading(served: ThreadedCluster, *apis: Api) -> None:
    """Let the coordinator say once for each of these that it has just been started."""
    for api in apis:
        served.call(partial(Cluster.control, api=api, fn=lambda *_: CoordinatorLoadInProgressError)).result()


@pytest.mark.parametrize(("kafka", "leaving"), [("2.8", Api.LEAVE_GROUP), ("4.4", Api.CONSUMER_GROUP_HEARTBEAT)])
def test_a_coordinator_that_is_loading_is_asked_again(kafka: str, leaving: Api) -> None:
    with ThreadedCluster(Cluster(kafka=kafka)) as served, RealCluster(served.bootstrap) as real:
        (tp,) = real.topic("t")
        member = served.call(lambda cluster: cluster.join("g", "t")).result()
        served.call(lambda cluster: member.commit({tp: 0})).result()
        loading(served, *OF_GROUPS)
        assert real.members("g") == [member.id]
        loading(served, Api.OFFSET_FETCH)
        assert set(real.committed("g")) == {tp}
        loading(served, leaving)
        real.kick("g", member.id)
        assert real.members("g") == []


def test_what_a_group_has_committed_is_told_without_topics_that_the_user_may_not_see() -> None:
    with ThreadedCluster(Cluster()) as served, RealCluster(served.bootstrap) as real:
        seen, hidden = *real.topic("seen"), *real.topic("hidden")
        member = served.call(lambda cluster: cluster.join("g", "seen", "hidden")).result()
        served.call(lambda cluster: member.commit({seen: 1, hidden: 2})).result()
        served.call(lambda cluster: cluster.deny("hidden")).result()
        assert set(real.committed("g")) == {seen}


def test_a_group_that_the_user_may_not_see_is_named() -> None:
    with ThreadedCluster(Cluster()) as served, RealCluster(served.bootstrap) as real:
        served.call(lambda cluster: cluster.control(Api.CONSUMER_GROUP_DESCRIBE, lambda *_: GroupAuthorizationFailedError)).result()
        with pytest.raises(GroupAuthorizationFailedError, match="'g'"):
            real.members("g")


def called(end: Callable[[], None], cluster: Cluster) -> None:
    end()


def test_others_go_on_while_a_coordinator_that_is_loading_is_asked_whether_a_group_is_assigned() -> None:
    cluster = Cluster()
    with ThreadedCluster(cluster) as served, RealCluster(served.bootstrap) as real:
        real.topic("t")
        served.call(lambda cluster: cluster.join("g", "t")).result()
        ends = [
            served.call(partial(Cluster.control, api=api, fn=lambda *_: CoordinatorLoadInProgressError, keep=True)).result()
            for api in OF_GROUPS
        ]

        async def main() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(real.assigned, "g")
                await anyio.sleep(5)
                for end in ends:
                    served.call(partial(called, end)).result()

        run_virtual_asyncio(main)
        assert real.members("g") == cluster.members("g")


def test_a_member_that_is_not_there_is_named(real: RealCluster) -> None:
    for some in (real, Cluster()):
        with pytest.raises(ValueError, match=r"^group 'g' has no member 'm'; it has \[\]$"):
            some.kick("g", "m")


async def test_members_that_have_to_give_something_up_first_are_waited_for() -> None:
    """Between two generations of a cooperative group it is stable for a moment."""

    def described(*has: int, owned: tuple[int, ...]) -> DescribeGroupsResponse:
        """Describe a group whose first member had ``owned``, and whose members have so many partitions each."""
        parts = [tuple(range(sum(has[:place]), sum(has[: place + 1]))) for place in range(len(has))]
        members = tuple(
            DescribedGroupMember(
                member_id=str(place),
                member_metadata=encode_subscription(
                    ConsumerProtocolSubscription(topics=("t",), owned_partitions=of_t(() if place else owned))
                ),
                member_assignment=encode_assignment(ConsumerProtocolAssignment(assigned_partitions=of_t(each))),
            )
            for place, each in enumerate(parts)
        )
        group = DescribedGroup(group_id="g", group_state="Stable", protocol_data="cooperative-sticky", members=members)
        return DescribeGroupsResponse(groups=(group,))

    answers = [described(2, 0, owned=(0, 1, 2, 3)), described(2, 2, owned=(0, 1))]
    with ThreadedCluster(Cluster()) as served, RealCluster(served.bootstrap) as real:
        served.call(lambda cluster: cluster.control(Api.DESCRIBE_GROUPS, lambda *_: answers.pop(0), keep=True)).result()
        await real.assigned("g", members=2)
    assert answers == []


def of_t(partitions: tuple[int, ...]) -> tuple[ConsumerProtocolTopicPartition, ...]:
    return (ConsumerProtocolTopicPartition(topic="t", partitions=partitions),)


@pytest.mark.parametrize("count", [0, 250])
def test_many_records_are_written_in_batches_of_a_hundred(count: int) -> None:
    sizes = [100, 100, 50] if count else []
    cluster, other = Cluster(), Cluster()
    with ThreadedCluster(cluster) as served, RealCluster(served.bootstrap) as real:
        for some in (real, other):
            some.topic("t")
            some.produce_many("t", ["v"] * count, partition=0)
    for each in (cluster, other):
        batches = each.simulated.log(TopicPartition("t", 0)).batches
        assert [batch.last_offset - batch.base_offset + 1 for batch in batches] == sizes
