"""Kerberos contexts from the library ``gssapi``, which is MIT's or Heimdal's libkrb5.

Making a token may ask a KDC and wait for it, so it runs in a thread. RFC 2743, RFC 4120; KIP-12 for the name ``service/host``.
"""

from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, Final, TypeVar

from ...config import ConsumerConfig
from ...errors import AuthenticationFailedError, KafkaConnectionError, KafkaError
from ...model import Node
from .conversation import shown
from .gssapi import SecurityContext
from .threads import on_thread

_T = TypeVar("_T")

_PASSING: Final = frozenset((2**32 - 1765328228, 2**32 - 1765328164))
"""Codes of libkrb5, as unsigned numbers, of temporary failures: no KDC was reached, the name of a KDC was not resolved."""
_NUMBERS: Final = count()
"""Tell the tickets of one client from those of another."""


@cache
def _number_of(principal: str, keytab: str) -> int:
    return next(_NUMBERS)


def contexts(config: ConsumerConfig, library: Any = None) -> Callable[[Node], SecurityContext]:
    """Return a function that makes the context for a conversation with a node.

    Raises ``ImportError`` without the extra ``gssapi``. ``library`` stands in for the module ``gssapi``.
    """
    gssapi = library or _library()
    credentials = _Credentials(gssapi, config.sasl_kerberos_principal, config.sasl_kerberos_keytab)

    def make(node: Node) -> SecurityContext:
        service = f"{config.sasl_kerberos_service_name}@{config.sasl_kerberos_domain_name or node.host}"
        return KerberosContext(gssapi, service, credentials)

    return make


def _library() -> Any:
    try:
        import gssapi
    except ImportError as missing:
        raise ImportError(
            "sasl_mechanism='GSSAPI' needs the package gssapi, which the extra 'gssapi' brings, and libkrb5: "
            "pip install '/path/to/clone[gssapi]'"
        ) from missing
    return gssapi


class _Credentials:
    """Whose tickets are used: those of the process, or of a principal whose key is in a keytab."""

    def __init__(self, gssapi: Any, principal: str | None, keytab: str | None) -> None:
        self._gssapi = gssapi
        self._principal = principal
        # libkrb5 looks for other tickets if it cannot read a keytab, and then reports that it found none.
        self.detail = f" with the keytab {keytab!r}" if keytab else ""
        """What errors add."""
        self._store: dict[str, str] | None = None
        if keytab:
            # The tickets live in memory, under a name of their own; libkrb5 gets new ones before they end. It keeps them as long as
            # the process lives, and whoever comes with that name again is their principal, whatever its keytab says. So no name
            # comes twice, but for a principal that comes again: else each consumer would leave tickets behind.
            number = _number_of(principal, keytab) if principal else next(_NUMBERS)
            self._store = {"client_keytab": f"FILE:{keytab}", "ccache": f"MEMORY:kafka_async-{number}"}

    def acquire(self) -> Any:
        """Return the credentials; ``None`` means the process's own. May ask a KDC."""
        if self._principal is None and self._store is None:
            return None
        name = self._principal and self._gssapi.Name(self._principal, self._gssapi.NameType.kerberos_principal)
        return self._gssapi.Credentials(name=name, usage="initiate", store=self._store)


class KerberosContext:
    """One security context, for ``service``: ``kafka@broker.example.com``."""

    def __init__(self, gssapi: Any, service: str, credentials: _Credentials) -> None:
        self._gssapi = gssapi
        self._service = service
        self._credentials = credentials
        self._context: Any = None

    async def step(self, token: bytes | None) -> bytes:
        """See ``SecurityContext``."""
        return await on_thread(lambda: self._call(lambda: self._step(token)))

    @property
    def complete(self) -> bool:
        """See ``SecurityContext``."""
        return bool(self._context.complete)

    def wrap(self, message: bytes) -> bytes:
        """See ``SecurityContext``."""
        return self._call(lambda: bytes(self._context.wrap(message, False).message))

    def unwrap(self, token: bytes) -> bytes:
        """See ``SecurityContext``."""
        return self._call(lambda: bytes(self._context.unwrap(token).message))

    def _step(self, token: bytes | None) -> bytes:
        gssapi = self._gssapi
        if self._context is None:
            flag = gssapi.RequirementFlag
            self._context = gssapi.SecurityContext(
                name=gssapi.Name(self._service, gssapi.NameType.hostbased_service),
                creds=self._credentials.acquire(),
                mech=gssapi.MechType.kerberos,
                flags=flag.mutual_authentication | flag.integrity | flag.out_of_sequence_detection | flag.replay_detection,
                usage="initiate",
            )
        answer = self._context.step(token)
        if self._context.complete and not self._context.actual_flags & gssapi.RequirementFlag.mutual_authentication:
            raise AuthenticationFailedError(f"{self._service} did not prove its identity")
        return bytes(answer or b"")

    def _call(self, action: Callable[[], _T]) -> _T:
        try:
            return action()
        except self._gssapi.exceptions.GSSError as error:
            raise self._failure(error) from error
        except NotImplementedError as error:  # Heimdal has no stores of credentials
            text = f"Kerberos, for {self._service}: sasl_kerberos_keytab needs MIT's libkrb5: {shown(str(error))}"
            raise AuthenticationFailedError(text) from error

    def _failure(self, error: Any) -> KafkaError:
        text = f"Kerberos, for {self._service}{self._credentials.detail}: {shown(str(error))}"
        return KafkaConnectionError(text) if error.min_code in _PASSING else AuthenticationFailedError(text)
