"""The requests that arrived, and the control functions with which tests step in before a broker answers.

Decides: which control function sees a request. Owns: the log of requests and the control functions. Must never answer on its own.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field, frozen

from ...wire import Api, Request
from .waking import clock

if TYPE_CHECKING:
    from .broker import FakeBroker

Control: TypeAlias = "Callable[[FakeBroker, Any], Any]"
"""Sees ``(broker, request)``. Returns ``None`` to let it pass, a response, an error code, ``HANG`` or an exception (``Drop``)."""


@define(eq=False)
class _Controlled:
    api: Api
    fn: Control
    keep: bool
    node_id: int | None


@frozen
class LoggedRequest:
    """One request as it arrived."""

    time: float
    node_id: int
    api: Api
    version: int
    request: Any


@define(eq=False)
class SimulatedTraffic:
    """The requests of a cluster."""

    requests: list[LoggedRequest] = field(factory=list)
    _controls: list[_Controlled] = field(factory=list)

    def note(self, node_id: int, api: Api, version: int, request: Any) -> None:
        """Keep a request."""
        self.requests.append(LoggedRequest(clock(), node_id, api, version, request))

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
