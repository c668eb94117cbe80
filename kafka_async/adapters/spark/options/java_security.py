"""Options of security that only Java's client has, as the options ``kafka.*`` of a job.

Decides: nothing; ``config/java.py`` does. Owns nothing. Must never resolve a reference to a secret (``secrets``).
"""

from collections.abc import Mapping
from typing import Any, Final

from ....config.java import LOGIN_SECRETS, MEANINGLESS, NAMES, Dialect, in_login
from .secrets import check, is_reference

__all__ = ["LOGIN_SECRETS", "MEANINGLESS", "NAMES", "REFUSED", "as_connected", "dotted", "in_login", "in_our_words"]

_SPARK: Final = Dialect(
    prefix="kafka.",
    tokens="kafka.sasl.mechanism=OAUTHBEARER and kafka.sasl.oauth.token.provider=module:callable, which returns a token",
    secrets="use env:NAME, file:/path or file:NAME as the value of an option that holds a secret",
    is_reference=is_reference,
)
REFUSED: Final = _SPARK.refused
"""Options that have no counterpart by the same name, and what to use."""
dotted = _SPARK.dotted


def as_connected(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in our words alone, for whoever connects: a login that was a reference, and stores, are read now."""
    return _SPARK.with_stores(_SPARK.with_login(kafka))


def in_our_words(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the options, those of Java in our words; ``sasl.jaas.config`` stays if it is a reference to the text.

    Raises ``KafkaConfigurationError`` that names the option and what to use in its place, never a value that may be secret.
    """
    ours = _SPARK.in_our_words(kafka)
    for option, text in ours.items():
        check(option, text, dotted(option))
    return ours
