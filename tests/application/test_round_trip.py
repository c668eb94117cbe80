"""What a round trip costs: a fetch that brings one record, from the broker's answer to the reader that waits for the next.

Counted in calls of the Python functions of this package: the same on every machine, and what the time goes into at low rates. Time
passes only while everything waits, so no timer of the consumer falls due because the machine is busy.
"""

import asyncio
import itertools
import statistics
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kafka_async
from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.testing import Cluster

from ..virtual import run_virtual_asyncio

PACKAGE = str(Path(kafka_async.__file__).parent)
CLUSTER = str(Path(PACKAGE, "testing"))
TRIPS = 50
MOST = 215
"""Calls per round trip; 214 in Python 3.11. Whoever makes it more should know why."""


class Counter:
    """Counts calls of the package's functions, but for those of the cluster."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE) and not file.startswith(CLUSTER):
            self.calls += 1


async def calls_per_round_trip() -> float:
    """Return how many there are in the median: some trips have timers of the consumer in them."""
    cluster = Cluster()
    cluster.topic("t", partitions=1)
    counter, counts = Counter(), [0]
    async with KafkaConsumer(auto_offset_reset="earliest", **cluster.options()) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        for number in range(-10, TRIPS):
            reading = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0.005)
            if number == 0:
                sys.setprofile(counter)
            cluster.produce("t", value=b"x" * 100)
            await reading
            if number >= 0:
                counts.append(counter.calls)
        sys.setprofile(None)
    return statistics.median(after - before for before, after in itertools.pairwise(counts))


@pytest.mark.slow
def test_a_round_trip_takes_no_more_calls_than_it_has_to() -> None:
    assert run_virtual_asyncio(calls_per_round_trip) <= MOST
