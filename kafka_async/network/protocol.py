"""One connection's requests and responses: bytes in, responses out, without a socket.

Any way of cutting the incoming bytes into pieces gives the same answers.

A broker answers the requests of one connection in the order they were sent (Kafka protocol guide, "Network"), so the oldest
request in flight is the only one an answer may belong to; anything else means that the two sides have lost each other, and
``CorrelationIdError`` ends the connection. Java: ``InFlightRequests``, ``NetworkClient.handleCompletedReceives``.
"""

from collections import deque
from collections.abc import Callable
from copy import copy
from math import inf
from typing import Any, Final, NamedTuple

from ..errors import (
    CorrelationIdError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    SslAuthenticationError,
)
from ..trace import RequestFailed, RequestSent, ResponseReceived, TraceEvent
from ..values import define
from ..wire import decode_response, encode_request, response_correlation_id
from .frames import PREFIX, FrameBuffer
from .request import LATE, UnsentRequest, never_withdrawn

MAX_IN_FLIGHT: Final = 16
"""Requests written and not answered on one connection. Java allows 100.

A broker works on one request of a connection at a time, so a second one hides the round trip and more only wait on the broker's
side, where a request can be neither withdrawn nor sent elsewhere. Sixteen leaves room for every manager at once.
"""

EXPIRY_GRACE: Final = 0.1
"""Seconds between finding a request overdue and giving its connection up.

After the event loop was blocked (a handler that computes, a laptop that slept) the answer lies unread in the socket, and the
timer that finds the deadline passed may run before the reader does.
"""

LONGEST_THROTTLE: Final = 60.0
"""Most seconds of throttling that are obeyed. Brokers ask for a quota window at most, which is 11 s unless configured otherwise.
With garbage in this field a client would be silent for weeks, and a broker that gets a request too early just throttles again.
"""

_CORRELATION_IDS: Final = 2**31


@define(eq=False)
class InFlight:
    """A request that was written and is not answered yet."""

    request: UnsentRequest
    api: str
    """Its name, for texts and trace events."""
    correlation_id: int
    sent_at: float
    version: int


class Answer(NamedTuple):
    """A decoded response with the request it belongs to."""

    request: UnsentRequest
    response: Any
    throttle: float
    """Seconds for which the broker asks us to send nothing (KIP-219)."""


class Protocol:
    """Sans-IO pipeline of one connection. Made for one connection and thrown away with it."""

    def __init__(self, *, client_id: str, peer: str, limit: int, trace: Callable[[TraceEvent], None]) -> None:
        self.frames = FrameBuffer(limit)
        self._client_id = client_id
        self.peer = peer
        """The broker's name in texts and trace events."""
        self.unread_until = -inf
        """The broker throttles us and reads nothing on this connection until then (KIP-219). It reads what comes on a new one."""
        self._trace = trace
        self._in_flight: deque[InFlight] = deque()
        self._next_id = 0
        self._out: list[bytes] = []
        self._received_at = -inf
        self._expires_at = inf  # when the time of the first request in flight passes
        self._overdue_since: float | None = None

    @property
    def in_flight(self) -> int:
        """Number of requests written and not answered."""
        return len(self._in_flight)

    @property
    def awaits_final(self) -> bool:
        """A final request is in flight."""
        return any(sent.request.final for sent in self._in_flight)

    @property
    def longest_wait(self) -> float:
        """Seconds for which the broker may hold back an answer that is in flight."""
        return max((sent.request.max_wait for sent in self._in_flight), default=0.0)

    @property
    def is_abandoned(self) -> bool:
        """No call waits for the requests in flight any more, and the broker may never answer them."""
        requests = [sent.request for sent in self._in_flight]
        return any(request.abandonable for request in requests) and all(request.withdrawn() for request in requests)

    def is_late(self, now: float) -> bool:
        """The oldest response has been overdue for a while. Those after it have to wait for it."""
        return bool(self._in_flight) and now >= self._in_flight[0].sent_at + self._in_flight[0].request.max_wait + LATE

    def is_doubtful(self, now: float) -> bool:
        """The oldest response is late, not a byte has come since its request was sent, and no call waits for what is in flight."""
        if not (self.is_late(now) and self.is_silent_since(self._in_flight[0].sent_at)):
            return False
        requests = (sent.request for sent in self._in_flight)
        return all(request.withdrawn is never_withdrawn or request.withdrawn() for request in requests)

    def may_be_held(self, now: float) -> bool:
        """The broker may legitimately hold the oldest response back until later, or not read its request until then."""
        if not self._in_flight:
            return False
        return now < max(self._in_flight[0].sent_at + self._in_flight[0].request.max_wait, self.unread_until)

    @property
    def silent(self) -> bool:
        """The peer has not sent a single byte."""
        return self._received_at == -inf

    def is_silent_since(self, moment: float) -> bool:
        """Not a single byte has come since then."""
        return self._received_at < moment

    def ask(self, request: UnsentRequest, version: int, now: float) -> None:
        """Encode ``request`` and put it in flight.

        Raises what ``encode_request`` raises, such as ``UnsupportedVersionError``; nothing is in flight then.
        """
        correlation_id = self._next_id
        data = encode_request(request.message, version, correlation_id, self._client_id)
        self._next_id = (correlation_id + 1) % _CORRELATION_IDS
        self._out.append(data)
        api = request.message.api_name
        self._in_flight.append(InFlight(request, api, correlation_id, now, version))
        self._expires_at = min(self._expires_at, request.expires_at)
        self._trace(
            RequestSent(
                now=now,
                node=self.peer,
                api=api,
                version=version,
                correlation_id=correlation_id,
                size=len(data),
            )
        )

    def put_off(self, seconds: float) -> None:
        """Allow the request that was written last more time: the broker will not read it for so long."""
        if self._in_flight:
            self._in_flight[-1].request.expires_at += seconds
            self._expires_at = min([sent.request.expires_at for sent in self._in_flight])

    def data_to_send(self) -> bytes:
        """Return the bytes to write now, and forget them."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def receive(self, count: int, now: float) -> None:
        """Take note that ``count`` bytes were written into the buffer that ``frames.get_buffer()`` handed out."""
        self.frames.buffer_updated(count)
        self._received_at = now

    def next_answer(self, now: float) -> Answer | None:
        """Return the next complete answer, or ``None`` when more bytes are needed.

        Raises ``FrameSizeError``, ``SslAuthenticationError``, ``CorrelationIdError`` or ``MalformedResponseError``; the
        connection has to be closed then, and the requests in flight, the one concerned among them, are ended by ``fail``.
        """
        try:
            frame = self.frames.next_frame()
            return None if frame is None else self._answer(frame, now)
        except (SslAuthenticationError, KafkaProtocolError) as error:
            raise type(error)(f"{self.peer}: {error}") from error.__cause__

    def fail(self, error: KafkaError, now: float) -> int:
        """End every request in flight with an error like ``error`` and return how many there were.

        A request whose own time has passed gets ``KafkaTimeoutError``, with ``error`` as its cause.
        """
        failed, self._in_flight = self._in_flight, deque()
        self._expires_at = inf
        self._out.clear()
        for sent in failed:
            if sent.request.expires_at <= now and isinstance(error, KafkaConnectionError):
                text = f"{sent.request.name} to {self.peer}: no answer within {now - sent.sent_at:.3f} s of sending it"
                settle(sent.request, KafkaTimeoutError(text), peer=self.peer, now=now, trace=self._trace, cause=error)
            else:
                settle(sent.request, error, peer=self.peer, now=now, trace=self._trace)
        return len(failed)

    def overdue(self, now: float, hard_limit: float) -> InFlight | None:
        """Return a request for which the connection has to be given up now, else ``None``.

        ``hard_limit``: seconds past its deadline after which arriving bytes no longer excuse a request. Until then a large
        answer over a slow line that keeps coming is not cut off.
        """
        if self._expires_at > now:
            self._overdue_since = None  # what was late has been answered
            return None
        late = min(self._in_flight, key=_expiry)
        if self._overdue_since is None:
            self._overdue_since = now
        return late if now >= self._give_up_at(late, hard_limit) else None

    def wake_at(self, hard_limit: float) -> float:
        """Return when ``overdue`` has to be asked next, in absolute seconds."""
        if self._overdue_since is None or not self._in_flight:
            return self._expires_at
        return self._give_up_at(min(self._in_flight, key=_expiry), hard_limit)

    def _give_up_at(self, late: InFlight, hard_limit: float) -> float:
        found = self._overdue_since or 0.0
        return min(max(found, self._received_at), max(late.request.expires_at + hard_limit, found)) + EXPIRY_GRACE

    def _answer(self, frame: memoryview, now: float) -> Answer:
        correlation_id = response_correlation_id(frame)
        if not self._in_flight:
            raise CorrelationIdError(f"an answer with correlation id {correlation_id}: expected none, nothing is in flight")
        sent = self._in_flight[0]
        if correlation_id != sent.correlation_id:
            raise CorrelationIdError(
                f"an answer with correlation id {correlation_id}: expected {sent.correlation_id} ({sent.request.name})"
            )
        response = decode_response(sent.request.message, sent.version, frame)
        in_flight = self._in_flight
        in_flight.popleft()
        self._expires_at = min([other.request.expires_at for other in in_flight]) if in_flight else inf
        throttled_for = getattr(response, "throttle_time_ms", 0)
        throttle = min(max(throttled_for / 1000, 0.0), LONGEST_THROTTLE) if throttled_for else 0.0
        self._trace(
            ResponseReceived(
                now=now,
                node=self.peer,
                api=sent.api,
                correlation_id=correlation_id,
                size=len(frame) + PREFIX,
                latency=now - sent.sent_at,
                throttle=throttle,
            )
        )
        return Answer(sent.request, response, throttle)


def _expiry(sent: InFlight) -> float:
    return sent.request.expires_at


def settle(
    request: UnsentRequest,
    error: KafkaError,
    *,
    peer: str,
    now: float,
    trace: Callable[[TraceEvent], None],
    cause: BaseException | None = None,
) -> None:
    """End ``request`` with a copy of ``error``: several waiters must not share one exception and its traceback."""
    own = copy(error)
    own.__cause__ = cause or error.__cause__
    trace(RequestFailed(now=now, node=peer, api=request.name, error=own))
    request.on_done(own, now)
