"""What the two sides of a share consumer share in addition to events: records, acknowledgements and their results.

Only one side writes each queue and counter, so nothing is locked. Nothing here refers to what one side goes on changing. The
notes on single records are taken by whichever side comes first.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum, IntEnum
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from ...errors import KafkaError
from ...events import Call
from ...model import ConsumerRecord, TopicPartition
from ...values import define, field, frozen
from ..boundary import EventHandler

AHEAD: Final = 1 / 3
"""Records are read ahead only if the application gets to them within this share of the locks' duration."""
CAREFUL: Final = 10
"""Once records have lost their locks unread, as many are read ahead as the application has read since, divided by this. Each time
costs such records one of their deliveries, and it may happen again, if a few jobs take longer than a lock or connections break."""
FALL: Final = 0.75
"""The pace falls by no more than this with each measurement: after a long job among short ones, another one may soon follow."""
OVERHEAD: Final = 100
"""Bytes that a record takes in addition to its key and its value."""


class AcknowledgeType(IntEnum):
    """How a record is acknowledged, by the protocol's numbers (KIP-932; KIP-1222 for renewal)."""

    GAP = 0
    """There is no record at this offset: compaction or a control record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


# --- application -> background --------------------------------------------------------------------------------------------------


class Acknowledge(NamedTuple):
    """The application acknowledges a record."""

    partition: TopicPartition
    offset: int
    number: int
    """Number of the delivery. The same offset may have come again meanwhile, under another lock."""
    kind: AcknowledgeType


class Keep(Enum):
    """Why a lock is renewed automatically, up to ``max_processing_ms``."""

    UNREAD = "its record is unread; without read calls, it is released after the time of one lock"
    WAITING = "its record was returned with others, and the application works on one of these"
    HELD = "a task works on its record, or ``process`` has it"
    ALONE = "it is not renewed, unless the application asks for it"


class RecordsHandedOut(NamedTuple):
    """Records left the buffer."""

    partition: TopicPartition
    number: int
    offsets: tuple[int, ...]
    keep: Keep = Keep.ALONE
    call: int = 0
    """Number of the read call that returned them, if they wait their turn."""


class Hold(NamedTuple):
    """A task works on a record: its lock is to be renewed until it is acknowledged."""

    partition: TopicPartition
    number: int
    offset: int


class ReleaseLater(NamedTuple):
    """The application has released a record, but nobody is to get it at once."""

    partition: TopicPartition
    number: int
    offset: int
    seconds: float


class RecordsDropped(NamedTuple):
    """Records were not handed out and never will be: others may have them."""

    partition: TopicPartition
    number: int
    offsets: tuple[int, ...]


@frozen(kw_only=True)
class Flush:
    """Send every acknowledgement now; answered with each partition's result since the last flush."""

    call: Call[dict[TopicPartition, KafkaError | None]]
    tells: bool = True
    """``False``: keep the results for the next flush."""


@frozen(kw_only=True)
class Close:
    """Fetch nothing more, settle the acknowledgements, close the sessions, leave the group: in this order."""

    call: Call[None]


Order: TypeAlias = Acknowledge | RecordsHandedOut | Hold | ReleaseLater | RecordsDropped | Flush | Close


# --- background -> application --------------------------------------------------------------------------------------------------


class Delivery(NamedTuple):
    """Records of one partition that are locked for us."""

    partition: TopicPartition
    number: int
    records: list[ConsumerRecord[bytes | None, bytes | None]]
    counts: list[int]
    """How often each has been delivered, this time included."""
    deadline: float
    """When the locks end: seconds of the loop's clock."""


class Renewed(NamedTuple):
    """Locks last longer."""

    partition: TopicPartition
    locks: tuple[tuple[int, int], ...]
    """Number of the delivery and offset."""
    deadline: float


class Lost(NamedTuple):
    """Locks have ended before their records were acknowledged."""

    partition: TopicPartition
    locks: tuple[tuple[int, int], ...]
    """Number of the delivery and offset."""
    error: KafkaError


class Settled(NamedTuple):
    """The broker has answered the application's acknowledgements, or cannot answer them any more."""

    partition: TopicPartition
    number: int
    """Of the delivery."""
    offsets: tuple[int, ...]
    kind: AcknowledgeType
    """How these records were acknowledged."""
    error: KafkaError | None
    """Why they did not count."""


def in_time(pace: float, lock_seconds: float, since: float) -> int:
    """Return how many records are read ahead if the application takes ``pace`` seconds for one (0: not known).

    ``since``: how many it has read since some have lost their locks unread; infinity if none have.
    """
    return int(min(lock_seconds * AHEAD / pace, max(0.0, since) / CAREFUL)) if pace > 0 else 0


_SIZES: Final = tuple(itemgetter(ConsumerRecord._fields.index(f"serialized_{part}_size")) for part in ("key", "value"))


def weight(records: Sequence[ConsumerRecord[Any, Any]]) -> int:
    """Return the bytes that unread records count as: keys, values and about what the objects around them take."""
    total = OVERHEAD * len(records)
    for size_of in _SIZES:
        sizes = list(map(size_of, records))
        total += sum(sizes) + sizes.count(-1)  # which stands for null
    return total


Report: TypeAlias = Delivery | Renewed | Lost | Settled


@define(eq=False)
class Demand:
    """How many records the application has use for. Written by the application."""

    wanted: int = field(default=0, init=False)
    """Records that read calls wait for."""
    asked: int = field(default=0, init=False)
    """Records that the last read call asked for."""
    missed: int = field(default=0, init=False)
    """As ``asked``, if it found none and did not wait: the next one finds only what was fetched meanwhile."""
    handlers: int = field(default=0, init=False)
    """Records that ``process`` has room for, if it runs."""
    pace: float = field(default=0.0, init=False)
    """Seconds that the application takes for a record, all its handlers or tasks together; 0: not known."""
    read_at: float = field(default=inf, init=False)
    """When a read call last asked for records, or got some; infinity before the first one."""
    held_back: bool = field(default=False, init=False)
    """None, until a read call asks for some: ``process`` is paused, drains or ends. What is locked meanwhile would only be released
    again, which costs each record one of its deliveries."""


@define(eq=False)
class Exchange:
    """The queues between a ``ShareConsumer`` and its background."""

    handler: EventHandler = field(repr=False)
    orders: deque[Order] = field(factory=deque, init=False, repr=False)
    """Appended to by the application, taken by the background."""
    reports: deque[Report] = field(factory=deque, init=False, repr=False)
    """Appended to by the background, taken by the application."""
    attentive: bool = field(default=False, init=False)
    """The background looks at the orders soon anyway. Written by the background."""
    delivered: int = field(default=0, init=False)
    """Records that were put into the queue of reports. Written by the background."""
    taken: int = field(default=0, init=False)
    """Records that were handed out or dropped. Written by the application."""
    put_bytes: int = field(default=0, init=False)
    """As ``delivered``, in bytes (``weight``)."""
    taken_bytes: int = field(default=0, init=False)
    """As ``taken``, in bytes."""
    turn: int = field(default=0, init=False)
    """How often the background has begun to take orders. Written by the background."""
    woken_in: int = field(default=-1, init=False)
    """The last turn in which the background was woken: another one follows. Written by the application."""
    lock_seconds: float = field(default=30.0, init=False)
    """How long a lock lasts, as the brokers last reported. Written by the background."""
    starving: bool = field(default=False, init=False)
    """The background would fetch if there were room. Written by the background."""
    notes: "dict[tuple[int, int], RecordsHandedOut | Hold]" = field(factory=dict, init=False, repr=False)
    """What the application does with single records, by number of the delivery and offset: orders that the background need not know
    before it renews locks or gives unread records back. Most records are acknowledged before. Written and taken back by the
    application, taken by the background.
    """
    demand: Demand = field(factory=Demand, init=False)
    topics: frozenset[str] = field(default=frozenset(), init=False)
    """Subscribed topics; records of others are released on arrival. Written by the application."""

    @property
    def unread(self) -> int:
        """Records that were delivered and not handed out yet."""
        return self.delivered - self.taken

    @property
    def unread_bytes(self) -> int:
        """Bytes of these records."""
        return self.put_bytes - self.taken_bytes

    def order(self, order: Order, *, urgent: bool = False, quiet: bool = False) -> None:
        """Queue something for the background; it is woken if it would look too late. Called by the application.

        Acknowledgements wait a moment for further ones (``acknowledgements.LINGER``): not each should cost a turn of the loop.
        ``quiet``: the background need only know before the lock is to be renewed, and it wakes up for that anyway.
        """
        self.orders.append(order)
        turn = self.turn  # after the order was appended: the turn that follows finds it
        if self.woken_in != turn and (urgent or not (quiet or self.attentive)):
            self.woken_in = turn
            self.handler.wake_background()

    def report(self, report: Report) -> None:
        """Queue something for the application. Called by the background."""
        self.reports.append(report)
        self.handler.wake_application()
