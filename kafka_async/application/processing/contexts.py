"""Each call in a copy of its own of the context variables (PEP 567), without a task for each.

A worker's task has one context, so what a handler sets there would be seen by the handlers of other records. A coroutine may be
resumed in any context, though: every step of a call is made in the copy that belongs to it. Timeouts, cancellation and everything
else that belongs to a task stay those of the worker's.
"""

from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, ContextVar
from types import CoroutineType, coroutine
from typing import Any, Final

from .retry import check_return

IDLE: Final = object()
"""What ``calls`` yields while it waits for the next argument."""

Steps = Generator[Any, Any, Any]
Changes = list[tuple[ContextVar[Any], Any]]


def calls(function: Callable[[Any], Awaitable[Any]]) -> Steps:
    """Return what calls ``function`` with each argument that is sent to it, and yields ``IDLE`` when that has returned.

    ``context.run(steps.send, argument)`` is a whole call if its handler awaits nothing: no exception is made for its result, which
    costs more than all the rest. What else it yields is to be waited for, see ``rest_of``. It is over once ``function`` has raised.
    """
    steps = _calls(function)
    steps.send(None)
    return steps


@coroutine
def _calls(function: Callable[[Any], Awaitable[Any]]) -> Steps:
    while True:
        argument = yield IDLE
        call = function(argument)
        result = yield from (call if type(call) is CoroutineType else _awaited(call))
        if result is not None:
            check_return(result)


@coroutine
def rest_of(context: Context, steps: Steps, waits_for: Any) -> Steps:
    """Wait for what a call waits for, and go on with it in its context, until it has returned."""
    while waits_for is not IDLE:
        try:
            value = yield waits_for
        except BaseException as error:  # for the call to deal with
            waits_for = context.run(steps.throw, error)
        else:
            waits_for = context.run(steps.send, value)


@coroutine
def called_in(context: Context, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Steps:
    """Call and await the function in this context."""
    call = _called(function, *arguments)
    try:
        waits_for = context.run(call.send, None)
        while True:
            try:
                value = yield waits_for
            except BaseException as error:
                waits_for = context.run(call.throw, error)
            else:
                waits_for = context.run(call.send, value)
    except StopIteration as end:
        return end.value


def set_since(before: Context, after: Context) -> Changes:
    """Return what was set in a copy of a context."""
    return [(variable, value) for variable, value in after.items() if variable not in before or before[variable] is not value]


def put(changes: Changes) -> None:
    """Set in the current context what was set elsewhere.

    A thread's context says that there is no event loop, so nothing can be awaited in a copy of it.
    """
    for variable, value in changes:
        variable.set(value)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _called(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    return await function(*arguments)
