"""What happens to positions, pauses, commits and call-backs when a subscription or an assignment changes."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import anyio
import pytest

from kafka_async import ConsumerRebalanceListener, ConsumerState, KafkaConsumer, TopicPartition
from kafka_async.application.lifecycle.metrics import FETCHES
from kafka_async.errors import CommitFailedError, CoordinatorLoadInProgressError, IllegalStateError, KafkaTimeoutError
from kafka_async.testing import Api, Cluster

from .others import GROUP
from .support import Ownership, RecordingListener, every_protocol, offsets_of, virtual


@pytest.mark.slow
@every_protocol
@virtual
async def test_an_assignment_proposed_before_unsubscribe_has_no_effect_after_it(protocol: str) -> None:
    place = Ownership(protocol)
    old = place.topic("old", 2)
    new = place.topic("new")
    before, after = RecordingListener(), RecordingListener()
    consumer = place.consumer()
    consumer.subscribe(["old"], listener=before)
    async with consumer:
        await offsets_of(consumer, 40)
        place.others.take([old[0]])
        await anyio.sleep(4)
        place.others.take([])
        await anyio.sleep(4)  # nobody reads, so the proposed assignment waits
        consumer.unsubscribe()
        consumer.subscribe(["new"], listener=after)
        assert await offsets_of(consumer, 20) == {new[0]: list(range(20))}
        assert consumer.assignment() == set(new)
        called_with = {partition for _, partitions in after.began for partition in partitions}
        assert called_with <= set(new)


class Leaves(ConsumerRebalanceListener):
    """Unsubscribes as soon as it has an assignment."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.consumer.unsubscribe()


@every_protocol
@virtual
async def test_a_start_waits_for_no_assignment_once_a_call_back_has_unsubscribed(protocol: str) -> None:
    place = Ownership(protocol)
    place.topic("t")
    consumer = place.consumer()
    consumer.subscribe(["t"], listener=Leaves(consumer))
    began = anyio.current_time()
    async with consumer:
        assert anyio.current_time() - began < 10
        assert consumer.subscription() == consumer.assignment() == set()


@every_protocol
@virtual
async def test_unsubscribe_commits_and_calls_back_as_leaving_does(protocol: str) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    listener = RecordingListener()
    consumer = place.consumer()
    consumer.subscribe(["t"], listener=listener)
    await consumer.start()
    await offsets_of(consumer, 20)
    consumer.unsubscribe()
    await anyio.sleep(1)
    await consumer.stop()
    assert place.committed(partition) == 20
    assert listener.ended == [("assigned", frozenset({partition})), ("revoked", frozenset({partition}))]


class Plain(ConsumerRebalanceListener):
    """Takes no time."""


@every_protocol
@pytest.mark.parametrize("listener", [None, Plain()], ids=["no listener", "a plain one"])
@pytest.mark.parametrize("then", ["wait", "stop", "subscribe", "assign"])
@virtual
async def test_unsubscribe_commits_whatever_comes_next(
    protocol: str, listener: ConsumerRebalanceListener | None, then: str
) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    (other,) = place.topic("other")
    consumer = place.consumer()
    consumer.subscribe(["t"], listener=listener)
    await consumer.start()
    await offsets_of(consumer, 20)
    consumer.unsubscribe()
    if then == "wait":
        await anyio.sleep(1)
    elif then == "subscribe":
        consumer.subscribe(["other"])
    elif then == "assign":
        consumer.assign([other])
    if then in ("subscribe", "assign"):
        assert await offsets_of(consumer, 20) == {other: list(range(20))}
    await consumer.stop()
    assert place.committed(partition) == 20


@every_protocol
@virtual
async def test_unsubscribe_commits_when_a_broker_that_is_away_is_back(protocol: str) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    consumer = place.consumer("t")
    async with consumer:
        await offsets_of(consumer, 20)
        place.kit.stop(0)
        await anyio.sleep(1)
        consumer.unsubscribe()
        await anyio.sleep(3)
        place.kit.start(0)
        await anyio.sleep(10)
        assert place.committed(partition) == 20
        assert not place.kit.members(GROUP)


@every_protocol
@pytest.mark.parametrize("then", ["wait", "subscribe", "assign", "stop"])
@virtual
async def test_a_commit_that_cannot_be_stored_holds_up_leaving_for_a_time(protocol: str, then: str) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    (other,) = place.topic("other")
    consumer = place.consumer("t", request_timeout_ms=5000)
    async with consumer:
        await offsets_of(consumer, 20)
        with place.kit.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, None):
            began = anyio.current_time()
            consumer.unsubscribe()
            await anyio.sleep(1)
            assert place.kit.members(GROUP)
            if then == "subscribe":
                consumer.subscribe(["other"])
                assert await offsets_of(consumer, 20) == {other: list(range(20))}
            elif then == "assign":
                consumer.assign([other])
                assert await offsets_of(consumer, 20) == {other: list(range(20))}
                assert anyio.current_time() - began < 2
            elif then == "stop":
                await consumer.stop(timeout_ms=2000)
                assert anyio.current_time() - began <= 3.01
            if then in ("wait", "assign"):
                await anyio.sleep(6)
            assert bool(place.kit.members(GROUP)) == (then == "subscribe")
            assert anyio.current_time() - began < 12
    assert place.committed(partition) is None


class Commits(ConsumerRebalanceListener):
    """Commits what leaves, a second after it was called."""

    def __init__(self, consumer: Any, offsets: dict[TopicPartition, int] | None) -> None:
        self.consumer = consumer
        self.offsets = offsets
        self.seen: list[set[TopicPartition]] = []

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await anyio.sleep(1)
        self.seen.append(self.consumer.assignment())
        await self.consumer.commit(self.offsets)


@every_protocol
@pytest.mark.parametrize("which", ["all", "by name"])
@pytest.mark.parametrize("then", ["assign", "assign twice", "assign and unsubscribe", "assign nothing"])
@virtual
async def test_a_call_back_of_unsubscribe_can_commit_what_leaves_whatever_is_assigned_meanwhile(
    protocol: str, which: str, then: str
) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    first, other = place.topic("other", 2)
    consumer = place.consumer(enable_auto_commit=False)
    listener = Commits(consumer, None if which == "all" else {partition: 20})
    consumer.subscribe(["t"], listener=listener)
    async with consumer:
        await offsets_of(consumer, 20)
        consumer.unsubscribe()
        if then == "assign twice":
            consumer.assign([first])
        consumer.assign([other] if then != "assign nothing" else [])
        assert consumer.assignment() == ({other} if then != "assign nothing" else set())
        if then == "assign and unsubscribe":
            consumer.unsubscribe()
            assert consumer.assignment() == set()
            consumer.assign([other])
        await anyio.sleep(0.1)
        assert place.kit.members(GROUP)
        if then == "assign nothing":
            await anyio.sleep(2)
        else:
            assert await offsets_of(consumer, 20) == {other: list(range(20))}
            assert consumer.assignment() == {other}
        assert place.committed(partition) == 20
        assert [partition in seen for seen in listener.seen] == [True]
        assert not place.kit.members(GROUP)


@pytest.mark.slow
@every_protocol
@pytest.mark.parametrize("cancelled", [False, True], ids=["the read that began it ends it", "the next one does"])
@virtual
async def test_what_a_rebalance_was_giving_up_can_be_committed_once_it_was_assigned_by_hand(protocol: str, cancelled: bool) -> None:
    place = Ownership(protocol)
    first, second = place.topic("t", 2)
    consumer = place.consumer(enable_auto_commit=False)
    listener = RecordingListener()
    consumer.subscribe(["t"], listener=listener)
    async with consumer, anyio.create_task_group() as tasks:
        await offsets_of(consumer, 40)
        listener.takes = 60.0

        async def read() -> None:
            with anyio.CancelScope() as scope:
                reads.append(scope)
                await offsets_of(consumer, 60, 600)

        reads: list[anyio.CancelScope] = []
        tasks.start_soon(read)
        place.others.take([first])
        await anyio.sleep(20)
        assert (listener.began[-1][0], len(listener.ended)) == ("revoked", len(listener.began) - 1)
        if cancelled:
            reads[0].cancel()
            tasks.start_soon(read)
            await anyio.sleep(0.1)
        place.others.keep_away(True)
        consumer.unsubscribe()
        consumer.assign([first, second])
        await anyio.sleep(120)
        assert len(listener.ended) == len(listener.began)
        assert not place.kit.members(GROUP)
        await consumer.commit({first: 7, second: 8})
        assert (place.committed(first), place.committed(second)) == (7, 8)
        tasks.cancel_scope.cancel()


@pytest.mark.slow
@every_protocol
@virtual
async def test_a_new_subscription_waits_once_for_the_member_before_it_and_once_for_a_lone_commit(protocol: str) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    (other,) = place.topic("other")
    consumer = place.consumer("t", request_timeout_ms=5000, enable_auto_commit=False)
    async with consumer:
        await offsets_of(consumer, 20)
        with place.kit.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, None):
            began = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_commit_in_vain, consumer, {partition: 20})
                await anyio.sleep(0.1)
                consumer.unsubscribe()
                consumer.assign([partition])
                tasks.start_soon(_commit_in_vain, consumer, {partition: 10})
                await anyio.sleep(0.1)
                consumer.unsubscribe()
                consumer.subscribe(["other"])
                assert await offsets_of(consumer, 20) == {other: list(range(20))}
                assert 10 < anyio.current_time() - began < 12
                tasks.cancel_scope.cancel()
    assert place.committed(partition) is None


async def _commit_in_vain(consumer: KafkaConsumer, offsets: dict[TopicPartition, int]) -> None:
    with suppress(CommitFailedError):
        await consumer.commit(offsets)


@pytest.mark.slow
@every_protocol
@virtual
async def test_a_member_that_stays_for_its_commit_takes_nothing_from_what_is_assigned_by_hand(protocol: str) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    consumer = place.consumer("t")
    async with consumer:
        await offsets_of(consumer, 20)
        with place.kit.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, None):
            consumer.unsubscribe()
            consumer.assign([partition])
            consumer.seek(partition, 0)
            place.others.take([partition])
            await anyio.sleep(8)  # the group asks its member for the partition
            place.cluster.fill(partition, 5, per_batch=5)
            assert await offsets_of(consumer, 25) == {partition: list(range(25))}
        await anyio.sleep(5)
        assert place.committed(partition) == 20


@pytest.mark.slow
@every_protocol
@pytest.mark.parametrize("then", ["subscribe", "assign"])
@virtual
async def test_no_read_is_told_of_a_topic_whose_subscription_has_ended(protocol: str, then: str) -> None:
    place = Ownership(protocol)
    place.topic("t")
    place.topic("secret", records=0)
    (other,) = place.topic("other")
    consumer = place.consumer("t", "secret")
    async with consumer:
        await offsets_of(consumer, 20)
        with place.kit.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, None):
            place.kit.deny("secret")
            consumer.unsubscribe()
            if then == "subscribe":
                consumer.subscribe(["other"])
            else:
                consumer.assign([other])
            with anyio.move_on_after(10):  # the member still stays
                while True:
                    await consumer.getmany(timeout_ms=1000)
            assert place.kit.members(GROUP)
            assert consumer.ready == (then == "assign")


@every_protocol
@pytest.mark.parametrize("then", ["subscribe", "assign"])
@virtual
async def test_a_topic_that_comes_after_a_pattern_is_asked_for_by_its_name(protocol: str, then: str) -> None:
    """It does not exist yet: it is not among all topics, which are asked for while the member stays for its commit."""
    place = Ownership(protocol, Cluster(auto_create=1))
    place.topic("t")
    consumer = place.consumer()
    async with consumer:
        consumer.subscribe(pattern="^t$")
        await offsets_of(consumer, 20)
        consumer.unsubscribe()
        if then == "subscribe":
            consumer.subscribe(["new"])
        else:
            consumer.assign([TopicPartition("new", 0)])
        await anyio.sleep(1)
        place.cluster.fill(TopicPartition("new", 0), 1)
        assert await offsets_of(consumer, 1) == {TopicPartition("new", 0): [0]}


@every_protocol
@virtual
async def test_who_stops_while_its_member_stays_before_a_new_subscription_leaves_though_that_has_to_be_asked_again(
    protocol: str,
) -> None:
    place = Ownership(protocol)
    place.topic("t")
    place.topic("other")
    consumer = place.consumer("t")
    refused = 0

    def refuse(broker: int, request: Any) -> type[CoordinatorLoadInProgressError] | None:
        nonlocal refused
        if refused == 2 or (protocol == "consumer" and request.member_epoch >= 0):
            return None
        refused += 1
        return CoordinatorLoadInProgressError

    await consumer.start()
    await offsets_of(consumer, 20)
    place.kit.control(Api.CONSUMER_GROUP_HEARTBEAT if protocol == "consumer" else Api.LEAVE_GROUP, refuse, keep=True)
    with place.kit.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, None):
        consumer.unsubscribe()
        await anyio.sleep(1)
        consumer.subscribe(["other"])
        await anyio.sleep(0.5)
        await consumer.stop()
    assert not place.kit.members(GROUP)
    assert refused == 2


@every_protocol
@pytest.mark.parametrize("seed", range(6))
@virtual
async def test_what_a_lone_consumer_commits_is_stored_before_it_is_a_member(protocol: str, seed: int) -> None:
    """At a new coordinator the commit has to be sent again after a backoff, and the request to join is due at once."""
    place = Ownership(protocol, Cluster(2, seed=seed))
    (partition,) = place.topic("t")
    consumer = place.consumer()
    async with consumer:
        consumer.assign([partition])
        await offsets_of(consumer, 20)
        await anyio.sleep(2)  # the coordinator has served for a while, so the next one is looked for at once
        place.kit.move_coordinator(GROUP, 1)
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        await anyio.sleep(0.05)
        assert (consumer.state, consumer.ready) == (ConsumerState.JOINING, False)
        assert await offsets_of(consumer, 1, seconds=10) == {}
        assert consumer.assignment() == {partition}
        assert place.committed(partition) == 20


@every_protocol
@pytest.mark.parametrize("then", ["wait", "unsubscribe", "stop"])
@virtual
async def test_a_commit_of_a_lone_consumer_that_cannot_be_stored_holds_up_joining_for_a_time(protocol: str, then: str) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    (other,) = place.topic("other")
    consumer = place.consumer(request_timeout_ms=5000)
    async with consumer:
        consumer.assign([partition])
        await offsets_of(consumer, 20)
        with place.kit.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, None):
            began = anyio.current_time()
            consumer.unsubscribe()
            consumer.subscribe(["other"])
            await anyio.sleep(4)
            assert not place.kit.members(GROUP)
            if then == "wait":
                assert await offsets_of(consumer, 20) == {other: list(range(20))}
                assert 5 < anyio.current_time() - began < 12
            elif then == "unsubscribe":
                consumer.unsubscribe()
                await anyio.sleep(5)
            else:
                await consumer.stop(timeout_ms=2000)
            assert bool(place.kit.members(GROUP)) == (then == "wait")


@every_protocol
@virtual
async def test_a_lone_consumer_that_subscribes_anew_commits_between_its_two_memberships(protocol: str) -> None:
    place = Ownership(protocol)
    (first,) = place.topic("t")
    (other,) = place.topic("other")
    consumer = place.consumer("t")
    async with consumer:
        await offsets_of(consumer, 20)
        with place.kit.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, None):
            consumer.unsubscribe()
            consumer.assign([other])
            await offsets_of(consumer, 20)
            consumer.unsubscribe()
            consumer.subscribe(["t"])
            await anyio.sleep(2)
        await anyio.sleep(5)
        assert place.committed(other) == 20
        assert await offsets_of(consumer, 1, seconds=5) == {}
        assert (consumer.assignment(), place.committed(first)) == ({first}, 20)


@every_protocol
@virtual
async def test_a_member_that_stays_for_its_commit_and_is_thrown_out_subscribes_anew(protocol: str) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    (other,) = place.topic("other")
    consumer = place.consumer("t")
    listener = RecordingListener()
    async with consumer:
        await offsets_of(consumer, 20)
        with place.kit.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, None):
            consumer.unsubscribe()
            await anyio.sleep(0.5)
            place.kit.kick(GROUP)
            consumer.subscribe(["other"], listener=listener)
            began = anyio.current_time()
            assert await offsets_of(consumer, 20) == {other: list(range(20))}
            assert anyio.current_time() - began < 10  # at its next heartbeat
        assert [what for what, _ in listener.began] == ["assigned"]
    assert place.committed(partition) is None


@pytest.mark.slow
@virtual
async def test_a_static_member_that_is_fenced_while_it_stays_for_its_commit_fails_no_later_read() -> None:
    place = Ownership("classic")
    place.topic("t")
    (other,) = place.topic("other")
    consumer, successor = (place.consumer("t", group_instance_id="i") for _ in range(2))
    await consumer.start()
    await offsets_of(consumer, 20)
    with place.kit.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, None):
        consumer.unsubscribe()
        consumer.assign([other])
        async with successor:
            await anyio.sleep(8)
            assert await offsets_of(consumer, 20) == {other: list(range(20))}
    await consumer.stop()


@every_protocol
@pytest.mark.parametrize("seed", range(6))
@virtual
async def test_a_lone_consumer_commits_once_the_member_that_it_was_has_left(protocol: str, seed: int) -> None:
    """At a new coordinator both have to be sent again, each after a backoff of its own, which may be the shorter one."""
    place = Ownership(protocol, Cluster(2, seed=seed))
    (partition,) = place.topic("t")
    consumer = place.consumer("t", enable_auto_commit=False)
    async with consumer:
        await offsets_of(consumer, 20)
        await anyio.sleep(2)  # the coordinator has served for a while, so the next one is looked for at once
        place.kit.move_coordinator(GROUP, 1)
        consumer.unsubscribe()
        consumer.assign([partition])
        await consumer.commit({partition: 7})
        assert place.committed(partition) == 7


@every_protocol
@virtual
async def test_a_static_member_that_subscribes_anew_at_once_stays_one(protocol: str) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    (other,) = place.topic("other")
    consumer = place.consumer("t", group_instance_id="i")
    async with consumer:
        await offsets_of(consumer, 20)
        consumer.unsubscribe()
        consumer.subscribe(["other"])
        assert await offsets_of(consumer, 20) == {other: list(range(20))}
        assert place.committed(partition) == 20


class CommitsLate(ConsumerRebalanceListener):
    """Commits everything once what is assigned by hand has been read, and remembers what that is."""

    def __init__(self, consumer: Any) -> None:
        self.consumer, self.go_on = consumer, anyio.Event()
        self.offsets: dict[TopicPartition, int] = {}

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self.go_on.wait()
        self.offsets = {tp: offset.offset for tp, offset in self.consumer.next_offsets().items()}
        await self.consumer.commit()


@every_protocol
@virtual
async def test_a_call_back_of_unsubscribe_commits_only_what_leaves_and_nobody_else_is_told_of_that(protocol: str) -> None:
    """The coordinator would refuse what was assigned by hand: to it, the consumer is still a member that does not own it."""
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    (other,) = place.topic("other")
    consumer = place.consumer(enable_auto_commit=False)
    listener = CommitsLate(consumer)
    consumer.subscribe(["t"], listener=listener)
    async with consumer:
        await offsets_of(consumer, 20)
        consumer.unsubscribe()
        consumer.assign([other])
        consumer.seek(other, 3)
        assert consumer.statistics().partitions.keys() == {other}
        measured = [f"{FETCHES}.{tp.topic}-{tp.partition}" in consumer.metrics() for tp in (partition, other)]
        assert measured == [False, True]
        listener.go_on.set()
        assert await offsets_of(consumer, 17) == {other: list(range(3, 20))}
        assert listener.offsets == {partition: 20}
        assert (place.committed(partition), place.committed(other)) == (20, None)
        assert consumer.statistics().partitions.keys() == {other}


class Drains(ConsumerRebalanceListener):
    """Gives nothing up before the worker has committed what it has."""

    def __init__(self) -> None:
        self.leaves, self.drained = anyio.Event(), anyio.Event()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.leaves.set()
        await self.drained.wait()


@every_protocol
@virtual
async def test_a_new_subscription_is_joining_while_it_waits_for_the_call_back_of_the_former_one(protocol: str) -> None:
    place = Ownership(protocol)
    place.topic("t")
    (other,) = place.topic("other")
    listener = RecordingListener()
    consumer = place.consumer()
    consumer.subscribe(["t"], listener=listener)
    async with consumer:
        await offsets_of(consumer, 20)
        listener.takes = 10.0
        consumer.unsubscribe()
        assert consumer.state is ConsumerState.STEADY
        consumer.subscribe(["other"])
        for _ in range(2):
            assert (consumer.state, consumer.ready, consumer.assigned_once) == (ConsumerState.JOINING, False, True)
            await anyio.sleep(5)
        assert await offsets_of(consumer, 20) == {other: list(range(20))}
        assert consumer.ready


@every_protocol
@pytest.mark.parametrize("offset", [5, None])
@virtual
async def test_a_call_back_of_unsubscribe_may_wait_for_a_task_that_commits(protocol: str, offset: int | None) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    listener = Drains()
    consumer = place.consumer(enable_auto_commit=False)
    consumer.subscribe(["t"], listener=listener)

    async def work() -> None:
        await listener.leaves.wait()
        assert consumer.assignment() == set()
        assert consumer.next_offsets()[partition].offset == 20
        await consumer.commit(None if offset is None else {partition: offset})
        listener.drained.set()

    async with consumer, anyio.create_task_group() as tasks:
        await offsets_of(consumer, 20)
        tasks.start_soon(work)
        await anyio.sleep(0.1)
        consumer.unsubscribe()
        with anyio.fail_after(1):
            await consumer.getmany()
        assert place.committed(partition) == (offset or 20)
        with pytest.raises(IllegalStateError, match="not assigned"):
            await consumer.commit({partition: 7})


@every_protocol
@pytest.mark.parametrize("auto_commit", [True, False])
@virtual
async def test_a_commit_of_everything_is_not_refused_because_everything_was_given_up_meanwhile(
    protocol: str, auto_commit: bool
) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    consumer = place.consumer(enable_auto_commit=auto_commit)
    listener = RecordingListener()
    consumer.subscribe(["t"], listener=listener)
    async with consumer:
        await offsets_of(consumer, 20)
        consumer.unsubscribe()
        consumer.subscribe(["t"], listener=listener)
        await consumer.commit()
        await anyio.sleep(1)  # if unsubscribe has committed the same, that is still on its way
        assert place.committed(partition) == 20


@virtual
async def test_a_commit_of_what_was_assigned_after_unsubscribe_waits_for_its_call_back_no_longer_than_a_call_may_take() -> None:
    place = Ownership()
    place.topic("t")
    (other,) = place.topic("other")
    listener = Drains()
    consumer = place.consumer(default_api_timeout_ms=3000, request_timeout_ms=2000, enable_auto_commit=False)
    consumer.subscribe(["t"], listener=listener)
    async with consumer:
        await offsets_of(consumer, 20)
        consumer.unsubscribe()
        consumer.assign([other])
        began = anyio.current_time()
        with pytest.raises(KafkaTimeoutError, match="call-back"):
            await consumer.commit({other: 3})
        assert anyio.current_time() - began == pytest.approx(3)
        listener.drained.set()
        await consumer.commit({other: 4})
        assert place.committed(other) == 4


@virtual
async def test_auto_commit_does_not_remember_across_unsubscribe_and_assign() -> None:
    place = Ownership()
    (partition,) = place.topic("t")
    async with place.consumer(auto_commit_interval_ms=1000) as consumer:
        consumer.assign([partition])
        await offsets_of(consumer, 20)
        await consumer.getmany(timeout_ms=3000)
        assert place.committed(partition) == 20
        consumer.unsubscribe()
        await anyio.sleep(1)
        place.cluster.committed["g", partition] = 0  # an operator resets the offsets
        consumer.assign([partition])
        assert await offsets_of(consumer, 20) == {partition: list(range(20))}
        await consumer.getmany(timeout_ms=3000)
        assert place.committed(partition) == 20
    assert place.committed(partition) == 20


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "cooperative"])
@virtual
async def test_pause_and_position_survive_a_rebalance_of_what_stays(protocol: str) -> None:
    place = Ownership(protocol)
    stays, goes = place.topic("t", 2)
    async with place.consumer("t", enable_auto_commit=False, max_poll_records=3) as consumer:
        found = await offsets_of(consumer, 3)
        while len(found.get(stays, ())) < 3:
            found = {stays: found.get(stays, []) + (await offsets_of(consumer, 3)).get(stays, [])}
        position = await consumer.position(stays)
        consumer.pause(stays)
        for taken in ([goes], []):
            place.others.take(taken)
            with anyio.move_on_after(20):
                while True:
                    assert stays not in await consumer.getmany(timeout_ms=1000)
            assert consumer.paused() == {stays}
        assert consumer.assignment() == {stays, goes}
        assert await consumer.position(stays) == position
        consumer.resume(stays)
        assert (await consumer.getone(stays)).offset == position


@pytest.mark.slow
@every_protocol
@virtual
async def test_no_task_is_handed_a_record_before_on_partitions_assigned_has_returned(protocol: str) -> None:
    place = Ownership(protocol)
    first, second = place.topic("t", 2)
    listener = RecordingListener(takes=2.0)
    consumer = place.consumer()

    def seek(partitions: object) -> None:
        for partition in (first, second):
            if partition in consumer.assignment():
                consumer.seek(partition, 10)

    listener.on_assigned = seek
    consumer.subscribe(["t"], listener=listener)
    offsets: list[tuple[TopicPartition, int]] = []

    async def read() -> None:
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                offsets.extend((partition, record.offset) for record in records)

    place.others.take([second])
    async with consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(read)
        await anyio.sleep(10)
        place.others.take([])
        await anyio.sleep(30)
        tasks.cancel_scope.cancel()
    assert min(offset for partition, offset in offsets if partition == second) == 10
    assert min(offset for partition, offset in offsets if partition == first) == 10


@every_protocol
@virtual
async def test_a_call_back_that_began_goes_on_however_short_the_reads_are(protocol: str) -> None:
    place = Ownership(protocol)
    _, second = place.topic("t", 2)
    listener = RecordingListener()
    consumer = place.consumer()
    consumer.subscribe(["t"], listener=listener)
    async with consumer:
        await offsets_of(consumer, 40)
        listener.takes = 1.0
        listener.began.clear()
        listener.ended.clear()
        place.others.take([second])
        with anyio.move_on_after(30):
            while not listener.ended or second in consumer.assignment():
                with anyio.move_on_after(0.1):
                    await consumer.getmany(timeout_ms=60_000)
        assert listener.ended
        assert listener.began.count(listener.began[0]) == 1
        listener.takes = 0.0


@pytest.mark.slow
@virtual
async def test_subscribing_after_the_start_lets_the_broker_create_the_topic() -> None:
    for allowed in (True, False):
        place = Ownership(kit=Cluster(auto_create=1))
        async with place.consumer(allow_auto_create_topics=allowed, metadata_max_age_ms=1000) as consumer:
            consumer.subscribe(["made"])
            with anyio.move_on_after(10):
                while True:
                    await consumer.getmany(timeout_ms=1000)
        assert ("made" in place.cluster.topics) is allowed


@every_protocol
@virtual
async def test_start_with_a_pattern_waits_for_the_first_assignment(protocol: str) -> None:
    place = Ownership(protocol)
    partitions = place.topic("logs-a") + place.topic("logs-b")
    consumer = place.consumer()
    consumer.subscribe(pattern="logs-.*")
    await consumer.start()
    assert consumer.assignment() == set(partitions)
    await consumer.stop()


@every_protocol
@virtual
async def test_subscription_names_what_a_pattern_matches_and_not_what_is_assigned(protocol: str) -> None:
    place = Ownership(protocol)
    place.topic("logs-a")
    other = place.topic("logs-b")
    place.topic("unlike")
    place.others.take(other)
    consumer = place.consumer()
    consumer.subscribe(pattern="logs-.*")
    async with consumer:
        await offsets_of(consumer, 20)
        assert {partition.topic for partition in consumer.assignment()} == {"logs-a"}
        assert consumer.subscription() == {"logs-a", "logs-b"}


@virtual
async def test_ranges_of_a_partition_that_was_paused_are_read() -> None:
    place = Ownership()
    (partition,) = place.topic("t")
    async with place.plain() as consumer:
        consumer.assign([partition])
        consumer.pause(partition)
        assert await consumer.getmany(timeout_ms=100) == {}
        consumer.assign_ranges({partition: (3, 7)})
        assert consumer.paused() == set()
        columns = await consumer.next_columns(timeout_ms=5000)
        assert columns is not None


class _AsksTooEarly(ConsumerRebalanceListener):
    """Raises what asking a future that was cancelled for its result does, or what is no error of a program at all."""

    def __init__(self, raises: type[BaseException]) -> None:
        self.raises = raises

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        raise self.raises


@every_protocol
@pytest.mark.parametrize(
    ("raises", "raised"),
    [(asyncio.CancelledError, IllegalStateError), (KeyboardInterrupt, KeyboardInterrupt)],
    ids=["the result of a cancelled future", "an interrupt"],
)
@virtual
async def test_unsubscribe_leaves_whatever_a_plain_call_back_raises(
    protocol: str, raises: type[BaseException], raised: type[BaseException]
) -> None:
    place = Ownership(protocol)
    place.topic("t")
    (other,) = place.topic("other")
    consumer = place.consumer()
    consumer.subscribe(["t"], listener=_AsksTooEarly(raises))
    async with consumer:
        await offsets_of(consumer, 20)
        with pytest.raises(raised):
            consumer.unsubscribe()
        await anyio.sleep(1)
        assert place.kit.members(GROUP) == []
        consumer.unsubscribe()
        consumer.subscribe(["other"])
        assert await offsets_of(consumer, 20) == {other: list(range(20))}
