"""Java's properties files. What is expected is what ``java.util.Properties.load`` makes of the same texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a = b \n", {"a": "b "}),
        ("  a\t:\fb", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("a : = b", {"a": "= b"}),
        ("# c\n! d=e\n  # f\na=b#c", {"a": "b#c"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=one,\\\n   two,\\\r\n\tthree\nb=4", {"a": "one,two,three", "b": "4"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\n c", {"a": "b\\c"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\n# not a comment\nc=d", {"a": "b# not a comment", "c": "d"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        (r"a=\t\n\r\f\q\"\\", {"a": '\t\n\r\fq"\\'}),
        (r"a=\u00e4\u4E2D\ud83d\ude00", {"a": "ä中😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=ä", {"a": "ä"}),
        ("\\\n# a comment, since nothing was said before the break\na=b", {"a": "b"}),
        (":c\n\\\n", {"": "c"}),
        (
            'jaas=Module required \\\n  username="alice" \\\n  password="a=b";',
            {"jaas": 'Module required username="alice" password="a=b";'},
        ),
    ],
)
def test_a_text_says_what_java_reads_in_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", [r"a=hunter2\u12", r"a=hunter2\uXYZ1", r"a=\u"])
def test_a_code_without_four_digits_is_named_by_its_line_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="line 2: expected four hexadecimal digits") as caught:
        parse_properties(f"# first\n{text}")
    assert "hunter2" not in str(caught.value)


_PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def _written(text: str) -> str:
    r"""Return ``text`` as Java's ``Properties.store`` writes it, every character by its codes."""
    codes = text.encode("utf-16-be")
    return "".join(f"\\u{codes[i : i + 2].hex()}" for i in range(0, len(codes), 2))


@pytest.mark.slow
@given(st.dictionaries(_PLAIN, _PLAIN, max_size=5))
def test_whatever_java_writes_is_read(values: dict[str, str]) -> None:
    assert parse_properties("".join(f"{_written(key)}={_written(value)}\n" for key, value in values.items())) == values


@given(st.text().filter(lambda text: "\\u" not in text))
def test_every_text_without_codes_can_be_read(text: str) -> None:
    assert all(isinstance(value, str) for value in parse_properties(text).values())
