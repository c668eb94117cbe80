"""All that the application's side and the background loop share: two queues of events, the fetched data, and a few plain numbers.

For both kinds of consumers: ``FetchBuffer`` is what a ``KafkaConsumer`` has in addition to events, ``Exchange`` what a
``ShareConsumer`` has. No field is written by both sides: each names its one writer, and a test compares. So no lock is needed;
a ``deque`` that one side fills and the other drains is safe.

Numbers are here only if they change too often for events. The order of the parcels counts: a new position or a failure of a
partition also travels among them, after the data that came before it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias
from uuid import UUID

from typing_extensions import TypeVar

from ..errors import KafkaError
from ..events import ApplicationEvent, BackgroundEvent, ErrorEvent, ShareEvent
from ..model import TopicPartition
from ..values import define, field, frozen

if TYPE_CHECKING:  # only share consumers have them
    from .share.orders import Hold, Order, RecordsHandedOut, Report

E = TypeVar("E", default=ApplicationEvent)
"""The application's events: those of one kind of consumer."""

WRITER: Final = "writer"
"""Key in the metadata of a field: which side writes it."""
_APPLICATION: Final = {WRITER: "application"}
_BACKGROUND: Final = {WRITER: "background"}
_BOTH_ENDS: Final = {WRITER: "both"}
"""A queue: one side appends, the other one takes."""
_ASSEMBLY: Final = {WRITER: "assembly"}
"""Set when the parts are put together, before either side runs."""


class LoopInterrupted(BaseException):
    """Why the loop is gone: somebody else cancelled its task, as programs do that cancel every task. It may run again."""


@define(eq=False)
class EventHandler(Generic[E]):
    """Carries ApplicationEvents down and BackgroundEvents up."""

    wake_background: Callable[[], None] = field(repr=False, metadata=_ASSEMBLY)
    """Called after each event for the background; safe to call from the other side's thread."""
    wake_application: Callable[[], None] = field(repr=False, metadata=_ASSEMBLY)
    """Called after each event for the application; safe to call from the other side's thread."""
    progress: Callable[[], int] = field(default=lambda: 0, init=False, repr=False, metadata=_ASSEMBLY)
    """Returns a number that changes while the application works through an iteration's batch; called by the background."""
    attend: Callable[[], None] = field(default=lambda: None, init=False, repr=False, metadata=_ASSEMBLY)
    """Makes the next step of an iteration check for changes before it takes a record; called by both sides."""
    polled_at: float = field(default=0.0, init=False, metadata=_APPLICATION)
    """When a read call was last entered or left."""
    reading: int = field(default=0, init=False, metadata=_APPLICATION)
    """Read calls that wait right now."""
    subscription: int = field(default=0, init=False, metadata=_BACKGROUND)
    """Number of the last subscribe, unsubscribe or assign that was carried out; events carry it."""
    denied: frozenset[str] = field(default=frozenset(), init=False, metadata=_BACKGROUND)
    """Subscribed or assigned topics to which the cluster refuses access. A group may have taken their partitions away."""
    refused: Mapping[TopicPartition, KafkaError] = field(factory=dict, init=False, repr=False, metadata=_BACKGROUND)
    """Of a share consumer: as ``FetchBuffer.refused`` of other ones. Replaced as a whole."""
    unavailable: Mapping[TopicPartition, KafkaError] = field(factory=dict, init=False, repr=False, metadata=_BACKGROUND)
    """Of a share consumer: as ``FetchBuffer.unavailable`` of other ones, of assigned partitions only. Replaced as a whole."""
    session_deadline: float = field(default=inf, init=False, metadata=_BACKGROUND)
    """Until when the partitions are certainly ours. After that no buffered record is handed out."""
    wakes_at: float = field(default=inf, init=False, metadata=_BACKGROUND)
    """When the loop will turn again at the latest, whatever happens."""
    ended: BaseException | None = field(default=None, init=False, metadata=_BACKGROUND)
    """Why the loop is gone; ``None`` while it runs, or before it does."""
    application_events: deque[E] = field(factory=deque, init=False, metadata=_BOTH_ENDS)
    background_events: deque[BackgroundEvent] = field(factory=deque, init=False, metadata=_BOTH_ENDS)

    def last_poll(self, now: float) -> float | None:
        """Return when the application last read: ``now`` while a read waits, ``None`` before the first. From any thread."""
        return now if self.reading > 0 else self.polled_at or None

    def add(self, event: E) -> None:
        """Queue an event for the background. Called by the application."""
        self.application_events.append(event)
        self.wake_background()

    def add_all(self, events: list[E]) -> None:
        """Queue events that the background carries out together, before it does anything else. Called by the application."""
        self.application_events.extend(events)  # one step, of a list: the background's thread may be taking events just now
        self.wake_background()

    def publish(self, event: BackgroundEvent) -> None:
        """Queue an event for the application. Called by the background."""
        self.background_events.append(event)
        self.attend()
        self.wake_application()

    def publish_error(self, error: KafkaError, *, to_all: bool = False, final: bool = False) -> None:
        """Queue an error unless the same one waits already: a caller that does not read must not collect a thousand of them.

        Called by the background.
        """
        event = ErrorEvent(error=error, to_all=to_all, final=final, subscription=self.subscription)
        if not any(isinstance(waiting, ErrorEvent) and event.repeats(waiting) for waiting in tuple(self.background_events)):
            self.publish(event)

    def drain_application(self) -> Iterator[E]:
        """Take the application's events, oldest first. Called by the background."""
        while self.application_events:
            yield self.application_events.popleft()

    def drain_background(self) -> Iterator[BackgroundEvent]:
        """Return the background's events, oldest first; each leaves the queue once it is dealt with.

        Called by the application, in one thread at a time.
        """
        while self.background_events:
            event = self.background_events[0]
            yield event
            if self.background_events and self.background_events[0] is event:
                self.background_events.popleft()


class FetchedData(NamedTuple):
    """One partition's part of a Fetch response; the records are still bytes.

    What is made for each answer is a tuple: that takes a quarter of the time.
    """

    partition: TopicPartition
    stamp: int
    fetch_offset: int
    records: bytes
    aborted: tuple[tuple[int, int], ...] = ()
    """``(producer id, first offset)`` of the transactions that were aborted (``read_committed`` only)."""
    topic_id: UUID | None = None

    @property
    def size(self) -> int:
        return len(self.records)


@frozen(kw_only=True)
class Repositioned:
    """The background moved the position: the committed offset, a reset by policy, or a truncation that policy lets pass."""

    partition: TopicPartition
    stamp: int
    offset: int
    leader_epoch: int | None = None
    is_committed: bool = False
    """It is the committed offset."""
    is_first: bool = False
    """The group has stored no offset of the partition; this is where it begins."""
    topic_id: UUID | None = None
    """The topic that the offset belongs to. If it is another one than before, nothing that is known about that one counts."""


@frozen(kw_only=True)
class PartitionFailed:
    """The partition cannot go on from here. With ``halted`` it stays stopped until the application seeks."""

    partition: TopicPartition
    stamp: int
    error: KafkaError
    halted: bool = True
    topic_id: Any = None
    """The topic that has the name now (a ``UUID``): what the application does about the error is meant for it."""


class Watermarks(NamedTuple):
    """Offsets of a partition as of the last Fetch response."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    fetched_at: float


Parcel: TypeAlias = FetchedData | Repositioned | PartitionFailed


LARGE: Final = 64 * 1024
"""Parcels of at least so many bytes are announced only after the next request is sent."""


@define(eq=False)
class UnreadBytes:
    """Bytes of one partition: put by the background, released by the application. The difference is unread."""

    put: int = field(default=0, metadata=_BACKGROUND)
    released: int = field(default=0, metadata=_APPLICATION)

    @property
    def unread(self) -> int:
        return self.put - self.released


@define(eq=False)
class FetchBuffer:
    """Parcels on their way to the application."""

    limit: int = field(metadata=_ASSEMBLY)
    on_parcel: Callable[[], None] = field(repr=False, metadata=_ASSEMBLY)
    """Wakes the application; called by the background."""
    on_room: Callable[[], None] = field(repr=False, metadata=_ASSEMBLY)
    """Wakes the background; called by the application, and only when the background waits for room."""
    parcels: deque[Parcel] = field(factory=deque, repr=False, metadata=_BOTH_ENDS)
    watermarks: dict[TopicPartition, Watermarks] = field(factory=dict, repr=False, metadata=_BACKGROUND)
    total: UnreadBytes = field(factory=UnreadBytes, metadata=_ASSEMBLY)
    accounts: dict[TopicPartition, UnreadBytes] = field(factory=dict, repr=False, metadata=_BACKGROUND)
    refused: Mapping[TopicPartition, KafkaError] = field(factory=dict, repr=False, metadata=_BACKGROUND)
    """Partitions that a broker refuses to read, and why. They are tried again. Replaced as a whole."""
    unavailable: Mapping[TopicPartition, KafkaError] = field(factory=dict, repr=False, metadata=_BACKGROUND)
    """Partitions that have had no leader, or have not been there, for longer than an election takes. Replaced as a whole."""
    hungry: bool = field(default=False, metadata=_BACKGROUND)
    """The background would fetch if there were room, or is looking for room right now."""
    starving: bool = field(default=False, metadata=_BACKGROUND)
    """There is no room even for what is ``asked`` for, for which some is kept."""
    asked: frozenset[TopicPartition] = field(default=frozenset(), metadata=_APPLICATION)
    """Partitions that reads wait for, while there is no room for all; the others give way. Empty: nobody waits so."""
    _unannounced: bool = field(default=False, init=False, metadata=_BACKGROUND)

    def put(self, *parcels: Parcel) -> None:
        """Hand parcels over, all in one step. Wakes the application; if all are large only with ``announce``.

        An application on another thread may get its turn after each step, for 50,000 records. If a parcel of each partition of an
        answer were a step, it would read the first partition alone for so long.

        The sequence that costs a third of the throughput: the application is woken first, works through a megabyte without yielding
        to the event loop, and only then the broker is asked for more. A small parcel goes first, because latency counts there.
        Called by the background.
        """
        all_large = True
        for parcel in parcels:
            size = 0
            if isinstance(parcel, FetchedData):
                size = len(parcel.records)
                self.total.put += size
                (self.accounts.get(parcel.partition) or self.account(parcel.partition)).put += size
            all_large = all_large and size >= LARGE
        self.parcels.extend(parcels)
        if all_large:
            self._unannounced = True
        else:
            self.on_parcel()

    def announce(self) -> None:
        """Wake the application for large parcels: the next requests are on their way. Called by the background."""
        if self._unannounced:
            self._unannounced = False
            self.on_parcel()

    def account(self, partition: TopicPartition) -> UnreadBytes:
        """Return the account of a partition; a new one if there is none. Called by the background."""
        account = self.accounts.get(partition)
        if account is None:
            account = self.accounts[partition] = UnreadBytes()
        return account

    def unread(self, partition: TopicPartition) -> int:
        """Return the bytes of a partition that were fetched and not read yet."""
        account = self.accounts.get(partition)
        return account.put - account.released if account is not None else 0

    def room(self) -> int:
        """Return how many more bytes may be fetched; can be negative after a batch that is larger than the room there was."""
        total = self.total
        return self.limit - (total.put - total.released)

    def ask(self, partitions: frozenset[TopicPartition]) -> None:
        """Have these partitions fetched before any other. Called by the application."""
        if partitions != self.asked:
            self.asked = partitions
            self.on_room()

    def forget(self, partition: TopicPartition) -> None:
        """Drop the account of a partition that is no longer assigned, once nothing of it is unread. Called by the background."""
        self.watermarks.pop(partition, None)
        if self.unread(partition) == 0:
            self.accounts.pop(partition, None)

    @property
    def next(self) -> Parcel | None:
        """The parcel that ``take`` returns, or ``None``. For the application."""
        return self.parcels[0] if self.parcels else None

    def take(self) -> Parcel | None:
        """Return the next parcel, or ``None``. Its bytes count as unread until they are released. Called by the application."""
        return self.parcels.popleft() if self.parcels else None

    def release(self, data: FetchedData) -> None:
        """Release a parcel's bytes. Wakes the background if it waits for room. Called by the application."""
        size = len(data.records)
        self.total.released += size
        account = self.accounts.get(data.partition)
        if account is not None:
            account.released += size
        if self.hungry:
            self.on_room()


# --- share groups ---------------------------------------------------------------------------------------------------------------


@define(eq=False)
class Demand:
    """How many records the application of a share consumer has use for."""

    wanted: int = field(default=0, init=False, metadata=_APPLICATION)
    """Records that read calls wait for."""
    asked: int = field(default=0, init=False, metadata=_APPLICATION)
    """Records that the last read call asked for."""
    missed: int = field(default=0, init=False, metadata=_APPLICATION)
    """As ``asked``, if it found none and did not wait: the next one finds only what was fetched meanwhile."""
    handlers: int = field(default=0, init=False, metadata=_APPLICATION)
    """Records that ``process`` has room for, if it runs."""
    pace: float = field(default=0.0, init=False, metadata=_APPLICATION)
    """Seconds that the application takes for a record, all its handlers or tasks together; 0: not known. It falls slowly."""
    average: float = field(default=0.0, init=False, metadata=_APPLICATION)
    """The same for many records: one that took long, or a pause of the program, counts for no more than it is."""
    read_at: float = field(default=inf, init=False, metadata=_APPLICATION)
    """When a read call last asked for records, or got some; infinity before the first one."""
    held_back: bool = field(default=False, init=False, metadata=_APPLICATION)
    """None, until a read call asks for some: ``process`` is paused, drains or ends. What is locked meanwhile would only be released
    again, which costs each record one of its deliveries."""


@define(eq=False)
class Exchange:
    """What a ``ShareConsumer`` and its background have between them in addition to events: records, acknowledgements, results."""

    handler: EventHandler[ShareEvent] = field(repr=False, metadata=_ASSEMBLY)
    orders: "deque[Order]" = field(factory=deque, init=False, repr=False, metadata=_BOTH_ENDS)
    """From the application to the background."""
    reports: "deque[Report]" = field(factory=deque, init=False, repr=False, metadata=_BOTH_ENDS)
    """From the background to the application."""
    attentive: bool = field(default=False, init=False, metadata=_BACKGROUND)
    """The background looks at the orders soon anyway."""
    delivered: int = field(default=0, init=False, metadata=_BACKGROUND)
    """Records that were put into the queue of reports."""
    taken: int = field(default=0, init=False, metadata=_APPLICATION)
    """Records that were handed out or dropped."""
    put_bytes: int = field(default=0, init=False, metadata=_BACKGROUND)
    """As ``delivered``, in bytes (``weight``)."""
    taken_bytes: int = field(default=0, init=False, metadata=_APPLICATION)
    """As ``taken``, in bytes."""
    turn: int = field(default=0, init=False, metadata=_BACKGROUND)
    """How often the background has begun to take orders."""
    woken_in: int = field(default=-1, init=False, metadata=_APPLICATION)
    """The last turn in which the background was woken: another one follows."""
    lock_seconds: float = field(default=30.0, init=False, metadata=_BACKGROUND)
    """How long a lock lasts, as the brokers last reported."""
    starving: bool = field(default=False, init=False, metadata=_BACKGROUND)
    """The background would fetch if there were room."""
    notes: "dict[tuple[int, int], RecordsHandedOut | Hold]" = field(factory=dict, init=False, repr=False, metadata=_APPLICATION)
    """What the application does with single records, by number of the delivery and offset: orders that the background need not know
    before locks are renewed or end, or unread records are given back. Most records are acknowledged before. Whichever side comes
    first takes one.
    """
    demand: Demand = field(factory=Demand, init=False, metadata=_ASSEMBLY)
    topics: frozenset[str] = field(default=frozenset(), init=False, metadata=_APPLICATION)
    """Subscribed topics; records of others are released on arrival."""

    @property
    def unread(self) -> int:
        """Records that were delivered and not handed out yet."""
        return self.delivered - self.taken

    @property
    def unread_bytes(self) -> int:
        """Bytes of these records."""
        return self.put_bytes - self.taken_bytes

    def order(self, order: "Order", *, urgent: bool = False, quiet: bool = False) -> None:
        """Queue something for the background; it is woken if it would look too late. Called by the application.

        Acknowledgements wait a moment for further ones (``acknowledgements.LINGER``): not each should cost a turn of the loop.
        ``quiet``: the background need only know before the lock is to be renewed, and it wakes up for that anyway.
        """
        self.orders.append(order)
        turn = self.turn  # after the order was appended: the turn that follows finds it
        if self.woken_in != turn and (urgent or not (quiet or self.attentive)):
            self.woken_in = turn
            self.handler.wake_background()

    def report(self, report: "Report") -> None:
        """Queue something for the application. Called by the background."""
        self.reports.append(report)
        self.handler.wake_application()
