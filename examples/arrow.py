"""Write a topic to a Parquet file, without a Python object per record (extra ``arrow``).

A column that is not asked for is not decoded.
"""

import asyncio
import os
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow.parquet as pq

from examples.mock import source
from kafka_async import KafkaConsumer

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


async def main() -> None:
    """Append batches to the file until everything is in it."""
    path = Path(os.environ.get("PARQUET") or Path(tempfile.mkdtemp()) / "orders.parquet")
    writer, rows = None, 0
    with source() as (bootstrap, topic, limit), ExitStack() as files:  # the file is closed on the way out, or it has no footer
        async with KafkaConsumer[bytes, bytes](
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100
        ) as consumer:
            async for batch in consumer.arrow_batches(columns=COLUMNS):
                writer = writer or files.enter_context(pq.ParquetWriter(path, batch.schema))
                writer.write_batch(batch)
                rows += batch.num_rows
                if rows == limit:
                    break
    table = pq.read_table(path)
    print(f"{table.num_rows} rows in {path}")
    print(f"columns: {', '.join(table.column_names)}")
    print(f"last value: {table.column('value')[-1].as_py().decode()}")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
