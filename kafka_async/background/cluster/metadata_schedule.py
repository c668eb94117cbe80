"""When metadata is requested.

By age, and by need, with a backoff for what is needed again and again. Java: ``Metadata.timeToNextUpdate``, ``requestUpdate`` and
``requestUpdateForNewTopics``.
"""

from ...config import ConsumerConfig
from ...values import define, field
from ..loop.request_manager import retry_delay


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
