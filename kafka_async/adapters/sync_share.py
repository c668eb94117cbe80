"""The blocking share consumer: ``ShareConsumer`` for programs without an event loop.

As in ``sync.py``, the background loop has a thread of its own. Records may be acknowledged from any thread.
"""

from collections.abc import Iterator
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

from typing_extensions import TypeVar

from ..application.lifecycle.runtime import ThreadRuntime
from ..application.processing.process_settings import checked_shared
from ..application.share.consumer import ShareConsumer as AsyncConsumer
from ..application.share.parts import assemble_share
from ..errors import ConsumerStoppedError
from ..model import ConsumerState, TopicPartition
from .sync import Processing, Seat, blocking, ends_after, exclusive, finish, forwarding, looking, no_loop_for, plain

if TYPE_CHECKING:
    from ..application.processing.process_settings import Handler
    from ..application.share.options import ShareOptions, ShareProcessOptions
    from ..application.share.record import ShareRecord
    from ..network import TransportFactory

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


class ShareConsumer(Generic[K, V]):
    """A share consumer that blocks the calling thread; arguments and results are those of ``kafka_async.ShareConsumer``.

    Use it as ``with ShareConsumer(...) as consumer``, and records as ``with record``. Deserializers and handlers must be plain
    functions (``TypeError`` otherwise). It is used by one thread at a time (``IllegalStateError`` otherwise); ``stop``, and the
    methods of records, may be called from any thread. If a signal handler raises inside a read call, no record is lost: records
    that were not returned are delivered again.
    """

    def __init__(
        self,
        *topics: str,
        # Not an option of Kafka: what opens connections, for tests.
        transport_factory: "TransportFactory | None" = None,
        # As that of ``kafka_async.sync.KafkaConsumer``.
        consumer_timeout_ms: float = inf,
        **options: "Unpack[ShareOptions[K, V]]",
    ) -> None:
        options.pop("background", None)
        self._ends_after = ends_after(consumer_timeout_ms)
        runtime = ThreadRuntime.for_threads()
        self._parts = assemble_share(options, runtime, transport_factory)
        no_loop_for(self._parts.config)
        self._consumer: AsyncConsumer[K, V] = AsyncConsumer(*topics, parts=self._parts)
        self._seat = Seat(self._consumer, runtime)

    # --- life ------------------------------------------------------------------------------------------------------------------

    start = blocking(AsyncConsumer.start)

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
        with self._seat.when_left(allowed) as left:
            finish(life.settle_and_finish(left))
            self._parts.custody.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<blocking {self._consumer!r}>"

    # --- what ------------------------------------------------------------------------------------------------------------------

    subscribe = forwarding(AsyncConsumer.subscribe)
    unsubscribe = blocking(AsyncConsumer.unsubscribe)
    subscription = looking(AsyncConsumer.subscription)

    # --- read ------------------------------------------------------------------------------------------------------------------

    def getone(self) -> "ShareRecord[K, V]":
        """Return the next record, waiting for it as long as it takes."""
        return self._within(inf)[0]

    @exclusive
    def _within(self, seconds: float) -> "list[ShareRecord[K, V]]":
        """Return the next record, alone; none if none came in time."""
        self._parts.guard.check_readable()
        record: ShareRecord[K, V] | None = self._parts.reader.at_hand(fairly=False)
        return finish(self._parts.reader.read(seconds, 1)) if record is None else [record]

    @exclusive
    def getmany(self, *, timeout_ms: float = 0, max_records: int | None = None) -> "dict[TopicPartition, list[ShareRecord[K, V]]]":
        """Return records by partition as soon as there are any; ``{}`` if none came within ``timeout_ms``."""
        return finish(self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records))

    def __iter__(self) -> "Iterator[ShareRecord[K, V]]":
        """Iterate over records until the consumer is stopped, or none has come for ``consumer_timeout_ms``; then it may be iterated
        over again.
        """
        while True:
            try:
                found = self._within(self._ends_after)
            except ConsumerStoppedError:
                if self._consumer.state is ConsumerState.CLOSED:
                    return
                raise
            if not found:
                return
            yield found[0]

    flush = blocking(AsyncConsumer.flush)

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

    metrics = looking(AsyncConsumer.metrics)
    client_instance_id = blocking(AsyncConsumer.client_instance_id)
    statistics = looking(AsyncConsumer.statistics)
