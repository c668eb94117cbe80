"""Secrets by reference: options say where a secret is, and the process that connects looks there.

Decides: which texts are references. Owns nothing. Must never show what it found, nor resolve anything on its own: options travel in
plans, logs, the web page of Spark and task binaries, so they carry the reference and whoever opens a connection calls ``resolve``.

| reference | the secret is |
|---|---|
| ``env:NAME`` | an environment variable of that process (``spark.executorEnv.NAME`` sets it on executors) |
| ``file:/path`` | the text of a file, without the newline at its end |
| ``call:module:function`` | what a function without arguments returns |
| ``module:callable`` | for ``*_provider`` options: the object itself, which is then asked for tokens |

A name without a slash after ``file:`` is one that ``SparkContext.addFile`` (or ``--files``) has brought to the process.
"""

import importlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...errors import KafkaConfigurationError

MAX_BYTES: Final = 1 << 20
"""More is no secret; a file that never ends is none either."""

_SCHEMES: Final = ("env:", "file:", "call:")
_OBJECT: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_reference(name: str, text: str) -> bool:
    """Say whether ``resolve_one`` would look elsewhere. ``*_location`` options name files themselves."""
    if name.endswith("_location"):
        return False
    return text.startswith(_SCHEMES) or (name.endswith("_provider") and _OBJECT.fullmatch(text) is not None)


def resolve(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with what their references stand for.

    ``options``: names as the consumer has them, ``sasl_plain_password``; what is no text stays. Raises
    ``KafkaConfigurationError`` that names the option and the reference, never the secret.
    """
    return {name: resolve_one(name, value) if isinstance(value, str) else value for name, value in options.items()}


def resolve_one(name: str, text: str) -> Any:
    """Return what one option stands for: itself where it is no reference. Raises as ``resolve``."""
    if not is_reference(name, text):
        return text
    scheme, _, rest = text.partition(":")
    try:
        match scheme:
            case "env":
                return _environment(rest)
            case "file":
                return _file(rest)
            case "call":
                return _called(rest)
            case _:
                return _object(text)
    except _NotThereError as error:
        raise KafkaConfigurationError(f"{name}={text!r}: {error}") from None


class _NotThereError(Exception):
    """A reference leads nowhere; the text says why, without anything that was read."""


def _environment(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise _NotThereError(f"the environment of process {os.getpid()} has no such variable") from None


def _file(name: str) -> str:
    path = Path(name)
    if "/" not in name:
        from pyspark import SparkFiles

        path = Path(SparkFiles.get(name))
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _NotThereError(f"the file cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise _NotThereError(f"the file has more than {MAX_BYTES} bytes")
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _NotThereError("the file is no UTF-8 text") from None


def _called(name: str) -> str:
    function = _object(name)
    try:
        found = function()
    except Exception as error:  # whatever it raises may hold the secret: only the class is told
        raise _NotThereError(f"the function raised {type(error).__name__}") from None
    if not isinstance(found, str):
        raise _NotThereError(f"the function returned {type(found).__name__}; expected str")
    return found


def _object(name: str) -> Any:
    if _OBJECT.fullmatch(name) is None:
        raise _NotThereError("expected module:callable")
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        raise _NotThereError("there is nothing to import by this name") from None
    if not callable(found):
        raise _NotThereError("it cannot be called")
    return found
