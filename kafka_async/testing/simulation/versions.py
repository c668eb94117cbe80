"""The highest versions that brokers of some releases accept, as far as this package speaks them.

Source: ``ApiKeys`` of those releases. Only brokers with a plugin for it offer telemetry (KIP-714), so a test that wants it asks for
``WITH_TELEMETRY``.
"""

from collections.abc import Mapping
from typing import Final

from ...wire import SUPPORTED, Api

WITH_TELEMETRY: Mapping[Api, int] = {api: spoken.highest for api, spoken in SUPPORTED.items()}

KAFKA_4_4: Mapping[Api, int] = {
    api: version for api, version in WITH_TELEMETRY.items() if api not in (Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY)
}

KAFKA_4_3: Mapping[Api, int] = {**KAFKA_4_4, Api.API_VERSIONS: 4}

_OLDER: Final[Mapping[Api, tuple[int | None, ...]]] = {
    Api.FETCH: (17, 12, 10),
    Api.LIST_OFFSETS: (9, 6, 4),
    Api.METADATA: (12, 11, 7),
    Api.OFFSET_COMMIT: (9, 8, 6),
    Api.OFFSET_FETCH: (9, 7, 5),
    Api.FIND_COORDINATOR: (6, 3, 2),
    Api.API_VERSIONS: (4, 3, 2),
    Api.OFFSET_FOR_LEADER_EPOCH: (4, 4, 2),
    Api.DESCRIBE_CONFIGS: (4, 4, 2),
    Api.PRODUCE: (11, 9, 7),
    Api.JOIN_GROUP: (9, 7, 3),
    Api.HEARTBEAT: (4, 4, 2),
    Api.LEAVE_GROUP: (5, 4, 2),
    Api.SYNC_GROUP: (5, 5, 2),
    Api.DESCRIBE_GROUPS: (5, 5, 2),
    Api.LIST_GROUPS: (5, 4, 2),
    Api.CREATE_TOPICS: (7, 7, 3),
    Api.DELETE_TOPICS: (6, 6, 3),
    Api.DELETE_RECORDS: (2, 2, 1),
    Api.CREATE_PARTITIONS: (3, 3, 1),
    Api.DELETE_GROUPS: (2, 2, 1),
    Api.OFFSET_DELETE: (0, 0, None),
    Api.INIT_PRODUCER_ID: (5, 4, 1),
    Api.ADD_PARTITIONS_TO_TXN: (3, 3, 1),
    Api.ADD_OFFSETS_TO_TXN: (4, 3, 1),
    Api.END_TXN: (4, 3, 1),
    Api.TXN_OFFSET_COMMIT: (4, 3, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: (1, 1, None),
    Api.DESCRIBE_CLUSTER: (1, 0, None),
}
"""API -> its highest version in 3.9, in 2.8 and in 2.1."""
KAFKA_3_9, KAFKA_2_8, KAFKA_2_1 = (
    {api: highest for api, row in _OLDER.items() if (highest := row[place]) is not None} for place in range(3)
)

RELEASES: Mapping[str, Mapping[Api, int]] = {
    "4.4": KAFKA_4_4,
    "4.3": KAFKA_4_3,
    "3.9": KAFKA_3_9,
    "2.8": KAFKA_2_8,
    "2.1": KAFKA_2_1,
}
"""The values that ``Cluster(kafka=...)`` takes."""
