"""The record data of a Fetch response: batches, messages, checksums, codecs, transactions.

reader.py       one partition's share of a response
header.py       the header of a batch, and what can be wrong with one; legacy.py: formats 0 and 1
decode.py, _decode.pyx    the decoder, in Python and in Cython; implementation.py: which of them is used
columns.py      records as columns
codecs.py, checksum.py    compression, CRC-32C
freed_memory.py    what the C library keeps for the next read
transactions.py    which batches belong to aborted transactions
"""

from .columns import ALL_COLUMNS, BinaryColumn, ColumnBuilder, Columns, HeadersColumn, ViewColumn
from .freed_memory import keep_freed_memory
from .header import Span
from .implementation import IMPLEMENTATION, measure, warn_if_slow
from .reader import RecordReader

__all__ = [
    "ALL_COLUMNS",
    "IMPLEMENTATION",
    "BinaryColumn",
    "ColumnBuilder",
    "Columns",
    "HeadersColumn",
    "RecordReader",
    "Span",
    "ViewColumn",
    "keep_freed_memory",
    "measure",
    "warn_if_slow",
]
