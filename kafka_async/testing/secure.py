"""TLS and SASL for ``RealCluster``, done by the consumer's own code.

It is not imported for simulated brokers: it needs ``network``, which the simulation must know nothing about.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..config import ConsumerConfig
from ..model import Node
from ..network.auth import Authenticated, PendingWork
from ..network.sasl.factory import authenticators
from ..network.tls import tls_context
from ..wire import Request


class Security:
    """How connections are made: ``options`` are a consumer's, such as ``security_protocol`` and ``sasl_mechanism``.

    Raises as ``KafkaConsumer`` does for options that it does not take, and for files that cannot be read.
    """

    def __init__(self, bootstrap: str, options: Mapping[str, Any]) -> None:
        config = ConsumerConfig.of(**{"bootstrap_servers": bootstrap, **options})
        self._context = tls_context(config)
        self._conversations = authenticators(config)

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """Return the socket with TLS if the options ask for it. Raises ``ssl.SSLError``."""
        return sock if self._context is None else self._context.wrap_socket(sock, server_hostname=host)

    def log_in(self, host: str, port: int, ask: Callable[[Request[Any]], Any]) -> None:
        """Log in with SASL if the options ask for it. Raises ``AuthenticationFailedError``."""
        if self._conversations is None:
            return
        conversation = self._conversations(Node(0, host, port))
        step = conversation.start(offered=False)
        while not isinstance(step, Authenticated):
            step = conversation.receive(_done(step) if isinstance(step, PendingWork) else ask(step))


def _done(work: PendingWork) -> Any:
    """Wait for the result in another thread: the test's own event loop may be running in this one."""

    async def run() -> Any:
        return await work.run()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()
