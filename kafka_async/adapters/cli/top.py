"""The command ``kafka-async top``: which groups are behind, by how long, and why, on a terminal or as a check.

What is shown is in ``screens.py``; what it means in ``adapters/monitor``.
"""

import asyncio
import logging
import sys
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final, TypeAlias

import anyio
import typer
from attrs import define, field

from ...config import ConsumerConfig
from ...config.spelling import did_you_mean
from ...errors import KafkaError
from ..admin import Admin, Client
from ..monitor import Book, BrokerView, GroupView, PartitionView, Snapshot, Status, Survey
from .consumer_options import Brokers, CommandConfig, Settings, admin_options
from .formats import json_row
from .groups import no_such_group
from .painting import Painter, can_paint, painting
from .screens import GROUPS, PARTITIONS, Action, Column, Screens, heading
from .shell import AsJson, Debug, Output, encoded, new_app, run
from .tables import Figure, printable, table

app = new_app()

EVERY: Final = 5.0
"""Seconds between two polls if nobody says otherwise."""
UNKNOWN: Final = Status.UNKNOWN.exit_code

Names: TypeAlias = Annotated[
    list[str] | None, typer.Option("-g", "--group", metavar="GROUP", help="Only this group; can be repeated.")
]
Topic: TypeAlias = Annotated[
    str | None, typer.Option("-t", "--topic", help="Only groups that read this topic, and its partitions.")
]
Interval: TypeAlias = Annotated[float, typer.Option("-i", "--interval", min=0.5, max=3600, help="Seconds between two polls.")]
AllowedLag: TypeAlias = Annotated[
    int,
    typer.Option(
        "--allowed-lag",
        min=0,
        help="Records of lag in a partition that count as none, such as 1 for programs that read transactions.",
    ),
]


@app.command()
def top(
    brokers: Brokers = None,
    config: CommandConfig = None,
    groups: Names = None,
    topic: Topic = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, write a table, and end.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", min=1, help="Look for so long, then write a table, with rates, and end."),
    ] = None,
    interval: Interval = EVERY,
    allowed_lag: AllowedLag = 0,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Watch how far groups are behind.

    Shows all groups of the cluster, the worst first: how many records and how long they are behind, whether that gets better, and
    in which partition. Keys: arrows and Enter for a group, c for the cluster, s to sort, / to filter, h for all keys, q to end.

    With --once or --for it is a check, too. Exit codes are those of Nagios: 0 all is well, 1 a warning, 2 something has stopped,
    stalled or cannot be read, 3 it cannot be told.
    """
    if once and seconds is not None:
        raise typer.BadParameter("--once and --for do not go together: one look knows no rates")
    options = admin_options(brokers, config, settings)
    output = Output(debug=debug, failed=UNKNOWN)
    plan = TopPlan(names=tuple(dict.fromkeys(groups or ())), as_json=as_json, seconds=0.0 if once else seconds)
    book = Book(interval, allowed_lag, topic)

    async def work() -> int:
        async with Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client:
            survey = Survey(Admin(client), book, plan.names)
            if plan.seconds is None and not as_json and can_paint():
                return await Watching(survey, output).run()
            return await _written(survey, plan, output)

    run(work(), output)


@define(kw_only=True)
class TopPlan:
    """What is to be written, and until when."""

    names: tuple[str, ...]
    as_json: bool
    seconds: float | None
    """How long after the first poll the last one is, after which it writes; ``None``: JSON for ever, a table once."""


async def _written(survey: Survey, plan: TopPlan, output: Output) -> int:
    """Write what polls have found, as JSON or as a table; return the exit code."""
    if plan.seconds is None and plan.as_json:
        async for snapshot in survey.snapshots():
            await output.write(_document(snapshot, plan))
    snapshot, topic = await _last(survey, plan.seconds or 0.0), survey.book.topic
    if silent := [broker for broker in snapshot.cluster.brokers if broker.note]:
        output.notify(f"kafka-async: {_who_is_silent(silent)}")
    for name in snapshot.missing:
        output.notify(f"kafka-async: {await no_such_group(survey.admin, name)}")
    untold = () if snapshot.lacks_topic else _untold(snapshot, plan.names)
    if topic is not None and snapshot.lacks_topic:
        output.notify(f"kafka-async: topic {topic!r} does not exist, or may not be described{did_you_mean(topic, survey.topics)}")
    elif topic is not None and not snapshot.groups and not plan.names and not silent:  # one of theirs may read it
        output.notify(f"kafka-async: no group reads topic {topic!r}")
    for name in untold:
        where = f" in topic {topic!r}" if topic is not None else ""
        output.notify(f"kafka-async: nothing is known of group {name!r}{where}")
    if snapshot.groups or not (plan.names or topic):  # a table of nothing would head an error with OK
        await output.show(_document(snapshot, plan))
    return exit_code(snapshot, plan.names, topic)


async def _last(survey: Survey, seconds: float) -> Snapshot:
    """Poll, and return what the poll that began ``seconds`` after the first has found.

    There are two at least if there are seconds: one poll by itself knows no rates.
    """
    clock = survey.admin.client.clock
    until = clock() + seconds
    while True:
        began = clock()
        snapshot = await survey.poll()
        if began >= until:
            return snapshot
        await anyio.sleep(max(0.0, min(began + survey.book.interval, until) - clock()))


def _who_is_silent(brokers: Collection[BrokerView]) -> str:
    """Return which brokers have not told about their groups, and what the first of them said in place of it."""
    numbers = [broker.node_id for broker in brokers]
    who = f"broker {numbers[0]} does" if len(numbers) == 1 else f"brokers {', '.join(map(str, numbers))} do"
    return f"{who} not tell of groups: {next(broker.note for broker in brokers)}"


def _document(snapshot: Snapshot, plan: TopPlan) -> bytes:
    if plan.as_json:
        return b"".join(json_row(group.as_json()) for group in snapshot.known().groups)
    return encoded(text_of(snapshot, detailed=bool(plan.names)))


def exit_code(snapshot: Snapshot, names: Collection[str] = (), topic: str | None = None) -> int:
    """Return the exit code of a check: 2 before 1 before 3 before 0, which is how bad they are.

    ``names``: groups that were asked for. To be well, something has to be known of each of them. ``topic``: likewise, that some
    group has to read.
    """
    codes = {group.status.exit_code for group in snapshot.groups}
    unread = topic is not None and not snapshot.groups
    if snapshot.missing or snapshot.lacks_topic or unread or _untold(snapshot, names) or not _answered(snapshot):
        codes.add(UNKNOWN)
    return next((code for code in (2, 1, UNKNOWN) if code in codes), 0)


def _untold(snapshot: Snapshot, names: Collection[str]) -> list[str]:
    """Return of which of these groups nothing is known, although nobody says that they do not exist."""
    shown = {name: snapshot.find(name) for name in names if name not in snapshot.missing}
    return [name for name, group in shown.items() if group is None or (group.lag is None and group.status is Status.OK)]


def _answered(snapshot: Snapshot) -> bool:
    """Return whether every broker has told about its groups."""
    return not any(broker.note for broker in snapshot.cluster.brokers)


def text_of(snapshot: Snapshot, *, detailed: bool = False) -> str:
    """Return what a screen shows as text: a line about the cluster, and a table of groups; ``detailed``: of partitions, too."""
    text = f"{heading(snapshot).plain.strip()}\n\n{_table(GROUPS, snapshot.groups)}"
    for group in snapshot.groups if detailed else ():
        text += f"\nGroup {printable(group.name)}: {', '.join((group.status.value, *map(printable, group.notes)))}\n"
        text += f"\n{_table(PARTITIONS, group.partitions)}" if group.partitions else ""
    return text


def _table(columns: Sequence[Column], rows: Sequence[GroupView | PartitionView]) -> str:
    titles = [column.title.strip() for column in columns]
    return table(titles, [[column.cell(row) if column.left else Figure(column.cell(row)) for column in columns] for row in rows])


@define(eq=False)
class Watching:
    """The pages on the terminal."""

    survey: Survey
    output: Output
    screens: Screens = field(factory=Screens)
    _snapshot: Snapshot | None = field(default=None, init=False)
    _ended: bool = field(default=False, init=False)
    _failure: KafkaError | None = field(default=None, init=False)
    _changed: anyio.Event = field(factory=anyio.Event, init=False)

    async def run(self) -> int:
        """Show pages until somebody ends it."""
        encoding = (sys.stdout.encoding or "ascii").lower()
        self.screens.plain = not encoding.startswith("utf")
        log = LastLine(self._say)
        logger = logging.getLogger("kafka_async")
        logger.addHandler(log)
        try:
            async with painting(self._draw_again, self._press) as painter, asyncio.TaskGroup() as tasks:
                polls = tasks.create_task(self._poll())
                await self._draw(painter)
                polls.cancel()
        finally:
            logger.removeHandler(log)
        if self._failure is not None:
            raise self._failure
        return 0

    async def _poll(self) -> None:
        try:
            async for snapshot in self.survey.snapshots():
                if not self.screens.paused:
                    self._snapshot = snapshot
                    self._draw_again()
        except KafkaError as error:  # raised once the terminal is as it was; a group of tasks would wrap it
            self._failure, self._ended = error, True
            self._draw_again()

    async def _draw(self, painter: Painter) -> None:
        while not self._ended:
            changed = self._changed
            if self._snapshot is not None:
                await self.output.write(painter.page(self.screens.lines(self._snapshot, *painter.size())))
            await changed.wait()

    def _draw_again(self) -> None:
        before, self._changed = self._changed, anyio.Event()
        before.set()

    def _press(self, key: str) -> None:
        action = self.screens.press(key) if key else Action.QUIT
        if action is Action.QUIT:
            self._ended = True
        elif action is Action.RESET:
            self.survey.book.reset_rates(self.survey.admin.client.clock())
        self._draw_again()

    def _say(self, line: str) -> None:
        self.screens.message = printable(line)
        self._draw_again()


class LastLine(logging.Handler):
    """Keeps the last warning of the log for the foot of the page, where lines of a log would tear it."""

    def __init__(self, say: Any) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())
