"""The examples of Spark read from a broker that they are told of, ``HOST:PORT TOPIC``, and get the right result."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.brokers import KafkaCluster
from tests.whole.test_examples import run, skip_without_spark

from .test_examples_on_brokers import ALL, ORDERS, PARTITIONS, orders, second, write
from .tools import new_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]

__all__ = ["orders"]  # a fixture


def test_the_pipeline_of_spark_has_each_order_in_both_results(
    kafka44: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_spark("spark_pipeline")
    topic = write(kafka44, new_topic(kafka44, PARTITIONS), ORDERS)
    kafka44.produce(topic, 1, values=lambda _: b"not an order")
    monkeypatch.setenv("PIPELINE", str(tmp_path))

    done = run("spark_pipeline", kafka44.bootstrap_servers, topic, timeout=280)

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


@pytest.mark.apart  # test_examples.py runs it against the cluster in memory, and the pipeline above runs on this one
def test_the_declarative_pipeline_of_spark_has_each_order_in_both_tables(
    kafka44: KafkaCluster, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_spark("spark_declarative")
    monkeypatch.setenv("PIPELINE", str(tmp_path))

    done = run("spark_declarative", kafka44.bootstrap_servers, orders, timeout=280)

    assert done.returncode == 0, done.stderr
    count, *items = done.stdout.splitlines()
    columns = "key, order, customer, item, quantity, cents, _corrupt, _corrupt_reason, "
    assert count.startswith(f"{ORDERS} orders in a table of {columns}")
    revenue: dict[str, list[int]] = {}
    for each in ALL:
        revenue.setdefault(each["item"], []).append(each["cents"])
    assert items == [f"{len(cents):>8,} {item}, {sum(cents) / 100:,.2f} in total" for item, cents in sorted(revenue.items())]
