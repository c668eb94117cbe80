"""One broker: request frames in, response frames out.

It closes the connection of a client that uses a version that it does not offer, as a real broker does.
"""

from collections.abc import Callable, Generator
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import define, evolve, field

from ...wire import UNSUPPORTED_VERSION, Api, Response
from ...wire.messages import ApiVersionsRequest
from ...wire.messages.produce import ProduceRequest, ProduceResponse
from ..server import NotSimulatedError, ReceivedRequest, decode_request, encode_response
from .traffic import Caller
from .waking import Answering

if TYPE_CHECKING:
    from .cluster import FakeCluster
    from .sessions import SimulatedFetchSession

HANG: Final = object()
"""Returned by a control function: the request is never answered."""


LOSE: Final = object()
"""Returned by a control function: the broker does what was asked and closes the connection without an answer."""
_NO_ANSWER: Final = b""


class Drop(Exception):
    """Returned by a control function: the broker closes the connection instead of answering."""


@define(eq=False, repr=False)
class FakeBroker:
    """A broker of a fake cluster."""

    node_id: int
    cluster: "FakeCluster" = field(repr=False)
    sessions: "dict[int, SimulatedFetchSession]" = field(factory=dict, repr=False)
    last_session: int = 0
    reach: str = "accept"
    """What it does with new connections: ``accept``, ``refuse`` or ``hang``."""
    line: object = field(default=None, repr=False)
    """The connection of the request that a handler was given last."""
    caller: Caller = field(factory=Caller, repr=False)
    """Who sent that request."""
    _address: tuple[str, int] | None = None
    """Where it listens for other programs."""

    @property
    def host(self) -> str:
        return f"b{self.node_id}" if self._address is None else self._address[0]

    @property
    def port(self) -> int:
        return 9092 if self._address is None else self._address[1]

    def listens(self, host: str, port: int) -> None:
        """Give clients another address. The old one still works within the process."""
        self._address = host, port

    def is_at(self, host: str, port: int) -> bool:
        """Return whether an address is this broker's."""
        return (host, port) in ((f"b{self.node_id}", 9092), self._address)

    @property
    def rack(self) -> str | None:
        return self.cluster.racks.get(self.node_id)

    def forget_sessions(self) -> None:
        self.sessions.clear()
        self.cluster.shares.forget(self.node_id)

    def hung_up(self, line: object) -> None:
        """A connection has ended, and its share sessions with it."""
        self.cluster.shares.hung_up(line)

    def arrived(self, frame: bytes, line: object = None) -> Callable[[], Answering[bytes | None]]:
        """Log a request that came on the connection ``line``; return the function that answers it."""
        received = decode_request(frame)
        self.cluster.traffic.note(self.node_id, received.api, received.version, received.request)
        return partial(self._answer, received, line)

    def _answer(self, received: ReceivedRequest, line: object) -> Answering[bytes | None]:
        api, version, correlation_id, client_id, request = received
        if api is Api.API_VERSIONS and version > self.cluster.max_versions[api]:
            self.line = line
            refusal = yield from self._handle(api, ApiVersionsRequest(), 0, UNSUPPORTED_VERSION)
            return encode_response(refusal, api, 0, correlation_id)
        if request is None or version > self.cluster.max_versions.get(api, -1):
            return None
        response = yield from self._respond(api, version, request, line, Caller(client_id or ""))
        if response is None:
            return None
        if isinstance(request, ProduceRequest) and not request.acks:
            # Nobody waits for an answer. A broker can tell of an error only by closing the connection.
            return None if _refuses(response) else _NO_ANSWER
        throttle = self.cluster.network.throttle_ms
        if throttle and hasattr(response, "throttle_time_ms"):
            response = evolve(cast(Any, response), throttle_time_ms=throttle)
        return encode_response(response, api, version, correlation_id)

    def _respond(self, api: Api, version: int, request: Any, line: object, caller: Caller) -> Answering[Response | None]:
        outcome = self.cluster.traffic.decide(self, request)
        while outcome is HANG:
            yield inf
        if isinstance(outcome, BaseException):
            return None
        if isinstance(outcome, Response):
            return outcome
        self.line, self.caller = line, caller
        response = yield from self._handle(api, request, version, 0 if outcome is LOSE else outcome or 0)
        return None if outcome is LOSE else response

    def _handle(self, api: Api, request: Any, version: int, error: int) -> Answering[Response]:
        if api not in self.cluster.handlers:
            raise NotSimulatedError(f"{api.name} is not simulated: give the test a control function that answers it")
        self.cluster.producers.expire()
        response = self.cluster.handlers[api](self, request, version, error)
        if isinstance(response, Response):
            return response
        if isinstance(response, Generator):
            answer: Response = yield from response
        else:
            answer = yield response
        return answer


def _refuses(response: Response) -> bool:
    return not isinstance(response, ProduceResponse) or any(
        part.error_code for topic in response.responses for part in topic.partition_responses
    )
