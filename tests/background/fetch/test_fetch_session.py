"""Fetch sessions (KIP-227): full and incremental requests, what the broker is made to forget, and which answers are ours."""

from functools import cache
from typing import Any

from kafka_async import TopicPartition
from kafka_async.background.fetch.fetch_session import FetchSession, FetchTerms, Wanted
from kafka_async.config import ConsumerConfig
from kafka_async.wire import FetchedStep, FetchStep
from kafka_async.wire.messages import FetchRequest

from ..support import A, B, data, fetched, records, topic_id

OTHER = TopicPartition("u", 0)
known_id = cache(topic_id)  # the metadata gives the same object each time


def how(offset: int, name: str = "t", generation: int = 0) -> Wanted:
    return Wanted(known_id(name, generation), offset, 1000, 3)


def asks(session: FetchSession) -> FetchRequest:
    """Return the next request, in its long form."""
    request = session.request(5000, 100)
    return request.whole() if isinstance(request, FetchStep) else request


def named(request: FetchRequest) -> dict[tuple[str, int], int]:
    return {(topic.topic, part.partition): part.fetch_offset for topic in request.topics for part in topic.partitions}


def answered(session: FetchSession, *partitions: TopicPartition, session_id: int = 7) -> bool:
    """Have the last request answered; return whether the answer is one of the session."""
    return session.read(fetched(*map(data, partitions), session=session_id)) is not None


def opened(*partitions: TopicPartition) -> FetchSession:
    """Return a session that the broker has taken with these partitions at offset 0."""
    session = FetchSession()
    for partition in partitions:
        session.want(partition, how(0, partition.topic))
    asks(session)
    assert answered(session, *partitions)
    return session


def test_the_first_request_names_everything() -> None:
    session = FetchSession()
    session.want(A, how(5))
    session.want(OTHER, how(6, "u"))
    request = asks(session)
    assert (request.session_id, request.session_epoch, request.forgotten_topics_data) == (0, 0, ())
    assert named(request) == {("t", 0): 5, ("u", 0): 6}
    part = request.topics[0].partitions[0]
    assert (part.partition_max_bytes, part.current_leader_epoch, request.topics[0].topic_id) == (1000, 3, topic_id("t"))


def test_later_requests_name_what_changed() -> None:
    session = opened(A, B)
    session.want(A, how(0))
    request = asks(session)
    assert (request.session_id, request.session_epoch, named(request)) == (7, 1, {})
    assert answered(session)
    session.want(B, how(8))
    request = asks(session)
    assert (request.session_epoch, named(request)) == (2, {("t", 1): 8})


def test_what_is_not_wanted_any_more_is_forgotten_once() -> None:
    session = opened(A, B)
    session.want(A, None)
    (forgotten,) = asks(session).forgotten_topics_data
    assert (forgotten.topic, forgotten.topic_id, forgotten.partitions) == ("t", topic_id("t"), (0,))
    assert answered(session)
    assert asks(session).forgotten_topics_data == ()


def test_what_comes_back_before_the_next_request_was_never_away() -> None:
    session = opened(A)
    session.want(A, None)
    session.want(A, how(0))
    request = asks(session)
    assert (named(request), request.forgotten_topics_data) == ({}, ())


def test_a_topic_with_a_new_id_is_forgotten_under_the_old_one() -> None:
    session = opened(A)
    session.want(A, how(0, generation=1))
    request = asks(session)
    assert [gone.topic_id for gone in request.forgotten_topics_data] == [topic_id("t")]
    assert [topic.topic_id for topic in request.topics] == [topic_id("t", 1)]


def test_answers_are_read_by_name_or_by_id() -> None:
    for ids in (True, False):
        session = opened(A)
        assert session.read(fetched(data(A), ids=ids)) == {A: data(A)}


def test_a_broker_without_sessions_gets_full_requests() -> None:
    session = FetchSession()
    session.want(A, how(0))
    asks(session)
    assert answered(session, A, session_id=0)
    request = asks(session)
    assert (request.session_id, request.session_epoch, named(request)) == (0, 0, {("t", 0): 0})


def test_a_reset_names_everything_again_and_can_close_the_old_session() -> None:
    session = opened(A, B)
    session.want(A, how(4))
    session.reset(keep_id=True)
    request = asks(session)
    assert (request.session_id, request.session_epoch, named(request)) == (7, 0, {("t", 0): 4, ("t", 1): 0})
    session.reset()
    assert asks(session).session_id == 0


def test_an_epoch_is_counted_for_each_answer_and_a_request_without_one_repeats_it() -> None:
    session = opened(A)
    assert [asks(session).session_epoch, asks(session).session_epoch] == [1, 1]
    assert answered(session)
    assert asks(session).session_epoch == 2


def test_a_new_session_starts_at_its_first_epoch() -> None:
    session = opened(A)
    asks(session)
    assert answered(session, session_id=9)
    request = asks(session)
    assert (request.session_id, request.session_epoch) == (9, 1)


def test_one_partition_that_moved_on_goes_in_the_short_form_and_anything_else_in_the_long_one() -> None:
    session = opened(A, B)
    session.want(A, how(4))
    short = session.request(5000, 100)
    assert isinstance(short, FetchStep)
    assert named(short.whole()) == {("t", 0): 4}
    assert (short.session_id, short.session_epoch, short.max_bytes, short.max_wait_ms) == (7, 1, 5000, 100)
    assert answered(session, A)
    assert isinstance(session.request(5000, 100), FetchRequest), "nothing has changed"
    session.want(A, how(5))
    session.want(B, how(5))
    assert isinstance(session.request(5000, 100), FetchRequest), "two have"
    session.want(A, how(5, generation=1))
    assert isinstance(session.request(5000, 100), FetchRequest), "it is another topic"
    session.want(A, None)
    assert isinstance(session.request(5000, 100), FetchRequest), "it is not wanted any more"


def step(number: int, name: str = "t", session_id: int = 7) -> FetchedStep:
    """Return an answer in the short form."""
    return FetchedStep(0, session_id, topic_id(name).bytes, number, 100, 100, 0, -1, records(0, 1))


def test_an_answer_in_the_short_form_says_the_same() -> None:
    session = opened(A, B)
    for number, partition in enumerate((A, B)):
        answer = step(number)
        assert session.read(answer) == {partition: answer}
        assert (answer.error_code, answer.node_endpoints, answer.aborted_transactions) == (0, (), None)
    assert asks(session).session_epoch == 3
    assert session.read(step(0, session_id=0)) is not None
    assert asks(session).session_epoch == 0, "the broker keeps no session for us any more"


def foreign() -> list[Any]:
    return [step(2), step(0, "u"), fetched(data(TopicPartition("t", 2))), fetched(data(A), name="u")]


def test_an_answer_about_anything_else_is_of_another_session_and_ends_ours() -> None:
    for answer in foreign():
        session = opened(A, B)
        session.want(A, how(4))
        asks(session)
        assert session.read(answer) is None
        assert (session.misfit, session.is_full) == (True, True)
        request = asks(session)
        assert (request.session_id, request.session_epoch, named(request)) == (0, 0, {("t", 0): 4, ("t", 1): 0})
        assert answered(session, A, B)
        assert session.misfit, "a full answer always fits, also that of another broker"
        session.want(A, how(5))
        asks(session)
        assert answered(session, A)
        assert not session.misfit


def test_a_broker_that_keeps_no_session_fits_at_once() -> None:
    session = opened(A)
    assert session.read(step(2)) is None
    asks(session)
    assert answered(session, A, session_id=0)
    assert not session.misfit


def test_a_full_answer_that_leaves_something_out_begins_another_session_in_place_of_this_one() -> None:
    session = FetchSession()
    for partition in (A, B):
        session.want(partition, how(0))
    asks(session)
    assert answered(session, A)
    request = asks(session)
    assert (request.session_id, request.session_epoch, named(request)) == (7, 0, {("t", 0): 0, ("t", 1): 0})


def test_the_last_request_closes_what_the_broker_holds() -> None:
    assert FetchSession().last_request() is None
    last = opened(A).last_request()
    assert last is not None
    assert (last.session_id, last.session_epoch, last.topics, last.max_wait_ms) == (7, -1, (), 0)


def test_each_request_says_what_the_options_say() -> None:
    options = {"fetch_min_bytes": 7, "isolation_level": "read_committed", "client_rack": "r"}
    session = FetchSession(FetchTerms.of(ConsumerConfig.from_options(options)))
    session.want(A, how(0))
    whole = asks(session)
    assert answered(session, A)
    session.want(A, how(1))
    short = session.request(5000, 100)
    assert isinstance(short, FetchStep)
    for request in (whole, short):
        assert (request.min_bytes, request.isolation_level, request.rack_id) == (7, 1, "r")
