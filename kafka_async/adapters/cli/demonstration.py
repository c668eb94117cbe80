"""The command ``kafka-async demo``: what ``demo.py`` does, on a terminal."""

from collections.abc import Callable
from typing import Annotated, Final

import typer
from attrs import define, field
from rich.console import Console
from rich.live import Live
from rich.text import Text

from .demo import DemoPlan, MockCluster, demonstrate, most_backlog
from .launch import FAILED
from .shell import Debug, Output, new_app, run

app = new_app()

BACKLOG: Final = 100_000
"""Records that are there at the start if nobody says otherwise."""


@define(eq=False)
class ProgressLine:
    """One line that changes on a terminal, one line a second elsewhere."""

    show: Callable[[str], None]
    """Shows a line that the next one may replace."""
    say: Callable[[str], None]
    """Shows a line that stays."""
    every: float
    """Seconds."""
    _shown_at: float = field(default=0.0, init=False)

    def caught_up(self, *, records: int, seconds: float) -> None:
        """Show how fast the backlog was read."""
        if records:
            rate = records / max(seconds, 0.001)
            self.say(f"A backlog of {records:,} records, read in {seconds:.2f} s: {rate:,.0f} records/s. Now live:")

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
    backlog: Annotated[
        int | None, typer.Option(min=0, help="Records that are there at the start. Default: 100000, or 0 with --records.")
    ] = None,
    debug: Debug = False,
) -> None:
    """See it work on a cluster inside the process.

    A backlog of orders is read at full speed. Then orders are produced to three simulated brokers and consumed live; at the end the
    command says whether all arrived.
    """
    if backlog is None:
        backlog = min(BACKLOG, most_backlog(partitions, size)) if records is None else 0
    elif backlog > (most := most_backlog(partitions, size)):
        raise typer.BadParameter(f"--backlog {backlog}: the cluster keeps {most} records of this size in {partitions} partitions")
    if seconds is None and records is None:
        seconds = 3.0
    plan = DemoPlan(backlog=backlog, records=records, seconds=seconds, rate=_rate(rate), partitions=partitions, size=size)
    output = Output(debug=debug)
    console = Console(highlight=False, soft_wrap=True)

    async def work() -> int:
        with MockCluster() as cluster:
            console.print(f"Simulated cluster of 3 brokers: {cluster.bootstrap}", markup=False)

            def say(line: str) -> None:
                console.print(line, markup=False)

            if console.is_terminal:
                with Live(console=console, refresh_per_second=10, transient=True) as live:
                    outcome = await demonstrate(plan, cluster, ProgressLine(lambda line: live.update(Text(line)), say, 0.1))
            else:
                outcome = await demonstrate(plan, cluster, ProgressLine(say, say, 1.0))
        span, live_records = max(outcome.seconds, 0.001), outcome.received - outcome.backlog
        console.print(
            f"{live_records:,} records live in {outcome.seconds:.2f} s: {live_records / span:,.0f} records/s, as fast as they were "
            f"produced; {outcome.partitions} partitions on {outcome.brokers} brokers"
        )
        console.print(outcome.verdict, markup=False)
        if outcome.complete:
            console.print(
                "To watch it: 'kafka-async demo --seconds 60', and 'kafka-async top -b' with its brokers in another terminal"
            )
        return 0 if outcome.complete else FAILED

    run(work(), output)
