"""``kafka-async export`` from a real broker: what transactions leave out, and exports that are killed again and again."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install '.[json]'")

import pyarrow.parquet as pq
from confluent_kafka import Producer

from tests.brokers import KafkaCluster

from .test_read_committed import Transactions
from .tools import new_topic, wait_until

pytestmark = pytest.mark.brokers

COUNT = 60_000
"""Records of a partition."""


def filled(cluster: KafkaCluster) -> str:
    """Return a topic of two partitions with JSON, in small batches."""
    topic = new_topic(cluster, 2)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 5, "queue.buffering.max.messages": 2 * COUNT}
    )
    for number in range(COUNT):
        for partition in range(2):
            producer.produce(topic, b'{"id":%d,"text":"%s"}' % (number, b"x" * 50), partition=partition)
    assert producer.flush(60) == 0
    return topic


def command(cluster: KafkaCluster, topic: str, out: Path, *more: str) -> list[str]:
    where = ["-b", cluster.bootstrap_servers, "-o", f"{out}/" if out.suffix == "" else str(out), "-q"]
    return [sys.executable, "-m", "kafka_async", "export", topic, *where, "--values", "json", *more]


def test_an_export_that_is_killed_again_and_again_has_each_record_once(kafka44: KafkaCluster, tmp_path: Path) -> None:
    topic = filled(kafka44)
    chance = random.Random(7)  # noqa: S311  # moments
    path = tmp_path / "parts"
    line = command(kafka44, topic, path, "--part-size", "5000")
    kills = 0
    for _ in range(30):
        with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603  # our own program
            files = len(list(path.glob("*.parquet")))
            wait_until(lambda: process.poll() is not None or len(list(path.glob("*.parquet"))) > files)  # noqa: B023  # at once
            try:
                process.wait(chance.uniform(0, 0.1))
            except subprocess.TimeoutExpired:
                process.send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
                kills += 1
            _, said = process.communicate()
        if process.returncode == 0:
            break
    assert process.returncode == 0, said
    assert kills >= 2

    rows = [
        (row["_kafka_partition"], row["_kafka_offset"], row["id"])
        for each in sorted(path.glob("*.parquet"))
        for row in pq.read_table(each, columns=["_kafka_partition", "_kafka_offset", "id"]).to_pylist()
    ]
    assert sorted(rows) == [(partition, offset, offset) for partition in range(2) for offset in range(COUNT)]
    assert len(list(path.iterdir())) == 2 * COUNT // 5000 + 1


def test_what_transactions_have_not_committed_is_in_no_file(kafka44: KafkaCluster, tmp_path: Path) -> None:
    topic = new_topic(kafka44)
    transactions = Transactions(kafka44, topic)
    for outcome in ("commit", "abort", "commit"):
        producer = transactions.begin()
        transactions.write(producer, *(f'{{"outcome":"{outcome}"}}' for _ in range(3)))
        if outcome == "commit":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    still_open = transactions.begin()
    transactions.write(still_open, '{"outcome":"open"}')
    out = tmp_path / "rows.parquet"
    done = subprocess.run(  # noqa: S603  # our own program
        [word for word in command(kafka44, topic, out) if word != "-q"], capture_output=True, text=True
    )
    still_open.abort_transaction(30)

    assert done.returncode == 0, done.stderr
    assert pq.read_table(out).column("outcome").to_pylist() == ["commit"] * 6
    assert "held back by transactions that are still open" in done.stderr
    assert "--isolation-level 'read_uncommitted' reads them now" in done.stderr


def test_large_records_do_not_fill_the_memory(kafka44: KafkaCluster, tmp_path: Path) -> None:
    topic = new_topic(kafka44)
    producer = Producer({"bootstrap.servers": kafka44.bootstrap_servers, "log_level": 0, "message.max.bytes": 4_000_000})
    chance = random.Random(7)  # noqa: S311  # what does not compress
    for _ in range(300):
        producer.produce(topic, chance.randbytes(1_000_000), partition=0)
        producer.poll(0.05)
    assert producer.flush(60) == 0
    line = ["kafka-async", "export", topic, "-b", kafka44.bootstrap_servers, "-o", str(tmp_path / "rows.parquet"), "-q"]
    # Linux carries ``ru_maxrss`` over from the parent at ``exec``, so a small child of a large parent would look large.
    code = f"""
import sys
from pathlib import Path
sys.argv = {line!r}
from kafka_async.adapters.cli.main import main
try:
    main()
except SystemExit as done:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    print(done.code, int(line.split()[1]) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  # our own words
    kafka44.delete_topics(topic)  # other tests need the disk, too

    code_, peak = map(int, done.stdout.split())
    assert code_ == 0
    assert pq.read_metadata(tmp_path / "rows.parquet").num_rows == 300
    assert peak < 330  # MB; a row group takes 64, and as much again while it is written
