import json

import pytest

from kafka_async import ConsumerRecord
from kafka_async.adapters.cli.demo import KEPT, Arrivals, DemoOutcome, DemoPlan, MockCluster, demonstrate, most_backlog, order


class Seen:
    def __init__(self) -> None:
        self.received = self.backlog = 0

    def caught_up(self, *, records: int, seconds: float) -> None:
        self.backlog = records

    def update(self, *, produced: int, received: int, seconds: float, lag: int) -> None:
        assert received <= produced or seconds == 0
        self.received = received


def arrived(number: int) -> ConsumerRecord[bytes, bytes]:
    key, value = order(number, 100)
    return ConsumerRecord("orders", 0, 0, 0, 0, key.encode(), value.encode(), (), None, len(key), len(value), 0)


def outcome(**changes: int) -> DemoOutcome:
    numbers = {"produced": 5, "received": 5, "missing": 0, "twice": 0, "size": 10, "partitions": 4, "brokers": 3} | changes
    return DemoOutcome(seconds=1.0, error=None, **numbers)


@pytest.mark.parametrize("size", [1, 110, 150, 5000])
def test_an_order_is_json_of_at_least_the_size_asked_for(size: int) -> None:
    key, value = order(42, size)

    assert json.loads(value)["order"] == "0000000042"
    assert json.loads(value)["customer"] == key
    assert len(value) >= size or size < 110
    assert len(value) == size or size < 150


def test_a_plan_ends_with_its_records_or_its_time_whichever_comes_first() -> None:
    both = DemoPlan(records=100, seconds=2.0, rate=1000.0)
    assert (both.due(0.05, 0), both.due(1.0, 0)) == (50, 100)
    assert both.over(100, 0.0)
    assert both.over(0, 2.0)
    assert not both.over(99, 1.9)

    assert DemoPlan(records=None, seconds=2.0, rate=10.0).due(100.0, 0) == 20
    assert DemoPlan(records=7, seconds=None, rate=None).due(0.0, 0) == 7
    assert not DemoPlan(records=7, seconds=None).over(6, 1e9)


@pytest.mark.parametrize("size", [1, 150, 900_000])
def test_production_never_runs_further_ahead_than_the_cluster_keeps(size: int) -> None:
    plan = DemoPlan(records=None, seconds=None, rate=None, size=size)

    ahead = plan.due(1000.0, 5000) - 5000

    assert 1 <= ahead * len("".join(order(1, size))) < KEPT


@pytest.mark.parametrize("partitions", [0, 5])
def test_more_partitions_than_the_topic_has_are_refused(partitions: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 4"):
        DemoPlan(partitions=partitions)


def test_arrivals_tell_what_is_missing_and_what_came_twice() -> None:
    arrivals = Arrivals()
    arrivals.add([arrived(3), arrived(0), arrived(3)])

    assert (arrivals.records, arrivals.twice, arrivals.missing(5), arrivals.missing(0)) == (3, 1, 3, 0)


def test_only_a_run_with_every_record_once_is_complete() -> None:
    assert outcome().complete
    assert outcome().verdict == "All 5 records arrived, none missing, none twice."
    assert not outcome(produced=0, received=0).complete
    assert not outcome(missing=1, received=4).complete
    assert not outcome(twice=1, received=6).complete
    assert outcome(missing=1, received=4).verdict == "4 of 5 records arrived, 1 missing, 0 twice."


def test_a_cluster_that_does_not_run_takes_no_topic() -> None:
    with pytest.raises(RuntimeError, match="'with' block"):
        MockCluster().create("orders")


@pytest.mark.slow
async def test_every_record_of_a_run_arrives_once() -> None:
    view = Seen()
    with MockCluster() as cluster:
        result = await demonstrate(DemoPlan(records=5000, seconds=None, rate=None, size=200), cluster, view)

    assert result.complete, result.verdict
    assert (result.received, result.partitions, result.brokers) == (5000, 4, 3)
    assert result.size >= 5000 * 200
    assert view.received == 5000


async def test_a_backlog_is_read_before_anything_is_produced_live() -> None:
    view = Seen()
    with MockCluster() as cluster:
        result = await demonstrate(DemoPlan(backlog=3000, records=500, seconds=None, rate=None), cluster, view)

    assert result.complete, result.verdict
    assert (result.received, result.backlog, view.backlog, view.received) == (3500, 3000, 3000, 500)


def test_a_backlog_fits_into_what_the_cluster_keeps() -> None:
    assert 0 < most_backlog(1, 900_000) * 900_000 < KEPT
    assert most_backlog(2, 150) < most_backlog(4, 150)
