"""How much is fetched before the application asks for it.

A record that waits unread takes time from its lock, and a member that fetches much leaves nothing to the others. So no more is
fetched than the application gets to in time, as far as its pace is known.
"""

from collections.abc import Collection
from typing import Final

from ...config import ConsumerConfig
from ...values import define, field
from ...wire import Api
from ..boundary import Exchange
from ..fetch.fetch_size import largest_request
from ..loop.environment import Network
from ..loop.request_manager import NEVER
from .closing import Closing, ClosingState
from .locks import Locks
from .orders import AHEAD, in_time
from .share_broker import ShareBroker
from .share_settings import ShareSettings

SHORT_POLL: Final = 0.1
"""Seconds that a broker may hold a fetch back while records are locked, since their acknowledgements would have to wait for it."""
_WHOLE_BATCHES: Final = 1 / 30
"""Whole batches are locked only if the application gets through one within this share of the locks' duration: a large batch would
go to one member, while others have nothing to do."""
_LIMIT: Final = 2
"""Version of ShareFetch that can limit the records that are locked (KIP-1206)."""
_POLLING: Final = 0.1
"""A broker may hold a fetch back for this share of the locks' duration: a lock counts from when the fetch was sent."""


@define(eq=False)
class ReadAhead:
    """Demand and room. ``brokers``: all of them, whatever they are asked for."""

    config: ConsumerConfig
    settings: ShareSettings
    exchange: Exchange = field(repr=False)
    network: Network = field(repr=False)
    locks: Locks
    closing: Closing
    expansion: float = field(default=1.0, init=False)
    """Bytes of records for each byte of the last answer: batches are compressed."""
    given_back: tuple[float, int] | None = field(default=None, init=False)
    """When the application had last read, and how many records were delivered, as unread ones were given back."""
    lost_at: float = field(default=-NEVER, init=False)
    """How many had been delivered when some lost their locks unread."""
    _batch: float = field(default=0.0, init=False)
    """How many records the largest batches have, as seen of late."""

    def saw(self, batch: int) -> None:
        """Some records came in a batch of so many."""
        self._batch = max(batch, self._batch * 0.9)

    def kept_until(self) -> float:
        """Return until when unread records are kept if no read call comes."""
        demand = self.exchange.demand
        return NEVER if demand.wanted > 0 else demand.read_at + min(self.locks.duration, self.config.max_poll_interval_ms / 1000)

    def wants_more(self, brokers: Collection[ShareBroker], now: float) -> bool:
        """Whether the application is going to read what is fetched now while its locks are young."""
        handler = self.exchange.handler
        if self.closing.state is not ClosingState.OPEN or handler.ended is not None or self.exchange.demand.held_back:
            return False
        # What would be given back at once would be fetched again at once, and each time cost the records one of their deliveries.
        if self.kept_until() <= now:
            return False
        reads = handler.reading > 0 or now - handler.polled_at < self.locks.duration * AHEAD
        return reads and self.records(brokers) > 0 and self.bytes(brokers) > 0

    def records(self, brokers: Collection[ShareBroker]) -> int:
        """Return for how many records a broker is asked."""
        exchange, most = self.exchange, self.config.max_poll_records
        unread, demand = exchange.unread, exchange.demand
        if self._asks_one_by_one:
            if any(broker.expected for broker in brokers):
                return 0
            if self.settings.strict_max_records:
                return max(demand.wanted, demand.missed) - unread
        # Records that the application would not get to in time are left to others: all of them as long as its pace is not known.
        ahead = min(most, in_time(demand.pace, self.locks.duration, exchange.taken - self.lost_at))
        wanted, asked = min(most, max(demand.wanted, demand.missed) - unread), min(most, demand.asked)
        if not demand.handlers and ahead < asked:
            # A read call ends with what it finds, and may take as long for few records as for many: it finds as many as it asks
            # for or none, and waits for them.
            return max(wanted, asked - unread if unread > 0 else 0)
        if unread >= max(1, ahead // 2):
            return 0
        if self.is_limited:  # each broker may lock as many as it is asked for; a fast application waits for requests instead
            ahead = -(-ahead // _leaders(brokers))
        # Slow handlers have nothing ahead of them: it would wait for longer than its lock lasts.
        return ahead if demand.handlers and ahead else max(ahead, wanted)

    def bytes(self, brokers: Collection[ShareBroker]) -> int:
        """Return for how many bytes a broker is asked, so that unread records stay under ``fetch_buffer_bytes``."""
        exchange, limit = self.exchange, self.config.fetch_buffer_bytes
        expected = sum(broker.expected or 0 for broker in brokers)
        exchange.starving = True  # first: an application that makes room from now on wakes us
        room = limit - exchange.unread_bytes - int(expected * self.expansion)
        exchange.starving = room <= 0
        if room <= 0:
            return 0
        # At least 1, for which a broker sends a batch: a limit smaller than the smallest one would be silence for ever.
        return max(1, int(min(largest_request(self.config), room / self.expansion, limit / _leaders(brokers))))

    @property
    def _asks_one_by_one(self) -> bool:
        """Whether only one broker has a fetch at a time: of what several bring at once, most would wait behind a long job."""
        return self.settings.strict_max_records or self.exchange.demand.pace > self.locks.duration * AHEAD

    @property
    def is_limited(self) -> bool:
        """Whether brokers are to lock no more records than they are asked for, even if their batch has more."""
        if self.settings.strict_max_records:
            return True
        versions, demand = self.network.versions(), self.exchange.demand
        if versions is None or not versions.supports(Api.SHARE_FETCH, _LIMIT):
            return False
        batch = max(self.config.max_poll_records, self._batch)
        return demand.pace <= 0 or demand.average * batch > self.locks.duration * _WHOLE_BATCHES

    def longest_wait(self, brokers: Collection[ShareBroker]) -> float:
        """Return how long a fetch may be held back: acknowledgements and renewals of locked records wait for it."""
        wait = min(self.config.fetch_max_wait_ms / 1000, self.locks.duration * _POLLING)
        # An application with unread records need not wait for more. And a broker that has locked as many as it may would wait for
        # acknowledgements, which in turn would wait for the poll.
        if self.closing.flushes or self.exchange.unread > 0:
            return 0.0
        if self._asks_one_by_one:  # the other leaders wait for their turn
            wait /= _leaders(brokers)
        if self.locks.are_out:
            wait = min(wait, SHORT_POLL, max(0.0, self.locks.duration / 20))
        return wait


def _leaders(brokers: Collection[ShareBroker]) -> int:
    return sum(1 for broker in brokers if broker.session.wanted) or 1
