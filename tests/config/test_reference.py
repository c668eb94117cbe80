"""Every option is described, and what is said of it is what the code does.

Four things say what an option is: the class that checks it, the type that editors and type checkers see, its docstring, and the
printed page. None of them may differ from the others.
"""

import inspect
import pydoc
import re
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from attrs import fields_dict

import kafka_async
from kafka_async.config import ConsumerConfig, ConsumerOptions, reference
from kafka_async.config.checks import Check
from kafka_async.config.words import Deserializer

NAMES = sorted(fields_dict(ConsumerConfig).keys() - {"given"})
PAGE = Path(kafka_async.__file__).parent / "config" / "OPTIONS.md"
KEY = re.compile(r"``([a-z.]+)``")
OWN_NAMES = {
    "interceptors": "interceptor.classes",
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certfile": "ssl.keystore.location",
    "ssl_password": "ssl.key.password",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "sasl_oauthbearer_grant_type": "sasl.oauthbearer.jwt.retriever.class",
    "sasl_oauth_token_provider": "sasl.login.callback.handler.class",
}
"""Options that have another name than Kafka's key."""


_UNITS = {"_ms": "milliseconds", "_bytes": "bytes", "_seconds": "seconds", "_records": "records"}
_CONVERTED = {
    "bootstrap_servers": "``'host:port'``, several with commas between them, or a list of strings; ports from 1 to 65535",
    "partition_assignment_strategy": "names of assignors, or assignors; at least one, none twice",
    "interceptors": "a sequence of objects with ``on_consume()`` and ``on_commit()``, or None",
}
"""What is allowed for options that are not checked by a ``Check``."""


def default_text(name: str) -> str:
    """Return the default of an option as its docstring has it."""
    default = fields_dict(ConsumerConfig)[name].default
    if isinstance(default, Enum):
        default = default.name.lower()
    return f"``{default!r}``" if not isinstance(default, tuple) else f"``{list(default)!r}``"


def range_text(name: str) -> str:
    """Return what is allowed for an option, as its docstring has it."""
    validator = fields_dict(ConsumerConfig)[name].validator
    if not isinstance(validator, Check):
        return _CONVERTED[name]
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), None)
    counted = validator.expected.startswith("an integer")
    return f"{validator.expected}, in {unit}" if unit is not None and counted else validator.expected


class _Checked:
    deserializer: Deserializer[Any] | None


def test_the_type_that_editors_see_has_every_option_and_no_other() -> None:
    assert sorted(ConsumerOptions.__annotations__) == NAMES
    assert ConsumerOptions.__required_keys__ == frozenset()


@pytest.mark.parametrize("name", NAMES)
def test_the_type_that_editors_see_is_what_the_checking_class_takes(name: str) -> None:
    seen = get_type_hints(ConsumerOptions)[name]
    if name.endswith("_deserializer"):  # of a type that type checkers find out
        seen = get_type_hints(_Checked)["deserializer"]
    assert seen == get_type_hints(ConsumerConfig.__init__)[name]


@pytest.mark.parametrize("name", NAMES)
def test_an_option_has_a_meaning_in_whole_sentences(name: str) -> None:
    meaning = reference.find(name).meaning
    assert meaning.endswith(".")
    assert len(meaning) > 30
    assert len(reference.first_sentence(meaning)) < 160


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_has_the_default_and_the_range_that_hold(name: str) -> None:
    option = reference.find(name)
    assert option.fact("Default") == default_text(name)
    assert option.fact("Allowed") == range_text(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_has_the_key_by_which_kafka_knows_it(name: str) -> None:
    said = reference.find(name).fact("Kafka")
    if said.startswith("none") or "in ``sasl.jaas.config``" in said:
        return
    key = KEY.match(said)
    assert key is not None
    assert key[1] == OWN_NAMES.get(name, name.replace("_", "."))


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(("_ms", "_bytes"))])
def test_the_docstring_has_the_unit_of_a_number(name: str) -> None:
    assert reference.find(name).fact("Allowed").endswith("milliseconds" if name.endswith("_ms") else "bytes")


BOUNDS = [
    (name, number)
    for name in NAMES
    for bounds in re.findall(r"an integer from (-?\d+) to (\d+)", reference.find(name).fact("Allowed"))
    for number in map(int, bounds)
]


@pytest.mark.filterwarnings("ignore:no effect with security_protocol:UserWarning")
@pytest.mark.parametrize(("name", "bound"), BOUNDS)
def test_the_bounds_of_a_range_are_allowed_and_what_lies_beyond_is_not(name: str, bound: int) -> None:
    neighbours: dict[str, Any] = {
        "heartbeat_interval_ms": {"session_timeout_ms": 2**31 - 1},
        "session_timeout_ms": {"heartbeat_interval_ms": 1},
    }
    beside = neighbours.get(name, {})
    low = (name, bound) == (name, min(number for other, number in BOUNDS if other == name))
    inside, outside = (bound, bound - 1) if low else (bound, bound + 1)
    if name not in neighbours:
        assert getattr(ConsumerConfig.from_options({name: inside}), name) == inside
    with pytest.raises(ValueError, match=f"{name}={outside}: expected an integer from"):
        ConsumerConfig.from_options({name: outside, **beside})


def test_the_page_is_what_is_printed_from_the_docstrings() -> None:
    assert PAGE.read_text() == reference.page(), "python -m kafka_async.config.reference > kafka_async/config/OPTIONS.md"


def test_the_page_has_every_option_once() -> None:
    assert sorted(re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)) == NAMES


def test_one_option_is_found_by_its_name_with_dots_too() -> None:
    assert reference.described("group.id") == reference.described("group_id")
    assert reference.described("group_id").startswith("group_id: str | None\n\nConsumer group to join.")
    assert "Default: None.\n" in reference.described("group_id")


def test_the_list_has_a_line_for_each_option_and_one_for_its_meaning() -> None:
    listed = reference.listed()
    assert "\n  session_timeout_ms = 45000\n      How long the coordinator waits" in listed
    assert [name for name in NAMES if f"\n  {name} = " not in listed] == []


def test_help_on_the_configuration_has_the_meaning_of_every_option() -> None:
    shown = inspect.getdoc(ConsumerConfig) or ""
    assert shown.startswith("All options of a consumer, validated.")
    assert [name for name in NAMES if f"\n{name}: " not in shown] == []
    assert "\n    How long the coordinator waits for a heartbeat" in shown
    assert "keyword arguments" in pydoc.render_doc(ConsumerConfig)


def test_an_option_that_does_not_exist_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(KeyError, match=r"unknown option 'ssl\.truststore\.location'; it is an option of Java's client"):
        reference.find("ssl.truststore.location")
    with pytest.raises(KeyError, match=r"unknown option 'bootstrap\.server'; did you mean 'bootstrap_servers'"):
        reference.find("bootstrap.server")
