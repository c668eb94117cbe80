"""The command ``kafka-async demo``: what ``demo.py`` does, on a terminal."""

from collections.abc import Callable
from typing import Annotated

import typer
from attrs import define, field
from rich.console import Console
from rich.live import Live
from rich.text import Text

from .demo import DemoPlan, MockCluster, demonstrate
from .launch import FAILED
from .shell import Debug, Output, new_app, run, show_log

app = new_app()


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
