"""The options of ``process``, as programs write them. ``KafkaConsumer.process`` says at length what each does."""

from contextlib import AbstractAsyncContextManager
from typing import Any, TypedDict

from .breaker import Breaker
from .delays import NotBefore
from .process_settings import OnFailure, Order, Surrounds
from .retry import Retry


class CommonProcessOptions(TypedDict, total=False):
    """The options that ``process`` has for every kind of consumer. Times are in milliseconds, sizes in bytes."""

    concurrency: int
    """How many handlers run at once, at most. Default: ``10``."""
    batch: int | None
    """Call the handler with a list of up to this many records. Default: ``None``, with one record."""
    linger_ms: float
    """How long to wait for a full ``batch``. Default: ``0``."""
    retry: Retry
    """Which failures are tried again, how often and when. Default: ``ONCE``, none."""
    timeout_ms: float | None
    """How long one attempt may take. Default: ``None``, no limit."""
    stalled_after_ms: float
    """How long a record may be unfinished before that is reported. Default: ``60_000``."""
    drain_timeout_ms: float
    """How long running handlers may go on at the end, or when their partition leaves. Default: ``30_000``."""
    max_held_bytes: int
    """How many bytes of keys and values may be received and not done. Default: ``67_108_864``."""
    rate: float | AbstractAsyncContextManager[Any] | None
    """How many records begin in a second, at most; or an async context manager that is entered around each attempt. Default:
    ``None``, no limit."""
    breaker: Breaker | None
    """``Breaker(on=(ConnectionError,))``: begin nothing while what handlers depend on is down. Default: ``None``."""
    too_many_failures: tuple[int, int] | None
    """``(50, 100)``: stop if 50 of the last 100 records failed for good. Default: ``None``, never."""
    tracing: Surrounds | None
    """``kafka_async.adapters.tracing.Tracing(...)``: a span for each attempt. Default: ``None``."""


class ProcessOptions(CommonProcessOptions, total=False):
    """The options of ``KafkaConsumer.process``. Times are in milliseconds, sizes in bytes."""

    order: Order
    """Which records are handled one after another. Default: ``"key"``, those of a partition with the same key."""
    on_failure: OnFailure
    """What happens to a record after its last attempt. Default: ``"stop"``."""
    not_before: NotBefore | None
    """When a record may be handled, in milliseconds since the epoch. Default: ``None``, at once."""
    keep_done: bool
    """Store with each commit which records after the committed offset are done as well. Default: ``True``."""
