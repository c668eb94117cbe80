"""The command line on a cluster of three brokers: what only all of them together know."""

import time
from typing import Any

import pytest

pytest.importorskip("typer")

from tests.brokers import KafkaCluster

from .cli import filled, lines, run
from .tools import PATIENCE, wait_until

pytestmark = pytest.mark.brokers


def test_groups_of_all_brokers_are_listed(kafka_cluster3: KafkaCluster) -> None:
    topic = filled(kafka_cluster3, partitions=1)
    names = [f"g{number}-{topic}" for number in range(6)]  # enough to have several coordinators
    for name in names:
        assert run(kafka_cluster3, "offsets", "reset", name, "-t", topic, "--to-latest", "--execute", "--create").exit_code == 0
    until = time.monotonic() + PATIENCE
    while len({kafka_cluster3.coordinator(name) for name in names}) == 1 and time.monotonic() < until:
        kafka_cluster3.spread_leaders()

    def all_of_them() -> list[Any]:
        found = [group for group in lines(run(kafka_cluster3, "groups", "list", "--json")) if group["group"] in names]
        return found if [group["group"] for group in found] == names else []

    found = wait_until(all_of_them)  # a group whose coordinator is moving just now is listed by nobody
    assert {group["state"] for group in found} == {"Empty"}
    assert len({kafka_cluster3.coordinator(name) for name in names}) > 1
