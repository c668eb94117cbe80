"""The background of a share consumer without a clock, a network or an event loop: polls are made and answers given by hand."""

from typing import Any, TypeVar
from uuid import UUID

from kafka_async.background.boundary import EventHandler, Exchange, FetchBuffer
from kafka_async.background.loop.environment import Environment
from kafka_async.background.share.assembly import ShareBackground, assembly
from kafka_async.background.share.orders import Acknowledge, AcknowledgeType, Delivery, Flush, Report
from kafka_async.background.share.share_settings import ShareSettings
from kafka_async.config import ConsumerConfig
from kafka_async.errors import KafkaError
from kafka_async.events import Call, ErrorEvent, ShareEvent, SubscribeTopics
from kafka_async.model import TopicPartition
from kafka_async.network import UnsentRequest
from kafka_async.trace import TraceEvent
from kafka_async.wire import Api, BrokerVersions, VersionRange
from kafka_async.wire.messages import (
    AcquiredRecords,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    Request,
    ShareAcknowledgePartitionResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareAssignment,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    SharePartitionData,
    ShareTopicPartitions,
)
from tests.background.support import MIDDLE, FakeNetwork, cluster, described, records, topic_id

R = TypeVar("R", bound=Request[Any])

TP = TopicPartition("t", 0)
ID: UUID = topic_id("t")
LOCK = 30.0


def taken_in(*partitions: int, epoch: int = 1, changed: bool = True) -> ShareGroupHeartbeatResponse:
    """Return the answer of a coordinator that counts the member in."""
    assignment = ShareAssignment(topic_partitions=(ShareTopicPartitions(topic_id=ID, partitions=partitions),))
    return ShareGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=5000, assignment=assignment if changed else None)


def fetched(*parts: SharePartitionData, **fields: Any) -> ShareFetchResponse:
    """Return a ShareFetch response about partitions of topic ``t``."""
    responses = (ShareFetchableTopicResponse(topic_id=ID, partitions=parts),) if parts else ()
    return ShareFetchResponse(acquisition_lock_timeout_ms=int(LOCK * 1000), responses=responses, **fields)


def acquired(start: int, count: int, partition: int = 0, **fields: Any) -> SharePartitionData:
    """Return records that are locked, each for the first time."""
    ranges = (AcquiredRecords(first_offset=start, last_offset=start + count - 1, delivery_count=1),)
    return SharePartitionData(partition_index=partition, records=records(start, count), acquired_records=ranges, **fields)


class World:
    """A ``ShareBackground`` with its surroundings."""

    def __init__(self, *, settings: ShareSettings | None = None, **options: Any) -> None:
        self.config = ConsumerConfig.of(group_id="g", **options)
        self.handler: EventHandler[ShareEvent] = EventHandler(lambda: None, lambda: None)
        self.exchange = Exchange(self.handler)
        self.network = FakeNetwork()
        self.network.offered = BrokerVersions(ranges={Api.SHARE_ACKNOWLEDGE: VersionRange(1, 2)})
        self.seen: list[TraceEvent] = []
        self.unsent: list[UnsentRequest] = []
        self.wake_at = 0.0
        environment = Environment(
            network=self.network,
            random=lambda: MIDDLE,
            wall_ms=lambda now: int(now * 1000),
            new_member_id=lambda: "me",
            trace=self.seen.append,
        )
        buffer = FetchBuffer(1, lambda: None, lambda: None)
        assemble = assembly(self.exchange, settings or ShareSettings())
        self.background: ShareBackground = assemble(self.config, self.handler, buffer, environment)

    def poll(self, now: float) -> list[Request[Any]]:
        """Poll as the loop does. A ``wake_at`` that is not in the future makes it spin: there must never be one."""
        poll = self.background.poll(now)
        assert poll.wake_at > now or poll.requests, f"polled at {now}, woken at {poll.wake_at}, with nothing to send"
        self.wake_at = poll.wake_at
        self.unsent += poll.requests
        return [request.message for request in poll.requests]

    def waiting(self, kind: type[R]) -> list[R]:
        """Return the requests of a kind that are not answered."""
        return [request.message for request in self.unsent if isinstance(request.message, kind)]

    def answer(self, kind: type[R], outcome: object, now: float) -> R:
        """Answer the oldest request of a kind, and return it."""
        found = next(request for request in self.unsent if isinstance(request.message, kind))
        self.unsent.remove(found)
        found.on_done(outcome, now)
        assert isinstance(found.message, kind)
        return found.message

    def errors(self) -> list[KafkaError]:
        return [event.error for event in self.handler.drain_background() if isinstance(event, ErrorEvent)]

    def reports(self) -> list[Report]:
        found = list(self.exchange.reports)
        self.exchange.reports.clear()
        return found

    # Shortcuts.

    def coordinated(self, now: float = 0.0, leaders: tuple[int, ...] = (1, 1)) -> None:
        """Subscribe to topic ``t``; the cluster and the coordinator, broker 1, are known then."""
        self.exchange.topics = frozenset(("t",))
        self.handler.add(SubscribeTopics(topics=self.exchange.topics, subscription=1))
        self.poll(now)
        self.answer(MetadataRequest, cluster(described("t", leaders)), now)
        self.poll(now)
        if self.waiting(FindCoordinatorRequest):
            self.find_coordinator(now)
        self.poll(now)

    def find_coordinator(self, now: float) -> None:
        """Answer the search for the coordinator: it is broker 1."""
        found = Coordinator(key="g", node_id=1, host="b1", port=9092, error_code=0, error_message=None)
        self.answer(FindCoordinatorRequest, FindCoordinatorResponse(coordinators=(found,)), now)

    def joined(self, *partitions: int, now: float = 0.0, pace: float = LOCK / 30, leaders: tuple[int, ...] = (1, 1)) -> None:
        """Be a member with these partitions, whose application reads, and takes ``pace`` seconds for a record."""
        self.coordinated(now, leaders)
        self.answer(ShareGroupHeartbeatRequest, taken_in(*partitions), now)
        self.handler.reading = 1
        self.handler.polled_at = now
        self.exchange.demand.pace = pace
        self.poll(now)

    def delivered(self, count: int, now: float = 0.0) -> Delivery:
        """Have records of partition 0 delivered, the first session being open then."""
        self.joined(0, now=now)
        self.answer(ShareFetchRequest, fetched(acquired(0, count)), now)
        (delivery,) = self.reports()
        assert isinstance(delivery, Delivery)
        return delivery


def acknowledged(code: int = 0, partition: int = 0, **fields: Any) -> ShareAcknowledgeResponse:
    part = ShareAcknowledgePartitionResponse(partition_index=partition, error_code=code)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=int(LOCK * 1000),
        responses=(ShareAcknowledgeTopicResponse(topic_id=ID, partitions=(part,)),),
        **fields,
    )


def fetch(world: World) -> ShareFetchRequest:
    (found,) = world.waiting(ShareFetchRequest)
    return found


def acknowledgement(world: World) -> ShareAcknowledgeRequest:
    (found,) = world.waiting(ShareAcknowledgeRequest)
    return found


def accept(world: World, delivery: Delivery, *offsets: int, read: int | None = None) -> None:
    """Accept records; the application has read all there are, or ``read`` more."""
    world.exchange.taken = world.exchange.delivered if read is None else world.exchange.taken + read
    for offset in offsets:
        world.exchange.order(Acknowledge(delivery.partition, offset, delivery.number, AcknowledgeType.ACCEPT))


def flush(world: World) -> Call[dict[TopicPartition, KafkaError | None]]:
    call: Call[dict[TopicPartition, KafkaError | None]] = Call(100.0)
    world.exchange.order(Flush(call=call))
    return call
