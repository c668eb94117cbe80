"""What is to be done about the workers, and when.

Pure: the supervisor says what happened and what time it is, and carries out what it is told.

One that ends by itself with exit code 0 is done. One that fails is started again after a delay that doubles. Before any worker was
assigned partitions, what no restart mends ends all: a program that cannot be imported, an option that is wrong, or a worker that
dies at once several times. A broker that cannot be reached is no reason to end.
"""

from collections import deque
from collections.abc import Iterator
from enum import Enum
from math import inf
from typing import Final

from attrs import define, field, frozen

from ...states import StateTable
from ..running import SAME_REQUEST
from .reports import CannotRun, Report


class Stage(Enum):
    """Where a worker is."""

    WAITING = "waiting"
    """No process; it is started at its time."""
    BOOTING = "booting"
    """Its process imports the program."""
    RUNNING = "running"
    """The program runs, and reports."""
    ENDING = "ending"
    """Its process was asked to end."""
    DONE = "done"
    """No process, and none will be started."""


class WorkerEvent(Enum):
    """What moves a worker on."""

    START = "its process was started"
    REPORT = "it reported"
    ASK = "it was asked to end"
    EXIT = "its process has ended"
    FINISH = "no other process follows"
    AGAIN = "its files have changed"


STAGES: Final = StateTable(
    "a worker",
    {
        (Stage.WAITING, WorkerEvent.START): Stage.BOOTING,
        (Stage.WAITING, WorkerEvent.FINISH): Stage.DONE,
        (Stage.BOOTING, WorkerEvent.REPORT): Stage.RUNNING,
        (Stage.BOOTING, WorkerEvent.ASK): Stage.ENDING,
        (Stage.BOOTING, WorkerEvent.EXIT): Stage.WAITING,
        (Stage.RUNNING, WorkerEvent.REPORT): Stage.RUNNING,
        (Stage.RUNNING, WorkerEvent.ASK): Stage.ENDING,
        (Stage.RUNNING, WorkerEvent.EXIT): Stage.WAITING,
        (Stage.ENDING, WorkerEvent.REPORT): Stage.ENDING,
        (Stage.ENDING, WorkerEvent.EXIT): Stage.WAITING,
        (Stage.DONE, WorkerEvent.AGAIN): Stage.WAITING,
    },
)


class Deed(Enum):
    """What the supervisor does to a process."""

    START = "start"
    TERM = "TERM"
    KILL = "KILL"


@frozen(kw_only=True)
class Policy:
    """Times in seconds."""

    stop_timeout: float = 65.0
    """How long a worker may take to end: ``drain_timeout_ms``, then ``request_timeout_ms`` for the last commit, and 5 s more."""
    silent_after: float = 60.0
    """A running worker that has not reported for so long, or whose consumer could not recover for so long, is replaced."""
    boot_timeout: float = 600.0
    """How long a program may take to be imported."""
    max_rss: int | None = None
    """Bytes; a worker with more is replaced."""
    waits_for_changes: bool = False
    """A program that cannot run is not the end: its files are about to be changed."""
    first_delay: float = 1.0
    longest_delay: float = 30.0
    calm_after: float = 60.0
    """A worker that ran for so long starts again after ``first_delay``."""
    early: float = 5.0
    """One that ended sooner than this has hardly begun."""
    most_early: int = 3
    same_request: float = SAME_REQUEST
    """A signal that comes so soon after the first one is the same request."""


@define(eq=False)
class WorkerSlot:
    """The place of one worker, whose processes follow each other."""

    number: int
    """From 1."""
    state: Stage = Stage.WAITING
    start_at: float = 0.0
    started_at: float = 0.0
    heard_at: float = 0.0
    """When it last reported that it needs no restart."""
    kill_at: float = inf
    outdated: bool = False
    """Its process is to be replaced now."""
    is_ill: bool = False
    """Its process is replaced because of what it did."""
    crashes: int = 0
    """In a row, replacements of one that was ill soon after its start among them."""
    early: int = 0
    """Processes in a row that ended at once."""
    starts: int = 0
    report: Report | None = None
    """The last one of the process that there is."""
    assigned_once: bool = False
    """Some process of it has been assigned partitions."""
    is_awaited: bool = False
    """It was told that the others wait for its process."""

    @property
    def has_process(self) -> bool:
        return self.state in (Stage.BOOTING, Stage.RUNNING, Stage.ENDING)

    def is_back(self, now: float, patience: float) -> bool:
        """Whether the next one may be replaced: the new process has been assigned partitions.

        Programs without consumers never are: if no process of it ever was, the new one only has to run for a while.
        """
        if self.state is not Stage.RUNNING or self.report is None or self.outdated:
            return self.state is Stage.DONE
        return self.report.assigned_once or (not self.assigned_once and now >= self.started_at + patience)


@define(eq=False)
class Team:
    """All workers of one program."""

    policy: Policy
    slots: tuple[WorkerSlot, ...]
    news: deque[str] = field(factory=deque)
    """What people should know, in order; whoever shows it takes it away."""
    exit_code: int = 0
    is_killing: bool = field(default=False, init=False)
    """Was told twice to end all."""
    _stopping: bool = field(default=False, init=False)
    _told_at: float | None = field(default=None, init=False)
    """When somebody else first said that all must end."""
    _last_reason: str = field(default="", init=False)
    """Why the program did not run when this was last told."""
    _renewing: deque[WorkerSlot] = field(factory=deque, init=False)
    """To be replaced, one after the other."""
    _replaced: WorkerSlot | None = field(default=None, init=False)
    """The one that is being replaced."""

    @classmethod
    def of(cls, workers: int, policy: Policy) -> "Team":
        """Return a team of so many."""
        return cls(policy, tuple(WorkerSlot(number + 1) for number in range(workers)))

    # --- what happened ---------------------------------------------------------------------------------------------------------

    def started(self, slot: WorkerSlot, now: float) -> None:
        """Its process runs."""
        STAGES.move(slot, WorkerEvent.START)
        slot.started_at = slot.heard_at = now
        slot.kill_at, slot.report, slot.outdated, slot.is_ill, slot.is_awaited = inf, None, False, False, False
        slot.starts += 1
        if slot in self._renewing:  # it has just become new
            self._renewing.remove(slot)

    def not_started(self, slot: WorkerSlot, why: str, now: float, *, jitter: float) -> None:
        """Its process could not be made: this machine has too little of something just now."""
        self._later(slot, f"cannot be started: {why}", now, 0.0, jitter)

    def reported(self, slot: WorkerSlot, report: Report, now: float) -> None:
        """Its process told of itself."""
        STAGES.move(slot, WorkerEvent.REPORT)
        slot.report = report
        if report.alive:
            slot.heard_at = now
        if report.assigned_once:
            slot.assigned_once = True
        limit = self.policy.max_rss
        if limit is not None and report.rss > limit and slot.state is Stage.RUNNING and not self._is_to_go(slot):
            self.news.append(f"worker {slot.number} has {report.rss >> 20} MiB, more than {limit >> 20}: it is replaced")
            slot.is_ill = True
            self._renewing.append(slot)

    def exited(self, slot: WorkerSlot, code: int, now: float, *, jitter: float, refused: CannotRun | None = None) -> None:
        """Its process has ended, with an exit code or minus a signal.

        ``refused``: why the program cannot run. ``jitter``: between 0 and 1, so that not all come back at the same moment.
        """
        # One whose files have just changed is asked in a moment. What the old ones made it do does not count any more.
        asked, ran = slot.state is Stage.ENDING or slot.outdated, now - slot.started_at
        STAGES.move(slot, WorkerEvent.EXIT)
        slot.report, slot.kill_at, slot.start_at = None, inf, now
        if self._stopping:
            STAGES.move(slot, WorkerEvent.FINISH)
        elif asked:
            self._replace(slot, now, ran, jitter)
        elif refused is not None and refused.for_now:
            self._later(slot, f"has ended after {ran:.0f} s ({refused.why})", now, ran, jitter)
        elif refused is not None and (self.policy.waits_for_changes or not self._has_worked):
            self._give_up(slot, code, f"the program cannot run: {refused.why}")
        elif code == 0:
            self.news.append(f"worker {slot.number} is done")
            STAGES.move(slot, WorkerEvent.FINISH)
        else:
            self._crashed(slot, code, now, ran, jitter, refused.why if refused is not None else None)

    def _replace(self, slot: WorkerSlot, now: float, ran: float, jitter: float) -> None:
        """Start the next one at once, unless this one and the one before were ill soon after their starts."""
        again = slot.crashes > 0
        if not (slot.is_ill and ran < self.policy.calm_after):
            slot.crashes = 0
        elif again:
            self._later(slot, f"has ended after {ran:.0f} s", now, ran, jitter)
        else:
            slot.crashes = 1

    def _crashed(self, slot: WorkerSlot, code: int, now: float, ran: float, jitter: float, refused: str | None) -> None:
        policy = self.policy
        how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        if refused is not None:
            how = f"{how} ({refused})"
        slot.early = slot.early + 1 if ran < policy.early else 0
        if slot.early >= policy.most_early and not self._has_worked:
            why = f"worker {slot.number} {how}; {slot.early} times in a row it ended within {policy.early:g} s"
            self._give_up(slot, code, why)
            return
        self._later(slot, f"{how} after {ran:.0f} s", now, ran, jitter)

    @property
    def _has_worked(self) -> bool:
        """Whether the program runs: what stops one worker may pass, and ends no other."""
        return any(slot.assigned_once for slot in self.slots)

    def _later(self, slot: WorkerSlot, what: str, now: float, ran: float, jitter: float) -> None:
        """Start the next one after a delay that doubles, unless the last one ran for long."""
        policy = self.policy
        if ran >= policy.calm_after:
            slot.crashes = 0
        delay = min(policy.first_delay * 2 ** min(slot.crashes, 30), policy.longest_delay) * (1 + jitter / 4)
        slot.crashes += 1
        slot.start_at = now + delay
        self.news.append(f"worker {slot.number} {what}; it starts again in {delay:.1f} s")

    def _give_up(self, slot: WorkerSlot, code: int, why: str) -> None:
        if self.policy.waits_for_changes:
            slot.start_at = inf
            if why != self._last_reason:  # all workers have the same
                self.news.append(f"{why}; it starts again when a file has changed")
            self._last_reason = why
            return
        self.news.append(why)
        self.exit_code = code if code > 0 else 128 - code
        self._stopping = True  # the others are asked to end by ``due``
        STAGES.move(slot, WorkerEvent.FINISH)

    # --- what is wanted --------------------------------------------------------------------------------------------------------

    def stop(self, now: float, exit_code: int) -> bool:
        """End all, together and within one time; a second call ends them at once. Return whether the call counts.

        One within ``same_request`` of the first does not.
        """
        if self._told_at is not None:
            if now - self._told_at < self.policy.same_request:
                return False
            self.is_killing = True
            for slot in self.slots:
                slot.kill_at = min(slot.kill_at, now)
            return True
        self._told_at = now
        if not self._stopping:
            self._stopping, self.exit_code = True, exit_code
        return True

    def renew(self) -> None:
        """Replace all, one after the other: the next one when the one before has been assigned partitions.

        One that such a renewal waits for is replaced at once: it may never be assigned any.
        """
        self._renewing.extend(slot for slot in self.slots if slot.has_process and not self._is_to_go(slot))

    def reload(self, now: float) -> None:
        """Replace all at once: their files have changed."""
        self._last_reason = ""
        for slot in self.slots:
            slot.outdated, slot.crashes, slot.early = slot.has_process, 0, 0
            if slot.state is Stage.WAITING:
                slot.start_at = now
            elif slot.state is Stage.DONE and not self._stopping:
                STAGES.move(slot, WorkerEvent.AGAIN)
                slot.start_at = now

    def _is_to_go(self, slot: WorkerSlot) -> bool:
        return slot.outdated or slot in self._renewing

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen any more."""
        return all(slot.state is Stage.DONE for slot in self.slots) and (self._stopping or not self.policy.waits_for_changes)

    # --- what is to be done ----------------------------------------------------------------------------------------------------

    def due(self, now: float) -> Iterator[tuple[Deed, WorkerSlot]]:
        """Yield what is to be done now. ``started`` and ``exited`` follow from outside."""
        self._go_on_renewing(now)
        for slot in self.slots:
            if slot.state is Stage.WAITING:
                if self._stopping:
                    STAGES.move(slot, WorkerEvent.FINISH)
                elif now >= slot.start_at:
                    yield Deed.START, slot
            elif slot.state is Stage.ENDING:
                if now >= slot.kill_at:
                    slot.kill_at = inf
                    self.news.append(f"worker {slot.number} has not ended: it is killed")
                    yield Deed.KILL, slot
            elif slot.has_process and (self._stopping or self._has_to_go(slot, now)):
                STAGES.move(slot, WorkerEvent.ASK)
                slot.kill_at = now if self.is_killing else now + self.policy.stop_timeout
                yield Deed.TERM, slot

    def _has_to_go(self, slot: WorkerSlot, now: float) -> bool:
        if slot.outdated:
            return True
        if now < self._lost_at(slot):
            return False
        why = "its consumer cannot recover" if slot.report is not None and not slot.report.alive else "it was silent"
        self.news.append(f"worker {slot.number}: {why} for {now - slot.heard_at:.0f} s; it is replaced")
        slot.is_ill = True
        return True

    def _lost_at(self, slot: WorkerSlot) -> float:
        return slot.heard_at + (self.policy.boot_timeout if slot.state is Stage.BOOTING else self.policy.silent_after)

    def _go_on_renewing(self, now: float) -> None:
        """Choose the next one to be replaced, once the one before has been assigned partitions."""
        if self._replaced is not None and not self._replaced.is_back(now, self.policy.silent_after):
            self._wait_for(self._replaced, now)
            return
        self._replaced = None
        while self._renewing and self._replaced is None:
            slot = self._renewing.popleft()
            if slot.has_process and slot.state is not Stage.ENDING:
                slot.outdated, self._replaced = True, slot

    def _wait_for(self, slot: WorkerSlot, now: float) -> None:
        """The others stay as they are: they work. Whoever mends what this one waits for cannot know that without being told."""
        if slot in self._renewing:  # it was asked for once more
            self._renewing.remove(slot)
            slot.outdated = slot.outdated or slot.state in (Stage.BOOTING, Stage.RUNNING)
        elif self._renewing and not slot.is_awaited and slot.state is Stage.RUNNING:
            runs = now - slot.started_at
            if runs >= self.policy.silent_after:
                slot.is_awaited = True
                self.news.append(
                    f"worker {slot.number} has run for {runs:.0f} s without partitions: the others are not replaced before it has "
                    "some; SIGHUP replaces it once more"
                )

    def next_at(self, now: float) -> float:
        """Return when there is something to do, if nothing happens before."""
        return max(now, min(map(self._next_of, self.slots)))

    def _next_of(self, slot: WorkerSlot) -> float:
        match slot.state:
            case Stage.WAITING:
                return slot.start_at
            case Stage.ENDING:
                return slot.kill_at
            case Stage.BOOTING | Stage.RUNNING:
                return self._lost_at(slot)
            case Stage.DONE:
                return inf
