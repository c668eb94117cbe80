"""Records that failed, written to topics from which the same program handles them again later: ``on_failure=RetryTopics(...)``.

A record that fails goes to the topic of the first delay. It is held there until it is due and handled again; if it fails, it goes
to the topic of the next delay, and after the last one to ``then``. Meanwhile the records behind it go on, also those with its key:
**a record that is sent to a retry topic loses its place in the order.** If order matters more than progress, use ``Retry`` alone,
which keeps the record's lane waiting.

The record counts as done once the cluster has acknowledged the copy. A member that dies between the two writes it again, so there
may be two. Key and value are the record's bytes in the log. It is written by key, with the producer's own partitioner.

Headers, all text, are replaced each time and never pile up. ``retry-topic``, ``retry-partition``, ``retry-offset`` and
``retry-timestamp`` say where the record was first; ``retry-attempts`` how many attempts it has had, ``retry-due`` when it is due
(milliseconds since the epoch), ``retry-exception`` which exception was the last.

``application/DELAYS.md`` has the whole of it: which topics to create, and how.
"""

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from copy import copy
from inspect import isawaitable
from typing import Any, ClassVar, Final, Literal, Self

from ..application.arguments import subscribed_topics
from ..application.processing.redelivery import TOPIC, Redelivered
from ..application.processing.retry import Reject
from ..application.processing.threads import Threads
from ..functions import check_work, finished, is_async
from ..lazy import public_name
from ..model import at_offset, last_header
from .publishing import Headers, Publisher, Record, check_bytes, is_too_large, traced

PARTITION: Final = "retry-partition"
OFFSET: Final = "retry-offset"
TIMESTAMP: Final = "retry-timestamp"
"""Milliseconds since the epoch."""
ATTEMPTS: Final = "retry-attempts"
DUE: Final = "retry-due"
"""Milliseconds since the epoch."""
EXCEPTION: Final = "retry-exception"
"""The class, with the module that programs import it from."""
_OURS: Final = frozenset((TOPIC, PARTITION, OFFSET, TIMESTAMP, ATTEMPTS, DUE, EXCEPTION))

Then = Literal["stop", "skip"] | Callable[[Record, BaseException, int], Awaitable[object] | object]
"""What becomes of a record that no delay has helped: as ``on_failure``."""


def _wall() -> float:
    return time.time() * 1000


class RetryTopics:
    """For ``on_failure`` of ``process``: handles records that failed again, later, from topics of their own.

    ``RetryTopics(producer, delays=(60, 600, 3600), then=DeadLetters(producer, "orders-dead"))``

    ``producer``: a started ``aiokafka.AIOKafkaProducer`` without serializers, a ``confluent_kafka.aio.AIOProducer`` or a
    ``confluent_kafka.Producer``, with ``acks="all"`` (aiokafka's default is 1). ``delays``: whole seconds, each another one; a
    record goes through them in this order. ``then``: ``"stop"``, ``"skip"`` or a function as for ``on_failure``, for records that
    failed after the last delay and for those that another attempt does not help: ``Reject``, an error whose ``retriable`` is
    ``False`` such as those of records that cannot be deserialized, and copies that are too large. It gets the record as it was
    first, with its topic, partition and offset and without our headers. ``group``: the name in the topics, in place of the
    consumer's ``group_id``. ``patience_ms``: for how long a write that fails is tried again; then its error, or
    ``KafkaTimeoutError`` if the producer still tries, stops processing, and the record is not committed. 0: one try, for as long as
    the producer tries.

    The topics are ``{topic}.{group}.retry.{seconds}``; ``topics("orders", "billing")`` returns them. They must exist, or
    ``process`` raises ``UnknownTopicOrPartitionError`` with their names. Subscribe to them too: ``KafkaConsumer("orders",
    *retry.topics("orders", "billing"), ...)``. That is all: ``process`` holds their records until they are due.

    ``context.attempt`` goes on from topic to topic. What ``Retry`` says is for the first topic: a record that comes from a retry
    topic gets one attempt there, however many it has had. The log says once that such records lose their place in the order.

    Raises ``TypeError`` and ``ValueError`` for bad arguments.
    """

    raw_records: ClassVar[bool] = True
    """``process`` passes it records with their bytes."""

    def __init__(
        self,
        producer: Any,
        *,
        delays: Sequence[int] = (60, 600, 3600),
        then: Then,
        group: str | None = None,
        patience_ms: float = 120_000,
    ) -> None:
        self._delays = _checked_delays(delays)
        expected = '"stop", "skip" or a function of record, error and attempts'
        if isinstance(then, str) and then not in ("stop", "skip"):
            raise ValueError(f"then={then!r}: expected {expected}")
        if not isinstance(then, str):
            check_work(then, "then", expected, 3)
        self._then = then
        self._publisher = Publisher(producer, "retry record", group=group, patience_ms=patience_ms)
        self._group = None if group is None else _checked_group(group)
        self._wall = _wall

    def for_group(self, group_id: str | None, wall: Callable[[], float] = _wall) -> Self:
        """Return what serves a group (for ``process``). ``wall``: returns the wall clock's time, in milliseconds since the epoch.

        Raises ``ValueError`` without a group, and for one whose name no topic can have.
        """
        made = copy(self)
        made._group = self._named(group_id)
        made._wall = wall
        return made

    def topics(self, topics: str | Iterable[str], group: str | None = None) -> list[str]:
        """Return the retry topics of a topic, or of several, for a group: to create them, and to subscribe to them.

        Those of ``topics`` that are retry topics have none. Raises ``ValueError`` without a group and for impossible names.
        """
        made = self if group is None and self._group is not None else self.for_group(group)
        given = [topics] if isinstance(topics, str) else list(topics)
        names = [made._name(topic, seconds) for topic in sorted(given) if not made.serves(topic) for seconds in self._delays]
        subscribed_topics(names)
        return names

    # --- what ``process`` asks -------------------------------------------------------------------------------------------------

    def serves(self, topic: str) -> bool:
        """Return whether this is a retry topic of the group, also of a delay that is not in use any more."""
        return self._place(topic) is not None

    def not_before(self, record: Record) -> float | None:
        """Return when a record is due, in milliseconds since the epoch; ``None`` if it does not come from a retry topic.

        It is never later than the topic's delay from now on, whatever the header says.
        """
        place = self._place(record.topic)
        if place is None:
            return None
        delay = place[1] * 1000
        due = _number(record, DUE)
        return min(record.timestamp + delay if due is None else due, self._wall() + delay)

    def attempts_before(self, record: Record) -> int:
        """Return how many attempts a record has had, as its header says; 0 if it does not come from a retry topic."""
        return (_number(record, ATTEMPTS) or 0) if self.serves(record.topic) else 0

    @property
    def any_loop(self) -> bool:
        """Whether a consumer without an event loop of its own may use it (``kafka_async.sync``): not with aiokafka's producer, nor
        with an async ``then`` that may not.
        """
        then = self._then
        return self._publisher.any_loop and (isinstance(then, str) or not is_async(then) or getattr(then, "any_loop", False))

    async def __call__(self, record: Any, error: BaseException, attempts: int) -> object:
        """Write the record to the topic of its next delay, or pass it to ``then``; return when that is done.

        ``record``: a ``ConsumerRecord`` or a ``ShareRecord``.
        Raises what the last try to write raised, and what ``then`` raises.
        """
        place = self._place(record.topic)
        seconds = self._next(None if place is None else place[1])
        attempts = max(attempts, self.attempts_before(record) + min(attempts, 1))  # 0: no handler had it this time
        if seconds is None or _is_useless(error):
            return await self._end(record, error, attempts)
        topic = self._name(self._origin(record).topic, seconds)
        check_bytes(record)
        headers = self._headers(record, error, attempts, seconds)
        try:
            with self._publisher.writing(topic) as write:
                await write(record.key, record.value, headers)
        except Exception as refused:
            if not is_too_large(refused):
                raise
            text = f"{at_offset(record.topic, record.partition, record.offset)} is too large for {topic}; it is not tried again"
            self._publisher.warn(text, refused)
            return await self._end(record, error, attempts)
        return Redelivered(f"tried again in {seconds} s through {topic}")

    # --- inside ----------------------------------------------------------------------------------------------------------------

    async def _end(self, record: Record, error: BaseException, attempts: int) -> object:
        """Another attempt does not help."""
        then = self._then
        if then == "skip":
            return None
        if isinstance(then, str):
            raise error
        record = self._origin(record)
        result = then(record, error, attempts) if is_async(then) else await self._on_thread(then, record, error, attempts)
        if isawaitable(result):
            result = await result
        return finished(result, "then")

    async def _on_thread(self, then: Callable[..., Any], record: Record, error: BaseException, attempts: int) -> Any:
        """Call a plain function on a thread of its own, which keeps neither a shutdown nor the rest of the program waiting."""

        def left() -> None:
            where = at_offset(record.topic, record.partition, record.offset)
            text = f"{where}: then goes on though its time is over; threads cannot be ended, so it is left to itself"
            self._publisher.warn(text, error)

        threads = Threads(1, lambda: None)
        try:
            return await threads.run(then, record, error, attempts, left=left)
        finally:
            threads.close()

    def _headers(self, record: Record, error: BaseException, attempts: int, seconds: int) -> Headers:
        origin = self._origin(record)
        texts = {
            TOPIC: origin.topic,
            PARTITION: origin.partition,
            OFFSET: origin.offset,
            TIMESTAMP: origin.timestamp,
            ATTEMPTS: attempts,
            DUE: round(self._wall()) + seconds * 1000,
            EXCEPTION: public_name(type(error)),
        }
        kept = [header for header in traced(record.headers) if header[0] not in _OURS]
        return [*kept, *((name, str(text).encode(errors="backslashreplace")) for name, text in texts.items())]

    def _origin(self, record: Record) -> Record:
        """Return the record as it was first, as far as that is known."""
        place = self._place(record.topic)
        if place is None:
            return record
        partition, offset, timestamp = (_number(record, name) for name in (PARTITION, OFFSET, TIMESTAMP))
        headers = tuple(header for header in record.headers if header[0] not in _OURS)
        if _text(record, TOPIC) != place[0] or partition is None or offset is None:  # somebody else has written it
            return record._replace(topic=place[0], headers=headers)
        timestamp = record.timestamp if timestamp is None else timestamp
        return record._replace(topic=place[0], partition=partition, offset=offset, timestamp=timestamp, headers=headers)

    def _next(self, seconds: int | None) -> int | None:
        """Return the delay after this one; ``None``: there is none. After one that is no longer in use comes a longer one."""
        if seconds is None:
            return self._delays[0]
        if seconds in self._delays:
            return next(iter(self._delays[self._delays.index(seconds) + 1 :]), None)
        return min((delay for delay in self._delays if delay > seconds), default=None)

    def _place(self, topic: str) -> tuple[str, int] | None:
        """Return the topic and the delay that a retry topic is of; ``None`` for another topic."""
        name, dot, seconds = topic.rpartition(".retry.")
        group = "" if self._group is None else f".{self._group}"
        if not (dot and name.endswith(group) and len(name) > len(group) and _SECONDS.fullmatch(seconds)):
            return None
        return name.removesuffix(group), int(seconds)

    def _name(self, topic: str, seconds: int) -> str:
        return f"{topic}.{self._named(None)}.retry.{seconds}"

    def _named(self, group_id: str | None) -> str:
        if self._group is not None:
            return self._group
        if group_id is None:
            raise ValueError("retry topics are named after a group: give the consumer a group_id, or RetryTopics a group")
        return _checked_group(group_id)


_SECONDS: Final = re.compile("[1-9][0-9]{0,8}")
_GROUP: Final = re.compile("[a-zA-Z0-9._-]+")


def _checked_delays(delays: Any) -> tuple[int, ...]:
    if isinstance(delays, (str, bytes)) or not isinstance(delays, Iterable):
        raise TypeError(f"delays={delays!r}: expected seconds, such as (60, 600)")
    given = tuple(delays)
    for each in given:
        if isinstance(each, bool) or not isinstance(each, int):
            raise TypeError(f"delays={delays!r}: expected whole seconds, which are part of the topics' names")
        if not 1 <= each < 1_000_000_000:
            raise ValueError(f"delays={delays!r}: expected seconds, 1 or more")
    if not given or len(set(given)) < len(given):
        raise ValueError(f"delays={delays!r}: expected at least one, and each another one: it has a topic of its own")
    return given


def _checked_group(group: Any) -> str:
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        text = "the names of retry topics contain it, so only letters, digits, '.', '_' and '-'; give RetryTopics another group"
        raise ValueError(f"group={group!r}: {text}")
    return group


def _is_useless(error: BaseException) -> bool:
    """Whether another attempt does not help, as the error says."""
    if isinstance(error, BaseExceptionGroup):
        return any(_is_useless(each) for each in error.exceptions)
    return isinstance(error, Reject) or getattr(error, "retriable", True) is False


def _text(record: Record, name: str) -> str | None:
    """Return a header's text. Of several the last counts."""
    value = last_header(record.headers, name)
    return None if value is None else value.decode(errors="replace")


def _number(record: Record, name: str) -> int | None:
    """Return a header's number; ``None`` if it has none."""
    text = _text(record, name) or ""
    return int(text) if _DIGITS.fullmatch(text) else None


_DIGITS: Final = re.compile("[0-9]{1,18}")
