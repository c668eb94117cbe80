"""Records for the workers: read as soon as there is room for them.

Reads go on whatever happens, since rebalances are carried out in them: if there is no room, or nothing is to be read, they ask for
nothing. Once enough records are done, workers ask for more themselves, and get at once what was fetched already.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, Final, Protocol
from uuid import UUID

import anyio
from anyio import CancelScope

from ...errors import ConsumerStoppedError, DeserializationError
from ...model import TopicPartition
from ...trace import Fault
from ...values import define, field
from ..callbacks import may_be_retried
from .delaying import Delayer
from .lanes import Lanes
from .run_state import Bench, RunState
from .work import Intake, Supply

LOOK_AGAIN: Final = 0.1
"""Seconds after which partitions that wait for room are checked again, even if fewer records than expected are done."""


class Supplier(Protocol):
    """Where records come from."""

    @property
    def retry_backoff(self) -> float:
        """Seconds to wait after a read that failed."""

    async def read(self, limit: int, waiting: Collection[TopicPartition], seconds: float) -> Supply:
        """Return up to ``limit`` records as soon as there are any, none of ``waiting`` partitions; ``{}`` after ``seconds``.

        Raises ``ConsumerStoppedError`` once the consumer is being stopped, and the errors of a read.
        """

    def take(self, limit: int, waiting: Collection[TopicPartition]) -> Supply:
        """As ``read``, but only what is there already, in one step; nothing if a read has something else to deal with first."""

    def refused(self, partition: TopicPartition, record: Any) -> Supply:
        """Return a record that a read has refused as ``read`` returns others, which may be not at all."""


class Inflow(Protocol):
    """Where records go: the queue of work, as far as it is filled."""

    lanes: Lanes

    @property
    def load(self) -> int:
        """Records that take room."""

    def intake(self) -> Intake:
        """Return how much more may be read."""

    def receive(
        self, partition: TopicPartition, records: Sequence[Any], now: float, raw: Sequence[Any], topic_id: UUID | None
    ) -> None:
        """Take in records of one partition; ``raw``: as they were before deserializers."""

    def receive_refused(
        self, partition: TopicPartition, record: Any, error: BaseException, now: float, topic_id: UUID | None
    ) -> None:
        """Take in a record that cannot be handed to a handler."""


_NOTHING: Final = Intake(0, (), 0, 0)


@define(eq=False)
class _Read:
    """A read under way."""

    scope: CancelScope
    asks: bool
    """It may bring records."""


@define(eq=False)
class Feed:
    """Reads for the workers."""

    supplier: Supplier
    queue: Inflow
    run: RunState
    bench: Bench = field(repr=False)
    delayer: Delayer | None = field(default=None, repr=False)
    """``None``: nothing has to wait until it is due."""
    refill_below: int = field(default=-1, init=False)
    """Workers ask for more once no more records than this take room; -1: a read is at it."""
    _reading: "_Read | None" = field(default=None, init=False, repr=False)
    """A read that may be interrupted."""

    def interrupt(self) -> None:
        """End the read that is under way: there may be more to ask for now, or less."""
        self.refill_below = -1
        self.run.change()
        if self._reading is not None:
            self._reading.scope.cancel()

    @property
    def asking(self) -> bool:
        """Whether a read is under way that may bring records: an interrupted one still does if they have just come."""
        return self._reading is not None and self._reading.asks

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """A call-back runs inside a read, which must not be interrupted meanwhile, but only after the call-back has returned."""
        outer, self._reading = self._reading, None
        try:
            yield
        finally:
            self._reading = outer
            self.interrupt()

    def look(self, now: float) -> float:
        """Let go what has become due. Return when to look again."""
        if self.delayer is None:
            return inf
        self.delayer.look(now)
        return self.delayer.look_at

    def refill(self) -> None:
        """There is room: take in at once what was fetched already; if there is nothing, let the read wait for it."""
        self.refill_below = -1
        if self.run.reads_nothing:
            return
        intake = self.queue.intake()
        supply: Supply = self.supplier.take(intake.limit, intake.waiting) if intake.limit else {}
        if supply:
            self._receive(supply)
            self.refill_below = intake.most - intake.step
        elif intake.waiting or not intake.limit:
            self.refill_below = self.queue.load - intake.step
        else:
            self.interrupt()

    async def try_to_read(self, until: float) -> bool:
        """Read once, waiting no longer than ``until``; ``False``: the consumer is being stopped. What fails ends the run."""
        try:
            await self._read(max(0.0, until - self.run.clock()))
        except ConsumerStoppedError:
            return False
        except Exception as error:
            await self._refused(error)
        return True

    async def _refused(self, error: Exception) -> None:
        """A read raised: wait a little if it may succeed later, else end with it."""
        if isinstance(error, DeserializationError) and error.record is not None:
            record = error.record
            now, partition = self.run.clock(), TopicPartition(record.topic, record.partition)
            for received in self.supplier.refused(partition, record).values():
                self.queue.receive_refused(partition, record, error, now, received.topic_id)
            self.look(now)
            self.bench.wake()
        elif may_be_retried(error):
            self.run.trace(Fault(now=self.run.clock(), text="a read failed; trying again", error=error))
            await anyio.sleep(self.supplier.retry_backoff)
        else:
            self.run.fail(error)
            await anyio.sleep(self.supplier.retry_backoff)

    async def _read(self, seconds: float) -> None:
        intake = _NOTHING if self.run.reads_nothing else self.queue.intake()
        if intake.waiting:
            self.refill_below, seconds = self.queue.load - intake.step, min(seconds, LOOK_AGAIN)
        else:
            full = intake.limit == 0 and intake is not _NOTHING
            self.refill_below = max(0, intake.most - intake.step) if full else -1
        before = self._reading
        with CancelScope() as scope:
            self._reading = reading = _Read(scope, asks=intake.limit > 0)
            try:
                self._receive(await self.supplier.read(intake.limit, intake.waiting, seconds))
            finally:
                self._reading, reading.asks = before, False
                if self.run.waiting:
                    self.run.change()

    def _receive(self, supply: Supply) -> None:
        if not supply:
            return
        now, queue = self.run.clock(), self.queue
        for partition, received in supply.items():
            queue.receive(partition, received.records, now, received.raw, received.topic_id)
        look_at = self.look(now)
        self.bench.wake()
        if look_at < inf:
            self.run.change()
