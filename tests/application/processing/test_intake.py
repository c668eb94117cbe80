"""How much is taken in while handlers run, and of which partitions: on a fake cluster, under virtual time."""

from math import inf
from typing import Any

import anyio
import pytest

from tests.application.support import virtual

from .world import processed, until, world


@pytest.mark.parametrize("stuck", [1, 2, 3])
@pytest.mark.parametrize("order", ["key", "partition"])
@virtual
async def test_handlers_that_never_end_do_not_keep_other_partitions_waiting(order: Any, stuck: int) -> None:
    some = world(6)
    for partition in range(stuck):
        some.produce(1_000, keys=1, partition=partition)
    some.seconds = lambda record: inf if record.partition < stuck else 0.01
    async with processed(some, concurrency=4, order=order, drain_timeout_ms=0):
        await until(lambda: len(some.started) == stuck)
        await anyio.sleep(1)
        for partition in range(stuck, 6):
            some.produce(200, keys=10, partition=partition)
        began = anyio.current_time()
        await until(lambda: len(some.done) == 200 * (6 - stuck))
        workers = 4 - stuck
        took = anyio.current_time() - began
        assert took < 200 * (6 - stuck) * 0.01 / workers * 1.5 + 1
