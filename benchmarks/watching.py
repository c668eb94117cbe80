"""How long it takes to say how far a thousand groups are behind: once, from a fresh process, on one broker.

Decides: what is compared. ``kafka-async top --once`` asks about a hundred groups in a request; the other program asks about one
group after another, as the tools do that people have. Owns the groups that it makes, and the processes that it starts.
"""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.jobs import Shape
from benchmarks.plan import Plan, rotate
from benchmarks.report import Group
from kafka_async.adapters.monitor import Status

GROUPS: Final = 1000
COMMITTED: Final = 10
"""The offset that each group has committed in each of its partitions."""
PARTITIONS: Final = 3
SHAPE: Final = Shape(records=20_000, partitions=PARTITIONS)
THREADS: Final = 16

ONE_BY_ONE: Final = """
import sys
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, OffsetSpec

admin = AdminClient({"bootstrap.servers": sys.argv[1]})
names = [group.group_id for group in admin.list_consumer_groups().result().valid]
lags = {}
for name in names:
    (described,) = admin.describe_consumer_groups([name]).values()
    members = described.result().members
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]).values()
    committed = asked.result().topic_partitions
    ends = admin.list_offsets({part: OffsetSpec.latest() for part in committed}) if committed else {}
    lags[name] = sum(end.result().offset - part.offset for part, end in ends.items())
assert len(lags) >= int(sys.argv[2]), len(lags)
"""
PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka_async.top": ("-m", "kafka_async", "top", "--once", "-J", "-b"),
    "confluent.one_by_one": ("-c", ONE_BY_ONE),
}


def watching(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """How long it takes to say how far a thousand groups are behind, beside a program that asks about one after another."""
    count = GROUPS // 10 if plan.quick else GROUPS
    topic = plan.topics.filled(SHAPE)
    admin = AdminClient({"bootstrap.servers": plan.bootstrap})
    names = [f"watched-{uuid.uuid4().hex[:8]}-{number:04}" for number in range(count)]

    def begin(name: str) -> None:
        left = [TopicPartition(topic, number, COMMITTED) for number in range(PARTITIONS)]
        while left:  # a coordinator that has just been made refuses some
            (done,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, left)]).values()
            left = [TopicPartition(topic, part.partition, COMMITTED) for part in done.result().topic_partitions if part.error]

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(begin, names))

    def measure(client: str) -> dict[str, float]:
        words = PROGRAMS[client]
        last = [str(count)] if words[0] == "-c" else []
        process = subprocess.Popen([sys.executable, *words, plan.bootstrap, *last], stdout=subprocess.DEVNULL)  # noqa: S603  # ours
        began = time.monotonic()
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, Status.STOP.exit_code):  # which it says of groups without members that are behind
            raise RuntimeError(f"{client} ended with {process.returncode}")
        return {"seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime}

    title = f"watching: {count:,} groups, once"
    yield Group(command="watching", title=title, shape=SHAPE, runs=rotate(plan, list(PROGRAMS), measure))
