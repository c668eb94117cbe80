"""The functions that a program hands over: how they are to be called, and whether what they return is a result.

Calling a function with a stray ``yield`` runs none of it and returns an object, as if it had ended well. So do a context manager,
an ``async def`` whose coroutine nobody awaits, and ``executor.submit``. Whoever takes a return for "done" loses the work. Such
functions are refused before anything runs if that can be seen, and else when they return.

A function that is called for a value may return ``map(int, ...)`` or a list of anything. If it is called for its work, ``map`` has
done none of it, and a list of coroutines is a list of work that nobody does.
"""

import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import accumulate, dropwhile, filterfalse, starmap, takewhile
from types import AsyncGeneratorType, FunctionType, GeneratorType, MethodType, NoneType
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _nothing() -> Iterator[None]:
    yield


async def _nothing_async() -> AsyncIterator[None]:
    yield


_SIMPLE: Final = frozenset((NoneType, bool, int, float, str, bytes))
_PLAIN: Final = _SIMPLE | {list, dict, tuple}
"""Types of nearly all results, which are looked at no further."""
_EMPTY: Final[tuple[Any, ...]] = (contextmanager(_nothing), asynccontextmanager(_nothing_async))
_CODES: Final = {made.__code__ for made in _EMPTY}
_MANAGERS: Final = tuple(type(made()) for made in _EMPTY)
_NOT_DONE: Final = "its work is not done"
_LAZY: Final = (map, filter, starmap, filterfalse, takewhile, dropwhile, accumulate)
"""Iterators that call a function only when somebody asks for the next result."""
_NOTHING_RUNS: Final = "calling it would run nothing"

_AS_TEXT: Final[dict[str, Any]] = {}
if sys.version_info >= (3, 14):
    from annotationlib import Format

    _AS_TEXT["annotation_format"] = Format.STRING


def signature_of(function: Callable[..., Any], *, follow_wrapped: bool = True) -> inspect.Signature:
    """As ``inspect.signature``, whatever the annotations say: names in them may be there for type checkers only.

    Since Python 3.14 annotations are evaluated when somebody asks for them, which ``inspect.signature`` does.
    """
    return inspect.signature(function, follow_wrapped=follow_wrapped, **_AS_TEXT)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function returns something to await; otherwise it belongs on a thread."""
    function = _inner(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def takes_context(handler: Callable[..., Any]) -> bool:
    """Whether a handler wants a second argument."""
    try:
        parameters = list(signature_of(handler).parameters.values())
    except (TypeError, ValueError):  # a built-in without a signature
        return False
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 and (positional[1].default is inspect.Parameter.empty or positional[1].name == "context")


def why_never(function: Callable[..., Any]) -> str | None:
    """Return why a call of the function runs nothing of it; ``None`` if nothing is wrong with it that can be seen."""
    function = _inner(function)
    for body in (function, type(function).__call__):
        if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            return f"it is a generator function (it contains yield): {_NOTHING_RUNS}"
        if getattr(body, "__code__", None) in _CODES:
            return f"it is a context manager: {_NOTHING_RUNS}"
    return None


def check_handler(handler: Any, expected: str) -> None:
    """As ``check_work``, of a function that is called with one argument, or with a context as well (see ``takes_context``)."""
    check_work(handler, "handler", expected, 2 if callable(handler) and takes_context(handler) else 1)


def check_work(function: Any, name: str, expected: str, arguments: int) -> None:
    """Raise ``TypeError`` unless this is a function of so many arguments, plain or async, that does some work when it is called."""
    _check(function, name, expected)
    if inspect.isclass(function):
        why = "it is a class, and calling it would only make an object: give an instance or a method"
        raise TypeError(f"{name}={function!r}: {why}; expected {expected}")
    _check_arguments(function, name, expected, arguments)


def check_plain(function: Any, name: str, expected: str, arguments: int) -> None:
    """Raise ``TypeError`` unless this is a function of so many arguments that returns a value, with nothing to await."""
    _check(function, name, expected)
    if is_async(function):
        raise TypeError(f"{name}={function!r}: it is async, but its result is needed at once; expected {expected}")
    _check_arguments(function, name, expected, arguments)


def _check(function: Any, name: str, expected: str) -> None:
    if not callable(function):
        raise TypeError(f"{name}={function!r}: expected {expected}")
    if (why := why_never(function)) is not None:
        raise TypeError(f"{name}={function!r}: {why}; expected {expected}")


def _check_arguments(function: Any, name: str, expected: str, arguments: int) -> None:
    if (why := why_uncallable(function, arguments)) is not None:
        raise TypeError(f"{name}={function!r}: {why}; expected {expected}")


def why_uncallable(function: Callable[..., Any], arguments: int) -> str | None:
    """Return why a call with so many arguments fails; ``None`` if nothing is wrong with it that can be seen.

    If each call fails, so does each record, one after the other, and becomes a dead letter.
    """
    try:
        # Not of what a decorator wraps: what is called is the decorator's function.
        signature = signature_of(function, follow_wrapped=False)
    except (TypeError, ValueError):  # a built-in without a signature
        return None
    try:
        signature.bind(*range(arguments))
    except TypeError as error:
        return f"it cannot be called with {arguments} argument{'' if arguments == 1 else 's'} ({error})"
    return None


def called_of(deserializer: Any) -> Any:
    """Return what is called for a value: the method ``deserialize`` if there is one, or else the deserializer itself."""
    method = getattr(deserializer, "deserialize", None)
    return method if callable(method) else deserializer


def takes_three(deserializer: Callable[..., Any]) -> bool:
    """Whether what is called for a value wants topic, headers and bytes, and not just the bytes."""
    try:
        parameters = signature_of(deserializer).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature takes the bytes
        return False
    required = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is inspect.Parameter.empty
    ]
    return len(required) == 3


def returned(result: Any, by: str) -> Any:
    """Return the result. Raises ``TypeError`` if it is something that was to be awaited or called: then nothing is done yet."""
    if type(result) in _PLAIN or (what := _unfinished(result)) is None:
        return result
    close(result)
    raise TypeError(f"{by} returned {what}, so {_NOT_DONE}")


def finished(result: Any, by: str) -> Any:
    """As ``returned``, of a function that is called for its work: what it returns must not hold work that is still to be done."""
    if type(result) in _SIMPLE:
        return result
    returned(result, by)
    if isinstance(result, _LAZY):
        raise TypeError(f"{by} returned a {type(result).__name__} object, which calls nothing until it is iterated, so {_NOT_DONE}")
    if isinstance(result, (list, tuple, set, frozenset, dict)):
        pending = [each for each in (result.values() if isinstance(result, dict) else result) if _is_pending(each)]
        for each in pending:
            close(each)
        if pending:
            raise TypeError(f"{by} returned a {type(result).__name__} with {_unfinished(pending[0])}, so {_NOT_DONE}")
    return result


def _is_pending(each: Any) -> bool:
    """Whether one of several results stands for work that nobody has done. Futures that were waited for are done."""
    if type(each) in _PLAIN:
        return False
    if _is_future(each):
        return not each.done()
    return inspect.iscoroutine(each) or (_is_of_pool(each) and not each.ready())


def _is_future(result: Any) -> bool:
    """Whether it is a future of whatever library. Only its type is asked, since a mock has every attribute."""
    return all(hasattr(type(result), name) for name in ("done", "result", "add_done_callback"))


def _is_of_pool(result: Any) -> bool:
    """Whether it is what a pool of ``multiprocessing`` returns for a call that it has taken."""
    return type(result).__module__ == "multiprocessing.pool" and hasattr(type(result), "ready")


async def awaited(result: Any, by: str) -> Any:
    """Return a value, awaited if it has to be. Raises ``TypeError`` if the outcome would have to be awaited once more."""
    if not inspect.isawaitable(result):
        return result
    value = await result
    if inspect.isawaitable(value):
        close(value)
        raise TypeError(f"{by} returned {_unfinished(value)}")
    return value


def close(result: Any) -> None:
    """Do without a result."""
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited, which the error says better


def _inner(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


def _unfinished(result: Any) -> str | None:
    """Return what it is if it stands for work that has yet to be done."""
    name = getattr(result, "__qualname__", type(result).__qualname__)
    if inspect.iscoroutine(result):
        return f"the coroutine {name} without awaiting it"
    if inspect.isawaitable(result):
        return f"an awaitable {name} without awaiting it"
    if _is_future(result):
        return f"a {type(result).__module__.removesuffix('._base')}.{name} without waiting for its result"
    if _is_of_pool(result):
        return f"the {name} of a pool without waiting for its result"
    if isinstance(result, (GeneratorType, AsyncGeneratorType)):
        return f"the generator {name}, which nobody runs"
    if isinstance(result, _MANAGERS):
        return "a context manager, which nobody enters"
    if isinstance(result, (FunctionType, MethodType, partial)):
        return f"the function {name} without calling it"
    return None


_unmarked: Final[list[Callable[..., Any]]] = []


def runs_elsewhere(method: F) -> F:
    """Mark a method that returns a coroutine as what it is to everybody: a coroutine function.

    It is none to the interpreter, since its first step belongs to the caller: the coroutine may run in another task, which
    ``asyncio.create_task`` makes, and ``asyncio.wait_for`` up to Python 3.11.
    """
    if hasattr(inspect, "markcoroutinefunction"):  # Python 3.12
        marked: F = inspect.markcoroutinefunction(method)
        return marked
    _unmarked.append(method)
    if "asyncio" in sys.modules:
        mark_as_coroutine_functions()
    return method


def mark_as_coroutine_functions() -> None:
    """Do so with what was defined before asyncio was imported, which a program that only names a class need not pay for."""
    if _unmarked:
        from asyncio import coroutines

        while _unmarked:  # what asyncio and mocks look at before Python 3.12
            _unmarked.pop()._is_coroutine = coroutines._is_coroutine  # type: ignore[attr-defined]
