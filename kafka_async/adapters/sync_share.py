"""The blocking share consumer: ``ShareConsumer`` for programs without an event loop.

As in ``sync.py``, the background loop has a thread of its own. Records may be acknowledged from any thread.
"""

import time
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack
from uuid import UUID

from typing_extensions import TypeVar

from ..application.lifecycle.runtime import ThreadRuntime
from ..application.processing.process_settings import checked_shared
from ..errors import ConsumerStoppedError, KafkaError
from ..model import ConsumerState, TopicPartition
from .sync import LEAVE_TIME, LOOK_AGAIN, Processing, Seat, exclusive, finish, plain

if TYPE_CHECKING:  # most programs that block have no use for it
    from ..application.processing.process_settings import Handler
    from ..application.share.consumer import ShareConsumer as AsyncConsumer
    from ..application.share.options import ShareOptions, ShareProcessOptions
    from ..application.share.parts import ShareParts
    from ..application.share.record import ShareRecord
    from ..application.share.statistics import ShareStatistics
    from ..network import TransportFactory

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


def _assembled(
    options: "ShareOptions[Any, Any]", runtime: ThreadRuntime, transport_factory: "TransportFactory | None"
) -> "ShareParts":
    from ..application.share import parts

    return parts.assemble_share(options, runtime, transport_factory)


def _made(topics: tuple[str, ...], parts: "ShareParts") -> "AsyncConsumer[Any, Any]":
    from ..application.share import consumer

    return consumer.ShareConsumer(*topics, parts=parts)


class ShareConsumer(Generic[K, V]):
    """A share consumer that blocks the calling thread; arguments and results are those of ``kafka_async.ShareConsumer``.

    Use it as ``with ShareConsumer(...) as consumer``, and records as ``with record``. Deserializers must be plain functions. It is
    used by one thread at a time (``IllegalStateError`` otherwise); ``stop``, and the methods of records, may be called from any
    thread. If a signal handler raises inside a read call, no record is lost: records that were not returned are delivered again.
    """

    def __init__(
        self,
        *topics: str,
        # Not an option of Kafka: what opens connections, for tests.
        transport_factory: "TransportFactory | None" = None,
        **options: "Unpack[ShareOptions[K, V]]",
    ) -> None:
        options.pop("background", None)
        runtime = ThreadRuntime.for_threads()
        self._parts = _assembled(options, runtime, transport_factory)
        self._consumer = _made(topics, self._parts)
        self._seat = Seat(self._consumer, runtime)

    # --- life ------------------------------------------------------------------------------------------------------------------

    @exclusive
    def start(self, timeout_ms: float | None = None) -> None:
        """Connect and join; see ``kafka_async.ShareConsumer.start``."""
        finish(self._consumer.start(timeout_ms))

    def stop(self, timeout_ms: float | None = None) -> None:
        """Stop within ``timeout_ms``. A read that waits in another thread ends, and a ``for`` loop in another thread too."""
        self._parts.guard.ownership.check_process()  # and no more: while it processes, it is lent to an event loop
        processing = self._seat.processing
        if processing is not None and processing.stop_consumer(lambda: self._consumer.stop(timeout_ms)):
            return  # it drained first
        life = self._parts.life
        allowed = life.allowed(timeout_ms)
        if not life.begin():
            finish(life.wait_for_end(allowed))
            return
        # A thread that is in a read call leaves it now; stopping at the same time would read what it is changing.
        mine, until = self._seat.try_enter(), time.monotonic() + min(LEAVE_TIME, allowed / 2)
        while mine is None and time.monotonic() < until:
            time.sleep(LOOK_AGAIN)
            mine = self._seat.try_enter()
        try:
            finish(life.settle_and_finish(allowed))
            self._parts.custody.close()
        finally:
            if mine:
                self._seat.taken_by = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<blocking {self._consumer!r}>"

    # --- what ------------------------------------------------------------------------------------------------------------------

    @exclusive
    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics from now on."""
        self._consumer.subscribe(topics)

    @exclusive
    def unsubscribe(self) -> None:
        """Leave the group."""
        finish(self._consumer.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """Return the topics that are subscribed."""
        return self._consumer.subscription()

    # --- read ------------------------------------------------------------------------------------------------------------------

    @exclusive
    def getone(self) -> "ShareRecord[K, V]":
        """Return the next record, waiting for it as long as it takes."""
        self._parts.guard.check_readable()
        record: ShareRecord[K, V] | None = self._parts.reader.at_hand(fairly=False)
        return finish(self._consumer.getone()) if record is None else record

    @exclusive
    def getmany(self, *, timeout_ms: float = 0, max_records: int | None = None) -> "dict[TopicPartition, list[ShareRecord[K, V]]]":
        """Return records by partition as soon as there are any; ``{}`` if none came within ``timeout_ms``."""
        return finish(self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records))

    def __iter__(self) -> "Iterator[ShareRecord[K, V]]":
        while True:
            try:
                record = self.getone()
            except ConsumerStoppedError:
                if self._consumer.state is ConsumerState.CLOSED:
                    return
                raise
            yield record

    @exclusive
    def flush(self, timeout_ms: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Wait until every acknowledgement so far is settled; see ``kafka_async.ShareConsumer.flush``."""
        return finish(self._consumer.flush(timeout_ms))

    # --- process ---------------------------------------------------------------------------------------------------------------

    def process(self, handler: "Handler[ShareRecord[K, V]]", **options: "Unpack[ShareProcessOptions]") -> None:
        """Call ``handler`` on threads for every record, many at once, until ``stop`` or until it raises.

        Arguments, promises and errors are those of ``kafka_async.ShareConsumer.process``; handler and ``on_failure`` must be plain
        functions (``TypeError`` otherwise).
        """
        with self.processing(handler, **options) as run:
            run.wait()

    def processing(self, handler: "Handler[ShareRecord[K, V]]", **options: "Unpack[ShareProcessOptions]") -> Processing:
        """Do what ``process`` does, as a ``with`` block: the handlers run on threads while its body runs."""
        from ..application.share.settlement import processing_of_shared

        plain(handler, "handler")
        plain(options.get("on_failure"), "on_failure")
        settings = checked_shared(handler, **options)
        return Processing(self._seat, lambda: processing_of_shared(self._parts, handler, settings))

    # --- see -------------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """What the consumer is doing."""
        return self._consumer.state

    @property
    def ready(self) -> bool:
        """Whether records can come; see ``kafka_async.ShareConsumer.ready``."""
        return self._consumer.ready

    @property
    def assigned_once(self) -> bool:
        """Whether the group has given this member an assignment; see ``kafka_async.ShareConsumer.assigned_once``."""
        return self._consumer.assigned_once

    @property
    def alive(self) -> bool:
        """Whether the consumer can recover by itself; see ``kafka_async.ShareConsumer.alive``."""
        return self._consumer.alive

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by group and name."""
        return self._consumer.metrics()

    @exclusive
    def client_instance_id(self, timeout_ms: float | None = None) -> UUID:
        """Return the id by which the cluster's operators know this client (KIP-714)."""
        return finish(self._consumer.client_instance_id(timeout_ms))

    @exclusive
    def statistics(self) -> "ShareStatistics":
        """Return one frozen snapshot."""
        return self._consumer.statistics()
