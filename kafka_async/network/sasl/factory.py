"""Which conversation a connection gets.

Decides: the mechanism that the options ask for. Owns: what outlives one conversation, such as a derived key. Must never show a
secret. It is a shell: it brings randomness and threads to mechanisms that are pure.
"""

import base64
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

import anyio.to_thread
from attrs import define, field

from ...config import ConsumerConfig
from ...model import Node
from ...trace import Fault, Listener
from ..auth import AuthenticatorFactory
from .conversation import Mechanism, SaslConversation
from .plain import Plain
from .scram import Scram, salted_password

_NONCE_BYTES: Final = 24
_MOST_KEYS: Final = 4

_Maker = Callable[[Node], Mechanism]


def authenticators(config: ConsumerConfig, trace: Listener) -> AuthenticatorFactory | None:
    """Return what makes the conversation of each connection; ``None`` where ``security_protocol`` has no SASL.

    ``trace`` gets a ``Fault`` where the options show a secret to whoever listens.
    """
    if not config.uses_sasl:
        return None
    make = _MAKERS[config.sasl_mechanism](config, trace)
    return lambda node: SaslConversation(make(node), str(node))


def _plain(config: ConsumerConfig, trace: Listener) -> _Maker:
    username, password = config.sasl_plain_username or "", config.sasl_plain_password or ""
    if not config.uses_tls:
        text = (
            "sasl_mechanism='PLAIN' without TLS shows the password to whoever listens; use security_protocol='SASL_SSL', or SCRAM"
        )
        trace(Fault(now=time.monotonic(), text=text))
    return lambda node: Plain(username, password)


def _scram(config: ConsumerConfig, _: Listener) -> _Maker:
    name, username, password = config.sasl_mechanism, config.sasl_plain_username or "", config.sasl_plain_password or ""
    keys = SaltedPasswords(name, password)

    def make(node: Node) -> Scram:
        nonce = base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        return Scram(name, username, password, nonce=nonce, derive=keys.derive)

    return make


@define(eq=False)
class SaltedPasswords:
    """Derives keys on a thread, each once: a user's salt is the same on every broker, and so is the count of iterations."""

    _mechanism: str
    _password: str = field(repr=False)
    _known: dict[tuple[bytes, int], bytes] = field(factory=dict, repr=False, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, repr=False, init=False)

    async def derive(self, salt: bytes, iterations: int) -> bytes:
        """See ``scram.Derive``. A caller that is cancelled does not wait for the thread, which ends by itself."""
        known = self._known.get((salt, iterations))
        if known is not None:
            return known
        return await anyio.to_thread.run_sync(self._derive, salt, iterations, abandon_on_cancel=True)

    def _derive(self, salt: bytes, iterations: int) -> bytes:
        with self._lock:  # several connections open at once and want the same key
            known = self._known.get((salt, iterations))
            if known is None:
                known = salted_password(self._mechanism, self._password, salt, iterations)
                if len(self._known) >= _MOST_KEYS:
                    self._known.clear()
                self._known[salt, iterations] = known
            return known


_MAKERS: Final[dict[str, Callable[[ConsumerConfig, Listener], _Maker]]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
}
"""A function for each ``sasl_mechanism``. It is called once for each consumer, what it returns once for each conversation."""
