"""The background without a clock, a network or an event loop: polls are made and answers given by hand."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from kafka_async import TopicPartition
from kafka_async.background.boundary import EventHandler, FetchBuffer, FetchedData, Parcel
from kafka_async.background.cluster.metrics_source import MetricsSource
from kafka_async.background.loop.assembly import assemble
from kafka_async.background.loop.environment import Environment
from kafka_async.background.loop.request_manager import Poll
from kafka_async.config import ConsumerConfig
from kafka_async.errors import KafkaError
from kafka_async.events import ApplicationEvent, AssignFromUser, BackgroundEvent, ErrorEvent, Seek
from kafka_async.network import ConnectionStatistics, Reachability, UnsentRequest
from kafka_async.testing.server import encode_response
from kafka_async.testing.simulation import PartitionLog
from kafka_async.trace import TraceEvent
from kafka_async.wire import SUPPORTED, Api, BrokerVersions, FetchStep, VersionRange, decode_response
from kafka_async.wire.messages import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    PartitionData,
    Request,
)

R = TypeVar("R", bound=Request[Any])

A, B, C = (TopicPartition("t", index) for index in range(3))
TELEMETRY = BrokerVersions(ranges={key: VersionRange(0, 0) for key in (Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY)})
"""What brokers that offer telemetry say."""
MIDDLE = 0.5
"""The random number that makes a jitter of 20 % none at all."""


def topic_id(name: str, generation: int = 0) -> UUID:
    """Return an id for a topic; another one for each time it is created."""
    return UUID(int=int.from_bytes(name.encode(), "big") * 1000 + generation + 1)


def described(name: str, leaders: Iterable[int], *, epoch: int = 0, generation: int = 0, ids: bool = True) -> MetadataResponseTopic:
    """Return a topic whose partitions are led by these brokers; -1: by none."""
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id(name, generation) if ids else None,
        partitions=tuple(
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=(1, 2, 3))
            for index, leader in enumerate(leaders)
        ),
    )


def cluster(*topics: MetadataResponseTopic, brokers: Iterable[int] = (1, 2, 3), error_code: int = 0) -> MetadataResponse:
    """Return the answer of a cluster with these brokers and topics."""
    return MetadataResponse(
        brokers=tuple(MetadataResponseBroker(node_id=node, host=f"b{node}", port=9092, rack=f"r{node}") for node in brokers),
        cluster_id="c",
        topics=topics,
        error_code=error_code,
    )


def records(start: int, count: int, *, epoch: int = 0, size: int = 1) -> bytes:
    """Return one batch of record data."""
    log = PartitionLog(end=start)
    log.append([b"x" * size] * count, epoch=epoch)
    return log.batches[0].data


def data(partition: TopicPartition, held: bytes = b"", **fields: Any) -> PartitionData:
    """Return one partition's part of a Fetch response."""
    marks = {"high_watermark": 100, "last_stable_offset": 100, "log_start_offset": 0}
    return PartitionData(**{"partition_index": partition.partition, "records": held, **marks, **fields})


def fetched(*parts: PartitionData, name: str = "t", session: int = 7, ids: bool = True, **fields: Any) -> FetchResponse:
    """Return a Fetch response about partitions of one topic."""
    topic = FetchableTopicResponse(topic="" if ids else name, topic_id=topic_id(name) if ids else None, partitions=parts)
    return FetchResponse(session_id=session, responses=(topic,) if parts else (), **fields)


def asked(request: Request[Any]) -> dict[int, int]:
    """Return partition and offset of what a Fetch request names."""
    assert isinstance(request, FetchRequest)
    return {part.partition: part.fetch_offset for topic in request.topics for part in topic.partitions}


class Untouchable(dict[TopicPartition, Any]):
    """Partitions of which nothing but the number may be asked."""

    def _touched(self, *_: object) -> Any:
        raise AssertionError("a partition was looked at")

    __contains__ = __getitem__ = __iter__ = get = items = keys = values = _touched


class FakeNetwork:
    """The network as the background sees it; a test says what it answers."""

    changes = 0

    def __init__(self) -> None:
        self.usable = True
        self.error: KafkaError | None = None
        self.reach = Reachability()
        self.misrouted: KafkaError | None = None
        self.offered: BrokerVersions | None = None

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        super().__setattr__("changes", self.changes + 1)

    def has_usable_node(self, now: float) -> bool:
        return self.usable

    def problem(self) -> KafkaError | None:
        return self.error

    def take_misrouted(self) -> KafkaError | None:
        error, self.misrouted = self.misrouted, None
        return error

    def problems(self) -> list[KafkaError]:
        return [self.error] if self.error is not None else []

    @property
    def unreachable_since(self) -> float | None:
        return self.reach.unreachable_since

    def reachability(self) -> Reachability:
        return self.reach

    def versions(self) -> BrokerVersions | None:
        return self.offered

    def connection_states(self) -> tuple[ConnectionStatistics, ...]:
        return ()


def _whole(message: Request[Any]) -> Request[Any]:
    return message.whole() if isinstance(message, FetchStep) else message


def _as_read(message: Request[Any], outcome: object) -> object:
    """Return what a manager gets: the answer to a step may be one too."""
    if not (isinstance(message, FetchStep) and isinstance(outcome, FetchResponse)):
        return outcome
    newest = SUPPORTED[Api.FETCH].highest
    return decode_response(message, newest, encode_response(outcome, Api.FETCH, newest, 1)[4:])


class World:
    """A ``Background`` with its surroundings."""

    def __init__(self, *, metrics_source: MetricsSource | None = None, **options: Any) -> None:
        self.config = ConsumerConfig.from_options({"auto_offset_reset": "earliest", **options})
        self.handler = EventHandler(lambda: None, lambda: None)
        self.buffer = FetchBuffer(self.config.fetch_buffer_bytes, lambda: None, lambda: None)
        self.network = FakeNetwork()
        self.seen: list[TraceEvent] = []
        self.unsent: list[UnsentRequest] = []
        self.stamps: dict[TopicPartition, int] = {}
        self.wake_at = 0.0
        self.background = assemble(
            self.config,
            self.handler,
            self.buffer,
            Environment(
                network=self.network,
                random=lambda: MIDDLE,
                wall_ms=lambda now: 1_000_000 + int(now * 1000),
                new_member_id=lambda: "me",
                trace=self.seen.append,
                metrics_source=metrics_source,
            ),
        )

    # What the application does.

    def send(self, event: ApplicationEvent) -> None:
        self.handler.add(event)

    def assign(self, *partitions: TopicPartition) -> None:
        self.stamps = {tp: self.stamps.get(tp, max(self.stamps.values(), default=0) + n) for n, tp in enumerate(partitions, 1)}
        self.send(AssignFromUser(stamps=dict(self.stamps)))

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        self.stamps[partition] = max(self.stamps.values()) + 1
        self.send(Seek(partition=partition, stamp=self.stamps[partition], offset=offset, leader_epoch=leader_epoch))

    def read_all(self) -> list[Parcel]:
        """Take what is in the buffer, and give its room back."""
        parcels = []
        while (parcel := self.buffer.take()) is not None:
            parcels.append(parcel)
            if isinstance(parcel, FetchedData):
                self.buffer.release(parcel)
        return parcels

    def events(self) -> list[BackgroundEvent]:
        return list(self.handler.drain_background())

    def errors(self) -> list[KafkaError]:
        return [event.error for event in self.events() if isinstance(event, ErrorEvent)]

    # What the loop does.

    def poll(self, now: float) -> list[Request[Any]]:
        """Poll as the loop does. A ``wake_at`` that is not in the future makes it spin: there must never be one."""
        poll: Poll = self.background.poll(now)
        assert poll.wake_at > now or poll.requests, f"polled at {now}, woken at {poll.wake_at}, with nothing to send"
        self.wake_at = poll.wake_at
        self.unsent += poll.requests
        return [_whole(request.message) for request in poll.requests]

    def find(self, kind: type[R], node_id: int | None = None) -> UnsentRequest:
        """Return the oldest request of a kind that is not answered, and take it for answered."""
        found = self._take(kind, node_id)
        found.message = _whole(found.message)
        return found

    def _take(self, kind: type[R], node_id: int | None) -> UnsentRequest:
        asked = (r for r in self.unsent if node_id is None or r.node_id == node_id)
        found = next(r for r in asked if isinstance(_whole(r.message), kind))
        self.unsent.remove(found)
        return found

    def waiting(self, kind: type[R]) -> list[R]:
        """Return the requests of a kind that are not answered."""
        messages = [_whole(request.message) for request in self.unsent]
        return [message for message in messages if isinstance(message, kind)]

    def answer(self, kind: type[R], outcome: object, now: float, node_id: int | None = None) -> None:
        request = self._take(kind, node_id)
        request.on_done(_as_read(request.message, outcome), now)

    # Shortcuts.

    def learn(self, *topics: MetadataResponseTopic, now: float = 0.0, **fields: Any) -> None:
        """Have the next metadata request answered with these topics."""
        self.poll(now)
        self.answer(MetadataRequest, cluster(*topics, **fields), now)

    def fetching(self, positions: Mapping[TopicPartition, int], leaders: Iterable[int] = (1, 1, 1), **fields: Any) -> None:
        """Assign partitions of topic ``t``, and have them fetched from these positions. It is 0.1 s then."""
        self.assign(*positions)
        for partition, offset in positions.items():
            self.seek(partition, offset)
        topic = described("t", leaders, **fields)
        self.learn(topic)
        self.poll(0.1)
        if self.waiting(MetadataRequest):  # a partition without a leader asked for more while the first request was on its way
            self.answer(MetadataRequest, cluster(topic), 0.1)
        self.poll(0.1)


def until(world: World, condition: Callable[[], bool], start: float, limit: int = 100) -> float:
    """Poll whenever the background wants to be woken, until ``condition`` holds; return when that was."""
    now = start
    for _ in range(limit):
        world.poll(now)
        if condition():
            return now
        now = world.wake_at
    raise AssertionError(f"still waiting at {now}")
