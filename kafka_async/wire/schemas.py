"""Kafka's schemas of the messages that we speak: which fields there are, of which type, in which versions.

Decides nothing. Owns the table, which is generated from Kafka's own (``clients/src/main/resources/common/message``) by way of
``kio``, and in the same form: fields in the order of the bytes, versions from and to. Must never be edited by hand below the mark.

Names are Kafka's in the form of Python; times end in ``_ms``.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

Versions = tuple[int, int]
"""The first and the last version."""


class Field(NamedTuple):
    """A field of a message or of a struct in one."""

    name: str
    type: str
    """Kafka's name of a type, or ``"struct"``; with ``[]`` before it for many."""
    versions: Versions
    nullable: Versions | None = None
    """Versions in which it may be null."""
    tag: int | None = None
    """Its number among the tagged fields (KIP-482); ``None`` for the others."""
    fields: "tuple[Field, ...]" = ()
    """Those of the struct."""


class Message(NamedTuple):
    """A request, a response or a piece of data."""

    versions: Versions
    fields: tuple[Field, ...]
    flexible: int | None = None
    """The first version with compact types and tags (KIP-482)."""


# What follows is generated: python -m tests.wire.kafka_schemas
# fmt: off
SCHEMAS: Final[Mapping[str, Message]] = {
    "AddOffsetsToTxnRequest": Message((0, 4), flexible=3, fields=(
        Field("transactional_id", "string", (0, 4)),
        Field("producer_id", "int64", (0, 4)),
        Field("producer_epoch", "int16", (0, 4)),
        Field("group_id", "string", (0, 4)),
    )),
    "AddOffsetsToTxnResponse": Message((0, 4), flexible=3, fields=(
        Field("throttle_time_ms", "int32", (0, 4)),
        Field("error_code", "int16", (0, 4)),
    )),
    "AddPartitionsToTxnRequest": Message((0, 5), flexible=3, fields=(
        Field("v3_and_below_transactional_id", "string", (0, 3)),
        Field("v3_and_below_producer_id", "int64", (0, 3)),
        Field("v3_and_below_producer_epoch", "int16", (0, 3)),
        Field("v3_and_below_topics", "[]struct", (0, 3), fields=(
            Field("name", "string", (0, 3)),
            Field("partitions", "[]int32", (0, 3)),
        )),
        Field("transactions", "[]struct", (4, 5), fields=(
            Field("transactional_id", "string", (4, 5)),
            Field("producer_id", "int64", (4, 5)),
            Field("producer_epoch", "int16", (4, 5)),
            Field("verify_only", "bool", (4, 5)),
            Field("topics", "[]struct", (4, 5), fields=(
                Field("name", "string", (4, 5)),
                Field("partitions", "[]int32", (4, 5)),
            )),
        )),
    )),
    "AddPartitionsToTxnResponse": Message((0, 5), flexible=3, fields=(
        Field("throttle_time_ms", "int32", (0, 5)),
        Field("results_by_topic_v3_and_below", "[]struct", (0, 3), fields=(
            Field("name", "string", (0, 3)),
            Field("results_by_partition", "[]struct", (0, 3), fields=(
                Field("partition_index", "int32", (0, 3)),
                Field("partition_error_code", "int16", (0, 3)),
            )),
        )),
        Field("error_code", "int16", (4, 5)),
        Field("results_by_transaction", "[]struct", (4, 5), fields=(
            Field("transactional_id", "string", (4, 5)),
            Field("topic_results", "[]struct", (4, 5), fields=(
                Field("name", "string", (4, 5)),
                Field("results_by_partition", "[]struct", (4, 5), fields=(
                    Field("partition_index", "int32", (4, 5)),
                    Field("partition_error_code", "int16", (4, 5)),
                )),
            )),
        )),
    )),
    "AlterShareGroupOffsetsRequest": Message((0, 0), flexible=0, fields=(
        Field("group_id", "string", (0, 0)),
        Field("topics", "[]struct", (0, 0), fields=(
            Field("topic_name", "string", (0, 0)),
            Field("partitions", "[]struct", (0, 0), fields=(
                Field("partition_index", "int32", (0, 0)),
                Field("start_offset", "int64", (0, 0)),
            )),
        )),
    )),
    "AlterShareGroupOffsetsResponse": Message((0, 0), flexible=0, fields=(
        Field("throttle_time_ms", "int32", (0, 0)),
        Field("error_code", "int16", (0, 0)),
        Field("error_message", "string", (0, 0), nullable=(0, 0)),
        Field("responses", "[]struct", (0, 0), fields=(
            Field("topic_name", "string", (0, 0)),
            Field("topic_id", "uuid", (0, 0), nullable=(0, 0)),
            Field("partitions", "[]struct", (0, 0), fields=(
                Field("partition_index", "int32", (0, 0)),
                Field("error_code", "int16", (0, 0)),
                Field("error_message", "string", (0, 0), nullable=(0, 0)),
            )),
        )),
    )),
    "ApiVersionsRequest": Message((0, 4), flexible=3, fields=(
        Field("client_software_name", "string", (3, 4)),
        Field("client_software_version", "string", (3, 4)),
    )),
    "ApiVersionsResponse": Message((0, 4), flexible=3, fields=(
        Field("error_code", "int16", (0, 4)),
        Field("api_keys", "[]struct", (0, 4), fields=(
            Field("api_key", "int16", (0, 4)),
            Field("min_version", "int16", (0, 4)),
            Field("max_version", "int16", (0, 4)),
        )),
        Field("throttle_time_ms", "int32", (1, 4)),
        Field("supported_features", "[]struct", (3, 4), tag=0, fields=(
            Field("name", "string", (3, 4)),
            Field("min_version", "int16", (3, 4)),
            Field("max_version", "int16", (3, 4)),
        )),
        Field("finalized_features_epoch", "int64", (3, 4), tag=1),
        Field("finalized_features", "[]struct", (3, 4), tag=2, fields=(
            Field("name", "string", (3, 4)),
            Field("max_version_level", "int16", (3, 4)),
            Field("min_version_level", "int16", (3, 4)),
        )),
        Field("zk_migration_ready", "bool", (3, 4), tag=3),
    )),
    "ConsumerGroupDescribeRequest": Message((0, 1), flexible=0, fields=(
        Field("group_ids", "[]string", (0, 1)),
        Field("include_authorized_operations", "bool", (0, 1)),
    )),
    "ConsumerGroupDescribeResponse": Message((0, 1), flexible=0, fields=(
        Field("throttle_time_ms", "int32", (0, 1)),
        Field("groups", "[]struct", (0, 1), fields=(
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1)),
            Field("group_id", "string", (0, 1)),
            Field("group_state", "string", (0, 1)),
            Field("group_epoch", "int32", (0, 1)),
            Field("assignment_epoch", "int32", (0, 1)),
            Field("assignor_name", "string", (0, 1)),
            Field("members", "[]struct", (0, 1), fields=(
                Field("member_id", "string", (0, 1)),
                Field("instance_id", "string", (0, 1), nullable=(0, 1)),
                Field("rack_id", "string", (0, 1), nullable=(0, 1)),
                Field("member_epoch", "int32", (0, 1)),
                Field("client_id", "string", (0, 1)),
                Field("client_host", "string", (0, 1)),
                Field("subscribed_topic_names", "[]string", (0, 1)),
                Field("subscribed_topic_regex", "string", (0, 1), nullable=(0, 1)),
                Field("assignment", "struct", (0, 1), fields=(
                    Field("topic_partitions", "[]struct", (0, 1), fields=(
                        Field("topic_id", "uuid", (0, 1), nullable=(0, 1)),
                        Field("topic_name", "string", (0, 1)),
                        Field("partitions", "[]int32", (0, 1)),
                    )),
                )),
                Field("target_assignment", "struct", (0, 1), fields=(
                    Field("topic_partitions", "[]struct", (0, 1), fields=(
                        Field("topic_id", "uuid", (0, 1), nullable=(0, 1)),
                        Field("topic_name", "string", (0, 1)),
                        Field("partitions", "[]int32", (0, 1)),
                    )),
                )),
                Field("member_type", "int8", (1, 1)),
            )),
            Field("authorized_operations", "int32", (0, 1)),
        )),
    )),
    "ConsumerGroupHeartbeatRequest": Message((0, 1), flexible=0, fields=(
        Field("group_id", "string", (0, 1)),
        Field("member_id", "string", (0, 1)),
        Field("member_epoch", "int32", (0, 1)),
        Field("instance_id", "string", (0, 1), nullable=(0, 1)),
        Field("rack_id", "string", (0, 1), nullable=(0, 1)),
        Field("rebalance_timeout_ms", "int32", (0, 1)),
        Field("subscribed_topic_names", "[]string", (0, 1), nullable=(0, 1)),
        Field("subscribed_topic_regex", "string", (1, 1), nullable=(1, 1)),
        Field("server_assignor", "string", (0, 1), nullable=(0, 1)),
        Field("topic_partitions", "[]struct", (0, 1), nullable=(0, 1), fields=(
            Field("topic_id", "uuid", (0, 1), nullable=(0, 1)),
            Field("partitions", "[]int32", (0, 1)),
        )),
    )),
    "ConsumerGroupHeartbeatResponse": Message((0, 1), flexible=0, fields=(
        Field("throttle_time_ms", "int32", (0, 1)),
        Field("error_code", "int16", (0, 1)),
        Field("error_message", "string", (0, 1), nullable=(0, 1)),
        Field("member_id", "string", (0, 1), nullable=(0, 1)),
        Field("member_epoch", "int32", (0, 1)),
        Field("heartbeat_interval_ms", "int32", (0, 1)),
        Field("assignment", "struct", (0, 1), nullable=(0, 1), fields=(
            Field("topic_partitions", "[]struct", (0, 1), fields=(
                Field("topic_id", "uuid", (0, 1), nullable=(0, 1)),
                Field("partitions", "[]int32", (0, 1)),
            )),
        )),
    )),
    "ConsumerProtocolAssignment": Message((0, 3), fields=(
        Field("assigned_partitions", "[]struct", (0, 3), fields=(
            Field("topic", "string", (0, 3)),
            Field("partitions", "[]int32", (0, 3)),
        )),
        Field("user_data", "bytes", (0, 3), nullable=(0, 3)),
    )),
    "ConsumerProtocolSubscription": Message((0, 3), fields=(
        Field("topics", "[]string", (0, 3)),
        Field("user_data", "bytes", (0, 3), nullable=(0, 3)),
        Field("owned_partitions", "[]struct", (1, 3), fields=(
            Field("topic", "string", (1, 3)),
            Field("partitions", "[]int32", (1, 3)),
        )),
        Field("generation_id", "int32", (2, 3)),
        Field("rack_id", "string", (3, 3), nullable=(3, 3)),
    )),
    "CreateTopicsRequest": Message((2, 7), flexible=5, fields=(
        Field("topics", "[]struct", (2, 7), fields=(
            Field("name", "string", (2, 7)),
            Field("num_partitions", "int32", (2, 7)),
            Field("replication_factor", "int16", (2, 7)),
            Field("assignments", "[]struct", (2, 7), fields=(
                Field("partition_index", "int32", (2, 7)),
                Field("broker_ids", "[]int32", (2, 7)),
            )),
            Field("configs", "[]struct", (2, 7), fields=(
                Field("name", "string", (2, 7)),
                Field("value", "string", (2, 7), nullable=(2, 7)),
            )),
        )),
        Field("timeout_ms", "int32", (2, 7)),
        Field("validate_only", "bool", (2, 7)),
    )),
    "CreateTopicsResponse": Message((2, 7), flexible=5, fields=(
        Field("throttle_time_ms", "int32", (2, 7)),
        Field("topics", "[]struct", (2, 7), fields=(
            Field("name", "string", (2, 7)),
            Field("topic_id", "uuid", (7, 7), nullable=(7, 7)),
            Field("error_code", "int16", (2, 7)),
            Field("error_message", "string", (2, 7), nullable=(2, 7)),
            Field("topic_config_error_code", "int16", (5, 7), tag=0),
            Field("num_partitions", "int32", (5, 7)),
            Field("replication_factor", "int16", (5, 7)),
            Field("configs", "[]struct", (5, 7), nullable=(5, 7), fields=(
                Field("name", "string", (5, 7)),
                Field("value", "string", (5, 7), nullable=(5, 7)),
                Field("read_only", "bool", (5, 7)),
                Field("config_source", "int8", (5, 7)),
                Field("is_sensitive", "bool", (5, 7)),
            )),
        )),
    )),
    "DeleteRecordsRequest": Message((0, 2), flexible=2, fields=(
        Field("topics", "[]struct", (0, 2), fields=(
            Field("name", "string", (0, 2)),
            Field("partitions", "[]struct", (0, 2), fields=(
                Field("partition_index", "int32", (0, 2)),
                Field("offset", "int64", (0, 2)),
            )),
        )),
        Field("timeout_ms", "int32", (0, 2)),
    )),
    "DeleteRecordsResponse": Message((0, 2), flexible=2, fields=(
        Field("throttle_time_ms", "int32", (0, 2)),
        Field("topics", "[]struct", (0, 2), fields=(
            Field("name", "string", (0, 2)),
            Field("partitions", "[]struct", (0, 2), fields=(
                Field("partition_index", "int32", (0, 2)),
                Field("low_watermark", "int64", (0, 2)),
                Field("error_code", "int16", (0, 2)),
            )),
        )),
    )),
    "DeleteShareGroupOffsetsRequest": Message((0, 0), flexible=0, fields=(
        Field("group_id", "string", (0, 0)),
        Field("topics", "[]struct", (0, 0), fields=(
            Field("topic_name", "string", (0, 0)),
        )),
    )),
    "DeleteShareGroupOffsetsResponse": Message((0, 0), flexible=0, fields=(
        Field("throttle_time_ms", "int32", (0, 0)),
        Field("error_code", "int16", (0, 0)),
        Field("error_message", "string", (0, 0), nullable=(0, 0)),
        Field("responses", "[]struct", (0, 0), fields=(
            Field("topic_name", "string", (0, 0)),
            Field("topic_id", "uuid", (0, 0), nullable=(0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0)),
        )),
    )),
    "DeleteTopicsRequest": Message((1, 6), flexible=4, fields=(
        Field("topic_names", "[]string", (1, 5)),
        Field("topics", "[]struct", (6, 6), fields=(
            Field("name", "string", (6, 6), nullable=(6, 6)),
            Field("topic_id", "uuid", (6, 6), nullable=(6, 6)),
        )),
        Field("timeout_ms", "int32", (1, 6)),
    )),
    "DeleteTopicsResponse": Message((1, 6), flexible=4, fields=(
        Field("throttle_time_ms", "int32", (1, 6)),
        Field("responses", "[]struct", (1, 6), fields=(
            Field("name", "string", (1, 6), nullable=(6, 6)),
            Field("topic_id", "uuid", (6, 6), nullable=(6, 6)),
            Field("error_code", "int16", (1, 6)),
            Field("error_message", "string", (5, 6), nullable=(5, 6)),
        )),
    )),
    "DescribeClusterRequest": Message((0, 2), flexible=0, fields=(
        Field("include_cluster_authorized_operations", "bool", (0, 2)),
        Field("endpoint_type", "int8", (1, 2)),
        Field("include_fenced_brokers", "bool", (2, 2)),
    )),
    "DescribeClusterResponse": Message((0, 2), flexible=0, fields=(
        Field("throttle_time_ms", "int32", (0, 2)),
        Field("error_code", "int16", (0, 2)),
        Field("error_message", "string", (0, 2), nullable=(0, 2)),
        Field("endpoint_type", "int8", (1, 2)),
        Field("cluster_id", "string", (0, 2)),
        Field("controller_id", "int32", (0, 2)),
        Field("brokers", "[]struct", (0, 2), fields=(
            Field("broker_id", "int32", (0, 2)),
            Field("host", "string", (0, 2)),
            Field("port", "int32", (0, 2)),
            Field("rack", "string", (0, 2), nullable=(0, 2)),
            Field("is_fenced", "bool", (2, 2)),
        )),
        Field("cluster_authorized_operations", "int32", (0, 2)),
    )),
    "DescribeConfigsRequest": Message((1, 4), flexible=4, fields=(
        Field("resources", "[]struct", (1, 4), fields=(
            Field("resource_type", "int8", (1, 4)),
            Field("resource_name", "string", (1, 4)),
            Field("configuration_keys", "[]string", (1, 4), nullable=(1, 4)),
        )),
        Field("include_synonyms", "bool", (1, 4)),
        Field("include_documentation", "bool", (3, 4)),
    )),
    "DescribeConfigsResponse": Message((1, 4), flexible=4, fields=(
        Field("throttle_time_ms", "int32", (1, 4)),
        Field("results", "[]struct", (1, 4), fields=(
            Field("error_code", "int16", (1, 4)),
            Field("error_message", "string", (1, 4), nullable=(1, 4)),
            Field("resource_type", "int8", (1, 4)),
            Field("resource_name", "string", (1, 4)),
            Field("configs", "[]struct", (1, 4), fields=(
                Field("name", "string", (1, 4)),
                Field("value", "string", (1, 4), nullable=(1, 4)),
                Field("read_only", "bool", (1, 4)),
                Field("config_source", "int8", (1, 4)),
                Field("is_sensitive", "bool", (1, 4)),
                Field("synonyms", "[]struct", (1, 4), fields=(
                    Field("name", "string", (1, 4)),
                    Field("value", "string", (1, 4), nullable=(1, 4)),
                    Field("source", "int8", (1, 4)),
                )),
                Field("config_type", "int8", (3, 4)),
                Field("documentation", "string", (3, 4), nullable=(3, 4)),
            )),
        )),
    )),
    "DescribeGroupsRequest": Message((0, 6), flexible=5, fields=(
        Field("groups", "[]string", (0, 6)),
        Field("include_authorized_operations", "bool", (3, 6)),
    )),
    "DescribeGroupsResponse": Message((0, 6), flexible=5, fields=(
        Field("throttle_time_ms", "int32", (1, 6)),
        Field("groups", "[]struct", (0, 6), fields=(
            Field("error_code", "int16", (0, 6)),
            Field("error_message", "string", (6, 6), nullable=(6, 6)),
            Field("group_id", "string", (0, 6)),
            Field("group_state", "string", (0, 6)),
            Field("protocol_type", "string", (0, 6)),
            Field("protocol_data", "string", (0, 6)),
            Field("members", "[]struct", (0, 6), fields=(
                Field("member_id", "string", (0, 6)),
                Field("group_instance_id", "string", (4, 6), nullable=(4, 6)),
                Field("client_id", "string", (0, 6)),
                Field("client_host", "string", (0, 6)),
                Field("member_metadata", "bytes", (0, 6)),
                Field("member_assignment", "bytes", (0, 6)),
            )),
            Field("authorized_operations", "int32", (3, 6)),
        )),
    )),
    "DescribeShareGroupOffsetsRequest": Message((0, 1), flexible=0, fields=(
        Field("groups", "[]struct", (0, 1), fields=(
            Field("group_id", "string", (0, 1)),
            Field("topics", "[]struct", (0, 1), nullable=(0, 1), fields=(
                Field("topic_name", "string", (0, 1)),
                Field("partitions", "[]int32", (0, 1)),
            )),
        )),
    )),
    "DescribeShareGroupOffsetsResponse": Message((0, 1), flexible=0, fields=(
        Field("throttle_time_ms", "int32", (0, 1)),
        Field("groups", "[]struct", (0, 1), fields=(
            Field("group_id", "string", (0, 1)),
            Field("topics", "[]struct", (0, 1), fields=(
                Field("topic_name", "string", (0, 1)),
                Field("topic_id", "uuid", (0, 1), nullable=(0, 1)),
                Field("partitions", "[]struct", (0, 1), fields=(
                    Field("partition_index", "int32", (0, 1)),
                    Field("start_offset", "int64", (0, 1)),
                    Field("leader_epoch", "int32", (0, 1)),
                    Field("lag", "int64", (1, 1)),
                    Field("error_code", "int16", (0, 1)),
                    Field("error_message", "string", (0, 1), nullable=(0, 1)),
                )),
            )),
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1)),
        )),
    )),
    "EndTxnRequest": Message((0, 5), flexible=3, fields=(
        Field("transactional_id", "string", (0, 5)),
        Field("producer_id", "int64", (0, 5)),
        Field("producer_epoch", "int16", (0, 5)),
        Field("committed", "bool", (0, 5)),
    )),
    "EndTxnResponse": Message((0, 5), flexible=3, fields=(
        Field("throttle_time_ms", "int32", (0, 5)),
        Field("error_code", "int16", (0, 5)),
        Field("producer_id", "int64", (5, 5)),
        Field("producer_epoch", "int16", (5, 5)),
    )),
    "FetchRequest": Message((4, 18), flexible=12, fields=(
        Field("cluster_id", "string", (12, 18), nullable=(12, 18), tag=0),
        Field("replica_id", "int32", (4, 14)),
        Field("replica_state", "struct", (15, 18), tag=1, fields=(
            Field("replica_id", "int32", (15, 18)),
            Field("replica_epoch", "int64", (15, 18)),
        )),
        Field("max_wait_ms", "int32", (4, 18)),
        Field("min_bytes", "int32", (4, 18)),
        Field("max_bytes", "int32", (4, 18)),
        Field("isolation_level", "int8", (4, 18)),
        Field("session_id", "int32", (7, 18)),
        Field("session_epoch", "int32", (7, 18)),
        Field("topics", "[]struct", (4, 18), fields=(
            Field("topic", "string", (4, 12)),
            Field("topic_id", "uuid", (13, 18), nullable=(13, 18)),
            Field("partitions", "[]struct", (4, 18), fields=(
                Field("partition", "int32", (4, 18)),
                Field("current_leader_epoch", "int32", (9, 18)),
                Field("fetch_offset", "int64", (4, 18)),
                Field("last_fetched_epoch", "int32", (12, 18)),
                Field("log_start_offset", "int64", (5, 18)),
                Field("partition_max_bytes", "int32", (4, 18)),
                Field("replica_directory_id", "uuid", (17, 18), nullable=(17, 18), tag=0),
                Field("high_watermark", "int64", (18, 18), tag=1),
            )),
        )),
        Field("forgotten_topics_data", "[]struct", (7, 18), fields=(
            Field("topic", "string", (7, 12)),
            Field("topic_id", "uuid", (13, 18), nullable=(13, 18)),
            Field("partitions", "[]int32", (7, 18)),
        )),
        Field("rack_id", "string", (11, 18)),
    )),
    "FetchResponse": Message((4, 18), flexible=12, fields=(
        Field("throttle_time_ms", "int32", (4, 18)),
        Field("error_code", "int16", (7, 18)),
        Field("session_id", "int32", (7, 18)),
        Field("responses", "[]struct", (4, 18), fields=(
            Field("topic", "string", (4, 12)),
            Field("topic_id", "uuid", (13, 18), nullable=(13, 18)),
            Field("partitions", "[]struct", (4, 18), fields=(
                Field("partition_index", "int32", (4, 18)),
                Field("error_code", "int16", (4, 18)),
                Field("high_watermark", "int64", (4, 18)),
                Field("last_stable_offset", "int64", (4, 18)),
                Field("log_start_offset", "int64", (5, 18)),
                Field("diverging_epoch", "struct", (12, 18), tag=0, fields=(
                    Field("epoch", "int32", (12, 18)),
                    Field("end_offset", "int64", (12, 18)),
                )),
                Field("current_leader", "struct", (12, 18), tag=1, fields=(
                    Field("leader_id", "int32", (12, 18)),
                    Field("leader_epoch", "int32", (12, 18)),
                )),
                Field("snapshot_id", "struct", (12, 18), tag=2, fields=(
                    Field("end_offset", "int64", (12, 18)),
                    Field("epoch", "int32", (12, 18)),
                )),
                Field("aborted_transactions", "[]struct", (4, 18), nullable=(4, 18), fields=(
                    Field("producer_id", "int64", (4, 18)),
                    Field("first_offset", "int64", (4, 18)),
                )),
                Field("preferred_read_replica", "int32", (11, 18)),
                Field("records", "bytes", (4, 18), nullable=(4, 18)),
            )),
        )),
        Field("node_endpoints", "[]struct", (16, 18), tag=0, fields=(
            Field("node_id", "int32", (16, 18)),
            Field("host", "string", (16, 18)),
            Field("port", "int32", (16, 18)),
            Field("rack", "string", (16, 18), nullable=(16, 18)),
        )),
    )),
    "FindCoordinatorRequest": Message((0, 6), flexible=3, fields=(
        Field("key", "string", (0, 3)),
        Field("key_type", "int8", (1, 6)),
        Field("coordinator_keys", "[]string", (4, 6)),
    )),
    "FindCoordinatorResponse": Message((0, 6), flexible=3, fields=(
        Field("throttle_time_ms", "int32", (1, 6)),
        Field("error_code", "int16", (0, 3)),
        Field("error_message", "string", (1, 3), nullable=(1, 3)),
        Field("node_id", "int32", (0, 3)),
        Field("host", "string", (0, 3)),
        Field("port", "int32", (0, 3)),
        Field("coordinators", "[]struct", (4, 6), fields=(
            Field("key", "string", (4, 6)),
            Field("node_id", "int32", (4, 6)),
            Field("host", "string", (4, 6)),
            Field("port", "int32", (4, 6)),
            Field("error_code", "int16", (4, 6)),
            Field("error_message", "string", (4, 6), nullable=(4, 6)),
        )),
    )),
    "GetTelemetrySubscriptionsRequest": Message((0, 0), flexible=0, fields=(
        Field("client_instance_id", "uuid", (0, 0), nullable=(0, 0)),
    )),
    "GetTelemetrySubscriptionsResponse": Message((0, 0), flexible=0, fields=(
        Field("throttle_time_ms", "int32", (0, 0)),
        Field("error_code", "int16", (0, 0)),
        Field("client_instance_id", "uuid", (0, 0), nullable=(0, 0)),
        Field("subscription_id", "int32", (0, 0)),
        Field("accepted_compression_types", "[]int8", (0, 0)),
        Field("push_interval_ms", "int32", (0, 0)),
        Field("telemetry_max_bytes", "int32", (0, 0)),
        Field("delta_temporality", "bool", (0, 0)),
        Field("requested_metrics", "[]string", (0, 0)),
    )),
    "HeartbeatRequest": Message((0, 4), flexible=4, fields=(
        Field("group_id", "string", (0, 4)),
        Field("generation_id", "int32", (0, 4)),
        Field("member_id", "string", (0, 4)),
        Field("group_instance_id", "string", (3, 4), nullable=(3, 4)),
    )),
    "HeartbeatResponse": Message((0, 4), flexible=4, fields=(
        Field("throttle_time_ms", "int32", (1, 4)),
        Field("error_code", "int16", (0, 4)),
    )),
    "IncrementalAlterConfigsRequest": Message((0, 1), flexible=1, fields=(
        Field("resources", "[]struct", (0, 1), fields=(
            Field("resource_type", "int8", (0, 1)),
            Field("resource_name", "string", (0, 1)),
            Field("configs", "[]struct", (0, 1), fields=(
                Field("name", "string", (0, 1)),
                Field("config_operation", "int8", (0, 1)),
                Field("value", "string", (0, 1), nullable=(0, 1)),
            )),
        )),
        Field("validate_only", "bool", (0, 1)),
    )),
    "IncrementalAlterConfigsResponse": Message((0, 1), flexible=1, fields=(
        Field("throttle_time_ms", "int32", (0, 1)),
        Field("responses", "[]struct", (0, 1), fields=(
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1)),
            Field("resource_type", "int8", (0, 1)),
            Field("resource_name", "string", (0, 1)),
        )),
    )),
    "InitProducerIdRequest": Message((0, 6), flexible=2, fields=(
        Field("transactional_id", "string", (0, 6), nullable=(0, 6)),
        Field("transaction_timeout_ms", "int32", (0, 6)),
        Field("producer_id", "int64", (3, 6)),
        Field("producer_epoch", "int16", (3, 6)),
        Field("enable2_pc", "bool", (6, 6)),
        Field("keep_prepared_txn", "bool", (6, 6)),
    )),
    "InitProducerIdResponse": Message((0, 6), flexible=2, fields=(
        Field("throttle_time_ms", "int32", (0, 6)),
        Field("error_code", "int16", (0, 6)),
        Field("producer_id", "int64", (0, 6)),
        Field("producer_epoch", "int16", (0, 6)),
        Field("ongoing_txn_producer_id", "int64", (6, 6)),
        Field("ongoing_txn_producer_epoch", "int16", (6, 6)),
    )),
    "JoinGroupRequest": Message((0, 9), flexible=6, fields=(
        Field("group_id", "string", (0, 9)),
        Field("session_timeout_ms", "int32", (0, 9)),
        Field("rebalance_timeout_ms", "int32", (1, 9)),
        Field("member_id", "string", (0, 9)),
        Field("group_instance_id", "string", (5, 9), nullable=(5, 9)),
        Field("protocol_type", "string", (0, 9)),
        Field("protocols", "[]struct", (0, 9), fields=(
            Field("name", "string", (0, 9)),
            Field("metadata", "bytes", (0, 9)),
        )),
        Field("reason", "string", (8, 9), nullable=(8, 9)),
    )),
    "JoinGroupResponse": Message((0, 9), flexible=6, fields=(
        Field("throttle_time_ms", "int32", (2, 9)),
        Field("error_code", "int16", (0, 9)),
        Field("generation_id", "int32", (0, 9)),
        Field("protocol_type", "string", (7, 9), nullable=(7, 9)),
        Field("protocol_name", "string", (0, 9), nullable=(7, 9)),
        Field("leader", "string", (0, 9)),
        Field("skip_assignment", "bool", (9, 9)),
        Field("member_id", "string", (0, 9)),
        Field("members", "[]struct", (0, 9), fields=(
            Field("member_id", "string", (0, 9)),
            Field("group_instance_id", "string", (5, 9), nullable=(5, 9)),
            Field("metadata", "bytes", (0, 9)),
        )),
    )),
    "LeaveGroupRequest": Message((0, 5), flexible=4, fields=(
        Field("group_id", "string", (0, 5)),
        Field("member_id", "string", (0, 2)),
        Field("members", "[]struct", (3, 5), fields=(
            Field("member_id", "string", (3, 5)),
            Field("group_instance_id", "string", (3, 5), nullable=(3, 5)),
            Field("reason", "string", (5, 5), nullable=(5, 5)),
        )),
    )),
    "LeaveGroupResponse": Message((0, 5), flexible=4, fields=(
        Field("throttle_time_ms", "int32", (1, 5)),
        Field("error_code", "int16", (0, 5)),
        Field("members", "[]struct", (3, 5), fields=(
            Field("member_id", "string", (3, 5)),
            Field("group_instance_id", "string", (3, 5), nullable=(3, 5)),
            Field("error_code", "int16", (3, 5)),
        )),
    )),
    "ListGroupsRequest": Message((0, 5), flexible=3, fields=(
        Field("states_filter", "[]string", (4, 5)),
        Field("types_filter", "[]string", (5, 5)),
    )),
    "ListGroupsResponse": Message((0, 5), flexible=3, fields=(
        Field("throttle_time_ms", "int32", (1, 5)),
        Field("error_code", "int16", (0, 5)),
        Field("groups", "[]struct", (0, 5), fields=(
            Field("group_id", "string", (0, 5)),
            Field("protocol_type", "string", (0, 5)),
            Field("group_state", "string", (4, 5)),
            Field("group_type", "string", (5, 5)),
        )),
    )),
    "ListOffsetsRequest": Message((1, 11), flexible=6, fields=(
        Field("replica_id", "int32", (1, 11)),
        Field("isolation_level", "int8", (2, 11)),
        Field("topics", "[]struct", (1, 11), fields=(
            Field("name", "string", (1, 11)),
            Field("partitions", "[]struct", (1, 11), fields=(
                Field("partition_index", "int32", (1, 11)),
                Field("current_leader_epoch", "int32", (4, 11)),
                Field("timestamp", "int64", (1, 11)),
            )),
        )),
        Field("timeout_ms", "int32", (10, 11)),
    )),
    "ListOffsetsResponse": Message((1, 11), flexible=6, fields=(
        Field("throttle_time_ms", "int32", (2, 11)),
        Field("topics", "[]struct", (1, 11), fields=(
            Field("name", "string", (1, 11)),
            Field("partitions", "[]struct", (1, 11), fields=(
                Field("partition_index", "int32", (1, 11)),
                Field("error_code", "int16", (1, 11)),
                Field("timestamp", "int64", (1, 11)),
                Field("offset", "int64", (1, 11)),
                Field("leader_epoch", "int32", (4, 11)),
            )),
        )),
    )),
    "MetadataRequest": Message((0, 13), flexible=9, fields=(
        Field("topics", "[]struct", (0, 13), nullable=(1, 13), fields=(
            Field("topic_id", "uuid", (10, 13), nullable=(10, 13)),
            Field("name", "string", (0, 13), nullable=(10, 13)),
        )),
        Field("allow_auto_topic_creation", "bool", (4, 13)),
        Field("include_cluster_authorized_operations", "bool", (8, 10)),
        Field("include_topic_authorized_operations", "bool", (8, 13)),
    )),
    "MetadataResponse": Message((0, 13), flexible=9, fields=(
        Field("throttle_time_ms", "int32", (3, 13)),
        Field("brokers", "[]struct", (0, 13), fields=(
            Field("node_id", "int32", (0, 13)),
            Field("host", "string", (0, 13)),
            Field("port", "int32", (0, 13)),
            Field("rack", "string", (1, 13), nullable=(1, 13)),
        )),
        Field("cluster_id", "string", (2, 13), nullable=(2, 13)),
        Field("controller_id", "int32", (1, 13)),
        Field("topics", "[]struct", (0, 13), fields=(
            Field("error_code", "int16", (0, 13)),
            Field("name", "string", (0, 13), nullable=(12, 13)),
            Field("topic_id", "uuid", (10, 13), nullable=(10, 13)),
            Field("is_internal", "bool", (1, 13)),
            Field("partitions", "[]struct", (0, 13), fields=(
                Field("error_code", "int16", (0, 13)),
                Field("partition_index", "int32", (0, 13)),
                Field("leader_id", "int32", (0, 13)),
                Field("leader_epoch", "int32", (7, 13)),
                Field("replica_nodes", "[]int32", (0, 13)),
                Field("isr_nodes", "[]int32", (0, 13)),
                Field("offline_replicas", "[]int32", (5, 13)),
            )),
            Field("topic_authorized_operations", "int32", (8, 13)),
        )),
        Field("cluster_authorized_operations", "int32", (8, 10)),
        Field("error_code", "int16", (13, 13)),
    )),
    "OffsetCommitRequest": Message((2, 10), flexible=8, fields=(
        Field("group_id", "string", (2, 10)),
        Field("generation_id_or_member_epoch", "int32", (2, 10)),
        Field("member_id", "string", (2, 10)),
        Field("retention_time_ms", "int64", (2, 4)),
        Field("group_instance_id", "string", (7, 10), nullable=(7, 10)),
        Field("topics", "[]struct", (2, 10), fields=(
            Field("name", "string", (2, 9)),
            Field("topic_id", "uuid", (10, 10), nullable=(10, 10)),
            Field("partitions", "[]struct", (2, 10), fields=(
                Field("partition_index", "int32", (2, 10)),
                Field("committed_offset", "int64", (2, 10)),
                Field("committed_leader_epoch", "int32", (6, 10)),
                Field("committed_metadata", "string", (2, 10), nullable=(2, 10)),
            )),
        )),
    )),
    "OffsetCommitResponse": Message((2, 10), flexible=8, fields=(
        Field("throttle_time_ms", "int32", (3, 10)),
        Field("topics", "[]struct", (2, 10), fields=(
            Field("name", "string", (2, 9)),
            Field("topic_id", "uuid", (10, 10), nullable=(10, 10)),
            Field("partitions", "[]struct", (2, 10), fields=(
                Field("partition_index", "int32", (2, 10)),
                Field("error_code", "int16", (2, 10)),
            )),
        )),
    )),
    "OffsetFetchRequest": Message((1, 10), flexible=6, fields=(
        Field("group_id", "string", (1, 7)),
        Field("topics", "[]struct", (1, 7), nullable=(2, 7), fields=(
            Field("name", "string", (1, 7)),
            Field("partition_indexes", "[]int32", (1, 7)),
        )),
        Field("groups", "[]struct", (8, 10), fields=(
            Field("group_id", "string", (8, 10)),
            Field("member_id", "string", (9, 10), nullable=(9, 10)),
            Field("member_epoch", "int32", (9, 10)),
            Field("topics", "[]struct", (8, 10), nullable=(8, 10), fields=(
                Field("name", "string", (8, 9)),
                Field("topic_id", "uuid", (10, 10), nullable=(10, 10)),
                Field("partition_indexes", "[]int32", (8, 10)),
            )),
        )),
        Field("require_stable", "bool", (7, 10)),
    )),
    "OffsetFetchResponse": Message((1, 10), flexible=6, fields=(
        Field("throttle_time_ms", "int32", (3, 10)),
        Field("topics", "[]struct", (1, 7), fields=(
            Field("name", "string", (1, 7)),
            Field("partitions", "[]struct", (1, 7), fields=(
                Field("partition_index", "int32", (1, 7)),
                Field("committed_offset", "int64", (1, 7)),
                Field("committed_leader_epoch", "int32", (5, 7)),
                Field("metadata", "string", (1, 7), nullable=(1, 7)),
                Field("error_code", "int16", (1, 7)),
            )),
        )),
        Field("error_code", "int16", (2, 7)),
        Field("groups", "[]struct", (8, 10), fields=(
            Field("group_id", "string", (8, 10)),
            Field("topics", "[]struct", (8, 10), fields=(
                Field("name", "string", (8, 9)),
                Field("topic_id", "uuid", (10, 10), nullable=(10, 10)),
                Field("partitions", "[]struct", (8, 10), fields=(
                    Field("partition_index", "int32", (8, 10)),
                    Field("committed_offset", "int64", (8, 10)),
                    Field("committed_leader_epoch", "int32", (8, 10)),
                    Field("metadata", "string", (8, 10), nullable=(8, 10)),
                    Field("error_code", "int16", (8, 10)),
                )),
            )),
            Field("error_code", "int16", (8, 10)),
        )),
    )),
    "OffsetForLeaderEpochRequest": Message((2, 4), flexible=4, fields=(
        Field("replica_id", "int32", (3, 4)),
        Field("topics", "[]struct", (2, 4), fields=(
            Field("topic", "string", (2, 4)),
            Field("partitions", "[]struct", (2, 4), fields=(
                Field("partition", "int32", (2, 4)),
                Field("current_leader_epoch", "int32", (2, 4)),
                Field("leader_epoch", "int32", (2, 4)),
            )),
        )),
    )),
    "OffsetForLeaderEpochResponse": Message((2, 4), flexible=4, fields=(
        Field("throttle_time_ms", "int32", (2, 4)),
        Field("topics", "[]struct", (2, 4), fields=(
            Field("topic", "string", (2, 4)),
            Field("partitions", "[]struct", (2, 4), fields=(
                Field("error_code", "int16", (2, 4)),
                Field("partition", "int32", (2, 4)),
                Field("leader_epoch", "int32", (2, 4)),
                Field("end_offset", "int64", (2, 4)),
            )),
        )),
    )),
    "ProduceRequest": Message((3, 13), flexible=9, fields=(
        Field("transactional_id", "string", (3, 13), nullable=(3, 13)),
        Field("acks", "int16", (3, 13)),
        Field("timeout_ms", "int32", (3, 13)),
        Field("topic_data", "[]struct", (3, 13), fields=(
            Field("name", "string", (3, 12)),
            Field("topic_id", "uuid", (13, 13), nullable=(13, 13)),
            Field("partition_data", "[]struct", (3, 13), fields=(
                Field("index", "int32", (3, 13)),
                Field("records", "bytes", (3, 13), nullable=(3, 13)),
            )),
        )),
    )),
    "ProduceResponse": Message((3, 13), flexible=9, fields=(
        Field("responses", "[]struct", (3, 13), fields=(
            Field("name", "string", (3, 12)),
            Field("topic_id", "uuid", (13, 13), nullable=(13, 13)),
            Field("partition_responses", "[]struct", (3, 13), fields=(
                Field("index", "int32", (3, 13)),
                Field("error_code", "int16", (3, 13)),
                Field("base_offset", "int64", (3, 13)),
                Field("log_append_time_ms", "int64", (3, 13), nullable=(3, 13)),
                Field("log_start_offset", "int64", (5, 13)),
                Field("record_errors", "[]struct", (8, 13), fields=(
                    Field("batch_index", "int32", (8, 13)),
                    Field("batch_index_error_message", "string", (8, 13), nullable=(8, 13)),
                )),
                Field("error_message", "string", (8, 13), nullable=(8, 13)),
                Field("current_leader", "struct", (10, 13), tag=0, fields=(
                    Field("leader_id", "int32", (10, 13)),
                    Field("leader_epoch", "int32", (10, 13)),
                )),
            )),
        )),
        Field("throttle_time_ms", "int32", (3, 13)),
        Field("node_endpoints", "[]struct", (10, 13), tag=0, fields=(
            Field("node_id", "int32", (10, 13)),
            Field("host", "string", (10, 13)),
            Field("port", "int32", (10, 13)),
            Field("rack", "string", (10, 13), nullable=(10, 13)),
        )),
    )),
    "PushTelemetryRequest": Message((0, 0), flexible=0, fields=(
        Field("client_instance_id", "uuid", (0, 0), nullable=(0, 0)),
        Field("subscription_id", "int32", (0, 0)),
        Field("terminating", "bool", (0, 0)),
        Field("compression_type", "int8", (0, 0)),
        Field("metrics", "bytes", (0, 0)),
    )),
    "PushTelemetryResponse": Message((0, 0), flexible=0, fields=(
        Field("throttle_time_ms", "int32", (0, 0)),
        Field("error_code", "int16", (0, 0)),
    )),
    "SaslAuthenticateRequest": Message((0, 2), flexible=2, fields=(
        Field("auth_bytes", "bytes", (0, 2)),
    )),
    "SaslAuthenticateResponse": Message((0, 2), flexible=2, fields=(
        Field("error_code", "int16", (0, 2)),
        Field("error_message", "string", (0, 2), nullable=(0, 2)),
        Field("auth_bytes", "bytes", (0, 2)),
        Field("session_lifetime_ms", "int64", (1, 2)),
    )),
    "SaslHandshakeRequest": Message((0, 1), fields=(
        Field("mechanism", "string", (0, 1)),
    )),
    "SaslHandshakeResponse": Message((0, 1), fields=(
        Field("error_code", "int16", (0, 1)),
        Field("mechanisms", "[]string", (0, 1)),
    )),
    "ShareAcknowledgeRequest": Message((1, 2), flexible=1, fields=(
        Field("group_id", "string", (1, 2), nullable=(1, 2)),
        Field("member_id", "string", (1, 2), nullable=(1, 2)),
        Field("share_session_epoch", "int32", (1, 2)),
        Field("is_renew_ack", "bool", (2, 2)),
        Field("topics", "[]struct", (1, 2), fields=(
            Field("topic_id", "uuid", (1, 2), nullable=(1, 2)),
            Field("partitions", "[]struct", (1, 2), fields=(
                Field("partition_index", "int32", (1, 2)),
                Field("acknowledgement_batches", "[]struct", (1, 2), fields=(
                    Field("first_offset", "int64", (1, 2)),
                    Field("last_offset", "int64", (1, 2)),
                    Field("acknowledge_types", "[]int8", (1, 2)),
                )),
            )),
        )),
    )),
    "ShareAcknowledgeResponse": Message((1, 2), flexible=1, fields=(
        Field("throttle_time_ms", "int32", (1, 2)),
        Field("error_code", "int16", (1, 2)),
        Field("error_message", "string", (1, 2), nullable=(1, 2)),
        Field("acquisition_lock_timeout_ms", "int32", (2, 2)),
        Field("responses", "[]struct", (1, 2), fields=(
            Field("topic_id", "uuid", (1, 2), nullable=(1, 2)),
            Field("partitions", "[]struct", (1, 2), fields=(
                Field("partition_index", "int32", (1, 2)),
                Field("error_code", "int16", (1, 2)),
                Field("error_message", "string", (1, 2), nullable=(1, 2)),
                Field("current_leader", "struct", (1, 2), fields=(
                    Field("leader_id", "int32", (1, 2)),
                    Field("leader_epoch", "int32", (1, 2)),
                )),
            )),
        )),
        Field("node_endpoints", "[]struct", (1, 2), fields=(
            Field("node_id", "int32", (1, 2)),
            Field("host", "string", (1, 2)),
            Field("port", "int32", (1, 2)),
            Field("rack", "string", (1, 2), nullable=(1, 2)),
        )),
    )),
    "ShareFetchRequest": Message((1, 2), flexible=1, fields=(
        Field("group_id", "string", (1, 2), nullable=(1, 2)),
        Field("member_id", "string", (1, 2), nullable=(1, 2)),
        Field("share_session_epoch", "int32", (1, 2)),
        Field("max_wait_ms", "int32", (1, 2)),
        Field("min_bytes", "int32", (1, 2)),
        Field("max_bytes", "int32", (1, 2)),
        Field("max_records", "int32", (1, 2)),
        Field("batch_size", "int32", (1, 2)),
        Field("share_acquire_mode", "int8", (2, 2)),
        Field("is_renew_ack", "bool", (2, 2)),
        Field("topics", "[]struct", (1, 2), fields=(
            Field("topic_id", "uuid", (1, 2), nullable=(1, 2)),
            Field("partitions", "[]struct", (1, 2), fields=(
                Field("partition_index", "int32", (1, 2)),
                Field("acknowledgement_batches", "[]struct", (1, 2), fields=(
                    Field("first_offset", "int64", (1, 2)),
                    Field("last_offset", "int64", (1, 2)),
                    Field("acknowledge_types", "[]int8", (1, 2)),
                )),
            )),
        )),
        Field("forgotten_topics_data", "[]struct", (1, 2), fields=(
            Field("topic_id", "uuid", (1, 2), nullable=(1, 2)),
            Field("partitions", "[]int32", (1, 2)),
        )),
    )),
    "ShareFetchResponse": Message((1, 2), flexible=1, fields=(
        Field("throttle_time_ms", "int32", (1, 2)),
        Field("error_code", "int16", (1, 2)),
        Field("error_message", "string", (1, 2), nullable=(1, 2)),
        Field("acquisition_lock_timeout_ms", "int32", (1, 2)),
        Field("responses", "[]struct", (1, 2), fields=(
            Field("topic_id", "uuid", (1, 2), nullable=(1, 2)),
            Field("partitions", "[]struct", (1, 2), fields=(
                Field("partition_index", "int32", (1, 2)),
                Field("error_code", "int16", (1, 2)),
                Field("error_message", "string", (1, 2), nullable=(1, 2)),
                Field("acknowledge_error_code", "int16", (1, 2)),
                Field("acknowledge_error_message", "string", (1, 2), nullable=(1, 2)),
                Field("current_leader", "struct", (1, 2), fields=(
                    Field("leader_id", "int32", (1, 2)),
                    Field("leader_epoch", "int32", (1, 2)),
                )),
                Field("records", "bytes", (1, 2)),
                Field("acquired_records", "[]struct", (1, 2), fields=(
                    Field("first_offset", "int64", (1, 2)),
                    Field("last_offset", "int64", (1, 2)),
                    Field("delivery_count", "int16", (1, 2)),
                )),
            )),
        )),
        Field("node_endpoints", "[]struct", (1, 2), fields=(
            Field("node_id", "int32", (1, 2)),
            Field("host", "string", (1, 2)),
            Field("port", "int32", (1, 2)),
            Field("rack", "string", (1, 2), nullable=(1, 2)),
        )),
    )),
    "ShareGroupDescribeRequest": Message((1, 1), flexible=1, fields=(
        Field("group_ids", "[]string", (1, 1)),
        Field("include_authorized_operations", "bool", (1, 1)),
    )),
    "ShareGroupDescribeResponse": Message((1, 1), flexible=1, fields=(
        Field("throttle_time_ms", "int32", (1, 1)),
        Field("groups", "[]struct", (1, 1), fields=(
            Field("error_code", "int16", (1, 1)),
            Field("error_message", "string", (1, 1), nullable=(1, 1)),
            Field("group_id", "string", (1, 1)),
            Field("group_state", "string", (1, 1)),
            Field("group_epoch", "int32", (1, 1)),
            Field("assignment_epoch", "int32", (1, 1)),
            Field("assignor_name", "string", (1, 1)),
            Field("members", "[]struct", (1, 1), fields=(
                Field("member_id", "string", (1, 1)),
                Field("rack_id", "string", (1, 1), nullable=(1, 1)),
                Field("member_epoch", "int32", (1, 1)),
                Field("client_id", "string", (1, 1)),
                Field("client_host", "string", (1, 1)),
                Field("subscribed_topic_names", "[]string", (1, 1)),
                Field("assignment", "struct", (1, 1), fields=(
                    Field("topic_partitions", "[]struct", (1, 1), fields=(
                        Field("topic_id", "uuid", (1, 1), nullable=(1, 1)),
                        Field("topic_name", "string", (1, 1)),
                        Field("partitions", "[]int32", (1, 1)),
                    )),
                )),
            )),
            Field("authorized_operations", "int32", (1, 1)),
        )),
    )),
    "ShareGroupHeartbeatRequest": Message((1, 1), flexible=1, fields=(
        Field("group_id", "string", (1, 1)),
        Field("member_id", "string", (1, 1)),
        Field("member_epoch", "int32", (1, 1)),
        Field("rack_id", "string", (1, 1), nullable=(1, 1)),
        Field("subscribed_topic_names", "[]string", (1, 1), nullable=(1, 1)),
    )),
    "ShareGroupHeartbeatResponse": Message((1, 1), flexible=1, fields=(
        Field("throttle_time_ms", "int32", (1, 1)),
        Field("error_code", "int16", (1, 1)),
        Field("error_message", "string", (1, 1), nullable=(1, 1)),
        Field("member_id", "string", (1, 1), nullable=(1, 1)),
        Field("member_epoch", "int32", (1, 1)),
        Field("heartbeat_interval_ms", "int32", (1, 1)),
        Field("assignment", "struct", (1, 1), nullable=(1, 1), fields=(
            Field("topic_partitions", "[]struct", (1, 1), fields=(
                Field("topic_id", "uuid", (1, 1), nullable=(1, 1)),
                Field("partitions", "[]int32", (1, 1)),
            )),
        )),
    )),
    "SyncGroupRequest": Message((0, 5), flexible=4, fields=(
        Field("group_id", "string", (0, 5)),
        Field("generation_id", "int32", (0, 5)),
        Field("member_id", "string", (0, 5)),
        Field("group_instance_id", "string", (3, 5), nullable=(3, 5)),
        Field("protocol_type", "string", (5, 5), nullable=(5, 5)),
        Field("protocol_name", "string", (5, 5), nullable=(5, 5)),
        Field("assignments", "[]struct", (0, 5), fields=(
            Field("member_id", "string", (0, 5)),
            Field("assignment", "bytes", (0, 5)),
        )),
    )),
    "SyncGroupResponse": Message((0, 5), flexible=4, fields=(
        Field("throttle_time_ms", "int32", (1, 5)),
        Field("error_code", "int16", (0, 5)),
        Field("protocol_type", "string", (5, 5), nullable=(5, 5)),
        Field("protocol_name", "string", (5, 5), nullable=(5, 5)),
        Field("assignment", "bytes", (0, 5)),
    )),
    "TxnOffsetCommitRequest": Message((0, 5), flexible=3, fields=(
        Field("transactional_id", "string", (0, 5)),
        Field("group_id", "string", (0, 5)),
        Field("producer_id", "int64", (0, 5)),
        Field("producer_epoch", "int16", (0, 5)),
        Field("generation_id", "int32", (3, 5)),
        Field("member_id", "string", (3, 5)),
        Field("group_instance_id", "string", (3, 5), nullable=(3, 5)),
        Field("topics", "[]struct", (0, 5), fields=(
            Field("name", "string", (0, 5)),
            Field("partitions", "[]struct", (0, 5), fields=(
                Field("partition_index", "int32", (0, 5)),
                Field("committed_offset", "int64", (0, 5)),
                Field("committed_leader_epoch", "int32", (2, 5)),
                Field("committed_metadata", "string", (0, 5), nullable=(0, 5)),
            )),
        )),
    )),
    "TxnOffsetCommitResponse": Message((0, 5), flexible=3, fields=(
        Field("throttle_time_ms", "int32", (0, 5)),
        Field("topics", "[]struct", (0, 5), fields=(
            Field("name", "string", (0, 5)),
            Field("partitions", "[]struct", (0, 5), fields=(
                Field("partition_index", "int32", (0, 5)),
                Field("error_code", "int16", (0, 5)),
            )),
        )),
    )),
}
"""Each message by its name."""
