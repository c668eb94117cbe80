"""What workers tell their parent."""

from math import nan

import pytest

from kafka_async.adapters.workers.reports import CannotRun, Report, read_line, report_of


class Consumer:
    """A consumer as far as a report looks at it."""

    def __init__(self, *, assigned_once: bool = True, alive: bool = True, reads: bool = True) -> None:
        self.assigned_once = assigned_once
        self.alive = alive
        self.reads = reads

    def metrics(self) -> dict[str, dict[str, float]]:
        return {
            "consumer-fetch-manager-metrics": {"records-consumed-total": 3.0, "fetch-size-avg": nan},
            "consumer-fetch-manager-metrics.orders-0": {"records-lag": 5.0},
        }


def test_a_report_comes_as_it_was_sent() -> None:
    report = report_of([("billing-1", Consumer(), True)], 1000)
    assert (report.assigned_once, report.alive, report.rss) == (True, True, 1000)
    ((client_id, points),) = report.measured
    assert client_id == "billing-1"
    assert [(point.name, point.value, point.labels, point.total) for point in points] == [
        ("org.apache.kafka.consumer.fetch.manager.records.consumed.total", 3.0, (), True),
        ("org.apache.kafka.consumer.fetch.manager.records.lag", 5.0, (("topic", "orders"), ("partition", "0")), False),
    ]
    assert report.line().count(b"\n") == 1
    assert read_line(report.line()) == report


def test_a_refusal_comes_as_it_was_sent() -> None:
    assert read_line(CannotRun("group_id: expected\na name").line()) == CannotRun("group_id: expected\na name")


@pytest.mark.parametrize(
    ("consumers", "assigned_once", "alive"),
    [
        ([], False, True),
        ([Consumer(assigned_once=False)], False, True),
        ([Consumer(), Consumer(assigned_once=False)], False, True),
        ([Consumer(), Consumer(alive=False)], True, False),
        ([Consumer(), Consumer(assigned_once=False, reads=False)], True, True),
        ([Consumer(assigned_once=False), Consumer(assigned_once=False, reads=False)], False, True),
        ([Consumer(assigned_once=False, reads=False)], False, True),
        ([Consumer(reads=False)], True, True),
        ([Consumer(), Consumer(assigned_once=False, alive=False, reads=False)], True, False),
    ],
    ids=[
        "no consumer yet",
        "one without partitions",
        "one of two without",
        "one that cannot recover",
        "one that only asks, beside one with partitions",
        "one that only asks, beside one without",
        "one that has not subscribed yet",
        "one that has unsubscribed",
        "one that only asks, and cannot recover",
    ],
)
def test_a_process_is_as_far_as_its_last_consumer(consumers: list[Consumer], assigned_once: bool, alive: bool) -> None:
    report = report_of([("", each, each.reads) for each in consumers], 0)
    assert (report.assigned_once, report.alive) == (assigned_once, alive)


def test_a_program_that_may_run_later_says_so() -> None:
    told = CannotRun("NoBrokersAvailable", for_now=True)
    assert read_line(told.line()) == told


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"{}", b"[]", b"1", b'{"assigned_once":1}', Report().line()[:-3], b'{"measured":[1]}', b"\xff"]
)
def test_other_lines_are_refused_by_name(line: bytes) -> None:
    with pytest.raises(ValueError, match="a line of a worker that is no report"):
        read_line(line)
