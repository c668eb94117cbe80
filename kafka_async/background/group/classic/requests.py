"""The requests of a member in the classic protocol, ready to be sent.

Sources: KIP-62, 345, 389, 394, 559, 800; Java's ``AbstractCoordinator``.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from ....config import ConsumerConfig
from ....model import Node, TopicPartition
from ....network import Channel, UnsentRequest
from ....wire import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from ....wire.messages import JoinGroupRequestProtocol, MemberIdentity, SyncGroupRequestAssignment
from ..membership import Identity
from .assignment import Assignor
from .leader import write_subscription

PROTOCOL_TYPE: Final = "consumer"

JOIN_GRACE_MS: Final = 5_000
"""Time that a JoinGroup may take beyond the rebalance timeout, when the coordinator answers the members that have joined."""

MAX_REASON: Final = 255
"""Characters of a reason that brokers accept (KIP-800)."""

OnDone = Callable[[Any, float], None]


def offers(
    assignors: Sequence[Assignor], topics: frozenset[str], owned: frozenset[TopicPartition], generation: int, rack: str
) -> tuple[JoinGroupRequestProtocol, ...]:
    """Return the JoinGroup's entry for each assignor. Raises what a user's assignor raises."""
    return tuple(
        JoinGroupRequestProtocol(
            name=assignor.name,
            metadata=write_subscription(topics, assignor.user_data(topics), owned, generation, rack),
        )
        for assignor in assignors
    )


def join(
    config: ConsumerConfig,
    who: Identity,
    protocols: tuple[JoinGroupRequestProtocol, ...],
    reason: str,
    node: Node,
    now: float,
    *,
    on_done: OnDone,
    withdrawn: Callable[[], bool],
) -> UnsentRequest:
    """The coordinator answers when all members have joined, at the latest after the longest of their rebalance timeouts."""
    message = JoinGroupRequest(
        group_id=config.group_id or "",
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=reason[:MAX_REASON],
    )
    timeout_ms = max(config.request_timeout_ms, config.max_poll_interval_ms + JOIN_GRACE_MS)
    return UnsentRequest(
        message=message,
        on_done=on_done,
        expires_at=now + timeout_ms / 1000,
        node_id=node.id,
        channel=Channel.GROUP,
        withdrawn=withdrawn,
        max_wait=config.max_poll_interval_ms / 1000,
    )


def sync(
    config: ConsumerConfig,
    who: Identity,
    assignor: str,
    assignments: tuple[SyncGroupRequestAssignment, ...],
    node: Node,
    now: float,
    *,
    on_done: OnDone,
    withdrawn: Callable[[], bool],
) -> UnsentRequest:
    """The coordinator answers when the leader has sent the assignments; never, if the member has left meanwhile (Kafka 4.3)."""
    message = SyncGroupRequest(
        group_id=config.group_id or "",
        generation_id=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=assignor,
        assignments=assignments,
    )
    timeout = config.request_timeout_ms / 1000
    return UnsentRequest(
        message=message,
        on_done=on_done,
        expires_at=now + timeout,
        node_id=node.id,
        channel=Channel.GROUP,
        withdrawn=withdrawn,
        max_wait=timeout,
        abandonable=True,
    )


def heartbeat(
    config: ConsumerConfig,
    who: Identity,
    node: Node,
    now: float,
    *,
    channel: Channel,
    on_done: OnDone,
    withdrawn: Callable[[], bool],
) -> UnsentRequest:
    """Expires after half a session at the latest: a connection that died in silence leaves time for another one.

    ``channel`` is not ``GROUP`` while a JoinGroup waits there: the coordinator reads nothing else from that connection. On any
    other channel the heartbeat may wait for a fetch, and has the time of any request.
    """
    message = HeartbeatRequest(
        group_id=config.group_id or "", generation_id=who.generation, member_id=who.member_id, group_instance_id=who.instance_id
    )
    timeout_ms = config.request_timeout_ms
    if channel is Channel.GROUP:
        timeout_ms = min(timeout_ms, config.session_timeout_ms // 2)
    return UnsentRequest(
        message=message, on_done=on_done, expires_at=now + timeout_ms / 1000, node_id=node.id, channel=channel, withdrawn=withdrawn
    )


def describe(config: ConsumerConfig, node: Node, now: float, *, on_done: OnDone, withdrawn: Callable[[], bool]) -> UnsentRequest:
    """Ask what each member of the group has been given."""
    from ....wire.messages.admin import DescribeGroupsRequest  # few members ever ask this

    message = DescribeGroupsRequest(groups=(config.group_id or "",))
    expires_at = now + config.request_timeout_ms / 1000
    return UnsentRequest(message=message, on_done=on_done, expires_at=expires_at, node_id=node.id, withdrawn=withdrawn)


def must_leave(who: Identity) -> bool:
    """Whether there is a member to take out of the group: a static member stays until its session ends (KIP-345)."""
    return bool(who.member_id) and who.instance_id is None


def leave(
    config: ConsumerConfig, who: Identity, reason: str, node: Node, now: float, *, channel: Channel, on_done: OnDone
) -> UnsentRequest:
    """``channel`` is not ``GROUP`` while a JoinGroup waits there: the coordinator reads nothing else from that connection."""
    member = MemberIdentity(member_id=who.member_id, group_instance_id=who.instance_id, reason=reason[:MAX_REASON])
    return UnsentRequest(
        message=LeaveGroupRequest(group_id=config.group_id or "", members=(member,)),
        on_done=on_done,
        expires_at=now + config.request_timeout_ms / 1000,
        node_id=node.id,
        channel=channel,
        final=True,
    )
