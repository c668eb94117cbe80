"""One trace point serves logs, metrics and hooks.

Decides: what there is to see. Owns the trace events and the listener protocol. Must never decide what is done about an event:
logging is one listener among others (``LoggingListener``), and nothing else in the package writes to a log.
A normal event is INFO or DEBUG; a fault is one WARNING, at most one per text and minute.
"""

import logging
from typing import Final, Protocol, TypeAlias

from attrs import field, frozen

from .errors import one_line

LONGEST: Final = 2000
"""Characters of a line in the log that is not for debugging. Names in it may come from brokers."""

MEMBERSHIP: Final = "membership"
"""Subject of the changes that either group protocol reports."""


@frozen(kw_only=True)
class ConnectionOpened:
    """A connection is ready for requests, after version negotiation and authentication."""

    now: float
    node: str


@frozen(kw_only=True)
class ConnectionClosed:
    """A connection ended; ``error`` is ``None`` where we closed it on purpose."""

    now: float
    node: str
    error: BaseException | None = None


@frozen(kw_only=True)
class RequestSent:
    """A request was written to a connection."""

    now: float
    node: str
    api: str
    version: int
    correlation_id: int
    size: int
    """Bytes, with the length prefix."""


@frozen(kw_only=True)
class ResponseReceived:
    """A request was answered."""

    now: float
    node: str
    api: str
    correlation_id: int
    size: int
    """Bytes, with the length prefix."""
    latency: float
    """Seconds from the moment the request was written."""
    throttle: float = 0.0
    """Seconds for which the broker throttled us (KIP-219)."""


@frozen(kw_only=True)
class RequestFailed:
    """A request was not sent, or not answered; ``error`` says why."""

    now: float
    node: str
    api: str
    error: BaseException


@frozen(kw_only=True)
class StateChanged:
    """A state machine moved: a partition's position, the membership, the consumer."""

    now: float
    subject: str
    before: str
    after: str
    reason: str = ""


@frozen(kw_only=True)
class Fetched:
    """One partition's part of a Fetch response was put into the buffer."""

    now: float
    topic: str
    partition: int
    size: int
    """Bytes of record data."""
    latency: float


@frozen(kw_only=True)
class Fault:
    """Something went wrong that the consumer deals with by itself. ``text`` says what and what happens next."""

    now: float
    text: str
    error: BaseException | None = None


@frozen(kw_only=True)
class Notice:
    """Something normal that a person may want to know, such as a new assignment or an offset reset."""

    now: float
    text: str


TraceEvent: TypeAlias = (
    ConnectionOpened | ConnectionClosed | RequestSent | ResponseReceived | RequestFailed | StateChanged | Fetched | Fault | Notice
)


class Listener(Protocol):
    """Takes trace events.

    Called on the background loop, and by calls of the application for what happens there (rebalances, commits), which with
    ``background="thread"`` are different threads. Must be quick and must not raise.
    """

    def __call__(self, event: TraceEvent, /) -> None: ...


@frozen(kw_only=True)
class LoggingListener:
    """The default listener: writes to a standard library logger."""

    logger: logging.Logger = field(factory=lambda: logging.getLogger("kafka_async"))
    quiet_for: float = 60.0
    """Seconds for which a fault with the same text is not repeated at WARNING."""
    seen: dict[str, float] = field(factory=dict, repr=False)

    def __call__(self, event: TraceEvent, /) -> None:
        match event:
            case Fault():
                last = self.seen.get(event.text)
                if last is None or event.now - last >= self.quiet_for:
                    if len(self.seen) >= 1024:
                        self.seen.clear()  # texts name partitions and brokers, so they are few; a bound all the same
                    self.seen[event.text] = event.now
                    self.logger.warning("%s", one_line(f"{event.text} ({event.error!r})" if event.error else event.text, LONGEST))
                else:
                    self.logger.debug("%s", event)
            case Notice():
                self.logger.info("%s", one_line(event.text, LONGEST))
            case _:
                if self.logger.isEnabledFor(logging.DEBUG):
                    self.logger.debug("%s", event)
