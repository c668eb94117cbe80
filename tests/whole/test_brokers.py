"""The broker harness itself: all Kafka versions start, serve, and come back with their data."""

import pytest

from tests.brokers import CURRENT, OLDER, PREVIOUS, KafkaCluster, available, required

pytestmark = [pytest.mark.brokers, pytest.mark.slow]


@pytest.mark.parametrize("version", [CURRENT, PREVIOUS, OLDER])
def test_broker_keeps_topics_and_records_over_a_restart(version: str) -> None:
    reason = available()
    if reason is not None and not required():
        pytest.skip(reason)
    with KafkaCluster(version) as cluster:
        cluster.create_topic("kept", 2)
        cluster.create_topic("dropped")
        produced = cluster.produce("kept", 10, partitions=2, codec="lz4", keys=lambda index: b"%d" % index)
        assert produced.offsets == {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4]}
        address = cluster.bootstrap_servers
        cluster.restart(0)
        cluster.delete_topics("dropped")

        assert cluster.bootstrap_servers == address
        assert "kept" in cluster.admin.list_topics(timeout=10).topics
        assert "dropped" not in cluster.admin.list_topics(timeout=10).topics
        assert cluster.produce("kept", 1).offsets == {0: [5]}
    assert cluster.pid(0) is None
