"""The options of a consumer.

    options.py            what each option means: its type and its docstring, which editors and the reference show
    consumer_config.py    the defaults, and which options contradict each other
    checks.py, words.py   which values are valid, and which words
    security.py           which options of TLS and SASL fit together
    sources.py            options from the environment and from properties files
    texts.py              what a text means; properties.py: Java's files
    warning.py            warnings, at the line of the program
    spelling.py           which name a mistyped one may have meant
    java.py, jaas.py      Java's own options, translated; stores.py: its keystores
    docstrings.py         the docstrings, read from their source; reference.py: OPTIONS.md, printed from them

A new option: its field in ``consumer_config.py``, its type and docstring in ``options.py`` (in ``CommonOptions`` if share consumers
have it too; else it is refused in ``application/share/options.py``); then
``python -m kafka_async.config.reference > kafka_async/config/OPTIONS.md``.
"""

from typing import TYPE_CHECKING

from ..lazy import on_first_use
from .checks import endpoint_fault, is_sendable, parse_bootstrap_servers, parse_duration
from .consumer_config import ConsumerConfig

if TYPE_CHECKING:
    from .options import ConsumerOptions
else:
    __getattr__ = on_first_use(__name__, {".options": "ConsumerOptions"})

__all__ = [
    "ConsumerConfig",
    "ConsumerOptions",
    "endpoint_fault",
    "is_sendable",
    "parse_bootstrap_servers",
    "parse_duration",
]
