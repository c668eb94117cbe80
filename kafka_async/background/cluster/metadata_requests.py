"""The Metadata requests that are under way.

The sequence that costs a request timeout: two brokers freeze, one with our request and one that leads partitions. Who leads them by
now is not known until another broker is asked, however late the first one's answer is.
"""

from collections.abc import Callable

from ...network import LATE, UnsentRequest
from ...values import define, field
from ...wire.messages import MetadataRequest, MetadataResponse
from ..loop.request_manager import NEVER, Backoff


def _superseded() -> bool:
    """Return ``True``: the request need not be written any more, since a later one asks for the same."""
    return True


@define(eq=False)
class MetadataRequests:
    """One request at a time, and another one while the answer is late. All of them expire when the first one does."""

    backoff: Backoff
    timeout: float
    """Seconds that all have together."""
    _sent: int = field(default=0, init=False)
    """Number of the last one."""
    _ended: int = field(default=0, init=False)
    """Up to which number none is awaited any more."""
    _answered: int = field(default=0, init=False)
    """Number of the last one whose answer counted."""
    _begun_at: float = field(default=0.0, init=False)
    """When the first of those in flight was sent."""
    late_at: float = field(default=NEVER, init=False)
    """When another one goes out if there is no answer; ``NEVER`` if none is awaited, or too little time is left."""
    _last: UnsentRequest | None = field(default=None, init=False)

    @property
    def in_flight(self) -> bool:
        """An answer is awaited."""
        return self._sent > self._ended

    def due_at(self, wanted_at: float) -> float:
        """Return when the next request may go out if one is wanted from ``wanted_at`` on, by the passing of time alone."""
        return self.late_at if self.in_flight else max(wanted_at, self.backoff.retry_at)

    def next(self, now: float) -> int:
        """Begin another request and return its number. One that was not written yet is superseded by it."""
        if not self.in_flight:
            self._begun_at = now
        elif self._last is not None:
            self._last.withdrawn = _superseded
        self._sent += 1
        late_at = now + max(LATE, now - self._begun_at)
        self.late_at = late_at if late_at <= self._begun_at + self.timeout / 2 else NEVER
        return self._sent

    def request(
        self, message: MetadataRequest, on_done: Callable[[MetadataResponse | BaseException, float], None]
    ) -> UnsentRequest:
        """Return the request that was begun last, which goes to whichever broker owes us no answer."""
        self._last = UnsentRequest(message=message, on_done=on_done, expires_at=self._begun_at + self.timeout)
        return self._last

    def succeeded(self, number: int) -> bool:
        """Request ``number`` was answered. Return whether that counts: later ones may have been answered before."""
        if number <= self._answered:
            return False
        self._answered = number
        self._end(number)
        self.backoff.succeeded()
        return True

    def failed(self, number: int, now: float) -> bool:
        """Request ``number`` failed. Return whether that counts: a later one may be answered yet."""
        if number != self._sent or number <= self._ended:
            return False
        self._end(number)
        self.backoff.failed(now)
        return True

    def _end(self, number: int) -> None:
        self._ended = max(self._ended, number)
        if not self.in_flight:
            self.late_at = NEVER
            self._last = None
