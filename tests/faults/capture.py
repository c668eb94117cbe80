"""What a real broker answers: recorded from a running consumer, and read back for tests.

    python -m tests.faults.capture        starts a broker, runs consumers in both group protocols, writes captures.json

Decides: which conversations are kept (the first few of each API and version that differ in size). Owns: ``captures.json``. Must
never be edited by hand: what stands there is evidence.
"""

import asyncio
import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
from attrs import Factory, define, frozen

from kafka_async import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka_async.errors import KafkaConnectionError
from kafka_async.network import Transport
from kafka_async.testing.server import ReceivedRequest, decode_request
from kafka_async.wire import Api
from tests.brokers import CURRENT, OLDER, KafkaCluster

CAPTURES: Final = Path(__file__).with_name("captures.json")
_OF_EACH: Final = 4
_LARGEST: Final = 3000


@frozen(kw_only=True)
class Capture:
    """One request and its answer, both without their length prefix."""

    request: bytes
    response: bytes

    @property
    def asked(self) -> ReceivedRequest:
        """The request, read."""
        return decode_request(self.request)


def load() -> list[Capture]:
    """Return what was recorded."""
    rows = json.loads(CAPTURES.read_text())
    return [Capture(request=base64.b64decode(row["request"]), response=base64.b64decode(row["response"])) for row in rows]


@define(eq=False)
class _Frames:
    """Cuts a stream into frames."""

    data: bytearray = Factory(bytearray)
    found: list[bytes] = Factory(list)

    def feed(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= 4 and len(self.data) >= 4 + (size := int.from_bytes(self.data[:4], "big")):
            self.found.append(bytes(self.data[4 : 4 + size]))
            del self.data[: 4 + size]


@define(eq=False)
class _Recording:
    """A connection that keeps what goes through it. A broker answers in order: the n-th answer is that of the n-th request."""

    stream: anyio.abc.SocketStream
    sent: _Frames = Factory(_Frames)
    received: _Frames = Factory(_Frames)

    async def receive_into(self, buffer: memoryview) -> int:
        try:
            data = await self.stream.receive(len(buffer))
        except anyio.EndOfStream:
            return 0
        except anyio.BrokenResourceError as error:
            raise KafkaConnectionError(str(error)) from error
        buffer[: len(data)] = data
        self.received.feed(data)
        return len(data)

    async def send(self, data: bytes) -> None:
        self.sent.feed(data)
        await self.stream.send(data)

    async def aclose(self) -> None:
        await self.stream.aclose()


@define(eq=False)
class Recorder:
    """A ``TransportFactory`` that records."""

    connections: list[_Recording] = Factory(list)

    async def __call__(self, host: str, port: int, *, timeout: float, attempt: int) -> Transport:
        recording = _Recording(await anyio.connect_tcp(host, port))
        self.connections.append(recording)
        return recording

    def captures(self) -> list[Capture]:
        """Return what was asked and answered on all connections."""
        pairs = [pair for each in self.connections for pair in zip(each.sent.found, each.received.found, strict=False)]
        return [Capture(request=request, response=response) for request, response in pairs]


async def _converse(cluster: KafkaCluster, topic: str, recorder: Recorder, **options: Any) -> None:
    """Have a consumer say as much as it can."""
    tp = TopicPartition(topic, 0)
    options = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **options}
    async with KafkaConsumer[Any, Any](topic, transport_factory=recorder, **options) as consumer:
        for _ in range(3):
            await consumer.getmany(timeout_ms=500, max_records=5)
        await consumer.commit()
        await consumer.committed(tp)
        await consumer.offsets_for_times({tp: 0})
        await consumer.end_offsets([tp])
        consumer.seek(tp, OffsetAndMetadata(offset=1, metadata="", leader_epoch=0))
        await consumer.getmany(timeout_ms=500)
        async with KafkaConsumer[Any, Any](topic, transport_factory=recorder, **options) as other:
            for _ in range(12):
                await consumer.getmany(timeout_ms=100)
                await other.getmany(timeout_ms=100)
        await consumer.getmany(timeout_ms=4000)


def _chosen(captures: list[Capture]) -> list[Capture]:
    kept: Counter[tuple[Api, int]] = Counter()
    seen: set[tuple[Api, int, int]] = set()
    chosen = []
    for capture in captures:
        asked = capture.asked
        key = asked.api, asked.version, len(capture.response)
        if key not in seen and kept[key[:2]] < _OF_EACH and len(capture.response) <= _LARGEST:
            seen.add(key)
            kept[key[:2]] += 1
            chosen.append(capture)
    return sorted(chosen, key=lambda capture: (capture.asked.api, capture.asked.version, len(capture.response)))


async def _record(version: str, protocols: tuple[str, ...], recorder: Recorder) -> None:
    with KafkaCluster(version) as cluster:
        for protocol in protocols:
            topic = cluster.create_topic(f"captured-{protocol}", 2)
            cluster.produce(topic, 12)
            more = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 100} if protocol == "classic" else {}
            await _converse(cluster, topic, recorder, group_id=f"{protocol}-group", group_protocol=protocol, **more)


def main() -> None:
    """Record anew."""
    recorder = Recorder()
    asyncio.run(_record(CURRENT, ("classic", "consumer"), recorder))
    asyncio.run(_record(OLDER, ("classic",), recorder))
    rows = [
        {
            "what": f"{capture.asked.api.name} {capture.asked.version}",
            "request": base64.b64encode(capture.request).decode(),
            "response": base64.b64encode(capture.response).decode(),
        }
        for capture in _chosen(recorder.captures())
    ]
    CAPTURES.write_text(json.dumps(rows, indent=0) + "\n")


if __name__ == "__main__":
    main()
