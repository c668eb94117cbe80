"""The ``value.*`` options, and values as texts."""

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from kafka_async.adapters.values.formats import decoder_for  # noqa: E402  # needs pyarrow
from kafka_async.errors import DeserializationError, KafkaConfigurationError  # noqa: E402  # beside the others

JSON = {"value.format": "json", "value.schema": "a INT, b TIMESTAMP"}


def decoded(options: dict[str, str], values: list[bytes | None]) -> list[list[Any]]:
    decoder = decoder_for(options)
    assert decoder is not None
    arrays = decoder.decode(
        pa.array(values, pa.binary()), topic="t", partition=0, offsets=pa.array(range(5, 5 + len(values)), pa.int64())
    )
    return [array.to_pylist() for array in arrays]


def test_values_stay_bytes_unless_asked() -> None:
    assert decoder_for({}) is None
    assert decoder_for({"value.format": "BINARY"}) is None


def test_text_that_is_not_utf8_is_a_bad_value() -> None:
    assert decoded({"value.format": "string"}, ["é".encode(), None]) == [["é", None], [None, None], [None, None]]
    assert decoded({"value.format": "string"}, [b"a", b"\xff", b"b"]) == [
        ["a", None, "b"],
        [None, b"\xff", None],
        [None, "it is not UTF-8 from byte 0 on", None],
    ]


def test_texts_that_are_none_end_a_read_where_the_user_says_so() -> None:
    options = {"value.format": "string", "value.mode": "failfast"}

    assert decoded(options, [b"a"]) == [["a"]]
    with pytest.raises(DeserializationError, match=r"^t-0, offset 6: the value cannot be decoded: it is not UTF-8 from byte 1 on$"):
        decoded(options, [b"a", b"a\xff"])


def test_the_fields_of_each_format() -> None:
    found = decoder_for({**JSON, "value.prefix": "v_", "value.mode": "failfast"})

    assert found is not None
    assert found.fields == (("v_a", pa.int32()), ("v_b", pa.timestamp("us", tz="UTC")))


def test_keys_have_options_of_their_own() -> None:
    keys = {name.replace("value.", "key."): text for name, text in JSON.items()}

    assert decoder_for(JSON, part="key") is None
    assert decoder_for(keys) is None
    found = decoder_for(keys | {"value.format": "string"}, part="key")
    assert found is not None
    assert found.fields == (
        ("key_a", pa.int32()),
        ("key_b", pa.timestamp("us", tz="UTC")),
        ("_corrupt_key", pa.binary()),
        ("_corrupt_key_reason", pa.string()),
    )
    text = decoder_for({"key.format": "string", "key.mode": "failfast"}, part="key")
    assert text is not None
    assert text.fields == (("key", pa.string()),)
    with pytest.raises(KafkaConfigurationError, match=r"^key\.schema: "):
        decoder_for(keys | {"key.schema": "a"}, part="key")
    with pytest.raises(KafkaConfigurationError, match=r"^unknown option 'key\.fromat'; did you mean 'key\.format'"):
        decoder_for({"key.fromat": "json"}, part="key")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"key.format": "value.json"}, "key.format='value.json': expected binary or string or json or avro"),
        (
            {"key.format": "json", "key.schema": "`value.mode` INT, `value.mode` INT"},
            "key.schema: two fields have the name 'value.mode'",
        ),
        ({"key.value.format": "json"}, "unknown option 'key.value.format'; did you mean 'key.format'?"),
        ({"key.schema": "a INT"}, "key.schema has no meaning with key.format=binary"),
        ({"key.format": "avro"}, "key.format=avro needs key.schema or key.schema.registry.url"),
        (
            {"key.format": "avro", "value.schema.registry.url": "nowhere"},
            "value.schema.registry.url: expected https://host[:port][/path]",
        ),
        (
            {"key.format": "avro", "key.schema.registry.url": "nowhere", "value.schema.registry.url": "https://127.0.0.1:1"},
            "key.schema.registry.url: expected https://host[:port][/path]",
        ),
    ],
)
def test_bad_options_of_keys_are_named_and_what_they_hold_is_shown_as_it_is(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        decoder_for(options, part="key")

    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"value.format": "jsn"}, "value.format='jsn': expected binary or string or json or avro"),
        ({"value.fromat": "json"}, "unknown option 'value.fromat'; did you mean 'value.format'?"),
        ({"value.schema": "a INT"}, "value.schema has no meaning with value.format=binary"),
        ({**JSON, "value.schema.registry.url": "https://x"}, "value.schema.registry.url has no meaning with value.format=json"),
        ({**JSON, "value.mode": "dropmalformed"}, "value.mode='dropmalformed': expected permissive or failfast"),
        ({**JSON, "value.timezone": "Mars"}, "value.timezone='Mars': expected a name such as Europe/Berlin"),
        ({"value.format": "json"}, "value.format=json needs value.schema"),
        ({"value.format": "json", "value.schema": "_corrupt INT"}, "two fields have the name '_corrupt'"),
        ({"value.format": "json", "value.schema": "a MAP<INT, INT>"}, "the keys of a map in JSON are STRING"),
        ({"value.format": "json", "value.schema": "a ARRAY<STRUCT<b: MAP<DATE, INT>>>"}, "the keys of a map in JSON are STRING"),
    ],
)
def test_bad_options_are_named(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        decoder_for(options)

    assert complaint in str(caught.value)


def test_the_framing_of_json_is_an_option() -> None:
    given = {"value.format": "json", "value.schema": "a INT", "value.mode": "failfast"}
    assert decoded(given | {"value.framing": "Confluent"}, [b'\0\0\0\0\7{"a":1}']) == [[1]]
    with pytest.raises(KafkaConfigurationError, match=r"value\.framing='glue': expected none or confluent"):
        decoder_for(given | {"value.framing": "glue"})
    with pytest.raises(KafkaConfigurationError, match=r"value\.framing has no meaning with value\.format=string"):
        decoder_for({"value.format": "string", "value.framing": "confluent"})
