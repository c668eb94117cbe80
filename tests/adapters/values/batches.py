"""Batches of records as ``getarrow`` gives them, for tests of what reads their values."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kafka_async.adapters.values import typed
from kafka_async.application.reading.arrow import SCHEMA


def decoder(values: str, *, on_bad: str = "raise", **more: Any) -> typed.FieldsDecoder:
    """Return a decoder that ends at the first bad value, unless a test wants something else."""
    return typed.decoder(values, on_bad=on_bad, **more)


def records(
    values: Sequence[bytes | None],
    *,
    topics: Sequence[str] = (),
    headers: Sequence[Sequence[tuple[str, bytes | None]]] = (),
    start: int = 10,
) -> Any:
    """Return a batch of partition 0, by default of topic ``orders``, whose first offset is ``start``."""
    count = len(values)
    made = {
        "topic": pa.array(list(topics) or ["orders"] * count, pa.string()).dictionary_encode(),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(start, start + count), pa.int64()),
        "timestamp": pa.array(range(count), pa.int64()).cast(SCHEMA.field("timestamp").type),
        "timestamp_type": pa.array([0] * count, pa.int8()),
        "key": pa.array([b"k"] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(
            [[{"key": name, "value": value} for name, value in each] for each in headers] or [[]] * count,
            SCHEMA.field("headers").type,
        ),
    }
    return pa.RecordBatch.from_arrays([made[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)
