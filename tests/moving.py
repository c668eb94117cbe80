"""A request that moves partitions to other brokers, for which confluent-kafka has no call, and Java's tool takes a process.

Source: KIP-455 (AlterPartitionReassignments). Brokers pass it on to their controller.
"""

import datetime
import socket
import struct
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Final

from kio.schema.alter_partition_reassignments.v1 import request as asking
from kio.schema.alter_partition_reassignments.v1 import response as answering
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i32Timedelta

_TIMEOUT: Final = 10.0
"""Seconds that a broker has to answer."""


def move(address: str, topic: str, replicas: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Have ``replicas`` of partitions be on the given brokers; return what is refused, with the error code.

    They go there in their own time. Raises ``OSError`` if the broker at ``address`` does not answer.
    """
    partitions = tuple(
        asking.ReassignablePartition(partition_index=i32(partition), replicas=tuple(map(BrokerId, there)))
        for partition, there in replicas.items()
    )
    request = asking.AlterPartitionReassignmentsRequest(
        timeout=i32Timedelta.parse(datetime.timedelta(seconds=_TIMEOUT)),
        topics=(asking.ReassignableTopic(name=TopicName(topic), partitions=partitions),),
    )
    response = _ask(address, request)
    if response.error_code:
        return dict.fromkeys(replicas, int(response.error_code))
    found = [partition for of_topic in response.responses for partition in of_topic.partitions]
    return {int(partition.partition_index): int(partition.error_code) for partition in found if partition.error_code}


def _ask(address: str, request: asking.AlterPartitionReassignmentsRequest) -> answering.AlterPartitionReassignmentsResponse:
    header_type = request.__header_schema__
    header = header_type(
        request_api_key=request.__api_key__,
        request_api_version=i16(request.__version__),
        correlation_id=i32(0),
        client_id="tests",
    )
    message = BytesIO()
    entity_writer(header_type)(message, header)
    entity_writer(type(request))(message, request)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), _TIMEOUT) as connection:
        connection.sendall(struct.pack(">i", message.tell()) + message.getvalue())
        answer = _exactly(connection, int.from_bytes(_exactly(connection, 4)))
    _, at = entity_reader(answering.AlterPartitionReassignmentsResponse.__header_schema__)(answer, 0)
    response, _ = entity_reader(answering.AlterPartitionReassignmentsResponse)(answer, at)
    return response


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Read ``size`` bytes. A socket with a timeout may give fewer at a time, also when asked to wait for all."""
    found = b""
    while len(found) < size:
        if not (more := connection.recv(size - len(found))):
            raise ConnectionError("the broker ended the connection")
        found += more
    return found
