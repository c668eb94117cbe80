"""``async for record in consumer``.

A cancelled step leaves nothing behind. An iteration ends when the consumer is stopped.

A ``Portion`` knows how far it was handed out, so a position or a commit is exact in the middle of it and nothing has to be put back
for them. All iterations of a consumer, and ``getone``, share one ``HandOut``: the next call or step gets the next record.

A step takes the next record at once only if nothing happened since the last check. Every change raises
``attention``, on either side and from any thread: a rebalance that was proposed, an error, a pause, a seek, a stop. ``look_at`` is
when time alone requires a check: the session may have expired, or a commit is due. Then, and for a task or in a thread other than
the one that checked, the step takes the slow path, as a call of ``getone`` does.

A record that is handed out is in somebody's ``Hand``. It is the hand of the task that asks for the next step, which need not be the
one that began the iteration, nor the one that the step runs in: ``asyncio.wait_for`` makes a task of its own up to Python 3.11.

The classes here are the readable half of a pair; ``_iteration.pyx`` is the compiled one, under the same contract.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from math import inf
from threading import get_ident
from typing import Any, Generic, Self, TypeVar

from ...records import IMPLEMENTATION

T = TypeVar("T")


class Portion(Generic[T]):
    """Records of one partition that are ready to be handed out, and how many of them were.

    ``raw`` has the records before deserializers saw them; the same list if there are none. ``start`` and ``end`` are the
    positions before and past them: ``(offset, leader epoch)``. ``records[:place]`` were handed out. ``beginning``: where reading
    of the partition began, for the hand into which they go.
    """

    __slots__ = ("beginning", "end", "place", "raw", "records", "start")

    def __init__(self, records: list[T], raw: list[Any], start: tuple[int, int | None], end: tuple[int, int | None]) -> None:
        self.records = records
        self.raw = raw
        self.place = 0
        self.start = start
        self.end = end
        self.beginning: Any = None

    def discard(self) -> None:
        """Hand out nothing more of it: the position was moved elsewhere, or the partition is gone."""
        self.records = []
        self.place = 0


class Hand(Generic[T]):
    """What one task or thread (``holder``) was handed and is not done with: the last of the records that it gets one by one, with
    the beginning that it belongs to, and ranges of records (``first``, ``past``, and their beginning) by partition.
    """

    __slots__ = ("__weakref__", "beginning", "holder", "last", "ranges")

    def __init__(self, holder: Any) -> None:
        self.holder = holder
        self.last: T | None = None
        self.beginning: Any = None
        self.ranges: dict[Any, tuple[int, int, Any]] = {}


class HandOut(Generic[T]):
    """The portion that is being handed out, those that follow, whether the next record may be taken at once, and into which
    hand.
    """

    __slots__ = (
        "_at",
        "_attention",
        "_clock",
        "_current",
        "_following",
        "_look_at",
        "_seen",
        "_thread",
        "hand",
        "portion",
    )

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.portion: Portion[T] = Portion([], [], (0, None), (0, None))
        self.hand: Hand[T] = Hand(None)
        """Whose steps may take a record at once."""
        self._following: list[Portion[T]] = []
        self._at = 0
        self._current: Callable[[], Any] = get_ident
        self._attention = 0
        self._seen = 0
        self._look_at = -inf
        self._thread = 0
        self._clock = clock

    def set_clock(self, clock: Callable[[], float], *, monotonic: bool) -> None:
        """Measure ``look_at`` with ``clock``. ``monotonic``: it is the system's monotonic clock, which a compiled step reads
        directly.
        """
        self._clock = clock

    def set_callers(self, current: Callable[[], Any], running: Mapping[Any, Any] | None = None, loop: Any = None) -> None:
        """Find out by ``current`` who calls. A compiled step looks up the task of ``loop`` in ``running``, if that is given."""
        self._current = current

    def caller(self) -> Any:
        """Return the task or thread that calls."""
        return self._current()

    def attend(self) -> None:
        """Have the next step look before it takes a record. From any thread.

        Two threads at once may count as one, which loses nothing: each has made its change before it calls this.
        """
        self._attention += 1

    def looked(self) -> int:
        """Return what to give to ``load`` afterwards: whatever happens after this call is not overlooked."""
        return self._attention

    def load(self, portions: list[Portion[T]], hand: Hand[T], looked: int, look_at: float) -> None:
        """Hand out ``portions`` from now on, into ``hand``, in this thread, without another look until ``look_at``."""
        self.portion = portions[0]
        self._following, self._at = portions, 1
        self.hand = hand
        self._seen = looked
        self._look_at = look_at
        self._thread = get_ident()

    @property
    def calm(self) -> bool:
        """Whether nothing happened since the look before the last ``load``, and that was in this thread: another thread has another
        loop.
        """
        if self._attention != self._seen or self._clock is None or self._thread != get_ident():
            return False
        return self._clock() < self._look_at

    @property
    def has_more(self) -> bool:
        """Whether there is a record to hand out. Goes on to the next portion if the first one is used up.

        A property, since Python may turn to another thread after a call: the blocking facade takes the record in the same step.
        """
        while self.portion.place >= len(self.portion.records):
            if self._at >= len(self._following):
                return False
            self.portion = self._following[self._at]
            self._at += 1
        return True

    @property
    def left(self) -> int:
        """Number of records that were loaded and not handed out yet. It changes with every step. From any thread."""
        portions = [self.portion, *self._following[self._at :]]
        return sum(len(portion.records) - portion.place for portion in portions)


class RecordIterator(AsyncIterator[T], Generic[T]):
    """Steps through a ``HandOut``. ``refill`` takes the slow path to the next record for a task or thread, or raises
    ``StopAsyncIteration``.

    It is not a generator, whose step would be cheaper: a generator is finished once an exception, such as a timeout, passed through
    it, and two tasks cannot share it.
    """

    __slots__ = ("__weakref__", "_handout", "_refill")

    def __init__(self, handout: HandOut[T], refill: Callable[[Any], Coroutine[Any, Any, T]]) -> None:
        self._handout = handout
        self._refill = refill

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, T]:
        return self._next(self._handout.caller())

    async def _next(self, caller: Any) -> T:
        handout = self._handout
        hand = handout.hand
        if hand.holder is caller and handout.calm and handout.has_more:
            portion = handout.portion
            record = hand.last = portion.records[portion.place]
            hand.beginning = portion.beginning
            portion.place += 1
            return record
        return await self._refill(caller)

    async def aclose(self) -> None:
        """Do what ``contextlib.aclosing`` expects. The next read goes on after the last record."""


PORTION: type[Portion[Any]] = Portion
HAND: type[Hand[Any]] = Hand
HANDOUT: type[HandOut[Any]] = HandOut
ITERATOR: type[RecordIterator[Any]] = RecordIterator
"""The half of the pair that is used: chosen once, with the decoder."""

COMPILED: Any = None
"""The compiled half, if there is one."""

if IMPLEMENTATION == "cython":
    try:
        from . import _iteration
    except ImportError:
        pass  # built without a compiler
    else:
        if hasattr(_iteration, "Turns"):  # a build from before the source changed has less, and is not used at all
            COMPILED = _iteration
            HANDOUT, ITERATOR = _iteration.HandOut, _iteration.RecordIterator
            PORTION, HAND = _iteration.Portion, _iteration.Hand
