import re
import weakref
from math import isnan, nan
from pathlib import Path

import pytest

import kafka_async
from kafka_async.application.lifecycle.metrics import MAX_NODES, Metrics, Point, points
from kafka_async.application.processing.statistics import NOTHING, PROCESSING
from kafka_async.model import TopicPartition
from kafka_async.trace import (
    MEMBERSHIP,
    CommitFailed,
    ConnectionClosed,
    ConnectionOpened,
    Fault,
    Fetched,
    Notice,
    RequestFailed,
    RequestSent,
    ResponseReceived,
    StateChanged,
    TraceEvent,
)

FETCHES = "consumer-fetch-manager-metrics"
CLIENT = "consumer-metrics"
COORDINATOR = "consumer-coordinator-metrics"
ORDERS = TopicPartition("orders", 0)


def sent(now: float, *, size: int = 100, node: str = "a:9092 (id 1)", api: str = "Fetch") -> RequestSent:
    return RequestSent(now=now, node=node, api=api, version=1, correlation_id=1, size=size)


def received(
    now: float, *, size: int = 1000, latency: float = 0.01, throttle: float = 0.0, node: str = "a:9092 (id 1)", api: str = "Fetch"
) -> ResponseReceived:
    return ResponseReceived(now=now, node=node, api=api, correlation_id=1, size=size, latency=latency, throttle=throttle)


def counted(*events: TraceEvent) -> Metrics:
    metrics = Metrics()
    for event in events:
        metrics.requests(event)
    return metrics


def group(metrics: Metrics, now: float, name: str = CLIENT) -> dict[str, float]:
    return metrics.snapshot(now, lags={}, consumed={})[name]


def test_nothing_seen_gives_zeros_and_not_a_number_as_in_java() -> None:
    numbers = counted().snapshot(0.0, lags={}, consumed={})

    assert numbers.keys() == {FETCHES, CLIENT, COORDINATOR}
    assert numbers[CLIENT]["request-total"] == 0
    assert numbers[CLIENT]["request-rate"] == 0
    assert isnan(numbers[CLIENT]["request-size-avg"])
    assert isnan(numbers[FETCHES]["fetch-latency-max"])
    assert isnan(numbers[FETCHES]["fetch-throttle-time-max"])
    assert isnan(numbers[FETCHES]["records-lag-max"])
    assert isnan(numbers[FETCHES]["records-per-request-avg"])


def test_requests_and_responses_are_counted_for_the_client_and_for_each_broker() -> None:
    metrics = counted(
        sent(0.0, size=100, node="a"),
        sent(0.0, size=300, node="b"),
        received(1.0, size=4000, latency=0.010, node="a"),
        received(2.0, size=2000, latency=0.030, node="b"),
    )

    numbers = metrics.snapshot(10.0, lags={}, consumed={})

    client = numbers[CLIENT]
    assert (client["request-total"], client["response-total"]) == (2, 2)
    assert (client["outgoing-byte-total"], client["incoming-byte-total"]) == (400, 6000)
    assert (client["request-size-avg"], client["request-size-max"]) == (200, 300)
    assert client["request-latency-avg"] == pytest.approx(20)
    assert client["request-latency-max"] == pytest.approx(30)
    assert client["incoming-byte-rate"] == pytest.approx(600)
    assert numbers["consumer-node-metrics.a"]["request-total"] == 1
    assert numbers["consumer-node-metrics.b"]["incoming-byte-total"] == 2000


def test_only_fetch_responses_count_as_fetches() -> None:
    metrics = counted(
        sent(0.0), received(1.0, size=500, api="Metadata"), received(1.0, size=1000, latency=0.5), received(1.0, size=3000)
    )

    fetches = group(metrics, 10.0, FETCHES)

    assert fetches["fetch-total"] == 2
    assert (fetches["fetch-size-avg"], fetches["fetch-size-max"]) == (2000, 3000)
    assert fetches["fetch-latency-max"] == pytest.approx(500)


def test_throttling_is_averaged_over_all_fetches() -> None:
    assert group(counted(received(1.0), received(1.0)), 2.0, FETCHES)["fetch-throttle-time-max"] == 0

    fetches = group(counted(received(1.0), received(1.0, throttle=0.2)), 2.0, FETCHES)

    assert fetches["fetch-throttle-time-avg"] == pytest.approx(100)
    assert fetches["fetch-throttle-time-max"] == pytest.approx(200)


def test_connections_are_counted_when_they_open_and_when_they_close() -> None:
    metrics = counted(
        sent(0.0), ConnectionOpened(now=1.0, node="a"), ConnectionOpened(now=1.0, node="b"), ConnectionClosed(now=2.0, node="a")
    )

    client = group(metrics, 10.0)

    assert (client["connection-creation-total"], client["connection-close-total"]) == (2, 1)
    assert client["connection-creation-rate"] == pytest.approx(0.2)


def test_a_rate_is_right_from_the_start() -> None:
    metrics = counted(*(sent(second / 10) for second in range(50)))

    assert group(metrics, 5.0)["request-rate"] == pytest.approx(10)


def test_a_rate_never_divides_by_less_than_a_second() -> None:
    assert group(counted(sent(0.0), sent(0.001)), 0.002)["request-rate"] == pytest.approx(2)


def test_a_steady_rate_stays_the_same_over_many_samples() -> None:
    metrics = counted()
    rates = []
    for second in range(1, 301):
        metrics.requests(sent(second - 1))
        metrics.requests(sent(second - 0.5))
        if second > 5:
            rates.append(group(metrics, float(second))["request-rate"])

    assert rates == pytest.approx([2.0] * len(rates), rel=0.05)


def test_one_event_after_a_long_silence_is_not_read_as_a_high_rate() -> None:
    metrics = counted(sent(0.0), sent(1000.0))

    assert group(metrics, 1001.0)["request-rate"] == pytest.approx(1 / 30)


def test_averages_and_maxima_forget_what_is_older_than_two_samples_while_totals_do_not() -> None:
    metrics = counted(sent(0.0, size=9000), sent(40.0, size=10))
    assert group(metrics, 50.0)["request-size-max"] == 9000

    late = group(metrics, 65.0)

    assert (late["request-size-max"], late["request-size-avg"]) == (10, 10)
    assert late["outgoing-byte-total"] == 9010
    assert isnan(group(metrics, 500.0)["request-size-max"])
    assert group(metrics, 500.0)["request-rate"] == 0


def test_lags_come_per_partition_and_as_the_largest() -> None:
    lags = {ORDERS: 7, TopicPartition("orders", 1): 12, TopicPartition("events", 0): None}

    numbers = counted().snapshot(0.0, lags=lags, consumed={ORDERS: 3})

    assert numbers[FETCHES]["records-lag-max"] == 12
    assert numbers[f"{FETCHES}.orders-0"] == {"records-lag": 7, "records-consumed-total": 3}
    assert numbers[f"{FETCHES}.orders-1"] == {"records-lag": 12, "records-consumed-total": 0}
    assert numbers[f"{FETCHES}.events-0"] == pytest.approx({"records-lag": nan, "records-consumed-total": 0}, nan_ok=True)


def test_consumed_totals_are_those_that_the_application_hands_over() -> None:
    metrics = counted(sent(0.0), received(1.0), received(1.0))

    fetches = metrics.snapshot(10.0, lags={}, consumed={ORDERS: 5}, records_consumed=500, bytes_consumed=4000)[FETCHES]

    assert (fetches["records-consumed-total"], fetches["bytes-consumed-total"]) == (500, 4000)
    assert (fetches["records-consumed-rate"], fetches["bytes-consumed-rate"]) == (50, 400)
    assert fetches["records-per-request-avg"] == 250


def test_without_totals_records_are_those_of_the_assigned_partitions_and_bytes_are_unknown() -> None:
    fetches = counted().snapshot(0.0, lags={}, consumed={ORDERS: 5, TopicPartition("orders", 1): 6})[FETCHES]

    assert fetches["records-consumed-total"] == 11
    assert "bytes-consumed-total" not in fetches


@pytest.mark.parametrize("step", [1, 7, 45, 200])
def test_the_consumption_rate_does_not_depend_on_how_often_it_is_asked(step: int) -> None:
    metrics = counted(sent(0.0))
    for now in range(0, 1000, step):
        rate = metrics.snapshot(now, lags={}, consumed={}, records_consumed=now * 20)[FETCHES]["records-consumed-rate"]
        assert rate == pytest.approx(20 if now else 0)


def test_the_consumption_rate_falls_to_nothing_when_nothing_is_consumed_any_more() -> None:
    metrics = counted(sent(0.0))
    for now in (10, 50, 90, 130):
        rate = metrics.snapshot(now, lags={}, consumed={}, records_consumed=1000)[FETCHES]["records-consumed-rate"]

    assert rate == 0


def test_a_total_that_goes_back_gives_no_negative_rate() -> None:
    metrics = counted(sent(0.0))
    metrics.snapshot(40.0, lags={}, consumed={}, records_consumed=100)

    assert metrics.snapshot(80.0, lags={}, consumed={}, records_consumed=99)[FETCHES]["records-consumed-rate"] == 0


def test_brokers_beyond_the_limit_share_one_entry() -> None:
    metrics = counted(*(sent(0.0, node=f"broker-{number}:9092") for number in range(MAX_NODES + 100)))

    numbers = metrics.snapshot(1.0, lags={}, consumed={})

    assert len(numbers) == MAX_NODES + 4
    assert numbers["consumer-node-metrics.other"]["request-total"] == 100
    assert numbers[CLIENT]["request-total"] == MAX_NODES + 100


def test_events_without_a_metric_change_nothing() -> None:
    error = RuntimeError("x")
    metrics = counted(
        RequestFailed(now=1.0, node="a", api="Fetch", error=error),
        StateChanged(now=1.0, subject="s", before="a", after="b"),
        Fetched(now=1.0, topic="t", partition=0, size=1, latency=0.1),
        Fault(now=1.0, text="x"),
        Notice(now=1.0, text="x"),
    )

    for name, numbers in counted().snapshot(2.0, lags={}, consumed={}).items():
        assert group(metrics, 2.0, name) == pytest.approx(numbers, nan_ok=True)


def test_errors_are_not_kept() -> None:
    class Error(Exception):
        """What its traceback refers to lives as long as it does."""

    error = Error()
    seen = weakref.ref(error)
    metrics = counted(sent(0.0), RequestFailed(now=1.0, node="a", api="Fetch", error=error))

    del error

    assert seen() is None
    assert group(metrics, 2.0)["request-total"] == 1


def test_a_signal_handler_that_looks_at_the_numbers_loses_none() -> None:
    class Interrupted(int):
        """A size in whose addition the handler runs, after the meter was read and before it is set."""

        def __radd__(self, other: int) -> int:
            group(metrics, 2.0)
            return other + int(self)

    metrics = counted(sent(0.0), sent(1.0, size=Interrupted(100)), sent(1.0))

    assert group(metrics, 2.0)["request-total"] == 3


def moved(now: float, before: str, after: str) -> StateChanged:
    return StateChanged(now=now, subject=MEMBERSHIP, before=before, after=after)


def test_commits_are_timed() -> None:
    metrics = counted(sent(0.0), received(1.0, latency=0.01, api="OffsetCommit"), received(1.0, latency=0.03, api="OffsetCommit"))

    numbers = group(metrics, 10.0, COORDINATOR)

    assert numbers["commit-total"] == 2
    assert numbers["commit-latency-avg"] == pytest.approx(20)
    assert numbers["commit-latency-max"] == pytest.approx(30)


def test_a_rebalance_is_timed_from_its_first_state_to_its_end_in_either_protocol() -> None:
    classic = [moved(1.0, "UNSUBSCRIBED", "JOINING"), moved(2.0, "JOINING", "SYNCING"), moved(3.0, "SYNCING", "ASSIGNING")]
    classic.append(moved(3.5, "ASSIGNING", "STABLE"))
    modern = [moved(5.0, "STABLE", "RECONCILING"), moved(5.2, "RECONCILING", "ASSIGNING"), moved(5.5, "ASSIGNING", "ACKNOWLEDGING")]
    modern.append(moved(5.5, "ACKNOWLEDGING", "STABLE"))

    numbers = group(counted(sent(0.0), *classic, *modern), 10.0, COORDINATOR)

    assert numbers["rebalance-total"] == 2
    assert numbers["rebalance-latency-avg"] == pytest.approx(1500)
    assert numbers["rebalance-latency-max"] == pytest.approx(2500)
    assert numbers["rebalance-latency-total"] == pytest.approx(3000)


@pytest.mark.parametrize("end", ["STABLE", "LEAVING", "FATAL", "AWAY"])
def test_joining_alone_and_what_ends_without_an_assignment_is_no_rebalance(end: str) -> None:
    metrics = counted(sent(0.0), moved(1.0, "UNSUBSCRIBED", "JOINING"), moved(2.0, "JOINING", end), moved(9.0, "LEAVING", "STABLE"))

    assert group(metrics, 10.0, COORDINATOR)["rebalance-total"] == 0


def test_assigned_partitions_are_counted() -> None:
    assert counted().snapshot(0.0, lags={ORDERS: None}, consumed={})[COORDINATOR]["assigned-partitions"] == 1


def test_the_idle_ratio_is_the_part_of_the_time_that_read_calls_wait() -> None:
    metrics = counted(sent(0.0))
    metrics.idle.enter(2.0)
    metrics.idle.enter(3.0)  # another task
    metrics.idle.leave(4.0)
    metrics.idle.leave(7.0)
    assert group(metrics, 10.0)["poll-idle-ratio-avg"] == pytest.approx(0.5)

    metrics.idle.enter(10.0)  # and still waits
    assert group(metrics, 20.0)["poll-idle-ratio-avg"] == pytest.approx(0.75)


def test_points_have_the_names_and_labels_of_kip_714() -> None:
    numbers: dict[str, dict[str, float]] = {
        CLIENT: {"connection-creation-total": 2, "request-size-avg": nan},
        COORDINATOR: {"rebalance-latency-max": 1.5},
        "consumer-node-metrics.b1:9092 (id 1)": {"request-latency-avg": 3.0},
        "consumer-node-metrics.b1:9092 (id 1) coordinator": {"request-latency-avg": 5.0},
        "consumer-node-metrics.b1:9092 (id -1)": {"request-latency-avg": 6.0},
        "consumer-node-metrics.other": {"request-latency-avg": 4.0},
        "consumer-fetch-manager-metrics.a.b-c-7": {"records-lag": 8},
    }

    family = "org.apache.kafka.consumer"
    assert list(points(numbers)) == [
        Point(name=f"{family}.connection.creation.total", value=2, labels=(), total=True),
        Point(name=f"{family}.coordinator.rebalance.latency.max", value=1.5, labels=(), total=False),
        Point(name=f"{family}.node.request.latency.avg", value=3.0, labels=(("node_id", "1"),), total=False),
        Point(
            name=f"{family}.node.request.latency.avg",
            value=5.0,
            labels=(("node_id", "1"), ("connection", "coordinator")),
            total=False,
        ),
        Point(name=f"{family}.node.request.latency.avg", value=6.0, labels=(("node_id", "-1"),), total=False),
        Point(name=f"{family}.node.request.latency.avg", value=4.0, labels=(("node_id", "other"),), total=False),
        Point(name=f"{family}.fetch.manager.records.lag", value=8, labels=(("topic", "a.b-c"), ("partition", "7")), total=False),
    ]


def test_a_broker_that_moves_to_another_address_stays_one_series() -> None:
    metrics = counted(sent(0.0, node="a:9092 (id 1)"), sent(1.0, node="b:9092 (id 1)"), sent(2.0, node="b:9092 (id 2)"))

    numbers = metrics.snapshot(3.0, lags={}, consumed={})

    assert {name for name in numbers if name.startswith("consumer-node-metrics.")} == {
        "consumer-node-metrics.b:9092 (id 1)",
        "consumer-node-metrics.b:9092 (id 2)",
    }
    assert numbers["consumer-node-metrics.b:9092 (id 1)"]["request-total"] == 2


def test_a_sum_over_the_series_of_a_name_counts_nothing_twice() -> None:
    found = list(
        points(counted(sent(0.0), received(1.0)).snapshot(2.0, lags={ORDERS: 3}, consumed={ORDERS: 10}, bytes_consumed=100))
    )

    with_labels = {point.name for point in found if point.detailed}
    assert with_labels & {point.name for point in found if not point.detailed} == set()
    assert len({(point.name, point.labels) for point in found}) == len(found)
    totals = {point.name.rpartition("org.apache.kafka.consumer.")[2]: point.value for point in found}
    assert totals["fetch.manager.records.consumed.total"] == 10
    assert totals["fetch.manager.partition.records.consumed.total"] == 10
    assert totals["fetch.manager.records.lag"] == 3


def test_heartbeats_are_counted_and_timed_in_either_protocol() -> None:
    before = group(counted(), 5.0, COORDINATOR)
    assert (before["heartbeat-total"], before["heartbeat-rate"]) == (0, 0)
    assert isnan(before["last-heartbeat-seconds-ago"])
    assert isnan(before["heartbeat-response-time-max"])

    metrics = counted(
        sent(0.0), received(1.0, api="Heartbeat", latency=0.2), received(4.0, api="ConsumerGroupHeartbeat", latency=0.1)
    )

    numbers = group(metrics, 10.0, COORDINATOR)
    assert numbers["heartbeat-total"] == 2
    assert numbers["last-heartbeat-seconds-ago"] == 6
    assert numbers["heartbeat-response-time-max"] == 200


def silence(metrics: Metrics, now: float) -> float:
    return group(metrics, now, COORDINATOR)["last-heartbeat-seconds-ago"]


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_a_member_that_waits_for_others_to_join_misses_no_heartbeat(api: str) -> None:
    metrics = counted(received(10.0, api="Heartbeat"), sent(11.0, api=api))
    assert isnan(silence(metrics, 100.0))
    metrics.requests(received(101.0, api=api))
    assert silence(metrics, 103.0) == 2
    metrics.requests(sent(110.0, api=api))
    assert isnan(silence(metrics, 115.0))
    metrics.requests(RequestFailed(now=120.0, node="a:9092 (id 1)", api=api, error=OSError("gone")))
    assert silence(metrics, 150.0) == 49


def test_heartbeats_that_are_due_while_others_join_are_missed_if_they_are_not_answered() -> None:
    metrics = counted(received(10.0, api="Heartbeat"), sent(11.0, api="JoinGroup"), sent(13.0, api="Heartbeat"))
    assert silence(metrics, 50.0) == 40
    metrics.requests(received(51.0, api="Heartbeat"))
    assert silence(metrics, 53.0) == 2


def test_the_answer_to_a_heartbeat_that_was_sent_before_does_not_have_others_expected() -> None:
    metrics = counted(sent(10.9, api="Heartbeat"), sent(11.0, api="JoinGroup"), received(11.1, api="Heartbeat"))
    assert isnan(silence(metrics, 100.0))


def test_a_late_answer_to_what_joins_makes_no_member() -> None:
    metrics = counted(received(10.0, api="Heartbeat"), sent(11.0, api="JoinGroup"), moved(12.0, "JOINING", "UNSUBSCRIBED"))
    metrics.requests(received(60.0, api="JoinGroup"))
    assert isnan(silence(metrics, 100.0))


def test_commits_that_failed_are_counted() -> None:
    refused = CommitFailed(now=1.0, partitions=frozenset((ORDERS,)), error=ValueError("no"))
    numbers = group(counted(sent(0.0), refused, refused), 10.0, COORDINATOR)
    assert numbers["commit-failed-total"] == 2
    assert numbers["commit-failed-rate"] == pytest.approx(0.2)


def test_the_time_since_the_last_read_call_is_shown_once_there_was_one() -> None:
    assert isnan(group(counted(), 9.0)["last-poll-seconds-ago"])
    assert counted().snapshot(9.0, lags={}, consumed={}, polled_at=4.0)[CLIENT]["last-poll-seconds-ago"] == 5


def test_every_metric_that_kip_714_asks_of_consumers_is_there() -> None:
    metrics = counted(
        sent(0.0),
        ConnectionOpened(now=0.0, node="a"),
        received(1.0),
        received(1.0, api="OffsetCommit"),
        moved(1.0, "STABLE", "RECONCILING"),
        moved(2.0, "ACKNOWLEDGING", "STABLE"),
    )

    names = {point.name for point in points(metrics.snapshot(10.0, lags={}, consumed={}))}

    required = """connection.creation.rate connection.creation.total node.request.latency.avg node.request.latency.max
        poll.idle.ratio.avg coordinator.commit.latency.avg coordinator.commit.latency.max coordinator.assigned.partitions
        coordinator.rebalance.latency.avg coordinator.rebalance.latency.max coordinator.rebalance.latency.total
        fetch.manager.fetch.latency.avg fetch.manager.fetch.latency.max"""
    assert {f"org.apache.kafka.consumer.{name}" for name in required.split()} <= names


def test_the_page_of_metrics_has_each_of_them_by_group_and_no_other() -> None:
    metrics = counted(sent(0.0))
    groups = metrics.snapshot(1.0, lags={ORDERS: 0}, consumed={ORDERS: 0}, stopped=0, bytes_consumed=0, polled_at=0.5)
    page = (Path(kafka_async.__file__).parent / "application" / "METRICS.md").read_text()

    described: dict[str, list[str]] = {}
    for section in page.split("\n## ")[1:]:
        described[section.splitlines()[0]] = re.findall(r"^\| `([a-z-]+)` \| .{8,} \|$", section, re.MULTILINE)

    assert sorted(described[FETCHES]) == sorted([*groups[FETCHES], *groups[f"{FETCHES}.orders-0"]])
    assert sorted(described[CLIENT]) == sorted(groups[CLIENT])
    assert sorted(described[COORDINATOR]) == sorted(groups[COORDINATOR])
    assert described[PROCESSING] == list(NOTHING.metrics())
    of_broker = list(groups["consumer-node-metrics.a:9092 (id 1)"])
    assert described[CLIENT][described[CLIENT].index(of_broker[0]) :][: len(of_broker)] == of_broker
