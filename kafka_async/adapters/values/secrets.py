"""Secrets of what is connected to: options may stand for them, and no error shows them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from ...errors import KafkaConfigurationError, KafkaConnectionError, KafkaError, linked
from ...values import define, field, frozen

_SHORTEST: Final = 3
"""Shorter texts occur in nearly every error by accident."""


def _is_none(name: str, text: str) -> bool:
    return False


def _as_given(name: str, text: str) -> str:
    return text


@frozen
class References:
    """Options that only refer to a secret, which the process that connects resolves; by default there are none."""

    is_reference: Callable[[str, str], bool] = _is_none
    """Says, for an option's name and text, whether the text refers to something."""
    resolve: Callable[[str, str], Any] = _as_given
    """Returns what the text refers to, or the text."""


NO_REFERENCES: Final = References()


@define(eq=False)
class Hidden:
    """The secrets of one consumer. No error shows them, whichever layer raised it."""

    _texts: set[str] = field(factory=set, repr=False)

    def add(self, *values: Any) -> None:
        """Hide texts; other objects, such as a provider of tokens, never show in an error."""
        for value in values:
            if isinstance(value, str):
                self._texts.update(text for text in _forms(value) if len(text) >= _SHORTEST)

    @contextmanager
    def from_errors(self) -> Generator[None]:
        """Raise what the block raises; if it shows a secret, raise another error instead, without a cause."""
        try:
            yield
        except Exception as error:
            caught = error
            lines = [line for each in linked(error) for line in (str(each), *getattr(each, "__notes__", ()))]
            if not any(text in line for line in lines for text in self._texts):
                raise
        else:
            return
        shown = str(caught)
        for text in sorted(self._texts, key=len, reverse=True):
            shown = shown.replace(text, "***")
        retriable = isinstance(caught, KafkaError) and caught.retriable
        raise (KafkaConnectionError if retriable else KafkaConfigurationError)(shown) from None


def _forms(text: str) -> set[str]:
    """Return what may stand in an error for a text: also without spaces around it, quoted, or a line of it."""
    return {text, text.strip(), repr(text)[1:-1], *(line for line in text.splitlines() if not line.startswith("-----"))}
