"""The command ``kafka-async monitor``: what ``top`` shows as a page, and as numbers for programs.

What it serves is in ``adapters/web``.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from ...config import ConsumerConfig
from ..admin import Admin, Client
from ..monitor import Book, Survey
from ..web import Guard, Site, WebServer
from .consumer_options import Brokers, CommandConfig, Settings, admin_options
from .launch import on_disk
from .shell import Debug, Output, new_app, run
from .top import AllowedLag, Names, Topic

app = new_app()

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@app.command()
def monitor(
    brokers: Brokers = None,
    config: CommandConfig = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; by default only this machine gets in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 8080,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Ask for the token in this file, as Bearer or as a password."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Another name of this server, such as monitor:8080; can be repeated."),
    ] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="Metrics of each partition, too; there may be many.")] = False,
    groups: Names = None,
    topic: Topic = None,
    interval: Annotated[float, typer.Option("-i", "--interval", min=0.5, max=3600, help="Seconds between two polls.")] = 15.0,
    allowed_lag: AllowedLag = 0,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Serve how far groups are behind, as a page and as numbers.

    / is the page, /api/v1/groups, /api/v1/groups/NAME and /api/v1/cluster are JSON, /metrics is for Prometheus, /keda/groups/NAME
    for KEDA's scaler metrics-api (valueLocation: lag), /events has an event for each poll, /alive and /ready are for supervisors.

    It reads only, and listens on this machine only unless --host says otherwise.
    """
    options = admin_options(brokers, config, settings)
    token = _token(token_file)
    output = Output(debug=debug)
    book = Book(interval, allowed_lag, topic)

    async def work() -> int:
        async with Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client:
            survey = Survey(Admin(client), book, tuple(dict.fromkeys(groups or ())))
            guard = Guard.of(host, port, allow_host or (), token)
            server = WebServer(Site(interval, partitions), guard, client.clock)
            async with server.listening(host, port) as chosen:
                server.guard = Guard.of(host, chosen, allow_host or (), token)
                output.notify(f"kafka-async: http://{f'[{host}]' if ':' in host else host}:{chosen}/")
                if host not in LOOPBACK and token is None:
                    output.notify("kafka-async: other machines can read this; --token-file keeps strangers out")
                async for snapshot in survey.snapshots():
                    server.show(snapshot)
        raise AssertionError("polls go on for ever")

    run(work(), output)


def _token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        token = Path(on_disk(str(path))).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "not a text file in UTF-8"
        raise typer.BadParameter(f"--token-file: cannot read the file: {why}") from None
    if not token:
        raise typer.BadParameter("--token-file: the file is empty")
    return token
