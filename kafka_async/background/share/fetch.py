"""Reading and acknowledging: the ShareFetch and ShareAcknowledge request manager (KIP-932).

It has a session for each broker, the locks, and the acknowledgements on their way. Records are unpacked and handed over at once.

A broker has one request of ours at a time, since the session's epoch goes up with each. So an acknowledgement cannot overtake a
long poll. That is why a poll is long only while no record is locked, and why brokers answer at once while some are unread. A
session lives as long as its connection. When that breaks, the broker releases all that it had locked for us: the records that we
hold from it are lost, and acknowledgements without an answer are sent once more.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from math import inf
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import (
    BrokerResponseError,
    CorruptRecordException,
    GroupIdNotFound,
    InvalidRecordStateError,
    InvalidShareSessionEpochError,
    KafkaError,
    MalformedResponseError,
    NotLeaderOrFollowerError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownError,
    UnsupportedVersionError,
    for_code,
)
from ...events import Call
from ...model import Node, TopicPartition
from ...network import LATE, Channel, UnsentRequest
from ...trace import Fault, Listener, Recovered, Unassigned
from ...values import define, field
from ...wire import Api
from ...wire.messages import (
    AcquiredRecords,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopic,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartitionData,
)
from ..boundary import Exchange
from ..by_topic import by_topic
from ..cluster.cluster_view import Leader
from ..cluster.metadata import MetadataManager
from ..loop.environment import Network
from ..loop.request_manager import NEVER, Backoff, Poll, backoff_of, retry_delay
from .acknowledgements import LINGER, AcknowledgementPortion, Acknowledgements, Entry
from .locks import Lock, Locks, PartitionLocks
from .orders import (
    AHEAD,
    Acknowledge,
    AcknowledgeType,
    Close,
    Delivery,
    Flush,
    Hold,
    Keep,
    Lost,
    Order,
    RecordsDropped,
    RecordsHandedOut,
    ReleaseLater,
    Renewed,
    Settled,
    in_time,
    weight,
)
from .session import FINAL_EPOCH, ShareSession
from .share_membership import unsupported
from .share_settings import ShareSettings
from .unpacking import Unpacked, unpack

SHORT_POLL: Final = 0.1
"""Seconds that a broker may hold a fetch back while records are locked, since their acknowledgements would have to wait for it."""
_WHOLE_BATCHES: Final = 1 / 30
"""Whole batches are locked only if the application gets through one within this share of the locks' duration: a large batch would
go to one member, while others have nothing to do."""
_LIMIT: Final = 2
"""Version of ShareFetch that can limit the records that are locked (KIP-1206)."""
_POLLING: Final = 0.1
"""A broker may hold a fetch back for this share of the locks' duration: a lock counts from when the fetch was sent."""
_NOT_DONE: Final = (InvalidShareSessionEpochError, ShareSessionLimitReachedError)
"""The broker looked at nothing else in the request."""
_GRACE: Final = 0.5
"""Seconds for which the answer to a fetch may be on its way after the time for which the broker may hold it back."""
WHOLE: Final = 0.2
"""Seconds for which acknowledgements wait for those of records that were locked together with theirs."""
RENEWAL: Final = 2
"""Version of ShareAcknowledge that can renew locks (KIP-1222)."""


class ClosingState(Enum):
    """How far a share consumer has closed."""

    OPEN = "records are fetched"
    SETTLING = "nothing is fetched any more; acknowledgements are sent and answered"
    PARTING = "the sessions are being closed, which releases what is left"
    CLOSED = "no broker knows us any more"


@define(eq=False)
class _SentFetch:
    """The request in flight to one broker."""

    at: float
    fetches: bool
    portions: list[AcknowledgementPortion]
    names: dict[tuple[UUID | None, int], TopicPartition]
    closes: bool = False
    most_bytes: int = 0
    """How much was asked for, at most."""
    rests_until: float = 0.0
    """When the answer to a fetch is due, however long the broker holds it back."""
    suspected_at: float = inf
    """When the answer is so late that the cluster is asked whether other brokers lead the partitions by now."""


@define(eq=False)
class _ShareBroker:
    """The conversation with one broker."""

    node_id: int
    backoff: Backoff
    acknowledgements: Acknowledgements
    session: ShareSession = field(factory=ShareSession)
    in_flight: _SentFetch | None = None
    failure: KafkaError | None = None
    asked_at: float = -inf
    """When it was last asked for records."""
    dry_until: float = -inf
    """It had nothing more to lock; until then it is asked again only if the application waits for records."""
    empty: bool = False
    """Its session was opened only to send old acknowledgements: nothing is acquired before they are settled."""


@define(eq=False)
class _Placement:
    """Where an assigned partition is read."""

    topic_id: UUID
    node_id: int | None = None
    retry_at: float = 0.0
    failures: int = 0


@define(eq=False)
class _ReadAhead:
    """What is known about records that are fetched before the application asks for them."""

    expansion: float = 1.0
    """Bytes of records for each byte of the last answer: batches are compressed."""
    batch: float = 0.0
    """How many records the largest batches have, as seen of late."""
    given_back: tuple[float, int] | None = None
    """When the application had last read, and how many records were delivered, as unread ones were given back."""
    lost_at: float = -inf
    """How many had been delivered when some lost their locks unread."""

    def saw(self, batch: int) -> None:
        """Some records came in a batch of so many."""
        self.batch = max(batch, self.batch * 0.9)


@define(eq=False)
class _Flushing:
    """Calls that wait for acknowledgements or for the end, and results since the last flush."""

    calls: list[Flush] = field(factory=list)
    outcomes: dict[TopicPartition, KafkaError | None] = field(factory=dict)
    closing: list[Call[None]] = field(factory=list)
    state: ClosingState = ClosingState.OPEN

    def close(self, call: Call[None]) -> None:
        self.closing.append(call)
        if self.state is ClosingState.OPEN:
            self.state = ClosingState.SETTLING


@define(eq=False, kw_only=True)
class ShareFetchManager:
    """Fetches what is assigned, and acknowledges what the application says."""

    config: ConsumerConfig
    settings: ShareSettings
    exchange: Exchange = field(repr=False)
    metadata: MetadataManager = field(repr=False)
    network: Network = field(repr=False)
    member_id: str
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    locks: Locks = field(init=False)
    _brokers: dict[int, _ShareBroker] = field(factory=dict, init=False)
    _places: dict[TopicPartition, _Placement] = field(factory=dict, init=False)
    _placed_for: int = field(default=-1, init=False)
    _numbers: int = field(default=0, init=False)
    _flushing: _Flushing = field(factory=_Flushing, init=False)
    _ahead: _ReadAhead = field(factory=_ReadAhead, init=False)

    def __attrs_post_init__(self) -> None:
        self.locks = Locks(self.settings.max_processing_ms / 1000)

    # --- questions -------------------------------------------------------------------------------------------------------------

    @property
    def closing(self) -> ClosingState:
        """How far the consumer has closed."""
        return self._flushing.state

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._places)

    def problem(self) -> KafkaError | None:
        """Return why acknowledgements are not answered."""
        return next((broker.failure for broker in self._brokers.values() if broker.failure is not None), None)

    def assign(self, partitions: Mapping[TopicPartition, UUID], now: float) -> None:
        """Read these partitions from now on. Records of others stay locked until they are acknowledged."""
        left = frozenset(tp for tp, place in self._places.items() if partitions.get(tp) != place.topic_id)
        for partition in left:
            del self._places[partition]
        for partition in partitions.keys() - self._places.keys():
            self._places[partition] = _Placement(partitions[partition])
        if left:
            self.trace(Unassigned(now=now, partitions=left))
        self._placed_for = -1

    # --- orders of the application ---------------------------------------------------------------------------------------------

    def take_orders(self, now: float) -> list[Call[Any]]:
        """Carry out what the application asked for; return the calls that wait for an answer from now on."""
        orders, calls = self.exchange.orders, list[Call[Any]]()
        self.exchange.attentive = False  # set first: code that appends an order later sees this, and wakes us
        self.exchange.turn += 1
        while orders:
            order = orders.popleft()
            match order:
                case Acknowledge(partition, _, number, kind) as first:
                    self._acknowledge(partition, [first.offset, *_alike(first, orders)], number, kind, now)
                case RecordsHandedOut() | Hold():
                    self._note(order, now)
                case ReleaseLater(partition, number, offset, seconds):
                    self.locks.release_later(partition, number, offset, now + seconds)
                case RecordsDropped(partition, number, offsets):
                    self._acknowledge(partition, offsets, number, AcknowledgeType.RELEASE, now, said=False)
                case Flush() as flush:
                    self._flushing.calls.append(flush)
                    calls.append(flush.call)
                case Close(call=close):
                    self._flushing.close(close)
                    calls.append(close)
        return calls

    def _note(self, order: RecordsHandedOut | Hold, now: float) -> None:
        if isinstance(order, Hold):
            self.locks.keep(order.partition, order.number, (order.offset,), kept=True)
        else:
            self.locks.handed_out(order.partition, order.number, order.offsets, order.keep, order.call, now)

    def _take_notes(self, now: float) -> None:
        """Learn what the application does with single records."""
        notes = self.exchange.notes
        while notes:
            try:
                _, note = notes.popitem()
            except KeyError:  # another thread has just acknowledged the last one
                return
            self._note(note, now)

    def _acknowledge(
        self,
        partition: TopicPartition,
        offsets: Sequence[int],
        number: int,
        kind: AcknowledgeType,
        now: float,
        *,
        said: bool = True,
    ) -> None:
        """Acknowledge records of one delivery. ``said``: the application did so, and waits for the result."""
        renewal = kind is AcknowledgeType.RENEW
        settles = said and not renewal
        if settles:
            locks = self.locks.acknowledge(partition, offsets, number, now)
        else:
            locks = self.locks.held(partition, offsets, number)
            self.locks.active(locks.values(), now)
        if settles and len(locks) < len(offsets):
            for offset in offsets:
                if offset not in locks:
                    text = f"{partition} at offset {offset}: its lock had ended before it was acknowledged"
                    self._report(partition, number, (offset,), kind, InvalidRecordStateError(text))
        if not locks or (renewal and not self._can_renew):
            return
        held = self.locks.partitions[partition]
        entries = _entries(kind, locks) if said else dict.fromkeys(locks, (kind, None))
        self._broker(held.node_id).acknowledgements.add(partition, held.topic_id, entries, now, renewal=renewal)
        if not said:
            self.locks.remove(partition, locks)

    @property
    def _can_renew(self) -> bool:
        versions = self.network.versions()
        return versions is not None and versions.supports(Api.SHARE_ACKNOWLEDGE, RENEWAL)

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the requests that may go out now. The orders were taken before."""
        wake_at = min(self._place(now), self._give_back(now))
        self._release(now)
        self._renew(now)
        self._end(now)
        hurried = bool(self._flushing.calls) or self.closing is not ClosingState.OPEN
        requests: list[UnsentRequest] = []
        # The broker asked least recently comes first: with a strict limit only one is asked at a time.
        for broker in sorted(self._brokers.values(), key=attrgetter("asked_at")):
            if hurried:
                broker.acknowledgements.hurry(now)
            if broker.acknowledgements:
                wake_at = min(wake_at, broker.acknowledgements.expire(now, broker.failure))
            if broker.in_flight is None:
                request, until = self._next(broker, now)
                wake_at = min(wake_at, until)
                if request is not None:
                    requests.append(request)
            else:
                wake_at = min(wake_at, self._suspect(broker.in_flight, now))
        wake_at = min(wake_at, self._settle_calls(now))
        self.exchange.attentive = any(broker.acknowledgements for broker in self._brokers.values()) and not hurried
        return Poll(tuple(requests), min(wake_at, self.locks.ends_at, self.locks.releases_at, self._renewal_at()))

    def _suspect(self, sent: _SentFetch, now: float) -> float:
        """Ask the cluster about a broker that does not answer, and again after twice the time. Return when to look next."""
        if sent.suspected_at <= now:
            sent.suspected_at = now + (now - sent.at)
            self.metadata.request_update(now)
        return sent.suspected_at

    def _renewal_at(self) -> float:
        return self.locks.renewal_at if self._can_renew else NEVER

    def poll_on_close(self, now: float) -> Poll:
        """The sessions were closed before, as far as there was time; a connection that ends releases what is left."""
        return Poll()

    def _place(self, now: float) -> float:
        """Put each assigned partition into the session of its leader."""
        due = min((place.retry_at for place in self._places.values() if place.retry_at), default=NEVER)
        if self._placed_for == self.metadata.version and now < due:
            return due
        self._placed_for = self.metadata.version
        wanted: dict[int, dict[TopicPartition, UUID]] = {}
        wake_at = NEVER
        for partition, place in self._places.items():
            leader = self.metadata.cluster.leader(partition)
            if leader is None:
                self.metadata.need_leader(now)
                continue
            if place.node_id is not None and place.node_id != leader.node_id:
                self._moved(partition, now)
                place.retry_at = 0.0
            place.node_id = leader.node_id
            if place.retry_at > now:
                wake_at = min(wake_at, place.retry_at)
                continue
            place.retry_at = 0.0
            wanted.setdefault(leader.node_id, {})[partition] = place.topic_id
        for node_id in wanted.keys() | self._brokers.keys():
            self._broker(node_id).session.wanted = wanted.get(node_id, {})
        return wake_at

    def _moved(self, partition: TopicPartition, now: float) -> None:
        """Another broker leads the partition: locks are not handed on (KIP-932)."""
        held = self.locks.partitions.get(partition)
        if held is not None:
            self._lose(partition, NotLeaderOrFollowerError(f"{partition}: the partition moved to another broker"), now)

    def _lose(self, partition: TopicPartition, error: KafkaError, now: float, *, drop: bool = True) -> None:
        held = self.locks.partitions.get(partition)
        if held is None:
            return
        lost = self.locks.forget(partition)
        if lost:
            self._ahead.lost_at = self.exchange.delivered
            self.exchange.report(Lost(partition, tuple((lock.number, offset) for offset, lock in lost), error))
        if drop:
            self._broker(held.node_id).acknowledgements.drop(partition, error, now)

    def _kept_until(self) -> float:
        """Return until when unread records are kept if no read call comes."""
        demand = self.exchange.demand
        return NEVER if demand.wanted > 0 else demand.read_at + min(self.locks.duration, self.config.max_poll_interval_ms / 1000)

    def _give_back(self, now: float) -> float:
        """Release what is unread if no read call comes for it: others may have it. Return when to look again."""
        exchange, ahead, until = self.exchange, self._ahead, self._kept_until()
        seen = (exchange.demand.read_at, exchange.delivered)
        if exchange.unread <= 0 or seen == ahead.given_back:
            return NEVER
        if until > now:
            return until
        ahead.given_back, ahead.lost_at = seen, exchange.delivered
        self._take_notes(now)
        for partition, held, unread in self.locks.give_up_unread():
            error = InvalidRecordStateError(f"{partition}: the record was released, since nothing was read for too long")
            exchange.report(Lost(partition, tuple((lock.number, offset) for offset, lock in unread.items()), error))
            entries = dict.fromkeys(unread, (AcknowledgeType.RELEASE, None))
            self._broker(held.node_id).acknowledgements.add(partition, held.topic_id, entries, now)
        return NEVER

    def _release(self, now: float) -> None:
        """Release the records whose time has come, and at the end all of them."""
        for partition, number, offset in self.locks.releases(now if self.closing is ClosingState.OPEN else inf):
            self._acknowledge(partition, (offset,), number, AcknowledgeType.RELEASE, now)

    def _renew(self, now: float) -> None:
        if self.locks.renewal_at > now or not self._can_renew:
            return
        self._take_notes(now)
        for partition, held, due in self.locks.due(now):
            entries = _entries(AcknowledgeType.RENEW, due)
            self._broker(held.node_id).acknowledgements.add(partition, held.topic_id, entries, now, renewal=True)

    def _end(self, now: float) -> None:
        for partition, over in self.locks.ended(now):
            error = InvalidRecordStateError(f"{partition}: the lock ended before the record was acknowledged")
            self.exchange.report(Lost(partition, tuple((lock.number, offset) for offset, lock in over), error))
            if not self._can_renew and any(lock.keep is not Keep.ALONE for _, lock in over):
                text = "locks expired while their records were being processed: the brokers cannot renew them"
                self.trace(Fault(now=now, text=text, error=error, subject="fetch"))

    def _broker(self, node_id: int) -> _ShareBroker:
        broker = self._brokers.get(node_id)
        if broker is None:
            # A broker's lock can last a little longer than ours.
            acknowledgements = Acknowledgements(self.config, self._settled, lambda: self.locks.duration + 1.0, self._linger)
            broker = self._brokers[node_id] = _ShareBroker(node_id, backoff_of(self.config, self.random), acknowledgements)
        return broker

    def _linger(self) -> float:
        """How long acknowledgements wait for others: longer while the application works through records locked together.

        A broker keeps one state for a range that was locked together, but one for each offset once parts of it are acknowledged.
        """
        return LINGER if self.exchange.unread <= 0 else min(WHOLE, self.locks.duration / 20)

    # --- what a broker gets next -----------------------------------------------------------------------------------------------

    def _next(self, broker: _ShareBroker, now: float) -> tuple[UnsentRequest | None, float]:
        """Return the next request to an idle broker, or when to look again."""
        session, due_at = broker.session, broker.acknowledgements.due_at()
        fetches = bool(session.wanted) and self._wants_more(now)
        again_at = NEVER
        if fetches and now < broker.dry_until and self.exchange.unread > 0:
            fetches, again_at = False, broker.dry_until
        request, until = self._request(broker, fetches=fetches, due_at=due_at, now=now)
        return request, min(until, again_at)

    def _request(self, broker: _ShareBroker, *, fetches: bool, due_at: float, now: float) -> tuple[UnsentRequest | None, float]:
        acknowledgements, session = broker.acknowledgements, broker.session
        closes = self.closing is ClosingState.PARTING and session.is_open
        if not (fetches or closes or due_at < inf):
            return None, NEVER  # a read call wakes us
        if broker.node_id not in self.metadata.cluster.nodes:
            self.metadata.need_leader(now)  # a request would only be refused
            return None, NEVER
        if not broker.backoff.ready(now):
            return None, broker.backoff.retry_at
        if closes:
            return self._send_acknowledgements(broker, [], now, closes=True), NEVER
        if not session.is_open:
            return (self._open(broker, fetches=fetches, now=now), NEVER) if fetches or due_at <= now else (None, due_at)
        if acknowledgements.has_renewals(now):
            return self._send_acknowledgements(broker, acknowledgements.take(now, renewal=True), now), NEVER
        return self._fetch_or_acknowledge(broker, fetches=fetches, due_at=due_at, now=now)

    def _fetch_or_acknowledge(
        self, broker: _ShareBroker, *, fetches: bool, due_at: float, now: float
    ) -> tuple[UnsentRequest | None, float]:
        acknowledgements, wanted = broker.acknowledgements, broker.session.wanted
        hurried = bool(self._flushing.calls)
        # A fetch takes along acknowledgements of its partitions; those of others would wait until there is nothing to fetch.
        if due_at <= now and (hurried or not fetches or broker.empty or acknowledgements.has_others(wanted)):
            portions = acknowledgements.take(now, renewal=False)
            if portions:
                return self._send_acknowledgements(broker, portions, now), NEVER
        if broker.empty and acknowledgements:
            return None, due_at
        broker.empty = False
        if not fetches:
            return None, due_at
        young = now < acknowledgements.due_at() and self.exchange.unread > 0
        portions = [] if young else acknowledgements.take(now, renewal=False, only=lambda partition: partition in wanted)
        return self._fetch(broker, portions, now), NEVER

    def _wants_more(self, now: float) -> bool:
        """Whether the application is going to read what is fetched now while its locks are young."""
        if self.closing is not ClosingState.OPEN or self.exchange.handler.ended is not None or self.exchange.demand.held_back:
            return False
        # What would be given back at once would be fetched again at once, and each time cost the records one of their deliveries.
        if self._kept_until() <= now:
            return False
        handler = self.exchange.handler
        reads = handler.reading > 0 or now - handler.polled_at < self.locks.duration * AHEAD
        return reads and self._room_for_records() > 0 and self._room_for_bytes() > 0

    def _room_for_records(self) -> int:
        """Return for how many records a broker is asked."""
        exchange, most = self.exchange, self.config.max_poll_records
        unread, demand = exchange.unread, exchange.demand
        if self._asks_one_by_one:
            if any(broker.in_flight is not None and broker.in_flight.most_bytes for broker in self._brokers.values()):
                return 0
            if self.settings.strict_max_records:
                return max(demand.wanted, demand.missed) - unread
        # Records that the application would not get to in time are left to others: all of them as long as its pace is not known.
        ahead = min(most, in_time(demand.pace, self.locks.duration, exchange.taken - self._ahead.lost_at))
        wanted, asked = min(most, max(demand.wanted, demand.missed) - unread), min(most, demand.asked)
        if not demand.handlers and ahead < asked:
            # A read call ends with what it finds, and may take as long for few records as for many: it finds as many as it asks
            # for or none, and waits for them.
            return max(wanted, asked - unread if unread > 0 else 0)
        if unread >= max(1, ahead // 2):
            return 0
        # Slow handlers have nothing ahead of them: it would wait for longer than its lock lasts.
        return ahead if demand.handlers and ahead else max(ahead, wanted)

    @property
    def _asks_one_by_one(self) -> bool:
        """Whether only one broker has a fetch at a time: of what several bring at once, most would wait behind a long job."""
        return self.settings.strict_max_records or self.exchange.demand.pace > self.locks.duration * AHEAD

    @property
    def _is_limited(self) -> bool:
        """Whether brokers are to lock no more records than they are asked for, even if their batch has more."""
        if self.settings.strict_max_records:
            return True
        versions, pace = self.network.versions(), self.exchange.demand.pace
        if versions is None or not versions.supports(Api.SHARE_FETCH, _LIMIT):
            return False
        batch = max(self.config.max_poll_records, self._ahead.batch)
        return pace <= 0 or pace * batch > self.locks.duration * _WHOLE_BATCHES

    def _room_for_bytes(self) -> int:
        """Return for how many bytes a broker is asked, so that unread records stay under ``fetch_buffer_bytes``."""
        exchange, limit = self.exchange, self.config.fetch_buffer_bytes
        expected = sum(broker.in_flight.most_bytes for broker in self._brokers.values() if broker.in_flight is not None)
        room = limit - exchange.unread_bytes - int(expected * self._ahead.expansion)
        exchange.starving = room <= 0
        leaders = sum(1 for broker in self._brokers.values() if broker.session.wanted) or 1
        if room <= 0:
            return 0
        # At least 1, for which a broker sends a batch: a limit smaller than the smallest one would be silence for ever.
        return max(1, int(min(self.config.fetch_max_bytes, room / self._ahead.expansion, limit / leaders)))

    def _open(self, broker: _ShareBroker, *, fetches: bool, now: float) -> UnsentRequest:
        """Open a session. Old acknowledgements are settled before anything is acquired, so that they cannot affect new locks."""
        broker.empty = bool(broker.acknowledgements)
        return self._fetch(broker, [], now, acquires=fetches and not broker.empty)

    def _fetch(
        self, broker: _ShareBroker, portions: list[AcknowledgementPortion], now: float, *, acquires: bool = True
    ) -> UnsentRequest:
        session = broker.session
        broker.asked_at = now
        topics, forgotten = session.build({portion.partition: portion.batches() for portion in portions})
        wait = self._longest_wait(now) if acquires else 0.0
        most = max(1, self._room_for_bytes()) if acquires else 0
        limit = max(1, self._room_for_records()) if acquires else 0
        message = ShareFetchRequest(
            group_id=self.config.group_id,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=int(wait * 1000),
            min_bytes=self.config.fetch_min_bytes if acquires else 0,
            max_bytes=most,
            max_records=limit,
            batch_size=self.config.max_poll_records,
            share_acquire_mode=int(self._is_limited),
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        names: dict[tuple[UUID | None, int], TopicPartition] = {(tid, tp.partition): tp for tp, tid in session.known.items()}
        return self._send(broker, message, _SentFetch(now, True, portions, names, most_bytes=most), wait)

    def _longest_wait(self, now: float) -> float:
        """How long a fetch may be held back: acknowledgements and renewals of locked records wait for it."""
        wait = min(self.config.fetch_max_wait_ms / 1000, self.locks.duration * _POLLING)
        # An application with unread records need not wait for more. And a broker that has locked as many as it may would wait for
        # acknowledgements, which in turn would wait for the poll.
        if self._flushing.calls or self.exchange.unread > 0:
            return 0.0
        if self._asks_one_by_one:  # the other leaders wait for their turn
            wait /= sum(1 for broker in self._brokers.values() if broker.session.wanted) or 1
        if self.locks.are_out:
            wait = min(wait, SHORT_POLL, max(0.0, self.locks.duration / 20))
        return wait

    def _send_acknowledgements(
        self, broker: _ShareBroker, portions: list[AcknowledgementPortion], now: float, *, closes: bool = False
    ) -> UnsentRequest:
        listed = {(portion.topic_id, portion.partition.partition): portion.batches() for portion in portions}
        topics = tuple(
            ShareAcknowledgeTopic(
                topic_id=topic_id,
                partitions=tuple(
                    ShareAcknowledgePartition(partition_index=index, acknowledgement_batches=listed[topic_id, index])
                    for index in indexes
                ),
            )
            for topic_id, indexes in by_topic(sorted(listed)).items()
        )
        message = ShareAcknowledgeRequest(
            group_id=self.config.group_id,
            member_id=self.member_id,
            share_session_epoch=FINAL_EPOCH if closes else broker.session.epoch,
            is_renew_ack=any(portion.renewal for portion in portions),
            topics=topics,
        )
        names: dict[tuple[UUID | None, int], TopicPartition] = {
            (portion.topic_id, portion.partition.partition): portion.partition for portion in portions
        }
        return self._send(broker, message, _SentFetch(now, False, portions, names, closes), 0.0)

    def _send(
        self, broker: _ShareBroker, message: ShareFetchRequest | ShareAcknowledgeRequest, sent: _SentFetch, wait: float
    ) -> UnsentRequest:
        broker.in_flight = sent
        for portion in sent.portions:
            portion.sent_at = sent.at
        sent.rests_until = sent.at + wait + _GRACE
        sent.suspected_at = sent.at + wait + LATE
        return UnsentRequest(
            message=message,
            node_id=broker.node_id,
            channel=Channel.FETCH,
            on_done=lambda outcome, at: self._answered(broker, sent, outcome, at),
            expires_at=sent.at + wait + self.config.request_timeout_ms / 1000,
            max_wait=wait,
        )

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def _answered(self, broker: _ShareBroker, sent: _SentFetch, outcome: object, now: float) -> None:
        broker.in_flight = None
        if isinstance(outcome, ShareFetchResponse | ShareAcknowledgeResponse) and not outcome.error_code:
            if broker.backoff.failures:
                self.trace(Recovered(now=now, outage=_outage(broker), subject="fetch"))
            broker.backoff.succeeded()
            broker.failure = None
            self._went_well(broker, sent, outcome, now)
        else:
            self._failed(broker, sent, _error_of(outcome, self.config.group_id), now)

    def _went_well(
        self, broker: _ShareBroker, sent: _SentFetch, answer: ShareFetchResponse | ShareAcknowledgeResponse, now: float
    ) -> None:
        if answer.acquisition_lock_timeout_ms > 0:
            self.exchange.lock_seconds = self.locks.duration = answer.acquisition_lock_timeout_ms / 1000
        if sent.closes:
            broker.session.reset()
            return
        endpoints = {node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints}
        if isinstance(answer, ShareFetchResponse):
            broker.session.fetched()
            found = any(part.acquired_records for topic in answer.responses for part in topic.partitions)
            broker.dry_until = -inf if found or sent.portions else now + SHORT_POLL
            parts = [(topic.topic_id, part) for topic in answer.responses for part in topic.partitions]
            codes = {
                (topic_id, part.partition_index): (part.acknowledge_error_code, part.acknowledge_error_message)
                for topic_id, part in parts
            }
            self._settle(broker, sent, codes, now)
            for topic_id, part in parts:
                partition = sent.names.get((topic_id, part.partition_index))
                if partition is not None:
                    self._read(broker, partition, topic_id, part, sent, endpoints, now)
            return
        broker.session.acknowledged()
        broker.dry_until = -inf
        results = [(topic.topic_id, part) for topic in answer.responses for part in topic.partitions]
        answers = {(topic_id, part.partition_index): (part.error_code, part.error_message) for topic_id, part in results}
        self._settle(broker, sent, answers, now)
        for topic_id, result in results:
            partition = sent.names.get((topic_id, result.partition_index))
            if partition is not None and result.error_code and result.current_leader.leader_id >= 0:  # without an error both are 0
                leader = Leader(result.current_leader.leader_id, result.current_leader.leader_epoch)
                self.metadata.update_leader(partition, leader, endpoints, now)

    def _settle(
        self, broker: _ShareBroker, sent: _SentFetch, codes: Mapping[tuple[UUID | None, int], tuple[int, str | None]], now: float
    ) -> None:
        for portion in sent.portions:
            code = codes.get((portion.topic_id, portion.partition.partition))
            error: KafkaError | None = None
            if code is None:
                left_out = MalformedResponseError(f"{portion.partition}: the broker did not answer the acknowledgements")
                broker.acknowledgements.settle(portion, left_out, now)
                continue
            if code[0]:
                error = for_code(code[0], f"{portion.partition}: {code[1] or for_code(code[0]).description}")
                if error.invalid_metadata:
                    self.metadata.request_update(now)
            broker.acknowledgements.answered(portion, error, now)

    def _failed(self, broker: _ShareBroker, sent: _SentFetch, error: KafkaError, now: float) -> None:
        """The whole request was not carried out, or it is unknown whether it was."""
        broker.failure = error
        broker.session.reset()
        broker.backoff.failed(now)
        self.metadata.request_update(now)
        if isinstance(error, (ShareSessionNotFoundError, InvalidShareSessionEpochError)) and broker.backoff.failures == 1:
            broker.backoff.retry_at = now  # a new session, at once
        # Kafka up to 4.3 answers so, for the whole request, when a topic of the session is deleted: the others must go on.
        final = not error.retriable and not isinstance(error, UnknownError)
        # A broker that answers still has the locks, also if it opens another session for us; one that does not releases them.
        locks_gone = not isinstance(error, BrokerResponseError) or isinstance(error, ShareSessionNotFoundError)
        for portion in sent.portions:
            if final:
                broker.acknowledgements.answered(portion, error, now)
            else:
                self._once_more(broker, portion, error, locks_gone=locks_gone)
        if locks_gone and not final:
            self._lose_all(broker, error, now)
        if final:
            broker.backoff.retry_at = now + self.config.retry_backoff_max
            if isinstance(error, UnsupportedVersionError):
                error = unsupported(error, self.config.group_id or "")
            self.exchange.handler.publish_error(error, to_all=True)
        text = f"the share session with broker {broker.node_id} is lost; opening another one"
        self.trace(Fault(now=now, text=text, error=error, subject="fetch", outage=_outage(broker)))

    def _once_more(self, broker: _ShareBroker, portion: AcknowledgementPortion, error: KafkaError, *, locks_gone: bool) -> None:
        if portion.renewal:
            for _, lock in portion.entries.values():
                if lock is not None:
                    self.locks.look_at(lock)
        elif isinstance(error, _NOT_DONE):
            broker.acknowledgements.again(portion)
        else:
            broker.acknowledgements.unanswered(portion, error, locks_gone=locks_gone)

    def _lose_all(self, broker: _ShareBroker, error: KafkaError, now: float) -> None:
        """The connection is gone, and with it every lock. Those left are released, in case the broker has not noticed."""
        broker.acknowledgements.disconnected(error)
        for partition in self.locks.given_by(broker.node_id):
            held = self.locks.partitions[partition]
            left = {offset: (AcknowledgeType.RELEASE, None) for offset, lock in held.by_offset.items() if not lock.acknowledged}
            self._lose(partition, _session_lost(partition, error), now, drop=False)
            if left:
                broker.acknowledgements.add(partition, held.topic_id, left, now)

    # --- records ---------------------------------------------------------------------------------------------------------------

    def _read(
        self,
        broker: _ShareBroker,
        partition: TopicPartition,
        topic_id: UUID | None,
        part: SharePartitionData,
        sent: _SentFetch,
        endpoints: Mapping[int, Node],
        now: float,
    ) -> None:
        place = self._places.get(partition)
        if part.error_code:
            if place is not None:
                self._partition_failed(partition, place, part, endpoints, now)
            return
        if place is not None and place.failures:
            place.failures = 0
            self.trace(Recovered(now=now, outage="reading", subject="fetch", partitions=frozenset((partition,))))
        if not part.acquired_records or topic_id is None:
            return
        self._supersede(broker, partition, part.acquired_records, now)
        found = unpack(
            partition,
            part.records,
            part.acquired_records,
            check_crcs=self.config.check_crcs,
            max_decompressed_bytes=self.config.max_decompressed_bytes,
        )
        self._ahead.saw(found.batch)
        self._leave_out(broker, partition, topic_id, found, now)
        if found.records and partition.topic not in self.exchange.topics:
            # It was asked for before the application unsubscribed: it will not be read, and its locks would be renewed.
            entries = dict.fromkeys((record.offset for record in found.records), (AcknowledgeType.RELEASE, None))
            broker.acknowledgements.add(partition, topic_id, entries, now)
        elif found.records:
            self._numbers += 1
            offsets = [record.offset for record in found.records]
            # The lock began when the broker sent the answer, at the earliest when it was asked. The earlier time counts, since the
            # network may have held up the answer: with a deadline that was too late, a yes counted after the lock had ended.
            deadline = self.locks.add(partition, PartitionLocks(topic_id, broker.node_id), offsets, self._numbers, sent.at)
            size = weight(found.records)
            self._ahead.expansion = max(1.0, size / (len(part.records) or 1))
            self.exchange.delivered += len(found.records)
            self.exchange.put_bytes += size
            self.exchange.report(Delivery(partition, self._numbers, found.records, found.counts, deadline))

    def _supersede(self, broker: _ShareBroker, partition: TopicPartition, ranges: Sequence[AcquiredRecords], now: float) -> None:
        """These records were not ours meanwhile. The broker knows members, not deliveries: it would take old acknowledgements."""
        error = InvalidRecordStateError(f"{partition}: the lock had ended; the record was delivered again")
        lost = self.locks.supersede(partition, ranges)
        if lost:
            self.exchange.report(Lost(partition, tuple((lock.number, offset) for offset, lock in lost), error))
        broker.acknowledgements.supersede(partition, ranges, error, now)

    def _leave_out(self, broker: _ShareBroker, partition: TopicPartition, topic_id: UUID, found: Unpacked, now: float) -> None:
        """Give back at once what cannot be handed out: gaps for good, unreadable records for another attempt."""
        limit = self.settings.bad_record_deliveries
        entries: dict[int, Entry] = dict.fromkeys(found.gaps, (AcknowledgeType.GAP, None))
        entries |= dict.fromkeys(found.missing, (AcknowledgeType.RELEASE, None))
        for offset, count in found.bad:
            entries[offset] = (AcknowledgeType.REJECT if count >= limit else AcknowledgeType.RELEASE, None)
        if entries:
            broker.acknowledgements.add(partition, topic_id, entries, now)
        if found.error is not None and found.bad:
            self.exchange.handler.publish_error(found.error)

    def _partition_failed(
        self, partition: TopicPartition, place: _Placement, part: SharePartitionData, endpoints: Mapping[int, Node], now: float
    ) -> None:
        text = f"{partition}: {part.error_message or for_code(part.error_code).description}"
        # With the topic: no access is then one error, and not one for each partition, some read long after access was given back.
        error = for_code(part.error_code, text, topic=partition.topic)
        hint = part.current_leader
        epoch = hint.leader_epoch if hint.leader_epoch >= 0 else None
        if hint.leader_id >= 0 and self.metadata.update_leader(partition, Leader(hint.leader_id, epoch), endpoints, now):
            return
        # A retry must neither spin nor go unreported.
        place.retry_at = now + retry_delay(self.config, place.failures)
        place.failures += 1
        self._placed_for = -1
        if error.invalid_metadata:
            self.metadata.request_update(now)
        # The share coordinator says GROUP_ID_NOT_FOUND while a partition loads its state (``SharePartition.fetchPersisterError``).
        passes = (error.retriable and not isinstance(error, CorruptRecordException)) or isinstance(
            error, UnknownError | GroupIdNotFound
        )
        if not passes:
            place.retry_at = now + self.config.retry_backoff_max
            self.exchange.handler.publish_error(error)
        else:
            text, which = "cannot be fetched at the moment; trying again", frozenset((partition,))
            self.trace(Fault(now=now, text=text, error=error, subject="fetch", outage="reading", partitions=which))

    # --- results of acknowledgements -------------------------------------------------------------------------------------------

    def _settled(self, portion: AcknowledgementPortion, error: KafkaError | None, now: float) -> None:
        if portion.renewal:
            self._renewed(portion, error, now)
            return
        said: dict[tuple[int, AcknowledgeType], dict[int, Lock]] = {}
        last: Entry | None = None
        alike: dict[int, Lock] = {}
        for offset, entry in portion.entries.items():
            kind, lock = entry
            if lock is None:
                continue
            if entry is not last:  # neighbours share theirs
                last, alike = entry, said.setdefault((lock.number, kind), {})
            alike[offset] = lock
        for (number, kind), locks in said.items():
            self.locks.remove(portion.partition, locks)
            self._report(portion.partition, number, tuple(locks), kind, error)

    def _renewed(self, portion: AcknowledgementPortion, error: KafkaError | None, now: float) -> None:
        """A refusal does not mean that the lock is gone: the group may not allow renewals. The lock then ends in its time."""
        # A lock that has ended meanwhile is not ours, whatever the broker says: see ``acknowledgements``.
        partition = portion.partition
        locks = {offset: lock for offset, (_, lock) in portion.entries.items() if lock is not None and lock.deadline > now}
        if error is None:
            renewed = self.locks.renewed(partition, locks, portion.sent_at)
            held = self.locks.partitions.get(partition)
            if held is not None:
                self._broker(held.node_id).acknowledgements.renewed(partition, renewed)
            deadline = portion.sent_at + self.locks.duration
            self.exchange.report(Renewed(partition, tuple((lock.number, offset) for offset, lock in renewed.items()), deadline))
        else:
            for offset, lock in locks.items():
                self.locks.keep(partition, lock.number, (offset,), kept=False)
            self.trace(Fault(now=now, text="locks could not be renewed", error=error, subject="fetch"))

    def _report(
        self, partition: TopicPartition, number: int, offsets: tuple[int, ...], kind: AcknowledgeType, error: KafkaError | None
    ) -> None:
        outcomes = self._flushing.outcomes
        outcomes[partition] = outcomes.get(partition) or error
        self.exchange.report(Settled(partition, number, offsets, kind, error))

    def _settle_calls(self, now: float) -> float:
        """Answer flushes, and take the next step of closing, once no acknowledgement is on its way. Return when to look again."""
        flushing = self._flushing
        busy = any(broker.acknowledgements or (broker.in_flight and broker.in_flight.portions) for broker in self._brokers.values())
        if flushing.calls and not busy:
            outcomes = dict(flushing.outcomes)
            calls, flushing.calls = flushing.calls, []
            if any(order.tells for order in calls):
                flushing.outcomes.clear()
            for order in calls:
                order.call.resolve(dict(outcomes))
        if flushing.state is ClosingState.SETTLING and not busy:
            until = self._rests_until(now)
            if until > now:
                return until
            flushing.state = ClosingState.PARTING
            self.exchange.handler.wake_background()
        elif flushing.state is ClosingState.PARTING and not any(
            broker.session.is_open or (broker.in_flight and broker.in_flight.closes) for broker in self._brokers.values()
        ):
            flushing.state = ClosingState.CLOSED
            self.exchange.handler.wake_background()
        return NEVER

    def _rests_until(self, now: float) -> float:
        """Return until when fetches that are held back are waited for, before the sessions are closed; ``now``: for none.

        A poll that is abandoned locks what comes next, for nobody. One that is not answered in its time is given up.
        """
        until = now
        for broker in self._brokers.values():
            sent = broker.in_flight
            if sent is None or not sent.fetches:
                continue
            if self.locks.given_by(broker.node_id):
                return NEVER
            if now < sent.rests_until:
                until = max(until, sent.rests_until)
            else:
                broker.session.reset()
        return until

    def closed(self) -> Iterator[Call[None]]:
        """Yield the calls that wait for the end, once it has come."""
        if self.closing is ClosingState.CLOSED:
            calls, self._flushing.closing = self._flushing.closing, []
            yield from calls


def _entries(kind: AcknowledgeType, locks: Mapping[int, Lock]) -> dict[int, Entry]:
    entries: dict[int, Entry] = {}
    entry: Entry = (kind, None)
    for offset, lock in locks.items():
        if lock is not entry[1]:  # neighbours share theirs
            entry = (kind, lock)
        entries[offset] = entry
    return entries


def _alike(first: Acknowledge, orders: deque[Order]) -> Iterator[int]:
    """Take the orders that follow as long as they are the same but for the offset; yield the offsets."""
    partition, number, kind = first.partition, first.number, first.kind
    while orders:
        order = orders[0]  # the application only appends
        if type(order) is not Acknowledge or order.number != number or order.kind is not kind or order.partition != partition:
            return
        orders.popleft()
        yield order.offset


def _error_of(outcome: object, group: str | None) -> KafkaError:
    if isinstance(outcome, ShareFetchResponse | ShareAcknowledgeResponse):
        return for_code(outcome.error_code, outcome.error_message, group=group)
    return outcome if isinstance(outcome, KafkaError) else MalformedResponseError(f"answered with {type(outcome).__name__}")


def _session_lost(partition: TopicPartition, cause: KafkaError) -> KafkaError:
    error = InvalidRecordStateError(f"{partition}: the connection that the records were locked over is gone: {cause}")
    error.__cause__ = cause
    return error


def _outage(broker: _ShareBroker) -> str:
    return f"fetching from broker {broker.node_id}"
