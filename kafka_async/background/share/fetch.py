"""Reading and acknowledging: the ShareFetch and ShareAcknowledge request manager (KIP-932).

It joins the parts: ``read_ahead.py`` says how much is fetched, ``requests.py`` makes the requests, ``answers.py`` takes over what
comes back, and ``closing.py`` knows who waits. What the application says about records, and what time does to their locks, is here.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import InvalidRecordStateError, KafkaError
from ...events import Call
from ...model import TopicPartition
from ...trace import Fault, Listener, Unassigned
from ...values import define, field
from ...wire import Api
from ..boundary import Exchange
from ..cluster.metadata import MetadataManager
from ..fetch.placement import Placement
from ..loop.environment import Network
from ..loop.request_manager import NEVER, Poll, backoff_of
from .acknowledgements import LINGER, Acknowledgements, Entry
from .answers import ShareAnswers
from .closing import Closing, ClosingState
from .locks import Lock, Locks
from .orders import (
    Acknowledge,
    AcknowledgeType,
    Close,
    Flush,
    Hold,
    Keep,
    Lost,
    Order,
    RecordsDropped,
    RecordsHandedOut,
    ReleaseLater,
)
from .read_ahead import ReadAhead
from .requests import ShareRequests
from .session import ShareSession
from .share_broker import AssignedPartition, ShareBroker
from .share_settings import ShareSettings

WHOLE: Final = 0.2
"""Seconds for which acknowledgements wait for those of records that were locked together with theirs."""
RENEWAL: Final = 2
"""Version of ShareAcknowledge that can renew locks (KIP-1222)."""


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
    _assigned: dict[TopicPartition, AssignedPartition] = field(factory=dict, init=False)
    _placement: Placement[ShareBroker] = field(init=False)
    _closing: Closing = field(factory=Closing, init=False)
    _ahead: ReadAhead = field(init=False)
    _answers: ShareAnswers = field(init=False)
    _requests: ShareRequests = field(init=False)

    def __attrs_post_init__(self) -> None:
        config, settings, exchange, assigned, closing = self.config, self.settings, self.exchange, self._assigned, self._closing
        self.locks = locks = Locks(settings.max_processing_ms / 1000)
        self._placement = placement = Placement(self.metadata, self._new_broker)
        self._ahead = ahead = ReadAhead(config, settings, exchange, self.network, locks, closing)
        self._answers = answers = ShareAnswers(
            config, self.settings, exchange, assigned, placement, locks, ahead, closing, self.trace
        )
        self._requests = ShareRequests(config, self.member_id, assigned, placement, ahead, closing, answers)

    def _new_broker(self, node_id: int) -> ShareBroker:
        # A broker's lock can last a little longer than ours.
        acknowledgements = Acknowledgements(self.config, self._answers.settled, lambda: self.locks.duration + 1.0, self._linger)
        return ShareBroker(node_id, backoff_of(self.config, self.random), ShareSession(), acknowledgements=acknowledgements)

    # --- questions -------------------------------------------------------------------------------------------------------------

    @property
    def closing(self) -> ClosingState:
        """How far the consumer has closed."""
        return self._closing.state

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._assigned)

    def problem(self) -> KafkaError | None:
        """Return why acknowledgements are not answered."""
        return next((broker.failure for broker in self._placement.brokers.values() if broker.failure is not None), None)

    def assign(self, partitions: Mapping[TopicPartition, UUID], now: float) -> None:
        """Read these partitions from now on. Records of others stay locked until they are acknowledged."""
        left = frozenset(tp for tp, assigned in self._assigned.items() if partitions.get(tp) != assigned.topic_id)
        for partition in left:
            del self._assigned[partition]
        self._answers.show_refused(now)  # before one of them comes back, as a partition of another topic of the name
        new = partitions.keys() - self._assigned.keys()
        for partition in new:
            self._assigned[partition] = AssignedPartition(partitions[partition])
        if left:
            self.trace(Unassigned(now=now, partitions=left))
        self._placement.changed |= left | new

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
                    self._closing.flush(flush, self._placement.brokers.values())
                    calls.append(flush.call)
                case Close(call=close):
                    self._release(now, inf)
                    self._closing.close(close, self._placement.brokers.values())
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
            if not said:  # a broker refuses all of a partition's acknowledgements if one lock has ended: such records need none
                locks = {offset: lock for offset, lock in locks.items() if lock.deadline > now}
        if settles and len(locks) < len(offsets):
            for offset in offsets:
                if offset not in locks:
                    text = f"{partition} at offset {offset}: its lock had ended before it was acknowledged"
                    self._answers.report(partition, number, (offset,), kind, InvalidRecordStateError(text))
        if not locks or (renewal and not self._can_renew):
            return
        held = self.locks.partitions[partition]
        entries = _entries(kind, locks) if said else dict.fromkeys(locks, (kind, None))
        self._placement.broker(held.node_id).acknowledgements.add(partition, held.topic_id, entries, now, renewal=renewal)
        if not said:
            self.locks.remove(partition, locks)

    @property
    def _can_renew(self) -> bool:
        versions = self.network.versions()
        return versions is not None and versions.supports(Api.SHARE_ACKNOWLEDGE, RENEWAL)

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the requests that may go out now. The orders were taken before."""
        self._answers.show_refused(now)
        wake_at = min(self._requests.place(now), self._give_back(now))
        self._release(now, now if self.closing is ClosingState.OPEN else inf)
        self._end(now)  # before locks are renewed: a broker that still has one that ended here would keep it for nobody
        self._renew(now)
        hurries, brokers = self._closing.hurries, self._placement.brokers.values()
        poll = self._requests.poll(now)
        step_at = self._closing.go_on(brokers, self.locks, now)
        if step_at <= now:
            self.exchange.handler.wake_background()
        else:
            wake_at = min(wake_at, step_at)
        self.exchange.attentive = any(broker.acknowledgements for broker in brokers) and not hurries
        return poll.until(min(wake_at, self.locks.ends_at, self.locks.releases_at, self._renewal_at()))

    def _renewal_at(self) -> float:
        return self.locks.renewal_at if self._can_renew else NEVER

    def poll_on_close(self, now: float) -> Poll:
        """The sessions were closed before, as far as there was time; a connection that ends releases what is left."""
        return Poll()

    def _give_back(self, now: float) -> float:
        """Release what is unread if no read call comes for it: others may have it. Return when to look again."""
        exchange, ahead, until = self.exchange, self._ahead, self._ahead.kept_until()
        seen = (exchange.demand.read_at, exchange.delivered)
        if exchange.unread <= 0 or seen == ahead.given_back:
            return NEVER
        if until > now:
            return until
        self._take_notes(now)
        if exchange.orders:  # they came since this turn took some, and may be about records that look unread
            exchange.handler.wake_background()
            return NEVER
        ahead.given_back, ahead.lost_at = seen, exchange.delivered
        for partition, held, unread in self.locks.give_up_unread():
            error = InvalidRecordStateError(f"{partition}: the record was released, since nothing was read for too long")
            exchange.report(Lost(partition, tuple((lock.number, offset) for offset, lock in unread.items()), error))
            acknowledgements = self._placement.broker(held.node_id).acknowledgements
            acknowledgements.renew_no_more(partition, unread)
            left = [offset for offset, lock in unread.items() if lock.deadline > now]  # the event loop may have been blocked
            if left:
                acknowledgements.add(partition, held.topic_id, dict.fromkeys(left, (AcknowledgeType.RELEASE, None)), now)
        return NEVER

    def _release(self, now: float, until: float) -> None:
        """Release the records whose time comes until then; at the end, all of them."""
        for partition, number, offset in self.locks.releases(until):
            self._acknowledge(partition, (offset,), number, AcknowledgeType.RELEASE, now)

    def _renew(self, now: float) -> None:
        if self.locks.renewal_at > now or not self._can_renew:
            return
        self._take_notes(now)
        for partition, held, due in self.locks.due(now):
            entries = _entries(AcknowledgeType.RENEW, due)
            self._placement.broker(held.node_id).acknowledgements.add(partition, held.topic_id, entries, now, renewal=True)

    def _end(self, now: float) -> None:
        if self.locks.ends_at <= now:
            self._take_notes(now)  # records that the application has were not lost unread
        for partition, over in self.locks.ended(now):
            node_id = self.locks.partitions[partition].node_id
            self._placement.broker(node_id).acknowledgements.renew_no_more(partition, {offset for offset, _ in over})
            by_reason: dict[str, list[tuple[int, int]]] = {}
            for offset, lock in over:
                if lock.keep is Keep.UNREAD:
                    self._ahead.lost_at = self.exchange.delivered
                by_reason.setdefault(self._why_not_renewed(lock, now), []).append((lock.number, offset))
            for why, ended in by_reason.items():
                text = f"{partition}: the lock ended before the record was acknowledged"
                error = InvalidRecordStateError(f"{text}: {why}" if why else text)
                self.exchange.report(Lost(partition, tuple(ended), error))
                if why:
                    text, which = "locks are not renewed any longer, so others get the records", frozenset((partition,))
                    self.trace(Fault(now=now, text=text, error=error, subject="fetch", partitions=which))

    def _why_not_renewed(self, lock: Lock, now: float) -> str:
        """Return why a lock that is renewed automatically was not; empty if that is not known, or it is not such a lock."""
        if lock.keep is Keep.ALONE:
            return ""
        if not self._can_renew:
            return "the brokers cannot renew locks"
        return f"max_processing_ms={self.settings.max_processing_ms} is over" if self.locks.is_over(lock, now) else ""

    def _linger(self) -> float:
        """How long acknowledgements wait for others: longer while the application works through records locked together.

        A broker keeps one state for a range that was locked together, but one for each offset once parts of it are acknowledged.
        """
        return LINGER if self.exchange.unread <= 0 else min(WHOLE, self.locks.duration / 20)

    def closed(self) -> Iterator[Call[None]]:
        """Yield the calls that wait for the end, once it has come."""
        return self._closing.closed()


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
