"""What the loop gives to the deciding parts: a view of the network, randomness, the wall clock."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ...errors import KafkaError
from ...network import ConnectionStatistics, Reachability
from ...trace import Listener
from ...values import field, frozen
from ...wire import BrokerVersions

if TYPE_CHECKING:
    from ..cluster.metrics_source import MetricsSource


class Network(Protocol):
    """Questions to the network; ``NetworkClientDelegate`` answers them."""

    @property
    def changes(self) -> int:
        """A number that grows with every change of a connection."""

    def has_usable_node(self, now: float) -> bool:
        """Whether any known broker is connected, connecting, or may be tried now."""

    def problem(self) -> KafkaError | None:
        """Return why no broker can be used."""

    def take_misrouted(self) -> KafkaError | None:
        """Return, once, that an address leads to another broker than the metadata say."""

    def problems(self) -> Sequence[KafkaError]:
        """Return what was found at each server that cannot be used."""

    @property
    def unreachable_since(self) -> float | None:
        """Since when no broker can be reached; ``None``: one can. Asked on every turn."""

    def reachability(self) -> Reachability:
        """Return whether any broker can be reached."""

    def versions(self) -> BrokerVersions | None:
        """Return what the brokers offer; ``None`` before the first answer."""

    def connection_states(self) -> tuple[ConnectionStatistics, ...]:
        """Return one value per known connection."""


@frozen(kw_only=True)
class Environment:
    """Everything that is not decided here."""

    network: Network = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    """Returns floats in ``[0, 1)``."""
    wall_ms: Callable[[float], int] = field(repr=False)
    """The loop's time as milliseconds since the epoch."""
    new_member_id: Callable[[], str] = field(repr=False)
    """Returns a random member id (KIP-1082)."""
    trace: Listener = field(repr=False)
    metrics_source: "MetricsSource | None" = field(default=None, repr=False)
    """The source of telemetry's metrics; ``None``: telemetry is off."""

    def offers_consumer_protocol(self) -> bool | None:
        """Whether the brokers offer the consumer protocol (KIP-848); ``None`` before the first answer."""
        versions = self.network.versions()
        return versions.offers_consumer_protocol if versions is not None else None

    def commits_by_topic_id(self) -> bool:
        """Whether the brokers take offsets under the ids of topics, as far as is known."""
        versions = self.network.versions()
        return versions is None or versions.commits_by_topic_id

    def connections(self) -> tuple[int, int]:
        """Return the number of connections that carry requests, and of requests in flight."""
        states = self.network.connection_states()
        return sum(state.state.may_send for state in states), sum(state.in_flight for state in states)
