"""Members that come, go and die at random, under load: what a group promises, all at once.

Twenty seconds in each protocol by default; ``KAFKA_ASYNC_CHURN`` gives the seconds of a longer run.
"""

import asyncio
import os
import random

import pytest

from tests.brokers import KafkaCluster

from .groups import Processes, both, load, new_group, processes
from .tools import new_topic, until

pytestmark = pytest.mark.integration

MEMBERS = 10
PARTITIONS = 60
SECONDS = float(os.environ.get("KAFKA_ASYNC_CHURN") or 20)
SESSION_MS = 6_000


@both
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize("kills", [False, True], ids=["clean", "kills"])
async def test_a_group_in_turmoil_keeps_its_promises(kafka_cluster3: KafkaCluster, protocol: str, kills: bool) -> None:
    seed = random.randrange(1 << 32)  # noqa: S311  # not a secret; a failure names it
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol, session_ms=SESSION_MS)
    async with processes(group, topic, MEMBERS // 2) as members:
        await members.settled(PARTITIONS)
        async with load(kafka_cluster3, topic, PARTITIONS, rate=600) as writing:
            await _stir(members, random.Random(seed), kills=kills)  # noqa: S311
        await members.settled(PARTITIONS, seconds=60)
        watch = members.watch
        await until(lambda: watch.committed_all(writing.offsets), seconds=60)
        assert watch.read_all(writing.offsets), f"seed {seed}: records are missing"
        for partition, offsets in writing.offsets.items():
            again = len(watch.consumed[partition]) - len(offsets)
            assert again == 0 or kills, f"seed {seed}: {again} records of partition {partition} came twice without a kill"
        assert group.committed() == {partition: offsets[-1] + 1 for partition, offsets in writing.offsets.items()}
        # Partitions without two owners, order within each, no commit ahead of what was read: noted as they happen.
        assert not watch.breaches, f"seed {seed}"


async def _stir(members: Processes, chance: random.Random, *, kills: bool) -> None:
    """Start, stop and kill members at random moments for ``SECONDS``; end with ``MEMBERS``."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + SECONDS
    leaving: list[asyncio.Task[None]] = []
    while clock() < deadline:
        await asyncio.sleep(chance.uniform(0.2, 2.0))  # the moments are what is random here
        alive = members.alive
        if len(alive) <= 2 or (len(alive) < MEMBERS and chance.random() < 0.5):
            await members.start()
        elif kills and chance.random() < 0.5:
            chance.choice(alive).kill()
        else:
            leaving.append(asyncio.create_task(chance.choice(alive).stop()))
    await asyncio.gather(*leaving)
    while len(members.alive) < MEMBERS:
        await members.start()
