"""What tests with the kit cost.

Measured on a machine of two cores: the service of ``examples/tested.py`` 0.19 s of CPU, a thousand tests with a cluster each 17 s
(16 ms each, including pytest's own part). A busy machine takes up to three times as much CPU time for the same work, so the limit
of the service is in calls of functions, which are the same on every machine; the other one is wide.
"""

import asyncio
import gc
import logging
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from examples import tested
from kafka_async.testing import virtual_loop

A_SERVICE = 1_000_000
"""Calls of functions, Python's and C's. There are 750,000, which take 0.19 s; the aim is 0.2."""
A_THOUSAND = 60.0
"""Seconds. The aim is 30."""
MODULE = """
import pytest
from kafka_async import KafkaConsumer


@pytest.mark.parametrize("number", range(1000))
def test_orders_are_billed(number, kafka_cluster, kafka_options, virtual_time):
    async def bill():
        async with KafkaConsumer("orders", group_id="billing", auto_offset_reset="earliest", **kafka_options) as consumer:
            record = await consumer.getone()
            await consumer.commit()
            return record.value

    kafka_cluster.topic("orders", partitions=3)
    where, offset = kafka_cluster.produce("orders", key=str(number), value=f"order {number}")
    assert virtual_time(bill()) == f"order {number}".encode()
    assert kafka_cluster.committed("billing")[where].offset == offset + 1
"""


@pytest.fixture
def quiet() -> Iterator[None]:
    """The example shows faults, and each run would log them."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def beside_threads() -> Iterator[None]:
    """Other tests of the process have left threads of other loops, which must cost nothing."""
    over = threading.Event()
    threads = [threading.Thread(target=over.wait) for _ in range(100)]
    for thread in threads:
        thread.start()
    yield
    over.set()
    for thread in threads:
        thread.join()


@pytest.mark.slow
@pytest.mark.usefixtures("quiet", "beside_threads")
def test_a_service_is_tested_in_a_fraction_of_a_second() -> None:
    """A rebalance, a poison record, a dead broker, sessions that end, a minute of retries."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        runner.run(tested.scenario())  # imports what it needs
    gc.collect()  # what other tests left behind is no cost of this one
    gc.disable()
    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            runner.run(tested.scenario())
        finally:
            sys.setprofile(before)
            gc.enable()
        assert runner.get_loop().time() > 60
    assert 0 < calls < A_SERVICE


@pytest.mark.brokers
@pytest.mark.slow
@pytest.mark.apart  # a figure; a hundred of them run in test_plugin.py
def test_a_thousand_tests_with_a_cluster_each(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(MODULE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "1000 passed" in ran.stdout, ran.stdout + ran.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < A_THOUSAND
