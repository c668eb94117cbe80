"""Both decoders under one name each, so that every case of a test runs on both."""

from collections.abc import Callable, Sequence

import pytest
from attrs import frozen

from kafka_async.errors import KafkaError
from kafka_async.model import ConsumerRecord
from kafka_async.records import RecordReader, Span, decode

try:
    from kafka_async.records import _decode
except ImportError:
    _decode = None  # type: ignore[assignment]  # built without a compiler

Record = ConsumerRecord[bytes | None, bytes | None]


class PurePythonReader(RecordReader):
    decoder = decode.Decoder


class CompiledReader(RecordReader):
    decoder = decode.Decoder if _decode is None else _decode.Decoder


_COMPILED = pytest.mark.skipif(
    _decode is None, reason="the compiled decoder was not built: cythonize -i kafka_async/records/_decode.pyx"
)

READERS = [pytest.param(PurePythonReader, id="python"), pytest.param(CompiledReader, id="cython", marks=_COMPILED)]
MEASURES: list[Callable[[bytes, int], Span]] = [decode.measure] if _decode is None else [decode.measure, _decode.measure]

both_readers = pytest.mark.parametrize("reader", READERS)
both_measures = pytest.mark.parametrize("measure", MEASURES, ids=["python", "cython"][: len(MEASURES)])
needs_compiled = _COMPILED


@frozen(kw_only=True)
class Outcome:
    """Everything that reading to the end showed."""

    records: tuple[Record, ...]
    next_offset: int
    leader_epoch: int | None
    exhausted: bool
    error: tuple[str, str] | None


def read_all(
    reader: type[RecordReader],
    data: bytes,
    fetch_offset: int = 0,
    *,
    max_records: int = 1000,
    read_committed: bool = False,
    aborted: Sequence[tuple[int, int]] = (),
    check_crcs: bool = True,
    max_decompressed_bytes: int = 2**24,
) -> Outcome:
    """Read until nothing is left or an error says that nothing more can be read."""
    opened = reader(
        "topic",
        3,
        data,
        fetch_offset,
        read_committed=read_committed,
        aborted=aborted,
        check_crcs=check_crcs,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    records: list[Record] = []
    error: tuple[str, str] | None = None
    position = fetch_offset
    while not opened.exhausted and error is None:
        try:
            got = opened.read(max_records)
        except KafkaError as failure:
            error = type(failure).__name__, str(failure)
        else:
            assert got or opened.exhausted, "neither a record, nor an error, nor the end"
            assert len(got) <= max_records
            records += got
        assert opened.next_offset >= position, "the position went back"
        position = opened.next_offset
    return Outcome(
        records=tuple(records),
        next_offset=opened.next_offset,
        leader_epoch=opened.leader_epoch,
        exhausted=opened.exhausted,
        error=error,
    )
