"""What the class of a message says about its bytes."""

from typing import Any, ClassVar, cast
from uuid import UUID

import attrs
import pytest

from kafka_async.errors import UnsupportedVersionError
from kafka_async.values import frozen
from kafka_async.wire import Api, Struct, codec
from kafka_async.wire.layout import WireField, WireStruct, layout_of, parts_of
from kafka_async.wire.messages import HeartbeatRequest
from kafka_async.wire.messages.base import NotOurs, int8, int16, int32, int64, since
from tests.wire.layouts import LAYOUTS


@frozen(kw_only=True)
class Inner(Struct):
    number: int16


@frozen(kw_only=True)
class Sample(Struct):
    small: int8
    hidden: ClassVar = NotOurs(int32, default=-1, first=2, until=3)
    large: int64
    yes: bool = False
    text: str | None = since(0, null=2, default="")
    data: bytes = b""
    topic_id: UUID | None = None
    old: int32 = since(0, until=1, default=0)
    inner: Inner | None = None
    many: tuple[Inner, ...] | None = since(2, tag=0, default=())
    numbers: tuple[int32, ...] = ()
    unwritten: ClassVar = NotOurs(object, default=None, tag=1)
    note: ClassVar = "what is no field of Kafka's"


def field(name: str, kind: str, **options: Any) -> WireField:
    plain: dict[str, Any] = {"array": False, "nullable": False, "tag": None, "struct": None, "skipped": None}
    return WireField(name=name, kind=kind, **(plain | options))


INNER = WireStruct(cls=Inner, fields=(field("number", "h"),), flexible=False)
ALWAYS = (
    field("data", "bytes"),
    field("topic_id", "16s", nullable=True),
    field("inner", "struct", nullable=True, struct=INNER),
    field("numbers", "i", array=True),
)


def test_fields_are_those_of_the_version_in_the_order_of_the_bytes() -> None:
    small, large, yes = field("small", "b"), field("large", "q"), field("yes", "?")
    data, topic_id, inner, numbers = ALWAYS
    old = (small, large, yes, field("text", "string"), data, topic_id, field("old", "i"), inner, numbers)
    many = field("many", "struct", array=True, nullable=True, struct=INNER, tag=0)
    hidden, text = field("hidden", "i", skipped=-1), field("text", "string", nullable=True)

    assert layout_of(Sample, 1, flexible=False).fields == old
    assert layout_of(Sample, 2, flexible=False).fields == (small, hidden, large, yes, text, data, topic_id, inner, many, numbers)
    assert layout_of(Sample, 4, flexible=False).fields == (small, large, yes, text, data, topic_id, inner, many, numbers)


def test_structs_inside_are_as_flexible_as_the_message() -> None:
    (inner,) = (each.struct for each in layout_of(Sample, 0, flexible=True).fields if each.name == "inner")

    assert inner == WireStruct(cls=Inner, fields=INNER.fields, flexible=True)


def test_every_field_has_a_type_of_kafkas() -> None:
    kinds = {each.kind for _, struct in LAYOUTS for each in struct.fields}

    assert kinds == {"b", "h", "i", "q", "?", "16s", "string", "bytes", "struct"}


def test_a_type_that_does_not_say_its_size_is_refused() -> None:
    with pytest.raises(KeyError, match="int"):
        parts_of(int)


def test_fields_that_some_version_lacks_have_a_default() -> None:
    lacking = {
        (struct.cls.__name__, own.name)
        for _, struct in LAYOUTS
        for own in attrs.fields(cast(Any, struct.cls))
        if own.default is attrs.NOTHING and own.name not in {each.name for each in struct.fields if each.tag is None}
    }
    assert lacking == set()


def test_version_that_is_not_spoken_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="HeartbeatRequest has no version 99 here; those from 0 to 4 are known"):
        codec.layout(Api.HEARTBEAT, HeartbeatRequest, 99)
