"""Several kinds of records in one topic, each with a handler and a type of its own; what fits no type is set aside.

    .venv/bin/python -m examples.routes

Events are CloudEvents in binary mode: the header ``ce_type`` says what the value is.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

from kafka_async import ConsumerRecord, KafkaConsumer, ProcessingContext, Router
from kafka_async.testing import Cluster

TYPE = "ce_type"
done: Counter[str] = Counter()
aside: list[str] = []
router = Router()


@dataclass
class Order:
    """What ``order.created`` carries."""

    id: int
    cents: int


@router.on(topic="events", header=(TYPE, "order.created"), value=Order, concurrency=5)
async def created(order: Order, context: ProcessingContext) -> None:
    """Bill an order; ``context.record`` has its key, its offset and its headers."""
    done["orders"] += 1
    done["cents"] += order.cents


@router.on(topic="events", header=(TYPE, "order.cancelled"), value=str | None)
async def cancelled(number: str | None) -> None:
    """Take an order back. A tombstone is one, too: the type allows ``None``."""
    done["cancelled"] += 1


router.ignore(topic="events", header=(TYPE, "order.viewed"))


async def set_aside(record: ConsumerRecord[Any, Any], error: BaseException, attempts: int) -> None:
    """Keep what nobody can handle. A service writes it to a topic: ``kafka_async.adapters.dead_letters.DeadLetters``."""
    aside.append(f"{type(error).__name__}: {record.value!r}")


def write(cluster: Cluster) -> None:
    """Write 100 orders and some other events."""
    cluster.topic("events", partitions=2)
    for number in range(100):
        order = f'{{"id": {number}, "cents": 250}}'
        cluster.produce("events", key=str(number), value=order, headers=[(TYPE, b"order.created")])
    others: list[tuple[str, str | None, bytes]] = [
        ("7", "7", b"order.cancelled"),
        ("8", None, b"order.cancelled"),
        ("9", "9", b"order.viewed"),
        ("10", '{"id": "ten"}', b"order.created"),
        ("11", "?", b"order.exploded"),
    ]
    for key, value, kind in others:
        cluster.produce("events", key=key, value=value, headers=[(TYPE, kind)])


async def main() -> None:
    """Handle all events of a simulated cluster."""
    async with Cluster() as cluster:
        write(cluster)
        options: dict[str, Any] = {"group_id": "billing", "auto_offset_reset": "earliest", **cluster.options()}
        async with KafkaConsumer("events", **options) as consumer, consumer.processing(router, on_failure=set_aside) as run:
            while (now := run.statistics()).handled + now.dead_letters < 105:  # noqa: ASYNC110  # a service has no end to wait for
                await asyncio.sleep(0.01)
    print(f"{done['orders']} orders of {done['cents'] / 100:.2f} in total, {done['cancelled']} cancelled")
    print("set aside:", ", ".join(sorted(aside)))


if __name__ == "__main__":
    asyncio.run(main())
