"""Consumers between tasks: shared one after the other, never at once, never across a fork."""

import multiprocessing
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from kafka_async.adapters import sync
from kafka_async.adapters.spark.connections import Connections, connections
from kafka_async.errors import KafkaConfigurationError, KafkaConnectionError


class Consumer:
    """Stands in for a consumer."""

    made: list["Consumer"]
    refusals = 0

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.life: list[str] = []
        Consumer.made.append(self)

    def start(self) -> None:
        if Consumer.refusals:
            Consumer.refusals -= 1
            raise KafkaConnectionError("refused")
        self.life.append("started")

    def stop(self, timeout_ms: float) -> None:
        assert timeout_ms <= 2000
        self.life.append("stopped")


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connections]:
    Consumer.made = []
    monkeypatch.setattr(sync, "KafkaConsumer", Consumer)
    made = Connections()
    yield made
    made.close()
    assert all(consumer.life == ["started", "stopped"] for consumer in Consumer.made)


def test_one_user_after_the_other_has_the_same_consumer(pool: Connections) -> None:
    for _ in range(3):
        with pool.lease({"client_id": "a", "fetch_max_bytes": "5"}):
            pass
    (consumer,) = Consumer.made
    assert consumer.options == {"client_id": "a", "fetch_max_bytes": 5}


def test_two_users_at_a_time_have_one_each(pool: Connections) -> None:
    with pool.lease({"client_id": "a"}) as first, pool.lease({"client_id": "a"}) as second:
        assert first is not second


def test_other_options_are_another_consumer(pool: Connections) -> None:
    for client in ("a", "b", "a"):
        with pool.lease({"client_id": client}):
            pass
    assert len(Consumer.made) == 2


def test_a_consumer_that_failed_or_was_left_early_is_closed(pool: Connections) -> None:
    def read() -> Generator[int, None, None]:
        with pool.lease({"client_id": "a"}):
            yield 1
            yield 2

    reading = read()
    next(reading)
    reading.close()
    with pytest.raises(RuntimeError), pool.lease({"client_id": "a"}):
        raise RuntimeError
    assert [consumer.life for consumer in Consumer.made] == [["started", "stopped"]] * 2


def test_a_task_waits_for_brokers_that_refuse(pool: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    pool.clock = lambda: now[0]
    pool.sleep = lambda seconds: now.__setitem__(0, now[0] + seconds)
    monkeypatch.setattr(Consumer, "refusals", 3)
    with pool.lease({"client_id": "a"}, patience=2.0):
        pass
    pool.close()
    monkeypatch.setattr(Consumer, "refusals", 1)
    with pytest.raises(KafkaConnectionError), pool.lease({"client_id": "a"}):
        pass
    Consumer.made = [consumer for consumer in Consumer.made if consumer.life]


def test_an_idle_consumer_is_closed(pool: Connections) -> None:
    pool.idle_seconds = 0.01
    with pool.lease({"client_id": "a"}) as consumer:
        pass
    for thread in threading.enumerate():
        if thread.name == "kafka_async idle consumer":
            thread.join(5)
    assert consumer.life == ["started", "stopped"]  # type: ignore[attr-defined]  # the stand-in's


@pytest.mark.brokers
def test_a_child_process_begins_without_consumers(pool: Connections) -> None:
    before = connections()
    with multiprocessing.get_context("fork").Pool(1) as workers:
        assert workers.apply(_differs, (id(before),))
    assert connections() is before


def _differs(before: int) -> bool:
    return id(connections()) != before


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"group_id": ""}, "kafka.group.id='': expected a string of at most 32,767 bytes"),
        (
            {"isolation_level": "READ_COMMITTED"},
            "kafka.isolation.level='READ_COMMITTED': expected 'read_uncommitted' or 'read_committed'",
        ),
        ({"isolation_level": "isolation_level"}, "kafka.isolation.level='isolation_level': expected"),
        ({"bootstrap_servers": "a:b"}, "kafka.bootstrap.servers: 'a:b' is not an address"),
        (
            {"session_timeout_ms": "1", "heartbeat_interval_ms": "1"},
            "kafka.heartbeat.interval.ms=1: expected less than kafka.session",
        ),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "kafka.sasl.mechanism='PLAIN' needs kafka.sasl.plain.user"),
        (
            {"security_protocol": "SSL", "sasl_kerberos_keytab": "k"},
            "kafka.sasl.kerberos.keytab is set together with kafka.security",
        ),
        ({"security_protocol": "SSL", "ssl_cafile": "/none"}, "kafka.ssl.cafile='/none': cannot read the file"),
    ],
)
def test_what_the_consumer_refuses_has_the_name_that_people_give_it(given: dict[str, str], complaint: str) -> None:
    kafka = {"bootstrap_servers": "127.0.0.1:1"} | given
    with pytest.raises(KafkaConfigurationError) as caught, Connections().lease(kafka):
        pass
    assert str(caught.value).startswith(complaint)


def test_nothing_of_the_options_shows(pool: Connections) -> None:
    with pool.lease({"sasl_plain_password": "hunter2"}):
        pass
    assert "hunter2" not in repr(pool)
