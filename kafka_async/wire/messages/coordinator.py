"""The coordinator of a group: FindCoordinator (KIP-699)."""

from ...values import frozen
from .base import Request, Response, Struct, int8, int16, int32


@frozen(kw_only=True)
class Coordinator(Struct):
    """The broker that coordinates one group."""

    key: str  # the group; before v4 the answer does not name it: the request's, if ``decode_response`` was given the request
    node_id: int32 = -1
    host: str = ""
    port: int32 = -1
    error_code: int16 = 0
    error_message: str | None = None


@frozen(kw_only=True)
class FindCoordinatorResponse(Response):
    """One coordinator per key. Before v4 there is exactly one."""

    throttle_time_ms: int32 = 0
    coordinators: tuple[Coordinator, ...] = ()


@frozen(kw_only=True)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Ask for the coordinators of groups (KIP-699). Before v4 only one key can be asked for."""

    key_type: int8 = 0  # 0: group, 1: transaction, 2: share group
    coordinator_keys: tuple[str, ...] = ()
