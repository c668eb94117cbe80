"""Keystores and truststores of Java, as the PEM texts that the options of TLS take (extra ``pkcs12``).

The first bytes of a file say which kind of store it is: Java, too, reads PKCS12 if JKS is configured.

Sources: RFC 7292 (PKCS12); ``sun.security.provider.JavaKeyStore`` for the first bytes of JKS and JCEKS.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import KafkaConfigurationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_JAVAS_OWN: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""How JKS and JCEKS begin. What reads them in Python is not kept up."""


def authorities(path: str, password: str | None, option: str) -> str:
    """Return the certificates of a truststore, as PEM.

    ``option``: the name of the option that has the path, for messages. Raises ``KafkaConfigurationError`` for a file that cannot be
    read, is another kind of store, has another password or no certificate, and ``ImportError`` without the extra ``pkcs12``.
    """
    store = _opened(path, password, option)
    found = [each.certificate for each in ([store.cert] if store.cert else []) + store.additional_certs]
    if not found:
        raise KafkaConfigurationError(f"{option}: the store has no certificate")
    return "".join(map(_pem, found))


def identity(path: str, password: str | None, option: str) -> tuple[str, str]:
    """Return the certificate of a keystore with its chain, and the private key, as PEM. Raises as ``authorities``."""
    store = _opened(path, password, option)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat  # it is installed

    if store.key is None or store.cert is None:
        raise KafkaConfigurationError(f"{option}: the store has no private key with its certificate")
    chain = "".join(_pem(each.certificate) for each in (store.cert, *store.additional_certs))
    return chain, store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _pem(certificate: "Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _opened(path: str, password: str | None, option: str) -> "PKCS12KeyAndCertificates":
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise KafkaConfigurationError(f"{option}: the file cannot be read: {error.strerror}") from None
    if data.startswith(_JAVAS_OWN):
        how = "keytool -importkeystore -srckeystore STORE.jks -destkeystore STORE.p12 -deststoretype PKCS12"
        raise KafkaConfigurationError(f"{option}: it is a store of type JKS, which only Java reads; convert it to PKCS12: {how}")
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError as missing:
        how = "which the extra 'pkcs12' brings: pip install '/path/to/clone[pkcs12]'"
        raise ImportError(f"{option}: stores of type PKCS12 need cryptography, {how}") from missing
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        what = "the password is wrong" if password is not None else f"it needs {option.replace('location', 'password')}"
        raise KafkaConfigurationError(f"{option}: the store cannot be opened: {what}, or it is not of type PKCS12") from None
