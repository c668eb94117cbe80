"""The coordinator of a group: FindCoordinator.

Decides: nothing. Owns: the shape of these messages, each once, in its newest version; a comment names the versions that carry a
field where not all that we speak do. Must never do anything.
Sources: FindCoordinatorRequest.json, FindCoordinatorResponse.json; KIP-699.
"""

from typing import ClassVar

from ...values import frozen
from .base import Api, Request, Response, Struct


@frozen(kw_only=True)
class Coordinator(Struct):
    """The broker that coordinates one group."""

    key: str  # the group; before v4 the answer does not name it: the request's, if ``decode_response`` was given the request
    node_id: int = -1
    host: str = ""
    port: int = -1
    error_code: int = 0
    error_message: str | None = None


@frozen(kw_only=True)
class FindCoordinatorResponse(Response):
    """One coordinator per key. Before v4 there is exactly one."""

    throttle_time_ms: int = 0
    coordinators: tuple[Coordinator, ...] = ()


@frozen(kw_only=True)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Ask for the coordinators of groups (KIP-699). Before v4 only one key can be asked for."""

    api: ClassVar = Api.FIND_COORDINATOR
    response: ClassVar = FindCoordinatorResponse
    key_type: int = 0  # 0: group, 1: transaction, 2: share group
    coordinator_keys: tuple[str, ...] = ()
