"""The commands of ``kafka-async``: ``demo`` and ``consume``.

Decides: which options there are, what they mean for the consumer, and which exit code a command has. Owns the process's standard
output while it runs. Must never show a traceback that was not asked for with ``--debug``: an error is one line on stderr.

``consume`` is for whoever knows kcat: options and format tokens are kcat's where it has them.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Final

import typer
from attrs import define, field, fields_dict, frozen
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..application.consumer import KafkaConsumer
from ..config import ConsumerConfig
from ..errors import ConsumerStoppedError, IllegalOperation, KafkaError, UnknownTopicOrPartitionError
from ..model import IsolationLevel, TopicPartition
from .cli import require
from .formats import Writer, formatter, json_line, unescape

FAILED: Final = 1
INTERRUPTED: Final = 130
"""128 + SIGINT, as shells have it."""
BATCH: Final = 1_000
"""Records per read and write."""

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback()
def _about() -> None:
    """Read Apache Kafka from the command line."""


@frozen(kw_only=True)
class Output:
    """Where a command writes. Values go to ``sys.stdout.buffer`` as they are."""

    debug: bool
    quiet: bool = False

    def tell(self, text: str) -> None:
        """Write a line for the person at the terminal, beside the data."""
        if not self.quiet:
            sys.stderr.write(f"{text}\n")

    def fail(self, error: BaseException) -> "typer.Exit":
        """Write what went wrong as one line, and return what ends the program."""
        if self.debug:
            logging.getLogger("kafka_async").error("traceback follows", exc_info=error)
        sys.stderr.write(f"kafka-async: {' '.join(str(error).split()) or type(error).__name__}\n")
        return typer.Exit(FAILED)


def _logs(debug: bool) -> None:
    """Show the package's log only when it was asked for; by default the last error says what went wrong."""
    logger = logging.getLogger("kafka_async")
    logger.propagate = False
    handler = logging.StreamHandler() if debug else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)


def _run(work: Coroutine[Any, Any, int], output: Output) -> None:
    """Run ``work`` and end the program with the exit code that it returns, or with that of what it raises."""
    try:
        code = asyncio.run(work)
    except KeyboardInterrupt:  # asyncio.run has cancelled the work and waited until the consumer was stopped
        code = INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone: nothing to complain about, but nothing to flush at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (KafkaError, ConsumerStoppedError, IllegalOperation, OSError, ValueError, TypeError) as error:
        raise output.fail(error) from None
    raise typer.Exit(code)


# --- consume -------------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Start:
    """Where reading begins: the parsed ``--offset``."""

    kind: str
    """``beginning``, ``end``, ``offset``, ``tail`` (the last ``number`` records of each partition) or ``time`` (milliseconds)."""
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> "Start":
        """Return what ``text`` says. Raises ``typer.BadParameter``."""
        try:
            if text in ("beginning", "end"):
                return cls(kind=text)
            if text.startswith("s@"):
                return cls(kind="time", number=_natural(text[2:]))
            if text.startswith("-"):
                return cls(kind="tail", number=_natural(text[1:]))
            return cls(kind="offset", number=_natural(text))
        except ValueError:
            raise typer.BadParameter(
                f"{text!r}: expected 'beginning', 'end', an offset, -N for the last N records, or s@MILLISECONDS"
            ) from None

    async def seek(self, consumer: KafkaConsumer[Any, Any]) -> None:
        """Set the position of every assigned partition."""
        match self.kind:
            case "beginning":
                await consumer.seek_to_beginning()
            case "end":
                await consumer.seek_to_end()
            case "time":
                await consumer.seek_to_timestamp(self.number)
            case "tail":
                ends = await consumer.end_offsets(consumer.assignment())
                begins = await consumer.beginning_offsets(consumer.assignment())
                for partition, end in ends.items():
                    consumer.seek(partition, max(begins.get(partition, 0), end - self.number))
            case _:
                for partition in consumer.assignment():
                    consumer.seek(partition, self.number)


def _natural(text: str) -> int:
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


@frozen(kw_only=True)
class Reading:
    """What ``consume`` was asked to do."""

    topic: str
    partitions: tuple[int, ...]
    start: Start
    count: int | None
    exit_at_end: bool
    write: Writer
    delimiter: bytes
    options: dict[str, Any]

    async def run(self, output: Output) -> int:
        """Read and write until the end that was asked for. Return the exit code."""
        consumer: KafkaConsumer[Any, Any] = KafkaConsumer(**self.options)
        async with consumer:
            consumer.assign(await self._find(consumer))
            await self.start.seek(consumer)
            ends = await consumer.end_offsets(consumer.assignment()) if self.exit_at_end else None
            await self._copy(consumer, ends, output)
        return 0

    async def _find(self, consumer: KafkaConsumer[Any, Any]) -> list[TopicPartition]:
        cluster = await consumer.describe_topics(self.topic)
        if self.topic not in cluster.topics:
            raise UnknownTopicOrPartitionError(f"topic {self.topic!r} does not exist")
        found = sorted(part.partition for part in cluster.topics[self.topic].partitions)
        unknown = sorted(set(self.partitions) - set(found))
        if unknown:
            raise UnknownTopicOrPartitionError(
                f"topic {self.topic!r} has no partition {', '.join(map(str, unknown))}; it has {len(found)}, from 0 on"
            )
        return [TopicPartition(self.topic, number) for number in self.partitions or found]

    async def _copy(self, consumer: KafkaConsumer[Any, Any], ends: dict[TopicPartition, int] | None, output: Output) -> None:
        stdout = sys.stdout.buffer
        left = self.count
        while left != 0:
            if ends is not None:
                await _drop_finished(consumer, ends, output)
                if not ends:
                    return
            limit = BATCH if left is None else min(BATCH, left)
            batch = await consumer.getmany(timeout_ms=200 if ends else 3_600_000, max_records=limit)
            records = [record for part in batch.values() for record in part]
            stdout.write(b"".join([self.write(record) + self.delimiter for record in records]))
            stdout.flush()
            left = None if left is None else left - len(records)


async def _drop_finished(consumer: KafkaConsumer[Any, Any], ends: dict[TopicPartition, int], output: Output) -> None:
    """Take the partitions out of ``ends`` that have been read up to where they ended when reading began."""
    for partition, end in tuple(ends.items()):
        position = await consumer.position(partition)
        if position >= end:
            del ends[partition]
            output.tell(f"% Reached end of topic {partition.topic} [{partition.partition}] at offset {position}")


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    brokers: Annotated[
        str, typer.Option("-b", "--bootstrap", metavar="HOST:PORT[,...]", help="Brokers to ask first.")
    ] = "localhost:9092",
    partitions: Annotated[
        list[int] | None, typer.Option("-p", "--partition", min=0, help="Partition to read; can be repeated. Default: all.")
    ] = None,
    offset: Annotated[
        str, typer.Option("-o", "--offset", help="Where to begin: beginning, end, an offset, -N (the last N), s@MILLISECONDS.")
    ] = "beginning",
    count: Annotated[int | None, typer.Option("-c", "--count", min=1, help="Exit after this many records.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("-e", "--exit-eof", help="Exit when everything that was there at the start has been read.")
    ] = False,
    text: Annotated[
        str, typer.Option("-f", "--format", help=r"What to write for a record: %t %p %o %k %K %s %S %R %T %h %% \n \t \xNN.")
    ] = "",
    as_json: Annotated[bool, typer.Option("-J", "--json", help="Write one JSON object per line.")] = False,
    key_delimiter: Annotated[str | None, typer.Option("-K", "--key-delimiter", help="Write keys too, followed by this.")] = None,
    delimiter: Annotated[str, typer.Option("-D", "--delimiter", help="What to write after each record (not with -f).")] = r"\n",
    null: Annotated[bool, typer.Option("-Z", "--null", help="Write a null key or value as NULL.")] = False,
    isolation: Annotated[
        str | None, typer.Option("--isolation-level", help="read_uncommitted (default) or read_committed.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("-X", "--set", metavar="OPTION=VALUE", help="Any option of the consumer; can be repeated.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Write nothing but records and errors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the log, and tracebacks.")] = False,
) -> None:
    """Read a topic and write its records, as kcat does."""
    chosen = [f"bootstrap_servers={brokers}", "auto_offset_reset=earliest", "allow_auto_create_topics=false"]
    chosen += [f"isolation_level={isolation}"] if isolation is not None else []
    write, end = _layout(text, as_json, key_delimiter, delimiter, b"NULL" if null else b"")
    reading = Reading(
        topic=topic,
        partitions=tuple(dict.fromkeys(partitions or ())),
        start=Start.parse(offset),
        count=count,
        exit_at_end=exit_at_end,
        write=write,
        delimiter=end,
        options=consumer_options([*chosen, *(settings or ())]),
    )
    _logs(debug)
    output = Output(debug=debug, quiet=quiet)
    _run(reading.run(output), output)


def _layout(text: str, as_json: bool, key_delimiter: str | None, delimiter: str, null: bytes) -> tuple[Writer, bytes]:
    """Return what writes a record, and what comes after it."""
    given = [name for name, value in (("-f", text), ("-J", as_json), ("-K", key_delimiter)) if value]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} do not go together")
    try:
        end = unescape(delimiter)
        if text:
            return formatter(text, null=null), b""
        if as_json:
            return json_line, b"\n"
        if key_delimiter is None:
            return formatter("%s", null=null), end
        return formatter("%k" + key_delimiter.replace("%", "%%") + "%s", null=null), end
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


# --- demo ----------------------------------------------------------------------------------------------------------------------


@define(eq=False)
class Progress:
    """One line that changes on a terminal, one line a second elsewhere."""

    show: Callable[[str], None]
    every: float
    _shown_at: float = field(default=0.0, init=False)

    def update(self, *, produced: int, received: int, seconds: float, lag: int) -> None:
        """Show the numbers where ``every`` seconds have passed since the last time."""
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
    size: Annotated[int, typer.Option(min=1, max=900_000, help="Bytes of a value, at least.")] = 150,
    debug: Annotated[bool, typer.Option("--debug", help="Show the log, and tracebacks.")] = False,
) -> None:
    """Start a mock cluster of three brokers, produce orders into it, consume them live, and check that all arrived."""
    require("demo", "confluent_kafka")
    from .demo import MockCluster, Plan, demonstrate  # needs an extra of its own

    if seconds is None and records is None:
        seconds = 3.0
    plan = Plan(records=records, seconds=seconds, rate=_rate(rate), partitions=partitions, size=size)
    _logs(debug)
    output = Output(debug=debug)
    console = Console(highlight=False, soft_wrap=True)

    async def work() -> int:
        with MockCluster() as cluster:
            console.print(f"Mock cluster of 3 brokers: {cluster.bootstrap}", markup=False)
            if console.is_terminal:
                with Live(console=console, refresh_per_second=10, transient=True) as live:
                    outcome = await demonstrate(plan, cluster, Progress(lambda line: live.update(Text(line)), 0.1))
            else:
                outcome = await demonstrate(plan, cluster, Progress(lambda line: console.print(line, markup=False), 1.0))
        span = max(outcome.seconds, 0.001)
        console.print(
            f"{outcome.received:,} records in {outcome.seconds:.2f} s: {outcome.received / span:,.0f} records/s, "
            f"{outcome.size / span / 1e6:,.1f} MB/s; {outcome.partitions} partitions on {outcome.brokers} brokers"
        )
        console.print(outcome.verdict, markup=False)
        return 0 if outcome.complete else FAILED

    _run(work(), output)
