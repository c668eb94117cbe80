"""The command ``kafka-async run``: a program of one's own in several processes.

What it starts and watches is in ``adapters/workers``.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from ..workers.health import Health
from ..workers.supervisor import Supervisor
from ..workers.team import Policy, Team
from .launch import require
from .shell import Debug, Output, new_app, run

app = new_app()

_SIZE: Final = re.compile(r"(\d+)([KMG]?)(?:i?B)?", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 10, "M": 20, "G": 30}


@app.command()
def run_workers(
    target: Annotated[str, typer.Argument(metavar="MODULE:MAIN", help="An 'async def' function without arguments.")],
    workers: Annotated[int, typer.Option("-w", "--workers", min=1, max=1024, help="How many processes run it.")] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Replace all when a Python file below this directory changes; for development.")
    ] = False,
    max_rss: Annotated[
        str | None, typer.Option("--max-rss", metavar="SIZE", help="Replace a process that uses more memory, such as 512M.")
    ] = None,
    health_port: Annotated[
        int | None,
        typer.Option("--health-port", min=0, max=65535, help="Answer /alive, /ready and /metrics; 0: any port that is free."),
    ] = None,
    health_host: Annotated[
        str, typer.Option("--health-host", help="Address to answer on; 0.0.0.0 for probes from outside.")
    ] = "127.0.0.1",
    stop_timeout: Annotated[
        float, typer.Option("--stop-timeout", min=0.1, metavar="SECONDS", help="How long a process may take to end.")
    ] = Policy().stop_timeout,
    silent_after: Annotated[
        float, typer.Option("--silent-after", min=3, metavar="SECONDS", help="Replace a process that was silent for so long.")
    ] = Policy().silent_after,
    debug: Debug = False,
) -> None:
    """Run a program of yours in several processes.

    A process that fails is started again, after 1 s at first and 30 s at most. One that hangs, or uses more memory than --max-rss,
    is replaced. If the program cannot be imported, or an option is wrong, before any process was assigned partitions, all end.

    SIGTERM and Ctrl-C end all processes together; each may take --stop-timeout, for the records that it is working on and a last
    commit. A second one kills them, if it comes a second later or more. SIGHUP replaces them one after the other, the next one when
    the one before has been assigned partitions. Processes find their number, from 1, in KAFKA_ASYNC_WORKER, and how many there are
    in KAFKA_ASYNC_WORKERS.
    """
    if reload:
        require("reload", "watchfiles")
    policy = Policy(stop_timeout=stop_timeout, silent_after=silent_after, max_rss=_size(max_rss), waits_for_changes=reload)
    output = Output(debug=debug)

    def tell(text: str) -> None:
        output.notify(f"kafka-async: {text}")

    async def work() -> int:
        team = Team.of(workers, policy)
        async with AsyncExitStack() as stack:
            if health_port is not None:
                health = Health(team, asyncio.get_running_loop().time)
                port = await stack.enter_async_context(health.server.listening(health_host, health_port))
                tell(f"http://{f'[{health_host}]' if ':' in health_host else health_host}:{port}/ready")
            return await Supervisor(target, team, tell, _changes() if reload else None).run()

    run(work(), output)


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise typer.BadParameter(f"--max-rss: expected a size such as 512M or 2G, got {text!r}")
    return int(match[1]) << _POWERS[match[2].upper()]


async def _changes() -> AsyncIterator[object]:
    from watchfiles import PythonFilter, awatch

    async for change in awatch(Path.cwd(), watch_filter=PythonFilter()):
        yield change
