"""Partitions that are read from another replica than the leader (KIP-392)."""

from itertools import pairwise
from typing import Any

import pytest

from kafka_async.background.boundary import PartitionFailed
from kafka_async.errors import (
    KafkaConnectionError,
)
from kafka_async.events import PausePartitions, ResumePartitions
from kafka_async.wire import FetchStep
from kafka_async.wire.messages import (
    FetchRequest,
    MetadataRequest,
)

from ..support import A, B, World, asked, cluster, data, described, fetched, records, until

FETCHES = (FetchRequest, FetchStep)


def test_a_preferred_replica_is_read_until_its_lease_ends() -> None:
    world = World(client_rack="r2", metadata_max_age_ms=10_000)
    world.fetching({A: 0})
    world.answer(FetchRequest, fetched(data(A, preferred_read_replica=2)), 1.0)
    world.poll(1.0)
    request = world.find(FetchRequest, 2)
    request.on_done(fetched(data(A, records(0, 2)), session=8), 2.0)
    world.poll(2.0)
    world.find(FetchRequest, 2).on_done(fetched(session=8), 10.5)
    world.poll(11.0)
    assert asked(world.find(FetchRequest, 1).message) == {0: 2}


@pytest.mark.parametrize("max_age_ms", [5000, 1000, 0])
def test_a_replica_of_a_quiet_partition_is_asked_on_when_its_lease_is_renewed(max_age_ms: int) -> None:
    """The leader gives no records as long as it names a replica: each gap is one in which a record would have to wait."""
    world = World(client_rack="r2", metadata_max_age_ms=max_age_ms)
    world.fetching({A: 0})
    asked_at = [0.0]
    for step in range(400):
        now = 1 + step / 40
        world.poll(now)
        if world.waiting(MetadataRequest):
            world.answer(MetadataRequest, cluster(described("t", (1,))), now)
        under_way = {request.node_id for request in world.unsent}
        if 1 in under_way:
            world.answer(FetchRequest, fetched(data(A, preferred_read_replica=2)), now, node_id=1)
        if 2 in under_way and now >= asked_at[-1] + 0.5:  # it waits for records
            asked_at.append(now)
            world.answer(FetchRequest, fetched(data(A), session=8), now, node_id=2)
    gaps = [after - before for before, after in pairwise([*asked_at, 11.0])][1:]
    assert max(gaps) < (0.6 if max_age_ms else 2.0)


def test_out_of_range_at_a_replica_is_asked_of_the_leader_before_it_is_believed() -> None:
    world = World(client_rack="r2", auto_offset_reset="none")
    world.fetching({A: 40})
    world.answer(FetchRequest, fetched(data(A, preferred_read_replica=2)), 1.0)
    world.poll(1.0)
    world.answer(FetchRequest, fetched(data(A, error_code=1)), 1.5, node_id=2)
    world.poll(1.5)
    leader = world.find(FetchRequest, 1)  # its session has the partition at this offset still
    assert world.read_all() == []
    leader.on_done(fetched(data(A, error_code=1)), 2.0)
    assert world.read_all() == []
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 2.0)
    world.answer(MetadataRequest, cluster(described("t", (1, 1, 1))), now + 0.01)
    now = until(world, lambda: bool(world.waiting(FetchRequest)), now + 0.01)
    world.answer(FetchRequest, fetched(data(A, error_code=1)), now, node_id=1)
    (failure,) = world.read_all()
    assert isinstance(failure, PartitionFailed)


def test_a_replica_that_cannot_be_reached_is_left() -> None:
    world = World(client_rack="r2")
    world.fetching({A: 40})
    world.answer(FetchRequest, fetched(data(A, preferred_read_replica=2)), 1.0)
    world.poll(1.0)
    world.answer(FetchRequest, KafkaConnectionError("gone"), 1.5, node_id=2)
    world.poll(1.5)
    world.find(FetchRequest, 1).on_done(fetched(data(A, records(40, 1))), 2.0)
    assert len(world.read_all()) == 1


def test_a_replica_that_the_metadata_do_not_list_any_more_is_left_while_it_waits_to_be_asked_again() -> None:
    world = World(client_rack="r2")
    world.fetching({A: 40})
    world.answer(FetchRequest, fetched(data(A, preferred_read_replica=2)), 1.0)
    world.poll(1.0)
    world.answer(FetchRequest, fetched(data(B)), 1.5, node_id=2)  # an answer of another session, which begins a backoff
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 1.5)
    world.answer(MetadataRequest, cluster(described("t", (1, 1, 1)), brokers=(1, 3)), now)
    world.poll(now)
    leader = world.find(FetchRequest, 1)  # its session has the partition at this offset still
    leader.on_done(fetched(data(A, records(40, 1))), now)
    assert len(world.read_all()) == 1


@pytest.mark.parametrize("failure", [KafkaConnectionError("gone"), fetched(data(A, error_code=1)), fetched(data(A, error_code=56))])
def test_a_leader_is_not_told_the_rack_for_a_while_after_its_replica_could_not_be_read_from(failure: Any) -> None:
    """Else it would name the replica again, and give no records. The time grows, and ends with the replica's first answer."""
    world = World(client_rack="r2", metadata_max_age_ms=2000)
    world.fetching({A: 0})
    now, end, racks = 1.0, 0, list[tuple[float, bool]]()

    def step() -> None:
        """Let the leader name the replica if it knows the rack, and give a record if not."""
        nonlocal now, end
        world.poll(now)
        if world.waiting(MetadataRequest):
            world.answer(MetadataRequest, cluster(described("t", (1, 1, 1))), now)
        for request in tuple(world.unsent):
            message = request.message
            if request.node_id != 1 or not isinstance(message, FETCHES):
                continue
            racks.append((now, bool(message.rack_id)))
            answered = data(A, preferred_read_replica=2) if message.rack_id else data(A, records(end, 1))
            end += not message.rack_id
            world.answer(FetchRequest, fetched(answered), now, node_id=1)
        world.read_all()
        now += 0.01
        assert now < 100

    def waits(count: int, outcome: object) -> list[float]:
        """Return for how long the rack is kept from the leader after each of so many answers of the replica."""
        found = list[float]()
        while len(found) < count:
            step()
            if any(request.node_id == 2 for request in world.unsent):
                racks.clear()
                since = now
                world.answer(FetchRequest, outcome, now, node_id=2)
                while not any(told for _, told in racks):
                    step()
                found.append(racks[-1][0] - since)
        return found

    first = waits(6, failure)
    assert end > 100
    assert all(after > before for before, after in pairwise(first[:4]))
    assert 3 * first[0] < max(first) < 4
    assert waits(1, fetched(data(A), session=8))[0] > 1.9, "its lease"
    assert waits(2, failure)[1] < 1, "it begins anew"


@pytest.mark.slow
def test_a_leader_is_told_the_rack_again_within_half_a_minute_and_sooner_if_it_names_another_replica() -> None:
    world = World(client_rack="r2", metadata_max_age_ms=300_000)
    world.fetching({A: 0})
    now, end, named = 1.0, 0, 2

    def wait() -> float:
        """Have the replica fail; return how long the leader is read until it names the replica again."""
        nonlocal now, end
        failed_at = None
        for _ in range(10_000):
            world.poll(now)
            if world.waiting(MetadataRequest):
                world.answer(MetadataRequest, cluster(described("t", (1, 1, 1))), now)
            for request in tuple(world.unsent):
                if not isinstance(request.message, FETCHES):
                    continue
                if request.node_id != 1:
                    world.answer(FetchRequest, fetched(data(A, error_code=56)), now, node_id=request.node_id)
                    failed_at = now
                else:
                    rack = request.message.rack_id
                    answered = data(A, preferred_read_replica=named) if rack else data(A, records(end, 1))
                    end += not rack
                    world.answer(FetchRequest, fetched(answered), now, node_id=1)
                    if rack and failed_at is not None:
                        return now - failed_at
            world.read_all()
            now += 0.01
        raise AssertionError("it is never told the rack")

    waits = [wait() for _ in range(12)]
    assert waits[0] < 1
    assert 25 < max(waits) < 32
    named = 3
    assert wait() > 25, "it has named the other one before"
    assert wait() < 1, "what one replica does says nothing about another"


def test_a_broker_is_told_the_rack_as_long_as_it_serves_a_partition_as_a_follower() -> None:
    """Redpanda's followers refuse who has none, even if the same broker leads a partition whose replica cannot be read from."""
    world = World(client_rack="r2")
    world.fetching({A: 0, B: 0}, leaders=(1, 2))
    world.answer(FetchRequest, fetched(data(A, preferred_read_replica=2)), 1.0, node_id=1)
    world.answer(FetchRequest, fetched(data(B, preferred_read_replica=1)), 1.0, node_id=2)
    world.poll(1.0)
    world.answer(FetchRequest, fetched(data(A, error_code=56)), 1.0, node_id=2)
    world.answer(FetchRequest, fetched(data(B)), 1.0, node_id=1)

    def next_to_the_leader(now: float) -> tuple[bool, float]:
        """Return whether the leader of A is told the rack the next time, and when that is."""
        now = until(world, lambda: any(request.node_id == 1 for request in world.unsent), now)
        (rack,) = {message.rack_id for r in world.unsent if r.node_id == 1 and isinstance(message := r.message, FETCHES)}
        return bool(rack), now

    told, now = next_to_the_leader(1.0)
    assert told
    world.answer(FetchRequest, fetched(data(B)), now, node_id=1)
    now = 1.15  # A is read from its leader again
    told, now = next_to_the_leader(now)
    assert told
    world.answer(FetchRequest, fetched(data(B, error_code=6)), now, node_id=1)
    told, now = next_to_the_leader(now)
    assert not told, "B is read from its own leader now"


def test_a_leader_is_told_the_rack_again_once_the_partition_that_it_named_a_replica_for_is_read_no_more() -> None:
    world = World(client_rack="r2")
    world.fetching({A: 0, B: 0})
    world.answer(FetchRequest, fetched(data(A, preferred_read_replica=2), data(B)), 1.0, node_id=1)
    world.poll(1.0)
    world.answer(FetchRequest, KafkaConnectionError("gone"), 11.0, node_id=2)
    world.answer(FetchRequest, fetched(data(B)), 11.0, node_id=1)

    def rack() -> str:
        (found,) = {message.rack_id for r in world.unsent if r.node_id == 1 and isinstance(message := r.message, FETCHES)}
        return found

    world.poll(11.1)
    assert rack() == ""
    world.send(PausePartitions(partitions=frozenset((A,))))
    world.answer(FetchRequest, fetched(data(B)), 11.2, node_id=1)
    world.poll(11.2)
    assert rack() == "r2"
    world.send(ResumePartitions(partitions=frozenset((A,))))
    world.answer(FetchRequest, fetched(data(B)), 11.3, node_id=1)
    world.poll(11.3)
    assert rack() == "", "its time is not over"


def test_a_replica_that_the_metadata_never_list_keeps_nobody_from_reading() -> None:
    """It may have no address for us. The leader gives no records to whom it names a replica."""
    world = World(client_rack="r2")
    world.fetching({A: 0})
    now, end = 1.0, 0
    while now < 60:
        world.poll(now)
        if world.waiting(MetadataRequest):
            world.answer(MetadataRequest, cluster(described("t", (1, 1, 1))), now)
        for request in tuple(world.unsent):
            if isinstance(request.message, FETCHES):
                rack = request.message.rack_id
                answered = data(A, preferred_read_replica=9) if rack else data(A, records(end, 1))
                end += not rack
                world.answer(FetchRequest, fetched(answered), now, node_id=1)
        world.read_all()
        now += 0.1
    assert end > 300


def test_brokers_that_name_each_other_are_not_asked_without_end() -> None:
    world = World(client_rack="r2")
    world.fetching({A: 0})
    now, requests = 1.0, 0
    while now < 10:
        for pending in list(world.unsent):
            if isinstance(pending.message, FetchRequest):
                requests += 1
                other = 2 if pending.node_id == 1 else 1
                world.answer(FetchRequest, fetched(data(A, preferred_read_replica=other)), now, node_id=pending.node_id)
        world.poll(now)
        now += 0.001
    assert requests < 40
