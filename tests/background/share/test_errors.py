"""Every error of ShareFetch and ShareAcknowledge, of a request and of a partition: nothing spins, and nothing is silent."""

from typing import Any

import pytest

from kafka_async.background.share.orders import Acknowledge, AcknowledgeType, Delivery, Flush, Lost, Settled
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptRecordException,
    FencedLeaderEpochError,
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    InconsistentTopicIdError,
    InvalidRecordStateError,
    InvalidRequestError,
    InvalidShareSessionEpochError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    ReplicaNotAvailableError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka_async.events import Call
from kafka_async.wire.messages import (
    MetadataRequest,
    ShareAcknowledgePartitionResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchRequest,
    SharePartitionData,
)
from tests.background.support import cluster, described

from .world import ID, TP, World, fetched

FATAL: list[Any] = [GroupAuthorizationFailedError, InvalidRequestError, UnsupportedVersionError]
SESSION: list[Any] = [ShareSessionNotFoundError, InvalidShareSessionEpochError, ShareSessionLimitReachedError]
PASSING: list[Any] = [
    UnknownTopicIdError,
    CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError,
    KafkaStorageError,
    UnknownError,  # a topic was deleted
]

RETRIED: list[Any] = [
    NotLeaderOrFollowerError,
    FencedLeaderEpochError,
    UnknownTopicOrPartitionError,
    UnknownTopicIdError,
    InconsistentTopicIdError,
    KafkaStorageError,
    ReplicaNotAvailableError,
    OffsetNotAvailableError,
    UnknownLeaderEpochError,
    CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError,
    GroupIdNotFound,
    UnknownError,
]
RAISED: list[Any] = [TopicAuthorizationFailedError, CorruptRecordException]
FINAL: list[Any] = [
    InvalidRecordStateError,
    NotLeaderOrFollowerError,
    FencedLeaderEpochError,
    UnknownTopicOrPartitionError,
    UnknownTopicIdError,
    TopicAuthorizationFailedError,
    InvalidRequestError,
    UnknownError,
]


def requests_until(world: World, begin: float, end: float, kind: type[Any], outcome: Any) -> int:
    """Turn the loop whenever it wants to be turned, answer requests of a kind with ``outcome``; return how many there were."""
    now, count = begin, 0
    while now < end:
        world.poll(now)
        if world.waiting(MetadataRequest):
            world.answer(MetadataRequest, cluster(described("t", (1, 1))), now)
        elif world.waiting(kind):
            world.answer(kind, outcome, now)
            count += 1
        else:
            now = min(world.wake_at, end)
        now += 0.005
    return count


@pytest.mark.parametrize("error", [*FATAL, *SESSION, *PASSING], ids=lambda error: error.__name__)
def test_a_fetch_that_fails_as_a_whole_is_sent_again_and_does_not_spin(error: Any) -> None:
    world = World()
    world.joined(0)
    world.answer(ShareFetchRequest, fetched(error_code=error.errno), 0.0)
    assert requests_until(world, 0.1, 10.0, ShareFetchRequest, fetched(error_code=error.errno)) in range(2, 40)
    told = world.errors()
    assert [type(each) for each in told] == ([error] if error in FATAL else [])
    assert any(event.__class__.__name__ == "Fault" for event in world.seen)
    world.poll(20.0)
    assert requests_until(world, 20.0, 25.0, ShareFetchRequest, fetched()) > 0
    assert any(event.__class__.__name__ == "Recovered" for event in world.seen)


@pytest.mark.parametrize("error", [*RETRIED, *RAISED], ids=lambda error: error.__name__)
def test_a_partition_that_fails_is_asked_for_again_and_does_not_spin(error: Any) -> None:
    world = World()
    world.joined(0)
    failed = fetched(SharePartitionData(partition_index=0, error_code=error.errno))
    world.answer(ShareFetchRequest, failed, 0.0)
    asked = requests_until(world, 0.0, 10.0, ShareFetchRequest, failed)
    assert asked in range(2, 60)
    told = [type(each) for each in world.errors()]
    assert set(told) <= {error}
    assert bool(told) == (error in RAISED)
    assert told or any(event.__class__.__name__ == "Fault" for event in world.seen)


def accepted(world: World, delivery: Delivery, offset: int) -> None:
    world.exchange.order(Acknowledge(TP, offset, delivery.number, AcknowledgeType.ACCEPT))


def answered(code: int = 0, whole: int = 0) -> ShareAcknowledgeResponse:
    part = ShareAcknowledgePartitionResponse(partition_index=0, error_code=code)
    return ShareAcknowledgeResponse(error_code=whole, responses=(ShareAcknowledgeTopicResponse(topic_id=ID, partitions=(part,)),))


def settle(world: World, outcome: ShareAcknowledgeResponse, seconds: float) -> tuple[Call[Any], int]:
    """Have an acknowledgement answered with ``outcome`` for as long as it is sent; return the flush that waits, and how often."""
    world.handler.reading, world.handler.polled_at = 0, -100.0  # nothing is fetched beside it
    call: Call[Any] = Call(1000.0, lambda: None)
    world.exchange.order(Flush(call=call))
    return call, requests_until(world, 0.2, seconds, ShareAcknowledgeRequest, outcome)


@pytest.mark.parametrize("error", FINAL, ids=lambda error: error.__name__)
def test_a_refused_acknowledgement_is_reported(error: Any) -> None:
    world = World()
    delivery = world.delivered(3)
    accepted(world, delivery, 1)
    call, sent = settle(world, answered(error.errno), 5.0)
    assert sent == 1
    assert isinstance(call.result()[TP], error)
    (settled,) = [report for report in world.reports() if isinstance(report, Settled)]
    assert isinstance(settled.error, error)


@pytest.mark.parametrize("error", [CoordinatorNotAvailableError, KafkaStorageError], ids=lambda error: error.__name__)
def test_an_acknowledgement_that_may_succeed_later_is_sent_until_its_lock_would_have_ended(error: Any) -> None:
    world = World()
    delivery = world.delivered(3)
    accepted(world, delivery, 1)
    call, sent = settle(world, answered(error.errno), 60.0)
    assert 5 < sent < 80
    assert isinstance(call.result()[TP], InvalidRecordStateError)


@pytest.mark.parametrize("error", [GroupAuthorizationFailedError, InvalidRequestError], ids=lambda error: error.__name__)
def test_acknowledgements_that_fail_as_a_whole_for_good_are_reported(error: Any) -> None:
    world = World()
    delivery = world.delivered(3)
    accepted(world, delivery, 1)
    call, sent = settle(world, answered(whole=error.errno), 5.0)
    assert sent == 1
    assert isinstance(call.result()[TP], error)
    assert isinstance(world.errors()[0], error)


@pytest.mark.parametrize("error", [*SESSION, *PASSING], ids=lambda error: error.__name__)
def test_acknowledgements_whose_session_is_gone_are_sent_in_the_next_one(error: Any) -> None:
    world = World()
    delivery = world.delivered(3)
    accepted(world, delivery, 1)
    world.handler.reading, world.handler.polled_at = 0, -100.0
    call: Call[Any] = Call(1000.0, lambda: None)
    world.exchange.order(Flush(call=call))
    world.poll(0.2)
    world.answer(ShareAcknowledgeRequest, answered(whole=error.errno), 0.2)
    now = 0.2
    while not world.waiting(ShareFetchRequest):
        world.poll(now)
        now = max(now + 0.001, min(world.wake_at, now + 5.0))
    assert world.answer(ShareFetchRequest, fetched(), now).share_session_epoch == 0
    world.poll(now)
    while not world.waiting(ShareAcknowledgeRequest):
        now = max(now + 0.001, min(world.wake_at, now + 1.0))
        world.poll(now)
    requests_until(world, now, now + 2.0, ShareAcknowledgeRequest, answered())
    if error is ShareSessionNotFoundError:  # the locks went with the session: others can have had the record
        assert "it is unknown whether it counts" in str(call.result()[TP])
    else:
        assert call.result() == {TP: None}
    lost = {offset for report in world.reports() if isinstance(report, Lost) for _, offset in report.locks}
    assert lost == ({0, 2} if error is ShareSessionNotFoundError else set())
