"""Security options that only Java's client has, translated into ours.

References to secrets are not resolved, and no value is shown that may be one.

They occur in the properties files of Java programs, and in jobs that used Spark's own connector before.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from ..errors import KafkaConfigurationError
from ..values import frozen
from .jaas import Login, parse_login
from .security import SASL, TLS
from .spelling import did_you_mean
from .stores import authorities, identity

_JAAS: Final = "sasl_jaas_config"
_HANDLER: Final = "sasl_login_callback_handler_class"
_CLIENT: Final = "sasl_client_callback_handler_class"
_MECHANISM: Final = "sasl_mechanism"
MSK: Final = "AWS_MSK_IAM"
"""The mechanism of Amazon MSK's library for Java. Its brokers take the same signed requests as tokens, by OAUTHBEARER."""
_OF_MSK: Final = re.compile(r"(?:[a-z0-9-]+\.)+kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
_MSK_OPTIONS: Final[Mapping[str, str]] = {
    "awsProfileName": "profile",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "session_name",
}
_MSK_MEANINGLESS: Final = ("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs", "awsStsRegion")
_RETRIEVER: Final = "sasl_oauthbearer_jwt_retriever_class"
_GRANTS: Final[Mapping[str, str | None]] = {
    "DefaultJwtRetriever": None,
    "ClientCredentialsJwtRetriever": "client_credentials",
    "JwtBearerJwtRetriever": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}
"""What each class of Java's asks a token endpoint for; ``None``: that is left open."""
_CHECK: Final = "ssl_endpoint_identification_algorithm"
_STORES: Final = ("ssl_keystore", "ssl_truststore")
_KINDS: Final = ("PKCS12", "JKS", "PEM")
_STORE_OPTIONS: Final = frozenset(f"{store}_{what}" for store in _STORES for what in ("location", "type", "password"))
_PEM: Final = ("{p}ssl.keystore.key and {p}ssl.keystore.certificate.chain", "{p}ssl.truststore.certificates")

NAMES: Final = frozenset(
    (
        *(
            _JAAS,
            _HANDLER,
            _CLIENT,
            _RETRIEVER,
            _CHECK,
            "ssl_key_password",
            "ssl_protocol",
            "ssl_enabled_protocols",
            "security_providers",
        ),
        *_STORE_OPTIONS,
    )
)
"""What ``in_our_words`` takes, besides our own."""

MEANINGLESS: Final = frozenset(
    (
        *(f"sasl_login_refresh_{what}" for what in ("buffer_seconds", "min_period_seconds", "window_factor", "window_jitter")),
        *(f"sasl_kerberos_{what}" for what in ("kinit_cmd", "min_time_before_relogin", "ticket_renew_jitter")),
        "sasl_kerberos_ticket_renew_window_factor",
        # What is looked up in tokens: brokers do that.
        *(f"sasl_oauthbearer_{what}" for what in ("scope_claim_name", "sub_claim_name", "expected_audience", "expected_issuer")),
        *(f"sasl_oauthbearer_jwks_endpoint_{what}" for what in ("url", "refresh_ms", "retry_backoff_ms", "retry_backoff_max_ms")),
        "sasl_oauthbearer_clock_skew_seconds",
        "sasl_oauthbearer_jwt_validator_class",
        "ssl_keymanager_algorithm",
        "ssl_trustmanager_algorithm",
        "ssl_secure_random_implementation",
        *(f"metrics_{what}" for what in ("num_samples", "recording_level", "sample_window_ms")),
        *("metric_reporters", "auto_include_jmx_reporter", "share_acknowledgement_mode", "share_acquire_mode"),
        *(f"sasl_oauthbearer_allow_unverified_{what}" for what in ("audience", "issuer")),  # brokers verify tokens
    )
)
"""Options that this client does not need: it renews sessions, tokens and tickets in time by itself."""

PRODUCERS: Final = frozenset(
    (
        *("acks", "batch_size", "buffer_memory", "buffer_memory_allocation_strategy", "delivery_timeout_ms", "enable_idempotence"),
        *(f"compression_{what}" for what in ("type", "gzip_level", "lz4_level", "zstd_level")),
        *("key_serializer", "value_serializer", "linger_ms", "max_block_ms", "max_in_flight_requests_per_connection"),
        *("max_request_size", "metadata_max_idle_ms", "retries"),
        *(f"partitioner_{what}" for what in ("adaptive_partitioning_enable", "availability_timeout_ms", "class", "ignore_keys")),
        "partitioner_rack_aware",
        *("transactional_id", "transaction_timeout_ms", "transaction_two_phase_commit_enable"),
    )
)
"""Options that Java's producer has and its consumer has not (``ProducerConfig`` of 4.4)."""

_NO_CLASS: Final = "Java classes are not loaded; for tokens of your own use {tokens}"
_OPENSSL: Final = "Java security providers are not loaded; Python uses OpenSSL"

_REFUSED: Final[Mapping[str, str]] = {
    "sasl_login_class": _NO_CLASS,
    "ssl_engine_factory_class": "Java classes are not loaded; use {p}ssl.truststore.* and {p}ssl.keystore.*",
    "ssl_provider": _OPENSSL,
    "ssl_cipher_suites": "use {p}ssl.ciphers, in OpenSSL's notation, for ciphers up to TLS 1.2",
    "config_providers": "{secrets}",
}
"""Options of Java without a counterpart by the same name, and what to use. The ``Dialect`` fills in the braces."""

UNUSED_IN_PLAINTEXT: Final = frozenset(
    (*TLS, _MECHANISM, *SASL, *NAMES, *(name for name in _REFUSED if name.startswith(("ssl_", "sasl_"))))
)
"""Options, Java's and ours, that no client looks at without TLS and SASL."""

_TRUST: Final = ("ssl_cafile", "ssl_truststore_certificates")
_IDENTITY: Final = ("ssl_certfile", "ssl_keystore_certificate_chain", "ssl_keystore_key")
_ENGINE: Final = "ssl_engine_factory_class"


def _store(name: str, *others: str) -> tuple[str, ...]:
    return (*(f"{name}_{what}" for what in ("location", "type", "password")), _ENGINE, *others)


_IN_PLACE_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "interceptors": ("interceptor_classes",),
    "sasl_oauth_token_provider": (_JAAS, _HANDLER, _CLIENT, _RETRIEVER, "sasl_login_class"),
    "sasl_kerberos_principal": (_JAAS,),
    "sasl_kerberos_keytab": (_JAAS,),
    "ssl_cafile": _store("ssl_truststore", *_TRUST),
    "ssl_truststore_certificates": _store("ssl_truststore", *_TRUST),
    "ssl_certfile": _store("ssl_keystore", *_IDENTITY),
    "ssl_keystore_certificate_chain": _store("ssl_keystore", "ssl_certfile"),
    "ssl_ciphers": ("ssl_cipher_suites",),
    "ssl_context": (*TLS, *(name for name in (*NAMES, *_REFUSED) if name.startswith("ssl_")), "security_providers"),
}
"""What an option that a program gives takes the place of. All of it would be refused besides that option, or have no effect."""

_USE_INSTEAD: Final[Mapping[str, str]] = {
    "Krb5LoginModule": "{p}sasl.kerberos.principal and {p}sasl.kerberos.keytab (without them: the tickets of the process)",
    "IAMLoginModule": "{tokens}; kafka_async.MskTokenProvider makes those of Amazon MSK",
}
_KNOWN: Final = frozenset((*_USE_INSTEAD, "PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule"))
_CREDENTIALS: Final = "sasl_oauthbearer_client_credentials_client_"
_OAUTH: Final = {"clientId": f"{_CREDENTIALS}id", "clientSecret": f"{_CREDENTIALS}secret", "scope": "sasl_oauthbearer_scope"}
_EXTENSION: Final = "extension_"


@frozen(kw_only=True)
class Dialect:
    """Where Java's options stand: what they are called there, and what people can use in their place."""

    prefix: str = ""
    """What precedes each option's name."""
    tokens: str = "the option sasl_oauth_token_provider in the program"
    """How to give tokens of one's own."""
    secrets: str = "write the value itself, or read it in the program"
    """What to use in place of Java's configuration providers."""
    make_msk: Callable[..., Any] | None = None
    """Makes the provider of tokens for Amazon MSK of a region, ``profile``, ``role_arn`` and ``session_name``, if there is one."""
    is_reference: Callable[[str, str], bool] = lambda name, text: False
    """Returns, for an option's name and text, whether the text only refers to the value."""
    given: frozenset[str] = frozenset()
    """Options that the program gives besides, which count more."""

    @property
    def replaced(self) -> frozenset[str]:
        """Options, Java's and ours, in whose place are ``given`` ones."""
        return frozenset(name for option in self.given for name in _IN_PLACE_OF.get(option, ()))

    @property
    def refused(self) -> dict[str, str]:
        """Options that have no counterpart by the same name, and what to use."""
        return {name: self._filled_in(text) for name, text in _REFUSED.items()}

    def dotted(self, name: str) -> str:
        """Return the name under which people give an option."""
        return f"{self.prefix}{name.replace('_', '.')}"

    def in_our_words(self, java: Mapping[str, str]) -> dict[str, str]:
        """Return the options, with those of Java translated into ours; ``sasl.jaas.config`` stays if it is a reference to the text.

        Stores of type PKCS12 stay as well, for ``with_stores``. Raises ``KafkaConfigurationError`` that names the option and what
        to use in its place, never a value that may be secret.
        """
        ours = {name: text for name, text in java.items() if name not in NAMES}
        if "sasl_oauth_token_provider" in self.given and ours.get(_MECHANISM) == MSK:
            ours[_MECHANISM] = "OAUTHBEARER"
        if _JAAS in java:
            if self._of_msk(java) or self.is_reference(_JAAS, java[_JAAS]):
                ours[_JAAS] = java[_JAAS]
            else:
                ours = self.with_login({**ours, _JAAS: java[_JAAS]})
        self._check_classes(java)
        self._check_versions(java)
        for name, text in (self._stores(java) | self._host_name(java) | self._grant(java)).items():
            self._put(ours, name[0], text, self.dotted(name[1]))
        return ours

    def with_login(self, java: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options, ``sasl.jaas.config`` translated into ours: done when connecting, since it may have been a
        reference, and since a provider of tokens does not travel.

        Raises ``ImportError`` if what makes tokens for Amazon MSK is not installed.
        """
        ours = {name: value for name, value in java.items() if name != _JAAS}
        if self.make_msk is not None and java.get(_MECHANISM) == MSK:
            return ours | {_MECHANISM: "OAUTHBEARER", "sasl_oauth_token_provider": self._msk(java, self.make_msk)}
        if _JAAS in java:
            option = self.dotted(_JAAS)
            for name, text in self._credentials(parse_login(java[_JAAS], option), ours).items():
                self._put(ours, name, text, option)
        return ours

    def _of_msk(self, java: Mapping[str, Any]) -> bool:
        return self.make_msk is not None and java.get(_MECHANISM) == MSK

    def _msk(self, java: Mapping[str, Any], make: Callable[..., Any]) -> Any:
        """Return the provider of tokens for brokers of Amazon MSK.

        Whoever has a token may use it for 15 minutes, so it is sent to names of AWS's only, which name the region, and over TLS.
        """
        login = parse_login(java[_JAAS], self.dotted(_JAAS)) if _JAAS in java else Login("IAMLoginModule", {})
        if login.kind != "IAMLoginModule":
            raise self._wrong("{p}sasl.jaas.config: {p}sasl.mechanism=AWS_MSK_IAM needs IAMLoginModule")
        if unknown := login.options.keys() - _MSK_OPTIONS.keys() - set(_MSK_MEANINGLESS):
            text = "{p}sasl.jaas.config: {name:.60} of IAMLoginModule is not supported; use {tokens}"
            raise self._wrong(text, name=min(unknown))
        if java.get("security_protocol") != "SASL_SSL":
            raise self._wrong("{p}sasl.mechanism=AWS_MSK_IAM needs {p}security.protocol=SASL_SSL")
        hosts = [part.strip().rpartition(":")[0] for part in str(java.get("bootstrap_servers", "")).split(",")]
        regions = {match[1] if (match := _OF_MSK.fullmatch(host)) else None for host in hosts}
        if None in regions or len(regions) > 1:
            text = "{p}sasl.mechanism=AWS_MSK_IAM: expected brokers of one region in {p}bootstrap.servers, such as "
            raise self._wrong(text + "b-1.name.kafka.eu-west-1.amazonaws.com:9098; for others use {tokens}")
        given: dict[str, Any] = {ours: login.options[name] for name, ours in _MSK_OPTIONS.items() if name in login.options}
        try:
            return make(regions.pop(), **given)
        except ValueError:
            raise self._wrong("{p}sasl.jaas.config: expected one of awsProfileName and awsRoleArn") from None

    def _filled_in(self, text: str, **values: object) -> str:
        return text.format(p=self.prefix, tokens=self.tokens, secrets=self.secrets, **values)

    def _wrong(self, text: str, **values: object) -> KafkaConfigurationError:
        return KafkaConfigurationError(self._filled_in(text, **values))

    def _put(self, ours: dict[str, Any], name: str, text: str, option: str) -> None:
        if ours.setdefault(name, text) != text:
            raise KafkaConfigurationError(f"{option} and {self.dotted(name)} contradict each other; leave one of them out")

    # --- sasl.jaas.config --------------------------------------------------------------------------------------------------------

    def _credentials(self, login: Login, ours: Mapping[str, Any]) -> dict[str, str]:
        """Return the fields of a login, by our names."""
        if login.kind in ("PlainLoginModule", "ScramLoginModule"):
            return self._password(login, ours)
        if login.kind == "OAuthBearerLoginModule":
            return self._oauth(login)
        other = "expected PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule; for tokens of your own use {tokens}"
        instead = f"use {_USE_INSTEAD[login.kind]}" if login.kind in _USE_INSTEAD else other
        raise self._wrong("{p}sasl.jaas.config: the login module {module:.100} is not supported; " + instead, module=login.module)

    def _password(self, login: Login, ours: Mapping[str, Any]) -> dict[str, str]:
        found = {}
        if login.options.get("tokenauth", "").lower() == "true":
            if login.kind != "ScramLoginModule":
                raise self._wrong("{p}sasl.jaas.config: delegation tokens (tokenauth) need ScramLoginModule")
            found["sasl_scram_tokenauth"] = "true"
        for name in ("username", "password"):
            option = f"sasl_plain_{name}"
            if name in login.options:
                found[option] = login.options[name]
            elif option not in ours and option not in self.given:
                text = '{p}sasl.jaas.config: {kind} has no {name}; expected {name}="...", or {option}'
                raise self._wrong(text, kind=login.kind, name=name, option=self.dotted(option))
        return found

    def _oauth(self, login: Login) -> dict[str, str]:
        if any(name.startswith("unsecuredLogin") for name in login.options):
            raise self._wrong("{p}sasl.jaas.config: tokens without a signature (unsecuredLogin...) are not made; use {tokens}")
        if any(name.startswith("ssl.") for name in login.options):
            raise self._wrong("{p}sasl.jaas.config: ssl options of the token endpoint: use {p}sasl.oauthbearer.ssl.cafile")
        found = {ours: login.options[name] for name, ours in _OAUTH.items() if name in login.options}
        extensions = {name.removeprefix(_EXTENSION): text for name, text in login.options.items() if name.startswith(_EXTENSION)}
        return found | ({"sasl_oauthbearer_extensions": json.dumps(extensions)} if extensions else {})

    def _check_classes(self, java: Mapping[str, str]) -> None:
        """Let those classes pass that do what this client does by itself: ask an endpoint for tokens."""
        for name, known in (
            (_HANDLER, ("OAuthBearerLoginCallbackHandler",)),
            (_RETRIEVER, tuple(_GRANTS)),
            (_CLIENT, ("IAMClientCallbackHandler",) if self._of_msk(java) else ()),
        ):
            if name in java and java[name].strip().rpartition(".")[2] not in known:
                raise self._wrong("{name} is not supported: " + _NO_CLASS, name=self.dotted(name))
        if java.get("security_providers", "").strip():
            raise self._wrong("{p}security.providers is not supported: " + _OPENSSL)

    def _grant(self, java: Mapping[str, str]) -> dict[tuple[str, str], str]:
        """Return how tokens are requested, by our name and Java's."""
        grant = _GRANTS[java[_RETRIEVER].strip().rpartition(".")[2]] if _RETRIEVER in java else None
        return {} if grant is None else {("sasl_oauthbearer_grant_type", _RETRIEVER): grant}

    # --- TLS ---------------------------------------------------------------------------------------------------------------------

    def _check_versions(self, java: Mapping[str, str]) -> None:
        for name, spoken in ("ssl_protocol", {"TLS", "TLSv1.2", "TLSv1.3"}), ("ssl_enabled_protocols", {"TLSv1.2", "TLSv1.3"}):
            if name in java and not spoken & {version.strip() for version in java[name].split(",")}:
                text = "{name}={given!r}: only TLS 1.2 and 1.3 are supported"
                raise self._wrong(text, name=self.dotted(name), given=java[name])

    def _stores(self, java: Mapping[str, str]) -> dict[tuple[str, str], str]:
        """Return what keystore and truststore in PEM are, by our name and Java's; what ``with_stores`` reads, by Java's alone."""
        found: dict[tuple[str, str], str] = {}
        for store, ours, pem in zip(_STORES, ("ssl_certfile", "ssl_cafile"), _PEM, strict=True):
            location, kind, password = names = tuple(f"{store}_{what}" for what in ("location", "type", "password"))
            given = java.get(kind, "JKS" if location in java else "PEM").strip().upper()
            if given not in _KINDS:
                text = "{name}={given!r}: expected PKCS12, JKS or PEM; PEM as text goes into " + pem
                raise self._wrong(text, name=self.dotted(kind), given=java[kind])
            if given == "PEM":
                if password in java:
                    text = "{name}: PEM has no password of a store; a key's is {p}ssl.key.password"
                    raise self._wrong(text, name=self.dotted(password))
                if location in java:
                    found[ours, location] = java[location]
            elif location not in java:
                raise self._wrong("{name} is missing; PEM as text goes into " + pem, name=self.dotted(location))
            else:
                found |= {(name, name): java[name] for name in names if name in java}
        if "ssl_key_password" in java and ("ssl_keystore_location",) * 2 not in found:  # the store's opens the key of a store
            found["ssl_password", "ssl_key_password"] = java["ssl_key_password"]
        return found

    def with_stores(self, java: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options, stores of type PKCS12 as PEM: done when connecting, since a password may have been a reference.

        Reads the files. Raises ``KafkaConfigurationError`` that names the option whose store cannot be used and says how to convert
        one of type JKS, and ``ImportError`` without the extra ``pkcs12``.
        """
        ours = {name: value for name, value in java.items() if name not in _STORE_OPTIONS}
        for store in _STORES:
            if (path := java.get(f"{store}_location")) is None:
                continue
            option = self.dotted(f"{store}_location")
            if store == "ssl_truststore":
                self._put(ours, f"{store}_certificates", authorities(path, java.get(f"{store}_password"), option), option)
            else:
                chain, key = identity(path, java.get(f"{store}_password"), option)
                self._put(ours, f"{store}_certificate_chain", chain, option)
                self._put(ours, f"{store}_key", key, option)
        return ours

    def _host_name(self, java: Mapping[str, str]) -> dict[tuple[str, str], str]:
        """Return whether host names are checked, by our name and Java's; nothing if there is no TLS that could."""
        if _CHECK not in java:
            return {}
        word = java[_CHECK].strip().lower()
        if word not in ("https", ""):
            text = "{name}={given!r}: expected https, or an empty value to skip the check of host names"
            raise self._wrong(text, name=self.dotted(_CHECK), given=java[_CHECK])
        if java.get("security_protocol", "PLAINTEXT").endswith("PLAINTEXT"):
            return {}
        return {("ssl_check_hostname", _CHECK): "true" if word else "false"}


def in_login(text: str) -> list[str]:
    """Return what a text of ``sasl.jaas.config`` has that no error may show if a reference led to it."""
    try:
        login = parse_login(text)
    except KafkaConfigurationError:
        return []  # its errors show nothing of the text
    return [*login.options.values(), *([] if login.kind in _KNOWN else [login.module])]


_ELSEWHERE: Final = {
    "fetch_error_backoff_ms": "retry_backoff_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "oauth_cb": "sasl_oauth_token_provider",
    "queued_max_messages_kbytes": "fetch_buffer_bytes",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "metadata_broker_list": "bootstrap_servers",
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "ssl_ca_location": "ssl_cafile",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_pem": "ssl_keystore_key",
    "ssl_crl_location": "ssl_crlfile",
}
"""Names of options in librdkafka, which may look more like other ones of ours."""
_IN_THE_PROGRAM: Final = {
    "enable_auto_offset_store": "it is not needed: auto-commit covers a record when the next one is asked for",
    "enable_partition_eof": "current_lag(partition) is 0 at the end of a partition",
    "error_cb": "errors are raised, or logged by the logger kafka_async",
    "logger": "the logger is kafka_async",
    "statistics_interval_ms": "call statistics() or metrics() instead",
    "stats_cb": "call statistics() or metrics() instead",
}
"""Options of confluent-kafka in whose place is none, and what is."""
_ALIKE: Final = 0.75
"""How similar a name must be to an option's: many end with the same word, so that any two of them are a little."""


def nearest_name(name: str, known: Collection[str]) -> str:
    """Return ``"; did you mean ...?"`` for a name that is nearly one of ``known``, where Java's own are known, or nothing."""
    name = name.replace(".", "_")
    if name in PRODUCERS:
        return "; it is an option of producers"
    if name in NAMES:
        return "; it is an option of Java's client, which properties files may have (-F, ConsumerConfig.from_properties)"
    if name in _IN_THE_PROGRAM:
        return f"; {_IN_THE_PROGRAM[name]}"
    return did_you_mean(_ELSEWHERE.get(name, name), known, _ALIKE)
