"""The data source ``kafka_async`` for Spark: the objects that Spark makes and calls.

Nothing connects in a constructor: Spark makes these objects in several processes, and sends them to others. What only the driver
needs is imported where it is used: Spark sends the data source along with every task, and a new worker imports its modules.

Spark's Python Data Source API (``pyspark.sql.datasource``, 4.2 or later for admission control).
"""

import logging
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import DataType, StructField, StructType

from ...errors import KafkaConfigurationError
from .worker import Arrival, received, spare_collector

if TYPE_CHECKING:
    from ..values.ddl import Fields
    from ..values.decoding import ValueDecoder
    from .options.source_options import SourceOptions
    from .task import TaskReader

NAME = "kafka_async"
_READS_ONLY = (
    'kafka_async only reads; to write, use the sink of Spark\'s own connector, format("kafka"), from the package '
    "org.apache.spark:spark-sql-kafka-0-10"
)
_log = logging.getLogger("kafka_async.spark")


class KafkaDataSource(DataSource):
    """``spark.read.format("kafka_async")`` and ``spark.readStream.format("kafka_async")``.

    Raises ``KafkaConfigurationError`` for options that are unknown, wrong, or contradict each other.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from .options.source_options import SourceOptions

        super().__init__(options)
        self._parsed: SourceOptions | None = None
        self._planned: tuple[dict[str, ValueDecoder], dict[str, DataType]] | None = None
        if SourceOptions.of_reading(options):
            _ = self._options  # what is wrong with them is said now

    @property
    def _options(self) -> "SourceOptions":
        from .options.source_options import SourceOptions

        if self._parsed is None:
            self._parsed = SourceOptions.parse(dict(self.options))
        return self._parsed

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_parsed": None}

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        spare_collector()
        return StructType([StructField(name, kind) for name, kind in self._plan()[1].items()])

    def reader(self, schema: StructType) -> DataSourceReader:
        self._options.check_batch()
        self._warn()
        return BatchReader(self._options, self._task_reader(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        from .stream import StreamReader

        self._options.check_stream()
        self._warn()
        for name in self._options.exposed:
            _log.warning("Spark's plans and web UI show the secret in %s; give a reference, env:NAME or file:/path", name)
        return StreamReader(self._options, self._task_reader(schema))

    def _warn(self) -> None:
        if self._options.strays:
            _log.warning("options that mean nothing to kafka_async: %s", ", ".join(self._options.strays))
        if self._options.unused:
            _log.warning("no effect with kafka.security.protocol=PLAINTEXT: %s", ", ".join(self._options.unused))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise KafkaConfigurationError(_READS_ONLY)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        raise KafkaConfigurationError(_READS_ONLY)

    def _plan(self) -> "tuple[dict[str, ValueDecoder], dict[str, DataType]]":
        """Return the decoder of values and the columns. A registry is asked once; its answer travels with this object."""
        from .schema import layout

        if self._planned is None:
            decoders, kept = self._decoders()
            fields = {part: _as_spark_has_them(decoder.fields) for part, decoder in decoders.items()}
            columns = layout(headers=self._options.include_headers, decoded=fields, kept=kept, only=self._options.columns)
            self._planned = decoders, columns
        return self._planned

    def _decoders(self) -> "tuple[dict[str, ValueDecoder], set[str]]":
        """Return what decodes values, and keys, and which of them are kept all the same."""
        options = self._options.value
        if not options:
            return {}, set()
        from ..values.formats import decoder_for, keeps  # brings Arrow's functions for JSON, and more
        from ..values.names import KEY, VALUE
        from .options.secrets import REFERENCES

        topics = self._options.named
        found = {part: decoder_for(options, topics=topics, part=part, references=REFERENCES) for part in (KEY, VALUE)}
        decoders = {part: decoder for part, decoder in found.items() if decoder is not None}
        return decoders, {part for part in decoders if keeps(options, part)}

    def _task_reader(self, schema: StructType) -> "TaskReader":
        from pyspark.sql.pandas.types import to_arrow_schema

        from ..ranges.offsets import LOOKS, SECOND_LOOK
        from .schema import projection
        from .task import TaskReader

        decoders, columns = self._plan()
        names = projection(schema, columns)
        return TaskReader(
            kafka=self._options.reading,
            decoders={part: each.select(names) for part, each in decoders.items()},
            names=names,
            schema=to_arrow_schema(schema, timezone="UTC"),
            fail_on_data_loss=self._options.fail_on_data_loss,
            poll_timeout_ms=self._options.poll_timeout_ms,
            # What a task leaves out is never read: it does not ask less often than other readings do.
            looks=max(LOOKS, self._options.retries),
            pause=max(SECOND_LOOK, self._options.retry_interval),
        )


def _as_spark_has_them(fields: "Fields") -> list[tuple[str, DataType]]:
    from pyspark.sql.pandas.types import from_arrow_type  # brings Arrow, as decoders do

    return [(name, from_arrow_type(kind)) for name, kind in fields]


class BatchReader(DataSourceReader):
    """A batch read: its offsets are found once, on the driver.

    It takes no filters (``pushFilters``): Spark 4.3 keeps a reader, with its filters, for the next query of the same DataFrame or
    view, and does not pass the filters of that query to it. Rows would be missing.
    """

    def __init__(self, options: "SourceOptions", tasks: "TaskReader") -> None:
        self._options = options
        self._tasks = tasks

    def __reduce__(self) -> tuple[Any, ...]:
        return received, (Arrival(), self._tasks)

    def partitions(self) -> list[InputPartition]:
        from .batch import plan_batch
        from .plan.lookup import Lookup
        from .task import input_partitions

        return input_partitions(plan_batch(self._options, Lookup(self._options)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._tasks.read(partition)
