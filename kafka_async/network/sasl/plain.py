"""PLAIN: the name and the password as they are (RFC 4616).

``factory.py`` warns without TLS. Kafka compares the bytes unchanged, so nothing is prepared (``PlainSaslServer``). NUL separates
and cannot be part of either.
"""

from typing import Any, ClassVar

from ...values import define, field


@define(eq=False)
class Plain:
    """One conversation of PLAIN."""

    name: ClassVar[str] = "PLAIN"
    _username: str
    _password: str = field(repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """See ``Mechanism``."""
        return (self._password,)

    def start(self) -> bytes:
        """See ``Mechanism``."""
        return b"\0" + self._username.encode() + b"\0" + self._password.encode()

    def receive(self, incoming: Any) -> None:
        """See ``Mechanism``. A broker that accepts us sends nothing."""
        return
