"""What a consumer shows of itself: statistics and metrics."""

import logging

import anyio
import pytest

from kafka_async import ConsumerState

from ..support import consumer_on, filled, read_values, virtual


@virtual
async def test_statistics_are_one_value() -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t", client_id="me") as consumer:
        await consumer.getmany(timeout_ms=1000, max_records=4)
        seen = consumer.statistics()
        await read_values(consumer, 6)
        assert (seen.client_id, seen.cluster_id, seen.records_consumed) == ("me", "fake-cluster", 4)
        part = seen.partitions[tp]
        assert (part.position, part.high_watermark, part.lag, part.leader, part.paused) == (4, 10, 6, 0, False)
        assert (part.state, part.log_start_offset) == ("fetching", 0)
        later = consumer.statistics()
        assert (later.records_consumed, later.partitions[tp].position, later.buffered_bytes) == (10, 10, 0)
    assert consumer.statistics().state is ConsumerState.CLOSED


@virtual
async def test_metrics_have_kafkas_names() -> None:
    cluster, _ = filled(10)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        metrics = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert metrics["records-consumed-total"] == 10
        assert metrics["fetch-total"] >= 1


@pytest.mark.slow
@virtual
async def test_a_read_that_waits_counts_as_polling_and_an_application_that_does_not_read_as_hanging() -> None:
    cluster, _ = filled(0)
    async with consumer_on(cluster, "t", group_id="g") as consumer, anyio.create_task_group() as tasks:

        def poll() -> float:
            return consumer.metrics()["consumer-metrics"]["last-poll-seconds-ago"]

        tasks.start_soon(consumer.getone)
        await anyio.sleep(100)
        assert poll() == 0
        tasks.cancel_scope.cancel()
    async with consumer_on(cluster, "t", group_id="g") as consumer:
        await consumer.getmany()
        await anyio.sleep(50)
        assert consumer.metrics()["consumer-metrics"]["last-poll-seconds-ago"] == pytest.approx(50)


@virtual
async def test_after_stop_no_partition_has_metrics_and_the_totals_stay() -> None:
    cluster, _ = filled(10)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        assert "consumer-fetch-manager-metrics.t-0" in consumer.metrics()
    metrics = consumer.metrics()
    assert "consumer-fetch-manager-metrics.t-0" not in metrics
    assert metrics["consumer-coordinator-metrics"]["assigned-partitions"] == 0
    assert metrics["consumer-fetch-manager-metrics"]["records-consumed-total"] == 10


@virtual
async def test_round_trips_are_logged_when_debug_is_switched_on_later(caplog: pytest.LogCaptureFixture) -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        assert not caplog.records
        caplog.set_level(logging.DEBUG, "kafka_async")
        await consumer.getmany(timeout_ms=2000)  # it is looked at once a second
        cluster.fill(tp, 1)
        await read_values(consumer, 1)
        shown = [record.getMessage() for record in caplog.records]
    assert any("RequestSent(" in line for line in shown)
    assert any("Fetched(" in line for line in shown)
