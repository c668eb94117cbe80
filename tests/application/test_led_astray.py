"""Addresses that lead to another broker, or to another cluster, than they did: by a proxy's mistake, or on purpose.

Brokers of 4.4 refuse such a connection at once (KIP-1242). Older ones do not: there an answer about the cluster is looked at.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from attrs import define, field

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.testing.simulation import KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, KAFKA_4_4, FakeCluster
from kafka_async.testing.simulation.config_admin import BrokerSettings
from kafka_async.wire import Api

from .support import Consumer, read_values, virtual

PARTITIONS = [TopicPartition("t", index) for index in range(2)]
OLDER = pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4_3], ids=["3.9", "4.3"])
EVERY = pytest.mark.parametrize("release", [KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, KAFKA_4_4], ids=["2.8", "3.9", "4.3", "4.4"])


@define(eq=False)
class Routes:
    """A ``TransportFactory``: hosts lead to brokers of some cluster, and may lead elsewhere from now on."""

    ways: dict[str, tuple[FakeCluster, str]] = field(factory=dict)

    async def __call__(self, host: str, port: int, *, timeout: float, attempt: int) -> Any:
        cluster, target = self.ways[host]
        return await cluster.network(target, port, timeout=timeout, attempt=attempt)

    def swap(self, one: str, two: str) -> None:
        self.ways[one], self.ways[two] = self.ways[two], self.ways[one]


def two_clusters(release: Mapping[Api, int]) -> tuple[FakeCluster, FakeCluster, Routes]:
    """Two clusters of two brokers with a topic ``t`` each, and the ways to them: ``start``, ``b0`` and ``b1`` lead to the first."""
    right, wrong = (
        FakeCluster(size=2, max_versions=release, broker_settings=BrokerSettings(cluster_id=name)) for name in ("right", "wrong")
    )
    for node, broker in wrong.brokers.items():
        broker.listens(f"w{node}", 9092)
    for cluster in (right, wrong):
        for tp in cluster.create_topic("t", 2, replicas=1):
            cluster.log(tp).append([f"{cluster.broker_settings.cluster_id} {n}".encode() for n in range(20)])
    ways = {f"b{node}": (right, f"b{node}") for node in right.brokers} | {f"w{node}": (wrong, f"b{node}") for node in wrong.brokers}
    return right, wrong, Routes(ways | {"start": (right, "b1")})


def consumer_by(routes: Routes, **options: Any) -> Consumer:
    more = {"bootstrap_servers": "start:9092", "auto_offset_reset": "earliest", "metadata_max_age_ms": 2_000, **options}
    return KafkaConsumer("t", transport_factory=routes, **more)


def write(cluster: FakeCluster, count: int, start: int) -> None:
    for tp in PARTITIONS:
        cluster.log(tp).append([f"{cluster.broker_settings.cluster_id} {n}".encode() for n in range(start, start + count)])
    cluster.changed()


def cut_off(cluster: FakeCluster) -> None:
    for node in cluster.brokers:
        cluster.disconnect(node)


@pytest.mark.slow
@EVERY
@virtual
async def test_nothing_is_taken_from_another_cluster_to_which_a_known_broker_leads(
    release: Mapping[Api, int], caplog: pytest.LogCaptureFixture
) -> None:
    right, wrong, routes = two_clusters(release)
    async with consumer_by(routes) as consumer:
        values = await read_values(consumer, 40)
        routes.ways["b0"] = wrong, "b0"
        right.disconnect(0)
        write(right, 10, start=20)
        values += await read_values(consumer, 20, seconds=60)  # those of the other broker come, and nothing of the wrong cluster
        assert len(values) == 50
        assert consumer.statistics().cluster_id == "right"
        routes.ways["b0"] = right, "b0"
        values += await read_values(consumer, 60 - len(values))
        assert sorted(values) == sorted([f"right {n}".encode() for n in range(30)] * 2)
        assert await read_values(consumer, 1, seconds=5) == []
    named = [record.message for record in caplog.records if "of cluster 'right'" in record.message]
    assert len([line for line in named if line.endswith("asking the bootstrap servers again")]) == 1
    assert len(named) < 8  # of a minute in which each attempt ended in the same way
    assert all("b0:9092" in line for line in named)
    if release is not KAFKA_4_4:  # whose brokers refuse without a name
        assert all("cluster 'wrong' answers" in line for line in named)


@pytest.mark.slow
@EVERY
@virtual
async def test_a_member_whose_coordinator_leads_to_another_cluster_comes_back_with_its_offsets(release: Mapping[Api, int]) -> None:
    right, wrong, routes = two_clusters(release)
    async with consumer_by(routes, group_id="g", enable_auto_commit=False) as consumer:
        values = await read_values(consumer, 40)
        await consumer.commit()
        for host in ("b0", "b1"):
            routes.ways[host] = wrong, host
        cut_off(right)
        write(right, 10, start=20)
        assert await read_values(consumer, 1, seconds=20) == []
        routes.ways |= {"b0": (right, "b0"), "b1": (right, "b1")}
        values += await read_values(consumer, 20)
        await consumer.commit()
    assert sorted(values) == sorted([f"right {n}".encode() for n in range(30)] * 2)
    assert set(right.committed.values()) == {30}
    assert not wrong.committed


@OLDER
@virtual
async def test_two_brokers_whose_addresses_are_swapped_cost_time_and_no_record(release: Mapping[Api, int]) -> None:
    """Nothing says which broker it is; each says that it does not lead what it is asked for."""
    right, _, routes = two_clusters(release)
    async with consumer_by(routes) as consumer:
        values = await read_values(consumer, 40)
        routes.swap("b0", "b1")
        cut_off(right)
        write(right, 10, start=20)
        begun = len(right.asked())
        assert await read_values(consumer, 1, seconds=20) == []
        assert len(right.asked()) - begun < 20 * 20  # it asks with the backoff of a leader that moves
        routes.swap("b0", "b1")
        cut_off(right)
        values += await read_values(consumer, 20)
        assert await read_values(consumer, 1, seconds=5) == []
    assert sorted(values) == sorted([f"right {n}".encode() for n in range(30)] * 2)


@EVERY
@virtual
async def test_a_name_that_was_moved_to_another_cluster_on_purpose_is_followed(
    release: Mapping[Api, int], caplog: pytest.LogCaptureFixture
) -> None:
    """The servers of the configuration are the user's word; the old brokers are gone, or answer for the new cluster as well."""
    right, wrong, routes = two_clusters(release)
    async with consumer_by(routes) as consumer:
        await read_values(consumer, 40)
        wrong.recreate("t")  # a topic of another cluster has another id
        write(wrong, 30, start=0)
        for host in ("start", "b0", "b1"):
            routes.ways[host] = wrong, "b0"
        for node in right.brokers:
            right.stop(node)
        assert set(await read_values(consumer, 60)) == {f"wrong {n}".encode() for n in range(30)}
        assert consumer.statistics().cluster_id == "wrong"
    assert "the bootstrap servers lead to another cluster, 'wrong'; it was 'right' before" in caplog.text


@pytest.mark.parametrize("options", [{"metadata_cluster_check_enable": False}, {"metadata_recovery_strategy": "none"}])
@virtual
async def test_without_the_check_whatever_cluster_answers_is_followed(options: dict[str, Any]) -> None:
    right, wrong, routes = two_clusters(KAFKA_3_9)
    async with consumer_by(routes, **options) as consumer:
        await read_values(consumer, 40)
        asked = len(right.asked(Api.METADATA))
        for host in ("b0", "b1"):
            routes.ways[host] = wrong, "b0"
        cut_off(right)
        await read_values(consumer, 1, seconds=10)
        assert consumer.statistics().cluster_id == "wrong"
        assert len(right.asked(Api.METADATA)) == asked
