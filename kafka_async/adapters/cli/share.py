"""The command ``kafka-async share consume``: reads as a member of a share group."""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, Final

import typer

from ...application.share.consumer import ShareConsumer
from ...application.share.record import ShareRecord
from ...errors import KafkaTimeoutError
from ...model import ConsumerRecord
from ...trace import counted
from .consumer_options import BROKERS, Brokers, CommandConfig, Settings, consumer_options
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
    RegistryOptions,
    RegistryUrl,
    layout,
    new_app,
    run,
)

app = new_app("Read as a member of a share group (Kafka 4.2 and later).")

_WAIT: Final = 200
"""Milliseconds between two checks of ``--timeout``."""
_FIRST: Final = 10.0
"""Seconds that a group has at least to give its new member partitions, however short ``--timeout`` is: it may be a new one."""


@app.callback()
def _about() -> None:
    """Read as a member of a share group (Kafka 4.2 and later)."""


@app.command(epilog=CODES)
def consume(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to read.")],
    group: Annotated[str, typer.Option("-G", "--group", metavar="GROUP", help="The share group.")],
    brokers: Brokers = None,
    config: CommandConfig = None,
    accept: Annotated[bool, typer.Option("--accept", help="Accept each record once it is written (the default).")] = False,
    release: Annotated[bool, typer.Option("--release", help="Release each record: it is delivered again.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Reject each record: it is not delivered again.")] = False,
    count: Count = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0,
            help="Exit when no record has come for this many seconds. Until the group has given us partitions, it is 10 at least; "
            "if it gives none, that is an error.",
        ),
    ] = None,
    text: Layout = None,
    as_json: JsonRecords = False,
    key_delimiter: KeyDelimiter = None,
    delimiter: Delimiter = r"\n",
    null: NullAsText = False,
    deserializers: Deserializers = None,
    registry: RegistryUrl = None,
    registry_options: RegistryOptions = None,
    settings: Settings = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Write nothing but records and errors.")] = False,
    debug: Debug = False,
) -> None:
    """Read topics as a member of a share group.

    Each record is accepted once it is written, or released or rejected.

    Where a group starts is its own setting: kafka-async groups configure GROUP share.auto.offset.reset=earliest
    """
    chosen = [name for name, given in (("--accept", accept), ("--release", release), ("--reject", reject)) if given]
    if len(chosen) > 1:
        raise typer.BadParameter(f"{' and '.join(chosen)} do not go together")
    say: Callable[[ShareRecord[Any, Any]], None] = (
        ShareRecord.release if release else ShareRecord.reject if reject else ShareRecord.accept
    )
    serdes = Serdes.parse(deserializers or (), registry, registry_options or ())
    write, end = layout(text, as_json, key_delimiter, delimiter, b"NULL" if null else b"")
    defaults = {"bootstrap_servers": BROKERS, "allow_auto_create_topics": False}
    options = consumer_options(settings, file=config, defaults=defaults, chosen={"bootstrap_servers": brokers, "group_id": group})
    options["strict_max_records"] = count is not None  # others get what we will not read
    try:
        consumer: ShareConsumer[Any, Any] = ShareConsumer(*dict.fromkeys(names), **options)
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None
    output = Output(debug=debug, quiet=quiet)

    async def work() -> int:
        writer = write if serdes is None else serdes.open().writer(write, as_json=as_json)

        async def put(records: Sequence[ShareRecord[Any, Any]]) -> None:
            plain = [ConsumerRecord(*record.fields()) for record in records]
            await output.write_records(plain, lambda record: writer(record) + end, waits=serdes is not None)

        return await _copy(consumer, say, put, count, timeout, output)

    run(work(), output)


async def _copy(
    consumer: ShareConsumer[Any, Any],
    say: Callable[[ShareRecord[Any, Any]], None],
    put: Callable[[Sequence[ShareRecord[Any, Any]]], Awaitable[None]],
    count: int | None,
    timeout: float | None,
    output: Output,
) -> int:
    written = 0
    output.show_outages()  # a start may have to wait, and the log says for what
    await consumer.start(None if timeout is None else 1000 * max(timeout, _FIRST))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(consumer.stop)
        if timeout is not None and not consumer.statistics().assignment:
            raise KafkaTimeoutError(f"the group has given us no partitions within {max(timeout, _FIRST):g} s")
        last = time.monotonic()
        while count is None or written < count:
            batch = await consumer.getmany(timeout_ms=_WAIT, max_records=None if count is None else count - written)
            for records in batch.values():
                await put(records)
                for record in records:
                    say(record)
                written += len(records)
            now = time.monotonic()
            last = now if batch else last
            if timeout is not None and now - last >= timeout:
                break
        refused = [error for error in (await consumer.flush()).values() if error is not None]
        for error in refused:
            output.notify(f"not every acknowledgement was accepted: {error}")
    output.notify(counted(written, "record"))
    return 1 if refused else 0
