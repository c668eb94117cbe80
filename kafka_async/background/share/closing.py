"""Calls that wait for acknowledgements or for the end, and how far a share consumer has closed.

It closes in this order: nothing is fetched any more, the acknowledgements are settled, the sessions are closed. Who waits, waits
for what was acknowledged before: other tasks may go on acknowledging, so that there is always something on its way.
"""

from collections.abc import Collection, Iterator
from enum import Enum
from math import inf

from ...errors import KafkaError
from ...events import Call
from ...model import TopicPartition
from ...values import define, field
from ..loop.request_manager import NEVER
from .acknowledgements import AcknowledgementPortion
from .locks import Locks
from .orders import Flush
from .share_broker import ShareBroker


class ClosingState(Enum):
    """How far a share consumer has closed."""

    OPEN = "records are fetched"
    SETTLING = "nothing is fetched any more; what was acknowledged until then is sent and answered"
    PARTING = "the sessions are being closed, which releases what is left"
    CLOSED = "no broker knows us any more"


@define(eq=False)
class Closing:
    """Who waits, and the results of acknowledgements since the last flush."""

    state: ClosingState = field(default=ClosingState.OPEN, init=False)
    flushes: dict[int, Flush] = field(factory=dict, init=False)
    """By number: a portion of acknowledgements has that of the first one that waits for it."""
    _number: int = field(default=0, init=False)
    _outcomes: dict[TopicPartition, KafkaError | None] = field(factory=dict, init=False)
    _calls: list[Call[None]] = field(factory=list, init=False)

    @property
    def hurries(self) -> bool:
        """Whether somebody waits for acknowledgements that do not wait for others then."""
        return bool(self.flushes) or self.state is not ClosingState.OPEN

    def flush(self, order: Flush, brokers: Collection[ShareBroker]) -> None:
        """Somebody waits for what is acknowledged by now."""
        self._mark(brokers)
        self.flushes[self._number] = order

    def close(self, call: Call[None], brokers: Collection[ShareBroker]) -> None:
        """Begin to close, with what is acknowledged by now; ``call`` waits for the end."""
        self._calls.append(call)
        if self.state is ClosingState.OPEN:
            self._mark(brokers)
            self.state = ClosingState.SETTLING

    def _mark(self, brokers: Collection[ShareBroker]) -> None:
        self._number += 1
        for portion in _portions(brokers):
            portion.awaited = min(portion.awaited, self._number)

    def note(self, partition: TopicPartition, error: KafkaError | None) -> None:
        """An acknowledgement has a result, for the next flush; an error is not covered by what goes well."""
        self._outcomes[partition] = self._outcomes.get(partition) or error

    def go_on(self, brokers: Collection[ShareBroker], locks: Locks, now: float) -> float:
        """Answer flushes, and take the next step of closing, once no acknowledgement that they wait for is on its way.

        Results stay for the next flush if nobody waits for this one any longer. Return when to look again; ``now``: a step was
        taken.
        """
        self.flushes = {number: order for number, order in self.flushes.items() if not order.call.done}
        first = min((portion.awaited for portion in _portions(brokers)), default=inf) if self.hurries else inf
        if done := [number for number in self.flushes if number < first]:
            outcomes = dict(self._outcomes)
            answered = [self.flushes.pop(number) for number in done]
            for order in answered:
                order.call.resolve(dict(outcomes))
            if any(order.tells and not order.call.withdrawn for order in answered):  # a caller may have given up just now
                self._outcomes.clear()
        if self.state is ClosingState.SETTLING and first == inf:
            until = _rests_until(brokers, locks, now)
            if until <= now:
                self.state = ClosingState.PARTING
            return until
        if self.state is ClosingState.PARTING and not any(map(_knows_us, brokers)):
            self.state = ClosingState.CLOSED
            return now
        return NEVER

    def closed(self) -> Iterator[Call[None]]:
        """Yield the calls that wait for the end, once it has come."""
        if self.state is ClosingState.CLOSED:
            calls, self._calls = self._calls, []
            yield from calls


def _portions(brokers: Collection[ShareBroker]) -> Iterator[AcknowledgementPortion]:
    """Yield all that is acknowledged and not answered."""
    for broker in brokers:
        yield from broker.acknowledgements.portions
        if broker.in_flight is not None:
            yield from broker.in_flight.portions


def _knows_us(broker: ShareBroker) -> bool:
    return broker.session.is_open or (broker.in_flight is not None and broker.in_flight.closes)


def _rests_until(brokers: Collection[ShareBroker], locks: Locks, now: float) -> float:
    """Return until when fetches that are held back are waited for, before the sessions are closed; ``now``: for none.

    A poll that is abandoned locks what comes next, for nobody. One that is not answered in its time is given up.
    """
    until = now
    for broker in brokers:
        sent = broker.in_flight
        if sent is None or not sent.fetches:
            continue
        if locks.given_by(broker.node_id):
            return NEVER
        if now < sent.rests_until:
            until = max(until, sent.rests_until)
        else:
            broker.session.reset()
    return until
