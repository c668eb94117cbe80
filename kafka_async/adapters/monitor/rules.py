"""Burrow's rules, which tell without thresholds whether a group keeps up, to the letter.

Pure: the time is an argument. What a poller that sees no commits makes of them is in ``window.py``.

Source: Burrow's ``core/internal/evaluator/caching.go``; its pull requests 338 (caught up moments ago) and 716 (rewinds).
"""

from collections.abc import Sequence
from itertools import islice, pairwise

from attrs import frozen

from .status import Status


@frozen
class CommitSeen:
    """One commit as Burrow stores it."""

    offset: int
    time: float
    """Seconds."""
    lag: int | None
    """Records that were after it when it was seen; ``None`` if that was not known."""


def burrow(commits: Sequence[CommitSeen], ends: Sequence[int], now: float, current_lag: int, allowed: int = 0) -> Status:
    """Return the status of a partition with at least one commit. ``ends``: recent ends of the log."""
    if current_lag <= allowed:
        return Status.OK
    if stopped(commits, now) and not lately_at_the_end(commits, ends):
        return Status.STOP
    return moving(commits, allowed)


def moving(commits: Sequence[CommitSeen], allowed: int = 0) -> Status:
    """Return what the commits say about a group that goes on committing, and is behind."""
    if rewound(commits):
        return Status.REWIND
    if caught_up_once(commits, allowed):
        return Status.OK
    if unchanged(commits):
        return Status.STALL
    return Status.WARN if never_smaller(commits) else Status.OK


def stopped(commits: Sequence[CommitSeen], now: float) -> bool:
    """Return whether the last commit is longer ago than all of them took."""
    return now - commits[-1].time > commits[-1].time - commits[0].time


def lately_at_the_end(commits: Sequence[CommitSeen], ends: Sequence[int]) -> bool:
    """Return whether the log ended at the last commit not long ago: a slow topic, whose next record has just come."""
    return any(end <= commits[-1].offset for end in ends)


def rewound(commits: Sequence[CommitSeen]) -> bool:
    """Return whether the first commit that is lower than the one before it has not been made up for."""
    for index, (before, after) in enumerate(pairwise(commits), 1):
        if after.offset < before.offset:
            return not any(later.offset >= before.offset for later in islice(commits, index, None))  # a deque has no slices
    return False


def caught_up_once(commits: Sequence[CommitSeen], allowed: int = 0) -> bool:
    """Return whether there was no lag at some time in the window."""
    return any(commit.lag is not None and commit.lag <= allowed for commit in commits)


def unchanged(commits: Sequence[CommitSeen]) -> bool:
    """Return whether all commits are of one offset."""
    return all(commit.offset == commits[0].offset for commit in commits)


def never_smaller(commits: Sequence[CommitSeen]) -> bool:
    """Return whether no lag is smaller than the one before it; those that were not known are left out."""
    known = [commit.lag for commit in commits if commit.lag is not None]
    return all(before <= after for before, after in pairwise(known))
