"""Brokers that break the protocol, at every API: a typed error or a recovery in bounded time; nothing lost, nothing repeated.

Virtual time, so that what takes a timeout costs nothing. Real sockets and memory: ``test_flood.py``.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count, repeat
from typing import Any, Final

import anyio
import pytest
from attrs import Factory, define, field

from kafka_async import TopicPartition
from kafka_async.errors import BackgroundLoopError, CommitFailedError, KafkaError, KafkaTimeoutError
from kafka_async.testing.server import ReceivedRequest
from kafka_async.testing.simulation import FakeCluster, LastBytes
from kafka_async.testing.simulation.groups import Groups
from kafka_async.wire import Api
from tests.application.support import Consumer, consumer_on, virtual

from .hostile_cluster import hostile

PARTITIONS, RECORDS, ROUNDS = 2, 4, 2
OPTIONS: Final[dict[str, Any]] = {
    "request_timeout_ms": 4000,
    "default_api_timeout_ms": 20_000,
    "fetch_max_wait_ms": 300,
    "max_poll_interval_ms": 8000,
    "heartbeat_interval_ms": 500,
    "session_timeout_ms": 10_000,
}
PATIENCE: Final = 60.0
"""Virtual seconds for everything: a JoinGroup that is never answered is given up after ``max_poll_interval_ms`` and 5 s."""
SUFFERING: Final = 10.0
TURNS: Final = 40
"""Turns of the loop in a virtual second."""

Fault = Callable[[bytes], bytes | None]
"""Changes an answer, length prefix included; ``None``: the connection is closed instead of it."""

FAULTS: Final[dict[str, Fault]] = {
    "2 GiB announced": lambda answer: b"\x7f\xff\xff\xff" + answer[4:],
    "a negative length": lambda answer: b"\xff\xff\xff\xfe" + answer[4:],
    "a length beyond the answer": lambda answer: (len(answer) + 6).to_bytes(4, "big") + answer[4:],
    "a body of zeros": lambda answer: answer[:8] + bytes(len(answer) - 8),
    "a body of ones": lambda answer: answer[:8] + b"\xff" * (len(answer) - 8),
    "a byte too few": lambda answer: (len(answer) - 5).to_bytes(4, "big") + answer[4:-1],
    "nothing but a correlation id": lambda answer: b"\0\0\0\4" + answer[4:8],
    "another correlation id": lambda answer: answer[:4] + b"\x12\x34\x56\x78" + answer[8:],
    "the answer twice": lambda answer: answer * 2,
    "HTTP": lambda answer: b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "half an answer": lambda answer: LastBytes(answer[: len(answer) // 2]),
    "the end after the answer": LastBytes,
    "the end instead of the answer": lambda answer: None,
    "silence": lambda answer: b"",
}
ENDLESS: Final = ("a negative length", "a body of ones", "the end after the answer", "the end instead of the answer", "silence")
CLASSIC: Final = (
    Api.API_VERSIONS,
    Api.METADATA,
    Api.FIND_COORDINATOR,
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
    Api.HEARTBEAT,
    Api.OFFSET_FETCH,
    Api.LIST_OFFSETS,
    Api.FETCH,
    Api.OFFSET_COMMIT,
    Api.LEAVE_GROUP,
)
PLACES: Final = [("classic", api) for api in CLASSIC] + [("consumer", Api.CONSUMER_GROUP_HEARTBEAT)]
every_place = pytest.mark.parametrize(("protocol", "api"), PLACES, ids=[api.name.lower() for _, api in PLACES])


@define(eq=False)
class Breaker:
    """A ``Tamper`` that spoils some answers of one API; ``faults`` is asked for each of them until it ends."""

    api: Api
    faults: Iterator[Fault]
    spoiled: int = 0

    def __call__(self, asked: ReceivedRequest, answer: bytes) -> bytes | None:
        fault = next(self.faults, None) if asked.api is self.api else None
        if fault is None:
            return answer
        self.spoiled += 1
        return fault(answer)


@define(eq=False)
class World:
    """A cluster of two brokers with a topic, and a consumer that reads it while answers are spoiled."""

    breaker: Breaker
    protocol: str
    cluster: FakeCluster = Factory(lambda: FakeCluster(size=2))
    values: dict[TopicPartition, list[bytes]] = Factory(dict)
    coordinator: Groups = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.cluster.create_topic("t", PARTITIONS)
        self.coordinator = self.cluster.groups
        hostile(self.cluster, self.breaker)

    def consumer(self) -> Consumer:
        options = {name: value for name, value in OPTIONS.items() if self.protocol == "classic" or name not in CLASSIC_OPTIONS}
        return consumer_on(self.cluster, "t", group_id="g", group_protocol=self.protocol, **options)

    async def read(self, consumer: Consumer, rounds: int = ROUNDS) -> None:
        """Read what is written meanwhile, committing each batch, past errors that are typed and can pass."""
        for _ in range(rounds):
            for index in range(PARTITIONS):
                self.cluster.fill(TopicPartition("t", index), RECORDS, per_batch=2)
            total = sum(self.cluster.log(TopicPartition("t", index)).end for index in range(PARTITIONS))
            while sum(len(set(values)) for values in self.values.values()) < total:
                await self._read_once(consumer)
            await anyio.sleep(0.6)  # heartbeats have their turn

    async def _read_once(self, consumer: Consumer) -> None:
        try:
            for tp, records in (await consumer.getmany(timeout_ms=1000)).items():
                self.values.setdefault(tp, []).extend(record.value for record in records)
            await consumer.commit()
        except KafkaError as error:
            if not error.retriable and not isinstance(error, CommitFailedError):
                raise

    async def suffer(self, consumer: Consumer, seconds: float) -> list[KafkaError]:
        """Go on reading and committing whatever happens; return what was raised. Then stop."""
        errors = []
        self.cluster.fill(TopicPartition("t", 0), RECORDS)
        try:
            await consumer.start()
            while anyio.current_time() < seconds:
                try:
                    await consumer.getmany(timeout_ms=1000)
                    await consumer.commit()
                except KafkaError as error:
                    errors.append(error)
                    await anyio.sleep(0.5)
            assert consumer.statistics().wake_ups < 100 + anyio.current_time() * TURNS
        except KafkaError as error:
            errors.append(error)
        finally:
            begun = anyio.current_time()
            await consumer.stop(timeout_ms=3000)
        assert anyio.current_time() - begun <= 3.1
        return errors

    async def provoke(self, consumer: Consumer) -> None:
        """Have the consumer say everything again: on new connections, to a coordinator that wants it to join again."""
        for node_id in self.cluster.brokers:
            self.cluster.disconnect(node_id)
        self.coordinator.rebalance("g")
        with suppress(KafkaTimeoutError):
            await consumer.end_offsets(consumer.assignment())

    def check(self, *, repeats: bool = False) -> None:
        """Nothing lost, the order kept, and nothing twice but where a rebalance came between a record and its commit."""
        for index in range(PARTITIONS):
            tp = TopicPartition("t", index)
            seen = list(dict.fromkeys(self.values[tp])) if repeats else self.values[tp]
            assert seen == [str(number).encode() for number in range(self.cluster.log(tp).end)]


CLASSIC_OPTIONS: Final = ("heartbeat_interval_ms", "session_timeout_ms")


async def live(protocol: str, api: Api, faults: Iterator[Fault]) -> World:
    """Start, read everything, stop, and check what must be true of all that."""
    world = World(Breaker(api, faults), protocol)
    consumer = world.consumer()
    try:
        with anyio.fail_after(PATIENCE):
            await consumer.start()
            await world.read(consumer)
        seconds, turns = anyio.current_time(), consumer.statistics().wake_ups
    finally:
        begun = anyio.current_time()
        await consumer.stop(timeout_ms=3000)
    assert anyio.current_time() - begun <= 3.1
    assert turns < 100 + seconds * TURNS, f"{turns} turns of the loop in {seconds:.0f} s"
    world.check()
    return world


@pytest.mark.slow
@every_place
@virtual
async def test_an_answer_that_is_broken_costs_time_and_nothing_else(protocol: str, api: Api) -> None:
    times = 1 if api is Api.API_VERSIONS else 3  # where no bootstrap server speaks Kafka, start() says so at once
    for name, fault in FAULTS.items():
        try:
            world = await live(protocol, api, iter([fault] * times))
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error
        assert world.breaker.spoiled


@pytest.mark.slow
@every_place
@virtual
async def test_an_answer_that_is_always_broken_is_asked_for_at_intervals(protocol: str, api: Api) -> None:
    for name in ENDLESS:
        world = World(Breaker(api, repeat(FAULTS[name])), protocol)
        errors = await world.suffer(world.consumer(), seconds=SUFFERING + anyio.current_time())
        assert not any(isinstance(error, BackgroundLoopError) for error in errors), (name, errors)
        assert len(world.cluster.requests) < SUFFERING * TURNS, name


@define(eq=False)
class Cuts:
    """Faults that end the connection after ever more bytes of an answer, until none was longer."""

    longest: int = 0

    def __iter__(self) -> Iterator[Fault]:
        for size in count():
            if size > self.longest:
                return
            yield partial(self._cut, size)

    def _cut(self, size: int, answer: bytes) -> bytes:
        self.longest = max(self.longest, len(answer))
        return LastBytes(answer[:size])


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "api"), [place for place in PLACES if place[1] is not Api.LEAVE_GROUP])
@virtual
async def test_an_answer_that_is_cut_at_each_byte_costs_time_and_nothing_else(protocol: str, api: Api) -> None:
    cuts = Cuts()
    world = World(Breaker(api, iter(())), protocol)
    async with world.consumer() as consumer:
        world.breaker.faults = iter(cuts)
        while world.breaker.spoiled <= cuts.longest:
            await world.provoke(consumer)
            await world.read(consumer, rounds=1)
    world.check(repeats=True)
