"""How fast a group settles: one member joins, then another, under steady load; the partitions that the first keeps must go on.

Decides: what is measured from the members' notes. Owns the processes of the two members. Must never count the start of a process:
a member's time begins with the construction of its consumer.
"""

import contextlib
import json
import random
import selectors
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any, Final

from attrs import evolve, field, frozen

from benchmarks.jobs import Job
from benchmarks.members import HEARTBEAT_MS

PATIENCE: Final = 60.0
"""Seconds after which a member that is not steady counts as failed."""
AFTER: Final = 1.0
"""Seconds after the second member was steady in which the first one's records still count."""


@frozen(kw_only=True)
class Noted:
    """What a member noted, in seconds: when its consumer was made, and when records of each partition came."""

    began: float
    times: dict[int, list[float]] = field(factory=dict)

    @classmethod
    def from_json(cls, text: str) -> "Noted":
        """Return what ``Notes.to_json`` wrote."""
        found = json.loads(text)
        times = {int(partition): [number / 1e9 for number in numbers] for partition, numbers in found["times"].items()}
        return cls(began=found["began"] / 1e9, times=times)

    @property
    def steady(self) -> float:
        """When the first record of its last partition came."""
        return max(numbers[0] for numbers in self.times.values())


def measured(first: Noted, second: Noted) -> dict[str, float]:
    """Return, in milliseconds: until each member was steady, and the longest pauses of partitions that stayed and that moved.

    ``calm_gap_ms``: the longest pause while the first member was alone, which is what the machine causes without a rebalance.
    """
    until = second.steady + AFTER
    kept = [numbers for partition, numbers in first.times.items() if partition not in second.times]
    gaps = [after - before for numbers in kept for before, after in _during(numbers, second.began, until)]
    calm = [after - before for numbers in kept for before, after in _during(numbers, first.steady, first.steady + AFTER)]
    moved = [numbers[0] - first.times[partition][-1] for partition, numbers in second.times.items()]
    if not gaps:
        raise RuntimeError("the first member kept nothing")
    seconds = {
        "first_ms": first.steady - first.began,
        "second_ms": second.steady - second.began,
        "kept_gap_ms": max(gaps),
        "calm_gap_ms": max(calm),
        "moved_gap_ms": max(moved),
    }
    return {name: 1000 * value for name, value in seconds.items()}


def _during(numbers: list[float], since: float, until: float) -> Iterator[tuple[float, float]]:
    """Yield pairs of neighbors that overlap the time from ``since`` to ``until``; a pause that never ended ends at ``until``."""
    for before, after in zip(numbers, [*numbers[1:], until], strict=True):
        if after >= since and before <= until:
            yield before, min(after, until)


class _Member:
    """A process of ``benchmarks.members``."""

    def __init__(self, client: str, job: Job) -> None:
        command = [sys.executable, "-m", "benchmarks.members", client, job.to_json()]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603  # ours
        self._output: Any = self.process.stdout

    def line(self) -> str:
        """Return its next line. Raises ``RuntimeError`` if it ends or prints nothing."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            said = self._output.readline() if selector.select(PATIENCE) else ""
        if not said:
            raise RuntimeError(f"a member printed nothing for {PATIENCE:.0f} s, or ended")
        return str(said)


@contextlib.contextmanager
def _member(client: str, job: Job) -> Iterator[_Member]:
    member = _Member(client, job)
    try:
        yield member
    finally:
        member.process.kill()
        member.process.wait()


def settle(client: str, job: Job) -> dict[str, float]:
    """Have two members of a new group read ``job.topic``, which is being written to, and return what was measured."""
    job = evolve(job, group=f"rebalance-{uuid.uuid4().hex[:8]}")
    with _member(client, job) as first:
        first.line()
        # A second member may come at any moment between two heartbeats of the first.
        time.sleep(AFTER + random.uniform(0, HEARTBEAT_MS / 1000))  # noqa: S311  # not a secret
        with _member(client, evolve(job, partitions=job.partitions // 2)) as second:
            second.line()
            time.sleep(AFTER)
            for member in (second, first):
                member.process.terminate()
            notes = [Noted.from_json(member.line()) for member in (first, second)]
    return measured(*notes)
