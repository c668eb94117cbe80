"""How a cluster describes itself: DescribeCluster, DescribeConfigs.

Decides: nothing. Owns: the shape of these messages, each once, in its newest version; a comment names the versions that carry a
field where not all that we speak do. Must never do anything.
Sources: DescribeClusterRequest.json, DescribeConfigsRequest.json and their responses; KIP-133, 700.
"""

from typing import ClassVar

from ...values import frozen
from .base import Api, Request, Response, Struct


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
    value: str | None  # None if it is secret
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    config_type: int = 0  # v3+
    documentation: str | None = None  # v3+


@frozen(kw_only=True)
class DescribeConfigsResult(Struct):
    """The settings of a topic, a broker or a group, or why they are not given."""

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
    cluster_authorized_operations: int = -(2**31)  # bit set, or the smallest int if not asked for


@frozen(kw_only=True)
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """Ask for the brokers of the cluster."""

    api: ClassVar = Api.DESCRIBE_CLUSTER
    response: ClassVar = DescribeClusterResponse
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1  # 1: brokers, 2: controllers; v1+
    include_fenced_brokers: bool = False  # v2+
