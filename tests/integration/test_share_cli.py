"""The command line with share groups on a real broker: reading, the group's settings, its lag, moving it."""

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("typer")

from typer.testing import Result

from tests.brokers import KafkaCluster

from .cli import invoke, lines
from .share import member

pytestmark = pytest.mark.brokers


@pytest.fixture
def topic(kafka_share: KafkaCluster) -> str:
    """A topic of one partition with ten records."""
    name = kafka_share.create_topic(f"cli-{uuid4().hex[:8]}")
    kafka_share.produce(name, 10)
    return name


def run(cluster: KafkaCluster, *arguments: str) -> Result:
    return invoke(*arguments, "-b", cluster.bootstrap_servers)


def consume(cluster: KafkaCluster, topic: str, *arguments: str) -> list[int]:
    result = run(cluster, "share", "consume", topic, "-G", topic, "-f", r"%o\n", *arguments)
    assert result.exit_code == 0, result.stderr
    return [int(line) for line in result.stdout.split()]


def lag(cluster: KafkaCluster, topic: str) -> int | None:
    """Return the lag; the start that brokers tell with it is the one that they wrote down last, which may be older."""
    (row,) = lines(run(cluster, "offsets", "show", topic, "--json"))
    found: int | None = row["lag"]
    return found


def test_records_are_accepted_released_and_rejected(kafka_share: KafkaCluster, topic: str) -> None:
    settings = lines(run(kafka_share, "groups", "configure", topic, "share.auto.offset.reset=earliest", "--json"))
    assert {"group": topic, "setting": "share.auto.offset.reset", "value": "earliest", "own": True} in settings
    assert consume(kafka_share, topic, "-c", "3") == [0, 1, 2]
    assert consume(kafka_share, topic, "--release", "-c", "2") == [3, 4]
    assert consume(kafka_share, topic, "--reject", "-c", "2") == [3, 4]
    assert consume(kafka_share, topic, "--accept", "--timeout", "2") == [5, 6, 7, 8, 9]
    assert lag(kafka_share, topic) == 0


def test_a_group_that_gives_no_partitions_is_an_error_and_not_a_topic_without_records(kafka44: KafkaCluster) -> None:
    """The broker cannot create the topic of share groups, whose replication factor is 3 by default."""
    name = kafka44.create_topic(f"cli-{uuid4().hex[:8]}")

    began = time.monotonic()
    result = run(kafka44, "share", "consume", name, "-G", name, "--timeout", "1")

    assert time.monotonic() - began < 25
    assert (result.exit_code, result.stdout) == (1, "")
    said = result.stderr.splitlines()
    assert len([line for line in said if "share.coordinator.state.topic.replication.factor is 3" in line]) == 1
    assert said[-1] == "kafka-async: the group has given us no partitions within 10 s"


def test_a_group_is_listed_described_and_moved(kafka_share: KafkaCluster, topic: str) -> None:
    run(kafka_share, "groups", "configure", topic, "share.auto.offset.reset=earliest")
    assert consume(kafka_share, topic, "-c", "4") == [0, 1, 2, 3]
    listed = lines(run(kafka_share, "groups", "list", "--json"))
    assert {"group": topic, "type": "share", "protocol": "share", "state": "Empty"} in listed
    (group,) = lines(run(kafka_share, "groups", "describe", topic, "--json"))
    assert (group["type"], group["members"]) == ("share", [])
    assert [row["lag"] for row in group["partitions"]] == [6]
    table = run(kafka_share, "groups", "describe", topic).stdout
    assert "START" in table
    assert lag(kafka_share, topic) == 6
    dry = lines(run(kafka_share, "offsets", "reset", topic, "-t", topic, "--to-earliest", "--json"))
    assert [(row["new"], row["committed"]) for row in dry] == [(0, False)]
    assert lag(kafka_share, topic) == 6
    lines(run(kafka_share, "offsets", "reset", topic, "-t", topic, "--to-offset", "2", "--execute", "--json"))
    assert lag(kafka_share, topic) == 8
    assert consume(kafka_share, topic, "-c", "2") == [2, 3]
    assert run(kafka_share, "offsets", "forget", topic, "-t", topic, "--execute").exit_code == 0
    assert consume(kafka_share, topic, "-c", "1") == [0]


def test_a_group_in_use_is_not_moved(kafka_share: KafkaCluster, topic: str) -> None:
    async def main() -> tuple[Result, list[dict[str, Any]]]:
        async with member(kafka_share, topic, topic, client_id="in-use"):
            moved = await asyncio.to_thread(run, kafka_share, "offsets", "reset", topic, "-t", topic, "--to-latest", "--execute")
            return moved, lines(await asyncio.to_thread(run, kafka_share, "groups", "describe", topic, "--json"))

    moved, (group,) = asyncio.run(main())
    assert moved.exit_code == 1
    assert "is in use by 1 member" in moved.stderr
    assert [(each["client_id"], each["partitions"]) for each in group["members"]] == [
        ("in-use", [{"topic": topic, "partition": 0}])
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("share", "consume", "t", "-G", "g", "--accept", "--reject"), "--accept and --reject do not go together"),
        (("share", "consume", "t", "-G", "g", "-X", "isolation.level=read_committed"), "share.isolation.level"),
        (("groups", "configure", "g", "share.auto.offset.reset"), "expected SETTING=VALUE"),
    ],
)
def test_wrong_usage_is_refused(kafka_share: KafkaCluster, arguments: tuple[str, ...], expected: str) -> None:
    result = run(kafka_share, *arguments)
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())


def test_a_setting_that_brokers_do_not_know_is_named(kafka_share: KafkaCluster) -> None:
    result = run(kafka_share, "groups", "configure", f"g-{uuid4().hex[:6]}", "share.auto.offset.reset=sometimes")
    assert result.exit_code == 1
    assert "sometimes" in result.stderr


def test_dead_letters_are_set_up_and_described(kafka_share: KafkaCluster, topic: str) -> None:
    letters = f"dlq.{topic}"
    begin = "share.auto.offset.reset=earliest"
    early = run(kafka_share, "groups", "configure", topic, begin, f"errors.deadletterqueue.topic.name={letters}", "--json")
    assert f"no dead letters are written to {letters}: the topic does not exist" in early.stderr
    assert {"group": topic, "setting": "errors.deadletterqueue.topic.name", "value": letters, "own": True} in lines(early)

    kafka_share.create_topic(letters)
    forbidden = run(kafka_share, "groups", "configure", topic, f"errors.deadletterqueue.topic.name={letters}")
    assert "the topic does not have errors.deadletterqueue.group.enable=true" in forbidden.stderr

    kafka_share.alter_config("topic", letters, {"errors.deadletterqueue.group.enable": "true"})
    allowed = run(
        kafka_share,
        "groups",
        "configure",
        topic,
        f"errors.deadletterqueue.topic.name={letters}",
        "errors.deadletterqueue.copy.record.enable=true",
    )
    assert (allowed.exit_code, allowed.stderr) == (0, "")

    assert consume(kafka_share, topic, "--reject", "-c", "2") == [0, 1]
    (described,) = lines(run(kafka_share, "groups", "describe", topic, "--json"))
    assert described["dead_letters"] == {"topic": letters, "with_records": True, "problem": None}
    assert f"Dead letters: to {letters}, with the records\n" in run(kafka_share, "groups", "describe", topic).stdout
    found = run(kafka_share, "consume", letters, "-o", "beginning", "-c", "2", "-J")
    assert [each["headers"][4:6] for each in lines(found)] == [["__dlq.errors.offset", "0"], ["__dlq.errors.offset", "1"]]


def test_a_name_that_brokers_refuse_for_dead_letters_is_named(kafka_share: KafkaCluster, topic: str) -> None:
    result = run(kafka_share, "groups", "configure", topic, f"errors.deadletterqueue.topic.name=__{topic}")
    assert result.exit_code == 1
    assert "must not start with '__'" in result.stderr
