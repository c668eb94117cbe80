"""How long a SASL session lasts, and when its renewal is tried.

KIP-368; Java ``SaslClientAuthenticator`` (``ReauthInfo``) begins at the same share, but drops the connection if the first try
fails.
"""

from math import inf
from typing import Final

from ..values import define
from .backoff import ExponentialBackoff

_RENEW_FROM: Final = 0.85  # Java: SaslClientAuthenticator re-authenticates after 85 to 95 % of the session, at random
_RENEW_SPREAD: Final = 0.10
_USED_UNTIL: Final = 0.98
"""Share of the session in which requests are sent: one that reaches the broker after the end costs the connection."""
_SHORTEST: Final = 1.05  # seconds; a second renewal within one is an error to a broker (Java: KafkaChannel)


@define(eq=False)
class Session:
    """One session on one connection, in absolute seconds; without times, one that does not end."""

    renew_at: float = inf
    """When the next try to renew it is due; never after ``ends_at``."""
    ends_at: float = inf
    """From when on nothing but a renewal may be sent."""
    _failures: int = 0

    @classmethod
    def granted(cls, lifetime: float | None, now: float, random: float) -> "Session":
        """Return the session that a broker granted at ``now`` for ``lifetime`` seconds; ``random`` is drawn from ``[0, 1)``."""
        if not lifetime:
            return cls()
        renew_after = max((_RENEW_FROM + _RENEW_SPREAD * random) * lifetime, _SHORTEST)
        return cls(now + renew_after, now + max(_USED_UNTIL * lifetime, renew_after))

    def postpone(self, now: float, backoff: ExponentialBackoff, random: float) -> None:
        """A try to renew it failed: set the next one."""
        self.renew_at = min(now + backoff.delay(self._failures, random), self.ends_at)
        self._failures += 1
