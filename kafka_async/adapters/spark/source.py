"""The data source ``kafka_async`` for Spark: what Spark makes and asks.

Decides: what Spark's calls mean. Owns the options. Must never connect in a constructor: Spark makes these objects in several
processes, and sends them to others.

Spark's Python Data Source API (``pyspark.sql.datasource``, 4.2 or later for admission control).
"""

import logging
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from .batch import plan_batch
from .filters import Bounds
from .lookup import Lookup
from .options import SourceOptions
from .reader import TaskReader, input_partitions, task_of
from .schema import Field, ddl, layout, projection
from .stream import StreamReader
from .worker import SentToWorkers, spare_collector

if TYPE_CHECKING:
    from .values import ValueDecoder

NAME = "kafka_async"
_log = logging.getLogger("kafka_async.spark")


class KafkaDataSource(DataSource):
    """``spark.read.format("kafka_async")`` and ``spark.readStream.format("kafka_async")``.

    Raises ``KafkaConfigurationError`` for options that are unknown, wrong, or contradict each other.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = SourceOptions.parse(dict(options))
        self._planned: tuple[ValueDecoder | None, dict[str, str]] | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        spare_collector()
        return ddl(self._plan()[1])

    def reader(self, schema: StructType) -> DataSourceReader:
        self._options.check_batch()
        if self._options.push_filters:
            return FilteringReader(self._options, self._task_reader(schema))
        return BatchReader(self._options, self._task_reader(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        self._options.check_stream()
        for name in self._options.exposed:
            _log.warning("%s is a secret that plans and Spark's web page show; give a reference, env:NAME or file:/path", name)
        return StreamReader(self._options, self._task_reader(schema))

    def _plan(self) -> "tuple[ValueDecoder | None, dict[str, str]]":
        """Return the decoder of values and the columns. A registry is asked once; what it said travels with this object."""
        if self._planned is None:
            decoder = self._decoder()
            fields = decoder.fields if decoder is not None else None
            headers = self._options.include_headers is True
            self._planned = decoder, layout(headers=headers, decoded=fields, only=self._options.columns)
        return self._planned

    def _decoder(self) -> "ValueDecoder | None":
        if not self._options.value:
            return None
        from .values import decoder_for  # brings Arrow's functions for JSON, and more

        return decoder_for(self._options.value, topics=self._options.topics)

    def _task_reader(self, schema: StructType) -> TaskReader:
        decoder, columns = self._plan()
        fields = [Field(each.name, each.dataType.simpleString(), each.nullable) for each in schema.fields]
        names, types = projection(fields, columns), to_arrow_schema(schema, timezone="UTC")
        return TaskReader(
            kafka=self._options.reading,
            decoder=None if decoder is None else decoder.select(dict(zip(names, types.types, strict=True))),
            names=names,
            schema=types,
            fail_on_data_loss=self._options.fail_on_data_loss,
            poll_timeout_ms=self._options.poll_timeout_ms,
        )


class BatchReader(SentToWorkers, DataSourceReader):
    """A batch read: its offsets are found once, on the driver."""

    def __init__(self, options: SourceOptions, tasks: TaskReader) -> None:
        self._options = options
        self._tasks = tasks
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        return input_partitions(plan_batch(self._options, Lookup(self._options), self._bounds))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._tasks.read(task_of(partition))


class FilteringReader(BatchReader):
    """A batch read that Spark tells its filters. Spark refuses it while ``spark.sql.python.filterPushdown.enabled`` is false."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Take what the filters say of topic, partition, offset and time. Spark checks all of them again."""
        self._bounds = Bounds.of(filters)
        return filters
