"""How far a scan is, for people and programs.

What is counted are offsets: compaction and transactions leave fewer records than offsets.
"""

import sys
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, Final, Protocol

from ...model import TopicPartition
from ...records import Columns
from ...values import define, field, frozen
from ..ranges.planner import OffsetRange

SHOWN_AFTER: Final = 0.5
"""Seconds; what is over by then shows nothing."""
_EVERY: Final = 0.1
"""Seconds between two looks at most."""


@frozen(kw_only=True)
class ScanProgress:
    """How far a scan is."""

    offsets: int
    """Offsets that were read or passed over."""
    total: int
    """Offsets of the whole scan."""
    rows: int
    """Records that were handed out."""
    bytes: int
    """Their size in Arrow's columns."""
    seconds: float
    """Since the scan began to read."""

    @property
    def rate(self) -> float:
        """Offsets a second."""
        return self.offsets / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the rate so far; ``None`` before the first record."""
        return (self.total - self.offsets) / self.rate if self.rate else None

    def __str__(self) -> str:
        left = self.seconds_left
        time_left = "" if left is None else f", {lasting(left)} left"
        return f"{self.offsets:,} of {self.total:,} offsets, {self.bytes / 1e6:,.1f} MB, {self.rate:,.0f}/s{time_left}"


def lasting(seconds: float) -> str:
    """Return a length of time as people read it: ``1:02:03``, ``2:03``, ``3 s``."""
    whole = round(seconds)
    minutes, left = divmod(whole, 60)
    if not minutes:
        return f"{left} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


@define(eq=False)
class Way:
    """How far the pieces of one reader are."""

    _at: dict[TopicPartition, int] = field(factory=dict, init=False)
    _ends: dict[TopicPartition, int] = field(factory=dict, init=False)

    def begin(self, pieces: Iterable[OffsetRange]) -> None:
        """Begin with pieces, each of another partition."""
        self._at = {piece.partition: piece.start for piece in pieces}
        self._ends = {piece.partition: piece.end for piece in pieces}

    def passed(self, columns: Columns) -> int:
        """Return how many offsets were passed by these records, and gaps before them."""
        assert columns.offsets is not None  # noqa: S101 - always asked for
        offsets = memoryview(columns.offsets).cast("q")
        done = at = 0
        for topic, number, rows in columns.runs:
            at += rows
            partition, reached = TopicPartition(topic, number), offsets[at - 1] + 1
            done += reached - self._at.get(partition, reached)
            self._at[partition] = reached
        return done

    def rest(self) -> int:
        """Return how many offsets are behind the last record of all pieces, once these are read."""
        rest = sum(end - self._at[partition] for partition, end in self._ends.items())
        self._at, self._ends = {}, {}
        return rest


class Display(Protocol):
    """Shows progress."""

    def show(self, progress: ScanProgress) -> None: ...

    def close(self) -> None: ...


@define(eq=False)
class Counter:
    """Counts for one reading of a scan, and tells whoever wants to know."""

    total: int
    tell: Callable[[ScanProgress], object] | None = None
    display: Callable[[], Display | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    _began: float = field(default=0.0, init=False)
    _told: float = field(default=0.0, init=False)
    _counts: list[int] = field(factory=lambda: [0, 0, 0], init=False)
    _shown: Display | None = field(default=None, init=False)
    _looked: bool = field(default=False, init=False)

    def begin(self) -> None:
        """The reading begins."""
        self._began = self._told = self.clock()

    def add(self, offsets: int, rows: int, size: int) -> None:
        """So much more was read."""
        for place, more in enumerate((offsets, rows, size)):
            self._counts[place] += more
        now = self.clock()
        if now < self._told + _EVERY:
            return
        self._told = now
        self._say(now)

    def end(self) -> None:
        """The reading is over: say so, and take away what was shown."""
        now = self.clock()
        if self.tell is not None:
            self.tell(self.progress(now))
        if self._shown is not None:
            self._shown.show(self.progress(now))
            self._shown.close()
            self._shown = None

    def progress(self, now: float) -> ScanProgress:
        """Return how far it is."""
        offsets, rows, size = self._counts
        return ScanProgress(offsets=offsets, total=self.total, rows=rows, bytes=size, seconds=now - self._began)

    def _say(self, now: float) -> None:
        progress = self.progress(now)
        if self.tell is not None:
            self.tell(progress)
        if not self._looked and now >= self._began + SHOWN_AFTER:
            self._looked, self._shown = True, self.display()
        if self._shown is not None:
            self._shown.show(progress)


# --- what shows it ---------------------------------------------------------------------------------------------------------------


def for_people(title: str, *, always: bool = False) -> Display | None:
    """Return what shows progress where this program runs: ``None`` if nobody looks, unless it is to be shown ``always``."""
    if _in_a_notebook():
        return _Widgets(title) if find_spec("ipywidgets") is not None else _TextLine(title)
    if sys.stderr is None or not (always or sys.stderr.isatty()):
        return None
    return _RichBar(title) if sys.stderr.isatty() and find_spec("rich") is not None else _TextLine(title)


def _in_a_notebook() -> bool:
    """Return whether this is a kernel of Jupyter's: in a terminal, IPython's shell has another name."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"


class _TextLine:
    """One line on standard error that is written over."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._length = 0

    def show(self, progress: ScanProgress) -> None:
        text = f"{self._title}: {progress}"
        sys.stderr.write(f"\r{text.ljust(self._length)}")
        sys.stderr.flush()
        self._length = len(text)

    def close(self) -> None:
        sys.stderr.write("\n")


class _RichBar:
    """Rich's bar. It has no thread of its own that would outlive a reading that nobody ends."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[about]}")
        self._progress = Progress(*columns, console=Console(stderr=True), auto_refresh=False)
        self._task = self._progress.add_task(title, total=None, about="")
        self._progress.start()

    def show(self, progress: ScanProgress) -> None:
        self._progress.update(self._task, total=progress.total, completed=progress.offsets, about=str(progress), refresh=True)

    def close(self) -> None:
        self._progress.stop()


class _Widgets:
    """A bar in a notebook."""

    def __init__(self, title: str) -> None:
        import ipywidgets
        from IPython.display import display

        self._bar: Any = ipywidgets.FloatProgress(min=0.0, max=1.0, description=title)
        self._text: Any = ipywidgets.Label()
        display(ipywidgets.HBox([self._bar, self._text]))

    def show(self, progress: ScanProgress) -> None:
        self._bar.value = progress.offsets / progress.total if progress.total else 1.0
        self._text.value = str(progress)

    def close(self) -> None:
        self._bar.bar_style = "success" if self._bar.value >= 1.0 else ""
