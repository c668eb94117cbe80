"""Who we are: SASL mechanisms and the conversation that carries them (KIP-43, KIP-152, KIP-368).

    conversation.py    SaslHandshake, then SaslAuthenticate until both sides are satisfied
    plain.py           PLAIN: name and password as they are (RFC 4616)
    scram.py           SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677)
    factory.py         which mechanism the options ask for; the only file here that touches threads and randomness

A mechanism is pure: it gets bytes and returns bytes, and hands out as ``Work`` what takes time.
"""

from .conversation import Mechanism, SaslConversation, Turn
from .factory import authenticators

__all__ = ["Mechanism", "SaslConversation", "Turn", "authenticators"]
