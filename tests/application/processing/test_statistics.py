"""The snapshot of a processing, and its metrics."""

from attrs import evolve

from kafka_async import TopicPartition
from kafka_async.application.processing.statistics import NOTHING


def test_metrics_are_numbers_and_zero_before_the_first_record() -> None:
    assert set(NOTHING.metrics().values()) == {0}


def test_partitions_that_wait_until_their_next_record_is_due_are_counted() -> None:
    some = evolve(NOTHING, delayed=5, delayed_until={TopicPartition("t", 0): 10, TopicPartition("t", 1): 20})
    assert (some.metrics()["records-delayed"], some.metrics()["partitions-delayed"]) == (5, 2)


def test_times_are_milliseconds_unless_their_names_say_seconds() -> None:
    some = evolve(NOTHING, oldest_age=1.5, seconds_in_queue=2.0, seconds_in_handlers=3.0).metrics()
    assert (some["oldest-age-seconds"], some["queue-time-total"], some["handler-time-total"]) == (1.5, 2_000, 3_000)
