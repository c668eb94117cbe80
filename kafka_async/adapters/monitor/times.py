"""Lag in time: how long ago the record at an offset was appended.

Pure: the time is an argument, in seconds of one clock that never goes back.

It interpolates between two samples and never beyond them: an offset older than all samples is "more than" their age, until a search
by timestamps (``Search``) has put anchors before them. A monitor that extrapolates shows 75 hours after a quiet night
(kafka-lag-exporter, issues 175 and 496).

Nor does it interpolate between anchors: they may be hours apart, and all the records between them of the first minute. Such a
record is taken to be as old as the anchor before it: that is never less than the truth, and a search makes it as good as exact.
"""

from bisect import bisect_right, insort
from collections.abc import Collection
from enum import StrEnum
from typing import Final

from attrs import Factory, define, field, frozen

MOST: Final = 120
"""Samples kept for a partition: ten minutes of a busy one at an interval of five seconds; then every other old one goes."""
ANCHORS: Final = 8 * MOST
"""Anchors kept for a partition: those of a hundred groups that have stopped; then every other one goes."""
ROUNDS: Final = 6
"""Look-ups by time in one search."""
NEAR: Final = 1.0
CLOSE: Final = 0.02
"""A time is known once it is to so many seconds, or to this share of the record's age."""


class Certainty(StrEnum):
    """How an age is known."""

    SEEN = "seen"
    """Between two samples that we took ourselves."""
    ABOUT = "about"
    """From timestamps of records, which are those of the producer's clock if the topic has ``CreateTime``. It may be less."""
    OVER = "over"
    """More than that: it is older than all samples."""


@frozen
class Age:
    """How long ago a record was appended."""

    seconds: float
    certainty: Certainty = Certainty.SEEN


@frozen(order=True)
class _Point:
    """The log ended at ``end`` at ``time``."""

    time: float
    end: int
    seen: bool = True


@define
class EndTimes:
    """When the log of a partition ended where."""

    _points: list[_Point] = field(factory=list)
    """In the order of time, with ends that never get smaller. A stretch in which the log did not grow has its two edges."""

    @property
    def latest(self) -> int | None:
        """The newest end; ``None`` before the first sample."""
        return self._points[-1].end if self._points else None

    def add(self, now: float, end: int) -> None:
        """Add a sample. One that is lower than the last means another log: what was known is forgotten."""
        if self._points and (end < self._points[-1].end or now < self._points[-1].time):
            self._points.clear()
        new = _Point(now, end)
        if len(self._points) > 1 and self._points[-1].end == self._points[-2].end == end:
            self._points[-1] = new
        else:
            self._points.append(new)
        if len(self._points) > MOST and len(seen := [point for point in self._points if point.seen]) > MOST:
            self._drop(seen[1 : len(seen) // 2 : 2])

    def anchor(self, time: float, offset: int) -> None:
        """Add what the timestamp of the record at ``offset`` says. It is dropped if it contradicts what was seen."""
        point = _Point(time, offset, seen=False)
        place = bisect_right(self._points, point)
        before, after = self._points[:place], self._points[place:]
        if before and before[-1] == point:
            return
        if after and offset <= after[0].end and (not before or before[-1].end <= offset) and time < after[0].time:
            insort(self._points, point)
        if len(self._points) > ANCHORS and len(anchors := [point for point in self._points if not point.seen]) > ANCHORS:
            self._drop(anchors[1::2])

    def _drop(self, points: Collection[_Point]) -> None:
        dropped = set(map(id, points))  # two samples may be alike
        self._points = [point for point in self._points if id(point) not in dropped]

    def age(self, now: float, offset: int) -> Age | None:
        """Return how long ago the record at ``offset`` was appended: 0 if it is not there yet; ``None`` if nothing is known."""
        if not self._points:
            return None
        if offset >= self._points[-1].end:
            return Age(0.0)
        before, after = self._around(offset)
        if before is None:
            past = max(now - after.time, 0.0)
            return Age(past, Certainty.OVER) if past > 0 else None
        if not (before.seen and after.seen):
            return Age(max(now - before.time, 0.0), Certainty.ABOUT)
        share = (offset - before.end) / (after.end - before.end)
        return Age(max(now - before.time - share * (after.time - before.time), 0.0))

    def search(self, now: float, wall_ms: float, offset: int) -> "Search | None":
        """Return a search for the time of the record at ``offset``; ``None`` if it is known well enough, or not there yet.

        ``wall_ms``: the time of day now, in milliseconds.
        """
        if not self._points or offset >= self._points[-1].end:
            return None
        before, after = self._around(offset)
        if before is not None and before.seen and after.seen:
            return None
        newest = (wall_ms - 1000 * (now - after.time), after.end)
        oldest = None if before is None else (wall_ms - 1000 * (now - before.time), before.end)
        found = Search(offset, newest, oldest, now=wall_ms)
        return None if found.done else found

    def _around(self, offset: int) -> tuple[_Point | None, _Point]:
        """Return what is known before and after the record at ``offset``, which is in the log, was appended."""
        place = bisect_right(self._points, offset, key=lambda point: point.end)
        return self._points[place - 1] if place else None, self._points[place]


@define
class Search:
    """Looks for the time of one record by asking for the first record at or after a timestamp, a few times.

    The first look-up, for timestamp 0, brings the oldest record of the log; the next are set between what is known to be too old
    and what is known to be too new.
    """

    offset: int
    """Of the record whose time is wanted."""
    newest: tuple[float, int]
    """A time in milliseconds at which the log ended at an offset after it."""
    oldest: tuple[float, int] | None = None
    """A record that is not after it: its timestamp and its offset."""
    now: float = Factory(lambda self: self.newest[0], takes_self=True)
    """The time of day when it begins, in milliseconds."""
    rounds: int = 0
    found: list[tuple[float, int]] = field(factory=list)
    """Times in milliseconds, and where the log ended then: at the record that has the timestamp, or is the first one after it."""

    @property
    def done(self) -> bool:
        """Whether more look-ups would bring nothing."""
        return self.rounds >= ROUNDS or self._found

    @property
    def _found(self) -> bool:
        if self.oldest is None:
            return False
        time, offset = self.oldest
        return offset == self.offset or self.newest[0] - time < max(1000 * NEAR, CLOSE * (self.now - time))

    def timestamp(self) -> int:
        """Return the timestamp to ask for next, in milliseconds."""
        if self.oldest is None:
            return 0
        (old_time, old), (new_time, new) = self.oldest, self.newest
        share = (self.offset - old) / (new - old)
        if self.rounds % 2 == 0:  # where records came unevenly, guesses by their number alone go on missing on one side
            share = 0.5
        return int(min(max(old_time + share * (new_time - old_time), old_time + 1), new_time))

    def learn(self, asked: int, answer: tuple[float, int] | None) -> None:
        """Take an answer: a record's timestamp and offset; ``None``: no record is that late."""
        self.rounds += 1
        if answer is None or answer[1] > self.offset:
            self.newest = (float(asked), answer[1] if answer is not None else self.newest[1])
            if self.oldest is None:  # the record itself is not in the log any more
                self.rounds = ROUNDS
            else:
                self.found.append(self.newest)
        else:
            self.oldest = answer
        if answer is not None:
            self.found.append(answer)
