"""What each answer means for records, locks and acknowledgements."""

from uuid import UUID

import pytest

from kafka_async.background.share.orders import (
    AcknowledgeType,
    Delivery,
    Hold,
    Lost,
    Renewed,
    Settled,
)
from kafka_async.errors import (
    AuthenticationFailedError,
    BrokerResponseError,
    FrameSizeError,
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    InvalidRecordStateError,
    InvalidShareSessionEpochError,
    KafkaConnectionError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka_async.wire.messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    SharePartitionData,
)

from .world import ID, LOCK, TP, World, accept, acknowledged, acknowledgement, acquired, fetch, fetched, flush

ACCEPT, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RENEW


def test_records_are_delivered_with_when_their_locks_end() -> None:
    world = World()
    delivery = world.delivered(3)
    assert [record.offset for record in delivery.records] == [0, 1, 2]
    assert delivery.counts == [1, 1, 1]
    assert delivery.deadline == LOCK


def test_a_partition_that_is_missing_in_the_answer_is_an_error() -> None:
    world = World()
    delivery = world.delivered(2)
    accept(world, delivery, 0)
    call = flush(world)
    world.poll(0.1)
    world.answer(ShareAcknowledgeRequest, ShareAcknowledgeResponse(), 0.2)
    world.poll(0.2)
    assert "did not answer" in str(call.result()[TP])


def test_records_that_the_answer_lacks_are_given_back_without_the_application() -> None:
    world = World(max_poll_records=2)
    world.joined(0)
    part = acquired(0, 4)
    compacted = SharePartitionData(partition_index=0, records=part.records[:0], acquired_records=part.acquired_records)
    world.answer(ShareFetchRequest, fetched(compacted), 0.0)
    assert world.reports() == []  # bytes that were cut off: given back, not settled for good
    world.poll(0.1)
    (batch,) = fetch(world).topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (0, 3, (2,))


@pytest.mark.parametrize("outcome", [KafkaConnectionError("cut"), fetched(error_code=ShareSessionNotFoundError.errno)])
def test_with_its_connection_a_session_loses_its_locks_and_old_acknowledgements_go_first(outcome: object) -> None:
    world = World()
    delivery = world.delivered(3)
    accept(world, delivery, 0)
    world.poll(0.1)
    assert fetch(world).topics[0].partitions[0].acknowledgement_batches
    world.answer(ShareFetchRequest, outcome, 0.2)
    (lost,) = world.reports()
    assert isinstance(lost, Lost)
    assert [offset for _, offset in lost.locks] == [1, 2]
    world.poll(0.4)
    opening = fetch(world)
    assert (opening.share_session_epoch, opening.max_records, opening.max_bytes) == (0, 0, 0)
    assert not opening.topics[0].partitions[0].acknowledgement_batches
    world.answer(ShareFetchRequest, fetched(), 0.5)
    world.poll(0.5)
    world.poll(0.6)
    first = acknowledgement(world)
    batches = first.topics[0].partitions[0].acknowledgement_batches
    assert [(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches] == [(0, 0, (1,))]
    world.answer(ShareAcknowledgeRequest, acknowledged(InvalidRecordStateError.errno), 0.6)
    (settled,) = world.reports()
    assert isinstance(settled, Settled)
    assert isinstance(settled.error, InvalidRecordStateError)


def test_a_refused_login_says_that_the_connection_with_the_locks_is_gone() -> None:
    world = World()
    delivery = world.delivered(3)
    accept(world, delivery, 0)
    flush(world)
    world.poll(0.1)
    world.answer(ShareAcknowledgeRequest, AuthenticationFailedError("refused"), 0.2)
    settled, lost = world.reports()
    assert isinstance(settled, Settled)
    assert (settled.offsets, type(settled.error)) == ((0,), AuthenticationFailedError)
    assert isinstance(lost, Lost)
    assert [offset for _, offset in lost.locks] == [1, 2]
    assert isinstance(lost.error.__cause__, AuthenticationFailedError)


def test_a_yes_after_a_refused_login_proves_nothing() -> None:
    world = World()
    delivery = world.delivered(3)
    accept(world, delivery, 0)
    flush(world)
    world.poll(0.1)
    accept(world, delivery, 1)
    world.poll(0.1)
    world.answer(ShareAcknowledgeRequest, AuthenticationFailedError("refused"), 0.2)
    world.reports()
    world.poll(2.0)
    world.answer(ShareFetchRequest, fetched(), 2.0)
    world.poll(2.0)
    assert [portion.first_offset for portion in acknowledgement(world).topics[0].partitions[0].acknowledgement_batches] == [1]
    world.answer(ShareAcknowledgeRequest, acknowledged(), 2.1)
    (settled,) = world.reports()
    assert isinstance(settled, Settled)
    assert settled.offsets == (1,)
    assert "another member may have had the record" in str(settled.error)


@pytest.mark.parametrize("error", [InvalidShareSessionEpochError, ShareSessionLimitReachedError])
def test_another_session_does_not_cost_the_locks(error: type[InvalidShareSessionEpochError]) -> None:
    world = World()
    world.delivered(3)
    world.poll(0.1)
    world.answer(ShareFetchRequest, fetched(error_code=error.errno), 0.2)
    assert world.reports() == []
    world.poll(2.0)
    assert fetch(world).share_session_epoch == 0


def test_a_denied_group_is_reported_and_does_not_spin() -> None:
    world = World()
    world.joined(0)
    world.answer(ShareFetchRequest, fetched(error_code=GroupAuthorizationFailedError.errno), 0.0)
    assert [type(error) for error in world.errors()] == [GroupAuthorizationFailedError]
    world.poll(0.5)
    assert world.waiting(ShareFetchRequest) == []
    world.poll(1.0)
    assert fetch(world).share_session_epoch == 0


def test_records_that_are_too_long_for_an_answer_are_an_error_before_they_have_used_up_their_deliveries() -> None:
    world = World()
    world.joined(0)
    for now in (0.0, 1.0):
        assert world.errors() == []
        world.answer(ShareFetchRequest, FrameSizeError("frame length 200000000: expected 0 to 100000000"), now)
        world.poll(now + 1.0)
    (error,) = world.errors()
    assert "receive_message_max_bytes=100000000" in str(error)


@pytest.mark.parametrize(("error", "told"), [(UnknownTopicOrPartitionError, False), (TopicAuthorizationFailedError, True)])
def test_a_partition_that_fails_is_asked_for_again_after_a_backoff_and_holds_up_no_other(
    error: type[UnknownTopicOrPartitionError], told: bool
) -> None:
    world = World()
    world.joined(0, 1)
    bad = SharePartitionData(partition_index=0, error_code=error.errno)
    world.answer(ShareFetchRequest, fetched(bad, acquired(5, 1, partition=1)), 0.0)
    assert len(world.reports()) == 1
    assert [type(problem) for problem in world.errors()] == ([error] if told else [])
    world.poll(0.01)
    request = fetch(world)
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data] == [(ID, (0,))]
    world.answer(ShareFetchRequest, fetched(), 0.02)
    world.poll(2.0)
    assert [part.partition_index for part in fetch(world).topics[0].partitions] == [0]


def test_a_topic_that_is_denied_is_reported_once_and_not_for_each_partition() -> None:
    world = World()
    world.joined(0, 1, 2)
    denied = [SharePartitionData(partition_index=index, error_code=TopicAuthorizationFailedError.errno) for index in range(3)]
    world.answer(ShareFetchRequest, fetched(*denied), 0.0)
    (error,) = world.errors()
    assert str(error).endswith("topics 't': Not authorized to access the topic.")


def fail_to_read(world: World, error: type[BrokerResponseError], *times: float) -> None:
    """Have a broker answer so at these times."""
    for now in times:
        world.poll(now)
        world.answer(ShareFetchRequest, fetched(SharePartitionData(partition_index=0, error_code=error.errno)), now)


def test_what_may_be_an_election_is_shown_once_it_has_lasted_longer_and_until_it_is_over() -> None:
    world = World()
    world.joined(0, 1)
    fail_to_read(world, GroupIdNotFound, 0.0, 1.0, 2.0)
    assert world.handler.refused == {}
    world.poll(3.0)
    world.answer(ShareFetchRequest, fetched(), 3.0)  # the coordinator is asked meanwhile: nothing is known of the partition
    fail_to_read(world, GroupIdNotFound, 4.0)
    assert [type(error) for error in world.handler.refused.values()] == [GroupIdNotFound]
    world.poll(5.0)
    world.answer(ShareFetchRequest, fetched(SharePartitionData(partition_index=0)), 5.0)
    assert world.handler.refused == {}


def test_what_failed_is_not_shown_any_more_once_nothing_was_heard_of_it_for_long() -> None:
    world = World()
    world.joined(0)
    fail_to_read(world, GroupIdNotFound, 0.0, 4.0)
    world.poll(18.0)
    assert TP in world.handler.refused
    world.poll(20.0)
    assert world.handler.refused == {}


def test_a_refusal_is_shown_at_once_until_an_answer_lacks_it() -> None:
    """Brokers leave out partitions that have no records for us."""
    world = World()
    world.joined(0, 1)
    fail_to_read(world, TopicAuthorizationFailedError, 0.0)
    world.poll(0.1)
    world.answer(ShareFetchRequest, fetched(), 0.1)  # to a request that leaves it out for a while
    world.poll(100.0)
    assert [type(error) for error in world.handler.refused.values()] == [TopicAuthorizationFailedError]
    world.answer(ShareFetchRequest, fetched(), 100.0)
    assert world.handler.refused == {}


def test_a_partition_that_leaves_takes_its_refusal_along() -> None:
    world = World()
    world.joined(0)
    fail_to_read(world, TopicAuthorizationFailedError, 0.0)
    world.background.fetch.assign({TP: UUID(int=77)}, 0.1)
    assert world.handler.refused == {}


@pytest.mark.parametrize("after", [0.4, 8.0], ids=["within the poll", "beyond the poll"])
def test_a_lock_whose_answer_may_have_been_held_up_is_counted_from_when_it_was_asked_for(after: float) -> None:
    world = World()
    world.joined(0)
    world.answer(ShareFetchRequest, fetched(acquired(0, 1)), after)
    (late,) = world.reports()
    assert isinstance(late, Delivery)
    assert late.deadline == LOCK


def test_a_record_that_comes_again_to_the_same_member_is_another_one() -> None:
    """The broker knows members and not deliveries: what was said under the former lock would be taken for the new one."""
    world = World()
    former = world.delivered(3)
    world.poll(0.1)
    accept(world, former, 0)
    world.poll(0.2)  # behind the fetch
    world.answer(ShareFetchRequest, fetched(acquired(0, 2)), 10.0)
    lost, refused, again = world.reports()
    assert isinstance(lost, Lost)
    assert [offset for _, offset in lost.locks] == [1]
    assert isinstance(refused, Settled)
    assert refused.offsets == (0,)
    assert "delivered again" in str(refused.error)
    assert isinstance(again, Delivery)
    accept(world, again, 0)
    flush(world)
    world.poll(10.1)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 10.1)
    (settled,) = world.reports()
    assert settled == Settled(TP, again.number, (0,), ACCEPT, None)


def renewing(count: int = 1) -> tuple[World, Delivery]:
    """Return a world with records that the application has, whose locks are being renewed since 15 s."""
    world = World()
    delivery = world.delivered(count)
    for offset in range(count):
        world.exchange.order(Hold(TP, delivery.number, offset))
    world.poll(0.0)
    if world.waiting(ShareFetchRequest):
        world.answer(ShareFetchRequest, fetched(), 0.1)
    world.poll(15.0)
    return world, delivery


def test_a_renewal_is_counted_from_when_it_was_asked_for() -> None:
    world, _ = renewing()
    world.answer(ShareAcknowledgeRequest, acknowledged(), 20.0)
    renewed = [report for report in world.reports() if isinstance(report, Renewed)]
    assert [report.deadline for report in renewed] == [15.0 + LOCK]


def test_a_lock_that_ended_before_the_answer_is_not_renewed() -> None:
    world, _ = renewing()
    world.answer(ShareAcknowledgeRequest, acknowledged(), 31.0)
    assert not [locks for report in world.reports() if isinstance(report, Renewed) for locks in report.locks]
    flush(world)
    world.poll(31.0)
    assert [type(report) for report in world.reports()] == [Lost]
    (batch,) = acknowledgement(world).topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (0, 0, (2,)), "the broker renewed it for nobody"


def test_a_lock_that_was_renewed_too_late_is_not_released_after_the_end_of_the_new_time() -> None:
    """A broker refuses all the acknowledgements of a partition if one lock has ended."""
    world, _ = renewing()
    world.answer(ShareAcknowledgeRequest, acknowledged(), 15.0 + LOCK)
    call = flush(world)
    world.poll(15.0 + LOCK)
    assert world.waiting(ShareAcknowledgeRequest) == []
    assert call.result() == {}


def test_a_record_that_was_accepted_before_its_lock_was_renewed_too_late_is_not_released() -> None:
    world, delivery = renewing()
    assert acknowledgement(world).is_renew_ack
    accept(world, delivery, 0)
    world.poll(16.0)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 31.0)
    flush(world)
    world.poll(31.0)
    (batch,) = acknowledgement(world).topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (0, 0, (1,))


def test_a_record_that_is_accepted_while_its_lock_is_being_renewed_has_the_new_time() -> None:
    world, delivery = renewing(2)
    assert acknowledgement(world).is_renew_ack
    accept(world, delivery, 0)
    world.poll(16.0)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 20.0)
    flush(world)
    world.poll(20.0)
    assert not acknowledgement(world).is_renew_ack
    world.answer(ShareAcknowledgeRequest, acknowledged(), LOCK + 10)
    (settled,) = [report for report in world.reports() if isinstance(report, Settled)]
    assert settled == Settled(TP, delivery.number, (0,), ACCEPT, None)
