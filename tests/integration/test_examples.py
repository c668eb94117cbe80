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
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kafka_async.adapters.demo import order
from tests.brokers import KafkaCluster
from tests.test_examples import ROOT, run, skip_without_spark

from .tools import PATIENCE, new_topic, until

pytestmark = pytest.mark.integration

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
def orders(kafka43: KafkaCluster) -> str:
    """A topic with all orders."""
    return write(kafka43, new_topic(kafka43, PARTITIONS), ORDERS)


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
        assert process.wait(PATIENCE) == -signal.SIGINT
    except BaseException as error:
        error.add_note(complaints.read_text())
        raise
    finally:
        process.kill()
        process.wait()
    assert complaints.read_text().endswith("KeyboardInterrupt\n")
    assert "Exception ignored" not in complaints.read_text()


async def test_consume_says_how_far_it_is(kafka43: KafkaCluster, orders: str, tmp_path: Path) -> None:
    with running("consume", kafka43, orders, tmp_path) as said:
        await until(lambda: f"\n{ORDERS} records; " in said.read_text())

    first, last = said.read_text().splitlines()
    assert re.fullmatch(rf"{ORDERS // 2} records; {orders}-[01] is at offset \d+", first)
    assert re.fullmatch(rf"{ORDERS} records; {orders}-[01] is at offset {ORDERS // PARTITIONS - 1}", last)


async def test_blocking_reads_every_partition(kafka43: KafkaCluster, orders: str, tmp_path: Path) -> None:
    def read() -> Counter[str]:
        found: Counter[str] = Counter()
        for count, partition in re.findall(r"^(\d+) records of (\S+)\n", said.read_text(), re.MULTILINE):
            found[partition] += int(count)
        return found

    with running("blocking", kafka43, orders, tmp_path) as said:
        await until(lambda: read().total() >= ORDERS)

    assert read() == {f"{orders}-{number}": ORDERS // PARTITIONS for number in range(PARTITIONS)}


async def test_batches_has_each_order_and_the_offsets_in_its_database(kafka43: KafkaCluster, tmp_path: Path) -> None:
    def select(query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(tmp_path / "revenue.sqlite")) as database:
            try:
                return database.execute(query).fetchall()
            except sqlite3.OperationalError:  # the tables are not there yet
                return []

    def stored(count: int) -> bool:
        return sum(int(row[0]) for row in select("SELECT next FROM offsets")) >= count

    topic = new_topic(kafka43, PARTITIONS)
    for start in (0, ORDERS // 2):  # the second time it goes on behind the first half
        write(kafka43, topic, ORDERS // 2, start)
        with running("batches", kafka43, topic, tmp_path):
            await until(partial(stored, start + ORDERS // 2))

    revenue: Counter[str] = Counter()
    for each in ALL:
        revenue[each["customer"]] += each["cents"]
    assert dict(select("SELECT customer, cents FROM revenue")) == revenue
    offsets = [(topic, number, ORDERS // PARTITIONS) for number in range(PARTITIONS)]
    assert select("SELECT * FROM offsets ORDER BY partition") == offsets


async def test_arrow_leaves_a_whole_file_behind(kafka43: KafkaCluster, orders: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: pip install 'kafka-async[arrow]'")
    file = tmp_path / "orders.parquet"

    with running("arrow", kafka43, orders, tmp_path):
        await until(lambda: file.exists() and all(mark.encode() in file.read_bytes() for mark in MARKS))

    rows = parquet.read_table(file, columns=["topic", "partition", "offset", "value"]).to_pylist()
    expected = [(orders, number % PARTITIONS, number // PARTITIONS, order_of(number)) for number in range(ORDERS)]
    assert sorted(tuple(row.values()) for row in rows) == sorted(expected)


async def test_web_service_counts_the_orders(kafka43: KafkaCluster, orders: str, tmp_path: Path) -> None:
    def ask(path: str) -> Any:
        with urllib.request.urlopen(said.read_text().strip() + path, timeout=PATIENCE) as answer:  # noqa: S310  # our own
            return json.load(answer)

    with running("web_service", kafka43, orders, tmp_path) as said:
        await until(lambda: said.read_text().endswith("/\n"))
        await until(lambda: ask("")["records"] >= ORDERS)
        counted, health = ask(""), ask("health")

    ordered: Counter[str] = Counter()
    for each in ALL:
        ordered[each["item"]] += each["quantity"]
    lag = {f"{orders}-{number}": 0 for number in range(PARTITIONS)}
    assert counted == {"records": ORDERS, "ordered": ordered, "lag": lag}
    assert health == {"state": "steady"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_pipeline_of_spark_has_each_order_in_both_results(
    kafka43: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_spark("spark_pipeline")
    topic = write(kafka43, new_topic(kafka43, PARTITIONS), ORDERS)
    kafka43.produce(topic, 1, values=lambda _: b"not an order")
    monkeypatch.setenv("PIPELINE", str(tmp_path))

    done = run("spark_pipeline", kafka43.bootstrap_servers, topic, timeout=280)

    assert done.returncode == 0, done.stderr
    revenue: dict[tuple[str, str], tuple[int, int]] = {}
    for number, each in enumerate(ALL):
        start = time.strftime("%Y-%m-%d %H:%M:00", time.gmtime(second(number)))
        count, cents = revenue.get((start, each["item"]), (0, 0))
        revenue[start, each["item"]] = count + 1, cents + each["cents"]
    total = f"{sum(each['cents'] for each in ALL) / 100:,.2f} in total"
    assert done.stdout.splitlines() == [
        f"{ORDERS} orders in Parquet, {ORDERS} of them different, {total}",
        f"{ORDERS} orders in {len(revenue)} rows of the database, {total}",
    ]
    with closing(sqlite3.connect(tmp_path / "revenue.sqlite")) as database:
        found = database.execute("SELECT start, item, orders, cents FROM revenue").fetchall()
    assert sorted(found) == sorted((*key, *sums) for key, sums in revenue.items())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_declarative_pipeline_of_spark_has_each_order_in_both_tables(
    kafka43: KafkaCluster, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_spark("spark_declarative")
    monkeypatch.setenv("PIPELINE", str(tmp_path))

    done = run("spark_declarative", kafka43.bootstrap_servers, orders, timeout=280)

    assert done.returncode == 0, done.stderr
    count, *items = done.stdout.splitlines()
    assert count.startswith(f"{ORDERS} orders in a table of key, order, customer, item, quantity, cents, _corrupt, ")
    revenue: dict[str, list[int]] = {}
    for each in ALL:
        revenue.setdefault(each["item"], []).append(each["cents"])
    assert items == [f"{len(cents):>8,} {item}, {sum(cents) / 100:,.2f} in total" for item, cents in sorted(revenue.items())]
