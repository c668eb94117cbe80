"""Our data source with a window into the worker process that reads: for tests.

Decides: what a row tells of its worker, and where a task waits. Owns nothing. Must never change how our source reads: it only looks
at what that hands out.
"""

import os
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, StructField, StructType

from kafka_async.adapters.spark.source import KafkaDataSource

NAME: Final = "kafka_async_probe"
GATE: Final = "probe.gate"
"""Option: a directory. Each task puts a file there behind its first batch, and goes on once there is one called ``OPEN``."""
OPEN: Final = "open"
_PATIENCE: Final = 60.0


class ProbeSource(KafkaDataSource):
    """``kafka_async`` with one more column, ``pid``: the process that read the row."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = dict(options)
        gate = given.pop(GATE, None)
        super().__init__(given)
        self.gate = None if gate is None else Path(gate)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return StructType([*super().schema().fields, StructField("pid", IntegerType())])

    def reader(self, schema: StructType) -> DataSourceReader:
        return ProbeReader(super().reader(StructType(schema.fields[:-1])), self.gate)


class ProbeReader(DataSourceReader):
    def __init__(self, reader: DataSourceReader, gate: Path | None) -> None:
        self.reader = reader
        self.gate = gate

    def partitions(self) -> Any:
        return self.reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batches: Iterator[Any] = self.reader.read(partition)
        for number, batch in enumerate(batches):
            yield batch.append_column(pa.field("pid", pa.int32()), pa.array([os.getpid()] * batch.num_rows, pa.int32()))
            if number == 0 and self.gate is not None:
                _pass(self.gate)


def _pass(gate: Path) -> None:
    """Tell that a task is in its middle, and wait until it may go on."""
    (gate / f"task-{os.getpid()}").touch()
    deadline = time.monotonic() + _PATIENCE
    while not (gate / OPEN).exists():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"the gate was not opened in {_PATIENCE:.0f} s")
        time.sleep(0.02)  # nothing announces a file
