"""The numbers of a monitor for Prometheus. What is not known has no series."""

from collections.abc import Iterable, Iterator

from ..monitor import GroupView, Snapshot, Status
from .prometheus import Series, family


def exposition(snapshot: Snapshot | None, age: float, *, partitions: bool = False) -> str:
    """Return all numbers. ``snapshot``: what is known by now. ``age``: seconds since the last poll.

    ``partitions``: those of each partition, too, which may be many.
    """
    lines: list[str] = []
    if snapshot is None:
        return ""
    groups = snapshot.groups
    lines += _family(
        "group_lag", "Records that are not done, as far as that is known.", ((_of(group), _lag(group)) for group in groups)
    )
    lines += _family(
        "group_lag_complete",
        "1 if the lag is that of all partitions, 0 if it is not known of some.",
        ((_of(group), float(group.complete)) for group in groups),
    )
    lines += _family(
        "group_lag_seconds",
        "Age of the first record that is not done, or what it is at least.",
        ((_of(group), group.age.seconds if group.age is not None else None) for group in groups),
    )
    lines += _family(
        "group_members",
        "Members.",
        ((_of(group), len(group.members) if group.members is not None else None) for group in groups),
    )
    lines += _family(
        "group_status",
        "1 for the status that the group has.",
        (((*_of(group), ("status", status.value)), float(group.status is status)) for group in groups for status in Status),
    )
    lines += _family(
        "group_rebalances_total", "Rebalances that were seen.", ((_of(group), group.rebalances) for group in groups), "counter"
    )
    lines += _family(
        "group_poll_age_seconds",
        "How old the numbers of the group are.",
        ((_of(group), group.age_seconds) for group in groups),
    )
    if partitions:
        each = ((group, part) for group in groups for part in group.partitions)
        lines += _family(
            "partition_lag",
            "Records of a partition that are not done.",
            (
                ((*_of(group), ("topic", part.partition.topic), ("partition", str(part.partition.partition))), part.lag)
                for group, part in each
            ),
        )
    cluster = snapshot.cluster
    of_cluster = (
        ("brokers", "Brokers that are there.", cluster.brokers),
        ("offline_partitions", "Partitions without a leader.", cluster.leaderless),
        ("under_replicated_partitions", "Partitions with replicas that lag behind.", cluster.under_replicated),
    )
    for name, about, found in of_cluster:
        lines += _family(f"cluster_{name}", about, [((), len(found) if cluster.told else None)])
    lines += _family("monitor_poll_seconds", "How long the last poll took.", [((), snapshot.poll_seconds)])
    lines += _family("monitor_poll_age_seconds", "Seconds since the last poll, whether brokers have answered or not.", [((), age)])
    lines += _family(
        "monitor_poll_errors_total", "Questions that were refused or not answered.", [((), snapshot.errors)], "counter"
    )
    return "".join(f"{line}\n" for line in lines)


def _lag(group: GroupView) -> int | None:
    """Return the lag. Nothing in those partitions that are known is not a lag of nothing: an alert would end."""
    return group.lag if group.lag or group.complete else None


def _of(group: GroupView) -> tuple[tuple[str, str], ...]:
    return (("group", group.name),)


def _family(name: str, about: str, series: Iterable[Series], kind: str = "gauge") -> Iterator[str]:
    return family(f"kafka_async_{name}", about, series, kind)
