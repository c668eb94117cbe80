"""Metrics of consumers as OpenTelemetry instruments, for programs that export their own (extra ``otel``).

A total becomes a counter, everything else a gauge. Names and labels are those that the cluster's operators see (KIP-714). There
brokers add labels that tell consumers apart; here the caller does. ``application/alerts.yaml`` has rules for Prometheus that fit
what OpenTelemetry's exporter makes of them.

Collectors run on a thread of their own; ``metrics()`` may be called from any thread, under asyncio.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from attrs import define, field

from ..application.lifecycle.descriptions import descriptions
from ..application.lifecycle.metrics import Point, points
from ..errors import IllegalStateError

try:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter
except ImportError as missing:
    raise ImportError(
        "metrics in OpenTelemetry need opentelemetry-api, which the extra 'otel' brings: pip install '.[otel]' from a clone"
    ) from missing

_log = logging.getLogger("kafka_async")

SCOPE: Final = "kafka_async"
FRESH: Final = 0.5
"""Seconds for which one reading of a consumer is reused: a collector asks for each instrument separately."""


class Measured(Protocol):
    """A consumer or a share consumer, asyncio's or the blocking one."""

    def metrics(self) -> dict[str, dict[str, float]]: ...


@define(eq=False)
class _Watched:
    labels: Mapping[str, str]
    seen_at: float = -FRESH
    points: dict[str, list[Point]] = field(factory=dict)


class ConsumerInstruments:
    """Instruments of one meter (default: ``kafka_async`` of the global provider) for any number of consumers."""

    def __init__(self, meter: Meter | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: WeakKeyDictionary[Measured, _Watched] = WeakKeyDictionary()
        meter = meter or get_meter(SCOPE)
        for name, text in descriptions().items():
            create = meter.create_observable_counter if name.endswith(".total") else meter.create_observable_gauge
            create(name, callbacks=[self._observer(name)], description=text)

    def observe(self, consumer: Measured, **labels: str) -> None:
        """Observe ``consumer`` from now on, for as long as it exists, with ``labels`` such as ``client_id`` on every number."""
        self._watched[consumer] = _Watched(labels)

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterator[Observation]:
            for consumer, watched in tuple(self._watched.items()):
                self._refresh(consumer, watched)
                for point in watched.points.get(name, ()):
                    yield Observation(point.value, {**watched.labels, **dict(point.labels)})

        return observe

    def _refresh(self, consumer: Measured, watched: _Watched) -> None:
        now = self._clock()
        if now - watched.seen_at < FRESH:
            return
        watched.seen_at = now  # also if it fails: each instrument would ask again
        found: dict[str, list[Point]] = {}
        try:
            for point in points(consumer.metrics()):
                found.setdefault(point.name, []).append(point)
        except IllegalStateError:  # this process was forked from the one that the consumer is in, which has its numbers
            self._watched.pop(consumer, None)
        except Exception:
            _log.exception("the metrics of a consumer cannot be had: %r", consumer)  # those of others can
        watched.points = found  # in one step: another collector may be reading
