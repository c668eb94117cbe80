"""The commands of ``kafka-async``: ``consume`` and ``demo``, and those of ``groups.py`` and ``offsets.py``.

Decides: which options there are, and what they mean for the consumer. Owns nothing. Must never read or write a record itself.

``consume`` is for whoever knows kcat: options and format tokens are kcat's where it has them.
"""

from collections.abc import Callable
from typing import Annotated

import typer
from attrs import define, field
from rich.console import Console
from rich.live import Live
from rich.text import Text

from .cli import require
from .copying import Copy, Membership, Partitions, Reading, Start
from .formats import Writer, formatter, json_line, unescape
from .groups import groups
from .offsets import offsets
from .shell import FAILED, Brokers, Debug, Output, Settings, consumer_options, run, show_log

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.add_typer(groups, name="groups")
app.add_typer(offsets, name="offsets")


@app.callback()
def _about() -> None:
    """Read Apache Kafka from the command line."""


# --- consume -------------------------------------------------------------------------------------------------------------------


@app.command()
def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to read.")],
    brokers: Brokers = "localhost:9092",
    group: Annotated[
        str | None, typer.Option("-G", "--group", help="Read as a member of this group, and commit what was written.")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option("--group-protocol", help="Protocol of the group: auto (default), classic, consumer.")
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("-p", "--partition", min=0, help="Partition to read; can be repeated. Default: all.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--offset",
            help="Where to begin: beginning (default), end, an offset, -N (the last N), s@MILLISECONDS. With --group: stored "
            "(default), and beginning (default) or end where the group has stored nothing.",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("-c", "--count", min=1, help="Exit after this many records.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("-e", "--exit-eof", help="Exit when everything that was there at the start has been read.")
    ] = False,
    text: Annotated[
        str, typer.Option("-f", "--format", help=r"What to write for a record: %t %p %o %k %K %s %S %R %T %h %% \n \t \xNN.")
    ] = "",
    as_json: Annotated[bool, typer.Option("-J", "--json", help="Write one JSON object per line.")] = False,
    key_delimiter: Annotated[str | None, typer.Option("-K", "--key-delimiter", help="Write keys too, followed by this.")] = None,
    delimiter: Annotated[str, typer.Option("-D", "--delimiter", help="What to write after each record (not with -f).")] = r"\n",
    null: Annotated[bool, typer.Option("-Z", "--null", help="Write a null key or value as NULL.")] = False,
    isolation: Annotated[
        str | None, typer.Option("--isolation-level", help="read_uncommitted (default) or read_committed.")
    ] = None,
    settings: Settings = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Write nothing but records and errors.")] = False,
    debug: Debug = False,
) -> None:
    """Read topics and write their records, as kcat does; with --group as a member of a group."""
    chosen = [f"bootstrap_servers={brokers}", "auto_offset_reset=earliest", "allow_auto_create_topics=false"]
    chosen += [f"isolation_level={isolation}"] if isolation is not None else []
    chosen += _group_settings(group, protocol, offset)
    write, end = _layout(text, as_json, key_delimiter, delimiter, b"NULL" if null else b"")
    options = consumer_options([*chosen, *(settings or ())])
    names = tuple(dict.fromkeys(topics))
    reading: Reading
    if group is not None:
        if partitions:
            raise typer.BadParameter("-p and --group do not go together: the group assigns partitions")
        reading = Membership(topics=names, options=options)
    else:
        start = Start.parse("beginning" if offset is None else offset)
        reading = Partitions(topics=names, partitions=tuple(dict.fromkeys(partitions or ())), start=start, options=options)
    copy = Copy(reading=reading, count=count, exit_at_end=exit_at_end, write=write, delimiter=end)
    show_log(debug)
    output = Output(debug=debug, quiet=quiet)
    run(copy.run(output), output)


def _group_settings(group: str | None, protocol: str | None, offset: str | None) -> list[str]:
    """Return what ``--group``, ``--group-protocol`` and ``--offset`` mean for the consumer."""
    if group is None:
        if protocol is not None:
            raise typer.BadParameter("--group-protocol needs --group")
        if offset == "stored":
            raise typer.BadParameter("'stored' needs --group: only a group stores offsets")
        return []
    resets = {"stored": "earliest", "beginning": "earliest", "end": "latest"}
    if offset is not None and offset not in resets:
        raise typer.BadParameter(f"{offset!r}: expected 'stored', 'beginning' or 'end' with --group; 'offsets reset' moves a group")
    # A thread of its own, because a pager that is not scrolled blocks our writing for as long as it likes.
    return [
        f"group_id={group}",
        f"group_protocol={protocol or 'auto'}",
        f"auto_offset_reset={resets[offset or 'stored']}",
        "background=thread",
    ]


def _layout(text: str, as_json: bool, key_delimiter: str | None, delimiter: str, null: bytes) -> tuple[Writer, bytes]:
    """Return what writes a record, and what comes after it."""
    given = [name for name, value in (("-f", text), ("-J", as_json), ("-K", key_delimiter)) if value]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} do not go together")
    try:
        end = unescape(delimiter)
        if text:
            return formatter(text, null=null), b""
        if as_json:
            return json_line, b"\n"
        if key_delimiter is None:
            return formatter("%s", null=null), end
        return formatter("%k" + key_delimiter.replace("%", "%%") + "%s", null=null), end
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


# --- demo ----------------------------------------------------------------------------------------------------------------------


@define(eq=False)
class Progress:
    """One line that changes on a terminal, one line a second elsewhere."""

    show: Callable[[str], None]
    every: float
    _shown_at: float = field(default=0.0, init=False)

    def update(self, *, produced: int, received: int, seconds: float, lag: int) -> None:
        """Show the numbers where ``every`` seconds have passed since the last time."""
        if seconds - self._shown_at < self.every:
            return
        self._shown_at = seconds
        self.show(f"{received:>11,} records {received / seconds:>11,.0f} records/s   lag {lag:,}   produced {produced:,}")


def _rate(text: str) -> float | None:
    if text == "max":
        return None
    try:
        rate = float(text.removesuffix("/s").replace(",", "").replace("_", ""))
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e9:
        raise typer.BadParameter(f"{text!r}: expected records per second, such as 50000, or 'max'")
    return rate


@app.command()
def demo(
    records: Annotated[int | None, typer.Option(min=1, help="Stop producing after this many records.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, max=3600, help="Stop producing after this time. Default: 3, or none with --records.")
    ] = None,
    rate: Annotated[str, typer.Option(help="Records per second to produce, or 'max'.")] = "50000",
    partitions: Annotated[int, typer.Option(min=1, max=4, help="Partitions to use.")] = 4,
    size: Annotated[int, typer.Option(min=1, max=900_000, help="Bytes of a value, at least.")] = 150,
    debug: Debug = False,
) -> None:
    """Start a mock cluster of three brokers, produce orders into it, consume them live, and check that all arrived."""
    require("demo", "confluent_kafka")
    from .demo import MockCluster, Plan, demonstrate  # needs an extra of its own

    if seconds is None and records is None:
        seconds = 3.0
    plan = Plan(records=records, seconds=seconds, rate=_rate(rate), partitions=partitions, size=size)
    show_log(debug)
    output = Output(debug=debug)
    console = Console(highlight=False, soft_wrap=True)

    async def work() -> int:
        with MockCluster() as cluster:
            console.print(f"Mock cluster of 3 brokers: {cluster.bootstrap}", markup=False)
            if console.is_terminal:
                with Live(console=console, refresh_per_second=10, transient=True) as live:
                    outcome = await demonstrate(plan, cluster, Progress(lambda line: live.update(Text(line)), 0.1))
            else:
                outcome = await demonstrate(plan, cluster, Progress(lambda line: console.print(line, markup=False), 1.0))
        span = max(outcome.seconds, 0.001)
        console.print(
            f"{outcome.received:,} records in {outcome.seconds:.2f} s: {outcome.received / span:,.0f} records/s, "
            f"{outcome.size / span / 1e6:,.1f} MB/s; {outcome.partitions} partitions on {outcome.brokers} brokers"
        )
        console.print(outcome.verdict, markup=False)
        return 0 if outcome.complete else FAILED

    run(work(), output)
