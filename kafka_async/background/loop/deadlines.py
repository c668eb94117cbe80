"""The calls that wait, and their deadlines."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from ...errors import KafkaTimeoutError
from ...events import ApplicationEvent, Call
from ...values import define, field


@define(eq=False)
class Deadlines:
    """Calls of the application with their deadlines."""

    _calls: list[tuple[Call[Any], Callable[[], BaseException | None]]] = field(factory=list, init=False)

    def watch(self, call: Call[Any], cause: Callable[[], BaseException | None]) -> None:
        """Fail ``call`` when its deadline passes; ``cause`` returns why it is not answered yet.

        It may answer the call itself, if there is a result that the caller must get.
        """
        self._calls.append((call, cause))

    @property
    def waiting(self) -> bool:
        """Whether a call was waiting at the last poll, or came since."""
        return bool(self._calls)

    def poll(self, now: float) -> float:
        """Fail what is late, with the reason why it was not answered; return the next deadline."""
        if not self._calls:
            return inf
        self._calls = [entry for entry in self._calls if not entry[0].done]
        for call, cause in self._calls:
            if call.deadline <= now:
                reason = cause()
                text = "the call was not answered before its deadline"
                error = KafkaTimeoutError(f"{text}: {reason}" if reason is not None else text)
                error.__cause__ = reason
                call.fail(error)
        return min((call.deadline for call, _ in self._calls if not call.done), default=inf)

    def fail_all(self, error: BaseException, unread: Iterable[ApplicationEvent] = ()) -> None:
        """Fail every call, those of ``unread`` events too: nothing will be answered any more."""
        for event in unread:
            call = getattr(event, "call", None)
            if isinstance(call, Call):
                call.fail(error)
        for call, _ in self._calls:
            call.fail(error)
