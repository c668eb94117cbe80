"""How health checks see a share consumer, on the simulated cluster."""

from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import pytest

from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.errors import (
    BrokerResponseError,
    CorruptRecordException,
    KafkaError,
    KafkaStorageError,
    TopicAuthorizationFailedError,
    UnknownError,
)
from kafka_async.model import ConsumerState, TopicPartition
from kafka_async.testing import Cluster
from kafka_async.trace import Fault, Notice, TraceEvent
from kafka_async.wire.messages import Api, ShareAssignment, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.testing.test_clusters import Run, on_both


@on_both
def test_probes_follow_the_life_of_a_share_consumer(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("jobs", partitions=1)
        consumer: ShareConsumer[Any, Any] = ShareConsumer("jobs", group_id="workers", **cluster.options())

        async def becomes(state: ConsumerState) -> None:
            with anyio.fail_after(120):
                while consumer.state is not state:  # noqa: ASYNC110  # as a probe does, from outside
                    await anyio.sleep(0.1)

        assert (consumer.ready, consumer.alive) == (False, False)
        async with consumer:
            assert (consumer.ready, consumer.alive) == (True, True)
            cluster_id = consumer.statistics().cluster_id
            assert cluster_id is not None
            cluster.stop(0)
            await becomes(ConsumerState.UNREACHABLE)
            assert (consumer.ready, consumer.alive) == (False, True)
            known = consumer.statistics()
            assert known.unreachable_since is not None
            assert known.last_answer_at is not None
            assert (known.last_answer_at <= known.unreachable_since, known.stale, known.cluster_id) == (True, True, cluster_id)
            cluster.start(0)
            await becomes(ConsumerState.STEADY)
            known = consumer.statistics()
            assert (known.unreachable_since, known.stale) == (None, False)
            assert (consumer.ready, consumer.alive) == (True, True)
            await consumer.unsubscribe()
            await becomes(ConsumerState.STEADY)
        assert (consumer.ready, consumer.alive) == (False, False)
        assert consumer.statistics().stale

    run(main)


def seen(consumer: ShareConsumer[Any, Any]) -> tuple[bool, float, list[str]]:
    """Return what a consumer says of partitions that cannot be read: whether it is ready, how many there are, and which."""
    stopped = consumer.metrics()["consumer-share-fetch-manager-metrics"]["stopped-partitions"]
    return consumer.ready, stopped, sorted(map(str, consumer.statistics().problems))


async def read(consumer: ShareConsumer[Any, Any], seconds: float) -> None:
    """Read for so long, whatever is raised meanwhile."""
    with anyio.move_on_after(seconds):
        while True:
            with suppress(KafkaError):
                await consumer.getone()


@pytest.mark.parametrize("error", [KafkaStorageError, UnknownError, CorruptRecordException])
@on_both
def test_a_partition_that_cannot_be_read_is_seen_while_it_lasts(run: Run, error: type[BrokerResponseError]) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("jobs", partitions=2)
        async with ShareConsumer[Any, Any]("jobs", group_id="workers", **cluster.options()) as consumer:
            with cluster.failing(Api.SHARE_FETCH, error, None):
                await read(consumer, 1)
                is_refusal = error is CorruptRecordException  # what may be an election is not shown before one is over
                assert seen(consumer) == ((False, 2, ["jobs-0", "jobs-1"]) if is_refusal else (True, 0, []))
                await read(consumer, 5)
                assert seen(consumer) == (False, 2, ["jobs-0", "jobs-1"])
                assert "jobs-1: " in consumer.statistics().problems[TopicPartition("jobs", 1)]
            await read(consumer, 5)
            assert seen(consumer) == (True, 0, [])
        assert seen(consumer) == (False, 0, [])

    run(main)


@pytest.mark.slow
@pytest.mark.parametrize("fails_first", [True, False])
@on_both
def test_a_partition_without_a_leader_is_seen_until_it_has_one(run: Run, fails_first: bool) -> None:
    async def main() -> None:
        cluster = Cluster(brokers=2)
        cluster.topic("jobs", partitions=2, replicas=1)
        cluster.move_coordinator("workers", 0)
        async with ShareConsumer[Any, Any]("jobs", group_id="workers", **cluster.options()) as consumer:
            await read(consumer, 1)
            if fails_first:
                with cluster.failing(Api.SHARE_FETCH, KafkaStorageError, None):
                    await read(consumer, 5)
                assert seen(consumer) == (False, 2, ["jobs-0", "jobs-1"])
            cluster.stop(1)
            await read(consumer, 20)
            assert seen(consumer) == (False, 1, ["jobs-1"])
            assert "replicas are on brokers 1" in consumer.statistics().problems[TopicPartition("jobs", 1)]
            cluster.start(1)
            await read(consumer, 5)
            assert seen(consumer) == (True, 0, [])
            cluster.stop(1)
            await read(consumer, 20)
            assert seen(consumer) == (False, 1, ["jobs-1"])
        assert seen(consumer) == (False, 0, [])

    run(main)


@on_both
def test_a_topic_that_is_denied_is_seen_until_access_is_given_back(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("jobs", partitions=1)
        async with ShareConsumer[Any, Any]("jobs", group_id="workers", **cluster.options()) as consumer:
            reading = partial(consumer.getmany, timeout_ms=2000)
            await reading()
            cluster.deny("jobs")
            with pytest.raises(TopicAuthorizationFailedError):
                await reading()
            assert seen(consumer) == (False, 1, ["jobs-0"])
            await anyio.sleep(60)
            assert seen(consumer) == (False, 0, []), "the group has taken the partition away"
            cluster.allow("jobs")
            with suppress(TopicAuthorizationFailedError):
                await reading()
            await reading()
            assert seen(consumer) == (True, 0, [])

    run(main)


@on_both
def test_a_member_that_gets_no_assignment_says_that_it_waits_and_what_for(run: Run) -> None:
    said: list[Notice | Fault] = []

    def take_notice(event: TraceEvent) -> None:
        if isinstance(event, Notice) or (isinstance(event, Fault) and event.subject == "group"):
            said.append(event)

    def nothing_to_read(_: int, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        """As brokers answer that cannot write down what is delivered: their topic for it does not exist yet."""
        epoch = 1 if request.member_epoch >= 0 else request.member_epoch
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=epoch, heartbeat_interval_ms=1000, assignment=ShareAssignment()
        )

    async def main() -> None:
        cluster = Cluster()
        cluster.topic("jobs", partitions=1)
        cluster.control(Api.SHARE_GROUP_HEARTBEAT, nothing_to_read, keep=True)
        options = cluster.options()
        consumer: ShareConsumer[Any, Any] = ShareConsumer("jobs", group_id="workers", trace=take_notice, **options)
        async with consumer:
            assert (consumer.ready, consumer.alive) == (False, True)
            assert said[-1].text == "started without an assignment; reads go on waiting for one"
        began = said[0].now
        first = next(event for event in said if isinstance(event, Fault))
        assert first.now < began + 6
        assert "share.coordinator.state.topic.replication.factor" in first.text

    run(main)
