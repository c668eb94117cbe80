"""Dead letters through another library's producer: ``on_failure=DeadLetters(producer, "orders-dead")`` for
``KafkaConsumer.process``.

The caller starts and closes the producer. Must never return before the cluster has the record: it counts as done then.

Key and value are the record's bytes in the log, not the results of deserializers, and its headers come first.
A letter that is too large for the producer or the broker would never be written. It is written without its value, which can be read
where the headers say, as long as the topic keeps it.
A record that was written but not confirmed is written again, so there may be two of it.
``kafka-async deadletters`` shows them, and writes those that were mended back to their topics.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from ..errors import KafkaError, for_code, one_line
from ..lazy import public_name
from ..model import ConsumerRecord, at_offset
from ..trace import Fault, LoggingListener, Recovered
from ..values import define, field

Record = ConsumerRecord[Any, Any]
Headers = list[tuple[str, bytes | None]]
Send = Callable[[str, bytes | None, bytes | None, Headers], Awaitable[object]]
"""Sends key and value to a topic."""

TOPIC: Final = "dead-letter-topic"
PARTITION: Final = "dead-letter-partition"
OFFSET: Final = "dead-letter-offset"
TIMESTAMP: Final = "dead-letter-timestamp"
"""Milliseconds since the epoch."""
EXCEPTION: Final = "dead-letter-exception"
"""The class, with the module that programs import it from."""
REASON: Final = "dead-letter-reason"
"""The text of the exception, on one line."""
ATTEMPTS: Final = "dead-letter-attempts"
GROUP: Final = "dead-letter-group"
LEFT_OUT: Final = "dead-letter-value-left-out"
"""Bytes of the value, if it was too large to be written."""

BETWEEN: Final = 1.0
"""Seconds between two tries."""
POLL: Final = 0.1
"""Seconds for which a thread waits for librdkafka's delivery reports at a time."""
_TOO_LARGE: Final = (10, 18)
"""``MESSAGE_TOO_LARGE`` and ``RECORD_LIST_TOO_LARGE``, which producers raise by themselves too."""


class DeadLetters:
    """Writes records that failed for good to a topic; for ``on_failure`` of ``process``.

    ``producer``: a started ``aiokafka.AIOKafkaProducer`` without serializers, a ``confluent_kafka.aio.AIOProducer`` or a
    ``confluent_kafka.Producer``. ``topic``: the topic to write to, or a function of the record. ``group``: goes into a header.
    ``patience_ms``: for how long a write that fails is tried again, each with the producer's own timeout; then its error is raised,
    processing stops, and the record is not committed. A producer that does not take such data fails at once. While writes to a
    topic fail, the logger ``kafka_async`` has one WARNING, and an INFO when they succeed again.

    A letter that is too large is written without its value, with the header ``dead-letter-value-left-out`` (its bytes) and a
    WARNING. If it is too large even so, its error is raised at once.

    An ``AIOProducer`` cannot send headers (2.16), so the ``Producer`` inside it is used.
    """

    raw_records: ClassVar[bool] = True
    """``process`` passes it records with their bytes."""

    def __init__(
        self,
        producer: Any,
        topic: str | Callable[[Record], str],
        *,
        group: str | None = None,
        patience_ms: float = 120_000,
    ) -> None:
        if not callable(topic) and not (isinstance(topic, str) and topic):
            raise TypeError(f"topic={topic!r}: expected the name of a topic or a function of a record")
        if isinstance(patience_ms, bool) or not isinstance(patience_ms, (int, float)) or not patience_ms >= 0:
            raise ValueError(f"patience_ms={patience_ms!r}: expected milliseconds, 0 or more")
        self._send = _sender(producer)
        self._topic = topic
        self._group = group
        self._patience = patience_ms / 1000
        self._log = LoggingListener(group_id=group)
        self._failing: dict[object, str] = {}
        """The topic of each write that is tried again. While there is one, others that succeed do not end the outage: it may be a
        letter that is too large."""

    async def __call__(self, record: Record, error: BaseException, attempts: int) -> None:
        """Write the record; return when the cluster has it. Raises what the last try raised."""
        topic = self._topic(record) if callable(self._topic) else self._topic
        if not isinstance(topic, str):
            raise TypeError(f"topic: the function returned {topic!r}; expected the name of a topic")
        headers = [*_continued(record.headers), *reasons(record, error, attempts, self._group)]
        for name, data in (("key", record.key), ("value", record.value)):
            if data is not None and not isinstance(data, bytes):
                raise TypeError(f"{name} of the record is {type(data).__name__}, not bytes: give this to process() as it is")
        write = object()
        try:
            await self._write_in_full_or_part(write, topic, record, headers)
        finally:
            self._failing.pop(write, None)
        if topic not in self._failing.values():
            self._log(Recovered(now=anyio.current_time(), outage=_outage(topic)))

    async def _write_in_full_or_part(self, write: object, topic: str, record: Record, headers: Headers) -> None:
        try:
            await self._write(write, topic, record.key, record.value, headers)
        except Exception as error:
            if not (_is_too_large(error) and record.value):
                raise
            where = at_offset(record.topic, record.partition, record.offset)
            text = f"the dead letter of {where} is too large for {topic}; written without its value of {len(record.value)} bytes"
            self._log(Fault(now=anyio.current_time(), text=text, error=error))
            headers = [*headers, (LEFT_OUT, str(len(record.value)).encode())]
            # Not null: in a compacted topic that would delete an earlier letter.
            await self._write(write, topic, record.key, b"", headers)

    async def _write(self, write: object, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        until = anyio.current_time() + self._patience
        while True:
            try:
                await self._send(topic, key, value, headers)
            except (TypeError, ValueError):  # the producer does not take such data, now or later
                raise
            except Exception as error:  # of either library: whether a later try is in vain is not known here
                now = anyio.current_time()
                if now + BETWEEN > until or _is_too_large(error):
                    raise
                self._failing[write] = topic
                text = f"a dead letter cannot be written to {topic}; trying again"
                self._log(Fault(now=now, text=text, error=error, outage=_outage(topic)))
                await anyio.sleep(BETWEEN)
            else:
                return


def _continued(headers: Sequence[tuple[str, bytes | None]]) -> Sequence[tuple[str, bytes | None]]:
    """Return headers that name the span of the last attempt, if the program traces: then it has imported what can tell."""
    tracing = sys.modules.get(f"{__package__}.tracing")
    made: Sequence[tuple[str, bytes | None]] = headers if tracing is None else tracing.continued(headers)
    return made


def _outage(topic: str) -> str:
    return f"dead letters to {topic}"


def reasons(record: Record, error: BaseException, attempts: int, group: str | None = None) -> Headers:
    """Return the headers that say where a record came from and why it is here."""
    texts: Mapping[str, object] = {
        TOPIC: record.topic,
        PARTITION: record.partition,
        OFFSET: record.offset,
        TIMESTAMP: record.timestamp,
        EXCEPTION: public_name(type(error)),
        REASON: one_line(str(error)),
        ATTEMPTS: attempts,
        **({GROUP: group} if group is not None else {}),
    }
    return [(name, str(text).encode(errors="backslashreplace")) for name, text in texts.items()]


def _sender(producer: Any) -> Send:
    """Return a function that sends through a producer. Raises ``TypeError`` for an unknown one."""
    if callable(getattr(producer, "send_and_wait", None)):
        return partial(_send_with_aiokafka, producer)
    # librdkafka's own producer, which sends headers, is inside the asyncio one, which does not.
    plain = getattr(producer, "_producer", producer)
    if callable(getattr(plain, "produce", None)) and callable(getattr(plain, "poll", None)):
        return _Confluent(plain)
    raise TypeError(f"producer={producer!r}: expected aiokafka's AIOKafkaProducer, confluent-kafka's AIOProducer or Producer")


async def _send_with_aiokafka(producer: Any, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
    await producer.send_and_wait(topic, value=value, key=key, headers=headers)


@define(eq=False)
class _Polling:
    """Who waits for delivery reports on one event loop."""

    limiter: CapacityLimiter = field(factory=partial(CapacityLimiter, 1))
    """Not the default one: its few threads are for the rest of the program, such as the plain endpoints of a web framework."""
    polled: anyio.Event = field(factory=anyio.Event)
    """Set when the poll that is under way has ended."""
    under_way: bool = False


class _Confluent:
    """Sends through a ``confluent_kafka.Producer``. Its delivery reports come to whoever polls: one thread, for all letters."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._polling = RunVar[_Polling]("kafka_async dead letters")

    async def __call__(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        reports: list[Any] = []  # filled by whichever thread polls
        self._producer.produce(
            topic, value=value, key=key, headers=list(headers), on_delivery=lambda error, _: reports.append(error)
        )
        while not reports:
            await self._poll()
        if (error := reports[0]) is not None:
            text = f"the dead letter was not delivered to {topic}: {error}"
            raise for_code(error.code(), text) if error.code() > 0 else KafkaError(text)

    async def _poll(self) -> None:
        polling = self._polling.get(None)
        if polling is None:
            polling = _Polling()
            self._polling.set(polling)
        if polling.under_way:
            await polling.polled.wait()
            return
        polling.under_way = True
        try:
            await to_thread.run_sync(self._producer.poll, POLL, limiter=polling.limiter)
        finally:
            polling.under_way = False
            polled, polling.polled = polling.polled, anyio.Event()
            polled.set()


def _is_too_large(error: Exception) -> bool:
    code = getattr(error, "errno", None)
    if code is None and error.args and callable(getattr(error.args[0], "code", None)):  # a KafkaException of confluent-kafka
        code = error.args[0].code()
    return code in _TOO_LARGE
