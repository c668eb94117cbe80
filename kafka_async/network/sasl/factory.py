"""Which conversation a connection gets.

Decides: the mechanism that the options ask for. Owns: what outlives one conversation, such as a derived key. Must never show a
secret. It is a shell: it brings randomness and threads to mechanisms that are pure.
"""

from collections.abc import Callable
from typing import Final

from ...config import ConsumerConfig
from ...model import Node
from ..auth import AuthenticatorFactory
from .conversation import Mechanism, SaslConversation
from .plain import Plain

_Maker = Callable[[Node], Mechanism]


def authenticators(config: ConsumerConfig) -> AuthenticatorFactory | None:
    """Return what makes the conversation of each connection; ``None`` where ``security_protocol`` has no SASL."""
    if not config.uses_sasl:
        return None
    make = _MAKERS[config.sasl_mechanism](config)
    return lambda node: SaslConversation(make(node), str(node))


def _plain(config: ConsumerConfig) -> _Maker:
    username, password = config.sasl_plain_username or "", config.sasl_plain_password or ""
    return lambda node: Plain(username, password)


_MAKERS: Final[dict[str, Callable[[ConsumerConfig], _Maker]]] = {"PLAIN": _plain}
"""A function for each ``sasl_mechanism``. It is called once for each consumer, what it returns once for each conversation."""
