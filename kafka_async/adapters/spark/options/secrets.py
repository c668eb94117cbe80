"""Secrets by reference: an option that holds a secret may be a reference to it, which the process that connects resolves.

Options travel in plans, logs, Spark's web UI and task binaries. So they carry the reference, and what opens a connection calls
``resolve``.

| reference | the secret is |
|---|---|
| ``env:NAME`` | an environment variable of that process (``spark.executorEnv.NAME`` sets it on executors) |
| ``file:/etc/kafka/secrets/NAME`` | the text of a file, without the newline at its end |
| ``file:NAME`` | the text of a file that ``SparkContext.addFile`` (or ``--files``) has distributed to the process |
| ``module:callable`` | for ``*_provider`` options: the object itself, which is then asked for tokens |

Anyone who can run SQL in a session chooses its options, and the brokers that a secret is sent to. So only the options in
``SECRETS`` are resolved: in any other, an error or the client id could show any file of the executors to such a user. A secret
could still be sent to a broker of that user's. So the operator of the executors decides which references are allowed, with the
environment variable ``KAFKA_ASYNC_REFERENCES``: prefixes of references, separated by spaces or commas, as in ``env:KAFKA_
file:/run/secrets/kafka/ mycompany.tokens:``. It replaces ``ALLOWED``. If it is not set, no variable and no provider is allowed:
an environment holds the keys of other services too, and any callable could be named as a provider.
"""

import importlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ....errors import KafkaConfigurationError
from ...values.names import OF_REGISTRY
from ...values.secrets import References

REGISTRY_SECRETS: Final = tuple(f"{part}.schema.registry.{name}" for part in ("value", "key") for name in OF_REGISTRY)

SECRETS: Final = frozenset(
    (
        "sasl_jaas_config",
        "sasl_oauthbearer_assertion_private_key_passphrase",
        "sasl_oauthbearer_client_credentials_client_secret",
        "sasl_plain_password",
        "ssl_keystore_key",
        "ssl_keystore_password",
        "ssl_password",
        "ssl_truststore_password",
        *REGISTRY_SECRETS,
    )
)
"""The options whose values are secrets, by the names that the consumer has for them; no other takes a reference to a text."""

VARIABLE: Final = "KAFKA_ASYNC_REFERENCES"
ALLOWED: Final = ("file:/etc/kafka/secrets/",)
"""The references allowed if ``KAFKA_ASYNC_REFERENCES`` is not set, besides files that ``--files`` distributed."""

MAX_BYTES: Final = 1 << 20
"""Longer files are not secrets; nor are files that never end."""

_REFERENCE: Final = re.compile(r"(?:env:[A-Za-z_]|file:[^\d]|call:)")  # env:9092 is a host called env
_OBJECT: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_reference(name: str, text: str) -> bool:
    """Say whether ``resolve_one`` would look elsewhere."""
    if name in SECRETS:
        return _REFERENCE.match(text) is not None
    return name.endswith("_provider") and _OBJECT.fullmatch(text) is not None


def check(name: str, text: str, shown: str) -> None:
    """Raise ``KafkaConfigurationError`` for a value that looks like a reference and is not one.

    ``name``: as the consumer has it, ``shown``: as people give it. Options for paths take ``file:`` as the beginning of a path.
    """
    if _REFERENCE.match(text) is None or name.endswith(("_location", "file", "_keytab")):
        return
    if name not in SECRETS:
        raise KafkaConfigurationError(f"{shown}={text!r}: only options that hold secrets take references")
    if text.startswith("call:"):
        raise KafkaConfigurationError(f"{shown}: call: is not supported; expected env:NAME, file:/path, or the secret itself")


def resolve(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with their references resolved.

    ``options``: names as the consumer has them, ``sasl_plain_password``; other values stay. Raises
    ``KafkaConfigurationError`` that names the option and the reference, never the secret.
    """
    return {name: resolve_one(name, value) if isinstance(value, str) else value for name, value in options.items()}


def resolve_one(name: str, text: str) -> Any:
    """Return the value of one option, resolved if it is a reference. Raises as ``resolve``."""
    if not is_reference(name, text):
        return text
    scheme, _, rest = text.partition(":")
    try:
        if name not in SECRETS:
            return _object(text)
        return _file(rest) if scheme == "file" else _environment(rest)
    except _NotThereError as error:
        shown = name if "." in name else f"kafka.{name.replace('_', '.')}"
        raise KafkaConfigurationError(f"{shown}={text!r}: {error}") from None


class _NotThereError(Exception):
    """A reference leads nowhere; the text says why, without anything that was read."""


def _limits() -> tuple[str, ...] | None:
    """Return the prefixes that this process's environment allows; ``None`` if it has none."""
    text = os.environ.get(VARIABLE)
    return None if text is None else tuple(text.replace(",", " ").split())


def _allow(reference: str, prefixes: Iterable[str]) -> None:
    if not reference.startswith(tuple(prefixes)):
        raise _NotThereError(f"it may not be read; {VARIABLE} in the environment of driver and executors says what may")


def _environment(name: str) -> str:
    _allow(f"env:{name}", _limits() or ())
    try:
        return os.environ[name]
    except KeyError:
        raise _NotThereError(f"the environment of process {os.getpid()} has no such variable") from None


def _file(name: str) -> str:
    limits = _limits()
    if "/" not in name:
        if limits is not None:
            _allow(f"file:{name}", limits)
        from pyspark import SparkFiles

        path = Path(SparkFiles.get(name))
    else:
        # What a link or ".." leads to counts, on both sides: secrets of Kubernetes are links within their folder.
        path = Path(os.path.realpath(name))
        _allow(f"file:{path}", [_real(prefix) for prefix in (ALLOWED if limits is None else limits)])
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
        raise _NotThereError("the file is not UTF-8 text") from None


def _real(prefix: str) -> str:
    """Return a prefix of files without links; the end of it may be the beginning of a name."""
    folder, slash, name = prefix.removeprefix("file:").rpartition("/")
    return f"file:{os.path.realpath(folder or '/').rstrip('/')}/{name}" if prefix.startswith("file:") and slash else prefix


def _object(name: str) -> Any:
    _allow(name, _limits() or ())
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        raise _NotThereError("there is nothing to import with this name") from None
    if not callable(found):
        raise _NotThereError("it cannot be called")
    return found


REFERENCES: Final = References(is_reference, resolve_one)
"""For what connects on behalf of a job."""
