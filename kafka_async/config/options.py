"""What each option of a consumer means.

The defaults and the checks are in ``consumer_config.py``; a test compares the two, and the page ``OPTIONS.md``, which is printed
from here. Python keeps no docstrings of attributes, so ``reference.py`` reads them from this file.

A docstring says what the option does. Its last three lines are the default, what is allowed, and the key under which Kafka has it.
"""

import ssl
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Generic, Literal, TypedDict

from typing_extensions import TypeVar

from ..model import IsolationLevel
from ..trace import Listener
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

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


class CommonOptions(TypedDict, Generic[K, V], total=False):
    """The options that consumers and share consumers have in common."""

    # --- Connection ---
    bootstrap_servers: str | Iterable[str]
    """Brokers to ask first, as ``"host:port"``, several with commas between them, or a list of such strings.

    The other brokers of the cluster are found through them. Name two or three, so that a consumer can start while one of them is
    down. Every address of a host name is tried. The port is 9092 if none is given. IPv6 addresses are in brackets.

    Default: ``'localhost:9092'``.
    Allowed: ``'host:port'``, several with commas between them, or a list of strings; ports from 1 to 65535.
    Kafka: ``bootstrap.servers`` (KIP-602).
    """

    client_id: str
    """Name of this consumer in the logs, quotas and metrics of the brokers, and in its own log and metrics.

    Without one, a ``KafkaConsumer`` calls itself ``consumer-GROUP-NUMBER``, as Java's does; the default below is that of
    ``ConsumerConfig`` by itself.

    Default: ``'kafka-async'``.
    Allowed: a string of at most 32,767 bytes in UTF-8.
    Kafka: ``client.id``.
    """

    client_rack: str | None
    """Rack, or availability zone, of this consumer, as in the brokers' ``broker.rack``.

    Brokers with a replica selector then direct it to the closest replica, and assignors that know racks prefer
    partitions that have a replica there. Empty: no rack.

    Default: ``''``.
    Allowed: a string of at most 32,767 bytes in UTF-8.
    Kafka: ``client.rack`` (KIP-392, KIP-881).
    """

    client_dns_lookup: DnsLookup
    """How the host names of ``bootstrap_servers`` are resolved.

    ``use_all_dns_ips`` tries every address of a name until one connects. ``resolve_canonical_bootstrap_servers_only`` replaces
    each name by the canonical names of all its addresses first, which Kerberos may need if the name stands for several brokers.
    They are looked up when the name is connected to, and anew whenever ``rebootstrap`` starts again.

    Default: ``'use_all_dns_ips'``.
    Allowed: one of 'use_all_dns_ips', 'resolve_canonical_bootstrap_servers_only'.
    Kafka: ``client.dns.lookup`` (KIP-235, KIP-302).
    """

    bootstrap_resolve_timeout_ms: int
    """For how long ``start`` tries again while no host name of ``bootstrap_servers`` can be resolved.

    A program that starts before its cluster, as in Kubernetes, may find no names yet. ``0``: ``start`` fails at once, as it does
    if no broker listens. The timeout of ``start`` itself still applies.

    Default: ``0``.
    Allowed: an integer from 0 to 2147483647, in milliseconds.
    Kafka: ``bootstrap.resolve.timeout.ms`` (KIP-909).
    """

    # --- What is read ---
    allow_auto_create_topics: bool
    """Let the brokers create topics that are subscribed to and do not exist.

    They do it only if their own ``auto.create.topics.enable`` is true. ``False``: ``start`` and reading raise
    ``UnknownTopicOrPartitionError``.

    Default: ``True``.
    Allowed: True or False.
    Kafka: ``allow.auto.create.topics`` (KIP-361).
    """

    key_deserializer: Deserializer[K] | None
    """Turns a key's bytes into an object. ``None``: keys are ``bytes``.

    Takes the same forms as ``value_deserializer``.

    Default: ``None``.
    Allowed: a callable that takes bytes, or topic, headers and bytes, or None.
    Kafka: ``key.deserializer``.
    """

    value_deserializer: Deserializer[V] | None
    """Turns a value's bytes into an object. ``None``: values are ``bytes``.

    A callable of the bytes, such as ``json.loads``; a callable of three arguments, ``(topic, headers, data)``; or an object
    with a method ``deserialize`` that takes either. Any of them may be ``async def``. It is called once for each record that is
    handed out, inside the call that reads. It is not called for a null value (a tombstone) or a missing key, which stay ``None``.

    If it raises, a read call raises ``DeserializationError``, once, which holds the record with its bytes; reading goes on after
    that record. An error that says that the same call may succeed later is raised as it is, and nothing is passed over: the next
    read tries again, and ``process`` does so for as long as it takes. It says so by an attribute ``retriable`` that is ``True``,
    or by a class ``RetriableError`` or ``RetriableException`` among its bases.

    Type checkers take the type of the values from it; for what they cannot know see "Types" in ``config/README.md``.

    Default: ``None``.
    Allowed: a callable that takes bytes, or topic, headers and bytes, or None.
    Kafka: ``value.deserializer``, which names a class of Java's.
    """

    check_crcs: bool
    """Verify the checksum (CRC-32C) of each record batch.

    If a batch does not match, it is fetched once more, and then ``CorruptRecordException`` is raised. The check costs little if
    the processor has an instruction for it.

    Default: ``True``.
    Allowed: True or False.
    Kafka: ``check.crcs``.
    """

    # --- Fetching ---
    fetch_min_bytes: int
    """Bytes of records that a broker waits for before it answers a fetch.

    More than 1 trades latency, up to ``fetch_max_wait_ms``, for fewer and larger answers.

    Default: ``1``.
    Allowed: an integer from 0 to 2147483647, in bytes.
    Kafka: ``fetch.min.bytes``.
    """

    fetch_max_bytes: int
    """Maximum size of the records in one answer of a broker, over all partitions.

    A first record batch that is larger is sent all the same, so that reading always goes on.

    Default: ``52428800``.
    Allowed: an integer from 0 to 2147483647, in bytes.
    Kafka: ``fetch.max.bytes`` (KIP-74).
    """

    fetch_max_wait_ms: int
    """How long a broker may wait for ``fetch_min_bytes`` before it answers.

    It answers at once as soon as there are ``fetch_min_bytes``, so this is not a delay by itself.

    Default: ``500``.
    Allowed: an integer from 0 to 2147483647, in milliseconds.
    Kafka: ``fetch.max.wait.ms``.
    """

    fetch_buffer_bytes: int
    """Maximum size of the records that are fetched ahead and not yet handed out, over all partitions.

    Fetches stop when the buffer is full and go on when the application has read. This bounds the memory of a consumer, as long as
    no single record batch is larger. Records count as brokers send them, which may be compressed.

    Default: ``33554432``.
    Allowed: an integer from 1 to 9223372036854775807, in bytes.
    Kafka: none. KIP-81 proposes it.
    """

    max_decompressed_bytes: int
    """Maximum size of one record batch after decompression.

    A batch that claims or yields more raises ``CorruptRecordException`` and is never held in memory as a whole.

    Default: ``268435456``.
    Allowed: an integer from 1 to 9223372036854775807, in bytes.
    Kafka: none.
    """

    receive_message_max_bytes: int
    """Maximum size of one answer of a broker, of any kind.

    If an answer is longer, the connection is closed before any memory is allocated for it. Fetches ask for at most seven eighths
    of this, whatever ``fetch_max_bytes`` says. Must be larger than the largest record batch of the topics: a batch that is larger
    cannot be read, and reads raise ``FrameSizeError``.

    Default: ``100000000``.
    Allowed: an integer from 1024 to 2147483647, in bytes.
    Kafka: none. librdkafka's ``receive.message.max.bytes``.
    """

    # --- Time ---
    request_timeout_ms: int
    """How long one request may take, including its time in the queue, before it is given up, and sent again if that is safe.

    It is also how long ``stop`` may take without a timeout of its own, and how long ``start`` waits for a topic to be created.

    Default: ``30000``.
    Allowed: an integer from 1 to 2147483647, in milliseconds.
    Kafka: ``request.timeout.ms``.
    """

    default_api_timeout_ms: int
    """How long a call such as ``commit``, ``committed``, ``position`` or ``offsets_for_times`` may take, including retries.

    After that the call raises ``KafkaTimeoutError``, and its work is withdrawn. ``getone`` waits without a limit,
    ``getmany`` as long as its own ``timeout_ms``.

    Default: ``60000``.
    Allowed: an integer from 0 to 2147483647, in milliseconds.
    Kafka: ``default.api.timeout.ms`` (KIP-266).
    """

    retry_backoff_ms: int
    """How long to wait before a request that failed is sent again.

    It doubles with each failure, up to ``retry_backoff_max_ms``, give or take a fifth at random. The wait is at least 10 ms.

    Default: ``100``.
    Allowed: an integer from 0 to 2147483647, in milliseconds.
    Kafka: ``retry.backoff.ms`` (KIP-580).
    """

    retry_backoff_max_ms: int
    """Maximum wait before a request that failed repeatedly is sent again.

    Default: ``1000``.
    Allowed: an integer from 0 to 2147483647, in milliseconds.
    Kafka: ``retry.backoff.max.ms`` (KIP-580).
    """

    # --- Network ---
    reconnect_backoff_ms: int
    """How long to wait before connecting to a broker again after a connection failed.

    It doubles with each failure, up to ``reconnect_backoff_max_ms``, give or take a fifth at random.

    Default: ``50``.
    Allowed: an integer from 0 to 2147483647, in milliseconds.
    Kafka: ``reconnect.backoff.ms``.
    """

    reconnect_backoff_max_ms: int
    """Maximum wait before connecting to a broker again.

    Default: ``1000``.
    Allowed: an integer from 0 to 2147483647, in milliseconds.
    Kafka: ``reconnect.backoff.max.ms`` (KIP-144).
    """

    socket_connection_setup_timeout_ms: int
    """How long a connection may take until it is ready: name look-up, TCP, TLS, API versions and login.

    It doubles with each failure in a row, up to ``socket_connection_setup_timeout_max_ms``.

    Default: ``10000``.
    Allowed: an integer from 1 to 2147483647, in milliseconds.
    Kafka: ``socket.connection.setup.timeout.ms`` (KIP-601).
    """

    socket_connection_setup_timeout_max_ms: int
    """Maximum time that a connection may take until it is ready, after several failures in a row.

    Default: ``30000``.
    Allowed: an integer from 1 to 2147483647, in milliseconds.
    Kafka: ``socket.connection.setup.timeout.max.ms`` (KIP-601).
    """

    connections_max_idle_ms: int
    """How long an idle connection stays open. -1: until a broker closes it.

    The default is shorter than the ten minutes after which brokers close it, so that no request is sent into a connection that is
    being closed. 0 would close every connection before it can be used, and is refused.

    Default: ``540000``.
    Allowed: an integer from -1 to 9223372036854775807 other than 0, in milliseconds.
    Kafka: ``connections.max.idle.ms``.
    """

    receive_buffer_bytes: int
    """Size of the socket's receive buffer (``SO_RCVBUF``). -1: the system's, which tunes itself. Java's default is 65536.

    Default: ``-1``.
    Allowed: an integer from -1 to 2147483647, in bytes.
    Kafka: ``receive.buffer.bytes``.
    """

    send_buffer_bytes: int
    """Size of the socket's send buffer (``SO_SNDBUF``). -1: the system's. Java's default is 131072.

    Default: ``-1``.
    Allowed: an integer from -1 to 2147483647, in bytes.
    Kafka: ``send.buffer.bytes``.
    """

    metadata_max_age_ms: int
    """How old metadata may become before it is requested again even if nothing failed.

    With the protocol ``classic``, or without a group, this is how long it may take until new partitions, and new topics that
    match a pattern, are noticed. It is also how long a preferred replica is read before the leader is asked again.

    Default: ``300000``.
    Allowed: an integer from 0 to 2147483647, in milliseconds.
    Kafka: ``metadata.max.age.ms``.
    """

    metadata_cluster_check_enable: bool
    """Give up a connection that leads to a broker or cluster other than the one that was meant.

    The consumer then starts again from ``bootstrap_servers``, and keeps its positions. If these lead to a different cluster, it
    follows them, and the log says so. Brokers before 4.4 can only be asked for their cluster, so a wrong broker of the right
    cluster is not noticed there.

    Turn it off for a proxy that answers in place of several brokers. It has no effect with ``metadata_recovery_strategy="none"``.

    Default: ``True``.
    Allowed: True or False.
    Kafka: ``metadata.cluster.check.enable`` (KIP-1242).
    """

    metadata_recovery_strategy: RecoveryStrategy
    """What to do if none of the known brokers can be reached.

    ``rebootstrap`` starts again from ``bootstrap_servers``, whose names may lead to other brokers by then; ``none`` keeps trying
    the known brokers.

    Default: ``'rebootstrap'``.
    Allowed: one of 'rebootstrap', 'none'.
    Kafka: ``metadata.recovery.strategy`` (KIP-899).
    """

    metadata_recovery_rebootstrap_trigger_ms: int
    """How long the cluster may be unreachable before ``rebootstrap`` starts again from ``bootstrap_servers``.

    Default: ``300000``.
    Allowed: an integer from 0 to 2147483647, in milliseconds.
    Kafka: ``metadata.recovery.rebootstrap.trigger.ms`` (KIP-1102).
    """

    # --- Security ---
    security_protocol: SecurityProtocol
    """Whether connections are encrypted (``SSL``, ``SASL_SSL``), and whether the consumer logs in (``SASL_PLAINTEXT``,
    ``SASL_SSL``).

    With TLS, the brokers' certificates and host names are verified, and TLS versions below 1.2 are refused. With ``PLAINTEXT``
    the options of TLS and SASL have no effect; one warning names those that are set.

    Default: ``'PLAINTEXT'``.
    Allowed: one of 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL'.
    Kafka: ``security.protocol``.
    """

    ssl_context: ssl.SSLContext | None
    """A TLS context of your own. It decides everything; the other ``ssl_`` options cannot be combined with it.

    Default: ``None``.
    Allowed: an ssl.SSLContext, or None.
    Kafka: none. aiokafka's ``ssl_context``.
    """

    ssl_cafile: str | PathLike[str] | None
    """File of the certificate authorities (PEM) that may have signed the brokers' certificates. ``None``: the system's.

    Default: ``None``.
    Allowed: the path of a file (PEM text goes into ssl_truststore_certificates), or None.
    Kafka: ``ssl.truststore.location`` with ``ssl.truststore.type=PEM``.
    """

    ssl_certfile: str | PathLike[str] | None
    """File of this client's certificate and its chain (PEM), for brokers that ask for one. It may hold the private key too.

    Default: ``None``.
    Allowed: the path of a file (PEM text goes into ssl_keystore_certificate_chain), or None.
    Kafka: ``ssl.keystore.location`` with ``ssl.keystore.type=PEM``.
    """

    ssl_keyfile: str | PathLike[str] | None
    """File of the private key (PEM) of ``ssl_certfile``, if that file does not hold it.

    Default: ``None``.
    Allowed: the path of a file (PEM text goes into ssl_keystore_key), or None.
    Kafka: none. aiokafka's ``ssl_keyfile``.
    """

    ssl_password: str | None
    """Password of the private key. Needs ``ssl_certfile`` or ``ssl_keystore_key``.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: ``ssl.key.password``.
    """

    ssl_crlfile: str | PathLike[str] | None
    """File of revocation lists (PEM). The broker's own certificate is looked up in the list of the authority that signed it, which
    must be in it. Authorities are not looked up: one that was revoked is still trusted. Needs ``ssl_cafile`` or
    ``ssl_truststore_certificates``.

    Default: ``None``.
    Allowed: the path of a file, or None.
    Kafka: none. aiokafka's ``ssl_crlfile``.
    """

    ssl_ciphers: str | None
    """Ciphers up to TLS 1.2, in OpenSSL's notation, such as ``"ECDHE+AESGCM"``. ``None``: OpenSSL's default. Those of TLS 1.3 are
    always allowed.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: ``ssl.cipher.suites``, in Java's notation.
    """

    ssl_check_hostname: bool
    """Verify that the brokers' certificates are issued for the host names that the consumer connects to.

    With ``False``, anyone with a certificate of the same authorities can pose as a broker.

    Default: ``True``.
    Allowed: True or False.
    Kafka: ``ssl.endpoint.identification.algorithm``, where ``https`` is ``True`` and nothing is ``False``.
    """

    ssl_truststore_certificates: str | None
    """Certificate authorities as PEM text, in place of ``ssl_cafile``.

    Default: ``None``.
    Allowed: PEM text ('-----BEGIN ...'), or None.
    Kafka: ``ssl.truststore.certificates`` (KIP-651).
    """

    ssl_keystore_certificate_chain: str | None
    """This client's certificate and its chain as PEM text, in place of ``ssl_certfile``. Needs ``ssl_keystore_key``.

    Default: ``None``.
    Allowed: PEM text ('-----BEGIN ...'), or None.
    Kafka: ``ssl.keystore.certificate.chain`` (KIP-651).
    """

    ssl_keystore_key: str | None
    """This client's private key as PEM text, in place of ``ssl_keyfile``. Needs ``ssl_keystore_certificate_chain``.

    Default: ``None``.
    Allowed: PEM text ('-----BEGIN ...'), or None.
    Kafka: ``ssl.keystore.key`` (KIP-651).
    """

    sasl_mechanism: Mechanism | None
    """How the consumer logs in. ``None`` also means ``GSSAPI``.

    ``PLAIN`` and ``SCRAM`` need ``sasl_plain_username`` and ``sasl_plain_password``. ``OAUTHBEARER`` needs
    ``sasl_oauth_token_provider``, or ``sasl_oauthbearer_token_endpoint_url`` and client credentials. ``GSSAPI`` is Kerberos and
    needs the extra ``gssapi``.

    Default: ``'GSSAPI'``.
    Allowed: one of 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512', 'OAUTHBEARER', 'GSSAPI'.
    Kafka: ``sasl.mechanism`` (KIP-43, KIP-84, KIP-255).
    """

    sasl_plain_username: str | None
    """User name, for PLAIN and for SCRAM.

    Default: ``None``.
    Allowed: text without NUL and lone surrogates that is not empty, or None.
    Kafka: ``username`` in ``sasl.jaas.config``.
    """

    sasl_plain_password: str | None
    """Password, for PLAIN and for SCRAM. Sent as it is, without SASLprep, because Kafka stores it that way.

    Default: ``None``.
    Allowed: text without NUL and lone surrogates that is not empty, or None.
    Kafka: ``password`` in ``sasl.jaas.config``.
    """

    sasl_scram_tokenauth: bool
    """Whether user name and password are the id and the HMAC of a delegation token, for SCRAM.

    Default: ``False``.
    Allowed: True or False.
    Kafka: ``tokenauth`` in ``sasl.jaas.config`` (KIP-48).
    """

    sasl_kerberos_service_name: str
    """First part of the brokers' Kerberos principals, such as ``kafka`` in ``kafka/broker.example.com``.

    Default: ``'kafka'``.
    Allowed: a string of at most 32,767 bytes in UTF-8.
    Kafka: ``sasl.kerberos.service.name``.
    """

    sasl_kerberos_domain_name: str | None
    """Host name in the brokers' principals. ``None``: the host name used to connect to each broker.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: none. aiokafka's ``sasl_kerberos_domain_name``.
    """

    sasl_kerberos_principal: str | None
    """Principal to log in as. ``None``: that of the process's tickets, or the first in the keytab.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: none. librdkafka's ``sasl.kerberos.principal``; ``principal`` in ``sasl.jaas.config``.
    """

    sasl_kerberos_keytab: str | PathLike[str] | None
    """Keytab of ``sasl_kerberos_principal``. Tickets are obtained and renewed with it, in memory. ``None``: the tickets of the
    process.

    Default: ``None``.
    Allowed: the path of a file, or None.
    Kafka: none. librdkafka's ``sasl.kerberos.keytab``; ``keyTab`` in ``sasl.jaas.config``.
    """

    sasl_oauth_token_provider: TokenProvider | None
    """Provider of bearer tokens: an object with a method ``token()``, such as an ``AbstractTokenProvider``, or a callable; plain
    or ``async def``.

    ``MskTokenProvider`` and ``OidcTokenProvider`` are examples. Plain ones are called in a thread.

    Default: ``None``.
    Allowed: an object with a method token(), or a callable without arguments that returns a token, or None.
    Kafka: ``sasl.login.callback.handler.class``, which names a class of Java's (KIP-255).
    """

    sasl_oauthbearer_token_endpoint_url: str | None
    """Address of the token endpoint of an OpenID Connect provider. ``https`` only, unless ``sasl_oauthbearer_allow_http``; needs
    the extra ``oidc``.

    Redirects are not followed. Tokens are requested as ``sasl_oauthbearer_grant_type`` says and renewed in time.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: ``sasl.oauthbearer.token.endpoint.url`` (KIP-768).
    """

    sasl_oauthbearer_client_credentials_client_id: str | None
    """Client id at the token endpoint.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: ``sasl.oauthbearer.client.credentials.client.id`` (KIP-1139).
    """

    sasl_oauthbearer_client_credentials_client_secret: str | None
    """Client secret at the token endpoint.

    With ``sasl_oauthbearer_grant_type="client_credentials"`` an assertion takes its place.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: ``sasl.oauthbearer.client.credentials.client.secret`` (KIP-1139).
    """

    sasl_oauthbearer_grant_type: GrantType
    """How the token endpoint is asked for tokens.

    ``client_credentials``: with a client id and a secret, or with an assertion in place of the secret (KIP-1258).
    ``urn:ietf:params:oauth:grant-type:jwt-bearer``: an assertion is exchanged for a token (RFC 7523 section 2.1); a client id and a
    secret are sent as well if they are set. An assertion is a JSON Web Token. It is read from
    ``sasl_oauthbearer_assertion_file``, or signed here with ``sasl_oauthbearer_assertion_private_key_file``.

    Default: ``'client_credentials'``.
    Allowed: one of 'client_credentials', 'urn:ietf:params:oauth:grant-type:jwt-bearer'.
    Kafka: ``sasl.oauthbearer.jwt.retriever.class``, which names a class of Java's (KIP-1139). The name is librdkafka's.
    """

    sasl_oauthbearer_assertion_file: str | PathLike[str] | None
    """File with a whole assertion, which something else keeps fresh. It is read for each request to the token endpoint.

    Default: ``None``.
    Allowed: the path of a file, or None.
    Kafka: ``sasl.oauthbearer.assertion.file`` (KIP-1139).
    """

    sasl_oauthbearer_assertion_private_key_file: str | PathLike[str] | None
    """File with the private key (PEM) that signs assertions. Needs the extra ``assertion``.

    It is read for each request to the token endpoint, so it may be replaced while the consumer runs.

    Default: ``None``.
    Allowed: the path of a file, or None.
    Kafka: ``sasl.oauthbearer.assertion.private.key.file`` (KIP-1139).
    """

    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    """Passphrase of the private key. ``None``: the key has none.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: ``sasl.oauthbearer.assertion.private.key.passphrase`` (KIP-1139).
    """

    sasl_oauthbearer_assertion_algorithm: SigningAlgorithm
    """How assertions are signed: ``RS256`` needs an RSA key of 2,048 bits or more, ``ES256`` a key on the curve P-256.

    Default: ``'RS256'``.
    Allowed: one of 'RS256', 'ES256'.
    Kafka: ``sasl.oauthbearer.assertion.algorithm`` (KIP-1139).
    """

    sasl_oauthbearer_assertion_claim_iss: str | None
    """Issuer in assertions (``iss``), usually the client id.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: ``sasl.oauthbearer.assertion.claim.iss`` (KIP-1139).
    """

    sasl_oauthbearer_assertion_claim_sub: str | None
    """Subject in assertions (``sub``), usually the client id.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: ``sasl.oauthbearer.assertion.claim.sub`` (KIP-1139).
    """

    sasl_oauthbearer_assertion_claim_aud: str | None
    """Audience in assertions (``aud``), usually the address of the token endpoint.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: ``sasl.oauthbearer.assertion.claim.aud`` (KIP-1139).
    """

    sasl_oauthbearer_assertion_claim_exp_seconds: int
    """How long an assertion is valid (``exp``).

    Default: ``300``.
    Allowed: an integer from 0 to 86400, in seconds.
    Kafka: ``sasl.oauthbearer.assertion.claim.exp.seconds`` (KIP-1139).
    """

    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    """How long before now an assertion begins to be valid (``nbf``), for clocks that differ.

    Default: ``60``.
    Allowed: an integer from 0 to 3600, in seconds.
    Kafka: ``sasl.oauthbearer.assertion.claim.nbf.seconds`` (KIP-1139).
    """

    sasl_oauthbearer_assertion_claim_jti_include: bool
    """Give each assertion an id of its own (``jti``), by which an endpoint refuses to take one twice.

    Default: ``False``.
    Allowed: True or False.
    Kafka: ``sasl.oauthbearer.assertion.claim.jti.include`` (KIP-1139).
    """

    sasl_oauthbearer_assertion_template_file: str | PathLike[str] | None
    """JSON file with more of an assertion: ``{"header": {"kid": "..."}, "payload": {...}}``.

    Its claims override those of the options. ``alg``, ``typ``, ``iat``, ``exp``, ``nbf`` and ``jti`` are always made here. It is
    read for each request to the token endpoint.

    Default: ``None``.
    Allowed: the path of a file, or None.
    Kafka: ``sasl.oauthbearer.assertion.template.file`` (KIP-1139).
    """

    sasl_oauthbearer_scope: str | None
    """Scope requested from the token endpoint. ``None``: the provider's default.

    Default: ``None``.
    Allowed: a string that is not empty, or None.
    Kafka: ``sasl.oauthbearer.scope`` (KIP-1139).
    """

    sasl_oauthbearer_extensions: Mapping[str, str] | None
    """Names and values sent to the brokers with each token, such as ``{"logicalCluster": "lkc-1"}``.

    Default: ``None``.
    Allowed: a mapping of names to values, or None.
    Kafka: ``extension_NAME`` in ``sasl.jaas.config`` (KIP-342).
    """

    sasl_oauthbearer_ssl_cafile: str | PathLike[str] | None
    """File of the certificate authorities (PEM) of the token endpoint. ``None``: the system's.

    Default: ``None``.
    Allowed: the path of a file, or None.
    Kafka: none.
    """

    sasl_oauthbearer_allow_http: bool
    """Allow a token endpoint without TLS, with a warning. Secret and tokens can then be read on the way.

    Default: ``False``.
    Allowed: True or False.
    Kafka: none.
    """

    sasl_oauthbearer_header_urlencode: bool
    """URL-encode the client id and secret in the header of the request, as RFC 6749 requires but few providers expect.

    Default: ``False``.
    Allowed: True or False.
    Kafka: ``sasl.oauthbearer.header.urlencode`` (KIP-1139).
    """

    sasl_login_connect_timeout_ms: int
    """How long connecting to the token endpoint may take. Java has no limit by default.

    Default: ``10000``.
    Allowed: an integer from 1 to 2147483647, in milliseconds.
    Kafka: ``sasl.login.connect.timeout.ms`` (KIP-768).
    """

    sasl_login_read_timeout_ms: int
    """How long the token endpoint may take to answer. Java has no limit by default.

    Default: ``10000``.
    Allowed: an integer from 1 to 2147483647, in milliseconds.
    Kafka: ``sasl.login.read.timeout.ms`` (KIP-768).
    """

    sasl_login_retry_backoff_ms: int
    """How long to wait before the token endpoint is asked again after a failure. It doubles with each failure.

    Default: ``100``.
    Allowed: an integer from 1 to 2147483647, in milliseconds.
    Kafka: ``sasl.login.retry.backoff.ms`` (KIP-768).
    """

    sasl_login_retry_backoff_max_ms: int
    """Maximum wait before the token endpoint is asked again.

    Default: ``10000``.
    Allowed: an integer from 1 to 2147483647, in milliseconds.
    Kafka: ``sasl.login.retry.backoff.max.ms`` (KIP-768).
    """

    # --- Observing ---
    enable_metrics_push: bool
    """Send metrics to the brokers if their operators ask for them. Needs the extra ``otel``; without it nothing is sent.

    Default: ``True``.
    Allowed: True or False.
    Kafka: ``enable.metrics.push`` (KIP-714).
    """

    trace: Listener | None
    """A callable that gets each trace event (``kafka_async.trace``), in addition to the log and the metrics.

    It is called in the background, and inside the application's own calls. It must be quick and must not raise.

    Default: ``None``.
    Allowed: a plain callable that takes one event, or None.
    Kafka: none.
    """

    # --- Where it runs ---
    background: Background
    """Where the connection to the cluster runs: as a ``task`` in the application's event loop, or in a ``thread`` with an event
    loop of its own.

    ``thread`` keeps heartbeats and fetches going while a handler blocks the application's event loop, however long.

    Default: ``'task'``.
    Allowed: one of 'task', 'thread'.
    Kafka: none.
    """


class ConsumerOptions(CommonOptions[K, V], total=False):
    """The options of a consumer (PEP 692). All of them may be left out. ``ConsumerConfig`` describes all of them in one place.

    Names are Kafka's configuration keys with ``_`` for ``.``, as kafka-python and aiokafka spell them. Times are in milliseconds,
    sizes in bytes.
    """

    # --- Group ---
    group_id: str | None
    """Consumer group to join. Members of a group share the partitions of their topics, and commits are kept under its name.

    ``None``: no group. Then ``subscribe`` assigns every partition of the topics to this consumer, ``commit`` raises
    ``IllegalOperation``, nothing is auto-committed, and reading begins where ``auto_offset_reset`` says.

    Default: ``None``.
    Allowed: a string of at most 32,767 bytes in UTF-8 that is not empty, or None.
    Kafka: ``group.id``.
    """

    group_instance_id: str | None
    """Name by which the group recognizes this member after a restart (static membership). Needs ``group_id``.

    A member that restarts within the session timeout gets its partitions back, and the others see no rebalance. Must be different
    for each member of the group. After a clean stop of a static member, the others get its partitions only when its session times
    out.

    Default: ``None``.
    Allowed: a string of at most 32,767 bytes in UTF-8 that is not empty, or None.
    Kafka: ``group.instance.id`` (KIP-345).
    """

    group_protocol: GroupProtocol
    """Rebalance protocol of the group.

    ``consumer`` is the protocol of Kafka 4.0, in which the brokers assign partitions and members keep reading meanwhile;
    ``classic`` is that of older brokers, in which one of the members assigns. ``auto`` chooses ``consumer`` if the brokers offer
    it for this group and none of ``session_timeout_ms``, ``heartbeat_interval_ms`` and ``partition_assignment_strategy`` is
    set, else ``classic``. Java's default is ``classic``.

    Default: ``'auto'``.
    Allowed: one of 'auto', 'classic', 'consumer'.
    Kafka: ``group.protocol`` (KIP-848).
    """

    group_remote_assignor: str | None
    """Assignor that the brokers use for this group, such as ``uniform`` or ``range``. Only for the protocol ``consumer``.

    ``None``: the first of the brokers' ``group.consumer.assignors``. Brokers refuse an assignor that they do not have when the
    member joins.

    Default: ``None``.
    Allowed: a string of at most 32,767 bytes in UTF-8 that is not empty, or None.
    Kafka: ``group.remote.assignor`` (KIP-848).
    """

    partition_assignment_strategy: Sequence[Any] | None
    """Assignors that this member offers, best first. Only for the protocol ``classic``.

    Each is ``"range"``, ``"roundrobin"``, ``"sticky"`` or ``"cooperative-sticky"``, the name of Java's class, or an
    ``Assignor``, as an object or a class. The group uses one that all its members offer. If the option is not set, the member
    also offers ``roundrobin``, after the others: members that run aiokafka offer nothing else, and can then be replaced one by one.
    With ``cooperative-sticky`` alone, members go on reading the partitions that they keep during a rebalance; to move a group to
    it, restart its members once with both and once more with it alone.

    Default: ``['range', 'cooperative-sticky']``.
    Allowed: names of assignors, or assignors; at least one, none twice.
    Kafka: ``partition.assignment.strategy`` (KIP-429, KIP-881).
    """

    session_timeout_ms: int
    """How long the coordinator waits for a heartbeat before it gives the partitions of this member to others. Only for the
    protocol ``classic``.

    Must be longer than ``heartbeat_interval_ms``, and within the brokers' ``group.min.session.timeout.ms`` and
    ``group.max.session.timeout.ms``. In the protocol ``consumer`` the brokers set it (``group.consumer.session.timeout.ms``).

    Default: ``45000``.
    Allowed: an integer from 1 to 2147483647, in milliseconds.
    Kafka: ``session.timeout.ms`` (KIP-735).
    """

    heartbeat_interval_ms: int
    """How often heartbeats are sent. Only for the protocol ``classic``; a third of ``session_timeout_ms`` or less.

    Heartbeats go out in the background, whatever the application does. In the protocol ``consumer`` the brokers say how often
    (``group.consumer.heartbeat.interval.ms``).

    Default: ``3000``.
    Allowed: an integer from 1 to 2147483647, in milliseconds.
    Kafka: ``heartbeat.interval.ms`` (KIP-62).
    """

    max_poll_interval_ms: int
    """How long the application may go without asking for records before this member gives up its partitions.

    It protects the group from a member that is alive but stuck. If handling the records of one call takes longer, raise it or
    read fewer records at a time. It is also how long the group waits for this member in a rebalance. A member that gave up its
    partitions joins again at the next read call, and ``on_partitions_lost`` is called.

    Default: ``300000``.
    Allowed: an integer from 1 to 2147483647, in milliseconds.
    Kafka: ``max.poll.interval.ms`` (KIP-62).
    """

    enable_auto_commit: bool
    """Commit records that were handed out, in the background: every ``auto_commit_interval_ms``, before partitions are revoked
    and at a clean stop.

    Only records that *earlier* calls returned are committed; in an iteration, those before the record that is being handled. So
    a crash repeats records and loses none. ``False``: call ``commit`` yourself; ``process`` commits what its handlers have done
    all the same. Without ``group_id`` nothing is committed; ``process`` says so in a warning, or with ``False`` at level INFO.

    Default: ``True``.
    Allowed: True or False.
    Kafka: ``enable.auto.commit``.
    """

    auto_commit_interval_ms: int
    """How often offsets are committed with ``enable_auto_commit``, and by ``process``.

    It bounds how much is read again after a crash. Nothing is sent if nothing was read. With 0, every call that reads commits.

    Default: ``5000``.
    Allowed: an integer from 0 to 2147483647, in milliseconds.
    Kafka: ``auto.commit.interval.ms``.
    """

    exclude_internal_topics: bool
    """Exclude the cluster's own topics, such as ``__consumer_offsets``, from subscriptions by pattern.

    A topic that is subscribed to by name is always read.

    Default: ``True``.
    Allowed: True or False.
    Kafka: ``exclude.internal.topics``.
    """

    # --- What is read ---
    auto_offset_reset: str
    """Where to begin in a partition for which nothing is committed, or whose offset is no longer in the log.

    ``earliest``: at the first record. ``latest``: with records written from now on. ``by_duration:P7D``: with records of the
    last seven days, by their timestamps; the duration is written in ISO 8601 as ``PnDTnHnMn.nS``. ``none``: raise
    ``NoOffsetForPartitionError`` or ``OffsetOutOfRangeError``, so that the program can seek.

    Default: ``'latest'``.
    Allowed: 'earliest', 'latest', 'none' or 'by_duration:PnDTnHnMn.nS'.
    Kafka: ``auto.offset.reset`` (KIP-1106).
    """

    auto_offset_reset_new_partitions: str
    """Where to begin in a partition that appeared while the application, or its group, was subscribed.

    If a topic grows, producers write to its new partitions before consumers know of them. With ``earliest`` no such record is
    missed, whatever ``auto_offset_reset`` says. The same goes for a topic that appears while it, or a pattern that matches
    it, is subscribed.

    A partition counts as new if nothing is committed for it and either this consumer knew the topic without it, or the group has
    committed offsets of other partitions of the topic. So that this can be told, members commit their first position in each
    partition, even before any record: automatically, or along with the next offsets that the application commits. It cannot be
    told if the group had committed nothing of the topic when it grew. Nor is it certain if the group was another client's, or used
    ``assign``: it may have committed nothing of an old partition, which then counts as new. If that would be wrong, set ``latest``
    for the first start.

    Values are those of ``auto_offset_reset``.

    Default: ``'earliest'``.
    Allowed: 'earliest', 'latest', 'none' or 'by_duration:PnDTnHnMn.nS'.
    Kafka: ``auto.offset.reset.new.partitions`` (KIP-1327, which leaves the option unset by default).
    """

    isolation_level: IsolationLevel | Literal["read_uncommitted", "read_committed"]
    """Whether reads return records of transactions that were aborted or are still open.

    ``read_committed`` returns neither, and reads only up to the first open transaction (the last stable offset).
    ``read_uncommitted`` returns both. An ``IsolationLevel`` is taken, too.

    Default: ``'read_uncommitted'``.
    Allowed: 'read_uncommitted' or 'read_committed'.
    Kafka: ``isolation.level`` (KIP-98).
    """

    max_poll_records: int | None
    """Maximum number of records that one call of ``getmany`` returns, unless the call says otherwise. ``None``: no limit.

    It does not change how much is fetched at a time; records that are not returned stay in the buffer for the next call.

    Default: ``500``.
    Allowed: an integer from 1 to 2147483647, in records.
    Kafka: ``max.poll.records`` (KIP-41).
    """

    interceptors: Sequence[Any] | None
    """Objects with the methods ``on_consume(records)`` and ``on_commit(offsets)``, plain or ``async def``, called in this order.

    ``on_consume`` gets the dictionary that a call is about to return, and returns the one to return instead;
    ``on_commit`` gets the offsets that were committed. See ``ConsumerInterceptor``.

    Default: ``[]``.
    Allowed: a sequence of objects with ``on_consume()`` and ``on_commit()``, or None.
    Kafka: ``interceptor.classes``, which names classes of Java's (KIP-42).
    """

    # --- Fetching ---
    max_partition_fetch_bytes: int
    """Maximum size of the records of one partition in one answer.

    A first record batch that is larger is sent all the same. The default grows while answers come full and the application waits
    for them, as it does if round trips are long: up to a quarter of ``fetch_buffer_bytes``. It shrinks again later. Any other
    value stays as it is. If one answer cannot hold so much of every partition, it is less, until it is known how many have much
    to read.

    Default: ``1048576``.
    Allowed: an integer from 1 to 2147483647, in bytes.
    Kafka: ``max.partition.fetch.bytes`` (KIP-74).
    """
