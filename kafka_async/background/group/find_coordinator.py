"""Which broker coordinates our group: the FindCoordinator request manager.

It searches only while a manager needs the coordinator and calls ``request`` in every turn in which it waits; a search
that was not requested within a request timeout ends. Everything that shows that a coordinator is gone is reported through
``lost``: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, a connection that broke, a request that timed out. A report about another
broker than the current coordinator is ignored. If one has served for a while, the next is searched for at once. The backoff
outlives an answer that proves wrong at once, so a cluster that keeps naming a broker that refuses is asked less and less often.

Sources: KIP-699 (FindCoordinator version 4; the wire package turns one key into the older form), KIP-580, Java's
``CoordinatorRequestManager``.
"""

from collections.abc import Callable, Container
from enum import Enum
from typing import Final, Protocol

from ...config import ConsumerConfig
from ...errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    MalformedResponseError,
    NodeNotReadyError,
    for_code,
)
from ...model import Node
from ...network import UnsentRequest
from ...states import StateTable
from ...trace import Fault, Listener, Notice, Recovered
from ...values import define, field
from ...wire.messages import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ..loop.request_manager import NEVER, Backoff, Poll, backoff_of

_OUTAGE: Final = "the coordinator"
"""The outage from when the coordinator is lost until another broker is named, or the same one has served us again."""

GRACE: Final = 1.0
"""Seconds for which a cluster may name no coordinator at first, and the one that it then names may load what it knows of groups:
the first group of a new cluster has its topic created."""


class SearchState(Enum):
    UNKNOWN = "unknown, and not needed"
    WANTED = "needed; the search begins as soon as the backoff allows"
    SEARCHING = "a search is in flight"
    KNOWN = "known"


class SearchInput(Enum):
    REQUEST = "a manager needs the coordinator"
    SENT = "the request went out"
    FOUND = "the cluster named a broker"
    FAILED = "the cluster did not"
    LOST = "the broker no longer coordinates the group"
    FORGET = "the coordinator is no longer needed"


_S, _I = SearchState, SearchInput
TRANSITIONS: Final = StateTable(
    "the search for a coordinator",
    {
        (_S.UNKNOWN, _I.REQUEST): _S.WANTED,
        (_S.WANTED, _I.REQUEST): _S.WANTED,
        (_S.WANTED, _I.SENT): _S.SEARCHING,
        (_S.WANTED, _I.FORGET): _S.UNKNOWN,
        (_S.SEARCHING, _I.REQUEST): _S.SEARCHING,
        (_S.SEARCHING, _I.FOUND): _S.KNOWN,
        (_S.SEARCHING, _I.FAILED): _S.WANTED,
        (_S.KNOWN, _I.REQUEST): _S.KNOWN,
        (_S.KNOWN, _I.LOST): _S.UNKNOWN,
    },
)


class Brokers(Protocol):
    """The brokers in the cluster's metadata (``MetadataManager``): requests can be sent to these only."""

    @property
    def nodes(self) -> Container[int]: ...

    @property
    def is_out_of_reach(self) -> bool:
        """No broker can be reached."""

    def answered_since(self, moment: float) -> bool:
        """Whether the metadata are from an answer that came after ``moment``."""

    def request_update(self, now: float) -> None:
        """Ask for the metadata again: the coordinator is a broker that they do not list."""


@define(eq=False)
class FindCoordinatorManager:
    """Finds the group's coordinator and forgets it when it is lost.

    Poll it after the managers that call ``request``: what they ask for then goes out in the same turn.
    """

    config: ConsumerConfig
    brokers: Brokers = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)

    state: SearchState = field(default=SearchState.UNKNOWN, init=False)
    latest: Node | None = field(default=None, init=False)
    """The broker that was named last, whether it is lost or not: for final requests, which have no time for a search."""
    fatal: KafkaError | None = field(default=None, init=False)
    """Why the group cannot be used at all, such as GROUP_AUTHORIZATION_FAILED.

    The next answer clears it; we keep asking, slowly, while the coordinator is needed, because access may be given.
    """
    failure: KafkaError | None = field(default=None, init=False)
    """Why there is no coordinator at the moment: a cause for timeouts."""
    _backoff: Backoff = field(init=False)
    _unproven: bool = field(default=False, init=False)
    """The broker that was lost was named again and has not served since: for some seconds a cluster may name a dead one."""
    _missing_since: float | None = field(default=None, init=False)
    """Since when the cluster has named none, if it has never named one."""
    _found_at: float = field(default=-NEVER, init=False)
    _requested_at: float = field(default=-NEVER, init=False)

    def __attrs_post_init__(self) -> None:
        self._backoff = backoff_of(self.config, self.random)

    # --- what the managers of the group use ------------------------------------------------------------------------------------

    @property
    def coordinator(self) -> Node | None:
        """The coordinator, if it is known and can be sent to."""
        return self.latest if self.state is SearchState.KNOWN and self._is_listed() else None

    @property
    def is_out_of_reach(self) -> bool:
        """No broker can be reached, so a search has no end that could be waited for."""
        return self.brokers.is_out_of_reach

    def request(self, now: float) -> None:
        """The caller needs the coordinator. To be repeated in every poll in which it waits."""
        self._requested_at = now
        self._feed(SearchInput.REQUEST)

    def lost(self, node_id: int, error: KafkaError | None, now: float) -> None:
        """Broker ``node_id`` showed that it does not coordinate the group (any more); ``error``: its answer, if any."""
        if self.state is not SearchState.KNOWN or self.latest is None or self.latest.id != node_id:
            return
        if now - self._found_at >= self._backoff.limit:
            self._backoff.succeeded()  # it did serve for a while, so this is not the failure of the last search
        else:
            self._backoff.failed(now)
        self.failure = error or CoordinatorNotAvailableError()
        self._feed(SearchInput.LOST)
        text = f"the coordinator {self.latest} of group {self.config.group_id!r} is lost; searching again"
        self.trace(Fault(now=now, text=text, error=error, subject="group", outage=_OUTAGE))

    def served(self, now: float) -> None:
        """The coordinator has answered a request: it works."""
        if self._unproven:
            self._unproven = False
            self.trace(Recovered(now=now, outage=_OUTAGE, subject="group"))

    def is_settling_in(self, error: KafkaError, now: float) -> bool:
        """Whether this answer of the coordinator is no fault yet: it was named a moment ago, and loads what it knows of groups."""
        return isinstance(error, CoordinatorLoadInProgressError) and now < self._found_at + GRACE

    # --- the conversation ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the request that is due."""
        if self.state is SearchState.KNOWN and not self._is_listed():
            self._check_listing(now)
        if self.state is SearchState.WANTED and not self._is_needed(now):
            self._feed(SearchInput.FORGET)
            if self.fatal is not None:
                self.fatal = None
                return Poll(wake_at=now)  # at once, for the managers that were polled before: they have reported it
        if self.state is SearchState.WANTED and self._backoff.ready(now):
            self._feed(SearchInput.SENT)
            return Poll((self._search(now),))
        return Poll(wake_at=self._wake_at())

    def poll_on_close(self, now: float) -> Poll:
        """A search that nobody waits for sends nothing when the consumer stops (KAFKA-18569); one that leaving takes is polled."""
        return Poll()

    def _feed(self, event: SearchInput) -> None:
        TRANSITIONS.move(self, event)

    def _wake_at(self) -> float:
        unlisted = self.state is SearchState.KNOWN and not self._is_listed() and self.brokers.answered_since(self._found_at)
        return self._backoff.retry_at if unlisted or self.state is SearchState.WANTED else NEVER

    def _is_needed(self, now: float) -> bool:
        return now - self._requested_at <= self.config.request_timeout_ms / 1000

    def _is_listed(self) -> bool:
        return self.latest is not None and self.latest.id in self.brokers.nodes

    def _check_listing(self, now: float) -> None:
        """Give metadata that do not list the coordinator (yet) until the end of the backoff; then it is not there.

        Older metadata prove nothing: when a consumer starts, or brokers come and go, a busy cluster may name the coordinator long
        before it answers with the metadata.
        """
        if not self.brokers.answered_since(self._found_at):
            return
        self.brokers.request_update(now)
        if self.latest is not None and self._backoff.ready(now):
            self.lost(self.latest.id, NodeNotReadyError(f"broker {self.latest} is not in the cluster's metadata"), now)
            if self._is_needed(now):
                self._feed(SearchInput.REQUEST)

    def _search(self, now: float) -> UnsentRequest:
        return UnsentRequest(
            message=FindCoordinatorRequest(coordinator_keys=(self.config.group_id or "",)),
            on_done=self._answered,
            expires_at=now + self.config.request_timeout_ms / 1000,
        )

    def _answered(self, outcome: object, now: float) -> None:
        self.fatal = None
        found = self._read(outcome)
        if isinstance(found, Node):
            self._found(found, now)
        else:
            self._failed(found, now)

    def _read(self, outcome: object) -> Node | KafkaError:
        if isinstance(outcome, KafkaError):
            return outcome
        answers: tuple[Coordinator, ...] = outcome.coordinators if isinstance(outcome, FindCoordinatorResponse) else ()
        answer = next((answer for answer in answers if answer.key == self.config.group_id), None)
        if answer is None:
            return MalformedResponseError(f"a FindCoordinator response leaves the group {self.config.group_id!r} out")
        if answer.error_code:
            return for_code(answer.error_code, answer.error_message, group=self.config.group_id)
        if answer.node_id < 0:
            return MalformedResponseError(f"a FindCoordinator response names broker {answer.node_id} as the coordinator")
        return Node(answer.node_id, answer.host, answer.port)

    def _found(self, node: Node, now: float) -> None:
        self._feed(SearchInput.FOUND)
        self._unproven = self._unproven or self.failure is not None
        if node != self.latest:
            self.trace(Notice(now=now, text=f"the coordinator of group {self.config.group_id!r} is {node}", subject="group"))
            self.served(now)  # as far as is known
        self.latest = node
        self._missing_since = None
        self._found_at = now
        self.failure = None
        if not self._is_listed():
            self._backoff.failed(now)
            self.brokers.request_update(now)

    def _failed(self, error: KafkaError, now: float) -> None:
        self._feed(SearchInput.FAILED)
        self._backoff.failed(now)
        self.failure = error
        if not error.retriable:
            self.fatal = error
            self._backoff.retry_at = now + self._backoff.limit
        if self.latest is None and isinstance(error, CoordinatorNotAvailableError):
            self._missing_since = now if self._missing_since is None else self._missing_since
            if now < self._missing_since + GRACE:
                return
        text = f"the coordinator of group {self.config.group_id!r} cannot be found; trying again"
        self.trace(Fault(now=now, text=text, error=error, subject="group", outage=_OUTAGE))
