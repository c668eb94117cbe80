"""JSON values to columns: what Arrow reads at once, and that the result does not depend on it."""

import json
import pickle
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from kafka_async.adapters.spark.ddl import parse_fields  # noqa: E402  # needs pyarrow
from kafka_async.adapters.spark.json_values import JsonDecoder  # noqa: E402  # needs pyarrow
from kafka_async.adapters.spark.times import zone  # noqa: E402  # beside the others
from kafka_async.errors import DeserializationError  # noqa: E402  # beside the others

from .json_texts import SCHEMA as EVERY_TYPE  # noqa: E402  # beside the others
from .json_texts import TEXTS  # noqa: E402  # beside the others

SCHEMA = "id BIGINT, name STRING, price DECIMAL(6,2), at TIMESTAMP, day DATE, local TIMESTAMP_NTZ, parts ARRAY<STRUCT<x: INT>>"
GOOD = {
    "id": 1, "name": "é", "price": 1.5, "at": "2020-01-02T03:04:05Z", "day": "2020-01-02", "local": "2020-01-02 03:04:05",
    "parts": [{"x": 1}, None, {}], "more": [{"id": 2}],
}  # fmt: skip


def decoder(schema: str = SCHEMA, **settings: Any) -> JsonDecoder:
    return JsonDecoder(columns=parse_fields(schema), **settings)


def binary(values: Sequence[bytes | None]) -> Any:
    return pa.array(values, pa.binary())


def rows(decoder: JsonDecoder, values: Sequence[bytes | None]) -> list[tuple[Any, ...]]:
    offsets = pa.array(range(100, 100 + len(values)), pa.int64())
    columns = decoder.decode(binary(values), topic="t", partition=3, offsets=offsets)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def test_good_values_are_read_at_once() -> None:
    text = json.dumps(GOOD).encode()

    columns = decoder().bulk(binary([text, None, b"{}"]))

    assert columns is not None
    assert [column.type for column in columns] == [kind for _, kind in parse_fields(SCHEMA)]
    first, second, third = zip(*(column.to_pylist() for column in columns), strict=True)
    assert first[:3] == (1, "é", Decimal("1.50"))
    assert first[3].replace(tzinfo=None) == first[5] == datetime(2020, 1, 2, 3, 4, 5)  # the column has no zone
    assert (first[4], first[6]) == (date(2020, 1, 2), [{"x": 1}, None, {"x": None}])
    assert second == third == (None,) * 7


def test_fields_and_corrupt_are_the_columns() -> None:
    assert decoder("a INT, b STRING", prefix="v_").fields == (("v_a", "INT"), ("v_b", "STRING"), ("_corrupt", "BINARY"))
    assert decoder("a INT", permissive=False).fields == (("a", "INT"),)


def test_a_value_over_several_lines_is_one_row() -> None:
    assert decoder("a INT").bulk(binary([b'{\n"a":\n1\n}', b'{"a":2}']))[0].to_pylist() == [1, 2]  # type: ignore[index]  # not None


@pytest.mark.parametrize(
    "values",
    [
        [b'{"a":1}{"a":2}', b'{"a":3}'],
        [b'{"a":1}}\n{"r":{"a":2}', b'{"a":3}'],  # as the join would be written
        [b'{"a":1}}\n{"r":{"a":2}', b""],
        [b'{"a":"', b'"}', b'{"a":3}'],
        [b"", b'{"a":1},{"a":2}', b"["],
        [b'{"a":1}\n{"a":2}', b"", b'{"a":3}'],
    ],
)
def test_no_value_reaches_into_the_row_of_another(values: list[bytes]) -> None:
    alone = [rows(decoder("a INT"), [value])[0] for value in values]

    assert rows(decoder("a INT"), values) == alone


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=12),
            st.lists(st.sampled_from([b"{", b"}", b'"a"', b'"r"', b":", b"1", b"[", b"]", b",", b"\n", b" ", b"null"])).map(
                b"".join
            ),
            st.integers(-5, 5).map(lambda number: b'{"a":%d}' % number),
        ),
        max_size=8,
    )
)
def test_a_batch_is_what_its_values_are_alone(values: list[bytes | None]) -> None:
    alone = [rows(decoder("a INT"), [value])[0] for value in values]

    assert rows(decoder("a INT"), values) == alone


def test_bad_values_are_kept_and_the_rest_is_read() -> None:
    values = [b'{"a":%d}' % number for number in range(1000)]
    values[7], values[500] = b"{", b'{"a":"x","b":"kept"}'

    found = rows(decoder("a INT, b STRING"), values)

    assert found[7] == (None, None, b"{")
    assert found[500] == (None, "kept", values[500])
    assert [row for place, row in enumerate(found) if place not in (7, 500)] == [
        (place, None, None) for place in range(1000) if place not in (7, 500)
    ]


def test_failfast_names_the_first_bad_record() -> None:
    values = [b"{}"] * 300 + [b'{"a":1.5}'] + [b"{"] * 10

    with pytest.raises(
        DeserializationError, match=r"^t-3, offset 400: the value cannot be decoded: field 'a': expected INT, found a"
    ):
        rows(decoder("a INT", permissive=False), values)


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert rows(decoder("a STRING"), [b'{"a":"\xff"}']) == [("�", None)]


@pytest.mark.parametrize(("text", "expected"), [("99999", None), ("9999.995", None), ("1.555", "1.56"), ('"1,234.5"', "1234.50")])
def test_decimals_fit_or_are_bad(text: str, expected: str | None) -> None:
    ((price, corrupt),) = rows(decoder("price DECIMAL(6,2)"), [f'{{"price":{text}}}'.encode()])

    assert price == (None if expected is None else Decimal(expected))
    assert (corrupt is None) == (expected is not None)


def test_times_without_a_zone_are_in_the_one_that_is_set() -> None:
    value = [b'{"at":"2020-07-01T12:00:00"}', b'{"at":"2020-07-01T12:00:00Z"}']

    found = rows(decoder("at TIMESTAMP", zone=zone("Europe/Berlin")), value)

    assert [at.hour for at, _ in found] == [10, 12]


@pytest.mark.parametrize("schema", ["a MAP<STRING, INT>", "a BINARY", "a ARRAY<BINARY>", "a STRUCT<b: MAP<STRING, INT>>"])
def test_types_that_arrow_cannot_read_go_one_by_one(schema: str) -> None:
    assert not decoder(schema).has_bulk


def test_fewer_columns_cost_and_say_less() -> None:
    whole = decoder("a INT, b STRING")
    narrow = whole.select({"b": pa.string()})

    assert narrow.fields == (("b", "STRING"), ("_corrupt", "BINARY"))
    assert rows(narrow, [b'{"a":"x","b":"y"}']) == [("y", None)]
    assert rows(whole.select({}), [b"{", b"{}"]) == [(b"{",), (None,)]


@pytest.mark.parametrize("others", [{}, {"b": pa.string()}], ids=["alone", "beside a field"])
def test_what_counts_as_corrupt_does_not_depend_on_the_fields_that_are_read(others: dict[str, Any]) -> None:
    narrow = decoder("a INT, b STRING").select({"_corrupt": pa.binary(), "offset": pa.int64(), **others})

    corrupt = [name for name, _ in narrow.fields].index("_corrupt")
    bad = b'{"a":"x","b":"y"}'
    assert [row[corrupt] for row in rows(narrow, [bad, b'{"a":1}', None, b"{"])] == [bad, None, None, b"{"]


@pytest.mark.parametrize(("name", "kind"), parse_fields(EVERY_TYPE), ids=lambda part: str(part))
def test_what_is_read_in_bulk_is_what_is_read_one_by_one(name: str, kind: Any) -> None:
    found = JsonDecoder(columns=((name, kind),))
    in_bulk = 0
    for text in TEXTS:
        one_by_one = found.each([text.encode()])
        if (columns := found.bulk(binary([text.encode()]))) is not None:
            in_bulk += 1
            assert (text, one_by_one.bad, repr(columns[0].to_pylist())) == (text, {}, repr(one_by_one.arrays[0].to_pylist()))

    assert bool(in_bulk) == found.has_bulk


def test_nothing_gives_nothing() -> None:
    assert rows(decoder(), []) == []


def test_a_decoder_travels() -> None:
    found = pickle.loads(pickle.dumps(decoder(zone=zone("Europe/Berlin"))))  # noqa: S301  # our own

    assert found == decoder(zone=zone("Europe/Berlin"))


def test_deep_nesting_does_no_harm() -> None:
    deep = b'{"z":' + b"[" * 100_000 + b"]" * 100_000 + b',"a":1}'

    assert rows(decoder("a INT"), [deep, b'{"a":1}'])[1] == (1, None)
    assert rows(decoder("a INT, m MAP<STRING, INT>"), [deep]) == [(None, None, deep)]
