"""The log: what is written at which level, by whom, how often, and that nothing of a broker's gets into it as more than text."""

import ast
import logging
from pathlib import Path
from typing import Any

import pytest

from kafka_async import trace
from kafka_async.errors import DeserializationError, KafkaError, NotLeaderForPartitionError
from kafka_async.model import TopicPartition
from kafka_async.trace import (
    LONGEST,
    MEMBERSHIP,
    ConnectionOpened,
    Fault,
    Fetched,
    LoggingListener,
    Notice,
    RecordFailed,
    Recovered,
    StateChanged,
    TraceEvent,
    Unassigned,
    connection_outage,
    partition_names,
)

NAME = "kafka_async.test_trace"
A0, A1, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)


def records(caplog: pytest.LogCaptureFixture, *events: TraceEvent) -> list[logging.LogRecord]:
    """Return what is written of ``events`` above DEBUG."""
    caplog.set_level(logging.DEBUG, NAME)
    listener = LoggingListener(logger=logging.getLogger(NAME), client_id="web", group_id="billing")
    for event in events:
        listener(event)
    return [record for record in caplog.records if record.levelno > logging.DEBUG]


def logged(caplog: pytest.LogCaptureFixture, *events: TraceEvent) -> list[str]:
    """Return the same as lines, each with its level and without who wrote it."""
    return [
        f"{record.levelname} {record.getMessage().removeprefix('[web, group billing] ')}" for record in records(caplog, *events)
    ]


def test_an_outage_is_one_warning_and_its_end_is_a_line_with_its_length(caplog: pytest.LogCaptureFixture) -> None:
    fault = Fault(now=0.0, text="the heartbeat failed", error=KafkaError("why"), outage="heartbeats")

    assert logged(
        caplog,
        fault,
        Fault(now=70.0, text="the heartbeat failed", outage="heartbeats"),
        Recovered(now=81.5, outage="heartbeats"),
        Recovered(now=84.5, outage="heartbeats"),
    ) == [
        "WARNING the heartbeat failed (KafkaError('why'))",
        "INFO recovered: heartbeats, after 81.5 s and 2 failures",
    ]


def test_a_second_outage_is_news_however_soon_it_comes(caplog: pytest.LogCaptureFixture) -> None:
    fault = Fault(now=0.0, text="lost", outage="commits")

    lines = logged(caplog, fault, Recovered(now=0.5, outage="commits"), Fault(now=1.0, text="lost", outage="commits"))

    assert [line for line in lines if line.startswith("WARNING")] == ["WARNING lost"] * 2


def test_an_outage_that_goes_on_is_said_again_from_time_to_time(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog, *(Fault(now=now * 10.0, text="lost", outage="commits") for now in range(121)))

    assert lines == ["WARNING lost"] * 3  # at the beginning, after ten minutes and after twenty


def test_an_open_connection_ends_the_outage_of_it_and_of_no_other(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(
        caplog,
        Fault(now=0.0, text="connection to b1:9092 failed", outage=connection_outage("b1:9092")),
        Fault(now=1.0, text="connection to b2:9092 failed", outage=connection_outage("b2:9092")),
        ConnectionOpened(now=3.0, node="b1:9092"),
        ConnectionOpened(now=4.0, node="b3:9092"),
    )

    assert lines[2:] == ["INFO recovered: the connection to b1:9092, after 3.0 s and 1 failure"]


def test_many_partitions_are_one_warning_and_each_is_in_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    error = NotLeaderForPartitionError("moved")

    def fault(now: float, *partitions: TopicPartition) -> Fault:
        return Fault(now=now, text="cannot be fetched", error=error, outage="reading", partitions=frozenset(partitions))

    lines = logged(
        caplog,
        fault(0.0, A0, A1, B0),
        fault(1.0, A0, A1),
        fault(2.0, A1, A2),
        Recovered(now=4.0, outage="reading", partitions=frozenset((A0, B0))),
        Recovered(now=5.0, outage="reading", partitions=frozenset((A1, A2))),
    )

    assert [line.rpartition(": ")[2] for line in lines] == ["a-0,1 b-0", "a-2", "a-0 b-0", "a-1,2"]
    assert lines[2] == "INFO recovered: reading, after 4.0 s and 3 failures: a-0 b-0"


def test_an_outage_of_thousands_of_partitions_is_one_warning_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    listener, many = LoggingListener(), frozenset(TopicPartition("orders", number) for number in range(3_000))
    with caplog.at_level(logging.INFO, "kafka_async"):
        listener(Fault(now=0.0, text="no coordinator", subject="group", outage="the coordinator"))
        for now in (1.0, 2.0, 3.0):
            listener(Fault(now=now, text="denied", subject="fetch", outage="reading", partitions=many))
        listener(Recovered(now=4.0, outage="reading", subject="fetch", partitions=many))
        listener(Recovered(now=5.0, outage="the coordinator", subject="group"))
    assert [record.getMessage()[:9] for record in caplog.records] == ["no coordi", "denied: o", "recovered", "recovered"]


def test_the_outage_of_a_partition_that_leaves_ends_and_if_it_comes_back_another_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fault(now: float) -> Fault:
        return Fault(now=now, text="cannot be fetched", subject="fetch", outage="reading", partitions=frozenset((A0, A1)))

    lines = logged(
        caplog,
        fault(0.0),
        Fault(now=1.0, text="refused", subject="commit", outage="auto-commit", partitions=frozenset((A0,))),
        Unassigned(now=4.0, partitions=frozenset((A0, B0))),
        fault(5.0),
        Recovered(now=7.0, outage="reading", partitions=frozenset((A0, A1))),
        Unassigned(now=8.0, partitions=frozenset((A0, A1))),
    )

    assert lines == [
        "WARNING cannot be fetched: a-0,1",
        "WARNING refused: a-0",
        "INFO no longer assigned: auto-commit, after 3.0 s and 1 failure: a-0",
        "INFO no longer assigned: reading, after 4.0 s and 1 failure: a-0",
        "WARNING cannot be fetched: a-0",
        "INFO recovered: reading, after 7.0 s and 3 failures: a-0,1",
    ]
    writers = [record.name.removeprefix(NAME) for record in caplog.records if "no longer" in record.getMessage()]
    assert writers == [".commit", ".fetch"]


def test_a_fault_that_is_no_outage_is_one_warning_a_minute_and_a_notice_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(
        caplog,
        Fault(now=0.0, text="lost", error=KafkaError("why")),
        Fault(now=59.0, text="lost"),
        Fault(now=60.0, text="lost"),
        Notice(now=61.0, text="found", partitions=frozenset((A0,))),
    )
    assert lines == ["WARNING lost (KafkaError('why'))", "WARNING lost", "INFO found: a-0"]
    assert "Fault(now=59.0" in "".join(record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG)


def test_each_line_says_whose_it_is_and_fields_hold_the_same_for_programs(caplog: pytest.LogCaptureFixture) -> None:
    fault = Fault(now=0.0, text="lost", error=KafkaError("why"), subject="fetch", outage="reading", partitions=frozenset((A1, A0)))

    lost, found = records(caplog, fault, Recovered(now=2.5, outage="reading", subject="fetch", partitions=frozenset((A0,))))

    assert lost.getMessage() == "[web, group billing] lost (KafkaError('why')): a-0,1"
    names = ("client_id", "group_id", "partitions", "outage", "outage_seconds", "error")
    assert [vars(lost)[name] for name in names] == ["web", "billing", ["a-0", "a-1"], "reading", None, "KafkaError"]
    assert [vars(found)[name] for name in names] == ["web", "billing", ["a-0"], "reading", 2.5, None]


@pytest.mark.parametrize(
    ("event", "logger"),
    [
        (Fault(now=0.0, text="x", subject="commit"), f"{NAME}.commit"),
        (Notice(now=0.0, text="x", subject="group"), f"{NAME}.group"),
        (Notice(now=0.0, text="x"), NAME),
        (ConnectionOpened(now=0.0, node="b:1"), f"{NAME}.network"),
        (Fetched(now=0.0, topic="a", partition=0, size=1, latency=0.1), f"{NAME}.fetch"),
        (StateChanged(now=0.0, subject=MEMBERSHIP, before="joining", after="stable"), f"{NAME}.group"),
    ],
)
def test_each_subject_has_a_logger(event: TraceEvent, logger: str, caplog: pytest.LogCaptureFixture) -> None:
    records(caplog, event)

    assert [record.name for record in caplog.records] == [logger]


@pytest.mark.parametrize("kind", [Fault, Notice])
def test_a_text_is_one_line_without_control_codes_and_bounded(kind: type[Fault | Notice], caplog: pytest.LogCaptureFixture) -> None:
    """Hosts, topics and reasons come from brokers: they must not forge lines, nor speak to a terminal."""
    (line,) = logged(caplog, kind(now=0.0, text="lost evil\x1b]0;x\x07\nINFO all is well \x9b31m" + "h" * 10_000))
    assert line.isprintable()
    assert len(line) < LONGEST + 20


def test_partitions_are_named_by_topic() -> None:
    assert partition_names([B0, A1, A0]) == "a-0,1 b-0"


@pytest.mark.slow
def test_every_line_of_the_background_belongs_to_a_subject() -> None:
    """Whoever sets the level of ``kafka_async.group`` means all that is logged of groups."""
    folder = Path(trace.__file__).parent / "background"
    calls = [
        (path.name, node)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Notice", "Fault", "Recovered")
    ]
    assert len(calls) > 20
    without = {name for name, node in calls if "subject" not in {keyword.arg for keyword in node.keywords}}
    assert without == {"loop.py", "telemetry.py"}, "which are about no subject of their own"


_DOWN = OSError("down")


def _failed(now: float, offset: int, outcome: str, error: Exception = _DOWN, **more: Any) -> RecordFailed:
    more = {"attempt": 1, "final": True, **more}
    return RecordFailed(now=now, topic="t", partition=0, offset=offset, error=error, outcome=outcome, **more)


def test_a_record_that_no_handler_had_is_said_to_be_one(caplog: pytest.LogCaptureFixture) -> None:
    log = LoggingListener()
    log(_failed(0, 1, "dead letter", DeserializationError("bad"), attempt=0))
    log(_failed(0, 2, "skipped", attempt=0))
    log(_failed(0, 3, "dead letter", DeserializationError("of a handler's own")))
    assert [entry.message for entry in caplog.records] == [
        "t-0 at offset 1: dead letter before a handler had it, since it cannot be deserialized (DeserializationError('bad'))",
        "t-0 at offset 2: skipped before a handler had it (OSError('down'))",
        't-0 at offset 3: dead letter after attempt 1 (DeserializationError("of a handler\'s own"))',
    ]


def test_failures_that_are_tried_again_are_one_warning_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka_async")
    log = LoggingListener()

    def fail(now: float, offset: int, outcome: str, *, final: bool = False) -> None:
        log(_failed(now, offset, outcome, final=final))

    for offset in range(30_000):
        fail(offset / 1_000, offset, "tried again in 0.5 s")
    fail(61, 30_000, "tried again in 0.5 s")
    fail(61, 30_001, "skipped", final=True)
    fail(61, 30_002, "skipped", final=True)
    fail(61, 30_003, "stop")
    assert [(entry.levelname, entry.message) for entry in caplog.records] == [
        ("WARNING", "t-0 at offset 0: tried again in 0.5 s after attempt 1 (OSError('down'))"),
        (
            "WARNING",
            "t-0 at offset 30000: tried again in 0.5 s after attempt 1 (OSError('down')); 30000 failures since the last such line",
        ),
        ("WARNING", "t-0 at offset 30001: skipped after attempt 1 (OSError('down'))"),
        ("WARNING", "t-0 at offset 30002: skipped after attempt 1 (OSError('down'))"),
        ("INFO", "t-0 at offset 30003: stop after attempt 1 (OSError('down'))"),
    ]
