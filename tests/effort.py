"""How much the tests try of what is endless: a little in each run, with the profile ``long`` as much as there is time for.

``pytest -m fast --hypothesis-profile=long`` multiplies it: see the README beside this file.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings


def apart(*values: Any) -> list[Any]:
    """Return values of a parameter that are only tried with ``--apart``: those of a long test that rarely fails."""
    return [pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.apart) for value in values]


def examples(times: float) -> settings:
    """Return settings for so many times the examples that the profile gives a test: 100 in each run."""
    return settings(max_examples=max(1, round(settings().max_examples * times)), deadline=None)


def for_each(values: Iterable[Any]) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Check each of many values in one test: a test costs several milliseconds, and a look at a file hardly any.

    The failure has a note that names the value.
    """

    def decorate(check: Callable[[Any], None]) -> Callable[[], None]:
        def every() -> None:
            for value in values:
                try:
                    check(value)
                except AssertionError as error:
                    error.add_note(f"for {value}")
                    raise

        every.__name__, every.__doc__ = check.__name__, check.__doc__
        return every

    return decorate
