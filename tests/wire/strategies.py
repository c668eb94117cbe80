"""Hypothesis strategies for messages, made from their layouts: everything a version can carry, and defaults for the rest."""

from functools import cache
from typing import Any, cast
from uuid import UUID

from hypothesis import strategies as st

from kafka_async.testing.server import REQUESTS
from kafka_async.wire import SUPPORTED, Api, Request, Struct, codec
from kafka_async.wire.layout import WireField, WireStruct

VERSIONS = [(api, version) for api, spoken in SUPPORTED.items() for version in range(spoken.lowest, spoken.highest + 1)]
"""Every version of every API that is spoken."""
AHEAD_OF_KIO = frozenset({(Api.API_VERSIONS, 5)})
"""Those that ``kio``, the second reader of every message, does not have yet."""

KNOWN_ERROR_CODES = st.sampled_from([-1, 0, 1, 16, 27, 35, 113])
# Made once: thousands of fields are alike, and making a strategy takes longer than drawing from it.
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
_BYTES = st.binary(max_size=20)
_BOOLEANS = st.booleans()
_UUIDS = st.none() | st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))
_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
_NUMBERS = {kind: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for kind, bits in _BITS.items()}
_MAX_TIME = 4 * 10**12  # beyond 2100 the schema library rounds times, and beyond some 300 years its type overflows


def _scalars(field: WireField) -> st.SearchStrategy[Any]:
    if field.kind == "string":
        return _TEXTS
    if field.kind == "bytes":
        return _BYTES
    if field.kind == "?":
        return _BOOLEANS
    if field.kind == "16s":
        return _UUIDS
    if field.name.endswith("error_code"):
        return KNOWN_ERROR_CODES
    if field.kind == "q" and field.name.endswith("_ms"):
        return st.integers(-1 if field.name == "log_append_time_ms" else 0, _MAX_TIME)  # -1: there is none
    return _NUMBERS[field.kind]


def _values(field: WireField) -> st.SearchStrategy[Any]:
    values = structs(field.struct) if field.struct is not None else _scalars(field)
    if field.array:
        values = st.lists(values, max_size=3).map(tuple)
    if not field.nullable or field.kind == "16s":
        return values
    return st.none() | values


def structs(layout: WireStruct) -> st.SearchStrategy[Struct]:
    """Return instances of the class of a layout."""
    return st.builds(layout.cls, **{field.name: _values(field) for field in layout.fields if field.skipped is None})


@cache
def _messages(api: Api, version: int, response: bool) -> st.SearchStrategy[Struct]:
    request = REQUESTS[api]
    cls = request.response if response else request
    old = codec.old_shape(cls, version)
    found = structs(codec.layout(api, cls, version))
    return found if old is None else found.map(lambda value: old.unfold(value, None))


def requests(api: Api, version: int) -> st.SearchStrategy[Request[Any]]:
    """Return requests that hold just what a version can carry."""
    return cast("st.SearchStrategy[Request[Any]]", _messages(api, version, False))


def responses(api: Api, version: int) -> st.SearchStrategy[Any]:
    """Return responses that hold just what a version can carry."""
    return _messages(api, version, True)
