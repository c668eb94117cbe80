"""Where bytes meet a socket: brokers, connections, requests in flight. Knows no groups, no offsets, no topics.

    delegate.py    which request goes to which broker, and when: one pure decision, ``plan(now)``
    link.py        one broker in one channel over all attempts: the state table, the handshake, backoff
    reachability.py  whether any broker can be reached
    servers.py     which servers there are to ask
    session.py     how long a SASL session lasts, and when its renewal is tried
    protocol.py    one connection's requests and responses: bytes in, responses out
    frames.py      bytes cut into frames in a buffer that is used again
    request.py     a request from the layer above
    auth.py        the seam for SASL mechanisms
    sasl/          the mechanisms, and which one the options ask for
    backoff.py     exponential backoff with jitter
    network_settings.py    the options in seconds
    connection.py  the shell: performs plans, one task for each connection
    tls.py         from options to a TLS context; what OpenSSL's errors mean
    transport.py   sockets, TLS, names; the only place that sees their errors
    names.py       names of hosts, looked up on threads of their own
    event_loops.py event loops of threads of our own
    waiting.py     waiting and wake-ups of tasks and threads

All but the last six and some files of ``sasl`` are pure: no event loop, socket, thread, clock or randomness.
"""

from typing import TYPE_CHECKING

from ..lazy import on_first_use

if TYPE_CHECKING:
    from .auth import Authenticated, Authenticator, AuthenticatorFactory, PendingWork
    from .backoff import NO_JITTER, ExponentialBackoff
    from .connection import ConnectionRunner
    from .delegate import Action, ConnectionStatistics, NetworkClientDelegate, Open, Plan, Run, Shut, Write
    from .link import ConnectionState
    from .reachability import Reachability, unable_to_bootstrap
    from .request import LATE, Channel, UnsentRequest
    from .sasl import AbstractTokenProvider, MskTokenProvider, OidcTokenProvider, authenticators, exposure
    from .transport import (
        Dated,
        Pushing,
        PushTransport,
        Receiver,
        Seeded,
        TcpConnector,
        Transport,
        TransportFactory,
        bootstrap_nodes,
        by_canonical_names,
    )
else:
    __getattr__ = on_first_use(
        __name__,
        {
            ".auth": "Authenticated Authenticator AuthenticatorFactory PendingWork",
            ".backoff": "NO_JITTER ExponentialBackoff",
            ".connection": "ConnectionRunner",
            ".delegate": "Action ConnectionStatistics NetworkClientDelegate Open Plan Run Shut Write",
            ".link": "ConnectionState",
            ".reachability": "Reachability unable_to_bootstrap",
            ".request": "LATE Channel UnsentRequest",
            ".sasl": "AbstractTokenProvider MskTokenProvider OidcTokenProvider authenticators exposure",
            ".transport": (
                "Dated Pushing PushTransport Receiver Seeded TcpConnector Transport TransportFactory "
                "bootstrap_nodes by_canonical_names"
            ),
        },
    )

__all__ = [
    "LATE",
    "NO_JITTER",
    "AbstractTokenProvider",
    "Action",
    "Authenticated",
    "Authenticator",
    "AuthenticatorFactory",
    "Channel",
    "ConnectionRunner",
    "ConnectionState",
    "ConnectionStatistics",
    "Dated",
    "ExponentialBackoff",
    "MskTokenProvider",
    "NetworkClientDelegate",
    "OidcTokenProvider",
    "Open",
    "PendingWork",
    "Plan",
    "PushTransport",
    "Pushing",
    "Reachability",
    "Receiver",
    "Run",
    "Seeded",
    "Shut",
    "TcpConnector",
    "Transport",
    "TransportFactory",
    "UnsentRequest",
    "Write",
    "authenticators",
    "bootstrap_nodes",
    "by_canonical_names",
    "exposure",
    "unable_to_bootstrap",
]
