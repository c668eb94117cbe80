"""How new the metadata have to be with which the leader of a classic group divides the partitions."""

from kafka_async.background.group.classic.leader import read_assignment
from tests.background.group.classic.world import ME, A, World, joined, said, topic, world


def leader_with_metadata_of(answered_at: float) -> World:
    """Return a member that leads from 10.0 on."""
    w = world()
    w.metadata.answered_at = answered_at
    w.member.subscribe(A, 9.0)
    w.turn(9.0)
    w.reply(joined(leader=ME, members={ME: said("a")}), 10.0)
    return w


def test_the_leader_divides_what_there_is_now_and_not_what_there_was() -> None:
    """The topic had grown since the last metadata: the group rebalanced twice, and read nothing in between."""
    w = leader_with_metadata_of(8.0)
    assert w.sent(10.0) == []
    assert w.metadata.updates == 2, "one for the subscription, one to lead"
    w.metadata.update(topic("a", 5))
    w.metadata.answered_at = 10.1
    assert w.sent(10.1) == ["SyncGroup"]
    (given,) = w.message("SyncGroup").assignments
    assert len(read_assignment(given.assignment)) == 5


def test_the_leader_waits_for_no_newer_metadata_than_of_the_last_second_and_no_longer_than_one() -> None:
    assert leader_with_metadata_of(9.1).sent(10.0) == ["SyncGroup"]
    w = leader_with_metadata_of(8.0)
    assert w.turn(10.0).wake_at == 11.0
    assert w.sent(11.0) == ["SyncGroup"]
