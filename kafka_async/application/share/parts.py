"""The parts of a share consumer, and how they are put together. As in ``application/parts.py``, nobody reaches into a consumer."""

from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from ...background.boundary import EventHandler, Exchange
from ...background.share.share_settings import ShareSettings
from ...config import ConsumerConfig
from ...errors import KafkaError
from ...events import ShareEvent
from ...model import GroupMetadata, TopicPartition
from ...network import TcpConnector, TransportFactory
from ...records import keep_freed_memory, warn_if_slow
from ...trace import LoggingListener, TraceEvent
from ...values import field, frozen
from ..background_calls import BackgroundCalls
from ..callbacks import Deserializers
from ..inbox import Inbox
from ..lifecycle.lifecycle import Lifecycle, Phase
from ..lifecycle.metrics import of_stopped
from ..lifecycle.otlp import source_of
from ..lifecycle.ownership import CallGuard, Ownership
from ..lifecycle.runtime import Runtime, TaskRuntime, ThreadRuntime
from ..outbox import Outbox
from ..reading.in_vain import InVain
from .custody import Custody, Held
from .metrics import ShareMetrics
from .options import share_options
from .reading import ShareReader
from .start_and_stop import StartAndStop

_numbers = count(1)
_NOTHING_TO_READ: Final = "a read waits, but nothing is subscribed: call subscribe(), or give topics to the constructor"


@frozen(eq=False)
class ShareParts:
    """One share consumer, assembled."""

    config: ConsumerConfig
    settings: ShareSettings
    runtime: Runtime = field(repr=False)
    guard: CallGuard = field(repr=False)
    inbox: Inbox = field(repr=False)
    exchange: Exchange = field(repr=False)
    calls: BackgroundCalls[ShareEvent] = field(repr=False)
    custody: Custody = field(repr=False)
    reader: ShareReader = field(repr=False)
    metrics: ShareMetrics = field(repr=False)
    life: StartAndStop = field(repr=False)

    def measure(self, now: float) -> dict[str, dict[str, float]]:
        """Return the metrics as of ``now``. From any thread."""
        lifecycle = self.guard.lifecycle
        closed = lifecycle.phase is Phase.CLOSED
        found = self.metrics.snapshot(now, self.custody.counts, lifecycle.boundary.last_poll(now), len(self.problems()))
        return of_stopped(found) if closed else found

    def problems(self) -> dict[TopicPartition, KafkaError]:
        """Return the assigned partitions of which nothing can be read, and why. From any thread."""
        if self.guard.lifecycle.phase is Phase.CLOSED:
            return {}
        handler = self.inbox.handler
        return {**handler.unavailable, **handler.refused}


def assemble_share(
    options: Mapping[str, Any], runtime: Runtime | None = None, transport_factory: TransportFactory | None = None
) -> ShareParts:
    """Make the parts and give each of them those that it talks to. Raises as ``share_options`` does."""
    config, settings = share_options(options)
    warn_if_slow()
    keep_freed_memory()
    if "client_id" not in config.given:
        config = config.with_client_id(f"share-consumer-{(config.group_id or '')[:200]}-{next(_numbers)}")
    runtime = runtime or (TaskRuntime() if config.background == "task" else ThreadRuntime.for_tasks())
    handler: EventHandler[ShareEvent] = EventHandler(runtime.wake_background, runtime.wake_application)
    exchange = Exchange(handler)
    lifecycle = Lifecycle(handler, runtime)
    inbox = Inbox(handler, GroupMetadata(group_id=config.group_id))
    calls = BackgroundCalls[ShareEvent](config, runtime, lifecycle, inbox, Outbox(handler))
    # The clock is that of the event loop, which is found at the start; threads have none.
    clock = lambda: runtime.clock()  # noqa: E731 - see above
    deserializers = Deserializers.of(config.key_deserializer, config.value_deserializer, awaits=not runtime.blocks)
    custody = Custody(exchange, clock, max(1, config.max_poll_records // 2), Held(runtime), deserializers is not None)
    runtime.signal.on_wake = custody.attend
    metrics = ShareMetrics()
    requests, listener = metrics.requests, config.trace
    log = LoggingListener(client_id=config.client_id, group_id=config.group_id)

    def trace(event: TraceEvent) -> None:
        requests(event)
        log(event)
        if listener is not None:
            listener(event)

    def measure(now: float) -> dict[str, dict[str, float]]:
        return parts.measure(now)

    factory = transport_factory or TcpConnector.from_config(config)
    telemetry = source_of(config, measure, lambda: inbox.group.member_id)
    in_vain = InVain(trace, runtime, _NOTHING_TO_READ)
    parts = ShareParts(
        config=config,
        settings=settings,
        runtime=runtime,
        guard=CallGuard(Ownership(runtime, lifecycle), lifecycle),
        inbox=inbox,
        exchange=exchange,
        calls=calls,
        custody=custody,
        reader=ShareReader(
            lifecycle,
            handler,
            runtime,
            inbox,
            custody,
            deserializers,
            settings.bad_record_deliveries,
            in_vain,
        ),
        metrics=metrics,
        life=StartAndStop(config, settings, lifecycle, runtime, calls, exchange, trace, factory, custody, in_vain, telemetry),
    )
    return parts
