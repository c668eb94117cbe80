"""Brokers and topics: ApiVersions, Metadata (KIP-511, 516, 1102)."""

from typing import ClassVar
from uuid import UUID

from ...values import frozen
from .base import NotOurs, Request, Response, Struct, int16, int32, int64, since


@frozen(kw_only=True)
class ApiVersion(Struct):
    """The versions of one API that a broker accepts."""

    api_key: int16
    min_version: int16
    max_version: int16


@frozen(kw_only=True)
class SupportedFeatureKey(Struct):
    """A feature that a broker could run and the levels it knows (KIP-584)."""

    name: str
    min_version: int16
    max_version: int16


@frozen(kw_only=True)
class FinalizedFeatureKey(Struct):
    """A feature that the cluster has agreed on and its level."""

    name: str
    max_version_level: int16
    min_version_level: int16


@frozen(kw_only=True)
class ApiVersionsResponse(Response):
    """What a broker can do. With error 35 ``api_keys`` may be empty: see ``versions.next_api_versions``."""

    error_code: int16 = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: int32 = since(1, default=0)
    supported_features: tuple[SupportedFeatureKey, ...] = since(3, tag=0, default=())
    finalized_features_epoch: int64 = since(3, tag=1, default=-1)  # -1 if unknown
    # such as group.version, which the consumer protocol needs
    finalized_features: tuple[FinalizedFeatureKey, ...] = since(3, tag=2, default=())
    zk_migration_ready: ClassVar = NotOurs(bool, default=False, first=3, tag=3)  # for the controllers of former versions


@frozen(kw_only=True)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Ask a broker what it can do."""

    client_software_name: str = since(3, default="")  # letters, digits, "." and "-" only (KIP-511)
    client_software_version: str = since(3, default="")  # likewise
    # cluster that is meant; a broker of another one answers REBOOTSTRAP_REQUIRED (KIP-1242)
    cluster_id: str | None = since(5, default=None)
    node_id: int32 = since(5, default=-1)  # broker that is meant; likewise, and given only with the cluster


@frozen(kw_only=True)
class MetadataRequestTopic(Struct):
    """A topic wanted, by name, or from v12 by id with no name."""

    topic_id: UUID | None = since(10, default=None)  # id of the topic
    name: str | None = since(0, null=10, default=None)


@frozen(kw_only=True)
class MetadataResponseBroker(Struct):
    """A broker and where it listens."""

    node_id: int32
    host: str
    port: int32
    rack: str | None = None


@frozen(kw_only=True)
class MetadataResponsePartition(Struct):
    """Where a partition lives."""

    error_code: int16 = 0
    partition_index: int32
    leader_id: int32 = -1  # broker that leads it, or -1
    leader_epoch: int32 = since(7, default=-1)  # how often the leadership has changed
    replica_nodes: tuple[int32, ...] = ()  # brokers that hold a copy
    isr_nodes: tuple[int32, ...] = ()  # those of them that are in sync
    offline_replicas: tuple[int32, ...] = since(5, default=())  # those of them that are down


@frozen(kw_only=True)
class MetadataResponseTopic(Struct):
    """A topic and its partitions."""

    error_code: int16 = 0
    name: str | None = since(0, null=12, default=None)  # None only if an unknown id was asked for
    topic_id: UUID | None = since(10, default=None)  # id of the topic
    is_internal: bool = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: int32 = since(8, default=-(2**31))  # bit set, or the smallest int if not asked for


@frozen(kw_only=True)
class MetadataResponse(Response):
    """The cluster as a broker sees it."""

    throttle_time_ms: int32 = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: str | None = None
    controller_id: int32 = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    # DescribeCluster has them (KIP-700)
    cluster_authorized_operations: ClassVar = NotOurs(int32, default=-(2**31), first=8, until=10)
    error_code: int16 = since(13, default=0)  # REBOOTSTRAP_REQUIRED (KIP-1102)


@frozen(kw_only=True)
class MetadataRequest(Request[MetadataResponse]):
    """Ask where partitions live."""

    topics: tuple[MetadataRequestTopic, ...] | None = None  # None: all topics; (): none, only the brokers
    allow_auto_topic_creation: bool = True
    # DescribeCluster has them (KIP-700)
    include_cluster_authorized_operations: ClassVar = NotOurs(bool, default=False, first=8, until=10)
    include_topic_authorized_operations: bool = since(8, default=False)
