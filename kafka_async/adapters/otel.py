"""Metrics of consumers as OpenTelemetry instruments, for programs that export their own (extra ``otel``).

A total becomes a counter, everything else a gauge. OpenTelemetry's counters never go back, and consumers' totals do: those of a
partition that comes back, and of another consumer with the same labels, begin anew. So what they grow by is summed up here.

Names and labels are those that the cluster's operators see (KIP-714). There brokers add labels that tell consumers apart; here the
caller does. ``application/alerts.yaml`` has rules for Prometheus that fit what OpenTelemetry's exporter makes of them.

Collectors run on a thread of their own; ``metrics()`` may be called from any thread, under asyncio.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from attrs import define, field

from ..application.lifecycle.descriptions import descriptions
from ..application.lifecycle.metrics import points
from ..errors import IllegalStateError

try:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter
except ImportError as missing:
    raise ImportError(
        "metrics in OpenTelemetry need opentelemetry-api, which the extra 'otel' brings: pip install '/path/to/clone[otel]'"
    ) from missing

_log = logging.getLogger("kafka_async")

SCOPE: Final = "kafka_async"
FRESH: Final = 0.5
"""Seconds for which one reading of a consumer is reused: a collector asks for each instrument separately."""

_Labels: TypeAlias = frozenset[tuple[str, str]]


class Measured(Protocol):
    """A consumer or a share consumer, asyncio's or the blocking one."""

    def metrics(self) -> dict[str, dict[str, float]]: ...


@define(eq=False)
class _Watched:
    labels: Mapping[str, str]
    seen_at: float = -FRESH
    points: dict[str, dict[_Labels, float]] = field(factory=dict)
    """What was seen last, by name."""
    counted: dict[tuple[str, _Labels], float] = field(factory=dict)
    """What was last seen of each total. A partition that left may come back with the number that it had."""


_all: WeakSet["ConsumerInstruments"] = WeakSet()


def _forked() -> None:
    for each in tuple(_all):
        each.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class ConsumerInstruments:
    """Instruments of one meter (default: ``kafka_async`` of the global provider) for any number of consumers."""

    def __init__(self, meter: Meter | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: WeakKeyDictionary[Measured, _Watched] = WeakKeyDictionary()
        self._sums: dict[tuple[str, _Labels], float] = {}
        """What was counted of each total, of all consumers that ever had it."""
        self._counting = threading.RLock()
        """Each reader of the SDK may collect in a thread of its own. Reentrant, for one in a signal handler."""
        _all.add(self)
        meter = meter or get_meter(SCOPE)
        for name, text in descriptions().items():
            create = meter.create_observable_counter if name.endswith(".total") else meter.create_observable_gauge
            create(name, callbacks=[self._observer(name)], description=text)

    def observe(self, consumer: Measured, **labels: str) -> None:
        """Observe ``consumer`` from now on, for as long as it exists, with ``labels`` such as ``client_id`` on every number."""
        before = self._watched.get(consumer)
        if before is None or before.labels != labels:
            self._watched[consumer] = _Watched(labels)

    def forked(self) -> None:
        """In a process that was forked a moment ago: the thread that counts is not in it, and has not finished."""
        self._counting = threading.RLock()

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterator[Observation]:
            consumers = tuple(self._watched.items())
            for consumer, watched in consumers:
                self._refresh(consumer, watched)
            if name.endswith(".total"):
                for labels in {labels for _, watched in consumers for labels in watched.points.get(name, ())}:
                    yield Observation(self._sums[name, labels], dict(labels))
                return
            for _, watched in consumers:
                for labels, value in watched.points.get(name, {}).items():
                    yield Observation(value, dict(labels))

        return observe

    def _refresh(self, consumer: Measured, watched: _Watched) -> None:
        with self._counting:
            self._look(consumer, watched)

    def _look(self, consumer: Measured, watched: _Watched) -> None:
        now = self._clock()
        if now - watched.seen_at < FRESH:
            return
        watched.seen_at = now  # also if it fails: each instrument would ask again
        found: dict[str, dict[_Labels, float]] = {}
        try:
            for point in points(consumer.metrics()):
                labels = frozenset({**watched.labels, **dict(point.labels)}.items())
                found.setdefault(point.name, {})[labels] = point.value
                if point.total:
                    self._count(watched, (point.name, labels), point.value)
        except IllegalStateError:  # this process was forked from the one that the consumer is in, which has its numbers
            self._watched.pop(consumer, None)
        except Exception:
            _log.exception("the metrics of a consumer cannot be had: %r", consumer)  # those of others can
        watched.points = found  # in one step: another collector may be reading

    def _count(self, watched: _Watched, key: tuple[str, _Labels], value: float) -> None:
        before = watched.counted.get(key, 0)
        watched.counted[key] = value
        self._sums[key] = self._sums.get(key, 0) + (value - before if value >= before else value)
