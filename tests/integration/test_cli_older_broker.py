"""The command line on a broker of the 3.x line."""

import uuid

import pytest

pytest.importorskip("typer")

from tests.brokers import KafkaCluster

from .cli import consume, filled, is_not_made_if_mistyped, is_unknown, lines, member, run

pytestmark = pytest.mark.brokers


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


def test_an_older_broker_is_asked_in_the_classic_way(kafka39: KafkaCluster, group: str) -> None:
    topic = filled(kafka39)
    with member(kafka39, topic, group, "-X", "enable.auto.commit=false"):
        (found,) = lines(run(kafka39, "groups", "describe", group, "--json"))
        listed = lines(run(kafka39, "groups", "list", "--json"))

    assert (found["type"], found["state"], len(found["members"])) == ("classic", "Stable", 1)
    assert [row["end"] for row in found["partitions"]] == [10, 10]
    assert group in {line["group"] for line in listed}


def test_a_group_of_an_older_broker_is_shown_and_moved(kafka39: KafkaCluster, group: str) -> None:
    topic = filled(kafka39, partitions=1)
    consume(kafka39, topic, group, "-e")
    assert run(kafka39, "offsets", "reset", group, "-t", topic, "--shift-by", "-2", "--execute").exit_code == 0

    (row,) = lines(run(kafka39, "offsets", "show", group, "--json"))
    assert (row["committed"], row["end"], row["lag"]) == (18, 20, 2)
    assert consume(kafka39, topic, group, "-e").stdout.split() == ["0/18", "0/19"]


@pytest.mark.parametrize("command", [("groups", "describe"), ("offsets", "show")])
def test_a_group_that_does_not_exist_is_one_line_and_exit_code_1(
    kafka39: KafkaCluster, command: tuple[str, str], group: str
) -> None:
    is_unknown(kafka39, command, group)


def test_a_mistyped_group_is_not_made(kafka39: KafkaCluster, group: str) -> None:
    is_not_made_if_mistyped(kafka39, group)
