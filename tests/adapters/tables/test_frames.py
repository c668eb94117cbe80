"""What reads a scan: polars, DuckDB, pandas, pyarrow."""

from typing import Any

import pyarrow as pa
import pytest

from kafka_async.errors import DataLossError
from kafka_async.wire import Api

from .support import A0, A1, Scanned, filled

WHY = "it is in the extra 'test'"


@pytest.fixture(scope="module")
def many() -> Any:
    with filled(1000, partitions=2) as found:
        yield found


def streams(found: Scanned) -> int:
    """Return how many readings there were so far: each asks for the columns anew, and so begins with a session of its own."""
    return sum(logged.request.session_epoch == 0 for logged in found.cluster.requests(Api.FETCH))


# --- polars ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_polars_reads_all(many: Scanned) -> None:
    polars = pytest.importorskip("polars", reason=WHY)
    frame = many.scan("a").to_polars()
    assert frame.shape == (2000, 8)
    assert polars.DataFrame(many.scan("a")).sort("partition", "offset").equals(frame.sort("partition", "offset"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars_counts_rows_before_it_filters(many: Scanned, engine: Any) -> None:
    """polars believes a source about ``n_rows``: one that did not count, or that filtered first, would give other rows."""
    polars = pytest.importorskip("polars", reason=WHY)
    lazy, offset = many.scan("a", ordered=True).lazy(), polars.col("offset")

    def rows(query: Any) -> list[int]:
        found: list[int] = query.collect(engine=engine)["offset"].to_list()
        return found

    assert rows(lazy.head(5)) == [0, 1, 2, 3, 4]
    assert rows(lazy.head(5).filter(offset > 2)) == [3, 4]
    assert rows(lazy.filter(offset > 2).head(5)) == [3, 4, 5, 6, 7]
    assert rows(lazy.sort("offset", descending=True).head(3)) == [999, 999, 998]
    assert rows(lazy.head(0)) == []
    assert rows(lazy.slice(998, 3)) == [998, 999, 0]
    assert lazy.select(polars.len()).collect(engine=engine).item() == 2000
    numbered = lazy.with_row_index()
    assert numbered.select("index").collect(engine=engine)["index"].to_list() == list(range(2000)), "no column of ours is wanted"
    assert numbered.collect_schema().names()[0] == "index"
    assert numbered.select("index").head(5).collect(engine=engine).shape == (5, 1), "after polars has kept the columns it knows"
    joined = lazy.join(lazy, on=["partition", "offset"]).select(polars.len()).collect(engine=engine).item()
    assert joined == 2000


def test_polars_reads_only_the_columns_that_it_needs(many: Scanned) -> None:
    polars = pytest.importorskip("polars", reason=WHY)
    told: list[Any] = []
    lazy = many.scan("a", progress=told.append).lazy()
    frame = lazy.filter(polars.col("partition") == 1).select("offset").collect()
    assert (frame.columns, frame.height) == (["offset"], 1000)
    assert told[-1].bytes == 2000 * (4 + 8), "partition and offset were read"
    assert lazy.collect_schema().names() == many.scan("a").schema.names


def test_polars_stops_reading_once_it_has_enough(many: Scanned) -> None:
    pytest.importorskip("polars", reason=WHY)
    told: list[Any] = []
    # A batch is what has come by then: on a busy machine all that the buffer holds.
    little = {"fetch_max_bytes": 2000, "max_partition_fetch_bytes": 2000, "fetch_buffer_bytes": 4000}
    assert many.scan("a", progress=told.append, **little).lazy().head(5).collect().height == 5
    assert 5 <= told[-1].rows < 1000


def test_polars_keeps_the_class_of_an_error() -> None:
    polars = pytest.importorskip("polars", reason=WHY)
    with filled() as found:
        table = found.scan("a")
        assert table.ranges == {A0: (0, 100)}
        found.do(lambda cluster: cluster.delete_before(A0, 30))
        kept = int(polars.__version__.split(".")[0]) >= 2
        with pytest.raises(DataLossError if kept else polars.exceptions.ComputeError, match="a-0"):
            table.lazy().collect()
        assert isinstance(table.error, DataLossError)
        with pytest.raises(polars.exceptions.ComputeError, match="on_loss='skip'"):
            polars.DataFrame(table)
        assert isinstance(table.error, DataLossError)


async def test_polars_collects_in_a_running_loop(many: Scanned) -> None:
    pytest.importorskip("polars", reason=WHY)
    assert (await many.scan("a").lazy().select("offset").collect_async()).height == 2000


# --- DuckDB ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_duckdb_queries_a_scan(many: Scanned) -> None:
    duckdb = pytest.importorskip("duckdb", reason=WHY)
    table = many.scan("a")
    with duckdb.connect() as connection:
        connection.register("kafka", table)
        assert connection.sql('select count(*), sum("offset") from kafka').fetchall() == [(2000, 999_000)]
        assert len(connection.sql("select * from kafka limit 5").fetchall()) == 5
        same = 'select count(*) from kafka a join kafka b on a."offset" = b."offset" and a."partition" = b."partition"'
        assert connection.sql(same).fetchall() == [(2000,)]


def test_duckdb_opens_one_stream_for_a_query(many: Scanned) -> None:
    duckdb = pytest.importorskip("duckdb", reason=WHY)
    table = many.scan("a")
    assert table.ranges == {A0: (0, 1000), A1: (0, 1000)}
    with duckdb.connect() as connection:
        connection.register("kafka", table)
        before = streams(many)
        assert connection.sql("select count(*) from kafka").fetchall() == [(2000,)]
        assert streams(many) == before + 1


@pytest.mark.slow
def test_a_table_in_duckdb(many: Scanned) -> None:
    duckdb = pytest.importorskip("duckdb", reason=WHY)
    with many.scan("a").to_duckdb("kafka") as connection:
        assert connection.sql("select count(*) from kafka").fetchall() == [(2000,)]
    with duckdb.connect() as connection:
        assert many.scan("a").to_duckdb("kafka", connection) is connection
        assert connection.sql('select max("offset") from kafka').fetchall() == [(999,)]


def test_duckdb_has_the_text_of_an_error() -> None:
    duckdb = pytest.importorskip("duckdb", reason=WHY)
    with filled() as found, duckdb.connect() as connection:
        table = found.scan("a")
        assert table.ranges == {A0: (0, 100)}
        found.do(lambda cluster: cluster.delete_before(A0, 30))
        connection.register("kafka", table)
        with pytest.raises(duckdb.Error, match="on_loss='skip'"):
            connection.sql("select count(*) from kafka").fetchall()
        assert isinstance(table.error, DataLossError)


# --- pandas, pyarrow -------------------------------------------------------------------------------------------------------------


def test_pandas_has_columns_of_arrow(many: Scanned) -> None:
    pandas = pytest.importorskip("pandas", reason="PySpark brings it")
    frame = many.scan("a").to_pandas()
    assert frame.shape == (2000, 8)
    assert {type(kind) for kind in frame.dtypes} <= {pandas.ArrowDtype, pandas.CategoricalDtype}
    assert frame.groupby("partition")["offset"].max().to_dict() == {0: 999, 1: 999}


def test_pyarrow_reads_a_scan_by_its_capsules(many: Scanned) -> None:
    table = many.scan("a", ordered=True)
    assert pa.table(table).equals(table.to_arrow())
    assert pa.schema(table) == table.schema
    reader = pa.RecordBatchReader.from_stream(table)
    assert sum(batch.num_rows for batch in reader) == 2000
    assert table.to_arrow_batch_reader().read_all().num_rows == 2000
