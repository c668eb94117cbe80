"""TLS: from options to a context, and from OpenSSL's errors to one that says what to do.

Certificate and host name are verified, and TLS versions below 1.2 are refused, unless the caller gives a context of its own.
KIP-651 (PEM text in options), RFC 8446 section 6.2 (alerts).
"""

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ..config import ConsumerConfig
from ..errors import SslAuthenticationError, TlsHandshakeError

# Alerts by which a TLS peer refuses our certificate, or the lack of one. Others, such as a version or a cipher that does not fit,
# or plain bytes where TLS was expected, may be gone at the next attempt or the next address.
_REFUSALS: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "UNKNOWN_PSK_IDENTITY", "DECRYPT_ERROR", "HANDSHAKE_FAILURE")

_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE")

_TRUST: Final = "trust the authority that signed it with ssl_cafile, or is this another server?"
_NAME: Final = "connect by a host name in the certificate, or make the broker's advertised.listeners match its certificate"
_CLOCK: Final = "the broker needs a new certificate, or is this machine's clock right?"

# OpenSSL's X509_V_ERR codes: what a person can do about them.
_ADVICE: Final = {
    2: _TRUST,  # the issuer of an authority is unknown
    3: "ssl_crlfile has no list of the authority that signed it",
    9: _CLOCK,  # not yet valid
    10: _CLOCK,  # expired
    12: "ssl_crlfile is out of date",
    18: _TRUST,  # self-signed
    19: _TRUST,  # self-signed in the chain
    20: _TRUST,  # unknown issuer
    21: _TRUST,
    23: "it was revoked",
    62: _NAME,
    64: _NAME,  # an address
}


def tls_context(config: ConsumerConfig) -> ssl.SSLContext | None:
    """Return the context that ``config`` asks for; ``None`` without TLS.

    Reads the files that options name. Raises ``ValueError`` that names the option whose file cannot be read or used.
    """
    if not config.uses_tls:
        return None  # also if there is a context: with this security_protocol it has no effect, as a warning says
    if config.ssl_context is not None:
        return config.ssl_context
    context = verifying_context()
    context.check_hostname = config.ssl_check_hostname
    _trust(context, config)
    _identify(context, config)
    if config.ssl_ciphers is not None:
        with _named(f"ssl_ciphers={config.ssl_ciphers!r}"):
            context.set_ciphers(config.ssl_ciphers)
    return context


def verifying_context() -> ssl.SSLContext:
    """Return a context that verifies certificate and host name, and trusts no authority yet.

    Not ``ssl.create_default_context``: that one writes the keys of its sessions into a file that the environment names.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Any certificate that is given is trusted, as in Java: an intermediate authority without its root, or the broker's own.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context


def trusting_context(cafile: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """Return a context that verifies, and trusts the authorities in a file, or the system's. Raises ``OSError`` for a bad file."""
    context = verifying_context()
    if cafile is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile=cafile)
    return context


def _trust(context: ssl.SSLContext, config: ConsumerConfig) -> None:
    if config.ssl_cafile is not None:
        with _named(f"ssl_cafile={config.ssl_cafile!r}"):
            context.load_verify_locations(cafile=config.ssl_cafile)
    elif config.ssl_truststore_certificates is not None:
        with _named("ssl_truststore_certificates"):
            # What stands between certificates may be in any language; the ssl module takes ASCII.
            context.load_verify_locations(cadata=config.ssl_truststore_certificates.encode("ascii", "replace").decode())
    else:
        context.load_default_certs()
    if config.ssl_crlfile is not None:
        with _named(f"ssl_crlfile={config.ssl_crlfile!r}"):
            context.load_verify_locations(cafile=config.ssl_crlfile)
        # Not those of the authorities: that takes a list of the root too, which few files have, and aiokafka's need not.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _identify(context: ssl.SSLContext, config: ConsumerConfig) -> None:
    """Load our own certificate, for brokers that ask for one."""
    if config.ssl_certfile is not None:
        key = f", ssl_keyfile={config.ssl_keyfile!r}" if config.ssl_keyfile is not None else ""
        with _named(f"ssl_certfile={config.ssl_certfile!r}{key}"):
            for path in filter(None, (config.ssl_certfile, config.ssl_keyfile)):
                _check_readable(path)
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, _password(config.ssl_password))
    elif config.ssl_keystore_certificate_chain is not None:
        pem = f"{config.ssl_keystore_certificate_chain}\n{config.ssl_keystore_key}\n"
        with _named("ssl_keystore_certificate_chain, ssl_keystore_key"), _as_file(pem.encode()) as path:
            context.load_cert_chain(path, None, _password(config.ssl_password))


def _check_readable(path: str) -> None:
    """OpenSSL does not say which of two files it could not read; the system does."""
    with open(path, "rb"):
        return


def _password(password: str | None) -> Callable[[], str]:
    """Return a call-back: without one OpenSSL would ask the terminal and wait."""

    def give() -> str:
        if password is None:
            raise ValueError("the private key is encrypted; set ssl_password")
        return password

    return give


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yield a path under which ``data`` can be read for a moment: the ``ssl`` module takes keys only from files.

    In memory if the system can do that, else in a file of this user alone.
    """
    descriptor = _memory_file()
    if descriptor is not None:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    import tempfile  # large, and few have certificates as text

    with tempfile.TemporaryDirectory(prefix="kafka_async") as directory:  # mode 0700
        path = os.path.join(directory, "key.pem")
        with open(path, "wb") as file:
            file.write(data)
        yield path


def _memory_file() -> int | None:
    """Return a file without a name, if the system has such files."""
    try:
        descriptor = os.memfd_create("kafka_async")
    except (AttributeError, OSError):
        return None
    if os.path.exists(f"/proc/self/fd/{descriptor}"):
        return descriptor
    os.close(descriptor)
    return None


@contextmanager
def _named(option: str) -> Iterator[None]:
    """Turn what OpenSSL and the system raise into a ``ValueError`` that names ``option``."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{option}: {why_not_loaded(error, 'ssl_password')}") from None
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def why_not_loaded(error: OSError, password: str) -> str:
    """Return what is wrong with a file of certificates or keys. ``password``: the name of the option for that of the key."""
    if isinstance(error, ssl.SSLError):
        words = _reason(error)
        return next((ours for theirs, ours in _REASONS.items() if theirs in words), words).replace("{password}", password)
    where = f" {error.filename!r}" if error.filename else ""
    return f"cannot read the file{where}: {error.strerror}"


_REASONS: Final = {
    "NO_CERTIFICATE_OR_CRL_FOUND": "expected PEM with a certificate, found none",
    "NO_START_LINE": "expected PEM with a certificate, found none",
    "PEM lib": "expected PEM with a certificate and its private key, and the right {password} if the key is encrypted",
    "KEY_VALUES_MISMATCH": "the private key does not belong to the certificate",
    "BAD_DECRYPT": "{password} does not open the private key",
    "NO_CIPHER_MATCH": "expected ciphers in OpenSSL's notation, found none that is known",
}


def tls_error(peer: str, error: ssl.SSLError) -> SslAuthenticationError | TlsHandshakeError:
    """Return what ``error`` means: a refused certificate, on either side, or a connection that may work next time."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _ADVICE.get(error.verify_code)
        text = f"{peer}: the broker's certificate was refused: {error.verify_message}"
        return SslAuthenticationError(f"{text}; {advice}" if advice else text)
    reason = _reason(error)
    if "ALERT" in reason and any(word in reason for word in _REFUSALS):
        return SslAuthenticationError(
            f"{peer}: the broker refused our TLS credentials: {reason}; does it ask for a certificate? (ssl_certfile, ssl_keyfile)"
        )
    if reason in _NOT_TLS:
        return TlsHandshakeError(f"{peer}: TLS failed ({reason}); does the port speak TLS? (security_protocol)")
    return TlsHandshakeError(f"{peer}: TLS failed: {reason}")


def _reason(error: ssl.SSLError) -> str:
    reason: str | None = getattr(error, "reason", None)  # errors that the ssl module makes itself have none
    return reason or str(error)
