"""``kafka_async.network.protocol``"""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import (
    CorrelationIdError,
    FrameSizeError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    MalformedResponseError,
    UnsupportedVersionError,
)
from kafka_async.network.protocol import EXPIRY_GRACE, LONGEST_THROTTLE, Answer, Protocol
from kafka_async.network.request import LATE, UnsentRequest
from kafka_async.trace import RequestFailed, RequestSent, ResponseReceived, TraceEvent
from kafka_async.wire import Response
from kafka_async.wire.messages import FindCoordinatorRequest, HeartbeatResponse, MetadataResponse, MetadataResponseBroker
from tests.network.peers import Peer, heartbeat, metadata

MIB = 1024 * 1024


def drop(outcome: Any, now: float) -> None:
    """An ``on_done`` for answers that are looked at elsewhere."""


def make(trace: list[TraceEvent] | None = None) -> Protocol:
    events: list[TraceEvent] = [] if trace is None else trace
    return Protocol(client_id="c", peer="one:9092", limit=MIB, trace=events.append)


def pour(protocol: Protocol, data: bytes, now: float = 0.0) -> list[Answer]:
    answers = []
    while data:
        view = protocol.frames.get_buffer()
        count = min(len(view), len(data))
        view[:count] = data[:count]
        protocol.receive(count, now)
        data = data[count:]
        while (answer := protocol.next_answer(now)) is not None:
            answers.append(answer)
    return answers


def ask(protocol: Protocol, *requests: UnsentRequest, now: float = 0.0) -> Peer:
    peer = Peer()
    for request in requests:
        protocol.ask(request, 4, now)
    peer.feed(protocol.data_to_send())
    return peer


def test_requests_are_numbered_and_answers_come_back_in_order() -> None:
    protocol = make()
    first, second = heartbeat(drop), metadata(drop)
    peer = ask(protocol, first, second)
    assert [asked.correlation_id for asked in peer.asked] == [0, 1]
    assert protocol.in_flight == 2
    data = peer.answer(HeartbeatResponse(error_code=27)) + peer.answer(MetadataResponse(controller_id=7))
    answers = pour(protocol, data)
    assert [answer.request for answer in answers] == [first, second]
    assert answers[0].response == HeartbeatResponse(error_code=27)
    assert answers[1].response.controller_id == 7
    assert protocol.in_flight == 0


def test_data_to_send_is_handed_out_once() -> None:
    protocol = make()
    protocol.ask(heartbeat(drop), 4, 0.0)
    assert protocol.data_to_send()
    assert protocol.data_to_send() == b""


@pytest.mark.slow
@given(
    responses=st.lists(
        st.one_of(
            st.builds(HeartbeatResponse, error_code=st.integers(-1, 130), throttle_time_ms=st.integers(0, 10_000)),
            st.builds(
                MetadataResponse,
                brokers=st.lists(
                    st.builds(MetadataResponseBroker, node_id=st.integers(0, 99), host=st.text(max_size=20), port=st.just(1)),
                    max_size=30,
                ).map(tuple),
            ),
        ),
        max_size=8,
    ),
    cuts=st.lists(st.integers(1, 400), min_size=1),
)
def test_any_chunking_gives_the_same_answers(responses: list[Response], cuts: list[int]) -> None:
    protocol = make()
    requests = [heartbeat(drop) if isinstance(response, HeartbeatResponse) else metadata(drop) for response in responses]
    peer = ask(protocol, *requests)
    data = b"".join(peer.answer(response) for response in responses)
    answers: list[Answer] = []
    turn = 0
    while data:
        cut = cuts[turn % len(cuts)]
        answers += pour(protocol, data[:cut])
        data = data[cut:]
        turn += 1
    assert [(answer.request, answer.response) for answer in answers] == list(zip(requests, responses, strict=True))


def test_another_correlation_id_is_an_error() -> None:
    protocol = make()
    ask(protocol, heartbeat(drop))
    with pytest.raises(CorrelationIdError, match="an answer with correlation id 5: expected 0 \\(Heartbeat\\)"):
        pour(protocol, struct.pack(">ii", 10, 5) + bytes(6))


def test_an_answer_to_no_question_is_an_error() -> None:
    with pytest.raises(CorrelationIdError, match="nothing is in flight"):
        pour(make(), struct.pack(">ii", 4, 0))


@pytest.mark.parametrize("size", [-1, 2**31 - 1])
def test_an_impossible_frame_length_is_an_error(size: int) -> None:
    protocol = make()
    ask(protocol, heartbeat(drop))
    with pytest.raises(FrameSizeError):
        pour(protocol, struct.pack(">i", size))


def test_a_body_that_is_not_the_response_is_an_error() -> None:
    protocol = make()
    ask(protocol, metadata(drop))
    with pytest.raises(MalformedResponseError):
        pour(protocol, struct.pack(">ii", 7, 0) + b"\xff\xff\xff")


@given(st.binary(max_size=300))
def test_garbage_gives_a_protocol_error_or_nothing(data: bytes) -> None:
    protocol = make()
    ask(protocol, metadata(drop))
    try:
        pour(protocol, data)
    except KafkaProtocolError:
        return
    assert protocol.in_flight in (0, 1)


def test_a_request_that_no_version_can_carry_is_not_in_flight() -> None:
    protocol = make()
    request = UnsentRequest(message=FindCoordinatorRequest(coordinator_keys=("a", "b")), on_done=drop, expires_at=1.0)
    with pytest.raises(UnsupportedVersionError):
        protocol.ask(request, 3, 0.0)
    assert protocol.in_flight == 0
    assert protocol.data_to_send() == b""


def test_failing_ends_every_request_with_an_error_of_its_own() -> None:
    protocol = make()
    outcomes: list[KafkaError] = []

    def done(outcome: KafkaError, now: float) -> None:
        outcomes.append(outcome)

    ask(protocol, heartbeat(done, expires_at=10.0), heartbeat(done, expires_at=5.0))
    cause = OSError("reset")
    error = KafkaConnectionError("one:9092 closed the connection")
    error.__cause__ = cause
    assert protocol.fail(error, 6.0) == 2
    assert [type(outcome) for outcome in outcomes] == [KafkaConnectionError, KafkaTimeoutError]
    assert outcomes[0] is not error
    assert outcomes[0].__cause__ is cause
    assert outcomes[1].__cause__ is error
    assert protocol.in_flight == 0


def test_an_overdue_request_is_given_up_only_after_a_moment_in_which_an_unread_answer_can_be_read() -> None:
    protocol = make()
    late = heartbeat(drop, expires_at=5.0)
    peer = ask(protocol, late, heartbeat(drop, expires_at=9.0))
    assert protocol.wake_at(30.0) == 5.0
    assert protocol.overdue(4.9, 30.0) is None
    # The loop was blocked until 60; both deadlines are long gone, but the answers may lie in the socket.
    assert protocol.overdue(60.0, 30.0) is None
    assert protocol.wake_at(30.0) == 60.0 + EXPIRY_GRACE
    assert len(pour(protocol, peer.answer(HeartbeatResponse()) + peer.answer(HeartbeatResponse()), 60.01)) == 2
    assert protocol.overdue(61.0, 30.0) is None


def test_an_overdue_request_without_an_answer_is_named() -> None:
    protocol = make()
    late = heartbeat(drop, expires_at=5.0)
    ask(protocol, heartbeat(drop, expires_at=9.0), late)
    assert protocol.overdue(5.0, 30.0) is None
    given_up = protocol.overdue(5.0 + EXPIRY_GRACE, 30.0)
    assert given_up is not None
    assert given_up.request is late


def test_a_large_answer_that_keeps_arriving_is_not_cut_off_before_the_hard_limit() -> None:
    protocol = make()
    ask(protocol, heartbeat(drop, expires_at=5.0))
    pour(protocol, struct.pack(">i", 1000))
    now = 5.0
    while protocol.overdue(now, 2.0) is None:
        assert protocol.wake_at(2.0) > now
        pour(protocol, b"\x00", now)
        now += 0.05
    assert 7.0 <= now <= 7.2


def test_trace_events_carry_sizes_and_latency() -> None:
    trace: list[TraceEvent] = []
    protocol = make(trace)
    peer = ask(protocol, heartbeat(drop), heartbeat(drop), now=1.0)
    data = peer.answer(HeartbeatResponse(throttle_time_ms=250))
    pour(protocol, data, 1.5)
    protocol.fail(KafkaConnectionError("gone"), 2.0)
    sent, _, received, failed = trace
    assert isinstance(sent, RequestSent)
    assert (sent.api, sent.version, sent.correlation_id) == ("Heartbeat", 4, 0)
    assert isinstance(received, ResponseReceived)
    assert (received.size, received.latency, received.throttle) == (len(data), 0.5, 0.25)
    assert isinstance(failed, RequestFailed)
    assert (failed.api, str(failed.error)) == ("Heartbeat", "gone")


@pytest.mark.parametrize(("asked", "believed"), [(2**31 - 1, LONGEST_THROTTLE), (-(2**31), 0.0), (11_000, 11.0)])
def test_throttling_is_believed_within_bounds(asked: int, believed: float) -> None:
    protocol = make()
    peer = ask(protocol, heartbeat(drop))
    (answer,) = pour(protocol, peer.answer(HeartbeatResponse(throttle_time_ms=asked)))
    assert answer.throttle == believed


def test_a_connection_is_in_doubt_if_it_is_late_and_silent_and_nobody_waits_for_it() -> None:
    wanted = True
    protocol = make()
    protocol.ask(heartbeat(drop), 4, 1.0)
    protocol.ask(heartbeat(drop, withdrawn=lambda: not wanted), 4, 1.0)
    assert not protocol.is_doubtful(5.0)
    wanted = False
    assert not protocol.is_doubtful(1.0 + LATE / 2)
    assert protocol.is_doubtful(5.0)
    protocol.receive(0, 4.0)
    assert not protocol.is_doubtful(5.0)
