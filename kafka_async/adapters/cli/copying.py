"""Copying records to standard output: what ``kafka-async consume`` does.

A batch is written and flushed before the next read call, after which auto-commit may commit it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID

import typer
from attrs import define, field, frozen

from ...application.callbacks import ConsumerRebalanceListener
from ...application.consumer import KafkaConsumer
from ...config.checks import INT64_MAX
from ...config.spelling import did_you_mean
from ...errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from ...model import TopicPartition
from .ends import Ends
from .formats import Record, Writer
from .shell import Output, natural

BATCH: Final = 1_000
"""Records per read and write."""

_NOT_MILLISECONDS: Final = range(10_000_000, 946_684_800_000)
"""Bare numbers that are taken for a mistake, such as 20231114 (a date) and 1700000000 (seconds): as milliseconds they lie before
2000, so that reading would begin at the oldest record without a word. Smaller ones look like neither, and timestamps made up for
a test often are that small.
"""
_WHILE_ENDING: Final = 200
_FOREVER: Final = 3_600_000


@frozen(kw_only=True)
class Start:
    """Where reading begins: the parsed ``--offset``."""

    kind: str
    """``beginning``, ``end``, ``stored``, ``offset``, ``tail`` (the last ``number`` records of each partition) or ``time`` (ms)."""
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> "Start":
        """Return what ``text`` means. Raises ``typer.BadParameter``."""
        try:
            if text in ("beginning", "end", "stored"):
                return cls(kind=text)
            if text.startswith("s@"):
                return cls(kind="time", number=_moment_of(text))
            if text.startswith("-"):
                return cls(kind="tail", number=natural(text[1:]))
            return cls(kind="offset", number=natural(text))
        except ValueError:
            raise typer.BadParameter(
                f"{text!r}: expected 'beginning', 'end', 'stored', an offset, -N for the last N records, s@MILLISECONDS or s@DATE "
                "such as s@2026-01-31T09:30"
            ) from None

    async def seek(self, consumer: KafkaConsumer[Any, Any], output: Output) -> None:
        """Set the position of every assigned partition. Raises ``OffsetOutOfRangeError`` for an offset beyond an end."""
        match self.kind:
            case "beginning":
                await consumer.seek_to_beginning()
            case "end":
                await consumer.seek_to_end()
            case "time":
                await consumer.seek_to_timestamp(self.number)
            case _:
                assigned = consumer.assignment()
                ends, begins = await consumer.end_offsets(assigned), await consumer.beginning_offsets(assigned)
                for partition, offset in self._offsets(begins, ends, output).items():
                    consumer.seek(partition, offset)

    def _offsets(
        self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], output: Output
    ) -> dict[TopicPartition, int]:
        """Return where reading begins in each partition, within what it has."""
        if self.kind == "tail":
            return {partition: max(begins[partition], end - self.number) for partition, end in ends.items()}
        beyond = [f"{_name(partition)} ends at {end}" for partition, end in sorted(ends.items()) if end < self.number]
        if beyond:
            raise OffsetOutOfRangeError(f"offset {self.number} is beyond the end: {', '.join(beyond)}")
        for partition, begin in sorted(begins.items()):
            if begin > self.number:
                output.notify(f"% {_name(partition)} has no offset {self.number} any more: reading begins at {begin}")
        return {partition: max(begin, self.number) for partition, begin in begins.items()}


def begin_and_end(texts: Sequence[str]) -> tuple[str | None, int | None]:
    """Return where reading begins, as it was typed, and the time at which it ends, in milliseconds; ``None``: not given.

    Raises ``typer.BadParameter`` for two of a kind, and for an end that is no time.
    """
    ends = [text for text in texts if text.startswith("e@")]
    begins = [text for text in texts if not text.startswith("e@")]
    for several in (ends, begins):
        if len(several) > 1:
            raise typer.BadParameter(f"{' and '.join(map(repr, several))}: expected one beginning, and one end as in e@2026-01-31")
    try:
        return next(iter(begins), None), _moment_of(ends[0]) if ends else None
    except ValueError:
        raise typer.BadParameter(f"{ends[0]!r}: expected e@MILLISECONDS or e@DATE such as e@2026-01-31T09:30") from None


def _moment_of(text: str) -> int:
    """Return the time of ``s@...`` or ``e@...``. Raises ``ValueError``; ``typer.BadParameter`` for what is taken for a mistake."""
    kind, typed = text[:2], text[2:]
    number = moment(typed)
    if typed.isdecimal() and number in _NOT_MILLISECONDS:
        date = datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(milliseconds=number)
        written = date.isoformat(timespec="milliseconds" if date.microsecond else "seconds")
        raise typer.BadParameter(
            f"{text!r} is {written} UTC, since a bare number is milliseconds since 1970; write a date such as "
            f"{kind}2026-01-31, or {kind}{written} for that time"
        )
    return number


def moment(text: str) -> int:
    """Return a time, given as milliseconds since the epoch or in ISO 8601 (UTC without a time zone), in milliseconds.

    Raises ``ValueError`` if it is not a time since 1970, or if Kafka has no number for it.
    """
    if text.isdecimal():
        number = natural(text)
        if number > INT64_MAX:
            raise ValueError(text)
        return number
    found = datetime.fromisoformat(text)
    since = round((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1000)
    if since < 0:
        raise ValueError(text)
    return since


class RecordSource(Protocol):
    """A way to get at records: ``Partitions`` or ``MemberSource``."""

    @property
    def options(self) -> dict[str, Any]:
        """Options of the consumer."""

    @property
    def exclusive(self) -> bool:
        """Whether nothing is written from the end on, even if it is there by then."""

    async def begin(self, consumer: KafkaConsumer[Any, Any], output: Output) -> None:
        """Have the started consumer read what it is to read."""

    async def ends(self, consumer: KafkaConsumer[Any, Any], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset in each partition at which reading is over."""


@frozen(kw_only=True)
class Partitions:
    """Reads partitions of topics, without a group."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    """Partition ids; ``()``: all."""
    start: Start
    options: dict[str, Any]
    until: int | None = None
    """Milliseconds: reading ends before the first record of that time, or at the end if there is none yet."""

    @property
    def exclusive(self) -> bool:
        return self.until is not None

    async def begin(self, consumer: KafkaConsumer[Any, Any], output: Output) -> None:
        """Assign the partitions and go where reading begins. Raises ``UnknownTopicOrPartitionError``."""
        found = await find_partitions(consumer, self.topics, self.partitions)
        consumer.assign(found)
        await self.start.seek(consumer, output)

    async def ends(self, consumer: KafkaConsumer[Any, Any], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        ends = await consumer.end_offsets(partitions)
        if self.until is None:
            return ends
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, self.until))
        return {each: ends[each] if answer is None else answer.offset for each, answer in found.items()}


@frozen(kw_only=True)
class MemberSource:
    """Reads topics as a member of a group."""

    topics: tuple[str, ...]
    options: dict[str, Any]
    exclusive: bool = False

    async def begin(self, consumer: KafkaConsumer[Any, Any], output: Output) -> None:
        """Join the group. Raises ``UnknownTopicOrPartitionError``, at once and not when a broker has had time to create a topic."""
        await find_partitions(consumer, self.topics)
        consumer.subscribe(self.topics, listener=_Teller(output, consumer.group_metadata().group_id))

    async def ends(self, consumer: KafkaConsumer[Any, Any], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await consumer.end_offsets(partitions)


@define(eq=False)
class _Teller(ConsumerRebalanceListener):
    """Tells the person at the terminal which partitions are assigned and revoked."""

    output: Output
    group_id: str | None

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.output.notify(f"% Group {self.group_id}: assigned {_names(assigned)}")

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.output.notify(f"% Group {self.group_id}: revoked {_names(revoked)}")

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.output.notify(f"% Group {self.group_id}: lost {_names(lost)}")


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(_name, sorted(partitions))) or "nothing"


def _name(partition: TopicPartition) -> str:
    """Return a partition as kcat writes it."""
    return f"{partition.topic} [{partition.partition}]"


async def find_partitions(
    consumer: KafkaConsumer[Any, Any], topics: Collection[str], wanted: Collection[int] = ()
) -> dict[TopicPartition, UUID | None]:
    """Return the partitions ``wanted`` (none: all) of ``topics``, each with the id of its topic.

    Who is asked again may not know a new topic yet. Raises ``UnknownTopicOrPartitionError`` that names others.
    """
    cluster = await consumer.describe_topics(*topics)
    partitions: dict[TopicPartition, UUID | None] = {}
    for topic in topics:
        if topic not in cluster.topics:
            raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist{did_you_mean(topic, await consumer.topics())}")
        found = sorted(part.partition for part in cluster.topics[topic].partitions)
        unknown = sorted(set(wanted) - set(found))
        if unknown:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {', '.join(map(str, unknown))}; it has {len(found)}, from 0 on"
            )
        partitions |= dict.fromkeys((TopicPartition(topic, number) for number in wanted or found), cluster.topics[topic].topic_id)
    return partitions


@define(eq=False, kw_only=True)
class Copy:
    """Writes what a ``RecordSource`` returns, until the end that was asked for."""

    reading: RecordSource
    count: int | None
    exit_at_end: bool
    write: Writer
    delimiter: bytes
    waits: bool = False
    """Whether ``write`` may wait for others: it is then called on a thread."""
    _reached: set[TopicPartition] = field(factory=set, init=False)

    async def run(self, output: Output) -> int:
        """Read and write. Return the exit code."""
        consumer: KafkaConsumer[Any, Any] = KafkaConsumer(**self.reading.options)
        async with consumer:
            await self.reading.begin(consumer, output)
            output.show_outages()
            ends = Ends(consumer, partial(self.reading.ends, consumer))
            left = self.count
            while left != 0 and not (self.exit_at_end and await self._is_at_end(ends, output)):
                limit = BATCH if left is None else min(BATCH, left)
                timeout = _WHILE_ENDING if self.exit_at_end else _FOREVER
                batch = await consumer.getmany(timeout_ms=timeout, max_records=limit)
                if self.exit_at_end:
                    await self._renew(ends, output)
                records = [record for partition, part in batch.items() for record in self._wanted(ends, partition, part)]
                await output.write_records(records, self._line, waits=self.waits)
                left = None if left is None else left - len(records)
        return 0

    def _line(self, record: Record) -> bytes:
        return self.write(record) + self.delimiter

    def _wanted(self, ends: Ends, partition: TopicPartition, records: list[Record]) -> list[Record]:
        """Leave out what lies after an end that was given. What comes after everything that was there at the start is written."""
        end = ends.offsets.get(partition)
        return records if not self.reading.exclusive or end is None else [record for record in records if record.offset < end]

    async def _renew(self, ends: Ends, output: Output) -> None:
        """Look up ends again that are no longer in their logs, which would not be reached, or too early."""
        gone = await ends.gone(ends.consumer.assignment() - self._reached)
        if gone:
            await ends.find(gone)
        for partition, what in sorted(gone.items()):
            output.notify(f"% {_name(partition)}: {what}; reading up to offset {ends.offsets[partition]}")

    async def _is_at_end(self, ends: Ends, output: Output) -> bool:
        """Return whether everything that is assigned was read up to where it ended. A member without partitions waits for some."""
        assigned = ends.consumer.assignment()
        fresh = assigned - ends.offsets.keys()
        if fresh:
            await ends.find(fresh)
        for partition in sorted(assigned - self._reached):
            position = await ends.consumer.position(partition)
            if position >= ends.offsets[partition]:
                self._reached.add(partition)
                # What was read in one batch with the last record before a given end is not written, so the position says nothing.
                end, at = ("the given end", ends.offsets[partition]) if self.reading.exclusive else ("end", position)
                output.notify(f"% Reached {end} of topic {_name(partition)} at offset {at}")
        return bool(assigned) and assigned <= self._reached
