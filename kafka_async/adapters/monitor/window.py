"""What a group did in one partition over the last polls, and what to think of it.

Pure: the time is an argument.

A poller sees no commits, only offsets, so what Burrow reads from the times of commits comes from elsewhere here: whether a group
has members says whether it stopped, and the poll that saw an offset change stands for the commit. A group that commits rarely is
given three times what lies between its commits otherwise, and at least 30 s (Burrow's issues 38 and 303). A gap in the samples (a
suspended laptop) begins anew: what happened meanwhile is not known, so nothing is said of it.

For a share group its start offset is the committed one, and the lag is what the coordinator reports (KIP-1226): acknowledgements
after the start count, too.
"""

from collections import deque
from itertools import pairwise
from statistics import median
from typing import Final
from uuid import UUID

from attrs import define, field, frozen

from ...trace import counted
from . import rules
from .status import Status

INTERVALS: Final = 10
"""Polls that are judged together, as in Burrow."""
FEWEST: Final = 3
"""Polls before anything is said of a group with members, and the seconds that they must take at least."""
PATIENCE: Final = 30.0
SESSION: Final = 45.0
"""Seconds that a rebalance may take: the session timeout (KIP-735). Members that died are waited for as long."""
GAP: Final = 3
"""Intervals without a sample after which the window begins anew."""
SETTLED: Final = ("Stable", "Empty", "Dead", "")
"""States of a group that does not rebalance; an empty one: the broker is too old to tell."""


@frozen(kw_only=True)
class Seen:
    """What one poll has found out about a partition of a group; ``None`` where it did not."""

    committed: int | None
    """Of a share group its start offset."""
    end: int | None
    start: int | None = None
    stable: int | None = None
    """The last stable offset, before which all transactions have ended."""
    reported: int | None = None
    """The lag that the coordinator of a share group reports."""
    share: bool = False
    topic_id: UUID | None = None

    @property
    def lag(self) -> int | None:
        """Records that are not done; ``None`` if that is not known. Of an offset group those that were deleted count, too."""
        if self.share:
            return self.reported
        if self.committed is None and self.end is not None and self.end == self.start:
            return 0  # nothing was committed, and there is nothing to read
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)

    @property
    def waiting(self) -> int | None:
        """Records that are not done and still in the log."""
        if self.lag is None or self.start is None or self.committed is None or self.end is None:
            return self.lag
        return min(self.lag, max(0, self.end - max(self.start, self.committed)))

    @property
    def lost(self) -> int:
        """Records that were deleted before they were done."""
        if self.committed is None or self.start is None:
            return 0
        return max(0, self.start - self.committed)

    @property
    def beyond(self) -> bool:
        """Whether the committed offset is after the end of the log."""
        return self.committed is not None and self.end is not None and self.committed > self.end


@frozen(kw_only=True)
class Members:
    """Who could read a partition."""

    state: str
    """That of the group, as the broker calls it."""
    count: int | None
    """``None``: not known, such as of a group of Kafka Streams that is listed with some."""
    owned: bool = True
    """A member has the partition."""
    rebalancing_since: float | None = None
    """When the group began to rebalance, if it does."""


@frozen
class Judgement:
    """A status, and in a few words why."""

    status: Status
    note: str = ""


@frozen(kw_only=True)
class Rates:
    """Records a second; ``None`` where there are not two samples yet, or an offset was set back."""

    arriving: float | None = None
    done: float | None = None


@frozen
class _Sample:
    time: float
    seen: Seen
    readers: int | None
    """Members of the group."""
    left: int | None
    """Records that were there at the poll before, and are not done: the lag of a commit, which Burrow takes from the last end that
    it knew before. A group that has read all of them has caught up, whatever came since."""

    @property
    def commit(self) -> rules.CommitSeen:
        return rules.CommitSeen(self.seen.committed or 0, self.time, self.left)


@define
class Window:
    """The last polls of one partition of a group."""

    allowed: int = 0
    """Records of lag that are none: for programs that never commit the marker after a transaction (Burrow's issue 570)."""
    _samples: "deque[_Sample]" = field(factory=lambda: deque(maxlen=INTERVALS))
    _moves: "deque[float]" = field(factory=lambda: deque(maxlen=INTERVALS))
    """The polls at which the committed offset was seen to have changed."""
    _alone: "deque[rules.CommitSeen]" = field(factory=lambda: deque(maxlen=INTERVALS))
    """Those of them at which the group had no members, as if they were the commits."""
    _since: float | None = None
    """Since when it has been what it is, as far as we have seen."""
    _attended: float | None = None
    """Since when the group has members, as far as we have seen. One poll without any may be a restart; two are none."""
    _gaps: int = 0
    """How often it began anew."""
    _former: int | None = None
    """What was committed in another topic of that name, which has been deleted since; ``None``: in none."""
    _done: int = 0
    """Where the log ended when a share group had no lag."""
    _committed: int | None = None
    """The last offset that was committed."""
    _topic_id: UUID | None = None
    _starts: "deque[tuple[float, int]]" = field(factory=lambda: deque(maxlen=2 * INTERVALS))
    """The log's starts, by the time at which each was first seen."""

    def add(self, now: float, seen: Seen, members: Members, interval: float) -> None:
        """Add what a poll has found. ``interval``: seconds between polls."""
        if self._samples and now - self._samples[-1].time > GAP * interval:
            self._begin_anew()
            self._gaps += 1
        self._take_topic(seen)
        before = self._samples[-1] if self._samples else None
        if members.count != 0:
            self._attended = now if self._attended is None else self._attended
        elif before is None or before.readers == 0:
            self._attended = None
        if self._since is None:
            self._since = now
        elif before is not None and _moved(before.seen, seen):
            self._moves.append(now)
            if before.readers == members.count == 0:
                self._alone.append(rules.CommitSeen(seen.committed or 0, now, seen.waiting))
            self._since = now
        self._samples.append(_Sample(now, seen, members.count, _left(before, seen)))
        if seen.start is not None and (not self._starts or seen.start > self._starts[-1][1]):
            self._starts.append((now, seen.start))

    def _take_topic(self, seen: Seen) -> None:
        """Find out whether the topic is another one than before, and what of it is done."""
        anew = seen.committed not in (None, self._committed, self._former) and not seen.beyond
        if None not in (self._topic_id, seen.topic_id) and self._topic_id != seen.topic_id:
            self._former = None if anew else self._committed
            self._done = 0
            self._begin_anew()
        elif anew:
            self._former = None
        if seen.share and seen.lag == 0 and seen.end is not None:
            self._done = seen.end
        elif self._committed is not None and seen.committed is not None and seen.committed < self._committed:
            self._done = 0  # it was set back
        self._topic_id = seen.topic_id or self._topic_id
        self._committed = self._committed if seen.committed is None else seen.committed

    def _begin_anew(self) -> None:
        self._samples.clear()
        self._moves.clear()
        self._alone.clear()
        self._starts.clear()
        self._since = self._attended = None

    @property
    def last(self) -> Seen | None:
        """What the last poll has found."""
        return self._samples[-1].seen if self._samples else None

    @property
    def oldest(self) -> int | None:
        """The first record that is not done, as far as that is known; ``None`` if it is not.

        The start of a share group that brokers tell is the one that they wrote down last. What there was when the group had no lag
        is done all the same.
        """
        if (last := self.last) is None or last.committed is None:
            return None
        return max(last.committed, last.start or 0, self._done)

    @property
    def sampled_at(self) -> float:
        """When that was; needs a sample."""
        return self._samples[-1].time

    @property
    def is_over(self) -> bool:
        """Whether nothing is committed any more, for so long that it is of no interest: the topic was deleted, or the offset."""
        gone = len(self._samples) == INTERVALS and all(sample.seen.committed is None for sample in self._samples)
        return gone and self._former is None

    # --- numbers ---------------------------------------------------------------------------------------------------------------

    def unmoved(self, now: float) -> float | None:
        """Return for how many seconds nothing was committed, as far as we have seen; ``None`` before the second poll."""
        return max(now - self._since, 0.0) if self._since is not None and len(self._samples) > 1 else None

    def rates(self, since: float = float("-inf")) -> Rates:
        """Return how fast records come and are done, over half a minute or three polls; what was before ``since`` is left out."""
        used = [sample for sample in self._samples if sample.time >= since]
        while len(used) > FEWEST and used[-1].time - used[0].time > PATIENCE:
            used.pop(0)
        if len(used) < 2 or (span := used[-1].time - used[0].time) <= 0:
            return Rates()
        first, last = used[0].seen, used[-1].seen
        arriving = _rate(first.end, last.end, span)
        if last.share:
            if arriving is None or first.lag is None or last.lag is None:
                return Rates(arriving=arriving)
            return Rates(arriving=arriving, done=max(0.0, arriving - (last.lag - first.lag) / span))
        return Rates(arriving=arriving, done=_rate(first.committed, last.committed, span))

    def retention_in(self, now: float) -> float | None:
        """Return in how many seconds the log's start will reach what is not read yet, at the speeds of both; ``None``: not at all.

        The start moves in leaps, a segment at a time, so two of them must have been seen.
        """
        if len(self._starts) < 2 or not self._samples:
            return None
        last = self._samples[-1].seen
        (began, first), (_, start) = self._starts[0], self._starts[-1]
        if last.committed is None or now <= began or last.committed < start or not last.waiting:
            return None
        deleted = (start - first) / (now - began)
        left = deleted - (self.rates().done or 0.0)
        return (last.committed - start) / left if left > 0 else None

    # --- judgement -------------------------------------------------------------------------------------------------------------

    def judge(self, now: float, members: Members) -> Judgement:
        """Return how the group is doing in the partition. Needs a sample."""
        seen = self._samples[-1].seen
        if (lost := self._unreadable()) is not None:
            return Judgement(Status.UNREADABLE, lost)
        if seen.waiting is None:
            return self._unknown(seen)
        if seen.waiting <= self.allowed:
            return Judgement(Status.OK, _lost(seen) if seen.lost else "")
        if members.count == 0:
            verdict = self._without_members(now)
        elif members.rebalancing_since is not None and now - members.rebalancing_since > SESSION and self._is_quiet(now, SESSION):
            what = "not ready" if members.state == "NotReady" else "rebalancing"  # that of Kafka Streams lacks topics of its own
            verdict = Judgement(Status.ERR, f"{what} for {now - members.rebalancing_since:.0f} s")
        else:
            verdict = self._with_members(now, members)
        if seen.lost and verdict.status.severity < Status.ERR.severity:
            return Judgement(Status.ERR, _lost(seen))
        return verdict

    def _unknown(self, seen: Seen) -> Judgement:
        if seen.share:
            return Judgement(Status.UNKNOWN, "not begun, or lag not known")
        if seen.committed is None:
            return Judgement(Status.OK, "no commit")
        return Judgement(Status.UNKNOWN, "no leader, or no such topic" if seen.end is None else "")

    def _unreadable(self) -> str | None:
        seen = self._samples[-1].seen
        if self._former is not None:
            idle = seen.committed is None and seen.end is not None and seen.end <= (seen.start or 0)
            if idle and len(self._samples) == INTERVALS and self._samples[-1].readers:
                return None  # members wait for the first record of the new topic
            return f"the topic was created again; {self._former} was committed in the former one"
        # The first look at a partition counts, and later ones if they agree: after an election the end may be low for a moment.
        if seen.beyond and (len(self._samples) == 1 or self._samples[-2].seen.beyond):
            return f"committed {seen.committed}, and the log ends at {seen.end}"
        return None

    def _without_members(self, now: float) -> Judgement:
        """Nobody reads: that is certain. A restart has a moment without members, so a group that had some is looked at twice."""
        if self._alone:  # it commits without being a member: a program with ``assign``
            status = rules.burrow(self._alone, self._ends(), now, self._samples[-1].seen.waiting or 0, self.allowed)
            judged = self._is_quiet(now, PATIENCE) if status is Status.STOP else len(self._alone) >= FEWEST
            return Judgement(status if judged else Status.OK, "no members (assign?)")
        first = len(self._samples) == 1
        twice = len(self._samples) > 1 and self._samples[-1].readers == self._samples[-2].readers == 0
        certain = twice or (first and not self._gaps)
        return Judgement(Status.STOP if certain else Status.OK, "no members")

    def _with_members(self, now: float, members: Members) -> Judgement:
        since = now if self._attended is None else self._attended
        attended = [sample for sample in self._samples if sample.time >= since]
        if len(attended) < FEWEST or now - since < PATIENCE or members.state not in SETTLED:
            return Judgement(Status.OK)
        if not members.owned and members.count is not None:
            return Judgement(Status.WARN, "no member has it") if self._is_quiet(now, PATIENCE) else Judgement(Status.OK)
        commits = [sample.commit for sample in attended if sample.seen.committed is not None]
        status = rules.moving(commits, self.allowed) if commits else Status.OK
        if status is Status.STALL:
            return self._stalled(now)
        return Judgement(status, "the lag does not get smaller" if status is Status.WARN else "")

    def _stalled(self, now: float) -> Judgement:
        seen = self._samples[-1].seen
        if not self._is_quiet(now, PATIENCE):
            return Judgement(Status.OK)
        if seen.stable is not None and seen.end is not None and seen.committed == seen.stable < seen.end:
            return Judgement(Status.STALL, f"an open transaction holds what comes after {seen.stable}")
        return Judgement(Status.STALL, "has members, commits nothing")

    def _is_quiet(self, now: float, least: float) -> bool:
        """Return whether nothing was committed for so long that it means something, even to a group that commits rarely.

        Members have as long from when they come: what nobody committed before is not theirs.
        """
        if self._since is None:
            return False
        return now - max(self._since, self._attended or self._since) >= max(least, 3 * self._usual())

    def _usual(self) -> float:
        """Return the seconds that usually lie between two moves."""
        return median(later - earlier for earlier, later in pairwise(self._moves)) if len(self._moves) > 1 else 0.0

    def _ends(self) -> list[int]:
        return [sample.seen.end for sample in self._samples if sample.seen.end is not None]

    @property
    def may_wait_for_a_transaction(self) -> bool:
        """Whether the last stable offset would say more: there are records, and nothing was committed in three polls."""
        recent = list(self._samples)[-FEWEST:]
        last = recent[-1].seen if recent else None
        return (
            last is not None
            and len(recent) == FEWEST
            and not last.share
            and bool(last.waiting)
            and all(sample.seen.committed == last.committed for sample in recent)
        )


def _lost(seen: Seen) -> str:
    return f"{counted(seen.lost, 'record', 'were')} deleted unread"


def _left(before: _Sample | None, seen: Seen) -> int | None:
    if before is None or seen.waiting is None or seen.end is None or before.seen.end is None:
        return None if seen.waiting else seen.waiting
    return max(0, seen.waiting - max(0, seen.end - before.seen.end))


def _moved(before: Seen, after: Seen) -> bool:
    if after.share and before.lag is not None and after.lag is not None and after.lag < before.lag:
        return True
    return before.committed != after.committed


def _rate(first: int | None, last: int | None, span: float) -> float | None:
    return (last - first) / span if first is not None and last is not None and last >= first else None
