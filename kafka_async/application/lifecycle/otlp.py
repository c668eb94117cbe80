"""Metrics as OpenTelemetry's protocol carries them: what telemetry pushes to the cluster (KIP-714).

The messages are those of ``opentelemetry-proto`` (extra ``otel``), loaded once a cluster wants metrics: few do, and they
take a tenth of the time in which a consumer imports what it needs.
Sources: KIP-714, opentelemetry-proto ``metrics.proto``.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from ...errors import IllegalStateError
from ...values import define, field
from .metrics import Point, points

if TYPE_CHECKING:
    from ...background.cluster.metrics_source import MetricsSelection
    from ...config import ConsumerConfig

_Key = tuple[str, tuple[tuple[str, str], ...]]
_MODULE: Final = "opentelemetry.proto.metrics.v1.metrics_pb2"


@cache
def missing() -> Exception | None:
    """Return why the module with OTLP's messages is not there, without importing it; ``None`` if it is."""
    try:
        return None if find_spec(_MODULE) is not None else ModuleNotFoundError(f"No module named {_MODULE!r}")
    except Exception as error:  # one of the packages around it is not there, or fails
        return error


@cache
def messages() -> Any:
    """Return the module with OTLP's messages, or the exception that explains why it cannot be imported."""
    try:
        from opentelemetry.proto.metrics.v1 import metrics_pb2
    except Exception as error:
        # Not only ImportError: protobuf refuses generated code of another age in ways of its own, and a consumer works without.
        return error
    return metrics_pb2


@define(eq=False, kw_only=True)
class OtlpSource:
    """Encodes metrics: a ``MetricsSource``."""

    measure: Callable[[float], Mapping[str, Mapping[str, float]]] = field(repr=False)
    """Returns metrics by group and name as of now, in seconds of the loop's clock."""
    resource: Callable[[], Mapping[str, str | None]] = field(repr=False)
    """Returns the attributes of this client; empty ones are left out."""
    wall_ns: Callable[[], int] = field(default=time.time_ns, repr=False)
    _began: int = field(init=False)
    """When the first sum began to count, in nanoseconds since the epoch."""
    _delivered: Mapping[_Key, float] = field(factory=dict, init=False)
    _delivered_at: int = field(init=False)
    _kept: Mapping[_Key, float] = field(factory=dict, init=False)
    _encoded: Mapping[_Key, float] = field(factory=dict, init=False)
    _encoded_at: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._began = self._delivered_at = self._encoded_at = self.wall_ns()

    def prepare(self) -> IllegalStateError | None:
        """Load the messages; return why they cannot be."""
        found = messages()
        if not isinstance(found, Exception):
            return None
        return IllegalStateError(f"opentelemetry-proto (extra 'otel') cannot be imported: {found!r}")

    def encode(self, wanted: "MetricsSelection", now: float) -> bytes:
        """Return the metrics that are wanted as the bytes of a ``MetricsData``; empty if there are none."""
        measured = list(points(self.measure(now)))
        chosen = [point for point in measured if wanted.includes(point.name) and not (wanted.brief and point.detailed)]
        # A total that is left out this time keeps its place: the next delta of it covers the whole gap.
        there = {(point.name, point.labels) for point in measured}
        self._kept = {key: value for key, value in self._delivered.items() if key in there}
        self._encoded = {(point.name, point.labels): point.value for point in chosen if point.total}
        self._encoded_at = self.wall_ns()
        if not chosen:
            return b""
        data = messages().MetricsData()
        resource = data.resource_metrics.add()
        _label(resource.resource.attributes, ((name, value) for name, value in self.resource().items() if value))
        scope = resource.scope_metrics.add()
        for point in chosen:
            self._add(scope.metrics.add(), point, delta=wanted.delta)
        encoded: bytes = data.SerializeToString()
        return encoded

    def delivered(self) -> None:
        """Have the next deltas count from what was encoded last."""
        self._delivered = {**self._kept, **self._encoded}
        self._delivered_at = self._encoded_at

    def _add(self, metric: Any, point: Point, *, delta: bool) -> None:
        metric.name = point.name
        value, since = point.value, self._began
        if point.total:
            proto = messages()
            temporality = proto.AGGREGATION_TEMPORALITY_DELTA if delta else proto.AGGREGATION_TEMPORALITY_CUMULATIVE
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = temporality
            data = metric.sum.data_points.add()
            if delta:
                value, since = self._since_delivered(point), self._delivered_at
            data.start_time_unix_nano = since
        else:
            data = metric.gauge.data_points.add()
        data.time_unix_nano = self._encoded_at
        if isinstance(value, int):
            data.as_int = value
        else:
            data.as_double = value
        _label(data.attributes, point.labels)

    def _since_delivered(self, point: Point) -> float:
        before = self._delivered.get((point.name, point.labels), 0)
        # A partition that left and came back, or a broker that is counted again, starts from nothing again.
        return point.value - before if point.value >= before else point.value


def _label(attributes: Any, labels: Iterable[tuple[str, str]]) -> None:
    for name, value in labels:
        attribute = attributes.add()
        attribute.key = name
        attribute.value.string_value = value


def source_of(
    config: "ConsumerConfig", measure: Callable[[float], Mapping[str, Mapping[str, float]]], member_id: Callable[[], str]
) -> OtlpSource | None:
    """Return the source of metrics for the cluster's operators; ``None`` if telemetry is off or not possible."""
    if not config.enable_metrics_push or missing() is not None:
        return None

    def describe_us() -> dict[str, str | None]:
        """Return the labels by which operators distinguish consumers (KIP-714); the brokers know the rest."""
        member = {"group_instance_id": config.group_instance_id, "group_member_id": member_id()}
        return {"client_rack": config.client_rack, "group_id": config.group_id, **member}

    return OtlpSource(measure=measure, resource=describe_us)
