"""What scans read into files: one file, or a folder of parts that another run goes on with.

Never leaves half a file under its name, and never reads on while a batch is not written: memory holds what is fetched ahead, and a
row group for each file that is open.
"""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import pyarrow as pa
import pyarrow.compute as pc

from ...application.reading.arrow import scalar_of
from ...errors import DataLossError
from ...model import TopicPartition
from ...values import define, evolve, field, frozen
from ..ranges.offsets import names_of
from ..tables.layout import REASON
from .forms import GROUP_BYTES, Form, FormWriter
from .parts import AT_ONCE, ExportPart, cut, ranges_of, rounds
from .whole import PARTIAL, only_one, whole_file, write_whole

STATE: Final = "_export.json"
"""In a folder of parts: what it is an export of. Readers of folders pass over names that begin with an underscore."""
_LOCK: Final = "_export.lock"
_OWN: Final = (STATE, STATE + PARTIAL, _LOCK)
"""What a run that was killed before its first part may have left."""
_VERSION: Final = 1


class Table(Protocol):
    """What is exported: a scan."""

    @property
    def schema(self) -> Any: ...

    @property
    def held_back(self) -> Mapping[TopicPartition, int]:
        """How many offsets are left out, since they lie behind an open transaction."""

    def __aiter__(self) -> AsyncIterator[Any]: ...


class OnThread(Protocol):
    """Has work done that waits for disks, readers and networks, while the event loop goes on."""

    async def __call__(self, work: Callable[..., Any], /, *arguments: Any) -> Any: ...


class ExportSource(Protocol):
    """Where the tables of a folder come from."""

    def begin(self) -> tuple[Any, dict[str, Any]]:
        """Find out what is read, and return the ranges, and what else another run must keep; both in types that JSON has."""

    def ranges(self, shaped: Any) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return what ``begin`` found."""

    def table(self, shaped: Any, kept: Mapping[str, Any], ranges: Mapping[TopicPartition, tuple[int, int]]) -> Table:
        """Return the rows of some of the ranges; ``shaped`` and ``kept`` are what ``begin`` found."""


@frozen
class Written:
    """What an export wrote."""

    rows: int
    size: int
    """Bytes of the files."""
    parts: int = 1
    left_out: int = 0
    """Parts that were there already."""
    bad: int = 0
    """Rows whose value could not be decoded, and which have the reason beside them."""


def standard_output() -> Any:
    """Return a ``pyarrow.NativeFile`` that writes to standard output, which stays open."""
    return pa.PythonFile(_Kept(sys.stdout.buffer), "w")


@define(eq=False)
class _Kept:
    """A stream that is not closed with what uses it."""

    stream: Any
    closed: bool = field(default=False, init=False)

    def write(self, data: Any) -> int:
        view = memoryview(data)
        while view:  # a signal that comes while a pipe is full makes it less than all
            view = view[self.stream.write(view) :]
        return len(data)

    def flush(self) -> None:
        self.stream.flush()

    def close(self) -> None:
        self.closed = True


async def to_end(work: Callable[..., Any], /, *arguments: Any) -> Any:
    """Have work done on a thread, and wait for its end: nothing is to be closed while it is being written to.

    Cancelled, it returns what the work returns, and the caller's next ``await`` is cancelled instead.
    """
    working = asyncio.ensure_future(anyio.to_thread.run_sync(work, *arguments))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError as cancelled:
        with anyio.CancelScope(shield=True):  # a scope cancels what it is around again and again
            await asyncio.wait((working,))
        result = working.result()
        if (task := asyncio.current_task()) is not None:
            task.cancel(*cancelled.args)
        return result


async def to_stream(table: Table, stream: Any, form: Form, *, look_up: OnThread = to_end, write: OnThread = to_end) -> Written:
    """Write all rows of a table to a ``pyarrow.NativeFile``; the size of what is written is not known.

    Opening and closing write, too. What ``write`` gives up is never closed.
    """
    schema = await look_up(lambda: table.schema)
    rows = bad = 0
    writer = await write(form.open, stream, schema)
    try:
        async with aclosing(aiter(table)) as batches:  # type: ignore[type-var]  # a scan's are an asynchronous generator
            async for batch in batches:
                await write(writer.write, batch)
                rows += batch.num_rows
                bad += _bad(batch)
        await write(writer.close)
    except BaseException:
        writer.abandon()
        raise
    return Written(rows, 0, bad=bad)


async def to_file(table: Table, path: Path, form: Form, *, look_up: OnThread = to_end) -> Written:
    """Write a table to a file, which is there whole or not at all. Raises ``OSError``, and what reading raises."""
    with whole_file(path) as stream:
        written = await to_stream(table, stream, form, look_up=look_up)
    return evolve(written, size=_size(path))


def _bad(batch: Any) -> int:
    """Return how many rows say why their value could not be decoded."""
    return batch.num_rows - int(batch.column(REASON).null_count) if REASON in batch.schema.names else 0


def _size(path: Path) -> int:
    return path.stat().st_size


# --- folders ---------------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Folder:
    """A folder of parts."""

    path: Path
    form: Form
    part_offsets: int
    partition_column: str
    """The column of tables that says which partition a row is of. It is left out of files unless it is one of ``columns``."""
    drops_partition: bool
    options: Mapping[str, Any]
    """What else the table depends on: another run must have the same."""
    at_once: int = AT_ONCE
    look_up: OnThread = to_end
    """Finds ranges and columns."""
    notify: Callable[[str], None]

    async def write(self, source: ExportSource) -> Written:
        """Write the parts that are not there yet.

        Raises ``ValueError`` if the folder holds another export, ``BusyError`` if another process is at it, ``DataLossError`` if a
        part cannot be read whole, ``OSError``, and what reading raises.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with only_one(self.path / _LOCK):
            before = self._read()
            state = await self._begin(source) if before is None else before
            ranges = source.ranges(state["ranges"])
            parts = cut(ranges, self.part_offsets)
            missing = [part for part in parts if not self._file(part).exists()]
            if before is not None and not missing:
                ends = ",".join(f"{partition.partition}:{end}" for partition, (_, end) in sorted(ranges.items()))
                self.notify(
                    f"{self.path}: an earlier run completed it, up to the offsets that it found; for newer records give another "
                    f"folder{f', and --since {ends}' if ends else ''}"
                )
            if missing and len(missing) < len(parts):
                self.notify(f"{self.path}: going on, {len(parts) - len(missing)} of {len(parts)} parts are there")
            rows = bad = 0
            for chosen in rounds(missing, self.part_offsets, self.at_once):
                table = source.table(state["ranges"], state["kept"], ranges_of(chosen))
                more, more_bad = await self._write(table, chosen, state)
                rows, bad = rows + more, bad + more_bad
            size = sum(_size(self._file(part)) for part in missing)
            return Written(rows, size, len(missing), len(parts) - len(missing), bad)

    def _file(self, part: ExportPart) -> Path:
        return self.path / part.name(self.form.ending)

    def _read(self) -> dict[str, Any] | None:
        """Return what the folder is an export of; ``None`` if it is new."""
        try:
            state: dict[str, Any] = json.loads((self.path / STATE).read_text())
        except FileNotFoundError:
            if others := sorted(each.name for each in self.path.iterdir() if each.name not in _OWN):
                raise ValueError(
                    f"{self.path}: holds {others[0]!r} and is not a folder of an export; give a new or an empty one"
                ) from None
            return None
        except ValueError:
            raise ValueError(f"{self.path / STATE} is not what an export wrote") from None
        before, now = _meant(state["options"]), _meant(self._all_options())
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                said = f"{_said(name, before.get(name))}, not {_said(name, now.get(name))}"
                raise ValueError(f"{self.path}: was begun with {said}; go on with the same options, or give another folder")
        return state

    def _all_options(self) -> dict[str, Any]:
        own = {"version": _VERSION, "format": self.form.ending.removeprefix("."), "part-size": self.part_offsets}
        return {**self.options, **own}

    async def _begin(self, source: ExportSource) -> dict[str, Any]:
        ranges, kept = await self.look_up(source.begin)
        table = source.table(ranges, kept, source.ranges(ranges))
        schema = base64.b64encode((await self.look_up(lambda: table.schema)).serialize()).decode()
        state = {"options": self._all_options(), "ranges": ranges, "kept": kept, "schema": schema}
        write_whole(self.path / STATE, json.dumps(state, indent=1).encode())
        return state

    async def _write(self, table: Table, parts: Sequence[ExportPart], state: Mapping[str, Any]) -> tuple[int, int]:
        """Write some parts, of different partitions. If it fails, none of them is there that is not whole.

        Returns how many rows there were, and how many of them are bad.
        """
        schema = await self.look_up(lambda: table.schema)
        if schema != pa.ipc.read_schema(pa.py_buffer(base64.b64decode(state["schema"]))):
            raise ValueError(
                f"{self.path}: was begun with other columns than the values have now; name the version of the schema, or give "
                "another folder"
            )
        kept = [name for name in schema.names if name != self.partition_column or not self.drops_partition]
        rows = bad = 0
        with ExitStack() as stack:
            writers: dict[int, FormWriter] = {}
            for part in parts:
                stream = stack.enter_context(whole_file(self._file(part)))
                plain = pa.schema([schema.field(name) for name in kept])
                writer = self.form.open(stream, plain, group_bytes=GROUP_BYTES // len(parts))
                writers[part.partition.partition] = stack.enter_context(writer)
            async with aclosing(aiter(table)) as batches:  # type: ignore[type-var]  # as in to_stream
                async for batch in batches:
                    for number, some in _by_partition(batch, self.partition_column):
                        await to_end(writers[number].write, some.select(kept))
                    rows += batch.num_rows
                    bad += _bad(batch)
            if held := await self.look_up(lambda: table.held_back):  # none were when the ranges were found
                raise DataLossError(
                    f"the ends of {names_of(held)} are said to lie behind an open transaction, though they did not when the export "
                    "began: a broker may be behind the others; another run goes on"
                )
            for writer in writers.values():
                await to_end(writer.finish)
        return rows, bad


def _meant(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without a ``timezone`` that changes nothing.

    It is of times in JSON. With other values a folder may have one all the same, as it was not always refused there.
    """
    changes = options.get("values") == "json" and options.get("timezone") != "UTC"
    return {name: each for name, each in options.items() if changes or name != "timezone"}


def _said(name: str, value: Any) -> str:
    return f"no {name}" if value is None else f"{name} {value!r}"


def _by_partition(batch: Any, column: str) -> Iterator[tuple[int, Any]]:
    """Yield the rows of each partition in a batch."""
    numbers = batch.column(column)
    found = pc.unique(numbers).to_pylist()
    for number in found:
        yield number, batch if len(found) == 1 else batch.filter(pc.equal(numbers, scalar_of(pa.int32(), number)))
