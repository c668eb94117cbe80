"""The broker's side of the wire: requests read, responses written, with the converters of the product.

Decides: nothing. Owns: which request class belongs to an API key. Must never be used but by tests and fake clusters.
"""

import struct
from typing import Any, NamedTuple, cast

from kafka_async.wire import SUPPORTED, Api, Request, Response, codec, messages
from kafka_async.wire.messages import admin
from kafka_async.wire.primitives import Buffer, read_tags
from kafka_async.wire.shapes import old_shape

REQUESTS: dict[Api, type[Request[Any]]] = {
    cls.api: cls
    for cls in (*(getattr(messages, name) for name in messages.__all__), *vars(admin).values())
    if isinstance(cls, type) and issubclass(cls, Request) and cls is not Request
}
"""The request class of each API."""

_HEADER = struct.Struct(">hhih")


class ReceivedRequest(NamedTuple):
    """A request as a broker sees it."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    request: Request[Any] | None
    """``None`` where the version is not one that this package speaks, as a broker would find it too."""


def decode_request(frame: Buffer) -> ReceivedRequest:
    """Read a request, given without its length prefix. Raises ``ValueError`` for bytes that are not one."""
    key, version, correlation_id, length = _HEADER.unpack_from(frame, 0)
    offset = _HEADER.size + max(length, 0)
    client_id = None if length < 0 else str(frame[_HEADER.size : offset], "utf-8")
    api = Api(key)
    spoken = SUPPORTED[api]
    if not spoken.lowest <= version <= spoken.highest:
        return ReceivedRequest(api, version, correlation_id, client_id, None)
    cls = REQUESTS[api]
    if codec.layout(api, cls, version).flexible:
        offset = read_tags(frame, offset, {}, None)
    value, end = codec.reader(api, cls, version)(frame, offset)
    if end != len(frame):
        raise ValueError(f"{cls.__name__} version {version} took {end} of {len(frame)} bytes")
    old = old_shape(cls, version)
    request = value if old is None else old.unfold(value, None)
    return ReceivedRequest(api, version, correlation_id, client_id, cast(Request[Any], request))


def encode_response(response: Response, api: Api, version: int, correlation_id: int) -> bytes:
    """Return a response as it goes on the wire, length prefix included; the version is that of the request."""
    cls = type(response)
    out = bytearray(struct.pack(">ii", 0, correlation_id))
    if codec.layout(api, cls, version).flexible and api is not Api.API_VERSIONS:
        out.append(0)
    codec.writer(api, cls, version)(response, out)
    struct.pack_into(">i", out, 0, len(out) - 4)
    return bytes(out)
