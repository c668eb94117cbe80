"""A state machine is a table: one verb moves along it, one error says what must not happen, one trace event tells of it.

A pair that is not in the table is a fault of ours, and raises. Whoever went on in a state that nobody thought of
might lose records.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from .trace import Listener, StateChanged

S = TypeVar("S", bound=Enum)
W = TypeVar("W", bound=Enum)


class Stateful(Protocol[S]):
    """An object with a state."""

    state: S


class StateTable(dict[tuple[S, W], S], Generic[S, W]):
    """``(state, input) -> state``: everything that can happen to ``about``, such as "a connection"."""

    __slots__ = ("about",)

    def __init__(self, about: str, table: Mapping[tuple[S, W], S]) -> None:
        super().__init__(table)
        self.about: Final = about

    def __missing__(self, pair: tuple[S, W]) -> S:
        state, what = pair
        raise RuntimeError(f"{self.about} in state {state.name} cannot take the input {what.name}")

    def move(self, owner: Stateful[S], what: W, now: float = 0.0, trace: Listener | None = None, reason: str = "") -> bool:
        """Give ``owner`` the state after ``what``, and tell ``trace`` of it. Return whether it is another state.

        ``reason``: why, where the input does not say it. Raises ``RuntimeError`` for a pair that is not in the table, and changes
        nothing then.
        """
        before = owner.state
        owner.state = after = self[before, what]
        if after is before:
            return False
        if trace is not None:  # last: a listener may look at the consumer
            trace(StateChanged(now=now, subject=self.about, before=before.name, after=after.name, reason=reason or str(what.value)))
        return True
