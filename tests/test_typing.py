"""The types as a user sees them: a program of one's own, checked strictly against the package as it is installed."""

import os
import subprocess
import sys
from pathlib import Path

import kafka_async

PROGRAM = """
import asyncio
import json
from typing import assert_type

import kafka_async.sync
from kafka_async import ConsumerRecord, KafkaConsumer, OffsetAndMetadata, TopicPartition


def decode(data: bytes) -> dict[str, int]:
    return dict(json.loads(data))


async def main() -> None:
    consumer: KafkaConsumer[str, dict[str, int]] = KafkaConsumer("orders", value_deserializer=decode)
    async with consumer:
        async for record in consumer:
            assert_type(record, ConsumerRecord[str, dict[str, int]])
            assert_type(record.value["n"], int)
        assert_type(await consumer.getone(), ConsumerRecord[str, dict[str, int]])
        batch = await consumer.getmany(timeout_ms=1000)
        assert_type(batch, dict[TopicPartition, list[ConsumerRecord[str, dict[str, int]]]])
        assert_type(consumer.next_offsets(), dict[TopicPartition, OffsetAndMetadata])


with kafka_async.sync.KafkaConsumer[bytes, str]("orders") as blocking:
    for one in blocking:
        assert_type((one.key, one.value), tuple[bytes, str])

untyped = KafkaConsumer("orders", bootstrap_servers="localhost:9092")
asyncio.run(main())
"""


def test_a_program_of_a_user_passes_mypy_strict(tmp_path: Path) -> None:
    package = Path(kafka_async.__file__).parent
    assert (package / "py.typed").exists()
    site = tmp_path / "site"
    site.mkdir()
    (site / "kafka_async").symlink_to(package)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", "cache", "program.py"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  # ours
    assert done.returncode == 0, done.stdout + done.stderr
