"""The options of a share consumer, and what errors say about those that share groups do not have.

``config/options.py`` says what the others mean.
"""

import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from os import PathLike
from typing import Any, Final, Generic, Literal, TypedDict

from ...background.share.share_settings import ShareSettings
from ...config import ConsumerConfig, ConsumerOptions
from ...config.words import (
    Background,
    Deserializer,
    DnsLookup,
    GrantType,
    Mechanism,
    RecoveryStrategy,
    SecurityProtocol,
    SigningAlgorithm,
    TokenProvider,
)
from ...trace import Listener
from ..processing.process_options import CommonProcessOptions
from .record import K, ShareRecord, V

_GROUP: Final = "of the group's configuration; set it with 'kafka-async groups configure' or Java's kafka-configs"
_REFUSED: Final[Mapping[str, str]] = {
    "auto_offset_reset": f"a share group starts where its setting says: share.auto.offset.reset {_GROUP}",
    "auto_offset_reset_new_partitions": "a share group reads new partitions as its setting says: share.auto.offset.reset",
    "isolation_level": f"a share group has one setting for all members: share.isolation.level {_GROUP}",
    "enable_auto_commit": "share groups have no offsets to commit; records are acknowledged: accept(), or 'async with record'",
    "auto_commit_interval_ms": "share groups have no offsets to commit; acknowledgements go out with the next request",
    "group_instance_id": "share groups have no static members; a member that restarts joins as a new one and loses nothing",
    "group_protocol": "share groups have their own protocol; for other groups use KafkaConsumer",
    "group_remote_assignor": "the coordinator assigns the partitions of share groups",
    "partition_assignment_strategy": "the coordinator assigns the partitions of share groups",
    "session_timeout_ms": f"it is share.session.timeout.ms {_GROUP}",
    "heartbeat_interval_ms": f"it is share.heartbeat.interval.ms {_GROUP}",
    "exclude_internal_topics": "share groups subscribe by name only",
    "max_partition_fetch_bytes": "a share fetch has no limit for each partition; use fetch_max_bytes",
    "interceptors": "interceptors get committed offsets, and share groups have none",
}
"""Options of consumers that share groups do not have, and what to use instead."""
_JAVAS: Final[Mapping[str, str]] = {
    "share_acknowledgement_mode": "records are acknowledged one by one: accept(), or 'async with record'",
    "share_acquire_mode": "use strict_max_records=True for Java's record_limit",
}
"""Options that only Java's share consumer has."""

Reaction = Callable[[ShareRecord[Any, Any], BaseException, int], Awaitable[object] | object]
ShareOnFailure = Literal["stop", "skip", "release"] | Reaction
"""What ``ShareConsumer.process`` does about a record that failed for good."""

_OWN: Final = ("max_processing_ms", "bad_record_deliveries", "strict_max_records")


class ShareOptions(TypedDict, Generic[K, V], total=False):
    """The options of a share consumer. Those not described here mean what they mean for every consumer (``ConsumerOptions``)."""

    bootstrap_servers: str | Iterable[str]
    client_id: str
    client_rack: str | None
    group_id: str
    """Name of the share group; required."""
    max_processing_ms: int
    """How long the lock of a record is renewed automatically, counted from its delivery. After that the lock ends and others get
    the record.

    It is renewed while the record is in ``async with`` or in ``process``; while it waits for a delayed release; while it waits its
    turn, since ``getmany`` returned it with others of which one is in ``async with``, or was acknowledged within the time of a
    lock; and while it is unread and reads go on. Unread records are released if no read call has come for the time of a lock, or
    for ``max_poll_interval_ms`` if that is shorter. ``process`` releases records that wait for a handler if none has begun or
    ended for that long.

    Default: ``300000``. Allowed: an integer of at least 1.
    """
    bad_record_deliveries: int
    """At which delivery a record that cannot be read (a corrupt batch, a deserializer that raises) is rejected for good. Before
    that it is released, for another attempt.

    Default: ``2``. Allowed: an integer of at least 1.
    """
    strict_max_records: bool
    """Lock no more records than read calls ask for, and read nothing ahead (KIP-1206): ``getone`` locks one. By default records are
    locked ahead of the reads: as many as are asked for, or, if the application is so fast that it gets through a whole batch within
    a thirtieth of the lock duration, whole batches.

    Default: ``False``. Needs brokers of Kafka 4.2.
    """
    max_poll_interval_ms: int
    """How long the application may go without reading before the consumer leaves the group; it joins again at the next read.
    Unread records are released then. Records that the application holds stay locked.

    Default: ``300000``.
    """
    allow_auto_create_topics: bool
    max_poll_records: int
    """How many records one read call returns at most, and how many a fetch asks for. The consumer reads ahead no more than the
    application gets to within a third of the lock duration, since others can work on the rest. Until it has seen how long the
    application takes for ten records, it reads only what is asked for.

    Default: ``500``.
    """
    key_deserializer: Deserializer[K] | None
    value_deserializer: Deserializer[V] | None
    check_crcs: bool
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    fetch_buffer_bytes: int
    max_decompressed_bytes: int
    receive_message_max_bytes: int
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    client_dns_lookup: DnsLookup
    bootstrap_resolve_timeout_ms: int
    receive_buffer_bytes: int
    send_buffer_bytes: int
    metadata_max_age_ms: int
    metadata_cluster_check_enable: bool
    metadata_recovery_strategy: RecoveryStrategy
    metadata_recovery_rebootstrap_trigger_ms: int
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | PathLike[str] | None
    ssl_certfile: str | PathLike[str] | None
    ssl_keyfile: str | PathLike[str] | None
    ssl_password: str | None
    ssl_crlfile: str | PathLike[str] | None
    ssl_ciphers: str | None
    ssl_check_hostname: bool
    ssl_truststore_certificates: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    sasl_mechanism: Mechanism
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_scram_tokenauth: bool
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_principal: str | None
    sasl_kerberos_keytab: str | PathLike[str] | None
    sasl_oauth_token_provider: TokenProvider | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_grant_type: GrantType
    sasl_oauthbearer_assertion_file: str | PathLike[str] | None
    sasl_oauthbearer_assertion_private_key_file: str | PathLike[str] | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_algorithm: SigningAlgorithm
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_oauthbearer_assertion_template_file: str | PathLike[str] | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_extensions: Mapping[str, str] | None
    sasl_oauthbearer_ssl_cafile: str | PathLike[str] | None
    sasl_oauthbearer_allow_http: bool
    sasl_oauthbearer_header_urlencode: bool
    sasl_login_connect_timeout_ms: int
    sasl_login_read_timeout_ms: int
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    enable_metrics_push: bool
    background: Background
    trace: Listener | None


class ShareProcessOptions(CommonProcessOptions, total=False):
    """The options of ``ShareConsumer.process``. Times are in milliseconds, sizes in bytes."""

    on_failure: ShareOnFailure
    """What happens to a record after its last attempt. Default: ``"stop"``, which releases it."""


def share_options(options: Mapping[str, Any]) -> tuple[ConsumerConfig, ShareSettings]:
    """Return the configuration for ``options``, and the settings that only share consumers have.

    Raises ``TypeError`` for an unknown option, ``ValueError`` for a bad value and for an option that share groups do not have, with
    what to use instead.
    """
    refused = [f"{name}: {_REFUSED[name]}" for name in options if name in _REFUSED]
    if refused:
        raise ValueError(f"share groups do not have the option {'; '.join(refused)}")
    javas = [f"{name}: {_JAVAS[name]}" for name in options if name in _JAVAS]
    if javas:
        raise TypeError(f"unknown option {'; '.join(javas)}")
    own = {name: options[name] for name in _OWN if name in options}
    for name in ("max_processing_ms", "bad_record_deliveries"):
        value = own.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: expected an integer of at least 1")
    strict = own.get("strict_max_records", False)
    if not isinstance(strict, bool):
        raise ValueError(f"strict_max_records={strict!r}: expected True or False")
    others: ConsumerOptions = {name: value for name, value in options.items() if name not in _OWN}  # type: ignore[assignment]  # checked there
    config = ConsumerConfig.of(**others)
    if not config.group_id:
        raise ValueError(f"group_id={config.group_id!r}: a share consumer needs the name of its group")
    return config, ShareSettings(**own)
