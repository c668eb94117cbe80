"""Tables into one file, and into folders that another run goes on with."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402  # part of pyarrow

from kafka_async.adapters.export.exporting import STATE, Folder, Written, to_file, to_stream  # noqa: E402  # needs pyarrow
from kafka_async.adapters.export.forms import form_named  # noqa: E402  # needs pyarrow
from kafka_async.errors import DataLossError  # noqa: E402  # beside the others
from kafka_async.model import TopicPartition  # noqa: E402  # beside the others

SCHEMA = pa.schema([("id", pa.int64()), ("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64())])
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


Ranges = Mapping[TopicPartition, tuple[int, int]]


@define
class Log:
    """Partitions that have all offsets of some ranges but some; a table reads some of them."""

    found: dict[TopicPartition, tuple[int, int]]
    missing: frozenset[tuple[TopicPartition, int]] = frozenset()
    schema: Any = SCHEMA
    fails_at: int | None = None
    """The row at which reading fails, over all tables."""
    held_back: Mapping[TopicPartition, int] = {}
    read: int = 0
    opened: int = 0

    def begin(self) -> tuple[Any, dict[str, Any]]:
        return [[*partition, *range_] for partition, range_ in self.found.items()], {"kept": 1}

    def ranges(self, shaped: Any) -> Ranges:
        return {TopicPartition(topic, number): (start, end) for topic, number, start, end in shaped}

    def table(self, shaped: Any, kept: Mapping[str, Any], ranges: Ranges) -> "Read":
        assert self.ranges(shaped).keys() >= ranges.keys()
        assert kept == {"kept": 1}
        self.opened += 1
        return Read(self, ranges)


@define
class Read:
    log: Log
    ranges: Ranges

    @property
    def schema(self) -> Any:
        return self.log.schema

    @property
    def held_back(self) -> Mapping[TopicPartition, int]:
        return self.log.held_back

    async def __aiter__(self) -> AsyncIterator[Any]:
        # Offsets of all partitions in turn, two partitions in a batch.
        rows = sorted((offset, tp) for tp, (start, end) in self.ranges.items() for offset in range(start, end))
        rows = [(offset, tp) for offset, tp in rows if (tp, offset) not in self.log.missing]
        for at in range(0, len(rows), 3):
            some = rows[at : at + 3]
            self.log.read += len(some)
            if self.log.fails_at is not None and self.log.read > self.log.fails_at:
                raise ConnectionError("the broker is gone")
            columns = [
                [tp.partition * 1000 + offset for offset, tp in some],
                [tp.partition for _, tp in some],
                [each for each, _ in some],
            ]
            arrays = [pa.array(column, each.type) for column, each in zip(columns, self.log.schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.log.schema)


def folder(path: Path, *, notify: Callable[[str], None] = lambda text: None, **changed: Any) -> Folder:
    given: dict[str, Any] = {
        "path": path,
        "form": form_named("parquet"),
        "part_offsets": 10,
        "partition_column": "_kafka_partition",
        "drops_partition": False,
        "options": {"topic": "orders", "since": "beginning"},
        "notify": notify,
    }
    return Folder(**(given | changed))


def rows(path: Path) -> list[tuple[int, int]]:
    """Return partition and offset of every row in a folder."""
    tables = [pq.read_table(each) for each in sorted(path.glob("*.parquet"))]
    return [(row["_kafka_partition"], row["_kafka_offset"]) for table in tables for row in table.to_pylist()]


def files(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


ALL = [(0, offset) for offset in range(5, 26)] + [(1, offset) for offset in range(3)]


def log(**changed: Any) -> Log:
    return Log({A: (5, 26), B: (0, 3)}, **changed)


async def test_a_table_goes_into_one_file(tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    written = await to_file(Read(log(), log().found), path, form_named("parquet"))

    assert written == Written(24, path.stat().st_size)
    assert sorted(rows(tmp_path)) == ALL
    assert files(tmp_path) == ["orders.parquet"]


async def test_a_table_that_cannot_be_read_to_its_end_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        await to_file(Read(log(fails_at=10), log().found), tmp_path / "orders.csv", form_named("csv"))

    assert files(tmp_path) == []


@define
class Slow:
    """A stream whose writes wait for somebody."""

    begun: threading.Event = field(factory=threading.Event)
    over: threading.Event = field(factory=threading.Event)
    closed: bool = False

    def write(self, data: bytes) -> int:
        self.begun.set()
        assert self.over.wait(60)
        return len(data)

    def flush(self) -> None: ...


async def test_an_export_that_is_cancelled_while_it_writes_ends_after_the_write() -> None:
    """Its file would be closed, and the number of the file go to another, while the thread writes to it."""
    stream = Slow()
    work = asyncio.create_task(to_stream(Read(log(), log().found), pa.PythonFile(stream, "w"), form_named("ndjson")))
    await asyncio.to_thread(stream.begun.wait)
    work.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not work.done()

    stream.over.set()
    await asyncio.wait({work})
    assert work.cancelled()


async def test_readers_of_folders_find_the_parts_of_a_topic_whose_name_hides_files(tmp_path: Path) -> None:
    hidden = Log({TopicPartition("_orders", 0): (0, 25)})
    await folder(tmp_path).write(hidden)

    assert pq.read_table(tmp_path).num_rows == 25

    (tmp_path / STATE).unlink()
    with pytest.raises(ValueError, match=r"holds 'part-_orders-0-0{20}\.parquet' and is not a folder of an export"):
        await folder(tmp_path).write(hidden)


async def test_a_folder_with_parts_of_an_earlier_version_is_not_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "_orders-0-00000000000000000000.parquet").touch()
    with pytest.raises(ValueError, match=r"holds '_orders-0-0{20}\.parquet' and is not a folder of an export"):
        await folder(tmp_path).write(log())


async def test_what_a_killed_run_leaves_before_its_first_part_is_no_hindrance(tmp_path: Path) -> None:
    for name in ("_export.json.partial", "_export.lock"):
        (tmp_path / name).touch()
    await folder(tmp_path).write(log())

    assert rows(tmp_path) == ALL


async def test_a_folder_has_a_file_for_each_part_and_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    written = await folder(path).write(log())

    assert (written.rows, written.parts, written.left_out) == (24, 4, 0)
    assert rows(path) == ALL
    assert files(path) == [
        STATE, "orders-0-00000000000000000005.parquet", "orders-0-00000000000000000015.parquet",
        "orders-0-00000000000000000025.parquet", "orders-1-00000000000000000000.parquet",
    ]  # fmt: skip


async def test_a_part_of_which_some_is_held_back_is_left_to_another_run(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with pytest.raises(DataLossError, match="the ends of orders-0 are said to lie behind an open transaction"):
        await folder(path).write(log(held_back={A: 3}))

    assert files(path) == [STATE]
    assert (await folder(path).write(log())).rows == 24


async def test_another_run_goes_on_with_the_same_offsets(tmp_path: Path) -> None:
    said: list[str] = []
    for fails_at in (2, 17, 11, None):
        source = log(fails_at=fails_at)
        source.found[A] = (5, 26 if fails_at == 2 else 99)  # meanwhile there are more records
        try:
            written = await folder(tmp_path, notify=said.append, at_once=1).write(source)
        except ConnectionError:
            assert not [each for each in files(tmp_path) if each.endswith((".partial", ".lock"))]

    assert rows(tmp_path) == ALL
    assert (written.rows, written.parts, written.left_out) == (4, 2, 2)
    assert said[-1] == f"{tmp_path}: going on, 2 of 4 parts are there"


async def test_a_run_with_nothing_left_reads_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    await folder(tmp_path, notify=said.append).write(log())
    source = log()
    assert said == []

    assert await folder(tmp_path, notify=said.append).write(source) == Written(0, 0, 0, 4)
    assert source.opened == 0
    assert len(said) == 1
    assert said[0].endswith("for newer records give another folder, and --since 0:26,1:3")


async def test_parts_without_records_are_files_without_rows(tmp_path: Path) -> None:
    """Else they would be read again by each run."""
    await folder(tmp_path).write(log(missing=frozenset((A, offset) for offset in range(10, 26))))

    assert rows(tmp_path) == [(0, offset) for offset in range(5, 10)] + ALL[-3:]
    assert len(files(tmp_path)) == 5


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"options": {"topic": "orders", "since": "-1d"}},
            "was begun with since 'beginning', not since '-1d'; go on with the same",
        ),
        ({"options": {"topic": "orders"}}, "was begun with since 'beginning', not no since"),
        ({"options": {"topic": "orders", "since": "beginning", "values": "json"}}, "was begun with no values, not values 'json'"),
        ({"form": form_named("csv")}, "was begun with format 'parquet', not format 'csv'"),
        ({"part_offsets": 11}, "was begun with part-size 10, not part-size 11"),
    ],
)
async def test_other_options_are_refused(tmp_path: Path, changed: Mapping[str, Any], why: str) -> None:
    await folder(tmp_path).write(log())

    with pytest.raises(ValueError, match=f"^{tmp_path}: {why}"):
        await folder(tmp_path, **changed).write(log())


@pytest.mark.parametrize("values", ["avro", "protobuf", "text"])
async def test_a_folder_that_was_begun_with_a_zone_that_meant_nothing_goes_on_without_it(tmp_path: Path, values: str) -> None:
    """Now a zone is refused with such values, so nobody can give it again."""
    options = {"topic": "orders", "values": values}
    await folder(tmp_path, options={**options, "timezone": "Europe/Berlin"}).write(log())

    assert (await folder(tmp_path, options=options).write(log())).left_out == 4


async def test_the_zone_of_json_is_an_option_and_utc_is_as_none(tmp_path: Path) -> None:
    options = {"topic": "orders", "values": "json"}
    await folder(tmp_path, options={**options, "timezone": "UTC"}).write(log())

    assert (await folder(tmp_path, options=options).write(log())).parts == 0
    with pytest.raises(ValueError, match="was begun with no timezone, not timezone 'Europe/Berlin'"):
        await folder(tmp_path, options={**options, "timezone": "Europe/Berlin"}).write(log())


async def test_columns_that_are_others_now_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        await folder(tmp_path).write(log(fails_at=2))

    with pytest.raises(ValueError, match="was begun with other columns than the values have now"):
        await folder(tmp_path).write(log(schema=SCHEMA.set(0, pa.field("id", pa.int32()))))


async def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(ValueError, match=r"holds 'notes\.txt' and is not a folder of an export; give a new or an empty one"):
        await folder(tmp_path).write(log())
    assert files(tmp_path) == ["notes.txt"]


async def test_a_state_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text("{")

    with pytest.raises(ValueError, match=f"{STATE} is not what an export wrote"):
        await folder(tmp_path).write(log())


async def test_the_partition_may_be_a_column_that_nobody_asked_for(tmp_path: Path) -> None:
    await folder(tmp_path, drops_partition=True).write(log())

    assert [pq.read_schema(tmp_path / name).names for name in files(tmp_path)[1:]] == [["id", "_kafka_offset"]] * 4


async def test_what_is_written_has_no_secrets(tmp_path: Path) -> None:
    await folder(tmp_path).write(log())

    state = json.loads((tmp_path / STATE).read_text())
    assert state["options"] == {"topic": "orders", "since": "beginning", "version": 1, "format": "parquet", "part-size": 10}
