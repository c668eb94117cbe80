import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("typer")

from typer.testing import CliRunner, Result

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.adapters.admin import Client, DeadLetterTopic, DescribedMember, Group
from kafka_async.adapters.cli.commands import app
from kafka_async.adapters.cli.done_maps import Committed
from kafka_async.adapters.cli.groups import KnownLag, description, description_json, ends_of, names_of, progress
from kafka_async.application.processing.encoding import encode
from kafka_async.config import ConsumerConfig
from kafka_async.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from kafka_async.model import Node
from kafka_async.sync import KafkaConsumer, ShareConsumer
from kafka_async.testing import HANG, Api, Cluster, ThreadedCluster
from kafka_async.testing.simulation import FakeCluster
from kafka_async.wire.messages import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_async.wire.messages.admin import ListedGroup, ListGroupsResponse
from tests.adapters.cli.support import unread
from tests.virtual import run_virtual

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
READER = DescribedMember(member_id="m-1", instance_id=None, client_id="reader", host="/10.0.0.1", epoch=4, partitions=(A0, A1))


def group(*members: DescribedMember, epoch: int | None = 7) -> Group:
    return Group(
        group_id="billing",
        kind="classic" if epoch is None else "consumer",
        state="Stable" if members else "Empty",
        assignor="uniform",
        epoch=epoch,
        coordinator=Node(2, "host", 9092),
        members=members,
    )


def test_progress_covers_what_is_committed_and_what_is_assigned() -> None:
    rows = progress({A0: OffsetAndMetadata(3), B0: OffsetAndMetadata(9)}, {A0: 10, A1: 5}, [READER])

    assert [(row.partition, row.offset, row.end, row.lag) for row in rows] == [
        (A0, 3, 10, 7),
        (A1, None, 5, None),
        (B0, 9, None, None),
    ]
    assert [row.member for row in rows] == [READER, READER, None]


def test_a_group_beyond_the_end_of_a_log_has_no_negative_lag() -> None:
    (row,) = progress({A0: OffsetAndMetadata(30)}, {A0: 10})

    assert row.lag == 0


def test_a_group_that_one_record_holds_up_is_explained() -> None:
    kept = {A0: Committed.read(OffsetAndMetadata(3, encode([1, 4], None)), None)}
    rows = progress({A0: OffsetAndMetadata(3)}, {A0: 10, A1: 5}, [READER], kept)

    assert description(group(READER), rows).splitlines()[-3:] == [
        "TOPIC   PARTITION   COMMITTED   END   LAG   MEMBER   NOTE",
        "a               0           3    10     7   m-1      offset 3 unfinished, 4 after it done",
        "a               1           -     5     -   m-1      -",
    ]
    assert [row["done"] for row in json.loads(description_json(group(READER), rows))["partitions"]] == [4, 0]


def test_a_group_is_described_in_two_tables() -> None:
    text = description(group(READER), progress({A0: OffsetAndMetadata(3)}, {A0: 10, A1: 5}, [READER]))

    assert text.splitlines() == [
        "Group billing: Stable, consumer protocol, assignor uniform, epoch 7, coordinator host:9092 (id 2)",
        "",
        "MEMBER   INSTANCE   CLIENT   HOST        EPOCH   PARTITIONS",
        "m-1      -          reader   /10.0.0.1       4   a:0,1",
        "",
        "TOPIC   PARTITION   COMMITTED   END   LAG   MEMBER",
        "a               0           3    10     7   m-1",
        "a               1           -     5     -   m-1",
    ]


def test_an_empty_classic_group_has_no_epoch_and_no_tables() -> None:
    assert description(group(epoch=None), []).splitlines() == [
        "Group billing: Empty, classic protocol, assignor uniform, coordinator host:9092 (id 2)",
        "",
        "No members.",
        "",
        "No committed offsets.",
    ]


@pytest.mark.parametrize(
    ("letters", "line", "told"),
    [
        (None, "none; errors.deadletterqueue.topic.name names no topic", None),
        (
            DeadLetterTopic(name="dlq.a", with_records=True, problem=None),
            "to dlq.a, with the records",
            {"topic": "dlq.a", "with_records": True, "problem": None},
        ),
        (
            DeadLetterTopic(name="dlq.a", with_records=False, problem="the topic does not exist"),
            "to dlq.a, only where the records were; NONE ARE WRITTEN: the topic does not exist",
            {"topic": "dlq.a", "with_records": False, "problem": "the topic does not exist"},
        ),
    ],
)
def test_a_share_group_is_described_with_its_dead_letters(
    letters: DeadLetterTopic | None, line: str, told: dict[str, object] | None
) -> None:
    share = evolve(group(READER), kind="share")
    assert f"Dead letters: {line}" in description(share, [], letters).splitlines()
    assert json.loads(description_json(share, [], letters))["dead_letters"] == told


def test_a_name_cannot_send_control_codes() -> None:
    evil = Group(
        group_id="\x1b[2J", kind="classic", state="Empty", assignor="", epoch=None, coordinator=Node(0, "h", 1), members=()
    )

    assert "\x1b" not in description(evil, [])


def test_json_says_the_same_in_one_line() -> None:
    line = description_json(group(READER), progress({A0: OffsetAndMetadata(3, "note", 2)}, {A0: 10}, []))

    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "group": "billing",
        "type": "consumer",
        "state": "Stable",
        "assignor": "uniform",
        "epoch": 7,
        "coordinator": {"id": 2, "host": "host", "port": 9092},
        "dead_letters": None,
        "members": [
            {
                "member_id": "m-1",
                "instance_id": None,
                "client_id": "reader",
                "host": "/10.0.0.1",
                "epoch": 4,
                "partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 1}],
            }
        ],
        "partitions": [
            {
                "topic": "a",
                "partition": 0,
                "committed": 3,
                "end": 10,
                "lag": 7,
                "leader_epoch": 2,
                "metadata": "note",
                "done": 0,
                "member_id": None,
            }
        ],
    }


def test_partitions_are_named_by_topic() -> None:
    assert names_of([B0, A1, A0]) == "a:0,1 b:0"
    assert names_of([]) == ""


def test_ends_of_partitions_that_are_gone_or_without_a_leader_are_left_out_at_once() -> None:
    cluster = FakeCluster(size=2)
    cluster.create_topic("a", 2, replicas=1)
    cluster.fill(A0, 10)
    cluster.stop(1)  # leads partition 1

    assert ends_in(cluster, []) == {}
    assert ends_in(cluster, [B0]) == {}
    assert ends_in(cluster, [A0, A1, B0]) == {A0: 10}


def test_ends_of_a_topic_that_may_not_be_described_cost_the_others_nothing() -> None:
    """A member of a classic group may own it: the group is described all the same."""
    cluster = FakeCluster()
    for name in ("a", "b"):
        cluster.create_topic(name)
        cluster.fill(TopicPartition(name, 0), 10)
    cluster.topics["b"].error = TopicAuthorizationFailedError.errno

    assert ends_in(cluster, [A0, B0]) == {A0: 10}


def ends_in(cluster: FakeCluster, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    config = ConsumerConfig.from_options({"bootstrap_servers": cluster.bootstrap_servers})

    async def main() -> dict[TopicPartition, int]:
        async with Client.connect(config, cluster.network) as client:
            return await ends_of(client, partitions)

    return run_virtual(main)


@pytest.mark.parametrize(
    ("lags", "cell", "complete"), [([6, 0], "6", True), ([6, None], ">=6", False), ([None], "None", False), ([], "None", False)]
)
def test_a_lag_that_is_not_known_everywhere_is_not_shown_as_if_it_were_all(
    lags: list[int | None], cell: str, complete: bool
) -> None:
    found = KnownLag.of(lags)
    assert (str(found.cell), found.complete) == (cell, complete)


def test_the_total_is_complete_if_the_lag_of_each_group_is() -> None:
    known, partly, nothing = KnownLag.of([4]), KnownLag.of([6, None]), KnownLag()
    assert KnownLag.total([known, nothing]).cell == 4
    assert str(KnownLag.total([known, partly, nothing]).cell) == ">=10"
    assert KnownLag.total([]).cell is None


# --- all of them, if one is refused ----------------------------------------------------------------------------------------------

DENIED, LOADING = 30, 14


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    """Two groups that are two records behind, each in a partition of its own."""

    def write(cluster: Cluster) -> None:
        parts = cluster.topic("orders", 2)
        for name, part in zip(("allowed", "denied"), parts, strict=True):
            cluster.produce_many("orders", ["x"] * 5, partition=part.partition)
            member = cluster.join(name, partitions=[part])
            member.commit({part: 3})
            member.leave()

    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(write).result()
        yield cluster


def list_with_lag(cluster: ThreadedCluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["groups", "list", "--lag", "-b", cluster.bootstrap, *arguments])


def refusing(code: int, code_of_a_partition: int = 0) -> OffsetFetchResponse:
    """Return the answer in which one group is refused, or one of its partitions."""

    def group(name: str, partition: int, code: int, code_of_a_partition: int) -> OffsetFetchResponseGroup:
        own = OffsetFetchResponsePartitions(partition_index=partition, committed_offset=3)
        other = OffsetFetchResponsePartitions(partition_index=1 - partition, error_code=code_of_a_partition)
        parts = (own, other) if code_of_a_partition else (own,)
        topics = () if code else (OffsetFetchResponseTopics(name="orders", partitions=parts),)
        return OffsetFetchResponseGroup(group_id=name, error_code=code, topics=topics)

    return OffsetFetchResponse(groups=(group("allowed", 0, 0, 0), group("denied", 1, code, code_of_a_partition)))


@pytest.mark.parametrize(
    ("answer", "lag", "cells"), [(refusing(DENIED), None, ["-", ">=2"]), (refusing(0, DENIED), 2, [">=2", ">=4"])]
)
def test_a_group_that_may_not_be_read_costs_the_others_nothing(
    cluster: ThreadedCluster, answer: OffsetFetchResponse, lag: int | None, cells: list[str]
) -> None:
    cluster.call(lambda brokers: brokers.control(Api.OFFSET_FETCH, lambda *_: answer, keep=True)).result()

    result = list_with_lag(cluster, "-J")
    rows = {row["group"]: (row["lag"], row["lag_is_complete"]) for row in map(json.loads, result.stdout.splitlines())}

    assert (result.exit_code, rows) == (0, {"allowed": (2, True), "denied": (lag, False)})
    assert result.stderr.startswith("kafka-async: the lag of group 'denied' is not known: ")
    assert result.stderr.count("\n") == 1
    table = list_with_lag(cluster).stdout.splitlines()
    assert [line.split()[-1] for line in table[1:]] == ["2", *cells]


def test_groups_of_kafka_streams_have_a_lag_too(cluster: ThreadedCluster) -> None:
    listed = tuple(ListedGroup(group_id=name, group_state="Stable", group_type="Streams") for name in ("allowed", "denied"))
    answer = ListGroupsResponse(groups=listed)
    cluster.call(lambda brokers: brokers.control(Api.LIST_GROUPS, lambda *_: answer, keep=True)).result()

    rows = [json.loads(line) for line in list_with_lag(cluster, "-J").stdout.splitlines()]

    assert [(row["type"], row["lag"], row["lag_is_complete"]) for row in rows] == [("streams", 2, True)] * 2


@pytest.mark.parametrize(
    ("kind", "protocol", "complete"),
    [("consumer", "consumer", False), ("share", "share", False), ("classic", "connect", True)],  # Connect has no lag at all
)
def test_a_group_that_exists_and_has_read_nothing_has_no_complete_lag(
    cluster: ThreadedCluster, kind: str, protocol: str, complete: bool
) -> None:
    names = {"allowed": ("classic", "consumer"), "idle": (kind, protocol)}
    listed = tuple(
        ListedGroup(group_id=name, protocol_type=protocol, group_state="Empty", group_type=kind)
        for name, (kind, protocol) in names.items()
    )
    answer = ListGroupsResponse(groups=listed)
    cluster.call(lambda brokers: brokers.control(Api.LIST_GROUPS, lambda *_: answer, keep=True)).result()

    rows = [json.loads(line) for line in list_with_lag(cluster, "-J").stdout.splitlines()]
    cells = [line.split()[-1] for line in list_with_lag(cluster).stdout.splitlines()[1:]]

    assert [(row["lag"], row["lag_is_complete"]) for row in rows] == [(2, True), (None, complete)]
    assert cells == ["2", "-", "2" if complete else ">=2"]


@pytest.mark.parametrize("as_json", [[], ["-J"]])
@pytest.mark.parametrize(("what", "there", "absent"), [("groups", "allowed", "alowed"), ("topics", "orders", "order")])
def test_what_does_not_exist_hides_nothing_that_does(
    cluster: ThreadedCluster, what: str, there: str, absent: str, as_json: list[str]
) -> None:
    command = [what, "describe", "-b", cluster.bootstrap, *as_json]
    alone = CliRunner().invoke(app, [*command, there])
    both = CliRunner().invoke(app, [*command, absent, there])
    nothing = CliRunner().invoke(app, [*command, absent])

    assert alone.stdout
    assert (both.stdout, both.exit_code) == (alone.stdout, 1)
    assert (nothing.stdout, nothing.exit_code) == ("", 1)
    said = f"kafka-async: {what[:-1]} {absent!r} does not exist; did you mean {there!r}?\n"
    assert both.stderr == nothing.stderr == said


@pytest.mark.brokers
@pytest.mark.parametrize(("what", "there", "absent"), [("groups", "allowed", "alowed"), ("topics", "orders", "order")])
def test_what_does_not_exist_is_an_error_even_if_nobody_reads_what_does(
    cluster: ThreadedCluster, what: str, there: str, absent: str
) -> None:
    """As in a pipe to ``true``: it ended with 0, and without a word."""
    result = unread([what, "describe", "-b", cluster.bootstrap, absent, there])
    said = f"kafka-async: {what[:-1]} {absent!r} does not exist; did you mean {there!r}?\n"
    assert (result.returncode, result.stderr) == (1, said)
    assert unread([what, "describe", "-b", cluster.bootstrap, there]).returncode == 0


@pytest.mark.parametrize(("state", "told"), [("Stabel", "; did you mean 'Stable'?"), ("gone", "")])
def test_a_state_that_no_group_can_have_is_refused(cluster: ThreadedCluster, state: str, told: str) -> None:
    wrong = CliRunner().invoke(app, ["groups", "list", "-b", cluster.bootstrap, "--state", state])
    right = CliRunner().invoke(app, ["groups", "list", "-b", cluster.bootstrap, "--state", "EMPTY", "-J"])
    assert wrong.exit_code == 2
    assert f"--state '{state}': expected one of Stable, Empty, " in " ".join(wrong.stderr.split())
    assert told.split()[-1:] == [word for word in wrong.stderr.split() if word == "'Stable'?"]
    assert len(right.stdout.splitlines()) == 2


@pytest.mark.slow  # waits for some seconds
@pytest.mark.parametrize(
    ("api", "cells", "said"),
    [
        (Api.LIST_OFFSETS, ["2", ">=2", "-", ">=4"], ["broker 1 does not tell where its logs end: "]),
        # The connection is held up, so the same broker does not tell about its logs either.
        (Api.OFFSET_FETCH, ["2", "-", "-", ">=2"], ["broker 1 does not tell where", "the lag of group 'b' is not known: "]),
    ],
)
def test_a_broker_that_does_not_answer_costs_the_others_nothing(api: Api, cells: list[str], said: list[str]) -> None:
    def write(cluster: Cluster) -> None:
        first, second = cluster.topic("orders", 2)
        for part in (first, second):
            cluster.produce_many("orders", ["x"] * 5, partition=part.partition)
        for name, parts in (("a", [first]), ("b", [first, second]), ("c", [second])):
            member = cluster.join(name, partitions=parts)
            member.commit(dict.fromkeys(parts, 3))
            member.leave()
            cluster.simulated.groups.moved[name] = int(name == "b")
        cluster.control(api, lambda broker, _: HANG if broker == 1 else None, keep=True)

    with ThreadedCluster(Cluster(2)) as cluster:
        cluster.call(write).result()
        result = list_with_lag(cluster, "-X", "default.api.timeout.ms=5000")

    assert result.exit_code == 0, result.stderr
    assert [line.split()[-1] for line in result.stdout.splitlines()[1:]] == cells
    for line, start in zip(result.stderr.splitlines(), said, strict=True):
        assert line.startswith(f"kafka-async: {start}")


def test_what_may_pass_is_asked_for_again(cluster: ThreadedCluster) -> None:
    left: list[Any] = [refusing(LOADING), refusing(0, LOADING)]
    cluster.call(lambda brokers: brokers.control(Api.OFFSET_FETCH, lambda *_: left.pop(0) if left else None, keep=True)).result()

    result = list_with_lag(cluster, "-J")

    assert (result.exit_code, result.stderr) == (0, "")
    assert {json.loads(row)["lag"] for row in result.stdout.splitlines()} == {2}


def test_a_coordinator_that_has_moved_since_the_groups_were_listed_is_asked_where_it_is_now() -> None:
    def write(cluster: Cluster) -> None:
        (part,) = cluster.topic("orders", 1)
        cluster.produce_many("orders", ["x"] * 5)
        member = cluster.join("g", partitions=[part])
        member.commit({part: 3})
        member.leave()
        moved = cluster.simulated.groups.moved
        moved["g"] = 0
        cluster.control(Api.OFFSET_FETCH, lambda *_: moved.update(g=1))

    with ThreadedCluster(Cluster(2)) as cluster:
        cluster.call(write).result()
        result = list_with_lag(cluster, "-J", "-X", "default.api.timeout.ms=30000")

    assert (result.exit_code, result.stderr) == (0, "")
    assert [json.loads(row)["lag"] for row in result.stdout.splitlines()] == [2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["groups", "describe", "nobody"], 1, "kafka-async: group 'nobody' does not exist; did you mean 'nobody-else'?\n"),
        (
            ["offsets", "reset", "nobody", "--create", "-t", "orders", "--to-earliest"],
            0,
            "Dry run: nothing was committed. Add --execute to commit the new offsets.\n",
        ),
    ],
)
def test_a_broker_that_does_not_answer_does_not_hide_that_there_is_no_such_group(
    arguments: list[str], code: int, said: str
) -> None:
    """It is asked for the sake of a hint only."""

    def write(cluster: Cluster) -> None:
        (part,) = cluster.topic("orders", 1)
        cluster.simulated.groups.moved |= {"nobody": 0, "nobody-else": 0}
        cluster.join("nobody-else", partitions=[part]).leave()
        cluster.control(Api.LIST_GROUPS, lambda broker, _: HANG if broker == 1 else None, keep=True)

    with ThreadedCluster(Cluster(2)) as cluster:
        cluster.call(write).result()
        result = CliRunner().invoke(app, [*arguments, "-b", cluster.bootstrap, "-X", "default.api.timeout.ms=10000"])

    assert (result.exit_code, result.stderr) == (code, said)


@pytest.mark.slow  # waits for some seconds
def test_a_leader_that_does_not_answer_is_waited_for_once_however_many_groups_are_described() -> None:
    def write(cluster: Cluster) -> None:
        parts = cluster.topic("orders", 2)
        for name in ("a", "b", "c"):
            member = cluster.join(name, partitions=parts)
            member.commit(dict.fromkeys(parts, 0))
            member.leave()
        cluster.control(Api.LIST_OFFSETS, lambda broker, _: HANG if broker == 1 else None, keep=True)

    with ThreadedCluster(Cluster(2)) as cluster:
        cluster.call(write).result()
        command = ["groups", "describe", "a", "b", "c", "-J", "-b", cluster.bootstrap, "-X", "default.api.timeout.ms=10000"]
        result = CliRunner().invoke(app, command)

    assert result.exit_code == 0
    assert result.stderr.count("broker 1 does not tell") == 1
    assert [json.loads(row)["group"] for row in result.stdout.splitlines()] == ["a", "b", "c"]


@pytest.mark.slow  # waits for some seconds
def test_a_leader_that_does_not_answer_costs_a_topic_no_more_than_its_own_offsets() -> None:
    def write(cluster: Cluster) -> None:
        for part in cluster.topic("orders", 2):
            cluster.produce_many("orders", ["x"] * 5, partition=part.partition)
            cluster.delete_before(part, 2)
        cluster.control(Api.LIST_OFFSETS, lambda broker, _: HANG if broker == 1 else None, keep=True)

    with ThreadedCluster(Cluster(2)) as cluster:
        cluster.call(write).result()
        command = ["topics", "describe", "orders", "-J", "-b", cluster.bootstrap, "-X", "default.api.timeout.ms=10000"]
        result = CliRunner().invoke(app, command)

    assert result.exit_code == 0, result.stderr
    first, second = sorted(map(json.loads, result.stdout.splitlines()), key=lambda row: row["leader"])
    assert (first["begin"], first["end"], second["begin"], second["end"]) == (2, 5, None, None)
    assert first["isr"]
    assert second["isr"]
    assert result.stderr.startswith("kafka-async: broker 1 does not tell where its logs end: ")
    assert result.stderr.count("\n") == 1


# --- share groups ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sharing() -> Iterator[ThreadedCluster]:
    """A share group ``workers`` that has accepted one of five jobs."""

    def write(cluster: Cluster) -> None:
        cluster.topic("jobs")
        cluster.produce_many("jobs", ["x"] * 5)
        cluster.group("workers", share_auto_offset_reset="earliest")

    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(write).result()
        with ShareConsumer("jobs", bootstrap_servers=cluster.bootstrap, group_id="workers") as consumer:
            consumer.getone().accept()
        yield cluster


def test_a_share_group_whose_settings_may_not_be_read_is_described_without_its_dead_letters(sharing: ThreadedCluster) -> None:
    """Members have READ, which implies DESCRIBE and not DESCRIBE_CONFIGS."""
    result = DescribeConfigsResult(error_code=DENIED, resource_type=32, resource_name="workers")
    refused = DescribeConfigsResponse(results=(result,))
    sharing.call(lambda brokers: brokers.control(Api.DESCRIBE_CONFIGS, lambda *_: refused, keep=True)).result()

    command = ["groups", "describe", "workers", "-b", sharing.bootstrap]
    table, row = CliRunner().invoke(app, command), CliRunner().invoke(app, [*command, "-J"])

    assert (table.exit_code, row.exit_code) == (0, 0)
    assert "Dead letters: not known" in table.stdout.splitlines()
    assert table.stdout.splitlines()[-1].split() == ["jobs", "0", "1", "4"]
    assert json.loads(row.stdout)["dead_letters"] is None
    said = "where dead letters of group 'workers' go is not known: the group's settings may not be read (ACL DESCRIBE_CONFIGS)"
    assert table.stderr == row.stderr == f"kafka-async: {said}\n"


def test_topics_are_forgotten_only_with_execute(sharing: ThreadedCluster) -> None:
    def forget(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["offsets", "forget", "workers", "-b", sharing.bootstrap, *arguments])

    def begun() -> dict[TopicPartition, int]:
        return sharing.call(lambda brokers: brokers.shared("workers")).result()

    other, dry = forget("-t", "jobs", "-t", "job"), forget("-t", "jobs")
    before = begun()
    done = forget("-t", "jobs", "--execute")

    assert (other.exit_code, other.stderr) == (1, "kafka-async: group 'workers' has begun nothing of job; did you mean 'jobs'?\n")
    said = "Dry run: nothing was forgotten. --execute makes group 'workers' forget jobs:0.\n"
    assert (dry.exit_code, dry.stdout) == (0, said)
    assert before == {TopicPartition("jobs", 0): 1}
    assert (done.exit_code, done.stdout) == (0, "Group 'workers' has forgotten jobs:0.\n")
    assert begun() == {}


# --- configure -------------------------------------------------------------------------------------------------------------------

SOON = ("-X", "default.api.timeout.ms=10000")
LETTERS = "errors.deadletterqueue.topic.name"


def settings_of_before(cluster: ThreadedCluster, times: int) -> None:
    """Have brokers tell so many times what a group's settings were before a change."""
    setting = DescribeConfigsResourceResult(name=LETTERS, value="dlq.former", config_source=8)
    answer = DescribeConfigsResponse(results=(DescribeConfigsResult(resource_type=32, resource_name="g", configs=(setting,)),))
    left = [answer] * times

    def decide(_broker: int, request: Any) -> DescribeConfigsResponse | None:
        return left.pop() if left and request.resources[0].resource_type == 32 else None

    cluster.call(lambda brokers: brokers.control(Api.DESCRIBE_CONFIGS, decide, keep=True)).result()


def configure(cluster: ThreadedCluster, *changes: str) -> Result:
    return CliRunner().invoke(app, ["groups", "configure", "g", *changes, "-b", cluster.bootstrap, "-J"])


@pytest.mark.parametrize(
    ("value", "own", "said"),
    [("dlq.g", True, "kafka-async: no dead letters are written to dlq.g: the topic does not exist\n"), ("", False, "")],
)
def test_settings_are_shown_once_a_broker_has_taken_the_change_over(
    cluster: ThreadedCluster, value: str, own: bool, said: str
) -> None:
    if not own:
        configure(cluster, f"{LETTERS}=dlq.former")
    settings_of_before(cluster, 2)
    result = configure(cluster, f"{LETTERS}={value}")

    rows = {row["setting"]: (row["value"] or "", row["own"]) for row in map(json.loads, result.stdout.splitlines())}
    assert (result.exit_code, result.stderr) == (0, said)
    assert rows[LETTERS] == (value, own)


def test_what_was_changed_is_shown_and_without_a_change_everything(cluster: ThreadedCluster) -> None:
    one, two = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    changed = configure(cluster, f"{one}=50000", f"{two}=4000")
    everything = configure(cluster)

    assert [json.loads(line)["setting"] for line in changed.stdout.splitlines()] == [two, one]
    assert len(everything.stdout.splitlines()) > 2


def test_a_setting_that_there_is_not_may_have_meant_another(cluster: ThreadedCluster) -> None:
    result = configure(cluster, "consumer.session.timout.ms=50000")
    assert result.exit_code == 1
    assert result.stderr.endswith("; did you mean 'consumer.session.timeout.ms'?\n")


@pytest.mark.slow  # waits for some seconds
def test_a_change_that_no_broker_tells_is_not_shown_without_a_word(cluster: ThreadedCluster) -> None:
    settings_of_before(cluster, 1000)
    result = configure(cluster, f"{LETTERS}=dlq.g", *SOON)

    assert result.exit_code == 0
    assert f"the change was made, but the broker that was asked does not tell it yet: {LETTERS}\n" in result.stderr
    assert "no dead letters are written to dlq.g: the topic does not exist" in result.stderr


@pytest.mark.slow
def test_a_topic_that_is_mistyped_is_told_by_what_shows_and_deletes_offsets() -> None:
    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(lambda brokers: brokers.topic("jobs")).result()
        cluster.call(lambda brokers: brokers.produce("jobs", value="1")).result()
        with KafkaConsumer("jobs", bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.getone()

        def offsets(*arguments: str) -> Result:
            return CliRunner().invoke(app, ["offsets", *arguments, "-b", cluster.bootstrap])

        assert offsets("show", "g", "-t", "job").stdout == "No committed offsets; did you mean 'jobs'?\n"
        assert offsets("show", "g", "-t", "elsewhere").stdout == "No committed offsets.\n"
        refused = [offsets("delete", "g", "-t", name).stderr for name in ("job", "jobs:7")]
    assert refused[0] == "kafka-async: group 'g' has committed nothing of job; did you mean 'jobs'?\n"
    assert refused[1] == "kafka-async: group 'g' has committed nothing of jobs:7\n"


def test_offsets_that_are_deleted_are_told_where_those_of_a_topic_that_is_read_stay() -> None:
    def write(brokers: Cluster) -> None:
        for topic in ("dead", "live"):
            brokers.topic(topic)
            brokers.produce(topic, value="1")

    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(write).result()
        begin = partial(KafkaConsumer, bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest")
        with begin("dead", "live") as consumer:
            consumer.getone()
            consumer.getone()
        with begin("live") as consumer:
            consumer.getmany(timeout_ms=1)
            arguments = ("delete", "g", "-t", "dead", "-t", "live", "--execute", "-b", cluster.bootstrap)
            result = CliRunner().invoke(app, ["offsets", *arguments])

    assert result.exit_code == 1
    assert result.stderr == (
        "kafka-async: live-0: Offsets of a topic cannot be deleted while the group is subscribed to it; deleted: dead-0\n"
    )


@pytest.fixture
def begun() -> Iterator[ThreadedCluster]:
    """A cluster with the topics ``jobs`` and ``more``, of each of which the group ``g`` has read one record of three."""

    def write(brokers: Cluster) -> None:
        for topic in ("jobs", "more"):
            brokers.topic(topic)
            brokers.produce_many(topic, [b"1"] * 3, partition=0)

    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(write).result()
        for topic in ("jobs", "more"):
            with KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
                consumer.getone()
        yield cluster


def moved(cluster: ThreadedCluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["offsets", *arguments, "--execute", "-b", cluster.bootstrap])


def committed_of(cluster: ThreadedCluster) -> dict[str, int]:
    return {tp.topic: offset.offset for tp, offset in cluster.call(lambda brokers: brokers.committed("g")).result().items()}


MOVES = pytest.mark.parametrize(
    "move", [("reset", "g", "-t", "jobs", "--to-latest"), ("skip", "g", "jobs:0:1")], ids=lambda move: str(move[0])
)


@MOVES
def test_a_topic_that_is_made_anew_before_the_commit_is_not_moved(move: tuple[str, ...]) -> None:
    def write(brokers: Cluster) -> None:
        brokers.topic("jobs")
        for _ in range(3):
            brokers.produce("jobs", value="1")

    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(write).result()
        with KafkaConsumer("jobs", bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.getone()
        cluster.call(lambda brokers: brokers.control(Api.OFFSET_COMMIT, lambda *_: brokers.recreate("jobs"))).result()
        result = CliRunner().invoke(app, ["offsets", *move, "--execute", "-b", cluster.bootstrap])
        committed = cluster.call(lambda brokers: brokers.committed("g")).result()

    assert (result.exit_code, committed) == (1, {})
    assert "jobs:0: deleted and created again meanwhile; the group has no new offset there" in result.stderr


def test_what_was_committed_is_shown_where_another_topic_was_made_anew_before(begun: ThreadedCluster) -> None:
    begun.call(lambda brokers: brokers.control(Api.OFFSET_COMMIT, lambda *_: brokers.recreate("jobs"))).result()
    result = moved(begun, "reset", "g", "-t", "jobs", "-t", "more", "--to-latest", "-J")

    assert (result.exit_code, committed_of(begun)) == (1, {"more": 3})
    (row,) = map(json.loads, result.stdout.splitlines())
    assert (row["topic"], row["new"], row["committed"]) == ("more", 3, True)
    assert result.stderr.splitlines()[0] == "Committed the offsets of 1 partition for group 'g'; 1 of them changed."
    assert "jobs:0: deleted and created again meanwhile; the group has no new offset there" in result.stderr.splitlines()[1]


@MOVES
def test_a_commit_counts_although_nobody_answers_whether_its_topic_is_still_the_same(
    begun: ThreadedCluster, move: tuple[str, ...]
) -> None:
    def answer_nothing_more(brokers: Cluster) -> None:
        def end(_broker: int, _request: Any) -> None:
            brokers.control(Api.METADATA, lambda *_: HANG, keep=True)

        brokers.control(Api.OFFSET_COMMIT, end)

    begun.call(answer_nothing_more).result()
    result = moved(begun, *move, "-X", "default.api.timeout.ms=1000", "-X", "request.timeout.ms=500")

    new = {"reset": 3, "skip": 2}[move[0]]
    assert (result.exit_code, committed_of(begun)["jobs"]) == (0, new), result.stderr
    assert result.stdout.splitlines()[-1].split() == ["jobs", "0", "1", str(new), "-"]
    assert "The offsets are committed, but it is not known whether a topic was created again meanwhile: " in result.stderr


@MOVES
def test_a_broker_that_does_not_know_a_topic_yet_does_not_matter_once_another_has_described_it(
    begun: ThreadedCluster, move: tuple[str, ...]
) -> None:
    """The first answer to a question about the topic has what is needed; ``jobs`` is known to no broker that is asked again."""
    unknown: list[str] = []

    def forget(brokers: Cluster) -> None:
        def decide(_broker: int, request: Any) -> Any:
            if request.topics is None or [each.name for each in request.topics] != ["jobs"]:
                return None
            unknown.append("jobs")
            return None if len(unknown) == 1 else UnknownTopicOrPartitionError

        brokers.control(Api.METADATA, decide, keep=True)

    begun.call(forget).result()
    result = CliRunner().invoke(app, ["offsets", *move, "-b", begun.bootstrap])

    assert (result.exit_code, result.stderr[:8]) == (0, "Dry run:"), (result.stderr, result.exception)
