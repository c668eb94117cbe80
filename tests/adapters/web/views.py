"""Groups as a poll may have found them, for tests of what shows them."""

from typing import Any

from kafka_async import TopicPartition
from kafka_async.adapters.monitor import (
    Age,
    BrokerView,
    ClusterOverview,
    GroupView,
    Heard,
    MemberView,
    PartitionView,
    Snapshot,
    Status,
)

OWNER = "worker@10.0.0.1"


def part(topic: str, number: int, **more: Any) -> PartitionView:
    values: dict[str, Any] = {
        "status": Status.OK,
        "note": "",
        "lag": 0,
        "committed": 10,
        "end": 10,
        "start": 0,
        "age": Age(0.0),
        "owner": OWNER,
        "unmoved": 3.0,
        "in_rate": 1.0,
        "out_rate": 1.0,
        "lost": 0,
        "retention_in": None,
        "taken_at": 100.0,
    }
    return PartitionView(partition=TopicPartition(topic, number), **{**values, **more})


def group(name: str, *parts: PartitionView, status: Status = Status.OK, **more: Any) -> GroupView:
    lags = [each.lag for each in parts if each.lag is not None]
    values: dict[str, Any] = {
        "kind": "consumer",
        "state": "Stable",
        "notes": (),
        "members": (MemberView(member_id="m", owner=OWNER, partitions=tuple(each.partition for each in parts)),),
        "lag": sum(lags) if lags else None,
        "complete": bool(parts) and len(lags) == len(parts),
        "rebalances": 0,
        "rebalances_hour": 0,
        "taken_at": 100.0,
        "heard": Heard(100.0, 100.0),
        "now": 100.0,
        "history": (1, 5, 9),
    }
    return GroupView(name=name, status=status, partitions=parts, **{**values, **more})


def snapshot(*groups: GroupView, number: int = 2, **more: Any) -> Snapshot:
    brokers = tuple(
        BrokerView(node_id=node, address=f"b{node}:9092", rack=None, leads=node + 1, age_seconds=0.0) for node in range(3)
    )
    cluster = ClusterOverview(
        cluster_id="prod", controller=0, brokers=brokers, leaderless=(), under_replicated=(TopicPartition("jobs", 1),)
    )
    return Snapshot(
        number=number, groups=groups, cluster=more.pop("cluster", cluster), poll_seconds=0.1, oldest=15.0, errors=0, **more
    )
