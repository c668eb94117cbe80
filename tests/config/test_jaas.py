"""Texts of ``sasl.jaas.config``: what they say, and that nothing of them is told.

What is expected is what ``JaasContext.loadClientContext`` of Kafka 4.3 makes of the same texts.
"""

import pytest

from kafka_async.config.jaas import parse_login
from kafka_async.errors import KafkaConfigurationError

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{MODULE} required username="alice" password="se;cr=et";', {"username": "alice", "password": "se;cr=et"}),
        (f"{MODULE} REQUISITE username='alice' ;\n", {"username": "alice"}),
        (f"\n  {MODULE}\n  optional\n  username=alice-1.b_$\n  password = \"x\"\n;", {"username": "alice-1.b_$", "password": "x"}),
        (f"{MODULE} required;", {}),
        (f"/* who */ {MODULE} required // flag\n a=b / more\r;", {"a": "b"}),
        (rf'{MODULE} required a="\"\\\'" b=\'"\' c="\'" d="";'.replace("\\'", "'"), {"a": "\"\\'", "b": '"', "c": "'", "d": ""}),
        (rf'{MODULE} required a="\n\t\x\q" b="\101\8\0" c="\477\1a";', {"a": "\n\txq", "b": "A8\0", "c": "'7\x01a"}),
        (f"{MODULE} required a=\"/* // */\" b='ä漢😀';", {"a": "/* // */", "b": "ä漢😀"}),
        (f'{MODULE} required username="$ConnectionString" password="Endpoint=sb://x/;Key=a+/=";', {
            "username": "$ConnectionString", "password": "Endpoint=sb://x/;Key=a+/="}),
        (f"{MODULE} required a=b a=c;", {"a": "c"}),
    ],
)  # fmt: skip
def test_a_text_names_a_module_and_its_options(text: str, options: dict[str, str]) -> None:
    login = parse_login(text)
    assert (login.module, login.kind) == (MODULE, "PlainLoginModule")
    assert login.options == options


def test_packages_of_other_distributions_do_not_matter() -> None:
    assert parse_login("kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule required;").kind == "ScramLoginModule"
    assert parse_login("ScramLoginModule required;").kind == "ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "character 1: expected the name of a login module"),
        ("hunter2", "character 8: expected a control flag, as in"),
        ("hunter2 hunter2 a=b;", "character 9: expected a control flag (required, requisite, sufficient, optional)"),
        ("hunter2 required user='hunter2'", "the semicolon at its end is missing"),
        ("hunter2 required hunter2;", "character 25: expected an equals sign"),
        ("hunter2 required a=hunter2 hunter2=;", "character 36: expected a value, in quotes unless it is a word"),
        ("hunter2 required a='hunter2'hunter2;", "character 36: expected an equals sign"),
        ("hunter2 required a=12hunter2;", "character 20: expected a word, or a value in quotes"),
        ("hunter2 required a='hunter2;", "character 20: expected a quoted text that ends in the same line"),
        ("hunter2 required a='hunter2\n';", "character 20: expected a quoted text that ends in the same line"),
        ("hunter2 required a='hunter2\\';", "character 20: expected a quoted text that ends in the same line"),
        ("hunter2 required ='hunter2';", "character 18: expected the name of an option, or a semicolon"),
        ("hunter2 required; hunter2 required;", "expected one login module"),
        ("hunter2 required {};", "character 18: expected a word"),
    ],
)
def test_an_error_names_the_place_of_what_is_wrong_and_never_shows_it(text: str, problem: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        parse_login(text)
    assert str(caught.value).startswith("sasl.jaas.config: ")
    assert problem in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_login_does_not_show_its_options() -> None:
    assert "hunter2" not in repr(parse_login(f"{MODULE} required password=hunter2;"))
