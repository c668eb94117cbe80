"""How health checks see a share consumer, on the simulated cluster."""

from typing import Any

import anyio

from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.model import ConsumerState
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
            cluster.stop(0)
            await becomes(ConsumerState.UNREACHABLE)
            assert (consumer.ready, consumer.alive) == (False, True)
            cluster.start(0)
            await becomes(ConsumerState.STEADY)
            assert (consumer.ready, consumer.alive) == (True, True)
            await consumer.unsubscribe()
            await becomes(ConsumerState.STEADY)
        assert (consumer.ready, consumer.alive) == (False, False)

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
