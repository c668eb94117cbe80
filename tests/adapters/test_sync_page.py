"""The page on the blocking consumers: each of its programs runs as printed there."""

import re
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
def brokers() -> Iterator[str]:
    def write(cluster: Cluster) -> None:
        cluster.topic("orders", 2)
        cluster.group("workers", share_auto_offset_reset="earliest")
        for number, value in enumerate(ORDERS):
            cluster.produce("orders", value=value, key=b"%d" % (number % 3))

    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(write).result()
        yield cluster.bootstrap


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
