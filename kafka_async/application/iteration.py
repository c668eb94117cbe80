"""``async for record in consumer``.

Decides: what one step costs and what a cancelled step leaves. Owns: the generator that is under way. Must never end on its own
account: it ends when the consumer is stopped.

A generator's step is the cheapest that asyncio has (a third of a coroutine's), but a generator is finished once an exception went
through it: with it alone, ``wait_for(anext(records), 1)`` would work until its first timeout and then say that there are no more
records. So the iterator makes a new generator after each one that an exception ended.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class RecordIterator(AsyncIterator[T], Generic[T]):
    """Steps through what ``generate`` yields, over as many generators as it takes. ``generate`` says when one has ended."""

    __slots__ = ("_generate", "_generator", "_step", "ended")

    def __init__(self, generate: "Callable[[RecordIterator[T]], AsyncGenerator[T, None]]") -> None:
        self._generate = generate
        self._begin()

    def _begin(self) -> None:
        self.ended = False
        self._generator = self._generate(self)
        self._step = self._generator.__anext__

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[T]:
        # The only line of ours that runs for each record.
        if self.ended:
            self._begin()
        return self._step()

    async def aclose(self) -> None:
        """End the generator under way, as ``contextlib.aclosing`` does. The next read goes on behind the last record."""
        await self._generator.aclose()
        self.ended = True
