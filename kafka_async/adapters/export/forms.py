"""Batches of rows as Parquet, Arrow, CSV and lines of JSON.

Never holds more than a group of rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any, Final, Self

import pyarrow as pa

from ...application.reading.arrow import array_of
from ...config.spelling import did_you_mean
from ...values import define, evolve, field, frozen

GROUP_ROWS: Final = 1_000_000
"""Rows of a row group in Parquet. Small ones make files several times as large: 18.8 instead of 4.5 MB for two million records."""
GROUP_BYTES: Final = 64 << 20
"""Bytes in memory after which a row group ends earlier: with what is fetched ahead, an export stays below 300 MB."""
CHUNK_ROWS: Final = 16_384
"""Rows that are texts in Python at once."""
_PACKED: Final = {".gz": "gzip", ".zst": "zstd"}
"""Endings of files of texts that are compressed, and Arrow's names of the codecs."""


class FormWriter(ABC):
    """Writes batches of one schema in a format."""

    @abstractmethod
    def write(self, batch: Any) -> None:
        """Write a ``pyarrow.RecordBatch``; its rows may be held until more have come.

        Raises ``OSError``, and ``ValueError`` for what the format cannot hold.
        """

    def finish(self) -> None:  # noqa: B027  # as for abandon
        """Write what is held. Raises as ``write``."""

    @abstractmethod
    def close(self) -> None:
        """Write what is held, and the end of the file. The stream stays open. Raises as ``write``."""

    def abandon(self) -> None:  # noqa: B027  # what holds nothing has nothing to let go of
        """Let go of a file that nobody wants."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


@frozen
class Form:
    """A format of files."""

    name: str
    """What ``form_of`` and ``--format`` call it; with a dot in front, how names of its files end."""
    compression: str | None = None

    @property
    def ending(self) -> str:
        """How the names of its files end."""
        return f".{self.name}" + next((ending for ending, codec in _PACKED.items() if codec == self.compression), "")

    def open(self, stream: Any, schema: Any, *, group_bytes: int = GROUP_BYTES) -> FormWriter:
        """Return what writes to a ``pyarrow.NativeFile``. Raises ``OSError``."""
        if self.compression is None:
            return _OPEN[self.name](stream, schema, group_bytes)
        packed = pa.CompressedOutputStream(stream, self.compression)
        return _Packed(_OPEN[self.name](packed, schema, group_bytes), packed)


def form_of(name: str) -> Form:
    """Return the format that the end of a file's name says. Raises ``ValueError``."""
    suffixes = PurePath(name).suffixes
    codec = _PACKED.get(suffixes[-1].lower()) if suffixes else None
    ending = suffixes[-2:-1] if codec else suffixes[-1:]
    if ending and (found := ending[0].lower().removeprefix(".")) in _OPEN and (codec is None or found in _TEXTS):
        return Form(found, codec)
    raise ValueError(
        f"{name!r}: expected a name that ends in {', '.join(f'.{each}' for each in FORMS)}, or in / for a folder of parts"
    )


def form_named(name: str) -> Form:
    """Return a format by its name. Raises ``ValueError``."""
    if name not in _OPEN:
        raise ValueError(f"{name!r}: expected one of {', '.join(FORMS)}{did_you_mean(name, FORMS)}")
    return Form(name)


def form_for(name: str, chosen: str) -> Form:
    """Return the format that was chosen for a file, packed if the end of its name says so.

    Names that say nothing about formats, such as those of pipes, go with any. Raises ``ValueError`` for one that says another.
    """
    form = form_named(chosen)
    suffixes = [each.lower() for each in PurePath(name).suffixes]
    codec = _PACKED.get(suffixes[-1]) if suffixes else None
    said = "".join(suffixes[-2:-1] if codec else suffixes[-1:]).removeprefix(".")
    if said in _OPEN and said != chosen:
        raise ValueError(f"{name!r} is the name of a file of the format {said}, not {chosen}")
    if codec and chosen not in _TEXTS:
        raise ValueError(f"{name!r}: files of the format {chosen} are not packed as a whole; only {' and '.join(_TEXTS)} may be")
    return evolve(form, compression=codec)


def plain_schema(schema: Any) -> Any:
    """Return a schema with texts in place of dictionaries: in a file of Arrow's, all batches would have to have the same one."""
    return pa.schema([_plain_field(part) for part in schema], metadata=schema.metadata)


def _plain_field(part: Any) -> Any:
    return part.with_type(part.type.value_type) if pa.types.is_dictionary(part.type) else part


def _plain(batch: Any, schema: Any) -> Any:
    return batch if batch.schema == schema else batch.cast(schema)


# --- Parquet and Arrow -----------------------------------------------------------------------------------------------------------


@define(eq=False)
class _Parquet(FormWriter):
    """Row groups of ``GROUP_ROWS``, fewer if they take more than ``group_bytes``."""

    stream: Any
    schema: Any
    group_bytes: int
    _held: list[Any] = field(factory=list, init=False)
    _rows: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _writer: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        import pyarrow.parquet as pq  # takes time that other formats need not wait for

        self.schema = plain_schema(self.schema)
        self._writer = pq.ParquetWriter(self.stream, self.schema, compression="zstd")

    def write(self, batch: Any) -> None:
        batch = _plain(batch, self.schema)
        while batch.num_rows:
            part = batch.slice(0, GROUP_ROWS - self._rows)
            self._held.append(part)
            self._rows += part.num_rows
            self._size += part.nbytes
            batch = batch.slice(part.num_rows)
            if self._rows >= GROUP_ROWS or self._size >= self.group_bytes:
                self.finish()

    def finish(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._held, self.schema), row_group_size=self._rows)
            pa.default_memory_pool().release_unused()  # as much again as the group has been taken while it was written
        self._held, self._rows, self._size = [], 0, 0

    def close(self) -> None:
        self.finish()
        self._writer.close()

    def abandon(self) -> None:
        self._held = []
        self._writer.is_open = False  # else it would write the end of the file once it is collected, to a stream that is closed


@define(eq=False)
class _Arrow(FormWriter):
    """An Arrow IPC file ("Feather V2")."""

    stream: Any
    schema: Any
    group_bytes: int
    _writer: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.schema = plain_schema(self.schema)
        self._writer = pa.ipc.new_file(self.stream, self.schema)

    def write(self, batch: Any) -> None:
        self._writer.write_batch(_plain(batch, self.schema))

    def close(self) -> None:
        self._writer.close()


# --- texts -----------------------------------------------------------------------------------------------------------------------


@define(eq=False)
class _JsonLines(FormWriter):
    stream: Any
    schema: Any
    group_bytes: int

    def write(self, batch: Any) -> None:
        from .json_lines import lines

        for start in range(0, batch.num_rows, CHUNK_ROWS):
            self.stream.write(lines(batch.slice(start, CHUNK_ROWS)))

    def close(self) -> None:
        self.stream.flush()


@define(eq=False)
class _Csv(FormWriter):
    """CSV with a line of names. What is nested is written as JSON; null is empty, and an empty text is a pair of quotes."""

    stream: Any
    schema: Any
    group_bytes: int
    _writer: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        import pyarrow.csv as csv  # as for Parquet

        self.schema = pa.schema([(part.name, _in_csv(part.type)) for part in plain_schema(self.schema)])
        self._writer = csv.CSVWriter(self.stream, self.schema)

    def write(self, batch: Any) -> None:
        from .json_lines import texts

        for start in range(0, batch.num_rows, CHUNK_ROWS):
            part = batch.slice(start, CHUNK_ROWS)
            columns = [
                array_of(pa.string(), texts(column)) if pa.types.is_nested(column.type) else _csv_column(column, kind, name)
                for column, (name, kind) in zip(part.columns, _named(self.schema), strict=True)
            ]
            self._write(pa.RecordBatch.from_arrays(columns, names=self.schema.names))

    def _write(self, batch: Any) -> None:
        if batch.schema == self.schema:
            self._writer.write_batch(batch)
            return
        import pyarrow.csv as csv  # as above

        # Times that Arrow cannot write are texts, which the writer would not take.
        csv.write_csv(batch, self.stream, csv.WriteOptions(include_header=False))

    def close(self) -> None:
        self._writer.close()


def _named(schema: Any) -> list[tuple[str, Any]]:
    return [(part.name, part.type) for part in schema]


def _in_csv(kind: Any) -> Any:
    """Return the type that a column is written as."""
    return pa.string() if pa.types.is_nested(kind) or _is_bytes(kind) or pa.types.is_duration(kind) else kind


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _csv_column(column: Any, kind: Any, name: str) -> Any:
    from .json_lines import has_far_times, objects, with_far_times

    if pa.types.is_duration(column.type):
        return array_of(pa.string(), objects(column))
    if has_far_times(column):
        return array_of(pa.string(), with_far_times(column, lambda near: near.cast(pa.string()).to_pylist()))
    if not _is_bytes(column.type):
        return column.cast(kind)
    try:
        return column.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise ValueError(
            f"column {name!r} has bytes that are not UTF-8, which CSV cannot hold; parquet, arrow and ndjson can, or leave it out"
        ) from None


@define(eq=False)
class _Packed(FormWriter):
    """Ends the compression after what it compresses."""

    writer: FormWriter
    stream: Any

    def write(self, batch: Any) -> None:
        self.writer.write(batch)

    def finish(self) -> None:
        self.writer.finish()

    def close(self) -> None:
        self.writer.close()
        self.stream.close()

    def abandon(self) -> None:
        self.writer.abandon()
        with suppress(OSError):  # nobody wants what that writes, but a stream that is left open complains on standard error
            self.stream.close()


_OPEN: Final[Mapping[str, Callable[[Any, Any, int], FormWriter]]] = {
    "parquet": _Parquet,
    "arrow": _Arrow,
    "csv": _Csv,
    "ndjson": _JsonLines,
}
_TEXTS: Final = ("csv", "ndjson")
FORMS: Final = tuple(_OPEN)
"""The names of the formats."""
