"""The broker harness itself: all Kafka versions start, serve, and come back with their data."""

import subprocess
import sys

import pytest

from tests.brokers import CURRENT, OLDER, PORTS_OF_A_BLOCK, PREVIOUS, KafkaCluster, available, free_ports, required

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


def test_processes_take_ports_of_their_own() -> None:
    """A port that was probed is taken only once its broker starts: another process might probe it in between."""
    ours = free_ports(50)
    program = "from tests.brokers import free_ports; print(*free_ports(50))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603  # fixed words
    theirs = list(map(int, done.stdout.split()))

    assert len({*ours, *theirs}) == 100
    assert len({*ours, *free_ports(PORTS_OF_A_BLOCK)}) == 50 + PORTS_OF_A_BLOCK
