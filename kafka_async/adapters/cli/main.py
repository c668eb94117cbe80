"""Where ``kafka-async`` starts.

Decides: what happens before a command runs, if an extra is missing, standard output is closed or full, or Ctrl-C comes during the
imports. Owns the handler of SIGINT until a command has an event loop, which then brings its own. Must never import the extra at the
top: the message must come before the import fails. The commands are in ``commands.py``.
"""

import importlib.util
import io
import os
import signal
import sys
from types import FrameType
from typing import Final, NoReturn

FAILED: Final = 1
"""Exit code for an error."""
USAGE_ERROR: Final = 2
"""Exit code for a command that cannot be run as it was typed, or with what is installed."""
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells have it."""


def main() -> None:
    """Run the command line. Raises ``SystemExit``: 0, 1 after an error, 2 for wrong usage or a missing extra, 130 after Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job of a shell ignores Ctrl-C, and so do we
        signal.signal(signal.SIGINT, _end_at_once)
    try:
        prepare_streams()
        require("cli", "typer", "rich")
        from .commands import app

        app(prog_name="kafka-async")
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:  # of the help or the version: commands report their own
        drop_unwritten()
        refuse(str(error), FAILED)
    finally:
        let_interrupts_raise()


def _end_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the process. An exception in the middle of an import can be swallowed, or leave a lock that another import waits for."""
    os._exit(INTERRUPTED)


def let_interrupts_raise() -> None:
    """Have Ctrl-C raise ``KeyboardInterrupt`` again, which an event loop needs to bring its own handler."""
    if signal.getsignal(signal.SIGINT) is _end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def prepare_streams() -> None:
    """Make sure that there is a standard output, and that it takes every character.

    Without one the program ends: its file descriptor would go to the first connection. A name that the locale's encoding cannot
    write appears with escapes.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # stays open until the program ends
    if sys.stdout is None:
        refuse("standard output is closed", FAILED)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def require(extra: str, *modules: str) -> None:
    """End the program with one line and exit code 2 if a module of the extra is not installed."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        refuse(f"needs {' and '.join(missing)}, which the extra {extra!r} brings: pip install '.[{extra}]' from a clone")


def drop_unwritten() -> None:
    """Discard output that cannot be written: Python would try again at exit, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def refuse(text: str, code: int = USAGE_ERROR) -> NoReturn:
    """End the program with one line and an exit code."""
    sys.stderr.write(f"kafka-async: {text}\n")
    raise SystemExit(code)
