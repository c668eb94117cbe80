"""Read a topic record by record.

Decides: nothing that Kafka needs to know: without a ``group_id`` the consumer reads every partition from the beginning.
"""

import asyncio
import json
from collections import Counter

from examples.mock import source
from kafka_async import KafkaConsumer


async def main() -> None:
    """Count what was ordered."""
    ordered: Counter[str] = Counter()
    with source() as (bootstrap, topic, limit):
        async with KafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100, value_deserializer=json.loads
        ) as consumer:
            async for record in consumer:
                ordered[record.value["item"]] += record.value["quantity"]
                if ordered.total() % 500 == 0:
                    print(f"{record.topic}-{record.partition} is at offset {record.offset}")
                limit = None if limit is None else limit - 1
                if limit == 0:
                    break
    for item, number in ordered.most_common():
        print(f"{number:6,} {item}")


if __name__ == "__main__":
    asyncio.run(main())
