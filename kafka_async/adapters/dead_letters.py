"""Dead letters through another library's producer: ``on_failure=DeadLetters(producer, "orders-dead")`` for
``KafkaConsumer.process``.

Decides: the headers, for how long a write is tried again, and what the log says of it. Owns nothing: the caller starts and closes
the producer.
Must never return before the cluster has the record: it counts as done then.

Key and value are the record's bytes in the log, not the results of deserializers, and its headers come first.
A record that was written but not confirmed is written again, so there may be two of it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import anyio
from anyio import to_thread

from ..errors import KafkaError, one_line
from ..model import ConsumerRecord
from ..trace import Fault, LoggingListener, Recovered

Record = ConsumerRecord[Any, Any]
Headers = list[tuple[str, bytes | None]]
Send = Callable[[str, Record, Headers], Awaitable[object]]

TOPIC: Final = "dead-letter-topic"
PARTITION: Final = "dead-letter-partition"
OFFSET: Final = "dead-letter-offset"
TIMESTAMP: Final = "dead-letter-timestamp"
"""Milliseconds since the epoch."""
EXCEPTION: Final = "dead-letter-exception"
"""The class, with its module."""
REASON: Final = "dead-letter-reason"
"""The text of the exception, on one line."""
ATTEMPTS: Final = "dead-letter-attempts"
GROUP: Final = "dead-letter-group"

BETWEEN: Final = 1.0
"""Seconds between two tries."""
POLL: Final = 0.1
"""Seconds for which a thread waits for librdkafka's delivery reports at a time."""


class DeadLetters:
    """Writes records that failed for good to a topic; for ``on_failure`` of ``process``.

    ``producer``: a started ``aiokafka.AIOKafkaProducer`` without serializers, a ``confluent_kafka.aio.AIOProducer`` or a
    ``confluent_kafka.Producer``. ``topic``: the topic to write to, or a function of the record. ``group``: goes into a header.
    ``patience_ms``: for how long a write that fails is tried again, each with the producer's own timeout; then its error is raised,
    processing stops, and the record is not committed. While writes to a topic fail, the logger ``kafka_async`` has one WARNING, and
    an INFO when they succeed again.

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
        headers = [*record.headers, *reasons(record, error, attempts, self._group)]
        for name, data in (("key", record.key), ("value", record.value)):
            if data is not None and not isinstance(data, bytes):
                raise TypeError(f"{name} of the record is {type(data).__name__}, not bytes: give this to process() as it is")
        write = object()
        try:
            await self._write(write, topic, record, headers)
        finally:
            self._failing.pop(write, None)
        if topic not in self._failing.values():
            self._log(Recovered(now=anyio.current_time(), outage=_outage(topic)))

    async def _write(self, write: object, topic: str, record: Record, headers: Headers) -> None:
        until = anyio.current_time() + self._patience
        while True:
            try:
                await self._send(topic, record, headers)
            except Exception as error:  # of either library: whether a later try is in vain is not known here
                now = anyio.current_time()
                if now + BETWEEN > until:
                    raise
                self._failing[write] = topic
                text = f"a dead letter cannot be written to {topic}; trying again"
                self._log(Fault(now=now, text=text, error=error, outage=_outage(topic)))
                await anyio.sleep(BETWEEN)
            else:
                return


def _outage(topic: str) -> str:
    return f"dead letters to {topic}"


def reasons(record: Record, error: BaseException, attempts: int, group: str | None = None) -> Headers:
    """Return the headers that say where a record came from and why it is here."""
    texts: Mapping[str, object] = {
        TOPIC: record.topic,
        PARTITION: record.partition,
        OFFSET: record.offset,
        TIMESTAMP: record.timestamp,
        EXCEPTION: f"{type(error).__module__}.{type(error).__qualname__}",
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
        return partial(_send_with_confluent, plain)
    raise TypeError(f"producer={producer!r}: expected aiokafka's AIOKafkaProducer, confluent-kafka's AIOProducer or Producer")


async def _send_with_aiokafka(producer: Any, topic: str, record: Record, headers: Headers) -> None:
    await producer.send_and_wait(topic, value=record.value, key=record.key, headers=headers)


async def _send_with_confluent(producer: Any, topic: str, record: Record, headers: Sequence[tuple[str, bytes | None]]) -> None:
    reports: list[Any] = []  # filled by whichever thread polls
    producer.produce(
        topic, value=record.value, key=record.key, headers=list(headers), on_delivery=lambda error, _: reports.append(error)
    )
    while not reports:
        await to_thread.run_sync(producer.poll, POLL)
    if reports[0] is not None:
        raise KafkaError(f"the dead letter was not delivered to {topic}: {reports[0]}")
