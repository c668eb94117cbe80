"""Which columns a scan has, and how they are made of records.

A ``TableLayout`` is a value that is sent to worker processes.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ...application.reading.arrow import SCHEMA, array_of, record_batch, scalar_of
from ...config.spelling import did_you_mean
from ...errors import KafkaConfigurationError
from ...records import Columns
from ...values import evolve, frozen

if TYPE_CHECKING:
    from ..values.columns import BatchDecoder

PREFIX: Final = "_kafka_"
"""Before the name of a column of a record that stands beside the fields of values."""
REASON: Final = "_corrupt_reason"
BESIDE: Final = ("partition", "offset", "timestamp")
"""What stands beside the fields of values if nobody says what is wanted."""


@frozen(kw_only=True)
class TableLayout:
    """The columns of a scan."""

    names: tuple[str, ...]
    """In order."""
    raw: Mapping[str, str]
    """The column of ``getarrow`` that each name stands for, those that do not come out of values."""
    topics: tuple[str, ...]
    decoder: "BatchDecoder | None" = None
    drops_bad: bool = False
    """Records whose values cannot be decoded are left out; the decoder says which those are."""
    oldest: int | None = None
    newest: int | None = None
    """Records with an earlier timestamp, or with this one or a later one (milliseconds), are left out."""

    @property
    def schema(self) -> Any:
        """The ``pyarrow.Schema`` of ``build``."""
        fields = []
        for name in self.names:
            if name in self.raw:
                fields.append(SCHEMA.field(self.raw[name]).with_name(name))
            else:
                assert self.decoder is not None  # noqa: S101 - a name is one or the other
                fields.append(self.decoder.schema.field(name))
        return pa.schema(fields)

    @property
    def wanted(self) -> frozenset[str]:
        """The columns of records that ``build`` needs."""
        decoded = self.decoder.needs if self.decoder is not None else frozenset()
        times = {"timestamp"} if self.oldest is not None or self.newest is not None else frozenset()
        return frozenset({*self.raw.values(), *decoded, *times, "offset"})

    def select(self, names: Iterable[str]) -> "TableLayout":
        """Return a layout of only these columns, in this order. Raises ``KafkaConfigurationError`` for one that is not there."""
        chosen = tuple(names)
        if unknown := [name for name in chosen if name not in self.names]:
            near = did_you_mean(unknown[0], self.names)
            raise KafkaConfigurationError(f"columns: {unknown[0]!r} is not one of {', '.join(self.names)}{near}")
        decoder = self.decoder
        if decoder is not None:
            fields = [name for name in chosen if name not in self.raw]
            decoder = decoder.select([*fields, REASON] if self.drops_bad else fields) if fields or self.drops_bad else None
        return evolve(self, names=chosen, raw={name: self.raw[name] for name in chosen if name in self.raw}, decoder=decoder)

    def counting(self) -> "TableLayout":
        """Return a layout that shows how many records there are, for as little work as that takes."""
        layout = evolve(self, names=("offset",), raw={"offset": "offset"})
        if self.decoder is None or not self.drops_bad:
            return evolve(layout, decoder=None)
        return evolve(layout, decoder=self.decoder.select([REASON]))

    def build(self, columns: Columns) -> Any:
        """Return records as a ``pyarrow.RecordBatch``, without those that are left out."""
        records = record_batch(columns, self.wanted)
        if self.oldest is not None or self.newest is not None:
            records = _between(records, self.oldest, self.newest)
        decoded: Any = self.decoder.batch(records) if self.decoder is not None else None
        if decoded is not None and self.drops_bad:
            import pyarrow.compute as pc

            good = pc.is_null(decoded.column(REASON))
            if not pc.all(good).as_py():
                decoded, records = decoded.filter(good), records.filter(good)
        arrays = []
        for name in self.names:
            if name not in self.raw:
                arrays.append(decoded.column(name))
            elif self.raw[name] == "topic" and len(self.topics) > 1:
                arrays.append(_one_dictionary(records.column("topic"), self.topics))
            else:
                arrays.append(records.column(self.raw[name]))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def layout_of(
    topics: tuple[str, ...],
    decoder: "BatchDecoder | None",
    columns: Collection[str] | None,
    *,
    drops_bad: bool = False,
    oldest: int | None = None,
    newest: int | None = None,
) -> TableLayout:
    """Return the columns of a scan: ``columns``, or those that it has by default.

    A column of a record is called as in ``getarrow``, and ``_kafka_`` with that name too: a field of values may have it. Raises
    ``KafkaConfigurationError`` for a column that is not there.
    """
    raw = {f"{PREFIX}{name}": name for name in SCHEMA.names}
    fields = [
        name for name in (decoder.schema.names if decoder is not None else ()) if not (drops_bad and name in ("_corrupt", REASON))
    ]
    if clash := sorted(raw.keys() & set(fields)):
        raise KafkaConfigurationError(f"schema: {clash[0]!r} is a column of the record; no field of a value can have its name")
    raw |= {name: name for name in SCHEMA.names if name not in fields}
    if columns is not None:
        names = tuple(columns)
    elif decoder is None:
        names = tuple(SCHEMA.names)
    else:
        names = (*fields, *(f"{PREFIX}{name}" for name in (("topic", *BESIDE) if len(topics) > 1 else BESIDE)))
    whole = TableLayout(
        names=(*fields, *raw), raw=raw, topics=topics, decoder=decoder, drops_bad=drops_bad, oldest=oldest, newest=newest
    )
    return whole.select(names)


def check_columns(columns: Any) -> tuple[str, ...] | None:
    """Return the columns that were asked for. Raises ``KafkaConfigurationError`` for none at all, and for one that comes twice."""
    if columns is None:
        return None
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names or len({*names}) < len(names):
        raise KafkaConfigurationError(f"columns={columns!r}: expected at least one, and each once")
    return names


def _between(records: Any, oldest: int | None, newest: int | None) -> Any:
    """Return the records whose timestamp is within bounds; those without one (of old formats) stay."""
    import pyarrow.compute as pc

    times = records.column("timestamp").view(pa.int64())
    masks = []
    if oldest is not None:
        masks.append(pc.greater_equal(times, scalar_of(pa.int64(), oldest)))
    if newest is not None:
        masks.append(pc.less(times, scalar_of(pa.int64(), newest)))
    mask = masks[0] if len(masks) == 1 else pc.and_(*masks)
    if mask.null_count:
        mask = pc.fill_null(mask, scalar_of(pa.bool_(), True))
    return records if pc.all(mask).as_py() in (True, None) else records.filter(mask)


def _one_dictionary(column: Any, topics: tuple[str, ...]) -> Any:
    """Return the topics of records with a dictionary that is the same in each batch, as Arrow's file format demands."""
    places = {topic: place for place, topic in enumerate(topics)}
    codes = array_of(pa.int32(), [places[topic] for topic in column.dictionary.to_pylist()])
    return pa.DictionaryArray.from_arrays(codes.take(column.indices), array_of(pa.string(), list(topics)))
