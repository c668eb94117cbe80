"""Records that are written through another library's producer, and tried again for a while if that fails.

The caller starts and closes the producer. A record counts as done once the cluster has it.
"""

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from sys import modules
from typing import Any, Final

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from ..errors import KafkaError, KafkaTimeoutError, for_code
from ..model import ConsumerRecord
from ..trace import Fault, LoggingListener, Recovered
from ..values import define, field

Record = ConsumerRecord[Any, Any]
Headers = list[tuple[str, bytes | None]]
Send = Callable[[str, bytes | None, bytes | None, Headers], Awaitable[object]]
"""Sends key and value to a topic."""
Write = Callable[[bytes | None, bytes | None, Headers], Awaitable[None]]
"""Writes key and value; returns when the cluster has them."""

BETWEEN: Final = 1.0
"""Seconds between two tries."""
SILENCE: Final = 10.0
"""Seconds after which the log says that a write is not acknowledged."""
POLL: Final = 0.1
"""Seconds for which a thread waits for librdkafka's delivery reports at a time."""
_TOO_LARGE: Final = (10, 18)
"""``MESSAGE_TOO_LARGE`` and ``RECORD_LIST_TOO_LARGE``, which producers raise by themselves too."""


class Publisher:
    """Writes records of one kind, such as dead letters.

    ``patience_ms``: for how long a write that fails is tried again; then its error is raised, or ``KafkaTimeoutError`` if the
    producer has not given up by then, as an idempotent one of aiokafka never does, nor one that was not started. 0: one try, for as
    long as the producer tries. A producer that does not take such data fails at once, and so does a record that is too large. While
    writes to a topic fail, or one is not acknowledged for ``SILENCE``, the log has one WARNING, and an INFO when they succeed
    again. Raises ``TypeError`` and ``ValueError`` for bad arguments.
    """

    def __init__(self, producer: Any, kind: str, *, group: str | None, patience_ms: float) -> None:
        if isinstance(patience_ms, bool) or not isinstance(patience_ms, (int, float)) or not patience_ms >= 0:
            raise ValueError(f"patience_ms={patience_ms!r}: expected milliseconds, 0 or more")
        self._send = _sender(producer, kind)
        self._send_apart = _Apart(self._send)
        self._kind = kind
        self._patience = patience_ms / 1000
        self._log = LoggingListener(group_id=group)
        self._failing: dict[object, str] = {}
        """The topic of each write that is tried again. While there is one, others that succeed do not end the outage: it may be a
        record that is too large."""

    @property
    def _why_silent(self) -> str:
        """What the cause may be. An aiokafka producer that was not started waits for its first answer without a word."""
        unreachable = "its brokers may not be reachable"
        return unreachable if self.any_loop else f"the producer may not have been started, or {unreachable}"

    @property
    def any_loop(self) -> bool:
        """Whether it may be called on any event loop: librdkafka belongs to none, as aiokafka does."""
        return isinstance(self._send, _Confluent)

    @contextmanager
    def writing(self, topic: str) -> Iterator[Write]:
        """Return what writes one record to ``topic``, perhaps after another try in another form. If it is left well, it was."""
        write = object()
        try:
            yield partial(self._write, write, topic)
        finally:
            self._failing.pop(write, None)
        if topic not in self._failing.values():
            self._log(Recovered(now=anyio.current_time(), outage=self._outage(topic)))

    def warn(self, text: str, error: BaseException) -> None:
        """Say in the log what became of a record."""
        self._log(Fault(now=anyio.current_time(), text=text, error=error))

    async def _write(self, write: object, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        until, before = anyio.current_time() + self._patience, None
        while True:
            try:
                await self._send_until(until, write, topic, key, value, headers)
            except (TypeError, ValueError):  # the producer does not take such data, now or later
                raise
            except Exception as error:  # of either library: whether a later try is in vain is not known here
                now = anyio.current_time()
                if now + BETWEEN >= until or is_too_large(error):
                    if before is not None and isinstance(error, KafkaTimeoutError):
                        raise error from before
                    raise
                before = error
                self._failing[write] = topic
                text = f"a {self._kind} cannot be written to {topic}; trying again"
                self._log(Fault(now=now, text=text, error=error, outage=self._outage(topic)))
                await anyio.sleep(BETWEEN)
            else:
                return

    async def _send_until(self, until: float, write: object, topic: str, *data: Any) -> None:
        """Send once, and wait for it until patience is over: producers may try for ever, and a second try would be another copy."""
        text = f"the {self._kind} to {topic} was not acknowledged in time ({self._patience:g} s); {self._why_silent}"
        outcome: Exception | None = KafkaTimeoutError(text)
        with anyio.move_on_after(until - anyio.current_time() if self._patience else inf):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._say_if_silent, write, topic)
                try:
                    await self._send_apart(topic, *data)
                    outcome = None
                except Exception as error:  # the task group would raise a group
                    outcome = error
                tasks.cancel_scope.cancel()
        if outcome is not None:
            raise outcome

    async def _say_if_silent(self, write: object, topic: str) -> None:
        await anyio.sleep(SILENCE)
        self._failing[write] = topic
        text = f"a {self._kind} to {topic} has not been acknowledged for {SILENCE:g} s; waiting: {self._why_silent}"
        self._log(Fault(now=anyio.current_time(), text=text, outage=self._outage(topic)))

    def _outage(self, topic: str) -> str:
        return f"{self._kind}s to {topic}"


@define(eq=False)
class _Sends:
    """What is on its way to one topic, on one event loop."""

    under_way: int = 0
    begun: int = 0
    """How many have begun in all. One during which this grows has company."""
    alone: anyio.Lock = field(factory=anyio.Lock)
    """Held by who waits for the others to end, and sends alone then. Nobody begins meanwhile."""
    ended: anyio.Event = field(factory=anyio.Event)
    """Set when the next one has ended."""

    def end(self) -> None:
        self.under_way -= 1
        ended, self.ended = self.ended, anyio.Event()
        ended.set()


class _Apart:
    """Sends; a record that was too large together with others, once more alone.

    Brokers compare the size of a batch, and refuse all records of one that is too large. The libraries do not split it.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._topics = RunVar[defaultdict[str, _Sends]]("kafka_async sends")

    async def __call__(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        topics = self._topics.get(None)
        if topics is None:
            topics = defaultdict(_Sends)
            self._topics.set(topics)
        sends = topics[topic]
        async with sends.alone:
            sends.begun += 1
            sends.under_way += 1
            number, was_first = sends.begun, sends.under_way == 1
        try:
            await self._send(topic, key, value, headers)
        except Exception as error:
            if not is_too_large(error) or (was_first and sends.begun == number):
                raise
        else:
            return
        finally:
            sends.end()
        async with sends.alone:
            while sends.under_way:
                await sends.ended.wait()
            await self._send(topic, key, value, headers)


def check_bytes(record: Record) -> None:
    """Raise ``TypeError`` unless key and value are what the log has."""
    for name, data in (("key", record.key), ("value", record.value)):
        if data is not None and not isinstance(data, bytes):
            raise TypeError(f"{name} of the record is {type(data).__name__}, not bytes: give this to process() as it is")


def traced(headers: Sequence[tuple[str, bytes | None]]) -> Sequence[tuple[str, bytes | None]]:
    """Return headers that name the span of the last attempt, if the program traces: then it has imported what can tell."""
    tracing = modules.get(f"{__package__}.tracing")
    made: Sequence[tuple[str, bytes | None]] = headers if tracing is None else tracing.continued(headers)
    return made


def is_too_large(error: Exception) -> bool:
    """Whether a producer or a broker says that the record is too large."""
    code = getattr(error, "errno", None)
    if code is None and error.args and callable(getattr(error.args[0], "code", None)):  # a KafkaException of confluent-kafka
        code = error.args[0].code()
    return code in _TOO_LARGE


def _sender(producer: Any, kind: str) -> Send:
    """Return a function that sends through a producer. Raises ``TypeError`` for an unknown one."""
    if callable(getattr(producer, "send_and_wait", None)):
        return partial(_send_with_aiokafka, producer)
    # librdkafka's own producer, which sends headers, is inside the asyncio one, which does not.
    plain = getattr(producer, "_producer", producer)
    if callable(getattr(plain, "produce", None)) and callable(getattr(plain, "poll", None)):
        return _Confluent(plain, kind)
    raise TypeError(f"producer={producer!r}: expected aiokafka's AIOKafkaProducer, confluent-kafka's AIOProducer or Producer")


async def _send_with_aiokafka(producer: Any, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
    if key is None and value is None and hasattr(producer, "create_batch"):  # a program's own object may have none
        await (await send_empty(producer, topic, headers))
    else:
        await producer.send_and_wait(topic, value=value, key=key, headers=headers)


async def send_empty(
    producer: Any, topic: str, headers: Headers, *, partition: int | None = None, timestamp: int | None = None
) -> Awaitable[Any]:
    """Send a record with neither key nor value, which ``send`` of aiokafka refuses. Return what ends once the cluster has it.

    ``partition``: ``None``: any. ``timestamp``: milliseconds; ``None``: now.
    """
    batch = producer.create_batch()
    batch.append(timestamp=timestamp, key=None, value=None, headers=headers)
    batch.close()
    if partition is None:
        partition = random.choice(tuple(await producer.partitions_for(topic)))  # noqa: S311  # no secret
    sent: Awaitable[Any] = await producer.send_batch(batch, topic, partition=partition)
    return sent


@define(eq=False)
class _Polling:
    """Who waits for delivery reports on one event loop."""

    limiter: CapacityLimiter = field(factory=partial(CapacityLimiter, 1))
    """Not the default one: its few threads are for the rest of the program, such as the plain endpoints of a web framework."""
    polled: anyio.Event = field(factory=anyio.Event)
    """Set when the poll that is under way has ended."""
    under_way: bool = False


class _Confluent:
    """Sends through a ``confluent_kafka.Producer``. Its delivery reports come to whoever polls: one thread, for all records."""

    def __init__(self, producer: Any, kind: str) -> None:
        self._producer = producer
        self._kind = kind
        self._polling = RunVar[_Polling]("kafka_async delivery reports")

    async def __call__(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        reports: list[Any] = []  # filled by whichever thread polls
        self._producer.produce(
            topic, value=value, key=key, headers=list(headers), on_delivery=lambda error, _: reports.append(error)
        )
        while not reports:
            await self._poll()
        if (error := reports[0]) is not None:
            text = f"the {self._kind} was not delivered to {topic}: {error}"
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
