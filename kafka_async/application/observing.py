"""Puts metrics and statistics together: what the application's side knows and what the background told.

Decides: nothing. Owns nothing. Must never change anything it looks at.
"""

from ..background.fetch_buffer import Watermarks
from ..config import ConsumerConfig
from ..events import BackgroundSnapshot
from ..model import ConsumerState, GroupMetadata, IsolationLevel, Node, PartitionStatistics, Statistics
from .metrics import Metrics
from .unread import PartitionUnread, Unread


def lag(config: ConsumerConfig, entry: PartitionUnread, marks: Watermarks | None) -> int | None:
    """Return how many offsets lie between the position and the end that readers see; ``None`` where not known."""
    if marks is None or entry.position is None:
        return None
    committed_only = config.isolation_level is IsolationLevel.READ_COMMITTED
    end = marks.last_stable_offset if committed_only else marks.high_watermark
    return max(0, end - entry.position)


def measured(config: ConsumerConfig, metrics: Metrics, unread: Unread, now: float) -> dict[str, dict[str, float]]:
    """Return the metrics by group and name. From any thread."""
    # One copy, in one step: another thread may be in a read call that changes the assignment.
    entries = unread.partitions.copy()
    return metrics.snapshot(
        now,
        lags={partition: lag(config, entry, unread.buffer.watermarks.get(partition)) for partition, entry in entries.items()},
        consumed={partition: entry.consumed_records for partition, entry in entries.items()},
        records_consumed=unread.consumed_records,
        bytes_consumed=unread.buffer.total.released,
    )


def statistics(
    config: ConsumerConfig,
    state: ConsumerState,
    unread: Unread,
    below: BackgroundSnapshot,
    group: GroupMetadata,
    coordinator: Node | None,
) -> Statistics:
    """Return one frozen snapshot."""
    buffer = unread.buffer
    partitions = {}
    for partition, entry in unread.partitions.items():
        marks = buffer.watermarks.get(partition)
        seen = below.partitions.get(partition)
        partitions[partition] = PartitionStatistics(
            position=entry.position,
            high_watermark=marks.high_watermark if marks is not None else None,
            last_stable_offset=marks.last_stable_offset if marks is not None else None,
            log_start_offset=marks.log_start_offset if marks is not None else None,
            lag=lag(config, entry, marks),
            buffered_bytes=buffer.unread(partition),
            paused=entry.paused,
            state=seen.state if seen is not None else "assigned",
            leader=seen.leader if seen is not None else None,
            preferred_read_replica=seen.read_replica if seen is not None else None,
        )
    return Statistics(
        state=state,
        client_id=config.client_id,
        cluster_id=below.cluster_id,
        group_id=config.group_id,
        member_id=group.member_id or None,
        generation=group.generation_id if group.generation_id >= 0 else None,
        coordinator=coordinator,
        brokers=below.brokers,
        connections=below.connections,
        requests_in_flight=below.requests_in_flight,
        buffered_bytes=buffer.total.unread,
        buffer_limit=buffer.limit,
        records_consumed=unread.consumed_records,
        bytes_consumed=buffer.total.released,
        wake_ups=below.wake_ups,
        partitions=partitions,
    )
