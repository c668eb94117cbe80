"""What must be right before a command runs: the extra is installed, the arguments are text, and standard output is open
and takes every character.

The extra is not imported at the top: the message must come before the import fails.
"""

import importlib.util
import io
import os
import sys
import warnings
from typing import Final, NoReturn, TextIO

FAILED: Final = 1
"""Exit code for an error."""
USAGE_ERROR: Final = 2
"""Exit code for wrong usage, or for an extra that is not installed."""


def launch() -> None:
    """Run the command of the arguments. Raises ``SystemExit``."""
    try:
        prepare_streams()
        show_warnings()
        require("cli", "typer", "rich")
        from .commands import app

        app(typed(), prog_name="kafka-async")
    except ImportError as error:  # of options that need an extra: they are read before the command runs
        if error.name is not None:  # Python's own, about a module, rather than ours, which says what to install
            raise
        refuse(str(error))
    except OSError as error:  # of the help or the version: commands report their own
        drop_unwritten()
        refuse(str(error), FAILED)


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


def typed() -> list[str]:
    """Return the arguments as text. Bytes that the locale's encoding cannot read are taken as UTF-8: with ``PYTHONUTF8=0 LC_ALL=C``
    that is every name beyond ASCII.

    Ends the program if one of them is neither. It is not shown, because it may be a secret.
    """
    return [_as_text(number, argument) for number, argument in enumerate(sys.argv[1:], 1)]


def _as_text(number: int, argument: str) -> str:
    try:
        argument.encode()  # bytes that the locale cannot read are surrogates, which no text has
    except UnicodeEncodeError:
        try:
            return os.fsencode(argument).decode()
        except UnicodeDecodeError:
            encoding = sys.getfilesystemencoding()
            known = "UTF-8" if encoding == "utf-8" else f"the locale's encoding ({encoding}) or in UTF-8"
            refuse(f"argument {number} is not text in {known}; -f and -D take bytes as \\xNN")
    return argument


def on_disk(name: str) -> str:
    """Return the name of a file that was typed in the form in which it can be opened, if it was not in the locale's encoding."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return os.fsdecode(name.encode())
    return name


def require(extra: str, *modules: str) -> None:
    """End the program with one line and exit code 2 if a module of the extra is not installed."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        refuse(f"needs {' and '.join(missing)}, which the extra {extra!r} brings: pip install '/path/to/clone[{extra}]'")


def show_warnings() -> None:
    """Have each of Python's warnings appear once, as one line: the line of code that it came from means nothing to people."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if (text := f"kafka-async: {message}\n") not in shown:
            shown.add(text)
            to_stderr(text)

    warnings.showwarning = show


def to_stderr(line: str) -> None:
    """Write a line to standard error. Its end must not be taken for that of standard output, which ends a command with 0."""
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except OSError:
        drop_unwritten(sys.stderr)


def drop_unwritten(stream: TextIO | None = None) -> None:
    """Discard output that cannot be written: Python would try again at exit, and complain. Default: of standard output."""
    stream = stream or sys.stdout
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def refuse(text: str, code: int = USAGE_ERROR) -> NoReturn:
    """End the program with one line and an exit code."""
    sys.stderr.write(f"kafka-async: {text}\n")
    raise SystemExit(code)
