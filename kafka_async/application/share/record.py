"""One record of a share group: what was written, and the handle with which the application acknowledges it.

Acknowledging never waits: it goes to the brokers with the next request.
"""

from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self

from typing_extensions import TypeVar

from ...background.boundary import Exchange
from ...background.share.orders import AcknowledgeType
from ...errors import IllegalStateError, LockLostError
from ...model import ConsumerRecord, TopicPartition, at_offset
from ...values import define, field
from ..arguments import seconds

K_co = TypeVar("K_co", default=Any, covariant=True)
V_co = TypeVar("V_co", default=Any, covariant=True)

# Looked up once: in Python 3.11 a member of an enumeration takes as long as a call.
_ACCEPT: Final = AcknowledgeType.ACCEPT
_RELEASE: Final = AcknowledgeType.RELEASE
_REJECT: Final = AcknowledgeType.REJECT
_RENEW: Final = AcknowledgeType.RENEW
_SAID: Final = {_ACCEPT: "accepted", _RELEASE: "released", _REJECT: "rejected"}


@define(eq=False)
class HeldDelivery:
    """One delivery: records of a partition that were locked together."""

    partition: TopicPartition
    number: int
    deadline: float
    """When the locks end, except those that were renewed one by one."""
    gone: set[int] = field(factory=set)
    """Offsets whose locks have ended."""
    left: int = 0
    """Records that are neither settled nor gone."""
    out: "dict[int, ShareRecord[Any, Any]]" = field(factory=dict, repr=False)
    """Handed out and not settled, by offset."""


class Blocks(Protocol):
    """Records that tasks or threads work on within ``async with`` or ``with`` (``custody.Held``)."""

    def is_inside(self, record: "ShareRecord[Any, Any]") -> bool: ...

    def leave_inner(self, record: "ShareRecord[Any, Any]") -> bool: ...

    def leave(self, record: "ShareRecord[Any, Any]", error: BaseException | None) -> bool: ...


class Keeper(Protocol):
    """Who has the records of a consumer (``custody.Custody``), as far as one of them sees it."""

    @property
    def exchange(self) -> Exchange: ...

    @property
    def clock(self) -> Callable[[], float]: ...

    @property
    def held(self) -> Blocks: ...

    @property
    def closed(self) -> bool: ...

    def sort(self) -> None: ...

    def acknowledge(self, record: "ShareRecord[Any, Any]", kind: AcknowledgeType, delay: float = 0.0) -> bool: ...

    def enter(self, record: "ShareRecord[Any, Any]") -> bool: ...


class ShareRecord(Generic[K_co, V_co]):
    """A record that is locked for this consumer (KIP-932), with the fields of ``ConsumerRecord``.

    Acknowledge it once, with ``accept()``, ``release()`` or ``reject()``, from any task of the consumer's event loop or any
    thread, in any order. Or process it in ``async with record``, which accepts it at the end, and releases it if an exception
    or a cancellation leaves the block. While it is in ``async with``, its lock is renewed automatically, up to
    ``max_processing_ms`` after its delivery. So are the locks of the other records that the same ``getmany`` returned and that
    wait their turn, as long as the application works on one of them or has acknowledged one within the time of a lock.

    ``async with`` raises ``LockLostError``, which says why, if the lock has ended before. If it ends inside, the block is cancelled
    and then raises ``LockLostError``, unless it raises something else; a thread in ``with`` is not interrupted. In nested blocks of
    one record, the outermost one decides.

    ``delivery_count``: how often it has been delivered, this time included.
    """

    __match_args__ = ("topic", "partition", "offset", "key", "value")
    __slots__ = ("_custody", "_deadline", "_delivery", "_lost_by", "_raw", "_record", "_said", "delivery_count")

    if TYPE_CHECKING:
        topic: str
        partition: int
        offset: int
        timestamp: int
        timestamp_type: int
        key: K_co
        value: V_co
        headers: tuple[tuple[str, bytes | None], ...]
        checksum: int | None
        serialized_key_size: int
        serialized_value_size: int
        leader_epoch: int | None
    delivery_count: int

    def __init__(self, record: Any, delivery_count: int, custody: Keeper, delivery: HeldDelivery, raw: Any) -> None:
        """Made by the consumer from a ``ConsumerRecord``; ``raw`` is that record as it was before deserializers."""
        self._record = record
        self.delivery_count = delivery_count
        self._custody = custody
        self._delivery = delivery
        self._raw = raw
        self._deadline = delivery.deadline  # from now on the lock is renewed apart from those of unread records
        self._lost_by: Exception | None = None
        self._said: AcknowledgeType | None = None

    def fields(self) -> tuple[Any, ...]:
        """Return the fields of ``ConsumerRecord``, in its order."""
        return tuple(self._record)

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's topic and partition."""
        return self._delivery.partition

    @property
    def deadline(self) -> float:
        """When the lock ends, as last renewed: seconds on the clock of the event loop (``loop.time()``).

        With ``background="thread"`` the clock is ``time.monotonic()``. After that, others may get the record.
        """
        self._custody.sort()
        return self._deadline

    @property
    def lost(self) -> bool:
        """The lock has ended, or the acknowledgement did not count, or its result is unknown: others may get the record, or have
        it already.

        If it was accepted, the work may be done twice.
        """
        custody = self._custody
        if custody.exchange.reports:
            custody.sort()
        return self._lost_by is not None or (self._said is None and custody.clock() >= self._deadline)

    def accept(self) -> None:
        """The record is done and is never delivered again. Raises ``IllegalStateError`` if it was acknowledged otherwise before."""
        if not self._custody.acknowledge(self, _ACCEPT):  # as ``_say``, for every record
            self._check()

    def release(self, *, delay_ms: float = 0) -> None:
        """The record may be delivered again, to any member, unless it was delivered as often as the group allows.

        With ``delay_ms`` it stays locked that long first, up to ``max_processing_ms`` after its delivery; ``stop`` releases it at
        once. Use this if the reason may pass: what is released at once is delivered at once, and after a few deliveries
        (``share.delivery.count.limit``, 5 by default) never again. ``flush`` does not wait for it. While it stays locked, members
        get the partition's records only up to ``share.partition.max.record.locks`` (2000 by default) offsets past it.

        Raises ``IllegalStateError`` if it was acknowledged before, ``ValueError`` for a delay that is not a number.
        """
        self._say(_RELEASE, seconds(delay_ms, "delay_ms"))

    def reject(self) -> None:
        """The record cannot be handled; it is never delivered again. Raises as ``accept`` does."""
        self._say(_REJECT)

    def renew(self) -> None:
        """Renew the lock: its time starts again when the broker answers (Kafka 4.2; without effect if the brokers cannot).

        Raises ``IllegalStateError`` if the record was acknowledged.
        """
        self._say(_RENEW)

    def _check(self) -> None:
        if self._said is not None:
            where = at_offset(self.topic, self.partition, self.offset)
            raise IllegalStateError(f"{where} was {_SAID[self._said]} before; a record can be acknowledged only once")

    def _say(self, kind: AcknowledgeType, delay: float = 0.0) -> None:
        if not self._custody.acknowledge(self, kind, delay):
            self._check()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(exc_type, error, traceback)

    # As above, for the blocking consumer.

    def __enter__(self) -> Self:
        custody = self._custody
        if not custody.held.is_inside(self):
            self._check()
            if not custody.enter(self):
                raise self._loss()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        custody = self._custody
        if custody.held.leave_inner(self):
            return
        says = False
        try:
            says = self._said is None and not (self.lost and not custody.closed)
            if says:
                self._say(_ACCEPT if error is None else _RELEASE)
        finally:  # not before: a stop that came in between, of another thread, would leave the acknowledgement behind
            was_ended = custody.held.leave(self, error)
        if not says and (was_ended or (self._said is None and error is None)):
            raise self._loss()

    def _loss(self) -> LockLostError:
        where, cause = at_offset(self.topic, self.partition, self.offset), self._lost_by
        text = f"{where}: the lock has ended, so others may get the record, or have it already"
        loss = LockLostError(text if cause is None else f"{text}: {cause}", self)
        loss.__cause__ = cause
        return loss

    def __repr__(self) -> str:
        where = at_offset(self.topic, self.partition, self.offset)
        return f"<ShareRecord {where} key={self.key!r:.60} value={self.value!r:.60} delivery_count={self.delivery_count}>"


for _name in ConsumerRecord._fields:  # looked up in the record when they are asked for: copying them all takes longer
    setattr(ShareRecord, _name, property(attrgetter(f"_record.{_name}"), doc=f"As ``ConsumerRecord.{_name}``."))
