"""The cluster on TCP: other clients read from it in groups and write to it."""

import asyncio
import gc
import logging
import socket
import struct
import time
import warnings
from typing import Any

import pytest

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.errors import NotLeaderForPartitionError
from kafka_async.testing import Api, Cluster, ThreadedCluster
from tests.virtual import VirtualLoop

COUNT = 10
"""How many records: nine that the cluster starts with, and one that the client's own producer writes."""


def filled() -> Cluster:
    cluster = Cluster(brokers=2)
    cluster.topic("t", partitions=3)
    for number in range(COUNT - 1):
        cluster.produce("t", key=str(number), value=str(number))
    return cluster


def committed(cluster: Cluster, group: str) -> int:
    return sum(offset.offset for offset in cluster.committed(group).values())


@pytest.mark.slow
async def test_aiokafka_writes_reads_in_a_group_and_commits() -> None:
    aiokafka = pytest.importorskip("aiokafka", reason="in the extra bench")
    async with filled() as cluster:
        servers = await cluster.serve()
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            await producer.send_and_wait("t", b"x", key=b"k")
        first, second = (
            aiokafka.AIOKafkaConsumer(
                "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
            )
            for _ in range(2)
        )
        await first.start()
        found = 0
        while found < COUNT:
            found += sum(map(len, (await first.getmany(timeout_ms=1000)).values()))
        await first.commit()
        await second.start()
        async with asyncio.timeout(20):
            while not (second.assignment() and len(first.assignment() | second.assignment()) == 3):
                await first.getmany(timeout_ms=50)
        assert committed(cluster, "g") == COUNT
        await first.stop()
        await second.stop()
        assert cluster.members("g") == []


async def test_a_transaction_of_aiokafka_is_read_when_it_has_ended() -> None:
    aiokafka = pytest.importorskip("aiokafka", reason="in the extra bench")
    async with Cluster() as cluster:
        cluster.topic("t")
        cluster.topic("in")
        cluster.produce("in", value=b"1")
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=await cluster.serve(), transactional_id="x") as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    raise ZeroDivisionError(await producer.send_and_wait("t", b"never"))
            async with producer.transaction():
                await producer.send_and_wait("t", b"done")
                await producer.send_offsets_to_transaction({aiokafka.TopicPartition("in", 0): 1}, "g")
        options: Any = cluster.options()
        async with KafkaConsumer("t", auto_offset_reset="earliest", isolation_level="read_committed", **options) as reader:
            assert (await reader.getone()).value == b"done"
        assert cluster.committed("g")[TopicPartition("in", 0)].offset == 1


async def test_kafka_python_writes_reads_in_a_group_and_commits() -> None:
    kafka = pytest.importorskip("kafka", reason="in the extra bench")

    def work(servers: str) -> int:
        producer = kafka.KafkaProducer(bootstrap_servers=servers)
        producer.send("t", b"x").get(10)
        producer.close()
        consumer = kafka.KafkaConsumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest")
        found, end = 0, time.monotonic() + 20
        while found < COUNT and time.monotonic() < end:
            found += sum(map(len, consumer.poll(500).values()))
        consumer.commit()
        consumer.close()
        return found

    async with filled() as cluster:
        assert await asyncio.to_thread(work, await cluster.serve()) == COUNT
        assert committed(cluster, "g") == COUNT


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_confluent_kafka_writes_reads_in_a_group_and_commits(protocol: str) -> None:
    confluent = pytest.importorskip("confluent_kafka", reason="in the extra test")

    def work(servers: str) -> int:
        producer = confluent.Producer({"bootstrap.servers": servers, "log_level": 0, "transactional.id": "x"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("t", b"x")
        producer.commit_transaction(60)
        consumer = confluent.Consumer(
            {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest", "group.protocol": protocol}
        )
        consumer.subscribe(["t"])
        found, end = 0, time.monotonic() + 60
        message = None
        while (found < COUNT or message is not None) and time.monotonic() < end:  # a poll after the last record passes the marker
            message = consumer.poll(0.5)
            found += message is not None and message.error() is None
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    async with filled() as cluster:
        assert await asyncio.to_thread(work, await cluster.serve()) == COUNT
        assert committed(cluster, "g") == COUNT + 1, "the marker of the transaction has an offset too"
        assert cluster.members("g") == []


async def test_programs_here_and_elsewhere_see_the_same_cluster() -> None:
    async with filled() as cluster:
        options: Any = cluster.options()
        async with KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **options) as inside:
            servers = await cluster.serve()
            async with KafkaConsumer("t", group_id="g", bootstrap_servers=servers) as outside:
                async with asyncio.timeout(60):
                    while not (len(inside.assignment() | outside.assignment()) == 3 and outside.assignment()):
                        await inside.getmany(timeout_ms=50)
                        await outside.getmany(timeout_ms=50)
                assert not inside.assignment() & outside.assignment()


async def test_what_is_not_simulated_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster() as cluster:
        host, port = (await cluster.serve()).split(":")
        with caplog.at_level(logging.ERROR, "kafka_async.testing"):
            reader, writer = await asyncio.open_connection(host, int(port))
            body = struct.pack(">hhih", 65, 0, 1, -1)
            writer.write(struct.pack(">i", len(body)) + body)
            assert await reader.read() == b""
            writer.close()
        assert "DescribeTransactions (API key 65) is not simulated" in caplog.text


async def test_nothing_listens_after_the_end() -> None:
    cluster = Cluster()
    async with cluster:
        host, port = (await cluster.serve()).split(":")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=1)
    assert len(asyncio.all_tasks()) == 1
    cluster.close()


@pytest.mark.parametrize("turns", range(8))
def test_a_connection_that_arrives_at_the_end_is_closed(turns: int) -> None:
    """Whatever the event loop has done for it by then; what is left would be a warning, which fails the test."""

    async def serve() -> None:
        async with Cluster() as cluster:
            host, port = (await cluster.serve()).split(":")
            with socket.create_connection((host, int(port))):
                for _ in range(turns):
                    await asyncio.sleep(0)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(serve())
        gc.collect()

    assert [str(warning.message) for warning in seen] == []


def test_virtual_time_is_refused() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.raises(RuntimeError, match="real time"):
        runner.run(Cluster().serve())


@pytest.mark.slow
async def test_stopped_brokers_and_half_open_connections_work_over_tcp_too() -> None:
    async with Cluster() as cluster:
        cluster.topic("faults")
        options: dict[str, Any] = {"request_timeout_ms": 1000, "fetch_max_wait_ms": 2000, "reconnect_backoff_max_ms": 200}
        bootstrap = await cluster.serve()
        async with asyncio.timeout(60), KafkaConsumer("faults", bootstrap_servers=bootstrap, **options) as consumer:
            await consumer.seek_to_beginning()
            assert await consumer.getmany(timeout_ms=200) == {}
            cluster.stop(0)
            cluster.produce("faults", value="1")
            assert await consumer.getmany(timeout_ms=500) == {}, "the poll that waited there was not answered"
            cluster.start(0)
            assert (await consumer.getone()).value == b"1"
            cluster.half_open()
            cluster.produce("faults", value="2")
            assert (await consumer.getone()).value == b"2", "it gave the connection up"


async def test_tools_of_confluent_kafka_create_describe_list_and_delete_topics() -> None:
    confluent = pytest.importorskip("confluent_kafka", reason="in the extra test")
    admin = pytest.importorskip("confluent_kafka.admin", reason="in the extra test")

    def work(servers: str) -> dict[str, Any]:
        tool = admin.AdminClient({"bootstrap.servers": servers})

        def done(futures: Any) -> list[Any]:
            return [future.result(10) for future in futures.values()]

        done(tool.create_topics([admin.NewTopic("made", 2, 1, config={"retention.ms": "60000"})]))
        topics = tool.list_topics(timeout=10).topics
        (settings,) = done(tool.describe_configs([admin.ConfigResource("topic", "made")]))
        groups = [group.group_id for group in tool.list_consumer_groups().result(10).valid]
        (group,) = done(tool.describe_consumer_groups(["g"]))
        asked = [confluent.ConsumerGroupTopicPartitions("g")]
        (offsets,) = done(tool.list_consumer_group_offsets(asked))
        done(tool.delete_topics(["made"]))
        return {
            "topics": {name: len(topic.partitions) for name, topic in topics.items()},
            "retention": (settings["retention.ms"].value, settings["retention.ms"].source, settings["cleanup.policy"].source),
            "groups": groups,
            "members": len(group.members),
            "offsets": [(part.topic, part.partition, part.offset) for part in offsets.topic_partitions],
        }

    async with filled() as cluster:
        options: Any = cluster.options()
        async with KafkaConsumer("t", group_id="g", **options) as consumer:
            await consumer.commit({TopicPartition("t", 0): 1})
            found = await asyncio.to_thread(work, await cluster.serve())
        assert found == {
            "topics": {"t": 3, "made": 2},
            "retention": ("60000", 1, 5),
            "groups": ["g"],
            "members": 1,
            "offsets": [("t", 0, 1)],
        }
        assert sorted(cluster.simulated.topics) == ["t"]


async def test_tools_of_kafka_python_create_describe_list_and_delete_topics() -> None:
    kafka = pytest.importorskip("kafka", reason="in the extra bench")
    admin = pytest.importorskip("kafka.admin", reason="in the extra bench")

    def work(servers: str) -> tuple[list[str], list[str], int]:
        tool = kafka.KafkaAdminClient(bootstrap_servers=servers)
        tool.create_topics([admin.NewTopic("made", 2, 1)])
        topics = [topic["name"] for topic in tool.describe_topics(["made"])]
        settings = tool.describe_configs([admin.ConfigResource(admin.ConfigResourceType.TOPIC, "made")])
        groups = [group["group_id"] for group in tool.list_groups()]
        tool.delete_topics(["made"])
        tool.close()
        return topics, groups, len(settings)

    async with filled() as cluster:
        options: Any = cluster.options()
        async with KafkaConsumer("t", group_id="g", **options):
            assert await asyncio.to_thread(work, await cluster.serve()) == (["made"], ["g"], 1)
        assert sorted(cluster.simulated.topics) == ["t"]


async def test_tools_of_aiokafka_create_describe_list_and_delete_topics() -> None:
    admin = pytest.importorskip("aiokafka.admin", reason="in the extra bench")
    async with filled() as cluster:
        options: Any = cluster.options()
        async with KafkaConsumer("t", group_id="g", **options):
            tool = admin.AIOKafkaAdminClient(bootstrap_servers=await cluster.serve())
            await tool.start()
            await tool.create_topics([admin.NewTopic("made", 2, 1)])
            assert sorted(await tool.list_topics()) == ["made", "t"]
            assert [group for group, _ in await tool.list_consumer_groups()] == ["g"]
            await tool.delete_topics(["made"])
            await tool.close()
        assert sorted(cluster.simulated.topics) == ["t"]


@pytest.mark.parametrize("client", ["aiokafka", "confluent_kafka", "kafka"])
async def test_idempotent_producers_write_once_whatever_fails(client: str) -> None:
    """Refusals are tried again in order, and a batch whose answer was lost is not stored twice."""
    library = pytest.importorskip(client, reason="in the extras bench and test")
    async with Cluster() as cluster:
        cluster.topic("t")
        stored = cluster.simulated.handlers[Api.PRODUCE]
        produced = 0

        def lose_answers(*asked: Any) -> Any:
            nonlocal produced
            produced += 1
            answer = stored(*asked)
            if produced in (1, 3):
                cluster.cut()
            return answer

        cluster.simulated.handlers[Api.PRODUCE] = lose_answers
        servers = await cluster.serve()
        with cluster.failing(Api.PRODUCE, NotLeaderForPartitionError, times=2):
            if client == "aiokafka":
                async with library.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
                    for number in range(10):
                        await producer.send_and_wait("t", str(number).encode())
            else:
                await asyncio.to_thread(_write_with, library, client, servers)
        assert produced > 2
        async with KafkaConsumer("t", auto_offset_reset="earliest", **cluster.options()) as reader:
            assert [(await reader.getone()).value for _ in range(10)] == [str(number).encode() for number in range(10)]
        assert cluster.end(("t", 0)) == 10


def _write_with(library: Any, client: str, servers: str) -> None:
    if client == "kafka":
        producer = library.KafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
        for number in range(10):
            producer.send("t", str(number).encode()).get(20)
        producer.close()
        return
    producer = library.Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    for number in range(10):
        producer.produce("t", str(number).encode())
        producer.flush(20)


async def test_bytes_that_are_no_request_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster() as cluster:
        host, port = (await cluster.serve()).split(":")
        with caplog.at_level(logging.ERROR, "kafka_async.testing"):
            reader, writer = await asyncio.open_connection(host, int(port))
            body = struct.pack(">hhih", 3, 12, 1, -1)
            writer.write(struct.pack(">i", len(body)) + body)
            assert await reader.read() == b""
            writer.close()
        assert "bytes that are not a request" in caplog.text


async def test_confluent_kafka_follows_leaders_that_move() -> None:
    """The error in a Fetch response has empty records with it; null was a bad response for librdkafka, which then read no more."""
    confluent = pytest.importorskip("confluent_kafka", reason="in the extra test")

    def work(served: ThreadedCluster) -> list[bytes]:
        options = {"bootstrap.servers": served.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
        consumer = confluent.Consumer(options)
        consumer.subscribe(["moves"])
        found: list[bytes] = []
        end = time.monotonic() + 30
        while len(found) < 4 and time.monotonic() < end:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
                served.call(lambda cluster: cluster.move_leader(("moves", 0), len(found) % 2)).result()
                served.call(lambda cluster: cluster.produce("moves", value=str(len(found)))).result()
        consumer.close()
        return found

    cluster = Cluster(brokers=2)
    cluster.topic("moves")
    cluster.produce("moves", value="0")
    with ThreadedCluster(cluster) as served:
        assert await asyncio.to_thread(work, served) == [b"0", b"1", b"2", b"3"]
