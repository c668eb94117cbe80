"""One snapshot of a share consumer."""

from collections.abc import Mapping

from ...model import ConsumerState, Node, TopicPartition
from ...values import frozen


@frozen(kw_only=True)
class ShareStatistics:
    """The state of a share consumer. Counts are since the start."""

    state: ConsumerState
    client_id: str
    cluster_id: str | None
    group_id: str
    member_id: str | None
    member_epoch: int | None
    coordinator: Node | None
    brokers: tuple[Node, ...]
    assignment: frozenset[TopicPartition]
    """Partitions that are read; others may read them as well."""
    problems: Mapping[TopicPartition, str]
    """Those of which nothing can be read, and why: access is denied, a broker refuses, or has failed for three seconds, or the
    partition has not existed, or has had no leader, for as long."""
    connections: int
    requests_in_flight: int
    wake_ups: int
    """Turns of the background loop."""
    unreachable_since: int | None
    """Since when no broker can be reached, in milliseconds since the epoch; ``None``: one can be."""
    last_answer_at: int | None
    """When a broker answered last, in milliseconds since the epoch; ``None`` before the first answer."""
    stale: bool
    """The values about the cluster may be out of date: no broker can be reached, or the consumer has ended."""
    unread: int
    """Records that are locked and wait to be handed out."""
    out: int
    """Records that were handed out and are not acknowledged with a result yet."""
    unanswered: int
    """Acknowledgements that no broker has answered yet."""
    delivered: int
    """Records handed out."""
    accepted: int
    released: int
    rejected: int
    refused: int
    """Acknowledgements that did not count, or may not have: the lock had ended, or its connection or broker was gone."""
    lost: int
    """Records whose lock ended before they were acknowledged, read or not."""
