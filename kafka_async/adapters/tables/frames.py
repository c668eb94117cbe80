"""Tables of polars, pandas and DuckDB. Each is the user's own, and is imported when it is asked for."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...functions import signature_of

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars


def to_polars(table: Any) -> "polars.DataFrame":
    """Return an Arrow table as a polars DataFrame."""
    import polars

    frame = polars.from_arrow(table, rechunk=False)
    assert isinstance(frame, polars.DataFrame)  # noqa: S101 - of a table
    return frame


def to_pandas(table: Any) -> "pandas.DataFrame":
    """Return an Arrow table as a pandas DataFrame with Arrow's columns: objects for two million records take a gigabyte."""
    import pandas

    frame: pandas.DataFrame = table.to_pandas(types_mapper=pandas.ArrowDtype)
    return frame


def to_duckdb(table: Any, table_name: str, connection: Any) -> "duckdb.DuckDBPyConnection":
    """Register an Arrow table with DuckDB, and return the connection."""
    import duckdb

    connection = duckdb.connect() if connection is None else connection
    connection.register(table_name, table)
    found: duckdb.DuckDBPyConnection = connection
    return found


def lazy(schema: Callable[[], Any], read: Callable[[Sequence[str] | None], Iterator[Any]]) -> "polars.LazyFrame":
    """Return a LazyFrame over batches; ``read`` yields those of some columns (``None``: all; none: any, to count rows by).

    polars counts ``n_rows`` before it filters, and believes a source that says nothing: both are done here, in that order.
    """
    import polars
    from polars.io.plugins import register_io_source

    def frames(
        with_columns: list[str] | None, predicate: "polars.Expr | None", n_rows: int | None, batch_size: int | None
    ) -> "Iterator[polars.DataFrame]":
        names = with_columns
        if names is not None and predicate is not None:
            names = list(dict.fromkeys([*names, *predicate.meta.root_names()]))
        left = n_rows
        for batch in read(names) if left != 0 else ():
            frame = polars.from_arrow(batch)
            assert isinstance(frame, polars.DataFrame)  # noqa: S101 - of a batch
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            if with_columns is not None:  # of no columns as many rows are wanted: ``select`` would leave none
                frame = frame.select(with_columns) if with_columns else polars.DataFrame(height=frame.height)
            yield frame
            if left == 0:
                return

    def columns() -> "polars.Schema":
        return to_polars(schema().empty_table()).schema

    options: dict[str, Any] = {"is_pure": True} if "is_pure" in signature_of(register_io_source).parameters else {}
    try:
        return register_io_source(frames, schema=columns, **options)
    except TypeError:  # polars before 1.30 wants to know the columns now
        return register_io_source(frames, schema=columns(), **options)
