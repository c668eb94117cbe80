"""What a program learns if things fail: final errors, a cluster that is away, a start that is tried again."""

import time
from contextlib import suppress
from typing import Any

import anyio
import pytest

from kafka_async import ConsumerState, KafkaConsumer, TopicPartition
from kafka_async.errors import (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
)
from kafka_async.testing import Cluster
from kafka_async.wire import Api

from .others import GROUP
from .programs import Event, Program, Read
from .runner import run
from .support import Ownership, every_protocol, offsets_of, virtual


def _fence(place: Ownership, code: int) -> None:
    """Refuse every heartbeat from now on."""
    for api in (Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT, Api.JOIN_GROUP, Api.SYNC_GROUP):
        place.cluster.control(api, lambda broker, request: code, keep=True)


@every_protocol
@pytest.mark.parametrize(("code", "error"), [(82, FencedInstanceIdError), (30, GroupAuthorizationFailedError)])
@virtual
async def test_a_final_error_is_raised_by_every_later_read_and_commit(protocol: str, code: int, error: type[KafkaError]) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    async with place.consumer("t", group_instance_id="i", enable_auto_commit=False) as consumer:
        await offsets_of(consumer, 20)
        _fence(place, code)
        await anyio.sleep(10)
        for _ in range(3):
            for call in (
                lambda: consumer.getmany(timeout_ms=1000),
                consumer.getone,
                lambda: anext(aiter(consumer)),
                lambda: consumer.getarrow(timeout_ms=1000),
                consumer.commit,
                lambda: consumer.commit({partition: 3}),
            ):
                with anyio.fail_after(10), pytest.raises(error):
                    await call()
        assert consumer.state is ConsumerState.FATAL
        assert not consumer.ready
        assert not consumer.alive


@every_protocol
@virtual
async def test_a_cluster_that_is_away_is_a_state_of_its_own(protocol: str) -> None:
    place = Ownership(protocol)
    place.topic("t")
    async with place.consumer("t") as consumer:
        await offsets_of(consumer, 20)
        assert (consumer.state, consumer.ready, consumer.alive) == (ConsumerState.STEADY, True, True)
        known = consumer.statistics()
        assert known.unreachable_since is None
        assert not known.stale
        place.cluster.stop(0)
        await anyio.sleep(3)
        before = time.time() * 1000  # milliseconds, as records have them
        known = consumer.statistics()
        after = time.time() * 1000  # which goes on, while virtual time does not
        assert (consumer.state, known.state) == (ConsumerState.UNREACHABLE, ConsumerState.UNREACHABLE)
        assert known.unreachable_since is not None
        assert before - 3001 <= known.unreachable_since <= after
        assert known.last_answer_at is not None
        assert known.last_answer_at <= after - 2899
        assert known.stale
        assert not consumer.ready
        assert consumer.alive
        place.cluster.start(0)
        with anyio.move_on_after(60):
            while not consumer.ready:
                await consumer.getmany(timeout_ms=500)
        known = consumer.statistics()
        assert (consumer.state, known.unreachable_since, known.stale) == (ConsumerState.STEADY, None, False)


@virtual
async def test_a_cluster_that_is_away_is_noticed_without_a_group_too() -> None:
    place = Ownership()
    place.topic("t")
    async with place.plain("t") as consumer:
        await offsets_of(consumer, 20)
        assert (consumer.ready, consumer.alive) == (True, True)
        place.cluster.stop(0)
        await anyio.sleep(3)
        assert (consumer.state, consumer.ready, consumer.alive) == (ConsumerState.UNREACHABLE, False, True)
        place.cluster.start(0)
        await anyio.sleep(10)
        assert (consumer.state, consumer.ready, consumer.alive) == (ConsumerState.STEADY, True, True)


@every_protocol
@virtual
async def test_start_can_be_tried_again_after_it_failed(protocol: str) -> None:
    place = Ownership(protocol)
    place.topic("t")
    place.cluster.stop(0)
    consumer: Any = place.consumer("t")
    for _ in range(2):
        with pytest.raises(NoBrokersAvailable):
            await consumer.start()
    place.cluster.start(0)
    await consumer.start()
    assert len(await offsets_of(consumer, 20)) == 1
    await consumer.stop()


@virtual
async def test_start_takes_a_timeout() -> None:
    place = Ownership()
    place.topic("t")
    place.cluster.freeze(0)
    consumer: Any = place.consumer("t")
    began = anyio.current_time()
    with pytest.raises(KafkaTimeoutError):
        await consumer.start(timeout_ms=700)
    assert anyio.current_time() - began < 3
    place.cluster.start(0)
    await consumer.start(timeout_ms=5000)
    await consumer.stop()


@every_protocol
def test_one_partition_that_cannot_be_committed_holds_up_no_other(protocol: str) -> None:
    way = "getmany"
    steps = (Read(way, 3), Event("refused", 0), Read(way, 12), Read(way, 12), Event("due"), Read(way, 3))
    assert not run(Program(steps, protocol=protocol))


@pytest.mark.slow
@every_protocol
@pytest.mark.parametrize("instance", ["i", None])
@virtual
async def test_no_read_fails_any_more_when_a_member_that_gave_its_place_up_has_access_again(
    protocol: str, instance: str | None
) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    heartbeat = Api.CONSUMER_GROUP_HEARTBEAT if protocol == "consumer" else Api.HEARTBEAT
    async with place.consumer("t", group_instance_id=instance, max_poll_interval_ms=30_000) as consumer:
        await offsets_of(consumer, 20)
        with place.kit.failing(heartbeat, GroupAuthorizationFailedError, None):
            await anyio.sleep(5)
            with pytest.raises(GroupAuthorizationFailedError):
                await consumer.getmany(timeout_ms=1000)
            await anyio.sleep(40)  # the application has stopped reading
        with anyio.move_on_after(10):
            while not consumer.ready:
                with suppress(GroupAuthorizationFailedError):
                    await consumer.getmany(timeout_ms=1000)
                await anyio.sleep(0.1)
        place.cluster.fill(partition, 5)
        assert await offsets_of(consumer, 5) == {partition: list(range(20, 25))}


async def _read(consumer: KafkaConsumer[Any, Any], errors: list[KafkaError]) -> None:
    while True:
        try:
            await consumer.getmany(timeout_ms=1000)
        except KafkaError as error:
            errors.append(error)
            await anyio.sleep(1)


@pytest.mark.slow
@every_protocol
@pytest.mark.parametrize("topic", ["missing", "secret"])
@virtual
async def test_no_read_is_told_of_a_topic_to_which_only_another_member_subscribes(protocol: str, topic: str) -> None:
    place = Ownership(protocol)
    place.topic("t", 2)
    place.topic("secret", records=0)
    place.kit.deny("secret")
    mine: list[KafkaError] = []
    others: list[KafkaError] = []
    # In the classic protocol the first one leads.
    async with place.consumer("t") as first, place.consumer("t") as second, anyio.create_task_group() as tasks:
        tasks.start_soon(_read, first, mine)
        tasks.start_soon(_read, second, others)
        await anyio.sleep(10)
        second.subscribe(["t", topic])
        await anyio.sleep(100)
        assert others
        assert (mine, first.ready, second.ready) == ([], True, topic == "missing")
        assert len(first.assignment()) == len(second.assignment()) == 1
        if topic == "secret":
            place.kit.allow(topic)
        else:
            place.topic(topic)
        await anyio.sleep(20)
        assert TopicPartition(topic, 0) in second.assignment()
        assert mine == []
        tasks.cancel_scope.cancel()


@every_protocol
@virtual
async def test_no_read_of_assigned_partitions_fails_because_the_ended_membership_cannot_find_its_coordinator(protocol: str) -> None:
    place = Ownership(protocol, Cluster(2))
    place.topic("t")
    (other,) = place.topic("other")
    async with place.consumer("t", enable_auto_commit=False) as consumer:
        await offsets_of(consumer, 20)
        await anyio.sleep(2)
        with place.kit.failing(Api.FIND_COORDINATOR, GroupAuthorizationFailedError, None):
            place.kit.move_coordinator(GROUP, 1)
            await anyio.sleep(8)
            with pytest.raises(GroupAuthorizationFailedError):
                await consumer.getmany(timeout_ms=1000)
            consumer.unsubscribe()
            consumer.assign([other])
            consumer.seek(other, 0)
            assert await offsets_of(consumer, 20, seconds=2) == {other: list(range(20))}
            for _ in range(5):
                await consumer.getmany(timeout_ms=1000)
            assert consumer.ready
