"""The command ``kafka-async`` (extra ``cli``): where it starts.

Decides: what happens when the extra is missing. Owns nothing. Must never import the extra itself: the message must come before the
import fails. The commands are in ``commands.py``.
"""

import importlib.util
import sys
from typing import Final, NoReturn

USAGE_ERROR: Final = 2
"""Exit code for a command that cannot be run as it was typed, or with what is installed."""


def main() -> None:
    """Run the command line. Raises ``SystemExit``: 0, 1 after an error, 2 for wrong usage or a missing extra, 130 after Ctrl-C."""
    require("cli", "typer", "rich")
    from .commands import app

    app(prog_name="kafka-async")


def require(extra: str, *modules: str) -> None:
    """End the program with one line and exit code 2 where a module of the extra is not installed."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        refuse(f"needs {' and '.join(missing)}: pip install 'kafka-async[{extra}]'")


def refuse(text: str) -> NoReturn:
    """End the program with one line and exit code 2."""
    sys.stderr.write(f"kafka-async: {text}\n")
    raise SystemExit(USAGE_ERROR)
