"""Writing records with aiokafka's or confluent-kafka's producer, whichever is installed: this package only reads.

Writing is checked as reading is: an option that the producer's library does not have is refused.
"""

import asyncio
import importlib.util
import logging
import ssl
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Final, TypeAlias

import anyio
from attrs import frozen

from ...config import ConsumerConfig
from ...errors import KafkaError, KafkaTimeoutError
from ...network.tls import tls_context
from ..publishing import Headers, send_empty
from .launch import refuse

LARGEST: Final = 64 << 20
"""Bytes of a record that the producer lets pass: the broker decides."""
PATIENCE: Final = 120.0
"""Seconds that a write may take, as by ``delivery.timeout.ms`` of Java: an idempotent producer of aiokafka tries for ever."""
_WAIT: Final = 0.2
"""Seconds for which librdkafka is asked for delivery reports at a time."""


@frozen(kw_only=True)
class Outgoing:
    """A record to be written."""

    topic: str
    partition: int | None
    """``None``: as the producer chooses by the key."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    """Milliseconds; ``None``: now."""


Write: TypeAlias = Callable[[Sequence[Outgoing]], Awaitable[list[Exception | None]]]
"""Writes records, in order within each partition. Returns for each why it may not be in the log; ``None``: it is."""


def require_producer() -> str:
    """Return the name of the library that writes. Ends the program if none is installed."""
    for name in ("aiokafka", "confluent_kafka"):
        if importlib.util.find_spec(name) is not None:
            return name
    refuse("needs aiokafka or confluent-kafka to write, and neither is installed: pip install aiokafka")


@asynccontextmanager
async def open_producer(library: str, options: dict[str, Any], patience: float = PATIENCE) -> AsyncGenerator[Write]:
    """Yield what writes, with the options of a consumer. Raises ``KafkaError`` if the producer cannot start.

    ``patience``: seconds that a write may take. What is left of one that is cancelled is given up, too.
    """
    config = ConsumerConfig.from_options(options)
    if (why := _foreign_login(config)) is not None:
        raise ValueError(f"{why}: this command cannot write with such a login; it takes PLAIN and SCRAM, with or without TLS")
    async with _with_aiokafka(config, patience) if library == "aiokafka" else _with_confluent(config, patience) as write:
        yield write


def _foreign_login(config: ConsumerConfig) -> str | None:
    """Return the option that a producer would have to know and does not."""
    if config.uses_sasl and config.sasl_mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        return f"sasl_mechanism={config.sasl_mechanism}"
    return "sasl_scram_tokenauth" if config.uses_sasl and config.sasl_scram_tokenauth else None


def _common(config: ConsumerConfig) -> dict[str, Any]:
    return {
        "bootstrap_servers": ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in config.bootstrap_servers
        ),
        "client_id": config.client_id,
    }


# --- aiokafka ------------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _with_aiokafka(config: ConsumerConfig, patience: float) -> AsyncGenerator[Write]:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError as TheirError

    logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # the last error is enough
    producer = AIOKafkaProducer(**aiokafka_options(config, tls_context(config)))
    try:
        await producer.start()
    except TheirError as error:
        await producer.stop()
        raise KafkaError(f"the producer cannot start: {error}") from error

    silent: list[KafkaTimeoutError] = []  # why nothing more is sent: each try would take as long

    async def write(records: Sequence[Outgoing]) -> list[Exception | None]:
        if silent:
            return [silent[0] for _ in records]
        sent: list[Any] = []

        async def send() -> None:
            for each in records:
                try:
                    sent.append(await _send_with_aiokafka(producer, each))
                except (TheirError, ValueError) as error:
                    sent.append(error)
            waiting = [each for each in sent if not isinstance(each, Exception)]
            await asyncio.wait(waiting) if waiting else None

        try:
            with anyio.move_on_after(patience) as limit:  # to send waits too, once the producer has no room
                await send()
        except asyncio.CancelledError:
            silent.append(KafkaTimeoutError("the write was given up; it may still be written"))
            raise
        if limit.cancelled_caught:
            silent.append(KafkaTimeoutError(f"no broker has acknowledged it for {patience:g} s; it may still be written"))
            sent += [silent[0]] * (len(records) - len(sent))
        return [each if isinstance(each, Exception) else each.exception() if each.done() else silent[0] for each in sent]

    try:
        yield write
    finally:
        with anyio.move_on_after(0 if silent else inf):  # it would wait as long as it tries, for ever
            await producer.stop()
        if silent:
            await producer.client.close()


async def _send_with_aiokafka(producer: Any, record: Outgoing) -> Any:
    """Return a future of the write."""
    topic, headers, partition, timestamp = record.topic, record.headers, record.partition, record.timestamp
    if record.key is None and record.value is None:
        return await send_empty(producer, topic, headers, partition=partition, timestamp=timestamp)
    return await producer.send(
        topic, value=record.value, key=record.key, headers=headers, partition=partition, timestamp_ms=timestamp
    )


def aiokafka_options(config: ConsumerConfig, context: ssl.SSLContext | None) -> dict[str, Any]:
    """Return the options of an ``AIOKafkaProducer``."""
    return {
        **_common(config),
        "enable_idempotence": True,
        "max_request_size": LARGEST,
        "security_protocol": config.security_protocol,
        "ssl_context": context,
        **({name: getattr(config, name) for name in _NAMES if name.startswith("sasl")} if config.uses_sasl else {}),
    }


# --- confluent-kafka -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _with_confluent(config: ConsumerConfig, patience: float) -> AsyncGenerator[Write]:
    from confluent_kafka import KafkaException, Producer

    quiet = logging.getLogger("kafka_async.librdkafka")
    limit = {"delivery.timeout.ms": round(1000 * patience)}
    try:
        producer = Producer({**confluent_options(config), **limit}, logger=quiet)
    except KafkaException as error:
        raise KafkaError(f"the producer cannot start: {error}") from error

    given_up = threading.Event()

    async def write(records: Sequence[Outgoing]) -> list[Exception | None]:
        work = asyncio.ensure_future(asyncio.to_thread(_write_with_confluent, producer, records, given_up))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            given_up.set()
            await asyncio.wait((work,))  # it ends soon, and then nothing more is sent; Python would wait for its thread in any case
            raise

    yield write


def _write_with_confluent(producer: Any, records: Sequence[Outgoing], given_up: threading.Event) -> list[Exception | None]:
    """Write, and wait until all is reported. Once it is given up, return nothing, and have nothing more sent."""
    from confluent_kafka import KafkaException

    reports: dict[int, Exception | None] = {}

    def report(number: int) -> Callable[[Any, Any], None]:
        def delivered(error: Any, _: Any) -> None:
            reports[number] = None if error is None else KafkaException(error)

        return delivered

    for number, each in enumerate(records):
        where: dict[str, Any] = {} if each.partition is None else {"partition": each.partition}
        when: dict[str, Any] = {} if each.timestamp is None else {"timestamp": each.timestamp}
        try:
            producer.produce(
                each.topic, each.value, each.key, headers=list(each.headers), on_delivery=report(number), **where, **when
            )
        except (KafkaException, BufferError) as error:
            reports[number] = error
    while len(reports) < len(records):
        if given_up.is_set():
            producer.purge()
            return []
        producer.poll(_WAIT)
    return [reports[number] for number in range(len(records))]


_NAMES: Final = {
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_truststore_certificates": "ssl.ca.pem",
    "ssl_keystore_certificate_chain": "ssl.certificate.pem",
    "ssl_keystore_key": "ssl.key.pem",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
}
"""Our options -> librdkafka's."""
_STORES: Final = (".p12", ".pfx", ".jks")


def confluent_options(config: ConsumerConfig) -> dict[str, Any]:
    """Return the configuration of a ``confluent_kafka.Producer``. Raises ``ValueError`` for files that librdkafka does not read."""
    given = {ours: value for ours in _NAMES if (value := getattr(config, ours)) is not None}
    for name, value in given.items():
        if name.endswith("file") and str(value).endswith(_STORES):
            raise ValueError(f"{name}: confluent-kafka reads PEM files only; with aiokafka installed, stores can be used")
    if not config.uses_sasl:
        given = {name: value for name, value in given.items() if not name.startswith("sasl")}
    common = _common(config)
    return {
        "bootstrap.servers": common["bootstrap_servers"],
        "client.id": common["client_id"],
        "enable.idempotence": True,
        "message.max.bytes": LARGEST,
        "security.protocol": config.security_protocol,
        **({} if config.ssl_check_hostname else {"ssl.endpoint.identification.algorithm": "none"}),
        **{_NAMES[name]: str(value) for name, value in given.items()},
    }
