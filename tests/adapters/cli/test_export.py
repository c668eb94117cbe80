"""``kafka-async export``: topics as files and folders, whatever ends the process."""

import fcntl
import gzip
import json
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install '.[json]'")
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner, Result

from kafka_async.adapters.cli.commands import app
from kafka_async.testing import HANG, Api, Cluster
from kafka_async.testing.threaded import ThreadedCluster
from tests.adapters.values.registry_server import registry_server
from tests.integration.tools import wait_until

pytestmark = pytest.mark.brokers

MANY = 60_000
"""Records of the topic ``many``, in two partitions."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    """A cluster whose topic ``orders`` has nine values in JSON, of which number 7 is null and number 3 is bad."""

    def write(cluster: Cluster) -> None:
        cluster.topic("orders", 2)
        for number in range(9):
            value = b'{"id":%d,"at":"2026-01-02T03:04:05Z","note":null}' % number
            value_of = {7: None, 3: b'{"id":"three"}'}
            cluster.produce(
                "orders", value=value_of.get(number, value), key=b"k%d" % number, partition=number % 2, timestamp=1000 + number
            )
        cluster.topic("many", 2)
        for partition in range(2):
            cluster.produce_many("many", [b'{"id":%d}' % number for number in range(MANY // 2)], partition=partition)

    with ThreadedCluster(Cluster(1)) as cluster:
        cluster.call(write).result()
        yield cluster.bootstrap


def export(brokers: str, *arguments: object, topic: str = "orders") -> Result:
    return CliRunner().invoke(app, ["export", topic, "-b", brokers, *map(str, arguments)])


def files(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


SCHEMA = ("--values", "json", "--schema", "id BIGINT, at TIMESTAMP")


# --- one file --------------------------------------------------------------------------------------------------------------------


def test_a_topic_becomes_one_file_with_the_columns_of_its_records(brokers: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    result = export(brokers, "-o", path)

    assert result.exit_code == 0, result.stderr
    table = pq.read_table(path)
    assert table.schema.names == ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert sorted(table.column("key").to_pylist()) == [b"k%d" % number for number in range(9)]
    assert f"% 9 records ({path.stat().st_size / 1000:.1f} KB) in {path}\n" in result.stderr
    assert files(tmp_path) == ["orders.parquet"]


def test_values_become_the_fields_of_a_schema(brokers: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.arrow"
    result = export(brokers, "-o", path, *SCHEMA, "--on-bad", "skip", "-q")

    assert (result.exit_code, result.stderr) == (0, "")
    table = pa.ipc.open_file(path).read_all()
    assert table.schema.names == ["id", "at", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
    assert sorted(table.column("id").drop_null().to_pylist()) == [0, 1, 2, 4, 5, 6, 8]
    assert table.num_rows == 8


def test_a_bad_value_may_end_the_export_with_its_place_and_leaves_no_file(brokers: str, tmp_path: Path) -> None:
    result = export(brokers, "-o", tmp_path / "orders.parquet", *SCHEMA, "--on-bad", "raise")

    assert result.exit_code == 1
    assert (
        "kafka-async: orders-1 at offset 1: the value cannot be decoded: field 'id': expected BIGINT, found a string"
        in result.stderr
    )
    assert files(tmp_path) == []


def test_bad_values_have_a_column_of_their_own_and_are_counted(brokers: str, tmp_path: Path) -> None:
    result = export(brokers, "-o", "-", "--format", "ndjson", *SCHEMA, "--since", "1:1", "-p", 1, "--until", "1:2")

    assert json.loads(result.stdout) == {
        "id": None, "at": None, "_corrupt": '{"id":"three"}', "_corrupt_reason": "field 'id': expected BIGINT, found a string",
        "_kafka_partition": 1, "_kafka_offset": 1, "_kafka_timestamp": "1970-01-01T00:00:01.003Z",
    }  # fmt: skip
    for where in (tmp_path / "orders.csv", f"{tmp_path}/parts/"):
        assert ", 1 of them could not be decoded: _corrupt_reason says why" in export(brokers, "-o", where, *SCHEMA).stderr


def test_a_format_that_is_said_twice_is_packed_as_the_name_says(brokers: str, tmp_path: Path) -> None:
    for name, said in (("named.csv.gz", ()), ("chosen.csv.gz", ("--format", "csv"))):
        assert export(brokers, "-o", tmp_path / name, "-p", 0, "--columns", "offset", *said).exit_code == 0

    assert gzip.decompress((tmp_path / "chosen.csv.gz").read_bytes()) == gzip.decompress((tmp_path / "named.csv.gz").read_bytes())


def test_the_fields_of_json_are_found_if_none_are_named(brokers: str) -> None:
    result = export(brokers, "-o", "-", "--format", "csv", "--values", "json", "--until", "0:1,1:1")

    assert result.exit_code == 0
    head, *rows = result.stdout.splitlines()
    assert head == '"id","at","note","_corrupt","_corrupt_reason","_kafka_partition","_kafka_offset","_kafka_timestamp"'
    assert sorted(rows) == [
        "0,2026-01-02 03:04:05.000000Z,,,,0,0,1970-01-01 00:00:01.000Z",
        "1,2026-01-02 03:04:05.000000Z,,,,1,0,1970-01-01 00:00:01.001Z",
    ]
    assert "% --schema 'infer': field 'note' is always null: STRING" in result.stderr


def test_texts_and_columns_and_compression(brokers: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.ndjson.gz"
    options = ("--values", "text", "--columns", "_kafka_key, value", "--since", "0:0,1:99", "--until", "0:1")
    # In a process of its own: pyarrow complains at the file descriptor, and clients of other tests do so, too.
    alone = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-m", "kafka_async", "export", "orders", "-b", brokers, "-o", path, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.returncode == 1  # partition 1 does not go as far
    assert "1:99" not in alone.stderr
    assert "orders-1" in alone.stderr
    assert len(alone.stderr.splitlines()) == 1, "pyarrow has nothing to complain of"

    result = export(brokers, "-o", path, "--values", "text", "--columns", "_kafka_key, value", "-p", 0, "--until", "0:1")
    assert result.exit_code == 0, result.stderr
    assert (
        gzip.decompress(path.read_bytes())
        == b'{"_kafka_key":"k0","value":"{\\"id\\":0,\\"at\\":\\"2026-01-02T03:04:05Z\\",\\"note\\":null}"}\n'
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-o", "orders.txt"], "'orders.txt': expected a name that ends in .parquet, .arrow, .csv, .ndjson, or in / for a folder"),
        (["-o", "-"], "-o - needs --format"),
        (["-o", "o.csv", "--since", "5"], "--since '5': a number could be an offset or a time"),
        (["-o", "o.csv", "--since", "nope"], "--since 'nope': expected 'beginning'"),
        (["-o", "o.csv", "-p", "0", "--until", "1:3"], "--until: orders-1: not among the partitions that are read, orders-0"),
        (["-o", "o.csv.gz", "--format", "ndjson"], "'o.csv.gz' is the name of a file of the format csv, not ndjson"),
        (["-o", "o.csv", "--format", "xls"], "'xls': expected one of parquet, arrow, csv, ndjson"),
        (["-o", "o.csv", "--values", "jsn"], "did you mean 'json'?"),
        (["-o", "o.csv", "--schema", "id INT"], "--schema needs --values"),
        (["-o", "o.csv", "--on-bad", "skip"], "--on-bad needs --values"),
        (["-o", "o.csv", "--values", "json", "--schema", "id IT"], "'IT' is not a supported type"),
        (["-o", "o.csv", "--values", "text", "--timezone", "+02:00"], "--timezone has no meaning with --values 'text'"),
        (["-o", "o.csv", "--timezone", "+02:00"], "--timezone needs --values"),
        (["-o", "o.csv", "--values", "json", "--timezone", "Nowhere/Land"], "--timezone 'Nowhere/Land': expected a name such as"),
        (["-o", "o.csv", "--part-size", "5"], "--part-size is for folders: end the name with /"),
        (["-o", "o.csv", "--registry-option", "a=b"], "--registry-option needs -r"),
        (["-o", "o.csv", "-X", "group.id=g"], "group_id: an export joins no group and commits nothing"),
        (["-o", "o.csv", "--columns", "nothing"], "--columns: 'nothing' is not one of"),
        (["-o", "o.csv", "--columns", "ofset"], "headers; did you mean 'offset'?"),
        (["-o", "o.csv", "-p", "0;1"], "-p '0;1': expected a partition such as 0, or several as in 0,1"),
        (["-o", "o.csv", "--on-loss", "pass"], "--on-loss 'pass': expected 'raise' or 'skip'"),
        (["-o", "o.csv", "--late", "5"], "--late"),
        (["-o", "o.csv", "--values", "protobuf", "--schema", "x"], "--schema needs --message, the full name of the message"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(arguments: list[str], why: str) -> None:
    result = export("127.0.0.1:1", *arguments)

    assert result.exit_code == 2
    assert why in " ".join(result.stderr.replace("│", " ").split())


def test_a_topic_that_is_not_there_is_one_line(brokers: str, tmp_path: Path) -> None:
    result = export(brokers, "-o", tmp_path / "o.csv", topic="order")

    assert result.exit_code == 1
    assert "kafka-async: topic 'order' does not exist; did you mean 'orders'?" in result.stderr
    assert files(tmp_path) == []


def test_options_for_other_programs_in_a_file_do_no_harm(brokers: str, tmp_path: Path) -> None:
    options = tmp_path / "client.properties"
    options.write_text(f"bootstrap.servers={brokers}\ngroup.id=billing\nauto.offset.reset=latest\n")
    result = CliRunner().invoke(app, ["export", "orders", "-F", str(options), "-o", str(tmp_path / "o.csv")])

    assert result.exit_code == 0, result.stderr


# --- folders -------------------------------------------------------------------------------------------------------------------


def rows(path: Path) -> list[tuple[int, int]]:
    tables = [pq.read_table(each) for each in sorted(path.glob("*.parquet"))]
    return sorted(
        (row["partition"], row["offset"]) for table in tables for row in table.select(["partition", "offset"]).to_pylist()
    )


def test_a_folder_has_parts_and_another_run_has_nothing_to_do(brokers: str, tmp_path: Path) -> None:
    path = tmp_path / "parts"
    first = export(brokers, "-o", f"{path}/", "--part-size", 3)
    second = export(brokers, "-o", f"{path}/", "--part-size", 3)

    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr
    assert len(files(path)) == 5
    assert rows(path) == sorted((number % 2, number // 2) for number in range(9))
    assert "% 0 records, 4 parts were there before in" in second.stderr
    assert "earlier run" not in first.stderr
    since = "0:5,1:4"
    more = f"for newer records give another folder, and --since {since}\n"
    assert f"% {path}: an earlier run completed it, up to the offsets that it found; {more}" in second.stderr
    assert "% 0 records in" in export(brokers, "-o", f"{tmp_path}/more/", "--since", since).stderr


def test_several_processes_write_the_same_records(brokers: str, tmp_path: Path) -> None:
    one = subprocess.run(command(brokers, f"{tmp_path}/one/"), check=True)  # noqa: S603  # our own program
    two = subprocess.run(  # noqa: S603  # our own program
        command(brokers, f"{tmp_path}/two/", "--processes", "2", "--values", "json", "--columns", "partition,offset,id"), check=True
    )

    assert (one.returncode, two.returncode) == (0, 0)
    assert rows(tmp_path / "two") == rows(tmp_path / "one")
    assert len(rows(tmp_path / "two")) == MANY


def test_a_folder_with_inferred_fields_keeps_them(brokers: str, tmp_path: Path) -> None:
    path = tmp_path / "parts"
    arguments = ("-o", f"{path}/", "--values", "json", "--on-bad", "skip", "--columns", "id,offset", "--part-size", 3)
    result = export(brokers, *arguments)
    assert result.exit_code == 0, result.stderr
    (path / "orders-1-00000000000000000000.parquet").unlink()
    assert export(brokers, *arguments).exit_code == 0

    found = [pq.read_table(each) for each in sorted(path.glob("*.parquet"))]
    assert {tuple(each.schema.names) for each in found} == {("id", "offset")}
    assert sum(each.num_rows for each in found) == 9  # id is text: there is a number in some values and a text in one


@pytest.mark.parametrize("values", ["avro", "json"])
def test_a_folder_goes_on_with_the_schema_that_it_began_with(tmp_path: Path, values: str) -> None:
    pytest.importorskip("fastavro")
    kind = "string" if values == "avro" else {"type": "string"}
    old, new = (_schema_of(values, dict.fromkeys(names, kind)) for names in (("note",), ("note", "more")))
    version = "/subjects/orders-value/versions"
    more = {"schemaType": values.upper()} if values == "json" else {}
    frame = b"\0\0\0\0\1" + (b"\x02x" if values == "avro" else b'{"note":"x"}')

    def write(cluster: Cluster) -> None:
        cluster.topic("orders", 1)
        cluster.produce_many("orders", [frame] * 6, partition=0)

    with ThreadedCluster(Cluster(1)) as cluster, registry_server() as registry:
        cluster.call(write).result()
        for path in ("/schemas/ids/1", f"{version}/latest", f"{version}/1"):
            registry.put(path, old, id=1, version=1, **more)
        folder = ("-o", f"{tmp_path}/parts/", "--part-size", 3, "--values", values, "-r", registry.url)
        first = export(cluster.bootstrap, *folder)
        assert first.exit_code == 0, first.stderr
        (tmp_path / "parts" / "orders-0-00000000000000000003.parquet").unlink()
        registry.put(f"{version}/latest", new, id=2, version=2, **more)
        again = export(cluster.bootstrap, *folder)

    assert again.exit_code == 0, again.stderr
    found = [pq.read_table(each) for each in sorted((tmp_path / "parts").glob("*.parquet"))]
    assert [table.column("note").to_pylist() for table in found] == [["x"] * 3] * 2
    assert all("more" not in table.schema.names for table in found)


def _schema_of(values: str, fields: dict[str, Any]) -> Any:
    if values == "json":
        return {"type": "object", "properties": fields}
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind, "default": ""} for name, kind in fields.items()],
    }


def test_other_options_are_refused(brokers: str, tmp_path: Path) -> None:
    export(brokers, "-o", f"{tmp_path}/parts/")
    result = export(brokers, "-o", f"{tmp_path}/parts", "--since", "-1d")

    assert result.exit_code == 1
    assert "was begun with since 'beginning', not since '-1d'; go on with the same options, or give another folder" in result.stderr


@pytest.mark.parametrize("values", [(), ("--values", "text"), SCHEMA], ids=lambda values: values[1] if values else "bytes")
def test_the_zone_that_times_are_in_anyway_is_no_other_option(brokers: str, tmp_path: Path, values: tuple[str, ...]) -> None:
    begun = export(brokers, "-o", f"{tmp_path}/parts/", *values)
    same = export(brokers, "-o", f"{tmp_path}/parts/", *values, "--timezone", "UTC")

    assert (begun.exit_code, same.exit_code) == (0, 0), same.output


def test_another_run_does_not_go_on_with_another_topic_of_the_name_or_with_what_is_gone(tmp_path: Path) -> None:
    def write(cluster: Cluster) -> None:
        cluster.topic("orders", 1)
        cluster.produce_many("orders", [b"x"] * 10, partition=0)

    with ThreadedCluster(Cluster(1)) as cluster:
        cluster.call(write).result()
        folder = ("-o", f"{tmp_path}/parts/", "--part-size", 4)
        assert export(cluster.bootstrap, *folder).exit_code == 0
        first = tmp_path / "parts" / "orders-0-00000000000000000000.parquet"
        first.unlink()
        cluster.call(lambda brokers: brokers.delete_before(("orders", 0), 3)).result()
        gone = export(cluster.bootstrap, *folder)
        cluster.call(lambda brokers: brokers.recreate("orders")).result()
        cluster.call(lambda brokers: brokers.produce_many("orders", [b"y"] * 10, partition=0)).result()
        other = export(cluster.bootstrap, *folder)

    assert (gone.exit_code, other.exit_code) == (1, 1)
    assert "offsets 0 to 2 of orders-0 are gone: its log begins at 3" in gone.stderr
    assert "topic 'orders' was deleted and created again since its offsets were pinned" in other.stderr
    assert not first.exists()


# --- what ends the process -------------------------------------------------------------------------------------------------------


def command(brokers: str, out: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "kafka_async", "export", "many", "-b", brokers, "-o", out, "-q", *arguments]


@contextmanager
def running(*line: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603  # our own program
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["kill -9", "SIGTERM", "Ctrl-C"])
def test_an_export_that_was_ended_goes_on_where_it_was(brokers: str, tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "parts"
    line = command(brokers, f"{path}/", "--part-size", "2000")
    with running(*line) as process:
        wait_until(lambda: len(list(path.glob("*.parquet"))) > 4)
        process.send_signal(number)
        assert process.wait(20) == (-9 if number == signal.SIGKILL else 128 + number)
        assert process.stderr is not None
        assert process.stderr.read() == ""
    there = {each: each.stat().st_mtime_ns for each in path.glob("*.parquet")}
    assert 4 < len(there) < MANY // 2000
    assert all(pq.read_metadata(each).num_rows == 2000 for each in there)
    if number != signal.SIGKILL:
        assert not [name for name in files(path) if name.endswith((".partial", ".lock"))]

    done = subprocess.run(line, capture_output=True, text=True)  # noqa: S603  # our own program
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(path) == [(partition, offset) for partition in range(2) for offset in range(MANY // 2)]
    assert all(each.stat().st_mtime_ns == at for each, at in there.items())
    assert len(files(path)) == MANY // 2000 + 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["kill -9", "SIGTERM", "Ctrl-C"])
def test_one_file_that_was_ended_is_not_there(brokers: str, tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "many.ndjson"
    path.write_text("before")
    with running(*command(brokers, str(path))) as process:
        partial = tmp_path / "many.ndjson.partial"
        wait_until(lambda: partial.exists() and partial.stat().st_size > 0)
        process.send_signal(number)
        assert process.wait(20) == (-9 if number == signal.SIGKILL else 128 + number)
    assert path.read_text() == "before"

    assert subprocess.run(command(brokers, str(path)), check=True).returncode == 0  # noqa: S603  # our own program
    assert path.read_bytes().count(b"\n") == MANY
    assert files(tmp_path) == ["many.ndjson"]


def test_a_full_disk_is_one_line_and_leaves_no_file(brokers: str, tmp_path: Path) -> None:
    limited = ["prlimit", "--fsize=50000", *command(brokers, str(tmp_path / "many.ndjson"))]
    done = subprocess.run(limited, capture_output=True, text=True)  # noqa: S603  # our own program

    assert done.returncode == 1
    assert done.stderr.startswith("kafka-async: ")
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert files(tmp_path) == []


def test_a_reader_that_goes_away_ends_it_without_a_word(brokers: str) -> None:
    with running(*command(brokers, "-", "--format", "ndjson")) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["offset"] == 0
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["SIGTERM", "Ctrl-C", "SIGHUP"])
def test_an_export_that_nobody_reads_can_be_ended(brokers: str, number: signal.Signals) -> None:
    with running(*command(brokers, "-", "--format", "ndjson")) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        pipe = process.stdout.fileno()
        room = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - 4096  # the last page may not be full
        wait_until(lambda: int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder) >= room)
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert process.stderr.read() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["SIGTERM", "Ctrl-C", "SIGHUP"])
@pytest.mark.parametrize("arguments", [("parts/",), ("o.parquet", "--values", "json")], ids=["ranges", "fields"])
def test_an_export_that_waits_for_offsets_can_be_ended(tmp_path: Path, number: signal.Signals, arguments: tuple[str, ...]) -> None:
    asked = threading.Event()

    def hang(_broker: int, _request: object) -> object:
        asked.set()
        return HANG

    def write(cluster: Cluster) -> None:
        cluster.topic("many")
        cluster.control(Api.LIST_OFFSETS, hang, keep=True)

    out, *more = arguments
    with ThreadedCluster(Cluster(1)) as cluster:
        cluster.call(write).result()
        with running(*command(cluster.bootstrap, f"{tmp_path}/{out}", *more)) as process:
            assert process.stderr is not None
            wait_until(asked.is_set)
            process.send_signal(number)
            assert process.wait(20) == 128 + number
            assert process.stderr.read() == ""
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


def test_memory_does_not_grow_with_the_topic(brokers: str, tmp_path: Path) -> None:
    """What is fetched ahead and a row group are all that is held: here less than a tenth of what the topic has."""

    def peak(out: Path, *arguments: str) -> int:
        # Linux carries ``ru_maxrss`` over from the parent at ``exec``, so a child of a large parent would always look large.
        code = "import sys; from kafka_async.adapters.cli.main import main\ntry: main()\nexcept SystemExit: pass\n"
        code += "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM:')))"
        line = [sys.executable, "-c", code, *command(brokers, str(out), *arguments)[3:]]
        return int(subprocess.run(line, capture_output=True, text=True, check=True).stdout)  # noqa: S603  # our own program

    few = peak(tmp_path / "few.ndjson", "--until", "0:100,1:100")
    assert peak(tmp_path / "many.ndjson") - few < 60_000  # KiB


def test_help_imports_neither_arrow_nor_scans() -> None:
    code = (
        "import sys; from kafka_async.adapters.cli.commands import app\n"
        "try: app(['export', '--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('pyarrow', 'kafka_async.adapters.tables', 'kafka_async.adapters.export') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  # our own words

    assert done.stdout.splitlines()[-1] == "[]"
