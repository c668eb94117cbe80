"""``kafka_async.background.group.classic.division``: the assignors that a member offers, and what it does while it leads."""

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

from kafka_async.background.group.classic.assignment import RebalanceProtocol
from kafka_async.background.group.classic.assignors import RangeAssignor
from kafka_async.background.group.classic.division import Division
from kafka_async.background.group.classic.leader import read_assignment
from kafka_async.background.group.classic.sticky_assignors import CooperativeStickyAssignor
from tests.background.group.classic.world import A0, A1, ME, Metadata, joined, said, synced, topic


def division(*assignors: Any, metadata: Metadata | None = None) -> Division:
    return Division(assignors or (RangeAssignor(),), metadata or Metadata(), "r1")


def leading(some: Division, members: dict[str, bytes] | None = None) -> Division:
    some.begin(some.assignors[0], joined(leader=ME, members=members or {ME: said("a"), "x": said("a")}), 5.0)
    return some


def names(offered: Sequence[Any]) -> list[str]:
    return [each.name for each in offered]


def test_every_assignor_is_offered_the_best_first() -> None:
    some = division(RangeAssignor(), CooperativeStickyAssignor())
    assert names(some.offer(frozenset("a"), frozenset({A0}), 3)) == ["range", "cooperative-sticky"]
    assert some.protocol is RebalanceProtocol.EAGER, "what all of them can"
    assert not some.is_cooperative
    assert division(CooperativeStickyAssignor()).is_cooperative


@pytest.mark.parametrize(
    ("name", "kind", "known"), [("range", "consumer", True), ("range", None, True), ("range", "connect", False), ("x", None, False)]
)
def test_only_what_was_offered_can_be_agreed_on(name: str, kind: str | None, known: bool) -> None:
    assert (division().offers(name, kind) is not None) is known


def test_a_member_that_does_not_lead_has_nothing_to_divide() -> None:
    some = division()
    some.begin(some.assignors[0], joined(leader="other"), 5.0)
    some.make_plan()
    assert (some.leadership, some.plan, some.topics, some.changes(), some.ready_at()) == (None, (), frozenset(), (), inf)
    assert not some.must_learn


def test_the_leader_divides_among_all_members_and_watches_their_topics() -> None:
    metadata = Metadata(topics={"a": topic("a", 2)})
    some = leading(division(metadata=metadata))
    assert some.topics == frozenset("a")
    some.make_plan()
    assert {each.member_id: read_assignment(each.assignment) for each in some.plan} == {ME: {A0}, "x": {A1}}
    metadata.update(topic("a", 3))
    assert some.changes() == ("a",)


def test_a_leader_that_does_not_know_a_topic_is_never_ready() -> None:
    assert leading(division(), {ME: said("nowhere")}).ready_at() == inf


def test_whoever_leads_no_more_watches_nothing_and_a_new_generation_begins_without_a_plan() -> None:
    some = leading(division())
    some.make_plan()
    some.forget()
    assert (some.leadership, some.topics) == (None, frozenset())
    assert leading(some).plan == ()


def test_what_a_member_is_given_is_told_to_the_assignor() -> None:
    told: list[Any] = []

    class Remembering(RangeAssignor):
        def on_assignment(self, partitions: Any, generation: int) -> None:
            told.append((partitions, generation))

    assert division(Remembering()).take(synced(A0).assignment, 4) == {A0}
    assert told == [({A0}, 4)]
