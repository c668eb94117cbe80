"""The command ``kafka-async consume``, for people who know kcat: options and format tokens that kcat has mean the same here."""

from typing import Annotated, Any

import typer

from ...config.texts import option_name
from ...errors import GroupIdNotFound, InconsistentGroupProtocolError
from .consumer_options import BROKERS, Brokers, CommandConfig, Settings, consumer_options
from .copying import Copy, MemberSource, Partitions, RecordSource, Start, begin_and_end
from .formats import CODES
from .serdes import Serdes
from .shell import (
    Count,
    Debug,
    Delimiter,
    Deserializers,
    JsonRecords,
    KeyDelimiter,
    Layout,
    NullAsText,
    Output,
    PartitionIds,
    RegistryOptions,
    RegistryUrl,
    layout,
    new_app,
    partition_ids,
    run,
)

app = new_app()


@app.command(epilog=CODES)
def consume(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to read.")],
    brokers: Brokers = None,
    config: CommandConfig = None,
    group: Annotated[
        str | None,
        typer.Option("-G", "--group", metavar="GROUP", help="Read as a member of this group, and commit what was written."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option("--group-protocol", metavar="PROTOCOL", help="Protocol of the group: auto (default), classic, consumer."),
    ] = None,
    partitions: PartitionIds = None,
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--offset",
            metavar="WHERE",
            help="Where to begin: beginning (default), end, an offset, -N (the last N), s@MILLISECONDS, s@DATE (ISO 8601, UTC if "
            "it names no zone). A second one, e@MILLISECONDS or e@DATE, says where to end: before the first record of that time. "
            "With --group: stored (default), and beginning (default) or end if the group has stored nothing.",
        ),
    ] = None,
    count: Count = None,
    exit_at_end: Annotated[
        bool, typer.Option("-e", "--exit-eof", help="Exit when everything that was there at the start has been read.")
    ] = False,
    text: Layout = None,
    as_json: JsonRecords = False,
    key_delimiter: KeyDelimiter = None,
    delimiter: Delimiter = r"\n",
    null: NullAsText = False,
    deserializers: Deserializers = None,
    registry: RegistryUrl = None,
    registry_options: RegistryOptions = None,
    isolation: Annotated[
        str | None, typer.Option("--isolation-level", metavar="LEVEL", help="read_uncommitted (default) or read_committed.")
    ] = None,
    settings: Settings = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Write nothing but records and errors.")] = False,
    debug: Debug = False,
) -> None:
    """Read topics and write their records.

    Options and formats that kcat has too mean the same here. With --group it reads as a member of a group.
    """
    offset, until = begin_and_end(offsets or ())
    if until is not None and group is not None:
        raise typer.BadParameter("e@ and --group do not go together: a member reads what its group is at")
    chosen = {"bootstrap_servers": brokers, "isolation_level": isolation, **_group_options(group, protocol, offset)}
    write, end = layout(text, as_json, key_delimiter, delimiter, b"NULL" if null else b"")
    serdes = Serdes.parse(deserializers or (), registry, registry_options or ())
    defaults = {"bootstrap_servers": BROKERS, "auto_offset_reset": "earliest", "allow_auto_create_topics": False}
    options = consumer_options(settings, file=config, defaults=defaults, chosen=chosen)
    if options.get("group_id") != group:
        if any("group_id" in setting.partition("=")[0].replace(".", "_") for setting in settings or ()):
            raise typer.BadParameter("group_id: give the group with --group")
        # The file may be for other programs too, static members among them: without --group nothing is committed.
        options |= {"group_id": None, "group_instance_id": None}
    if group is None and "auto_offset_reset" not in {option_name(text.partition("=")[0]) for text in settings or ()}:
        # Nor does a file's ``latest`` or ``by_duration`` count, which means where their groups begin: where the start of the log
        # overtakes the reading, what is left of it would be passed. With ``none`` that is an error, which passes nothing.
        options["auto_offset_reset"] = "none" if options["auto_offset_reset"] == "none" else "earliest"
    topics = tuple(dict.fromkeys(names))
    reading: RecordSource
    if group is not None:
        if partitions:
            raise typer.BadParameter("-p and --group do not go together: the group assigns partitions")
        reading = MemberSource(topics=topics, options=options)
    else:
        start = Start.parse("beginning" if offset is None else offset)
        reading = Partitions(topics=topics, partitions=tuple(partition_ids(partitions)), start=start, until=until, options=options)
    exit_at_end = exit_at_end or until is not None
    output = Output(debug=debug, quiet=quiet)

    if (
        group is None
        and offset is None
        and any(option_name(text.partition("=")[0]) == "auto_offset_reset" for text in settings or ())
    ):
        output.notify(
            "% auto.offset.reset counts where offsets are gone; reading begins at the beginning, unless -o says otherwise"
        )

    async def work() -> int:
        writer = write if serdes is None else serdes.open().writer(write, as_json=as_json)
        copy = Copy(reading=reading, count=count, exit_at_end=exit_at_end, write=writer, delimiter=end, waits=serdes is not None)
        try:
            return await copy.run(output)
        except (InconsistentGroupProtocolError, GroupIdNotFound) as error:
            from .groups import no_group_of_consumers  # what asks about groups is needed for this error only

            raise await no_group_of_consumers(options, error) from error

    run(work(), output)


def _group_options(group: str | None, protocol: str | None, offset: str | None) -> dict[str, Any]:
    """Return what ``--group``, ``--group-protocol`` and ``--offset`` mean for the consumer."""
    if group is None:
        if protocol is not None:
            raise typer.BadParameter("--group-protocol needs --group")
        if offset == "stored":
            raise typer.BadParameter("'stored' needs --group: only a group stores offsets")
        return {}
    resets = {None: None, "stored": None, "beginning": "earliest", "end": "latest"}
    if offset not in resets:
        raise typer.BadParameter(f"{offset!r}: expected 'stored', 'beginning' or 'end' with --group; 'offsets reset' moves a group")
    return {"group_id": group, "group_protocol": protocol, "auto_offset_reset": resets[offset]}
