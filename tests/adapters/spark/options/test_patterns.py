"""Java's regular expressions: what Python finds with them, and what is refused.

The expected names are those in which ``java.util.regex.Pattern`` (JDK 17) finds the pattern, ``matcher(name).find()``: a pattern of
``subscribePattern`` may match any part of a name.
"""

import pytest

from kafka_async.adapters.spark.options.patterns import python_pattern
from kafka_async.errors import KafkaConfigurationError

from ..support import options


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders-.*", ["orders-", "orders-1", "my-orders-1"], ["orders"]),
        ("^orders-.*", ["orders-1"], ["my-orders-1"]),
        ("a|b", ["a", "b", "ab", "xay"], ["", "c"]),
        (r"\Aab$", ["ab"], ["abc", "xab"]),
        (r"a++b", ["aab", "caabd"], ["b"]),
        (r"a++a", [], ["aa", "aaa"]),
        (r"(?>a|ab)c", ["ac", "xacx"], ["abc"]),
        (r"(?!b)[a-c]+(?<=c)", ["ac", "bc"], ["ab", "bb"]),
        (r"[\w.\-]+", ["a-b.c_1", "a b"], [" "]),
        (r"^[\w.\-]+$", ["a-b.c_1"], ["a b"]),
        (r"[a-z-9]+", ["a-9"], ["8"]),
        (r"[a-\x63]+", ["abc"], ["d"]),
        (r"^(?:[-a]+|[b-]+|[^^c])$", ["a-", "b-", "d"], ["c", "a-b"]),
        (r"[a&b]+", ["ab"], ["c"]),
        (r"\x61\u0063\.", ["ac.", "xac.x"], ["acd"]),
        (r"(?i)orders", ["ORDERS", "orders", "my-Orders"], ["order"]),
        (r"a}", ["xa}"], ["a"]),
        (r"a{2}b{1,}c{0,1}", ["aab", "aabbc", "aabcc"], ["ab"]),
        (r"a\_b\-c", ["a_b-c"], ["abc"]),
        (r"[ a]", ["a"], ["b"]),
    ],
)
def test_a_pattern_matches_as_in_java(pattern: str, matching: list[str], others: list[str]) -> None:
    selects = options(subscribePattern=pattern).selects
    assert [name for name in (*matching, *others) if selects(name)] == matching


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("pat-[a-z&&[^b]]", "'[a-z&&[^' at character 5 is not supported"),
        ("[a-c[x-z]]+", "'[a-c[x-z' at character 1"),
        ("[a", "'[a' at character 1"),
        ("[]a]", "'[]a]' at character 1"),
        ("[a||b]", "'[a||b]' at character 1"),
        (r"[\w-.]", "bad character range"),
        (r"[a-\d]", "bad character range"),
        (r"[\b]", r"'[\\b]' at character 1"),
        (r"\h+", r"'\\h+' at character 1"),
        (r"\Qa.b\E", r"'\\Qa.b\\E' at character 1"),
        (r"orders-\p{Alpha}", r"'\\p{Alpha' at character 8"),
        (r"ab\Z", r"'\\Z' at character 3"),
        (r"(a)\1", r"'\\1' at character 4"),
        (r"\0144", r"'\\0144' at character 1"),
        ("(?<n>a)", "'(?<n>a)' at character 1"),
        ("(?P<n>a)", "'(?P<n>a)' at character 1"),
        ("a(?i)b", "'(?i)b' at character 2"),
        ("(?x)a b", "'(?x)a b' at character 1"),
        ("a\\", r"'\\' at character 2"),
        ("a{,3}", "'{,3}' at character 2"),
        ("a**", "multiple repeat"),
        ("a(", "missing )"),
        ("(?<=a|bc)d", "look-behind requires fixed-width pattern"),
    ],
)
def test_what_may_mean_something_else_is_named(pattern: str, problem: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        python_pattern(pattern)
    start = f"subscribePattern={pattern!r} is not a regular expression that Java and Python both have: "
    assert str(caught.value).startswith(start)
    assert problem in str(caught.value)
