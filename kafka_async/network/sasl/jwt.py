"""When a token expires, according to itself.

Nothing in a token is verified (the broker does that): the time read here only decides when to ask for the next one. RFC 7519
section 4.1.4.
"""

import base64
import json
from typing import Final

_LONGEST: Final = 256 * 1024
"""Characters of a token that is looked into. Kafka's brokers take 512 KiB at most (``sasl.server.max.receive.size``)."""
_LATEST: Final = 2**53
"""Seconds since 1970 up to which a time is exact as a float; what is beyond is nonsense."""


def expiry(token: str) -> float | None:
    """Return the time in the ``exp`` claim, in seconds since 1970, or ``None`` if ``token`` is no JWT or has no such claim."""
    parts = token.split(".") if len(token) <= _LONGEST else []
    if len(parts) != 3:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        return None
    exp = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(exp, bool) or not isinstance(exp, int | float) or not 0 < exp < _LATEST:
        return None
    return float(exp)
