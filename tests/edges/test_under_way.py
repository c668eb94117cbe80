"""Whatever happens to requests, its end is reported, and nothing is taken for under way afterwards that is not.

For a while requests of every kind fail, are lost, or never answered, brokers stop, leaders and coordinators move, and the
application seeks, gives partitions up and cancels its calls. Then the cluster is well again, and so is the consumer: within the
time of its own timeouts and back-offs it reads everything, answers every call, and stops at once.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    LeaderNotAvailableError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    UnknownError,
)
from kafka_async.testing import HANG, LOSE, Api, Cluster, Drop
from tests.virtual import run_seeds

from .support import Ownership

PATIENCE: Final = 400.0
"""Virtual seconds after which something hangs: longer than every timeout of a request and every back-off together."""
SEEDS: Final = 25
PARTS: Final = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 8))]
"""The programs are divided among eight tests; the first is fast."""
APIS: Final = (
    Api.METADATA,
    Api.FETCH,
    Api.LIST_OFFSETS,
    Api.OFFSET_FOR_LEADER_EPOCH,
    Api.FIND_COORDINATOR,
    Api.OFFSET_FETCH,
    Api.OFFSET_COMMIT,
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
    Api.HEARTBEAT,
    Api.CONSUMER_GROUP_HEARTBEAT,
    Api.API_VERSIONS,
)
ERRORS: Final[dict[Api, tuple[type[Any], ...]]] = {
    Api.METADATA: (LeaderNotAvailableError, UnknownError),
    Api.FETCH: (NotLeaderOrFollowerError, UnknownError, RequestTimedOutError),
    Api.LIST_OFFSETS: (NotLeaderOrFollowerError, LeaderNotAvailableError),
    Api.FIND_COORDINATOR: (CoordinatorNotAvailableError,),
    Api.OFFSET_FETCH: (NotCoordinatorError, CoordinatorLoadInProgressError),
    Api.OFFSET_COMMIT: (NotCoordinatorError, CoordinatorLoadInProgressError, RequestTimedOutError),
    Api.JOIN_GROUP: (NotCoordinatorError, CoordinatorLoadInProgressError),
    Api.SYNC_GROUP: (NotCoordinatorError, CoordinatorNotAvailableError),
    Api.HEARTBEAT: (NotCoordinatorError, CoordinatorNotAvailableError),
    Api.CONSUMER_GROUP_HEARTBEAT: (NotCoordinatorError, CoordinatorLoadInProgressError),
}
KINDS: Final = ("assigned", "followed", "classic", "cooperative", "consumer", "assigned in a group")
GROUPED: Final = ("classic", "cooperative", "consumer")


class Program:
    """One consumer, and what befalls it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)  # noqa: S311 - repeatable on purpose
        self.brokers = random.choice((1, 2, 3))
        self.kind = random.choice(KINDS)
        kafka = random.choice(("4.4", "4.4", "3.9") if self.kind != "consumer" else ("4.4",))
        self.kit = Cluster(self.brokers, kafka, latency=random.choice((0.001, 0.02, 0.3)), seed=seed)
        self.place = Ownership(self.kind if self.kind in GROUPED else "classic", self.kit)
        self.partitions = self.place.topic("t", random.choice((1, 3, 6)), records=30)
        self.odds = random.choice((0.05, 0.3, 0.8))
        self.written = dict.fromkeys(self.partitions, 30)
        options: dict[str, Any] = {"request_timeout_ms": 5000, "default_api_timeout_ms": 20_000, "auto_commit_interval_ms": 700}
        if random.random() < 0.3:
            options |= {"fetch_buffer_bytes": 300, "max_partition_fetch_bytes": 100}
        made: Callable[..., Any] = self.place.plain if self.kind in ("assigned", "followed") else self.place.consumer
        self.consumer = made(*(("t",) if not self.kind.startswith("assigned") else ()), **options)
        if self.kind.startswith("assigned"):
            self.consumer.assign(self.partitions)

    async def run(self) -> None:
        """Start, be troubled, be well again."""
        async with self.consumer:
            await self.trouble()
            await self.recover()
        assert not self.kit.members("g")

    # --- trouble ---------------------------------------------------------------------------------------------------------------

    async def trouble(self) -> None:
        random = self.random
        ends = [self.kit.control(api, self.befall, keep=True) for api in APIS]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.disturb)
            for _ in range(random.choice((3, 15))):
                with anyio.move_on_after(random.choice((0.05, 1.0, 8.0)) * random.random()), suppress(KafkaError):
                    await random.choice((self.read, self.read, self.look_up, self.ask_where, self.commit, self.begin_anew))()
            tasks.cancel_scope.cancel()
        for end in ends:
            end()
        for broker in range(self.brokers):
            self.kit.start(broker)

    def befall(self, broker: int, request: Any) -> Any:
        """Decide on one request."""
        if self.random.random() >= self.odds:
            return None
        errors = ERRORS.get(request.api, ())
        return self.random.choice((HANG, LOSE, Drop(), *errors, *errors))

    async def disturb(self) -> None:
        random = self.random
        while True:
            await anyio.sleep(random.choice((0.1, 1.0, 5.0)) * random.random())
            broker = random.randrange(self.brokers)
            match random.randrange(7):
                case 0:
                    self.kit.stop(broker)
                case 1 | 2:
                    self.kit.start(broker)
                case 3:
                    self.kit.cut()
                case 4:
                    self.kit.half_open()
                case 5:
                    self.kit.move_leader(random.choice(self.partitions), broker)
                case 6:
                    self.kit.move_coordinator("g", broker)

    async def read(self) -> None:
        await self.consumer.getmany(timeout_ms=self.random.choice((10, 3000)), max_records=self.random.choice((1, 100)))

    async def look_up(self) -> None:
        await self.consumer.end_offsets(self.random.sample(self.partitions, self.random.randint(1, len(self.partitions))))

    async def ask_where(self) -> None:
        if held := sorted(self.consumer.assignment()):
            await self.consumer.position(self.random.choice(held))

    async def commit(self) -> None:
        if self.kind in GROUPED:
            await self.consumer.commit()

    async def begin_anew(self) -> None:
        consumer, random = self.consumer, self.random
        if self.kind.startswith("assigned"):
            consumer.unsubscribe()
            if random.random() < 0.5:
                await anyio.sleep(random.random())
            consumer.assign(self.partitions)
        elif random.random() < 0.3:
            consumer.unsubscribe()
            await self.read_nothing()
            consumer.subscribe(["t"])
        for partition in sorted(consumer.assignment()):
            match random.randrange(5):
                case 0:
                    consumer.seek(partition, random.randrange(30))
                case 1:
                    await consumer.seek_to_beginning(partition)
                case 2:
                    consumer.pause(partition)
                    consumer.resume(partition)

    async def read_nothing(self) -> None:
        with suppress(Exception):
            await self.consumer.getmany(timeout_ms=10)

    # --- and after it ----------------------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        consumer = self.consumer
        if not consumer.subscription() and not consumer.assignment():
            consumer.subscribe(["t"]) if not self.kind.startswith("assigned") else consumer.assign(self.partitions)
        await self.within("an assignment", self.assigned)
        await self.within("positions", lambda: consumer.seek_to_beginning(*self.partitions))
        for partition in self.partitions:
            self.place.cluster.fill(partition, 5)
        await self.within("all records", self.read_all)
        await self.within("the ends", lambda: consumer.end_offsets(self.partitions))
        if self.kind in GROUPED:
            await self.within("a commit", consumer.commit)
        with anyio.fail_after(20):
            await consumer.stop()

    async def assigned(self) -> None:
        while self.consumer.assignment() != set(self.partitions):
            await self.consumer.getmany(timeout_ms=100, max_records=1)

    async def read_all(self) -> None:
        last: dict[TopicPartition, int] = {}
        while any(last.get(partition) != 34 for partition in self.partitions):
            for partition, records in (await self.consumer.getmany(timeout_ms=1000)).items():
                for record in records:
                    last[partition] = record.offset

    async def within(self, what: str, attempt: Callable[[], Awaitable[object]]) -> None:
        """Try until it works; errors of the time of trouble may still be reported, and calls begun in it time out."""
        with anyio.move_on_after(PATIENCE):
            while True:
                try:
                    await attempt()
                except KafkaError:
                    await anyio.sleep(0.1)
                else:
                    return
        raise AssertionError(f"no {what} in {PATIENCE:.0f} s ({self.kind}): {self.consumer.statistics()}")


async def _run(seed: int) -> None:
    await Program(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_nothing_is_taken_for_under_way_that_is_not(part: int) -> None:
    run_seeds(_run, range(part * SEEDS, (part + 1) * SEEDS))
