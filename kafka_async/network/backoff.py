"""How long to wait before the next attempt.

KIP-580 (retries, reconnects), KIP-601 (connection setup timeout), Java ``ExponentialBackoff``.
"""

from typing import Final

from ..values import frozen

JITTER: Final = 0.2  # Java: CommonClientConfigs.RETRY_BACKOFF_JITTER, ClusterConnectionStates.RECONNECT_BACKOFF_JITTER

NO_JITTER: Final = 0.5
"""In place of a random number: the interval itself, for what one consumer repeats by itself."""

_LARGEST_EXPONENT: Final = 32  # 2**32 times the smallest interval is beyond every maximum; keeps the power a small number


@frozen
class ExponentialBackoff:
    """``initial * 2**attempts`` seconds, 20 % more or less, never above ``maximum``."""

    initial: float
    maximum: float

    def delay(self, attempts: int, random: float) -> float:
        """Return seconds to wait after ``attempts`` earlier failures; ``random`` is drawn from ``[0, 1)``."""
        term = self.initial * float(2 ** min(attempts, _LARGEST_EXPONENT))
        return min(term * (1 - JITTER + 2 * JITTER * random), max(self.maximum, self.initial))
