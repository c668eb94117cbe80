"""What the commands of ``kafka-async`` share: their output, their exit codes, how they end.

An error is one line on stderr, and texts of brokers and other clients reach the terminal without control codes. Standard output is
written on a thread: a pipe without a reader would hold up the consumer and the signals that are to end it.
"""

import asyncio
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final, NoReturn, TypeAlias, TypeVar

import typer
from attrs import define, field
from typer.core import TyperCommand, TyperOption

from ...errors import BrokerResponseError, ConsumerStoppedError, IllegalOperation, KafkaError
from ..running import Terminated, until_terminated
from .formats import Record, Writer, formatter, json_line, unescape
from .launch import FAILED, USAGE_ERROR, drop_unwritten, to_stderr
from .main import INTERRUPTED, let_interrupts_raise
from .tables import printable

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

PATIENCE: Final = 0.5
"""Seconds that a write, or a look-up, has to end in once the command is to end."""
ENDED: Final = ("recovered: ", "no longer needed: ")
"""How lines of the log about the end of an outage begin, after the client's name."""


def show_log(debug: bool) -> bool:
    """Show the package's log only with ``--debug``; by default the last error is enough. Returns ``debug``."""
    logger = logging.getLogger("kafka_async")
    logger.propagate = False
    handler = logging.StreamHandler() if debug else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    return debug


# Eager: what reading the other options logs is shown too.
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", callback=show_log, is_eager=True, help="Show the log, and tracebacks.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("-J", "--json", help="Write one JSON object per line instead of a table.")]
Count: TypeAlias = Annotated[int | None, typer.Option("-c", "--count", metavar="N", min=1, help="Exit after this many records.")]
PartitionIds: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("-p", "--partition", metavar="N[,...]", help="Partition to read, or several; can be repeated. Default: all."),
]
Layout: TypeAlias = Annotated[
    str | None, typer.Option("-f", "--format", metavar="FORMAT", help="What to write for a record, with the codes below.")
]
JsonRecords: TypeAlias = Annotated[bool, typer.Option("-J", "--json", help="Write one JSON object per line.")]
KeyDelimiter: TypeAlias = Annotated[
    str | None, typer.Option("-K", "--key-delimiter", metavar="TEXT", help="Write keys too, followed by this.")
]
Delimiter: TypeAlias = Annotated[
    str, typer.Option("-D", "--delimiter", metavar="TEXT", help="What to write after each record (not with -f).")
]
Deserializers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--deserialize",
        metavar="[PART=]FORMAT",
        help="Read keys and values that have a schema, and write them as JSON: avro, protobuf or json; value=avro for values only. "
        "Can be repeated.",
    ),
]
RegistryUrl: TypeAlias = Annotated[str | None, typer.Option("-r", "--registry", metavar="URL", help="The schema registry for -s.")]
RegistryOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--registry-option",
        metavar="NAME=VALUE",
        help="An option of the registry's client, such as basic.auth.user.info=@FILE or ssl.ca.location=FILE; can be repeated.",
    ),
]
NullAsText: TypeAlias = Annotated[bool, typer.Option("-Z", "--null", help="Write a null key or value as NULL.")]


class Command(TyperCommand):
    """A command that refuses an option that is given twice but has one value: the parser would take the last without a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option, times in Counter(self.make_parser(ctx).parse_args(args=list(args))[2]).items():
            if times > 1 and isinstance(option, TyperOption) and not (option.multiple or option.is_flag):
                raise typer.BadParameter(f"{option.opts[0]} is given {times} times; it has one value")
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _in_our_words(error.message)
            raise


_EXPECTED: Final = (
    (r"Input should be a valid integer\b.*", "expected a whole number"),
    (r"Input should be a valid number\b.*", "expected a number"),
    (r"Input should be greater than or equal to (\S+)", r"expected \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"expected \1 or less"),
)
"""What newer releases of Typer say of a number, and how everything else here says it."""


def _in_our_words(text: str) -> str:
    for theirs, ours in _EXPECTED:
        text = re.sub(theirs, ours, text)
    return text


class App(typer.Typer):
    """What commands are added to."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        return super().command(name, cls=Command, **options)


def new_app(about: str | None = None) -> App:
    """Return what commands are added to. ``about``: the help on a group of commands; ``None``: there is one command."""
    return App(
        add_completion=False, no_args_is_help=about is not None, pretty_exceptions_enable=False, rich_markup_mode=None, help=about
    )


class OutageLines(logging.Handler):
    """Shows the log's warnings, and the ends of outages, as lines for the person at the terminal."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._notify = notify

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or any(beginning in record.getMessage() for beginning in ENDED):
            self._notify(f"% {record.getMessage()}")


@define(eq=False, kw_only=True)
class Output:
    """Where a command writes. Values go to ``sys.stdout.buffer`` as they are."""

    debug: bool
    quiet: bool = False
    spelled: Callable[[str], str] = str
    """Makes a text about Python's arguments one about options of the command."""
    failed: int = FAILED
    """The exit code for an error. A check has one of its own: the usual one is a warning to what runs checks."""
    busy: bool = field(default=False, init=False)
    """Work on the thread has begun and is not over."""
    _outages: "OutageLines | None" = field(default=None, init=False)
    _thread: ThreadPoolExecutor = field(factory=lambda: ThreadPoolExecutor(1, "kafka_async output"), init=False)

    def show_outages(self) -> None:
        """From now on, tell of outages: whoever follows a topic would take one for silence."""
        if not self.debug and not self.quiet:
            logger = logging.getLogger("kafka_async")
            logger.setLevel(logging.INFO)
            self._outages = OutageLines(self.notify)
            logger.addHandler(self._outages)

    async def write(self, data: bytes) -> None:
        """Write ``data`` and flush it, as ``do`` does things: what was written counts as written. Raises what writing raises."""
        if data:
            await self.do(_write, data)

    async def show(self, data: bytes) -> None:
        """Write ``data``, after which the command ends with a code of its own: that one stands even if nobody reads this."""
        try:
            await self.write(data)
        except BrokenPipeError:
            drop_unwritten()

    async def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return what ``work`` returns, which may wait for readers and networks. It is done on the thread that writes.

        Cancelled, it returns if the work ends within a moment, and the caller's next ``await`` is cancelled instead. Otherwise the
        work goes on without us, and ``end`` does not wait for it.
        """
        working = asyncio.get_running_loop().run_in_executor(self._thread, self._busy_with, work, arguments)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError as cancelled:
            await asyncio.wait((working,), timeout=PATIENCE)
            task = asyncio.current_task()
            if not working.done() or task is None:
                raise
            result = working.result()
            task.cancel(*cancelled.args)
            return result

    async def write_records(self, records: Sequence[Record], write: Writer, *, waits: bool) -> None:
        """Write records. If one of them cannot be, those before it are, and the error is raised.

        ``waits``: ``write`` may wait for others. It is then called on the thread that writes, and given up as a write is.
        """
        if waits:
            loop = asyncio.get_running_loop()
            data, error = await loop.run_in_executor(self._thread, self._busy_with, _joined, (records, write))
        else:
            data, error = _joined(records, write)
        await self.write(data)
        if error is not None:
            raise error

    def _busy_with(self, work: Callable[..., T], arguments: Sequence[Any]) -> T:
        self.busy = True
        try:
            return work(*arguments)
        finally:
            self.busy = False

    def notify(self, text: str) -> None:
        """Write a line for the person at the terminal, to standard error. If nobody reads it, the records go on."""
        if not self.quiet:
            to_stderr(f"{printable(self.spelled(text))}\n")

    def fail(self, error: BaseException) -> "typer.Exit":
        """Write what went wrong as one line, and return what ends the program."""
        if self.debug:
            logging.getLogger("kafka_async").error("traceback follows", exc_info=error)
        to_stderr(f"kafka-async: {printable(self.spelled(in_words(error)))}\n")
        return self.end(USAGE_ERROR if isinstance(error, ImportError) else self.failed)  # an extra that an option needs is missing

    def end(self, code: int) -> "typer.Exit":
        """Return what ends the program. Ends it at once if work on the thread is stuck, for which Python would wait."""
        if self._outages is not None:
            logging.getLogger("kafka_async").removeHandler(self._outages)
        if self.busy:
            os._exit(code)
        self._thread.shutdown()
        return typer.Exit(code)


def encoded(text: str) -> bytes:
    """Return text for people as ``Output.write`` takes it, in the encoding of the terminal."""
    return text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")


def in_words(error: BaseException) -> str:
    """Return what went wrong as one line, without Kafka's code."""
    text = " ".join(map(str, error.args)) if isinstance(error, BrokerResponseError) else str(error)
    return " ".join(text.split()) or type(error).__name__


def _write(data: bytes) -> None:
    left = memoryview(data)
    while left:  # a signal that comes while a pipe is full makes it less than all
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()


def _joined(records: Sequence[Record], write: Writer) -> tuple[bytes, ValueError | None]:
    """Return records as they are written, up to the first that cannot be, and why it cannot."""
    parts: list[bytes] = []
    try:
        for record in records:
            parts.append(write(record))  # noqa: PERF401 - what is there when one raises is wanted
    except ValueError as error:
        return b"".join(parts), error
    return b"".join(parts), None


def run(work: Coroutine[Any, Any, int | str | bytes], output: Output) -> NoReturn:
    """Run ``work`` and end the program.

    ``work`` returns an exit code, or what to write: text for people, or bytes, which no locale changes. What it raises decides the
    exit code too.
    """
    try:
        let_interrupts_raise()
        outcome = asyncio.run(until_terminated(work, hangup=True))
        if isinstance(outcome, str):
            sys.stdout.write(outcome)
        elif isinstance(outcome, bytes):
            sys.stdout.buffer.write(outcome)
        code = outcome if isinstance(outcome, int) else 0
        if not output.busy:
            sys.stdout.flush()
    except KeyboardInterrupt:  # asyncio.run has cancelled the work and waited until the consumer was stopped
        code = INTERRUPTED
    except Terminated as ended:
        code = ended.code
    except BrokenPipeError:  # the reader of our output has gone: nothing to complain about
        drop_unwritten()
        code = 0
    # ImportError: an extra that an option needs is missing, and the text says which
    except (KafkaError, ConsumerStoppedError, IllegalOperation, ImportError, OSError, ValueError, TypeError) as error:
        if isinstance(error, OSError):
            drop_unwritten()
        raise output.fail(error) from None
    raise output.end(code)


def start(work: Callable[[], Coroutine[Any, Any, str | bytes]], debug: bool) -> None:
    """Run the work of a command that shows something, and write what it returns."""
    run(work(), Output(debug=debug))


def natural(text: str) -> int:
    """Return a number written in ASCII digits. Raises ``ValueError``."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(text)
    return int(text)


def partition_ids(texts: Sequence[str] | None) -> list[int]:
    """Return the partitions of ``-p``, each once. Raises ``typer.BadParameter``."""
    try:
        return list(dict.fromkeys(natural(each.strip()) for text in texts or () for each in text.split(",")))
    except ValueError as error:
        raise typer.BadParameter(f"-p {str(error)!r}: expected a partition such as 0, or several as in 0,1") from None


def layout(text: str | None, as_json: bool, key_delimiter: str | None, delimiter: str, null: bytes) -> tuple[Writer, bytes]:
    """Return what writes a record, and what comes after it. An empty ``text`` writes nothing, ``None`` is none."""
    given = [name for name, value in (("-f", text is not None), ("-J", as_json), ("-K", key_delimiter is not None)) if value]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} do not go together")
    try:
        end = unescape(delimiter)
        if text is not None:
            return formatter(text, null=null), b""
        if as_json:
            return json_line, b"\n"
        if key_delimiter is None:
            return formatter("%s", null=null), end
        return formatter("%k" + key_delimiter.replace("%", "%%") + "%s", null=null), end
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
