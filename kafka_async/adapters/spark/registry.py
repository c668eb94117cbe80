"""A Confluent-compatible schema registry, as far as reading Avro needs it.

Decides: what is asked, how often, and what an answer means. Owns a bounded cache of schemas per process. Must never contact
anything but the configured URL: it follows no redirect and uses no proxy. Must never send credentials without TLS, except to this
machine, nor show them, nor take an answer of any size.

| option | meaning |
|---|---|
| ``value.schema.registry.url`` | ``https://host[:port][/path]``; ``http`` too where no credentials are given |
| ``value.schema.registry.subject`` | whose newest schema names the columns; ``TOPIC-value`` where one topic is subscribed |
| ``value.schema.registry.version`` | that version in place of the newest |
| ``value.schema.registry.basic.auth.user.info`` | ``user:password``, or a reference (``secrets``) to it |
| ``value.schema.registry.ssl.ca.location`` | file of the certificates to trust, in PEM |

Sources: the "Schema Registry API Reference" and "Wire Format" pages of Confluent's documentation.
"""

import base64
import functools
import http.client
import json
import ssl
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from attrs import field, frozen

from ...errors import KafkaConfigurationError, KafkaConnectionError, KafkaError
from ...network.tls import verifying_context
from .secrets import resolve_one

TIMEOUT: Final = 10.0
"""Seconds for one request."""
ATTEMPTS: Final = 4
PAUSE: Final = 0.25
"""Seconds before the second attempt; each further one waits twice as long."""
MAX_ANSWER: Final = 4 << 20
MAX_REFERENCES: Final = 100
CACHED: Final = 1000
"""Schemas that a process keeps."""

_USER_INFO: Final = "value.schema.registry.basic.auth.user.info"
_HERE: Final = ("localhost", "127.0.0.1", "::1")
_ANSWERED: Final = {401: "it refused the credentials", 403: "it denied the access"}
_NOT_FOUND: Final = 404


class UnknownSchemaError(KafkaError):
    """The registry is there and has no such schema."""


class RegistryError(KafkaConnectionError):
    """The registry could not be asked; the same may succeed later."""


@frozen
class Found:
    """A schema of the registry, and the others whose types it names."""

    schema: Any
    references: tuple[Any, ...] = ()


@frozen(kw_only=True)
class Registry:
    """Where schemas come from. A value: it travels to executors, with a reference in place of credentials where one was given."""

    url: str
    user_info: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Registry":
        """Return the registry that the options name. Raises ``KafkaConfigurationError``."""
        url = options["value.schema.registry.url"].strip().rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
            raise KafkaConfigurationError("value.schema.registry.url: expected https://host[:port][/path]")
        if parts.username is not None or parts.password is not None:
            raise KafkaConfigurationError(f"value.schema.registry.url holds credentials, which logs would show; use {_USER_INFO}")
        user_info = options.get(_USER_INFO)
        if user_info is not None and parts.scheme == "http" and parts.hostname not in _HERE:
            raise KafkaConfigurationError(f"{_USER_INFO}: the password would be sent without TLS; expected an https URL")
        return cls(url=url, user_info=user_info, ca_file=options.get("value.schema.registry.ssl.ca.location"))

    def schema(self, number: int) -> "Found":
        """Return the Avro schema with an id.

        Raises ``UnknownSchemaError`` where there is none, and ``RegistryError`` or ``KafkaConfigurationError`` where it cannot be
        asked.
        """
        return _schema(self, number)

    def newest(self, subject: str, version: str = "latest") -> "Found":
        """Return the Avro schema of a subject. Raises as ``schema``."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"
        return self.avro(self.get(path), f"subject {subject!r}")

    def avro(self, answer: Any, what: str) -> "Found":
        """Return the schema in an answer."""
        seen: dict[tuple[str, int], Any] = {}
        return Found(self._with_references(answer, what, seen), tuple(seen.values()))

    def _with_references(self, answer: Any, what: str, seen: dict[tuple[str, int], Any]) -> Any:
        """Return the schema in an answer; ``seen`` gets those that it builds on."""
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise RegistryError(f"{self.url}: the answer for {what} holds no schema")
        if (kind := answer.get("schemaType", "AVRO")) != "AVRO":
            raise KafkaConfigurationError(f"{self.url}: {what} is a schema of type {kind!r:.60}; expected AVRO")
        for subject, version in self._references(answer, what):
            if (subject, version) not in seen:
                if len(seen) >= MAX_REFERENCES:
                    raise KafkaConfigurationError(f"{self.url}: {what} builds on more than {MAX_REFERENCES} schemas")
                seen[subject, version] = None  # before it is asked for: schemas that name each other have no end
                path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
                part = self._with_references(self.get(path), f"subject {subject!r}", seen)
                del seen[subject, version]  # what others build on comes before them
                seen[subject, version] = part
        try:
            return json.loads(answer["schema"])
        except (ValueError, RecursionError):
            raise KafkaConfigurationError(f"{self.url}: {what} is no JSON") from None

    def _references(self, answer: Mapping[str, Any], what: str) -> list[tuple[str, int]]:
        try:
            return [(str(each["subject"]), int(each["version"])) for each in answer.get("references") or ()]
        except (TypeError, KeyError, ValueError):
            raise RegistryError(f"{self.url}: the answer for {what} has references without subject and version") from None

    def get(self, path: str) -> Any:
        """Return the answer to a request, trying again what may pass."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._answer(path)
            except RegistryError:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(PAUSE * 2 ** (attempt - 1))
        raise AssertionError("the last attempt returns or raises")

    def _answer(self, path: str) -> Any:
        parts = urlsplit(self.url)
        connection = self._connection(parts.scheme, parts.hostname or "", parts.port)
        try:
            connection.request("GET", parts.path + path, headers=self._headers())
            answer = connection.getresponse()
            status, body = answer.status, answer.read(MAX_ANSWER + 1)
        except ssl.SSLError as error:
            raise KafkaConfigurationError(f"{self.url}: TLS failed: {error.reason or error}") from None
        except (OSError, http.client.HTTPException) as error:
            raise RegistryError(f"{self.url} cannot be reached: {type(error).__name__}: {error}") from None
        finally:
            connection.close()
        return self._judged(path, status, body)

    def _judged(self, path: str, status: int, body: bytes) -> Any:
        """Return what a good answer holds. A redirect is no good answer: it would lead elsewhere."""
        where = f"{self.url}{path}"
        if status == _NOT_FOUND:
            raise UnknownSchemaError(f"{where}: the registry has none such")
        if status in _ANSWERED:
            raise KafkaConfigurationError(f"{where}: {_ANSWERED[status]}")
        if status == http.client.TOO_MANY_REQUESTS or status >= http.client.INTERNAL_SERVER_ERROR:
            raise RegistryError(f"{where}: status {status}")
        if status != http.client.OK or len(body) > MAX_ANSWER:
            what = f"status {status}" if status != http.client.OK else f"an answer of more than {MAX_ANSWER} bytes"
            raise KafkaConfigurationError(f"{where}: expected a schema, got {what}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise KafkaConfigurationError(f"{where}: expected a schema, got no JSON") from None

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        context = verifying_context()
        try:
            if self.ca_file is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            name = "value.schema.registry.ssl.ca.location"
            raise KafkaConfigurationError(f"{name}={self.ca_file!r} cannot be read: {error.strerror or error}") from None
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", "User-Agent": "kafka_async"}
        if self.user_info is not None:
            secret = resolve_one(_USER_INFO, self.user_info)
            headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
        return headers


@functools.lru_cache(maxsize=CACHED)
def _schema(registry: Registry, number: int) -> "Found":
    """An id means the same schema for ever, so what was found once is kept; that none was found is not."""
    return registry.avro(registry.get(f"/schemas/ids/{number}"), f"id {number}")
