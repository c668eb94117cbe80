"""Delayed retries: an order that cannot be billed now is handled again after a second, and after three, from topics of their own.

One customer in twenty has a card that the bank refuses twice, and one in fifty has none at all. The orders of all others go on
meanwhile, which is what retry topics are for: an order that waits loses its place. What no delay has helped is set aside.

The topics are created first, with the producer's own library. If they were missing, ``process`` would raise an error with their
names. Needs ``pip install confluent-kafka``.
"""

import asyncio
import zlib
from collections import Counter

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.mock import source
from kafka_async import ConsumerRecord, KafkaConsumer, ProcessingContext, Reject, run
from kafka_async.adapters.retry_topics import RetryTopics

GROUP = "billing"
Order = ConsumerRecord[bytes, bytes]


def create(bootstrap: str, topics: list[str]) -> None:
    """Create the topics that are not there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    missing = set(topics) - admin.list_topics(timeout=10).topics.keys()
    made = admin.create_topics([NewTopic(name, num_partitions=2, config={"retention.ms": "604800000"}) for name in missing])
    for future in made.values():
        future.result(30)


class Billing:
    """Bills orders, until ``count`` of them are dealt with; ``None``: there is no end to it."""

    def __init__(self, count: int | None) -> None:
        self.count = count
        self.billed: Counter[int] = Counter()
        """How many orders were billed, by attempt."""
        self.set_aside: list[Order] = []
        self.finished = asyncio.Event()

    def look(self) -> None:
        """See whether that was the last one."""
        if self.billed.total() + len(self.set_aside) == self.count:
            self.finished.set()

    async def bill(self, order: Order, context: ProcessingContext) -> None:
        """Bill one order. If it raises, the order comes again later."""
        chance = zlib.crc32(order.key) % 100
        if chance < 2:
            raise Reject("no card")  # trying again is in vain
        if chance < 7 and context.attempt < 3:
            raise ConnectionError("the bank does not answer")
        self.billed[context.attempt] += 1
        self.look()

    async def keep(self, order: Order, error: BaseException, attempts: int) -> None:
        """Set aside what no delay has helped; ``kafka_async.adapters.dead_letters`` would write it to a topic."""
        self.set_aside.append(order)
        self.look()


async def main() -> None:
    """Bill all orders."""
    with source() as (bootstrap, topic, count):
        billing = Billing(count)
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 2})
        retry = RetryTopics(producer, delays=(1, 3), then=billing.keep)
        topics = retry.topics(topic, GROUP)
        await asyncio.to_thread(create, bootstrap, topics)
        async with (
            KafkaConsumer[bytes, bytes](
                topic, *topics, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest"
            ) as consumer,
            consumer.processing(billing.bill, on_failure=retry) as processing,
        ):
            await billing.finished.wait()
            print(f"{processing.statistics().redelivered} orders came again later")
        print(f"billed by attempt: {dict(sorted(billing.billed.items()))}")
        print(f"{len(billing.set_aside)} set aside, the first of them from {billing.set_aside[0].topic}")


if __name__ == "__main__":
    run(main())
