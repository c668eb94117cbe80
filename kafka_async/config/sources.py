"""Options from outside the program: environment variables and properties files.

No file or variable is read that the caller did not ask for, and no value shown that may be a secret.
"""

import logging
import os
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ..errors import KafkaConfigurationError
from ..values import evolve
from .java import MEANINGLESS, PRODUCERS, UNUSED_IN_PLAINTEXT, Dialect, nearest_name
from .java import NAMES as JAVA_NAMES
from .properties import parse_properties
from .spelling import nearest
from .texts import OptionTexts, option_name
from .warning import warn

_logger = logging.getLogger("kafka_async")

_FILE: Final = Dialect()
_REFUSED: Final = _FILE.refused
_NEAR: Final = 0.8
"""How similar a variable must be to an option to count as a typing mistake: ``KAFKA_HOME`` and ``KAFKA_PORT`` are not."""
_CASES: Final = {
    "security_protocol": str.upper,
    "group_protocol": str.lower,
    "metadata_recovery_strategy": str.lower,
    "sasl_oauthbearer_assertion_algorithm": str.upper,
}
"""Options whose words Java takes in any case."""
_PROTOCOL: Final = "security_protocol"
_DEFAULTS: Final = ("", "https", "GSSAPI", "JKS", "TLSv1.3", "TLSv1.2,TLSv1.3")
"""What lines of TLS and SASL may say that hold in Java without them."""
_CLASSES: Final = ("key_deserializer", "value_deserializer")
_KEY: Final = re.compile(r"[A-Za-z]+([._-][A-Za-z]+)*")


def environment_options(prefix: str, texts: OptionTexts, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the options that variables with ``prefix`` hold; see ``ConsumerConfig.from_env``."""
    if not prefix:
        raise ValueError("prefix='': expected text such as 'KAFKA_'; without it every variable would be an option")
    found, names = {}, texts.names
    for variable, text in sorted((os.environ if environment is None else environment).items()):
        if not variable.startswith(prefix):
            continue
        name = variable.removeprefix(prefix).lower()
        if name in names:
            found[name] = texts.value(name, text, variable)
        elif near := nearest(name, names, _NEAR):
            raise TypeError(f"the environment variable {variable} is not an option; did you mean {prefix}{near.upper()}?")
    return found


def properties_options(path: str | PathLike[str], texts: OptionTexts, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the options that a properties file holds, without ``given`` ones; see ``ConsumerConfig.from_properties``.

    The file is read as UTF-8 or, if it is not valid UTF-8, as Latin-1, as Java reads it.
    """
    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return options_of_properties(parse_properties(text), texts, f"{os.fspath(path)}: ", given)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None
    except TypeError as error:
        raise TypeError(f"{os.fspath(path)}: {error}") from None
    except KafkaConfigurationError as error:
        raise KafkaConfigurationError(f"{os.fspath(path)}: {error}") from None


def options_of_properties(
    properties: Mapping[str, str], texts: OptionTexts, origin: str = "", given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the options for keys and values as Java has them. Raises as ``ConsumerConfig.from_properties`` does.

    What the ``given`` options take the place of is left out, even if it would be refused: the error says to give these options.

    With ``PLAINTEXT``, given or not, so are lines of TLS and SASL, and one ``UserWarning`` names their keys. One INFO line names
    those that only producers have. Both begin with ``origin``.
    """
    for_producers = sorted(key for key in properties if option_name(key) in PRODUCERS)
    if for_producers:
        _logger.info("%signored, because only producers have them: %s", origin, ", ".join(for_producers))
    names = texts.names
    given = given or {}
    dialect = evolve(_FILE, given=frozenset(name for name, value in given.items() if value is not None))
    replaced = dialect.replaced.union(name for name in _CLASSES if name in given)
    known: dict[str, str] = {}
    options: dict[str, Any] = {}
    lines = {key: value for key, value in properties.items() if option_name(key) not in replaced}
    for key, value in _with_effect(lines, given, origin).items():
        name, text = option_name(key), value.strip()  # as Java's ConfigDef does, passwords included
        if name in _REFUSED:
            raise KafkaConfigurationError(f"{key} is not supported: {_REFUSED[name]}")
        if name in _CLASSES:
            options |= _deserializer(name, key, text)
        elif name == "interceptor_classes":
            if text:
                raise KafkaConfigurationError(f"{key}: Java classes are not loaded; give interceptors in the program")
        elif name in names or name in JAVA_NAMES:
            known[name] = _CASES.get(name, str)(text)
        elif name not in MEANINGLESS and name not in PRODUCERS:
            raise TypeError(_unknown(key, text, names))
    if given.get(_PROTOCOL):
        known[_PROTOCOL] = str(given[_PROTOCOL])  # what lines of TLS mean depends on it
    ours = dialect.with_stores(dialect.in_our_words(known))
    return options | {name: texts.value(name, text, dialect.dotted(name)) for name, text in ours.items() if name not in given}


def _with_effect(properties: Mapping[str, str], given: Mapping[str, Any], origin: str) -> Mapping[str, str]:
    """Return the lines without those that have no effect, and name these.

    Programs turn TLS and SASL on and off by one option, and leave all others in the file. Java's client does not look at them then:
    a store need not be there, and a login may be of a kind that is refused here.
    """
    in_file = {option_name(key): value.strip().upper() for key, value in properties.items()}.get(_PROTOCOL)
    if (given.get(_PROTOCOL) or in_file or "PLAINTEXT") != "PLAINTEXT":
        return properties
    idle = {key: value for key, value in properties.items() if option_name(key) in UNUSED_IN_PLAINTEXT}
    if named := sorted(key for key, value in idle.items() if option_name(key) not in given and value.strip() not in _DEFAULTS):
        warn(f"{origin}no effect with security_protocol='PLAINTEXT': {', '.join(named)}", UserWarning)
    return {key: value for key, value in properties.items() if key not in idle}


def _unknown(key: str, text: str, names: frozenset[str]) -> str:
    """Say what is wrong with a key. It is shown if it looks like one: the file may hold only a password, or a key in PEM."""
    if text and _KEY.fullmatch(key):
        return f"unknown option {key!r}{nearest_name(option_name(key), names | JAVA_NAMES)}"
    return "unknown option (not shown, because it may be a secret); expected option=value on each line"


def _deserializer(name: str, key: str, text: str) -> dict[str, Any]:
    """Return the option for one of Java's classes that is nothing but bytes or text."""
    match text.removeprefix("org.apache.kafka.common.serialization."):
        case "ByteArrayDeserializer":
            return {}
        case "StringDeserializer":
            return {name: _decoded}
    raise KafkaConfigurationError(f"{key}: Java classes are not loaded; give {name} in the program")


def _decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
