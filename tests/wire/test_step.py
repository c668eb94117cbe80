"""A step of a fetch session: the short way of writing and reading it against the general codec."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import IllegalArgumentError, UnsupportedVersionError
from kafka_async.testing.server import encode_response
from kafka_async.wire import (
    SUPPORTED,
    Api,
    BrokerVersions,
    FetchedStep,
    FetchRequest,
    FetchStep,
    VersionRange,
    decode_response,
    encode_request,
)
from kafka_async.wire.messages import FetchableTopicResponse, FetchResponse, NodeEndpoint, PartitionData
from kafka_async.wire.messages.fetch import AbortedTransaction, DivergingEpoch, LeaderIdAndEpoch
from kafka_async.wire.step import READ, WRITTEN, read_step

VERSIONS = range(13, SUPPORTED[Api.FETCH].highest + 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
ids = st.uuids().filter(lambda value: value.int != 0)
steps = st.builds(
    FetchStep,
    session_id=int32,
    session_epoch=int32,
    topic=st.text(max_size=20),
    topic_id=ids,
    partition=int32,
    leader_epoch=int32,
    offset=int64,
    partition_max_bytes=int32,
    max_wait_ms=int32,
    min_bytes=int32,
    max_bytes=int32,
    isolation_level=st.sampled_from([0, 1]),
    rack_id=st.text(max_size=200),
)
partitions = st.builds(
    PartitionData,
    partition_index=int32,
    error_code=st.sampled_from([0, 0, 0, 1, 6]),
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    diverging_epoch=st.sampled_from([DivergingEpoch(), DivergingEpoch(), DivergingEpoch(epoch=3, end_offset=5)]),
    current_leader=st.sampled_from([LeaderIdAndEpoch(), LeaderIdAndEpoch(), LeaderIdAndEpoch(leader_id=2, leader_epoch=7)]),
    aborted_transactions=st.sampled_from([None, None, (), (AbortedTransaction(producer_id=1, first_offset=2),)]),
    preferred_read_replica=st.integers(-1, 3),
    records=st.none() | st.binary(max_size=300) | st.integers(100, 40_000).map(bytes),
)
topics = st.builds(FetchableTopicResponse, topic_id=ids, partitions=st.lists(partitions, min_size=1, max_size=2).map(tuple))
responses = st.builds(
    FetchResponse,
    throttle_time_ms=int32,
    error_code=st.sampled_from([0, 0, 0, 70]),
    session_id=int32,
    responses=st.lists(topics, max_size=2).map(tuple),
    node_endpoints=st.sampled_from([(), (), (NodeEndpoint(node_id=1, host="a", port=9092),)]),
)
ANSWER = FetchResponse(
    session_id=7,
    responses=(
        FetchableTopicResponse(
            topic_id=UUID(int=5), partitions=(PartitionData(partition_index=3, high_watermark=9, records=b"r" * 200),)
        ),
    ),
)


def step(**changes: Any) -> FetchStep:
    fields: dict[str, Any] = dict.fromkeys(("session_id", "session_epoch", "partition", "leader_epoch", "offset"), 3)
    fields |= dict.fromkeys(("partition_max_bytes", "max_wait_ms", "min_bytes", "max_bytes"), 500)
    fields |= {"topic": "orders", "topic_id": UUID(int=5), "isolation_level": 0, "rack_id": ""}
    return FetchStep(**fields | changes)


def frame(response: FetchResponse, version: int) -> memoryview:
    return memoryview(encode_response(response, Api.FETCH, version, 11)[4:])


def is_step(response: FetchResponse) -> bool:
    """Whether an answer has records of one partition, no errors, and nothing that concerns anything else."""
    if response.error_code or response.node_endpoints or len(response.responses) != 1:
        return False
    (topic,) = response.responses
    if len(topic.partitions) != 1:
        return False
    (data,) = topic.partitions
    plain = data.diverging_epoch == DivergingEpoch() and data.current_leader == LeaderIdAndEpoch()
    return plain and not data.error_code and not data.aborted_transactions and data.records is not None


def test_the_short_way_takes_versions_that_are_spoken() -> None:
    spoken = SUPPORTED[Api.FETCH]

    assert WRITTEN[-1] == READ[-1] == spoken.highest


@pytest.mark.slow
@given(steps, st.sampled_from(VERSIONS), int32, st.none() | st.text(max_size=50))
def test_a_step_is_written_as_the_general_codec_writes_it(step: FetchStep, version: int, number: int, client: str | None) -> None:
    if not step.topic:
        step.topic = "t"
    whole = step.whole()

    assert encode_request(step, version, number, client) == encode_request(whole, version, number, client)


@pytest.mark.slow
@given(responses, st.sampled_from(VERSIONS))
def test_an_answer_is_read_as_the_general_codec_reads_it_or_left_to_it(response: FetchResponse, version: int) -> None:
    data = frame(response, version)
    general = decode_response(FetchRequest, version, data)

    found = decode_response(step(), version, data)

    if not isinstance(found, FetchedStep):
        assert found == general
        assert not is_step(general)
        return
    assert is_step(general)
    (topic,) = general.responses
    (partition,) = topic.partitions
    assert (found.throttle_time_ms, found.session_id) == (general.throttle_time_ms, general.session_id)
    assert topic.topic_id is not None
    assert found.topic_id == topic.topic_id.bytes
    for name in (*FetchedStep._fields[3:], "aborted_transactions"):
        assert (getattr(found, name) or None) == (getattr(partition, name) or None)


@given(st.data())
def test_bytes_that_are_not_an_answer_are_left_to_the_general_codec(data: st.DataObject) -> None:
    good = bytes(frame(ANSWER, 17))
    place = data.draw(st.integers(0, len(good) - 1))
    broken = data.draw(
        st.sampled_from([good[:place], good + good[:place], good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :]])
    )

    found = read_step(memoryview(broken))

    if found is not None:
        general = decode_response(FetchRequest, 17, broken)
        assert found.records == general.responses[0].partitions[0].records


def test_a_step_goes_to_a_broker_that_knows_no_topic_ids_by_name() -> None:
    versions = BrokerVersions(ranges={Api.FETCH: VersionRange(4, 12)})

    version = versions.choose(step())

    assert version == 12
    assert encode_request(step(), version, 1, "c") == encode_request(step().whole(), 12, 1, "c")


def test_a_step_needs_sessions() -> None:
    with pytest.raises(UnsupportedVersionError, match="a fetch session needs 7 and above"):
        BrokerVersions(ranges={Api.FETCH: VersionRange(4, 6)}).choose(step())


def test_a_value_that_does_not_fit_is_named() -> None:
    with pytest.raises(IllegalArgumentError, match="FetchStep version 17 cannot be written"):
        encode_request(step(offset=2**63), 17, 1, "c")


def test_a_step_is_a_fetch_in_texts_and_metrics() -> None:
    assert step().api_name == "Fetch"
