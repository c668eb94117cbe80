"""The options of a consumer with their defaults, validated. They are here and nowhere else.

No code is loaded that a string names (CVE-2023-25194): call-backs are passed as Python objects.

Names are Kafka's configuration keys with ``_`` for ``.``, as kafka-python and aiokafka spell them. Times are in milliseconds,
sizes in bytes. Secrets do not show in ``repr``. What each option means is in ``options.py``.
"""

import ssl
from collections.abc import Mapping
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from attrs import fields_dict

from ..model import IsolationLevel
from ..trace import Listener
from ..values import defaults_of, evolve, field, frozen
from . import checks
from .checks import (
    FLAG,
    INT64_MAX,
    ISOLATION,
    OFFSET_RESET,
    OPTIONAL_CONTEXT,
    OPTIONAL_CREDENTIAL,
    OPTIONAL_DESERIALIZER,
    OPTIONAL_LISTENER,
    OPTIONAL_MAPPING,
    OPTIONAL_PEM,
    OPTIONAL_SECRET,
    OPTIONAL_SENDABLE,
    OPTIONAL_TEXT,
    SENDABLE,
    TOKEN_PROVIDER,
    number,
    one_of,
    optional_file,
    parse_bootstrap_servers,
)
from .security import NAMES as SECURITY
from .security import check_security, without_effect
from .warning import warn
from .words import (
    Background,
    Deserializer,
    DnsLookup,
    GrantType,
    GroupProtocol,
    Mechanism,
    RecoveryStrategy,
    SecurityProtocol,
    SigningAlgorithm,
    TokenProvider,
)

if TYPE_CHECKING:
    from typing import Unpack

    from .options import ConsumerOptions
    from .texts import OptionTexts

_LEAST_BACKOFF_MS: Final = 10
_CLASSIC_ONLY: Final = frozenset(("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"))

# Options of aiokafka that have no meaning here. A program that moves over by changing its import must still start.
_IGNORED: Final = {
    "loop": "the running event loop is used",
    "api_version": "versions are negotiated with each broker",
    "consumer_timeout_ms": "iteration ends by itself only in kafka_async.sync; getmany(timeout_ms=...) returns {} if nothing came",
    "rebalance_timeout_ms": "max_poll_interval_ms is the rebalance timeout, as in Java (KIP-62)",
}


class _Described:
    """A docstring that ends with the reference of all options. They are read from their file when it is first used."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, instance: object, owner: type) -> str:
        from .docstrings import everything

        return everything(self._text)


@frozen(kw_only=True)
class ConsumerConfig:
    """All options of a consumer, validated.

    ``of`` makes one of keyword arguments, ``from_options`` of a mapping, ``from_env`` of environment variables and
    ``from_properties`` of a properties file of Java's. What each option means, with its unit, range and default, is printed by
    ``kafka-async options [NAME]`` and by ``kafka_async.config.reference.page(NAME)``, and is in ``config/OPTIONS.md``.
    """

    __doc__ = _Described(__doc__ or "")  # Python asks descriptors for docstrings

    bootstrap_servers: tuple[tuple[str, int], ...] = field(default="localhost:9092", converter=parse_bootstrap_servers)
    client_id: str = field(default="kafka-async", validator=SENDABLE)
    client_rack: str = field(default="", converter=checks.or_empty, validator=SENDABLE)

    # Group.
    group_id: str | None = field(default=None, validator=OPTIONAL_SENDABLE)
    group_instance_id: str | None = field(default=None, validator=OPTIONAL_SENDABLE)
    group_protocol: GroupProtocol = field(default="auto", validator=one_of(GroupProtocol))
    group_remote_assignor: str | None = field(default=None, validator=OPTIONAL_SENDABLE)
    session_timeout_ms: int = field(default=45_000, validator=number(1))
    heartbeat_interval_ms: int = field(default=3_000, validator=number(1))
    partition_assignment_strategy: tuple[Any, ...] = field(default=("range", "cooperative-sticky"), converter=checks.as_tuple)
    max_poll_interval_ms: int = field(default=300_000, validator=number(1))
    enable_auto_commit: bool = field(default=True, validator=FLAG)
    auto_commit_interval_ms: int = field(default=5_000, validator=number(0))
    exclude_internal_topics: bool = field(default=True, validator=FLAG)

    # Reading.
    auto_offset_reset: str = field(default="latest", validator=OFFSET_RESET)
    auto_offset_reset_new_partitions: str = field(default="earliest", validator=OFFSET_RESET)
    isolation_level: IsolationLevel = field(
        default=IsolationLevel.READ_UNCOMMITTED, converter=checks.isolation, validator=ISOLATION
    )
    allow_auto_create_topics: bool = field(default=True, validator=FLAG)
    max_poll_records: int = field(default=500, converter=checks.or_unlimited, validator=number(1))
    key_deserializer: Deserializer[Any] | None = field(default=None, validator=OPTIONAL_DESERIALIZER)
    value_deserializer: Deserializer[Any] | None = field(default=None, validator=OPTIONAL_DESERIALIZER)
    interceptors: tuple[Any, ...] = field(default=(), converter=checks.as_tuple)
    check_crcs: bool = field(default=True, validator=FLAG)

    # Fetching.
    fetch_min_bytes: int = field(default=1, validator=number(0))
    fetch_max_bytes: int = field(default=50 * 1024 * 1024, validator=number(0))
    fetch_max_wait_ms: int = field(default=500, validator=number(0))
    max_partition_fetch_bytes: int = field(default=1024 * 1024, validator=number(1))
    fetch_buffer_bytes: int = field(default=32 * 1024 * 1024, validator=number(1, INT64_MAX))
    max_decompressed_bytes: int = field(default=256 * 1024 * 1024, validator=number(1, INT64_MAX))
    receive_message_max_bytes: int = field(default=100_000_000, validator=number(1024))

    # Time.
    request_timeout_ms: int = field(default=30_000, validator=number(1))
    default_api_timeout_ms: int = field(default=60_000, validator=number(0))
    retry_backoff_ms: int = field(default=100, validator=number(0))
    retry_backoff_max_ms: int = field(default=1_000, validator=number(0))

    # Network.
    reconnect_backoff_ms: int = field(default=50, validator=number(0))
    reconnect_backoff_max_ms: int = field(default=1_000, validator=number(0))
    socket_connection_setup_timeout_ms: int = field(default=10_000, validator=number(1))
    socket_connection_setup_timeout_max_ms: int = field(default=30_000, validator=number(1))
    connections_max_idle_ms: int = field(default=540_000, validator=number(-1, INT64_MAX, without=0))
    client_dns_lookup: DnsLookup = field(default="use_all_dns_ips", validator=one_of(DnsLookup))
    bootstrap_resolve_timeout_ms: int = field(default=0, validator=number(0))
    receive_buffer_bytes: int = field(default=-1, validator=number(-1))
    send_buffer_bytes: int = field(default=-1, validator=number(-1))
    metadata_max_age_ms: int = field(default=300_000, validator=number(0))
    metadata_cluster_check_enable: bool = field(default=True, validator=FLAG)
    metadata_recovery_strategy: RecoveryStrategy = field(default="rebootstrap", validator=one_of(RecoveryStrategy))
    metadata_recovery_rebootstrap_trigger_ms: int = field(default=300_000, validator=number(0))

    # Security.
    security_protocol: SecurityProtocol = field(default="PLAINTEXT", validator=one_of(SecurityProtocol))
    ssl_context: ssl.SSLContext | None = field(default=None, validator=OPTIONAL_CONTEXT, repr=False)
    ssl_cafile: str | None = field(default=None, converter=checks.path, validator=optional_file("ssl_truststore_certificates"))
    ssl_certfile: str | None = field(default=None, converter=checks.path, validator=optional_file("ssl_keystore_certificate_chain"))
    ssl_keyfile: str | None = field(default=None, converter=checks.path, validator=optional_file("ssl_keystore_key"))
    ssl_password: str | None = field(default=None, validator=OPTIONAL_SECRET, repr=False)
    ssl_crlfile: str | None = field(default=None, converter=checks.path, validator=optional_file())
    ssl_ciphers: str | None = field(default=None, validator=OPTIONAL_TEXT)
    ssl_check_hostname: bool = field(default=True, validator=FLAG)
    ssl_truststore_certificates: str | None = field(default=None, converter=checks.pem, validator=OPTIONAL_PEM, repr=False)
    ssl_keystore_certificate_chain: str | None = field(default=None, converter=checks.pem, validator=OPTIONAL_PEM, repr=False)
    ssl_keystore_key: str | None = field(default=None, converter=checks.pem, validator=OPTIONAL_PEM, repr=False)
    sasl_mechanism: Mechanism = field(default="GSSAPI", converter=checks.or_gssapi, validator=one_of(Mechanism))
    sasl_plain_username: str | None = field(default=None, validator=OPTIONAL_CREDENTIAL)
    sasl_plain_password: str | None = field(default=None, validator=OPTIONAL_CREDENTIAL, repr=False)
    sasl_scram_tokenauth: bool = field(default=False, validator=FLAG)
    sasl_kerberos_service_name: str = field(default="kafka", validator=SENDABLE)
    sasl_kerberos_domain_name: str | None = field(default=None, validator=OPTIONAL_TEXT)
    sasl_kerberos_principal: str | None = field(default=None, validator=OPTIONAL_TEXT)
    sasl_kerberos_keytab: str | None = field(default=None, converter=checks.path, validator=optional_file())
    sasl_oauth_token_provider: TokenProvider | None = field(default=None, validator=TOKEN_PROVIDER, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = field(default=None, validator=OPTIONAL_TEXT, repr=checks.without_query)
    sasl_oauthbearer_client_credentials_client_id: str | None = field(default=None, validator=OPTIONAL_TEXT)
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, validator=OPTIONAL_SECRET, repr=False)
    sasl_oauthbearer_grant_type: GrantType = field(default="client_credentials", validator=one_of(GrantType))
    sasl_oauthbearer_assertion_file: str | None = field(default=None, converter=checks.path, validator=optional_file())
    sasl_oauthbearer_assertion_private_key_file: str | None = field(default=None, converter=checks.path, validator=optional_file())
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = field(default=None, validator=OPTIONAL_SECRET, repr=False)
    sasl_oauthbearer_assertion_algorithm: SigningAlgorithm = field(default="RS256", validator=one_of(SigningAlgorithm))
    sasl_oauthbearer_assertion_claim_iss: str | None = field(default=None, validator=OPTIONAL_TEXT)
    sasl_oauthbearer_assertion_claim_sub: str | None = field(default=None, validator=OPTIONAL_TEXT)
    sasl_oauthbearer_assertion_claim_aud: str | None = field(default=None, validator=OPTIONAL_TEXT)
    sasl_oauthbearer_assertion_claim_exp_seconds: int = field(default=300, validator=number(0, 86_400))
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = field(default=60, validator=number(0, 3_600))
    sasl_oauthbearer_assertion_claim_jti_include: bool = field(default=False, validator=FLAG)
    sasl_oauthbearer_assertion_template_file: str | None = field(default=None, converter=checks.path, validator=optional_file())
    sasl_oauthbearer_scope: str | None = field(default=None, validator=OPTIONAL_TEXT)
    sasl_oauthbearer_extensions: Mapping[str, str] | None = field(default=None, validator=OPTIONAL_MAPPING, repr=False)
    sasl_oauthbearer_ssl_cafile: str | None = field(default=None, converter=checks.path, validator=optional_file())
    sasl_oauthbearer_allow_http: bool = field(default=False, validator=FLAG)
    sasl_oauthbearer_header_urlencode: bool = field(default=False, validator=FLAG)
    sasl_login_connect_timeout_ms: int = field(default=10_000, validator=number(1))
    sasl_login_read_timeout_ms: int = field(default=10_000, validator=number(1))
    sasl_login_retry_backoff_ms: int = field(default=100, validator=number(1))
    sasl_login_retry_backoff_max_ms: int = field(default=10_000, validator=number(1))

    # Telemetry.
    enable_metrics_push: bool = field(default=True, validator=FLAG)

    # Ours.
    background: Background = field(default="task", validator=one_of(Background))
    trace: Listener | None = field(default=None, validator=OPTIONAL_LISTENER)

    given: frozenset[str] = field(factory=frozenset)
    """Names of the options that the caller set. ``group_protocol="auto"`` depends on it."""

    def __attrs_post_init__(self) -> None:
        if self.group_id is None and self.group_instance_id is not None:
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
        if self.security_protocol != "PLAINTEXT":
            check_security({name: getattr(self, name) for name in SECURITY}, self._changed())

    def _changed(self) -> frozenset[str]:
        """Return the options of TLS and SASL that do not have their defaults."""
        defaults = defaults_of(type(self))
        return frozenset(name for name in SECURITY if getattr(self, name) != defaults[name])

    @classmethod
    def of(cls, **options: "Unpack[ConsumerOptions]") -> "ConsumerConfig":
        """Return the configuration for keyword ``options``.

        Raises ``TypeError`` for an unknown option, naming the nearest known one, and ``ValueError`` for a bad value, naming the
        option, the value unless it may be a secret, and what is allowed. Options that only aiokafka knows are ignored with a
        ``DeprecationWarning``. One ``UserWarning`` names the options of TLS and SASL that have no effect with
        ``security_protocol="PLAINTEXT"``.
        """
        given = _known(options)
        config = ConsumerConfig(**options, given=given)
        if idle := without_effect(config.security_protocol, config._changed()):
            warn(f"no effect with security_protocol='PLAINTEXT': {', '.join(idle)}", UserWarning)
        return config

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "ConsumerConfig":
        """Return the configuration for ``options``, as ``of`` does."""
        return cls.of(**options)

    @classmethod
    def from_env(cls, prefix: str = "KAFKA_", **options: "Unpack[ConsumerOptions]") -> "ConsumerConfig":
        """Return the configuration that environment variables hold, such as ``KAFKA_BOOTSTRAP_SERVERS`` and ``KAFKA_GROUP_ID``.

        The name of a variable is ``prefix`` and the option's name in capitals. ``options`` are added and override the variables;
        those that take Python objects can only be given here. Values are text: ``true`` or ``false``, digits, assignors separated
        by commas, and JSON for ``sasl_oauthbearer_extensions``.

        A variable with the prefix whose name is close to that of an option is an error, because it is probably a typing mistake.
        Others, such as ``KAFKA_HOME``, are ignored. Raises ``TypeError`` and ``ValueError`` as ``of`` does, naming the variable or
        the option. No error shows a value that may be a secret.
        """
        from .sources import environment_options

        return cls.of(**{**environment_options(prefix, option_texts()), **options})

    @classmethod
    def from_properties(cls, path: "str | PathLike[str]", **options: "Unpack[ConsumerOptions]") -> "ConsumerConfig":
        """Return the configuration in a properties file, as Java's tools take with ``--command-config``.

        Keys and values are Java's: ``group.id``, ``sasl.jaas.config``, ``ssl.truststore.location`` with
        ``ssl.truststore.type=PEM``, names of Java's assignors and of its deserializers of bytes and strings. ``options`` are added
        and override the file, also what would be refused there: ``value_deserializer`` takes the place of a Java class,
        ``sasl_oauth_token_provider`` of a login module, ``ssl_cafile`` of a truststore. Keys that mean something to Java only are
        ignored. The file may be shared with a producer: one INFO line of the logger ``kafka_async`` names the keys that only
        producers have. With ``PLAINTEXT``, lines of TLS and SASL are ignored as well, and one ``UserWarning`` names them.

        Raises ``OSError`` if the file cannot be read, ``TypeError`` for an unknown key, naming the nearest known one,
        ``KafkaConfigurationError`` for a key without a counterpart here, with what to use instead, and ``ValueError`` for a bad
        value or a line that cannot be read. No error shows a value that may be a secret.
        """
        from .sources import properties_options

        return cls.of(**{**properties_options(path, option_texts(), options), **options})

    def with_client_id(self, client_id: str) -> "ConsumerConfig":
        """Return this configuration with a client id that was made for it. It does not count as given."""
        return evolve(self, client_id=client_id)

    @property
    def uses_tls(self) -> bool:
        """Connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Connections authenticate with ``sasl_mechanism``."""
        return self.security_protocol.startswith("SASL")

    @property
    def tells_new_partitions(self) -> bool:
        """Whether it matters which partitions are new to the group: they are read from elsewhere than others without an offset."""
        return self.auto_offset_reset != self.auto_offset_reset_new_partitions

    @property
    def retry_backoff(self) -> float:
        """Seconds to wait after a first failure. Never 0: requests can fail inside this machine, and the loop would spin."""
        return max(self.retry_backoff_ms, _LEAST_BACKOFF_MS) / 1000

    @property
    def retry_backoff_max(self) -> float:
        """Seconds to wait after many failures."""
        return max(self.retry_backoff_max_ms / 1000, self.retry_backoff)

    @property
    def classic_options(self) -> frozenset[str]:
        """The options that the caller set and that only the classic group protocol has."""
        return _CLASSIC_ONLY & self.given

    @property
    def decided_protocol(self) -> str:
        """The group protocol as far as options decide it; ``auto``: the broker does."""
        return "classic" if self.group_protocol == "auto" and self.classic_options else self.group_protocol


NAMES: Final = frozenset(defaults_of(ConsumerConfig)) - {"given"}
"""The names of all options."""


@cache
def option_texts() -> "OptionTexts":
    """Return what reads the options of a consumer from text."""
    from .texts import OptionTexts

    return OptionTexts(fields_dict(ConsumerConfig))


def nearest_option(name: str) -> str:
    """Return ``"; did you mean ...?"`` for a name that is nearly an option's, where Java's own are known, or nothing."""
    from .java import nearest_name  # needed only for an unknown name

    return nearest_name(name, NAMES)


def _known(options: Any) -> frozenset[str]:
    """Take what has no meaning here out of ``options``, with a warning, and return the names of the rest."""
    for name in [name for name in options if name not in NAMES]:
        if name not in _IGNORED:
            raise TypeError(f"unknown option {name!r}{nearest_option(name)}")
        warn(f"option {name} is ignored: {_IGNORED[name]}", DeprecationWarning)
        del options[name]
    return frozenset(options)
