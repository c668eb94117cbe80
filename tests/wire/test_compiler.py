"""Readers and writers made from layouts."""

import pickle
import struct
from typing import Any
from uuid import UUID

import attrs
import pytest

from kafka_async.values import frozen
from kafka_async.wire import Struct, compiler
from kafka_async.wire.layout import WireField, WireStruct


@frozen(kw_only=True)
class Inner(Struct):
    number: int = -1


@frozen(kw_only=True)
class Sample(Struct):
    offset: int
    buffer: str
    value: bool = True
    topic_id: UUID | None = None
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    late: int = 7
    tagged: int = -1
    tagged_struct: Inner = Inner()


def field(name: str, kind: str, **options: Any) -> WireField:
    plain: dict[str, Any] = {"array": False, "nullable": False, "tag": None, "struct": None, "skipped": None}
    return WireField(name=name, kind=kind, **(plain | options))


INNER = WireStruct(cls=Inner, fields=(field("number", "h"),), flexible=True)
SAMPLE = WireStruct(
    cls=Sample,
    fields=(
        field("tagged_struct", "struct", tag=4, struct=INNER),
        field("offset", "q"),
        field("unused", "i", skipped=-1),
        field("value", "?"),
        field("buffer", "string"),
        field("topic_id", "16s", nullable=True),
        field("inner", "struct", struct=INNER, nullable=True),
        field("inners", "struct", struct=INNER, array=True),
        field("tagged", "i", tag=2),
    ),
    flexible=True,
)


def written(value: Struct, layout: WireStruct = SAMPLE) -> bytes:
    out = bytearray()
    compiler.writer(layout)(value, out)
    return bytes(out)


def test_fields_come_back_in_the_order_of_the_layout() -> None:
    value = Sample(
        offset=3, buffer="b", value=False, topic_id=UUID(int=1), inner=Inner(number=5), inners=(Inner(), Inner(number=2))
    )
    data = written(value)
    assert data[:13] == (3).to_bytes(8) + b"\xff\xff\xff\xff" + b"\0"
    assert compiler.reader(SAMPLE)(b"xx" + data, 2) == (value, len(data) + 2)


def test_defaults_of_tagged_fields_are_not_written() -> None:
    assert written(Sample(offset=3, buffer="b"))[-1] == 0
    value = Sample(offset=3, buffer="b", tagged=0, tagged_struct=Inner(number=9))
    assert written(value).endswith(b"\x02\x02\x04\0\0\0\0\x04\x03\x00\x09\0")
    assert compiler.reader(SAMPLE)(written(value), 0)[0] == value


def test_fields_that_the_version_lacks_are_dropped_and_get_their_default() -> None:
    assert compiler.reader(SAMPLE)(written(Sample(offset=3, buffer="b", late=99)), 0)[0].late == 7


def test_what_is_read_is_what_the_constructor_makes() -> None:
    value = compiler.reader(SAMPLE)(written(Sample(offset=3, buffer="b")), 0)[0]
    twin = Sample(offset=3, buffer="b")
    assert type(value) is Sample
    assert (value, hash(value), repr(value)) == (twin, hash(twin), repr(twin))
    assert pickle.loads(pickle.dumps(value)) == twin  # noqa: S301 - our own bytes
    assert attrs.evolve(value, offset=4).offset == 4
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        value.offset = 1  # type: ignore[misc] # what is tested


def test_struct_without_fields_takes_no_bytes() -> None:
    assert written(Inner(), WireStruct(cls=Inner, fields=(), flexible=False)) == b""
    assert compiler.reader(WireStruct(cls=Inner, fields=(), flexible=False))(b"", 0) == (Inner(), 0)


@pytest.mark.parametrize("end", range(len(written(Sample(offset=3, buffer="bcd", inners=(Inner(),))))))
def test_cut_bytes_never_make_a_whole_value(end: int) -> None:
    data = written(Sample(offset=3, buffer="bcd", inners=(Inner(),)))[:end]
    with pytest.raises((IndexError, ValueError, struct.error)):
        compiler.reader(SAMPLE)(data, 0)
