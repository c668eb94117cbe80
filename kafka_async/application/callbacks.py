"""The call-backs of the user: rebalance listeners, interceptors, deserializers.

Decides: how each is called. Owns nothing. All of them run on the application's side, inside the caller's own read or commit
call, plain or ``async def``. Must never let what a call-back raises disappear.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol, runtime_checkable

from attrs import define

from ..config import ConsumerConfig
from ..errors import DeserializationError
from ..model import ConsumerRecord, OffsetAndMetadata, TopicPartition

Record = ConsumerRecord[Any, Any]
Batch = dict[TopicPartition, list[Record]]


class ConsumerRebalanceListener:
    """Told of changes of the assignment, inside the read call in which they happen. Methods may be ``async def``."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are about to leave; positions can still be committed. No record of them is returned any more."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are new; seeks in here hold."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions already belong to somebody else; nothing can be committed. By default as if they were revoked."""
        return self.on_partitions_revoked(lost)


@runtime_checkable
class ConsumerInterceptor(Protocol):
    """Sees records before the application does, and offsets after they were committed (KIP-42). Methods may be ``async def``."""

    def on_consume(self, records: Batch) -> Awaitable[Batch] | Batch:
        """Return the records that the application is to get."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Awaitable[None] | None:
        """Take note of offsets that were committed."""
        ...


def check_callbacks(config: ConsumerConfig) -> None:
    """Raise ``ValueError`` for objects of the user that lack the methods which are called later, far from their option."""
    called = (getattr(entry, name, None) for name in ("on_consume", "on_commit") for entry in config.interceptors)
    if not isinstance(config.interceptors, tuple) or not all(map(callable, called)):
        expected = "expected a sequence of objects with on_consume() and on_commit()"
        raise ValueError(f"interceptors={config.interceptors!r}: {expected}")
    if "partition_assignment_strategy" in config.given:
        from ..background.assignors import assignors_from  # with the group's half of the package, which not everybody needs

        assignors_from(config)


async def settled(result: Any) -> Any:
    """Return ``result``, awaited where it has to be."""
    return await result if inspect.isawaitable(result) else result


@define(eq=False)
class Deserializers:
    """Turns bytes into what the application wants to have."""

    key: Callable[..., Any] | None
    value: Callable[..., Any] | None

    @classmethod
    def of(cls, key: Any, value: Any) -> "Deserializers | None":
        """Return ``None`` where there is nothing to do: then records go to the application as they were decoded."""
        if key is None and value is None:
            return None
        return cls(_as_function(key), _as_function(value))

    async def apply(self, records: list[Record]) -> tuple[list[Record], DeserializationError | None]:
        """Return the records up to the first that a deserializer refused, and the error about that one."""
        done: list[Record] = []
        to_key, to_value = self.key, self.value
        for record in records:
            key, value = record.key, record.value
            field = "key"
            try:
                if to_key is not None:
                    key = to_key(record.topic, record.headers, key)
                    if hasattr(key, "__await__"):
                        key = await key
                field = "value"
                if to_value is not None:
                    value = to_value(record.topic, record.headers, value)
                    if hasattr(value, "__await__"):
                        value = await value
            except Exception as error:
                # The boundary to the user's code: whatever it is, it is reported with the record.
                text = (
                    f"the {field} of {record.topic}-{record.partition} at offset {record.offset} cannot be deserialized: {error!r}"
                )
                refused = DeserializationError(text, record, field)
                refused.__cause__ = error
                return done, refused
            done.append(ConsumerRecord(*record[:5], key, value, *record[7:]))
        return done, None


def _as_function(deserializer: Any) -> Callable[[str, Any, Any], Any] | None:
    """Return a function of (topic, headers, data) for whichever form of deserializer was given."""
    if deserializer is None:
        return None
    if callable(getattr(deserializer, "deserialize", None)):
        deserializer = deserializer.deserialize
    if _takes_three(deserializer):
        function: Callable[[str, Any, Any], Any] = deserializer
        return function
    return lambda topic, headers, data: deserializer(data)


def _takes_three(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature takes the bytes
        return False
    required = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is inspect.Parameter.empty
    ]
    return len(required) == 3
