"""The options of the network in the units that it works in."""

from math import inf
from typing import Final

from ..config import ConsumerConfig
from ..values import frozen
from .backoff import ExponentialBackoff

SOFTWARE_NAME: Final = "kafka-async-consumer"
SOFTWARE_VERSION: Final = "0.1.0"
"""What brokers see in their logs and metrics (KIP-511); letters, digits, dots and hyphens only."""

HANDSHAKE_FRAME_LIMIT: Final = 1024 * 1024
"""Largest frame accepted before a broker has proven to be one; the answers of the handshake have a few kilobytes."""


@frozen(kw_only=True)
class NetworkSettings:
    """Times in seconds, sizes in bytes."""

    client_id: str
    frame_limit: int
    request_timeout: float
    reconnect: ExponentialBackoff
    setup: ExponentialBackoff
    login: ExponentialBackoff
    """Between the tries to renew a session."""
    max_idle: float

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> "NetworkSettings":
        """Return the settings that ``config`` asks for."""
        return cls(
            client_id=config.client_id,
            frame_limit=config.receive_message_max_bytes,
            request_timeout=config.request_timeout_ms / 1000,
            reconnect=ExponentialBackoff(config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000),
            setup=ExponentialBackoff(
                config.socket_connection_setup_timeout_ms / 1000, config.socket_connection_setup_timeout_max_ms / 1000
            ),
            login=ExponentialBackoff(config.sasl_login_retry_backoff_ms / 1000, config.sasl_login_retry_backoff_max_ms / 1000),
            max_idle=inf if config.connections_max_idle_ms < 0 else config.connections_max_idle_ms / 1000,
        )
