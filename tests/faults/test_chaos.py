"""``tests.faults.chaos``: what counts as a fault in the log of what was delivered."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.integration.groups import Group, Load, Process, Processes

from .chaos import LOADING, PATIENCE, SESSION_MS, Turmoil

NOWHERE: Any = None
SESSION = SESSION_MS / 1000


def turmoil(*waits: float) -> Turmoil:
    """Return a log in which records were acknowledged at 100 s and waited so many seconds."""
    group = Processes(Group(cluster=NOWHERE, protocol="classic", name="g", session_ms=SESSION_MS), "t", Path())
    writing = Load(NOWHERE, "t", 1, 1)
    for offset, wait in enumerate(waits):
        writing.acknowledged[0, offset] = 100.0
        group.watch.seen[0, offset] = 100.0 + wait
        group.watch.consumed[0].append(offset)
    return Turmoil(NOWHERE, NOWHERE, "t", [group], writing, Random(0))  # noqa: S311  # not a secret


def test_a_good_log_has_no_faults() -> None:
    outcome = turmoil(0.1, PATIENCE - 1).outcome(1)
    assert (outcome.records, outcome.lost, outcome.faults) == (2, 0, ())
    assert outcome.longest_wait == {"classic": PATIENCE - 1}


def test_what_happened_during_the_longest_wait_is_reported() -> None:
    log = turmoil(5.0)
    log.happened += [(90.0, "cut"), (99.0, "kill_broker"), (103.0, "bad_line"), (110.0, "black_hole")]
    assert log.outcome(1).longest_wait_during == {"classic": ("kill_broker -1.0", "bad_line +3.0")}


def test_a_record_that_nobody_read_is_lost() -> None:
    log = turmoil(0.1)
    log.writing.acknowledged[3, 7] = 100.0
    assert log.outcome(1).lost == 1
    assert log.outcome(1).faults == ("classic: lost [(3, 7)]",)


def test_only_a_kill_explains_that_a_record_came_twice() -> None:
    log = turmoil(0.1)
    log.groups[0].watch.consumed[0].append(0)
    assert log.outcome(1).faults == ("classic: 1 records came twice without a kill, [(0, 0)]",)
    log.excused["classic"] = {(0, 0)}
    assert log.outcome(1).faults == ()


@pytest.mark.parametrize(
    ("killed_at", "moves", "wait", "good"),
    [
        (None, [101.0], PATIENCE + 1, False),
        (99.0, [], PATIENCE + 1, False),
        (99.0, [105.0], PATIENCE + 1, True),
        (99.0, [105.0], PATIENCE + 6 + LOADING + 1, False),
        (99.0, [105.0, 116.0], PATIENCE + 6 + LOADING + 1, True),
        (99.0, [99.0 + SESSION + 1], PATIENCE + 1, False),
        (60.0, [65.0], PATIENCE + 1, False),
    ],
    ids=[
        "nobody died",
        "the coordinator stayed",
        "it moved while the dead member counted as alive",
        "longer than that explains",
        "it moved twice",
        "it moved when the session was over",
        "all over before the record came",
    ],
)
def test_a_wait_may_be_longer_by_what_a_new_coordinator_gives_a_dead_member(
    killed_at: float | None, moves: list[float], wait: float, good: bool
) -> None:
    log = turmoil(wait)
    log.moves["classic"] += [(moved_at - 0.1, moved_at) for moved_at in moves]
    log.moves["consumer"].append((105.0, 105.1))  # another group's
    if killed_at is not None:
        log.kills["classic"].append(killed_at)
    assert (log.outcome(1).faults == ()) is good


@pytest.mark.parametrize(
    ("assigned_at", "moves", "good"),
    [(103.0, [], False), (107.0, [105.0], True), (None, [105.0], True), (103.0, [105.0], False), (127.0, [105.0, 119.0], True)],
    ids=["it stayed", "it moved before the next generation", "there was none", "it moved after that", "it moved twice"],
)
def test_a_new_coordinator_counts_a_member_that_left_if_no_generation_without_it_is_stored(
    assigned_at: float | None, moves: list[float], good: bool
) -> None:
    log = turmoil(PATIENCE + 6)
    log.moves["classic"] += [(moved_at - 0.1, moved_at) for moved_at in moves]
    newcomer = Process("newcomer", log.groups[0].watch, NOWHERE, assigned_at=assigned_at)
    log.leaves.append((99.0, newcomer))
    assert (log.outcome(1).faults == ()) is good


def test_a_coordinator_moved_if_the_leader_epoch_grew_between_two_looks() -> None:
    log = turmoil()
    for epoch, asked_at in ((4, 1.0), (4, 2.0), (5, 3.0), (4, 4.0), (5, 5.0), (7, 6.0)):
        log.see("classic", epoch, asked_at, asked_at + 0.1)
    log.see("consumer", 9, 7.0, 7.1)
    assert log.moves == {"classic": [(2.0, 3.1), (5.0, 6.1)]}


def test_a_member_that_left_explains_no_wait_of_what_was_written_once_a_generation_without_it_is_stored() -> None:
    log = turmoil(PATIENCE + 6)
    log.moves["classic"].append((94.9, 95.0))
    newcomer = Process("newcomer", log.groups[0].watch, NOWHERE, assigned_at=99.0)
    log.leaves.append((90.0, newcomer))
    assert log.outcome(1).faults
    newcomer.assigned_at = 101.0
    assert not log.outcome(1).faults
