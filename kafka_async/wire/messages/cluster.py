"""Brokers and topics: ApiVersions, Metadata.

Decides: nothing. Owns: the shape of these messages, each once, in its newest version; a comment names the versions that carry a
field where not all that we speak do. Must never do anything.
Sources: ApiVersionsRequest.json, MetadataRequest.json and their responses; KIP-511, 516, 1102.
"""

from typing import ClassVar
from uuid import UUID

from ...values import frozen
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
    finalized_features_epoch: int = -1  # -1 if unknown; v3+
    finalized_features: tuple[FinalizedFeatureKey, ...] = ()  # such as group.version, which the consumer protocol needs; v3+


@frozen(kw_only=True)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Ask a broker what it can do."""

    api: ClassVar = Api.API_VERSIONS
    response: ClassVar = ApiVersionsResponse
    client_software_name: str = ""  # letters, digits, "." and "-" only (KIP-511); v3+
    client_software_version: str = ""  # likewise; v3+
    cluster_id: str | None = None  # cluster that is meant; a broker of another one answers REBOOTSTRAP_REQUIRED (KIP-1242); v5+
    node_id: int = -1  # broker that is meant; likewise, and given only with the cluster; v5+


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
    name: str | None = None  # None only if an unknown id was asked for
    topic_id: UUID | None = None  # id of the topic; v10+
    is_internal: bool = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: int = -(2**31)  # bit set, or the smallest int if not asked for; v8+


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
