"""Routes: which handler a record goes to, and what value it is called with.

A router is a table that is read from top to bottom. What it decides depends on the record alone, so order, retries, commits and
dead letters stay those of ``process``: a lane holds the records of one key, whatever routes they take.
"""

import re
from collections.abc import Callable, Collection, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast, overload

from ...errors import LONGEST_REASON, InvalidValue, NoRoute, shown
from ...functions import check_handler, is_async, takes_context
from ...model import ConsumerRecord, at_offset, last_header
from ...values import define, field, frozen
from .redelivery import may_come_from, origin_of
from .retry import Retry, count

if TYPE_CHECKING:
    from .context import ProcessingContext
    from .typed_values import TypedValue

Record = ConsumerRecord[Any, Any]
V = TypeVar("V")
R = TypeVar("R")
H = TypeVar("H", bound=Callable[..., object])
Topics = str | Collection[str] | re.Pattern[str]
Header = tuple[str, str | bytes]
NOT_READ: Final = "routes are for topics that this consumer does not read: {}"
"""What is logged of routes whose handlers will never be called."""


class Registers(Protocol[V]):
    """Takes a handler of values of one type, and returns it as it is."""

    @overload
    def __call__(self, handler: Callable[[V], R]) -> Callable[[V], R]: ...
    @overload
    def __call__(self, handler: "Callable[[V, ProcessingContext], R]") -> "Callable[[V, ProcessingContext], R]": ...


@frozen(eq=False)
class Route:
    """One line of the table."""

    topics: frozenset[str] | re.Pattern[str] | None
    """``None``: any."""
    header: tuple[str, bytes] | None
    handler: Callable[..., Any] | None
    """``None``: its records are done as they come."""
    value: "TypedValue | None"
    """``None``: the handler gets the record."""
    kind: Any
    """The type as it was given, for errors."""
    concurrency: int | None
    retry: Retry | None
    with_context: bool

    @property
    def name(self) -> str:
        """What it is called in errors."""
        return "ignore" if self.handler is None else getattr(self.handler, "__qualname__", repr(self.handler))

    def takes_topic(self, topic: str) -> bool:
        """Whether records of a topic may take it."""
        if self.topics is None:
            return True
        return topic in self.topics if isinstance(self.topics, frozenset) else self.topics.fullmatch(topic) is not None

    def takes(self, record: Record) -> bool:
        """Whether a record of one of its topics takes it. Of several headers with one name the last counts."""
        if self.header is None:
            return True
        name, wanted = self.header
        return last_header(record.headers, name) == wanted

    def covers(self, other: "Route") -> bool:
        """Whether no record can come as far as ``other``, which stands below."""
        if self.header is not None and self.header != other.header:
            return False
        if self.topics is None or self.topics == other.topics:
            return True
        return isinstance(other.topics, frozenset) and all(map(self.takes_topic, other.topics))

    def hidden_by(self, above: "Sequence[Route]") -> "list[Route]":
        """Return which of the routes ``above`` leave no record to this one, alone or together; ``[]`` if some may come as far."""
        alone = next((each for each in above if each.covers(self)), None)
        if alone is not None:
            return [alone]
        if not isinstance(self.topics, frozenset):  # its topics have no end
            return []
        fitting = [each for each in above if each.header in (None, self.header)]
        found = [next((each for each in fitting if each.takes_topic(topic)), None) for topic in sorted(self.topics)]
        return [] if None in found else list(dict.fromkeys(each for each in found if each is not None))

    def argument(self, record: Record) -> Any:
        """Return what the handler is called with. Raises ``InvalidValue``."""
        if self.value is None:
            return record
        data, typed = record.value, self.value
        if data is None:
            if typed.optional:
                return None
            raise _invalid(record, self.kind, "it is a tombstone (null), which the type of the route does not allow")
        try:
            return typed.decode(data)
        except MemoryError:
            raise
        except Exception as error:
            raise _invalid(record, self.kind, shown(error, LONGEST_REASON)) from error


@define(eq=False)
class Router:
    """Handlers by topic and header, with values of their types; ``await consumer.process(router)``.

    A record goes to the first route, in the order in which they were declared, whose ``topic`` and ``header`` fit. If none does, it
    fails with ``NoRoute``, which goes to ``on_failure`` without another attempt: no record is skipped without a word. Handlers are
    all ``async def``, or all plain functions, which run on threads. Records are handled one by one, not in batches.
    """

    _routes: list[Route] = field(factory=list, init=False)
    _last: Route | None = field(default=None, init=False)
    _by_topic: dict[str, tuple[Route, ...]] = field(factory=dict, init=False, repr=False)
    """Routes that a topic's records may take, as far as topics have been seen."""

    # --- declaring -------------------------------------------------------------------------------------------------------------

    @overload
    def on(
        self,
        *,
        value: type[V] | UnionType,  # ``Order | None``
        topic: Topics | None = None,
        header: Header | None = None,
        concurrency: int | None = None,
        retry: Retry | None = None,
    ) -> Registers[V]: ...
    @overload
    def on(
        self,
        *,
        value: Callable[[bytes], V],
        topic: Topics | None = None,
        header: Header | None = None,
        concurrency: int | None = None,
        retry: Retry | None = None,
    ) -> Registers[V]: ...
    @overload
    def on(
        self,
        *,
        value: None = None,
        topic: Topics | None = None,
        header: Header | None = None,
        concurrency: int | None = None,
        retry: Retry | None = None,
    ) -> Registers[Record]: ...
    def on(
        self,
        *,
        topic: Topics | None = None,
        header: Header | None = None,
        value: Any = None,
        concurrency: int | None = None,
        retry: Retry | None = None,
    ) -> Any:
        """Send records to the function that this decorates: ``handler(value)`` or ``handler(value, context)``.

        - ``topic``: a name, several, or a compiled pattern, which has to match the whole name. A record in a retry topic counts as
          one of the topic that it was written to first. Default: any.
        - ``header``: a name and a value, as text or bytes; of several headers with this name the last counts.
        - ``value``: the type that values have: a pydantic model, a msgspec ``Struct``, a dataclass or another type with
          annotations (JSON), ``str``, ``bytes``, or a function of bytes. Decoded within the attempt; what does not fit fails with
          ``InvalidValue``, which goes to ``on_failure`` without another attempt, with the record's bytes. A tombstone is ``None``
          if the type allows it, as ``Order | None`` does, and else does not fit. Default: the handler gets the record.
        - ``concurrency``: how many handlers of this route run at once, at most; others go on. Default: as many as ``process`` has.
        - ``retry``: instead of that of ``process``.

        ``context.record`` is the record. Raises ``TypeError`` and ``ValueError`` for bad arguments, ``ImportError`` if the library
        that reads the type is missing.
        """

        if concurrency is not None:
            count(concurrency, "concurrency")
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"retry={retry!r}: expected a Retry")
        from .typed_values import typed_value  # not for programs without types

        typed = None if value is None else typed_value(value)
        topics, wanted = _topics(topic), _header(header)

        def register(handler: H) -> H:
            check_handler(handler, "a function of a value, or of it and a context")
            self._add(Route(topics, wanted, handler, typed, value, concurrency, retry, takes_context(handler)))
            return handler

        return register

    def default(self, handler: H) -> H:
        """Send records that take no route to the function that this decorates, wherever it stands.

        Raises ``ValueError`` if there is one already.
        """
        check_handler(handler, "a function of a record, or of it and a context")
        if self._last is not None:
            raise ValueError(f"default: {self._last.name} is the default already, and there is one")
        self._last = Route(None, None, handler, None, None, None, None, takes_context(handler))
        self._by_topic.clear()
        return handler

    def ignore(self, *, topic: Topics | None = None, header: Header | None = None) -> None:
        """Count records as done that fit, without a handler. Raises ``TypeError`` if both arguments are missing."""
        if topic is None and header is None:
            raise TypeError("ignore() needs a topic or a header: without them it would take every record")
        self._add(Route(_topics(topic), _header(header), None, None, None, None, None, with_context=False))

    def _add(self, route: Route) -> None:
        self._routes.append(route)
        self._by_topic.clear()

    # --- deciding --------------------------------------------------------------------------------------------------------------

    def route_of(self, record: Record) -> Route | None:
        """Return the route that a record takes; ``None`` if there is none."""
        topic = origin_of(record)
        routes = self._by_topic.get(topic)
        if routes is None:
            every = self._routes if self._last is None else [*self._routes, self._last]
            routes = self._by_topic[topic] = tuple(route for route in every if route.takes_topic(topic))
        return next((route for route in routes if route.takes(record)), None)

    @property
    def routes(self) -> tuple[Route, ...]:
        """All routes in order, with the default at the end."""
        return (*self._routes, self._last) if self._last is not None else tuple(self._routes)

    def unread(self, subscription: Collection[str], reads: Callable[[str], bool]) -> list[str]:
        """Return the topics that routes name and that are not read, in order: a name may be misspelt.

        ``subscription``: the topics that are read. ``reads``: whether one is read, or will be if it is created.
        """
        named = {topic for route in self._routes if isinstance(route.topics, frozenset) for topic in route.topics}
        missing = [topic for topic in named - frozenset(subscription) if not reads(topic)]
        return sorted(topic for topic in missing if not any(may_come_from(each, topic) for each in subscription))

    @property
    def is_async(self) -> bool:
        """Whether its handlers are ``async def``."""
        return any(is_async(route.handler) for route in self.routes if route.handler is not None)

    def check(self, *, decoded: bool) -> None:
        """Raise ``ValueError`` for a table without handlers, with a route that no record can take, or with types for values that
        were ``decoded`` before; ``TypeError`` for handlers of two kinds.
        """
        if not any(route.handler for route in self.routes):
            raise ValueError("the router has no handler: declare one with @router.on(...) or @router.default")
        self._check_reached()
        plain = next((route.name for route in self.routes if route.handler is not None and not is_async(route.handler)), None)
        if plain is not None and self.is_async:
            text = "process runs plain functions on threads and async ones on the event loop; expected one kind in a router"
            raise TypeError(f"{plain} is a plain function, and other handlers of the router are async def: {text}")
        if decoded and (typed := next((route.name for route in self.routes if route.value is not None), None)) is not None:
            raise ValueError(f"the route of {typed} has value=, which decodes bytes: leave value_deserializer out")

    def _check_reached(self) -> None:
        routes = self.routes
        for place, route in enumerate(routes):
            hiding = route.hidden_by(routes[:place])
            if len(hiding) == 1:
                ambiguous = route is not self._last and route.covers(hiding[0])
                what = "is ambiguous with" if ambiguous else "never gets a record, since it stands below"
                raise ValueError(f"the route of {route.name} {what} that of {hiding[0].name}: both fit {_shown(route)}")
            if hiding:
                those = f"those of {', '.join(each.name for each in hiding)}: together they fit {_shown(route)}"
                raise ValueError(f"the route of {route.name} never gets a record, since it stands below {those}")

    def handler(self) -> "Callable[[Record, ProcessingContext], Any]":
        """Return the function that handles every record: plain if the handlers are."""
        return self._call_async if self.is_async else self._call

    async def _call_async(self, record: Record, context: "ProcessingContext") -> Any:
        return await called if (called := self._call(record, context)) is not None else None

    def _call(self, record: Record, context: "ProcessingContext") -> Any:
        route = self.route_of(record)
        if route is None:
            where = at_offset(record.topic, record.partition, record.offset)
            raise NoRoute(f"{where}: the router has no route for this record, and no default", record)
        if route.handler is None:
            return None
        argument = route.argument(record)
        return route.handler(argument, context) if route.with_context else route.handler(argument)


def _topics(topic: Any) -> frozenset[str] | re.Pattern[str] | None:
    if topic is None or (isinstance(topic, re.Pattern) and isinstance(topic.pattern, str)):
        return cast("re.Pattern[str] | None", topic)
    names = (topic,) if isinstance(topic, str) else topic
    if not isinstance(names, Collection) or isinstance(names, bytes) or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"topic={topic!r}: expected a name, several, or a compiled pattern of text")
    if not names:
        raise ValueError("topic is empty: expected at least one name")
    return frozenset(names)


def _header(header: Any) -> tuple[str, bytes] | None:
    if header is None:
        return None
    if (
        not isinstance(header, tuple)
        or len(header) != 2
        or not isinstance(header[0], str)
        or not isinstance(header[1], str | bytes)
    ):
        raise TypeError(f"header={header!r}: expected a name and a value, as text or bytes")
    return header[0], header[1].encode() if isinstance(header[1], str) else header[1]


def _shown(route: Route) -> str:
    topics = (
        "any topic" if route.topics is None else f"topic {route.topics.pattern!r}" if isinstance(route.topics, re.Pattern) else ""
    )
    topics = topics or f"topic {', '.join(sorted(cast('frozenset[str]', route.topics)))}"
    return topics if route.header is None else f"{topics} with the header {route.header!r}"


def _invalid(record: Record, kind: Any, why: str) -> InvalidValue:
    where, name = at_offset(record.topic, record.partition, record.offset), getattr(kind, "__qualname__", None) or str(kind)
    return InvalidValue(f"{where}: the value is no {name}: {why}", record)
