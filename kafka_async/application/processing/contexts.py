"""Each call in a copy of its own of the context variables (PEP 567), without a task for each.

A worker's task has one context, so what a handler sets there would be seen by the handlers of other records. A coroutine may be
resumed in any context, though: a worker runs in a copy, and goes on in another one once something was set there. Timeouts,
cancellation and everything else that belongs to a task stay those of the worker's.
"""

from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, ContextVar, copy_context
from types import coroutine
from typing import Any, Final

_ANEW: Final = object()
"""What a coroutine yields that asks for another copy."""

Steps = Generator[Any, Any, Any]
Changes = list[tuple[ContextVar[Any], Any]]


@coroutine
def called_in(context: Context, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Steps:
    """Call and await the function in this context, and after each ``anew`` in another copy of what that was at the beginning."""
    before, call = context.copy(), _called(function, *arguments)
    resume: Callable[[Any], Any] = call.send
    value: Any = None
    try:
        while True:
            waits_for = context.run(resume, value)
            if waits_for is _ANEW:
                context = before.copy()
                resume, value = call.send, context
                continue
            try:
                value = yield waits_for
                resume = call.send
            except BaseException as error:  # for the function to deal with
                resume, value = call.throw, error
    except StopIteration as end:
        return end.value


@coroutine
def anew() -> Generator[Any, Context, Context]:
    """Go on in another copy of the context, and return it; only within ``called_in``."""
    return (yield _ANEW)


def untouched_size(own: "ContextVar[Any]") -> int:
    """Return the size by which it is known that nothing was set in a copy of the current context; -1: that cannot be known.

    It can if there is no other variable than ``own``, which handlers do not know: whatever they set makes the copy larger then. It
    saves them a new copy each, about a tenth of a call that does nothing. Comparing the values of variables that were there before
    would cost more than a copy, and ``==`` takes one object for another.
    """
    return 1 if set(copy_context()) == {own} else -1


def set_since(before: Context, after: Context) -> Changes:
    """Return what was set in a copy of a context."""
    return [(variable, value) for variable, value in after.items() if variable not in before or before[variable] is not value]


def put(changes: Changes) -> None:
    """Set in the current context what was set elsewhere.

    A thread's context says that there is no event loop, so nothing can be awaited in a copy of it.
    """
    for variable, value in changes:
        variable.set(value)


async def _called(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    return await function(*arguments)
