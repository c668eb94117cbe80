"""Faults that tests ask for, what they look at afterwards, and what the seed repeats."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.errors import CoordinatorLoadInProgressError
from kafka_async.testing import LOSE, Api, Cluster
from kafka_async.testing.simulation import FakeCluster
from kafka_async.wire.messages.produce import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, InitProducerIdRequest
from tests.application.support import consumer_on, virtual
from tests.virtual import run_virtual, run_virtual_asyncio

Run = Callable[[Callable[[], Awaitable[None]]], None]
on_both = pytest.mark.parametrize("run", [run_virtual, run_virtual_asyncio], ids=["trio", "asyncio"])


# --- done, but the answer is lost -----------------------------------------------------------------------------------------------


@on_both
def test_a_commit_that_was_done_and_whose_answer_was_lost_is_sent_again(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("t")
        cluster.produce("t", value="v")
        async with KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **cluster.options()) as consumer:
            await consumer.getone()
            seen = []
            end = cluster.control(Api.OFFSET_COMMIT, lambda broker, request: seen.append(cluster.committed("g")), keep=True)
            with cluster.losing(Api.OFFSET_COMMIT):
                await consumer.commit()
            end()
            assert seen[0] == {}
            assert seen[1][TopicPartition("t", 0)].offset == 1, "it was done the first time"
            with cluster.losing(Api.OFFSET_COMMIT, times=0):
                await consumer.commit()
            assert len(cluster.requests(Api.OFFSET_COMMIT)) == 3
            cluster.control(Api.OFFSET_COMMIT, lambda broker, request: LOSE)
            await consumer.commit()
            with cluster.losing(Api.OFFSET_COMMIT), cluster.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError):
                await consumer.commit()

    run(main)


@pytest.mark.parametrize("client", ["aiokafka", "confluent_kafka", "kafka"])
async def test_a_transaction_whose_end_was_not_answered_is_ended_once(client: str) -> None:
    library = pytest.importorskip(client, reason="in the extras bench and test")
    async with Cluster() as cluster:
        cluster.topic("t")
        servers = await cluster.serve()
        with cluster.losing(Api.END_TXN), cluster.losing(Api.PRODUCE):
            await asyncio.wait_for(_transact(library, client, servers), 60)
        assert [record.value for record in cluster.records("t")] == [b"v"]
        assert cluster.end(("t", 0)) == 2, "one record and one marker"
        assert len(cluster.requests(Api.END_TXN)) >= 2


async def _transact(library: Any, client: str, servers: str) -> None:
    if client == "aiokafka":
        async with library.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer, producer.transaction():
            await producer.send_and_wait("t", b"v")
        return

    def work() -> None:
        if client == "kafka":
            producer = library.KafkaProducer(bootstrap_servers=servers, transactional_id="x")
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v").get(30)
            producer.commit_transaction()
            producer.close()
            return
        other = library.Producer({"bootstrap.servers": servers, "transactional.id": "x", "linger.ms": 0, "log_level": 0})
        other.init_transactions(30)
        other.begin_transaction()
        other.produce("t", b"v")
        other.commit_transaction(30)

    await asyncio.to_thread(work)


# --- what was written -----------------------------------------------------------------------------------------------------------


def test_records_are_returned_as_they_were_written() -> None:
    cluster = Cluster()
    cluster.topic("t", partitions=2)
    cluster.produce("t", key="k", value="a", headers=[("h", b"1"), ("h", None)], timestamp=7, partition=0, compression="zstd")
    cluster.produce_many("t", ["b", None], partition=1)
    first, *others = cluster.records("t")
    assert (first.partition, first.offset, first.key, first.value, first.timestamp, first.timestamp_type) == (
        0,
        0,
        b"k",
        b"a",
        7,
        0,
    )
    assert (first.headers, first.serialized_key_size, first.serialized_value_size) == ((("h", b"1"), ("h", None)), 1, 1)
    assert [(each.partition, each.offset, each.value) for each in others] == [(1, 0, b"b"), (1, 1, None)]
    assert [each.value for each in cluster.records("t", partition=0)] == [b"a"]
    cluster.delete_before(("t", 1), 1)
    assert [each.offset for each in cluster.records("t", partition=1)] == [1]
    with pytest.raises(ValueError, match="there is no topic 'missing'"):
        cluster.records("missing")
    with pytest.raises(ValueError, match="has no partition 2"):
        cluster.records("t", partition=2)


def test_records_of_transactions_are_returned_once_they_are_committed() -> None:
    cluster = Cluster()
    cluster.topic("t")
    with pytest.raises(ZeroDivisionError), cluster.transaction() as writing:
        raise ZeroDivisionError(writing.produce("t", "aborted"))
    with cluster.transaction() as writing:
        writing.produce("t", "open")
        cluster.produce("t", value="after")
        assert cluster.records("t") == []
        assert [each.value for each in cluster.records("t", committed=False)] == [b"aborted", b"open", b"after"]
    assert [(each.offset, each.value) for each in cluster.records("t")] == [(2, b"open"), (3, b"after")]


# --- what the seed repeats ------------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio
from kafka_async import KafkaConsumer
from kafka_async.testing import Cluster, virtual_loop

async def main(seed):
    cluster = Cluster(brokers=3, seed=seed)
    cluster.topic("orders", partitions=6)
    found = []
    options = dict(group_id="g", auto_offset_reset="earliest", client_id="c", **cluster.options())
    async with KafkaConsumer("orders", **options) as one, KafkaConsumer("orders", **options) as two:
        for number in range(60):
            cluster.produce("orders", value=str(number))
            for consumer in (one, two):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [(record.partition, record.offset, record.timestamp) for record in records]
            if number == 10: cluster.stop(0)
            if number == 20: cluster.cut()
            if number == 30: cluster.start(0); cluster.move_coordinator("g", 2)
            if number == 40: cluster.kick("g")
    members = sorted({str(getattr(entry.request, "member_id", "")) for entry in cluster.requests()})
    return [(entry.time, entry.node_id, entry.api.name, entry.version) for entry in cluster.requests()], found, members

for seed in (1, 2):
    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        print(runner.run(main(seed)))
"""


@pytest.mark.brokers
def test_a_seed_repeats_a_run_with_all_that_is_random_in_the_consumer() -> None:
    """Jitter of back-offs, member ids, brokers that are chosen; in another process too."""

    def ran(seed: str) -> list[str]:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)  # noqa: S603 - our own
        return done.stdout.splitlines()

    first, again = ran("0"), ran("0")
    assert first == again
    assert first[0] != first[1]


@virtual
async def test_a_transaction_that_nobody_ends_is_over_in_its_time() -> None:
    """Readers of what is committed waited until a producer came, and found it."""
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t", 1)
    broker, producers = cluster.brokers[0], cluster.producers
    await anyio.sleep(8.9)  # 8.9 + 10.0 - 8.9 is less than 10.0
    made = producers.init(broker, InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10_000), 4, 0)
    begins = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name="t", partitions=(0,)),),
    )
    producers.add_partitions(broker, begins, 3, 0)
    cluster.produce(tp, "never", producer_id=made.producer_id)
    cluster.produce(tp, "after it")
    async with consumer_on(cluster, "t", isolation_level="read_committed", fetch_max_wait_ms=300_000) as consumer:
        began = anyio.current_time()
        assert (await consumer.getone()).value == b"after it"
        assert anyio.current_time() - began < 11
