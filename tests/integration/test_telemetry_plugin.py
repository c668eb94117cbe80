"""Client telemetry (KIP-714) with a broker whose plugin writes what clients push into a file."""

import asyncio
import base64
import shutil
import struct
import subprocess
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest
from attrs import field, frozen
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, ResourceMetrics

from kafka_async.background.cluster.telemetry import LAST_PUSH_TIMEOUT
from kafka_async.errors import UnsupportedVersionError
from kafka_async.records import codecs
from kafka_async.wire import PushTelemetryRequest, decode_response, encode_request
from kafka_async.wire.messages import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from tests.brokers import CURRENT, KafkaCluster, jars, required

from .share import from_the_start, member, share_properties
from .tools import PATIENCE, eventually, make, new_topic, nothing_more, read, until

pytestmark = pytest.mark.brokers

CLIENT_METRICS = 16
"""Type of a configuration resource; no other admin client at hand knows it."""
INCREMENTAL_ALTER_CONFIGS, SET = 44, 0
FAMILY = "org.apache.kafka.consumer"
CONSUMED = f"{FAMILY}.fetch.manager.records.consumed.total"
LATENCY = f"{FAMILY}.fetch.manager.fetch.latency.avg"


@frozen
class Pushed:
    """One push, as the plugin saw it."""

    instance_id: uuid.UUID
    client_id: str
    terminating: bool
    data: bytes = field(repr=False)

    @property
    def resource(self) -> ResourceMetrics:
        found: list[ResourceMetrics] = list(MetricsData.FromString(self.data).resource_metrics)
        assert len(found) == 1
        return found[0]

    @property
    def names(self) -> set[str]:
        return {metric.name for metric in self.resource.scope_metrics[0].metrics}

    def total(self, name: str) -> int:
        """Return a sum without labels."""
        points = (p for metric in self.resource.scope_metrics[0].metrics if metric.name == name for p in metric.sum.data_points)
        return sum(point.as_int for point in points if not point.attributes)


@frozen
class Plugin:
    """A cluster that offers telemetry, and the file that its plugin writes."""

    cluster: KafkaCluster
    file: Path

    def pushes(self, client_id: str) -> list[Pushed]:
        text = self.file.read_text() if self.file.exists() else ""
        words = [line.split(" ") for line in text.split("\n")[:-1]]  # the last line has not been written to its end
        return [
            Pushed(uuid.UUID(bytes=base64.urlsafe_b64decode(instance + "==")), client, last == "true", base64.b64decode(data))
            for instance, client, last, data in words
            if client == client_id
        ]

    async def until_the_last_push(self, client_id: str, *, stopped_in: float) -> list[Pushed]:
        """Return all pushes of a client that has stopped, or none if it gave its last one up.

        ``stopped_in``: how many seconds that took. A client waits for the answer to its last push for a second, and a busy broker
        may not even have read it by then.
        """
        in_time = stopped_in < LAST_PUSH_TIMEOUT
        try:
            return await until(
                lambda: pushes if (pushes := self.pushes(client_id))[-1].terminating else [], PATIENCE if in_time else 5.0
            )
        except AssertionError:
            if in_time:
                raise
            return []

    async def ask_for(self, client_id: str, *metrics: str, interval_ms: int = 200) -> None:
        """Want metrics of a client, and wait until the broker knows: a client that asks too early is told to come back in 5 min."""
        wanted = {"metrics": ",".join(metrics), "interval.ms": str(interval_ms), "match": f"client_id={client_id}"}
        answer = await self._exchange(_alter_configs(client_id, wanted))
        assert struct.unpack(">h", answer[12:14]) == (0,), answer  # correlation id, throttle time, one resource: its error

        async def is_known() -> bool:
            return set((await self._told(client_id)).requested_metrics) == set(metrics)

        await eventually(is_known)

    async def push(self, message: PushTelemetryRequest) -> int:
        """Push bytes of one's own; return the error code."""
        frame = await self._exchange(encode_request(message, 0, 1, "raw"))
        return decode_response(message, 0, frame).error_code

    async def subscribe(self) -> PushTelemetryRequest:
        """Return a push under a new client instance id."""
        told = await self._told("raw")
        assert told.accepted_compression_types
        return PushTelemetryRequest(client_instance_id=told.client_instance_id, subscription_id=told.subscription_id)

    async def _told(self, client_id: str) -> GetTelemetrySubscriptionsResponse:
        question = GetTelemetrySubscriptionsRequest()
        return decode_response(question, 0, await self._exchange(encode_request(question, 0, 1, client_id)))

    async def _exchange(self, request: bytes) -> bytes:
        host, port = self.cluster.address(0).split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        writer.close()
        await writer.wait_closed()
        return frame


def _alter_configs(name: str, settings: Mapping[str, str]) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    changes = b"".join(text(key) + struct.pack(">b", SET) + text(value) for key, value in settings.items())
    resource = struct.pack(">b", CLIENT_METRICS) + text(name) + struct.pack(">i", len(settings)) + changes
    header = struct.pack(">hhi", INCREMENTAL_ALTER_CONFIGS, 0, 1) + text("admin")
    request = header + struct.pack(">i", 1) + resource + b"\0"
    return struct.pack(">i", len(request)) + request


@pytest.fixture(scope="module")
def plugin(real_brokers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    if shutil.which("javac") is None:
        reason = "the broker's plugin has to be compiled: javac (a JDK) is not on the PATH"
        if required():
            pytest.fail(reason)
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("plugin")
    source = Path(__file__).with_name("FileReporter.java")
    command = ["javac", "-proc:none", "-cp", f"{jars(CURRENT)}/*", "-d", str(directory), str(source)]
    subprocess.run(command, check=True)  # noqa: S603  # fixed words and paths of ours
    file = directory / "pushes"
    properties = share_properties() | {"metric.reporters": "FileReporter", "test.telemetry.file": str(file)}
    with KafkaCluster(CURRENT, properties=properties, plugins=directory) as cluster:
        yield Plugin(cluster, file)


async def _first_told_to_its_end(whole_life: Callable[[str], Awaitable[list[Pushed]]], name: str) -> list[Pushed]:
    """Return the pushes of the first of five clients, one after another, whose last push was not given up."""
    for number in range(5):
        if pushes := await whole_life(f"{name}-{number}"):
            return pushes
    pytest.fail("each of five clients needed a second to stop, and its last push did not arrive")


async def test_the_operators_see_share_consumers_too(plugin: Plugin) -> None:
    share = f"{FAMILY}.share"
    accepted = f"{share}.fetch.manager.acknowledgements.send.total"

    async def whole_life(client: str) -> list[Pushed]:
        topic = new_topic(plugin.cluster)
        await plugin.ask_for(client, share)
        from_the_start(plugin.cluster, topic)
        plugin.cluster.produce(topic, 20)
        async with member(plugin.cluster, topic, topic, client_id=client) as consumer, asyncio.timeout(PATIENCE):
            for _ in range(20):
                (await consumer.getone()).accept()
            await consumer.flush()
            await until(lambda: sum(push.total(accepted) for push in plugin.pushes(client)) == 20)
            began = time.monotonic()
        return await plugin.until_the_last_push(client, stopped_in=time.monotonic() - began)

    pushes = await _first_told_to_its_end(whole_life, "worker")
    assert [push.terminating for push in pushes] == [False] * (len(pushes) - 1) + [True]
    names = {name for push in pushes for name in push.names}
    assert {accepted, f"{share}.fetch.manager.fetch.latency.avg", f"{share}.coordinator.heartbeat.total"} <= names
    assert all(name.startswith(share) for name in names)


async def test_the_operators_see_what_they_ask_for_until_the_consumer_is_gone(plugin: Plugin) -> None:
    known: list[tuple[uuid.UUID, str]] = []

    async def whole_life(client: str) -> list[Pushed]:
        topic = new_topic(plugin.cluster)
        await plugin.ask_for(client, f"{FAMILY}.fetch.manager.", f"{FAMILY}.coordinator.")
        plugin.cluster.produce(topic, 100)
        async with make(plugin.cluster, topic, client_id=client, group_id=uuid.uuid4().hex, client_rack="r1") as consumer:
            instance_id = await consumer.client_instance_id()
            await read(consumer, 100)
            await until(lambda: sum(push.total(CONSUMED) for push in plugin.pushes(client)) == 100)
            await nothing_more(consumer)
            known.append((instance_id, consumer.group_metadata().member_id))
            began = time.monotonic()
        return await plugin.until_the_last_push(client, stopped_in=time.monotonic() - began)

    pushes = await _first_told_to_its_end(whole_life, "billing")
    instance_id, member_id = known[-1]
    assert {push.instance_id for push in pushes} == {instance_id}
    assert [push.terminating for push in pushes] == [False] * (len(pushes) - 1) + [True]
    assert sum(push.total(CONSUMED) for push in pushes) == 100, "deltas: the broker asks for them"
    names = {name for push in pushes for name in push.names}
    assert {CONSUMED, LATENCY, f"{FAMILY}.coordinator.rebalance.latency.avg"} <= names
    assert all(name.startswith((f"{FAMILY}.fetch.manager.", f"{FAMILY}.coordinator.")) for name in names)
    labels = {label.key: label.value.string_value for label in pushes[-1].resource.resource.attributes}
    assert labels["client_rack"] == "r1"
    assert labels["group_member_id"] == member_id


async def test_another_wish_of_the_operators_is_followed(plugin: Plugin) -> None:
    topic, client = new_topic(plugin.cluster), "changing"
    await plugin.ask_for(client, CONSUMED)
    async with make(plugin.cluster, topic, client_id=client, background="thread") as consumer:
        instance_id = await consumer.client_instance_id()
        await until(lambda: plugin.pushes(client))
        await plugin.ask_for(client, LATENCY)
        await until(lambda: plugin.pushes(client)[-1].names == {LATENCY})
        assert await consumer.client_instance_id() == instance_id
    assert plugin.pushes(client)[0].names == {CONSUMED}


async def test_nobody_asks_so_nothing_is_pushed(plugin: Plugin) -> None:
    topic, client = new_topic(plugin.cluster), "unasked"
    async with make(plugin.cluster, topic, client_id=client) as consumer:
        await consumer.client_instance_id()
        await nothing_more(consumer)
    assert not plugin.pushes(client)


@pytest.mark.parametrize("codec", [0, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD])
async def test_java_reads_every_compression(plugin: Plugin, codec: int) -> None:
    text = b"%d " % codec + b"".join(b"%d:" % i for i in range(40_000))  # more than a block of LZ4
    push = await plugin.subscribe()
    data = text if codec == 0 else codecs.compress(codec, text)
    message = PushTelemetryRequest(
        client_instance_id=push.client_instance_id, subscription_id=push.subscription_id, compression_type=codec, metrics=data
    )
    assert await plugin.push(message) == 0
    assert plugin.pushes("raw")[-1].data == text


async def test_a_broker_without_a_plugin_is_not_asked(kafka44: KafkaCluster) -> None:
    async with make(kafka44, new_topic(kafka44)) as consumer:
        with pytest.raises(UnsupportedVersionError, match="KIP-714"):
            await consumer.client_instance_id()
