"""A file that is there whole or not at all.

It is written beside its place, under its name with ``.partial`` at the end, and takes its place by being renamed once everything is
on the disk. Whatever ends the process before, what was there stays. The lock on the partial file keeps a second process from
writing the same one; one that a killed process has left is not locked, and is written anew.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PARTIAL: Final = ".partial"
"""How the name of a file ends while it is being written."""


class BusyError(OSError):
    """Another process is writing the same file."""


@contextmanager
def whole_file(path: Path) -> Iterator[Any]:
    """Yield a ``pyarrow.NativeFile`` whose content is in ``path`` after the block, unless the block raises.

    A link stays, and the file that it leads to is replaced. Raises ``BusyError`` if another process is at it, ``OSError`` for a
    device or a pipe, and what writing raises.
    """
    import pyarrow as pa

    if path.exists() and not path.is_file():  # renamed to /dev/null, a file would be in the way of all programs
        raise OSError(errno.EINVAL, "is no file, and cannot be replaced by one", str(path))
    path = path.resolve()
    partial = path.with_name(path.name + PARTIAL)
    lock = _locked(partial)
    try:
        with pa.OSFile(str(partial), "wb") as stream:
            yield stream
        os.fsync(lock)
        os.replace(partial, path)
        _sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    finally:
        os.close(lock)


def write_whole(path: Path, data: bytes) -> None:
    """Have ``data`` in a file. Raises as ``whole_file``."""
    with whole_file(path) as stream:
        stream.write(data)


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Keep other processes out of the same block for as long as it lasts; ``path`` is a file that stands for it, and goes with it.

    Raises ``BusyError`` if another process is in it.
    """
    lock = _locked(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(lock)


def _locked(path: Path) -> int:
    """Return a descriptor of a file that is ours as long as it is open. The file is made if it is not there, and not changed."""
    while True:
        found = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(found)
            raise BusyError(f"{path}: another process is at it") from None
        # The sequence that costs a finished file: it is opened under its partial name, its writer renames it and lets go of the
        # lock, and only then is it locked here. What is locked must still be what has the name.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(found), os.stat(path)):
                return found
        os.close(found)


def _sync_folder(path: Path) -> None:
    """Have the new name of a file on the disk, where the file system can do that."""
    folder = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(folder)
    finally:
        os.close(folder)
