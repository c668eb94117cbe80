"""The same faults on the simulated cluster and on a real broker behind a proxy, with equal results.

One at a time, on a broker of their own: they stop it and cut its connections.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from attrs import define

from kafka_async.testing import Cluster, RealCluster
from tests.brokers import CURRENT, KafkaCluster
from tests.faults.proxy import PROXIED, Proxy, proxied
from tests.virtual import run_virtual_asyncio

from .scenarios import Ownership, indexes, until, values

pytestmark = pytest.mark.brokers


@define(eq=False)
class Real:
    """A real broker behind a proxy: the words of ``Cluster`` for what a network and an operator do."""

    broker: KafkaCluster
    proxy: Proxy

    async def cut(self) -> None:
        self.proxy.cut()

    async def half_open(self) -> None:
        """Nothing passes on the connections that there are; new ones work once the old are given up."""
        self.proxy.everyone.black_hole()

    async def heal(self) -> None:
        self.proxy.cut()
        self.proxy.everyone.heal()

    async def stop(self) -> None:
        await asyncio.to_thread(self.broker.stop, 0)

    async def start(self) -> None:
        await asyncio.to_thread(self.broker.start, 0)


@define(eq=False)
class Simulated:
    """The same for the simulated cluster."""

    cluster: Cluster

    async def cut(self) -> None:
        self.cluster.cut()

    async def half_open(self) -> None:
        self.cluster.half_open()

    async def heal(self) -> None:
        """New connections work anyway."""

    async def stop(self) -> None:
        self.cluster.stop(0)

    async def start(self) -> None:
        self.cluster.start(0)


Faults = Real | Simulated
Scenario = Callable[[Ownership, Faults, str], Awaitable[Any]]
SCENARIOS: Final[dict[str, Scenario]] = {}
QUICK: Final[dict[str, Any]] = {"request_timeout_ms": 3000, "reconnect_backoff_max_ms": 500, "session_timeout_ms": 30_000}


def fault(scenario: Scenario) -> Scenario:
    SCENARIOS[scenario.__name__] = scenario
    return scenario


def member(p: Ownership, protocol: str) -> Any:
    options = dict(QUICK)
    if protocol == "consumer":
        del options["session_timeout_ms"]
    return p.member(protocol, fetch_max_wait_ms=300, **options)


@fault
async def connections_that_break(p: Ownership, faults: Faults, protocol: str) -> Any:
    p.filled("a", partitions=2)
    async with member(p, protocol) as consumer:
        found = await values(consumer, 1)
        await faults.cut()
        p.cluster.produce(p.t, value="b", partition=0)
        found += await values(consumer, 1)
        await faults.cut()
        await consumer.commit()
        return found, p.committed(), indexes(consumer), len(p.cluster.members(p.g))


@fault
async def connections_that_are_half_open(p: Ownership, faults: Faults, protocol: str) -> Any:
    p.filled("a")
    async with member(p, protocol) as consumer:
        found = await values(consumer, 1)
        await faults.half_open()
        early = await values(consumer, 1, 2)
        await faults.heal()
        p.cluster.produce(p.t, value="b", partition=0)
        found += await values(consumer, 1)
        await consumer.commit()
        return found, early, p.committed(), len(p.cluster.members(p.g))


@fault
async def a_broker_that_goes_and_comes_back(p: Ownership, faults: Faults, protocol: str) -> Any:
    p.filled("a", "b", partitions=2)
    async with member(p, protocol) as consumer:
        found = await values(consumer, 2)
        await consumer.commit()
        await faults.stop()
        early = await values(consumer, 1, 2)
        await faults.start()
        p.cluster.produce(p.t, value="c", partition=0)
        found += await values(consumer, 1)
        back = await until(lambda: len(p.cluster.members(p.g)) == 1 and len(consumer.assignment()) == 2, consumer)
        await consumer.commit()
        return found, early, back, p.committed()


@fault
async def a_member_that_is_silent_loses_what_it_has(p: Ownership, faults: Faults, protocol: str) -> Any:
    p.filled("a", partitions=2)
    async with member(p, protocol) as one:
        found = await values(one, 1)
        await one.commit()
        p.cluster.kick(p.g)
        await faults.cut()
        back = await until(lambda: len(p.cluster.members(p.g)) == 1 and len(one.assignment()) == 2, one)
        p.cluster.produce(p.t, value="b", partition=0)
        return found, back, await values(one, 1), p.committed()


@pytest.fixture(scope="module")
def broker(real_brokers: None) -> Iterator[KafkaCluster]:
    """One broker, directly and through a proxy."""
    properties = {"group.initial.rebalance.delay.ms": "0"}
    with KafkaCluster(CURRENT, properties=properties, listeners={PROXIED: "PLAINTEXT"}, proxied=[PROXIED]) as cluster:
        yield cluster


class _Behind(RealCluster):
    """Consumers come through the proxy, the test itself does not."""

    through: str = ""

    def options(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.through}


@asynccontextmanager
async def _real(broker: KafkaCluster) -> AsyncIterator[tuple[Ownership, Faults]]:
    async with proxied(broker) as proxy:
        with _Behind(broker.bootstrap_servers) as cluster:
            cluster.through = proxy.bootstrap_servers
            yield Ownership(cluster), Real(broker, proxy)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_real_broker_and_the_simulated_one_bear_faults_alike(name: str, protocol: str, broker: KafkaCluster) -> None:
    async def real() -> Any:
        async with _real(broker) as (place, faults):
            return await SCENARIOS[name](place, faults, protocol)

    async def simulated() -> Any:
        cluster = Cluster()
        return await SCENARIOS[name](Ownership(cluster), Simulated(cluster), protocol)

    assert run_virtual_asyncio(simulated) == asyncio.run(real())
