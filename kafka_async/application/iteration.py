"""``async for record in consumer``.

Decides: what one step costs and what a cancelled step leaves. Owns: the records that an iteration is in the middle of, and the step
under way. Must never end on its own account: it ends when the consumer is stopped.

Every iteration of a consumer shares one ``HandOut``: whoever is next gets the next record, and a seek or another read empties it.

The classes here are the readable half of a pair; ``_iteration.pyx`` is the compiled one, under the same contract.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from operator import length_hint
from typing import Any, Generic, Self, TypeVar

from ..records import IMPLEMENTATION

T = TypeVar("T")


class HandOut(Generic[T]):
    """A list of records that is handed out one by one."""

    __slots__ = ("_iterator", "_records")

    def __init__(self) -> None:
        self.load([])

    def load(self, records: list[T]) -> None:
        """Hand out ``records`` from now on, and forget those before."""
        self._records = records
        self._iterator = iter(records)

    def __iter__(self) -> Iterator[T]:
        return self._iterator

    @property
    def left(self) -> int:
        """Number of records not handed out yet."""
        return length_hint(self._iterator)

    @property
    def last(self) -> T | None:
        """The record handed out last; ``None`` where none of the list was."""
        return self._records[-self.left - 1] if self.left < len(self._records) else None

    def take(self) -> T:
        """Return the next record. There must be one (``left``)."""
        return next(self._iterator)

    def drain(self) -> list[T]:
        """Return what was not handed out yet, and hand out nothing of it."""
        rest = list(self._iterator)
        self.load([])
        return rest


class RecordIterator(AsyncIterator[T], Generic[T]):
    """Steps through a ``HandOut``. ``refill`` waits for more records and returns the first, or raises ``StopAsyncIteration``.

    A generator's step is the cheapest that Python code has (a third of a coroutine's), but a generator is finished once an
    exception went through it: with it alone, ``wait_for(anext(records), 1)`` would work until its first timeout and then say that
    there are no more records. So there is a new generator after each one that an exception ended.
    """

    __slots__ = ("_ended", "_generator", "_handout", "_refill", "_step")

    def __init__(self, handout: HandOut[T], refill: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._handout = handout
        self._refill = refill
        self._begin()

    def _begin(self) -> None:
        self._ended = False
        self._generator = self._generate()
        self._step = self._generator.__anext__

    async def _generate(self) -> AsyncGenerator[T, None]:
        try:
            while True:
                for record in self._handout:  # a seek or another read can end that
                    yield record
                if not self._handout.left:
                    yield await self._refill()
        except StopAsyncIteration:
            return
        finally:
            self._ended = True

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[T]:
        if self._ended:
            self._begin()
        return self._step()

    async def aclose(self) -> None:
        """Do what ``contextlib.aclosing`` expects. The next read goes on behind the last record."""
        await self._generator.aclose()
        self._ended = True


HANDOUT: type[HandOut[Any]] = HandOut
ITERATOR: type[RecordIterator[Any]] = RecordIterator
"""The half of the pair that is used: chosen once, with the decoder."""

if IMPLEMENTATION == "cython":
    try:
        from . import _iteration
    except ImportError:
        pass  # built without a compiler
    else:
        HANDOUT, ITERATOR = _iteration.HandOut, _iteration.RecordIterator
