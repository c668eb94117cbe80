"""A service that is down, on a real broker: a rebalance and a member that is killed meanwhile."""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.brokers import KafkaCluster

from .groups import SESSION_MS, both_at_once, new_group
from .test_caller_iteration import both_backgrounds_at_once
from .tools import new_topic, until

pytestmark = pytest.mark.brokers

COUNT: Final = 600
OPENING: Final = 10 + 20
"""Attempts of one member until its breaker has opened, at most: those that open it, and those under way by then."""


class Attempt(NamedTuple):
    """One line of ``breaker_job``."""

    process: int
    value: int
    well: int


def attempts(file: Path) -> list[Attempt]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [Attempt(*map(int, line.split())) for line in lines]


async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


@both_at_once
@both_backgrounds_at_once
async def test_nothing_is_lost_or_given_up_while_a_service_is_down(
    kafka44: KafkaCluster, tmp_path: Path, background: str, protocol: str
) -> None:
    """One member is killed and another comes while the service is down; then it is there again."""
    topic, group, file = new_topic(kafka44, 4), new_group(kafka44, protocol), tmp_path / f"{protocol}-{background}"
    service = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = service.sockets[0].getsockname()[1]
    command = [sys.executable, "-m", "tests.integration.breaker_job", kafka44.bootstrap_servers, group.name, protocol, background]
    command += [str(SESSION_MS), topic, str(port), str(file)]
    members: list[asyncio.subprocess.Process] = []

    async def start() -> None:
        members.append(await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL))

    def write(first: int, count: int) -> None:
        keys = [b"k%d" % each for each in range(40)]
        kafka44.produce(
            topic, count, partitions=4, start=first, values=lambda index: b"%d" % index, keys=lambda index: keys[index % 40]
        )

    def failures() -> Counter[int]:
        return Counter(each.process for each in attempts(file) if not each.well)

    def done() -> set[int]:
        return {each.value for each in attempts(file) if each.well}

    try:
        await start()
        await start()
        await asyncio.to_thread(write, 0, COUNT // 2)
        await until(lambda: len(done()) == COUNT // 2)
        service.close()
        await asyncio.to_thread(write, COUNT // 2, COUNT // 2)
        await until(lambda: len(failures()) == 2)
        await start()
        assert all(member.returncode is None for member in members), "a record was given up"
        killed = members.pop(0)
        killed.kill()
        await killed.wait()
        await until(lambda: members[-1].pid in failures())
        await asyncio.sleep(10)  # the breakers of both are open, and try a record now and then
        assert len(done()) == COUNT // 2
        # Each opens once; from then on it tries one record at a time, each time after a longer wait.
        assert all(count <= OPENING + 30 for count in failures().values()), failures()
        service = await asyncio.start_server(answer, "127.0.0.1", port)
        await until(lambda: len(done()) == COUNT)
        assert all(member.returncode is None for member in members), "a record was given up"
        await until(lambda: sum(kafka44.committed(group.name).values()) == COUNT)
    finally:
        service.close()
        for member in members:
            if member.returncode is None:
                member.kill()
            await member.wait()
