"""What ``kafka-async top`` and the monitor's page show of a cluster with a few groups.

It is a run whose time is virtual, so that it is the same each time.

Four groups: one whose member has left, one that is too slow, a share group that gets through a backlog, and one that keeps up.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from kafka_async import KafkaConsumer, ShareConsumer, TopicPartition
from kafka_async.adapters.admin import Admin, Client
from kafka_async.adapters.cli.screens import Screens
from kafka_async.adapters.monitor import Book, Snapshot, Survey
from kafka_async.adapters.web.pages import overview
from kafka_async.config import ConsumerConfig
from kafka_async.testing import virtual_loop
from kafka_async.testing.simulation import FakeCluster

WIDTH, HEIGHT = 84, 9
INTERVAL: Final = 5.0
POLLS: Final = 26
"""Of which the last is drawn."""
LEAVES: Final = 16
"""The poll after which the member of the first group leaves."""
RATES: Final = {"orders": 120, "mails": 40, "jobs": 30, "log": 25}
"""Records a second that come into each topic."""
BACKLOG: Final = 14_000
"""Jobs that are there at the start."""


def _produce(cluster: FakeCluster, topic: str, count: int) -> None:
    parts = cluster.topics[topic].partitions
    for number in range(len(parts)):
        cluster.fill(TopicPartition(topic, number), count // len(parts), per_batch=100)


async def _feed(cluster: FakeCluster) -> None:
    while True:
        for topic, rate in RATES.items():
            _produce(cluster, topic, rate)
        await asyncio.sleep(1)


async def _read(consumer: Any, per_second: int | None) -> None:
    """Read so many records a second, or all that there are, and commit."""
    while True:
        batch = await consumer.getmany(timeout_ms=500, max_records=per_second)
        if isinstance(consumer, ShareConsumer):
            for job in (job for jobs in batch.values() for job in jobs):
                job.accept()
            await consumer.flush()
        else:
            await consumer.commit()
        await asyncio.sleep(1)


@asynccontextmanager
async def _reading(consumer: Any, per_second: int | None) -> AsyncIterator[None]:
    async with consumer:
        task = asyncio.create_task(_read(consumer, per_second))
        yield
        task.cancel()
        await asyncio.wait((task,))


async def run() -> Snapshot:
    """Let the groups run for a while, and return what the last poll has found."""
    cluster = FakeCluster(size=3)
    for topic, count in (("orders", 8), ("mails", 1), ("jobs", 1), ("log", 1)):
        cluster.create_topic(topic, count)
    where: Any = {"bootstrap_servers": cluster.bootstrap_servers, "transport_factory": cluster.network}
    from_start: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **where}
    cluster.groups.own["workers"] = {"share.auto.offset.reset": "earliest"}
    _produce(cluster, "jobs", BACKLOG)
    config = ConsumerConfig.from_options({"bootstrap_servers": cluster.bootstrap_servers})
    feeding = asyncio.create_task(_feed(cluster))
    async with AsyncExitStack() as groups, Client.connect(config, cluster.network) as client:
        billing = AsyncExitStack()
        await billing.enter_async_context(_reading(KafkaConsumer("orders", group_id="billing", **from_start), None))
        await groups.enter_async_context(_reading(KafkaConsumer("mails", group_id="mailer", **from_start), 33))
        await groups.enter_async_context(_reading(KafkaConsumer("log", group_id="audit", **from_start), None))
        await groups.enter_async_context(_reading(ShareConsumer("jobs", group_id="workers", **where), 100))
        survey = Survey(Admin(client), Book(INTERVAL), wall=lambda: cluster.clock.date() / 1000)
        async for snapshot in survey.snapshots():
            if snapshot.number == LEAVES:
                await billing.aclose()
            if snapshot.number == POLLS:
                break
    feeding.cancel()
    return snapshot


def recorded() -> dict[str, Any]:
    """Run it now; return the lines on the terminal, each with its style, and the body of the page. It takes no time."""
    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        snapshot = runner.run(run())
    lines = Screens().lines(snapshot, WIDTH, HEIGHT)
    page = overview(snapshot, INTERVAL)
    body = page[page.index("<main>") : page.index("</body>")].replace("fake-cluster", "prod")
    return {"top": [[line.plain.replace("fake-cluster", "prod"), _style(line)] for line in lines], "page": body}


def _style(line: Any) -> str:
    """Return the style of a line, or that of its status."""
    return str(line.style) or next((str(span.style) for span in line.spans), "")
