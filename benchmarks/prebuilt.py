"""A Spark source that reads nothing: it returns Arrow batches made beforehand, which is the limit of any Python source.

Decides nothing. The columns and the size of the batches are those of this package's source. Must never import it: the workers must
not pay for what they do not use.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

_BATCH: Final = 1_500_000
"""Bytes of a batch."""


class PrebuiltSource(DataSource):
    """``partitions`` partitions of ``topic`` with together ``records`` values of ``size`` bytes.

    Each row holds the topic's name, which may be as long as a third of its value.
    """

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"

    def reader(self, schema: StructType) -> DataSourceReader:
        records, partitions, size = (int(self.options[name]) for name in ("records", "partitions", "size"))
        return PrebuiltReader(schema.names, records, partitions, size, self.options["topic"])


class PrebuiltReader(DataSourceReader):
    """Reads them."""

    def __init__(self, names: list[str], records: int, parts: int, size: int, topic: str) -> None:
        self.names = names
        self.records = records
        self.parts = parts
        self.size = size
        self.topic = topic

    def partitions(self) -> list[InputPartition]:
        shares = [self.records // self.parts + (number < self.records % self.parts) for number in range(self.parts)]
        return [InputPartition(share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        rows = max(1, _BATCH // (self.size + 40))
        batch = _batch(rows, self.size, self.topic).select(self.names)
        for begin in range(0, partition.value, rows):
            yield batch.slice(0, min(rows, partition.value - begin))


def _batch(rows: int, size: int, topic: str) -> pa.RecordBatch:
    times = pa.array(range(1_700_000_000_000_000, 1_700_000_000_000_000 + rows), pa.int64())
    columns = {
        "key": pa.repeat(pa.scalar(bytes(8), pa.binary()), rows),
        "value": pa.repeat(pa.scalar(bytes(size), pa.binary()), rows),
        "topic": pa.repeat(pa.scalar(topic, pa.string()), rows),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": times.view(pa.timestamp("us", tz="UTC")),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), rows),
    }
    return pa.RecordBatch.from_pydict(columns)
