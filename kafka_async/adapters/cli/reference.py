"""The command ``kafka-async options``: what ``config/OPTIONS.md`` has, on a terminal."""

from typing import Annotated

import typer

from ...config.reference import described, listed
from .shell import Output, new_app, run

app = new_app()


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
