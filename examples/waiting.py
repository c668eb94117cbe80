"""Waiting for a broker: a service that starts before its cluster does, as everything does after a power cut.

``start()`` raises ``KafkaConnectionError`` if no bootstrap server can be reached, and may then be called again. The service decides
how long to keep trying. Once it has started, the consumer waits for brokers by itself.
"""

import asyncio
from contextlib import suppress

from examples.mock import door, source
from kafka_async import KafkaConsumer
from kafka_async.errors import KafkaConnectionError

FIRST, LONGEST = 0.1, 10.0
"""Seconds before the second attempt, and between attempts at most."""


async def start(consumer: KafkaConsumer[bytes, bytes]) -> None:
    """Start a consumer as soon as there is a cluster."""
    pause = FIRST
    while True:
        try:
            return await consumer.start()
        except KafkaConnectionError as error:
            print(f"no cluster yet ({type(error).__name__}); trying again in {pause:g} s", flush=True)
        await asyncio.sleep(pause)
        pause = min(LONGEST, 2 * pause)


async def main() -> None:
    """Start before the cluster can be reached, and read."""
    with source() as (bootstrap, topic, limit):
        async with door(bootstrap, opens_after=0.5 if limit is not None else None) as address:
            consumer = KafkaConsumer[bytes, bytes](
                topic, bootstrap_servers=address, auto_offset_reset="earliest", fetch_max_wait_ms=100
            )
            await start(consumer)
            try:
                count = 0
                async for _ in consumer:
                    count += 1
                    if count == limit:
                        break
                print(f"{count} records read")
            finally:
                await consumer.stop()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
