"""Members that come, go and die at random, under load: what a group promises, all at once.

Twelve seconds in each protocol by default, half of them without kills; ``KAFKA_ASYNC_CHURN`` gives the seconds of a longer run.
Run with ``--apart``: ``test_groups_in_chaos.py`` is what each run has of it.
"""

import asyncio
import os
import random

import pytest

from tests.brokers import KafkaCluster

from .groups import Process, Processes, both, load, new_group, processes
from .tools import eventually, new_topic

pytestmark = [pytest.mark.brokers, pytest.mark.apart]

MEMBERS = 10
PARTITIONS = 60
SECONDS = float(os.environ.get("KAFKA_ASYNC_CHURN") or 12)
SESSION_MS = 4_000


@both
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
async def test_a_group_in_turmoil_keeps_its_promises(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    seed = random.randrange(1 << 32)  # noqa: S311  # not a secret; a failure names it
    chance = random.Random(seed)  # noqa: S311
    topic = new_topic(kafka_cluster3, PARTITIONS)
    group = new_group(kafka_cluster3, protocol, session_ms=SESSION_MS)
    async with processes(group, topic, MEMBERS // 2) as members:
        watch = members.watch
        await members.settled(PARTITIONS)
        async with load(kafka_cluster3, topic, PARTITIONS, rate=600) as writing:
            await _stir(members, chance, kills=False)
            await members.settled(PARTITIONS)
            assert not watch.repeated(), f"seed {seed}: records came twice without a kill"
            await _stir(members, chance, kills=True)
        await _grow(members)
        await members.settled(PARTITIONS)
        expected = {partition: offsets[-1] + 1 for partition, offsets in writing.offsets.items()}

        async def everything_is_committed() -> bool:
            # The broker is asked: a member that is killed between its last commit and its report of it never reports it.
            return await asyncio.to_thread(group.committed) == expected

        await eventually(everything_is_committed, seconds=60)
        assert not watch.unread(writing.offsets), f"seed {seed}: records are missing"
        # A partition with two owners, a jump, a commit ahead of what was read: noted as they happen.
        assert not watch.breaches, f"seed {seed}"


async def _stir(members: Processes, chance: random.Random, *, kills: bool) -> None:
    """Start, stop and perhaps kill members at random moments, for half of ``SECONDS``."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + SECONDS / 2
    ending: list[asyncio.Task[None]] = []
    while clock() < deadline:
        await asyncio.sleep(chance.uniform(0.2, 2.0))  # the moments are what is random here
        alive = members.alive
        if len(alive) <= 2 or (len(alive) < MEMBERS and chance.random() < 0.5):
            await members.start()
        elif kills:
            ending.append(asyncio.create_task(_kill(members, chance.choice(alive))))
        else:
            ending.append(asyncio.create_task(chance.choice(alive).stop()))
    await asyncio.gather(*ending)


async def _kill(members: Processes, member: Process) -> None:
    """Kill a member; what it had committed by then it had read."""
    member.kill()
    await member.gone()
    committed = await asyncio.to_thread(members.group.committed)
    for partition in member.left & committed.keys():
        read = max(members.watch.consumed[partition], default=-1)
        if committed[partition] > read + 1:
            members.watch.breach(member, f"partition {partition} was committed up to {committed[partition]} and read up to {read}")


async def _grow(members: Processes) -> None:
    while len(members.alive) < MEMBERS:
        await members.start()
