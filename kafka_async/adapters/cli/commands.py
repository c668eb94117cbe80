"""The commands ``consume``, ``options`` and ``demo``; adds those of ``topics.py``, ``groups.py``, ``offsets.py`` and ``share.py``.

Decides: which options there are, and what they mean for the consumer. Owns nothing. Must never read or write a record itself.

``consume`` is for people who know kcat: options and format tokens that kcat has mean the same here.
"""

import platform
from collections.abc import Callable
from typing import Annotated, Any

import typer
from attrs import define, field
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ... import __version__
from ...config.reference import described, listed
from ...errors import GroupIdNotFound, InconsistentGroupProtocolError
from ...records import IMPLEMENTATION
from .copying import Copy, MemberSource, Partitions, RecordSource, Start
from .formats import CODES
from .groups import groups, no_group_of_consumers
from .launch import FAILED
from .offsets import offsets
from .settings import BROKERS, Brokers, CommandConfig, Settings, consumer_options
from .share import share
from .shell import Debug, Output, layout, run, show_log
from .topics import topics

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.add_typer(topics, name="topics")
app.add_typer(groups, name="groups")
app.add_typer(offsets, name="offsets")
app.add_typer(share, name="share")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kafka-async {__version__} (Python {platform.python_version()}, {IMPLEMENTATION} decoder)")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read Apache Kafka from the command line."""


# --- consume -------------------------------------------------------------------------------------------------------------------


@app.command(epilog=CODES)
def consume(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to read.")],
    brokers: Brokers = None,
    config: CommandConfig = None,
    group: Annotated[
        str | None,
        typer.Option("-G", "--group", metavar="GROUP", help="Read as a member of this group, and commit what was written."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option("--group-protocol", metavar="PROTOCOL", help="Protocol of the group: auto (default), classic, consumer."),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("-p", "--partition", metavar="N", min=0, help="Partition to read; can be repeated. Default: all."),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--offset",
            metavar="WHERE",
            help="Where to begin: beginning (default), end, an offset, -N (the last N), s@MILLISECONDS, s@DATE (ISO 8601, UTC if "
            "it names no zone). With --group: stored (default), and beginning (default) or end if the group has stored nothing.",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("-c", "--count", metavar="N", min=1, help="Exit after this many records.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("-e", "--exit-eof", help="Exit when everything that was there at the start has been read.")
    ] = False,
    text: Annotated[
        str, typer.Option("-f", "--format", metavar="FORMAT", help="What to write for a record, with the codes below.")
    ] = "",
    as_json: Annotated[bool, typer.Option("-J", "--json", help="Write one JSON object per line.")] = False,
    key_delimiter: Annotated[
        str | None, typer.Option("-K", "--key-delimiter", metavar="TEXT", help="Write keys too, followed by this.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("-D", "--delimiter", metavar="TEXT", help="What to write after each record (not with -f).")
    ] = r"\n",
    null: Annotated[bool, typer.Option("-Z", "--null", help="Write a null key or value as NULL.")] = False,
    isolation: Annotated[
        str | None, typer.Option("--isolation-level", metavar="LEVEL", help="read_uncommitted (default) or read_committed.")
    ] = None,
    settings: Settings = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Write nothing but records and errors.")] = False,
    debug: Debug = False,
) -> None:
    """Read topics and write their records.

    Options and formats are kcat's. With --group it reads as a member of a group.
    """
    chosen = {"bootstrap_servers": brokers, "isolation_level": isolation, **_group_options(group, protocol, offset)}
    write, end = layout(text, as_json, key_delimiter, delimiter, b"NULL" if null else b"")
    defaults = {"bootstrap_servers": BROKERS, "auto_offset_reset": "earliest", "allow_auto_create_topics": False}
    options = consumer_options(settings, file=config, defaults=defaults, chosen=chosen)
    if options.get("group_id") != group:
        if any("group_id" in setting.partition("=")[0].replace(".", "_") for setting in settings or ()):
            raise typer.BadParameter("group_id: give the group with --group")
        options["group_id"] = None  # the file may be for other programs too: without --group nothing is committed
    topics = tuple(dict.fromkeys(names))
    reading: RecordSource
    if group is not None:
        if partitions:
            raise typer.BadParameter("-p and --group do not go together: the group assigns partitions")
        reading = MemberSource(topics=topics, options=options)
    else:
        start = Start.parse("beginning" if offset is None else offset)
        reading = Partitions(topics=topics, partitions=tuple(dict.fromkeys(partitions or ())), start=start, options=options)
    copy = Copy(reading=reading, count=count, exit_at_end=exit_at_end, write=write, delimiter=end)
    show_log(debug)
    output = Output(debug=debug, quiet=quiet)

    async def work() -> int:
        try:
            return await copy.run(output)
        except (InconsistentGroupProtocolError, GroupIdNotFound) as error:
            raise await no_group_of_consumers(options, error) from error

    run(work(), output)


def _group_options(group: str | None, protocol: str | None, offset: str | None) -> dict[str, Any]:
    """Return what ``--group``, ``--group-protocol`` and ``--offset`` mean for the consumer."""
    if group is None:
        if protocol is not None:
            raise typer.BadParameter("--group-protocol needs --group")
        if offset == "stored":
            raise typer.BadParameter("'stored' needs --group: only a group stores offsets")
        return {}
    resets = {None: None, "stored": None, "beginning": "earliest", "end": "latest"}
    if offset not in resets:
        raise typer.BadParameter(f"{offset!r}: expected 'stored', 'beginning' or 'end' with --group; 'offsets reset' moves a group")
    return {"group_id": group, "group_protocol": protocol, "auto_offset_reset": resets[offset]}


# --- options -------------------------------------------------------------------------------------------------------------------


@app.command()
def options(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Option to describe in full.")] = None,
) -> None:
    """List the options of a consumer, or explain one.

    These are the options for -X and -F.
    """
    try:
        text = listed() if name is None else described(name)
    except KeyError as error:
        raise typer.BadParameter(str(error.args[0])) from None

    async def work() -> str:
        return text

    run(work(), Output(debug=False))


# --- demo ----------------------------------------------------------------------------------------------------------------------


@define(eq=False)
class ProgressLine:
    """One line that changes on a terminal, one line a second elsewhere."""

    show: Callable[[str], None]
    every: float
    _shown_at: float = field(default=0.0, init=False)

    def update(self, *, produced: int, received: int, seconds: float, lag: int) -> None:
        """Show the numbers if ``every`` seconds have passed since the last time."""
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
    size: Annotated[int, typer.Option(min=1, max=900_000, help="Smallest size of a value, in bytes.")] = 150,
    debug: Debug = False,
) -> None:
    """See it work on a cluster inside the process.

    Orders are produced to three simulated brokers and consumed live; at the end the command says whether all arrived.
    """
    from .demo import DemoPlan, MockCluster, demonstrate

    if seconds is None and records is None:
        seconds = 3.0
    plan = DemoPlan(records=records, seconds=seconds, rate=_rate(rate), partitions=partitions, size=size)
    show_log(debug)
    output = Output(debug=debug)
    console = Console(highlight=False, soft_wrap=True)

    async def work() -> int:
        with MockCluster() as cluster:
            console.print(f"Simulated cluster of 3 brokers: {cluster.bootstrap}", markup=False)
            if console.is_terminal:
                with Live(console=console, refresh_per_second=10, transient=True) as live:
                    outcome = await demonstrate(plan, cluster, ProgressLine(lambda line: live.update(Text(line)), 0.1))
            else:
                outcome = await demonstrate(plan, cluster, ProgressLine(lambda line: console.print(line, markup=False), 1.0))
        span = max(outcome.seconds, 0.001)
        console.print(
            f"{outcome.received:,} records in {outcome.seconds:.2f} s: {outcome.received / span:,.0f} records/s, "
            f"{outcome.size / span / 1e6:,.1f} MB/s; {outcome.partitions} partitions on {outcome.brokers} brokers"
        )
        console.print(outcome.verdict, markup=False)
        return 0 if outcome.complete else FAILED

    run(work(), output)
