"""What the cluster keeps, and for how long: the brokers' date, the log of requests, blocks that are nested."""

import asyncio
import gc
import time
import weakref
from functools import partial
from typing import Any

import anyio
import pytest

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.errors import InvalidTimestampError, PolicyViolationError
from kafka_async.testing import Api, Cluster, ThreadedCluster
from kafka_async.testing.simulation.traffic import MOST_PAYLOAD
from tests.virtual import run_virtual, run_virtual_asyncio

HOUR = 3_600_000


async def read(cluster: Cluster, topic: str, count: int) -> list[Any]:
    async with KafkaConsumer(topic, auto_offset_reset="earliest", **cluster.options()) as consumer:
        found: list[Any] = []
        while len(found) < count:
            found += [record for records in (await consumer.getmany(timeout_ms=1000)).values() for record in records]
        return found


# --- the brokers' date ----------------------------------------------------------------------------------------------------------


def written() -> Cluster:
    cluster = Cluster()
    cluster.topic("t", retention_ms=60_000)
    for value in "abc":
        cluster.produce("t", value=value)
    return cluster


def test_records_are_kept_on_an_ordinary_event_loop_however_long_the_machine_is_up() -> None:
    """The clock of such a loop counts from the machine's start."""
    cluster = written()
    before = time.time() * 1000 - HOUR

    async def inside() -> list[Any]:
        return await read(written(), "t", 3)

    for records in (asyncio.run(read(cluster, "t", 3)), asyncio.run(inside()), anyio.run(inside, backend="trio")):
        assert [record.value for record in records] == [b"a", b"b", b"c"]
        assert all(record.timestamp > before for record in records)


def test_a_cluster_lives_through_several_event_loops_and_its_time_goes_on() -> None:
    """Each virtual loop begins at 0 again."""
    cluster = Cluster(date=1_700_000_000_000)
    cluster.topic("t", retention_ms=60_000)
    cluster.produce("t", value="a")

    async def member() -> None:
        async with KafkaConsumer("t", group_id="g", group_protocol="classic", **cluster.options()) as consumer:
            await cluster.assigned("g")
            cluster.half_open()  # it cannot leave
            consumer.unsubscribe()

    async def later() -> tuple[int, list[str]]:
        await anyio.sleep(40)
        async with KafkaConsumer("t", **cluster.options()) as consumer:
            (tp,) = consumer.assignment()
            return (await consumer.beginning_offsets([tp]))[tp], cluster.members("g")

    run_virtual_asyncio(member)
    assert len(run_virtual_asyncio(later)[1]) == 1
    assert run_virtual_asyncio(later) == (1, []), "its session and the retention are over"
    assert run_virtual(later)[0] == 1


def test_a_record_is_as_old_as_the_time_since_it_was_written() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("t", retention_ms=60_000)
        await anyio.sleep(3600)
        cluster.produce("t", value="now")
        assert [record.timestamp for record in await read(cluster, "t", 1)] == [1_700_000_000_000 + HOUR]

    run_virtual_asyncio(main)


@pytest.mark.slow
def test_timestamps_far_ahead_are_refused_and_those_of_today_are_not() -> None:
    def write(cluster: Cluster) -> None:
        now = round(time.time() * 1000)
        cluster.topic("t")
        cluster.produce("t", value="v", timestamp=now)
        with pytest.raises(InvalidTimestampError):
            cluster.produce("t", value="v", timestamp=now + 2 * HOUR)
        cluster.produce_many("t", ["v"] * 5000)  # by default a second apart, however fast they are written
        assert cluster.end(("t", 0)) == 5001

    async def inside() -> None:
        write(Cluster())

    write(Cluster())
    asyncio.run(inside())
    run_virtual_asyncio(inside)


def test_names_and_calls_that_kafka_refuses_are_refused() -> None:
    cluster = Cluster()
    cluster.topic("a.b_c")
    with pytest.raises(ValueError, match=r"topic 'a_b\.c': it differs from 'a\.b_c' only in '\.' and '_'"):
        cluster.topic("a_b.c")
    with pytest.raises(ValueError, match=r"segment\.bytes=1: expected a number of at least 1048576"):
        cluster.topic("small", segment_bytes=1)
    with pytest.raises(ValueError, match=r"share\.delivery\.count\.limit=1: expected a number from 2 to 10"):
        cluster.group("g", share_delivery_count_limit=1)
    cluster.topic("compacted", cleanup_policy="compact")
    cluster.produce("compacted", key="k", value="v")
    with pytest.raises(PolicyViolationError, match="only compacted"):
        cluster.delete_before(("compacted", 0), 1)


def test_two_transactions_can_be_open() -> None:
    cluster = Cluster()
    cluster.topic("t")
    with cluster.transaction() as one, cluster.transaction() as two:
        one.produce("t", "a")
        two.produce("t", "b")
    assert cluster.end(("t", 0)) == 4


# --- the log of requests --------------------------------------------------------------------------------------------------------


def producing(cluster: Cluster, count: int, size: int) -> None:
    """Send so many Produce requests with one record each."""
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="in the extra test")
    with ThreadedCluster(cluster) as served:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": served.bootstrap, "log_level": 0, "linger.ms": 0, "message.max.bytes": 2_000_000}
        )
        for _ in range(count):
            producer.produce("t", b"x" * size)
            assert producer.flush(30) == 0


def test_the_log_of_requests_keeps_the_newest() -> None:
    cluster = Cluster(request_log=20)
    cluster.topic("t")
    producing(cluster, 40, 10)
    assert cluster.end(("t", 0)) == 40
    assert len(cluster.requests()) == 20
    assert Cluster(request_log=0).requests() == []
    with pytest.raises(ValueError, match="request_log=-1: expected 0 or more"):
        Cluster(request_log=-1)


def test_the_log_of_requests_keeps_few_bytes_of_records() -> None:
    cluster = Cluster()
    cluster.topic("t")
    producing(cluster, 24, 1_000_000)
    kept = [
        len(part.records or b"")
        for entry in cluster.requests(Api.PRODUCE)
        for topic in entry.request.topic_data
        for part in topic.partition_data
    ]
    assert len(kept) == 24
    assert sum(kept) <= MOST_PAYLOAD
    assert kept[0] == 0 < kept[-1]


# --- connections ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_is_kept_of_the_consumers_of_earlier_tests() -> None:
    cluster = Cluster()
    cluster.topic("t")
    cluster.produce("t", value="v")
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def test() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await read(cluster, "t", 1)

    for _ in range(20):
        run_virtual_asyncio(test)
    gc.collect()
    assert len(cluster.simulated.network.transports) < 10
    assert [number for number, loop in enumerate(loops[:-1]) if loop() is not None] == []


# --- blocks that are nested -----------------------------------------------------------------------------------------------------


def reachable(bootstrap: str) -> bool:
    confluent_kafka = pytest.importorskip("confluent_kafka.admin", reason="in the extra test")
    return "t" in confluent_kafka.AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics


def test_a_nested_block_does_not_close_the_outer_one() -> None:
    cluster = Cluster()
    cluster.topic("t")
    with ThreadedCluster(cluster) as outer:
        with outer as again:
            assert reachable(again.bootstrap)
        with ThreadedCluster(cluster) as inner:
            assert inner.bootstrap == outer.bootstrap
        with pytest.raises(RuntimeError, match="not running"):
            inner.call(lambda cluster: cluster.end(("t", 0)))
        assert reachable(outer.bootstrap)
        assert outer.call(lambda cluster: cluster.end(("t", 0))).result() == 0
    with pytest.raises(RuntimeError, match="not running"):
        outer.call(lambda cluster: None)
    with ThreadedCluster(cluster) as later:
        assert reachable(later.bootstrap)


def raising(error: BaseException, cluster: Cluster) -> None:
    raise error


def test_what_a_test_raises_in_the_cluster_s_thread_is_raised_where_it_waits() -> None:
    """Those of pytest are no ``Exception``s."""
    with ThreadedCluster(Cluster()) as served:
        for error in (pytest.fail.Exception("no"), pytest.skip.Exception("no"), SystemExit("no")):
            with pytest.raises(type(error)):
                served.call(partial(raising, error)).result(10)
        assert served.call(lambda cluster: cluster.members("g")).result(10) == []


async def test_a_thread_does_not_serve_what_an_event_loop_serves() -> None:
    async with Cluster() as cluster:
        await cluster.serve()
        with pytest.raises(RuntimeError, match="an event loop serves the cluster already"):
            ThreadedCluster(cluster).__enter__()


def test_the_next_event_loop_can_serve_it() -> None:
    cluster = Cluster()
    cluster.topic("t")

    async def end() -> int:
        async with KafkaConsumer(bootstrap_servers=await cluster.serve()) as consumer:
            found = (await consumer.end_offsets([TopicPartition("t", 0)]))[TopicPartition("t", 0)]
        return found

    async def closing() -> int:
        async with cluster:
            return await end()

    assert asyncio.run(closing()) == 0
    cluster.produce("t", value="v")
    assert asyncio.run(closing()) == 1
