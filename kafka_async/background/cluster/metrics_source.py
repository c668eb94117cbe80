"""What telemetry asks of the part that measures, and what it gets: the application's side has the numbers (KIP-714)."""

from typing import Protocol

from ...errors import KafkaError
from ...values import frozen


@frozen(kw_only=True)
class MetricsSelection:
    """Which metrics to encode, and how."""

    prefixes: tuple[str, ...]
    """Of full metric names; ``*`` or nothing at all stands for every name."""
    delta: bool
    """Totals count from the push that was delivered last, rather than from the start."""
    brief: bool = False
    """Leave out metrics of single brokers and partitions: all together are more than the broker takes."""

    def includes(self, name: str) -> bool:
        return any(prefix == "*" or name.startswith(prefix) for prefix in self.prefixes)


class MetricsSource(Protocol):
    """Source of the metrics. Called on the background loop."""

    def prepare(self) -> KafkaError | None:
        """Get ready, now that a broker wants metrics; return why they cannot be encoded."""

    def encode(self, wanted: MetricsSelection, now: float) -> bytes:
        """Return the metrics as OTLP ``MetricsData``."""

    def delivered(self) -> None:
        """What was encoded last has arrived."""
