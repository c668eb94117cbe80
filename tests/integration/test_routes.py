"""Routes on a real broker: values of their types, what fits nothing, a limit of one route, and members that come and go."""

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from kafka_async import Retry, Router, ShareConsumer
from kafka_async.adapters.dead_letters import DeadLetters
from kafka_async.errors import InvalidValue, NoRoute
from kafka_async.sync import KafkaConsumer as BlockingConsumer
from tests.brokers import KafkaCluster

from .groups import both, new_group
from .share import from_the_start
from .test_caller_iteration import both_backgrounds
from .tools import new_topic, until

pytestmark = pytest.mark.brokers


@dataclass
class Order:
    id: int


async def write(cluster: KafkaCluster, topic: str, count: int) -> None:
    """Write orders, a tenth of them notes, one order that is none, and one that nobody wants."""
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            kind, value = (b"note", b"n%d" % number) if number % 10 == 0 else (b"order", b'{"id": %d}' % number)
            await producer.send(topic, value, key=b"%d" % (number % 17), headers=[("kind", kind)])
        await producer.send_and_wait(topic, b"{}", key=b"0", headers=[("kind", b"order")])
        await producer.send_and_wait(topic, b"?", key=b"0", headers=[("kind", b"\xff\x00")])


@both
@both_backgrounds
async def test_each_record_goes_to_its_handler_across_members(kafka44: KafkaCluster, protocol: str, background: str) -> None:
    topic, dead = new_topic(kafka44, 4), new_topic(kafka44)
    await write(kafka44, topic, 1000)
    group = new_group(kafka44, protocol)
    router, orders, notes, running, peak = Router(), Counter[int](), Counter[str](), 0, 0
    by_key: dict[bytes, list[int]] = {}
    failed_once: set[int] = set()

    @router.on(topic=topic, header=("kind", "order"), value=Order)
    async def order(value: Order, context: Any) -> None:
        if value.id % 100 == 1 and value.id not in failed_once:
            failed_once.add(value.id)
            raise OSError
        by_key.setdefault(context.record.key, []).append(context.record.offset)
        orders[value.id] += 1

    @router.on(topic=[topic, "another"], header=("kind", b"note"), value=str, concurrency=2)
    async def note(text: str, context: Any) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        try:
            await asyncio.sleep(0.02)
        finally:
            running -= 1
        notes[text] += 1

    letters: list[tuple[type[BaseException], bytes]] = []
    async with AIOKafkaProducer(bootstrap_servers=kafka44.bootstrap_servers) as producer:
        write_letter = DeadLetters(producer, dead)

        async def bury(record: Any, error: BaseException, attempts: int) -> None:
            assert attempts == 1
            letters.append((type(error), record.value))
            await write_letter(record, error, attempts)

        options: dict[str, Any] = {"retry": Retry(attempts=2, delay=0.05), "on_failure": bury, "concurrency": 20}
        async with group.member(topic, background=background) as first, first.processing(router, **options):
            await until(lambda: sum(orders.values()) > 100)
            async with group.member(topic, background=background) as second, second.processing(router, **options):
                await until(lambda: len(orders) + len(notes) == 1000 and len(letters) >= 2, 120)
            await until(lambda: sum(group.committed().values()) == 1002)
    assert set(orders) == {number for number in range(1000) if number % 10}
    assert set(notes) == {f"n{number}" for number in range(0, 1000, 10)}
    assert max(orders.values()) == 1, "a clean handover repeats nothing"
    assert set(letters) == {(InvalidValue, b"{}"), (NoRoute, b"?")}
    assert all(offsets == sorted(offsets) for offsets in by_key.values())
    assert peak <= 4, "two in each member"


async def test_a_share_group_and_the_blocking_consumer(kafka_share: KafkaCluster) -> None:
    topic = new_topic(kafka_share, 1)
    await write(kafka_share, topic, 100)
    router, seen, refused = Router(), Counter[str](), list[bytes]()

    @router.on(topic=topic, header=("kind", "order"), value=Order, concurrency=3)
    async def order(value: Order) -> None:
        await asyncio.sleep(0.005)
        seen[f"{value.id}"] += 1

    @router.on(topic=topic, header=("kind", "note"), value=str)
    async def note(text: str) -> None:
        seen[text[1:]] += 1

    async def refuse(record: Any, error: BaseException, attempts: int) -> None:
        refused.append(record.value)

    options: dict[str, Any] = {"bootstrap_servers": kafka_share.bootstrap_servers, "group_id": topic}
    from_the_start(kafka_share, topic)
    async with ShareConsumer(topic, **options) as consumer, consumer.processing(router, on_failure=refuse):
        await until(lambda: len(seen) == 100 and len(refused) == 2)
    assert set(refused) == {b"{}", b"?"}

    plain, lock, found = Router(), threading.Lock(), Counter[int]()

    @plain.on(header=("kind", "order"), value=Order, concurrency=2)
    def count(value: Order) -> None:
        with lock:
            found[value.id] += 1

    plain.ignore(header=("kind", "note"))

    def read() -> None:
        with (
            BlockingConsumer(
                topic,
                bootstrap_servers=kafka_share.bootstrap_servers,
                group_id=new_group(kafka_share, "consumer").name,
                auto_offset_reset="earliest",
            ) as blocking,
            blocking.processing(plain, on_failure="skip") as run,
        ):
            while (now := run.statistics()).handled + now.skipped < 102:
                threading.Event().wait(0.01)

    await asyncio.wait_for(asyncio.to_thread(read), 60)
    assert found == {number: 1 for number in range(100) if number % 10}
    with pytest.raises(TypeError, match="expected a plain function"):
        BlockingConsumer(topic, bootstrap_servers=kafka_share.bootstrap_servers, group_id="g").processing(router)
