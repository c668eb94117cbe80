"""The command line with groups, on real brokers: members that read and commit, groups shown, groups moved."""

import signal
import socket
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest

pytest.importorskip("typer")

import anyio
from confluent_kafka import ShareConsumer
from confluent_kafka import TopicPartition as AdminPartition
from kio.schema.streams_group_heartbeat.v0.request import StreamsGroupHeartbeatRequest, Subtopology, Topology
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i16, i32, i32Timedelta

from kafka_async import ConsumerRecord, KafkaConsumer, RetryLater
from tests.brokers import KafkaCluster

from .cli import consume, filled, invoke, is_not_made_if_mistyped, is_unknown, lines, member, run
from .tools import PATIENCE, topic_name

pytestmark = pytest.mark.brokers


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- consume -------------------------------------------------------------------------------------------------------------------


def test_a_member_writes_everything_and_commits_what_it_wrote(kafka44: KafkaCluster, group: str, protocol: str) -> None:
    topic = filled(kafka44)

    result = consume(kafka44, topic, group, "--group-protocol", protocol, "-e")

    assert result.exit_code == 0, result.stderr
    assert sorted(result.stdout.split()) == sorted(f"{part}/{offset}" for part in (0, 1) for offset in range(10))
    assert f"% Group {group}: assigned {topic} [0], {topic} [1]" in result.stderr
    assert kafka44.committed(group) == {(topic, 0): 10, (topic, 1): 10}


def test_the_next_run_goes_on_where_the_last_one_ended(kafka44: KafkaCluster, group: str, protocol: str) -> None:
    topic = filled(kafka44, partitions=1)

    first = consume(kafka44, topic, group, "--group-protocol", protocol, "-c", "7", "-q")
    assert kafka44.committed(group) == {(topic, 0): 7}
    second = consume(kafka44, topic, group, "--group-protocol", protocol, "-e", "-q")

    assert first.stdout.split() == [f"0/{offset}" for offset in range(7)]
    assert second.stdout.split() == [f"0/{offset}" for offset in range(7, 20)]
    assert first.stderr == second.stderr == ""


def test_a_group_without_offsets_begins_at_the_end_when_asked_to(kafka44: KafkaCluster, group: str) -> None:
    topic = filled(kafka44)

    assert consume(kafka44, topic, group, "-o", "end", "-e").stdout == ""


def test_several_topics_are_read_by_one_member(kafka44: KafkaCluster, group: str) -> None:
    topics = [filled(kafka44, count=2), filled(kafka44, count=4)]

    result = run(kafka44, "consume", *topics, "-G", group, "-e", "-f", r"%t\n")

    assert sorted(result.stdout.split()) == sorted([topics[0]] * 2 + [topics[1]] * 4)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["Ctrl-C", "SIGTERM", "SIGHUP"],
)
def test_an_interrupted_member_has_committed_what_it_wrote(
    kafka44: KafkaCluster, group: str, protocol: str, number: signal.Signals, code: int
) -> None:
    topic = filled(kafka44, partitions=1)

    with member(kafka44, topic, group, "--group-protocol", protocol, "-q") as process:
        assert process.stdout is not None
        for _ in range(19):
            process.stdout.readline()
        process.send_signal(number)
        assert process.wait(PATIENCE) == code
        assert process.stderr is not None
        assert process.stderr.read() == ""

    assert kafka44.committed(group) == {(topic, 0): 20}
    assert "No members." in run(kafka44, "groups", "describe", group).stdout, "its partitions do not wait for the session"


def test_a_second_member_waits_for_its_share_and_ends_with_it(kafka44: KafkaCluster, group: str, protocol: str) -> None:
    topic = filled(kafka44)

    with member(kafka44, topic, group, "--group-protocol", protocol):
        second = consume(kafka44, topic, group, "--group-protocol", protocol, "-e")

    assert second.exit_code == 0, second.stderr
    ends = [line for line in second.stderr.splitlines() if line.startswith("% Reached end")]
    assert len(ends) == 1
    assert ends[0].endswith("at offset 10")


def test_a_member_of_a_topic_that_does_not_exist_fails_at_once(kafka44: KafkaCluster, group: str) -> None:
    result = consume(kafka44, topic_name(), group)

    assert result.exit_code == 1
    assert "does not exist" in result.stderr


# --- groups --------------------------------------------------------------------------------------------------------------------


def test_groups_are_listed_by_state(kafka44: KafkaCluster, group: str, protocol: str) -> None:
    topic = filled(kafka44)
    with member(kafka44, topic, group, "--group-protocol", protocol):
        table = run(kafka44, "groups", "list", "--state", "stable").stdout
        empty = run(kafka44, "groups", "list", "--state", "Empty", "--json")

    assert [line.split() for line in table.splitlines() if group in line] == [[group, protocol, "consumer", "Stable"]]
    assert group not in {line["group"] for line in lines(empty)}


def test_a_group_is_described_with_members_and_lag(kafka44: KafkaCluster, group: str, protocol: str) -> None:
    topic = filled(kafka44)
    assert run(kafka44, "offsets", "reset", group, "-t", f"{topic}:1", "--to-offset", "4", "--execute", "--create").exit_code == 0
    options = (
        "--group-protocol",
        protocol,
        "-X",
        "enable.auto.commit=false",
        "-X",
        "client.id=reader",
        "-X",
        "group.instance.id=one",
    )

    with member(kafka44, topic, group, *options):
        (found,) = lines(run(kafka44, "groups", "describe", group, "--json"))
        table = run(kafka44, "groups", "describe", group).stdout

    (only,) = found["members"]
    assert (found["group"], found["type"], found["state"]) == (group, protocol, "Stable")
    assert (only["client_id"], only["instance_id"]) == ("reader", "one")
    assert only["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    rows = [(row["partition"], row["committed"], row["end"], row["lag"], row["member_id"]) for row in found["partitions"]]
    assert rows == [(0, None, 10, None, only["member_id"]), (1, 4, 10, 6, only["member_id"])]
    assert (found["epoch"] is not None) == (protocol == "consumer")
    assert table.startswith(f"Group {group}: Stable, {protocol} protocol, assignor ")
    assert f"{topic}:0,1" in table
    assert [topic, "1", "4", "10", "6", only["member_id"]] in [line.split() for line in table.splitlines()]


def test_a_group_without_members_still_shows_its_lag(kafka44: KafkaCluster, group: str) -> None:
    topic = filled(kafka44)
    consume(kafka44, topic, group, "-e")
    kafka44.produce(topic, 6, partitions=2)

    result = run(kafka44, "groups", "describe", group)

    assert "No members." in result.stdout
    assert [topic, "0", "10", "13", "3", "-"] in [line.split() for line in result.stdout.splitlines()]


@pytest.mark.parametrize("command", [("groups", "describe"), ("offsets", "show")])
def test_a_mistyped_group_gets_the_name_of_one_that_exists(kafka44: KafkaCluster, command: tuple[str, str], group: str) -> None:
    consume(kafka44, filled(kafka44), group, "-e")

    result = run(kafka44, *command, f"{group}x")

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"group '{group}x' does not exist; did you mean '{group}'?" in result.stderr


@pytest.mark.parametrize("command", [("groups", "describe"), ("offsets", "show")])
def test_a_group_that_does_not_exist_is_one_line_and_exit_code_1(
    kafka44: KafkaCluster, command: tuple[str, str], group: str
) -> None:
    is_unknown(kafka44, command, group)


def test_brokers_that_do_not_answer_are_one_line_and_exit_code_1(unused_tcp_port: int) -> None:
    for command in (["groups", "list"], ["offsets", "show", "g"], ["groups", "describe", "g"]):
        result = invoke(*command, "-b", f"127.0.0.1:{unused_tcp_port}", "-X", "request.timeout.ms=300")

        assert result.exit_code == 1
        assert str(unused_tcp_port) in result.stderr
        assert result.stderr.count("\n") == 1


# --- offsets -------------------------------------------------------------------------------------------------------------------


def test_offsets_of_a_group_are_shown_with_lag(kafka44: KafkaCluster, group: str) -> None:
    topic, other = filled(kafka44), filled(kafka44, partitions=1)
    run(kafka44, "consume", topic, other, "-G", group, "-e")

    found = lines(run(kafka44, "offsets", "show", group, "--topic", topic, "--json"))
    table = run(kafka44, "offsets", "show", group).stdout

    assert [(row["topic"], row["partition"], row["committed"], row["lag"]) for row in found] == [
        (topic, 0, 10, 0),
        (topic, 1, 10, 0),
    ]
    assert [other, "0", "20", "20", "0", "0", "-", "-"] in [line.split() for line in table.splitlines()]


def test_offsets_of_a_deleted_topic_do_not_stop_the_others_from_being_shown(kafka44: KafkaCluster, group: str) -> None:
    topic, gone = filled(kafka44), filled(kafka44)
    run(kafka44, "consume", topic, gone, "-G", group, "-e")
    kafka44.delete_topics(gone)

    found = lines(run(kafka44, "offsets", "show", group, "--json"))

    assert [row["lag"] for row in found if row["topic"] == topic] == [0, 0]
    assert {row["end"] for row in found if row["topic"] == gone} <= {None}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [10, 10]),
        (("--to-offset", "3"), [3, 3]),
        (("--to-offset", "99"), [10, 10]),
        (("--shift-by", "-4"), [1, 6]),
        (("--shift-by", "2"), [7, 10]),
        (("--shift-by", "-7"), [0, 3]),
        (("--to-datetime", "1970-01-01T00:16:40.007"), [4, 3]),
        (("--to-datetime", "1970-01-01T01:16:40.007+01:00"), [4, 3]),
        (("--to-datetime", "2031-01-01"), [10, 10]),
        (("--by-duration", "PT1H"), [10, 10]),
        (("--by-duration", "P90000D"), [0, 0]),
    ],
)
def test_a_group_is_moved_after_a_dry_run(kafka44: KafkaCluster, group: str, target: tuple[str, ...], expected: list[int]) -> None:
    topic = filled(kafka44)
    for partition, offset in ((0, 5), (1, 10)):
        place = ("-t", f"{topic}:{partition}", "--to-offset", str(offset), "--execute", "--create")
        assert run(kafka44, "offsets", "reset", group, *place).exit_code == 0
    command = ("offsets", "reset", group, "--topic", topic, *target, "--json")

    dry = run(kafka44, *command)
    assert kafka44.committed(group) == {(topic, 0): 5, (topic, 1): 10}
    done = run(kafka44, *command, "--execute")

    assert [(row["current"], row["new"], row["committed"]) for row in lines(dry)] == [
        (5, expected[0], False),
        (10, expected[1], False),
    ]
    assert "Dry run: nothing was committed." in dry.stderr
    assert [row["committed"] for row in lines(done)] == [True, True]
    assert f"Committed the offsets of 2 partitions for group '{group}'" in done.stderr
    assert kafka44.committed(group) == {(topic, 0): expected[0], (topic, 1): expected[1]}


def test_a_moved_group_reads_on_from_there(kafka44: KafkaCluster, group: str, protocol: str) -> None:
    topic = filled(kafka44, partitions=1)
    consume(kafka44, topic, group, "--group-protocol", protocol, "-e")
    assert run(kafka44, "offsets", "reset", group, "-t", topic, "--shift-by", "-2", "--execute").exit_code == 0

    assert consume(kafka44, topic, group, "--group-protocol", protocol, "-e").stdout.split() == ["0/18", "0/19"]


def test_a_group_with_members_is_left_alone(kafka44: KafkaCluster, group: str, protocol: str) -> None:
    topic = filled(kafka44)
    with member(kafka44, topic, group, "--group-protocol", protocol, "-X", "client.id=reader", "-X", "enable.auto.commit=false"):
        result = run(kafka44, "offsets", "reset", group, "-t", topic, "--to-earliest", "--execute")

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"group '{group}' is in use by 1 member; stop them first: reader at 127.0.0.1" in result.stderr
    assert kafka44.committed(group) == {}


async def _handle_all_but(cluster: KafkaCluster, topic: str, group: str, stuck: int) -> None:
    """Handle every record of a topic, once, except one that is never done."""
    others_done = anyio.Event()
    left = 19

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        nonlocal left
        if record.offset == stuck:
            raise RetryLater(3600)
        left -= 1
        if not left:
            others_done.set()

    consumer: KafkaConsumer[Any, Any] = KafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    )
    async with consumer, consumer.processing(handle, concurrency=4, order="none", keep_done=True, drain_timeout_ms=500):
        with anyio.fail_after(PATIENCE):
            await others_done.wait()


def test_a_group_that_one_record_holds_up_is_explained_and_passes_it(kafka44: KafkaCluster, group: str) -> None:
    topic = filled(kafka44, partitions=1)
    anyio.run(_handle_all_but, kafka44, topic, group, 5)

    (described,) = lines(run(kafka44, "groups", "describe", group, "--json"))
    table = run(kafka44, "groups", "describe", group).stdout
    (shown,) = lines(run(kafka44, "offsets", "show", group, "--json"))
    offsets = run(kafka44, "offsets", "show", group).stdout
    (moved,) = lines(run(kafka44, "offsets", "reset", group, "-t", topic, "--shift-by", "0", "--json"))
    dry = run(kafka44, "offsets", "skip", group, f"{topic}:0:5")
    assert kafka44.committed(group) == {(topic, 0): 5}
    done = run(kafka44, "offsets", "skip", group, f"{topic}:0:5", "--execute")

    assert [(row["lag"], row["done"]) for row in described["partitions"]] == [(15, 14)]
    assert "offset 5 unfinished, 14 after it done" in table
    assert (shown["done"], "offset 5 unfinished, 14 after it done" in offsets) == (14, True)
    assert moved["note"] == "14 done offsets after it will be handled again"
    assert (dry.exit_code, done.exit_code) == (0, 0)
    assert "Dry run: nothing was committed." in dry.stderr
    assert f"Group {group!r} passes offset 5 of {topic}:0." in done.stderr
    assert kafka44.committed(group) == {(topic, 0): 20}


def test_only_a_record_that_is_there_and_not_done_is_passed(kafka44: KafkaCluster, group: str) -> None:
    topic = filled(kafka44, partitions=1)
    place = ("-t", topic, "--to-offset", "7", "--execute", "--create")
    assert run(kafka44, "offsets", "reset", group, *place).exit_code == 0

    passed = run(kafka44, "offsets", "skip", group, f"{topic}:0:6", "--execute")
    later = run(kafka44, "offsets", "skip", group, f"{topic}:0:8", "--execute")
    beyond = run(kafka44, "offsets", "skip", group, f"{topic}:0:20", "--execute")
    right = run(kafka44, "offsets", "skip", group, f"{topic}:0:7", "--execute")

    assert [result.exit_code for result in (passed, later, beyond, right)] == [1, 1, 1, 0]
    assert f"offset 6 of {topic}:0 is done already; the group is at 7" in passed.stderr
    assert f"{topic}:0 is at offset 7; a later one can be passed only where process(keep_done=True)" in later.stderr
    assert f"offset 20 is beyond the end: {topic}:0 ends at 20" in beyond.stderr
    assert kafka44.committed(group) == {(topic, 0): 8}


def test_groups_are_listed_with_their_lag_and_the_total(kafka44: KafkaCluster, group: str) -> None:
    topic = filled(kafka44)
    place = ("-t", topic, "--to-offset", "7", "--execute", "--create")
    assert run(kafka44, "offsets", "reset", group, *place).exit_code == 0

    listed = {row["group"]: row["lag"] for row in lines(run(kafka44, "groups", "list", "--lag", "--json"))}
    last = run(kafka44, "groups", "list", "--lag").stdout.splitlines()[-1].split()

    assert listed[group] == 6
    assert last[0] == "TOTAL"
    assert int(last[-1].removeprefix(">=")) >= 6  # tests before this one may have left groups whose topics are gone


def test_single_offsets_and_a_whole_group_are_deleted_after_a_dry_run(kafka44: KafkaCluster, group: str) -> None:
    topic, other = filled(kafka44), filled(kafka44)
    place = ("--to-offset", "3", "--execute", "--create")
    assert run(kafka44, "offsets", "reset", group, "-t", topic, "-t", other, *place).exit_code == 0

    dry = run(kafka44, "offsets", "delete", group, "-t", f"{topic}:1")
    assert len(kafka44.committed(group)) == 4
    one = run(kafka44, "offsets", "delete", group, "-t", f"{topic}:1", "--execute")
    again = run(kafka44, "offsets", "delete", group, "-t", f"{topic}:1", "--execute")
    assert kafka44.committed(group) == {(topic, 0): 3, (other, 0): 3, (other, 1): 3}
    whole = run(kafka44, "groups", "delete", group)
    done = run(kafka44, "groups", "delete", group, "--execute")
    gone = run(kafka44, "groups", "delete", group, "--execute")

    assert dry.stdout == f"Dry run: nothing was deleted. --execute deletes the offsets of {topic}:1 for group {group!r}.\n"
    assert one.stdout == f"Deleted the offsets of {topic}:1 for group {group!r}.\n"
    assert (again.exit_code, f"has committed nothing of {topic}:1" in again.stderr) == (1, True)
    assert "Dry run: nothing was deleted." in whole.stdout
    assert done.stdout.startswith(f"Deleted group {group!r} (")
    assert (gone.exit_code, "does not exist" in gone.stderr) == (1, True)


def test_a_group_with_members_is_not_deleted(kafka44: KafkaCluster, group: str, protocol: str) -> None:
    topic = filled(kafka44)
    with member(kafka44, topic, group, "--group-protocol", protocol):
        whole = run(kafka44, "groups", "delete", group, "--execute")
        offsets = run(kafka44, "offsets", "delete", group, "-t", topic, "--execute")

    assert (whole.exit_code, "is in use by 1 member" in whole.stderr) == (1, True)
    assert offsets.exit_code == 1


def test_a_shift_of_what_is_not_committed_names_the_partitions(kafka44: KafkaCluster, group: str) -> None:
    topic = filled(kafka44)

    result = run(kafka44, "offsets", "reset", group, "-t", topic, "--shift-by", "1", "--execute", "--create")

    assert result.exit_code == 1
    assert f"--shift-by: no offset is committed for {topic}:0,1" in result.stderr


def test_a_partition_to_reset_must_exist(kafka44: KafkaCluster, group: str) -> None:
    topic = filled(kafka44)

    result = run(kafka44, "offsets", "reset", group, "-t", f"{topic}:0,7", "--to-latest", "--execute", "--create")

    assert result.exit_code == 1
    assert f"topic {topic!r} has no partition 7; it has 2, from 0 on" in result.stderr


def test_a_mistyped_group_is_not_made(kafka44: KafkaCluster, group: str) -> None:
    is_not_made_if_mistyped(kafka44, group)


@contextmanager
def sharing(cluster: KafkaCluster, topic: str, group: str) -> Iterator[None]:
    """Have a share group with a member."""
    consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    consumer.subscribe([topic])
    try:
        consumer.poll(5.0)
        yield
    finally:
        consumer.close()


def test_a_share_group_is_not_taken_for_one_that_does_not_exist(kafka44: KafkaCluster, group: str) -> None:
    topic = filled(kafka44)
    with sharing(kafka44, topic, group):
        kinds = {line["group"]: line["type"] for line in lines(run(kafka44, "groups", "list", "--json"))}
        assert kinds[group] == "share"
        for arguments in (("--to-earliest",), ("--to-earliest", "--execute", "--create")):
            result = run(kafka44, "offsets", "reset", group, "-t", topic, *arguments)

            assert (result.exit_code, result.stdout) == (1, "")
            assert f"group '{group}' is in use by 1 member" in result.stderr
        assert "share protocol" in run(kafka44, "groups", "describe", group).stdout
        for protocol in ("auto", "classic", "consumer"):
            result = run(kafka44, "consume", topic, "-G", group, "--group-protocol", protocol)

            assert (result.exit_code, result.stdout) == (1, "")
            assert f"group '{group}' is a share group, not a group of consumers; 'kafka-async share consume' reads" in result.stderr


@contextmanager
def streaming(cluster: KafkaCluster, topic: str, group: str) -> Iterator[None]:
    """Have a group of Kafka Streams (KIP-1071) with a member, by the only requests that it takes."""
    topology = Topology(
        epoch=i32(0),
        subtopologies=(
            Subtopology(
                subtopology_id="0",
                source_topics=(TopicName(topic),),
                state_changelog_topics=(),
                repartition_source_topics=(),
                copartition_groups=(),
            ),
        ),
    )
    run(cluster, "offsets", "show", group)  # returns when the group has a coordinator
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection:

        def beat(epoch: int, **joining: Any) -> None:
            request = StreamsGroupHeartbeatRequest(
                group_id=GroupId(group),
                member_id=group,
                member_epoch=i32(epoch),
                endpoint_information_epoch=i32(-1),
                rebalance_timeout=i32Timedelta.parse(timedelta(seconds=30)),
                **{"active_tasks": None, "standby_tasks": None, "warmup_tasks": None, "client_tags": None} | joining,
                task_offsets=None,
                task_end_offsets=None,
            )
            header_type = request.__header_schema__
            header = header_type(
                request_api_key=request.__api_key__, request_api_version=i16(0), correlation_id=i32(epoch), client_id="s"
            )
            message = BytesIO()
            entity_writer(header_type)(message, header)
            entity_writer(StreamsGroupHeartbeatRequest)(message, request)
            connection.sendall(struct.pack(">i", message.tell()) + message.getvalue())
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
            answer = connection.recv(size, socket.MSG_WAITALL)
            assert answer[9:11] == b"\0\0", answer  # after the correlation id, no tags and the throttle time: no error

        beat(0, topology=topology, active_tasks=(), standby_tasks=(), warmup_tasks=(), client_tags=(), process_id=group)
        try:
            yield
        finally:
            beat(-1)


@pytest.mark.parametrize(
    "arguments",
    [("groups", "describe"), ("offsets", "show"), ("offsets", "reset", "--to-earliest", "--execute"), ("offsets", "forget")],
    ids=" ".join,
)
def test_a_group_of_kafka_streams_is_listed_and_refused_by_name(
    kafka44: KafkaCluster, group: str, arguments: tuple[str, ...]
) -> None:
    topic = filled(kafka44)
    with streaming(kafka44, topic, group):
        listed = [line for line in lines(run(kafka44, "groups", "list", "-J")) if line["group"] == group]
        topics = ("-t", topic) if arguments[-1] in ("--execute", "forget") else ()
        result = run(kafka44, *arguments[:2], group, *arguments[2:], *topics)
    assert [line["type"] for line in listed] == ["streams"]
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"kafka-async: group {group!r} is a streams group, not a group of consumers\n"


def test_reading_begins_at_a_date(kafka44: KafkaCluster) -> None:
    topic = filled(kafka44, partitions=1)

    for moment in ("s@1970-01-01T00:16:40.017", "s@1970-01-01T01:16:40.017+01:00", "s@1000017"):
        assert run(kafka44, "consume", topic, "-o", moment, "-e", "-q", "-f", r"%o\n").stdout.split() == ["17", "18", "19"]


def test_reading_begins_at_the_first_offset_that_is_left_and_says_so(kafka44: KafkaCluster) -> None:
    topic = filled(kafka44, partitions=1)
    for future in kafka44.admin.delete_records([AdminPartition(topic, 0, 15)]).values():
        future.result()

    result = run(kafka44, "consume", topic, "-o", "3", "-e", "-f", r"%o\n")

    assert result.stdout.split() == ["15", "16", "17", "18", "19"]
    assert f"% {topic} [0] has no offset 3 any more: reading begins at 15" in result.stderr


def test_an_offset_beyond_the_end_is_an_error(kafka44: KafkaCluster) -> None:
    topic = filled(kafka44)

    for more in ([], ["-e"]):
        result = run(kafka44, "consume", topic, "-o", "11", *more)

        assert (result.exit_code, result.stdout) == (1, "")
        assert f"offset 11 is beyond the end: {topic} [0] ends at 10, {topic} [1] ends at 10" in result.stderr
