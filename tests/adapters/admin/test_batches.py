"""Many groups at once: how many requests it takes, and what one broker or one group that refuses costs the others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from math import ceil
from typing import Any

import anyio
import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.adapters.admin import EARLIEST, LATEST, Admin, Client, GroupListing, ShareOffset, batches
from kafka_async.config import ConsumerConfig
from kafka_async.errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    KafkaConnectionError,
    KafkaTimeoutError,
    MalformedResponseError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    UnsupportedVersionError,
)
from kafka_async.model import OffsetAndTimestamp
from kafka_async.testing.simulation import HANG, KAFKA_2_8, KAFKA_3_9, FakeCluster
from kafka_async.wire import Api
from kafka_async.wire.messages import OffsetFetchResponse, OffsetFetchResponseGroup
from tests.application.support import virtual

DENIED = 30
T0 = TopicPartition("t", 0)


@asynccontextmanager
async def asking(cluster: FakeCluster, **options: Any) -> AsyncIterator[Admin]:
    config = ConsumerConfig.from_options({"bootstrap_servers": cluster.bootstrap_servers, **options})
    async with Client.connect(config, cluster.network) as client:
        yield Admin(client)


def with_groups(count: int, size: int = 3, **options: Any) -> FakeCluster:
    """Return a cluster whose brokers coordinate groups in turn; each has committed one offset."""
    cluster = FakeCluster(size=size, **options)
    cluster.create_topic("t", 1)
    for number in range(count):
        name = f"g{number:05}"
        cluster.groups.moved[name] = number % size
        cluster.groups.offsets.store(name, T0, OffsetAndMetadata(number))
    return cluster


async def listed(admin: Admin) -> list[GroupListing]:
    found = await batches.list_many(admin.client)
    return [group for groups in found.values() if not isinstance(groups, Exception) for group in groups]


@pytest.mark.slow
@virtual
async def test_five_thousand_groups_take_a_request_for_each_hundred_of_a_broker() -> None:
    cluster = with_groups(5000)

    async with asking(cluster) as admin:
        since = anyio.current_time()
        groups = await listed(admin)
        described = await batches.describe_many(admin.client, groups)
        committed = await batches.committed_many(admin.client, groups)
        asked = cluster.asked(since=since)

    assert len(groups) == len(described) == len(committed) == 5000
    assert committed["g00007"] == {T0: OffsetAndMetadata(7)}
    assert {type(group) for group in described.values()} == {type(described["g00007"])}
    per_broker = [len([group for group in groups if group.coordinator == node]) for node in range(3)]
    assert len(asked) == 3 + 2 * sum(ceil(count / 100) for count in per_broker) == 105


@virtual
async def test_a_broker_has_one_request_on_its_way_at_a_time_and_brokers_are_asked_at_once() -> None:
    cluster = with_groups(900, latency=1.0)

    async with asking(cluster) as admin:
        groups = await listed(admin)
        since = anyio.current_time()
        await batches.committed_many(admin.client, groups, 60)
        took = anyio.current_time() - since
        asked = cluster.asked(Api.OFFSET_FETCH, since=since)

    for node in range(3):
        times = [entry.time for entry in asked if entry.node_id == node]
        assert len(times) == 3
        assert all(later - earlier >= 1 for earlier, later in pairwise(times))
    assert took == pytest.approx(3, abs=0.5)


@virtual
async def test_a_silent_broker_costs_its_own_groups_alone_and_the_deadline_once() -> None:
    cluster = with_groups(900)

    async with asking(cluster) as admin:
        groups = await listed(admin)
        cluster.control(Api.OFFSET_FETCH, lambda *_: HANG, keep=True, node=1)
        since = anyio.current_time()
        found = await batches.committed_many(admin.client, groups, 5)
        took = anyio.current_time() - since
        asked = cluster.asked(Api.OFFSET_FETCH, since=since)

    late = {name for name, outcome in found.items() if isinstance(outcome, KafkaTimeoutError)}
    assert late == {group.group_id for group in groups if group.coordinator == 1}
    assert all(isinstance(outcome, dict) for name, outcome in found.items() if name not in late)
    assert took == pytest.approx(5, abs=0.1)
    assert len([entry for entry in asked if entry.node_id == 1]) == 1


@virtual
async def test_a_broker_that_is_down_is_tried_once() -> None:
    cluster = with_groups(900)

    async with asking(cluster) as admin:
        groups = await listed(admin)
        cluster.stop(2)
        found = await batches.describe_many(admin.client, groups, 5)

    lost = {name for name, outcome in found.items() if isinstance(outcome, KafkaConnectionError | KafkaTimeoutError)}
    assert lost == {group.group_id for group in groups if group.coordinator == 2}
    assert len(found) == 900


@virtual
async def test_a_group_that_is_denied_is_an_error_in_its_place() -> None:
    cluster = with_groups(4, size=1)
    denied = OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g00000", error_code=DENIED),))

    async with asking(cluster) as admin:
        groups = await listed(admin)
        cluster.control(Api.OFFSET_FETCH, cluster.answering(denied))
        found = await batches.committed_many(admin.client, groups)

    assert isinstance(found["g00000"], GroupAuthorizationFailedError)
    assert isinstance(found["g00001"], MalformedResponseError)
    assert "leaves 'g00001' out" in str(found["g00001"])


@virtual
async def test_a_list_that_is_refused_is_an_error_of_its_broker() -> None:
    cluster = with_groups(6)

    async with asking(cluster) as admin:
        cluster.control(Api.LIST_GROUPS, lambda *_: DENIED, node=1)
        found = await batches.list_many(admin.client)

    assert isinstance(found[1], GroupAuthorizationFailedError)
    for node in (0, 2):
        groups = found[node]
        assert not isinstance(groups, Exception)
        assert {group.coordinator for group in groups} == {node}


@virtual
async def test_a_group_that_has_moved_is_an_error_until_it_is_listed_again() -> None:
    cluster = with_groups(2, size=2)

    async with asking(cluster) as admin:
        groups = await listed(admin)
        cluster.groups.moved["g00000"] = 1
        first = await batches.committed_many(admin.client, groups)
        second = await batches.committed_many(admin.client, await listed(admin))

    assert isinstance(first["g00000"], NotCoordinatorError)
    assert second == {"g00000": {T0: OffsetAndMetadata(0)}, "g00001": {T0: OffsetAndMetadata(1)}}


@virtual
async def test_brokers_before_3_0_are_asked_for_one_group_after_another_as_far_as_the_time_goes() -> None:
    cluster = with_groups(30, size=1, max_versions=KAFKA_2_8, latency=0.5)

    async with asking(cluster) as admin:
        groups = await listed(admin)
        since = anyio.current_time()
        found = await batches.committed_many(admin.client, groups, 5)
        asked = cluster.asked(Api.OFFSET_FETCH, since=since)

    known = [name for name, outcome in found.items() if isinstance(outcome, dict)]
    assert known == [group.group_id for group in groups][: len(known)]
    assert 8 <= len(known) <= 10
    assert all(len(entry.request.groups) == 1 for entry in asked)
    assert {type(found[group.group_id]) for group in groups[len(known) :]} == {KafkaTimeoutError}


@virtual
async def test_each_kind_of_group_is_asked_about_in_its_own_way() -> None:
    cluster = FakeCluster()
    kinds = {"a": "classic", "b": "consumer", "c": "share", "d": "streams"}
    groups = [GroupListing(group_id=name, kind=kind, protocol=kind, state="Stable", coordinator=0) for name, kind in kinds.items()]

    async with asking(cluster) as admin:
        described = await batches.describe_many(admin.client, groups)
        committed = await batches.committed_many(admin.client, groups)
        shared = await batches.share_offsets_many(admin.client, groups)

    assert described.keys() == {"a", "b", "c"}
    assert {type(outcome) for outcome in described.values()} == {GroupIdNotFound}
    assert committed == {"a": {}, "b": {}, "d": {}}
    assert shared == {"c": {}}
    assert [entry.api for entry in cluster.asked(Api.DESCRIBE_GROUPS, Api.CONSUMER_GROUP_DESCRIBE, Api.SHARE_GROUP_DESCRIBE)] == [
        Api.DESCRIBE_GROUPS,
        Api.CONSUMER_GROUP_DESCRIBE,
        Api.SHARE_GROUP_DESCRIBE,
    ]


@virtual
async def test_a_kind_that_a_broker_does_not_know_costs_the_other_kinds_nothing() -> None:
    cluster = with_groups(1, size=1, max_versions=KAFKA_3_9)
    share = GroupListing(group_id="s", kind="share", protocol="share", state="Stable", coordinator=0)

    async with asking(cluster) as admin:
        found = await batches.describe_many(admin.client, [share, *await listed(admin)])

    assert isinstance(found["s"], UnsupportedVersionError)
    assert not isinstance(found["g00000"], Exception)


@virtual
async def test_the_progress_of_a_share_group_is_unknown_and_not_zero_before_it_has_begun() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    cluster.produce(T0, "a", "b", "c")
    listing = GroupListing(group_id="s", kind="share", protocol="share", state="Empty", coordinator=0)

    async with asking(cluster) as admin:
        await admin.move_share_group("s", {T0: 1})
        found = await batches.share_offsets_many(admin.client, [listing])

    assert found == {"s": {T0: ShareOffset(1, 2)}}


@virtual
async def test_coordinators_of_many_groups_are_found_in_one_request() -> None:
    cluster = with_groups(150)

    async with asking(cluster) as admin:
        found = await batches.find_many(admin.client, [f"g{number:05}" for number in range(150)])
        assert len(cluster.asked(Api.FIND_COORDINATOR)) == 2

    assert found == {f"g{number:05}": number % 3 for number in range(150)}


@virtual
async def test_brokers_before_3_0_find_coordinators_one_by_one() -> None:
    cluster = with_groups(3, max_versions=KAFKA_2_8)

    async with asking(cluster) as admin:
        assert await batches.find_many(admin.client, ["g00000", "g00001", "g00002"]) == {"g00000": 0, "g00001": 1, "g00002": 2}


# --- offsets in the logs -------------------------------------------------------------------------------------------------------


@virtual
async def test_each_leader_is_asked_once_for_all_its_partitions() -> None:
    cluster = FakeCluster(size=3)
    parts = cluster.create_topic("t", 60)
    for part in parts:
        cluster.produce(part, *["x"] * (part.partition + 1))
    leaders = {part: part.partition % 3 for part in parts}

    async with asking(cluster) as admin:
        found = await batches.offsets_many(admin.client, dict.fromkeys(parts, LATEST), leaders)
        starts = await batches.offsets_many(admin.client, dict.fromkeys(parts, EARLIEST), leaders)

    assert {part: outcome.offset for part, outcome in found.items() if isinstance(outcome, OffsetAndTimestamp)} == {
        part: part.partition + 1 for part in parts
    }
    assert {outcome.offset for outcome in starts.values() if isinstance(outcome, OffsetAndTimestamp)} == {0}
    assert len(cluster.asked(Api.LIST_OFFSETS)) == 6


@virtual
async def test_a_time_after_the_last_record_has_no_offset_and_a_wrong_leader_is_an_error() -> None:
    cluster = FakeCluster(size=2)
    one, other = cluster.create_topic("t", 2)
    cluster.produce(one, "x")

    async with asking(cluster) as admin:
        found = await batches.offsets_many(admin.client, {one: 2**62, other: LATEST}, {one: 0, other: 0})

    assert found[one] is None
    assert isinstance(found[other], NotLeaderForPartitionError)


@virtual
async def test_the_layout_of_the_cluster_names_brokers_that_joined_and_forgets_those_that_left() -> None:
    cluster = FakeCluster(size=3)
    cluster.create_topic("t", 3)
    cluster.stop(2)

    async with asking(cluster) as admin:
        assert admin.client.nodes == (0, 1)
        cluster.start(2)
        cluster.stop(1)
        layout = await admin.client.layout(node_id=0)
        assert admin.client.nodes == (0, 2)

    assert [part.leader_id for topic in layout.topics for part in topic.partitions] == [0, -1, 2]


def test_groups_are_asked_about_by_the_hundred_of_a_kind_in_the_order_given() -> None:
    groups = [
        GroupListing(
            group_id=f"g{number}", kind="share" if number in (3, 150) else "consumer", protocol="", state="", coordinator=0
        )
        for number in range(202)
    ]

    found = [[group.group_id for group in some] for some in batches.portions(groups)]

    consumers = [group.group_id for group in groups if group.kind == "consumer"]
    assert found == [consumers[:100], ["g3", "g150"], consumers[100:]]
