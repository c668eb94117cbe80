"""The examples read from a broker that they are told of, ``HOST:PORT TOPIC``, and get the right result.

Spark's end when they have read what is there. The others go on until they are interrupted, as by Ctrl-C.
"""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kafka_async.adapters.cli.demo import order
from tests.brokers import KafkaCluster
from tests.whole.test_examples import ROOT

from .tools import PATIENCE, new_topic, until

pytestmark = pytest.mark.brokers

ORDERS: Final = 500
PARTITIONS: Final = 2
MARKS: Final = ("QZJXKVWYBGFHMPULD", "DLUPMHFGBYWVKXJZQ")
"""Each stands in the last order of a partition. Nothing else has a part of one, so that a file shows them, compressed or not."""
BEGIN: Final = int(time.time()) // 60 * 60 - 600


def order_of(number: int) -> bytes:
    """Return the value that is written as the ``number``-th."""
    text = order(number, 0)[1]
    return (text if number < ORDERS - PARTITIONS else f'{text[:-1]},"note":"{MARKS[number % PARTITIONS]}"}}').encode()


ALL: Final[list[dict[str, Any]]] = [json.loads(order_of(number)) for number in range(ORDERS)]


def second(number: int) -> int:
    """Return when an order was given: three each second, which makes some minutes."""
    return BEGIN + number // 3


def write(cluster: KafkaCluster, topic: str, count: int, start: int = 0) -> str:
    """Write ``count`` orders from the one numbered ``start`` on, partitions in turn. Return the topic."""
    cluster.produce(
        topic, count, values=order_of, partitions=PARTITIONS, start=start, timestamps=lambda number: second(number) * 1000
    )
    return topic


@pytest.fixture(scope="module")
def orders(kafka44: KafkaCluster) -> str:
    """A topic with all orders."""
    return write(kafka44, new_topic(kafka44, PARTITIONS), ORDERS)


@contextmanager
def running(name: str, cluster: KafkaCluster, topic: str, folder: Path) -> Iterator[Path]:
    """Run an example while the block lasts, then interrupt it. Gives the file with what it says."""
    said, complaints = folder / "said", folder / "complaints"
    command = [sys.executable, "-W", "error", "-m", f"examples.{name}", cluster.bootstrap_servers, topic]
    settings = {
        "PYTHONUNBUFFERED": "1",
        "PARQUET": str(folder / "orders.parquet"),
        "DATABASE": str(folder / "revenue.sqlite"),
        "PORT": "0",
    }
    with said.open("wb") as out, complaints.open("wb") as err:
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | settings, stdout=out, stderr=err)  # noqa: S603  # our own
    try:
        yield said
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    except BaseException as error:
        error.add_note(complaints.read_text())
        raise
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in complaints.read_text()
    assert "Exception ignored" not in complaints.read_text()


def started(command: list[str], environment: Mapping[str, str], out: Any = None) -> "subprocess.Popen[bytes]":
    """Start a program of ours."""
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out)  # noqa: S603  # our own


async def test_consume_says_how_far_it_is(kafka44: KafkaCluster, orders: str, tmp_path: Path) -> None:
    with running("consume", kafka44, orders, tmp_path) as said:
        await until(lambda: f"\n{ORDERS} records; " in said.read_text())

    first, last = said.read_text().splitlines()
    assert re.fullmatch(rf"{ORDERS // 2} records; {orders}-[01] is at offset \d+", first)
    assert re.fullmatch(rf"{ORDERS} records; {orders}-[01] is at offset {ORDERS // PARTITIONS - 1}", last)


async def test_blocking_reads_every_partition(kafka44: KafkaCluster, orders: str, tmp_path: Path) -> None:
    def read() -> Counter[str]:
        found: Counter[str] = Counter()
        for count, partition in re.findall(r"^(\d+) records of (\S+)\n", said.read_text(), re.MULTILINE):
            found[partition] += int(count)
        return found

    with running("blocking", kafka44, orders, tmp_path) as said:
        await until(lambda: read().total() >= ORDERS)

    assert read() == {f"{orders}-{number}": ORDERS // PARTITIONS for number in range(PARTITIONS)}


async def test_batches_has_each_order_and_the_offsets_in_its_database(kafka44: KafkaCluster, tmp_path: Path) -> None:
    def select(query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(tmp_path / "revenue.sqlite")) as database:
            try:
                return database.execute(query).fetchall()
            except sqlite3.OperationalError:  # the tables are not there yet
                return []

    def stored(count: int) -> bool:
        return sum(int(row[0]) for row in select("SELECT next FROM offsets")) >= count

    topic = new_topic(kafka44, PARTITIONS)
    for start in (0, ORDERS // 2):  # the second time it goes on behind the first half
        write(kafka44, topic, ORDERS // 2, start)
        with running("batches", kafka44, topic, tmp_path):
            await until(partial(stored, start + ORDERS // 2))

    revenue: Counter[str] = Counter()
    for each in ALL:
        revenue[each["customer"]] += each["cents"]
    assert dict(select("SELECT customer, cents FROM revenue")) == revenue
    offsets = [(topic, number, ORDERS // PARTITIONS) for number in range(PARTITIONS)]
    assert select("SELECT * FROM offsets ORDER BY partition") == offsets


async def test_arrow_leaves_a_whole_file_behind(kafka44: KafkaCluster, orders: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: pip install '.[arrow]'")
    file = tmp_path / "orders.parquet"

    with running("arrow", kafka44, orders, tmp_path):
        await until(lambda: file.exists() and all(mark.encode() in file.read_bytes() for mark in MARKS))

    rows = parquet.read_table(file, columns=["topic", "partition", "offset", "value"]).to_pylist()
    expected = [(orders, number % PARTITIONS, number // PARTITIONS, order_of(number)) for number in range(ORDERS)]
    assert sorted(tuple(row.values()) for row in rows) == sorted(expected)


async def test_web_service_counts_the_orders(kafka44: KafkaCluster, orders: str, tmp_path: Path) -> None:
    def ask(path: str) -> Any:
        with urllib.request.urlopen(said.read_text().strip() + path, timeout=PATIENCE) as answer:  # noqa: S310  # our own
            return json.load(answer)

    with running("web_service", kafka44, orders, tmp_path) as said:
        await until(lambda: said.read_text().endswith("/\n"))
        await until(lambda: ask("")["records"] >= ORDERS)
        counted, health = ask(""), ask("health")

    ordered: Counter[str] = Counter()
    for each in ALL:
        ordered[each["item"]] += each["quantity"]
    lag = {f"{orders}-{number}": 0 for number in range(PARTITIONS)}
    assert counted == {"records": ORDERS, "ordered": ordered, "lag": lag}
    assert health == {"state": "steady"}


async def test_metrics_are_served_to_prometheus(kafka44: KafkaCluster, orders: str, tmp_path: Path) -> None:
    def ask() -> str:
        with urllib.request.urlopen(said.read_text().strip(), timeout=PATIENCE) as answer:  # noqa: S310  # our own
            return str(answer.read(), "utf-8")

    consumed = f'org_apache_kafka_consumer_fetch_manager_records_consumed_total{{client_id="billing-1"}} {ORDERS}\n'
    with running("metrics", kafka44, orders, tmp_path) as said:
        await until(lambda: said.read_text().endswith("/metrics\n"))
        await until(lambda: consumed in ask())
        text = ask()

    assert (
        f'org_apache_kafka_consumer_fetch_manager_records_lag{{client_id="billing-1",topic="{orders}",partition="0"}} 0\n' in text
    )
    names = re.findall(r"^# TYPE (\w+) (?:counter|gauge)$", text, re.MULTILINE)
    assert len(names) == len(set(names)), "Prometheus wants the series of a name together"
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'\w+{(?:\w+="[^"]*",?)+} \S+', row) for row in rows)


async def test_exactly_once_counts_each_order_once_whatever_kills_it(kafka44: KafkaCluster, tmp_path: Path) -> None:
    topic = write(kafka44, new_topic(kafka44, PARTITIONS), ORDERS)
    short = {"consumer.session.timeout.ms": "3000", "consumer.heartbeat.interval.ms": "500"}
    kafka44.alter_config("group", "revenue", short)  # what was killed is a member for so long
    command = [sys.executable, "-m", "examples.exactly_once", kafka44.bootstrap_servers, topic]
    environment = os.environ | {"DATABASE": str(tmp_path / "revenue.sqlite")}

    def counted() -> int:
        with closing(sqlite3.connect(tmp_path / "revenue.sqlite")) as database:
            try:
                return int(database.execute("SELECT coalesce(sum(orders), 0) FROM revenue").fetchone()[0])
            except sqlite3.OperationalError:  # the tables are not there yet, or it is writing
                return 0

    for until_there_are in (ORDERS // 5, ORDERS // 2, ORDERS):
        process = started(command, environment)
        try:
            await until(lambda: counted() >= until_there_are, 2 * PATIENCE)  # noqa: B023 - called within the loop
        finally:
            process.kill()
            process.wait()
    with closing(sqlite3.connect(tmp_path / "revenue.sqlite")) as database:
        revenue = dict(database.execute("SELECT customer, cents FROM revenue"))
    expected: Counter[str] = Counter()
    for each in ALL:
        expected[each["customer"]] += each["cents"]
    assert revenue == expected


async def test_a_service_ends_well_at_sigterm(kafka44: KafkaCluster, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="pip install fastapi httpx uvicorn")
    topic = write(kafka44, new_topic(kafka44, PARTITIONS), ORDERS)
    kafka44.produce(topic, 1, values=lambda _: None, partitions=PARTITIONS)
    said = tmp_path / "said"
    with said.open("wb") as out:
        command = [sys.executable, "-W", "error", "-m", "examples.fastapi_service", kafka44.bootstrap_servers, topic]
        process = started(command, os.environ, out)

    def get(path: str) -> tuple[int, str]:
        url = said.read_text().splitlines()[0].rstrip("/") + path
        with urllib.request.urlopen(url) as answer:  # noqa: S310  # of our own process
            return answer.status, answer.read().decode()

    try:
        await until(lambda: "/" in said.read_text() and get("/ready")[0] == 200)
        await until(lambda: json.loads(get("/")[1]) == {"billed": ORDERS, "refused": 1, "unread": 0})
        assert get("/alive")[0] == 200
        assert "org_apache_kafka_consumer_processing_dead_letter_total" in get("/metrics")[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert said.read_text().endswith(f"left the group: {ORDERS} billed\n")
    assert sum(offset for (name, _), offset in kafka44.committed("billing").items() if name == topic) == ORDERS + 1
