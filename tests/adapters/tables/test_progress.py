"""How far a scan is."""

import io
import sys
import time
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kafka_async import TopicPartition
from kafka_async.adapters.ranges.planner import OffsetRange
from kafka_async.adapters.tables.progress import Counter, Display, ScanProgress, Way, for_people, lasting
from kafka_async.records import ColumnBuilder, Columns

from .support import A0, A1, filled


def rows(*runs: tuple[TopicPartition, range]) -> Columns:
    into = ColumnBuilder({"offset"})
    for partition, offsets in runs:
        for offset in offsets:
            into.append((offset, 0, 0, None, None, (), None, 0))
        into.end_run(*partition, len(offsets))
    return into.finish()


def test_offsets_count_and_gaps_too() -> None:
    way = Way()
    way.begin([OffsetRange(A0, 0, 10), OffsetRange(A1, 5, 9)])
    assert way.passed(rows((A0, range(3)), (A1, range(7, 8)))) == 3 + 3
    assert way.passed(rows((A0, range(5, 6)))) == 3
    assert way.rest() == 4 + 1
    assert way.rest() == 0


class Screen:
    def __init__(self) -> None:
        self.shown: list[ScanProgress] = []
        self.closed = False

    def show(self, progress: ScanProgress) -> None:
        self.shown.append(progress)

    def close(self) -> None:
        self.closed = True


def test_it_is_shown_after_half_a_second_and_told_ten_times_a_second() -> None:
    now, screen = 0.0, Screen()
    told: list[ScanProgress] = []

    def display() -> Display:
        return screen

    counter = Counter(total=1000, tell=told.append, display=display, clock=lambda: now)
    counter.begin()
    for step in range(100):
        now = step / 100
        counter.add(10, 9, 100)
    counter.end()
    assert 10 <= len(told) <= 12
    assert 4 <= len(screen.shown) <= 7
    assert screen.shown[0].seconds >= 0.5
    assert screen.closed
    assert told[-1] == ScanProgress(offsets=1000, total=1000, rows=900, bytes=10_000, seconds=now)


def test_a_short_reading_shows_nothing() -> None:
    screen = Screen()
    counter = Counter(total=10, display=lambda: screen, clock=lambda: 0.0)
    counter.begin()
    counter.add(10, 10, 10)
    counter.end()
    assert screen.shown == []


def test_what_people_read() -> None:
    progress = ScanProgress(offsets=500_000, total=2_000_000, rows=1, bytes=50_000_000, seconds=0.5)
    assert str(progress) == "500,000 of 2,000,000 offsets, 50.0 MB, 1,000,000/s, 2 s left"
    assert str(ScanProgress(offsets=0, total=2, rows=0, bytes=0, seconds=0.0)) == "0 of 2 offsets, 0.0 MB, 0/s"
    assert [lasting(each) for each in (0.2, 59, 60, 3723)] == ["0 s", "59 s", "1:00", "1:02:03"]


def test_a_function_is_called_with_the_whole_in_the_end() -> None:
    told: list[ScanProgress] = []
    with filled(100, partitions=2) as found:
        assert found.scan("a", progress=told.append).count() == 200
    assert (told[-1].offsets, told[-1].total, told[-1].rows) == (200, 200, 200)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, *, always: bool = False) -> str:
    monkeypatch.setattr(sys, "stderr", screen)
    display = for_people("orders", always=always)
    if display is not None:
        display.show(ScanProgress(offsets=1, total=2, rows=1, bytes=1, seconds=1.0))
        display.show(ScanProgress(offsets=2, total=2, rows=1, bytes=1, seconds=1.0))
        display.close()
    return screen.getvalue()


def test_where_nobody_looks_nothing_is_shown_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO()) == ""
    text = shown(monkeypatch, io.StringIO(), always=True)
    assert text.startswith("\rorders: 1 of 2 offsets")
    assert text.endswith("left\n")
    assert text.count("\n") == 1


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, Terminal())
    assert "orders" in text
    assert "100%" in text


class ZMQInteractiveShell:
    """The shell of a notebook, by its name."""


def notebook(monkeypatch: pytest.MonkeyPatch, **modules: Any) -> None:
    class IPython:
        get_ipython = staticmethod(ZMQInteractiveShell)

    monkeypatch.setitem(sys.modules, "IPython", IPython)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name.replace("__", "."), module)


def test_a_notebook_without_widgets_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich's bar shows nothing there, and warns."""
    notebook(monkeypatch, ipywidgets=None)
    assert shown(monkeypatch, io.StringIO()).startswith("\rorders: ")


def test_a_notebook_with_widgets_has_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    widgets, shows = ModuleType("ipywidgets"), ModuleType("IPython.display")
    widgets.__spec__ = ModuleSpec("ipywidgets", None)
    vars(widgets).update(FloatProgress=SimpleNamespace, Label=SimpleNamespace, HBox=lambda children: children)
    vars(shows).update(display=seen.append)
    notebook(monkeypatch, ipywidgets=widgets, IPython__display=shows)
    assert shown(monkeypatch, io.StringIO()) == ""
    bar, text = seen[0]
    assert (bar.value, bar.description, bar.bar_style) == (1.0, "orders", "success")
    assert text.value.startswith("2 of 2 offsets")


def test_progress_costs_nothing_where_there_is_no_display() -> None:
    counter = Counter(total=1)
    counter.begin()
    began = time.process_time()
    for _ in range(10_000):
        counter.add(1, 1, 1)
    assert time.process_time() - began < 1
