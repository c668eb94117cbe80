"""One broker: request frames in, response frames out.

Decides: nothing; the handlers do. Owns: its fetch sessions. Must never speak a version that it does not offer: a client that uses
one gets its connection closed, as from a real broker.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import anyio
from attrs import define, field

from kafka_async.wire import UNSUPPORTED_VERSION, Api, Response
from kafka_async.wire.messages import ApiVersionsRequest
from tests.wire.server import decode_request, encode_response

if TYPE_CHECKING:
    from .cluster import FakeCluster
    from .sessions import Session

HANG: Final = object()
"""Returned by a control function: the request is never answered."""


class Drop(Exception):
    """Returned by a control function: the broker closes the connection instead of answering."""


@define(eq=False)
class FakeBroker:
    """A broker of a fake cluster."""

    node_id: int
    cluster: "FakeCluster" = field(repr=False)
    sessions: "dict[int, Session]" = field(factory=dict, repr=False)
    last_session: int = 0

    @property
    def host(self) -> str:
        return f"b{self.node_id}"

    @property
    def port(self) -> int:
        return 9092

    @property
    def rack(self) -> str | None:
        return self.cluster.racks.get(self.node_id)

    def forget_sessions(self) -> None:
        self.sessions.clear()

    def arrived(self, frame: bytes) -> Callable[[], Awaitable[bytes | None]]:
        """Take note of a request; return what answers it."""
        api, version, correlation_id, _, request = decode_request(frame)
        self.cluster.note(self.node_id, api, version, request)

        async def answer() -> bytes | None:
            if api is Api.API_VERSIONS and version > self.cluster.max_versions[api]:
                refusal = await self._handle(api, ApiVersionsRequest(), 0, UNSUPPORTED_VERSION)
                return encode_response(refusal, api, 0, correlation_id)
            if request is None or version > self.cluster.max_versions.get(api, -1):
                return None
            response = await self._respond(api, version, request)
            return None if response is None else encode_response(response, api, version, correlation_id)

        return answer

    async def _respond(self, api: Api, version: int, request: Any) -> Response | None:
        outcome = self.cluster.decide(self, request)
        if outcome is HANG:
            await anyio.sleep_forever()
        if isinstance(outcome, BaseException):
            return None
        if isinstance(outcome, Response):
            return outcome
        return await self._handle(api, request, version, outcome or 0)

    async def _handle(self, api: Api, request: Any, version: int, error: int) -> Response:
        response = self.cluster.handlers[api](self, request, version, error)
        return response if isinstance(response, Response) else await response
