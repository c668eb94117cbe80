"""Client telemetry (KIP-714): GetTelemetrySubscriptions, PushTelemetry."""

from uuid import UUID

from ...values import frozen
from .base import Request, Response, int8, int16, int32


@frozen(kw_only=True)
class GetTelemetrySubscriptionsResponse(Response):
    """Which metrics the broker wants, and how often (KIP-714)."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    client_instance_id: UUID | None = None  # this client's id, given by the broker
    subscription_id: int32 = 0
    accepted_compression_types: tuple[int8, ...] = ()
    push_interval_ms: int32 = 0
    telemetry_max_bytes: int32 = 0
    delta_temporality: bool = False  # counters since the last push rather than since the start
    requested_metrics: tuple[str, ...] = ()  # prefixes; ("",): all, (): none


@frozen(kw_only=True)
class GetTelemetrySubscriptionsRequest(Request[GetTelemetrySubscriptionsResponse]):
    """Ask which metrics the broker wants."""

    client_instance_id: UUID | None = None  # None at first


@frozen(kw_only=True)
class PushTelemetryResponse(Response):
    """Whether the metrics were taken."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0


@frozen(kw_only=True)
class PushTelemetryRequest(Request[PushTelemetryResponse]):
    """Metrics in OTLP."""

    client_instance_id: UUID | None
    subscription_id: int32
    terminating: bool = False  # the client is closing
    compression_type: int8 = 0
    metrics: bytes = b""
