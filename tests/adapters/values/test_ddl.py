"""DDL texts to Arrow types and back."""

import pytest

pa = pytest.importorskip("pyarrow")

from kafka_async.adapters.values.ddl import check_names, parse_fields, shown  # noqa: E402  # needs pyarrow
from kafka_async.errors import KafkaConfigurationError  # noqa: E402  # beside the others


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BOOLEAN", "BOOLEAN"),
        ("byte", "TINYINT"),
        ("SMALLINT", "SMALLINT"),
        ("integer", "INT"),
        ("long", "BIGINT"),
        ("REAL", "FLOAT"),
        ("double", "DOUBLE"),
        ("VARCHAR(20)", "STRING"),
        ("BINARY", "BINARY"),
        ("DATE", "DATE"),
        ("TIMESTAMP_LTZ", "TIMESTAMP"),
        ("timestamp_ntz", "TIMESTAMP_NTZ"),
        ("DECIMAL", "DECIMAL(10,0)"),
        ("dec(6)", "DECIMAL(6,0)"),
        ("NUMERIC(38, 18)", "DECIMAL(38,18)"),
        ("ARRAY<ARRAY<INT>>", "array<array<int>>"),
        ("MAP<STRING, STRUCT<x INT, `y z`: DATE>>", "map<string,struct<x:int,y z:date>>"),
    ],
)
def test_a_type_is_read(text: str, expected: str) -> None:
    ((name, kind),) = parse_fields(f"a {text}")

    assert (name, shown(kind)) == ("a", expected)


def test_fields_have_names_in_quotes_comments_and_not_null() -> None:
    found = parse_fields("a INT NOT NULL COMMENT 'one, two', `b-``c` STRING COMMENT \"x\",d:DATE")

    assert [(name, shown(kind)) for name, kind in found] == [("a", "INT"), ("b-`c", "STRING"), ("d", "DATE")]


def test_one_struct_stands_for_its_fields() -> None:
    assert parse_fields("struct<a:int,b:array<string>>") == parse_fields("a INT, b ARRAY<STRING>")


def test_a_field_may_be_named_struct() -> None:
    assert [name for name, _ in parse_fields("struct INT, array STRING")] == ["struct", "array"]


def test_the_elements_of_an_array_have_sparks_name() -> None:
    ((_, kind),) = parse_fields("a ARRAY<INT>")

    assert kind.value_field.name == "element"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected the name of a field, found 'the end'"),
        ("a", "'the end' is not a supported type"),
        ("a INT,", "expected the name of a field"),
        ("a INT b INT", "expected a comma or the end, found 'B'"),
        ("a INTERVAL DAY", "'INTERVAL' is not a supported type"),
        ("a VARIANT", "'VARIANT' is not a supported type"),
        ("order-id INT", "a name that holds this character has to be in backquotes"),
        ("a ARRAY<INT", "expected >, found 'the end'"),
        ("a MAP<STRING>", "expected ,, found '>'"),
        ("a BIGNT", "did you mean 'BIGINT'"),
        ("a DECIMAL(39,2)", "expected 1 to 38 digits"),
        ("a DECIMAL(4,5)", "expected 1 to 38 digits"),
        ("a DECIMAL(x)", "expected a number, found 'X'"),
        ("a INT; b INT", "expected a comma or the end, found ';'"),
        ("` INT", "expected the name of a field, found '`'"),
        ("`a INT", "expected the name of a field, found '`'"),
        ("`` INT", "expected the name of a field, found '`'"),
        ("a INT COMMENT", "expected a comment in quotes, found 'the end'"),
        ("a INT COMMENT 'one", 'expected a comment in quotes, found "\'"'),
        ("a INT COMMENT one", "expected a comment in quotes, found 'ONE'"),
        ("a INT, A STRING", "two fields have the name 'A'"),
        ("a STRUCT<x: INT, X: INT>", "two fields have the name 'X'"),
        ("a " + "ARRAY<" * 200, "more than 100 nested types"),
    ],
)
def test_what_is_no_schema_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        parse_fields(text)

    assert complaint in str(caught.value)


def test_names_differ_in_more_than_case() -> None:
    check_names(["a", "b"], "here")
    with pytest.raises(KafkaConfigurationError, match="here: two fields have the name 'B'"):
        check_names(["a", "b", "B"], "here")
