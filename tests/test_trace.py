"""The log: what is written at which level, how often, and that nothing of a broker's gets into it as more than text."""

import logging

import pytest

from kafka_async.errors import KafkaError
from kafka_async.trace import LONGEST, Fault, LoggingListener, Notice, TraceEvent

NAME = "kafka_async.test_trace"


def logged(caplog: pytest.LogCaptureFixture, *events: TraceEvent) -> list[str]:
    """Return what is written of ``events``, each line with its level."""
    caplog.set_level(logging.DEBUG, NAME)
    listener = LoggingListener(logger=logging.getLogger(NAME))
    for event in events:
        listener(event)
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def test_a_fault_is_one_warning_a_minute_and_a_notice_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(
        caplog,
        Fault(now=0.0, text="lost", error=KafkaError("why")),
        Fault(now=59.0, text="lost"),
        Fault(now=60.0, text="lost"),
        Notice(now=61.0, text="found"),
    )
    assert [lines[0], *lines[2:]] == ["WARNING lost (KafkaError('why'))", "WARNING lost", "INFO found"]
    assert lines[1].startswith("DEBUG Fault(")


@pytest.mark.parametrize("kind", [Fault, Notice])
def test_a_text_is_one_line_without_control_codes_and_bounded(kind: type[Fault | Notice], caplog: pytest.LogCaptureFixture) -> None:
    """Hosts, topics and reasons come from brokers: they must not forge lines, nor speak to a terminal."""
    (line,) = logged(caplog, kind(now=0.0, text="lost evil\x1b]0;x\x07\nINFO all is well \x9b31m" + "h" * 10_000))
    assert line.isprintable()
    assert len(line) < LONGEST + 20
