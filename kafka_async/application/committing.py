"""Which offsets are committed, and when nobody asks: auto-commit, by interval and before partitions leave.

Decides: when auto-commit is due, what of the consumed offsets is new, and for how long a read call waits for the last commit of
partitions that leave. Owns: what was committed last, and the commits under way. Must never look at a position itself: it is handed
positions by value when a read call is entered, before anything new is handed out (promise 1). A loop that reads positions later,
while the application works, commits records that are not processed yet.
"""

from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final

from attrs import define, field

from ..errors import KafkaError
from ..events import Call
from ..model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ..trace import Fault, Listener
from .runtime import Runtime

PATIENCE: Final = 0.01
"""Seconds for which a read call waits for the commit before a revocation before it goes on with the partitions that stay.

Not zero: a slow application would work through another batch before it gives up what another member waits for.
"""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def position_before(consumed: Offsets, record: ConsumerRecord) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the position before ``record``, which was handed out and not worked off."""
    partition = TopicPartition(record.topic, record.partition)
    known = consumed.get(partition)
    return {partition: known._replace(offset=record.offset)} if known is not None else {}


@define(eq=False)
class AutoCommit:
    """Commits consumed offsets every ``interval`` seconds, from within read calls."""

    interval: float
    retry: float
    timeout: float
    send: Callable[[Call[None], Offsets], None] = field(repr=False)
    wake: Callable[[], None] = field(repr=False)
    """Called when a commit has been answered."""
    trace: Listener = field(repr=False)
    _committed: dict[TopicPartition, OffsetAndMetadata] = field(factory=dict, init=False)
    _due_at: float | None = field(default=None, init=False)
    _pending: tuple[Call[None], Offsets] | None = field(default=None, init=False)
    _settled: bool = field(default=False, init=False)
    """Nothing was left to commit when the last interval ended."""

    def read_entered(self, positions: Callable[[], Offsets], now: float) -> Offsets | None:
        """Commit the positions when the interval has passed. Return what an earlier commit has just achieved."""
        self._settled = False
        return self.look(positions, now)

    @property
    def due_at(self) -> float:
        """When a read call that waits must ``look`` again: a topic that falls quiet must not keep its last offsets uncommitted."""
        if self._pending is not None:
            return -inf if self._pending[0].done else inf
        return inf if self._settled or self._due_at is None else self._due_at

    def look(self, positions: Callable[[], Offsets], now: float) -> Offsets | None:
        """As ``read_entered``, while that call waits and nothing has been handed out since it was entered."""
        achieved = self._collect(now)
        if self._due_at is None:
            self._due_at = now + self.interval
        elif now >= self._due_at and self._pending is None:
            self._due_at = now + self.interval
            fresh = self.fresh(positions())
            self._settled = not fresh
            if fresh:
                call: Call[None] = Call(now + self.timeout, self.wake)
                self._pending = (call, fresh)
                self.send(call, fresh)
        return achieved

    def fresh(self, consumed: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the consumed offsets that were not committed yet."""
        return {partition: offset for partition, offset in consumed.items() if self._committed.get(partition) != offset}

    def _collect(self, now: float) -> Offsets | None:
        if self._pending is None or not self._pending[0].done:
            return None
        call, offsets = self._pending
        self._pending = None
        try:
            call.result()
        except KafkaError as error:
            self._due_at = now + (self.retry if error.retriable else max(self.retry, self.interval))
            self.trace(Fault(now=now, text="auto-commit failed; trying again", error=error))
            return None
        self.committed(offsets)
        return offsets

    def committed(self, offsets: Offsets) -> None:
        """These offsets were committed, by whoever."""
        self._committed.update(offsets)

    def forget(self, partitions: frozenset[TopicPartition]) -> None:
        """These partitions are not ours any more."""
        for partition in partitions:
            self._committed.pop(partition, None)


@define(eq=False)
class LastCommit:
    """The commit of what was consumed of partitions that leave. It may be under way from one read call to the next.

    Nothing of these partitions is handed out any more, so what there is to commit does not change meanwhile.
    """

    auto_commit: AutoCommit
    runtime: Runtime = field(repr=False)
    tell: Callable[[Offsets], Awaitable[None]] = field(repr=False)
    """Tells interceptors of committed offsets."""
    timeout: float
    _pending: tuple[object, Call[None], Offsets, float] | None = field(default=None, init=False)
    """What it is made for, the commit, its offsets, and until when a read call waits for it."""

    async def made(self, reason: object, consumed: Offsets) -> bool:
        """Commit what of ``consumed`` was not committed yet; return whether that has ended, well or not.

        Asked again with the same ``reason`` it goes on with the same commit. A failure is reported and stops nothing.
        """
        if self._pending is None or self._pending[0] is not reason:
            fresh = self.auto_commit.fresh(consumed)
            if not fresh:
                return True
            now = self.runtime.clock()
            call: Call[None] = Call(now + self.timeout, self.runtime.wake_application)
            self._pending = (reason, call, fresh, now + PATIENCE)
            self.auto_commit.send(call, fresh)
        _, call, offsets, until = self._pending
        await self._wait(call, until)
        if not call.done:
            return False
        self._pending = None
        try:
            call.result()
        except KafkaError as error:
            self.auto_commit.trace(Fault(now=self.runtime.clock(), text="consumed offsets could not be committed", error=error))
        else:
            self.auto_commit.committed(offsets)
            await self.tell(offsets)
        return True

    async def _wait(self, call: Call[None], until: float) -> None:
        while True:
            ticket = self.runtime.signal.ticket()
            left = until - self.runtime.clock()
            if call.done or left <= 0:
                return
            await self.runtime.signal.wait(ticket, left)
