"""The few messages whose older versions are built differently, not only shorter: how the newest shape is folded and unfolded.

Three APIs were batched later: what used to be the message became an item of a list in it. FindCoordinator before v4 (KIP-699) and
OffsetFetch before v8 (KIP-709) carry one key or group, LeaveGroup before v3 (KIP-345) one member. DeleteTopics, which
consumers never send, is in ``admin_shapes``. ``versions.py`` has refused by
then whatever does not fit. An old answer does not name what it is about, which is why unfolding takes the request.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..values import frozen
from .messages import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
    Request,
)
from .messages.base import Struct, int8, int16, int32, since


@frozen(kw_only=True)
class OldShape:
    """How a message looks up to a version."""

    until: int
    cls: type[Struct]
    fold: Callable[[Any], Struct]
    """Newest shape -> old shape."""
    unfold: Callable[[Any, Request[Any] | None], Struct]
    """Old shape -> newest shape; takes the request that was answered, if it is known."""


@frozen(kw_only=True)
class _FindCoordinatorRequest(Struct):
    key: str
    key_type: int8 = 0


@frozen(kw_only=True)
class _FindCoordinatorResponse(Struct):
    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: str | None = None
    node_id: int32
    host: str
    port: int32


@frozen(kw_only=True)
class _OffsetFetchRequest(Struct):
    group_id: str
    topics: tuple[OffsetFetchRequestTopics, ...] | None
    require_stable: bool = since(7, default=False)


@frozen(kw_only=True)
class _OffsetFetchResponse(Struct):
    throttle_time_ms: int32 = since(3, default=0)
    topics: tuple[OffsetFetchResponseTopics, ...]
    error_code: int16 = 0


@frozen(kw_only=True)
class _LeaveGroupRequest(Struct):
    group_id: str
    member_id: str


def _fold_find_coordinator_request(new: FindCoordinatorRequest) -> Struct:
    (key,) = new.coordinator_keys
    return _FindCoordinatorRequest(key=key, key_type=new.key_type)


def _unfold_find_coordinator_request(old: _FindCoordinatorRequest, _: Request[Any] | None) -> Struct:
    return FindCoordinatorRequest(coordinator_keys=(old.key,), key_type=old.key_type)


def _fold_find_coordinator_response(new: FindCoordinatorResponse) -> Struct:
    (only,) = new.coordinators
    return _FindCoordinatorResponse(
        throttle_time_ms=new.throttle_time_ms,
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _unfold_find_coordinator_response(old: _FindCoordinatorResponse, request: Request[Any] | None) -> Struct:
    only = Coordinator(
        key=request.coordinator_keys[0] if isinstance(request, FindCoordinatorRequest) else "",
        node_id=old.node_id,
        host=old.host,
        port=old.port,
        error_code=old.error_code,
        error_message=old.error_message,
    )
    return FindCoordinatorResponse(throttle_time_ms=old.throttle_time_ms, coordinators=(only,))


def _fold_offset_fetch_request(new: OffsetFetchRequest) -> Struct:
    (only,) = new.groups
    return _OffsetFetchRequest(group_id=only.group_id, topics=only.topics, require_stable=new.require_stable)


def _unfold_offset_fetch_request(old: _OffsetFetchRequest, _: Request[Any] | None) -> Struct:
    only = OffsetFetchRequestGroup(group_id=old.group_id, topics=old.topics)
    return OffsetFetchRequest(groups=(only,), require_stable=old.require_stable)


def _fold_offset_fetch_response(new: OffsetFetchResponse) -> Struct:
    (only,) = new.groups
    return _OffsetFetchResponse(throttle_time_ms=new.throttle_time_ms, topics=only.topics, error_code=only.error_code)


def _unfold_offset_fetch_response(old: _OffsetFetchResponse, request: Request[Any] | None) -> Struct:
    group_id = request.groups[0].group_id if isinstance(request, OffsetFetchRequest) else ""
    only = OffsetFetchResponseGroup(group_id=group_id, topics=old.topics, error_code=old.error_code)
    return OffsetFetchResponse(throttle_time_ms=old.throttle_time_ms, groups=(only,))


def _fold_leave_group_request(new: LeaveGroupRequest) -> Struct:
    (only,) = new.members
    return _LeaveGroupRequest(group_id=new.group_id, member_id=only.member_id)


def _unfold_leave_group_request(old: _LeaveGroupRequest, _: Request[Any] | None) -> Struct:
    return LeaveGroupRequest(group_id=old.group_id, members=(MemberIdentity(member_id=old.member_id),))


OLD_SHAPES: Mapping[type[Struct], OldShape] = {
    FindCoordinatorRequest: OldShape(
        until=3, cls=_FindCoordinatorRequest, fold=_fold_find_coordinator_request, unfold=_unfold_find_coordinator_request
    ),
    FindCoordinatorResponse: OldShape(
        until=3, cls=_FindCoordinatorResponse, fold=_fold_find_coordinator_response, unfold=_unfold_find_coordinator_response
    ),
    OffsetFetchRequest: OldShape(
        until=7, cls=_OffsetFetchRequest, fold=_fold_offset_fetch_request, unfold=_unfold_offset_fetch_request
    ),
    OffsetFetchResponse: OldShape(
        until=7, cls=_OffsetFetchResponse, fold=_fold_offset_fetch_response, unfold=_unfold_offset_fetch_response
    ),
    LeaveGroupRequest: OldShape(
        until=2, cls=_LeaveGroupRequest, fold=_fold_leave_group_request, unfold=_unfold_leave_group_request
    ),
}
