"""What ``process`` does with one partition: a short run whose time is virtual, so that it is the same each time.

Twelve records with three keys are handled with order by key, four at once. One handler is slow, and one fails at its first attempt.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.svg import Stretch, Timeline
from kafka_async import ConsumerInterceptor, KafkaConsumer, OffsetAndMetadata, Retry, TopicPartition
from kafka_async.testing import Cluster, virtual_loop

KEYS: Final = "ABCABCABBCAC"
"""The keys of the records, by offset."""
SECONDS: Final = {1: 3.2, 2: 0.6, 5: 0.9}
"""What a handler takes, by offset; the others take 0.75."""
FAILS: Final = 5
"""The offset whose first attempt fails."""
INTERVAL: Final = 0.5
"""Seconds between commits."""


class _Commits(ConsumerInterceptor):
    """Notes when which offset was committed."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        at = asyncio.get_running_loop().time()
        self.seen += [(at, each.offset) for each in offsets.values()]


async def run() -> dict[str, Any]:
    """Handle the records; return when each handler ran, and when which offset was committed, in seconds from the first handler."""
    cluster = Cluster()
    cluster.topic("orders", partitions=1)
    for key in KEYS:
        cluster.produce("orders", key=key.encode(), value=b"-")
    done, clock, commits = asyncio.Event(), asyncio.get_running_loop().time, _Commits()
    attempts: list[list[Any]] = []
    left = set(range(len(KEYS)))

    async def handle(record: Any, context: Any) -> None:
        begin, fails = clock(), record.offset == FAILS and context.attempt == 1
        await asyncio.sleep(SECONDS.get(record.offset, 0.75))
        attempts.append([record.key.decode(), record.offset, begin, clock(), not fails])
        if fails:
            raise ConnectionError
        left.discard(record.offset)
        if not left:
            done.set()

    options: Any = {"group_id": "billing", "auto_offset_reset": "earliest", "auto_commit_interval_ms": int(INTERVAL * 1000)}
    async with (
        cluster,
        KafkaConsumer("orders", interceptors=[commits], **options, **cluster.options()) as consumer,
        consumer.processing(handle, concurrency=4, order="key", retry=Retry(attempts=3, delay=0.5)),
    ):
        await done.wait()
        await asyncio.sleep(INTERVAL * 2)
    origin = min(begin for _, _, begin, _, _ in attempts)
    rounded = [[key, offset, round(begin - origin, 2), round(end - origin, 2), good] for key, offset, begin, end, good in attempts]
    return {
        "attempts": sorted(rounded, key=lambda each: each[2]),
        "commits": [[round(at - origin, 2), to] for at, to in commits.seen],
    }


def recorded() -> dict[str, Any]:
    """Run it now. It takes no time."""
    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        return runner.run(run())


def timeline(found: Mapping[str, Any]) -> Timeline:
    """Return what is drawn of a run."""
    stretches = [
        Stretch(lane=f"key {key}", label=f"{offset}" if good else f"{offset} fails", begin=begin, end=end, good=good)
        for key, offset, begin, end, good in sorted(found["attempts"])
    ]
    last = max(at for at, _ in found["commits"])
    return Timeline(
        title="How process goes through lanes and commits",
        note="A lane for each key, one record at a time, by offset. Committed: the first offset that is not done.",
        seconds=last + 0.5,
        stretches=stretches,
        commits=[(at, to) for at, to in found["commits"]],
        end=len(KEYS),
    )
