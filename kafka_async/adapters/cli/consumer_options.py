"""The options of a consumer on the command line: ``-b``, ``-F`` and ``-X``.

``-X`` wins over the command's own options, these over the file, and that over the default. A value that may be a secret is never
shown, even if it was typed in the wrong place.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from ...config import ConsumerConfig
from ...config.consumer_config import NAMES, nearest_option, option_texts
from ...config.sources import properties_options
from ...config.texts import option_name
from ...errors import KafkaError
from .launch import on_disk

BROKERS: Final = "localhost:9092"

Brokers: TypeAlias = Annotated[
    str | None, typer.Option("-b", "--bootstrap", metavar="HOST:PORT[,...]", help=f"Brokers to ask first. Default: {BROKERS}.")
]
Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--set",
        metavar="OPTION=VALUE",
        help="Any option of the consumer; can be repeated. OPTION=@FILE takes the value from a file, for secrets; a value that "
        "begins with @ is written @@. 'kafka-async options' lists the options.",
    ),
]


def _path(text: str) -> Path:
    return Path(on_disk(text))


CommandConfig: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "-F",
        "--command-config",
        metavar="FILE",
        parser=_path,
        help="A properties file with options, as for Java's tools: option=value on each line. -b, -X and the like override it.",
    ),
]

_FILES: Final = ("file", "keytab")
"""How the options that name a file end."""
_NAME: Final = re.compile(r"[a-z]+([._][a-z]+)*")
_AS_BYTES: Final = {"key_deserializer": None, "value_deserializer": None, "interceptors": ()}
"""Keys and values stay bytes here, whatever classes a file of Java's has for them."""


def consumer_options(
    settings: Sequence[str] | None,
    *,
    file: Path | None = None,
    defaults: Mapping[str, Any] | None = None,
    chosen: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the options of a consumer from ``defaults``, a file, what was ``chosen`` by options of their own, and ``-X`` settings.

    ``None`` in ``chosen`` means not chosen. Raises ``typer.BadParameter`` for an option that is unknown, has no value or takes a
    Python object.
    """
    typed = {name: value for name, value in (chosen or {}).items() if value is not None} | dict(map(setting, settings or ()))
    options = dict(defaults or {})
    options |= _from_file(file, typed) if file is not None else {}
    options |= typed
    try:
        ConsumerConfig.from_options(options)
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None
    return options


def _from_file(path: Path, typed: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return properties_options(path, option_texts(), {**_AS_BYTES, **typed})
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, KafkaError) as error:
        raise typer.BadParameter(str(error)) from None


def setting(text: str) -> tuple[str, Any]:
    """Return name and value of ``option=value``, the value as the option's type. Dots and underscores are the same in a name.

    Raises ``typer.BadParameter``, without the value.
    """
    typed, equals, value = text.partition("=")
    name = option_name(typed)
    if name not in NAMES:
        raise typer.BadParameter(_unknown(typed.strip(), bool(equals)))
    if not equals:
        raise typer.BadParameter(f"{typed.strip()}: expected option=value")
    try:
        content = content_of(name, value)  # with its blanks: a password may begin or end with one
        return name, option_texts().value(name, on_disk(content) if name.endswith(_FILES) else content)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _unknown(typed: str, has_value: bool) -> str:
    """Say what is wrong with a name. It is shown if it looks like one: it may be a password as well."""
    if not has_value and not _NAME.fullmatch(typed):
        return "expected option=value; the text is not shown, because it may be a secret"
    near = nearest_option(option_name(typed))
    shown = repr(typed) if _NAME.fullmatch(typed) else "(not shown, because it may be a secret)"
    return f"unknown option {shown}{near}; 'kafka-async options' lists the options"


def content_of(name: str, value: str) -> str:
    """Return the value, or what is in the file that it names, without the line end that editors put there."""
    if value.startswith("@@"):
        return value[1:]
    if not value.startswith("@"):
        return value
    try:
        return re.sub(r"\r?\n\Z", "", _path(value[1:]).read_text("utf-8"))
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "not a text file in UTF-8"
        raise typer.BadParameter(
            f"{name}: cannot read the file after '@': {why}; a value that begins with @ is written @@"
        ) from None


def admin_options(brokers: str | None, file: Path | None, settings: list[str] | None) -> dict[str, Any]:
    """Return the options of a consumer that only reads. Raises ``typer.BadParameter``."""
    # Telemetry is for programs that stay.
    defaults = {
        "bootstrap_servers": BROKERS,
        "client_id": "kafka-async",
        "auto_offset_reset": "earliest",
        "enable_metrics_push": False,
    }
    options = consumer_options(settings, file=file, defaults=defaults, chosen={"bootstrap_servers": brokers})
    return options | {"group_id": None, "group_instance_id": None, "allow_auto_create_topics": False}
