"""Assertions: JSON Web Tokens by which a client proves to a token endpoint who it is (KIP-1139, KIP-1258).

An assertion is either in a file, which something else keeps fresh, or made here and signed with a private key. Options name the
files. They are read each time, because keys and assertions are rotated while a consumer runs, and once at the start, so that what
cannot work is said before anything connects.

RFC 7515 (signatures), RFC 7518 sections 3.3 and 3.4 (RS256 and ES256), RFC 7519 (claims), Java ``DefaultAssertionCreator``,
``LayeredAssertionJwtTemplate``.
"""

import base64
import json
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...config.words import SigningAlgorithm
from ...errors import KafkaConnectionError
from ...values import field, frozen

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_LEAST_RSA_BITS: Final = 2048  # RFC 7518 section 3.3
_COORDINATE: Final = 32
"""Bytes of each half of a signature by ES256."""
_LONGEST: Final = 256 * 1024
"""Bytes of a file that are read. Keys and assertions are a few KiB."""
_JWT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_OPTION: Final = "sasl_oauthbearer_assertion_"


class Assertion(ABC):
    """A source of assertions: calling it returns one. It blocks, so it is called in a thread."""

    def __call__(self) -> str:
        """Return an assertion. Raises ``KafkaConnectionError`` if a file cannot be used: another one may be there in a moment."""
        try:
            return self.make()
        except ValueError as error:
            raise KafkaConnectionError(str(error)) from None

    @abstractmethod
    def make(self) -> str:
        """Return an assertion. Raises ``ValueError`` that names the option whose file cannot be used."""


@frozen
class AssertionFile(Assertion):
    """An assertion that something else writes into the file ``path``, such as a token that Kubernetes projects."""

    path: str

    def make(self) -> str:
        """See ``Assertion``."""
        text = _content(self.path, f"{_OPTION}file").decode("ascii", "replace").strip()
        if not _JWT.fullmatch(text):
            raise ValueError(f"{_OPTION}file={self.path!r}: expected a JSON Web Token of three parts; the content is not shown")
        return text


@frozen(kw_only=True)
class SignedAssertion(Assertion):
    """An assertion that is made and signed here, with ``claims`` of the options and those of the ``template`` file over them.

    ``template``: path of a JSON file with ``header`` and ``payload``, either of which may be missing. What depends on the moment
    is laid over both: ``alg``, ``typ``, ``iat``, ``exp``, ``nbf``, ``jti``. ``clock`` returns seconds since 1970.
    """

    key_file: str
    passphrase: str | None = field(default=None, repr=False)
    algorithm: SigningAlgorithm = "RS256"
    claims: Mapping[str, str] = field(factory=dict)
    template: str | None = None
    expires_after: int = 300
    """Seconds from now (``exp``)."""
    valid_before: int = 60
    """Seconds before now (``nbf``), for clocks that differ."""
    with_id: bool = False
    """Whether each assertion has an id of its own (``jti``), by which an endpoint refuses to take one twice."""
    clock: Callable[[], float] = field(default=time.time, repr=False)

    def make(self) -> str:
        """See ``Assertion``. Raises ``ImportError`` without the extra ``assertion``."""
        header, payload = self._template()
        now = int(self.clock())
        header |= {"alg": self.algorithm, "typ": "JWT"}
        payload = {**self.claims, **payload, "iat": now, "exp": now + self.expires_after, "nbf": now - self.valid_before}
        if self.with_id:
            payload["jti"] = str(uuid.uuid4())
        content = f"{_encoded(_json(header))}.{_encoded(_json(payload))}"
        return f"{content}.{_encoded(self._signature(content.encode()))}"

    def _template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.template is None:
            return {}, {}
        option = f"{_OPTION}template_file={self.template!r}"
        try:
            content = json.loads(_content(self.template, f"{_OPTION}template_file"))
            parts = tuple(content.get(name, {}) for name in ("header", "payload"))
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, AttributeError):
            parts = ()
        match parts:
            case (dict() as header, dict() as payload):
                return dict(header), dict(payload)
        raise ValueError(f'{option}: expected JSON like {{"header": {{"kid": "..."}}, "payload": {{"aud": "..."}}}}')

    def _signature(self, content: bytes) -> bytes:
        key = self._key()
        from cryptography.hazmat.primitives import hashes  # it is installed
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        option = f"{_OPTION}private_key_file={self.key_file!r}"
        if self.algorithm == "RS256":
            if not isinstance(key, rsa.RSAPrivateKey) or key.key_size < _LEAST_RSA_BITS:
                raise ValueError(f"{option}: RS256 needs an RSA key of {_LEAST_RSA_BITS} bits or more")
            return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
        # RFC 7518 section 3.4
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError(f"{option}: ES256 needs a key on the curve P-256")
        halves = decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
        return b"".join(half.to_bytes(_COORDINATE, "big") for half in halves)

    def _key(self) -> "PrivateKeyTypes":
        try:
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError as missing:
            how = "which the extra 'assertion' brings: pip install '/path/to/clone[assertion]'"
            raise ImportError(f"{_OPTION}private_key_file: signing needs cryptography, {how}") from missing
        option = f"{_OPTION}private_key_file"
        data = _content(self.key_file, option)
        try:
            return load_pem_private_key(data, None if self.passphrase is None else self.passphrase.encode())
        except TypeError:  # a passphrase for a key that has none, or none for one that has
            what = "has no passphrase, but one is given" if self.passphrase is not None else "needs a passphrase"
            raise ValueError(f"{option}={self.key_file!r}: the key {what} in {_OPTION}private_key_passphrase") from None
        except (ValueError, UnsupportedAlgorithm):
            what = "the passphrase is wrong, or it is" if self.passphrase is not None else "it is"
            raise ValueError(f"{option}={self.key_file!r}: cannot be read: {what} not a private key in PEM") from None


def _content(path: str, option: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise ValueError(f"{option}={path!r}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
