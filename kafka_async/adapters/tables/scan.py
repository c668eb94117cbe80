"""A range of a topic as a table.

A ``Scan`` is a description: it asks the cluster nothing until it is used, and then once, so that every reading of it sees the same
records. Each reading has a consumer of its own, which joins no group and commits nothing.
"""

import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Unpack

import anyio
import pyarrow as pa

from ...config import ConsumerConfig
from ...config.consumer_config import NAMES
from ...config.spelling import did_you_mean, nearest
from ...errors import KafkaConfigurationError
from ...functions import check_plain, signature_of
from ...model import IsolationLevel, TopicPartition
from ...trace import counted
from ...values import define, evolve, field, frozen
from ..ranges.offsets import names_of
from ..ranges.planner import OffsetRange, plan
from . import frames
from .forms import ValueForm
from .layout import TableLayout, check_columns, layout_of
from .moments import check_order, moment, partition_of, span
from .pinning import Asked, Pinned, PinnedRanges, Pinning, topics_of
from .progress import Counter, ScanProgress, for_people
from .sampling import first_values
from .streams import STOP_MS, Job, Opened, Stretch, read

if TYPE_CHECKING:
    from datetime import date, timedelta

    import duckdb
    import pandas
    import polars
    import pyarrow

    from ...config import ConsumerOptions
    from ..sync import KafkaConsumer
    from .estimate import ScanPlan

Since: TypeAlias = "str | date | timedelta | Mapping[Any, int]"
Progress: TypeAlias = "bool | Callable[[ScanProgress], object] | None"
_DEFAULTS: Final = {
    "client_id": "kafka-async-scan",
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,
    "enable_metrics_push": False,  # telemetry is for programs that stay
    "max_partition_fetch_bytes": 8 << 20,  # few partitions are read to their ends: the fixed cost of a fetch nearly disappears
}
_FORCED: Final = {"auto_offset_reset": "none", "enable_auto_commit": False}
_REFUSED: Final = {
    "group_id": "a scan joins no group; since='committed:GROUP' begins where a group has committed",
    "group_instance_id": "a scan joins no group",
    "key_deserializer": "keys stay bytes",
    "value_deserializer": "values='json' and others turn values into columns",
    **dict.fromkeys(("auto_offset_reset", "enable_auto_commit"), "a scan reads exactly its ranges, and commits nothing"),
}
_PARTS: Final = 4
"""Parts of a scan for each process, so that none waits long for the others in the end."""
_LEAST_PART: Final = 100_000
"""Offsets of a part at least, unless there are processes without one."""
_log = logging.getLogger("kafka_async.scan")


def scan(
    *topics: str,
    since: Since = "beginning",
    until: Since = "now",
    late: "timedelta | str" = "0s",
    partitions: Sequence[int | tuple[str, int]] | None = None,
    ranges: Mapping[TopicPartition, tuple[int, int]] | None = None,
    values: Literal["json", "avro", "protobuf", "text"] | None = None,
    schema: Any = None,
    registry: "str | Mapping[str, str | int] | None" = None,
    message: str | None = None,
    timezone: str | None = None,
    columns: Sequence[str] | None = None,
    ordered: bool = False,
    processes: int | None = 1,
    on_bad: Literal["column", "null", "skip", "raise"] = "column",
    on_loss: Literal["raise", "skip"] = "raise",
    progress: Progress = None,
    **options: "Unpack[ConsumerOptions[bytes, bytes]]",
) -> "Scan":
    """Return the records of ``topics`` from ``since`` up to, and without, ``until`` as a table (extra ``arrow``).

    Nothing is asked of the cluster until the table is used. Then the offsets are found once, and stay: every use reads the same
    records. No group is joined, and nothing is committed.

    - ``since``, ``until``: ``"beginning"``; ``"now"`` or ``"end"``, where the log ends at the first use; a ``datetime`` (UTC if it
      has no zone), a ``date``, or either in ISO 8601 as a text; a ``timedelta`` or a text such as ``"-1h"``, ``"-90m"``, that long
      before now; ``{partition: offset}``, where others that are read are read from the beginning, and to the end;
      ``"committed:GROUP"``, what a group has committed. A bare number is a ``TypeError``: it could be an offset or a time.
    - Times are those in the records, which producers set, and which need not be in order. Nothing is missed at ``since``: reading
      begins at the first record that is not older, and older ones behind it are left out. Reading ends at the first record that is
      not before ``until``, so that earlier ones behind that are missed; ``late="10m"`` looks for them among the records before
      ``until`` plus ten minutes. Topics with ``message.timestamp.type=LogAppendTime`` have all times in order.
    - ``partitions``: only these; numbers if there is one topic.
    - ``ranges``: the ``ranges`` of another scan: the same records again; ``since`` and ``until`` are then not given. Any mapping
      of partitions to ``(start, end)`` will do.
    - ``values``: turn values into columns. The table then has the fields of the values, and ``_kafka_partition``,
      ``_kafka_offset`` and ``_kafka_timestamp`` (with several topics also ``_kafka_topic``). ``"text"`` is one field ``value``.
    - ``schema``: for JSON the fields, as a ``pyarrow.Schema`` (or polars' schema), in Spark's DDL (``"id BIGINT, at TIMESTAMP"``),
      or ``"infer"``: they are found in the first ten thousand values, or 64 MiB of them. For Avro and Protobuf see ``registry``,
      ``message`` and ``kafka_async.adapters.values.typed.decoder``. ``timezone``: of times in JSON that name none;
      ``UTC`` unless it is given.
    - ``registry``: the URL of a schema registry for JSON, Avro and Protobuf, or a mapping of its options.
    - ``on_bad``: what becomes of values that cannot be decoded. ``"column"``: the fields that cannot be read are null (in JSON the
      others are kept; in Avro and Protobuf all are null), their bytes are in ``_corrupt``, and why in ``_corrupt_reason``.
      ``"null"``: the same without these columns, so bad values cannot be told from good ones. ``"skip"``: such records are left
      out. ``"raise"``: ``DeserializationError`` with topic, partition and offset. Records without a value have null in every field.
    - ``columns``: those that are wanted, in order; others cost nothing. Besides the fields of values, every column of ``getarrow``
      is there by its name, and by that name with ``_kafka_`` before it. Default without ``values``: all of ``getarrow``.
    - ``ordered``: partition after partition, each by offset. Otherwise batches come as brokers send them, those of a partition in
      order unless there are several ``processes``.
    - ``processes``: how many processes read; ``None``: as many as this one has processors. They share the ranges, and hand over
      batches without copying them; those of a partition are then in no order, since several may read it. They take 0.5 s to start,
      which pays off if there is much to read or decoding is costly.
    - ``on_loss``: ``"skip"`` goes on where offsets are gone (deleted by retention, or with their topic) and logs what is missing,
      also in ``losses``; with ``"raise"`` they are a ``DataLossError``.
    - ``progress``: ``True`` shows how far reading is, ``False`` does not; a function is called with ``ScanProgress`` ten times a
      second, in the thread that reads. Default: shown after half a second by the methods that read all, on a terminal or in a
      notebook.
    - ``options``: those of ``KafkaConsumer``, such as ``bootstrap_servers``. ``isolation_level`` is ``read_committed``, unlike a
      consumer's: what lies behind a transaction that is still open is left out, with a warning that says how much.

    Raises ``KafkaConfigurationError`` and ``TypeError`` for what makes no sense. What is raised at the first use is in the methods
    of ``Scan``.
    """
    given = {"values": values, "schema": schema, "registry": registry, "message": message, "timezone": timezone, "on_bad": on_bad}
    form = ValueForm(**given)
    form.check()
    if on_loss not in ("raise", "skip"):
        raise KafkaConfigurationError(
            f"on_loss={on_loss!r}: expected 'raise' or 'skip'{did_you_mean(str(on_loss), ('raise', 'skip'))}"
        )
    if not (progress is None or isinstance(progress, bool)):
        check_plain(progress, "progress", "True, False or a function of a ScanProgress", 1)
    asked = _asked(topics, since, until, late, partitions, ranges)
    consumer = _consumer_options(options)
    isolation = ConsumerConfig.from_options(consumer).isolation_level
    asked = evolve(asked, fails=on_loss == "raise", committed_only=isolation is IsolationLevel.READ_COMMITTED)
    names = check_columns(columns)
    request = ScanRequest(
        asked=asked,
        form=form,
        options=consumer,
        columns=names,
        ordered=ordered,
        progress=progress,
        processes=_processes(processes, ordered),
    )
    if request.columns is not None and values is None:
        layout_of(asked.topics, None, request.columns)
    return Scan(request)


def _asked(
    topics: Sequence[str], since: Any, until: Any, late: Any, partitions: Sequence[Any] | None, ranges: Mapping[Any, Any] | None
) -> Asked:
    for name in topics:
        if not isinstance(name, str) or not name:
            raise TypeError(f"topics: {name!r} is no name; several topics are given one after the other: scan('a', 'b')")
    if ranges is not None:
        pinned = ranges if isinstance(ranges, PinnedRanges) else PinnedRanges(_checked(ranges))
        named = topics_of(pinned, topics)
        if extra := [topic for topic in topics if topic not in named]:
            raise KafkaConfigurationError(f"ranges: there is none of topic {extra[0]!r}")
        if (since, until, partitions) != ("beginning", "now", None):
            raise KafkaConfigurationError("ranges say what is read: since, until and partitions cannot be given beside them")
    else:
        pinned, named = None, tuple(dict.fromkeys(topics))
        if not named:
            raise TypeError("scan() needs the name of a topic, or ranges")
    if partitions is not None and not len(partitions):
        raise KafkaConfigurationError("partitions: there are none; leave it out to read all")
    chosen = tuple(sorted({partition_of("partitions", each, named) for each in partitions or ()}))
    begin, end = moment("since", since, named), moment("until", until, named)
    check_order(begin, end)
    for where in (begin, end) if chosen else ():
        # One map may go to each of some scans, with other partitions. But where it lacks one that is read, that is read whole, and
        # an offset without effect was probably meant for it.
        if (others := sorted(where.offsets.keys() - set(chosen))) and not where.offsets.keys() >= set(chosen):
            text = f"{where.option}: {names_of(others)}: not among the partitions that are read, {names_of(chosen)}"
            raise KafkaConfigurationError(text)
    return Asked(topics=named, partitions=chosen, since=begin, until=end, late=span("late", late), ranges=pinned)


def _checked(ranges: Mapping[Any, Any]) -> dict[TopicPartition, tuple[int, int]]:
    found = {}
    for partition, range_ in ranges.items():
        match partition, range_:
            case (str() as topic, int() as number), (int() as start, int() as end) if 0 <= start <= end and number >= 0:
                found[TopicPartition(topic, number)] = (start, end)
            case _:
                raise KafkaConfigurationError(f"ranges: {partition!r}: {range_!r}; expected TopicPartition: (start, end)")
    if not found:
        raise KafkaConfigurationError("ranges: there are none")
    return found


def _processes(given: int | None, ordered: bool) -> int:
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
        raise KafkaConfigurationError(f"processes={given!r}: expected a number, 1 or more, or None for all processors")
    if ordered and given != 1:
        raise KafkaConfigurationError("ordered: one process reads partition after partition; leave processes out")
    return len(os.sched_getaffinity(0)) if given is None else given


def _consumer_options(given: Mapping[str, Any]) -> dict[str, Any]:
    for name, why in _REFUSED.items():
        if name in given:
            raise KafkaConfigurationError(f"{name}: {why}")
    for name in given.keys() - NAMES:  # a mistyped argument of ``scan`` arrives among the options
        arguments = (each.name for each in signature_of(scan).parameters.values() if each.kind is each.KEYWORD_ONLY)
        if (near := nearest(name, arguments)) is not None:
            raise TypeError(f"unknown option {name!r}; did you mean {near!r}?")
    return _DEFAULTS | dict(given) | _FORCED


@frozen(kw_only=True)
class ScanRequest:
    """What a scan was asked for."""

    asked: Asked
    form: ValueForm
    options: Mapping[str, Any] = field(repr=False)
    columns: tuple[str, ...] | None
    ordered: bool
    progress: Any
    processes: int = 1


@define(eq=False)
class Reading:
    """One reading of a scan that is under way, as an iterator over record batches."""

    opened: Opened
    batches: Generator[Any]
    over: threading.Event

    def __iter__(self) -> Iterator[Any]:
        return self.batches

    def close(self) -> None:
        """End it, from any thread; what it has opened is gone then, other processes among it."""
        self.opened.close()
        try:
            self.batches.close()
        except ValueError:  # another thread is within: it finds everything stopped, and leaves
            self.over.wait(STOP_MS / 1000)


@define(eq=False)
class Scan:
    """Records of topics as a table; made by ``kafka_async.scan``.

    ``pa.table(scan)``, ``pl.DataFrame(scan)``, ``duckdb.sql("from scan")`` and everything else that takes Arrow's PyCapsule
    streams read it batch by batch. ``for batch in scan`` yields ``pyarrow.RecordBatch``, and so does ``async for``; leaving the
    loop early closes the connections.

    The first use may raise ``UnknownTopicOrPartitionError``, ``KafkaTimeoutError``, ``NoOffsetForPartitionError`` for a group that
    has committed nothing, and ``OffsetOutOfRangeError`` for offsets that are not in the log yet. Every use may raise
    ``DataLossError`` for offsets that are gone, ``KafkaTimeoutError`` and ``CorruptRecordException``.
    """

    _request: ScanRequest
    error: BaseException | None = field(default=None, init=False)
    """Why the last Arrow stream, or query of polars, ended early: the error of what reads it may have only the text of this one."""
    _pinned: Pinned | None = field(default=None, init=False, repr=False)
    _layout: TableLayout | None = field(default=None, init=False, repr=False)
    _losses: list[str] = field(factory=list, init=False, repr=False)
    _pinning: threading.RLock = field(factory=threading.RLock, init=False, repr=False)

    def __repr__(self) -> str:
        topics, pinned = ", ".join(self._request.asked.topics), self._pinned
        if pinned is None:
            return f"<scan of {topics}, not used yet>"
        pieces = pinned.pieces()
        offsets = counted(sum(piece.size for piece in pieces), "offset")
        return f"<scan of {topics}: {offsets} of {counted(len(pieces), 'partition')}>"

    # --- what is read ----------------------------------------------------------------------------------------------------------

    @property
    def ranges(self) -> PinnedRanges:
        """The first offset of each partition that is read, and the one after the last. Found at the first use, and then fixed.

        ``kafka_async.scan(ranges=scan.ranges, ...)`` with the same options reads the same records. ``ranges.topic_ids`` has the ids
        of the topics, and ``ranges.as_json()`` all of it.
        """
        return self._pin(Opened()).ranges

    @property
    def held_back(self) -> Mapping[TopicPartition, int]:
        """How many offsets lie behind a transaction that is still open, and are left out, by partition."""
        return self._pin(Opened()).held_back

    @property
    def losses(self) -> Sequence[str]:
        """With ``on_loss="skip"``, what was gone in the readings so far."""
        return (*(self._pinned.losses if self._pinned is not None else ()), *dict.fromkeys(self._losses))

    @property
    def schema(self) -> "pyarrow.Schema":
        """The columns, as a ``pyarrow.Schema``."""
        return self._columns(Opened()).schema

    @property
    def schema_version(self) -> int | None:
        """The version of the registry's schema that names the fields of values; ``None`` if none does.

        Another scan reads with the same one if it gets the registry's option ``version``.
        """
        decoder = self._columns(Opened()).decoder
        return None if decoder is None else decoder.version

    def refresh(self) -> "Scan":
        """Return a scan with the same arguments, which looks up the offsets again."""
        return Scan(self._request)

    def plan(self) -> "ScanPlan":
        """Return what will be read: ranges, bytes and about how long it takes, from a sample of the records."""
        from .estimate import estimate

        with closing(Opened()) as opened:
            return estimate(self._job(opened), self._pin(opened), opened)

    # --- all of it -------------------------------------------------------------------------------------------------------------

    def to_arrow(self) -> "pyarrow.Table":
        """Return all records as a ``pyarrow.Table``."""
        with closing(self._read(shows=True)) as reading:
            return pa.Table.from_batches(list(reading), schema=self.schema)

    def to_arrow_batch_reader(self) -> "pyarrow.RecordBatchReader":
        """Return a ``pyarrow.RecordBatchReader``, which reads on as it is read."""
        return pa.RecordBatchReader.from_batches(self.schema, self._keeping_error(lambda layout: layout))

    def to_polars(self) -> "polars.DataFrame":
        """Return all records as a polars DataFrame, without copying them."""
        return frames.to_polars(self.to_arrow())

    def lazy(self) -> "polars.LazyFrame":
        """Return a polars LazyFrame: a query reads only the columns, and as many records, as it needs."""

        def some(layout: TableLayout, names: Sequence[str] | None) -> TableLayout:
            if names is None:
                return layout
            return layout.select(names) if names else layout.counting()

        return frames.lazy(lambda: self.schema, lambda names: self._keeping_error(partial(some, names=names)))

    def to_pandas(self) -> "pandas.DataFrame":
        """Return all records as a pandas DataFrame with Arrow's columns (``pandas.ArrowDtype``), without copying them."""
        return frames.to_pandas(self.to_arrow())

    def to_duckdb(self, table_name: str, connection: "duckdb.DuckDBPyConnection | None" = None) -> "duckdb.DuckDBPyConnection":
        """Read all records, register them as ``table_name``, and return the connection (default: a new one, in memory).

        To query a topic without holding it in memory: ``duckdb.sql("from scan")`` with the scan in a variable ``scan``.
        """
        return frames.to_duckdb(self.to_arrow(), table_name, connection)

    def count(self) -> int:
        """Return how many records there are.

        They are read, since compaction and transactions leave fewer records than there are offsets.
        """
        with closing(self._read(TableLayout.counting, shows=True)) as reading:
            return sum(batch.num_rows for batch in reading)

    def head(self, n: int = 10) -> "pyarrow.Table":
        """Return the first records, in order of partition and offset, as a ``pyarrow.Table``."""
        if n < 0:
            raise ValueError(f"n={n}: expected 0 or more")
        found: list[Any] = []
        with closing(self._read(ordered=True)) as reading:
            for batch in reading if n else ():
                found.append(batch.slice(0, n - sum(each.num_rows for each in found)))
                if sum(each.num_rows for each in found) >= n:
                    break
        return pa.Table.from_batches(found, schema=self.schema)

    # --- as a stream -----------------------------------------------------------------------------------------------------------

    def __iter__(self) -> "Iterator[pyarrow.RecordBatch]":
        with closing(self._read()) as reading:
            yield from reading

    async def __aiter__(self) -> "AsyncIterator[pyarrow.RecordBatch]":
        reading = self._read()
        step = partial(next, reading.batches, None)
        try:
            while (batch := await anyio.to_thread.run_sync(step, abandon_on_cancel=True)) is not None:
                yield batch
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(reading.close)

    def __arrow_c_schema__(self) -> Any:
        """Return the columns as Arrow's PyCapsule; without it DuckDB would open a stream to learn them."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a new reading as Arrow's PyCapsule."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    # --- inside ----------------------------------------------------------------------------------------------------------------

    def _pin(self, opened: Opened) -> Pinned:
        with self._pinning:
            if self._pinned is None:
                self._pinned = Pinning(self._request.asked, partial(self._connect, opened)).pin()
            return self._pinned

    def _connect(self, opened: Opened, **options: Any) -> "AbstractContextManager[KafkaConsumer[Any, Any]]":
        return opened.consumer(dict(self._request.options) | options)

    def _columns(self, opened: Opened) -> TableLayout:
        with self._pinning:
            if self._layout is None:
                request = self._request
                topics = request.asked.topics or topics_of(self._pin(opened).ranges, ())
                decoder = request.form.decoder(topics, lambda count: self._sample(opened, count))
                self._layout = layout_of(topics, decoder, request.columns, drops_bad=request.form.skips)
            return self._layout

    def _sample(self, opened: Opened, count: int) -> Any:
        """Return the first values, as a binary array: ``count``, or as many as there are."""
        options, fails = self._request.options, self._request.asked.fails
        return first_values(options, self._pin(opened).pieces(), opened, self._lost, fails=fails, count=count)

    def _job(self, opened: Opened, change: Callable[[TableLayout], TableLayout] = lambda layout: layout) -> Job:
        layout, pinned = self._columns(opened), self._pin(opened).ranges
        layout = evolve(layout, oldest=pinned.oldest, newest=pinned.newest)
        return Job(options=self._request.options, layout=change(layout), fails=self._request.asked.fails)

    def _read(
        self, change: Callable[[TableLayout], TableLayout] = lambda layout: layout, *, shows: bool = False, ordered: bool = False
    ) -> Reading:
        opened, over = Opened(), threading.Event()
        return Reading(opened, self._batches(opened, over, change, shows, ordered or self._request.ordered), over)

    def _stretches(self, job: Job, pieces: Sequence[OffsetRange], opened: Opened, ordered: bool) -> Generator[Stretch]:
        """Yield what is read, in this process or in others."""
        tasks = _tasks(pieces, ordered, self._request.processes)
        if ordered or self._request.processes == 1 or len(tasks) < 2:
            yield from read(job, tasks, opened, self._lost)
            return
        from .workers import Workers

        workers = Workers(job, tasks, self._request.processes, self._lost)
        opened.add(workers)
        yield from workers

    def _batches(
        self, opened: Opened, over: threading.Event, change: Callable[[TableLayout], TableLayout], shows: bool, ordered: bool
    ) -> Generator[Any]:
        try:
            pinned = self._pin(opened)
            job, pieces = self._job(opened, change), pinned.pieces()
            counter = self._counter(pieces, shows)
            counter.begin()
            with closing(self._stretches(job, pieces, opened, ordered)) as stretches:
                try:
                    for stretch in stretches:
                        counter.add(stretch.passed, *_size(stretch))
                        if stretch.batch is not None and stretch.batch.num_rows:
                            yield stretch.batch
                finally:
                    counter.end()
        finally:
            over.set()

    def _counter(self, pieces: Sequence[OffsetRange], shows: bool) -> Counter:
        progress = self._request.progress
        shows = bool(progress) if isinstance(progress, bool) else shows and progress is None
        title = ", ".join(self._request.asked.topics)
        return Counter(
            total=sum(piece.size for piece in pieces),
            tell=progress if callable(progress) else None,
            display=partial(for_people, title, always=progress is True) if shows else lambda: None,
        )

    def _lost(self, text: str) -> None:
        self._losses.append(text)
        _log.warning("%s", text)

    def _keeping_error(self, change: Callable[[TableLayout], TableLayout]) -> Iterator[Any]:
        self.error = None
        try:
            with closing(self._read(change)) as reading:
                yield from reading
        except Exception as error:
            self.error = error
            raise


def _tasks(pieces: Sequence[OffsetRange], ordered: bool, processes: int = 1) -> list[tuple[OffsetRange, ...]]:
    """Return what is read at a time: everything, partition after partition, or a few parts for each process."""
    if ordered:
        return plan(pieces, pack=0)
    if processes > 1:
        offsets = sum(piece.size for piece in pieces)
        parts = max(processes, min(_PARTS * processes, offsets // _LEAST_PART))
        return plan(pieces, min_partitions=parts, pack=max(1, offsets // parts), cores=processes)
    return [tuple(pieces)] if pieces else []


def _size(stretch: Stretch) -> tuple[int, int]:
    return (0, 0) if stretch.batch is None else (stretch.batch.num_rows, stretch.batch.nbytes)
