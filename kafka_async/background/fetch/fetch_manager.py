"""Reading ahead: the Fetch request manager.

Decides: which broker is asked for which partitions, how much at a time, and what every error code of a response means. Owns:
one fetch session per broker and the requests in flight. Must never look inside records (``measure`` reads batch headers to
learn the next offset) and never hold data: a response goes into the buffer at once, and the position moves past it.

Fetching is continuous: a broker gets its next request as soon as its answer is in the buffer, as far as there is room for it
(KIP-74, KIP-81). Partitions with unread data stay in the session as long as they are under their share of the buffer, so that one
slow partition cannot fill it, and a broker's session is not churned (KAFKA-17182). The work depends on the number of changes, not
on partitions times turns: 1,000 idle partitions cost nothing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import (
    BrokerResponseError,
    CorruptRecordException,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownError,
    for_code,
)
from ...model import IsolationLevel, Node, TopicPartition
from ...network import LATE, Channel, UnsentRequest
from ...records import measure
from ...trace import Fault, Fetched, Listener, Recovered
from ...values import defaults_of, define, field
from ...wire import FetchedStep, FetchStep
from ...wire.messages import FetchRequest, FetchResponse, PartitionData
from ..boundary import EventHandler, FetchBuffer, FetchedData, Watermarks
from ..by_topic import named
from ..cluster.cluster_view import ClusterChanges, Leader
from ..cluster.metadata import MetadataManager
from ..loop.request_manager import NEVER, Backoff, Poll, backoff_of, retry_delay
from ..positions.partition_outage import PartitionOutage
from ..positions.positions import PositionsManager
from ..positions.subscription import FetchPosition, FetchState, PartitionState, PreferredReplica, SubscriptionState
from .fetch_session import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, SessionRequest, Wanted
from .fetch_size import FULL, FetchSize

_READING: Final = "reading"
"""Outage of partitions that cannot be fetched."""
_SESSION_ERRORS: Final = (FetchSessionIdNotFound.errno, InvalidFetchSessionEpoch.errno, FetchSessionTopicIdError.errno)
_SENT_AT: Final = attrgetter("sent_at")
_USUAL_BYTES: Final = defaults_of(ConsumerConfig)["max_partition_fetch_bytes"]
_REQUEST_SHARE: Final = 4
"""One request asks for at most this part of the buffer, so that receive buffers stay small and several brokers get a turn."""
_SHORT_WAIT_MS: Final = 50
"""Milliseconds that a broker may hold a request for what is asked for, while others give way."""


@define(eq=False)
class _Broker:
    """The conversation with one broker."""

    node_id: int
    backoff: Backoff
    size: FetchSize
    """What one of its partitions may bring in one answer."""
    session: FetchSession = field(factory=FetchSession)
    reserved: int | None = None
    """Bytes that the request in flight may bring; ``None``: none is in flight."""
    sent_at: float = 0.0
    misfit: bool = False
    """Its last incremental response was of another session."""
    suspected_at: float = NEVER
    """When the response is so late that the cluster is asked whether other brokers lead the partitions by now."""


@define(eq=False)
class _Timers:
    """When partitions are to be looked at again."""

    next: float = NEVER
    """When the first of them is due."""
    _heap: list[tuple[float, TopicPartition]] = field(factory=list)
    _set: set[tuple[float, TopicPartition]] = field(factory=set)
    """What is in the heap: a partition is placed after every answer, and its lease of a replica is the same each time."""

    def set(self, partition: TopicPartition, at: float) -> None:
        if (at, partition) not in self._set:
            self._set.add((at, partition))
            heappush(self._heap, (at, partition))
            self.next = self._heap[0][0]

    def due(self, now: float) -> Iterator[TopicPartition]:
        """Yield the partitions whose time has come, and forget them."""
        while self._heap and self._heap[0][0] <= now:
            timer = heappop(self._heap)
            self._set.discard(timer)
            self.next = self._heap[0][0] if self._heap else NEVER
            yield timer[1]


@define(eq=False)
class _Leaderless:
    """Partitions that wait for the metadata to name a leader whose address is known."""

    partitions: set[TopicPartition] = field(factory=set)
    _seen: int = -1

    def after(self, version: int) -> set[TopicPartition]:
        """Return the partitions to look at again, if the cluster is known in another version than before."""
        found: set[TopicPartition] = set()
        if version != self._seen:
            found, self.partitions = self.partitions, found
        self._seen = version
        return found


@define(eq=False)
class _LeftOut:
    """Partitions for which there is no room at the moment."""

    partitions: set[TopicPartition] = field(factory=set)
    """Their share of the buffer is unread, or they give way."""
    first: frozenset[TopicPartition] = frozenset()
    """What all others give way to, since reads wait for it."""

    def gives_way(self, partition: TopicPartition) -> bool:
        return bool(self.first) and partition not in self.first


@define(eq=False)
class FetchManager:
    """Fetches the partitions that are assigned, have a position and are not paused."""

    config: ConsumerConfig
    subscription: SubscriptionState = field(repr=False)
    metadata: MetadataManager = field(repr=False)
    positions: PositionsManager = field(repr=False)
    buffer: FetchBuffer = field(repr=False)
    handler: EventHandler = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    _brokers: dict[int, _Broker] = field(factory=dict, init=False)
    _placed: dict[TopicPartition, tuple[int, int]] = field(factory=dict, init=False)
    """The broker that each partition is read from, and the version of the cluster that this was decided by."""
    _changed: set[TopicPartition] = field(factory=set, init=False)
    _left_out: _LeftOut = field(factory=_LeftOut, init=False)
    _leaderless: _Leaderless = field(factory=_Leaderless, init=False)
    _timers: _Timers = field(factory=_Timers, init=False)
    _outage: PartitionOutage = field(init=False)

    def __attrs_post_init__(self) -> None:
        patience = max(self.config.request_timeout_ms / 2000, 2 * self.config.retry_backoff_max)
        self._outage = PartitionOutage(self.trace, _READING, "cannot be fetched at the moment; trying again", patience)

    def changed(self, partition: TopicPartition) -> None:
        """Something about the partition changed; it is looked at again at the next poll."""
        self._changed.add(partition)

    def cluster_changed(self, changes: ClusterChanges, now: float) -> None:
        """See ``ClusterListener``."""
        for partition in changes.leaders:
            entry = self.subscription.get(partition)
            if entry is not None and entry.setbacks.failures:
                self.subscription.wait(entry, now)  # what one broker refuses another one may give
        self._changed |= changes.leaders

    # --- deciding --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the Fetch requests that may go out now."""
        # Hungry while we look: bytes that the application's thread releases after our look at the room must wake us.
        was_hungry, self.buffer.hungry = self.buffer.hungry, True
        hungry = starving = False
        if self.buffer.asked or self._left_out.first:
            self._give_way()
        self._place_changed(now)
        requests: list[UnsentRequest] = []
        wake_at = self._timers.next
        asked = 0
        idle: list[_Broker] = []
        for broker in self._brokers.values():
            if broker.session.wanted:
                asked += 1
                if broker.reserved is None:
                    idle.append(broker)
                else:
                    wake_at = min(wake_at, self._suspect(broker, now))
        # The partition that waited longest goes first: in a fixed order the first ones would take all the room, and the last get
        # none.
        idle.sort(key=_SENT_AT)
        for broker in idle:
            if broker.node_id not in self.metadata.cluster.nodes:
                self.metadata.need_leader(now)  # a request would only be refused, and cost a backoff
            elif not broker.backoff.ready(now):
                wake_at = min(wake_at, broker.backoff.retry_at)
            elif size := self._request_size(len(idle), asked, broker):
                requests.append(self._request(broker, size, now))
            else:
                hungry = True
                starving = starving or not self.buffer.asked.isdisjoint(broker.session.wanted)
        self.buffer.announce()  # the application gets its turn after this one of the loop, which sends the requests
        self.buffer.hungry = hungry or bool(self._left_out.partitions)
        was_starving, self.buffer.starving = self.buffer.starving, starving
        if (self.buffer.hungry and not was_hungry) or (starving and not was_starving):
            self.buffer.on_parcel()  # a read that waits for a partition without room can say so, or give back what others hold
        return Poll(tuple(requests), wake_at)

    def _place_changed(self, now: float) -> None:
        """Look again at every partition that changed."""
        if self._timers.next <= now:
            self._changed.update(self._timers.due(now))
        if self._outage.failing:
            self._outage.keep(self.subscription.partitions)
            self._show_refused()
        self._changed |= self._leaderless.after(self.metadata.cluster.version)
        if self._left_out.partitions:
            left_out, share = self._left_out, self._share()
            self._changed |= {tp for tp in left_out.partitions if self.buffer.unread(tp) < share and not left_out.gives_way(tp)}
            left_out.partitions -= self._changed
        for partition in self._changed:
            self._place(partition, now)
        self._changed.clear()

    def _give_way(self) -> None:
        """Leave partitions out that no read waits for, while there is room only for those that one does."""
        useful = self._useful()
        first = self.buffer.asked if self.buffer.room() - self._reserved() - useful < useful else frozenset()
        if first != self._left_out.first:
            self._left_out.first = first
            self._changed.update(self._placed)

    def _suspect(self, broker: _Broker, now: float) -> float:
        """Ask the cluster about a broker that does not respond, and again after twice the time. Return when to check next.

        The sequence that costs a request timeout: the leader freezes with our request, its connection stays open, and the cluster
        elects another one within seconds.
        """
        if broker.suspected_at <= now:
            broker.suspected_at = now + (now - broker.sent_at)
            self.metadata.request_update(now)
        return broker.suspected_at

    def poll_on_close(self, now: float) -> Poll:
        """Close the sessions of brokers that have no request of ours to answer first: a long poll is never waited for."""
        requests = []
        for broker in self._brokers.values():
            if broker.reserved is None and broker.session.session_id:
                last = SessionRequest(session_id=broker.session.session_id, epoch=FINAL_EPOCH, topics=(), forgotten=())
                requests.append(
                    UnsentRequest(
                        message=self._message(last, 0, max_wait_ms=0),
                        node_id=broker.node_id,
                        channel=Channel.FETCH,
                        on_done=lambda *_: None,
                        expires_at=now + 1.0,
                        final=True,
                    )
                )
        return Poll(tuple(requests))

    def _share(self) -> int:
        """Bytes that one partition may have unread before it is left out for a while."""
        partitions = max(1, len(self.subscription.partitions))
        return max(self.config.max_partition_fetch_bytes, self.buffer.limit // (2 * partitions))

    def _reserved(self) -> int:
        """Return the bytes that the requests in flight may bring."""
        reserved = 0
        for broker in self._brokers.values():
            reserved += broker.reserved or 0
        return reserved

    def _useful(self) -> int:
        """Return the bytes of the smallest request that is worth it if nobody waits for it."""
        return min(self.config.max_partition_fetch_bytes, max(self.buffer.limit // _REQUEST_SHARE, 1))

    def _request_size(self, idle: int, brokers: int, broker: _Broker) -> int:
        """Return the bytes that the next request to a broker may ask for, or 0 if there is no room for a useful one.

        An empty partition's request holds its share for as long as its broker waits, so the shares are such that all have room.

        The sequence that fetches the same data again and again: reads of a busy partition and of a quiet one take turns, and
        whenever the quiet one is read, the busy one has filled the buffer. So room for one request is kept for what is asked for.
        """
        is_for_all = not self.buffer.asked or not broker.session.wanted.keys() <= self.buffer.asked
        spare = self._useful() if is_for_all and len(self.subscription.partitions) > 1 else 0
        reserved = self._reserved()
        room = self.buffer.room() - reserved - spare
        share = (self.buffer.limit - spare) // max(brokers, _REQUEST_SHARE)
        cap = max(1, min(self.config.fetch_max_bytes, share))  # 0 is allowed: one batch at a time
        size = min(cap, room // idle)
        # What a read waits for is worth any request: dropping what others have fetched, to have room for more, costs more.
        useful = min(self.config.max_partition_fetch_bytes, cap) if spare or not self._left_out.first else 1
        if size >= useful:
            return size
        if room >= useful:
            return useful
        return cap if reserved == 0 and self.buffer.total.unread == 0 else 0

    def _place(self, partition: TopicPartition, now: float) -> None:
        """Put the partition into the session of the broker it is to be read from, and out of any other."""
        entry = self.subscription.get(partition)
        node_id, how = self._how(entry, now) if entry is not None else (None, None)
        before = self._placed.get(partition)
        if before is not None and before[0] != node_id:
            del self._placed[partition]
            self._brokers[before[0]].session.want(partition, None)
        if node_id is not None:
            self._placed[partition] = (node_id, self.metadata.cluster.version)
            self._broker(node_id).session.want(partition, how)

    def _goes_on(self, broker: _Broker, entry: PartitionState) -> bool:
        """Request the next data of a partition that only advanced; ``False``: it has to be placed, which does the same.

        Nearly every response takes this path. Anything else that happens to a partition adds it to those that changed, or changes
        the cluster.
        """
        partition, position = entry.partition, entry.position
        wanted = broker.session.wanted.get(partition)
        if wanted is None or position is None or entry.replica is not None or partition in self._changed:
            return False
        if self._placed.get(partition) != (broker.node_id, self.metadata.cluster.version):
            return False
        if not entry.fetchable or (self._left_out.first and self._left_out.gives_way(partition)):
            return False
        unread = self.buffer.unread(partition)
        if unread >= self.config.max_partition_fetch_bytes and unread >= self._share():  # a share is not less than the former
            return False
        broker.session.want(partition, Wanted(wanted.topic_id, position.offset, broker.size.bytes, wanted.leader_epoch))
        return True

    def _how(self, entry: PartitionState, now: float) -> tuple[int | None, Wanted | None]:
        if not entry.fetchable or entry.position is None:
            return None, None
        if entry.retry_at > now:
            self._timers.set(entry.partition, entry.retry_at)
            return None, None
        if self._left_out.gives_way(entry.partition) or self.buffer.unread(entry.partition) >= self._share():
            self._left_out.partitions.add(entry.partition)
            return None, None
        leader = self.metadata.cluster.leader(entry.partition)
        if leader is None:
            self.metadata.need_leader(now)
            self._leaderless.partitions.add(entry.partition)
            return None, None
        node_id = leader.node_id
        if entry.replica is not None:
            if entry.replica.until <= now or entry.replica.node_id not in self.metadata.cluster.nodes:
                self.subscription.end_lease(entry)
            else:
                node_id = entry.replica.node_id
                self._timers.set(entry.partition, entry.replica.until)
        size = self._broker(node_id).size.bytes
        return node_id, Wanted(self.metadata.cluster.topic_id(entry.partition.topic), entry.position.offset, size, leader.epoch)

    def _broker(self, node_id: int) -> _Broker:
        broker = self._brokers.get(node_id)
        if broker is None:
            backoff = backoff_of(self.config, self.random)
            broker = self._brokers[node_id] = _Broker(node_id, backoff, self._first_size())
        return broker

    def _first_size(self) -> FetchSize:
        """Return a size that begins at ``max_partition_fetch_bytes``, and grows unless the user has set that option."""
        wished = self.config.max_partition_fetch_bytes
        most = max(self.buffer.limit // _REQUEST_SHARE, 1)
        least = min(wished, most)
        return FetchSize(least, most if wished == _USUAL_BYTES else least)

    def _message(self, session: SessionRequest, size: int, max_wait_ms: int) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=size,
            isolation_level=int(self.config.isolation_level is IsolationLevel.READ_COMMITTED),
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=session.topics,
            forgotten_topics_data=session.forgotten,
            rack_id=self.config.client_rack,
        )

    def _step(
        self, session: FetchSession, partition: TopicPartition, topic_id: UUID, how: Wanted, size: int, max_wait_ms: int
    ) -> FetchStep:
        return FetchStep(
            session_id=session.session_id,
            session_epoch=session.epoch,
            topic=partition.topic,
            topic_id=topic_id,
            partition=partition.partition,
            leader_epoch=-1 if how.leader_epoch is None else how.leader_epoch,
            offset=how.offset,
            partition_max_bytes=how.max_bytes,
            max_wait_ms=max_wait_ms,
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=size,
            isolation_level=int(self.config.isolation_level is IsolationLevel.READ_COMMITTED),
            rack_id=self.config.client_rack,
        )

    def _request(self, broker: _Broker, size: int, now: float) -> UnsentRequest:
        session = broker.session
        step = session.step()
        # Those that give way cannot be asked for meanwhile, and the read that they give way to may end at any time.
        max_wait_ms = min(self.config.fetch_max_wait_ms, _SHORT_WAIT_MS) if self._left_out.first else self.config.fetch_max_wait_ms
        message: FetchRequest | FetchStep = (
            self._step(session, *step, size, max_wait_ms) if step is not None else self._message(session.build(), size, max_wait_ms)
        )
        broker.reserved = size
        broker.sent_at = now
        broker.suspected_at = now + max_wait_ms / 1000 + LATE
        return UnsentRequest(
            message=message,
            node_id=broker.node_id,
            channel=Channel.FETCH,
            on_done=partial(self._answered, broker),
            expires_at=now + (self.config.request_timeout_ms + self.config.fetch_max_wait_ms) / 1000,
            max_wait=max_wait_ms / 1000,
        )

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def _answered(self, broker: _Broker, outcome: object, now: float) -> None:
        broker.reserved = None
        if isinstance(outcome, FetchResponse) and outcome.error_code:
            self._refused(broker, outcome.error_code, now)
        elif not isinstance(outcome, (FetchedStep, FetchResponse)):
            self._request_failed(broker, outcome, now)
        elif isinstance(outcome, FetchedStep):
            partition = broker.session.partition(outcome.topic_id, outcome.partition_index)
            if partition not in broker.session.sent:
                self._misfit(broker, now)
                return
            if broker.backoff.failures:
                self._recovered(broker, now)
            broker.session.succeeded(outcome.session_id, 1)
            self._read_step(broker, outcome, partition, now)
        else:
            self._read_answer(broker, outcome, now)

    def _read_answer(self, broker: _Broker, answer: FetchResponse, now: float) -> None:
        session = broker.session
        names = ((session.name(topic.topic, topic.topic_id) or "", topic) for topic in answer.responses)
        about = {TopicPartition(name, part.partition_index): part for name, topic in names for part in topic.partitions}
        if not session.fits(about):
            self._misfit(broker, now)
            return
        # A full response always fits: only an incremental one shows that the broker has our session.
        if broker.backoff.failures and not (broker.misfit and session.epoch == INITIAL_EPOCH and answer.session_id):
            self._recovered(broker, now)
        session.succeeded(answer.session_id, len(about))
        self._read(broker, answer, about, now)

    def _recovered(self, broker: _Broker, now: float) -> None:
        self.trace(Recovered(now=now, outage=_outage(broker), subject="fetch"))
        broker.backoff.succeeded()
        broker.misfit = False

    def _misfit(self, broker: _Broker, now: float) -> None:
        """The response is about other partitions than the session: read nothing of it, and begin a new session.

        The sequence that sends thousands of requests a second: a proxy swaps two brokers whose sessions have the same id, so each
        answers at once for the partitions of the other, again and again.
        """
        broker.misfit = True
        broker.session.reset()
        broker.backoff.failed(now)
        self.metadata.request_update(now)
        text = f"broker {broker.node_id} answers for another fetch session than ours; beginning a new one"
        self.trace(Fault(now=now, text=text, subject="fetch", outage=_outage(broker)))

    def _refused(self, broker: _Broker, error_code: int, now: float) -> None:
        if error_code in _SESSION_ERRORS:
            if error_code == FetchSessionTopicIdError.errno:
                broker.backoff.failed(now)  # metadata without topic ids: a full request right away would fail in the same way
                self.metadata.request_update(now)
            elif broker.session.epoch == INITIAL_EPOCH:
                broker.backoff.failed(now)  # this was a full request: the next one may fail in the same way
            broker.session.reset(keep_id=error_code != FetchSessionIdNotFound.errno)
        else:
            self._request_failed(broker, for_code(error_code), now)

    def _request_failed(self, broker: _Broker, outcome: object, now: float) -> None:
        """The broker is gone or refuses us: its fetch session is in doubt, and its partitions may be led elsewhere by now."""
        broker.session.reset()
        broker.backoff.failed(now)
        self.metadata.request_update(now)
        for partition, (node_id, _) in tuple(self._placed.items()):
            entry = self.subscription.get(partition)
            if node_id == broker.node_id and entry is not None:
                if entry.replica is not None and entry.replica.node_id == node_id:
                    self.subscription.read_from(entry, None)
                self._changed.add(partition)
        if isinstance(outcome, KafkaError) and not outcome.retriable:
            self.handler.publish_error(outcome, to_all=True)  # another attempt would fail too
        error = outcome if isinstance(outcome, BaseException) else None
        text = f"fetch from broker {broker.node_id} failed; trying again"
        self.trace(Fault(now=now, text=text, error=error, subject="fetch", outage=_outage(broker)))

    def _read_step(self, broker: _Broker, step: FetchedStep, partition: TopicPartition, now: float) -> None:
        """The same as ``_read``, for a response with records of one partition."""
        entry = self.subscription.partitions.get(partition)
        sent = broker.session.sent.get(partition)
        if entry is None or sent is None or not _expected(entry, sent):
            return  # assigned away, sought elsewhere or reset while the answer was on its way
        waited = self._waited(now)
        self._accept(broker, entry, sent, step, now)
        fill = len(step.records) / sent.max_bytes
        if fill >= FULL or broker.size.has_grown:
            broker.size.answered(fill, waited, len(broker.session.wanted))
        if self._outage.failing:
            self._outage.report((), (partition,), now)
            self._show_refused()

    def _waited(self, now: float) -> float:
        """Return how long the application has been waiting for records, in seconds."""
        return now - self.handler.polled_at if self.handler.reading and not self.buffer.parcels else 0.0

    def _read(self, broker: _Broker, response: FetchResponse, about: Mapping[TopicPartition, PartitionData], now: float) -> None:
        endpoints: dict[int, Node] = {}
        for node in response.node_endpoints:
            endpoints[node.node_id] = Node(node.node_id, node.host, node.port, node.rack)
        failed: dict[type[KafkaError], tuple[KafkaError, set[TopicPartition]]] = {}
        well: set[TopicPartition] = set()
        waited = self._waited(now)
        fill = 0.0
        for partition, data in about.items():
            entry = self.subscription.get(partition)
            sent = broker.session.sent[partition]
            if entry is None or not _expected(entry, sent):
                continue  # assigned away, sought elsewhere or reset while the answer was on its way
            if data.error_code:
                error = self._partition_failed(entry, sent, data, endpoints, now)
                if error is not None:
                    failed.setdefault(type(error), (error, set()))[1].add(partition)
            else:
                well.add(partition)
                fill = max(fill, len(data.records or b"") / sent.max_bytes)
                self._accept(broker, entry, sent, data, now)
        if fill >= FULL or broker.size.has_grown:
            broker.size.answered(fill, waited, len(broker.session.wanted))
        if failed or self._outage.failing:
            self._outage.report(failed.values(), well, now, broker.sent_at)
            self._tell_of_refused([tp for _, partitions in failed.values() for tp in partitions], broker.sent_at, now)

    def _accept(self, broker: _Broker, entry: PartitionState, sent: Wanted, data: PartitionData | FetchedStep, now: float) -> None:
        partition = entry.partition
        self.buffer.watermarks[partition] = Watermarks(
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark,
            log_start_offset=data.log_start_offset,
            fetched_at=now,
        )
        if not data.records:
            self.subscription.served(entry)
        if data.preferred_read_replica >= 0 and data.preferred_read_replica != broker.node_id:
            self._redirect(entry, data.preferred_read_replica, now)
        if not data.records:
            return
        committed_only = self.config.isolation_level is IsolationLevel.READ_COMMITTED
        aborted = tuple((txn.producer_id, txn.first_offset) for txn in data.aborted_transactions or ()) if committed_only else ()
        parcel = FetchedData(
            partition=partition,
            stamp=entry.stamp,
            fetch_offset=sent.offset,
            records=data.records,
            aborted=aborted,
            topic_id=sent.topic_id,
        )
        span = measure(data.records, sent.offset)
        epoch = span.leader_epoch
        if epoch is None and entry.position is not None:
            epoch = entry.position.offset_epoch
        self.subscription.advance(
            entry,
            FetchPosition(max(span.next_offset, sent.offset), epoch),
            checked_epoch=sent.leader_epoch,
            suspended=span.corrupt or span.next_offset <= sent.offset,  # the reader reports why, after the good records before it
        )
        self.buffer.put(parcel)
        if not self._goes_on(broker, entry):
            self._changed.add(partition)
        size = len(data.records)
        self.trace(Fetched(now=now, topic=partition.topic, partition=partition.partition, size=size, latency=now - broker.sent_at))

    def _redirect(self, entry: PartitionState, replica: int, now: float) -> None:
        """Read from the replica that the broker names (KIP-392).

        The sequence that spins: the leader names a follower that metadata does not list (it has just come back), so the leader is
        asked again, and answers at once. Likewise two brokers that name each other. Hence a second redirection without a record in
        between waits, and an unknown replica makes metadata be requested.
        """
        if replica in self.metadata.cluster.nodes:
            self.subscription.read_from(entry, PreferredReplica(replica, now + self.config.metadata_max_age_ms / 1000))
        else:
            self.metadata.request_update(now)
        if entry.setbacks.redirected or replica not in self.metadata.cluster.nodes:
            self.subscription.delay(entry, now + self.config.retry_backoff_max)
        self.subscription.count_redirection(entry)

    def _partition_failed(
        self, entry: PartitionState, sent: Wanted, data: PartitionData, endpoints: dict[int, Node], now: float
    ) -> BrokerResponseError | None:
        """Java's ``FetchCollector.handleInitializeErrors``, per error code. Return the error of a partition that fails.

        No error of a broker stops a partition: whatever it is, it may pass, or another broker may not have it.
        """
        error = for_code(data.error_code)
        if isinstance(error, OffsetOutOfRangeError):
            if entry.replica is not None:
                self.subscription.read_from(entry, None)  # the follower may lag: ask the leader before believing it
            else:
                self.positions.out_of_range(entry, now)
            return None
        hint = data.current_leader
        epoch = hint.leader_epoch if hint.leader_epoch >= 0 else None
        if hint.leader_id >= 0 and self.metadata.update_leader(entry.partition, Leader(hint.leader_id, epoch), endpoints, now):
            return None
        if entry.replica is not None:
            self.subscription.read_from(entry, None)
        return self._try_again(entry, error, now)

    def _try_again(self, entry: PartitionState, error: BrokerResponseError, now: float) -> BrokerResponseError:
        delay = retry_delay(self.config, entry.setbacks.failures)
        if isinstance(error, TopicAuthorizationFailedError):
            # Access can be given at any time: keep asking, but not often. With the text of the metadata, so that the error comes
            # once of a topic, and not once for each partition, when access was given back long ago.
            error = for_code(error.errno, topic=entry.partition.topic)
            self.handler.publish_error(error)
            delay = self.config.retry_backoff_max
        elif _is_refusal(error) and entry.setbacks.failures:
            delay = self.config.retry_backoff_max
        self.subscription.delay(entry, now + delay)
        if error.invalid_metadata:
            self.metadata.request_update(now)
        return error

    def _tell_of_refused(self, failed: Collection[TopicPartition], sent_at: float, now: float) -> None:
        """Tell the application, after each request timeout, of those partitions that failed now and that brokers refuse to read.

        What counts is when the request was sent: if the event loop was blocked since, the answer says nothing about that time.
        """
        self._show_refused()
        overdue: dict[type[KafkaError], tuple[KafkaError, list[TopicPartition]]] = {}
        for partition in filter(self.buffer.refused.__contains__, failed):
            error, since, _ = self._outage.failing[partition]
            told_already = error is None or isinstance(error, TopicAuthorizationFailedError)
            if error is not None and not told_already and sent_at - since >= self.config.request_timeout_ms / 1000:
                overdue.setdefault(type(error), (error, []))[1].append(partition)
        for error, partitions in overdue.values():
            self._outage.told(partitions, now)
            self.handler.publish_error(self._naming(error, partitions))

    def _naming(self, error: KafkaError, partitions: list[TopicPartition]) -> KafkaError:
        first = partitions[0]
        text = f"{named(partitions)}: {error.args[0]}"
        if isinstance(error, CorruptRecordException):
            entry = self.subscription.get(first)
            offset = entry.position.offset if entry is not None and entry.position is not None else None
            return CorruptRecordException(text, topic=first.topic, partition=first.partition, offset=offset)
        return for_code(getattr(error, "errno", UnknownError.errno), text)

    def _show_refused(self) -> None:
        """Keep what the application sees of partitions that fail."""
        failing = self._outage.failing.items()
        refused = {partition: error for partition, (error, _, _) in failing if error is not None and _is_refusal(error)}
        if refused.keys() != self.buffer.refused.keys():
            self.buffer.refused = refused


def _is_refusal(error: KafkaError) -> bool:
    """Whether an error is more than a moment of the cluster's life, such as an election. It may pass all the same."""
    return isinstance(error, CorruptRecordException) or not (error.retriable or isinstance(error, UnknownError))


def _outage(broker: _Broker) -> str:
    return f"fetching from broker {broker.node_id}"


def _expected(entry: PartitionState, sent: Wanted) -> bool:
    """Whether an answer is still about the partition's position."""
    return entry.state is FetchState.FETCHING and entry.position is not None and entry.position.offset == sent.offset
