"""The requests that arrived, and the control functions with which tests step in before a broker answers."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import define, evolve, field, frozen

from ...wire import Api, Request
from ...wire.messages.produce import ProduceRequest
from .waking import loop_time

if TYPE_CHECKING:
    from .broker import FakeBroker

Control: TypeAlias = "Callable[[FakeBroker, Any], Any]"
"""Sees ``(broker, request)``. Returns ``None`` to let it pass, a response, an error code, ``HANG`` or an exception (``Drop``)."""


@frozen
class Caller:
    """Who sent a request, as the description of a group has it."""

    client_id: str = ""
    host: str = "/127.0.0.1"


@define(eq=False)
class _Controlled:
    api: Api
    fn: Control
    keep: bool
    node_id: int | None


MOST_PAYLOAD: Final = 16 * 1024 * 1024
"""Bytes of records that the log of requests keeps."""


@define(eq=False)
class LoggedRequest:
    """One request as it arrived. A Produce request has no records any more once those of later ones are more than 16 MiB."""

    time: float
    """That of the event loop."""
    node_id: int
    api: Api
    version: int
    request: Any


@define(eq=False, repr=False)
class SimulatedTraffic:
    """The requests of a cluster."""

    most: int = 50_000
    """How many requests are kept; the oldest are forgotten first."""
    requests: deque[LoggedRequest] = field(init=False)
    _payloads: deque[tuple[LoggedRequest, int]] = field(factory=deque)
    """Requests that have their records, and the bytes of these."""
    _kept: int = 0
    """The sum of those bytes."""
    _controls: list[_Controlled] = field(factory=list)

    def note(self, node_id: int, api: Api, version: int, request: Any) -> None:
        """Keep a request."""
        entry = LoggedRequest(loop_time(), node_id, api, version, request)
        self.requests.append(entry)
        if isinstance(request, ProduceRequest):
            self._weigh(entry, request)

    def _weigh(self, entry: LoggedRequest, request: ProduceRequest) -> None:
        size = sum(len(part.records or b"") for topic in request.topic_data for part in topic.partition_data)
        self._payloads.append((entry, size))
        self._kept += size
        while self._kept > MOST_PAYLOAD or len(self._payloads) > self.most:
            old, size = self._payloads.popleft()
            self._kept -= size
            old.request = _without_records(old.request)

    @requests.default
    def _empty(self) -> deque[LoggedRequest]:
        return deque(maxlen=self.most)

    def asked(self, *apis: Api, since: float = 0.0) -> list[LoggedRequest]:
        """Return the requests of ``apis`` (none: all but ApiVersions) that arrived at ``since`` or later."""
        return [
            entry
            for entry in self.requests
            if entry.time >= since and (entry.api in apis if apis else entry.api is not Api.API_VERSIONS)
        ]

    def control(self, api: Api, fn: Control, *, keep: bool = False, node: int | None = None) -> Callable[[], None]:
        """See ``FakeCluster.control``."""
        entry = _Controlled(api, fn, keep, node)
        self._controls.append(entry)
        return lambda: self._controls.remove(entry) if entry in self._controls else None

    def decide(self, broker: "FakeBroker", request: Request[Any]) -> Any:
        """Return the result of the first control function that has one; ``None``: the broker answers as usual."""
        for entry in list(self._controls):
            if entry.api is request.api and entry.node_id in (None, broker.node_id):
                if not entry.keep:
                    self._controls.remove(entry)
                outcome = entry.fn(broker, request)
                if outcome is not None:
                    return outcome
        return None


def _without_records(request: ProduceRequest) -> ProduceRequest:
    topics = (
        evolve(topic, partition_data=tuple(evolve(part, records=None) for part in topic.partition_data))
        for topic in request.topic_data
    )
    return evolve(request, topic_data=tuple(topics))
