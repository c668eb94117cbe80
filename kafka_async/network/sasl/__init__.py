"""SASL: the mechanisms, and the conversation that carries them (KIP-43, KIP-152, KIP-368).

    conversation.py    SaslHandshake, then SaslAuthenticate until both sides are satisfied
    plain.py           PLAIN: name and password as they are (RFC 4616)
    scram.py           SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677)
    assertion.py       JSON Web Tokens that prove to a token endpoint who asks
    oauthbearer.py     OAUTHBEARER (RFC 7628); jwt.py reads when a token ends
    tokens.py          where tokens come from: providers, and keeping a token for most of its life
    oidc.py, msk.py    tokens from an OpenID Connect provider (KIP-768), tokens for Amazon MSK
    gssapi.py          GSSAPI (RFC 4752); kerberos.py calls libkrb5
    threads.py         threads for what logins wait for
    factory.py         which mechanism the options ask for

A mechanism is pure: it gets bytes and returns bytes, and hands out as ``PendingWork`` what takes time. The files of providers,
``kerberos.py`` and ``factory.py`` bring it threads, HTTP and randomness.
"""

from typing import TYPE_CHECKING

from ...lazy import on_first_use

if TYPE_CHECKING:
    from .conversation import Mechanism, SaslConversation, Turn
    from .factory import authenticators, exposure
    from .msk import MskTokenProvider
    from .oidc import OidcTokenProvider
    from .tokens import AbstractTokenProvider
else:
    __getattr__ = on_first_use(
        __name__,
        {
            ".conversation": "Mechanism SaslConversation Turn",
            ".factory": "authenticators exposure",
            ".msk": "MskTokenProvider",
            ".oidc": "OidcTokenProvider",
            ".tokens": "AbstractTokenProvider",
        },
    )

__all__ = [
    "AbstractTokenProvider",
    "Mechanism",
    "MskTokenProvider",
    "OidcTokenProvider",
    "SaslConversation",
    "Turn",
    "authenticators",
    "exposure",
]
