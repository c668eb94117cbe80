"""Messages to bytes and back, for any version we speak.

Whatever the bytes are, no exception of another kind than ours gets out.

Sources: the protocol guide ("Request and Response Headers"); KIP-482, KIP-511 (the header of an ApiVersions response is always
version 0, and a broker that does not know the version asked answers in version 0).
"""

import struct
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ..errors import IllegalArgumentError, MalformedResponseError, UnsupportedVersionError
from . import compiler
from .layout import WireStruct, layout_of, memo
from .messages import Api, ApiVersionsResponse, Request
from .messages.base import NEWEST, Response, Struct
from .primitives import Buffer, Reader, Writer, read_tags
from .step import READ, WRITTEN, FetchStep, read_step, write_step
from .versions import FLEXIBLE, SUPPORTED, UNSUPPORTED_VERSION, check

if TYPE_CHECKING:  # only members of groups need them
    from .messages.group import ConsumerProtocolAssignment, ConsumerProtocolSubscription
    from .shapes import OldShape

R = TypeVar("R", bound=Response)
S = TypeVar("S", bound=Struct)

_HEADER = struct.Struct(">ihhih")
_CORRELATION_ID = struct.Struct(">i")
_VERSION = struct.Struct(">h")
_BAD_BYTES = (IndexError, ValueError, OverflowError, MemoryError, TypeError, struct.error)
_BAD_VALUES = (ValueError, OverflowError, TypeError, AttributeError, struct.error)
CONSUMER_PROTOCOL_VERSION = 3
_MAY_BE_LONGER = frozenset({Api.API_VERSIONS, Api.METADATA})
"""APIs whose responses may end in bytes that we do not know: librdkafka's mock cluster ends Metadata 9 and up with a byte too many.

Java tolerates such bytes everywhere; here they are an error elsewhere, since they mean that what was read is not what was sent.
"""
_RESHAPED: Final = frozenset({Api.FIND_COORDINATOR, Api.OFFSET_FETCH, Api.LEAVE_GROUP, Api.DELETE_TOPICS})
"""APIs of which ``shapes`` knows old shapes: that module waits until one of them is used."""


_TOOLS: Final = f"{__package__}.messages.admin"


def old_shape(cls: type[Struct], version: int) -> "OldShape | None":
    """Return the old shape of a message in ``version``, or ``None`` if the newest shape is used."""
    if cls.__module__ == _TOOLS:
        from .admin_shapes import OLD_SHAPES
    else:
        from .shapes import OLD_SHAPES
    shape = OLD_SHAPES.get(cls)
    return shape if shape is not None and version <= shape.until else None


def _old_shape(api: Api, cls: type[Struct], version: int) -> "OldShape | None":
    return old_shape(cls, version) if api in _RESHAPED else None


@memo
def layout(api: Api, cls: type[Struct], version: int) -> WireStruct:
    """Return the layout of a request or response class in a version. Raises ``UnsupportedVersionError`` for one not spoken here."""
    spoken = SUPPORTED[api]
    if not spoken.lowest <= version <= spoken.highest:
        raise UnsupportedVersionError(f"{cls.__name__} has no version {version} here; those from {spoken} are known.")
    old = _old_shape(api, cls, version)
    return layout_of(cls if old is None else old.cls, version, flexible=version >= FLEXIBLE.get(api, NEWEST))


@memo
def reader(api: Api, cls: type[Struct], version: int) -> Reader:
    """Return the reader of a request or response in a version; old shapes are not unfolded."""
    return compiler.reader(layout(api, cls, version))


@memo
def writer(api: Api, cls: type[Struct], version: int) -> Writer:
    """Return the writer of a request or response in a version; takes the newest shape."""
    write = compiler.writer(layout(api, cls, version))
    old = _old_shape(api, cls, version)
    if old is None:
        return write
    fold = old.fold
    return lambda value, out: write(fold(value), out)


@memo
def _writing(api: Api, cls: type[Struct], version: int) -> tuple[Writer, bool]:
    """Return the writer, and whether the header is flexible."""
    return writer(api, cls, version), layout(api, cls, version).flexible


@memo
def _reading(api: Api, cls: type[Struct], version: int) -> "tuple[Reader, bool, OldShape | None]":
    """Return the reader, whether the header is flexible, and the shape that has to be unfolded."""
    return reader(api, cls, version), layout(api, cls, version).flexible, _old_shape(api, cls, version)


def encode_request(request: Request[Any], version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return a request as it goes on the wire, length prefix included.

    Raises ``UnsupportedVersionError`` if the version cannot carry the request, ``IllegalArgumentError`` if a value does not
    fit its field.
    """
    if isinstance(request, FetchStep):
        if version in WRITTEN:
            try:
                return write_step(request, version, correlation_id, client_id)
            except _BAD_VALUES as error:
                raise IllegalArgumentError(f"{type(request).__name__} version {version} cannot be written: {error}") from error
        request = request.whole()
    check(request, version)
    api = request.api
    try:
        write, flexible = _writing(api, type(request), version)
        name = (client_id or "").encode()
        out = bytearray(_HEADER.pack(0, api, version, correlation_id, -1 if client_id is None else len(name)))
        out += name
        if flexible:
            out.append(0)
        write(request, out)
        _CORRELATION_ID.pack_into(out, 0, len(out) - 4)
    except _BAD_VALUES as error:
        raise IllegalArgumentError(f"{type(request).__name__} version {version} cannot be written: {error}") from error
    return bytes(out)


def response_correlation_id(frame: Buffer) -> int:
    """Return the correlation id of a response, given without its length prefix. Raises ``MalformedResponseError``."""
    if len(frame) < _CORRELATION_ID.size:
        raise MalformedResponseError(f"A response of {len(frame)} bytes is too short for its correlation id.")
    correlation_id: int = _CORRELATION_ID.unpack_from(frame, 0)[0]
    return correlation_id


def decode_response(request: Request[R] | type[Request[R]], version: int, frame: Buffer) -> R:
    """Return the response in its newest shape, given without its length prefix.

    ``request`` is what was answered, or only its class: then the key of an old FindCoordinator answer, or the group of an old
    OffsetFetch answer, which their versions do not carry, is an empty string. The bytes of records are copied out of ``frame``,
    which may be reused afterwards. The answer to a ``FetchStep`` is a ``FetchedStep`` if it is one. Raises
    ``MalformedResponseError`` for bytes that are not such a response.
    """
    if isinstance(request, FetchStep) and version in READ and (step := read_step(frame)) is not None:
        return step  # type: ignore[return-value] # a request names one class of answers, and a step has two
    known = request if isinstance(request, Request) else None
    cls = request.response
    try:
        if request.api is Api.API_VERSIONS:
            return cast(R, _decode_api_versions(version, frame))
        read, flexible, old = _reading(request.api, cls, version)
        offset = _CORRELATION_ID.size
        if flexible:
            offset = read_tags(frame, offset, {}, None) if frame[offset] else offset + 1
        response: R
        response, end = read(frame, offset)
        if end != len(frame) and (end > len(frame) or request.api not in _MAY_BE_LONGER):
            raise ValueError(f"{end} bytes were expected")
        return response if old is None else cast(R, old.unfold(response, known))
    except _BAD_BYTES as error:
        raise MalformedResponseError(
            f"{cls.__name__} version {version} of {len(frame)} bytes cannot be read: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _decode_api_versions(version: int, frame: Buffer) -> ApiVersionsResponse:
    """Read the answer to ApiVersions, leniently: it is the one message that must be understood before versions are known.

    With error 35 the body is in version 0, whatever was asked; some servers send what is in no version, so that only the code can
    be relied on.
    """
    start = _CORRELATION_ID.size
    error_code = _VERSION.unpack_from(frame, start)[0]
    if error_code != UNSUPPORTED_VERSION:
        return _read_api_versions(version, frame, exact=False)
    for body_version in (0, version):
        try:
            return _read_api_versions(body_version, frame, exact=True)
        except _BAD_BYTES:
            continue
    return ApiVersionsResponse(error_code=error_code)


def _read_api_versions(version: int, frame: Buffer, *, exact: bool) -> ApiVersionsResponse:
    response: ApiVersionsResponse
    response, end = reader(Api.API_VERSIONS, ApiVersionsResponse, version)(frame, _CORRELATION_ID.size)
    if end > len(frame) or (exact and end != len(frame)):
        raise ValueError(f"{end} bytes were expected")
    return response


def encode_subscription(subscription: "ConsumerProtocolSubscription", version: int = CONSUMER_PROTOCOL_VERSION) -> bytes:
    """Return what a classic member sends to the leader, version included. Raises ``IllegalArgumentError``."""
    return _encode_data(subscription, version)


def encode_assignment(assignment: "ConsumerProtocolAssignment", version: int = CONSUMER_PROTOCOL_VERSION) -> bytes:
    """Return what the leader gives a classic member, version included. Raises ``IllegalArgumentError``."""
    return _encode_data(assignment, version)


def decode_subscription(data: Buffer) -> "ConsumerProtocolSubscription":
    """Return what a classic member wrote to the leader; other clients wrote it. Raises ``MalformedResponseError``."""
    from .messages.group import ConsumerProtocolSubscription

    return _decode_data(ConsumerProtocolSubscription, data)


def decode_assignment(data: Buffer) -> "ConsumerProtocolAssignment":
    """Return what the leader gave a classic member; another client may have written it. Raises ``MalformedResponseError``."""
    from .messages.group import ConsumerProtocolAssignment

    return _decode_data(ConsumerProtocolAssignment, data)


@memo
def _data_codec(cls: type[Struct], version: int) -> tuple[Reader, Writer]:
    data_layout = layout_of(cls, version, flexible=False)
    return compiler.reader(data_layout), compiler.writer(data_layout)


def _encode_data(value: Struct, version: int) -> bytes:
    if not 0 <= version <= CONSUMER_PROTOCOL_VERSION:
        spoken = f"0 to {CONSUMER_PROTOCOL_VERSION}"
        raise UnsupportedVersionError(
            f"{type(value).__name__} version {version} is not spoken by this client, which speaks {spoken}."
        )
    out = bytearray(_VERSION.pack(version))
    try:
        _data_codec(type(value), version)[1](value, out)
    except _BAD_VALUES as error:
        raise IllegalArgumentError(f"{type(value).__name__} version {version} cannot be written: {error}") from error
    return bytes(out)


def _decode_data(cls: type[S], data: Buffer) -> S:
    """Read data whose newer versions only append fields: an unknown version is read as the newest known (``ConsumerProtocol``)."""
    try:
        version = _VERSION.unpack_from(data, 0)[0]
        if version < 0:
            raise ValueError(f"version {version}")
        value, end = _data_codec(cls, min(version, CONSUMER_PROTOCOL_VERSION))[0](data, _VERSION.size)
        if end > len(data):
            raise ValueError(f"{end} bytes were expected")
    except _BAD_BYTES as error:
        raise MalformedResponseError(f"{cls.__name__} of {len(data)} bytes cannot be read: {_reason(error)}") from error
    return cast(S, value)
