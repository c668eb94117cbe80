"""Where a client's records go: sinks count or time them and say when a run is over.

Owns the clock and the resource counters of the worker process. A client hands over the values of each batch (``take``); the rest of
the client's loop is its library's own idiom, so that nothing but the library differs between two runs.
"""

import resource
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from attrs import define

from benchmarks.jobs import Job

STAMP = struct.Struct(">q")
"""How the paced producer writes the time of sending at the head of a value: CLOCK_MONOTONIC, which all processes share, in ns."""


def peak_rss_mib() -> float:
    """Return the peak resident memory of this program in MiB.

    From ``VmHWM``: Linux carries ``ru_maxrss`` over from the parent at ``exec``, so a small child of a large parent looks large.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM line; the benchmarks need Linux")


@define
class Counters:
    """Wall clock (s), CPU of all threads (s) and voluntary context switches of this process at one moment."""

    wall: float
    cpu: float
    switches: int

    @classmethod
    def now(cls) -> "Counters":
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.monotonic(), usage.ru_utime + usage.ru_stime, usage.ru_nvcsw)


class Sink(Protocol):
    """What a client's loop reports to. ``probe``, if a client sets it, reads a counter of the client's own."""

    probe: Callable[[], int] | None

    def take(self, values: Sequence[bytes | None]) -> bool:
        """Account for one batch, which may be empty; return whether the run is over."""
        ...

    def take_sized(self, count: int, size: int) -> bool:
        """``take`` for a client whose batches know their bytes without looking at each record."""
        ...

    def results(self) -> dict[str, float]:
        """Return what was measured, after the last ``take``."""
        ...


class Throughput:
    """Reads a fixed number of records. The clock starts when the first batch has come; that batch is not counted."""

    def __init__(self, job: Job) -> None:
        self.probe: Callable[[], int] | None = None
        self._records = job.records
        self._origin = Counters.now()
        self._start = self._origin
        self._started = False
        self._end = self._origin
        self._first = 0
        self._count = 0
        self._bytes = 0

    def take(self, values: Sequence[bytes | None]) -> bool:
        return self.take_sized(len(values), sum(map(len, filter(None, values)))) if values else False

    def take_sized(self, count: int, size: int) -> bool:
        if not count:
            return False
        self._count += count
        if not self._started:
            self._start, self._started = Counters.now(), True
            self._first = count
        else:
            self._bytes += size
        if self._count < self._records:
            return False
        self._end = Counters.now()
        return True

    def results(self) -> dict[str, float]:
        counted = max(self._count - self._first, 1)
        wall = max(self._end.wall - self._start.wall, 1e-9)
        return {
            "records_per_s": counted / wall,
            "mb_per_s": self._bytes / wall / 1e6,
            "cpu_us_per_record": (self._end.cpu - self._start.cpu) / counted * 1e6,
            "startup_s": self._start.wall - self._origin.wall,
            "with_startup_per_s": self._count / (self._end.wall - self._origin.wall),
            "peak_rss_mib": peak_rss_mib(),
        }


class Timed:
    """Runs for ``seconds`` after a warm-up, however many records come: for paced traffic, for none, and for a slow reader."""

    def __init__(self, job: Job) -> None:
        self.probe: Callable[[], int] | None = None
        self._job = job
        self._origin = Counters.now()
        self._start = self._origin
        self._started = False
        self._end = self._origin
        self._count = 0
        self._wake_ups = 0

    def take(self, values: Sequence[bytes | None]) -> bool:
        return self.take_sized(len(values), 0)

    def take_sized(self, count: int, size: int) -> bool:
        now = Counters.now()
        if not self._started:
            if now.wall - self._origin.wall >= self._job.warm_up:
                self._start, self._started = now, True
                self._wake_ups = self._counted()
            return False
        self._count += count
        if now.wall - self._start.wall < self._job.seconds:
            return False
        self._end = now
        self._wake_ups = self._counted() - self._wake_ups
        return True

    def results(self) -> dict[str, float]:
        wall = self._end.wall - self._start.wall
        measured = {
            "cpu_percent": (self._end.cpu - self._start.cpu) / wall * 100,
            "switches_per_s": (self._end.switches - self._start.switches) / wall,
            "records_per_s": self._count / wall,
            "peak_rss_mib": peak_rss_mib(),
        }
        if self.probe is not None:
            measured["wake_ups_per_s"] = self._wake_ups / wall
        return measured

    def _counted(self) -> int:
        return self.probe() if self.probe is not None else 0


class Latency(Timed):
    """``Timed`` that also takes the age of every record on arrival."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._ages: list[int] = []

    def take(self, values: Sequence[bytes | None]) -> bool:
        now = time.monotonic_ns()
        if self._started:
            self._ages += [now - STAMP.unpack_from(value)[0] for value in values if value is not None]
        return super().take(values)

    def results(self) -> dict[str, float]:
        cuts = statistics.quantiles(self._ages, n=100, method="inclusive")
        return super().results() | {"p50_ms": cuts[49] / 1e6, "p99_ms": cuts[98] / 1e6, "max_ms": max(self._ages) / 1e6}


def sink_for(job: Job) -> Sink:
    """Return the sink that measures what ``job`` asks for."""
    if job.mode == "throughput":
        return Throughput(job)
    return Latency(job) if job.mode == "latency" else Timed(job)
