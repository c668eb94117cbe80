"""Which version is used with which broker, for the brokers of today and yesterday."""

from typing import Any
from uuid import UUID

import pytest

from kafka_async.errors import UnsupportedVersionError
from kafka_async.testing.server import REQUESTS
from kafka_async.wire import (
    SUPPORTED,
    Api,
    ApiVersionsResponse,
    BrokerVersions,
    ConsumerGroupHeartbeatRequest,
    DescribeClusterRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    Request,
    SyncGroupRequest,
    VersionRange,
    encode_request,
    next_api_versions,
)
from kafka_async.wire.messages import (
    ApiVersion,
    FetchTopic,
    ForgottenTopic,
    ListOffsetsPartition,
    ListOffsetsTopic,
    MemberIdentity,
    MetadataRequestTopic,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafka_async.wire.messages.admin import CreatableTopic, CreateTopicsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka_async.wire.versions import check

# Highest versions by broker release; brokers from 4.0 on have dropped old versions too (KIP-896).
OFFERS: dict[str, dict[Api, tuple[int, int]]] = {
    release: dict(
        zip(
            (
                Api.FETCH,
                Api.LIST_OFFSETS,
                Api.METADATA,
                Api.OFFSET_COMMIT,
                Api.OFFSET_FETCH,
                Api.FIND_COORDINATOR,
                Api.JOIN_GROUP,
                Api.HEARTBEAT,
                Api.LEAVE_GROUP,
                Api.SYNC_GROUP,
                Api.SASL_HANDSHAKE,
                Api.API_VERSIONS,
                Api.OFFSET_FOR_LEADER_EPOCH,
                Api.SASL_AUTHENTICATE,
            ),
            zip(lowest, highest, strict=True),
            strict=True,
        )
    )
    for release, lowest, highest in (
        ("2.1", (0,) * 14, (10, 4, 7, 6, 5, 2, 3, 2, 2, 2, 1, 2, 2, 0)),
        ("2.8", (0,) * 14, (12, 6, 11, 8, 7, 3, 7, 4, 4, 5, 1, 3, 4, 2)),
        ("3.9", (0,) * 14, (17, 9, 12, 9, 9, 6, 9, 4, 5, 5, 1, 4, 4, 2)),
        ("4.0", (4, 1, 0, 2, 1, 0, 2, 0, 0, 0, 0, 0, 2, 0), (17, 10, 13, 9, 9, 6, 9, 4, 5, 5, 1, 4, 4, 2)),
        ("4.3", (4, 1, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0), (18, 11, 13, 10, 10, 6, 9, 4, 5, 5, 1, 4, 4, 2)),
        ("4.4", (4, 1, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0), (18, 11, 13, 10, 10, 6, 9, 4, 5, 5, 1, 5, 4, 2)),
    )
}
HEARTBEATS = {"2.1": None, "2.8": None, "3.9": 0, "4.0": 1, "4.3": 1, "4.4": 1}
ID = UUID(int=1)


def broker(release: str) -> BrokerVersions:
    offers = dict(OFFERS[release])
    heartbeat = HEARTBEATS[release]
    if heartbeat is not None:
        offers[Api.CONSUMER_GROUP_HEARTBEAT] = (0, heartbeat)
    return offering(offers)


def offering(offers: dict[Api, tuple[int, int]]) -> BrokerVersions:
    keys = tuple(ApiVersion(api_key=api, min_version=low, max_version=high) for api, (low, high) in offers.items())
    return BrokerVersions.from_response(ApiVersionsResponse(api_keys=keys))


def least(api: Api) -> Request[Any]:
    """Return a request of an API that every version can carry."""
    values: dict[Api, dict[str, Any]] = {
        Api.FETCH: {"max_wait_ms": 1},
        Api.OFFSET_COMMIT: {"group_id": "g"},
        Api.OFFSET_FETCH: {"groups": (OffsetFetchRequestGroup(group_id="g"),)},
        Api.FIND_COORDINATOR: {"coordinator_keys": ("g",)},
        Api.JOIN_GROUP: {"group_id": "g", "session_timeout_ms": 1},
        Api.HEARTBEAT: {"group_id": "g", "generation_id": 1, "member_id": "m"},
        Api.LEAVE_GROUP: {"group_id": "g", "members": (MemberIdentity(member_id="m"),)},
        Api.SYNC_GROUP: {"group_id": "g", "generation_id": 1, "member_id": "m"},
        Api.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
        Api.SASL_AUTHENTICATE: {"auth_bytes": b""},
    }
    return REQUESTS[api](**values.get(api, {}))


@pytest.mark.parametrize("release", OFFERS)
def test_highest_common_version_is_chosen(release: str) -> None:
    versions = broker(release)
    chosen = {api: versions.choose(least(api)) for api in OFFERS[release]}
    assert chosen == {api: min(high, SUPPORTED[api].highest) for api, (_, high) in OFFERS[release].items()}
    for api, version in chosen.items():
        encode_request(least(api), version, 1, "c")


def test_supported_versions_are_those_of_the_newest_broker() -> None:
    assert {api: SUPPORTED[api].highest for api in OFFERS["4.4"]} == {
        api: 17 if api is Api.FETCH else high for api, (_, high) in OFFERS["4.4"].items()
    }


@pytest.mark.parametrize("release", OFFERS)
def test_the_consumer_protocol_is_seen_if_it_is_offered(release: str) -> None:
    heartbeat = HEARTBEATS[release]
    assert broker(release).supports(Api.CONSUMER_GROUP_HEARTBEAT) == (heartbeat is not None)
    assert broker(release).supports(Api.CONSUMER_GROUP_HEARTBEAT, 1) == (heartbeat == 1)


@pytest.mark.parametrize("missing", [{Api.METADATA: (0, 9)}, {Api.OFFSET_COMMIT: (0, 8)}], ids=["topic ids", "member epochs"])
def test_the_consumer_protocol_without_what_it_needs_does_not_count_as_offered(missing: dict[Api, tuple[int, int]]) -> None:
    """As some servers that are not Kafka offer it."""
    server = offering({**OFFERS["4.3"], Api.CONSUMER_GROUP_HEARTBEAT: (0, 1), Api.SHARE_GROUP_HEARTBEAT: (1, 1), **missing})
    assert broker("4.3").offers_consumer_protocol
    assert not server.offers_consumer_protocol
    ((api, (_, highest)),) = missing.items()
    with pytest.raises(
        UnsupportedVersionError, match=rf"no use without {api.name} {highest + 1} and above .the broker offers 0 to {highest}"
    ):
        server.choose(ConsumerGroupHeartbeatRequest(group_id="g", member_epoch=0))
    assert server.supports(Api.SHARE_GROUP_HEARTBEAT) is (api is not Api.METADATA)


def topics_of_fetch(*topics: FetchTopic) -> FetchRequest:
    return FetchRequest(max_wait_ms=1, topics=topics)


NAMED, WITH_ID, BOTH = FetchTopic(topic="t"), FetchTopic(topic_id=ID), FetchTopic(topic="t", topic_id=ID)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (topics_of_fetch(BOTH), 17),
        (topics_of_fetch(BOTH, NAMED), 12),
        (topics_of_fetch(BOTH, WITH_ID), 17),
        (FetchRequest(max_wait_ms=1, topics=(BOTH,), forgotten_topics_data=(ForgottenTopic(topic="t"),)), 12),
        (OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="t", topic_id=ID),)), 10),
        (OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="t"),)), 9),
        (OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=(OffsetFetchRequestTopics(name="t"),)),)), 9),
        (OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"), OffsetFetchRequestGroup(group_id="h"))), 10),
        (ConsumerGroupHeartbeatRequest(group_id="g", member_epoch=0, subscribed_topic_regex="t.*"), 1),
    ],
)
def test_content_of_a_request_limits_its_version(request_: Request[Any], version: int) -> None:
    assert broker("4.3").choose(request_) == version


def list_offsets(timestamp: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=(partition,)),))


@pytest.mark.parametrize(
    ("request_", "lowest"),
    [
        (topics_of_fetch(WITH_ID), 13),
        (FetchRequest(max_wait_ms=1, session_id=5), 7),
        (list_offsets(-3), 7),
        (list_offsets(-4), 8),
        (list_offsets(-5), 9),
        (list_offsets(-6), 11),
        (ListOffsetsRequest(isolation_level=1), 2),
        (MetadataRequest(topics=(MetadataRequestTopic(topic_id=ID),)), 12),
        (MetadataRequest(include_topic_authorized_operations=True), 8),
        (OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(topic_id=ID),)), 10),
        (OffsetCommitRequest(group_id="g", group_instance_id="i"), 7),
        (OffsetFetchRequest(), 8),
        (
            OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=(OffsetFetchRequestTopics(topic_id=ID),)),)),
            10,
        ),
        (FindCoordinatorRequest(coordinator_keys=("g", "h")), 4),
        (FindCoordinatorRequest(coordinator_keys=("g",), key_type=2), 6),
        (JoinGroupRequest(group_id="g", session_timeout_ms=1, group_instance_id="i"), 5),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i"), 3),
        (SyncGroupRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i"), 3),
        (LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id="m"), MemberIdentity(member_id="n"))), 3),
        (LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id="m", group_instance_id="i"),)), 3),
        (DescribeClusterRequest(endpoint_type=2), 1),
        (DescribeClusterRequest(include_fenced_brokers=True), 2),
        (DescribeGroupsRequest(groups=("g",), include_authorized_operations=True), 3),
        (ListGroupsRequest(states_filter=("Stable",)), 4),
        (ListGroupsRequest(types_filter=("consumer",)), 5),
        (CreateTopicsRequest(topics=(CreatableTopic(name="t"),)), 4),
        (ConsumerGroupHeartbeatRequest(group_id="g", member_epoch=0, subscribed_topic_regex="t.*"), 1),
    ],
)
def test_content_of_a_request_demands_a_version(request_: Request[Any], lowest: int) -> None:
    spoken = SUPPORTED[request_.api]
    beside = {Api.METADATA: (0, 10), Api.OFFSET_COMMIT: (0, 9)}  # which heartbeats are of no use without
    assert offering(beside | {request_.api: (0, lowest)}).choose(request_) == lowest
    with pytest.raises(UnsupportedVersionError, match="needs"):
        offering(beside | {request_.api: (0, lowest - 1)}).choose(request_)
    for version in range(spoken.lowest, spoken.highest + 1):
        if version >= lowest:
            encode_request(request_, version, 1, "c")
        else:
            with pytest.raises(UnsupportedVersionError, match=f"{request_.api.name} version {version} cannot carry"):
                check(request_, version)


def test_fields_that_do_not_change_the_meaning_are_dropped() -> None:
    stable = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=3),), require_stable=True)
    assert broker("2.1").choose(stable) == 5
    plain = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),))
    assert encode_request(stable, 5, 1, "c") == encode_request(plain, 5, 1, "c")
    no_pattern = ConsumerGroupHeartbeatRequest(group_id="g", member_epoch=0, subscribed_topic_regex="")
    assert broker("3.9").choose(no_pattern) == 0
    reason = LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id="m", reason="done"),))
    assert broker("2.1").choose(reason) == 2


def test_caller_may_narrow_the_choice() -> None:
    commit = OffsetCommitRequest(group_id="g")
    assert broker("4.3").choose(commit, highest=9) == 9
    with pytest.raises(UnsupportedVersionError) as caught:
        broker("2.8").choose(commit, lowest=9)
    assert caught.value.args == (
        "OFFSET_COMMIT: the broker offers versions 0 to 8, this client speaks 2 to 10; the caller's demand needs 9 and above.",
    )


def test_refusal_says_what_is_missing() -> None:
    with pytest.raises(
        UnsupportedVersionError, match=r"FETCH: the broker offers versions 0 to 12, .*; a topic without a name needs 13"
    ):
        broker("2.8").choose(topics_of_fetch(WITH_ID))
    with pytest.raises(UnsupportedVersionError, match="CONSUMER_GROUP_HEARTBEAT: the broker does not offer it"):
        broker("2.8").choose(ConsumerGroupHeartbeatRequest(group_id="g", member_epoch=0))
    with pytest.raises(UnsupportedVersionError, match="offers versions 18 to 20, this client speaks 4 to 17"):
        offering({Api.FETCH: (18, 20)}).choose(topics_of_fetch(BOTH))


def test_range_is_what_both_speak() -> None:
    assert broker("4.3").range(Api.FETCH) == VersionRange(4, 17)
    assert broker("2.1").range(Api.FETCH) == (4, 10)
    assert broker("2.1").range(Api.PUSH_TELEMETRY) is None
    assert offering({Api.FETCH: (5, 2)}).range(Api.FETCH) is None
    assert not broker("2.1").supports(Api.OFFSET_FOR_LEADER_EPOCH, 3)


def test_offers_that_a_broker_of_its_age_cannot_mean_are_cut_back() -> None:
    # what librdkafka's mock cluster offers; it cannot handle these versions of JoinGroup, SyncGroup and LeaveGroup
    mock = offering(
        {Api.API_VERSIONS: (0, 2), Api.JOIN_GROUP: (0, 6), Api.SYNC_GROUP: (0, 4), Api.LEAVE_GROUP: (0, 4), Api.METADATA: (0, 13)}
    )
    apis = (Api.JOIN_GROUP, Api.SYNC_GROUP, Api.LEAVE_GROUP, Api.METADATA)
    assert [mock.choose(least(api)) for api in apis] == [5, 3, 2, 13]


def refused(*offers: tuple[int, int]) -> ApiVersionsResponse:
    keys = tuple(ApiVersion(api_key=18, min_version=low, max_version=high) for low, high in offers)
    return ApiVersionsResponse(error_code=35, api_keys=keys)


@pytest.mark.parametrize(
    ("tried", "response", "following"),
    [
        (4, ApiVersionsResponse(), None),
        (4, ApiVersionsResponse(error_code=41), None),
        (4, refused((0, 3)), 3),
        (4, refused(), 0),
        (4, refused((0, 4)), 0),
        (4, refused((0, 32767)), 0),
        (4, refused((0, -1)), 0),
        (3, refused((0, 2)), 2),
        (1, refused((0, 0)), 0),
    ],
)
def test_negotiation_goes_down(tried: int, response: ApiVersionsResponse, following: int | None) -> None:
    assert next_api_versions(tried, response) == following


def test_negotiation_ends() -> None:
    with pytest.raises(UnsupportedVersionError, match="refuses version 0"):
        next_api_versions(0, refused((0, 4)))
