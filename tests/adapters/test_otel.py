"""``kafka_async.adapters.otel``: what OpenTelemetry's own SDK collects."""

import asyncio
import gc
import subprocess
import sys
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, InMemoryMetricReader, Sum

from kafka_async import ConsumerRecord, ShareConsumer
from kafka_async.adapters.otel import FRESH, ConsumerInstruments
from kafka_async.application.lifecycle.metrics import points
from kafka_async.application.processing.statistics import NOTHING
from kafka_async.errors import IllegalStateError
from kafka_async.testing import Cluster, virtual_loop
from kafka_async.testing.simulation import FakeCluster
from tests.application.support import consumer_on, read_values, virtual

FAMILY = "org.apache.kafka.consumer"
CONSUMED = f"{FAMILY}.fetch.manager.records.consumed.total"
Labels = frozenset[tuple[str, Any]]


class Program:
    """A program with a collector and a clock of its own."""

    def __init__(self, temporality: AggregationTemporality = AggregationTemporality.CUMULATIVE) -> None:
        self.reader = InMemoryMetricReader(preferred_temporality={ObservableCounter: temporality})
        self.now = 0.0
        meter = MeterProvider(metric_readers=[self.reader]).get_meter("program")
        self.instruments = ConsumerInstruments(meter, clock=lambda: self.now)

    def collect(self) -> dict[str, dict[Labels, float]]:
        """Return what there is by name and labels, after seeing that totals, and nothing else, are sums."""
        found: dict[str, dict[Labels, float]] = {}
        self.now += FRESH
        data = self.reader.get_metrics_data()
        for metric in data.resource_metrics[0].scope_metrics[0].metrics if data is not None and data.resource_metrics else ():
            assert isinstance(metric.data, Sum if metric.name.endswith(".total") else Gauge)
            for point in metric.data.data_points:
                found.setdefault(metric.name, {})[frozenset((point.attributes or {}).items())] = point.value
        return found


class Numbers:
    """A consumer, as far as it matters here."""

    def __init__(self) -> None:
        self.calls = 0

    def metrics(self) -> dict[str, dict[str, float]]:
        self.calls += 1
        return {"consumer-metrics": {"request-total": self.calls, "request-rate": 1.5, "connection-creation-total": 1}}


@virtual
async def test_the_numbers_of_a_consumer_are_collected_with_their_labels() -> None:
    cluster, program = FakeCluster(), Program()
    (partition,) = cluster.create_topic("orders")
    cluster.fill(partition, 30)
    async with consumer_on(cluster, "orders") as consumer:
        program.instruments.observe(consumer, client_id="billing-1")
        assert len(await read_values(consumer, 30)) == 30
        found = program.collect()
    me = ("client_id", "billing-1")
    assert found[CONSUMED][frozenset([me])] == 30
    assert found[CONSUMED].keys() == {frozenset([me])}, "what is summed must not be there for the partitions too"
    of_partition = f"{FAMILY}.fetch.manager.partition.records.consumed.total"
    assert found[of_partition][frozenset([me, ("topic", "orders"), ("partition", "0")])] == 30
    assert found[f"{FAMILY}.coordinator.assigned.partitions"] == {frozenset([me]): 1}
    assert frozenset([me, ("node_id", "0")]) in found[f"{FAMILY}.node.request.total"]


def test_every_number_of_a_share_consumer_is_collected() -> None:
    async def main() -> None:
        cluster, program = Cluster(), Program()
        cluster.topic("jobs")
        cluster.group("workers", share_auto_offset_reset="earliest")
        cluster.produce("jobs", value="a")
        async with ShareConsumer("jobs", group_id="workers", **cluster.options()) as consumer:
            program.instruments.observe(consumer, client_id="worker-1")
            (await consumer.getone()).accept()
            await consumer.flush()
            found = program.collect()
            expected = {point.name for point in points(consumer.metrics())}
        assert found.keys() == expected
        me = frozenset([("client_id", "worker-1")])
        assert found[f"{FAMILY}.share.fetch.manager.acknowledgements.send.total"] == {me: 1}
        assert found[f"{FAMILY}.share.fetch.manager.records.consumed.total"] == {me: 1}

    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        runner.run(main())


def test_a_collection_looks_at_a_consumer_once() -> None:
    program, one, two = Program(), Numbers(), Numbers()
    program.instruments.observe(one, client_id="one")
    program.instruments.observe(two, client_id="two")
    program.collect()
    assert program.collect()[f"{FAMILY}.request.total"] == {frozenset([("client_id", name)]): 2 for name in ("one", "two")}
    assert (one.calls, two.calls) == (2, 2)


def test_a_consumer_whose_numbers_cannot_be_had_hides_no_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Numbers):
        def __init__(self, error: Exception) -> None:
            super().__init__()
            self.error = error

        def metrics(self) -> dict[str, dict[str, float]]:
            super().metrics()
            raise self.error

    program = Program()
    forked, broken, whole = Broken(IllegalStateError("made in process 7")), Broken(ValueError("a bug")), Numbers()
    for name, consumer in (("forked", forked), ("broken", broken), ("whole", whole)):
        program.instruments.observe(consumer, client_id=name)

    for _ in range(2):
        assert set(program.collect()[f"{FAMILY}.request.total"]) == {frozenset([("client_id", "whole")])}
    assert (forked.calls, broken.calls) == (1, 2), "the parent process has the numbers of the one"
    assert [record.getMessage()[:41] for record in caplog.records] == ["the metrics of a consumer cannot be had: "] * 2


@pytest.mark.slow
def test_a_consumer_that_is_gone_is_not_observed() -> None:
    program, gone = Program(), Numbers()
    program.instruments.observe(gone)
    assert program.collect()
    del gone
    gc.collect()
    assert not program.collect()


class Given:
    """A consumer with these numbers in its metrics."""

    def __init__(self, **totals: float) -> None:
        self.totals = totals

    def metrics(self) -> dict[str, dict[str, float]]:
        return {
            f"consumer-fetch-manager-metrics.{topic}-0": {"records-consumed-total": total} for topic, total in self.totals.items()
        }


def totals(program: Program) -> list[float]:
    return [value for values in program.collect().values() for value in values.values()]


def test_what_a_total_has_grown_by_is_never_less_than_nothing() -> None:
    program, consumer = Program(AggregationTemporality.DELTA), Given(orders=100)
    program.instruments.observe(consumer)
    assert totals(program) == [100]
    consumer.totals = {}
    assert totals(program) == []
    consumer.totals = {"orders": 5}
    assert totals(program) == [5], "a partition that came back"
    consumer.totals = {"orders": 8}
    assert totals(program) == [3]


@pytest.mark.slow
def test_a_consumer_that_is_made_anew_under_the_same_labels_goes_on_with_the_totals() -> None:
    for temporality, expected in ((AggregationTemporality.DELTA, [7, 1, 2]), (AggregationTemporality.CUMULATIVE, [107, 108, 110])):
        program, former, next_one = Program(temporality), Given(orders=100), Given(orders=7)
        program.instruments.observe(former, client_id="billing-1", host="a")
        assert totals(program) == [100]
        program.instruments.observe(next_one, host="a", client_id="billing-1")
        found = totals(program)
        next_one.totals["orders"] = 8
        found += totals(program)
        del former
        gc.collect()
        next_one.totals["orders"] = 10
        assert found + totals(program) == expected


def test_a_consumer_that_is_observed_twice_counts_once() -> None:
    program, consumer = Program(), Given(orders=100)
    program.instruments.observe(consumer, client_id="billing-1")
    assert totals(program) == [100]
    program.instruments.observe(consumer, client_id="billing-1")
    assert totals(program) == [100]


@virtual
async def test_what_processing_shows_is_collected() -> None:
    cluster, program = FakeCluster(), Program()
    (partition,) = cluster.create_topic("orders")
    cluster.fill(partition, 30)
    handled: list[int] = []

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        handled.append(record.offset)
        if record.offset == 7:
            raise ValueError

    async with consumer_on(cluster, "orders") as consumer:
        program.instruments.observe(consumer)
        async with consumer.processing(handle, on_failure="skip"):
            while len(handled) < 30:  # noqa: ASYNC110 - time is virtual
                await anyio.sleep(0.05)
            found = program.collect()
            assert found.keys() == {point.name for point in points(consumer.metrics())}, "each has an instrument"
    processing = {name.removeprefix(f"{FAMILY}.processing."): values for name, values in found.items() if ".processing." in name}
    assert len(processing) == len(NOTHING.metrics())
    assert processing["attempt.total"][frozenset()] == 30
    assert processing["skipped.total"][frozenset()] == 1


@pytest.mark.brokers
def test_a_process_that_is_forked_while_a_collector_is_at_work_can_collect() -> None:
    program = """
import os, signal, threading
from opentelemetry.metrics import CallbackOptions
from kafka_async.adapters.otel import ConsumerInstruments

class Meter:
    callbacks = []

    def create_observable_gauge(self, name, callbacks, description):
        self.callbacks += callbacks

    create_observable_counter = create_observable_gauge

class Consumer:
    def __init__(self, work):
        self.metrics = lambda: work() or {}

begun, gate = threading.Event(), threading.Event()
slow, other = Consumer(lambda: (begun.set(), gate.wait()) and None), Consumer(lambda: None)
instruments = ConsumerInstruments(Meter())
instruments.observe(slow)
collector = threading.Thread(target=lambda: list(Meter.callbacks[0](CallbackOptions())))
collector.start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    slow.metrics = lambda: {}
    list(Meter.callbacks[0](CallbackOptions()))
    os._exit(0)
gate.set()
collector.join()
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=False, timeout=60)  # noqa: S603 - our own program
    assert done.returncode == 0
