"""Java's regular expressions: what Python makes of them, and what is refused.

The expected matches are those of ``java.util.regex.Pattern`` (JDK 17), ``matcher(name).matches()``.
"""

import re

import pytest

from kafka_async.adapters.spark.java_pattern import python_pattern
from kafka_async.errors import KafkaConfigurationError


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders-.*", ["orders-", "orders-1"], ["my-orders-1", "orders"]),
        ("a|b", ["a", "b"], ["ab", ""]),
        (r"orders-\p{Alpha}+", ["orders-Ab"], ["orders-1"]),
        (r"\p{Lower}\p{Upper}\p{Digit}", ["aB1"], ["Ab1", "aBc"]),
        (r"[\p{Alnum}\p{Punct}]+", ["a.1-B_"], ["a b"]),
        (r"\pL+\p{Lu}\p{IsLl}\p{Nd}", ["abAb1"], ["1Ab1"]),
        (r"\P{Lower}+", ["AB-1"], ["Ab"]),
        (r"[^\P{Lower}]+", ["ab"], ["AB"]),
        (r"\p{Lt}|[\p{Lt}a]", ["a"], ["A"]),
        (r"\Qa.b\E+", ["a.b", "a.bb"], ["axb", "a.ba.b"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"[\Qa-z\E]+", ["a-z"], ["b"]),
        (r"\\Qa", [], ["Qa", "a"]),
        (r"(?<n>a|b)-\k<n>", ["a-a", "b-b"], ["a-b"]),
        (r"(a|b)-\1\Q1\E", ["a-a1"], ["a-b1", "a-a"]),
        (r"\Aab\z", ["ab"], ["abc"]),
        (r"ab\Z", ["ab"], ["abc"]),
        (r"a++b", ["aab"], ["b"]),
        (r"a++a", [], ["aa", "aaa"]),
        (r"(?>a|ab)c", ["ac"], ["abc"]),
        (r"[\w-.]+", ["a-b.c_1"], ["a b"]),
        (r"[a-z-9]+", ["a-9"], ["8"]),
        (r"[a-\x63]+", ["abc"], ["d"]),
        (r"[-a]+|[b-]+|[^^c]", ["a-", "b-", "d"], ["c", "a-b"]),
        (r"[]a]+", ["a"], ["b"]),
        (r"[a&b]+", ["ab"], ["c"]),
        (r"\x61\x{62}\u0063\0144", ["abcd"], ["abc"]),
        (r"(?i)orders", ["ORDERS", "orders"], ["order"]),
        (r"(?s)a.(?i:b)(?-i:c)", ["a-Bc"], ["a-BC", "A-bc"]),
        (r"a}", [], ["a"]),
        (r"a{2}b{1,}c{0,1}", ["aab", "aabbc"], ["ab", "aabcc"]),
        (r"a\_b\-c", ["a_b-c"], ["abc"]),
        (r"[ a]", ["a"], ["b"]),
    ],
)
def test_a_pattern_matches_what_it_matches_in_java(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = re.compile(python_pattern(pattern)).fullmatch
    assert [name for name in (*matching, *others) if matches(name)] == matching


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("pat-[a-z&&[^b]]", "'&&' in a class"),
        ("[a-c[x-z]]+", "'[' in a class"),
        ("[a-[b]]", "'[' in a class"),
        ("[a", "a class does not end"),
        (r"[a-\d]", "the range from 'a' has no character at its end"),
        (r"[\b]", "the escape '\\b' is not supported"),
        (r"\h+", "the escape '\\h' is not supported"),
        (r"\b{g}", "the escape '\\b' is not supported"),
        (r"\Ga", "the escape '\\G' is not supported"),
        (r"a\E", "the escape '\\E' is not supported"),
        (r"(a)\11", "the escape '\\1' is not supported"),
        ("a\\", "the escape"),
        (r"\p{IsGreek}", "the property '\\p{IsGreek}' is not supported"),
        (r"\p{lower}", "the property '\\p{lower}' is not supported"),
        (r"\x{FFFFFF}", "is no character"),
        ("(?P<n>a)", "'(?P<' begins no group"),
        ("(?x)a b", "'(?x)' begins no group"),
        ("a(?i)b", "'(?i)' in the middle; write it at the beginning, or as '(?i:...)'"),
        ("a{,3}", "'{' without a number of times"),
        ("a**", "multiple repeat"),
        ("a(", "missing )"),
        ("(?<=a|bc)d", "look-behind requires fixed-width pattern"),
    ],
)
def test_what_cannot_be_said_in_python_is_named(pattern: str, problem: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        python_pattern(pattern)
    assert str(caught.value).startswith(f"subscribePattern={pattern!r} is no regular expression of Java's that can be used: ")
    assert problem in str(caught.value)
