"""The highest versions that brokers of some releases accept, as far as this package speaks them.

Decides: nothing. Source: ``ApiKeys`` of the releases named. Telemetry (KIP-714) is offered only by brokers with a plugin for it, so
a test that wants it says so: ``WITH_TELEMETRY``.
"""

from collections.abc import Mapping

from kafka_async.wire import SUPPORTED, Api

WITH_TELEMETRY: Mapping[Api, int] = {api: spoken.highest for api, spoken in SUPPORTED.items()}

KAFKA_4_3: Mapping[Api, int] = {
    api: version for api, version in WITH_TELEMETRY.items() if api not in (Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY)
}

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
}
