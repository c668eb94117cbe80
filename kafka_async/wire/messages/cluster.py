"""Who is there: ApiVersions, Metadata, FindCoordinator, DescribeCluster; DescribeConfigs; logging in with SASL; telemetry.

Decides: nothing. Owns: the shape of these messages, each once, in its newest version; a comment names the versions that carry a
field where not all that we speak do. Must never do anything. Sources: ApiVersionsRequest.json, MetadataRequest.json,
FindCoordinatorRequest.json, DescribeClusterRequest.json, DescribeConfigsRequest.json, SaslHandshakeRequest.json,
SaslAuthenticateRequest.json, GetTelemetrySubscriptionsRequest.json, PushTelemetryRequest.json and their responses; KIP-133, 152,
368, 511, 516, 699, 714, 1102.
"""

from typing import ClassVar
from uuid import UUID

from attrs import field, frozen

from .base import Api, Request, Response, Struct


@frozen(kw_only=True)
class ApiVersion(Struct):
    """The versions of one API that a broker accepts."""

    api_key: int
    min_version: int
    max_version: int


@frozen(kw_only=True)
class SupportedFeatureKey(Struct):
    """A feature that a broker could run and the levels it knows (KIP-584)."""

    name: str
    min_version: int
    max_version: int


@frozen(kw_only=True)
class FinalizedFeatureKey(Struct):
    """A feature that the cluster has agreed on and its level."""

    name: str
    max_version_level: int
    min_version_level: int


@frozen(kw_only=True)
class ApiVersionsResponse(Response):
    """What a broker can do. With error 35 ``api_keys`` may be empty: see ``versions.next_api_versions``."""

    error_code: int = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: int = 0  # v1+
    supported_features: tuple[SupportedFeatureKey, ...] = ()  # v3+
    finalized_features_epoch: int = -1  # -1 where unknown; v3+
    finalized_features: tuple[FinalizedFeatureKey, ...] = ()  # such as group.version, which the consumer protocol needs; v3+


@frozen(kw_only=True)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Ask a broker what it can do."""

    api: ClassVar = Api.API_VERSIONS
    response: ClassVar = ApiVersionsResponse
    client_software_name: str = ""  # letters, digits, "." and "-" only (KIP-511); v3+
    client_software_version: str = ""  # likewise; v3+


@frozen(kw_only=True)
class MetadataRequestTopic(Struct):
    """A topic wanted, by name, or from v12 by id with no name."""

    topic_id: UUID | None = None  # id of the topic; v10+
    name: str | None = None


@frozen(kw_only=True)
class MetadataResponseBroker(Struct):
    """A broker and where it listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@frozen(kw_only=True)
class MetadataResponsePartition(Struct):
    """Where a partition lives."""

    error_code: int = 0
    partition_index: int
    leader_id: int = -1  # broker that leads it, or -1
    leader_epoch: int = -1  # how often the leadership has changed; v7+
    replica_nodes: tuple[int, ...] = ()  # brokers that hold a copy
    isr_nodes: tuple[int, ...] = ()  # those of them that are in sync
    offline_replicas: tuple[int, ...] = ()  # those of them that are down; v5+


@frozen(kw_only=True)
class MetadataResponseTopic(Struct):
    """A topic and its partitions."""

    error_code: int = 0
    name: str | None = None  # None only where an unknown id was asked for
    topic_id: UUID | None = None  # id of the topic; v10+
    is_internal: bool = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: int = -(2**31)  # bit set, or the smallest int where not asked for; v8+


@frozen(kw_only=True)
class MetadataResponse(Response):
    """The cluster as a broker sees it."""

    throttle_time_ms: int = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: str | None = None
    controller_id: int = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    error_code: int = 0  # REBOOTSTRAP_REQUIRED (KIP-1102); v13+


@frozen(kw_only=True)
class MetadataRequest(Request[MetadataResponse]):
    """Ask where partitions live."""

    api: ClassVar = Api.METADATA
    response: ClassVar = MetadataResponse
    topics: tuple[MetadataRequestTopic, ...] | None = None  # None: all topics; (): none, only the brokers
    allow_auto_topic_creation: bool = True
    include_topic_authorized_operations: bool = False  # v8+


@frozen(kw_only=True)
class Coordinator(Struct):
    """The broker that coordinates one group."""

    key: str  # the group; before v4 the answer does not name it: the request's, where ``decode_response`` was given the request
    node_id: int = -1
    host: str = ""
    port: int = -1
    error_code: int = 0
    error_message: str | None = None


@frozen(kw_only=True)
class FindCoordinatorResponse(Response):
    """One coordinator per key. Before v4 there is exactly one."""

    throttle_time_ms: int = 0
    coordinators: tuple[Coordinator, ...] = ()


@frozen(kw_only=True)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Ask for the coordinators of groups (KIP-699). Before v4 only one key can be asked for."""

    api: ClassVar = Api.FIND_COORDINATOR
    response: ClassVar = FindCoordinatorResponse
    key_type: int = 0  # 0: group, 1: transaction, 2: share group
    coordinator_keys: tuple[str, ...] = ()


@frozen(kw_only=True)
class DescribeConfigsSynonym(Struct):
    """Where else a value was looked for."""

    name: str
    value: str | None
    source: int


@frozen(kw_only=True)
class DescribeConfigsResourceResult(Struct):
    """A setting."""

    name: str
    value: str | None  # None where it is secret
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    config_type: int = 0  # v3+
    documentation: str | None = None  # v3+


@frozen(kw_only=True)
class DescribeConfigsResult(Struct):
    """The settings of a topic, a broker or a group, or why they are not told."""

    error_code: int = 0
    error_message: str | None = None
    resource_type: int
    resource_name: str
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


@frozen(kw_only=True)
class DescribeConfigsResponse(Response):
    """What is set."""

    throttle_time_ms: int = 0
    results: tuple[DescribeConfigsResult, ...] = ()


@frozen(kw_only=True)
class DescribeConfigsResource(Struct):
    """What to describe. ``resource_type``: 2 for a topic, 4 for a broker, 32 for a group (since 4.0)."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None  # None: all of them


@frozen(kw_only=True)
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Ask for settings."""

    api: ClassVar = Api.DESCRIBE_CONFIGS
    response: ClassVar = DescribeConfigsResponse
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False  # v3+


@frozen(kw_only=True)
class DescribeClusterBroker(Struct):
    """A broker and where it listens."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False  # v2+


@frozen(kw_only=True)
class DescribeClusterResponse(Response):
    """The brokers of the cluster."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1  # 1: brokers, 2: controllers; v1+
    cluster_id: str = ""
    controller_id: int = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: int = -(2**31)  # bit set, or the smallest int where not asked for


@frozen(kw_only=True)
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """Ask for the brokers of the cluster."""

    api: ClassVar = Api.DESCRIBE_CLUSTER
    response: ClassVar = DescribeClusterResponse
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1  # 1: brokers, 2: controllers; v1+
    include_fenced_brokers: bool = False  # v2+


@frozen(kw_only=True)
class SaslHandshakeResponse(Response):
    """Whether the mechanism is offered, and which ones are."""

    error_code: int = 0
    mechanisms: tuple[str, ...] = ()


@frozen(kw_only=True)
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Choose a SASL mechanism; SaslAuthenticate follows (KIP-152)."""

    api: ClassVar = Api.SASL_HANDSHAKE
    response: ClassVar = SaslHandshakeResponse
    mechanism: str


@frozen(kw_only=True)
class SaslAuthenticateResponse(Response):
    """The broker's part of the exchange."""

    error_code: int = 0
    error_message: str | None = None
    auth_bytes: bytes = field(default=b"", repr=False)
    session_lifetime_ms: int = 0  # time until the session must be authenticated again, or 0 (KIP-368); v1+


@frozen(kw_only=True)
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """The client's part of the exchange; never shown in a ``repr``."""

    api: ClassVar = Api.SASL_AUTHENTICATE
    response: ClassVar = SaslAuthenticateResponse
    auth_bytes: bytes = field(repr=False)


@frozen(kw_only=True)
class GetTelemetrySubscriptionsResponse(Response):
    """Which metrics the broker wants, and how often (KIP-714)."""

    throttle_time_ms: int = 0
    error_code: int = 0
    client_instance_id: UUID | None = None  # this client's id, given by the broker
    subscription_id: int = 0
    accepted_compression_types: tuple[int, ...] = ()
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False  # counters since the last push rather than since the start
    requested_metrics: tuple[str, ...] = ()  # prefixes; ("",): all, (): none


@frozen(kw_only=True)
class GetTelemetrySubscriptionsRequest(Request[GetTelemetrySubscriptionsResponse]):
    """Ask which metrics the broker wants."""

    api: ClassVar = Api.GET_TELEMETRY_SUBSCRIPTIONS
    response: ClassVar = GetTelemetrySubscriptionsResponse
    client_instance_id: UUID | None = None  # None at first


@frozen(kw_only=True)
class PushTelemetryResponse(Response):
    """Whether the metrics were taken."""

    throttle_time_ms: int = 0
    error_code: int = 0


@frozen(kw_only=True)
class PushTelemetryRequest(Request[PushTelemetryResponse]):
    """Metrics in OTLP."""

    api: ClassVar = Api.PUSH_TELEMETRY
    response: ClassVar = PushTelemetryResponse
    client_instance_id: UUID | None
    subscription_id: int
    terminating: bool = False  # the client is closing
    compression_type: int = 0
    metrics: bytes = b""
