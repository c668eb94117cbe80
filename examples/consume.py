"""Read a topic record by record.

Without a ``group_id`` a consumer reads every partition, here from the beginning, and nothing is committed anywhere.
"""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import Any

from examples.mock import source
from kafka_async import KafkaConsumer


async def main() -> None:
    """Count what was ordered."""
    ordered: Counter[str] = Counter()
    records = 0
    with source() as (bootstrap, topic, limit):
        async with KafkaConsumer[bytes, Any](
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100, value_deserializer=json.loads
        ) as consumer:
            async for record in consumer:
                ordered[record.value["item"]] += record.value["quantity"]
                records += 1
                if records % 250 == 0:
                    print(f"{records:,} records; {record.topic}-{record.partition} is at offset {record.offset}")
                if records == limit:
                    break
    for item, number in ordered.most_common():
        print(f"{number:6,} {item}")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
