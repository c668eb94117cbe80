"""Fetch sessions (KIP-227): full and incremental requests, and what the broker is made to forget."""

from kafka_async import TopicPartition
from kafka_async.background.fetch.fetch_session import FetchSession, SessionRequest, Wanted

from ..support import A, B, topic_id

OTHER = TopicPartition("u", 0)


def how(offset: int, name: str = "t", generation: int = 0) -> Wanted:
    return Wanted(topic_id(name, generation), offset, 1000, 3)


def named(request: SessionRequest) -> dict[tuple[str, int], int]:
    return {(topic.topic, part.partition): part.fetch_offset for topic in request.topics for part in topic.partitions}


def opened(*partitions: TopicPartition) -> FetchSession:
    """Return a session that the broker has taken with these partitions at offset 0."""
    session = FetchSession()
    for partition in partitions:
        session.want(partition, how(0, partition.topic))
    session.build()
    session.succeeded(7, len(session.sent))
    return session


def test_the_first_request_names_everything() -> None:
    session = FetchSession()
    session.want(A, how(5))
    session.want(OTHER, how(6, "u"))
    request = session.build()
    assert (request.session_id, request.epoch, request.forgotten) == (0, 0, ())
    assert named(request) == {("t", 0): 5, ("u", 0): 6}
    part = request.topics[0].partitions[0]
    assert (part.partition_max_bytes, part.current_leader_epoch, request.topics[0].topic_id) == (1000, 3, topic_id("t"))


def test_later_requests_name_what_changed() -> None:
    session = opened(A, B)
    session.want(A, how(0))
    request = session.build()
    assert (request.session_id, request.epoch, named(request)) == (7, 1, {})
    session.succeeded(7, len(session.sent))
    session.want(B, how(8))
    request = session.build()
    assert (request.epoch, named(request)) == (2, {("t", 1): 8})


def test_what_is_not_wanted_any_more_is_forgotten_once() -> None:
    session = opened(A, B)
    session.want(A, None)
    (forgotten,) = session.build().forgotten
    assert (forgotten.topic, forgotten.topic_id, forgotten.partitions) == ("t", topic_id("t"), (0,))
    session.succeeded(7, len(session.sent))
    assert session.build().forgotten == ()


def test_what_comes_back_before_the_next_request_was_never_away() -> None:
    session = opened(A)
    session.want(A, None)
    session.want(A, how(0))
    request = session.build()
    assert (named(request), request.forgotten) == ({}, ())


def test_a_topic_with_a_new_id_is_forgotten_under_the_old_one() -> None:
    session = opened(A)
    session.want(A, how(0, generation=1))
    request = session.build()
    assert [gone.topic_id for gone in request.forgotten] == [topic_id("t")]
    assert [topic.topic_id for topic in request.topics] == [topic_id("t", 1)]


def test_answers_are_read_by_name_or_by_id() -> None:
    session = opened(A)
    assert session.name("t", None) == "t"
    assert session.name("", topic_id("t")) == "t"
    assert session.name("", topic_id("nobody")) is None


def test_a_broker_without_sessions_gets_full_requests() -> None:
    session = FetchSession()
    session.want(A, how(0))
    session.build()
    session.succeeded(0, len(session.sent))
    request = session.build()
    assert (request.session_id, request.epoch, named(request)) == (0, 0, {("t", 0): 0})


def test_a_reset_names_everything_again_and_can_close_the_old_session() -> None:
    session = opened(A, B)
    session.want(A, how(4))
    session.reset(keep_id=True)
    request = session.build()
    assert (request.session_id, request.epoch, named(request)) == (7, 0, {("t", 0): 4, ("t", 1): 0})
    session.reset()
    assert session.build().session_id == 0


def test_epochs_start_again_behind_the_largest_one() -> None:
    session = opened(A)
    session.epoch = 2**31 - 1
    session.build()
    session.succeeded(7, len(session.sent))
    assert session.build().epoch == 1


def test_a_new_session_starts_at_its_first_epoch() -> None:
    session = opened(A)
    session.build()
    session.succeeded(9, len(session.sent))
    request = session.build()
    assert (request.session_id, request.epoch) == (9, 1)
