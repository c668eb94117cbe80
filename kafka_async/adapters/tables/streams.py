"""One reading of a scan's ranges, and what it has open.

Any thread may close a reading: DuckDB and polars read on threads of their own, and a cancelled task leaves its reading to another.
"""

import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from ...application.reading.ranges import RANGE_BATCH_BYTES
from ...errors import ConsumerStoppedError
from ...values import define, field, frozen
from ..ranges.planner import OffsetRange
from ..ranges.reading import LossPolicy, RangesReading
from ..sync import KafkaConsumer
from .layout import TableLayout
from .pinning import REMEDY
from .progress import Way

STOP_MS: Final = 2_000.0
"""Milliseconds that closing a consumer may take."""
DECODED_BYTES: Final = 2_500_000
"""About how many bytes of records are decoded at a time: what a decoder does once for each batch is then little."""
TIMEOUT_MS: Final = 60_000
"""Milliseconds without a record after which a reading gives up, as ``default_api_timeout_ms``."""


class Stoppable(Protocol):
    """What a reading has open."""

    def stop(self, timeout_ms: float | None = None) -> None: ...


@define(eq=False)
class Opened:
    """What one reading has open."""

    _things: list[Stoppable] = field(factory=list, init=False)
    _closed: bool = field(default=False, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def add(self, thing: Stoppable) -> None:
        """Have ``close`` stop this. Raises ``ConsumerStoppedError`` if everything was closed before."""
        with self._lock:
            if not self._closed:
                self._things.append(thing)
                return
        thing.stop(STOP_MS)
        raise ConsumerStoppedError("the scan was stopped")

    def remove(self, thing: Stoppable) -> None:
        """This has stopped by itself."""
        with self._lock:
            if thing in self._things:
                self._things.remove(thing)

    def close(self) -> None:
        """Stop what is open, from any thread; nothing can be opened any more. Whoever reads gets ``ConsumerStoppedError``."""
        with self._lock:
            self._closed, things = True, self._things
            self._things = []
        for thing in things:
            thing.stop(STOP_MS)

    @contextmanager
    def consumer(self, options: Mapping[str, Any]) -> "Iterator[KafkaConsumer[Any, Any]]":
        """Yield a connected consumer."""
        consumer: KafkaConsumer[Any, Any] = KafkaConsumer(**options)
        self.add(consumer)
        try:
            consumer.start()
            yield consumer
        finally:
            consumer.stop(STOP_MS)
            self.remove(consumer)


@frozen(kw_only=True)
class Job:
    """How ranges are read; it is sent to worker processes."""

    options: Mapping[str, Any] = field(repr=False)
    """The consumer's."""
    layout: TableLayout
    fails: bool
    """Offsets that are gone end the reading."""


@frozen
class Stretch:
    """Records that were read."""

    batch: Any
    """A ``pyarrow.RecordBatch``; ``None`` at the end of a piece, and where a process has none left after leaving records out."""
    passed: int
    """Offsets that they, and gaps before them, take."""


def read(job: Job, tasks: Iterable[Sequence[OffsetRange]], opened: Opened, report: Any) -> Generator[Stretch]:
    """Yield the records of tasks, one after the other. ``report`` is called with what is lost."""
    policy = LossPolicy(fails=job.fails, remedy=REMEDY, report=report, timeout_ms=TIMEOUT_MS)
    wanted, way = job.layout.wanted, Way()
    size = RANGE_BATCH_BYTES if job.layout.decoder is None else DECODED_BYTES
    if job.layout.decoder is not None:
        job.layout.decoder.begin_reading()
    with opened.consumer(job.options) as consumer:
        for task in tasks:
            way.begin(task)
            reading = RangesReading(consumer, task, policy)
            while (columns := reading.next(wanted, size)) is not None:
                if columns.rows:
                    yield Stretch(job.layout.build(columns), way.passed(columns))
            yield Stretch(None, way.rest())
