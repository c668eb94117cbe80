"""How a cluster describes itself: DescribeCluster, DescribeConfigs (KIP-133, 700)."""

from ...values import frozen
from .base import Request, Response, Struct, int8, int16, int32, since


@frozen(kw_only=True)
class DescribeConfigsSynonym(Struct):
    """Where else a value was looked for."""

    name: str
    value: str | None
    source: int8


@frozen(kw_only=True)
class DescribeConfigsResourceResult(Struct):
    """A setting."""

    name: str
    value: str | None  # None if it is secret
    read_only: bool = False
    config_source: int8 = -1
    is_sensitive: bool = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    config_type: int8 = since(3, default=0)
    documentation: str | None = since(3, default=None)


@frozen(kw_only=True)
class DescribeConfigsResult(Struct):
    """The settings of a topic, a broker or a group, or why they are not given."""

    error_code: int16 = 0
    error_message: str | None = None
    resource_type: int8
    resource_name: str
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


@frozen(kw_only=True)
class DescribeConfigsResponse(Response):
    """What is set."""

    throttle_time_ms: int32 = 0
    results: tuple[DescribeConfigsResult, ...] = ()


@frozen(kw_only=True)
class DescribeConfigsResource(Struct):
    """What to describe. ``resource_type``: 2 for a topic, 4 for a broker, 32 for a group (since 4.0)."""

    resource_type: int8
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None  # None: all of them


@frozen(kw_only=True)
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Ask for settings."""

    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = since(3, default=False)


@frozen(kw_only=True)
class DescribeClusterBroker(Struct):
    """A broker and where it listens."""

    broker_id: int32
    host: str
    port: int32
    rack: str | None = None
    is_fenced: bool = since(2, default=False)


@frozen(kw_only=True)
class DescribeClusterResponse(Response):
    """The brokers of the cluster."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    endpoint_type: int8 = since(1, default=1)  # 1: brokers, 2: controllers
    cluster_id: str = ""
    controller_id: int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: int32 = -(2**31)  # bit set, or the smallest int if not asked for


@frozen(kw_only=True)
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """Ask for the brokers of the cluster."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int8 = since(1, default=1)  # 1: brokers, 2: controllers
    include_fenced_brokers: bool = since(2, default=False)
