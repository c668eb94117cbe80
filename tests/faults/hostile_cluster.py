"""A cluster in memory whose answers are spoiled on their way, and a consumer that has to live with it.

Decides: which answers are spoiled, from a seeded source of randomness. Owns: the log of what was spoiled. Must never spoil an
answer after it was told to stop: whether a consumer recovers is the question.
"""

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final

import anyio
from attrs import Factory, define, frozen

from kafka_async import ConsumerState, TopicPartition
from kafka_async.errors import BackgroundLoopError, CorruptRecordException, KafkaError
from kafka_async.testing.server import ReceivedRequest, decode_request
from kafka_async.testing.simulation import KAFKA_2_8, KAFKA_4_3, FakeBroker, FakeCluster
from kafka_async.testing.simulation.groups import Groups
from kafka_async.testing.simulation.waking import Answering
from kafka_async.wire import Api, decode_response
from tests.application.support import Consumer, consumer_on

from .mutation import spoil, twisted_frame

Tamper = Callable[[ReceivedRequest, bytes], bytes | None]
"""Sees a request and the answer, length prefix included; returns what is sent instead. ``None``: the connection is closed."""

TOPIC: Final = "t"
RECORDS: Final = 12
PARTITIONS: Final = 2
TRIED: Final = 8.0
"""Virtual seconds in which answers are spoiled."""
PATIENCE: Final = 400.0
"""Virtual seconds in which a consumer has recovered: a lie about time, such as a throttle, is believed within bounds."""
STOP: Final = 5.0
MOST_TURNS: Final = 40
"""Turns of the background loop in a virtual second, on average over the time of a case; and FIRST_TURNS more."""
FIRST_TURNS: Final = 200
MOST_REQUESTS: Final = 20_000
_APIS: Final = (
    Api.API_VERSIONS,
    Api.METADATA,
    Api.LIST_OFFSETS,
    Api.FETCH,
    Api.FIND_COORDINATOR,
    Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
    Api.HEARTBEAT,
    Api.CONSUMER_GROUP_HEARTBEAT,
)


class HostileBroker(FakeBroker):
    """A broker whose answers go through ``tamper``."""

    tamper: Tamper

    def arrived(self, frame: bytes, line: object = None) -> Callable[[], Answering[bytes | None]]:
        asked = decode_request(frame)
        honest = super().arrived(frame, line)
        assert len(self.cluster.requests) < MOST_REQUESTS, "the client asks without end"

        def answer() -> Answering[bytes | None]:
            response = yield from honest()
            return None if response is None else self.tamper(asked, response)

        return answer


def hostile(cluster: FakeCluster, tamper: Tamper) -> None:
    """Put ``tamper`` between a cluster and its clients."""
    for node_id in list(cluster.brokers):
        broker = HostileBroker(node_id, cluster)
        broker.tamper = tamper
        cluster.brokers[node_id] = broker


@define(eq=False)
class Spoiler:
    """A ``Tamper`` that spoils some answers of one API, or of all."""

    random: Random
    api: Api | None
    twists: bool
    likely: float
    active: bool = True
    spoiled: list[tuple[Api, bytes]] = Factory(list)

    def __call__(self, asked: ReceivedRequest, answer: bytes) -> bytes | None:
        if not self.active or self.api not in (None, asked.api) or self.random.random() >= self.likely:
            return answer
        changed = self._twisted(asked, answer) if self.twists else self._garbled(answer)
        self.spoiled.append((asked.api, changed))
        return changed

    def _garbled(self, answer: bytes) -> bytes:
        if self.random.random() < 0.1:
            return spoil(self.random, answer)  # the length too
        body = spoil(self.random, answer[8:])
        return (len(body) + 4).to_bytes(4, "big") + answer[4:8] + body

    def _twisted(self, asked: ReceivedRequest, answer: bytes) -> bytes:
        assert asked.request is not None
        honest = decode_response(asked.request, asked.version, answer[4:])
        return twisted_frame(self.random, honest, asked.api, asked.version, asked.correlation_id)


@frozen(kw_only=True)
class Plan:
    """One case."""

    release: Mapping[Api, int]
    protocol: str | None
    api: Api | None
    twists: bool
    likely: float

    @classmethod
    def draw(cls, random: Random) -> "Plan":
        """Return a plan at random."""
        protocol = random.choice((None, "classic", "consumer"))
        return cls(
            release=KAFKA_4_3 if protocol or random.random() < 0.7 else KAFKA_2_8,
            protocol=protocol,
            api=random.choice((None, *_APIS)),
            twists=random.random() < 0.6,
            likely=random.choice((0.1, 0.5, 1.0)),
        )


async def live_through(random: Random) -> str:
    """Have a consumer read while answers are spoiled, then recover. Return what happened, in a word; raise ``AssertionError``."""
    plan = Plan.draw(random)
    cluster = FakeCluster(size=2, max_versions=plan.release)
    for tp in cluster.create_topic(TOPIC, PARTITIONS):
        cluster.fill(tp, RECORDS, per_batch=3)
    coordinator = cluster.groups
    spoiler = Spoiler(random, plan.api, plan.twists, plan.likely)
    hostile(cluster, spoiler)
    options: dict[str, Any] = {"group_id": "g", "group_protocol": plan.protocol} if plan.protocol else {}
    consumer = consumer_on(cluster, TOPIC, request_timeout_ms=3000, default_api_timeout_ms=5000, fetch_max_wait_ms=300, **options)
    try:
        verdict = await _read_on(
            consumer, spoiler, lambda: _end_lies(cluster, coordinator, plan), in_group=plan.protocol is not None
        )
        _check_calm(consumer)
    finally:
        begun = anyio.current_time()
        with anyio.CancelScope(shield=True):
            await tolerate(consumer.stop(timeout_ms=int(STOP * 1000)))
        assert anyio.current_time() - begun <= STOP + 0.1, "stop() took longer than its timeout"
    return verdict


def _end_lies(cluster: FakeCluster, coordinator: Groups, plan: Plan) -> None:
    """Take back what a client has to believe: versions as long as a connection lasts, members and plan as long as a generation."""
    for node_id in cluster.brokers:
        cluster.disconnect(node_id)
    if plan.protocol == "classic" and plan.api in (None, Api.JOIN_GROUP, Api.SYNC_GROUP):
        coordinator.rebalance("g")


async def _read_on(consumer: Consumer, spoiler: Spoiler, end_lies: Callable[[], None], *, in_group: bool) -> str:
    if await tolerate(consumer.start()):
        return "start failed"
    while anyio.current_time() < TRIED and consumer.state is not ConsumerState.FATAL:
        if await tolerate(consumer.getmany(timeout_ms=1000)):
            await anyio.sleep(0.1)
        if in_group:
            await tolerate(consumer.commit())
    spoiler.active = False
    end_lies()
    while anyio.current_time() < PATIENCE and consumer.state is not ConsumerState.FATAL:
        if await _reads_everything(consumer):
            return "recovered"
    assert consumer.state is ConsumerState.FATAL, f"no recovery: {consumer.statistics()}"
    return "fatal"


async def _reads_everything(consumer: Consumer) -> bool:
    """Read every assigned partition from its beginning; return whether every record came, in order."""
    if len(consumer.assignment()) != PARTITIONS or await tolerate(consumer.seek_to_beginning()):
        await tolerate(consumer.getmany(timeout_ms=1000))
        return False
    seen: dict[TopicPartition, list[bytes]] = {}
    deadline = anyio.current_time() + 10
    while anyio.current_time() < deadline and sum(map(len, seen.values())) < PARTITIONS * RECORDS:
        try:
            batch = await consumer.getmany(timeout_ms=1000)
        except KafkaError as error:
            _check_typed(error)
            return False
        for tp, records in batch.items():
            seen.setdefault(tp, []).extend(record.value for record in records)
    return seen == {TopicPartition(TOPIC, index): [str(n).encode() for n in range(RECORDS)] for index in range(PARTITIONS)}


async def tolerate(call: Awaitable[object]) -> bool:
    """Await a call that may fail, in the ways that are allowed; return whether it did."""
    try:
        await call
    except KafkaError as error:
        _check_typed(error)
        return True
    return False


def _check_typed(error: KafkaError) -> None:
    if isinstance(error, BackgroundLoopError):
        raise AssertionError(f"a bug in the loop: {error.__cause__!r}") from error
    assert str(error), f"{error!r} says nothing"
    if isinstance(error, CorruptRecordException):
        assert error.topic is None or error.offset is not None


def _check_calm(consumer: Consumer) -> None:
    turns, seconds = consumer.statistics().wake_ups, anyio.current_time()
    assert turns < FIRST_TURNS + seconds * MOST_TURNS, f"{turns} turns of the loop in {seconds:.0f} s"
