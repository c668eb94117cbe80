"""Values to columns: what ``value.format`` means.

Decides: which decoder turns the bytes of values into columns. Owns nothing. Must never do anything where values stay bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...errors import KafkaConfigurationError


class ValueDecoder(Protocol):
    """Turns the values of one partition's stretch of records into columns."""

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """Name and DDL type of the columns that stand in place of ``value``."""
        ...

    def decode(self, values: Any, *, topic: str, partition: int, offsets: Any) -> Sequence[Any]:
        """Return one array per field for a binary array of values; ``offsets`` is an int64 array of the same length."""
        ...


def decoder_for(options: Mapping[str, str]) -> ValueDecoder | None:
    """Return the decoder that the ``value.*`` options ask for; ``None``: values stay bytes.

    Raises ``KafkaConfigurationError`` for an unknown option or format.
    """
    unknown = sorted(name for name in options if name.startswith("value.") and name != "value.format")
    if unknown:
        raise KafkaConfigurationError(f"unknown option {unknown[0]!r}; expected value.format")
    if (kind := options.get("value.format", "binary").lower()) != "binary":
        raise KafkaConfigurationError(f"value.format={kind!r}: expected 'binary'")
    return None
