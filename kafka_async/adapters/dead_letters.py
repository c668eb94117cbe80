"""Dead letters through another library's producer: ``on_failure=DeadLetters(producer, "orders-dead")`` for
``KafkaConsumer.process``.

The caller starts and closes the producer.

Key and value are the record's bytes in the log, not the results of deserializers, and its headers come first.
A letter that is too large for the producer or the broker would never be written. It is written without its value, which can be read
where the headers say, as long as the topic keeps it.
A record that was written but not confirmed is written again, so there may be two of it.
``kafka-async deadletters`` shows them, and writes those that were mended back to their topics.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from ..errors import one_line, said
from ..functions import check_plain
from ..lazy import public_name
from ..model import at_offset
from .publishing import Headers, Publisher, Record, check_bytes, is_too_large, traced

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


class DeadLetters:
    """Writes records that failed for good to a topic; for ``on_failure`` of ``process``.

    ``producer``: a started ``aiokafka.AIOKafkaProducer`` without serializers, a ``confluent_kafka.aio.AIOProducer`` or a
    ``confluent_kafka.Producer``, with ``acks="all"``. aiokafka's default is 1: a letter is then lost if the leader dies before it
    has replicated it, and its record is committed. This cannot be checked: no producer tells.

    ``topic``: the topic to write to, or a function of the record. ``group``: goes into a header. ``patience_ms``: for
    how long a write that fails is tried again; then its error is raised, or ``KafkaTimeoutError`` if the producer still tries,
    processing stops, and the record is not committed. 0: one try, for as long as the producer tries. A producer that does not
    take such data fails at once. While writes to a topic fail, or are not acknowledged for ten seconds, as those of a producer
    that was not started, the logger ``kafka_async`` has one WARNING, and an INFO when they succeed again.

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
        expected = "the name of a topic or a function of a record"
        if callable(topic):
            check_plain(topic, "topic", expected, 1)
        elif not (isinstance(topic, str) and topic):
            raise TypeError(f"topic={topic!r}: expected {expected}")
        self._publisher = Publisher(producer, "dead letter", group=group, patience_ms=patience_ms)
        self._topic = topic
        self._group = group

    @property
    def any_loop(self) -> bool:
        """Whether a consumer without an event loop of its own may use it (``kafka_async.sync``): not with aiokafka's producer."""
        return self._publisher.any_loop

    async def __call__(self, record: Record, error: BaseException, attempts: int) -> None:
        """Write the record; return when the cluster has it. Raises what the last try raised."""
        topic = self._topic(record) if callable(self._topic) else self._topic
        if not isinstance(topic, str):
            raise TypeError(f"topic: the function returned {topic!r}; expected the name of a topic")
        headers = [*traced(record.headers), *reasons(record, error, attempts, self._group)]
        check_bytes(record)
        with self._publisher.writing(topic) as write:
            try:
                await write(record.key, record.value, headers)
            except Exception as refused:
                if not (is_too_large(refused) and record.value):
                    raise
                where, size = at_offset(record.topic, record.partition, record.offset), len(record.value)
                text = f"the dead letter of {where} is too large for {topic}; written without its value of {size} bytes"
                self._publisher.warn(text, refused)
                # Not null: in a compacted topic that would delete an earlier letter.
                await write(record.key, b"", [*headers, (LEFT_OUT, str(size).encode())])


def reasons(record: Record, error: BaseException, attempts: int, group: str | None = None) -> Headers:
    """Return the headers that say where a record came from and why it is here."""
    texts: Mapping[str, object] = {
        TOPIC: record.topic,
        PARTITION: record.partition,
        OFFSET: record.offset,
        TIMESTAMP: record.timestamp,
        EXCEPTION: public_name(type(error)),
        REASON: one_line(said(error)),
        ATTEMPTS: attempts,
        **({GROUP: group} if group is not None else {}),
    }
    return [(name, str(text).encode(errors="backslashreplace")) for name, text in texts.items()]
