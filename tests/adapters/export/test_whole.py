"""Files that are there whole or not at all, whatever ends the process that writes them."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from kafka_async.adapters.export.whole import BusyError, whole_file, write_whole  # needs pyarrow

WRITER = """
import sys, time, signal
from pathlib import Path
from kafka_async.adapters.export.whole import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
    file.write(b" and half")
"""


def _writer(path: Path) -> "subprocess.Popen[str]":
    """Start a process that has written half of a file, and goes on once its input ends."""
    process = subprocess.Popen(  # noqa: S603  # our own words
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def test_a_file_has_its_name_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    with whole_file(path) as file:
        file.write(b"one")
        assert [each.name for each in tmp_path.iterdir()] == ["orders.parquet.partial"]

    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("orders.parquet", b"one")]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, SystemExit])
def test_what_ends_the_writing_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "orders.parquet"
    write_whole(path, b"before")

    def fails() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fails()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("orders.parquet", b"before")]


def test_what_a_killed_process_has_left_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    write_whole(path, b"before")
    path.with_name("orders.parquet.partial").write_bytes(b"much longer than what comes")

    write_whole(path, b"after")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("orders.parquet", b"after")]


@pytest.mark.brokers
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_signals_leave_nothing_under_the_name(tmp_path: Path, number: int) -> None:
    path = tmp_path / "orders.parquet"
    with _writer(path) as process:
        process.send_signal(number)
        process.wait(10)

    assert not path.exists()
    write_whole(path, b"after")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("orders.parquet", b"after")]


@pytest.mark.brokers
def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    with _writer(path) as process:
        with pytest.raises(BusyError, match=r"orders\.parquet\.partial: another process is at it"):
            write_whole(path, b"second")
        process.communicate("")

    assert path.read_bytes() == b"half and half"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.brokers
def test_a_full_disk_is_an_error_and_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    write_whole(path, b"before")
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, {resource.RLIM_INFINITY}))
import pyarrow as pa
from pathlib import Path
from kafka_async.adapters.export.forms import form_of
from kafka_async.adapters.export.whole import whole_file
batch = pa.RecordBatch.from_arrays([pa.array(range(100_000))], names=["a"])
try:
    with whole_file(Path({str(path)!r})) as file, form_of({path.name!r}).open(file, batch.schema, group_bytes=1) as writer:
        for _ in range(100):
            writer.write(batch)
except OSError as error:
    print(type(error).__name__, error.errno)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # noqa: S603  # our own words

    assert (done.stdout, done.stderr) == ("OSError 27\n", "")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("orders.parquet", b"before")]


def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link", tmp_path):
        with pytest.raises(OSError, match="is no file, and cannot be replaced by one") as caught:
            write_whole(path, b"one")
        assert caught.value.filename == str(path)
    assert pipe.is_fifo()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_link_stays_and_leads_to_the_new_content(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    link = tmp_path / "newest.parquet"
    link.symlink_to("disk/orders.parquet")
    for data in (b"one", b"another"):
        write_whole(link, data)
        assert link.is_symlink()
        assert [(each.name, each.read_bytes()) for each in folder.iterdir()] == [("orders.parquet", data)]


def test_a_name_in_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=os.path.join("nowhere", "orders")):
        write_whole(tmp_path / "nowhere" / "orders.csv", b"")
