"""One broker in one channel: its connection over all attempts, as a state table.

Java: ``ClusterConnectionStates``, the connection half of ``NetworkClient``. KIP-219 (throttling), 368 (re-authentication), 511
(client name), 580 and 601 (backoff, setup timeout), 896 (ApiVersions first).

Whatever is not in ``TRANSITIONS`` is a bug and raises; nothing but ``_feed`` changes the state.
"""

from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Any, Final

from ..errors import (
    AuthenticationFailedError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    RebootstrapRequiredError,
    SslAuthenticationError,
    TlsHandshakeError,
    detached,
    for_code,
)
from ..model import Node
from ..states import StateTable
from ..trace import ConnectionClosed, ConnectionOpened, Fault, Recovered, TraceEvent, connection_outage
from ..values import define, field, frozen
from ..wire import IDENTIFYING, BrokerVersions, Request, next_api_versions
from ..wire.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from .auth import Authenticated, Authenticator, AuthenticatorFactory, PendingWork, Step
from .network_settings import HANDSHAKE_FRAME_LIMIT, SOFTWARE_NAME, SOFTWARE_VERSION, NetworkSettings
from .protocol import MAX_IN_FLIGHT, InFlight, Protocol, settle
from .request import Channel, UnsentRequest
from .session import Session


class ConnectionState(Enum):
    """The state of a connection."""

    DISCONNECTED = "disconnected"
    WAITING = "waiting"
    """The last attempt failed; the next one waits for the backoff."""
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    """The socket is open and ApiVersions is in flight."""
    AUTHENTICATING = "authenticating"
    PREPARING = "preparing to authenticate again"
    """The session is about to end, and we prepare a new one, for example by fetching a token; requests go on."""
    RENEWING = "authenticating again"
    """The session is renewed on the same connection (KIP-368); requests in flight are still answered, new ones wait."""
    READY = "ready"

    __hash__ = object.__hash__  # members are one of a kind; Enum's own is a call of Python for each look into a set

    @property
    def may_send(self) -> bool:
        """Requests may be written."""
        return self in _SENDING


class ConnectionInput(Enum):
    """What can happen to a connection."""

    OPEN = "open"
    OPENED = "opened"
    NEGOTIATED = "negotiated"
    AUTHENTICATED = "authenticated"
    RENEWAL_DUE = "renewal due"
    PREPARED = "prepared"
    POSTPONED = "postponed"
    """The renewal could not be prepared; it is tried again."""
    SESSION_ENDS = "session ends"
    """From now on only a renewal may be sent, and it must not wait any longer."""
    FAILED = "failed"
    SHUT = "shut"
    """Closed by us on purpose; no backoff."""


_S = ConnectionState
_I = ConnectionInput

TRANSITIONS: Final = StateTable(
    "a connection",
    {
        (_S.DISCONNECTED, _I.OPEN): _S.CONNECTING,
        (_S.WAITING, _I.OPEN): _S.CONNECTING,
        (_S.CONNECTING, _I.OPENED): _S.NEGOTIATING,
        (_S.NEGOTIATING, _I.NEGOTIATED): _S.AUTHENTICATING,
        (_S.AUTHENTICATING, _I.AUTHENTICATED): _S.READY,
        (_S.READY, _I.RENEWAL_DUE): _S.PREPARING,
        (_S.READY, _I.SESSION_ENDS): _S.RENEWING,
        (_S.PREPARING, _I.PREPARED): _S.RENEWING,
        (_S.PREPARING, _I.POSTPONED): _S.READY,
        (_S.PREPARING, _I.SESSION_ENDS): _S.RENEWING,
        (_S.RENEWING, _I.AUTHENTICATED): _S.READY,
        (_S.CONNECTING, _I.FAILED): _S.WAITING,
        (_S.NEGOTIATING, _I.FAILED): _S.WAITING,
        (_S.AUTHENTICATING, _I.FAILED): _S.WAITING,
        (_S.PREPARING, _I.FAILED): _S.WAITING,
        (_S.RENEWING, _I.FAILED): _S.WAITING,
        (_S.READY, _I.FAILED): _S.WAITING,
        (_S.CONNECTING, _I.SHUT): _S.DISCONNECTED,
        (_S.NEGOTIATING, _I.SHUT): _S.DISCONNECTED,
        (_S.AUTHENTICATING, _I.SHUT): _S.DISCONNECTED,
        (_S.PREPARING, _I.SHUT): _S.DISCONNECTED,
        (_S.RENEWING, _I.SHUT): _S.DISCONNECTED,
        (_S.READY, _I.SHUT): _S.DISCONNECTED,
    },
)

_FRESH: Final = 1.0
"""Seconds for which a connection that has just been authenticated is not idle."""
_SETTING_UP: Final = frozenset({_S.CONNECTING, _S.NEGOTIATING, _S.AUTHENTICATING, _S.RENEWING})
_SENDING: Final = frozenset({_S.READY, _S.PREPARING})
_OPEN: Final = _SETTING_UP | _SENDING
_MADE: Final = _SENDING | {_S.RENEWING}


@define(eq=False)
class History:
    """The state of an address that outlives a connection, so that no backoff is forgotten."""

    failures: int = 0
    """Connections in a row that ended, with no answer since; the first of them may have brought some before."""
    vain: int = 0
    """Attempts in a row that ended before they brought a single answer."""
    setup_failures: int = 0
    """Attempts in a row that got no socket (KIP-601)."""
    retry_at: float = -inf
    error: KafkaError | None = None

    @property
    def is_hopeless(self) -> bool:
        """Another attempt would end as the last one did: the port is closed, the login is refused, or it was cut short twice in a
        row.

        A connection that was cut short once may have been unlucky. So may one whose TLS handshake failed, even with an alert: at
        that point the peer has not proven that it is the broker.
        """
        return bool(self.setup_failures) or self.failures > 1 or isinstance(self.error, AuthenticationFailedError)


@define(eq=False)
class Common:
    """What the links of one delegate have found out together."""

    moves: int = 0
    """How often the state of any link changed."""
    cluster_id: str | None = None
    """The cluster that its brokers are meant to be of; ``None``: unknown, or of no interest."""
    checks_identity: bool = False
    """The broker that was heard last refuses connections that are meant for another one (KIP-1242)."""


@frozen(kw_only=True)
class Surroundings:
    """What all links of one delegate have in common."""

    settings: NetworkSettings
    random: Callable[[], float]
    trace: Callable[[TraceEvent], None]
    authenticators: AuthenticatorFactory | None = None
    """``None`` without authentication."""
    answered: set[tuple[str, int]] = field(factory=set)
    """Addresses that have answered a request at some time, on any link."""
    common: Common = field(factory=Common)


@define(eq=False)
class PendingLogin:
    """The authentication that is under way on a connection."""

    conversation: Authenticator | None = None
    work: PendingWork | None = None
    """What the authenticator waits for and has not been taken yet."""
    work_ends_at: float = inf
    """When the authenticator's work takes too long; infinity if none is under way."""
    introduced: bool = False
    """The broker has been told which one is meant, and has not refused."""


class Link:
    """The connection to ``node`` in ``channel``, over all attempts."""

    def __init__(self, node: Node, channel: Channel, shared: Surroundings, history: History | None = None) -> None:
        self.node = node
        self.channel = channel
        self.history = history or History()
        self.state = ConnectionState.WAITING if self.history.failures else ConnectionState.DISCONNECTED
        self.key: int | None = None
        """Number of the current attempt; ``None`` without one."""
        self.opened_at = -inf
        """When the current attempt began."""
        self.throttled_until = -inf
        """Requests wait until then, on a new connection too."""
        self.versions: BrokerVersions | None = None
        self.proven = False
        """The current or last attempt has had an answer beyond the handshake."""
        self._shared = shared
        self._login = PendingLogin()
        self._protocol: Protocol | None = None
        self._setup_timeout = 0.0
        self._session = Session()
        self._used_at = -inf

    # What the delegate asks.

    @property
    def peer(self) -> str:
        """The broker's name in texts and trace events."""
        return str(self.node) if self.channel is Channel.MAIN else f"{self.node} {self.channel.value}"

    @property
    def is_open(self) -> bool:
        """There is an attempt: a socket, or one is being made."""
        return self.state in _OPEN

    @property
    def standing(self) -> str:
        """What an attempt that is not ready waits for."""
        match self.state:
            case ConnectionState.CONNECTING:
                return "has not accepted the connection yet"
            case ConnectionState.NEGOTIATING if self._protocol and self._protocol.silent:
                return "accepted the connection and has sent nothing yet"
            case state:
                return f"has not answered: {state.value}"

    @property
    def setting_up(self) -> bool:
        """An attempt is on its way to READY (or authenticates again)."""
        return self.state in _SETTING_UP

    @property
    def in_flight(self) -> int:
        """Requests written and not answered."""
        return self._protocol.in_flight if self._protocol else 0

    @property
    def awaits_final(self) -> bool:
        """A final request is in flight."""
        return self._protocol is not None and self._protocol.awaits_final

    @property
    def is_abandoned(self) -> bool:
        """See ``Protocol``."""
        return self._protocol is not None and self._protocol.is_abandoned

    def is_late(self, now: float) -> bool:
        """A response has been overdue for a while."""
        return self._protocol is not None and self._protocol.is_late(now)

    def is_doubtful(self, now: float) -> bool:
        """See ``Protocol``."""
        return self._protocol is not None and self.state in _SENDING and self._protocol.is_doubtful(now)

    def may_be_held(self, now: float) -> bool:
        """See ``Protocol``."""
        return self._protocol is not None and self._protocol.may_be_held(now)

    def is_silent_since(self, moment: float) -> bool:
        """The connection was made before that moment and has not brought a byte since."""
        return self._protocol is not None and self.state in _MADE and self._protocol.is_silent_since(moment)

    def silence(self, now: float) -> float | None:
        """Return when the request was sent that is overdue now, if the connection has not brought a byte since.

        So a broker is told apart that is slow from a connection that carries nothing any more.
        """
        if self._protocol is None or self.state not in _MADE:
            return None
        late = self._protocol.overdue(now, self._shared.settings.request_timeout)
        return late.sent_at if late and self._protocol.is_silent_since(late.sent_at) else None

    def in_backoff(self, now: float) -> bool:
        """The last attempt failed and a new one is not allowed yet."""
        return self.state is ConnectionState.WAITING and now < self.history.retry_at

    def can_open(self, now: float) -> bool:
        """A new attempt may be made."""
        return not self.is_open and not self.in_backoff(now)

    def can_send(self, now: float, *, final: bool = False) -> bool:
        """Whether a request may be written now. A final one goes out although the broker throttles us."""
        protocol = self._protocol
        if protocol is None or self.state not in _SENDING or protocol.in_flight >= MAX_IN_FLIGHT:
            return False
        return final or now >= self.throttled_until

    def wake_at(self) -> float:
        """Return when ``tick`` has to be called next, in absolute seconds."""
        protocol = self._protocol
        if protocol is None:
            return inf
        if self.state not in _SENDING:
            return min(protocol.wake_at(self._shared.settings.request_timeout), self._login.work_ends_at)
        renewal = self._session.renew_at if self.state is ConnectionState.READY else self._session.ends_at
        overdue = protocol.wake_at(self._shared.settings.request_timeout)
        if overdue < inf:
            return min(overdue, self._login.work_ends_at, renewal)
        return min(self._used_at + self._shared.settings.max_idle, self._login.work_ends_at, renewal)

    # What the delegate tells.

    def open(self, key: int, now: float) -> float:
        """Begin attempt number ``key``; return the seconds that it may take to get a socket, for each address of the host."""
        self._feed(ConnectionInput.OPEN)
        self.key = key
        self.opened_at = now
        self.proven = False
        self._setup_timeout = self._shared.settings.setup.delay(self.history.setup_failures, self._shared.random())
        return self._setup_timeout

    def opened(self, now: float) -> None:
        """The socket is there."""
        self._feed(ConnectionInput.OPENED)
        self.history.setup_failures = 0
        self._used_at = now
        self._protocol = Protocol(
            client_id=self._shared.settings.client_id,
            peer=self.peer,
            limit=min(HANDSHAKE_FRAME_LIMIT, self._shared.settings.frame_limit),
            trace=self._shared.trace,
        )
        self._ask_versions(IDENTIFYING if self._is_meant and self._shared.common.checks_identity else IDENTIFYING - 1, now)

    def send(self, request: UnsentRequest, now: float) -> int:
        """Put ``request`` in flight. Return 1 if it ended at once instead, because the broker cannot take it, else 0."""
        if self._protocol is None or self.versions is None:
            raise RuntimeError(f"{self.peer}: send() needs a connection that is ready, this one is {self.state.value}")
        try:
            version = self.versions.choose(request.message, lowest=request.lowest_version, highest=request.highest_version)
            self._protocol.ask(request, version, now)
        except KafkaError as error:
            settle(request, error, peer=self.peer, now=now, trace=self._shared.trace)
            return 1
        self._used_at = now
        return 0

    def data_to_send(self) -> bytes:
        """Return the bytes to write now, and forget them."""
        return self._protocol.data_to_send() if self._protocol else b""

    def get_buffer(self) -> memoryview | None:
        """Return where the next bytes of the socket go, or ``None`` when nothing is to be read any more."""
        return self._protocol.frames.get_buffer() if self._protocol else None

    def received(self, count: int, now: float) -> int:
        """``count`` bytes were written into the buffer. Return how many answers that completed."""
        protocol = self._protocol
        if protocol is None:
            return 0
        protocol.receive(count, now)
        # A renewal is no use of a connection, or none that needs it would ever be idle.
        self._used_at = self._used_at if self.state is ConnectionState.RENEWING else now
        done = 0
        while self._protocol is protocol:  # a handshake answer can end the attempt
            try:
                answer = protocol.next_answer(now)
            except (KafkaProtocolError, SslAuthenticationError) as error:
                self.fail(error, now)
                break
            if answer is None:
                break
            request, response, throttle = answer
            done += 1
            if throttle:
                self._throttled(protocol, throttle, now)
            if (stranger := self._stranger(response)) is not None:
                self.fail(stranger, now)
                settle(request, self._closed_by(stranger), peer=self.peer, now=now, trace=self._shared.trace)
                break
            if self.state in _SENDING:
                # Not before: a port that demands SASL of a client without it completes the handshake, then hangs up each time.
                if not self.proven:
                    self.proven = True
                    self._shared.answered.add((self.node.host, self.node.port))
                self.history.failures = self.history.vain = 0
                self.history.error = None
            request.on_done(response, now)
            if not protocol.frames.pending:
                break
        return done

    def _throttled(self, protocol: Protocol, seconds: float, now: float) -> None:
        """The broker asks us to send nothing, and reads nothing on this connection meanwhile (KIP-219)."""
        self.throttled_until = max(self.throttled_until, now + seconds)
        protocol.unread_until = max(protocol.unread_until, now + seconds)
        # While the token is still fetched, what was written last is a request of the application, which has its own time.
        if self.state is ConnectionState.RENEWING and self._login.work_ends_at == inf:
            protocol.put_off(seconds)

    def tick(self, now: float) -> int:
        """Do what has fallen due: give up an overdue connection, authenticate again. Return how many requests ended."""
        protocol = self._protocol
        if protocol is None:
            return 0
        late = protocol.overdue(now, self._shared.settings.request_timeout)
        if late is not None:
            return self.fail(KafkaConnectionError(self._why_given_up(late, now)), now)
        before = self.state
        if before in _SENDING and now >= self._session.ends_at:
            self._feed(ConnectionInput.SESSION_ENDS)  # what is being prepared may still come in time to keep the connection
        if now >= self._login.work_ends_at:
            return self._not_authenticated(KafkaConnectionError(f"{self.peer}: the authentication took too long"), now)
        if before is ConnectionState.READY and now >= self._session.renew_at:
            if self.state is before:
                self._feed(ConnectionInput.RENEWAL_DUE)
            self._authenticate(now)
        return 0

    def is_idle(self, now: float) -> bool:
        """Ready, nothing in flight, and unused for so long that it should be closed."""
        return self.state in _SENDING and not self.in_flight and now >= self._used_at + self._shared.settings.max_idle

    def lost(self, error: KafkaError | None, now: float) -> int:
        """The socket failed with ``error``, or the peer closed it (``None``). Return how many requests ended."""
        return self.fail(error or KafkaConnectionError(self._why_closed()), now)

    def fail(self, error: KafkaError, now: float) -> int:
        """The attempt failed. Back off, end what is in flight and return how many requests that were."""
        error = detached(error)
        before = self.state
        if before is ConnectionState.RENEWING and isinstance(error, AuthenticationFailedError):
            # A session that the broker does not renew does not rule out a new one; if it refuses us there too, that is final.
            refused = KafkaConnectionError(f"{self.peer}: connection closed, the session was not renewed: {error}")
            refused.__cause__ = error
            error = refused
        history = self.history
        if isinstance(error, SslAuthenticationError) and not history.failures:
            unlucky = TlsHandshakeError(f"{error}; tried once more")
            unlucky.__cause__ = error
            error = unlucky
        self._feed(ConnectionInput.FAILED)
        history.retry_at = now + self._shared.settings.reconnect.delay(history.failures, self._shared.random())
        history.failures += 1
        history.vain += not self.proven
        history.error = error
        if before is ConnectionState.CONNECTING and not isinstance(error, (TlsHandshakeError, SslAuthenticationError)):
            history.setup_failures += 1
        if before not in _SENDING or self.in_flight:
            text = f"connection to {self.peer} failed while {before.value}"
            self._shared.trace(Fault(now=now, text=text, error=error, subject="network", outage=connection_outage(self.peer)))
        return self._end(self._closed_by(error), error, now)

    def shut(self, now: float, reason: str) -> int:
        """Close on purpose. End what is in flight with ``reason`` and return how many requests that were."""
        self._feed(ConnectionInput.SHUT)
        return self._end(KafkaConnectionError(f"{self.peer}: {reason}"), None, now)

    def lapse(self, now: float) -> None:
        """Nothing will be asked under this name any more, so an outage of it will not end by a connection."""
        if self.history.failures:
            self._shared.trace(Recovered(now=now, outage=connection_outage(self.peer), subject="network", needed=False))

    def rename(self, node: Node) -> None:
        """The broker behind the connection is called ``node`` now."""
        self.node = node
        if self._protocol:
            self._protocol.peer = self.peer

    def adopt(self, node: Node, now: float) -> None:
        """The connection was made to the address of ``node`` before the node was known. Whether it leads there is asked now."""
        self.lapse(now)
        self.rename(node)
        if self.state not in _SENDING or self.versions is None:
            return
        if self._is_meant:
            self._check_identity(self.versions, self._recognized, now)
        else:
            self._end_outage(now)

    @property
    def _is_meant(self) -> bool:
        """It is known which broker the connection is to lead to."""
        return self.node.id >= 0 and self._shared.common.cluster_id is not None

    def _introduction(self) -> ApiVersionsRequest:
        cluster_id, node_id = (self._shared.common.cluster_id, self.node.id) if self._is_meant else (None, -1)
        return ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME,
            client_software_version=SOFTWARE_VERSION,
            cluster_id=cluster_id,
            node_id=node_id,
        )

    def _identified(self, outcome: ApiVersionsResponse | MetadataResponse | KafkaError, now: float) -> None:
        if not isinstance(outcome, KafkaError) and outcome.error_code == RebootstrapRequiredError.errno:
            self.fail(self._misrouted(), now)

    def _recognized(self, outcome: ApiVersionsResponse | MetadataResponse | KafkaError, now: float) -> None:
        self._identified(outcome, now)
        if self.state in _SENDING:
            self._end_outage(now)

    def _end_outage(self, now: float) -> None:
        """A connection that was made under another name works: one under the name of now may have failed before."""
        self._shared.trace(Recovered(now=now, outage=connection_outage(self.peer), subject="network"))

    def _admitted(self, outcome: ApiVersionsResponse | MetadataResponse | KafkaError, now: float) -> None:
        self._identified(outcome, now)
        if self.state in _SENDING:  # else no outage is over, and the log would say again what is wrong
            self._shared.trace(ConnectionOpened(now=now, node=self.peer))

    def _check_identity(self, versions: BrokerVersions, done: Callable[[Any, float], None], now: float) -> None:
        """Ask whether the connection leads where it is meant to, or, a broker before 4.4, at least which cluster it leads to.

        Nothing waits for that: a broker answers in order, so this answer is looked at before any other one counts.
        """
        request = self._introduction() if versions.checks_identity else MetadataRequest(topics=())
        try:
            self._ask(request, versions.choose(request), done, now)
        except KafkaError as error:
            self.fail(error, now)

    def _misrouted(self) -> RebootstrapRequiredError:
        return RebootstrapRequiredError(f"another broker than {self._meant} answers at {self.node.host}:{self.node.port}")

    def _closed_by(self, error: KafkaError) -> KafkaError:
        """Return the error for requests in flight. That of a misrouted connection is none of their broker's answers."""
        if not isinstance(error, RebootstrapRequiredError):
            return error
        closed = KafkaConnectionError(f"{self.peer}: connection closed, {error}")
        closed.__cause__ = error
        return closed

    def _stranger(self, response: object) -> RebootstrapRequiredError | None:
        """Return what is wrong if this is another cluster's answer.

        What a server to start from says is not judged: where its name leads is the user's decision.
        """
        if not isinstance(response, MetadataResponse) or response.cluster_id is None or not self._is_meant:
            return None
        if response.cluster_id == self._shared.common.cluster_id:
            return None
        where = f"{self.node.host}:{self.node.port}"
        return RebootstrapRequiredError(f"cluster {response.cluster_id!r} answers at {where}, which was {self._meant}")

    @property
    def _meant(self) -> str:
        return f"broker {self.node.id} of cluster {self._shared.common.cluster_id!r}"

    # The handshake.

    def _ask_versions(self, number: int, now: float) -> None:
        def done(outcome: ApiVersionsResponse | KafkaError, at: float) -> None:
            if isinstance(outcome, KafkaError):
                return  # the attempt is already ending, with that error
            try:
                lower = next_api_versions(number, outcome)
            except KafkaError as error:
                self.fail(error, at)
                return
            if lower is not None:
                self._ask_versions(lower, at)
            elif outcome.error_code:
                misrouted = outcome.error_code == RebootstrapRequiredError.errno
                self.fail(self._misrouted() if misrouted else for_code(outcome.error_code), at)
            else:
                self._login.introduced = self._is_meant and number >= IDENTIFYING
                self._negotiated(BrokerVersions.from_response(outcome), at)

        self._ask(self._introduction(), number, done, now)

    def _negotiated(self, versions: BrokerVersions, now: float) -> None:
        if versions.stranger is not None:
            self.fail(KafkaConnectionError(f"{self.peer} is {versions.stranger}"), now)
            return
        self.versions = versions
        self._shared.common.checks_identity = versions.checks_identity
        self._feed(ConnectionInput.NEGOTIATED)
        self._authenticate(now)

    def _authenticate(self, now: float) -> None:
        if self._shared.authenticators is None:
            self._authenticated(Authenticated(), now)
            return
        conversation = self._login.conversation = self._shared.authenticators(self.node)
        offered = self.state is not ConnectionState.AUTHENTICATING
        self._advance_login(lambda: conversation.start(offered=offered), now)

    def _advance_login(self, step: Callable[[], Step], now: float) -> None:
        try:
            answer = step()
        except KafkaError as error:
            self._not_authenticated(error, now)
            return
        if isinstance(answer, PendingWork):
            self._login.work = answer
            self._login.work_ends_at = now + self._setup_timeout
            return
        if self.state is ConnectionState.PREPARING:
            self._feed(ConnectionInput.PREPARED)
        if isinstance(answer, Authenticated):
            self._authenticated(answer, now)
            return
        try:
            number = (self.versions or BrokerVersions()).choose(answer)
        except KafkaError as error:
            self.fail(error, now)
            return
        self._ask(answer, number, self._login_answered, now)

    def take_work(self) -> PendingWork | None:
        """Return the work that the authenticator asks for, once."""
        work, self._login.work = self._login.work, None
        return work

    def worked(self, outcome: Any, now: float) -> None:
        """The work last taken has ended with ``outcome``, its result or a ``KafkaError``. Nobody waits for it after its time."""
        if self._login.work_ends_at == inf:
            return
        self._login.work_ends_at = inf
        if isinstance(outcome, KafkaError):
            self._not_authenticated(outcome, now)
        else:
            self._login_answered(outcome, now)

    def _not_authenticated(self, error: KafkaError, now: float) -> int:
        """The conversation ended with ``error``. While the old session is good, that costs no connection."""
        if self.state is not ConnectionState.PREPARING:
            return self.fail(error, now)
        self._feed(ConnectionInput.POSTPONED)
        self._login = PendingLogin()
        self._session.postpone(now, self._shared.settings.login, self._shared.random())
        self._shared.trace(
            Fault(
                now=now,
                text=f"{self.peer}: the session cannot be renewed yet; trying again until it ends",
                error=error,
                subject="network",
            )
        )
        return 0

    def _login_answered(self, outcome: Any, now: float) -> None:
        conversation = self._login.conversation
        if isinstance(outcome, KafkaError) or conversation is None:
            return  # the attempt is already ending, with that error
        self._advance_login(lambda: conversation.receive(outcome), now)

    def _authenticated(self, result: Authenticated, now: float) -> None:
        before = self.state
        self._feed(ConnectionInput.AUTHENTICATED)
        introduced, self._login = self._login.introduced, PendingLogin()
        self._session = Session.granted(result.session_lifetime, now, self._shared.random())
        # However long the connection was not used: what has waited for the authentication is sent before it counts as idle.
        self._used_at = max(self._used_at, now - self._shared.settings.max_idle + _FRESH)
        if before is ConnectionState.RENEWING:
            return
        if self._protocol:
            self._protocol.frames.limit = self._shared.settings.frame_limit
        if self.versions is not None and self._is_meant and not introduced:
            self._check_identity(self.versions, self._admitted, now)
        else:
            self._shared.trace(ConnectionOpened(now=now, node=self.peer))

    def _ask(self, message: Request[Any], number: int, done: Callable[[Any, float], None], now: float) -> None:
        if self._protocol:
            # In a renewal this is queued after what is in flight, such as a long poll or a JoinGroup that waits for others.
            patience = min(self._setup_timeout, self._shared.settings.request_timeout)
            read_at = max(now, self._protocol.unread_until)
            expires_at = read_at + self._protocol.longest_wait + patience
            request = UnsentRequest(message=message, on_done=done, expires_at=expires_at, channel=self.channel)
            self._protocol.ask(request, number, now)

    # The end of an attempt.

    def _end(self, error: KafkaError, seen: KafkaError | None, now: float) -> int:
        protocol, self._protocol = self._protocol, None
        self.key = None
        self.versions = None
        self._login = PendingLogin()
        if protocol is None:
            return 0
        self._shared.trace(ConnectionClosed(now=now, node=self.peer, error=seen))
        return protocol.fail(error, now)

    def _why_given_up(self, late: InFlight, now: float) -> str:
        if self.state is not ConnectionState.NEGOTIATING or (self._protocol and not self._protocol.silent):
            return f"{self.peer}: connection closed, {late.request.name} was not answered in time"
        text = f"{self.peer} accepted the connection and sent nothing for {now - late.sent_at:.1f} s"
        return text if self._is_known else f"{text}; is it a Kafka port, and for this security_protocol?"

    @property
    def _is_known(self) -> bool:
        """Something that speaks Kafka has answered at this address."""
        return (self.node.host, self.node.port) in self._shared.answered

    def _why_closed(self) -> str:
        protocol = self._protocol
        if protocol and protocol.frames.pending:
            return f"{self.peer} closed the connection in the middle of an answer, {protocol.frames.pending} bytes into it"
        # A connection may always be cut. It is likely to be the port only if every connection so far was cut.
        suspect = self.history.failures > 0 and not self._is_known
        if protocol and protocol.silent:
            question = "; does the port speak another security_protocol?" if suspect else ""
            return f"{self.peer} closed the connection before it answered{question}"
        if self.state is ConnectionState.READY and not self.proven:
            return f"{self.peer} closed the connection right after the handshake{'; does the port demand SASL?' if suspect else ''}"
        return f"{self.peer} closed the connection"

    def _feed(self, event: ConnectionInput) -> None:
        TRANSITIONS.move(self, event)
        self._shared.common.moves += 1
