"""Ranges that are read whatever brokers say meanwhile."""

from contextlib import nullcontext
from typing import Any

import pytest

from kafka_async import TopicPartition
from kafka_async.adapters.ranges.offsets import LOOKS, SECOND_LOOK
from kafka_async.adapters.ranges.planner import OffsetRange
from kafka_async.adapters.ranges.reading import LossPolicy, RangesReading
from kafka_async.adapters.sync import KafkaConsumer
from kafka_async.errors import DataLossError, OffsetOutOfRangeError
from kafka_async.testing import Cluster, ThreadedCluster
from kafka_async.wire import Api

A0 = TopicPartition("a", 0)


@pytest.mark.slow  # waits for some seconds
@pytest.mark.parametrize(("refused", "read"), [([*range(100, 100 * (LOOKS + 3), 100)], 1000), ([100, *[500] * (LOOKS + 1)], 500)])
def test_what_brokers_refused_is_forgotten_once_they_send_it(refused: list[int], read: int) -> None:
    """``refused``: an offset after the other, until the reading waits for another look; it ends at the last one if nothing came."""
    cluster, slept, lost = Cluster(), list[float](), list[str]()
    cluster.topic("a")
    cluster.produce_many("a", [b"%d" % number for number in range(1000)], partition=0)
    honest: Any = cluster.simulated.handlers[Api.FETCH]
    at = 0

    def refuses(broker: Any, request: Any, version: int, error: int) -> Any:
        """In a session a request names a partition only if something is new about it."""
        nonlocal at
        at = max((part.fetch_offset for topic in request.topics for part in topic.partitions), default=at)
        code = OffsetOutOfRangeError.errno if at in refused[len(slept) : len(slept) + 1] else error
        return honest(broker, request, version, code)

    cluster.simulated.handlers[Api.FETCH] = refuses
    policy = LossPolicy(fails=True, remedy="it is refused", report=lost.append, timeout_ms=60_000, sleep=slept.append)
    seen: list[int] = []
    with (
        ThreadedCluster(cluster) as served,
        KafkaConsumer(
            bootstrap_servers=served.bootstrap, auto_offset_reset="none", enable_auto_commit=False, max_partition_fetch_bytes=100
        ) as consumer,
    ):
        reading = RangesReading(consumer, [OffsetRange(A0, 0, 1000)], policy)
        with pytest.raises(DataLossError, match="it is refused") if read < 1000 else nullcontext():
            while (columns := reading.next(("offset",))) is not None:
                assert columns.offsets is not None
                seen.extend(memoryview(columns.offsets).cast("q"))
    assert seen == [*range(read)]
    assert lost == []
    assert slept == [SECOND_LOOK] * (len(refused) if read == 1000 else len(refused) - 1)
