"""Scans that several processes read."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_async.adapters.ranges.planner import OffsetRange
from kafka_async.adapters.tables.layout import TableLayout
from kafka_async.adapters.tables.scan import scan
from kafka_async.adapters.tables.streams import Job
from kafka_async.adapters.tables.worker import LARGEST, Parent
from kafka_async.adapters.tables.workers import Workers, error_of
from kafka_async.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    DataLossError,
    DeserializationError,
    KafkaConfigurationError,
    OffsetOutOfRangeError,
    WorkerError,
)
from kafka_async.testing import Cluster
from tests.integration.tools import wait_until

from .support import A0, A1, Scanned, filled, scanned

pytestmark = pytest.mark.brokers


def children() -> set[int]:
    """Return the processes that this one has started, and that are there still."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found.update(map(int, task.joinpath("children").read_text().split()))
    return found


@pytest.fixture(scope="module")
def large() -> Iterator[Scanned]:
    """A topic of 24 MB, which is many batches."""
    with scanned() as found:
        found.do(lambda cluster: cluster.topic("a", partitions=2))
        for partition in range(2):
            values = [b"%d." % number + bytes(2000) for number in range(6000)]
            found.do(lambda cluster, values=values, partition=partition: cluster.produce_many("a", values, partition=partition))
        yield found


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_read_each_record_once(large: Scanned, processes: int) -> None:
    before = children()
    table = large.scan("a", processes=processes, columns=["topic", "partition", "offset", "value"]).to_arrow()
    assert sorted(zip(*(table.column(name).to_pylist() for name in ("partition", "offset")), strict=True)) == [
        (partition, offset) for partition in range(2) for offset in range(6000)
    ]
    assert all(row["value"].startswith(b"%d." % row["offset"]) for row in table.slice(0, 5000).to_pylist())
    assert set(table.column("topic").to_pylist()) == {"a"}
    assert children() == before


def test_values_are_decoded_where_they_are_read() -> None:
    with filled(5000, partitions=2) as found:
        table = found.scan("a", processes=2, values="text", on_bad="skip", columns=["value"])
        assert sorted(map(int, table.to_arrow().column("value").to_pylist())) == sorted([*range(5000)] * 2)
        assert table.count() == 10_000
        assert table.head(3).column("value").to_pylist() == ["0", "1", "2"]


def test_a_worker_that_is_killed_names_its_ranges(large: Scanned) -> None:
    before = children()
    batches = iter(large.scan("a", processes=2))
    assert next(batches).num_rows
    victim = min(children() - before)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"was killed by signal 9; it was reading a-[01] from \d+ to \d+") as caught:
        for _ in batches:
            pass
    assert re.search(r"a-[01] from (0|3000) to (3000|6000)", str(caught.value))
    assert children() == before


def test_a_worker_that_is_killed_leaves_no_table(large: Scanned) -> None:
    before, found = children(), []

    def kill() -> None:
        until = time.monotonic() + 20
        while not (there := children() - before) and time.monotonic() < until:
            threading.Event().wait(0.01)
        for pid in there:
            os.kill(pid, signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    with pytest.raises(WorkerError):
        found.append(large.scan("a", processes=2).to_arrow())
    killing.join()
    assert found == []
    assert children() == before


def test_leaving_early_leaves_no_process(large: Scanned) -> None:
    before = children()
    for _ in large.scan("a", processes=2):
        break
    assert children() == before


async def test_a_cancelled_loop_leaves_no_process_whether_it_waits_for_a_batch_or_handles_one(large: Scanned) -> None:
    before, batches = children(), 0

    async def read(forever: bool) -> None:
        nonlocal batches
        async for _ in large.scan("a", processes=2):
            batches += 1
            if forever:
                await asyncio.Event().wait()

    for forever in (True, False):
        failed: asyncio.Task[None] = asyncio.create_task(read(forever))
        await asyncio.to_thread(wait_until, lambda: batches if forever else children() - before)  # noqa: B023  # at once
        failed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await failed
        # A loop that is left ends its generator as soon as nothing refers to it, which Python decides.
        await asyncio.to_thread(wait_until, lambda: children() == before)


def test_a_loop_that_is_cancelled_leaves_no_process_when_asyncio_is_over(large: Scanned) -> None:
    before = children()
    kept: list[object] = []

    async def read() -> None:
        async for _ in large.scan("a", processes=2):
            await asyncio.Event().wait()

    async def cancelled() -> None:
        reading: asyncio.Task[None] = asyncio.create_task(read())
        await asyncio.to_thread(wait_until, lambda: len(children() - before) == 2)
        reading.cancel()
        kept.extend(await asyncio.gather(reading, return_exceptions=True))  # with all that its frames refer to

    asyncio.run(cancelled())
    assert isinstance(kept.pop(), asyncio.CancelledError)
    assert children() == before


def test_a_process_that_is_frozen_is_gone_when_asyncio_is_over(large: Scanned) -> None:
    """So is one that is still importing, on a machine that is busy: neither sees that its link was closed."""
    before = children()

    async def read() -> None:
        async for _ in large.scan("a", processes=2):
            pass

    async def cancelled() -> None:
        reading = asyncio.create_task(read())
        await asyncio.to_thread(wait_until, lambda: len(children() - before) == 2)
        for pid in children() - before:
            os.kill(pid, signal.SIGSTOP)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading

    asyncio.run(cancelled())
    assert children() == before


PROGRAM = """
import time
from pathlib import Path
from kafka_async import scan

for batch in scan("a", bootstrap_servers={servers!r}, processes=2):
    print(*(pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_is_ended_leaves_no_process(large: Scanned, number: signal.Signals) -> None:
    program = PROGRAM.format(servers=large.served.bootstrap)
    with subprocess.Popen(  # noqa: S603  # ours
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        workers = process.stdout.readline().split()
        assert len(workers) == 2
        process.send_signal(number)
        _, said = process.communicate(timeout=20)
    if number == signal.SIGINT:
        assert said.rstrip().endswith("KeyboardInterrupt")
        assert said.count("Traceback") == 1, "workers say nothing"
    until = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < until


async def test_leaving_early_in_a_loop_leaves_no_process(large: Scanned) -> None:
    before = children()
    batches = aiter(large.scan("a", processes=2))
    assert (await anext(batches)).num_rows
    assert children() > before
    await batches.aclose()  # type: ignore[attr-defined]  # a generator
    assert children() == before


def test_errors_of_workers_keep_their_class() -> None:
    with filled(1000, partitions=2) as found:
        with pytest.raises(DeserializationError, match=r"a-[01] at offset 0") as caught:
            found.scan("a", processes=2, values="json", schema="id BIGINT", on_bad="raise").to_arrow()
        assert "raised in a process that read a part of the scan" in caught.value.__notes__
        table, skipping = (found.scan("a", processes=2, on_loss=policy) for policy in ("raise", "skip"))
        assert table.ranges == skipping.ranges
        found.do(lambda cluster: cluster.delete_before(A0, 300))
        with pytest.raises(DataLossError, match="on_loss='skip'"):
            table.to_arrow()
        assert skipping.to_arrow().num_rows == 1700
        assert skipping.losses == ("a-0: offsets 0 to 999 are gone, in part or all; reading 300 to 999 of them",)


def test_progress_counts_what_all_of_them_read(large: Scanned) -> None:
    told: list[Any] = []
    assert large.scan("a", processes=2, progress=told.append).count() == 12_000
    assert (told[-1].offsets, told[-1].total, told[-1].rows) == (12_000, 12_000, 12_000)


def test_processes_share_partitions_however_many_there_are() -> None:
    """What each is to read is then more than a message between processes may hold."""
    names = [f"{number:03}".ljust(240, "x") for number in range(1000)]
    with scanned() as found:
        for name in names:
            found.do(partial(Cluster.topic, name=name))
            found.do(partial(Cluster.produce, topic=name, value="v"))
        assert found.scan(*names, processes=2).count() == 1000


def test_progress_counts_records_that_are_left_out() -> None:
    told: list[Any] = []
    with filled(1000, partitions=2) as found:
        size = {"max_partition_fetch_bytes": 1000, "fetch_max_bytes": 1000}
        table = found.scan("a", processes=2, values="json", schema="id BIGINT", on_bad="skip", progress=told.append, **size)
        assert table.count() == 0
    assert (told[-1].offsets, told[-1].total, told[-1].rows) == (2000, 2000, 0)


def test_errors_of_workers_say_where() -> None:
    with filled(1000, partitions=2) as found:
        found.do(lambda cluster: cluster.corrupt(A1, 700))
        with pytest.raises(CorruptRecordException) as alone:
            found.scan("a").to_arrow()
        with pytest.raises(CorruptRecordException) as caught:
            found.scan("a", processes=2).to_arrow()
    assert str(caught.value) == str(alone.value)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("a", 1, 700)


def test_offsets_of_an_error_of_a_worker_are_those_of_partitions() -> None:
    error = error_of("OffsetOutOfRangeError", "why", {"offsets": [["a", 1, 700]]})
    assert isinstance(error, OffsetOutOfRangeError)
    assert error.offsets == {A1: 700}
    assert str(error) == "[Error 1] OffsetOutOfRangeError: why"


def test_an_option_that_cannot_be_sent_is_named(large: Scanned) -> None:
    with pytest.raises(KafkaConfigurationError, match="processes: the option trace cannot be sent to another process"):
        large.scan("a", processes=2, trace=lambda event: None).to_arrow()


class Sent:
    """An option that does something when it is sent to a process."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def __reduce__(self) -> Any:
        self.act()
        return int, ()


def test_a_scan_that_is_closed_while_its_first_process_is_started_reads_nothing() -> None:
    before, tasks = children(), [(OffsetRange(A0, 0, 10),), (OffsetRange(A1, 0, 10),)]
    layout = TableLayout(names=("value",), raw={"value": "value"}, topics=("a",))
    job = Job(options={"trace": Sent(lambda: workers.stop())}, layout=layout, fails=True)
    workers = Workers(job, tasks, 2, pytest.fail)
    with pytest.raises(ConsumerStoppedError, match="the scan was stopped"):
        list(workers)
    assert children() == before


@pytest.mark.parametrize("given", [0, -1, 1.5, True])
def test_a_number_of_processes(given: Any) -> None:
    with pytest.raises(KafkaConfigurationError, match=f"processes={given!r}: expected a number"):
        scan("a", processes=given)
    with pytest.raises(KafkaConfigurationError, match="ordered: one process"):
        scan("a", processes=2, ordered=True)


def test_a_text_that_no_message_could_hold_arrives_as_far_as_there_is_room() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        Parent(theirs).tell("lost", "\N{GRINNING FACE}" * 200_000)
        kind, text = json.loads(ours.recv(LARGEST))
    assert kind == "lost"
    assert len(text) > 1000
    assert {*text} == {"\N{GRINNING FACE}"}
