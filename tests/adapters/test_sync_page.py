"""The page on the blocking consumers: each of its programs runs as printed there."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafka_async
from kafka_async.testing import Cluster, ThreadedCluster

PAGE = Path(kafka_async.__file__).parent / "SYNC.md"
PROGRAMS = re.findall(r"^#+ (.+?)$[^#]*?```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
ORDERS = [b"order %d" % number for number in range(12)]


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    def write(cluster: Cluster) -> None:
        cluster.topic("orders", 2)
        cluster.group("workers", share_auto_offset_reset="earliest")
        for number, value in enumerate(ORDERS):
            cluster.produce("orders", value=value, key=b"%d" % (number % 3))

    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(write).result()
        yield cluster


@pytest.fixture
def brokers(cluster: ThreadedCluster) -> str:
    return cluster.bootstrap


def test_the_page_has_a_program_under_each_heading_but_the_last() -> None:
    assert [title for title, _ in PROGRAMS] == re.findall(r"^#+ (.+)$", PAGE.read_text(), re.MULTILINE)[:-1]


@pytest.mark.parametrize(("title", "program"), PROGRAMS, ids=[title for title, _ in PROGRAMS])
def test_every_program_of_the_page_handles_every_order(title: str, program: str, brokers: str) -> None:
    seen: list[bytes] = []
    complete = threading.Event()
    names: dict[str, Any] = {}

    def handle(record: Any) -> None:
        seen.append(record.value)
        if len(seen) == len(ORDERS):
            complete.set()

    def store(_partition: object, records: list[Any]) -> None:
        for record in records:
            handle(record)

    def end() -> None:
        complete.wait()
        if "while batch" not in program:  # which ends by itself
            names["consumer"].stop()

    names |= {"handle": handle, "store": store, "serve": complete.wait}
    ending = threading.Thread(target=end)
    ending.start()
    try:
        exec(compile(program.replace("localhost:9092", brokers), f"{PAGE.name}: {title}", "exec"), names)  # noqa: S102 - our own page
    finally:
        complete.set()
        ending.join()
    assert sorted(seen) == sorted(ORDERS)


@pytest.mark.parametrize("heading", ["Without an event loop", "Many handlers at once"])
def test_with_the_line_of_the_page_sigterm_ends_a_program_as_ctrl_c_does(heading: str, cluster: ThreadedCluster) -> None:
    """It commits what is done, and leaves the group."""
    (line,) = set(re.findall(r"`(signal\.signal\(.*?)`,", PAGE.read_text()))
    handled = threading.Semaphore(0)

    def end() -> None:
        if not all(handled.acquire(timeout=30) for _ in ORDERS):
            return  # the program has ended, and says why
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    ending = threading.Thread(target=end)
    ending.start()
    try:
        exec(line, {"signal": signal})  # noqa: S102 - our own page
        program = dict(PROGRAMS)[heading].replace("localhost:9092", cluster.bootstrap)
        with pytest.raises(KeyboardInterrupt):
            exec(compile(program, f"{PAGE.name}: {heading}", "exec"), {"handle": lambda _: handled.release()})  # noqa: S102 - our own page
    finally:
        ending.join()
        signal.signal(signal.SIGTERM, before)
    committed = cluster.call(lambda brokers: brokers.committed("billing")).result()
    assert sum(found.offset for found in committed.values()) >= len(ORDERS) - 1  # one may have been in hand
    assert cluster.call(lambda brokers: brokers.members("billing")).result() == []


def test_a_job_that_fails_does_not_end_the_queue_and_is_tried_again(brokers: str, caplog: pytest.LogCaptureFixture) -> None:
    tried: list[bytes] = []
    names: dict[str, Any] = {}

    def handle(job: Any) -> None:
        tried.append(job.value)
        if tried.count(ORDERS[0]) == 1 and job.value == ORDERS[0]:
            raise ValueError("not now")
        if len(tried) == len(ORDERS) + 1:
            threading.Thread(target=names["consumer"].stop).start()

    program = dict(PROGRAMS)["A queue"].replace("localhost:9092", brokers)
    names["handle"] = handle
    exec(compile(program, f"{PAGE.name}: A queue", "exec"), names)  # noqa: S102 - our own page
    assert sorted(tried) == sorted([*ORDERS, ORDERS[0]])
    assert "ValueError: not now" in caplog.text
