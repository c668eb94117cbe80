"""Read a topic in a program without an event loop.

``kafka_async.sync`` has the same consumer with the same methods, which block instead of being awaited.
"""

from contextlib import suppress

from examples.mock import source
from kafka_async.sync import KafkaConsumer


def main() -> None:
    """Print how many records of each partition were read."""
    read = 0
    with (
        source() as (bootstrap, topic, limit),
        KafkaConsumer[bytes, bytes](
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100
        ) as consumer,
    ):
        while limit is None or read < limit:
            batch = consumer.getmany(timeout_ms=1000)
            read += sum(map(len, batch.values()))
            for partition, records in batch.items():
                print(f"{len(records)} records of {partition.topic}-{partition.partition}")
        positions = {partition.partition: consumer.position(partition) for partition in consumer.assignment()}
    print(f"{read} records read; positions: {dict(sorted(positions.items()))}")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        main()
