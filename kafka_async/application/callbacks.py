"""The call-backs of the user: rebalance listeners, interceptors, deserializers.

All of them run on the application's side, inside the caller's own read or commit call, plain or ``async def``.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from ..config import ConsumerConfig
from ..errors import LONGEST_REASON, DeserializationError, IllegalStateError, shown
from ..functions import awaited, called_of, check_work, close, finished, takes_three, why_never, why_uncallable
from ..model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ..values import define, evolve, frozen

LISTENER: Final = "the rebalance listener"
CANCELLED: Final = "a call-back of {} was cancelled"

Record = ConsumerRecord[Any, Any]
Batch = dict[TopicPartition, list[Record]]


class ConsumerRebalanceListener:
    """Gets notice of changes to the assignment, inside the read call in which they happen. Methods may be ``async def``."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are being revoked; positions can still be committed. None of their records is returned any more."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are newly assigned; the listener may seek in them."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are lost: another member may have them already, and nothing can be committed.

        By default calls ``on_partitions_revoked``.
        """
        return self.on_partitions_revoked(lost)


@runtime_checkable
class ConsumerInterceptor(Protocol):
    """Sees records before the application does, and offsets after they were committed (KIP-42). Methods may be ``async def``."""

    def on_consume(self, records: Batch) -> Awaitable[Batch] | Batch:
        """Return the records to give to the application; by default all."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Awaitable[None] | None:
        """Called with offsets that were committed; by default nothing."""
        return None


LISTENER_METHODS: Final = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")
INTERCEPTOR_METHODS: Final = ("on_consume", "on_commit")


def check_listener(listener: Any) -> None:
    """Raise ``TypeError`` for what is not a listener, and for one whose methods would not run when they are called."""
    if listener is None:
        return
    if not isinstance(listener, ConsumerRebalanceListener):
        raise TypeError(f"listener={shown(listener)}: expected a ConsumerRebalanceListener")
    for name in LISTENER_METHODS:
        check_work(getattr(listener, name), f"listener.{name}", "a method that takes a set of partitions, plain or async", 1)


def check_callbacks(config: ConsumerConfig) -> None:
    """Raise ``ValueError`` early for user objects that lack the methods to be called, or have others of their names."""
    called = (getattr(entry, name, None) for name in INTERCEPTOR_METHODS for entry in config.interceptors)
    if not isinstance(config.interceptors, tuple) or not all(map(callable, called)):
        expected = "expected a sequence of objects with on_consume() and on_commit()"
        raise ValueError(f"interceptors={shown(config.interceptors)}: {expected}")
    for interceptor in config.interceptors:
        for name in INTERCEPTOR_METHODS:
            method = getattr(interceptor, name)
            if (why := why_never(method) or why_uncallable(method, 1)) is not None:
                raise ValueError(f"interceptors={shown(config.interceptors)}: {shown(interceptor)}.{name}: {why}")
    if "partition_assignment_strategy" in config.given:
        from ..background.group.classic.assignors import (
            assignors_from,  # with the group's half of the package, which not every consumer needs
        )

        assignors_from(config)


async def settled(result: Any, by: str) -> Any:
    """Return ``result``, awaited if it has to be. Raises ``TypeError`` if the call-back's work is not done even then."""
    return finished(await result if inspect.isawaitable(result) else result, by)


@frozen(kw_only=True)
class Deserialized:
    """The result of the deserializers for some records of one partition."""

    records: list[Record]
    done: int
    """How many records went in; an interceptor may have dropped some since."""
    poison: DeserializationError | None = None
    """For the record after ``records``, which cannot be deserialized and is passed over."""
    retriable: Exception | None = None
    """Raised for the record after ``records`` by a deserializer that may succeed later: nothing is passed over."""


def may_be_retried(error: Exception) -> bool:
    """Whether an error of a deserializer declares that the same call may succeed later.

    It does so by a true attribute ``retriable`` (this package, aiokafka, kafka-python), or by a class called ``RetriableError`` or
    ``RetriableException`` among its bases, whatever the library.
    """
    try:
        retriable = getattr(error, "retriable", False)
        claims = retriable() if callable(retriable) else retriable
    except Exception:  # an attribute of that name that means something else
        claims = False
    return claims is True or any(cls.__name__ in ("RetriableError", "RetriableException") for cls in type(error).__mro__)


@define(eq=False)
class Deserializers:
    """Turns bytes into the application's objects. A null key or value stays ``None``, as in Java."""

    key: Callable[..., Any] | None
    value: Callable[..., Any] | None
    awaits: bool = True
    """Whether there is an event loop for what they return. A plain function may return a coroutine, which nobody sees before."""

    @classmethod
    def of(cls, key: Any, value: Any, *, awaits: bool = True) -> "Deserializers | None":
        """Return ``None`` if there is nothing to do: then records go to the application as they were decoded."""
        if key is None and value is None:
            return None
        return cls(_as_function(key), _as_function(value), awaits)

    async def apply(self, records: list[Record], done: list[Record] | None = None) -> Deserialized:
        """Return the records up to the first that a deserializer refused, and what was raised for that one.

        They are appended to ``done`` one by one, so that a caller that is cancelled has them.
        """
        done = [] if done is None else done
        to_key, to_value = self.key, self.value
        for record in records:
            key, value = record.key, record.value
            field = "key"
            try:
                if to_key is not None and key is not None:
                    key = to_key(record.topic, record.headers, key)
                    if hasattr(key, "__await__"):
                        if not self.awaits:
                            return _of_no_use(key, done)
                        key = await awaited(key, "it")
                field = "value"
                if to_value is not None and value is not None:
                    value = to_value(record.topic, record.headers, value)
                    if hasattr(value, "__await__"):
                        if not self.awaits:
                            return _of_no_use(value, done)
                        value = await awaited(value, "it")
            except Exception as error:  # the boundary to the user's code: whatever it is, it is reported with the record
                return _stopped_at(record, field, error, done)
            done.append(ConsumerRecord(*record[:5], key, value, *record[7:]))
        return Deserialized(records=done, done=len(done))


def _of_no_use(result: Any, done: list[Record]) -> Deserialized:
    """Say that there is no event loop for what a deserializer returned. That is nobody's bad record, so none is passed over."""
    close(result)
    error = IllegalStateError("the deserializer returned something to await; the blocking consumer has no event loop for that")
    return Deserialized(records=done, done=len(done), retriable=error)


def _stopped_at(record: Record, field: str, error: Exception, done: list[Record]) -> Deserialized:
    which = f"the {field} of {record.topic}-{record.partition} at offset {record.offset}"
    if may_be_retried(error):
        note = f"raised by the deserializer for {which}; nothing was passed, the next read tries again"
        if note not in getattr(error, "__notes__", ()):  # a future that failed raises the same error each time
            error.add_note(note)
        return Deserialized(records=done, done=len(done), retriable=error)
    poison = DeserializationError(f"{which} cannot be deserialized: {shown(error, LONGEST_REASON)}", record, field)
    poison.__cause__ = error
    return Deserialized(records=done, done=len(done), poison=poison)


@define(eq=False)
class Preparation:
    """The steps that records go through on their way to the application: deserializers, then interceptors."""

    deserializers: Deserializers | None
    interceptors: tuple[Any, ...]

    @classmethod
    def of(cls, config: ConsumerConfig, *, awaits: bool) -> "Preparation | None":
        """Return ``None`` if records go to the application as they were decoded. ``awaits``: see ``Deserializers``."""
        deserializers = Deserializers.of(config.key_deserializer, config.value_deserializer, awaits=awaits)
        return cls(deserializers, config.interceptors) if deserializers is not None or config.interceptors else None

    async def prepare(self, batch: Batch, made: Batch) -> dict[TopicPartition, Deserialized]:
        """Return, by partition, what the application is to get. Raises what an interceptor raises, and ``TypeError`` if one
        returns something else than records.

        ``made``: what deserializers made of the first records of ``batch``. The rest is appended one by one, so that after a call
        that is cancelled the next one goes on from there: reads with short timeouts would never get anywhere.
        """
        found = {tp: await self._deserialize(records, made[tp]) for tp, records in batch.items()}
        seen = {tp: result.records for tp, result in found.items() if result.records}
        try:
            for interceptor in self.interceptors:
                if seen:
                    seen = _checked(
                        await settled(interceptor.on_consume(dict(seen)), f"{shown(interceptor)}.on_consume()"), interceptor, seen
                    )
        except BaseException:  # it may have changed values in place: it is to see them as they were, and not what it made of them
            for records in made.values():
                records.clear()
            raise
        return {tp: evolve(result, records=list(seen.get(tp, ()))) for tp, result in found.items()}

    async def _deserialize(self, records: list[Record], made: list[Record]) -> Deserialized:
        return (
            Deserialized(records=list(records), done=len(records))  # interceptors may change the list
            if self.deserializers is None
            else await self.deserializers.apply(records[len(made) :], made)
        )


def _checked(batch: Any, interceptor: Any, given: Batch) -> Batch:
    """Raise ``TypeError`` if an interceptor forgot to return the records, or moved them to another partition: they would be
    lost.
    """
    if not isinstance(batch, dict):
        raise TypeError(f"{shown(interceptor)}.on_consume() returned {shown(batch)}: expected records by partition")
    if strange := batch.keys() - given.keys():
        raise TypeError(f"{shown(interceptor)}.on_consume() returned records of {strange}: expected only partitions it was given")
    return batch


def _as_function(deserializer: Any) -> Callable[[str, Any, Any], Any] | None:
    """Return a function of (topic, headers, data) for whichever form of deserializer was given."""
    if deserializer is None:
        return None
    deserializer = called_of(deserializer)
    if takes_three(deserializer):
        function: Callable[[str, Any, Any], Any] = deserializer
        return function
    return lambda topic, headers, data: deserializer(data)
