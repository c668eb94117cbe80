"""What ``kafka-async top`` shows, and what its keys do.

Pure: it knows neither a terminal nor a broker. The same row stays selected while numbers move, no line is longer than the terminal
is wide, and nothing is told by colour alone.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from attrs import define, field, frozen
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ...trace import counted
from ..monitor import BrokerView, GroupView, PartitionView, Snapshot, Status
from ..monitor.numbers import NOTHING, behind, count, duration, rate, sparkline
from .tables import printable


class Shown(StrEnum):
    """The screens."""

    OVERVIEW = "overview"
    GROUP = "group"
    CLUSTER = "cluster"
    HELP = "help"


class Action(StrEnum):
    """What a key wants that a screen cannot do."""

    QUIT = "quit"
    RESET = "reset"


ORDERS: Final = ("trouble", "name", "lag", "behind", "in", "out", "members")
"""What groups can be sorted by, in the order in which ``s`` goes through them."""
KEYS: Final = (
    ("up down j k", "another row; Home, End and Page keys too"),
    ("Enter", "the group of the row"),
    ("Esc", "back"),
    ("s", "sort by: " + ", ".join(ORDERS)),
    ("/", "only groups whose name contains what you type; Esc ends it"),
    ("c", "the cluster"),
    ("p", "pause, and go on"),
    ("r", "count rates from now on"),
    ("h ?", "this page"),
    ("q", "end"),
)
MOST_ROWS: Final = 200
"""Groups that a list shows; the others are counted."""
_COLOURS: Final = {Status.OK: "green", Status.WARN: "yellow", Status.UNKNOWN: "magenta"}
_SMALLEST: Final = 12
"""Columns that a name keeps before another column goes."""


@frozen
class Column:
    """A column of a table."""

    title: str
    cell: Callable[[Any], str]
    left: bool = False
    flexible: bool = False
    """It gives way first."""


def _status_cell(view: "GroupView | PartitionView") -> str:
    return f"{view.status.mark} {view.status.value}"


def _clear(view: "GroupView | PartitionView") -> str:
    """Say nothing of a group that keeps up: its lag is that of the records that are on their way."""
    if view.status in (Status.OK, Status.UNKNOWN) and (view.age is None or view.age.seconds < 60):
        return NOTHING
    return duration(view.clear_in)


GROUPS: Final = (
    Column("  STATUS", _status_cell, left=True),
    Column("GROUP", lambda view: printable(view.name) + (" (s)" if view.kind == "share" else ""), left=True, flexible=True),
    Column("MEMBERS", lambda view: count(len(view.members)) if view.members is not None else "?"),
    Column("LAG", lambda view: count(view.lag, view.complete)),
    Column("BEHIND", lambda view: behind(view.age, view.lag)),
    Column("IN/s", lambda view: rate(view.in_rate)),
    Column("OUT/s", lambda view: rate(view.out_rate)),
    Column("CLEAR IN", _clear),
    Column(
        "WORST", lambda view: printable(str(view.worst.partition)) if view.worst is not None and view.lag else NOTHING, left=True
    ),
)
PARTITIONS: Final = (
    Column("  STATUS", _status_cell, left=True),
    Column("PARTITION", lambda view: printable(str(view.partition)), left=True, flexible=True),
    Column("LAG", lambda view: count(view.lag)),
    Column("BEHIND", lambda view: behind(view.age, view.lag)),
    Column("UNMOVED", lambda view: duration(view.unmoved)),
    Column("COMMITTED", lambda view: count(view.committed) if view.committed is not None else NOTHING),
    Column("END", lambda view: count(view.end)),
    Column("OWNER", lambda view: printable(view.owner) if view.owner else NOTHING, left=True),
    Column("START", lambda view: count(view.start) if view.start is not None else NOTHING),
    Column("IN/s", lambda view: rate(view.in_rate)),
    Column("OUT/s", lambda view: rate(view.out_rate)),
)


def layout(columns: Sequence[Column], rows: Sequence[Any], width: int) -> list[str]:
    """Return a title line and a line for each row, none wider than ``width``. Columns go from the right if there is no room.

    Widths are those on a terminal: a name may have characters that take two columns, or none.
    """
    cells = [[column.title for column in columns], *([column.cell(row) for column in columns] for row in rows)]
    widths = [max(cell_len(line[place]) for line in cells) for place in range(len(columns))]
    shown = len(columns)
    while shown > 2 and _needed(columns[:shown], widths) > width:
        shown -= 1
    spare = width - sum(widths[:shown]) - 2 * (shown - 1)
    for place, column in enumerate(columns[:shown]):
        if column.flexible and spare < 0:
            widths[place] = max(1, widths[place] + spare)
    return [_cut(_line(columns[:shown], line, widths), width).rstrip() for line in cells]


def _needed(columns: Sequence[Column], widths: Sequence[int]) -> int:
    least = [min(width, _SMALLEST) if column.flexible else width for column, width in zip(columns, widths, strict=False)]
    return sum(least) + 2 * (len(columns) - 1)


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, text, width in zip(columns, cells, widths, strict=False):
        kept = text if cell_len(text) <= width else f"{_cut(text, width - 1)}~"
        spare = " " * (width - cell_len(kept))
        parts.append(kept + spare if column.left else spare + kept)
    return "  ".join(parts)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width)


@define
class Screens:
    """What was chosen."""

    shown: Shown = Shown.OVERVIEW
    order: str = ORDERS[0]
    filter: str = ""
    typing: bool = False
    """Keys are letters of the filter."""
    paused: bool = False
    plain: bool = False
    """The terminal takes ASCII only."""
    message: str = ""
    """The last line of the log."""
    _selected: str = ""
    """The group of the row that is selected."""
    _row: int = 0
    """Its place, in case the group goes."""
    _top: int = 0
    """The first row that is shown, of a group's or the cluster's page."""
    _names: list[str] = field(factory=list)
    """The groups of the overview, in order."""
    _page: int = 10
    """Rows that fit."""

    # --- keys ------------------------------------------------------------------------------------------------------------------

    def press(self, key: str) -> Action | None:
        """Do what a key means. Return what else is to be done."""
        if self.typing:
            self._type(key)
            return None
        if key == "q":
            return Action.QUIT
        if key == "r":
            return Action.RESET
        if key in ("up", "k", "down", "j", "pageup", "pagedown", "home", "end"):
            self._move(key)
        elif key == "p":
            self.paused = not self.paused
        elif key in ("h", "?"):
            self._go(Shown.HELP)
        elif key == "c":
            self._go(Shown.CLUSTER)
        elif key in ("escape", "backspace"):
            self._back()
        elif self.shown is Shown.OVERVIEW:
            self._choose(key)
        return None

    def _choose(self, key: str) -> None:
        if key == "s":
            self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        elif key == "/":
            self.typing = True
        elif key == "enter" and self._selected:
            self._go(Shown.GROUP)

    def _type(self, key: str) -> None:
        if key == "escape":
            self.filter, self.typing = "", False
        elif key == "enter":
            self.typing = False
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1:
            self.filter += key

    def _go(self, where: Shown) -> None:
        self.shown, self._top = where, 0

    def _back(self) -> None:
        if self.shown is Shown.OVERVIEW:
            self.filter = ""
        self._go(Shown.OVERVIEW)

    def _move(self, key: str) -> None:
        far = 10**9
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -self._page, "pagedown": self._page, "home": -far, "end": far}
        if self.shown is not Shown.OVERVIEW:
            self._top = max(0, self._top + steps[key])
        elif self._names:
            self._row = min(max(self._row + steps[key], 0), len(self._names) - 1)
            self._selected = self._names[self._row]

    # --- lines -----------------------------------------------------------------------------------------------------------------

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        """Return as many lines as the terminal has, each as wide at most."""
        head, body, foot = self._parts(snapshot, width, max(height - 3, 1))
        used = [head, *body[: max(height - 2, 0)]]
        used += [Text()] * (height - 1 - len(used))
        lines = [*used[: height - 1], foot] if height > 1 else [head]
        for line in lines:
            line.truncate(width)
        return lines

    def _parts(self, snapshot: Snapshot, width: int, room: int) -> tuple[Text, list[Text], Text]:
        self._page = room
        if self.shown is Shown.HELP:
            body = [Text(), *(Text(f"  {keys:<12}  {what}") for keys, what in KEYS)]
        elif self.shown is Shown.CLUSTER:
            body = self._scrolled(cluster_lines(snapshot, width), room)
        elif self.shown is Shown.GROUP:
            body = self._group(snapshot, width, room)
        else:
            body = self._overview(snapshot, width, room)
        return heading(snapshot, paused=self.paused), body, self._foot()

    def _overview(self, snapshot: Snapshot, width: int, room: int) -> list[Text]:
        groups = self.ordered(snapshot)
        self._names = [group.name for group in groups]
        if self._selected in self._names:
            self._row = self._names.index(self._selected)
        else:
            self._row = min(self._row, max(len(groups) - 1, 0))
            self._selected = self._names[self._row] if groups else ""
        top = min(max(self._row - room + 2, 0), max(len(groups) - room + 1, 0))
        shown = groups[top : top + room]
        title, *rows = layout(GROUPS, shown, width - 1)
        lines = [Text(f" {title}", style="bold")]
        for place, (group, row) in enumerate(zip(shown, rows, strict=True), top):
            lines.append(marked(row, group.status, selected=place == self._row))
        if not groups:
            lines.append(Text("  no groups" + (f" with {printable(self.filter)!r} in their name" if self.filter else "")))
        elif left := len(groups) - top - len(shown):
            lines[-1] = Text(f"  {left + 1} others: {summary(groups[top + len(shown) - 1 :])}", style="dim")
        return lines

    def ordered(self, snapshot: Snapshot) -> list[GroupView]:
        """Return the groups whose name has the filter in it, sorted as chosen."""
        kept = [group for group in snapshot.groups if self.filter.lower() in group.name.lower()]
        by: dict[str, Callable[[GroupView], Any]] = {
            "name": lambda group: group.name,
            "lag": lambda group: -(group.lag or 0),
            "behind": lambda group: -(group.age.seconds if group.age is not None else 0.0),
            "in": lambda group: -(group.in_rate or 0.0),
            "out": lambda group: -(group.out_rate or 0.0),
            "members": lambda group: -len(group.members or ()),
        }
        return sorted(kept, key=by[self.order]) if self.order in by else kept

    def _group(self, snapshot: Snapshot, width: int, room: int) -> list[Text]:
        group = snapshot.find(self._selected)
        if group is None:
            return [Text(f"  group {printable(self._selected)!r} is gone")]
        return self._scrolled(group_lines(group, width, plain=self.plain), room)

    def _scrolled(self, lines: list[Text], room: int) -> list[Text]:
        self._top = min(self._top, max(len(lines) - room, 0))
        return lines[self._top : self._top + room + 1]

    def _foot(self) -> Text:
        if self.typing:
            return Text(f" /{printable(self.filter)}_", style="reverse")
        parts = [f"by {self.order}"] if self.shown is Shown.OVERVIEW else ["Esc back"]
        parts += [f"/{printable(self.filter)}"] if self.filter else []
        keys = f" h help  q quit  {'  '.join(parts)}"
        return Text(f"{keys}   {self.message}" if self.message else keys, style="dim")


def heading(snapshot: Snapshot, *, paused: bool = False) -> Text:
    """Return the line about the cluster: which brokers do not answer, and how many groups are in trouble."""
    cluster = snapshot.cluster
    late = [
        f"{broker.node_id}: {f'{broker.age_seconds:.0f} s old' if broker.age_seconds is not None else 'no answer'}"
        for broker in cluster.brokers
        if broker.note
    ]
    brokers = counted(len(cluster.brokers), "broker") + (f" ({', '.join(late)})" if late else "")
    odd = f", {counted(len(cluster.leaderless), 'partition')} without a leader" if cluster.leaderless else ""
    name = printable(cluster.cluster_id or "?")
    state = summary(snapshot.groups) if snapshot.groups or not late else Status.UNKNOWN.value
    text = f" kafka-async top   {name:.22}, {brokers}{odd}   {counted(len(snapshot.groups), 'group')}: {state}"
    return Text(text + ("   PAUSED" if paused else ""), style="bold")


def summary(groups: Iterable[GroupView]) -> str:
    """Return how many groups have which status, the worst first; ``OK`` if all are well."""
    found = [group.status for group in groups]
    bad = sorted(set(found) - {Status.OK}, key=lambda status: -status.severity)
    return "  ".join(f"{found.count(status)} {status.value}" for status in bad) or "OK"


def marked(row: str, status: Status, *, selected: bool = False) -> Text:
    """Return a line of a table: ``>`` before the selected one, the status in its colour."""
    line = Text(f"{'>' if selected else ' '}{row}", style="reverse" if selected else "")
    if (found := re.match(r". \S+", row)) is not None and not selected:
        line.stylize(_COLOURS.get(status, "bold red"), 1, 1 + found.end())
    return line


def group_lines(group: GroupView, width: int, *, plain: bool = False) -> list[Text]:
    """Return the page of a group: what is the matter, its partitions by trouble, its members."""
    kind = f"{group.kind or 'unknown'} group"
    facts = [f"{printable(group.name)}: {group.status.value}", printable(group.state or "?"), kind]
    facts += [f"{group.rebalances_hour} rebalances in the last hour"] if group.rebalances_hour else []
    facts += [f"values are {group.age_seconds:.0f} s old"] if (group.age_seconds or 0) > 10 else []
    lines = [Text(f" {', '.join(facts)}", style="bold")]
    lines += [Text(f"   {printable(note)}") for note in group.notes]
    numbers = f" lag {count(group.lag, group.complete)}, behind {behind(group.age, group.lag)}, in {rate(group.in_rate)}/s, "
    numbers += f"out {rate(group.out_rate)}/s, clear in {_clear(group)}  "
    lines.append(Text(numbers + sparkline(group.history, max(width - len(numbers) - 1, 0), plain=plain)))
    if group.retention_in is not None:
        lines.append(Text(f"   retention deletes unread records in {duration(group.retention_in)}", style="bold"))
    parts = sorted(group.partitions, key=lambda part: (-part.status.severity, -(part.lag or 0), part.partition))
    if parts:
        title, *rows = layout(PARTITIONS, parts, width - 1)
        lines += [Text(), Text(f" {title}", style="bold")]
        lines += [marked(row, part.status) for row, part in zip(rows, parts, strict=True)]
        lines += [
            Text(f"   {printable(f'{part.partition}: {part.note}')}")
            for part in parts
            if part.note and part.note not in group.notes
        ]
    else:
        lines += [Text(), Text(" No partitions.")]
    lines.append(Text())
    if group.members is None:
        return [*lines, Text(" Members: not known.")]
    lines.append(Text(" MEMBERS" if group.members else " No members.", style="bold"))
    for member in group.members:
        has = " ".join(str(part) for part in member.partitions) or "no partitions"
        lines.append(Text(f"   {printable(member.owner)}  {printable(has)}"))
    return lines


def _answered(broker: BrokerView) -> str:
    if not broker.asked:
        return "not asked"
    return f"{broker.age_seconds:.0f} s ago" if broker.age_seconds is not None else NOTHING


def cluster_lines(snapshot: Snapshot, width: int) -> list[Text]:
    """Return the page of the cluster: brokers, and partitions in trouble."""
    cluster = snapshot.cluster
    title = f" controller {cluster.controller if cluster.controller is not None else '?'}"
    title += f", busiest broker leads {cluster.skew:.1f} times the average" if cluster.skew is not None else ""
    lines = [Text(title, style="bold"), Text()]
    columns = (
        Column("BROKER", lambda broker: str(broker.node_id)),
        Column("ADDRESS", lambda broker: printable(broker.address), left=True, flexible=True),
        Column("RACK", lambda broker: printable(broker.rack or NOTHING), left=True),
        Column("LEADS", lambda broker: count(broker.leads)),
        Column("ANSWERED", _answered),
        Column("NOTE", lambda broker: printable(broker.note), left=True),
    )
    head, *rows = layout(columns, cluster.brokers, width - 1)
    lines += [Text(f" {head}", style="bold"), *(Text(f" {row}") for row in rows), Text()]
    for what, partitions in (("without a leader", cluster.leaderless), ("under-replicated", cluster.under_replicated)):
        lines.append(Text(f" {counted(len(partitions), 'partition')} {what}", style="bold" if partitions else ""))
        lines += [Text(f"   {printable(str(partition))}") for partition in partitions[:MOST_ROWS]]
    return lines
