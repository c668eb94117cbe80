"""One snapshot of a share consumer."""

from ...model import ConsumerState, Node, TopicPartition
from ...values import frozen


@frozen(kw_only=True)
class ShareStatistics:
    """The state of a share consumer. Counts are since the start."""

    state: ConsumerState
    client_id: str
    group_id: str
    member_id: str | None
    member_epoch: int | None
    coordinator: Node | None
    brokers: tuple[Node, ...]
    assignment: frozenset[TopicPartition]
    """Partitions that are read; others may read them as well."""
    connections: int
    requests_in_flight: int
    wake_ups: int
    """Turns of the background loop."""
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
