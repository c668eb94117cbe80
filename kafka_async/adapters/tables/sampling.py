"""The first values of a scan, in which the fields of JSON are found (``schema="infer"``)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa

from ...application.reading.arrow import array_of
from ...values import evolve
from ..ranges.planner import OffsetRange
from .layout import layout_of
from .streams import Job, Opened, read

MOST_BYTES: Final = 64 << 20
"""Bytes of a sample, about, at most: values may be large."""

SPARSE: Final = 100
"""With fewer values than one in so many offsets, those that were found have to do."""


def first_values(
    options: Mapping[str, Any],
    pieces: Sequence[OffsetRange],
    opened: Opened,
    report: Callable[[str], None],
    *,
    fails: bool,
    count: int,
    most_bytes: int = MOST_BYTES,
) -> Any:
    """Return ``count`` values, as a binary array; fewer if there are no more, or they have ``most_bytes`` before, or ``SPARSE``
    times as many offsets have hardly any.

    ``options``, ``fails``: see ``Job``. ``report`` is called with what is lost.
    """
    job = Job(options=options, layout=layout_of((), None, ("value",)), fails=fails)
    found: list[Any] = []
    values = size = passed = 0
    with closing(read(job, _tasks(pieces, count), opened, report)) as stretches:
        for stretch in stretches:
            if stretch.batch is not None:
                found.append(stretch.batch.column("value").drop_null())
                values, size = values + len(found[-1]), size + found[-1].nbytes
            passed += stretch.passed
            if values >= count or size >= most_bytes or (values and passed >= SPARSE * count):
                break
    return pa.concat_arrays(found) if found else array_of(pa.binary(), [])


def _tasks(pieces: Sequence[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """Return a share of each piece, so that none is left out, and then the rest.

    Compaction and tombstones leave fewer values than there are offsets, or none in a whole share.
    """
    each = -(-count // max(1, len(pieces)))
    shares = tuple(evolve(piece, end=min(piece.end, piece.start + each)) for piece in pieces)
    rest = tuple(evolve(piece, start=piece.start + each) for piece in pieces if piece.start + each < piece.end)
    return [task for task in (shares, rest) if task]
