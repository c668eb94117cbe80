"""JSON values to columns: what msgspec reads, and that nobody can tell what it was that read a value."""

import json
import pickle
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install '.[json]'")

from kafka_async.adapters.values.ddl import Fields, parse_fields  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.decoding import REASON  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.json_bulk import raw_type, read_all  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.json_rows import RowReader  # noqa: E402  # needs msgspec
from kafka_async.adapters.values.json_values import JsonDecoder, JsonReader  # noqa: E402  # needs msgspec
from kafka_async.adapters.values.times import zone  # noqa: E402  # beside the others
from kafka_async.application.reading.arrow import array_of  # noqa: E402  # needs pyarrow
from kafka_async.errors import DeserializationError  # noqa: E402  # beside the others

from .json_alone import read_alone  # noqa: E402  # needs pyarrow
from .json_texts import MORE_THAN_ONE_OBJECT, NO_OBJECT, TEXTS  # noqa: E402  # beside the others
from .json_texts import SCHEMA as EVERY_TYPE  # noqa: E402  # beside the others

SCHEMA = "id BIGINT, name STRING, price DECIMAL(6,2), at TIMESTAMP, day DATE, local TIMESTAMP_NTZ, parts ARRAY<STRUCT<x: INT>>"
ALL = [*TEXTS, *MORE_THAN_ONE_OBJECT, *NO_OBJECT]
BAD = (("_corrupt", pa.binary()), ("_corrupt_reason", pa.string()))
GOOD = {
    "id": 1, "name": "é", "price": 1.5, "at": "2020-01-02T03:04:05Z", "day": "2020-01-02", "local": "2020-01-02 03:04:05",
    "parts": [{"x": 1}, None, {}], "more": [{"id": 2}],
}  # fmt: skip


def decoder(schema: str = SCHEMA, **settings: Any) -> JsonDecoder:
    return JsonDecoder(columns=parse_fields(schema), **settings)


def binary(values: Sequence[bytes | None]) -> Any:
    return pa.array(values, pa.binary())


def rows(decoder: JsonDecoder, values: Sequence[bytes | None]) -> list[tuple[Any, ...]]:
    """Return rows without the reason why a value is bad."""
    offsets = pa.array(range(100, 100 + len(values)), pa.int64())
    columns = decoder.decode(binary(values), topic="t", partition=3, offsets=offsets)
    named = zip(decoder.fields, columns, strict=True)
    return list(zip(*(column.to_pylist() for (name, _), column in named if name != REASON), strict=True))


def alone(decoder: JsonDecoder, value: bytes | None) -> tuple[list[str], str | None]:
    """Return what ``json_records`` makes of a value, and what is wrong with it."""
    row, problem = read_alone(decoder.columns, decoder.zone, value)
    return [str(array_of(kind, [each])) for each, (_, kind) in zip(row, decoder.columns, strict=True)], problem


@pytest.mark.parametrize("at_once", [True, False])
def test_good_values_are_columns_of_the_types_of_the_schema(at_once: bool) -> None:
    text = json.dumps(GOOD).encode()
    values = [text, None, b"{}"]

    columns = (
        read_all(binary(values), parse_fields(SCHEMA), UTC)
        if at_once
        else RowReader(parse_fields(SCHEMA), UTC).piece(values).arrays
    )

    assert columns is not None
    assert [column.type for column in columns] == [kind for _, kind in parse_fields(SCHEMA)]
    first, second, third = zip(*(column.to_pylist() for column in columns), strict=True)
    assert first[:3] == (1, "é", Decimal("1.50"))
    assert first[3].replace(tzinfo=None) == first[5] == datetime(2020, 1, 2, 3, 4, 5)  # the column has no zone
    assert (first[4], first[6]) == (date(2020, 1, 2), [{"x": 1}, None, {"x": None}])
    assert second == third == (None,) * 7


def test_fields_and_corrupt_are_the_columns() -> None:
    assert decoder("a INT, b STRING", prefix="v_").fields == (("v_a", pa.int32()), ("v_b", pa.string()), *BAD)
    assert decoder("a INT", permissive=False).fields == (("a", pa.int32()),)


def test_a_value_over_several_lines_is_one_row() -> None:
    assert rows(decoder("a INT"), [b'{\n"a":\n1\n}', b'{"a":2}']) == [(1, None), (2, None)]


@pytest.mark.parametrize(
    "values",
    [
        [b'{"a":1}{"a":2}', b'{"a":3}'],
        [b'{"a":1}}\n{"r":{"a":2}', b'{"a":3}'],  # as the join would be written
        [b'{"a":1}}\n{"r":{"a":2}', b""],
        [b'{"a":"', b'"}', b'{"a":3}'],
        [b"", b'{"a":1},{"a":2}', b"["],
        [b'{"a":1}\n{"a":2}', b"", b'{"a":3}'],
        [b'{"a":1}\n{"a":2}', None, b"{}"],
        [b'{"a":', b'{"a":1}}', b'{"a":2}{"a":3}'],
        [b'{"a":1,"b":[', b'{"a":2}]}', b'{"a":3}\n{"a":4}'],
    ],
)
def test_no_value_reaches_into_the_row_of_another(values: list[bytes]) -> None:
    each = [rows(decoder("a INT"), [value])[0] for value in values]

    assert rows(decoder("a INT"), values) == each


@pytest.mark.parametrize("value", [text.encode() for text in (*MORE_THAN_ONE_OBJECT, *NO_OBJECT)])
@pytest.mark.parametrize(
    "others", [(), (b'{"a":1}',), (b"{", b'{"a":1}'), (None, b"{}")], ids=["alone", "a good one", "a bad one", "no fields"]
)
def test_a_value_that_is_not_one_object_is_bad(value: bytes, others: Sequence[bytes | None]) -> None:
    found = rows(decoder("a INT"), [*others, value, *others])

    assert found[len(others)] == (None, value)
    assert [row[0] for row in found if row[1] is None] == [
        None if other in (None, b"{}") else 1 for other in (*others, *others) if other != b"{"
    ]
    assert read_all(binary([*others, value, *others]), parse_fields("a INT"), UTC) is None


@pytest.mark.parametrize("blank", [b"{}\n", b"{ }", b"\r\n{\t}", b" {} "])
def test_objects_without_a_field_are_read_in_bulk_whatever_blanks_they_have(blank: bytes) -> None:
    in_bulk = read_all(binary([b'{"a":1}', blank, None, b"{}"]), parse_fields("a INT"), UTC)

    assert in_bulk is not None
    assert [array.to_pylist() for array in in_bulk] == [[1, None, None, None]]
    assert read_all(binary([blank, b'{"a":']), parse_fields("a INT"), UTC) is None
    assert read_all(binary([blank, b"\xff", b'{"a":1}']), parse_fields("a INT"), UTC) is None


def test_blanks_around_an_object_mean_nothing() -> None:
    values = [b' \t\r\n{"a":1}\n', b'{"a":2} ', b'\n{"a":\n3}']
    expected = [[1, 2, 3]]

    in_bulk = read_all(binary(values), parse_fields("a INT"), UTC)
    assert in_bulk is not None
    assert [array.to_pylist() for array in in_bulk] == expected
    assert [array.to_pylist() for array in RowReader(parse_fields("a INT"), UTC).piece(values).arrays] == expected


@pytest.mark.slow
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
    each = [rows(decoder("a INT"), [value])[0] for value in values]

    assert rows(decoder("a INT"), values) == each


@pytest.mark.slow
@given(
    st.sampled_from(["a DATE", "a TIMESTAMP", "a TIMESTAMP_NTZ", "a ARRAY<DATE>", "a STRUCT<b: TIMESTAMP>"]),
    st.lists(
        st.sampled_from(
            ["0000-01-01", "0000-12-31", "0001-01-01", "0001-01-01 00:00:00", "9999-12-31", "2020-02-30", "1969-12-31"]
        ),
        max_size=6,
    ),
)
def test_a_date_means_the_same_alone_and_in_every_company(schema: str, texts: list[str]) -> None:
    shape = {"a ARRAY<DATE>": '{"a":["%s"]}', "a STRUCT<b: TIMESTAMP>": '{"a":{"b":"%s"}}'}.get(schema, '{"a":"%s"}')
    values = [(shape % text).encode() for text in texts]
    found = decoder(schema)
    apart = [found.piece(binary([value])) for value in values]
    arrays = (
        [] if not values else found.decode(binary(values), topic="t", partition=0, offsets=pa.array(range(len(values)), pa.int64()))
    )
    assert [str(each.arrays[0]) for each in apart] == [str(arrays[0].slice(place, 1)) for place in range(len(values))]
    assert [bool(each.bad) for each in apart] == [arrays[1][place].is_valid for place in range(len(values))]


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("99999", None), ("9999.995", None), ("1.555", "1.56"), ('"1234.5"', "1234.50")),
        *(('"NaN"', None), ('"-nan12"', None), ('"sNaN"', None), ('"Infinity"', None), ('"1_000"', None)),
    ],
)
def test_decimals_fit_or_are_bad(text: str, expected: str | None) -> None:
    ((price, corrupt),) = rows(decoder("price DECIMAL(6,2)"), [f'{{"price":{text}}}'.encode()])

    assert price == (None if expected is None else Decimal(expected))
    assert (corrupt is None) == (expected is not None)


@pytest.mark.parametrize("default", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("text", ["2024-02-03T04:05:06+18:01", "2024-02-03T04:05:06-23:59", "2024-02-03 04:05:06+24:00"])
def test_a_zone_far_away_means_the_same_alone_and_in_company(text: str, default: str) -> None:
    value = f'{{"a":"{text}"}}'.encode()
    found = decoder("a TIMESTAMP", zone=zone(default))

    assert found.piece(binary([value])).arrays[0][0] == found.piece(binary([value, b"x"])).arrays[0][0]


def test_times_without_a_zone_are_in_the_one_that_is_set() -> None:
    value = [b'{"at":"2020-07-01T12:00:00"}', b'{"at":"2020-07-01T12:00:00Z"}']

    found = rows(decoder("at TIMESTAMP", zone=zone("Europe/Berlin")), value)

    assert [at.hour for at, _ in found] == [10, 12]


def test_fewer_columns_cost_and_say_less() -> None:
    whole = decoder("a INT, b STRING")
    narrow = whole.select(("b",))

    assert narrow.fields == (("b", pa.string()), *BAD)
    assert rows(narrow, [b'{"a":"x","b":"y"}']) == [("y", None)]
    assert rows(whole.select(()), [b"{", b"{}"]) == [(b"{",), (None,)]


@pytest.mark.parametrize("others", [(), ("b",)], ids=["alone", "beside a field"])
def test_what_counts_as_corrupt_does_not_depend_on_the_fields_that_are_read(others: tuple[str, ...]) -> None:
    narrow = decoder("a INT, b STRING").select(("_corrupt", "offset", *others))

    corrupt = [name for name, _ in narrow.fields].index("_corrupt")
    bad = b'{"a":"x","b":"y"}'
    assert [row[corrupt] for row in rows(narrow, [bad, b'{"a":1}', None, b"{"])] == [bad, None, None, b"{"]


@pytest.mark.parametrize(("name", "kind"), parse_fields(EVERY_TYPE), ids=lambda part: str(part))
def test_what_is_read_in_bulk_is_what_is_read_one_by_one(name: str, kind: Any) -> None:
    found = JsonDecoder(columns=((name, kind),))
    in_bulk = 0
    for text in ALL:
        if (columns := read_all(binary([text.encode()]), found.columns, UTC)) is not None:
            in_bulk += 1
            assert (text, [str(columns[0])], None) == (text, *alone(found, text.encode()))

    assert bool(in_bulk) == (raw_type(found.columns, UTC) is not None)


@pytest.mark.parametrize(("name", "kind"), parse_fields(EVERY_TYPE), ids=lambda part: str(part))
def test_what_msgspec_reads_is_what_would_be_read_without_it(name: str, kind: Any) -> None:
    found = JsonDecoder(columns=((name, kind),))
    piece = RowReader(found.columns, UTC).piece([text.encode() for text in ALL])
    for place, text in enumerate(ALL):
        expected, problem = alone(found, text.encode())
        assert (text, str(piece.arrays[0].slice(place, 1)), piece.bad.get(place)) == (text, expected[0], problem)


_DIGITS = st.from_regex(r"-?(0|[1-9]\d{0,45})(\.\d{1,45})?([eE][-+]?\d{1,2})?", fullmatch=True)


@pytest.mark.slow
@given(
    st.sampled_from(["DECIMAL(38,18)", "DECIMAL(20,19)", "DECIMAL(6,2)", "FLOAT", "DOUBLE", "BIGINT", "ARRAY<DECIMAL(38,10)>"]),
    st.one_of(
        _DIGITS,
        st.sampled_from(["40000000000000000000000000000000", "-5.5e30", "1e20", "100000000000000000000", "9" * 38]),
        # Beside the middle of two floats.
        st.sampled_from(["181345384.0000000000000000181345384", "1.00000017881393432617187499999"]),
    ),
)
def test_a_number_means_the_same_in_bulk_and_alone(kind: str, number: str) -> None:
    found = decoder(f"a {kind}")
    value = (f'{{"a":[{number}]}}' if kind.startswith("ARRAY") else f'{{"a":{number}}}').encode()
    if (columns := read_all(binary([value]), found.columns, UTC)) is not None:
        assert ([str(columns[0])], None) == alone(found, value)


_NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.sampled_from([2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), 1 << 43]),
)
_STRINGS = st.one_of(
    st.text(max_size=5),
    st.datetimes().map(str),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=17, minutes=59)), timezone(-timedelta(hours=18))])).map(
        datetime.isoformat
    ),
    st.dates().map(str),
    st.from_regex(r"[02]\d{3}-[01]\d-[0-3]\d([T ][0-2]\d:[0-6]\d:[0-6]\d(\.\d{1,7})?(Z|[+-][012]\d:[0-6]\d)?)?", fullmatch=True),
    st.sampled_from(["NaN", "INF", "-Infinity", "1.5", "aGk=", "", "1_0"]),
)
_ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBERS, _STRINGS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("xyk"), inner, max_size=2)),
    max_leaves=4,
)
_RECORDS = st.dictionaries(st.sampled_from([name for name, _ in parse_fields(EVERY_TYPE)] + ["zz"]), _ANY, max_size=5).map(
    lambda record: json.dumps(record).encode()
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return a record of which a few bytes are others, or missing."""
    text = bytearray(draw(_RECORDS))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b"'", b'"', b"\\", b"\n", b"}", b"\xff", b"0", b"-", b"e"])
        )
    return bytes(text)


@pytest.mark.slow
@given(st.lists(st.one_of(_RECORDS, damaged(), st.none()), max_size=5))
@settings(max_examples=300)
def test_a_value_means_the_same_alone_and_in_every_company(values: list[bytes | None]) -> None:
    found = decoder(EVERY_TYPE)
    piece = RowReader(found.columns, UTC).piece(values)
    for place, value in enumerate(values):
        expected, problem = alone(found, value)
        assert (value, [str(array.slice(place, 1)) for array in piece.arrays]) == (value, expected)
        assert piece.bad.get(place) == problem


@pytest.mark.parametrize("schema", ["a MAP<STRING, INT>", "a BINARY", "a ARRAY<BINARY>", "a STRUCT<b: MAP<STRING, INT>>"])
def test_types_that_arrow_cannot_read_go_one_by_one(schema: str) -> None:
    assert raw_type(parse_fields(schema), UTC) is None


def test_after_a_bad_value_arrow_is_asked_again_from_time_to_time() -> None:
    asked: list[Any] = []

    def read(values: Any, columns: Fields, zone: tzinfo) -> list[Any] | None:
        asked.append(values)
        return read_all(values, columns, zone)

    reader = JsonReader(parse_fields("a INT"), UTC, read)
    good, bad = binary([b'{"a":1}']), binary([b"{"])
    reader.read(good)
    for pause in (1, 3, 7, 15, 31, 31):
        asked.clear()
        reader.read(bad)
        found = [reader.read(good).arrays[0].to_pylist() for _ in range(pause)]
        assert found == [[1]] * pause
        assert asked == [bad]
    for _ in range(3):
        reader.read(good)
    assert asked == [bad, good, good, good]


def test_no_values_give_no_rows() -> None:
    assert rows(decoder(), []) == []


def test_a_decoder_travels() -> None:
    found = pickle.loads(pickle.dumps(decoder(zone=zone("Europe/Berlin"))))  # noqa: S301  # our own

    assert found == decoder(zone=zone("Europe/Berlin"))


def test_deep_nesting_does_no_harm() -> None:
    deep = b'{"z":' + b"[" * 100_000 + b"]" * 100_000 + b',"a":1}'

    assert rows(decoder("a INT"), [deep, b'{"a":1}'])[1] == (1, None)
    # How deep a decoder in C may go is no number any more in Python 3.14, but what the stack takes.
    assert rows(decoder("a INT, m MAP<STRING, INT>"), [deep]) in ([(None, None, deep)], [(1, None, None)])


@pytest.mark.parametrize("schema", ["a STRING", "a STRING, d DECIMAL(6,2)", "a ARRAY<STRING>"])
@pytest.mark.parametrize("others", [(), (b"x",)], ids=["alone", "beside a bad value"])
@pytest.mark.parametrize("depth", [100, 450, 600, 980, 2_000, 100_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"k":', "}")], ids=["arrays", "objects"])
def test_what_is_nested_deeply_in_a_text_is_kept_or_bad(
    begin: str, end: str, depth: int, others: Sequence[bytes], schema: str
) -> None:
    text = begin * depth + "1.5" + end * depth
    value = f'{{"a":[{text}]}}'.encode()
    found = rows(decoder(schema), [value, *others])[0]

    kept = [text] if "ARRAY" in schema else f"[{text}]"
    assert (found[0], found[-1]) in ([(kept, None)] if depth < 500 else [(kept, None), (None, value)])


def test_values_of_a_json_schema_are_read_with_the_id_in_front_or_in_a_header() -> None:
    frame = b"\0\0\0\0\7"
    values = [frame + b'{"a":1}', b'{"a":2}', None, frame, frame + b"{", b"\0{}", b"", b"\1\0\0\0\7{}"]
    found = rows(decoder("a INT", framed=True), values)
    nothing, bad = (None, None), [(None, value) for value in values]
    assert found == [(1, None), (2, None), nothing, *bad[3:]]
    assert rows(decoder("a INT"), values[:1]) == [(None, values[0])]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=25)
def test_a_large_batch_with_some_bad_values_is_read_as_each_of_its_values_is(data: st.DataObject) -> None:
    """Some pieces of it by Arrow's reader, some by the other."""
    odd = st.sampled_from([b"nope", b'{"id":"x"}', None, b'{"id":1.5,"name":7}', b'{"at":"2020-13-01"}', b"", b'{"id":1}{"id":2}'])
    values: list[bytes | None] = [b'{"id":%d,"name":"n","parts":[{"x":%d}]}' % (number, number) for number in range(5000)]
    places = data.draw(st.lists(st.integers(0, 4999), min_size=1, max_size=3))
    for place in places:
        values[place] = data.draw(odd)
    reader = JsonReader(parse_fields(SCHEMA), UTC)
    piece = reader.read(binary(values))
    expected = RowReader(parse_fields(SCHEMA), UTC).piece(values)

    assert dict(piece.bad) == dict(expected.bad)
    assert all(one.equals(other) for one, other in zip(piece.arrays, expected.arrays, strict=True))


def test_after_a_few_bad_values_arrow_still_reads_the_next_batch_and_after_many_it_does_not() -> None:
    good, bad = b'{"id":1}', b'{"id":"x"}'
    tried: list[int] = []

    def at_once(values: Any, columns: Fields, zone: tzinfo) -> Any:
        tried.append(len(values))
        return read_all(values, columns, zone)

    reader = JsonReader(parse_fields("id BIGINT"), UTC, at_once)
    reader.read(binary([bad, *[good] * 8191]))
    assert tried == [8192, *[1024] * 8]
    reader.read(binary([bad] * 8192))
    assert tried[9:] == [8192, *[1024] * 5]
    reader.read(binary([good]))
    assert len(tried) == 15  # left out once
    reader.read(binary([good]))
    assert tried[15:] == [1]
