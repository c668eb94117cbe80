"""Old shapes: nothing is lost on the way down and up, and what an old answer does not say comes from the request."""

from typing import Any

import pytest

from kafka_async.wire import (
    FetchRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    LeaveGroupRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    Request,
    Struct,
)
from kafka_async.wire.codec import old_shape
from kafka_async.wire.messages import (
    Coordinator,
    MemberIdentity,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_async.wire.shapes import OLD_SHAPES

find = FindCoordinatorRequest(coordinator_keys=("g",))
fetch = OffsetFetchRequest(
    groups=(OffsetFetchRequestGroup(group_id="g", topics=(OffsetFetchRequestTopics(name="t", partition_indexes=(1, 2)),)),),
    require_stable=True,
)
partition = OffsetFetchResponsePartitions(partition_index=1, committed_offset=5, committed_leader_epoch=2, metadata="m")
CASES: list[tuple[Struct, Request[Any] | None]] = [
    (find, None),
    (
        FindCoordinatorResponse(
            throttle_time_ms=3,
            coordinators=(Coordinator(key="g", node_id=1, host="h", port=2, error_code=15, error_message="soon"),),
        ),
        find,
    ),
    (fetch, None),
    (OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),)), None),
    (
        OffsetFetchResponse(
            throttle_time_ms=3,
            groups=(
                OffsetFetchResponseGroup(
                    group_id="g", error_code=16, topics=(OffsetFetchResponseTopics(name="t", partitions=(partition,)),)
                ),
            ),
        ),
        fetch,
    ),
    (LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id="m"),)), None),
]


@pytest.mark.parametrize(("message", "request_"), CASES, ids=lambda value: type(value).__name__)
def test_message_comes_back_as_it_went(message: Struct, request_: Request[Any] | None) -> None:
    shape = OLD_SHAPES[type(message)]
    folded = shape.fold(message)
    assert type(folded) is shape.cls
    assert shape.unfold(folded, request_) == message


def test_every_old_shape_is_tried() -> None:
    assert {type(message) for message, _ in CASES} == set(OLD_SHAPES)


@pytest.mark.parametrize(
    ("cls", "until"), [(FindCoordinatorRequest, 3), (FindCoordinatorResponse, 3), (OffsetFetchRequest, 7), (LeaveGroupRequest, 2)]
)
def test_old_shape_ends_with_a_version(cls: type[Struct], until: int) -> None:
    assert old_shape(cls, until) is OLD_SHAPES[cls]
    assert old_shape(cls, until + 1) is None


def test_most_messages_have_one_shape() -> None:
    assert old_shape(FetchRequest, 4) is None


def test_answer_without_its_request_names_nothing() -> None:
    shape = OLD_SHAPES[FindCoordinatorResponse]
    answer = shape.unfold(shape.fold(FindCoordinatorResponse(coordinators=(Coordinator(key="g"),))), None)
    assert answer == FindCoordinatorResponse(coordinators=(Coordinator(key=""),))
