"""The broker's side of the wire: requests read, responses written, with the converters of the product."""

import struct
from typing import Any, Final, NamedTuple, cast

from ..wire import SUPPORTED, Api, Request, Response, codec
from ..wire.messages import admin, cluster, coordinator, describing, fetch, group, login, offsets, produce, share, telemetry
from ..wire.primitives import Buffer, read_tags

REQUESTS: dict[Api, type[Request[Any]]] = {
    cls.api: cls
    for module in (cluster, fetch, coordinator, describing, login, telemetry, group, offsets, admin, produce, share)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Request) and cls is not Request
}
"""The request class of each API."""
_APIS: Final = {int(api): api for api in Api}

_HEADER = struct.Struct(">hhih")
_OTHERS: Final = {
    27: "WriteTxnMarkers",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    33: "AlterConfigs",
    34: "AlterReplicaLogDirs",
    35: "DescribeLogDirs",
    43: "ElectLeaders",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    61: "DescribeProducers",
    65: "DescribeTransactions",
    66: "ListTransactions",
    74: "ListConfigResources",
    75: "DescribeTopicPartitions",
}
"""APIs that are not spoken here but that other clients may ask for."""


class NotSimulatedError(NotImplementedError):
    """A client asked for something that the cluster does not simulate; the text names the API."""


class ReceivedRequest(NamedTuple):
    """A request as a broker sees it."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    request: Request[Any] | None
    """``None`` if this package does not speak the version; a broker would reject it too."""


def decode_request(frame: Buffer) -> ReceivedRequest:
    """Read a request, given without its length prefix.

    Raises ``ValueError`` for bytes that are not a request, ``NotSimulatedError`` for an API that is not simulated. librdkafka asks
    for all topics with four bytes instead of one; brokers ignore the rest, so it is not an error in that request.
    """
    key, version, correlation_id, length = _HEADER.unpack_from(frame, 0)
    offset = _HEADER.size + max(length, 0)
    client_id = None if length < 0 else str(frame[_HEADER.size : offset], "utf-8")
    api = _APIS.get(key)
    if api is None:
        raise NotSimulatedError(f"{_OTHERS.get(key, 'an unknown API')} (API key {key}) is not simulated")
    spoken = SUPPORTED[api]
    if not spoken.lowest <= version <= spoken.highest:
        return ReceivedRequest(api, version, correlation_id, client_id, None)
    cls = REQUESTS[api]
    try:
        if codec.layout(api, cls, version).flexible:
            offset = read_tags(frame, offset, {}, None)
        value, end = codec.reader(api, cls, version)(frame, offset)
    except (IndexError, struct.error) as error:
        raise ValueError(f"{cls.__name__} version {version} is cut short: {error}") from error
    if end != len(frame) and api is not Api.METADATA:
        raise ValueError(f"{cls.__name__} version {version} took {end} of {len(frame)} bytes")
    old = codec.old_shape(cls, version)
    request = value if old is None else old.unfold(value, None)
    return ReceivedRequest(api, version, correlation_id, client_id, cast("Request[Any]", request))


def encode_response(response: Response, api: Api, version: int, correlation_id: int) -> bytes:
    """Return a response as it goes on the wire, length prefix included; the version is that of the request."""
    cls = type(response)
    out = bytearray(struct.pack(">ii", 0, correlation_id))
    if codec.layout(api, cls, version).flexible and api is not Api.API_VERSIONS:
        out.append(0)
    codec.writer(api, cls, version)(response, out)
    struct.pack_into(">i", out, 0, len(out) - 4)
    return bytes(out)
