"""``kafka_async.application.lifecycle.otlp``: what the bytes say to whoever knows OpenTelemetry's protocol."""

import sys
from itertools import pairwise
from math import nan
from typing import Any
from uuid import UUID

import anyio
import pytest
from attrs import define, field
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData

from kafka_async.application.lifecycle.otlp import OtlpSource, messages, missing
from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.background.cluster.metrics_source import MetricsSelection
from kafka_async.background.cluster.telemetry import LAST_PUSH_TIMEOUT
from kafka_async.errors import IllegalStateError, UnsupportedVersionError
from kafka_async.testing.simulation import HANG, WITH_TELEMETRY, FakeCluster, LoggedRequest
from kafka_async.testing.simulation.kafka_settings import group_settings
from kafka_async.trace import Fault, StateChanged, TraceEvent
from kafka_async.wire import Api
from kafka_async.wire.messages import GetTelemetrySubscriptionsResponse, PushTelemetryResponse

from ..support import consumer_on, read_values, settle, virtual

CLIENT = "consumer-metrics"
CREATIONS = "org.apache.kafka.consumer.connection.creation.total"
LATENCY = "org.apache.kafka.consumer.request.latency.avg"
NODE_TOTAL = "org.apache.kafka.consumer.node.request.total"
ALL = MetricsSelection(prefixes=("*",), delta=False)
DELTA = MetricsSelection(prefixes=("*",), delta=True)


@define(eq=False)
class World:
    """Somebody with numbers and a clock on the wall, in nanoseconds."""

    numbers: dict[str, dict[str, float]] = field(factory=lambda: {CLIENT: {"connection-creation-total": 2}})
    resource: dict[str, str | None] = field(factory=dict)
    wall: int = 1000
    source: OtlpSource = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.source = OtlpSource(measure=lambda now: self.numbers, resource=lambda: self.resource, wall_ns=lambda: self.wall)

    def encode(self, wanted: MetricsSelection = ALL) -> dict[str, Metric]:
        (resource,) = MetricsData.FromString(self.source.encode(wanted, 0.0)).resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def sum(self, wanted: MetricsSelection, name: str = CREATIONS) -> tuple[int, int, int]:
        """Return value, start and time of a sum."""
        (point,) = self.encode(wanted)[name].sum.data_points
        return point.as_int, point.start_time_unix_nano, point.time_unix_nano


def test_a_total_is_a_sum_and_everything_else_a_gauge() -> None:
    world = World({CLIENT: {"connection-creation-total": 2, "request-latency-avg": 1.5}})
    found = world.encode()
    assert found.keys() == {CREATIONS, LATENCY}
    assert found[CREATIONS].sum.is_monotonic
    assert found[CREATIONS].sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = found[LATENCY].gauge.data_points
    assert (point.as_double, point.time_unix_nano) == (1.5, 1000)


def test_brokers_and_partitions_are_labels() -> None:
    world = World({"consumer-node-metrics.b:9092 (id 3)": {"request-total": 1}})
    (point,) = world.encode()[NODE_TOTAL].sum.data_points
    assert [(label.key, label.value.string_value) for label in point.attributes] == [("node_id", "3")]


def test_the_resource_says_who_we_are_as_far_as_it_is_known() -> None:
    world = World(resource={"group_id": "g", "client_rack": "", "group_instance_id": None})
    (resource,) = MetricsData.FromString(world.source.encode(ALL, 0.0)).resource_metrics
    assert [(label.key, label.value.string_value) for label in resource.resource.attributes] == [("group_id", "g")]


@pytest.mark.parametrize(
    ("prefixes", "expected"),
    [
        (("*",), {CREATIONS, LATENCY}),
        (("",), {CREATIONS, LATENCY}),
        (("org.apache.kafka.consumer.request.", "x"), {LATENCY}),
        ((CREATIONS,), {CREATIONS}),
    ],
)
def test_what_is_wanted_is_said_by_prefixes(prefixes: tuple[str, ...], expected: set[str]) -> None:
    world = World({CLIENT: {"connection-creation-total": 2, "request-latency-avg": 1.5}})
    assert world.encode(MetricsSelection(prefixes=prefixes, delta=False)).keys() == expected


def test_nothing_to_say_is_no_bytes() -> None:
    world = World({CLIENT: {"request-latency-avg": nan}})
    assert world.source.encode(ALL, 0.0) == b""
    assert World().source.encode(MetricsSelection(prefixes=("other",), delta=True), 0.0) == b""


def test_brief_leaves_out_brokers_and_partitions() -> None:
    world = World({CLIENT: {"connection-creation-total": 2}, "consumer-node-metrics.b": {"request-total": 1}})
    assert world.encode(MetricsSelection(prefixes=("*",), delta=False, brief=True)).keys() == {CREATIONS}


def test_a_cumulative_sum_counts_from_the_start() -> None:
    world = World()
    for wall, value in ((2000, 5), (3000, 9)):
        world.wall, world.numbers[CLIENT]["connection-creation-total"] = wall, value
        assert world.sum(ALL) == (value, 1000, wall)
        world.source.delivered()


def test_a_delta_counts_from_what_was_delivered_last() -> None:
    world = World()
    world.wall = 2000
    assert world.sum(DELTA) == (2, 1000, 2000)
    world.source.delivered()
    world.wall, world.numbers[CLIENT]["connection-creation-total"] = 3000, 7
    assert world.sum(DELTA) == (5, 2000, 3000)
    world.wall, world.numbers[CLIENT]["connection-creation-total"] = 4000, 8
    assert world.sum(DELTA) == (6, 2000, 4000), "the last one was not delivered"
    world.source.delivered()
    world.wall = 5000
    assert world.sum(DELTA) == (0, 4000, 5000)


def test_a_delta_is_never_negative() -> None:
    world = World()
    world.sum(DELTA)
    world.source.delivered()
    world.numbers[CLIENT]["connection-creation-total"] = 1
    assert world.sum(DELTA)[0] == 1


def test_a_delta_that_was_left_out_covers_the_gap_later() -> None:
    world = World({CLIENT: {"connection-creation-total": 1}, "consumer-node-metrics.b": {"request-total": 10}})
    world.encode(DELTA)
    world.source.delivered()
    world.numbers["consumer-node-metrics.b"]["request-total"] = 15
    world.encode(MetricsSelection(prefixes=("*",), delta=True, brief=True))
    world.source.delivered()
    world.numbers["consumer-node-metrics.b"]["request-total"] = 17
    assert world.sum(DELTA, NODE_TOTAL)[0] == 7
    world.source.delivered()
    del world.numbers["consumer-node-metrics.b"]  # what is gone is forgotten
    world.encode(DELTA)
    world.source.delivered()
    world.numbers["consumer-node-metrics.b"] = {"request-total": 18}
    assert world.sum(DELTA, NODE_TOTAL)[0] == 18


def without_the_library(patch: pytest.MonkeyPatch) -> None:
    for name in ("", ".metrics_pb2"):
        patch.setitem(sys.modules, f"opentelemetry.proto.metrics.v1{name}", None)


def test_a_library_that_is_missing_is_an_answer_and_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in messages, missing:
        each.cache_clear()
        with monkeypatch.context() as patch:
            without_the_library(patch)
            found = each()
        each.cache_clear()
        assert isinstance(found, ImportError)


# --- on a cluster ---------------------------------------------------------------------------------------------------------------

ME = UUID(int=7)


def interested(**fields: Any) -> FakeCluster:
    """Return a cluster that wants every metric every 10 s."""
    cluster = FakeCluster(max_versions=WITH_TELEMETRY)
    wanted = GetTelemetrySubscriptionsResponse(
        client_instance_id=ME,
        subscription_id=5,
        push_interval_ms=10_000,
        telemetry_max_bytes=1 << 20,
        delta_temporality=True,
        requested_metrics=("*",),
    )
    cluster.control(Api.GET_TELEMETRY_SUBSCRIPTIONS, cluster.answering(wanted), keep=True)
    cluster.control(Api.PUSH_TELEMETRY, cluster.answering(PushTelemetryResponse()), keep=True)
    (partition,) = cluster.create_topic("orders")
    cluster.fill(partition, 30)
    return cluster


def told(entry: LoggedRequest) -> dict[str, float]:
    """Return the metrics of a push that are no labels' matter."""
    (resource,) = MetricsData.FromString(entry.request.metrics).resource_metrics
    found = {}
    for metric in resource.scope_metrics[0].metrics:
        for point in (*metric.sum.data_points, *metric.gauge.data_points):
            if not point.attributes:
                found[metric.name] = point.as_int or point.as_double
    return found


@virtual
async def test_a_consumer_pushes_at_the_interval_and_says_good_bye() -> None:
    cluster = interested()
    consumer = consumer_on(cluster, "orders", client_rack="r1")
    async with consumer:
        assert await consumer.client_instance_id() == ME
        assert len(await read_values(consumer, 30)) == 30
        await anyio.sleep(36)
    pushes = cluster.asked(Api.PUSH_TELEMETRY)
    times = [entry.time for entry in pushes]
    assert 5 <= times[0] <= 16
    assert len(times) >= 4
    assert all(later - earlier == pytest.approx(10, abs=0.1) for earlier, later in pairwise(times[:-1]))
    assert [entry.request.terminating for entry in pushes] == [False] * (len(pushes) - 1) + [True]
    assert len(cluster.asked(Api.GET_TELEMETRY_SUBSCRIPTIONS)) == 1
    consumed = [told(entry)["org.apache.kafka.consumer.fetch.manager.records.consumed.total"] for entry in pushes]
    assert consumed == [30] + [0] * (len(pushes) - 1), "deltas"
    await settle(cluster)


@virtual
async def test_telemetry_wakes_an_idle_consumer_once_in_an_interval() -> None:
    quiet, talking = consumer_on(FakeCluster()), consumer_on(interested())
    async with quiet, talking:
        await anyio.sleep(20)
        before = [consumer.statistics().wake_ups for consumer in (quiet, talking)]
        await anyio.sleep(200)
        silent, loud = (consumer.statistics().wake_ups - b for consumer, b in zip((quiet, talking), before, strict=True))
    assert loud - silent <= 3 * 21  # to send it, and for what comes back


@virtual
async def test_share_consumers_push_under_the_names_of_javas() -> None:
    cluster = interested()
    cluster.groups.own.setdefault("workers", {}).update(group_settings({"share_auto_offset_reset": "earliest"}))
    consumer: ShareConsumer[Any, Any] = ShareConsumer(
        "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="workers", transport_factory=cluster.network
    )
    async with consumer:
        assert await consumer.client_instance_id() == ME
        with anyio.fail_after(60):
            for record in [await consumer.getone() for _ in range(30)]:
                record.accept()
        await consumer.flush()
        await anyio.sleep(36)
    pushes = cluster.asked(Api.PUSH_TELEMETRY)
    assert [entry.request.terminating for entry in pushes] == [False] * (len(pushes) - 1) + [True]
    fetching = "org.apache.kafka.consumer.share.fetch.manager"
    for name in ("records.consumed.total", "acknowledgements.send.total"):
        assert sum(told(entry)[f"{fetching}.{name}"] for entry in pushes) == 30, "deltas"
    last = told(pushes[-1])
    assert last["org.apache.kafka.consumer.share.coordinator.heartbeat.total"] >= 1
    assert {f"{fetching}.fetch.latency.avg", "org.apache.kafka.consumer.share.last.poll.seconds.ago"} <= last.keys()
    assert not [name for name in last if ".commit." in name]


@virtual
async def test_the_telemetry_of_a_share_consumer_can_be_turned_off() -> None:
    cluster = interested()
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "transport_factory": cluster.network}
    async with ShareConsumer("orders", group_id="workers", enable_metrics_push=False, **options) as consumer:
        with pytest.raises(IllegalStateError, match="enable_metrics_push"):
            await consumer.client_instance_id()
        await anyio.sleep(100)
    assert not cluster.asked(Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY)


@virtual
async def test_a_broker_that_is_silent_on_the_last_push_costs_a_second_and_no_more() -> None:
    cluster = interested()
    consumer = consumer_on(cluster, "orders")
    await consumer.start()
    await consumer.client_instance_id()
    cluster.control(Api.PUSH_TELEMETRY, lambda broker, request: HANG, keep=True)
    began = anyio.current_time()
    await consumer.stop()
    assert anyio.current_time() - began <= LAST_PUSH_TIMEOUT + 0.1
    await settle(cluster)


@pytest.mark.slow
@virtual
async def test_a_cluster_without_telemetry_is_never_asked() -> None:
    cluster = FakeCluster()
    cluster.create_topic("orders")
    async with consumer_on(cluster, "orders") as consumer:
        with pytest.raises(UnsupportedVersionError, match="KIP-714"):
            await consumer.client_instance_id()
        await anyio.sleep(500)
    assert not cluster.asked(Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY)


@virtual
async def test_telemetry_can_be_turned_off() -> None:
    cluster = interested()
    async with consumer_on(cluster, "orders", enable_metrics_push=False) as consumer:
        with pytest.raises(IllegalStateError, match="enable_metrics_push"):
            await consumer.client_instance_id()
        await anyio.sleep(100)
    assert not cluster.asked(Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY)


@virtual
async def test_without_the_library_telemetry_is_off_and_that_is_said() -> None:
    cluster = interested()
    seen: list[TraceEvent] = []
    with pytest.MonkeyPatch.context() as patch:
        without_the_library(patch)
        missing.cache_clear()
        async with consumer_on(cluster, "orders", trace=seen.append) as consumer:
            with pytest.raises(IllegalStateError, match="extra 'otel'"):
                await consumer.client_instance_id()
    missing.cache_clear()
    (said,) = [event for event in seen if isinstance(event, StateChanged) and event.subject == "telemetry"]
    assert "extra 'otel'" in said.reason
    assert not cluster.asked(Api.GET_TELEMETRY_SUBSCRIPTIONS)


@virtual
async def test_a_library_that_cannot_be_imported_ends_telemetry_once_metrics_are_wanted_and_nothing_else() -> None:
    """As protobuf refuses generated code of another age."""
    cluster = interested()
    seen: list[TraceEvent] = []
    assert missing() is None, "it is there"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "opentelemetry.proto.metrics.v1", None)
        messages.cache_clear()
        async with consumer_on(cluster, "orders", trace=seen.append) as consumer:
            assert len(await read_values(consumer, 30)) == 30
            await anyio.sleep(100)
            assert consumer.alive
    messages.cache_clear()
    (fault,) = [event for event in seen if isinstance(event, Fault)]
    assert "none can be sent" in fault.text
    assert "extra 'otel'" in str(fault.error)
    assert len(cluster.asked(Api.GET_TELEMETRY_SUBSCRIPTIONS)) == 1
    assert not cluster.asked(Api.PUSH_TELEMETRY)
