"""An hour's work and trouble in accelerated form: does anything grow?

    python -m tests.faults.soak --rounds 20000            in memory, under virtual time, in every group protocol
    python -m tests.faults.soak --rounds 300 --broker     consumers that come and go on a real broker

Decides: what counts as growth. Owns: the list of troubles. Must never measure while something is going on: before each measurement
the cluster is healed, everything comes to rest and garbage is collected.
"""

import argparse
import asyncio
import gc
import logging
import os
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, Final

import anyio
from attrs import Factory, define, frozen
from hypothesis.internal.entropy import deterministic_PRNG

from kafka_async import ConsumerState, KafkaConsumer, TopicPartition
from kafka_async.errors import KafkaError
from kafka_async.testing.simulation import HANG, Drop, FakeCluster
from kafka_async.testing.simulation.groups import Groups
from kafka_async.wire import Api
from tests.application.support import Consumer, cancelled_at, consumer_on
from tests.brokers import CURRENT, KafkaCluster
from tests.virtual import run_virtual

PARTITIONS: Final = 4
RECORDS: Final = 60
REST: Final = 30.0
"""Virtual seconds after which a consumer has recovered from whatever it was."""
PROTOCOLS: Final = (None, "classic", "consumer")
SLACK: Final = 60
"""Objects by which two measurements may differ: an answer more or less is in the making."""
TRIOS_OWN: Final = frozenset({"trio.CancelScope", "builtins.tuple"})
"""Trio keeps deadlines that were withdrawn until they would have been due, a thousand at least. What we keep shows elsewhere."""
BYTES_SLACK: Final = 150_000
_ERRORS: Final = (3, 5, 6, 7, 14, 15, 16, 25, 27, 70, 74, 75, 100, 110, -1)
_APIS: Final = (
    Api.FETCH,
    Api.METADATA,
    Api.LIST_OFFSETS,
    Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
    Api.FIND_COORDINATOR,
    Api.HEARTBEAT,
    Api.CONSUMER_GROUP_HEARTBEAT,
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
)


@frozen(kw_only=True)
class Measure:
    """What there is at one moment."""

    objects: Counter[str]
    """Objects that the garbage collector knows, by type: tasks, waiters, sockets, events and everything of the package."""
    traced: int
    """Bytes that Python has allocated."""
    open: int
    """Connections or file descriptors."""

    @classmethod
    def take(cls, open_now: int) -> "Measure":
        """Measure now."""
        gc.collect()
        kinds = (type(thing) for thing in gc.get_objects())
        objects = Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
        return cls(objects=objects, traced=tracemalloc.get_traced_memory()[0], open=open_now)

    def growth_since(self, before: "Measure") -> dict[str, int]:
        """Return what has grown, by how much; empty if nothing has."""
        more = {kind: count - before.objects[kind] for kind, count in self.objects.items()}
        grown = {kind: count for kind, count in more.items() if count > SLACK and kind not in TRIOS_OWN}
        if self.traced - before.traced > BYTES_SLACK:
            grown["bytes"] = self.traced - before.traced
        if self.open > before.open:
            grown["connections"] = self.open - before.open
        return grown


@define(eq=False)
class Soak:
    """One consumer on a cluster in memory, and all that can happen to the two of them."""

    random: Random
    cluster: FakeCluster
    coordinator: Groups
    consumer: Consumer
    in_group: bool
    done: Counter[str] = Factory(Counter)
    _ends: list[Callable[[], None]] = Factory(list)

    async def round(self) -> None:
        """Let one thing happen, read on through it, and heal."""
        trouble = self.random.choice((self.cut, self.stop, self.move, self.refuse, self.refuse, self.hang, self.rebalance))
        trouble()
        self.done[trouble.__name__] += 1
        for _ in range(self.random.randrange(1, 4)):
            try:
                await self._call()
            except KafkaError:
                self.done["errors"] += 1
                self._begin_anew()
        self.heal()

    def _begin_anew(self) -> None:
        """Subscribe again if an answer that makes no sense ended the membership for good; nothing else would bring it back."""
        if self.consumer.state is ConsumerState.FATAL:
            self.done["final"] += 1
            self.consumer.subscribe(self.consumer.subscription())

    def cut(self) -> None:
        """Break the connections to a broker."""
        self.cluster.disconnect(self._node())

    def stop(self) -> None:
        """Take a broker down."""
        self.cluster.stop(self._node(), self.random.choice(("refuse", "hang")))

    def move(self) -> None:
        """Elect another leader."""
        tp = TopicPartition("t", self.random.randrange(PARTITIONS))
        self.cluster.move_leader(tp, self._node())

    def refuse(self) -> None:
        """Answer a request with an error."""
        code = self.random.choice(_ERRORS)
        self._ends.append(self.cluster.control(self.random.choice(_APIS), lambda broker, request: code))

    def hang(self) -> None:
        """Answer a request by silence, or by closing the connection."""
        outcome = self.random.choice((HANG, Drop()))
        self._ends.append(self.cluster.control(self.random.choice(_APIS), lambda broker, request: outcome))

    def rebalance(self) -> None:
        """Have the group rebalance, or its members thrown out."""
        if self.in_group:
            self.random.choice((self.coordinator.rebalance, self.coordinator.kick))("g")

    def heal(self) -> None:
        """Bring every broker back."""
        for node_id in self.cluster.brokers:
            self.cluster.start(node_id)

    async def come_to_rest(self) -> Measure:
        """End all trouble, wait until nothing is going on, and measure."""
        for end in self._ends:
            end()
        self._ends.clear()
        self.heal()
        try:
            await self.consumer.seek_to_end()
        except KafkaError:
            self._begin_anew()
        rest = anyio.current_time() + REST
        # Measured where the same connections are in use each time; a JoinGroup that is not answered takes its time to expire.
        while anyio.current_time() < rest or self.consumer.state is not ConsumerState.STEADY:
            try:
                await self.consumer.getmany(timeout_ms=1000)
            except KafkaError:
                self._begin_anew()
        self.consumer.metrics()  # has the events counted that were kept for that, 256 at most
        self.cluster.requests.clear()
        return Measure.take(len(self.cluster.network.live()))

    def _node(self) -> int:
        return self.random.choice(sorted(self.cluster.brokers))

    async def _call(self) -> None:
        consumer, tps = self.consumer, sorted(self.consumer.assignment())
        calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: consumer.getmany(timeout_ms=self.random.choice((0, 50, 2000)), max_records=3),
            lambda: consumer.getmany(timeout_ms=500),
            lambda: consumer.end_offsets(tps),
            lambda: consumer.seek_to_beginning(*tps) if tps else consumer.topics(),
        ]
        if self.in_group:
            calls.append(consumer.commit)
        call = self.random.choice(calls)
        if self.random.random() < 0.4:
            self.done["cancelled"] += await cancelled_at(self.random.randrange(1, 6), call()) is None
        else:
            await call()


async def soak_in_memory(protocol: str | None, rounds: int, seed: int = 0) -> tuple[dict[str, int], Counter[str]]:
    """Run ``rounds`` rounds twice, and return what grew in the second half, and what was done in all."""
    random = Random(seed)  # noqa: S311  # the same rounds each time
    cluster = FakeCluster(size=3)
    cluster.network.random = Random(seed + 1)  # noqa: S311  # the order of answers, too
    for tp in cluster.create_topic("t", PARTITIONS):
        cluster.fill(tp, RECORDS)
    coordinator = cluster.groups
    group: dict[str, Any] = {"group_id": "g", "group_protocol": protocol} if protocol else {}
    # Connections that nobody uses any more are closed before the rest is over: what is open then does not depend on the trouble.
    idle = {"connections_max_idle_ms": 5000}
    options = {"request_timeout_ms": 2000, "default_api_timeout_ms": 3000, "max_poll_interval_ms": 10_000, **idle, **group}
    async with consumer_on(cluster, "t", **options) as consumer:
        soak = Soak(random, cluster, coordinator, consumer, protocol is not None)
        measures = []
        for _ in range(2):
            for _ in range(rounds):
                await soak.round()
            measures.append(await soak.come_to_rest())
        return measures[1].growth_since(measures[0]), soak.done


async def soak_on_broker(cluster: KafkaCluster, rounds: int) -> dict[str, int]:
    """Have consumers of both protocols come and go ``2 * rounds`` times; return what grew in the second half."""
    topic = cluster.create_topic("soak", PARTITIONS)
    cluster.produce(topic, RECORDS)
    measures = []
    for _ in range(2):
        for number in range(rounds):
            await _come_and_go(cluster, topic, PROTOCOLS[number % len(PROTOCOLS)], number)
        await asyncio.sleep(0.1)  # sockets are closed in the turn after the order
        measures.append(Measure.take(len(os.listdir("/proc/self/fd"))))
    return measures[1].growth_since(measures[0])


async def _come_and_go(cluster: KafkaCluster, topic: str, protocol: str | None, number: int) -> None:
    options: dict[str, Any] = {"group_id": f"soak-{number % 5}", "group_protocol": protocol} if protocol else {}
    consumer = KafkaConsumer[Any, Any](
        topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=50, **options
    )
    with anyio.move_on_after(0.01 if number % 4 == 0 else 10):  # some are cancelled while they start
        async with consumer:
            await consumer.getmany(timeout_ms=100)
            if number % 3:
                consumer.seek(TopicPartition(topic, 0), 0) if TopicPartition(topic, 0) in consumer.assignment() else None
                await consumer.getmany(timeout_ms=100)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return 1 if something grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=2000, help="rounds in each half")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--broker", action="store_true", help="on a real broker instead of in memory")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    tracemalloc.start()
    if options.broker:
        with KafkaCluster(CURRENT) as cluster:
            grown = asyncio.run(soak_on_broker(cluster, options.rounds))
        sys.stdout.write(f"broker: {2 * options.rounds} consumers, grown: {grown or 'nothing'}\n")
        return 1 if grown else 0
    bad = False
    for protocol in PROTOCOLS:
        with deterministic_PRNG(options.seed):
            grown, done = run_virtual(partial(soak_in_memory, protocol, options.rounds, options.seed))
        bad |= bool(grown)
        what = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
        sys.stdout.write(f"{protocol or 'no group'}: {2 * options.rounds} rounds ({what}), grown: {grown or 'nothing'}\n")
        sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
