"""Kafka's schemas of the messages that we speak: which fields there are, of which type, in which versions.

Decides nothing. Owns the table, which is generated from Kafka's own (``clients/src/main/resources/common/message``) by way of
``kio``, and in the same form: fields in the order of the bytes, versions from and to. Must never be edited by hand below the mark.

Names are Kafka's in the form of Python; times end in ``_ms``. The table is one of plain tuples: they are constants of the compiled
file, and cost next to nothing until a message is asked for.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

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


def message(name: str) -> Message:
    """Return a message by its name."""
    versions, flexible, fields = _SCHEMAS[name]
    return Message(versions, _fields(fields), flexible)


def _fields(rows: Iterable[tuple[Any, ...]]) -> tuple[Field, ...]:
    """Return the fields of rows, each of which ends where the rest of it is as usual."""
    return tuple(Field._make((*row[:5], _fields(row[5]))) if len(row) > 5 else Field(*row) for row in rows)


# What follows is generated: python -m tests.wire.kafka_schemas
# fmt: off
_SCHEMAS: Final[Mapping[str, tuple[Versions, int | None, tuple[tuple[Any, ...], ...]]]] = {
    "AddOffsetsToTxnRequest": ((0, 4), 3, (
        ("transactional_id", "string", (0, 4)),
        ("producer_id", "int64", (0, 4)),
        ("producer_epoch", "int16", (0, 4)),
        ("group_id", "string", (0, 4)),
    )),
    "AddOffsetsToTxnResponse": ((0, 4), 3, (
        ("throttle_time_ms", "int32", (0, 4)),
        ("error_code", "int16", (0, 4)),
    )),
    "AddPartitionsToTxnRequest": ((0, 5), 3, (
        ("v3_and_below_transactional_id", "string", (0, 3)),
        ("v3_and_below_producer_id", "int64", (0, 3)),
        ("v3_and_below_producer_epoch", "int16", (0, 3)),
        ("v3_and_below_topics", "[]struct", (0, 3), None, None, (
            ("name", "string", (0, 3)),
            ("partitions", "[]int32", (0, 3)),
        )),
        ("transactions", "[]struct", (4, 5), None, None, (
            ("transactional_id", "string", (4, 5)),
            ("producer_id", "int64", (4, 5)),
            ("producer_epoch", "int16", (4, 5)),
            ("verify_only", "bool", (4, 5)),
            ("topics", "[]struct", (4, 5), None, None, (
                ("name", "string", (4, 5)),
                ("partitions", "[]int32", (4, 5)),
            )),
        )),
    )),
    "AddPartitionsToTxnResponse": ((0, 5), 3, (
        ("throttle_time_ms", "int32", (0, 5)),
        ("results_by_topic_v3_and_below", "[]struct", (0, 3), None, None, (
            ("name", "string", (0, 3)),
            ("results_by_partition", "[]struct", (0, 3), None, None, (
                ("partition_index", "int32", (0, 3)),
                ("partition_error_code", "int16", (0, 3)),
            )),
        )),
        ("error_code", "int16", (4, 5)),
        ("results_by_transaction", "[]struct", (4, 5), None, None, (
            ("transactional_id", "string", (4, 5)),
            ("topic_results", "[]struct", (4, 5), None, None, (
                ("name", "string", (4, 5)),
                ("results_by_partition", "[]struct", (4, 5), None, None, (
                    ("partition_index", "int32", (4, 5)),
                    ("partition_error_code", "int16", (4, 5)),
                )),
            )),
        )),
    )),
    "AlterShareGroupOffsetsRequest": ((0, 0), 0, (
        ("group_id", "string", (0, 0)),
        ("topics", "[]struct", (0, 0), None, None, (
            ("topic_name", "string", (0, 0)),
            ("partitions", "[]struct", (0, 0), None, None, (
                ("partition_index", "int32", (0, 0)),
                ("start_offset", "int64", (0, 0)),
            )),
        )),
    )),
    "AlterShareGroupOffsetsResponse": ((0, 0), 0, (
        ("throttle_time_ms", "int32", (0, 0)),
        ("error_code", "int16", (0, 0)),
        ("error_message", "string", (0, 0), (0, 0)),
        ("responses", "[]struct", (0, 0), None, None, (
            ("topic_name", "string", (0, 0)),
            ("topic_id", "uuid", (0, 0), (0, 0)),
            ("partitions", "[]struct", (0, 0), None, None, (
                ("partition_index", "int32", (0, 0)),
                ("error_code", "int16", (0, 0)),
                ("error_message", "string", (0, 0), (0, 0)),
            )),
        )),
    )),
    "ApiVersionsRequest": ((0, 5), 3, (
        ("client_software_name", "string", (3, 5)),
        ("client_software_version", "string", (3, 5)),
        ("cluster_id", "string", (5, 5), (5, 5)),
        ("node_id", "int32", (5, 5)),
    )),
    "ApiVersionsResponse": ((0, 5), 3, (
        ("error_code", "int16", (0, 5)),
        ("api_keys", "[]struct", (0, 5), None, None, (
            ("api_key", "int16", (0, 5)),
            ("min_version", "int16", (0, 5)),
            ("max_version", "int16", (0, 5)),
        )),
        ("throttle_time_ms", "int32", (1, 5)),
        ("supported_features", "[]struct", (3, 5), None, 0, (
            ("name", "string", (3, 5)),
            ("min_version", "int16", (3, 5)),
            ("max_version", "int16", (3, 5)),
        )),
        ("finalized_features_epoch", "int64", (3, 5), None, 1),
        ("finalized_features", "[]struct", (3, 5), None, 2, (
            ("name", "string", (3, 5)),
            ("max_version_level", "int16", (3, 5)),
            ("min_version_level", "int16", (3, 5)),
        )),
        ("zk_migration_ready", "bool", (3, 5), None, 3),
    )),
    "ConsumerGroupDescribeRequest": ((0, 1), 0, (
        ("group_ids", "[]string", (0, 1)),
        ("include_authorized_operations", "bool", (0, 1)),
    )),
    "ConsumerGroupDescribeResponse": ((0, 1), 0, (
        ("throttle_time_ms", "int32", (0, 1)),
        ("groups", "[]struct", (0, 1), None, None, (
            ("error_code", "int16", (0, 1)),
            ("error_message", "string", (0, 1), (0, 1)),
            ("group_id", "string", (0, 1)),
            ("group_state", "string", (0, 1)),
            ("group_epoch", "int32", (0, 1)),
            ("assignment_epoch", "int32", (0, 1)),
            ("assignor_name", "string", (0, 1)),
            ("members", "[]struct", (0, 1), None, None, (
                ("member_id", "string", (0, 1)),
                ("instance_id", "string", (0, 1), (0, 1)),
                ("rack_id", "string", (0, 1), (0, 1)),
                ("member_epoch", "int32", (0, 1)),
                ("client_id", "string", (0, 1)),
                ("client_host", "string", (0, 1)),
                ("subscribed_topic_names", "[]string", (0, 1)),
                ("subscribed_topic_regex", "string", (0, 1), (0, 1)),
                ("assignment", "struct", (0, 1), None, None, (
                    ("topic_partitions", "[]struct", (0, 1), None, None, (
                        ("topic_id", "uuid", (0, 1), (0, 1)),
                        ("topic_name", "string", (0, 1)),
                        ("partitions", "[]int32", (0, 1)),
                    )),
                )),
                ("target_assignment", "struct", (0, 1), None, None, (
                    ("topic_partitions", "[]struct", (0, 1), None, None, (
                        ("topic_id", "uuid", (0, 1), (0, 1)),
                        ("topic_name", "string", (0, 1)),
                        ("partitions", "[]int32", (0, 1)),
                    )),
                )),
                ("member_type", "int8", (1, 1)),
            )),
            ("authorized_operations", "int32", (0, 1)),
        )),
    )),
    "ConsumerGroupHeartbeatRequest": ((0, 1), 0, (
        ("group_id", "string", (0, 1)),
        ("member_id", "string", (0, 1)),
        ("member_epoch", "int32", (0, 1)),
        ("instance_id", "string", (0, 1), (0, 1)),
        ("rack_id", "string", (0, 1), (0, 1)),
        ("rebalance_timeout_ms", "int32", (0, 1)),
        ("subscribed_topic_names", "[]string", (0, 1), (0, 1)),
        ("subscribed_topic_regex", "string", (1, 1), (1, 1)),
        ("server_assignor", "string", (0, 1), (0, 1)),
        ("topic_partitions", "[]struct", (0, 1), (0, 1), None, (
            ("topic_id", "uuid", (0, 1), (0, 1)),
            ("partitions", "[]int32", (0, 1)),
        )),
    )),
    "ConsumerGroupHeartbeatResponse": ((0, 1), 0, (
        ("throttle_time_ms", "int32", (0, 1)),
        ("error_code", "int16", (0, 1)),
        ("error_message", "string", (0, 1), (0, 1)),
        ("member_id", "string", (0, 1), (0, 1)),
        ("member_epoch", "int32", (0, 1)),
        ("heartbeat_interval_ms", "int32", (0, 1)),
        ("assignment", "struct", (0, 1), (0, 1), None, (
            ("topic_partitions", "[]struct", (0, 1), None, None, (
                ("topic_id", "uuid", (0, 1), (0, 1)),
                ("partitions", "[]int32", (0, 1)),
            )),
        )),
    )),
    "ConsumerProtocolAssignment": ((0, 3), None, (
        ("assigned_partitions", "[]struct", (0, 3), None, None, (
            ("topic", "string", (0, 3)),
            ("partitions", "[]int32", (0, 3)),
        )),
        ("user_data", "bytes", (0, 3), (0, 3)),
    )),
    "ConsumerProtocolSubscription": ((0, 3), None, (
        ("topics", "[]string", (0, 3)),
        ("user_data", "bytes", (0, 3), (0, 3)),
        ("owned_partitions", "[]struct", (1, 3), None, None, (
            ("topic", "string", (1, 3)),
            ("partitions", "[]int32", (1, 3)),
        )),
        ("generation_id", "int32", (2, 3)),
        ("rack_id", "string", (3, 3), (3, 3)),
    )),
    "CreatePartitionsRequest": ((0, 3), 2, (
        ("topics", "[]struct", (0, 3), None, None, (
            ("name", "string", (0, 3)),
            ("count", "int32", (0, 3)),
            ("assignments", "[]struct", (0, 3), (0, 3), None, (
                ("broker_ids", "[]int32", (0, 3)),
            )),
        )),
        ("timeout_ms", "int32", (0, 3)),
        ("validate_only", "bool", (0, 3)),
    )),
    "CreatePartitionsResponse": ((0, 3), 2, (
        ("throttle_time_ms", "int32", (0, 3)),
        ("results", "[]struct", (0, 3), None, None, (
            ("name", "string", (0, 3)),
            ("error_code", "int16", (0, 3)),
            ("error_message", "string", (0, 3), (0, 3)),
        )),
    )),
    "CreateTopicsRequest": ((2, 7), 5, (
        ("topics", "[]struct", (2, 7), None, None, (
            ("name", "string", (2, 7)),
            ("num_partitions", "int32", (2, 7)),
            ("replication_factor", "int16", (2, 7)),
            ("assignments", "[]struct", (2, 7), None, None, (
                ("partition_index", "int32", (2, 7)),
                ("broker_ids", "[]int32", (2, 7)),
            )),
            ("configs", "[]struct", (2, 7), None, None, (
                ("name", "string", (2, 7)),
                ("value", "string", (2, 7), (2, 7)),
            )),
        )),
        ("timeout_ms", "int32", (2, 7)),
        ("validate_only", "bool", (2, 7)),
    )),
    "CreateTopicsResponse": ((2, 7), 5, (
        ("throttle_time_ms", "int32", (2, 7)),
        ("topics", "[]struct", (2, 7), None, None, (
            ("name", "string", (2, 7)),
            ("topic_id", "uuid", (7, 7), (7, 7)),
            ("error_code", "int16", (2, 7)),
            ("error_message", "string", (2, 7), (2, 7)),
            ("topic_config_error_code", "int16", (5, 7), None, 0),
            ("num_partitions", "int32", (5, 7)),
            ("replication_factor", "int16", (5, 7)),
            ("configs", "[]struct", (5, 7), (5, 7), None, (
                ("name", "string", (5, 7)),
                ("value", "string", (5, 7), (5, 7)),
                ("read_only", "bool", (5, 7)),
                ("config_source", "int8", (5, 7)),
                ("is_sensitive", "bool", (5, 7)),
            )),
        )),
    )),
    "DeleteGroupsRequest": ((0, 2), 2, (
        ("groups_names", "[]string", (0, 2)),
    )),
    "DeleteGroupsResponse": ((0, 2), 2, (
        ("throttle_time_ms", "int32", (0, 2)),
        ("results", "[]struct", (0, 2), None, None, (
            ("group_id", "string", (0, 2)),
            ("error_code", "int16", (0, 2)),
        )),
    )),
    "DeleteRecordsRequest": ((0, 2), 2, (
        ("topics", "[]struct", (0, 2), None, None, (
            ("name", "string", (0, 2)),
            ("partitions", "[]struct", (0, 2), None, None, (
                ("partition_index", "int32", (0, 2)),
                ("offset", "int64", (0, 2)),
            )),
        )),
        ("timeout_ms", "int32", (0, 2)),
    )),
    "DeleteRecordsResponse": ((0, 2), 2, (
        ("throttle_time_ms", "int32", (0, 2)),
        ("topics", "[]struct", (0, 2), None, None, (
            ("name", "string", (0, 2)),
            ("partitions", "[]struct", (0, 2), None, None, (
                ("partition_index", "int32", (0, 2)),
                ("low_watermark", "int64", (0, 2)),
                ("error_code", "int16", (0, 2)),
            )),
        )),
    )),
    "DeleteShareGroupOffsetsRequest": ((0, 0), 0, (
        ("group_id", "string", (0, 0)),
        ("topics", "[]struct", (0, 0), None, None, (
            ("topic_name", "string", (0, 0)),
        )),
    )),
    "DeleteShareGroupOffsetsResponse": ((0, 0), 0, (
        ("throttle_time_ms", "int32", (0, 0)),
        ("error_code", "int16", (0, 0)),
        ("error_message", "string", (0, 0), (0, 0)),
        ("responses", "[]struct", (0, 0), None, None, (
            ("topic_name", "string", (0, 0)),
            ("topic_id", "uuid", (0, 0), (0, 0)),
            ("error_code", "int16", (0, 0)),
            ("error_message", "string", (0, 0), (0, 0)),
        )),
    )),
    "DeleteTopicsRequest": ((1, 6), 4, (
        ("topic_names", "[]string", (1, 5)),
        ("topics", "[]struct", (6, 6), None, None, (
            ("name", "string", (6, 6), (6, 6)),
            ("topic_id", "uuid", (6, 6), (6, 6)),
        )),
        ("timeout_ms", "int32", (1, 6)),
    )),
    "DeleteTopicsResponse": ((1, 6), 4, (
        ("throttle_time_ms", "int32", (1, 6)),
        ("responses", "[]struct", (1, 6), None, None, (
            ("name", "string", (1, 6), (6, 6)),
            ("topic_id", "uuid", (6, 6), (6, 6)),
            ("error_code", "int16", (1, 6)),
            ("error_message", "string", (5, 6), (5, 6)),
        )),
    )),
    "DescribeClusterRequest": ((0, 2), 0, (
        ("include_cluster_authorized_operations", "bool", (0, 2)),
        ("endpoint_type", "int8", (1, 2)),
        ("include_fenced_brokers", "bool", (2, 2)),
    )),
    "DescribeClusterResponse": ((0, 2), 0, (
        ("throttle_time_ms", "int32", (0, 2)),
        ("error_code", "int16", (0, 2)),
        ("error_message", "string", (0, 2), (0, 2)),
        ("endpoint_type", "int8", (1, 2)),
        ("cluster_id", "string", (0, 2)),
        ("controller_id", "int32", (0, 2)),
        ("brokers", "[]struct", (0, 2), None, None, (
            ("broker_id", "int32", (0, 2)),
            ("host", "string", (0, 2)),
            ("port", "int32", (0, 2)),
            ("rack", "string", (0, 2), (0, 2)),
            ("is_fenced", "bool", (2, 2)),
        )),
        ("cluster_authorized_operations", "int32", (0, 2)),
    )),
    "DescribeConfigsRequest": ((1, 4), 4, (
        ("resources", "[]struct", (1, 4), None, None, (
            ("resource_type", "int8", (1, 4)),
            ("resource_name", "string", (1, 4)),
            ("configuration_keys", "[]string", (1, 4), (1, 4)),
        )),
        ("include_synonyms", "bool", (1, 4)),
        ("include_documentation", "bool", (3, 4)),
    )),
    "DescribeConfigsResponse": ((1, 4), 4, (
        ("throttle_time_ms", "int32", (1, 4)),
        ("results", "[]struct", (1, 4), None, None, (
            ("error_code", "int16", (1, 4)),
            ("error_message", "string", (1, 4), (1, 4)),
            ("resource_type", "int8", (1, 4)),
            ("resource_name", "string", (1, 4)),
            ("configs", "[]struct", (1, 4), None, None, (
                ("name", "string", (1, 4)),
                ("value", "string", (1, 4), (1, 4)),
                ("read_only", "bool", (1, 4)),
                ("config_source", "int8", (1, 4)),
                ("is_sensitive", "bool", (1, 4)),
                ("synonyms", "[]struct", (1, 4), None, None, (
                    ("name", "string", (1, 4)),
                    ("value", "string", (1, 4), (1, 4)),
                    ("source", "int8", (1, 4)),
                )),
                ("config_type", "int8", (3, 4)),
                ("documentation", "string", (3, 4), (3, 4)),
            )),
        )),
    )),
    "DescribeGroupsRequest": ((0, 6), 5, (
        ("groups", "[]string", (0, 6)),
        ("include_authorized_operations", "bool", (3, 6)),
    )),
    "DescribeGroupsResponse": ((0, 6), 5, (
        ("throttle_time_ms", "int32", (1, 6)),
        ("groups", "[]struct", (0, 6), None, None, (
            ("error_code", "int16", (0, 6)),
            ("error_message", "string", (6, 6), (6, 6)),
            ("group_id", "string", (0, 6)),
            ("group_state", "string", (0, 6)),
            ("protocol_type", "string", (0, 6)),
            ("protocol_data", "string", (0, 6)),
            ("members", "[]struct", (0, 6), None, None, (
                ("member_id", "string", (0, 6)),
                ("group_instance_id", "string", (4, 6), (4, 6)),
                ("client_id", "string", (0, 6)),
                ("client_host", "string", (0, 6)),
                ("member_metadata", "bytes", (0, 6)),
                ("member_assignment", "bytes", (0, 6)),
            )),
            ("authorized_operations", "int32", (3, 6)),
        )),
    )),
    "DescribeShareGroupOffsetsRequest": ((0, 1), 0, (
        ("groups", "[]struct", (0, 1), None, None, (
            ("group_id", "string", (0, 1)),
            ("topics", "[]struct", (0, 1), (0, 1), None, (
                ("topic_name", "string", (0, 1)),
                ("partitions", "[]int32", (0, 1)),
            )),
        )),
    )),
    "DescribeShareGroupOffsetsResponse": ((0, 1), 0, (
        ("throttle_time_ms", "int32", (0, 1)),
        ("groups", "[]struct", (0, 1), None, None, (
            ("group_id", "string", (0, 1)),
            ("topics", "[]struct", (0, 1), None, None, (
                ("topic_name", "string", (0, 1)),
                ("topic_id", "uuid", (0, 1), (0, 1)),
                ("partitions", "[]struct", (0, 1), None, None, (
                    ("partition_index", "int32", (0, 1)),
                    ("start_offset", "int64", (0, 1)),
                    ("leader_epoch", "int32", (0, 1)),
                    ("lag", "int64", (1, 1)),
                    ("error_code", "int16", (0, 1)),
                    ("error_message", "string", (0, 1), (0, 1)),
                )),
            )),
            ("error_code", "int16", (0, 1)),
            ("error_message", "string", (0, 1), (0, 1)),
        )),
    )),
    "EndTxnRequest": ((0, 5), 3, (
        ("transactional_id", "string", (0, 5)),
        ("producer_id", "int64", (0, 5)),
        ("producer_epoch", "int16", (0, 5)),
        ("committed", "bool", (0, 5)),
    )),
    "EndTxnResponse": ((0, 5), 3, (
        ("throttle_time_ms", "int32", (0, 5)),
        ("error_code", "int16", (0, 5)),
        ("producer_id", "int64", (5, 5)),
        ("producer_epoch", "int16", (5, 5)),
    )),
    "FetchRequest": ((4, 18), 12, (
        ("cluster_id", "string", (12, 18), (12, 18), 0),
        ("replica_id", "int32", (4, 14)),
        ("replica_state", "struct", (15, 18), None, 1, (
            ("replica_id", "int32", (15, 18)),
            ("replica_epoch", "int64", (15, 18)),
        )),
        ("max_wait_ms", "int32", (4, 18)),
        ("min_bytes", "int32", (4, 18)),
        ("max_bytes", "int32", (4, 18)),
        ("isolation_level", "int8", (4, 18)),
        ("session_id", "int32", (7, 18)),
        ("session_epoch", "int32", (7, 18)),
        ("topics", "[]struct", (4, 18), None, None, (
            ("topic", "string", (4, 12)),
            ("topic_id", "uuid", (13, 18), (13, 18)),
            ("partitions", "[]struct", (4, 18), None, None, (
                ("partition", "int32", (4, 18)),
                ("current_leader_epoch", "int32", (9, 18)),
                ("fetch_offset", "int64", (4, 18)),
                ("last_fetched_epoch", "int32", (12, 18)),
                ("log_start_offset", "int64", (5, 18)),
                ("partition_max_bytes", "int32", (4, 18)),
                ("replica_directory_id", "uuid", (17, 18), (17, 18), 0),
                ("high_watermark", "int64", (18, 18), None, 1),
            )),
        )),
        ("forgotten_topics_data", "[]struct", (7, 18), None, None, (
            ("topic", "string", (7, 12)),
            ("topic_id", "uuid", (13, 18), (13, 18)),
            ("partitions", "[]int32", (7, 18)),
        )),
        ("rack_id", "string", (11, 18)),
    )),
    "FetchResponse": ((4, 18), 12, (
        ("throttle_time_ms", "int32", (4, 18)),
        ("error_code", "int16", (7, 18)),
        ("session_id", "int32", (7, 18)),
        ("responses", "[]struct", (4, 18), None, None, (
            ("topic", "string", (4, 12)),
            ("topic_id", "uuid", (13, 18), (13, 18)),
            ("partitions", "[]struct", (4, 18), None, None, (
                ("partition_index", "int32", (4, 18)),
                ("error_code", "int16", (4, 18)),
                ("high_watermark", "int64", (4, 18)),
                ("last_stable_offset", "int64", (4, 18)),
                ("log_start_offset", "int64", (5, 18)),
                ("diverging_epoch", "struct", (12, 18), None, 0, (
                    ("epoch", "int32", (12, 18)),
                    ("end_offset", "int64", (12, 18)),
                )),
                ("current_leader", "struct", (12, 18), None, 1, (
                    ("leader_id", "int32", (12, 18)),
                    ("leader_epoch", "int32", (12, 18)),
                )),
                ("snapshot_id", "struct", (12, 18), None, 2, (
                    ("end_offset", "int64", (12, 18)),
                    ("epoch", "int32", (12, 18)),
                )),
                ("aborted_transactions", "[]struct", (4, 18), (4, 18), None, (
                    ("producer_id", "int64", (4, 18)),
                    ("first_offset", "int64", (4, 18)),
                )),
                ("preferred_read_replica", "int32", (11, 18)),
                ("records", "bytes", (4, 18), (4, 18)),
            )),
        )),
        ("node_endpoints", "[]struct", (16, 18), None, 0, (
            ("node_id", "int32", (16, 18)),
            ("host", "string", (16, 18)),
            ("port", "int32", (16, 18)),
            ("rack", "string", (16, 18), (16, 18)),
        )),
    )),
    "FindCoordinatorRequest": ((0, 6), 3, (
        ("key", "string", (0, 3)),
        ("key_type", "int8", (1, 6)),
        ("coordinator_keys", "[]string", (4, 6)),
    )),
    "FindCoordinatorResponse": ((0, 6), 3, (
        ("throttle_time_ms", "int32", (1, 6)),
        ("error_code", "int16", (0, 3)),
        ("error_message", "string", (1, 3), (1, 3)),
        ("node_id", "int32", (0, 3)),
        ("host", "string", (0, 3)),
        ("port", "int32", (0, 3)),
        ("coordinators", "[]struct", (4, 6), None, None, (
            ("key", "string", (4, 6)),
            ("node_id", "int32", (4, 6)),
            ("host", "string", (4, 6)),
            ("port", "int32", (4, 6)),
            ("error_code", "int16", (4, 6)),
            ("error_message", "string", (4, 6), (4, 6)),
        )),
    )),
    "GetTelemetrySubscriptionsRequest": ((0, 0), 0, (
        ("client_instance_id", "uuid", (0, 0), (0, 0)),
    )),
    "GetTelemetrySubscriptionsResponse": ((0, 0), 0, (
        ("throttle_time_ms", "int32", (0, 0)),
        ("error_code", "int16", (0, 0)),
        ("client_instance_id", "uuid", (0, 0), (0, 0)),
        ("subscription_id", "int32", (0, 0)),
        ("accepted_compression_types", "[]int8", (0, 0)),
        ("push_interval_ms", "int32", (0, 0)),
        ("telemetry_max_bytes", "int32", (0, 0)),
        ("delta_temporality", "bool", (0, 0)),
        ("requested_metrics", "[]string", (0, 0)),
    )),
    "HeartbeatRequest": ((0, 4), 4, (
        ("group_id", "string", (0, 4)),
        ("generation_id", "int32", (0, 4)),
        ("member_id", "string", (0, 4)),
        ("group_instance_id", "string", (3, 4), (3, 4)),
    )),
    "HeartbeatResponse": ((0, 4), 4, (
        ("throttle_time_ms", "int32", (1, 4)),
        ("error_code", "int16", (0, 4)),
    )),
    "IncrementalAlterConfigsRequest": ((0, 1), 1, (
        ("resources", "[]struct", (0, 1), None, None, (
            ("resource_type", "int8", (0, 1)),
            ("resource_name", "string", (0, 1)),
            ("configs", "[]struct", (0, 1), None, None, (
                ("name", "string", (0, 1)),
                ("config_operation", "int8", (0, 1)),
                ("value", "string", (0, 1), (0, 1)),
            )),
        )),
        ("validate_only", "bool", (0, 1)),
    )),
    "IncrementalAlterConfigsResponse": ((0, 1), 1, (
        ("throttle_time_ms", "int32", (0, 1)),
        ("responses", "[]struct", (0, 1), None, None, (
            ("error_code", "int16", (0, 1)),
            ("error_message", "string", (0, 1), (0, 1)),
            ("resource_type", "int8", (0, 1)),
            ("resource_name", "string", (0, 1)),
        )),
    )),
    "InitProducerIdRequest": ((0, 6), 2, (
        ("transactional_id", "string", (0, 6), (0, 6)),
        ("transaction_timeout_ms", "int32", (0, 6)),
        ("producer_id", "int64", (3, 6)),
        ("producer_epoch", "int16", (3, 6)),
        ("enable2_pc", "bool", (6, 6)),
        ("keep_prepared_txn", "bool", (6, 6)),
    )),
    "InitProducerIdResponse": ((0, 6), 2, (
        ("throttle_time_ms", "int32", (0, 6)),
        ("error_code", "int16", (0, 6)),
        ("producer_id", "int64", (0, 6)),
        ("producer_epoch", "int16", (0, 6)),
        ("ongoing_txn_producer_id", "int64", (6, 6)),
        ("ongoing_txn_producer_epoch", "int16", (6, 6)),
    )),
    "JoinGroupRequest": ((0, 9), 6, (
        ("group_id", "string", (0, 9)),
        ("session_timeout_ms", "int32", (0, 9)),
        ("rebalance_timeout_ms", "int32", (1, 9)),
        ("member_id", "string", (0, 9)),
        ("group_instance_id", "string", (5, 9), (5, 9)),
        ("protocol_type", "string", (0, 9)),
        ("protocols", "[]struct", (0, 9), None, None, (
            ("name", "string", (0, 9)),
            ("metadata", "bytes", (0, 9)),
        )),
        ("reason", "string", (8, 9), (8, 9)),
    )),
    "JoinGroupResponse": ((0, 9), 6, (
        ("throttle_time_ms", "int32", (2, 9)),
        ("error_code", "int16", (0, 9)),
        ("generation_id", "int32", (0, 9)),
        ("protocol_type", "string", (7, 9), (7, 9)),
        ("protocol_name", "string", (0, 9), (7, 9)),
        ("leader", "string", (0, 9)),
        ("skip_assignment", "bool", (9, 9)),
        ("member_id", "string", (0, 9)),
        ("members", "[]struct", (0, 9), None, None, (
            ("member_id", "string", (0, 9)),
            ("group_instance_id", "string", (5, 9), (5, 9)),
            ("metadata", "bytes", (0, 9)),
        )),
    )),
    "LeaveGroupRequest": ((0, 5), 4, (
        ("group_id", "string", (0, 5)),
        ("member_id", "string", (0, 2)),
        ("members", "[]struct", (3, 5), None, None, (
            ("member_id", "string", (3, 5)),
            ("group_instance_id", "string", (3, 5), (3, 5)),
            ("reason", "string", (5, 5), (5, 5)),
        )),
    )),
    "LeaveGroupResponse": ((0, 5), 4, (
        ("throttle_time_ms", "int32", (1, 5)),
        ("error_code", "int16", (0, 5)),
        ("members", "[]struct", (3, 5), None, None, (
            ("member_id", "string", (3, 5)),
            ("group_instance_id", "string", (3, 5), (3, 5)),
            ("error_code", "int16", (3, 5)),
        )),
    )),
    "ListGroupsRequest": ((0, 5), 3, (
        ("states_filter", "[]string", (4, 5)),
        ("types_filter", "[]string", (5, 5)),
    )),
    "ListGroupsResponse": ((0, 5), 3, (
        ("throttle_time_ms", "int32", (1, 5)),
        ("error_code", "int16", (0, 5)),
        ("groups", "[]struct", (0, 5), None, None, (
            ("group_id", "string", (0, 5)),
            ("protocol_type", "string", (0, 5)),
            ("group_state", "string", (4, 5)),
            ("group_type", "string", (5, 5)),
        )),
    )),
    "ListOffsetsRequest": ((1, 11), 6, (
        ("replica_id", "int32", (1, 11)),
        ("isolation_level", "int8", (2, 11)),
        ("topics", "[]struct", (1, 11), None, None, (
            ("name", "string", (1, 11)),
            ("partitions", "[]struct", (1, 11), None, None, (
                ("partition_index", "int32", (1, 11)),
                ("current_leader_epoch", "int32", (4, 11)),
                ("timestamp", "int64", (1, 11)),
            )),
        )),
        ("timeout_ms", "int32", (10, 11)),
    )),
    "ListOffsetsResponse": ((1, 11), 6, (
        ("throttle_time_ms", "int32", (2, 11)),
        ("topics", "[]struct", (1, 11), None, None, (
            ("name", "string", (1, 11)),
            ("partitions", "[]struct", (1, 11), None, None, (
                ("partition_index", "int32", (1, 11)),
                ("error_code", "int16", (1, 11)),
                ("timestamp", "int64", (1, 11)),
                ("offset", "int64", (1, 11)),
                ("leader_epoch", "int32", (4, 11)),
            )),
        )),
    )),
    "MetadataRequest": ((0, 13), 9, (
        ("topics", "[]struct", (0, 13), (1, 13), None, (
            ("topic_id", "uuid", (10, 13), (10, 13)),
            ("name", "string", (0, 13), (10, 13)),
        )),
        ("allow_auto_topic_creation", "bool", (4, 13)),
        ("include_cluster_authorized_operations", "bool", (8, 10)),
        ("include_topic_authorized_operations", "bool", (8, 13)),
    )),
    "MetadataResponse": ((0, 13), 9, (
        ("throttle_time_ms", "int32", (3, 13)),
        ("brokers", "[]struct", (0, 13), None, None, (
            ("node_id", "int32", (0, 13)),
            ("host", "string", (0, 13)),
            ("port", "int32", (0, 13)),
            ("rack", "string", (1, 13), (1, 13)),
        )),
        ("cluster_id", "string", (2, 13), (2, 13)),
        ("controller_id", "int32", (1, 13)),
        ("topics", "[]struct", (0, 13), None, None, (
            ("error_code", "int16", (0, 13)),
            ("name", "string", (0, 13), (12, 13)),
            ("topic_id", "uuid", (10, 13), (10, 13)),
            ("is_internal", "bool", (1, 13)),
            ("partitions", "[]struct", (0, 13), None, None, (
                ("error_code", "int16", (0, 13)),
                ("partition_index", "int32", (0, 13)),
                ("leader_id", "int32", (0, 13)),
                ("leader_epoch", "int32", (7, 13)),
                ("replica_nodes", "[]int32", (0, 13)),
                ("isr_nodes", "[]int32", (0, 13)),
                ("offline_replicas", "[]int32", (5, 13)),
            )),
            ("topic_authorized_operations", "int32", (8, 13)),
        )),
        ("cluster_authorized_operations", "int32", (8, 10)),
        ("error_code", "int16", (13, 13)),
    )),
    "OffsetCommitRequest": ((2, 10), 8, (
        ("group_id", "string", (2, 10)),
        ("generation_id_or_member_epoch", "int32", (2, 10)),
        ("member_id", "string", (2, 10)),
        ("retention_time_ms", "int64", (2, 4)),
        ("group_instance_id", "string", (7, 10), (7, 10)),
        ("topics", "[]struct", (2, 10), None, None, (
            ("name", "string", (2, 9)),
            ("topic_id", "uuid", (10, 10), (10, 10)),
            ("partitions", "[]struct", (2, 10), None, None, (
                ("partition_index", "int32", (2, 10)),
                ("committed_offset", "int64", (2, 10)),
                ("committed_leader_epoch", "int32", (6, 10)),
                ("committed_metadata", "string", (2, 10), (2, 10)),
            )),
        )),
    )),
    "OffsetCommitResponse": ((2, 10), 8, (
        ("throttle_time_ms", "int32", (3, 10)),
        ("topics", "[]struct", (2, 10), None, None, (
            ("name", "string", (2, 9)),
            ("topic_id", "uuid", (10, 10), (10, 10)),
            ("partitions", "[]struct", (2, 10), None, None, (
                ("partition_index", "int32", (2, 10)),
                ("error_code", "int16", (2, 10)),
            )),
        )),
    )),
    "OffsetDeleteRequest": ((0, 0), None, (
        ("group_id", "string", (0, 0)),
        ("topics", "[]struct", (0, 0), None, None, (
            ("name", "string", (0, 0)),
            ("partitions", "[]struct", (0, 0), None, None, (
                ("partition_index", "int32", (0, 0)),
            )),
        )),
    )),
    "OffsetDeleteResponse": ((0, 0), None, (
        ("error_code", "int16", (0, 0)),
        ("throttle_time_ms", "int32", (0, 0)),
        ("topics", "[]struct", (0, 0), None, None, (
            ("name", "string", (0, 0)),
            ("partitions", "[]struct", (0, 0), None, None, (
                ("partition_index", "int32", (0, 0)),
                ("error_code", "int16", (0, 0)),
            )),
        )),
    )),
    "OffsetFetchRequest": ((1, 10), 6, (
        ("group_id", "string", (1, 7)),
        ("topics", "[]struct", (1, 7), (2, 7), None, (
            ("name", "string", (1, 7)),
            ("partition_indexes", "[]int32", (1, 7)),
        )),
        ("groups", "[]struct", (8, 10), None, None, (
            ("group_id", "string", (8, 10)),
            ("member_id", "string", (9, 10), (9, 10)),
            ("member_epoch", "int32", (9, 10)),
            ("topics", "[]struct", (8, 10), (8, 10), None, (
                ("name", "string", (8, 9)),
                ("topic_id", "uuid", (10, 10), (10, 10)),
                ("partition_indexes", "[]int32", (8, 10)),
            )),
        )),
        ("require_stable", "bool", (7, 10)),
    )),
    "OffsetFetchResponse": ((1, 10), 6, (
        ("throttle_time_ms", "int32", (3, 10)),
        ("topics", "[]struct", (1, 7), None, None, (
            ("name", "string", (1, 7)),
            ("partitions", "[]struct", (1, 7), None, None, (
                ("partition_index", "int32", (1, 7)),
                ("committed_offset", "int64", (1, 7)),
                ("committed_leader_epoch", "int32", (5, 7)),
                ("metadata", "string", (1, 7), (1, 7)),
                ("error_code", "int16", (1, 7)),
            )),
        )),
        ("error_code", "int16", (2, 7)),
        ("groups", "[]struct", (8, 10), None, None, (
            ("group_id", "string", (8, 10)),
            ("topics", "[]struct", (8, 10), None, None, (
                ("name", "string", (8, 9)),
                ("topic_id", "uuid", (10, 10), (10, 10)),
                ("partitions", "[]struct", (8, 10), None, None, (
                    ("partition_index", "int32", (8, 10)),
                    ("committed_offset", "int64", (8, 10)),
                    ("committed_leader_epoch", "int32", (8, 10)),
                    ("metadata", "string", (8, 10), (8, 10)),
                    ("error_code", "int16", (8, 10)),
                )),
            )),
            ("error_code", "int16", (8, 10)),
        )),
    )),
    "OffsetForLeaderEpochRequest": ((2, 4), 4, (
        ("replica_id", "int32", (3, 4)),
        ("topics", "[]struct", (2, 4), None, None, (
            ("topic", "string", (2, 4)),
            ("partitions", "[]struct", (2, 4), None, None, (
                ("partition", "int32", (2, 4)),
                ("current_leader_epoch", "int32", (2, 4)),
                ("leader_epoch", "int32", (2, 4)),
            )),
        )),
    )),
    "OffsetForLeaderEpochResponse": ((2, 4), 4, (
        ("throttle_time_ms", "int32", (2, 4)),
        ("topics", "[]struct", (2, 4), None, None, (
            ("topic", "string", (2, 4)),
            ("partitions", "[]struct", (2, 4), None, None, (
                ("error_code", "int16", (2, 4)),
                ("partition", "int32", (2, 4)),
                ("leader_epoch", "int32", (2, 4)),
                ("end_offset", "int64", (2, 4)),
            )),
        )),
    )),
    "ProduceRequest": ((3, 13), 9, (
        ("transactional_id", "string", (3, 13), (3, 13)),
        ("acks", "int16", (3, 13)),
        ("timeout_ms", "int32", (3, 13)),
        ("topic_data", "[]struct", (3, 13), None, None, (
            ("name", "string", (3, 12)),
            ("topic_id", "uuid", (13, 13), (13, 13)),
            ("partition_data", "[]struct", (3, 13), None, None, (
                ("index", "int32", (3, 13)),
                ("records", "bytes", (3, 13), (3, 13)),
            )),
        )),
    )),
    "ProduceResponse": ((3, 13), 9, (
        ("responses", "[]struct", (3, 13), None, None, (
            ("name", "string", (3, 12)),
            ("topic_id", "uuid", (13, 13), (13, 13)),
            ("partition_responses", "[]struct", (3, 13), None, None, (
                ("index", "int32", (3, 13)),
                ("error_code", "int16", (3, 13)),
                ("base_offset", "int64", (3, 13)),
                ("log_append_time_ms", "int64", (3, 13), (3, 13)),
                ("log_start_offset", "int64", (5, 13)),
                ("record_errors", "[]struct", (8, 13), None, None, (
                    ("batch_index", "int32", (8, 13)),
                    ("batch_index_error_message", "string", (8, 13), (8, 13)),
                )),
                ("error_message", "string", (8, 13), (8, 13)),
                ("current_leader", "struct", (10, 13), None, 0, (
                    ("leader_id", "int32", (10, 13)),
                    ("leader_epoch", "int32", (10, 13)),
                )),
            )),
        )),
        ("throttle_time_ms", "int32", (3, 13)),
        ("node_endpoints", "[]struct", (10, 13), None, 0, (
            ("node_id", "int32", (10, 13)),
            ("host", "string", (10, 13)),
            ("port", "int32", (10, 13)),
            ("rack", "string", (10, 13), (10, 13)),
        )),
    )),
    "PushTelemetryRequest": ((0, 0), 0, (
        ("client_instance_id", "uuid", (0, 0), (0, 0)),
        ("subscription_id", "int32", (0, 0)),
        ("terminating", "bool", (0, 0)),
        ("compression_type", "int8", (0, 0)),
        ("metrics", "bytes", (0, 0)),
    )),
    "PushTelemetryResponse": ((0, 0), 0, (
        ("throttle_time_ms", "int32", (0, 0)),
        ("error_code", "int16", (0, 0)),
    )),
    "SaslAuthenticateRequest": ((0, 2), 2, (
        ("auth_bytes", "bytes", (0, 2)),
    )),
    "SaslAuthenticateResponse": ((0, 2), 2, (
        ("error_code", "int16", (0, 2)),
        ("error_message", "string", (0, 2), (0, 2)),
        ("auth_bytes", "bytes", (0, 2)),
        ("session_lifetime_ms", "int64", (1, 2)),
    )),
    "SaslHandshakeRequest": ((0, 1), None, (
        ("mechanism", "string", (0, 1)),
    )),
    "SaslHandshakeResponse": ((0, 1), None, (
        ("error_code", "int16", (0, 1)),
        ("mechanisms", "[]string", (0, 1)),
    )),
    "ShareAcknowledgeRequest": ((1, 2), 1, (
        ("group_id", "string", (1, 2), (1, 2)),
        ("member_id", "string", (1, 2), (1, 2)),
        ("share_session_epoch", "int32", (1, 2)),
        ("is_renew_ack", "bool", (2, 2)),
        ("topics", "[]struct", (1, 2), None, None, (
            ("topic_id", "uuid", (1, 2), (1, 2)),
            ("partitions", "[]struct", (1, 2), None, None, (
                ("partition_index", "int32", (1, 2)),
                ("acknowledgement_batches", "[]struct", (1, 2), None, None, (
                    ("first_offset", "int64", (1, 2)),
                    ("last_offset", "int64", (1, 2)),
                    ("acknowledge_types", "[]int8", (1, 2)),
                )),
            )),
        )),
    )),
    "ShareAcknowledgeResponse": ((1, 2), 1, (
        ("throttle_time_ms", "int32", (1, 2)),
        ("error_code", "int16", (1, 2)),
        ("error_message", "string", (1, 2), (1, 2)),
        ("acquisition_lock_timeout_ms", "int32", (2, 2)),
        ("responses", "[]struct", (1, 2), None, None, (
            ("topic_id", "uuid", (1, 2), (1, 2)),
            ("partitions", "[]struct", (1, 2), None, None, (
                ("partition_index", "int32", (1, 2)),
                ("error_code", "int16", (1, 2)),
                ("error_message", "string", (1, 2), (1, 2)),
                ("current_leader", "struct", (1, 2), None, None, (
                    ("leader_id", "int32", (1, 2)),
                    ("leader_epoch", "int32", (1, 2)),
                )),
            )),
        )),
        ("node_endpoints", "[]struct", (1, 2), None, None, (
            ("node_id", "int32", (1, 2)),
            ("host", "string", (1, 2)),
            ("port", "int32", (1, 2)),
            ("rack", "string", (1, 2), (1, 2)),
        )),
    )),
    "ShareFetchRequest": ((1, 2), 1, (
        ("group_id", "string", (1, 2), (1, 2)),
        ("member_id", "string", (1, 2), (1, 2)),
        ("share_session_epoch", "int32", (1, 2)),
        ("max_wait_ms", "int32", (1, 2)),
        ("min_bytes", "int32", (1, 2)),
        ("max_bytes", "int32", (1, 2)),
        ("max_records", "int32", (1, 2)),
        ("batch_size", "int32", (1, 2)),
        ("share_acquire_mode", "int8", (2, 2)),
        ("is_renew_ack", "bool", (2, 2)),
        ("topics", "[]struct", (1, 2), None, None, (
            ("topic_id", "uuid", (1, 2), (1, 2)),
            ("partitions", "[]struct", (1, 2), None, None, (
                ("partition_index", "int32", (1, 2)),
                ("acknowledgement_batches", "[]struct", (1, 2), None, None, (
                    ("first_offset", "int64", (1, 2)),
                    ("last_offset", "int64", (1, 2)),
                    ("acknowledge_types", "[]int8", (1, 2)),
                )),
            )),
        )),
        ("forgotten_topics_data", "[]struct", (1, 2), None, None, (
            ("topic_id", "uuid", (1, 2), (1, 2)),
            ("partitions", "[]int32", (1, 2)),
        )),
    )),
    "ShareFetchResponse": ((1, 2), 1, (
        ("throttle_time_ms", "int32", (1, 2)),
        ("error_code", "int16", (1, 2)),
        ("error_message", "string", (1, 2), (1, 2)),
        ("acquisition_lock_timeout_ms", "int32", (1, 2)),
        ("responses", "[]struct", (1, 2), None, None, (
            ("topic_id", "uuid", (1, 2), (1, 2)),
            ("partitions", "[]struct", (1, 2), None, None, (
                ("partition_index", "int32", (1, 2)),
                ("error_code", "int16", (1, 2)),
                ("error_message", "string", (1, 2), (1, 2)),
                ("acknowledge_error_code", "int16", (1, 2)),
                ("acknowledge_error_message", "string", (1, 2), (1, 2)),
                ("current_leader", "struct", (1, 2), None, None, (
                    ("leader_id", "int32", (1, 2)),
                    ("leader_epoch", "int32", (1, 2)),
                )),
                ("records", "bytes", (1, 2)),
                ("acquired_records", "[]struct", (1, 2), None, None, (
                    ("first_offset", "int64", (1, 2)),
                    ("last_offset", "int64", (1, 2)),
                    ("delivery_count", "int16", (1, 2)),
                )),
            )),
        )),
        ("node_endpoints", "[]struct", (1, 2), None, None, (
            ("node_id", "int32", (1, 2)),
            ("host", "string", (1, 2)),
            ("port", "int32", (1, 2)),
            ("rack", "string", (1, 2), (1, 2)),
        )),
    )),
    "ShareGroupDescribeRequest": ((1, 1), 1, (
        ("group_ids", "[]string", (1, 1)),
        ("include_authorized_operations", "bool", (1, 1)),
    )),
    "ShareGroupDescribeResponse": ((1, 1), 1, (
        ("throttle_time_ms", "int32", (1, 1)),
        ("groups", "[]struct", (1, 1), None, None, (
            ("error_code", "int16", (1, 1)),
            ("error_message", "string", (1, 1), (1, 1)),
            ("group_id", "string", (1, 1)),
            ("group_state", "string", (1, 1)),
            ("group_epoch", "int32", (1, 1)),
            ("assignment_epoch", "int32", (1, 1)),
            ("assignor_name", "string", (1, 1)),
            ("members", "[]struct", (1, 1), None, None, (
                ("member_id", "string", (1, 1)),
                ("rack_id", "string", (1, 1), (1, 1)),
                ("member_epoch", "int32", (1, 1)),
                ("client_id", "string", (1, 1)),
                ("client_host", "string", (1, 1)),
                ("subscribed_topic_names", "[]string", (1, 1)),
                ("assignment", "struct", (1, 1), None, None, (
                    ("topic_partitions", "[]struct", (1, 1), None, None, (
                        ("topic_id", "uuid", (1, 1), (1, 1)),
                        ("topic_name", "string", (1, 1)),
                        ("partitions", "[]int32", (1, 1)),
                    )),
                )),
            )),
            ("authorized_operations", "int32", (1, 1)),
        )),
    )),
    "ShareGroupHeartbeatRequest": ((1, 1), 1, (
        ("group_id", "string", (1, 1)),
        ("member_id", "string", (1, 1)),
        ("member_epoch", "int32", (1, 1)),
        ("rack_id", "string", (1, 1), (1, 1)),
        ("subscribed_topic_names", "[]string", (1, 1), (1, 1)),
    )),
    "ShareGroupHeartbeatResponse": ((1, 1), 1, (
        ("throttle_time_ms", "int32", (1, 1)),
        ("error_code", "int16", (1, 1)),
        ("error_message", "string", (1, 1), (1, 1)),
        ("member_id", "string", (1, 1), (1, 1)),
        ("member_epoch", "int32", (1, 1)),
        ("heartbeat_interval_ms", "int32", (1, 1)),
        ("assignment", "struct", (1, 1), (1, 1), None, (
            ("topic_partitions", "[]struct", (1, 1), None, None, (
                ("topic_id", "uuid", (1, 1), (1, 1)),
                ("partitions", "[]int32", (1, 1)),
            )),
        )),
    )),
    "SyncGroupRequest": ((0, 5), 4, (
        ("group_id", "string", (0, 5)),
        ("generation_id", "int32", (0, 5)),
        ("member_id", "string", (0, 5)),
        ("group_instance_id", "string", (3, 5), (3, 5)),
        ("protocol_type", "string", (5, 5), (5, 5)),
        ("protocol_name", "string", (5, 5), (5, 5)),
        ("assignments", "[]struct", (0, 5), None, None, (
            ("member_id", "string", (0, 5)),
            ("assignment", "bytes", (0, 5)),
        )),
    )),
    "SyncGroupResponse": ((0, 5), 4, (
        ("throttle_time_ms", "int32", (1, 5)),
        ("error_code", "int16", (0, 5)),
        ("protocol_type", "string", (5, 5), (5, 5)),
        ("protocol_name", "string", (5, 5), (5, 5)),
        ("assignment", "bytes", (0, 5)),
    )),
    "TxnOffsetCommitRequest": ((0, 5), 3, (
        ("transactional_id", "string", (0, 5)),
        ("group_id", "string", (0, 5)),
        ("producer_id", "int64", (0, 5)),
        ("producer_epoch", "int16", (0, 5)),
        ("generation_id", "int32", (3, 5)),
        ("member_id", "string", (3, 5)),
        ("group_instance_id", "string", (3, 5), (3, 5)),
        ("topics", "[]struct", (0, 5), None, None, (
            ("name", "string", (0, 5)),
            ("partitions", "[]struct", (0, 5), None, None, (
                ("partition_index", "int32", (0, 5)),
                ("committed_offset", "int64", (0, 5)),
                ("committed_leader_epoch", "int32", (2, 5)),
                ("committed_metadata", "string", (0, 5), (0, 5)),
            )),
        )),
    )),
    "TxnOffsetCommitResponse": ((0, 5), 3, (
        ("throttle_time_ms", "int32", (0, 5)),
        ("topics", "[]struct", (0, 5), None, None, (
            ("name", "string", (0, 5)),
            ("partitions", "[]struct", (0, 5), None, None, (
                ("partition_index", "int32", (0, 5)),
                ("error_code", "int16", (0, 5)),
            )),
        )),
    )),
}
"""Each message by its name: versions, the first flexible one, fields."""
