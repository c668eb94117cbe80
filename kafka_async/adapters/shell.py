"""What the commands of ``kafka-async`` share: their output, their exit codes, their common options.

Decides: which exit code an outcome has, and how ``-X option=value`` becomes an option of a consumer. Owns the process's standard
output while a command runs. Must never show a traceback that was not asked for with ``--debug``: an error is one line on stderr,
and what brokers and other clients say reaches the terminal without control codes.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, TypeAlias

import typer
from attrs import fields_dict, frozen

from ..config import ConsumerConfig
from ..errors import ConsumerStoppedError, IllegalOperation, KafkaError
from ..model import IsolationLevel
from .tables import printable

FAILED: Final = 1
INTERRUPTED: Final = 130
"""128 + SIGINT, as shells have it."""
TERMINATED: Final = 143
"""128 + SIGTERM."""

Brokers: TypeAlias = Annotated[str, typer.Option("-b", "--bootstrap", metavar="HOST:PORT[,...]", help="Brokers to ask first.")]
Settings: TypeAlias = Annotated[
    list[str] | None, typer.Option("-X", "--set", metavar="OPTION=VALUE", help="Any option of the consumer; can be repeated.")
]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the log, and tracebacks.")]


@frozen(kw_only=True)
class Output:
    """Where a command writes. Values go to ``sys.stdout.buffer`` as they are."""

    debug: bool
    quiet: bool = False

    def tell(self, text: str) -> None:
        """Write a line for the person at the terminal, beside the data."""
        if not self.quiet:
            sys.stderr.write(f"{printable(text)}\n")

    def fail(self, error: BaseException) -> "typer.Exit":
        """Write what went wrong as one line, and return what ends the program."""
        if self.debug:
            logging.getLogger("kafka_async").error("traceback follows", exc_info=error)
        sys.stderr.write(f"kafka-async: {printable(' '.join(str(error).split())) or type(error).__name__}\n")
        return typer.Exit(FAILED)


def show_log(debug: bool) -> None:
    """Show the package's log only when it was asked for; by default the last error says what went wrong."""
    logger = logging.getLogger("kafka_async")
    logger.propagate = False
    handler = logging.StreamHandler() if debug else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)


def run(work: Coroutine[Any, Any, int], output: Output) -> None:
    """Run ``work`` and end the program with the exit code that it returns, or with that of what it raises."""
    try:
        code = asyncio.run(_until_terminated(work))
        sys.stdout.flush()
    except KeyboardInterrupt:  # asyncio.run has cancelled the work and waited until the consumer was stopped
        code = INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone: nothing to complain about, but nothing to flush at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (KafkaError, ConsumerStoppedError, IllegalOperation, OSError, ValueError, TypeError) as error:
        raise output.fail(error) from None
    raise typer.Exit(code)


async def _until_terminated(work: Coroutine[Any, Any, int]) -> int:
    """Have SIGTERM, by which supervisors stop a program, cancel ``work`` as Ctrl-C does: a member commits and leaves its group."""
    task = asyncio.ensure_future(work)
    with suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel, TERMINATED)
    try:
        return await task
    except asyncio.CancelledError as cancelled:
        if cancelled.args != (TERMINATED,):
            raise
        return TERMINATED


def natural(text: str) -> int:
    """Return a number written in ASCII digits. Raises ``ValueError``."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(text)
    return int(text)


def consumer_options(settings: Sequence[str]) -> dict[str, Any]:
    """Return ``option=value`` settings as options of a consumer, each value as its option's type.

    Dots and underscores are the same. Raises ``typer.BadParameter`` for what is unknown, has no value or takes a Python object.
    """
    known = fields_dict(ConsumerConfig)
    options: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip().replace(".", "_")
        if not equals:
            raise typer.BadParameter(f"{setting!r}: expected option=value")
        options[name] = _converted(name, known[name].type, value.strip()) if name in known else value
    try:
        ConsumerConfig.from_options(options)
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None
    return options


def _converted(name: str, kind: Any, value: str) -> Any:
    if kind is bool:
        flags = {"true": True, "false": False}
        if value.lower() not in flags:
            raise typer.BadParameter(f"{name}={value!r}: expected true or false")
        return flags[value.lower()]
    if kind is int:
        try:
            return int(value)
        except ValueError:
            raise typer.BadParameter(f"{name}={value!r}: expected an integer") from None
    if kind is IsolationLevel or kind in (str, str | None) or name == "bootstrap_servers":
        return value
    if name == "partition_assignment_strategy":
        return tuple(part.strip() for part in value.split(","))
    raise typer.BadParameter(f"{name} takes a Python object and cannot be set here")
