"""What a type, or a function, makes of the bytes of a value."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Optional, TypedDict, Union

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.application.processing.typed_values import typed_value


class Model(pydantic.BaseModel):
    id: int


class Struct(msgspec.Struct):
    id: int


@dataclass
class Data:
    id: int


@attrs.define
class Attrs:
    id: int


class Typed(TypedDict):
    id: int


@pydantic.dataclasses.dataclass
class Checked:
    id: pydantic.PositiveInt


def parsed(data: bytes) -> int:
    return int(data)


def perhaps(data: bytes) -> int | None:
    return int(data) or None


def renamed(data: bytes) -> "json.Nothing | None":  # type: ignore[name-defined]  # what is tested
    return int(data)


@pytest.mark.parametrize(
    ("kind", "data", "expected", "optional"),
    [
        (Model, b'{"id": 3}', Model(id=3), False),
        (Struct, b'{"id": 3}', Struct(3), False),
        (Data, b'{"id": 3}', Data(3), False),
        (Attrs, b'{"id": 3}', Attrs(3), False),
        (Typed, b'{"id": 3}', {"id": 3}, False),
        (Checked, b'{"id": 3}', Checked(3), False),
        (list[Model], b'[{"id": 3}]', [Model(id=3)], False),
        (list[int], b"[1, 2]", [1, 2], False),
        (dict, b'{"a": [1]}', {"a": [1]}, False),
        (int, b"3", 3, False),
        (str, "Grüße".encode(), "Grüße", False),
        (bytes, b"\xff", b"\xff", False),
        (Data | None, b'{"id": 3}', Data(3), True),
        (Optional[Model], b'{"id": 3}', Model(id=3), True),  # noqa: UP045  # as older programs write it
        (Union[int, str, None], b'"x"', "x", True),  # noqa: UP007  # as older programs write it
        (str | None, b"x", "x", True),
        (bytes | None, b"x", b"x", True),
        (parsed, b"3", 3, False),
        (perhaps, b"3", 3, True),
        (renamed, b"3", 3, False),
        (int.from_bytes, b"\x01\x00", 256, False),
        (json.loads, b"[]", [], False),
    ],
)
def test_types_and_functions(kind: Any, data: bytes, expected: Any, optional: bool) -> None:
    typed = typed_value(kind)
    found = typed.decode(data)
    assert (found, type(found)) == (expected, type(expected))
    assert typed.optional is optional


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Model, b'{"id": "x"}'),
        (Checked, b'{"id": -1}'),
        (Struct, b"{}"),
        (Data, b"\xff"),
        (int, b"true"),
        (str, b"\xff"),
        (parsed, b"x"),
        (Data, b"[" * 100_000),
    ],
)
def test_what_does_not_fit_raises(kind: Any, data: bytes) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011  # whose it is depends on the library
        typed_value(kind).decode(data)


async def later(data: bytes) -> int:
    return int(data)


def forgotten(data: bytes) -> Any:
    return later(data)


class Plain:
    pass


@pytest.mark.parametrize("kind", [Plain, None | type(None), 3, "Order", later, object])
def test_what_is_no_type_and_no_function_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="value="):
        typed_value(kind)


def test_a_function_that_returns_a_coroutine_has_returned_no_value() -> None:
    with pytest.raises(TypeError, match="value returned the coroutine later without awaiting it"):
        typed_value(forgotten).decode(b"1")


@pytest.mark.parametrize("missing", [("msgspec",), ("msgspec", "pydantic")])
def test_a_type_of_no_library_is_read_by_the_one_that_is_there(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> object:
        return None if name in missing else object()

    monkeypatch.setattr("kafka_async.application.processing.typed_values.find_spec", find)
    if "pydantic" in missing:
        with pytest.raises(ImportError, match="is decoded by msgspec or pydantic, and neither is installed"):
            typed_value(Data)
    else:
        assert typed_value(Data).decode(b'{"id": "3"}') == Data(3)
        with pytest.raises(ImportError):
            typed_value(Attrs)


DECODERS: list[Callable[[bytes], Any]] = [
    typed_value(kind).decode for kind in (Model, Struct, Data, Checked, Typed, dict, int, str)
]


@given(st.binary(max_size=20), st.sampled_from(DECODERS))
def test_any_bytes_are_a_value_or_an_exception(data: bytes, decode: Callable[[bytes], Any]) -> None:
    with suppress(Exception):  # and never anything that would end a worker
        decode(data)
