"""Which commands ``kafka-async`` has, and the module of each, which is imported when its command runs.

The sequence that costs a third of a second of CPU otherwise: ``--version`` imports the consumer, share groups and all that asks
brokers about groups, since the commands that need them stand beside it.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ...config.spelling import nearest

MODULES: Final[Mapping[str, str]] = {
    "consume": "consume",
    "export": "export",
    "options": "reference",
    "demo": "demonstration",
    "topics": "topics",
    "groups": "groups",
    "offsets": "offsets",
    "deadletters": "deadletters",
    "share": "share",
    "top": "top",
    "monitor": "monitor",
    "run": "workers",
}
"""A command, or a group of commands -> the module here whose ``app`` it is."""


class _Commands(TyperGroup):
    """Finds a command in its module."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(MODULES)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        completing = ctx.resilient_parsing  # a shell asks what might come next, and an error would end in its line
        if args and args[0] not in MODULES and not completing and (near := nearest(args[0], MODULES)) is not None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near!r}?")  # as Typer says it of commands that it has imported
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in MODULES:
            return None
        found = get_command(import_module(f".{MODULES[cmd_name]}", __package__).app)
        found.name = cmd_name
        return found


app = typer.Typer(cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def _show_version(asked: bool) -> None:
    if asked:
        import platform

        from ... import __version__
        from ...records import IMPLEMENTATION

        typer.echo(f"kafka-async {__version__} (Python {platform.python_version()}, {IMPLEMENTATION} decoder)")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read Apache Kafka from the command line."""
