"""How health checks see a share consumer, on the simulated cluster."""

from typing import Any

import anyio

from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.model import ConsumerState
from kafka_async.testing import Cluster
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
