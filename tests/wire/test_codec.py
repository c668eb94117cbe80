"""Whole messages: every API in every version, against themselves, against kio, and broken."""

import struct
import tracemalloc
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from io import BytesIO
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kafka_async.errors import IllegalArgumentError, MalformedResponseError, UnsupportedVersionError
from kafka_async.testing.server import REQUESTS, decode_request, encode_response
from kafka_async.wire import (
    SUPPORTED,
    Api,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    codec,
    decode_assignment,
    decode_response,
    decode_subscription,
    encode_assignment,
    encode_request,
    encode_subscription,
    response_correlation_id,
)
from kafka_async.wire.codec import old_shape
from kafka_async.wire.layout import WireStruct
from kafka_async.wire.messages import (
    ApiVersion,
    ConsumerProtocolTopicPartition,
    Coordinator,
    FetchableTopicResponse,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    FindCoordinatorResponse,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    PartitionData,
)
from tests.effort import apart, examples
from tests.wire.strategies import AHEAD_OF_KIO, VERSIONS, requests, responses

every_version = pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda value: getattr(value, "name", str(value)))
NEWEST = [(api, spoken.highest) for api, spoken in SUPPORTED.items()]
newest = pytest.mark.parametrize(
    ("api", "version"),
    [*NEWEST, *apart(*(each for each in VERSIONS if each not in NEWEST))],
    ids=lambda value: getattr(value, "name", str(value)),
)
few = examples(0.08)


def same(ours: Any, theirs: Any, layout: WireStruct | None) -> bool:
    """Compare a value of ours with kio's."""
    if isinstance(theirs, tuple):
        return len(ours) == len(theirs) and all(same(a, b, layout) for a, b in zip(ours, theirs, strict=True))
    if isinstance(theirs, timedelta):
        return bool(theirs == timedelta(milliseconds=ours))
    if isinstance(theirs, datetime):
        return bool(theirs == datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ours))
    if theirs is None and ours == -1:  # a time that there is none of
        return True
    if layout is None or theirs is None:
        return bool(getattr(theirs, "value", theirs) == ours)
    known = {field.name: field for field in layout.fields if field.skipped is None}
    names = {name: next(n for n in (name, f"{name}_ms", "") if n in known or not n) for name in (f.name for f in fields(theirs))}
    return all(
        same(getattr(ours, ours_name), getattr(theirs, name), known[ours_name].struct)
        for name, ours_name in names.items()
        if ours_name
    )


def folded(message: Any, version: int) -> Any:
    old = old_shape(type(message), version)
    return message if old is None else old.fold(message)


def assert_kio_agrees(body: bytes, message: Any, schema: Any, api: Api, version: int) -> None:
    """kio must read the same values from the bytes and write the same bytes from the values."""
    entity, end = entity_reader(schema)(body, 0)
    assert end == len(body)
    assert same(folded(message, version), entity, codec.layout(api, type(message), version))
    again = BytesIO()
    entity_writer(schema)(again, entity)
    assert again.getvalue() == body


def body_of(message: Any, api: Api, version: int) -> bytes:
    out = bytearray()
    codec.writer(api, type(message), version)(message, out)
    return bytes(out)


@every_version
@few
@given(data=st.data())
def test_request_comes_back_as_it_went(api: Api, version: int, data: st.DataObject) -> None:
    request = data.draw(requests(api, version))
    frame = encode_frame(request, api, version)
    received = decode_request(frame)
    assert received == (api, version, 7, "me", request)
    if (api, version) not in AHEAD_OF_KIO:
        assert_kio_agrees(body_of(request, api, version), request, load_request_schema(api, version), api, version)


def encode_frame(request: Any, api: Api, version: int) -> bytes:
    """Write a request; where Hypothesis made one that no version can carry, only its header is checked for length."""
    header = bytearray(struct.pack(">hhih", api, version, 7, 2) + b"me")
    if codec.layout(api, type(request), version).flexible:
        header.append(0)
    frame = bytes(header) + body_of(request, api, version)
    try:
        encoded = encode_request(request, version, 7, "me")
    except UnsupportedVersionError:
        return frame
    assert encoded == struct.pack(">i", len(frame)) + frame
    return frame


@every_version
@few
@given(data=st.data())
def test_response_comes_back_as_it_went(api: Api, version: int, data: st.DataObject) -> None:
    response = data.draw(responses(api, version))
    frame = encode_response(response, api, version, 7)[4:]
    assert response_correlation_id(frame) == 7
    if api is Api.API_VERSIONS and response.error_code == 35:
        return  # read in another way, see below
    assert decode_response(REQUESTS[api], version, frame) == response
    assert decode_response(REQUESTS[api], version, memoryview(bytearray(frame))) == response
    if (api, version) not in AHEAD_OF_KIO:
        assert_kio_agrees(body_of(response, api, version), response, load_response_schema(api, version), api, version)


@pytest.mark.slow
@newest
@few
@given(data=st.data())
def test_broken_response_is_a_value_or_a_typed_error(api: Api, version: int, data: st.DataObject) -> None:
    frame = encode_response(data.draw(responses(api, version)), api, version, 7)[4:]
    for end in range(len(frame)):
        decode_or_refuse(api, version, frame[:end], cut=True)
    chance = Random(data.draw(st.integers(0, 2**32)))  # noqa: S311  # forty draws of Hypothesis would cost more than what is tested
    for _ in range(30):
        position = chance.randrange(len(frame))
        decode_or_refuse(api, version, frame[:position] + bytes([chance.randrange(256)]) + frame[position + 1 :])
    for _ in range(10):
        position = chance.randrange(len(frame))
        for number in (0x7FFFFFFF, -2, -(2**31)):
            decode_or_refuse(api, version, frame[:position] + struct.pack(">i", number) + frame[position + 4 :])
    decode_or_refuse(api, version, data.draw(st.binary(max_size=100)))


def decode_or_refuse(api: Api, version: int, frame: bytes, cut: bool = False) -> None:
    try:
        value = decode_response(REQUESTS[api], version, frame)
    except MalformedResponseError as error:
        wanted = f"{REQUESTS[api].response.__name__} version {version} of {len(frame)} bytes cannot be read: "
        assert str(error).startswith(wanted)  # noqa: PT017 - whether it raises depends on the bytes
        return
    assert isinstance(value, REQUESTS[api].response)
    assert not cut or api is Api.API_VERSIONS  # with error 35 the code alone is enough
    repr(value)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">iii", 7, 0, 2**31 - 1) + bytes(40),
        struct.pack(">iii", 7, 0, -2) + bytes(40),
        struct.pack(">iii", 7, 0, 1) + struct.pack(">ih", 1, -2) + bytes(40),
        struct.pack(">iii", 7, 0, 1) + struct.pack(">ih", 1, 32767) + bytes(40),
    ],
    ids=["huge array", "negative array", "negative string", "string beyond the end"],
)
def test_announced_lengths_allocate_nothing(frame: bytes) -> None:
    decode_or_refuse(Api.METADATA, 5, frame)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedResponseError, match=r"MetadataResponse version 5 of .* bytes cannot be read"):
            decode_response(MetadataRequest, 5, frame)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x7f", b"\xff" * 9 + b"\x01"])
def test_huge_compact_array_is_refused(length: bytes) -> None:
    with pytest.raises(MalformedResponseError):
        decode_response(MetadataRequest, 12, struct.pack(">ibi", 7, 0, 0) + length + bytes(100))


def test_bytes_after_the_message_are_refused() -> None:
    frame = encode_response(HeartbeatResponse(), Api.HEARTBEAT, 4, 7)[4:]
    assert decode_response(HeartbeatRequest, 4, frame) == HeartbeatResponse()
    with pytest.raises(
        MalformedResponseError, match="HeartbeatResponse version 4 of 13 bytes cannot be read: 12 bytes were expected"
    ):
        decode_response(HeartbeatRequest, 4, frame + b"\0")


def test_metadata_may_end_in_a_byte_too_many() -> None:
    # as librdkafka's mock cluster writes it from version 9 on
    frame = encode_response(MetadataResponse(cluster_id="c"), Api.METADATA, 12, 7)[4:]
    assert decode_response(MetadataRequest, 12, frame + b"\0") == MetadataResponse(cluster_id="c")
    with pytest.raises(MalformedResponseError):
        decode_response(MetadataRequest, 12, frame[:-1])


def test_unknown_error_code_is_kept() -> None:
    frame = encode_response(HeartbeatResponse(error_code=9999), Api.HEARTBEAT, 4, 7)[4:]
    assert decode_response(HeartbeatRequest, 4, frame).error_code == 9999


def test_unknown_tag_is_skipped() -> None:
    body = struct.pack(">ih", 0, 27) + b"\x01\x63\x03abc"
    frame = struct.pack(">i", 7) + b"\x01\x05\x01x" + body
    assert decode_response(HeartbeatRequest, 4, frame) == HeartbeatResponse(error_code=27)


def test_records_survive_the_reuse_of_the_buffer() -> None:
    response = FetchResponse(
        responses=(FetchableTopicResponse(topic="t", partitions=(PartitionData(partition_index=0, records=b"abc"),)),)
    )
    buffer = bytearray(encode_response(response, Api.FETCH, 12, 7)[4:])
    decoded = decode_response(FetchRequest, 12, memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert decoded == response


def test_short_frame_has_no_correlation_id() -> None:
    with pytest.raises(MalformedResponseError, match="3 bytes"):
        response_correlation_id(b"\0\0\0")


def test_old_find_coordinator_answer_takes_its_key_from_the_request() -> None:
    request = FindCoordinatorRequest(coordinator_keys=("billing",))
    response = FindCoordinatorResponse(coordinators=(Coordinator(key="billing", node_id=1, host="h", port=9092),))
    frame = encode_response(response, Api.FIND_COORDINATOR, 3, 7)[4:]
    assert decode_response(request, 3, frame) == response
    assert decode_response(FindCoordinatorRequest, 3, frame).coordinators[0].key == ""


def test_old_offset_fetch_answer_takes_its_group_from_the_request() -> None:
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="billing"),))
    response = OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="billing", error_code=16),))
    frame = encode_response(response, Api.OFFSET_FETCH, 7, 7)[4:]
    assert decode_response(request, 7, frame) == response


def api_versions_frame(body: str) -> bytes:
    return struct.pack(">i", 7) + bytes.fromhex(body)


def test_mock_cluster_answer_to_api_versions_leaves_the_error_code() -> None:
    # librdkafka's mock cluster answers version 3 and up with a body that no version has
    frame = api_versions_frame("0023 01 0012 0000 0002 00000000")
    assert decode_response(ApiVersionsRequest, 3, frame) == ApiVersionsResponse(error_code=35)


def test_unsupported_api_versions_are_read_in_version_0() -> None:
    frame = api_versions_frame("0023 00000001 0012 0000 0003")
    listed = (ApiVersion(api_key=18, min_version=0, max_version=3),)
    assert decode_response(ApiVersionsRequest, 4, frame) == ApiVersionsResponse(error_code=35, api_keys=listed)


def test_bare_unsupported_version_is_enough() -> None:
    assert decode_response(ApiVersionsRequest, 3, api_versions_frame("0023")) == ApiVersionsResponse(error_code=35)


def test_api_versions_answer_may_be_longer_than_known() -> None:
    frame = api_versions_frame("0000 00000001 0012 0000 0003 ffff")
    assert decode_response(ApiVersionsRequest, 0, frame).api_keys[0].max_version == 3
    with pytest.raises(MalformedResponseError):
        decode_response(ApiVersionsRequest, 0, frame[:8])


def test_request_header_follows_the_version() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    plain = struct.pack(">hhihh1sih1s", 12, 0, 3, -1, 1, b"g", 1, 1, b"m")
    assert encode_request(request, 0, 3, None) == struct.pack(">i", len(plain)) + plain
    flexible = struct.pack(">hhih1sb", 12, 4, 3, 1, b"c", 0) + b"\2g" + struct.pack(">i", 1) + b"\2m" + b"\0\0"
    assert encode_request(request, 4, 3, "c") == struct.pack(">i", len(flexible)) + flexible


@pytest.mark.parametrize(
    "request_",
    [
        HeartbeatRequest(group_id="g" * 40_000, generation_id=1, member_id="m"),
        HeartbeatRequest(group_id="\ud800", generation_id=1, member_id="m"),
        HeartbeatRequest(group_id="g", generation_id=2**31, member_id="m"),
        HeartbeatRequest(group_id=None, generation_id=1, member_id="m"),  # type: ignore[arg-type] # what is tested
    ],
    ids=["long string", "surrogate", "large number", "None"],
)
def test_value_that_does_not_fit_is_named(request_: HeartbeatRequest) -> None:
    with pytest.raises(IllegalArgumentError, match="HeartbeatRequest version 2 cannot be written: "):
        encode_request(request_, 2, 1, "c")


def test_version_that_cannot_carry_the_request_is_refused() -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_epoch=0, subscribed_topic_regex="a.*")
    with pytest.raises(UnsupportedVersionError, match="CONSUMER_GROUP_HEARTBEAT version 0 cannot carry a subscription by pattern"):
        encode_request(request, 0, 1, "c")
    with pytest.raises(UnsupportedVersionError, match="not spoken by this client"):
        encode_request(LeaveGroupRequest(group_id="g"), 6, 1, "c")


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(SaslAuthenticateRequest(auth_bytes=b"\0user\0hunter2"))
    assert "hunter2" not in repr(SaslAuthenticateResponse(auth_bytes=b"hunter2"))


def test_fetch_topics_go_by_name_or_by_id() -> None:
    partition = FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=100)
    request = FetchRequest(max_wait_ms=1, topics=(FetchTopic(topic="orders", topic_id=UUID(int=9), partitions=(partition,)),))
    by_name, by_id = encode_request(request, 12, 1, "c"), encode_request(request, 13, 1, "c")
    assert (b"orders" in by_name, UUID(int=9).bytes in by_name) == (True, False)
    assert (b"orders" in by_id, UUID(int=9).bytes in by_id) == (False, True)


def test_commit_asks_for_the_brokers_own_retention() -> None:
    frame = encode_request(OffsetCommitRequest(group_id="g"), 2, 1, "c")
    assert frame.endswith(struct.pack(">qi", -1, 0))


subscription = ConsumerProtocolSubscription(
    topics=("a", "b"),
    user_data=b"x",
    owned_partitions=(ConsumerProtocolTopicPartition(topic="a", partitions=(0, 2)),),
    generation_id=4,
    rack_id="r",
)
assignment = ConsumerProtocolAssignment(
    assigned_partitions=(ConsumerProtocolTopicPartition(topic="a", partitions=(0, 2)),), user_data=b"x"
)


def test_consumer_protocol_data_comes_back_as_it_went() -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription
    assert decode_subscription(encode_subscription(subscription, 0)) == ConsumerProtocolSubscription(
        topics=("a", "b"), user_data=b"x"
    )
    for version in range(4):
        assert decode_assignment(encode_assignment(assignment, version)) == assignment


def test_consumer_protocol_data_of_a_newer_client_is_read_as_far_as_known() -> None:
    newer = struct.pack(">h", 9) + encode_subscription(subscription)[2:] + b"more"
    assert decode_subscription(newer) == subscription


@pytest.mark.slow
@given(st.integers(0, 60), st.binary(max_size=8))
def test_broken_consumer_protocol_data_is_a_value_or_a_typed_error(end: int, junk: bytes) -> None:
    for decode, data in (
        (decode_subscription, encode_subscription(subscription)),
        (decode_assignment, encode_assignment(assignment)),
    ):
        for broken in (data[:end], data[:end] + junk + data[end + len(junk) :], junk):
            try:
                decode(broken)
            except MalformedResponseError as error:
                assert "ConsumerProtocol" in str(error)  # noqa: PT017 - whether it raises depends on the bytes


def test_consumer_protocol_data_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError):
        encode_subscription(subscription, 4)
    with pytest.raises(IllegalArgumentError, match="ConsumerProtocolSubscription version 3 cannot be written"):
        encode_subscription(ConsumerProtocolSubscription(topics=("a" * 40_000,)))
