"""A service and a test of it without a broker: a rebalance, a poison record, a dead broker, a lost session, a minute of retries.

``Billing`` is what a team would write. ``scenario`` is its test: the real consumer against a cluster in the process, under virtual
time, so that the minutes it spans take a fraction of a second. In a project it would be in a test file, without ``main``.
"""

import asyncio
import json
import time
from collections import Counter
from typing import Any

from kafka_async import ConsumerRecord, KafkaConsumer, Retry, exponential
from kafka_async.testing import Cluster, virtual_loop


class Billing:
    """Bills orders. Orders that cannot be read are set aside; those that fail are tried again for a minute."""

    def __init__(self, **options: Any) -> None:
        self.consumer: KafkaConsumer[bytes, Any] = KafkaConsumer(
            "orders", group_id="billing", auto_offset_reset="earliest", value_deserializer=json.loads, **options
        )
        self.billed: Counter[int] = Counter()
        self.set_aside: list[bytes] = []
        self.away_until = 0.0
        """When the till works again, in the loop's time."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with self.consumer:
            retry = Retry(attempts=20, delay=exponential(0.5, 10))
            await self.consumer.process(self.bill, retry=retry, on_failure=self.keep)

    async def bill(self, record: ConsumerRecord[bytes, Any]) -> None:
        """Handle one order."""
        if asyncio.get_running_loop().time() < self.away_until:
            raise ConnectionError("the till does not answer")
        self.billed[record.value["order"]] += 1

    async def keep(self, record: Any, error: BaseException, attempts: int) -> None:
        """Set aside what was given up."""
        self.set_aside.append(record.value)


async def scenario() -> str:
    """Test the service; return what happened."""
    cluster = Cluster(brokers=3)
    cluster.topic("orders", partitions=4)
    produced = 0

    def produce(count: int) -> None:
        nonlocal produced
        for number in range(produced, produced + count):
            cluster.produce("orders", key=str(number), value=json.dumps({"order": number}))
        produced += count

    services = [Billing(**cluster.options()), Billing(**cluster.options())]

    async def billed(count: int) -> None:
        while len({*services[0].billed, *services[1].billed}) < count:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.5)

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(services[0].run())]
        await cluster.assigned("billing")
        produce(20)
        await billed(20)

        running.append(tasks.create_task(services[1].run()))  # a rebalance
        await cluster.assigned("billing", members=2)
        cluster.produce("orders", value="not JSON")  # a poison record
        cluster.stop(0)  # a dead broker: the coordinator, too
        produce(20)
        await billed(40)

        for service in services:  # a minute of retries
            service.away_until = asyncio.get_running_loop().time() + 60
        produce(20)
        await billed(60)

        cluster.kick("billing")  # sessions that end
        await cluster.assigned("billing", members=2)
        produce(20)
        await billed(80)
        await asyncio.sleep(10)
        for task in running:
            task.cancel()
    assert [value for service in services for value in service.set_aside] == [b"not JSON"]  # noqa: S101 - a test
    offsets = sum(offset.offset for offset in cluster.committed("billing").values())
    assert offsets == 81  # noqa: S101 - 80 orders and what was set aside
    return f"{produced} orders billed, 1 record set aside, {offsets} offsets committed"


def main() -> None:
    """Run the test, and say how long it took."""
    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        began = time.perf_counter()
        outcome = runner.run(scenario())
        real, virtual = time.perf_counter() - began, runner.get_loop().time()
    print(f"{outcome}: {virtual:.0f} s in {real:.2f} s")


if __name__ == "__main__":
    main()
