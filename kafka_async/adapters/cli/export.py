"""The command ``kafka-async export``: a range of a topic as a file, or as a folder of parts."""

import base64
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from attrs import frozen

from ...errors import KafkaConfigurationError
from ...model import TopicPartition
from ...trace import counted
from .consumer_options import BROKERS, Brokers, CommandConfig, Settings, consumer_options, content_of
from .launch import on_disk, require
from .serdes import NEEDED
from .shell import Debug, Output, PartitionIds, RegistryOptions, new_app, partition_ids, run

if TYPE_CHECKING:
    from ..export.exporting import Folder, Written
    from ..tables.scan import Scan

app = new_app()

STDOUT: Final = "-"
_NOT_OURS: Final = ("group_id", "group_instance_id", "auto_offset_reset", "enable_auto_commit")
"""What a file of options may say for other programs: an export joins no group and commits nothing."""
_EXTRAS: Final = {"json": ("msgspec",), "avro": NEEDED["avro"], "protobuf": NEEDED["protobuf"]}
"""The modules of the extra that has the name of a format."""
_OFFSETS: Final = re.compile(r"\d+:\d+(,\d+:\d+)*")
_ARGUMENTS: Final = (
    "since", "until", "late", "partitions", "values", "schema", "message", "registry", "timezone", "columns", "on_bad", "on_loss",
    "processes", "isolation_level",
)  # fmt: skip
"""Those of ``scan`` for which there is an option."""
_NAMES: Final = "|".join(_ARGUMENTS)
_NAMED: Final = re.compile(rf"(?<![\w./'-])(?:({_NAMES})(?:(=)|(?=:\s| needs | has no meaning ))|(?<=needs )({_NAMES})\b)")
_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")


@app.command()
def export(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.")],
    out: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to write: a name that ends in .parquet, .arrow, .csv or .ndjson (the last two also with .gz or .zst), a "
            "folder (with / at the end) for parts that another run goes on with, or - for standard output.",
        ),
    ],
    brokers: Brokers = None,
    config: CommandConfig = None,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="Where to begin: beginning (default), a date or time in ISO 8601 (UTC if it names no zone), -1h, -7d and so on, "
            "PARTITION:OFFSET[,...], committed:GROUP.",
        ),
    ] = "beginning",
    until: Annotated[
        str, typer.Option("--until", metavar="WHEN", help="Where to end, without the record itself: now (default), or as --since.")
    ] = "now",
    late: Annotated[
        str,
        typer.Option("--late", metavar="SPAN", help="How far beyond a time of --until to look for earlier records, such as 10m."),
    ] = "0s",
    partitions: PartitionIds = None,
    values: Annotated[
        str | None,
        typer.Option(
            "--values", metavar="FORMAT", help="Write the fields of the values: json, avro, protobuf or text. Default: bytes."
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="TEXT",
            help="JSON: fields such as 'id BIGINT, at TIMESTAMP', or infer (default without -r), from the first 10,000 values. "
            "Avro: the schema in JSON. Protobuf: a file that protoc --descriptor_set_out --include_imports made. @FILE takes the "
            "text from a file.",
        ),
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", metavar="NAME", help="Protobuf: the full name of the message.")
    ] = None,
    registry: Annotated[
        str | None, typer.Option("-r", "--registry", metavar="URL", help="The schema registry for --values.")
    ] = None,
    registry_options: RegistryOptions = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="JSON: the zone of times that name none. Default: UTC.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="NAME[,...]",
            help="Columns to write, in order: fields of values, and topic, partition, offset, timestamp, timestamp_type, key, "
            "value, headers, also with _kafka_ in front.",
        ),
    ] = None,
    on_bad: Annotated[
        str | None,
        typer.Option(
            "--on-bad",
            metavar="WHAT",
            help="Values that cannot be decoded: column (default) leaves their fields empty, and has their bytes in _corrupt and "
            "the reason in _corrupt_reason; null just leaves them empty, skip leaves the records out, raise ends the export.",
        ),
    ] = None,
    on_loss: Annotated[
        str,
        typer.Option("--on-loss", metavar="WHAT", help="Offsets that are gone: raise (default) ends the export, skip goes on."),
    ] = "raise",
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="parquet (default for folders), arrow, csv or ndjson. For a file, its name must not say another.",
        ),
    ] = None,
    part_size: Annotated[
        int | None,
        typer.Option("--part-size", metavar="N", min=1, help="Offsets of a part of a folder. Default: 5,000,000."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="N",
            min=1,
            help="How many processes read and decode, for much data; records of a partition are then in no order. Default: 1.",
        ),
    ] = None,
    isolation: Annotated[
        str | None, typer.Option("--isolation-level", metavar="LEVEL", help="read_committed (default) or read_uncommitted.")
    ] = None,
    settings: Settings = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show neither progress nor what was written.")] = False,
    debug: Debug = False,
) -> None:
    """Write a range of a topic to a file or a folder.

    Offsets are found once, at the start. A file appears under its name when it is whole. No group is joined, nothing is committed.
    """
    require("arrow", "pyarrow")
    if values is not None and values in _EXTRAS:
        require(values, *_EXTRAS[values])
    output = Output(debug=debug, quiet=quiet, spelled=spelled)
    of_values: dict[str, Any] = {
        "schema": None if schema is None else content_of("schema", schema),
        "message": message,
        "registry": _registry(registry, registry_options or ()),
        "timezone": timezone,
        "on_bad": on_bad,
    }
    if values is None and timezone == "UTC":
        del of_values["timezone"]  # it changes nothing
    if values is None and (unused := [name for name, each in of_values.items() if each is not None]):
        raise typer.BadParameter(f"--{unused[0].replace('_', '-')} needs --values")
    if values is not None:
        from ..tables.forms import ON_BAD

        of_values["values"] = values
        of_values["on_bad"] = on_bad or ON_BAD[0]  # said, so that a folder keeps it
        of_values["schema"] = of_values["schema"] or ("infer" if values == "json" and registry is None else None)
    reading = {name: each for name, each in of_values.items() if each is not None}
    reading["columns"] = None if columns is None else [name.strip() for name in columns.split(",")]
    reading["on_loss"] = on_loss
    where = {"since": _offsets(since), "until": _offsets(until), "late": late, "partitions": partition_ids(partitions) or None}
    consumer = _consumer(settings, config, {"bootstrap_servers": brokers, "isolation_level": isolation})
    how = {"progress": not quiet and sys.stderr.isatty(), "processes": processes or 1}
    source = _Topic(topic=topic, where=where, reading=reading, how=how, consumer=consumer)
    try:
        source.scan()  # asks nothing, and refuses what makes no sense
        target = _target(out, form, part_size, source, output)
    except (KafkaConfigurationError, ValueError, TypeError) as error:
        raise typer.BadParameter(spelled(str(error))) from None

    async def work() -> int:
        output.show_outages()
        written = await target.write()
        output.notify(f"% {_said(written)} in {'standard output' if out == STDOUT else out}")
        return 0

    run(work(), output)


def spelled(text: str) -> str:
    """Return what ``scan`` says of its arguments, ``on_loss='skip'`` or ``since: ...``, about the command's options."""

    def option(found: re.Match[str]) -> str:
        name = (found[1] or found[3]).replace("_", "-")
        name = "partition" if name == "partitions" else name
        return f"--{name}{' ' if found[2] else ''}"

    return _NAMED.sub(option, text)


# --- what is read ----------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Topic:
    """The scans of one command: an ``ExportSource``."""

    topic: str
    where: Mapping[str, Any]
    reading: Mapping[str, Any]
    how: Mapping[str, Any]
    """What does not change the table."""
    consumer: Mapping[str, Any]

    def scan(self, **changed: Any) -> "Scan":
        """Return the scan that was asked for, with some arguments in place of others."""
        from ..tables.scan import scan

        where = {} if "ranges" in changed else dict(self.where)
        topics = () if "ranges" in changed else (self.topic,)
        options: dict[str, Any] = {**where, **self.reading, **self.how, **self.consumer, **changed}
        return scan(*topics, **options)

    @property
    def inferred(self) -> bool:
        """Whether the fields of values are found in a sample."""
        return bool(self.reading.get("schema") == "infer")

    def begin(self) -> tuple[Any, dict[str, Any]]:
        """Find the ranges, and what names the fields of values: another run must not find other fields, nor must a later part."""
        table = self.scan(columns=None)
        ranges = table.ranges.as_json()
        if not self.inferred:
            version = table.schema_version if "registry" in self.reading else None
            return ranges, {} if version is None else {"version": version}
        import pyarrow as pa

        from ...application.reading.arrow import SCHEMA
        from ..values.decoding import CORRUPT, REASON

        beside = {CORRUPT, REASON, *(f"_kafka_{name}" for name in SCHEMA.names)}
        own = [field for field in table.schema if field.name not in beside]
        return ranges, {"fields": base64.b64encode(pa.schema(own).serialize()).decode()}

    def ranges(self, shaped: Any) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the ranges that ``begin`` found."""
        from ..tables.pinning import PinnedRanges

        return PinnedRanges.from_json(shaped)

    def table(self, shaped: Any, kept: Mapping[str, Any], ranges: Mapping[TopicPartition, tuple[int, int]]) -> "Scan":
        """Return the scan of some of the ranges."""
        import pyarrow as pa

        from ..tables.pinning import PinnedRanges

        whole = PinnedRanges.from_json(shaped)
        some = PinnedRanges(ranges, topic_ids=whole.topic_ids, oldest=whole.oldest, newest=whole.newest)
        names = self.reading["columns"]
        changed: dict[str, Any] = {"ranges": some}
        if names is not None and PARTITION not in names:
            changed["columns"] = [*names, PARTITION]
        if "version" in kept:
            changed["registry"] = {**self.reading["registry"], "version": str(kept["version"])}
        if "fields" in kept:
            changed["schema"] = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(kept["fields"])))
        return self.scan(**changed)

    def options(self) -> dict[str, Any]:
        """Return what the table depends on, without secrets, as JSON has it."""
        registry = self.reading.get("registry", {})
        named = {f"registry {name}": registry[name] for name in ("url", "subject", "version") if name in registry}
        plain = {name: each for name, each in self.reading.items() if name != "registry"}
        level = self.consumer.get("isolation_level")
        given = {"topic": self.topic, **self.where, **plain, **named, "isolation_level": level}
        return {name.replace("_", "-"): _shown(each) for name, each in given.items() if each is not None}


PARTITION: Final = "_kafka_partition"


def _shown(value: Any) -> Any:
    return {str(name): each for name, each in value.items()} if isinstance(value, dict) else value


def _offsets(text: str) -> Any:
    """Return ``0:1500,1:1720`` as offsets by partition, and other texts as they are."""
    if not _OFFSETS.fullmatch(text):
        return text
    return {int(partition): int(offset) for partition, _, offset in (each.partition(":") for each in text.split(","))}


def _registry(url: str | None, options: Any) -> dict[str, str] | None:
    if url is None:
        if options:
            raise typer.BadParameter("--registry-option needs -r, the URL of the schema registry")
        return None
    found = {"url": url}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter("--registry-option: expected NAME=VALUE; the text is not shown, because it may be a secret")
        found[name.strip()] = content_of(name.strip(), value)
    return found


def _consumer(settings: list[str] | None, config: Path | None, chosen: Mapping[str, Any]) -> dict[str, Any]:
    for text in settings or ():
        if (name := text.partition("=")[0].strip().replace(".", "_")) in _NOT_OURS:
            raise typer.BadParameter(f"{name}: an export joins no group and commits nothing")
    options = consumer_options(settings, file=config, defaults={"bootstrap_servers": BROKERS}, chosen=chosen)
    return {name: each for name, each in options.items() if name not in _NOT_OURS}


# --- where it is written ---------------------------------------------------------------------------------------------------------


@frozen
class _File:
    source: _Topic
    path: Path
    form: Any
    output: Output

    async def write(self) -> "Written":
        from ..export.exporting import to_file

        return await to_file(self.source.scan(), self.path, self.form, look_up=self.output.do)


@frozen
class _Stdout:
    source: _Topic
    form: Any
    output: Output

    async def write(self) -> "Written":
        from ..export.exporting import standard_output, to_stream

        def flushed(work: Callable[..., Any], *arguments: Any) -> Any:
            result = work(*arguments)
            sys.stdout.buffer.flush()  # what is left would be written as Python ends, and wait for a reader there
            return result

        do = self.output.do
        return await to_stream(self.source.scan(), standard_output(), self.form, look_up=do, write=partial(do, flushed))


@frozen
class _Parts:
    source: _Topic
    folder: "Folder"

    async def write(self) -> "Written":
        return await self.folder.write(self.source)


def _target(out: str, form: str | None, part_size: int | None, source: _Topic, output: Output) -> _File | _Stdout | _Parts:
    """Return what writes. Raises ``ValueError``."""
    from ..export.forms import form_for, form_named, form_of

    path = Path(on_disk(out))
    if out.endswith("/") or path.is_dir():
        from ..export.exporting import Folder
        from ..export.parts import AT_ONCE, PART_OFFSETS

        names = source.reading["columns"]
        column = PARTITION if "values" in source.reading or names is not None else "partition"
        folder = Folder(
            path=path,
            form=form_named(form or "parquet"),
            part_offsets=part_size or PART_OFFSETS,
            partition_column=column,
            drops_partition=names is not None and PARTITION not in names,
            options=source.options(),
            at_once=max(AT_ONCE, source.how["processes"]),
            look_up=output.do,
            notify=lambda text: output.notify(f"% {text}"),
        )
        return _Parts(source, folder)
    if part_size is not None:
        raise ValueError("--part-size is for folders: end the name with /")
    if out == STDOUT:
        if form is None:
            raise ValueError("-o - needs --format")
        return _Stdout(source, form_named(form), output)
    return _File(source, path, form_of(out) if form is None else form_for(out, form), output)


def _said(written: "Written") -> str:
    size = float(written.size)
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    parts = f", {written.parts} parts" if written.parts > 1 else ""
    before = f", {counted(written.left_out, 'part', 'were')} there before" if written.left_out else ""
    amount = f" ({size:.{1 if unit else 0}f} {_UNITS[unit]})" if written.size else ""
    bad = f", {written.bad:,} of them could not be decoded: _corrupt_reason says why" if written.bad else ""
    return f"{counted(written.rows, 'record')}{amount}{parts}{before}{bad}"
