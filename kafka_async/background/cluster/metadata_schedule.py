"""When metadata is requested.

By age, and by need, with a backoff for what is needed again and again. Java: ``Metadata.timeToNextUpdate``, ``requestUpdate`` and
``requestUpdateForNewTopics``.

The sequence that costs a request timeout: two brokers freeze, one with our request and one that leads partitions. Who leads them by
now is not known until another broker is asked, however late the first one's answer is.
"""

from collections.abc import Callable

from ...config import ConsumerConfig
from ...network import LATE, UnsentRequest
from ...values import define, field
from ...wire.messages import MetadataRequest, MetadataResponse
from ..loop.request_manager import NEVER, Backoff, retry_delay


@define(eq=False)
class MetadataSchedule:
    """The times of updates. Seconds."""

    config: ConsumerConfig
    updated_at: float | None = field(default=None, init=False)
    """When the last useful answer came."""
    needed: bool = field(default=True, init=False)
    needed_since: float | None = field(default=None, init=False)
    asked_since: float | None = field(default=None, init=False)
    """When the first request was sent since the last useful answer. Before it nothing has failed: the pause is ours."""
    new_topics: bool = field(default=False, init=False)
    """Topics are wanted that were never requested before: no backoff applies to them."""
    wishes: int = field(default=0, init=False)
    """How often an update was asked for."""
    _repeats: int = field(default=0, init=False)

    def need(self, now: float) -> None:
        """Something that was known turned out wrong: ask again as soon as the backoff allows."""
        self.wishes += 1
        self.needed = True
        if self.needed_since is None:
            self.needed_since = now

    def need_since(self, now: float) -> None:
        """From now on everything has to be asked again."""
        self.needed = True
        self.needed_since = now
        self.asked_since = None

    def request_sent(self, now: float) -> None:
        """A request is on its way."""
        if self.asked_since is None:
            self.asked_since = now
        soon = self.updated_at is not None and now - self.updated_at <= 2 * self.config.retry_backoff_max
        self._repeats = self._repeats + 1 if self.needed and soon else 0
        self.needed = False
        self.new_topics = False

    def answered(self, now: float) -> None:
        """A useful answer came. What it leaves open is needed after this."""
        self.updated_at = now
        self.asked_since = None

    def settled(self, now: float) -> None:
        """The answer was taken over; what it left open is needed from now on."""
        self.needed_since = now if self.needed else None

    def due_at(self, now: float) -> float:
        """New topics are requested at once, an update that is needed again soon waits for a backoff, and metadata expires."""
        if self.updated_at is None or self.new_topics:
            return now
        if self.needed:  # again and again, as while a partition has no leader: less and less often
            return self.updated_at + retry_delay(self.config, self._repeats)
        return self.updated_at + max(self.config.retry_backoff, self.config.metadata_max_age_ms / 1000)


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
