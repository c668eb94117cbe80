"""Which request goes to which broker, and when: all decisions of the network are made here.

``connection.py`` performs the plan and reports what happened.

Java: ``NetworkClientDelegate``, ``NetworkClient``, ``ClusterConnectionStates``. KIP-219, 580, 601, 602, 899, 1102.

A decision is one synchronous step: nothing interleaves, cancellation cannot leave it half made. ``plan(now)`` asks for
nothing again when nothing has happened in between, and never to be woken in the past, so nothing spins.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from ..config import ConsumerConfig
from ..errors import (
    AuthenticationFailedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RebootstrapRequiredError,
    RequestWithdrawnError,
)
from ..model import Node
from ..trace import TraceEvent
from ..values import frozen
from ..wire import BrokerVersions
from .auth import AuthenticatorFactory, PendingWork
from .link import ConnectionState, History, Link, Surroundings
from .network_settings import NetworkSettings
from .protocol import settle
from .reachability import Reachability, ReachabilityState
from .request import Channel, UnsentRequest, never_withdrawn
from .servers import KnownServers

HEDGE: Final = 1.0
"""Seconds after which a connection that is still being made no longer keeps requests for any node from trying another node.

A bootstrap server that swallows packets would otherwise cost its whole setup timeout before the next one gets its turn.
"""


@frozen(kw_only=True)
class Open:
    """Make a connection and report ``opened(key)`` or ``open_failed(key)``."""

    key: int
    node: Node
    channel: Channel
    attempt: int
    """Failed attempts before this one; turns the order of the host's addresses (KIP-602)."""
    timeout: float
    """Seconds to get a socket (and TLS) from one address."""


class Write(NamedTuple):
    """Write ``data`` to connection ``key``, after what was planned for it before."""

    key: int
    data: bytes


@frozen(kw_only=True)
class Run:
    """Await ``work`` of the authenticator of connection ``key`` and report ``worked(key)``. It replaces what still runs there."""

    key: int
    work: PendingWork


@frozen(kw_only=True)
class Shut:
    """Close connection ``key``; nothing more is wanted from it. A key that is already gone is not an error."""

    key: int


_DRAINING: Final = "the consumer is stopping"
_CLOSED: Final = "the consumer has stopped"

Action: TypeAlias = Open | Write | Run | Shut


class Plan(NamedTuple):
    """What to do now and when to ask again."""

    actions: tuple[Action, ...]
    wake_at: float
    """Absolute seconds, later than the ``now`` of the question; infinity when only an event can change anything."""
    settled: int
    """Requests that ended while planning. When there are any, the layer above has outcomes to look at before it sleeps."""


@frozen(kw_only=True)
class ConnectionStatistics:
    """One connection, as a value."""

    node: Node
    channel: Channel
    state: ConnectionState
    in_flight: int
    retry_at: float
    """Absolute seconds before which no further attempt is made."""


class NetworkClientDelegate:
    """Pure core of the network. ``random`` returns floats in ``[0, 1)``."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        random: Callable[[], float],
        trace: Callable[[TraceEvent], None],
        authenticators: AuthenticatorFactory | None = None,
    ) -> None:
        self._shared = Surroundings(
            settings=NetworkSettings.from_config(config), random=random, trace=trace, authenticators=authenticators
        )
        self._servers = KnownServers()
        self._links: dict[tuple[int, Channel], Link] = {}
        self._by_key: dict[int, Link] = {}
        self._due: dict[int, float] = {}  # when each of these has to be looked at, whatever happens
        self._stirred: set[int] = set()  # those to which something happened since the last plan
        self._unsure = True  # links came or went, or brokers did: any link may have something to do
        self._history: dict[tuple[str, int, Channel], History] = {}
        self._reachability = ReachabilityState()
        self._unsent: list[UnsentRequest] = []
        self._shut: list[int] = []
        self._last_key = 0
        self._misrouted: KafkaError | None = None
        self._refusal: str | None = None  # why only final requests are taken from now on

    # Brokers.

    def set_bootstrap(self, nodes: Iterable[Node]) -> None:
        """Set the servers to start from. Their ids are negative; they serve only while no broker is known from metadata."""
        self._servers.set_bootstrap(nodes)
        self._unsure = True

    def replace_bootstrap(self, host: str, port: int, names: Collection[str], now: float) -> None:
        """A server to start from is asked under these names from now on; the attempt under its own one ends, and is no failure."""
        alias = self._servers.replace_bootstrap(host, port, names)
        self._unsure = True
        for node_id, channel in list(self._links):
            if alias is not None and node_id == alias.id:
                self._drop(node_id, channel, now, "asked under its canonical names")

    def set_nodes(self, nodes: Mapping[int, Node], now: float, *, cluster_id: str | None = None) -> None:
        """Take the brokers that metadata names. Connections to vanished or re-addressed ones are closed.

        A bootstrap connection to the very address of a broker becomes that broker's connection; others end when they are quiet.
        ``cluster_id``: brokers are told which of them is meant, and refuse what was meant for another one (KIP-1242).
        """
        self._shared.common.cluster_id = cluster_id
        before = self._servers.named
        self._servers.set_named(nodes)
        self._unsure = True
        for (node_id, channel), link in list(self._links.items()):
            node = self._servers.named.get(node_id)
            if node_id in before and (node is None or (node.host, node.port) != (link.node.host, link.node.port)):
                gone = "the broker is gone from the cluster's metadata"
                self._drop(node_id, channel, now, gone if node is None else "the broker has another address now")
            elif node is not None:
                link.rename(node)
        self._adopt_bootstrap(now)

    def disconnect_all(self, now: float, former: Iterable[Node] = ()) -> None:
        """Forget the brokers, close every connection and start from the bootstrap servers again (KIP-899, KIP-1102).

        ``former``: servers that are asked beside them until brokers are known again.
        """
        self._servers.start_again(former)
        self._misrouted = self._shared.common.cluster_id = None
        self._unsure = True
        for node_id, channel in list(self._links):
            self._drop(node_id, channel, now, "disconnected to bootstrap again")

    def cut(self, now: float) -> None:
        """The shell was cancelled, and every connection is gone with it."""
        for link in list(self._by_key.values()):
            self._close(link, now, "the tasks of the event loop were cancelled")

    # Requests.

    def add(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Take requests to send. After ``drain`` only final requests are taken; others end at once."""
        for request in requests:
            if self._refusal is None or (request.final and self._refusal != _CLOSED):
                self._unsent.append(request)
            else:
                self._settle(request, KafkaConnectionError(f"{request.name} was not sent: {self._refusal}"), now)

    def drain(self, now: float) -> None:
        """The consumer stops: end requests that are not written yet, except final ones, which may still go out."""
        self._refusal = _DRAINING
        kept, ended = _split(self._unsent, lambda request: request.final)
        self._unsent = kept
        for request in ended:
            self._settle(request, KafkaConnectionError(f"{request.name} was not sent: {_DRAINING}"), now)

    @property
    def is_drained(self) -> bool:
        """No final request waits to be written or answered."""
        unwritten = any(request.final for request in self._unsent)
        return not unwritten and not any(link.awaits_final for link in self._links.values())

    def close(self, now: float) -> None:
        """End everything that is unsent or in flight. The next plan only shuts connections."""
        self._refusal = _CLOSED
        unsent, self._unsent = self._unsent, []
        for request in unsent:
            self._settle(request, KafkaConnectionError(f"{request.name} was not sent: {_CLOSED}"), now)
        for node_id, channel in list(self._links):
            self._drop(node_id, channel, now, _CLOSED)

    # The decision.

    def plan(self, now: float) -> Plan:
        """Decide what to do now. Requests can end in here: expired, withdrawn, refused, or their broker has just failed."""
        settled = self._fall_due(now)
        opens: list[Open] = []
        waiting, self._unsent = self._unsent, []
        wake_at = inf
        for request in waiting:
            if request.withdrawn is not never_withdrawn and request.withdrawn():
                request.on_done(RequestWithdrawnError(f"{request.name} was not sent: it was withdrawn"), now)
                settled += 1
                continue
            if request.expires_at <= now:
                settled += self._expire(request, now)
                continue
            ended, until = self._route(request, opens, now)
            settled += ended
            if until < wake_at:
                wake_at = until
        actions: list[Action] = []
        if self._shut:
            actions += [Shut(key=key) for key in self._shut]
            self._shut.clear()
        actions += opens
        for key in sorted(self._stirred):
            link = self._by_key.get(key)
            if link is None:
                continue
            if data := link.data_to_send():
                actions.append(Write(key=key, data=data))
            if work := link.take_work():
                actions.append(Run(key=key, work=work))
            self._due[key] = link.wake_at()
        self._stirred.clear()
        return Plan(actions=tuple(actions), wake_at=min(wake_at, min(self._due.values(), default=inf)), settled=settled)

    # What happened, as the shell reports it.

    def opened(self, key: int, now: float) -> None:
        """Connection ``key`` has its socket."""
        if link := self._by_key.get(key):
            link.opened(now)
            self._stirred.add(key)

    def open_failed(self, key: int, error: KafkaError, now: float) -> None:
        """Connection ``key`` could not be made. Requests that wait for its broker end at once."""
        self.lost(key, error, now)

    def get_buffer(self, key: int) -> memoryview | None:
        """Return where the bytes of connection ``key`` go, or ``None`` when nothing is to be read from it any more."""
        link = self._by_key.get(key)
        return link.get_buffer() if link else None

    def received(self, key: int, count: int, now: float) -> int:
        """``count`` bytes were written into the buffer of connection ``key``. Return how many answers that completed."""
        link = self._by_key.get(key)
        if link is None:
            return 0
        self._stirred.add(key)
        done = link.received(count, now)
        if done and link.proven:
            self._reachability.answered(now)
        if link.key != key:
            self._note(key, link, now)
        return done

    def worked(self, key: int, outcome: Any, now: float) -> bool:
        """The work for connection ``key`` has ended with ``outcome``, its result or a ``KafkaError``. Return whether it goes on."""
        if link := self._by_key.get(key):
            self._stirred.add(key)
            link.worked(outcome, now)
            self._note(key, link, now)
        return key in self._by_key

    def lost(self, key: int, error: KafkaError | None, now: float) -> None:
        """Connection ``key`` broke with ``error``, or the broker closed it (``None``)."""
        if link := self._by_key.get(key):
            self._forget(key)
            link.lost(error, now)
            self._failed(link, now)

    # What the managers ask.

    @property
    def changes(self) -> int:
        """A number that grows with every change of a connection's state."""
        return self._shared.common.moves

    def has_usable_node(self, now: float) -> bool:
        """Some broker is connected, being connected, or worth another attempt. Without one it is time to bootstrap again (KIP-899).

        A connection that was cut is worth one; a broker that cannot be reached is after its backoff, a server to start from is not.
        """
        tried = [link for node_id in self._servers.current if (link := self._links.get((node_id, Channel.MAIN))) is not None]
        if len(tried) < len(self._servers.current) or any(link.is_open or not link.history.is_hopeless for link in tried):
            return True
        return bool(self._servers.named) and not all(link.in_backoff(now) for link in tried)

    def versions(self) -> BrokerVersions | None:
        """Return what a broker that is connected offers; ``None`` while none is."""
        return next((link.versions for link in self._links.values() if link.versions is not None), None)

    @property
    def unreachable_since(self) -> float | None:
        """Since when no broker can be reached; ``None``: one can."""
        return self._reachability.unreachable_since

    def reachability(self) -> Reachability:
        """Return whether any broker can be reached."""
        return self._reachability.value()

    def problem(self) -> KafkaError | None:
        """Return the first of ``problems``."""
        return next(iter(self.problems()), None)

    def problems(self) -> list[KafkaError]:
        """Return why brokers cannot be talked to: the last failures, or what connections that are not ready are waiting for.

        Permanent failures come first, those of logins before all.
        """
        errors = [link.history.error for link in self._links.values() if link.history.error is not None]
        if errors:
            return sorted(errors, key=lambda error: (not isinstance(error, AuthenticationFailedError), error.retriable))
        waiting = (link for link in self._links.values() if not link.state.may_send)
        return [KafkaConnectionError(f"{link.node} {link.standing}") for link in waiting]

    def take_misrouted(self) -> KafkaError | None:
        """Return, once, that an address leads to another broker than the metadata say, or to another cluster's."""
        error, self._misrouted = self._misrouted, None
        return error

    def connection_states(self) -> tuple[ConnectionStatistics, ...]:
        """Return one value per known connection."""
        return tuple(
            ConnectionStatistics(
                node=link.node, channel=link.channel, state=link.state, in_flight=link.in_flight, retry_at=link.history.retry_at
            )
            for link in self._links.values()
        )

    # Routing.

    def _route(self, request: UnsentRequest, opens: list[Open], now: float) -> tuple[int, float]:
        """Send ``request``, end it, or keep it. Return how many requests ended and when to look again."""
        if request.node_id is None:
            return self._route_anywhere(request, opens, now)
        node = self._servers.current.get(request.node_id)
        if node is None:
            text = f"{request.name} was not sent: broker {request.node_id} is not in the cluster's metadata"
            return self._settle(request, NodeNotReadyError(text), now), inf
        link = self._links.get((node.id, request.channel)) or self._link(node, request.channel)
        reason = None
        if request.channel is Channel.GROUP and link.is_abandoned:
            reason = "closed, since the requests in flight are not awaited any more"
        elif request.final and link.is_doubtful(now):  # there may be no time to find out whether it carries anything
            reason = "closed, since nothing has come for too long and the consumer stops"
        if reason is not None:
            cut = self._close(link, now, reason)
            ended, until = self._route(request, opens, now)
            return cut + ended, until
        if link.can_send(now, final=request.final):
            return self._send(request, link, now), inf
        if link.in_backoff(now):
            return self._refuse(request, link, now), inf
        if link.can_open(now):
            self._open(link, opens, now)
        return self._keep(request, link.throttled_until if link.throttled_until > now else inf)

    def _route_anywhere(self, request: UnsentRequest, opens: list[Open], now: float) -> tuple[int, float]:
        links = self._shuffled(request.channel)
        ready = [link for link in links if link.can_send(now, final=request.final)]
        fresh = [link for link in links if link.can_open(now)]
        hedges = [link.opened_at + HEDGE for link in links if link.setting_up and now < link.opened_at + HEDGE]
        if ready:
            late = {link.node.id for link in self._links.values() if link.is_late(now)}
            prompt, fresh = ([link for link in some if link.node.id not in late] for some in (ready, fresh))
            # A broker that owes an answer gets the request only if no other will be there in time: none may be tried now, or the
            # one that is being tried takes long.
            may_be_there = hedges or (fresh and not any(link.setting_up for link in links))
            if prompt or not may_be_there:
                return self._send(request, min(prompt or ready, key=attrgetter("in_flight")), now), inf
        if fresh and not hedges:
            link = min(fresh, key=attrgetter("history.failures"))
            self._open(link, opens, now)
            hedges = [now + HEDGE]
            fresh.remove(link)
        if not fresh and not any(link.is_open for link in links):
            refusals = [link.history.error for link in links if isinstance(link.history.error, AuthenticationFailedError)]
            if refusals:
                # Every broker has failed, and one of them with an error that later attempts would get too.
                return self._settle(request, refusals[0], now), inf
        deadlines = (hedges if fresh or ready else []) + [link.history.retry_at for link in links if link.in_backoff(now)]
        deadlines += [link.throttled_until for link in links if link.throttled_until > now]
        return self._keep(request, min(deadlines, default=inf))

    def _send(self, request: UnsentRequest, link: Link, now: float) -> int:
        if link.key is not None:
            self._stirred.add(link.key)
        return link.send(request, now)

    def _keep(self, request: UnsentRequest, until: float) -> tuple[int, float]:
        self._unsent.append(request)
        return 0, min(until, request.expires_at)

    def _shuffled(self, channel: Channel) -> list[Link]:
        """The links of all current brokers, starting at a random one, so that equals share the load."""
        links = [self._link(node, channel) for node in self._servers.current.values()]
        start = int(self._shared.random() * len(links))
        return links[start:] + links[:start]

    def _open(self, link: Link, opens: list[Open], now: float) -> None:
        self._last_key += 1
        attempt = link.history.failures
        timeout = link.open(self._last_key, now)
        self._by_key[self._last_key] = link
        self._stirred.add(self._last_key)
        self._unsure = True
        opens.append(Open(key=self._last_key, node=link.node, channel=link.channel, attempt=attempt, timeout=timeout))

    # Links.

    def _link(self, node: Node, channel: Channel) -> Link:
        link = self._links.get((node.id, channel))
        if link is None:
            history = self._history.pop((node.host, node.port, channel), None)
            link = self._links[node.id, channel] = Link(node, channel, self._shared, history)
        return link

    def _drop(self, node_id: int, channel: Channel, now: float, reason: str) -> None:
        link = self._links.pop((node_id, channel))
        if link.is_open:
            self._close(link, now, reason)
        # While no broker is known, each name may come back with the next answer, and so may its outage: to end it would have it
        # said anew each time. As the consumer ends, all of its outages do, unsaid.
        named = self._servers.named.get(node_id)
        is_called_so = named is not None and (named.host, named.port) == (link.node.host, link.node.port)
        if self._servers.named and not is_called_so and self._refusal != _CLOSED:
            link.lapse(now)
        self._history = {address: past for address, past in self._history.items() if past.retry_at > now}
        if link.history.failures:
            self._history[link.node.host, link.node.port, channel] = link.history

    def _close(self, link: Link, now: float, reason: str) -> int:
        if link.key is not None:
            self._forget(link.key)
            self._shut.append(link.key)
        return link.shut(now, reason)

    def _forget(self, key: int) -> None:
        """Attempt ``key`` is over."""
        self._by_key.pop(key, None)
        self._due.pop(key, None)
        self._stirred.discard(key)
        self._unsure = True

    def _adopt_bootstrap(self, now: float) -> None:
        by_address = {(node.host, node.port): node for node in reversed(self._servers.named.values())}
        for (node_id, channel), link in list(self._links.items()):
            node = by_address.get((link.node.host, link.node.port)) if node_id not in self._servers.named and link.is_open else None
            if node is not None and (node.id, channel) not in self._links:
                del self._links[node_id, channel]
                self._links[node.id, channel] = link
                link.adopt(node, now)
                if link.key is not None:
                    self._stirred.add(link.key)

    def _fall_due(self, now: float) -> int:
        """Look at every link that may have something to do: all of them if one is due or anything else is new."""
        current = self._servers.current
        settled = 0
        for key in sorted(self._stirred):
            if link := self._by_key.get(key):
                if now >= self._due.get(key, -inf):
                    settled += self._tick(key, link, now)
                self._unsure |= link.node.id not in current
        if not self._unsure and now < min(self._due.values(), default=inf):
            return settled
        self._unsure = False
        for key, link in list(self._by_key.items()):
            settled += self._tick(key, link, now)
        self._stirred.update(self._by_key)
        for (node_id, channel), link in list(self._links.items()):
            if link.in_flight:
                continue  # neither retired nor idle
            if node_id not in current:
                self._drop(node_id, channel, now, "not needed any more")
            elif link.is_idle(now):
                self._close(link, now, "idle")
        return settled

    def _tick(self, key: int, link: Link, now: float) -> int:
        if key not in self._by_key:
            return 0  # another connection that was looked at just now has cast doubt on it
        silent_since = link.silence(now)
        settled = link.tick(now)
        if link.key == key:
            return settled
        settled += self._note(key, link, now)
        return settled if silent_since is None else settled + self._doubt(link.node, silent_since, now)

    def _doubt(self, node: Node, silent_since: float, now: float) -> int:
        """Close what may be as dead as a connection to ``node`` that has brought nothing since then, though it was asked.

        A load balancer that forgets its connections, or a broker's machine that loses its power, says nothing to anybody. If each
        connection were found dead by a request of its own, a member would lose its place before the last one is. Connections that
        brought something meanwhile are good. What is asked next opens new ones, which costs little if these were good too.
        """
        ended = 0
        for link in list(self._by_key.values()):
            is_sibling = (link.node.host, link.node.port) == (node.host, node.port)
            if link.is_silent_since(silent_since) and (is_sibling or not link.may_be_held(now)):
                ended += self._close(link, now, f"closed, since nothing came from {node} either, though it was asked")
        return ended

    def _note(self, key: int, link: Link, now: float) -> int:
        """Catch up with a link that has given up attempt ``key`` by itself."""
        if link.key == key:
            return 0
        self._forget(key)
        self._shut.append(key)
        return self._failed(link, now)

    def _may_hope(self) -> bool:
        """Some broker has not been tried since it last answered, or its connection may yet bring an answer."""
        tried = {link.node.id for link in self._links.values() if link.history.vain}
        return not self._servers.current.keys() <= tried or any(
            link.is_open and (link.proven or not link.history.vain) for link in self._links.values()
        )

    # The end of requests.

    def _failed(self, link: Link, now: float) -> int:
        """End the requests that wait for the broker of ``link``, whose connection has just failed."""
        if isinstance(link.history.error, RebootstrapRequiredError):
            self._misrouted = link.history.error
        if not link.proven:
            self._reachability.attempt_failed(now, was_last=not self._may_hope())
        kept, ended = _split(self._unsent, lambda request: (request.node_id, request.channel) != (link.node.id, link.channel))
        self._unsent = kept
        return sum(self._refuse(request, link, now) for request in ended)

    def _refuse(self, request: UnsentRequest, link: Link, now: float) -> int:
        error = link.history.error
        if isinstance(error, AuthenticationFailedError):
            return self._settle(request, error, now)
        text = f"{request.name} was not sent: no connection to {link.peer}: {error}"
        return self._settle(request, KafkaConnectionError(text), now, cause=error)

    def _expire(self, request: UnsentRequest, now: float) -> int:
        links = [
            link for link in self._links.values() if link.channel is request.channel and request.node_id in (None, link.node.id)
        ]
        failed = [link for link in links if link.history.error is not None]
        cause = max(failed, key=attrgetter("history.retry_at")).history.error if failed else None
        if any(link.throttled_until > now for link in links):
            why = "the broker throttles this client"
        elif cause is not None:
            why = str(cause)
        elif not self._servers.current:
            why = "no broker is known"
        else:
            why = "; ".join(f"{link.node} {link.standing}" for link in links if link.setting_up) or "no connection was ready"
        peer = "any broker" if request.node_id is None else f"broker {request.node_id}"
        return self._settle(request, KafkaTimeoutError(f"{request.name} to {peer} was not sent in time: {why}"), now, cause=cause)

    def _settle(self, request: UnsentRequest, error: KafkaError, now: float, cause: BaseException | None = None) -> int:
        peer = "any broker" if request.node_id is None else str(self._servers.current.get(request.node_id, request.node_id))
        settle(request, error, peer=peer, now=now, trace=self._shared.trace, cause=cause)
        return 1


def _split(
    requests: Iterable[UnsentRequest], keep: Callable[[UnsentRequest], bool]
) -> tuple[list[UnsentRequest], list[UnsentRequest]]:
    kept: list[UnsentRequest] = []
    ended: list[UnsentRequest] = []
    for request in requests:
        (kept if keep(request) else ended).append(request)
    return kept, ended
