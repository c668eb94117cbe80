"""Records that failed, were written to another topic, and are read from there to be handled again.

``kafka_async.adapters.retry_topics`` writes them. What ``process`` has to know of it is here: where such a record comes from, and
what is asked of the object that writes it.
"""

from collections.abc import Callable, Iterable, Sequence
from re import compile as pattern
from typing import Any, Final, Protocol, runtime_checkable

from ...model import ConsumerRecord, last_header
from ...values import frozen

Record = ConsumerRecord[Any, Any]

TOPIC: Final = "retry-topic"
"""The header with the topic that a record was in first."""
WRITTEN_TO: Final = "records that failed are written to"
"""What the topics are for, in the error that one is missing."""
_RETRY: Final = pattern(r"(?P<topic>.+)\.retry\.[0-9]+")
"""``{topic}.{group}.retry.{seconds}``."""


@frozen
class Redelivered:
    """Returned by ``on_failure``: the record comes again, so this was no dead letter."""

    outcome: str
    """What becomes of it, for the log."""


class Redelivery(Protocol):
    """Topics whose records come to be handled again later."""

    def serves(self, topic: str) -> bool:
        """Return whether this is one of the topics."""

    def not_before(self, record: Record) -> float | None:
        """Return when a record of theirs is due, in milliseconds since the epoch; ``None``: at once."""

    def attempts_before(self, record: Record) -> int:
        """Return how many attempts a record of theirs has had."""

    def topics(self, topics: Iterable[str]) -> Sequence[str]:
        """Return the topics that records of these are written to."""


class Redelivers(Redelivery, Protocol):
    """The same as an ``on_failure``."""

    async def __call__(self, record: Record, error: BaseException, attempts: int) -> object: ...


@runtime_checkable
class ForGroups(Protocol):
    """An ``on_failure`` that has topics for each group."""

    def for_group(self, group_id: str | None, wall: Callable[[], float]) -> Redelivers:
        """Return what serves a group. ``wall``: returns the wall clock's time, in milliseconds since the epoch.

        Raises ``ValueError`` if there is no group, or if topics cannot have its name.
        """


def may_come_from(retry_topic: str, topic: str) -> bool:
    """Return whether a retry topic of this name may have records that were in ``topic`` first."""
    found = _RETRY.fullmatch(retry_topic)
    return found is not None and found["topic"].startswith(f"{topic}.")


def origin_of(record: Record) -> str:
    """Return the topic that a record was in first: the one in its header if it comes from a retry topic of that one."""
    found = _RETRY.fullmatch(record.topic)
    if found is None:
        return record.topic
    header = last_header(record.headers, TOPIC)
    topic = "" if header is None else header.decode(errors="replace")
    return topic if topic and found["topic"].startswith(f"{topic}.") else record.topic
