"""What probes and Prometheus are told of workers."""

import pytest

from kafka_async.adapters.web.messages import RefusedRequest, WebRequest
from kafka_async.adapters.workers.health import Health, check
from kafka_async.adapters.workers.reports import Report
from kafka_async.adapters.workers.team import Policy, Team
from kafka_async.application.lifecycle.metrics import Point

NAME = "org.apache.kafka.consumer.fetch.manager.records.lag"


def ask(health: Health, path: str) -> tuple[int, str]:
    reply = health.answer(WebRequest("GET", path, {}, {}))
    return reply.status.value, reply.body.decode()


def team() -> Team:
    found = Team.of(2, Policy())
    for slot in found.slots:
        found.started(slot, 0.0)
    return found


def test_ready_means_that_each_was_assigned_partitions_once() -> None:
    workers = team()
    one, two = workers.slots
    health = Health(workers, lambda: 5.0)
    assert ask(health, "/alive") == (200, "alive\n")
    assert ask(health, "/ready") == (503, "not assigned partitions yet: worker 1, 2\n")
    workers.reported(one, Report(assigned_once=True), 1.0)
    assert ask(health, "/ready") == (503, "not assigned partitions yet: worker 2\n")
    workers.reported(two, Report(assigned_once=True), 1.0)
    assert ask(health, "/ready") == (200, "ready\n")
    workers.exited(one, -9, 2.0, jitter=0.0)
    assert ask(health, "/ready") == (200, "ready\n"), "a rolling update has long gone on"


def test_metrics_of_all() -> None:
    workers = team()
    one, two = workers.slots
    point = Point(name=NAME, value=7.0, labels=(("topic", 'a"b'), ("partition", "0")), total=False)
    workers.reported(one, Report(assigned_once=True, rss=1000, measured=(("billing-1", (point,)),)), 3.0)
    workers.exited(two, 1, 4.0, jitter=0.0)
    status, text = ask(Health(workers, lambda: 5.0), "/metrics")
    assert status == 200
    lines = text.splitlines()
    for line in (
        'kafka_async_worker_up{worker="1"} 1.0',
        'kafka_async_worker_up{worker="2"} 0.0',
        'kafka_async_worker_assigned_once{worker="1"} 1.0',
        'kafka_async_worker_starts_total{worker="2"} 1',
        'kafka_async_worker_rss_bytes{worker="1"} 1000',
        'kafka_async_worker_report_age_seconds{worker="1"} 2.0',
        'org_apache_kafka_consumer_fetch_manager_records_lag{worker="1",client_id="billing-1",topic="a\\"b",partition="0"} 7.0',
        "# TYPE org_apache_kafka_consumer_fetch_manager_records_lag gauge",
    ):
        assert line in lines
    assert not any(line.startswith('kafka_async_worker_rss_bytes{worker="2"}') for line in lines)
    assert len([line for line in lines if line.startswith("# TYPE")]) == len({line for line in lines if line.startswith("# TYPE")})


def test_other_paths_and_methods_are_refused() -> None:
    with pytest.raises(RefusedRequest, match="there are /alive, /ready and /metrics"):
        ask(Health(team(), lambda: 0.0), "/")
    check(WebRequest("HEAD", "/ready", {}, {"host": "anything"}))
    with pytest.raises(RefusedRequest, match="read only"):
        check(WebRequest("POST", "/ready", {}, {}))
