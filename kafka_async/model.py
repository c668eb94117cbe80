"""The plain values that callers hold and that cross the queues.

Every class here is immutable. Field names are those of Java's client and, for records, of aiokafka's.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Generic, NamedTuple
from uuid import UUID

from typing_extensions import TypeVar

from .values import field, frozen

K_co = TypeVar("K_co", default=Any, covariant=True)
V_co = TypeVar("V_co", default=Any, covariant=True)


_LONGEST_HOST: Final = 255
"""Characters; a name has 253 at most. Brokers send their addresses, and messages repeat them."""


class TopicPartition(NamedTuple):
    """A partition of a topic. As text it is Kafka's ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def at_offset(topic: str, partition: int, offset: int) -> str:
    """Return where a record is, as messages say it: ``orders-3 at offset 5``."""
    return f"{TopicPartition(topic, partition)} at offset {offset}"


def last_header(headers: Sequence[tuple[str, bytes | None]], name: str) -> bytes | None:
    """Return the value of the last header of a name; ``None`` also if there is none."""
    return next((value for header, value in reversed(headers) if header == name), None)


class _Offset(NamedTuple):
    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndMetadata(_Offset):
    """A committed offset: the next offset to read, a free string, and the leader epoch of the last record read (KIP-320).

    ``leader_epoch`` is ``None`` if it is unknown; then a truncation of the log cannot be noticed when reading resumes.

    ``topic_id`` is the id of the topic that the offset belongs to (KIP-516). An offset of a topic that was deleted has no effect on
    another one of the same name: a commit or a seek drops it. ``None``: not known; then the topic that was last read under the name
    is meant. It is not an item of the tuple, so it is not compared, printed or unpacked.
    """

    topic_id: UUID | None = None

    def __new__(
        cls, offset: int, metadata: str = "", leader_epoch: int | None = None, topic_id: UUID | None = None
    ) -> "OffsetAndMetadata":
        made = super().__new__(cls, offset, metadata, leader_epoch)
        made.topic_id = topic_id
        return made

    def _replace(self, **changes: Any) -> "OffsetAndMetadata":
        values = dict(zip(self._fields, self, strict=True)) | {"topic_id": self.topic_id} | changes
        return OffsetAndMetadata(**values)

    def of(self, topic_id: UUID | None) -> "OffsetAndMetadata":
        """Return the same offset as one of this topic; itself if it belongs to a topic already."""
        return self if self.topic_id is not None or topic_id is None else self._replace(topic_id=topic_id)


class _Found(NamedTuple):
    offset: int
    timestamp: int


class OffsetAndTimestamp(_Found):
    """The result of a look-up by time: the first offset at or after it, and that record's own timestamp in milliseconds.

    ``leader_epoch`` is that of the record, ``None`` if unknown. It is not an item of the tuple, so it is not compared, printed
    or unpacked: ``offset, timestamp = found`` is what programs do with aiokafka's.
    """

    leader_epoch: int | None = None

    def __new__(cls, offset: int, timestamp: int, leader_epoch: int | None = None) -> "OffsetAndTimestamp":
        made = super().__new__(cls, offset, timestamp)
        made.leader_epoch = leader_epoch
        return made

    def _replace(self, **changes: Any) -> "OffsetAndTimestamp":
        return OffsetAndTimestamp(**self._asdict() | {"leader_epoch": self.leader_epoch} | changes)


class ConsumerRecord(NamedTuple, Generic[K_co, V_co]):
    """One record as it is handed to the application (``org.apache.kafka.clients.consumer.ConsumerRecord``).

    A tuple under the hood: immutable, small, picklable, and built by the compiled decoder in one step. Its types are covariant: a
    function of ``ConsumerRecord[Any, Order | None]`` takes a ``ConsumerRecord[Any, Order]`` too.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch; -1 if the record has none (message format 0)."""
    timestamp_type: int
    """0: set by the producer (CreateTime), 1: set by the broker (LogAppendTime), -1: there is none."""
    key: K_co
    value: V_co
    headers: tuple[tuple[str, bytes | None], ...]
    """Header keys that are not UTF-8 come with surrogate escapes, never as an error."""
    checksum: int | None
    """CRC-32 of the message for formats 0 and 1; ``None`` for record batches, whose CRC covers the whole batch."""
    serialized_key_size: int
    """Bytes; -1 for a null key."""
    serialized_value_size: int
    """Bytes; -1 for a null value."""
    leader_epoch: int | None
    """Epoch of the partition leader that wrote the record; ``None`` for formats 0 and 1."""


@frozen
class Node:
    """A broker: its id (negative for a bootstrap server whose id is not known yet) and where it listens."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        plain = self.host.isprintable() and len(self.host) <= _LONGEST_HOST
        return f"{self.host if plain else f'{self.host!r:.80}'}:{self.port} (id {self.id})"


@frozen
class SubscriptionPattern:
    """A regular expression in RE2 syntax that the broker evaluates (KIP-848); it must match the whole topic name."""

    pattern: str


class IsolationLevel(Enum):
    """Which transactional records a read returns (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@frozen(kw_only=True)
class GroupMetadata:
    """The consumer's identity in its group; a transactional producer sends it along with offsets (KIP-447)."""

    group_id: str | None
    generation_id: int = -1
    """Generation (classic protocol) or member epoch (consumer protocol); -1: not a member."""
    member_id: str = ""
    group_instance_id: str | None = None


class ConsumerState(Enum):
    """What the consumer is doing, for people and health checks."""

    NEW = "new"
    STARTING = "starting"
    JOINING = "joining"
    REBALANCING = "rebalancing"
    STEADY = "steady"
    COORDINATOR_LOST = "paused by coordinator loss"
    UNREACHABLE = "no broker can be reached"
    STALLED = "a record has been unfinished for too long"
    FATAL = "fatal"
    CLOSED = "closed"

    def __str__(self) -> str:
        return self.value


@frozen(kw_only=True)
class PartitionStatistics:
    """One assigned partition. Offsets and bytes; ``None`` if not known yet."""

    position: int | None
    """Next offset that will be handed to the application."""
    high_watermark: int | None
    last_stable_offset: int | None
    log_start_offset: int | None
    lag: int | None
    """Records up to the high watermark (the last stable offset under ``read_committed``)."""
    buffered_bytes: int
    """Bytes fetched for the partition and not read yet."""
    paused: bool
    """By ``pause``. What ``process`` holds until it is due is in ``ProcessingStatistics.delayed_until``."""
    state: str
    """State of the fetch position, see ``background/positions/subscription.py``."""
    leader: int | None
    preferred_read_replica: int | None
    problem: str | None = None
    """Why nothing of the partition can be read: a corrupt batch, an offset that the log does not hold, a broker that refuses."""


@frozen(kw_only=True)
class Statistics:
    """One snapshot of a consumer. It does not change when the consumer goes on."""

    state: ConsumerState
    client_id: str
    cluster_id: str | None
    group_id: str | None
    member_id: str | None
    generation: int | None
    """Generation (classic protocol) or member epoch (consumer protocol)."""
    coordinator: Node | None
    brokers: tuple[Node, ...]
    connections: int
    """Open connections."""
    requests_in_flight: int
    buffered_bytes: int
    """Bytes fetched and not read yet, over all partitions; stays under ``fetch_buffer_bytes``."""
    buffer_limit: int
    records_consumed: int
    bytes_consumed: int
    wake_ups: int
    """Turns of the background loop since start."""
    unreachable_since: int | None = None
    """Since when no broker can be reached, in milliseconds since the epoch; ``None``: one can be."""
    last_answer_at: int | None = None
    """When a broker answered last, in milliseconds since the epoch; ``None`` before the first answer."""
    stale: bool = False
    """The values about the cluster may be out of date: no broker can be reached, or the consumer has ended."""
    partitions: dict[TopicPartition, PartitionStatistics] = field(factory=dict)
