"""The highest versions that brokers of some releases accept, as far as this package speaks them.

Source: ``ApiKeys`` of those releases. Only brokers with a plugin for it offer telemetry (KIP-714), so a test that wants it asks for
``WITH_TELEMETRY``.
"""

from collections.abc import Mapping

from ...wire import SUPPORTED, Api

WITH_TELEMETRY: Mapping[Api, int] = {api: spoken.highest for api, spoken in SUPPORTED.items()}

KAFKA_4_4: Mapping[Api, int] = {
    api: version for api, version in WITH_TELEMETRY.items() if api not in (Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY)
}

KAFKA_4_3: Mapping[Api, int] = {**KAFKA_4_4, Api.API_VERSIONS: 4}

KAFKA_3_9: Mapping[Api, int] = {
    Api.FETCH: 17,
    Api.LIST_OFFSETS: 9,
    Api.METADATA: 12,
    Api.OFFSET_COMMIT: 9,
    Api.OFFSET_FETCH: 9,
    Api.FIND_COORDINATOR: 6,
    Api.API_VERSIONS: 4,
    Api.OFFSET_FOR_LEADER_EPOCH: 4,
    Api.DESCRIBE_CONFIGS: 4,
    Api.PRODUCE: 11,
    Api.JOIN_GROUP: 9,
    Api.HEARTBEAT: 4,
    Api.LEAVE_GROUP: 5,
    Api.SYNC_GROUP: 5,
    Api.DESCRIBE_GROUPS: 5,
    Api.LIST_GROUPS: 5,
    Api.CREATE_TOPICS: 7,
    Api.DELETE_TOPICS: 6,
    Api.DELETE_RECORDS: 2,
    Api.CREATE_PARTITIONS: 3,
    Api.DELETE_GROUPS: 2,
    Api.OFFSET_DELETE: 0,
    Api.INIT_PRODUCER_ID: 5,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 4,
    Api.END_TXN: 4,
    Api.TXN_OFFSET_COMMIT: 4,
    Api.INCREMENTAL_ALTER_CONFIGS: 1,
    Api.DESCRIBE_CLUSTER: 1,
}

KAFKA_2_8: Mapping[Api, int] = {
    Api.FETCH: 12,
    Api.LIST_OFFSETS: 6,
    Api.METADATA: 11,
    Api.OFFSET_COMMIT: 8,
    Api.OFFSET_FETCH: 7,
    Api.FIND_COORDINATOR: 3,
    Api.API_VERSIONS: 3,
    Api.OFFSET_FOR_LEADER_EPOCH: 4,
    Api.DESCRIBE_CONFIGS: 4,
    Api.PRODUCE: 9,
    Api.JOIN_GROUP: 7,
    Api.HEARTBEAT: 4,
    Api.LEAVE_GROUP: 4,
    Api.SYNC_GROUP: 5,
    Api.DESCRIBE_GROUPS: 5,
    Api.LIST_GROUPS: 4,
    Api.CREATE_TOPICS: 7,
    Api.DELETE_TOPICS: 6,
    Api.DELETE_RECORDS: 2,
    Api.CREATE_PARTITIONS: 3,
    Api.DELETE_GROUPS: 2,
    Api.OFFSET_DELETE: 0,
    Api.INIT_PRODUCER_ID: 4,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
    Api.INCREMENTAL_ALTER_CONFIGS: 1,
    Api.DESCRIBE_CLUSTER: 0,
}

KAFKA_2_1: Mapping[Api, int] = {
    Api.FETCH: 10,
    Api.LIST_OFFSETS: 4,
    Api.METADATA: 7,
    Api.OFFSET_COMMIT: 6,
    Api.OFFSET_FETCH: 5,
    Api.FIND_COORDINATOR: 2,
    Api.API_VERSIONS: 2,
    Api.OFFSET_FOR_LEADER_EPOCH: 2,
    Api.DESCRIBE_CONFIGS: 2,
    Api.PRODUCE: 7,
    Api.JOIN_GROUP: 3,
    Api.HEARTBEAT: 2,
    Api.LEAVE_GROUP: 2,
    Api.SYNC_GROUP: 2,
    Api.DESCRIBE_GROUPS: 2,
    Api.LIST_GROUPS: 2,
    Api.CREATE_TOPICS: 3,
    Api.DELETE_TOPICS: 3,
    Api.DELETE_RECORDS: 1,
    Api.CREATE_PARTITIONS: 1,
    Api.DELETE_GROUPS: 1,
    Api.INIT_PRODUCER_ID: 1,
    Api.ADD_PARTITIONS_TO_TXN: 1,
    Api.ADD_OFFSETS_TO_TXN: 1,
    Api.END_TXN: 1,
    Api.TXN_OFFSET_COMMIT: 2,
}

RELEASES: Mapping[str, Mapping[Api, int]] = {
    "4.4": KAFKA_4_4,
    "4.3": KAFKA_4_3,
    "3.9": KAFKA_3_9,
    "2.8": KAFKA_2_8,
    "2.1": KAFKA_2_1,
}
"""The values that ``Cluster(kafka=...)`` takes."""
