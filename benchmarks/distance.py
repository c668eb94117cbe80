"""One partition read over a line with long round trips: a client needs large responses there to be fast.

Owns the thread that runs the proxy. Every frame is held back for half the round trip in each direction. ``raw.fetch`` measures what
the proxy can pass on: it asks for as many bytes at once as our fetch buffer allows, and decodes nothing.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.jobs import Job
from benchmarks.sinks import Sink
from tests.brokers import KafkaCluster
from tests.faults.proxy import PROXIED, Proxy, proxied

ROUND_TRIPS_MS = (0, 1, 20)
"""The same machine, another zone of the same region, another region."""
LARGEST = 8 * 1024 * 1024
"""Bytes of one response that our default ``fetch_buffer_bytes`` allows."""


@contextmanager
def distant_cluster() -> Iterator[tuple[KafkaCluster, Proxy]]:
    """One broker and the proxy in front of it, which a thread runs for the length of the block."""
    with KafkaCluster(heap_mb=1024, quick_start=False, listeners={PROXIED: "PLAINTEXT"}, proxied=[PROXIED]) as cluster:
        opened: list[Proxy] = []
        ready = threading.Event()
        loop = asyncio.new_event_loop()
        over = asyncio.Event()

        async def serve() -> None:
            async with proxied(cluster) as proxy:
                opened.append(proxy)
                ready.set()
                await over.wait()

        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="proxy")
        thread.start()
        try:
            if not ready.wait(30):
                raise RuntimeError("the proxy did not open its ports within 30 s")
            yield cluster, opened[0]
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join()
            loop.close()


def raw_fetch(job: Job, sink: Sink) -> None:
    """Fetch, and look only for the next offset: what the line allows if one request follows another."""
    from kafka_async.records import measure
    from kafka_async.wire.messages import FetchPartition, FetchRequest, FetchTopic, MetadataRequest, MetadataRequestTopic

    ask = _conversation(job.bootstrap)
    (topic,) = ask(MetadataRequest(topics=(MetadataRequestTopic(name=job.topic),)), 12).topics
    offset = 0
    while True:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=LARGEST)
        topics = (FetchTopic(topic_id=topic.topic_id, partitions=(wanted,)),)
        answer = ask(FetchRequest(max_wait_ms=500, max_bytes=LARGEST, topics=topics), 13)
        ((data,),) = (each.partitions for each in answer.responses)
        span = measure(data.records or b"", offset)
        count, offset = span.next_offset - offset, span.next_offset
        if sink.take_sized(count, count * job.size):
            return


def _conversation(bootstrap: str) -> Any:
    """Return a function that sends a request in a version and returns the response."""
    from kafka_async.wire import Request, decode_response, encode_request

    host, _, port = bootstrap.rpartition(":")
    peer = socket.create_connection((host, int(port)))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(2 * LARGEST))

    def read(size: int) -> memoryview:
        done = 0
        while done < size:
            count = peer.recv_into(buffer[done:size])
            if not count:
                raise RuntimeError("the broker closed the connection")
            done += count
        return buffer[:size]

    def ask(request: Request[Any], version: int) -> Any:
        peer.sendall(encode_request(request, version, 1, "benchmark"))
        size = int.from_bytes(read(4), "big")
        return decode_response(request, version, read(size))

    return ask
