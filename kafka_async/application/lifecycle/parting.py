"""How a consumer ends: commit, call the listener, leave the group, close; within a time that the caller sets.

The leave request is sent even if the time is over, as long as there is any broker to send it to: without it the group waits for a
session timeout before it gives the partitions to anybody else.
"""

from typing import TYPE_CHECKING, Final

from ...config import ConsumerConfig
from ...errors import KafkaError
from ...model import TopicPartition
from ...trace import Fault, Listener
from ...values import define, field
from ..arguments import seconds
from ..background_calls import BackgroundCalls
from ..callbacks import LISTENER
from ..committing.auto_commit import AutoCommit
from ..committing.commits import Why
from ..group.rebalancing import Rebalancing
from ..group.subscribed import Subscribed
from ..reading.in_vain import InVain
from .lifecycle import Happening, Lifecycle, Phase
from .ownership import CallGuard

if TYPE_CHECKING:
    import asyncio

    from .runtime import Runtime

LEAVE_MS: Final = 1000
"""Milliseconds for which a ``start`` that failed tries to leave the group: otherwise the others wait for a dead member."""


@define(eq=False)
class Parting:
    """Ends one consumer."""

    config: ConsumerConfig
    lifecycle: Lifecycle
    runtime: "Runtime" = field(repr=False)
    calls: BackgroundCalls = field(repr=False)
    auto_commit: AutoCommit
    rebalancing: Rebalancing
    subscribed: Subscribed
    in_vain: InVain
    trace: Listener = field(repr=False)
    _felt: int = field(default=0, init=False)
    """The cancellations of the task that stops the consumer which it had felt when it began. Every other one ends the stop."""

    async def stop(self, guard: CallGuard, timeout_ms: float | None, *, clean: bool) -> None:
        """End what reads alone, and then stop for good."""
        guard.ownership.check_to_stop()
        if (occupant := guard.to_finish()) is not None:
            allowed, began = self.allowed(timeout_ms), self.runtime.clock()
            with self.runtime.shield():
                await occupant.finish(allowed * 3 / 4)
            timeout_ms = max(0.0, allowed - (self.runtime.clock() - began)) * 1000
        await self.part(timeout_ms, clean=clean)

    async def part(self, timeout_ms: float | None, *, clean: bool) -> None:
        """Stop for good. A second call waits for the first, up to its own timeout."""
        allowed = self.allowed(timeout_ms)
        if self.begin():
            await self.finish(allowed, clean=clean)
        else:
            if clean and self.lifecycle.is_parting:
                holdings = self.auto_commit.holdings
                holdings.asked(holdings.current())  # a task that also calls stop is done with what it was handed
            await self.wait_for_the_first(allowed)

    def allowed(self, timeout_ms: float | None) -> float:
        """Return for how long a stop may take, in seconds."""
        return seconds(self.config.request_timeout_ms if timeout_ms is None else timeout_ms)

    async def undo(self) -> None:
        """Undo a start that failed, so that there may be another one."""
        if self.begin(Happening.UNDO):
            await self.finish(LEAVE_MS / 1000, clean=False, ends=Happening.UNDONE)
        elif not self.runtime.blocks:  # a thread that stops waits until this one has left
            await self.wait_for_the_first(self.config.request_timeout_ms / 1000)

    def begin(self, why: Happening = Happening.PART) -> bool:
        """End every read and hand out nothing more. ``False``: another call is stopping the consumer, or has stopped it.

        Or it is undoing a start. That ends as a stop then.
        """
        if not self.lifecycle.part(why):
            return False
        self.lifecycle.parting_by = self.auto_commit.holdings.current()
        self.rebalancing.end()
        self.lifecycle.boundary.attend()
        self.runtime.wake_application()
        return True

    async def finish(self, allowed: float, *, clean: bool, ends: Happening = Happening.PARTED) -> None:
        """Do what ``begin`` announced, within ``allowed`` seconds.

        A task that was cancelled before, and has not felt it, stops the consumer as one does that has: then it is cancelled.
        """
        cancelled = None
        try:
            if self.runtime.task_context is not None:  # it was started
                with self.runtime.shield():
                    cancelled = await self._cancelled_before()
                    await self._leave(self.runtime.clock() + allowed, allowed, clean=clean)
        finally:
            self.lifecycle.parting_by = None
            self.lifecycle.move(ends)
            self.runtime.wake_application()
            if self.lifecycle.phase is Phase.NEW:
                self.runtime.reset()
            if cancelled is not None:
                raise cancelled

    async def _cancelled_before(self) -> "asyncio.CancelledError | None":
        """Return the cancellation that the task has not felt yet, such as by Ctrl-C while a synchronous handler ran."""
        import asyncio  # a program that names the class imports none, and nothing that needs it

        from ..task_context import cancellations

        cancelled = None
        try:
            await self.runtime.signal.checkpoint()
        except asyncio.CancelledError as error:
            cancelled = error
        self._felt = cancellations()
        return cancelled

    async def wait_for_the_first(self, allowed: float) -> None:
        """Wait until the stop that is running is done, up to ``allowed`` seconds."""
        if self.lifecycle.parting_by is self.auto_commit.holdings.current() or self.rebalancing.listening.is_inside:
            return  # called by a call-back of the stop that is running: it cannot wait for itself
        clock, signal = self.runtime.clock, self.runtime.signal
        deadline = clock() + allowed if self.lifecycle.is_parting else 0.0
        while self.lifecycle.is_parting and (left := deadline - clock()) > 0:
            ticket = signal.ticket()
            if self.lifecycle.is_parting:
                await signal.wait(ticket, left)

    async def _leave(self, deadline: float, allowed: float, *, clean: bool) -> None:
        try:
            if self.lifecycle.runs():
                await self._commit_and_call_back(deadline, allowed, clean=clean)
        finally:  # an interceptor's on_commit may raise, and the loop must end all the same
            try:
                await self.calls.end_loop(deadline)
            finally:
                self.auto_commit.end_last()
                self.in_vain.over(needed=False)

    async def _commit_and_call_back(self, deadline: float, allowed: float, *, clean: bool) -> None:
        """Commit and call back, within three quarters of the time, so that there is always some left to leave the group.

        Raises what an interceptor raises, when all is done.
        """
        if not self.rebalancing.listening.is_inside:
            self._report("a call-back failed while stopping", await self.rebalancing.listening.finish(allowed / 4))
            self._report("a call-back failed while stopping", await self.rebalancing.finish_unsubscribing(0))
            self._report("a call-back failed, and no read call came that could raise it", self.rebalancing.listening.take_kept())
        await self.auto_commit.finish_last(allowed / 4)
        first = await self._commit(min(allowed / 2, deadline - allowed / 4 - self.runtime.clock()), clean=clean)
        if not self.subscribed.by_user:
            lost = self.rebalancing.losing
            owned = frozenset(self.auto_commit.unread.partitions) - self.rebalancing.given_up
            until = deadline - allowed / 4
            await self._call_back("on_partitions_lost", lost & owned, until)
            await self._call_back("on_partitions_revoked", owned - lost, until)
        # Another task that held records may have called stop meanwhile, and so be done with them.
        second = await self._commit(deadline - allowed / 4 - self.runtime.clock(), clean=clean)
        if first is not None:
            self._report("an interceptor failed while stopping", second)
        if (raised := first or second) is not None:
            raise raised

    async def _call_back(self, name: str, partitions: frozenset[TopicPartition], until: float) -> None:
        listening = self.rebalancing.listening
        if listening.listener is None or not partitions:
            return
        from ..task_context import in_this_task

        with self.runtime.limit(max(0.0, until - self.runtime.clock())):
            try:
                with in_this_task(LISTENER, self._felt):
                    await listening.call(getattr(listening.listener, name), partitions)
            except Exception as error:  # the boundary to the user's code: stopping goes on, and says so
                self._report(f"{name} failed while stopping", error)

    def _report(self, text: str, error: Exception | None) -> None:
        if error is not None:
            self.trace(Fault(now=self.runtime.clock(), text=text, error=error))

    async def _commit(self, allowed: float, *, clean: bool) -> Exception | None:
        """Commit offsets that are consumed and not committed yet. A failure is reported and stops nothing.

        Return what an interceptor raised.
        """
        auto_commit, commits = self.auto_commit, self.auto_commit.commits
        auto_commit.unread.settle()
        now = self.runtime.clock()
        auto_commit.collect(now)
        fresh = commits.fresh(auto_commit.holdings.consumed(clean=clean)) if auto_commit.enabled else {}
        if fresh:
            auto_commit.withdraw()
            commit = commits.begin(fresh, Why.LEAVING, now + max(0.0, allowed))
            try:
                await self.calls.answer(commit.call)
            except KafkaError as error:
                commits.fail(commit, error)
            else:
                commits.end(commit)
        return await self._intercept(now + max(0.0, allowed))

    async def _intercept(self, until: float) -> Exception | None:
        """Have every interceptor hear of every commit. What is at work at ``until`` is ended. Return the first error."""
        from ..task_context import in_this_task

        commits, first = self.auto_commit.commits, None
        while commits.achieved:  # after one that raised or was ended, the next one
            with self.runtime.limit(max(0.0, until - self.runtime.clock())) as limit:
                try:
                    with in_this_task("an interceptor", self._felt):
                        await commits.intercept()
                except Exception as error:  # the boundary to the user's code: raised when the listener was called, too
                    if first is not None:
                        self._report("an interceptor failed while stopping", error)
                    first = first or error
            if limit is not None and limit.cancelled_caught:
                text = "an interceptor's on_commit() did not return in time while stopping; it was cancelled"
                self.trace(Fault(now=self.runtime.clock(), text=text))
        return first
