"""The options of a consumer: names, defaults, validation. They stand here once and nowhere else.

Decides: what an option is called, what it defaults to (Java 4.3's ``ConsumerConfig``, see each comment where we differ) and what
values it takes. Owns nothing: a ``ConsumerConfig`` is frozen. Must never read a file, the environment or a clock, and never load
code that a string names (CVE-2023-25194): call-backs are passed as Python objects.

Names are Kafka's configuration keys with ``_`` for ``.``, as kafka-python and aiokafka spell them. Times are in milliseconds,
sizes in bytes. Secrets do not show in ``repr``.
"""

import datetime
import difflib
import re
import ssl
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import Attribute, Factory, field, fields_dict, frozen
from attrs.validators import optional

from .model import IsolationLevel
from .trace import Listener

Deserializer = Callable[..., Any]

_INT32_MAX: Final = 2**31 - 1
_MAX_TEXT: Final = 2**15 - 1
_INT64_MAX: Final = 2**63 - 1
_LEAST_BACKOFF_MS: Final = 10
_CLASSIC_ONLY: Final = frozenset(("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"))

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

_TLS: Final = (
    "ssl_context",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_crlfile",
    "ssl_ciphers",
    "ssl_check_hostname",
    "ssl_truststore_certificates",
    "ssl_keystore_certificate_chain",
    "ssl_keystore_key",
)
_EITHER: Final = (
    ("ssl_cafile", "ssl_truststore_certificates"),
    ("ssl_certfile", "ssl_keystore_certificate_chain"),
    ("ssl_keyfile", "ssl_keystore_key"),
)
_TOGETHER: Final = (
    ("ssl_keyfile", ("ssl_certfile",)),
    ("ssl_keystore_key", ("ssl_keystore_certificate_chain",)),
    ("ssl_keystore_certificate_chain", ("ssl_keystore_key",)),
    ("ssl_password", ("ssl_certfile", "ssl_keystore_key")),
    ("ssl_crlfile", ("ssl_cafile", "ssl_truststore_certificates")),
)
_PASSWORD: Final = ("sasl_plain_username", "sasl_plain_password")
_OAUTH: Final = (
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_extensions",
    "sasl_oauthbearer_header_urlencode",
    "sasl_oauthbearer_ssl_cafile",
    "sasl_oauthbearer_allow_http",
)
_KERBEROS: Final = ("sasl_kerberos_domain_name", "sasl_kerberos_principal", "sasl_kerberos_keytab")
_SASL: Final = (*_PASSWORD, *_OAUTH, *_KERBEROS)

# Options of aiokafka that have no meaning here. A program that moves over by changing its import must still start.
_IGNORED: Final = {
    "loop": "the running event loop is used",
    "api_version": "versions are negotiated with each broker",
    "consumer_timeout_ms": "nothing here polls in intervals",
    "rebalance_timeout_ms": "max_poll_interval_ms is the rebalance timeout, as in Java (KIP-62)",
}


def _number(low: int, high: int = _INT32_MAX) -> Callable[[Any, "Attribute[int]", Any], None]:
    def check(_: Any, attribute: "Attribute[int]", value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{attribute.name}={value!r}: expected an integer from {low} to {high}")

    return check


def _one_of(*allowed: str) -> Callable[[Any, "Attribute[str]", Any], None]:
    def check(_: Any, attribute: "Attribute[str]", value: Any) -> None:
        if value not in allowed:
            raise ValueError(f"{attribute.name}={value!r}: expected one of {', '.join(map(repr, allowed))}")

    return check


def _flag(_: Any, attribute: "Attribute[bool]", value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{attribute.name}={value!r}: expected True or False")


def _optional_text(_: Any, attribute: "Attribute[str | None]", value: Any) -> None:
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise ValueError(f"{attribute.name}={value!r}: expected a string that is not empty, or None")


_AS_TEXT: Final = dict(_EITHER)


def _optional_file(instance: Any, attribute: "Attribute[str | None]", value: Any) -> None:
    if value is not None and (not isinstance(value, str) or "-----BEGIN " in value):  # a key in place of its path must not show
        other = f" (PEM text goes into {_AS_TEXT[attribute.name]})" if attribute.name in _AS_TEXT else ""
        raise ValueError(f"{attribute.name}: expected the path of a file{other}, or None; the value is not shown")
    _optional_text(instance, attribute, value)


def is_sendable(text: object) -> bool:
    """Say whether ``text`` can be in a request: a string of at most 32,767 bytes of UTF-8 (Kafka's type STRING)."""
    return isinstance(text, str) and (data := text.encode("utf-8", "replace")).decode() == text and len(data) <= _MAX_TEXT


def _sendable(_: Any, attribute: "Attribute[str]", value: Any) -> None:
    if not is_sendable(value):
        raise ValueError(f"{attribute.name}={value!r:.100}: expected a string of at most {_MAX_TEXT:,} bytes in UTF-8")


def _optional_callable(_: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if value is not None and not callable(value) and not callable(getattr(value, "deserialize", None)):
        raise ValueError(f"{attribute.name}={value!r}: expected a callable that takes bytes, or None")


_ADDRESS: Final = re.compile(r"(?:[A-Z_]+://)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\s\[\]/]+))(?::(?P<port>\d+))?")


def parse_bootstrap_servers(value: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Return ``(host, port)`` pairs from ``"a:9092,b:9092"`` or a list of such strings; the port defaults to 9092.

    Raises ``ValueError`` that names the entry that is wrong.
    """
    entries = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Iterable) else None
    if entries is None or not all(isinstance(entry, str) for entry in entries):
        raise ValueError(f"bootstrap_servers={value!r}: expected 'host:port', a comma-separated list of them, or a list of strings")
    servers: list[tuple[str, int]] = []
    for entry in entries:
        text = entry.strip()
        if not text:
            continue
        match = _ADDRESS.fullmatch(text)
        port = int(match["port"] or 9092) if match else 0
        if match is None or not 0 < port < 65536:
            text = text.rpartition("@")[2]  # what stands before it may be a password
            raise ValueError(f"bootstrap_servers: {text!r} is not an address; expected 'host:port' with a port from 1 to 65535")
        servers.append((match["v6"] or match["host"], port))
    if not servers:
        raise ValueError(f"bootstrap_servers={value!r}: expected at least one 'host:port'")
    return tuple(dict.fromkeys(servers))


_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<days>\d{1,8})D)?(?:T(?=.)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


def parse_duration(text: str) -> datetime.timedelta | None:
    """Return the ISO 8601 duration ``PnDTnHnMn.nS``, or ``None`` where ``text`` is none that a clock can go back (KIP-1106)."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    return datetime.timedelta(**{unit: float(number) for unit, number in match.groupdict().items() if number})


def _offset_reset(_: Any, attribute: "Attribute[str]", value: Any) -> None:
    if isinstance(value, str) and (
        value in ("earliest", "latest", "none")
        or (value.startswith("by_duration:") and parse_duration(value.removeprefix("by_duration:")) is not None)
    ):
        return
    raise ValueError(f"{attribute.name}={value!r}: expected 'earliest', 'latest', 'none' or 'by_duration:PnDTnHnMn.nS'")


def _isolation(value: Any) -> Any:
    names = {level.name.lower(): level for level in IsolationLevel}
    return names.get(value, value) if isinstance(value, str) else value


def _isolation_check(_: Any, attribute: "Attribute[IsolationLevel]", value: Any) -> None:
    if not isinstance(value, IsolationLevel):
        raise ValueError(f"{attribute.name}={value!r}: expected 'read_uncommitted' or 'read_committed'")


def _ssl_context(_: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if value is not None and not isinstance(value, ssl.SSLContext):
        raise ValueError(f"{attribute.name}={value!r}: expected an ssl.SSLContext or None")


def _optional_secret(_: Any, attribute: "Attribute[str | None]", value: Any) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError(f"{attribute.name}: expected a string that is not empty, or None; the value is not shown")


def _optional_credential(instance: Any, attribute: "Attribute[str | None]", value: Any) -> None:
    _optional_secret(instance, attribute, value)
    if value is not None and any(character == "\0" or "\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"{attribute.name}: expected text without NUL and lone surrogates; the value is not shown")


def _optional_pem(_: Any, attribute: "Attribute[str | None]", value: Any) -> None:
    if value is not None and (not isinstance(value, str) or "-----BEGIN " not in value):
        raise ValueError(f"{attribute.name}: expected PEM text ('-----BEGIN ...'), or None; the value is not shown")


def _token_provider(_: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if value is not None and not callable(value) and not callable(getattr(value, "token", None)):
        raise ValueError(f"{attribute.name}: expected an object with a method token(), or a callable that returns a token")


def _optional_mapping(_: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{attribute.name}: expected a mapping of names to values, or None; the value is not shown")


def endpoint_fault(url: str, allow_http: bool) -> str | None:
    """Return what is wrong with the address of a token endpoint, or ``None``. The address itself is not shown."""
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.scheme not in ("https", "http"):
        fault = "expected 'https://host/path'; the value is not shown"
    elif parts.username is not None or parts.password is not None:
        fault = "expected no user name and password in it; the value is not shown"
    elif parts.scheme == "http" and not allow_http:
        fault = "http would show the secret to the network; expected https, or sasl_oauthbearer_allow_http=True"
    else:
        return None
    return f"sasl_oauthbearer_token_endpoint_url: {fault}"


def _place(url: str | None) -> str:
    return repr(url and url.partition("?")[0])  # a query may hold a key


def _path(value: Any) -> Any:
    return str(value) if isinstance(value, PurePath) else value


def _or_gssapi(value: Any) -> Any:
    return "GSSAPI" if value is None else value


def _or_empty(value: Any) -> Any:
    return "" if value is None else value


def _or_unlimited(value: Any) -> Any:
    return _INT32_MAX if value is None else value


def _as_tuple(value: Any) -> Any:
    return tuple(value or ()) if value is None or (isinstance(value, Sequence) and not isinstance(value, str)) else value


@frozen(kw_only=True)
class ConsumerConfig:
    """All options of a consumer, validated. Build it with ``from_options``."""

    bootstrap_servers: tuple[tuple[str, int], ...] = field(default="localhost:9092", converter=parse_bootstrap_servers)
    client_id: str = field(default="kafka-async", validator=_sendable)
    client_rack: str = field(default="", converter=_or_empty, validator=_sendable)

    # Group. Options marked "classic" are refused together with group_protocol="consumer", as in Java.
    group_id: str | None = field(default=None, validator=[_optional_text, optional(_sendable)])
    group_instance_id: str | None = field(default=None, validator=[_optional_text, optional(_sendable)])
    group_protocol: str = field(default="auto", validator=_one_of("auto", "classic", "consumer"))
    group_remote_assignor: str | None = field(default=None, validator=[_optional_text, optional(_sendable)])
    session_timeout_ms: int = field(default=45_000, validator=_number(1))  # classic
    heartbeat_interval_ms: int = field(default=3_000, validator=_number(1))  # classic
    partition_assignment_strategy: tuple[Any, ...] = field(default=("range", "cooperative-sticky"), converter=_as_tuple)  # classic
    max_poll_interval_ms: int = field(default=300_000, validator=_number(1))
    enable_auto_commit: bool = field(default=True, validator=_flag)
    auto_commit_interval_ms: int = field(default=5_000, validator=_number(0))
    exclude_internal_topics: bool = field(default=True, validator=_flag)

    # Reading.
    auto_offset_reset: str = field(default="latest", validator=_offset_reset)
    isolation_level: IsolationLevel = field(
        default=IsolationLevel.READ_UNCOMMITTED, converter=_isolation, validator=_isolation_check
    )
    allow_auto_create_topics: bool = field(default=True, validator=_flag)
    max_poll_records: int = field(default=500, converter=_or_unlimited, validator=_number(1))
    key_deserializer: Deserializer | None = field(default=None, validator=_optional_callable)
    value_deserializer: Deserializer | None = field(default=None, validator=_optional_callable)
    interceptors: tuple[Any, ...] = field(default=(), converter=_as_tuple)
    check_crcs: bool = field(default=True, validator=_flag)

    # Fetching.
    fetch_min_bytes: int = field(default=1, validator=_number(0))
    fetch_max_bytes: int = field(default=50 * 1024 * 1024, validator=_number(0))
    fetch_max_wait_ms: int = field(default=500, validator=_number(0))
    max_partition_fetch_bytes: int = field(default=1024 * 1024, validator=_number(1))
    fetch_buffer_bytes: int = field(default=32 * 1024 * 1024, validator=_number(1, _INT64_MAX))  # ours: the wish of KIP-81
    max_decompressed_bytes: int = field(default=256 * 1024 * 1024, validator=_number(1, _INT64_MAX))  # ours: a bound per batch
    receive_message_max_bytes: int = field(default=100_000_000, validator=_number(1024))  # librdkafka's name and default

    # Time.
    request_timeout_ms: int = field(default=30_000, validator=_number(1))
    default_api_timeout_ms: int = field(default=60_000, validator=_number(0))
    retry_backoff_ms: int = field(default=100, validator=_number(0))
    retry_backoff_max_ms: int = field(default=1_000, validator=_number(0))

    # Network.
    reconnect_backoff_ms: int = field(default=50, validator=_number(0))
    reconnect_backoff_max_ms: int = field(default=1_000, validator=_number(0))
    socket_connection_setup_timeout_ms: int = field(default=10_000, validator=_number(1))
    socket_connection_setup_timeout_max_ms: int = field(default=30_000, validator=_number(1))
    connections_max_idle_ms: int = field(default=540_000, validator=_number(-1, _INT64_MAX))
    client_dns_lookup: str = field(
        default="use_all_dns_ips", validator=_one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
    )
    receive_buffer_bytes: int = field(default=-1, validator=_number(-1))  # -1: the system's, which tunes itself (Java: 65536)
    send_buffer_bytes: int = field(default=-1, validator=_number(-1))  # -1: the system's (Java: 131072)
    metadata_max_age_ms: int = field(default=300_000, validator=_number(0))
    metadata_recovery_strategy: str = field(default="rebootstrap", validator=_one_of("rebootstrap", "none"))
    metadata_recovery_rebootstrap_trigger_ms: int = field(default=300_000, validator=_number(0))

    # Security. Files are read when a consumer is made, by network/tls.py.
    security_protocol: str = field(default="PLAINTEXT", validator=_one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
    ssl_context: ssl.SSLContext | None = field(default=None, validator=_ssl_context, repr=False)
    ssl_cafile: str | None = field(default=None, converter=_path, validator=_optional_file)
    ssl_certfile: str | None = field(default=None, converter=_path, validator=_optional_file)
    ssl_keyfile: str | None = field(default=None, converter=_path, validator=_optional_file)
    ssl_password: str | None = field(default=None, validator=_optional_secret, repr=False)  # of the private key
    ssl_crlfile: str | None = field(default=None, converter=_path, validator=_optional_file)
    ssl_ciphers: str | None = field(default=None, validator=_optional_text)  # up to TLS 1.2, in OpenSSL's words
    ssl_check_hostname: bool = field(default=True, validator=_flag)  # Java: ssl.endpoint.identification.algorithm
    ssl_truststore_certificates: str | None = field(default=None, validator=_optional_pem, repr=False)  # KIP-651: PEM text
    ssl_keystore_certificate_chain: str | None = field(default=None, validator=_optional_pem, repr=False)
    ssl_keystore_key: str | None = field(default=None, validator=_optional_pem, repr=False)
    sasl_mechanism: str = field(default="GSSAPI", converter=_or_gssapi, validator=_one_of(*MECHANISMS))
    sasl_plain_username: str | None = field(default=None, validator=_optional_credential)  # SCRAM uses the two as well
    sasl_plain_password: str | None = field(default=None, validator=_optional_credential, repr=False)
    sasl_kerberos_service_name: str = field(default="kafka", validator=_sendable)
    sasl_kerberos_domain_name: str | None = field(default=None, validator=_optional_text)  # None: the broker's host name
    sasl_kerberos_principal: str | None = field(default=None, validator=_optional_text)  # librdkafka's names; None: the process's
    sasl_kerberos_keytab: str | None = field(default=None, converter=_path, validator=_optional_file)
    sasl_oauth_token_provider: Any = field(default=None, validator=_token_provider, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = field(default=None, validator=_optional_text, repr=_place)  # KIP-768
    sasl_oauthbearer_client_credentials_client_id: str | None = field(default=None, validator=_optional_text)
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, validator=_optional_secret, repr=False)
    sasl_oauthbearer_scope: str | None = field(default=None, validator=_optional_text)
    sasl_oauthbearer_extensions: Mapping[str, str] | None = field(default=None, validator=_optional_mapping, repr=False)  # KIP-342
    sasl_oauthbearer_ssl_cafile: str | None = field(default=None, converter=_path, validator=_optional_file)  # for the endpoint
    sasl_oauthbearer_allow_http: bool = field(default=False, validator=_flag)  # an endpoint without TLS; it warns
    sasl_oauthbearer_header_urlencode: bool = field(default=False, validator=_flag)
    sasl_login_connect_timeout_ms: int = field(default=10_000, validator=_number(1))  # Java: none
    sasl_login_read_timeout_ms: int = field(default=10_000, validator=_number(1))  # Java: none
    sasl_login_retry_backoff_ms: int = field(default=100, validator=_number(1))
    sasl_login_retry_backoff_max_ms: int = field(default=10_000, validator=_number(1))

    # Telemetry (KIP-714): metrics for the operators of the cluster, where its brokers ask for them. Needs the extra "otel".
    enable_metrics_push: bool = field(default=True, validator=_flag)

    # Ours.
    background: str = field(default="task", validator=_one_of("task", "thread"))
    trace: Listener | None = field(default=None, validator=_optional_callable)
    """Listener for trace events, called beside the logging and metrics listeners."""

    given: frozenset[str] = Factory(frozenset)
    """Names of the options that the caller set. ``group_protocol="auto"`` depends on it."""

    def __attrs_post_init__(self) -> None:
        if self.group_id is None:
            if "enable_auto_commit" in self.given and self.enable_auto_commit and "group_id" in self.given:
                raise ValueError("enable_auto_commit=True needs a group_id")
            if self.group_instance_id is not None:
                raise ValueError(f"group_instance_id={self.group_instance_id!r} needs a group_id")
        if self.group_protocol == "consumer" and self.classic_options:
            raise ValueError(
                f"{', '.join(sorted(self.classic_options))}: only for group_protocol='classic'; the broker decides with 'consumer'"
            )
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            raise ValueError("group_remote_assignor: only for group_protocol='consumer'")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms}: expected less than session_timeout_ms, "
                f"which is {self.session_timeout_ms}"
            )
        self._check_tls()
        self._check_sasl()

    def _check_tls(self) -> None:
        if not self.uses_tls:
            self._refuse_with(_TLS, f"security_protocol={self.security_protocol!r}", "it needs 'SSL' or 'SASL_SSL'")
        if self.ssl_context is not None:
            self._refuse_with(_TLS[1:], "ssl_context", "the context decides")
        for first, second in _EITHER:
            if getattr(self, first) is not None:
                self._refuse_with((second,), first, "one of them is enough")
        for option, needed in _TOGETHER:
            if getattr(self, option) is not None and all(getattr(self, name) is None for name in needed):
                raise ValueError(f"{option} is set without {' or '.join(needed)}; set both")

    def _check_sasl(self) -> None:
        if not self.uses_sasl:
            self._refuse_with(_SASL, f"security_protocol={self.security_protocol!r}", "it needs 'SASL_SSL' or 'SASL_PLAINTEXT'")
            return
        if self.sasl_mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            for name in _PASSWORD:
                if getattr(self, name) is None:
                    raise ValueError(f"sasl_mechanism={self.sasl_mechanism!r} needs {name}")
        else:
            self._refuse_with(_PASSWORD, f"sasl_mechanism={self.sasl_mechanism!r}", "it is for PLAIN and SCRAM")
        if self.sasl_mechanism == "OAUTHBEARER":
            self._check_oauth()
        else:
            self._refuse_with(_OAUTH, f"sasl_mechanism={self.sasl_mechanism!r}", "it is for OAUTHBEARER")
        if self.sasl_mechanism != "GSSAPI":
            self._refuse_with(_KERBEROS, f"sasl_mechanism={self.sasl_mechanism!r}", "it is for GSSAPI")

    def _check_oauth(self) -> None:
        provider, url, *rest = _OAUTH
        if self.sasl_oauth_token_provider is not None:
            self._refuse_with((url, *rest), provider, "one source of tokens is enough")
            return
        if self.sasl_oauthbearer_token_endpoint_url is None:
            raise ValueError(f"sasl_mechanism='OAUTHBEARER' needs {provider} or {url}")
        for name in rest[:2]:
            if getattr(self, name) is None:
                raise ValueError(f"{url} needs {name}")
        fault = endpoint_fault(self.sasl_oauthbearer_token_endpoint_url, self.sasl_oauthbearer_allow_http)
        if fault is not None:
            raise ValueError(fault)

    def _refuse_with(self, names: Iterable[str], other: str, why: str) -> None:
        """Raise for the first option of ``names`` that is set: it makes no sense with ``other``."""
        defaults = fields_dict(type(self))
        for name in names:
            if getattr(self, name) != defaults[name].default:
                raise ValueError(f"{name} is set together with {other}: {why}")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "ConsumerConfig":
        """Return the configuration for keyword ``options``.

        Raises ``TypeError`` for an unknown option, naming the nearest known one, and ``ValueError`` for a bad value, naming the
        option, the value and what is allowed. Options that only aiokafka knows are dropped with a ``DeprecationWarning``.
        """
        known = fields_dict(cls).keys() - {"given"}
        kept = {}
        for name, value in options.items():
            if name in known:
                kept[name] = value
            elif name in _IGNORED:
                warnings.warn(f"option {name} is ignored: {_IGNORED[name]}", DeprecationWarning, stacklevel=4)
            else:
                near = difflib.get_close_matches(name.replace(".", "_"), known, n=1, cutoff=0.5)
                raise TypeError(f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return cls(given=frozenset(kept), **kept)

    @property
    def uses_tls(self) -> bool:
        """Connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Connections authenticate with ``sasl_mechanism``."""
        return self.security_protocol.startswith("SASL")

    @property
    def retry_backoff(self) -> float:
        """Seconds to wait after a first failure. Never 0: a request can fail without leaving the machine, and that would spin."""
        return max(self.retry_backoff_ms, _LEAST_BACKOFF_MS) / 1000

    @property
    def retry_backoff_max(self) -> float:
        """Seconds to wait after many failures."""
        return max(self.retry_backoff_max_ms / 1000, self.retry_backoff)

    def retry_delay(self, failures: int) -> float:
        """Seconds to wait after so many earlier failures, without jitter: for what one consumer repeats by itself."""
        return min(self.retry_backoff * 2.0 ** min(failures, 10), self.retry_backoff_max)

    @property
    def classic_options(self) -> frozenset[str]:
        """The options that only the classic group protocol has, as far as the caller set them."""
        return _CLASSIC_ONLY & self.given

    @property
    def reset_duration(self) -> datetime.timedelta | None:
        """The duration of ``auto_offset_reset="by_duration:..."``, else ``None``."""
        return parse_duration(self.auto_offset_reset.removeprefix("by_duration:"))
