"""The alerts that come with the package, on scrapes of consumers through OpenTelemetry's exporter for Prometheus: a healthy one
fires none of them, and each state that they are for fires its own.

The exporter registers what it collects for the whole process: one test at a time has it.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.prometheus")

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY, generate_latest

import kafka_async
from kafka_async import Breaker, KafkaConsumer, ShareConsumer
from kafka_async.adapters.otel import ConsumerInstruments
from kafka_async.application.lifecycle.descriptions import descriptions
from kafka_async.errors import CoordinatorLoadInProgressError, KafkaError, KafkaStorageError
from kafka_async.testing import HANG, Api, Cluster
from tests.prometheus import EVERY, Rule, Scrapes, firing_in_promtool
from tests.virtual import run_virtual_asyncio

ALERTS = Path(kafka_async.__file__).parent / "application" / "alerts.yaml"
RULES = Rule.all_of(ALERTS)
CLIENT = "billing-1"
PROMTOOL = shutil.which("promtool")


class Program:
    """A program that is scraped, with a cluster."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.topic("orders", 2)
        self.scrapes = Scrapes()
        self.exported: set[str] = set()
        self._reader = PrometheusMetricReader()
        self._provider = MeterProvider(metric_readers=[self._reader])
        self._instruments = ConsumerInstruments(self._provider.get_meter("program"), clock=asyncio.get_running_loop().time)

    def close(self) -> None:
        self._provider.shutdown()

    @asynccontextmanager
    async def consumer(self, **options: Any) -> AsyncIterator[KafkaConsumer[Any, Any]]:
        mine: dict[str, Any] = {"group_id": "billing", "auto_offset_reset": "earliest", "client_id": CLIENT, **options}
        async with KafkaConsumer[Any, Any]("orders", **self.cluster.options(), **mine) as consumer:
            self._instruments.observe(consumer, client_id=CLIENT)
            yield consumer

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[ShareConsumer[Any, Any]]:
        self.cluster.group("workers", share_auto_offset_reset="earliest")
        mine: dict[str, Any] = {"group_id": "workers", "client_id": CLIENT, **options}
        async with ShareConsumer[Any, Any]("orders", **self.cluster.options(), **mine) as consumer:
            self._instruments.observe(consumer, client_id=CLIENT)
            yield consumer

    async def watch(self, minutes: float, each: Callable[[int], None] = lambda _: None) -> None:
        """Scrape for some minutes; ``each`` is called before each scrape."""
        for number in range(round(minutes * 60 / EVERY)):
            each(number)
            await asyncio.sleep(EVERY)
            text = generate_latest(REGISTRY).decode()
            self.exported = {line for line in text.splitlines() if line.startswith("#")}
            self.scrapes.add(text)

    def produce(self, count: int = 1) -> None:
        self.cluster.produce_many("orders", [b"1"] * count)


@cache
def scraped(scenario: Callable[[Program], Awaitable[None]]) -> Program:
    """Run a scenario in virtual time; return the program with what was scraped."""

    async def main() -> Program:
        program = Program()
        try:
            await scenario(program)
        finally:
            program.close()
        return program

    return run_virtual_asyncio(main)


async def succeed(_: Any) -> None:
    """Handle a record."""


async def fail(_: Any) -> None:
    """Fail to."""
    raise ValueError("not an order")


async def give_up(_: Any, __: BaseException, ___: int) -> None:
    """Take a dead letter."""


async def read(consumer: KafkaConsumer[Any, Any]) -> None:
    """Read until cancelled, whatever is raised."""
    while True:
        with suppress(KafkaError):
            await consumer.getmany(timeout_ms=1000)


@asynccontextmanager
async def reading(consumer: KafkaConsumer[Any, Any]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(read(consumer))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


# --- states --------------------------------------------------------------------------------------------------------------------


async def healthy(program: Program) -> None:
    async with program.consumer() as consumer, consumer.processing(succeed, on_failure=give_up):
        await program.watch(12, lambda _: program.produce(100))


async def healthy_share(program: Program) -> None:
    async with program.worker() as consumer, asyncio.TaskGroup() as tasks:
        work = tasks.create_task(consumer.process(succeed))
        await program.watch(6, lambda _: program.produce(100))
        work.cancel()


async def idle(program: Program) -> None:
    """Waiting for records is no hanging."""
    async with program.consumer() as consumer:
        waiting = asyncio.ensure_future(anext(aiter(consumer)))
        await program.watch(6)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def idle_share(program: Program) -> None:
    async with program.worker() as consumer:
        waiting = asyncio.ensure_future(consumer.getone())
        await program.watch(6)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def stopped(program: Program) -> None:
    program.produce()
    async with program.consumer() as consumer:
        await consumer.getone()
        await program.watch(0.5)
    await program.watch(6)
    assert not consumer.alive, "it is still there"


async def stopped_share(program: Program) -> None:
    async with program.worker() as consumer:
        await consumer.getmany(timeout_ms=100)
        await program.watch(0.5)
    await program.watch(6)
    assert not consumer.alive, "it is still there"


async def not_a_member_any_more(program: Program) -> None:
    program.produce()
    async with program.consumer() as consumer:
        await consumer.getone()
        await program.watch(0.5)
        partitions = consumer.assignment()
        consumer.unsubscribe()
        consumer.assign(partitions)
        async with reading(consumer):
            await program.watch(6, lambda _: program.produce())


async def waiting_for_another_member_to_join(program: Program) -> None:
    async with program.consumer(group_protocol="classic") as consumer, reading(consumer):
        await program.watch(1, lambda _: program.produce())
        end = program.cluster.control(Api.JOIN_GROUP, lambda broker, request: HANG)
        program.cluster.rebalance("billing")
        await program.watch(3)
        end()


async def behind(program: Program) -> None:
    async def slow(_: Any) -> None:
        await asyncio.sleep(1)

    program.produce(60_000)
    async with program.consumer() as consumer, consumer.processing(slow, concurrency=1):
        await program.watch(6)


async def corrupt(program: Program) -> None:
    program.produce()
    for partition in range(2):
        if program.cluster.end(("orders", partition)):
            program.cluster.corrupt(("orders", partition), 0)
    async with program.consumer() as consumer, reading(consumer):
        await program.watch(2)


async def hanging(program: Program) -> None:
    program.produce()
    async with program.consumer() as consumer:
        await consumer.getone()
        await program.watch(4.5)


async def without_coordinator(program: Program) -> None:
    async with program.consumer() as consumer, reading(consumer):
        await program.watch(1)
        end = program.cluster.control(Api.CONSUMER_GROUP_HEARTBEAT, lambda broker, request: HANG, keep=True)
        await program.watch(0.75)
        end()


async def commits_refused(program: Program) -> None:
    async with program.consumer() as consumer, consumer.processing(succeed):
        await program.watch(1, lambda _: program.produce())
        with program.cluster.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, None):
            await program.watch(7, lambda _: program.produce())


async def rebalancing(program: Program) -> None:
    async with program.consumer() as consumer, reading(consumer):

        def come_and_go(number: int) -> None:
            program.cluster.rebalance("billing")

        program.cluster.join("billing", "orders")
        await program.watch(1)
        await program.watch(6, come_and_go)


async def no_progress(program: Program) -> None:
    async with program.consumer() as consumer, reading(consumer):
        await program.watch(1, lambda _: program.produce())
        consumer.pause(*consumer.assignment())
        await program.watch(11, lambda _: program.produce())


async def stalled(program: Program) -> None:
    async def hang(_: Any) -> None:
        await asyncio.sleep(3600)

    async with program.consumer() as consumer, consumer.processing(hang, stalled_after_ms=60_000, drain_timeout_ms=100):
        program.produce()
        await program.watch(3)


async def dead_letters(program: Program) -> None:
    async with program.consumer() as consumer, consumer.processing(fail, on_failure=give_up):
        await program.watch(1)
        program.produce()
        await program.watch(1)


async def breaker_open(program: Program) -> None:
    async def down(_: Any) -> None:
        raise ConnectionError("the database is down")

    async with program.consumer() as consumer, consumer.processing(down, breaker=Breaker(on=(ConnectionError,))):
        await program.watch(1)
        program.produce(100)
        await program.watch(3)


async def share_failing(program: Program) -> None:
    async with program.worker() as consumer, asyncio.TaskGroup() as tasks:
        work = tasks.create_task(consumer.process(succeed))
        await program.watch(1)
        with program.cluster.failing(Api.SHARE_FETCH, KafkaStorageError, None):
            await program.watch(2)
        work.cancel()


async def share_hanging(program: Program) -> None:
    async with program.worker() as consumer:
        await consumer.getmany(timeout_ms=0)
        await program.watch(4.5)


async def share_without_coordinator(program: Program) -> None:
    async with program.worker() as consumer, asyncio.TaskGroup() as tasks:
        work = tasks.create_task(consumer.process(succeed))
        await program.watch(1)
        end = program.cluster.control(Api.SHARE_GROUP_HEARTBEAT, lambda broker, request: HANG, keep=True)
        await program.watch(0.75)
        end()
        work.cancel()


async def locks_lost(program: Program) -> None:
    async with program.worker(max_processing_ms=10_000) as consumer:
        await program.watch(0.5)
        program.produce()
        await consumer.getone()
        await program.watch(1)


async def acknowledgements_refused(program: Program) -> None:
    async with program.worker() as consumer:
        await program.watch(0.5)
        program.produce()
        job = await consumer.getone()
        program.cluster.delete("orders")
        job.accept()
        await program.watch(0.5)


STATES: dict[Callable[[Program], Awaitable[None]], set[str]] = {
    healthy: set(),
    healthy_share: set(),
    idle: set(),
    idle_share: set(),
    stopped: set(),
    stopped_share: set(),
    not_a_member_any_more: set(),
    waiting_for_another_member_to_join: set(),
    behind: {"KafkaConsumerLags"},
    corrupt: {"KafkaConsumerPartitionStopped"},
    hanging: {"KafkaConsumerHangs"},
    without_coordinator: {"KafkaConsumerWithoutCoordinator"},
    commits_refused: {"KafkaConsumerCommitsFail"},
    rebalancing: {"KafkaConsumerRebalancesTooOften"},
    no_progress: {"KafkaConsumerMakesNoProgress"},
    stalled: {"KafkaConsumerHandlerStalled"},
    dead_letters: {"KafkaConsumerWritesDeadLetters"},
    breaker_open: {"KafkaConsumerBreakerOpen"},
    share_failing: {"KafkaShareConsumerPartitionStopped"},
    share_hanging: {"KafkaShareConsumerHangs"},
    share_without_coordinator: {"KafkaShareConsumerWithoutCoordinator"},
    locks_lost: {"KafkaShareConsumerLosesLocks"},
    acknowledgements_refused: {"KafkaShareConsumerAcknowledgementsFail"},
}


def about(program: Program) -> list[Rule]:
    """Return the rules for the kind of consumer that a program has. The others' metrics are not there."""
    shared = any(name.startswith("org_apache_kafka_consumer_share_") for name in program.scrapes.series)
    return [rule for rule in RULES if ("_share_" in rule.expr) == shared]


def test_each_alert_has_a_state_that_fires_it() -> None:
    assert [rule.name for rule in RULES] == [name for names in STATES.values() for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_a_state_fires_its_own_alert_and_no_other(state: Callable[[Program], Awaitable[None]]) -> None:
    program = scraped(state)
    rules = about(program)
    # A consumer without process has no metrics of it; Prometheus returns nothing there.
    processed = any("_processing_" in name for name in program.scrapes.series)
    rules = [rule for rule in rules if processed or "_processing_" not in rule.expr]
    assert program.scrapes.firing(rules) == STATES[state]


@pytest.mark.brokers
@pytest.mark.skipif(PROMTOOL is None, reason="promtool, which comes with Prometheus, is not on the PATH")
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_prometheus_itself_fires_the_same(state: Callable[[Program], Awaitable[None]], tmp_path: Path) -> None:
    assert PROMTOOL is not None
    assert firing_in_promtool(PROMTOOL, ALERTS, scraped(state).scrapes, tmp_path) == STATES[state]


@pytest.mark.slow
def test_every_metric_has_a_help_line() -> None:
    lines = scraped(healthy).exported | scraped(healthy_share).exported
    for name, text in descriptions().items():
        shown = name.replace(".", "_")
        if f"# TYPE {shown} " in "\n".join(lines):
            assert f"# HELP {shown} {text}" in lines
    assert len([line for line in lines if line.startswith("# HELP org_")]) > 90
