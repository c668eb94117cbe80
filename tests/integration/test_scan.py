"""Scans of a real broker: their ends, their gaps, and what happens to the topic meanwhile."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Place

from kafka_async import TopicPartition, scan
from kafka_async.adapters.tables.scan import Scan
from kafka_async.errors import DataLossError, OffsetOutOfRangeError
from kafka_async.sync import KafkaConsumer
from tests.brokers import KafkaCluster

from .test_read_committed import Transactions
from .tools import new_topic, wait_until

pytestmark = pytest.mark.brokers
SOON = 10.0
"""Seconds within which what cannot be read is an error."""


def table_of(cluster: KafkaCluster, *topics: str, **options: Any) -> Scan:
    return scan(*topics, bootstrap_servers=cluster.bootstrap_servers, **options)


def offsets(table: Any) -> list[int]:
    found: list[int] = table.column("offset").to_pylist()
    return found


@contextmanager
def soon() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SOON


def rows_of(consumer: KafkaConsumer[Any, Any]) -> Iterator[int]:
    while (columns := consumer.next_columns(("value",), timeout_ms=60_000)) is not None:
        yield columns.rows


def lose(cluster: KafkaCluster, topic: str, before: int) -> None:
    """Delete the records of partition 0 before an offset, as retention does."""
    place = Place(topic, 0, before)
    cluster.admin.delete_records([place])[place].result()


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_log_that_ends_in_a_marker_is_read_without_waiting(kafka44: KafkaCluster, outcome: Any) -> None:
    topic = new_topic(kafka44, 3)
    kafka44.produce(topic, 20)
    kafka44.produce(topic, 10, transaction=outcome)
    wait_until(lambda: sum(kafka44.end_offsets(topic).values()) > 30)  # brokers write markers after they have answered the producer
    with soon():
        table = table_of(kafka44, topic)
        assert table.count() == (30 if outcome == "commit" else 20)
    ranges = table.ranges
    assert sum(end for _, end in ranges.values()) > 30, "markers have offsets"
    assert len(ranges) == 3


def test_exactly_the_pinned_offsets_come_while_a_producer_runs(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 2)
    kafka44.produce(topic, 2000)
    over = threading.Event()

    def produce() -> None:
        while not over.is_set():
            kafka44.produce(topic, 200)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        table = table_of(kafka44, topic, ordered=True)
        pinned = sum(end - start for start, end in table.ranges.values())
        first, second = table.to_arrow(), table.to_arrow()
        again = table_of(kafka44, ranges=table.ranges, ordered=True).to_arrow()
    finally:
        over.set()
        producing.join()
    assert first.num_rows == pinned >= 2000
    assert first.equals(second)
    assert first.equals(again)
    assert table.refresh().count() > pinned


def test_times_that_are_not_in_order(kafka44: KafkaCluster) -> None:
    """What is late behind ``until`` is missed unless it is looked for; ``since`` misses nothing, and drops what is older."""
    topic, then = new_topic(kafka44), round(time.time()) * 1000 - 3_600_000
    times = (10, 20, 30, 15, 40, 25)
    kafka44.produce(topic, len(times), timestamps=lambda index: then + times[index])

    def found(**options: Any) -> list[int]:
        return offsets(table_of(kafka44, topic, **options).to_arrow())

    def at(ms: int) -> datetime:
        return datetime.fromtimestamp(then / 1000, UTC) + timedelta(milliseconds=ms)

    assert found(since=at(20)) == [1, 2, 4, 5]
    assert found(until=at(31)) == [0, 1, 2, 3]
    assert found(until=at(31), late="1s") == [0, 1, 2, 3, 5]
    assert found(since=at(16), until=at(31), late=timedelta(milliseconds=9)) == [1, 2]
    assert found(since=at(41)) == []


def test_what_an_open_transaction_holds_back(kafka44: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    topic = new_topic(kafka44)
    transactions = Transactions(kafka44, topic)
    kafka44.produce(topic, 3)
    producer = transactions.begin()
    transactions.write(producer, "open", "open")
    kafka44.produce(topic, 2)
    table = table_of(kafka44, topic)
    with soon(), caplog.at_level(logging.WARNING, "kafka_async.scan"):
        assert table.count() == 3
    assert "4 offsets are held back by transactions that are still open" in caplog.text
    assert table.held_back == {TopicPartition(topic, 0): 4}
    assert table_of(kafka44, topic, isolation_level="read_uncommitted").count() == 7
    producer.commit_transaction(30)
    assert table.count() == 3
    assert table.refresh().count() == 7


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_ranges_beyond_the_log_are_an_error_soon(kafka44: KafkaCluster, isolation: Any) -> None:
    """Also once records have come: an incremental response says nothing of a partition that has not changed (KIP-227)."""
    topic = new_topic(kafka44, 2)
    kafka44.produce(topic, 40)
    ends = kafka44.end_offsets(topic)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with soon(), pytest.raises(OffsetOutOfRangeError, match="are not in its log, which ends at") as caught:
        table_of(kafka44, topic, until={0: ends[0] + 10}, isolation_level=isolation).count()
    assert caught.value.offsets == {first: ends[0]}
    with KafkaConsumer(bootstrap_servers=kafka44.bootstrap_servers, isolation_level=isolation) as consumer:
        consumer.assign_ranges({first: (0, ends[0] + 10), second: (0, ends[1])})
        rows: list[int] = []
        with soon(), pytest.raises(OffsetOutOfRangeError, match="are not in its log, which ends at") as caught:
            rows.extend(rows_of(consumer))
        assert sum(rows) == 40
        assert caught.value.offsets == {first: ends[0]}


def test_retention_takes_the_beginning_once_it_is_pinned(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 100)
    table, skipping = (table_of(kafka44, topic, on_loss=policy) for policy in ("raise", "skip"))
    assert table.ranges == skipping.ranges
    lose(kafka44, topic, 40)
    with pytest.raises(DataLossError, match=f"{topic}-0"):
        table.to_arrow()
    assert offsets(skipping.to_arrow()) == list(range(40, 100))
    assert skipping.losses == (f"{topic}-0: offsets 0 to 99 are gone, in part or all; reading 40 to 99 of them",)


@pytest.mark.parametrize("on_loss", ["raise", "skip"])
def test_retention_takes_what_was_not_read_yet(kafka44: KafkaCluster, on_loss: Any) -> None:
    """Two megabytes are fetched ahead at most, so the middle is not here when it is deleted."""
    topic = new_topic(kafka44, segment_bytes=str(1 << 20))
    kafka44.produce(topic, 6000, size=2000)
    small = {"fetch_buffer_bytes": 2 << 20, "max_partition_fetch_bytes": 1 << 20, "fetch_max_bytes": 1 << 20}
    table = table_of(kafka44, topic, columns=["offset"], on_loss=on_loss, **small)
    batches = iter(table)
    seen = [next(batches)]
    lose(kafka44, topic, 5000)
    if on_loss == "raise":
        with pytest.raises(DataLossError, match="on_loss='skip'"):
            seen.extend(batches)
    else:
        seen.extend(batches)
        assert offsets(seen[-1])[-1] == 5999
        (loss,) = table.losses
        assert f"{topic}-0: offsets" in loss
        assert "reading 5000 to 5999 of them" in loss
    found = [offset for batch in seen for offset in offsets(batch)]
    assert found == sorted({*found}), "each once"
    assert len(found) < 6000


def test_a_topic_that_was_made_anew(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 50)
    table = table_of(kafka44, topic)
    assert table.count() == 50
    kafka44.delete_topics(topic)
    kafka44.create_topic(topic, 1)
    kafka44.produce(topic, 80)
    with pytest.raises(DataLossError, match="deleted and created again"):
        table.to_arrow()
    assert table.refresh().count() == 80


def test_ranges_of_which_compaction_took_the_end_or_all(kafka44: KafkaCluster) -> None:
    topic = new_topic(
        kafka44, cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", segment_ms="60000", min_compaction_lag_ms="0"
    )
    hour_ago = 1_700_000_000_000
    for start in range(0, 400, 100):
        kafka44.produce(topic, 100, start=start, keys=lambda index: b"%d" % (index % 10), timestamps=lambda index: hour_ago)
    kafka44.produce(topic, 1, start=400, keys=lambda index: b"last", timestamps=lambda index: hour_ago + 3_600_000)
    until = time.monotonic() + 60
    while table_of(kafka44, topic).count() > 11:
        assert time.monotonic() < until
    with soon():
        assert offsets(table_of(kafka44, topic).to_arrow()) == [*range(390, 401)]
    with soon():
        assert table_of(kafka44, topic, until={0: 250}).count() == 0
    with soon():
        assert table_of(kafka44, topic, since={0: 100}, until={0: 395}).count() == 5


def test_processes_read_what_one_reads(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 3)
    kafka44.produce(topic, 30_000)
    one = table_of(kafka44, topic).to_arrow()
    two = table_of(kafka44, ranges=table_of(kafka44, topic).ranges, processes=2).to_arrow()
    order = [("partition", "ascending"), ("offset", "ascending")]
    assert two.sort_by(order).equals(one.sort_by(order))


READER = """
from pathlib import Path
from kafka_async import scan
rows = pages = 0
for batch in scan({topic!r}, bootstrap_servers={servers!r}):
    rows += batch.num_rows
    pages = max(pages, int(Path("/proc/self/statm").read_text().split()[1]))
print(rows, pages * 4)
"""
"""Linux hands the peak of a process on to those that it starts, so this looks by itself."""


def test_records_of_nearly_a_megabyte_take_little_memory(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 300, size=900_000)
    program = READER.format(topic=topic, servers=kafka44.bootstrap_servers)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603  # ours
    rows, kilobytes = map(int, said.stdout.split())
    kafka44.delete_topics(topic)  # other tests need the disk, too
    assert rows == 300
    assert kilobytes < 200_000, "of 270,000 in all"
