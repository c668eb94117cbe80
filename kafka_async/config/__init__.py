"""The options of a consumer.

- ``options``: what each option means: its type and its docstring, which editors and the reference show
- ``consumer_config``: the defaults, and which options contradict each other
- ``checks``, ``words``, ``security``: which values are valid, which words; which options of TLS and SASL fit together
- ``sources``: options from the environment and from properties files; with ``texts`` (what a text means), ``properties`` (Java's
  files), ``java`` and ``jaas`` (what only Java has, in our words)
- ``reference``, ``OPTIONS.md``: what people read, printed from the docstrings

A new option: its field in ``consumer_config``, its type and docstring in ``options``; then
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
