"""Topics as tables: ``kafka_async.scan``.

scan.py         what users hold
moments.py      what ``since`` and ``until`` mean
pinning.py      which offsets that is
forms.py        what values are
layout.py       which columns, and how they are made
streams.py      one reading
sampling.py     its first values, in which fields are found
workers.py      a reading that processes share; worker.py: one of them
progress.py     how far it is
estimate.py     how much it will be
frames.py       polars, pandas, DuckDB
"""

from typing import TYPE_CHECKING

from ...application.reading.arrow import SCHEMA as SCHEMA  # first of all: it says what to install
from ...lazy import on_first_use

if TYPE_CHECKING:
    from .estimate import ScanPlan as ScanPlan
    from .pinning import PinnedRanges as PinnedRanges
    from .progress import ScanProgress as ScanProgress
    from .scan import Scan as Scan
    from .scan import scan as scan
else:
    __getattr__ = on_first_use(
        __name__,
        {".estimate": "ScanPlan", ".pinning": "PinnedRanges", ".progress": "ScanProgress", ".scan": "Scan scan"},
        modules="estimate frames layout moments pinning progress sampling streams",
    )

__all__ = ["PinnedRanges", "Scan", "ScanPlan", "ScanProgress"]
