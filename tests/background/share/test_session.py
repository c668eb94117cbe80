"""What a share session sends about the partitions that it reads."""

from uuid import UUID

from kafka_async.background.share.session import ShareSession
from kafka_async.model import TopicPartition
from kafka_async.wire.messages import AcknowledgementBatch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID, NEW = UUID(int=1), UUID(int=2)


def sent(session: ShareSession) -> tuple[list[tuple[UUID | None, int]], list[tuple[UUID | None, int]]]:
    topics, forgotten = session.build({})
    listed = [(topic.topic_id, part.partition_index) for topic in topics for part in topic.partitions]
    return listed, [(topic.topic_id, index) for topic in forgotten for index in topic.partitions]


def test_only_changes_are_sent() -> None:
    session = ShareSession({A: ID, B: ID})
    assert sent(session) == ([(ID, 0), (ID, 1)], [])
    session.fetched()
    assert sent(session) == ([], [])
    session.wanted = {A: ID}
    assert sent(session) == ([], [(ID, 1)])


def test_what_was_not_answered_is_sent_again() -> None:
    session = ShareSession({A: ID})
    sent(session)
    assert sent(session) == ([(ID, 0)], [])


def test_a_topic_that_was_made_again_is_another_one() -> None:
    session = ShareSession({A: ID})
    sent(session)
    session.fetched()
    session.wanted = {A: NEW}
    assert sent(session) == ([(NEW, 0)], [(ID, 0)])


def test_acknowledgements_ride_on_partitions_that_the_broker_knows() -> None:
    session = ShareSession({A: ID, B: ID})
    sent(session)
    session.fetched()
    batch = AcknowledgementBatch(first_offset=1, last_offset=2, acknowledge_types=(1,))
    ((topic,), forgotten) = session.build({B: (batch,)})
    assert [(part.partition_index, part.acknowledgement_batches) for part in topic.partitions] == [(1, (batch,))]
    assert forgotten == ()


def test_every_request_counts_and_a_doubt_begins_anew() -> None:
    session = ShareSession({A: ID})
    assert not session.is_open
    sent(session)
    session.fetched()
    session.acknowledged()
    assert session.epoch == 2
    session.reset()
    assert session.epoch == 0
    assert sent(session) == ([(ID, 0)], [])


def test_the_epoch_begins_at_one_after_the_last() -> None:
    session = ShareSession()
    session.epoch = 2**31 - 1
    session.acknowledged()
    assert session.epoch == 1
