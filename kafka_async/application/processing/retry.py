"""How often and when a record is handled again.

What a handler raises to decide for itself is defined here too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from random import random as _random
from typing import Any, Final

from ...errors import InvalidValue, NoRoute
from ...functions import check_plain, finished, returned
from ...values import field, frozen

_MOST_DOUBLINGS: Final = 64
"""Beyond these any delay has reached its bound; ``2.0 ** attempt`` would overflow."""

KEPT: Final = 0.1
"""Seconds until a record is tried again whose failure was no attempt: others come first."""

Delay = float | Callable[[int, BaseException], float]


class RetryLater(Exception):
    """Raised by a handler: handle this record again after ``seconds``, whatever the policy and however often it was tried.

    Other records of its lane wait for it, the rest go on.
    """

    def __init__(self, seconds: float, *args: object) -> None:
        super().__init__(seconds, *args)
        self.seconds = _number(seconds, "seconds")


class MaybeElsewhere(RetryLater):
    """Raised by ``context.completed``: another member may have the record, or it is handled again here. That is no attempt."""


class Skip(Exception):
    """Raised by a handler: skip this record. It counts as done and is logged."""


class Reject(Exception):
    """Raised by a handler: trying again is no use. The record goes to ``on_failure`` at once."""


FINAL: Final = (Reject, NoRoute, InvalidValue)
"""Errors that no other attempt would change."""


class Failed(Exception):
    """A handler of a batch says that the record at ``index`` of its list failed with ``error``. The others need not fail with it.

    *Returned*, alone or several in a list: the handler went through the whole batch, and all other records are done.
    *Raised*: it stopped there. The records before it are done; those after it are handled again, in their order.
    ``error`` counts as if it were raised for that record alone, so it may be a ``RetryLater``, ``Skip`` or ``Reject``.
    Raises ``TypeError`` unless ``index`` is an integer and ``error`` an exception, ``ValueError`` for a negative index.
    """

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index, error)
        if isinstance(index, bool) or not isinstance(index, int):
            raise TypeError(f"index={index!r}: expected an integer")
        if index < 0:
            raise ValueError(f"index={index!r}: expected 0 or more, the record's place in the batch")
        if not isinstance(error, Exception):
            raise TypeError(f"error={error!r}: expected an exception")
        self.index = index
        self.error = error


class ReturnedFailures(Exception):
    """Raised in place of a return of ``Failed``."""

    def __init__(self, failures: Sequence[Failed]) -> None:
        super().__init__(*failures)
        self.failures = failures


def check_return(result: Any) -> None:
    """Raise what a handler's result says about records that failed; ``TypeError`` if the handler's work is not done at all."""
    if isinstance(result, Failed):
        raise ReturnedFailures([result])
    if isinstance(result, list | tuple) and (failures := [each for each in result if isinstance(each, Failed)]):
        raise ReturnedFailures(failures)
    finished(result, "the handler")


@frozen
class Blame:
    """Which records of a batch failed."""

    errors: Mapping[int, Exception]
    """By place in the batch."""
    done: Callable[[int], bool]
    """Whether the record at a place, which is not among them, is done."""


def blame(error: BaseException) -> Blame | None:
    """Return which records failed, if ``error`` says so; ``None``: all that were handled together.

    Of a task group it is not known how far the tasks came that did not fail, so none of the others is done.
    """
    if isinstance(error, ReturnedFailures):
        return Blame({each.index: each.error for each in error.failures}, lambda index: True)
    if isinstance(error, Failed):
        return Blame({error.index: error.error}, lambda index: index < error.index)
    if isinstance(error, BaseExceptionGroup):
        leaves = list(_leaves(error))
        failures = [leaf for leaf in leaves if isinstance(leaf, Failed)]
        if len(failures) == len(leaves):
            return Blame({each.index: each.error for each in failures}, lambda index: False)
    return None


def decided(error: BaseException) -> BaseException:
    """Return the exception that counts: of a group, such as an ``asyncio.TaskGroup`` raises, the handler's decision.

    One task's ``Reject`` is enough, as trying again is no use. Else all must have decided, and ``RetryLater`` (the longest) comes
    before ``Skip``. A group with anything else is a failure like any other.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = list(_leaves(error))
    if (rejects := next((leaf for leaf in leaves if isinstance(leaf, Reject)), None)) is not None:
        return rejects
    if not all(isinstance(leaf, (RetryLater, Skip)) for leaf in leaves):
        return error
    later = [leaf for leaf in leaves if isinstance(leaf, RetryLater)]
    return max(later, key=lambda leaf: leaf.seconds) if later else leaves[0]


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r}: expected a number of seconds")
    if not 0 <= value < inf:
        raise ValueError(f"{name}={value!r}: expected seconds, 0 or more")
    return float(value)


def count(value: Any, name: str, what: str = "") -> int:
    """Return a number of at least 1. Raises ``TypeError`` and ``ValueError`` that name the argument; ``what``: ends the error."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r}: expected an integer")
    if value < 1:
        raise ValueError(f"{name}={value!r}: expected at least 1{what}")
    return value


def _attempts(value: int) -> int:
    return count(value, "attempts", ", the first attempt")


def _delay(value: Delay) -> Delay:
    if not callable(value):
        return _number(value, "delay")
    check_plain(value, "delay", "seconds, or a function of attempts and exception that returns them", 2)
    return value


def exceptions(value: type[Exception] | tuple[type[Exception], ...]) -> tuple[type[Exception], ...]:
    """Return exception classes, of which one may be given alone. Raises ``TypeError`` for anything else."""
    given = value if isinstance(value, tuple) else (value,)
    if not given or not all(isinstance(each, type) and issubclass(each, Exception) for each in given):
        raise TypeError(f"on={value!r}: expected an exception class or a tuple of them")
    return given


@frozen
class Retry:
    """A policy: at most ``attempts`` in all, ``delay`` between them, for the exceptions of ``on``.

    ``delay`` is seconds, or a callable of the number of attempts made so far (1, 2, ...) and the exception that returns seconds.
    An exception group is tried again if all exceptions in it are of ``on``. Raises ``TypeError`` or ``ValueError`` for bad
    arguments.
    """

    attempts: int = field(converter=_attempts)
    delay: Delay = field(default=0.0, converter=_delay)
    on: tuple[type[Exception], ...] = field(default=(Exception,), converter=exceptions)

    def after(self, attempt: int, error: BaseException) -> float | None:
        """Return the seconds until the next attempt after ``attempt`` of them failed, the last with ``error``; ``None``: no more.

        Raises what ``delay`` raises, and ``TypeError`` or ``ValueError`` if that returns no number of seconds.
        """
        if isinstance(error, RetryLater):
            return error.seconds
        if not self.again(attempt, error):
            return None
        return _number(returned(self.delay(attempt, error), "delay"), "delay") if callable(self.delay) else self.delay

    def again(self, attempt: int, error: BaseException) -> bool:
        """Whether there is another attempt after ``attempt`` of them failed, the last with ``error``."""
        return isinstance(error, RetryLater) or not (
            isinstance(error, FINAL) or attempt >= self.attempts or not self._covers(error)
        )

    def _covers(self, error: BaseException) -> bool:
        if isinstance(error, self.on):
            return True
        from asyncio import CancelledError  # a handler runs, so it is imported already

        if isinstance(error, CancelledError | GeneratorExit):  # raised by the handler itself, or this would not be called
            return Exception in self.on
        return isinstance(error, BaseExceptionGroup) and error.split(self.on)[1] is None


ONCE: Final = Retry(attempts=1)
"""Nothing is tried again."""


def exponential(first: float, most: float, *, random: Callable[[], float] = _random) -> Callable[[int, BaseException], float]:
    """Return a delay for ``Retry`` that doubles from ``first`` to ``most`` seconds, reduced by up to half at random.

    The jitter spreads out records that failed together. ``random`` returns numbers from 0 to 1.
    """
    first, most = _number(first, "first"), _number(most, "most")
    if most < first:
        raise ValueError(f"most={most!r}: expected at least first={first!r}")

    def delay(attempt: int, error: BaseException) -> float:
        return min(most, first * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS)) * (1.0 - random() / 2)

    return delay
