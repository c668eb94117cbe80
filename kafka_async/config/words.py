"""The words that options take, and the forms of what a program brings along, as types.

``checks.one_of`` refuses what is not among the words.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

GroupProtocol: TypeAlias = Literal["auto", "classic", "consumer"]
DnsLookup: TypeAlias = Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
RecoveryStrategy: TypeAlias = Literal["rebootstrap", "none"]
SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
GrantType: TypeAlias = Literal["client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"]
SigningAlgorithm: TypeAlias = Literal["RS256", "ES256"]
Background: TypeAlias = Literal["task", "thread"]


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
_Deserialize: TypeAlias = Callable[[bytes], Awaitable[T] | T] | Callable[[str, _Headers, bytes], Awaitable[T] | T]


class HasDeserialize(Protocol[T_co]):
    """An object with a method ``deserialize``, such as those that register formats with a schema registry."""

    @property
    def deserialize(self) -> _Deserialize[T_co]:
        """Takes the bytes, or topic, headers and bytes."""


Deserializer: TypeAlias = _Deserialize[T] | HasDeserialize[T]
"""What turns bytes into a ``T``, which type checkers learn from it; mypy not if it is ``async def``.

Overloads for ``async def`` would tell mypy, but then it names no option any more in an error, and prints all of them twice.
"""


class HasToken(Protocol):
    """An object with a method ``token``, such as an ``AbstractTokenProvider`` of ours or aiokafka's."""

    @property
    def token(self) -> Callable[[], Any]:
        """Returns a bearer token; may be ``async def``."""


TokenProvider: TypeAlias = Callable[[], Any] | HasToken
