"""The background of a consumer whose requests are answered with what a broker sent to others (or would send), some of it mutated.

Decides: which answers it gets, in which order, and what the application does meanwhile, from a seeded source of randomness. Owns:
that application. Must never hand out what no broker could have written: every answer has gone through the bytes of its version.

There is no event loop and no network here, so a conversation of dozens of answers takes milliseconds. Whether a consumer recovers
is asked in ``hostile_cluster.py``; here nothing may break: no handler raises, nobody asks without end or is woken in the past.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from itertools import count
from random import Random
from typing import Any, Final

from attrs import define, field, frozen

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.background.boundary import FetchedData
from kafka_async.background.cluster.metrics_source import MetricsSelection
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MalformedResponseError,
    RequestWithdrawnError,
    UnsupportedVersionError,
)
from kafka_async.events import (
    AssignFromUser,
    AssignmentApplied,
    AssignPartitions,
    Call,
    CommitOffsets,
    FindClientInstanceId,
    FindPositions,
    ListOffsets,
    PartitionsAssigned,
    PartitionsRevoked,
    ResetOffset,
    RevokePartitions,
    Seek,
    SubscribeTopics,
    TopicMetadata,
)
from kafka_async.wire import Api, BrokerVersions, Response, decode_response
from tests.background.support import TELEMETRY, World

from .capture import Capture, load
from .made import made
from .mutation import twisted_frame

TURNS: Final = 40
"""Turns of the loop in a conversation."""
MOST_REQUESTS: Final = 30
"""Requests of one turn."""
MOST_EVENTS: Final = 100
"""Events for the application of one turn."""
_TOPICS: Final[Mapping[str | None, str]] = {
    None: "captured-classic",
    "classic": "captured-classic",
    "consumer": "captured-consumer",
}


def _read(capture: Capture) -> Response:
    asked = capture.asked
    assert asked.request is not None, "a capture of a version that is not spoken any more"
    response: Response = decode_response(asked.request, asked.version, capture.response)
    return response


@cache
def _said(topic: str) -> Mapping[Api, list[tuple[Capture, Response]]]:
    """Return what brokers sent, by API, except what is about another topic."""
    captures = [(capture, _read(capture)) for capture in load()]
    ids = {
        described.topic_id: described.name
        for _, response in captures
        for described in getattr(response, "topics", ())
        if getattr(described, "name", None) and getattr(described, "topic_id", None)
    }
    foreign = [bytes(name or "", "ascii") for name in ids.values() if name != topic]
    foreign += [topic_id.bytes for topic_id, name in ids.items() if name != topic]
    found: dict[Api, list[tuple[Capture, Response]]] = defaultdict(list)
    for capture, response in (*captures, *((capture, _read(capture)) for capture in made())):
        if not any(word in capture.response or word in capture.request for word in foreign):
            found[capture.asked.api].append((capture, response))
    return found


@frozen
class _Metrics:
    """A ``MetricsSource`` that measures nothing."""

    random: Random

    def prepare(self) -> None: ...

    def encode(self, wanted: MetricsSelection, now: float) -> bytes:
        return bytes(self.random.choice((0, 9, 2000)))

    def delivered(self) -> None: ...


@define(eq=False)
class Conversation:
    """A background, an application that does what it should and a little more, and a broker that lies."""

    random: Random
    protocol: str | None
    likely: float
    """Share of the answers that are twisted."""
    world: World = field(init=False)
    twisted: int = 0
    """Answers that differ from what a broker sent."""
    asked: set[Api] = field(factory=set)
    """What was asked for, and answered or refused."""
    owned: frozenset[TopicPartition] = frozenset()
    stamps: "count[int]" = field(factory=lambda: count(1000))
    given: dict[TopicPartition, int] = field(factory=dict)
    """Stamps of the assigned partitions."""

    def __attrs_post_init__(self) -> None:
        options: dict[str, Any] = {"group_id": f"{self.protocol}-group", "group_protocol": self.protocol} if self.protocol else {}
        self.world = World(metrics_source=_Metrics(self.random), **options)
        self.world.network.offered = self.random.choice((None, BrokerVersions(), TELEMETRY, TELEMETRY))

    @property
    def topic(self) -> str:
        return _TOPICS[self.protocol]

    def take_place(self) -> None:
        """Have it, from the first word to whatever comes of it. Raises ``AssertionError``, or what a handler raised."""
        now = 0.0
        if self.protocol:
            self.world.send(SubscribeTopics(topics=frozenset({self.topic})))
        else:
            self._apply(frozenset(TopicPartition(self.topic, index) for index in range(2)), by_user=True)
        for _ in range(TURNS):
            requests = self.world.poll(now)
            assert len(requests) <= MOST_REQUESTS, f"{len(requests)} requests in one turn"
            self._answer(now)
            self._follow()
            self._meddle(now)
            now = max(now, min(self.world.wake_at, now + self.random.choice((0.0, 0.01, 1.0, 60.0))))

    # --- the broker ------------------------------------------------------------------------------------------------------------

    def _answer(self, now: float) -> None:
        waiting, self.world.unsent = self.world.unsent, []
        self.random.shuffle(waiting)
        for request in waiting:
            if request.withdrawn():
                request.on_done(RequestWithdrawnError(), now)
                continue
            if self.random.random() < 0.05:
                self.world.unsent.append(request)
            else:
                request.on_done(self._outcome(request.message.api), now)

    def _outcome(self, api: Api) -> Response | KafkaError:
        self.asked.add(api)
        chance = self.random.random()
        if chance < 0.03:
            return self.random.choice((KafkaConnectionError("cut"), KafkaTimeoutError("late"), MalformedResponseError("?")))
        said = _said(self.topic)[api]
        if not said:
            return UnsupportedVersionError(f"no request was made of {api.name}")
        capture, response = self.random.choice(said)
        return self._twisted(capture, response) if chance < self.likely else response

    def _twisted(self, capture: Capture, response: Response) -> Response:
        asked = capture.asked
        assert asked.request is not None
        while True:
            frame = twisted_frame(self.random, response, asked.api, asked.version)
            try:
                changed: Response = decode_response(asked.request, asked.version, frame[4:])
            except MalformedResponseError:
                continue
            self.twisted += 1
            return changed

    # --- the application -------------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        for parcel in self.world.read_all():
            assert not isinstance(parcel, FetchedData) or parcel.partition.topic == self.topic
        events = self.world.events()
        assert len(events) <= MOST_EVENTS, f"{len(events)} events in one turn"
        for event in events:
            match event:
                case AssignPartitions():
                    self._apply(event.partitions)
                    self.world.send(PartitionsAssigned(number=event.number))
                case RevokePartitions():
                    self._apply(self.owned - event.partitions)
                    self.world.send(PartitionsRevoked(number=event.number))

    def _apply(self, partitions: frozenset[TopicPartition], *, by_user: bool = False) -> None:
        self.owned = partitions
        self.given = {partition: self.given.get(partition) or next(self.stamps) for partition in partitions}
        event = AssignFromUser if by_user else AssignmentApplied
        self.world.send(event(stamps=dict(self.given)))

    def _meddle(self, now: float) -> None:
        """Ask for something, as applications do."""
        call: Call[Any] = Call(now + 5)
        if self.random.random() < 0.05:
            self.world.send(FindClientInstanceId(call=call))
        for partition in self.owned:
            match self.random.randrange(30):
                case 0:
                    self.world.send(CommitOffsets(call=call, offsets={partition: OffsetAndMetadata(1, "", None)}))
                case 1:
                    self.given[partition] = stamp = next(self.stamps)
                    self.world.send(Seek(partition=partition, stamp=stamp, offset=self.random.randrange(20), leader_epoch=0))
                case 2:
                    self.given[partition] = stamp = next(self.stamps)
                    self.world.send(ResetOffset(stamps={partition: stamp}, strategy="earliest"))
                case 3:
                    self.world.send(ListOffsets(call=call, timestamps={partition: 0}))
                case 4:
                    self.world.send(FindPositions(call=call, partitions=frozenset({partition})))
                case 5:
                    self.world.send(TopicMetadata(call=call, topics=frozenset({self.topic})))


def converse(random: Random) -> Conversation:
    """Have a conversation."""
    conversation = Conversation(random, random.choice((None, "classic", "consumer")), random.choice((0.1, 0.3, 0.6)))
    conversation.take_place()
    return conversation
