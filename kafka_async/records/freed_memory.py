"""Has the C library keep the memory of records that are done, for those that are read next.

glibc gives what is free at the end of its heap back to the system from 128 KiB on, and takes it anew a moment later. Reading values
of 1 KB then spends a quarter of its CPU on page faults (``getmany`` and ``async for``, six partitions; smaller values lie in
Python's own memory, and larger ones cost more elsewhere). How much it keeps it learns from the largest block that was freed so far:
``M_MMAP_THRESHOLD`` in mallopt(3). Whoever sets that in the environment (``MALLOC_TRIM_THRESHOLD_``) has it as it is set.
"""

from functools import cache
from typing import Final

_BLOCK: Final = 16 * 1024 * 1024
"""glibc keeps twice as much. Of 4 MiB too little is kept for a read, and what is above 32 MiB it does not learn from."""


@cache  # once for a process: later blocks of this size lie in the heap, and are written to
def keep_freed_memory() -> None:
    """Free a block that was never written to, which takes microseconds."""
    bytes(_BLOCK)
