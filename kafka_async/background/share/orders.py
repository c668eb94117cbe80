"""What the two sides of a share consumer tell each other about records: orders go down, reports come up (``boundary.Exchange``).

Nothing here refers to what one side goes on changing.
"""

from collections.abc import Sequence
from enum import Enum, IntEnum
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from ...errors import KafkaError
from ...events import Call
from ...model import ConsumerRecord, TopicPartition
from ...values import frozen

AHEAD: Final = 1 / 3
"""Records are read ahead only if the application gets to them within this share of the locks' duration."""
SOON: Final = 1.0
"""Seconds of work that are read ahead at most, but for a ``FEW`` records. What is unread when a member stops goes to others, and
costs a record one of its deliveries each time (since Kafka 4.2, KAFKA-19972): after five restarts nobody gets it any more."""
FEW: Final = 10
"""Records that are read ahead even if they take longer, so that handlers need not wait for each fetch."""
CAREFUL: Final = 10
"""Once records have lost their locks unread, as many are read ahead as the application has read since, divided by this. Each time
costs such records one of their deliveries, and it may happen again, if a few jobs take longer than a lock or connections break."""
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
    return int(min(lock_seconds * AHEAD / pace, max(SOON / pace, FEW), max(0.0, since) / CAREFUL)) if pace > 0 else 0


_SIZES: Final = tuple(itemgetter(ConsumerRecord._fields.index(f"serialized_{part}_size")) for part in ("key", "value"))


def weight(records: Sequence[ConsumerRecord[Any, Any]]) -> int:
    """Return the bytes that unread records count as: keys, values and about what the objects around them take."""
    total = OVERHEAD * len(records)
    for size_of in _SIZES:
        sizes = list(map(size_of, records))
        total += sum(sizes) + sizes.count(-1)  # which stands for null
    return total


Report: TypeAlias = Delivery | Renewed | Lost | Settled
