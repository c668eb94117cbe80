"""The arguments of ``process``, checked before anything runs."""

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from math import inf
from operator import itemgetter
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from ...config import ConsumerConfig
from ...config.spelling import did_you_mean
from ...functions import check_handler, check_plain, check_work, signature_of
from ...model import ConsumerRecord
from ...values import evolve, frozen
from .breaker import Breaker
from .capacity import Room
from .context import ProcessingContext
from .delays import NotBefore
from .limits import HandlerLimits, checked_limits, within
from .redelivery import ForGroups, Redelivery
from .retry import ONCE, Retry, count
from .router import Router

Record = ConsumerRecord[Any, Any]
T = TypeVar("T")
Order = Literal["key", "partition", "none"] | Callable[[Record], Hashable]
OnFailure = Literal["stop", "skip"] | Callable[[Record, BaseException, int], Awaitable[object] | object]
Reaction = Literal["stop", "skip", "release"] | Callable[[Any, BaseException, int], Awaitable[object] | object]
"""As ``OnFailure``, for share consumers too."""

key_of: Final = itemgetter(Record._fields.index("key"))
partition_of: Final = itemgetter(Record._fields.index("partition"))
HELD_PER_HANDLER: Final = 10
"""Records that are received and not done, for each handler that may run."""


Handler: TypeAlias = (
    Callable[[T], object]
    | Callable[[T, ProcessingContext], object]
    | Callable[[list[T]], object]
    | Callable[[list[T], ProcessingContext], object]
    | Router
)
"""What calls take records of type ``T``: one or, with ``batch``, a list, and a context if they want it. Plain or ``async def``; or
a router of such functions.
"""


class Surrounds(Protocol):
    """What stands around each attempt, such as ``kafka_async.adapters.tracing.Tracing``."""

    def around(
        self,
        handler: Callable[..., Any],
        on_failure: Any,
        *,
        again: Callable[[Any, int, BaseException], bool],
        batch: int | None,
        group_id: str | None,
        client_id: str | None,
    ) -> tuple[Callable[..., Any], Any]:
        """Return what is called in place of a handler, and of what deals with its failures; each plain or async as it was.

        ``again``: whether a record may be handled again after an attempt, by its number, that failed with an error; if not, it is
        skipped or dealt with at once.
        """

    def over(self, record: Any, on_failure: Any) -> None:
        """What deals with failures is not called any more for the attempt at a record whose context this is; nothing if it was, or
        if there was no attempt. ``on_failure``: as ``around`` has returned it.
        """


@frozen
class Retries:
    """Which records are tried again where they are."""

    policy: Retry
    """For those whose route has no other one."""
    redelivery: Redelivery | None = None
    """Topics whose records are not: they come from the next of these topics, if any."""


@frozen(kw_only=True)
class ProcessSettings:
    """The checked arguments. Times are seconds."""

    concurrency: int
    lane_of: Callable[[Record], Hashable] | None
    batch: int | None
    linger: float
    retries: Retries
    on_failure: Reaction
    timeout: float | None
    """For one attempt."""
    stalled_after: float
    drain_timeout: float
    max_held_bytes: int
    keep_done: bool
    tracing: Surrounds | None
    not_before: NotBefore | None
    router: Router | None
    limits: HandlerLimits | None

    @property
    def one_set_of_lanes(self) -> bool:
        """Whether lanes span partitions: those that a function of the program's names do."""
        return self.lane_of not in (key_of, partition_of, None)

    def retry_of(self, record: Record) -> Retry:
        """Return the policy for a record. One from a retry topic would hold up all that are due behind it: it has one attempt."""
        redelivery = self.retries.redelivery
        if redelivery is not None and redelivery.serves(record.topic):
            return ONCE
        route = None if self.router is None else self.router.route_of(record)
        return self.retries.policy if route is None or route.retry is None else route.retry

    def may_come_again(self, record: Record, attempt: int, error: BaseException) -> bool:
        """Whether a record may be handled again after an attempt that failed: by its policy, or since a breaker may keep it."""
        breaker = None if self.limits is None else self.limits.breaker
        return (breaker is not None and breaker.covers(error)) or self.retry_of(record).again(attempt, error)

    def around(self, handler: Any, config: ConsumerConfig) -> tuple[Callable[..., Any], "ProcessSettings"]:
        """Return what calls the handler, and the settings with it. Raises what a router and ``tracing`` have against them."""
        if self.router is not None:
            self.router.check(decoded=config.value_deserializer is not None)
            handler = self.router.handler()
        settings = self
        if self.tracing is not None:
            handler, settings = self._traced(handler, config)
        if self.limits is not None and self.limits.around is not None:
            handler = within(self.limits.around, handler)
        return handler, settings

    def _traced(self, handler: Callable[..., Any], config: ConsumerConfig) -> tuple[Callable[..., Any], "ProcessSettings"]:
        assert self.tracing is not None  # noqa: S101 - asked before
        handler, reaction = self.tracing.around(
            handler,
            self.on_failure,
            again=self.may_come_again,
            batch=self.batch,
            group_id=config.group_id,
            client_id=config.client_id,
        )
        return handler, evolve(self, on_failure=reaction)

    def for_group(self, config: ConsumerConfig, wall: Callable[[], float]) -> tuple["ProcessSettings", Redelivery | None]:
        """Return the settings for a consumer's group, and the topics that they write records to, to be read again.

        Raises what ``on_failure`` has against the group.
        """
        if isinstance(self.on_failure, str) or not isinstance(self.on_failure, ForGroups):
            return self, None
        redelivery = self.on_failure.for_group(config.group_id, wall)
        return evolve(self, on_failure=redelivery, retries=Retries(self.retries.policy, redelivery)), redelivery

    @property
    def room(self) -> Room:
        """How much may be received and not done."""
        return Room(max(HELD_PER_HANDLER, 2 * (self.batch or 1)) * self.concurrency, self.max_held_bytes)


def checked(
    handler: Callable[..., Any] | Router,
    *,
    concurrency: int = 10,
    order: Order = "key",
    batch: int | None = None,
    linger_ms: float = 0,
    retry: Retry = ONCE,
    on_failure: OnFailure = "stop",
    timeout_ms: float | None = None,
    stalled_after_ms: float = 60_000,
    drain_timeout_ms: float = 30_000,
    max_held_bytes: int = 67_108_864,
    keep_done: bool = True,
    tracing: Surrounds | None = None,
    not_before: NotBefore | None = None,
    rate: float | AbstractAsyncContextManager[Any] | None = None,
    breaker: Breaker | None = None,
    too_many_failures: tuple[int, int] | None = None,
    **unknown: Any,
) -> ProcessSettings:
    """Return the settings. Raises ``TypeError`` and ``ValueError`` that name what is wrong and what was expected."""
    for name in unknown:
        raise TypeError(f"unknown option of process: {name!r}{did_you_mean(name, DEFAULTS)}")
    router = handler if isinstance(handler, Router) else None
    if not isinstance(handler, Router):
        check_handler(handler, f"a function of {'a record' if batch is None else 'a list of records'}, or a Router")
    elif batch is not None:
        raise ValueError(f"batch={batch!r}: a router takes records one by one")
    if not isinstance(retry, Retry):
        raise TypeError(f"retry={retry!r}: expected a Retry")
    if not isinstance(keep_done, bool):
        raise TypeError(f"keep_done={keep_done!r}: expected True or False")
    is_able = all(callable(getattr(tracing, name, None)) for name in ("around", "over"))
    if tracing is not None and (isinstance(tracing, type) or not is_able):
        raise TypeError(f"tracing={tracing!r}: expected kafka_async.adapters.tracing.Tracing()")
    if not_before is not None:
        check_plain(not_before, "not_before", "a function of a record that returns milliseconds since the epoch, or None", 1)
    if linger_ms and batch is None:
        raise ValueError(f"linger_ms={linger_ms!r}: only batches wait for more records; give batch as well")
    return ProcessSettings(
        concurrency=count(concurrency, "concurrency"),
        lane_of=_lanes(order),
        batch=None if batch is None else count(batch, "batch"),
        linger=_seconds(linger_ms, "linger_ms"),
        retries=Retries(retry),
        on_failure=_reaction(on_failure, shared=False),
        timeout=None if timeout_ms is None else _seconds(timeout_ms, "timeout_ms", above=True),
        stalled_after=_seconds(stalled_after_ms, "stalled_after_ms", above=True),
        drain_timeout=_seconds(drain_timeout_ms, "drain_timeout_ms"),
        max_held_bytes=count(max_held_bytes, "max_held_bytes"),
        keep_done=keep_done,
        tracing=tracing,
        not_before=not_before,
        router=router,
        limits=checked_limits(rate, breaker, too_many_failures),
    )


def checked_shared(handler: Callable[..., Any] | Router, *, on_failure: Reaction = "stop", **options: Any) -> ProcessSettings:
    """As ``checked``, for a share consumer, whose records have no order and no offsets."""
    for name in options.keys() & OF_OFFSETS.keys():
        raise TypeError(f"unknown option of process: {name!r}; {OF_OFFSETS[name]}")
    settings = checked(handler, order="none", keep_done=False, **options)
    return evolve(settings, on_failure=_reaction(on_failure, shared=True))


DEFAULTS: Final = {name: each.default for name, each in signature_of(checked).parameters.items() if each.kind is each.KEYWORD_ONLY}
"""The options, and what each is if it is left out."""
OF_OFFSETS: Final = {
    "order": "share groups have no order and no offsets",
    "keep_done": "share groups have no order and no offsets",
    "not_before": "the lock of a shared record ends before it is due; a KafkaConsumer can wait for it",
}
"""Those that share groups do not have, and why."""


def _seconds(value: Any, name: str, *, above: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r}: expected a number of milliseconds")
    if not 0 <= value < inf or (above and not value):
        raise ValueError(f"{name}={value!r}: expected milliseconds, {'more than 0' if above else '0 or more'}")
    return value / 1000


def _reaction(on_failure: Any, *, shared: bool) -> Reaction:
    words = ("stop", "skip", "release") if shared else ("stop", "skip")
    expected = ", ".join(f'"{word}"' for word in words) + " or an async function of record, error and attempts"
    if isinstance(on_failure, str) and on_failure not in words:
        raise ValueError(f"on_failure={on_failure!r}: expected {expected}")
    if not isinstance(on_failure, str):
        check_work(on_failure, "on_failure", expected, 3)
    reaction: Reaction = on_failure
    return reaction


def _lanes(order: Any) -> Callable[[Record], Hashable] | None:
    """Return what names a record's lane."""
    if order == "key":
        return key_of
    if order == "partition":
        return partition_of
    if order == "none":
        return None
    expected = '"key", "partition", "none" or a function of a record'
    if isinstance(order, str):
        raise ValueError(f"order={order!r}: expected {expected}")
    check_plain(order, "order", expected, 1)
    lane_of: Callable[[Record], Hashable] = order
    return lane_of
