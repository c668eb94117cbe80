"""Promise 9 in the states that a fault or a group brings about: the loop wakes for deadlines and bytes, and for nothing else.

What an undisturbed consumer does while it waits is in ``tests/application/test_idle_consumer.py``.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
import pytest
from attrs import define, frozen

from kafka_async import TopicPartition
from kafka_async.errors import KafkaError
from kafka_async.testing.simulation import HANG, Drop, FakeCluster
from kafka_async.testing.simulation.groups import Groups
from kafka_async.wire import Api
from kafka_async.wire.messages import FetchResponse, HeartbeatResponse
from tests.application.support import Consumer, consumer_on, virtual

WATCHED: Final = 40.0
"""Virtual seconds."""
POLLS: Final = 2.0 * WATCHED
"""Long polls of one broker in this time, with the default ``fetch_max_wait_ms``."""


@define(eq=False)
class World:
    """A consumer that has read what there was, and its cluster of three brokers."""

    cluster: FakeCluster
    coordinator: Groups
    consumer: Consumer

    def each_time(self, api: Api, outcome: Any) -> None:
        """Answer every request of ``api`` so from now on."""
        self.cluster.control(api, lambda broker, request: outcome, keep=True)

    def all_brokers(self, how: Callable[[int], None]) -> None:
        for node_id in self.cluster.brokers:
            how(node_id)


async def steady(world: World) -> None:
    """Nothing is wrong."""


async def cluster_refuses(world: World) -> None:
    world.all_brokers(world.cluster.stop)


async def cluster_hangs(world: World) -> None:
    world.all_brokers(lambda node_id: world.cluster.stop(node_id, "hang"))


async def cluster_freezes(world: World) -> None:
    world.all_brokers(world.cluster.freeze)


async def connections_end_at_once(world: World) -> None:
    world.each_time(Api.API_VERSIONS, Drop())
    world.all_brokers(world.cluster.disconnect)


async def no_coordinator(world: World) -> None:
    world.each_time(Api.FIND_COORDINATOR, 15)
    _unseat(world, 16)


async def coordinator_search_hangs(world: World) -> None:
    world.each_time(Api.FIND_COORDINATOR, HANG)
    _unseat(world, 16)


async def coordinator_loads(world: World) -> None:
    _unseat(world, 14)


async def coordinator_silent(world: World) -> None:
    for api in (Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT, Api.JOIN_GROUP):
        world.each_time(api, HANG)


async def coordinator_hangs_up(world: World) -> None:
    for api in (Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT, Api.JOIN_GROUP):
        world.each_time(api, Drop())


async def joining_without_end(world: World) -> None:
    world.each_time(Api.JOIN_GROUP, HANG)
    world.coordinator.kick("g")


async def refused_membership(world: World) -> None:
    for api in (Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT, Api.JOIN_GROUP, Api.SYNC_GROUP):
        world.each_time(api, 25)


async def fatal(world: World) -> None:
    for api in (Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT, Api.JOIN_GROUP, Api.SYNC_GROUP):
        world.each_time(api, 30)


async def rebalance_that_nobody_carries_out(world: World) -> None:
    world.coordinator.rebalance("g")


async def offsets_not_to_be_had(world: World) -> None:
    world.each_time(Api.OFFSET_FETCH, 14)
    world.coordinator.kick("g")


async def commits_refused(world: World) -> None:
    world.each_time(Api.OFFSET_COMMIT, 14)
    with suppress(KafkaError):
        await world.consumer.commit()


async def fetch_refused(world: World) -> None:
    world.each_time(Api.FETCH, 6)


async def fetch_unanswered(world: World) -> None:
    world.each_time(Api.FETCH, HANG)


async def throttled(world: World) -> None:
    world.each_time(Api.FETCH, FetchResponse(throttle_time_ms=10_000))
    world.each_time(Api.HEARTBEAT, HeartbeatResponse(throttle_time_ms=10_000))


async def topic_gone(world: World) -> None:
    world.cluster.delete_topic("t")
    world.all_brokers(world.cluster.disconnect)


async def topic_forbidden(world: World) -> None:
    world.cluster.topics["t"].error = 29
    world.all_brokers(world.cluster.disconnect)


async def no_metadata(world: World) -> None:
    world.each_time(Api.METADATA, HANG)
    world.cluster.move_leader(TopicPartition("t", 0), 2)


async def no_leader(world: World) -> None:
    world.cluster.stop(0)


def _unseat(world: World, code: int) -> None:
    for api in (Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT, Api.JOIN_GROUP, Api.OFFSET_COMMIT):
        world.each_time(api, code)


@frozen
class Bound:
    """What a state may cost in ``WATCHED`` seconds: turns of the loop, and what is sent or tried."""

    turns: float
    requests: float


FETCHING: Final = Bound(2 * 2 * POLLS + 220, 3 * POLLS + 240)
"""Three brokers are polled, and something is tried again at intervals of up to a second."""
RETRYING: Final = Bound(500, 270)
"""Nothing can be fetched; three brokers or one coordinator are tried at intervals of up to a second."""

STATES: Final[dict[Callable[[World], Awaitable[None]], Bound]] = {
    steady: FETCHING,
    cluster_refuses: RETRYING,
    cluster_hangs: RETRYING,
    cluster_freezes: RETRYING,
    connections_end_at_once: RETRYING,
    no_coordinator: FETCHING,
    coordinator_search_hangs: FETCHING,
    coordinator_loads: FETCHING,
    coordinator_silent: FETCHING,
    coordinator_hangs_up: FETCHING,
    joining_without_end: FETCHING,
    refused_membership: FETCHING,
    fatal: FETCHING,
    rebalance_that_nobody_carries_out: FETCHING,
    offsets_not_to_be_had: FETCHING,
    commits_refused: FETCHING,
    fetch_refused: FETCHING,
    fetch_unanswered: RETRYING,
    throttled: RETRYING,
    topic_gone: FETCHING,
    topic_forbidden: FETCHING,
    no_metadata: FETCHING,
    no_leader: FETCHING,
}


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@virtual
async def test_no_state_makes_the_loop_spin(protocol: str, state: Callable[[World], Awaitable[None]]) -> None:
    cluster = FakeCluster(size=3)
    for tp in cluster.create_topic("t", 3):
        cluster.fill(tp, 3)
    coordinator = cluster.groups
    async with consumer_on(cluster, "t", group_id="g", group_protocol=protocol, default_api_timeout_ms=5000) as consumer:
        while sum(tp_state.position or 0 for tp_state in consumer.statistics().partitions.values()) < 9:
            await consumer.getmany(timeout_ms=1000)
        await state(World(cluster, coordinator, consumer))
        await _read_on(consumer, 10.0)  # the first attempts follow each other sooner
        turns, sent, tried = consumer.statistics().wake_ups, len(cluster.requests), cluster.network.attempts
        await _read_on(consumer, WATCHED / 2)
        await anyio.sleep(WATCHED / 2)
        bound = STATES[state]
        assert consumer.statistics().wake_ups - turns <= bound.turns
        assert len(cluster.requests) - sent + cluster.network.attempts - tried <= bound.requests
        cluster.stop(0)  # so that leaving fails as well


async def _read_on(consumer: Consumer, seconds: float) -> None:
    end = anyio.current_time() + seconds
    while anyio.current_time() < end:
        with anyio.CancelScope(deadline=end), suppress(KafkaError):
            await consumer.getmany(timeout_ms=5000)
        await anyio.sleep(0.5)
