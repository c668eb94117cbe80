"""A Confluent-compatible schema registry, as far as reading Avro and Protobuf needs it.

Nothing but the configured URL is contacted, through the configured proxy: no redirect is followed, and environment variables are
ignored. Credentials are sent without TLS to this machine only. What its options mean is in the README of this adapter.

The driver asks for the schema of the columns, and for the schemas of that subject's other versions (``planned``): they travel with
the tasks, which ask only for schemas that the driver did not find.

Sources: the "Schema Registry API Reference" and "Wire Format" pages of Confluent's documentation.
"""

import functools
import json
import re
import secrets
import ssl
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from ...errors import KafkaConfigurationError, KafkaConnectionError, KafkaError, linked
from ...network.backoff import ExponentialBackoff
from ...network.event_loops import on_daemon, own_event_loop
from ...network.tls import trusting_context, why_not_loaded
from ...values import field, frozen
from .names import OF_REGISTRY, REGISTRY
from .secrets import NO_REFERENCES, Hidden, References

if TYPE_CHECKING:
    import httpx

    from ...network.sasl.oidc import OidcTokenProvider

AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
JSON: Final = "JSON"
TIMEOUT: Final = 10.0
"""Seconds for one step of a request, at most."""
PATIENCE: Final = 30.0
"""Seconds in which to try again, for a schema with all that it builds on: a registry that restarts is back by then."""
PAUSES: Final = ExponentialBackoff(0.25, 2.0)
NOT_OF_A_REGISTRY: Final = 4
"""How often a 404 that a proxy or another server gave is tried again: the registry's path may just be wrong."""
MAX_ANSWER: Final = 4 << 20
MAX_REFERENCES: Final = 100
PLANNED: Final = 20
"""Versions of a subject, the newest ones, whose schemas the driver sends to the tasks."""

_CONTEXT: Final = re.compile(r":\.[^:]+:")
"""What a subject begins with that is in a context of its own, which counts its ids by itself."""

_USER: Final = "basic.auth.user.info"
_TOKEN: Final = "bearer.auth.token"  # noqa: S105  # the name of an option
_ISSUER: Final = "bearer.auth.issuer.endpoint.url"
_LOGINS: Final = (_USER, _TOKEN, _ISSUER)
_CA: Final = "ssl.ca.location"
_CERTIFICATE: Final = "ssl.certificate.location"
_NEEDS: Final = {
    _ISSUER: ("bearer.auth.client.id", "bearer.auth.client.secret"),
    **dict.fromkeys(("bearer.auth.client.id", "bearer.auth.client.secret", "bearer.auth.scope"), (_ISSUER,)),
    **dict.fromkeys(("ssl.key.location", "ssl.key.password"), (_CERTIFICATE,)),
}
"""Options that other options need."""
_HEADERS: Final = {
    "bearer.auth.logical.cluster": "target-sr-cluster",
    "bearer.auth.identity.pool.id": "Confluent-Identity-Pool-Id",
}
"""The headers in which Confluent Cloud wants some options."""
NAMES: Final = ("url", "subject", "version", _CA, *dict.fromkeys((*OF_REGISTRY, *_LOGINS, *_NEEDS, *_HEADERS, _CERTIFICATE)))
"""The options, after ``value.schema.registry.``."""
_HERE: Final = ("localhost", "127.0.0.1", "::1")
_REFUSED: Final = {401: "it refused the credentials", 403: "it denied the access", 407: "the proxy refused the credentials"}
_OK: Final = 200
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500


class UnknownSchemaError(KafkaError):
    """The registry is there and has no such schema."""


class UnusableSchemaError(KafkaConfigurationError):
    """The registry has such a schema, and values cannot be read with it: it is not Avro, or not well formed."""


class RegistryError(KafkaConnectionError):
    """The registry could not be asked; the same may succeed later."""


class ElsewhereError(RegistryError):
    """Something else answered that it has no such entry: a proxy whose registry is away, or the path of the URL is wrong."""


@frozen
class RegisteredSchema:
    """A schema of the registry, and the others whose types it names.

    For Protobuf a descriptor in base64, for JSON a text; the others are then pairs of a name and such a one.
    """

    schema: Any
    references: tuple[Any, ...] = ()
    id: int | None = field(default=None, eq=False)
    """The id and the version under which it was found as a version of a subject, if the registry said so."""
    version: int | None = field(default=None, eq=False)


@frozen(kw_only=True)
class Registry:
    """Where schemas come from. A value: it travels to executors, with a reference in place of credentials if one was given."""

    url: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The other options, without what all names begin with."""
    references: References = NO_REFERENCES
    kind: str = AVRO
    """The type that its schemas are expected to have."""
    context: str = ""
    """The context of the subject, as in ``:.prod:orders-value``, which is that of ids and references too."""

    @classmethod
    def of(cls, options: Mapping[str, str], references: References = NO_REFERENCES, kind: str = AVRO) -> "Registry":
        """Return the registry that the options name. Raises ``KafkaConfigurationError``."""
        given = {name.removeprefix(REGISTRY): text.strip() for name, text in options.items() if name.startswith(REGISTRY)}
        url = given.pop("url").rstrip("/")
        parts = _checked(url, "url")
        _check(given, references)
        if parts.scheme == "http" and (parts.hostname not in _HERE or "proxy" in given):
            for name in given.keys() & _LOGINS:
                raise KafkaConfigurationError(f"{REGISTRY}{name}: it would be sent without TLS; expected an https URL")
        others = sorted((name, text) for name, text in given.items() if name not in ("subject", "version"))
        return cls(url=url, options=tuple(others), references=references, kind=kind, context=_context_of(given.get("subject", "")))

    def schema(self, name: int | str) -> RegisteredSchema:
        """Return the schema with an id, or with a GUID if ``name`` is a text.

        Raises ``UnknownSchemaError`` if there is none, ``UnusableSchemaError`` if it is of another type, and ``RegistryError`` or
        ``KafkaConfigurationError`` if the registry cannot be asked within ``PATIENCE``.
        """
        with self._questions() as ask:
            if isinstance(name, int):  # in the context alone: it may be the id of another subject there
                return ask.found(ask.schema(f"/schemas/ids/{name}", subject=self.context), f"id {name}")
            return ask.found(ask.schema(f"/schemas/guids/{name}"), f"id {name}")  # they are the same in all contexts

    def newest(self, subject: str, version: str = "latest") -> RegisteredSchema:
        """Return the schema of a subject. Raises as ``schema``."""
        with self._questions() as ask:
            try:
                answer = ask.schema(_version(subject, version))
            except UnknownSchemaError as error:
                elsewhere = "if the schema is under another subject, the registry's option 'subject' names it"
                raise UnknownSchemaError(f"{error}; {elsewhere}") from None
            return ask.found(answer, f"subject {subject!r}")

    def planned(self, subject: str) -> dict[int | str, RegisteredSchema]:
        """Return the schemas of the newest versions of a subject by their ids, and by their GUIDs if the registry has those.

        What cannot be had in one go is left out: tasks ask for it.
        """
        found: dict[int | str, RegisteredSchema] = {}
        with self._questions() as ask:
            try:
                numbers = ask.get(f"/subjects/{quote(subject, safe='')}/versions", again=False)
                for number in sorted(numbers)[-PLANNED:] if isinstance(numbers, list) else ():
                    answer = ask.schema(_version(subject, number), again=False)
                    schema = ask.found(answer, f"version {number} of subject {subject!r}")
                    found |= {answer[name]: schema for name, kind in (("id", int), ("guid", str)) if type(answer.get(name)) is kind}
            except (KafkaError, TypeError):
                return found
        return found

    @contextmanager
    def _questions(self) -> "Generator[_Questions]":
        """Yield what asks, with one deadline for all that is asked within the block."""
        deadline = time.monotonic() + PATIENCE
        hidden = Hidden()
        with hidden.from_errors():
            options = {name: self.references.resolve(REGISTRY + name, text) for name, text in self.options}
            hidden.add(*(text for name, text in options.items() if name in OF_REGISTRY))
            with _client(self, options, hidden) as client:
                yield _Questions(self.url, client, deadline, self.kind, self.context)


@frozen
class _Questions:
    """Asks a registry until a deadline on the monotonic clock."""

    url: str
    client: "httpx.Client"
    deadline: float
    kind: str
    context: str

    def found(self, answer: Any, what: str) -> RegisteredSchema:
        """Return the schema in an answer, with what it builds on."""
        seen: dict[tuple[str, int], Any] = {}
        schema = self._with_references(answer, what, self.context, seen)
        number, version = (found if type(found := answer.get(name)) is int else None for name in ("id", "version"))
        return RegisteredSchema(schema, tuple(seen.values()), number, version)

    def _with_references(self, answer: Any, what: str, context: str, seen: dict[tuple[str, int], Any]) -> Any:
        """Return the schema in an answer, which is in a context; ``seen`` gets those that it builds on."""
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise RegistryError(f"{self.url}: the answer for {what} holds no schema")
        if (kind := answer.get("schemaType", AVRO)) != self.kind:
            raise UnusableSchemaError(f"{self.url}: {what} is a schema of type {kind!r:.60}; expected {self.kind}")
        for given, version, name in self._references(answer, what):
            subject = given if given.startswith(":.") else context + given  # as Confluent's registry has it
            if (subject, version) not in seen:
                if len(seen) >= MAX_REFERENCES:
                    raise UnusableSchemaError(f"{self.url}: {what} refers to more than {MAX_REFERENCES} schemas")
                seen[subject, version] = None  # before it is asked for: schemas that name each other have no end
                try:
                    named = self.schema(_version(subject, version), deleted=True)
                except UnknownSchemaError:
                    text = (
                        f"{self.url}: {what} refers to version {version} of subject {subject!r}, which the registry does not have"
                    )
                    raise UnusableSchemaError(text) from None
                part = self._with_references(named, f"subject {subject!r}", _context_of(subject), seen)
                del seen[subject, version]  # what others build on comes before them
                seen[subject, version] = part if self.kind == AVRO else (name, part)
        if self.kind != AVRO:
            return answer["schema"]
        try:
            return json.loads(answer["schema"])
        except (ValueError, RecursionError):
            raise UnusableSchemaError(f"{self.url}: {what} is not JSON") from None

    def _references(self, answer: Mapping[str, Any], what: str) -> list[tuple[str, int, str]]:
        try:
            given = answer.get("references") or ()
            return [(str(each["subject"]), int(each["version"]), str(each.get("name", ""))) for each in given]
        except (TypeError, KeyError, ValueError):
            raise RegistryError(f"{self.url}: the answer for {what} has references without subject and version") from None

    def schema(self, path: str, *, again: bool = True, deleted: bool = False, subject: str = "") -> Any:
        """Return the answer about a schema; one of Protobuf as a descriptor, which needs no parser here.

        ``deleted``: also one whose version was deleted but not for good, as others that refer to it are still in use. ``subject``:
        where an id is looked for, which may be a context alone.
        """
        of_subject = f"subject={quote(subject, safe='')}"
        queries = {"format=serialized": self.kind == PROTOBUF, "deleted=true": deleted, of_subject: bool(subject)}
        query = "&".join(text for text, wanted in queries.items() if wanted)
        return self.get(f"{path}?{query}" if query else path, again=again)

    def get(self, path: str, *, again: bool = True) -> Any:
        """Return the answer to a request, ``again``: trying again what may pass until the deadline."""
        failures = 0
        while True:
            try:
                return self._judged(path, *self._answer(path))
            except RegistryError as error:
                again = again and not (isinstance(error, ElsewhereError) and failures >= NOT_OF_A_REGISTRY)
                pause = PAUSES.delay(failures, secrets.SystemRandom().random())
                if not again or time.monotonic() + pause >= self.deadline:
                    raise
            time.sleep(pause)
            failures += 1

    def _answer(self, path: str) -> tuple[int, bytes]:
        """Return status and body, cut if it is too long."""
        import httpx

        limit = min(TIMEOUT, max(1.0, self.deadline - time.monotonic()))
        end = time.monotonic() + limit
        body = bytearray()
        try:
            with self.client.stream("GET", self.url + path, timeout=limit) as answer:
                for chunk in answer.iter_raw():
                    body += chunk
                    if len(body) > MAX_ANSWER:
                        break
                    if time.monotonic() > end:
                        raise RegistryError(f"{self.url} did not answer within {limit:.0f} s")
                return answer.status_code, bytes(body)
        except httpx.HTTPError as error:
            _raise_tls(self.url, error)
            if isinstance(error, httpx.ProxyError) and "407" in str(error):
                raise KafkaConfigurationError(f"{self.url}: {_REFUSED[407]}") from None
            raise RegistryError(f"{self.url} cannot be reached: {type(error).__name__}: {error}") from None

    def _judged(self, path: str, status: int, body: bytes) -> Any:
        """Return what a good answer holds. A redirect is not a good answer: it would lead elsewhere."""
        where = f"{self.url}{path}"
        if status == _NOT_FOUND:
            if _has_code(body):
                raise UnknownSchemaError(f"{where}: the registry has no such entry")
            raise ElsewhereError(f"{where}: status 404, and not from a schema registry; the path of the URL may be wrong")
        if status in _REFUSED:
            raise KafkaConfigurationError(f"{where}: {_REFUSED[status]}")
        if status == _TOO_MANY or status >= _SERVER_ERROR:
            raise RegistryError(f"{where}: status {status}")
        if status != _OK or len(body) > MAX_ANSWER:
            what = f"status {status}" if status != _OK else f"an answer of more than {MAX_ANSWER} bytes"
            raise KafkaConfigurationError(f"{where}: expected a schema, got {what}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise KafkaConfigurationError(f"{where}: expected a schema, got something that is not JSON") from None


def _has_code(body: bytes) -> bool:
    """Whether an error has the code that registries give."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("error_code"), int)


def _context_of(subject: str) -> str:
    found = _CONTEXT.match(subject)
    return found[0] if found is not None else ""


def _version(subject: str, version: int | str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{quote(str(version), safe='')}"


# --- what is given ---------------------------------------------------------------------------------------------------------------


def _checked(url: str, name: str) -> Any:
    """Return the parts of a URL. Raises ``KafkaConfigurationError`` for one that is none, or shows credentials."""
    parts = _parts(url)
    if parts is None or parts.query or parts.fragment:
        raise KafkaConfigurationError(f"{REGISTRY}{name}: expected https://host[:port][/path]")
    if parts.username is not None or parts.password is not None:
        raise KafkaConfigurationError(f"{REGISTRY}{name} holds credentials, which logs would show; use {REGISTRY}{_USER}")
    return parts


def _check(given: Mapping[str, str], references: References) -> None:
    """Raise ``KafkaConfigurationError`` for options that contradict each other, or lack others."""
    if len(chosen := [name for name in _LOGINS if name in given]) > 1:
        raise KafkaConfigurationError(f"{REGISTRY}{chosen[0]} and {REGISTRY}{chosen[1]} are two ways to log in; leave one out")
    for name in given:
        if missing := [needed for needed in _NEEDS.get(name, ()) if needed not in given]:
            raise KafkaConfigurationError(f"{REGISTRY}{name} needs {REGISTRY}{missing[0]}")
    if _ISSUER in given and (issuer := _checked(given[_ISSUER], _ISSUER)).scheme == "http" and issuer.hostname not in _HERE:
        raise KafkaConfigurationError(f"{REGISTRY}{_ISSUER}: the secret would be sent without TLS; expected an https URL")
    if "proxy" in given and not references.is_reference(f"{REGISTRY}proxy", given["proxy"]):
        _check_proxy(given["proxy"])


def _check_proxy(url: str) -> None:
    if _parts(url) is None:
        raise KafkaConfigurationError(f"{REGISTRY}proxy: expected http://[user:password@]host:port")


def _parts(url: str) -> Any:
    """Return the parts of a URL; ``None`` if it is none of http."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for what is no port
    except ValueError:
        return None
    return parts if parts.scheme in ("https", "http") and parts.hostname else None


# --- the client ------------------------------------------------------------------------------------------------------------------


def _client(registry: Registry, options: Mapping[str, str], hidden: Hidden) -> "httpx.Client":
    """Return what asks. Raises ``KafkaConfigurationError`` for files that cannot be read, and what the issuer of tokens raises."""
    try:
        import httpx
    except ImportError as missing:
        raise ImportError(
            "a schema registry needs httpx, which the extra 'avro' brings: pip install '/path/to/clone[avro]'"
        ) from missing
    headers = {
        "Accept": "application/vnd.schemaregistry.v1+json, application/json",
        "Accept-Encoding": "identity",  # a small answer that unpacks to a large one is not an answer
        "User-Agent": "kafka_async",
    }
    headers |= {header: options[name] for name, header in _HEADERS.items() if name in options}
    if (token := _token(registry, options)) is not None:
        headers["Authorization"] = f"Bearer {token}"
        hidden.add(token)
    user, _, password = options.get(_USER, "").partition(":")
    hidden.add(password)
    proxy = options.get("proxy")
    if proxy is not None:
        _check_proxy(proxy)
        hidden.add(urlsplit(proxy).password)
    verify: Any = _context(options) if registry.url.startswith("https:") else False
    auth = (user, password) if _USER in options else None
    return httpx.Client(verify=verify, headers=headers, auth=auth, proxy=proxy, trust_env=False)


def _token(registry: Registry, options: Mapping[str, str]) -> str | None:
    """Return the bearer token that is given, or that the issuer gives."""
    if _ISSUER in options:
        import anyio

        provider = _provider(registry, options["bearer.auth.client.secret"])
        # On a thread of its own, since the caller's may have a running loop: a notebook's, or that of a service.
        return on_daemon(lambda: anyio.run(provider.token, backend_options={"loop_factory": own_event_loop})).result()
    token = options.get(_TOKEN)
    if token is not None and (not token.isascii() or not token.isprintable() or not token.strip()):
        raise KafkaConfigurationError(f"{REGISTRY}{_TOKEN}: expected printable ASCII on one line; the value is not shown")
    return token


@functools.lru_cache(maxsize=100)
def _provider(registry: Registry, secret: str) -> "OidcTokenProvider":
    """Return what asks for tokens, and keeps them for most of their life."""
    from ...network.sasl.oidc import OidcTokenProvider

    options = dict(registry.options)
    try:
        return OidcTokenProvider(
            options[_ISSUER],
            options["bearer.auth.client.id"],
            secret,
            scope=options.get("bearer.auth.scope"),
            allow_http=urlsplit(options[_ISSUER]).hostname in _HERE,
            ssl_cafile=options.get(_CA),
        )
    except ValueError as error:
        raise KafkaConfigurationError(f"{REGISTRY}{_ISSUER}: {error}") from None


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    option = _CA
    try:
        context = trusting_context(options.get(_CA))
        if (option := _CERTIFICATE) in options:
            password = options.get("ssl.key.password", "")  # without one OpenSSL would ask the terminal
            context.load_cert_chain(options[_CERTIFICATE], options.get("ssl.key.location"), password)
    except OSError as error:
        why = why_not_loaded(error, f"{REGISTRY}ssl.key.password")
        raise KafkaConfigurationError(f"{REGISTRY}{option}={options.get(option)!r}: {why}") from None
    return context


def _raise_tls(url: str, error: BaseException) -> None:
    """Raise ``KafkaConfigurationError`` for what follows from TLS: that does not pass by itself."""
    for each in linked(error):
        if isinstance(each, ssl.SSLError):
            raise KafkaConfigurationError(f"{url}: TLS failed: {each.reason or each}") from None
