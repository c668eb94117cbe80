"""A streaming read: the offsets of micro-batches, on the driver.

Spark asks for the initial offset twice and stores neither answer, so a start at the end of the topics would lose records written in
between. Here the initial offset only says that there is none yet; the end of the first batch carries the offsets that were found,
and every plan of that batch, even after a restart, begins at those. From the second batch on offsets are exactly those of Spark's
own connector. Spark never calls ``stop``, nor ``commit`` for the last batch, so finished offsets are committed to the group
when the next end is requested: then everything before the start is finished.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from math import inf
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ...model import TopicPartition
from ...network.backoff import NO_JITTER, ExponentialBackoff
from ...values import evolve, field, frozen
from ..ranges.offsets import Offsets, below, names_of
from ..ranges.planner import OffsetRange
from .connections import connections
from .options.source_options import SourceOptions
from .plan.admission import Admission
from .plan.lookup import Lookup
from .plan.offsets import OffsetSpec, as_json, from_json
from .plan.volume import Volume
from .task import TaskReader, input_partitions
from .worker import Arrival, received

PENDING: Final = "__pending__/"
"""Key of an initial offset: the offsets are found with the first batch."""
INITIAL: Final = "__initial__/"
"""Prefix of a topic in the end of a batch, for offsets where the batch begins if they differ from its start: ``T/0=23,1=42``.

These are the beginning of the first batch, of a partition that was missing for a while, and of a topic that was created again.
No topic can have a slash in its name, and the entry is a topic without partitions, which Spark's own connector passes over. An
older form of it had partitions, ``"__initial__/T": {"0": 23}``, and is read too.
"""
SCHEMA: Final = "__schema__/"
"""Prefix of an entry that names the schema of a registry that values or keys are read with: ``value/id=7,version=2``."""
_FROM: Final = OffsetSpec("latest", "startingOffsets")
_COMMIT_PAUSES: Final = ExponentialBackoff(5.0, 120.0)
"""Seconds without a commit after one that failed."""
_LAST_COMMIT_PATIENCE: Final = 15.0
_DOUBT_SECONDS: Final = 10.0
"""How long an end below what was read is asked for again before the stream goes on from there, which may read records twice."""
_METADATA_SECONDS: Final = 1.0
"""How old the known topics and partitions may be: Spark asks many times a second."""


@frozen
class Mark:
    """An offset of Spark's, read."""

    offsets: Offsets | None
    """``None``: not found yet."""
    initial: Offsets | None = None
    """Where the batch that ends here begins, regardless of its start; ``None``: at its start."""
    schemas: Mapping[str, str] = field(factory=dict)
    """The schemas of a registry that values and keys are read with, as their decoders name them."""

    @classmethod
    def read(cls, offset: dict[str, Any]) -> "Mark":
        """Return what a checkpoint, or ``initialOffset``, says. Raises ``KafkaConfigurationError`` for anything else."""
        if PENDING in offset:
            return cls(None)
        ends = {name: parts for name, parts in offset.items() if not name.startswith((INITIAL, SCHEMA))}
        initial = dict(_initial(name.removeprefix(INITIAL), parts) for name, parts in offset.items() if name.startswith(INITIAL))
        said = bool(initial)
        initial.pop("", None)
        schemas = (name.removeprefix(SCHEMA).partition("/") for name in offset if name.startswith(SCHEMA))
        initials = from_json(initial, "checkpoint") if said else None
        return cls(from_json(ends, "checkpoint"), initials, {part: kept for part, _, kept in schemas})

    def as_json(self) -> dict[str, Any]:
        """Return what ``read`` reads."""
        if self.offsets is None:
            return {PENDING: {}}
        found: dict[str, Any] = as_json(self.offsets)
        if self.initial is not None:
            listed = ((topic, ",".join(f"{n}={at}" for n, at in parts.items())) for topic, parts in as_json(self.initial).items())
            found |= {f"{INITIAL}{topic}/{offsets}": {} for topic, offsets in listed} or {INITIAL: {}}
        return found | {f"{SCHEMA}{part}/{kept}": {} for part, kept in self.schemas.items()}


def _initial(name: str, parts: Any) -> tuple[str, Any]:
    """Return topic and offsets of an entry, in the form that offsets have elsewhere."""
    topic, _, listed = name.partition("/")
    if not listed:
        return topic, parts
    return topic, {
        number: int(at) if at.isdecimal() else at for number, _, at in (each.partition("=") for each in listed.split(","))
    }


@frozen
class Known:
    """Offsets of partitions, with the ids of the topics that they are offsets of."""

    offsets: Offsets
    ids: Mapping[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of one streaming query."""

    def __init__(
        self, options: SourceOptions, tasks: TaskReader, lookup: Lookup | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._tasks = tasks
        self._clock = clock
        self._lookup = lookup or Lookup(options)
        self._admission = Admission(options.min_offsets_per_trigger, options.max_trigger_delay)
        most = options.max_bytes_per_trigger
        self._volume = None if most is None else Volume(self._lookup, most)
        self._known: tuple[float, frozenset[TopicPartition]] | None = None
        self._initial: Known | None = None
        self._latest: Offsets | None = None
        self._target: Known | None = None
        """Where the query ends, under ``Trigger.AvailableNow``."""
        self._handed_out: deque[Known] = deque(maxlen=2)
        """Where the last batches end."""
        self._away: dict[TopicPartition, tuple[int, Any]] = {}
        """Partitions that are missing: up to where they were read, and the ids of their topics."""
        self._committed: Offsets | None = None
        self._commit_from = -inf
        """No commit before this time: a try takes seconds if the group's coordinator is away."""
        self._commit_failures = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return received, (Arrival(), self._tasks)

    # --- offsets ---------------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name, as below
        return Mark(None).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the query ends."""
        self._target = self._ends_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends; ``start`` itself if there is none."""
        mark = Mark.read(start)
        schemas = self._schemas(mark)
        if mark.offsets is not None:
            self._commit(mark.offsets)
        while True:
            starts = self._found_initial() if mark.offsets is None else mark.offsets
            latest = self._ends()
            if mark.offsets is not None:
                self._note_restart(mark.offsets, latest.ids)
            kept = self._of_topics(latest.ids, starts)
            moved = self._back(latest, kept) | self._anew(latest, starts.keys() - kept.keys())
            begun = {**kept, **moved}
            latest = self._confirmed(latest, begun)
            ends = self._limited(begun, latest.offsets, limit)
            if mark.offsets is not None and (ends == begun or (ends in (kept, mark.offsets) and not moved)):
                return start
            if self._target is not None or not self._made_anew(latest.ids):
                break
        for partition in sorted(below(ends, begun)):
            self._lookup.lost(_shorter(partition, begun[partition], ends[partition]))
        self._note_away(latest, kept)
        self._handed_out.append(Known(ends, latest.ids))
        if mark.offsets is None:
            return Mark(ends, begun, schemas).as_json()
        said = {partition: offset for partition, offset in moved.items() if partition in ends}
        end = Mark(ends, said or None, schemas).as_json()
        return end if end != start else {**end, INITIAL: {}}  # the same offsets of another topic: Spark must see that they differ

    def _confirmed(self, latest: Known, begun: Offsets) -> Known:
        """Return where the partitions end, asked again if that is before what was read of them."""
        if not below(latest.offsets, begun):
            return latest
        patience = 0.0 if self._options.fail_on_data_loss else _DOUBT_SECONDS
        ends = self._lookup.confirmed(latest.offsets, begun, patience=patience)
        self._latest = {**(self._latest or {}), **ends}
        if self._target is not None:
            self._target = evolve(self._target, offsets=self._target.offsets | ends)
        return evolve(latest, offsets=ends)

    def _anew(self, latest: Known, partitions: Set[TopicPartition]) -> Offsets:
        """Return where partitions begin that belong to another topic now, of which nothing has been read."""
        there = latest.offsets.keys() & partitions
        return self._lookup.earliest(there) if there else {}

    def _made_anew(self, ids: Mapping[str, Any]) -> bool:
        """Return whether a topic is another one by now. Only if that is not so, ``ids`` are those of offsets asked for since."""
        now = self._ids_now()
        return any(now[topic] != ids[topic] for topic in now.keys() & ids.keys())

    def _back(self, latest: Known, starts: Offsets) -> Offsets:
        """Return up to where partitions were read that were missing for a while."""
        back = {partition: self._away[partition] for partition in latest.offsets.keys() & self._away.keys() - starts.keys()}
        return {partition: offset for partition, (offset, topic) in back.items() if latest.ids.get(partition.topic) == topic}

    def _note_restart(self, offsets: Offsets, ids: Mapping[str, Any]) -> None:
        """After a restart, note where the last batch of the query before ended. Its topics are taken to be those of now."""
        if not self._handed_out:
            self._handed_out.append(Known(offsets, ids))

    def _note_away(self, latest: Known, starts: Offsets) -> None:
        ids = self._ids_of(starts)
        self._away = {partition: known for partition, known in self._away.items() if partition not in latest.offsets}
        for partition in starts.keys() - latest.offsets.keys():
            if (topic := ids.get(partition.topic)) is not None:
                self._away[partition] = starts[partition], topic

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return where the partitions ended at the last look, so that progress tells the lag."""
        return None if self._latest is None else as_json(self._latest)

    def _limited(self, starts: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            return latest
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        new = latest.keys() - starts.keys()
        begun = {**self._lookup.earliest(new), **starts} if new else starts
        ends = self._admission.end(begun, latest, most, wait=self._target is None, now=self._clock())
        if self._volume is not None and ends != begun:
            ends = self._volume.limited(begun, ends)
        return starts if ends == begun else ends

    def _found_initial(self) -> Offsets:
        """Return where the first batch begins, the same each time."""
        if self._initial is None:
            while True:
                partitions = self._partitions() if self._target is None else self._target.offsets.keys()
                ids = self._lookup.topic_ids
                begins, ends = self._lookup.bounds(partitions)
                spec = self._options.starting or _FROM
                ends = ends if self._target is None else self._target.offsets
                found = self._lookup.resolve(spec, begins, ends, start=True)
                if self._target is not None or not self._made_anew(ids):
                    break
            self._initial = Known(found, ids)
        return self._initial.offsets

    def _ends(self) -> Known:
        """Return where the partitions end, or the query; the ids are to be looked at again before the ends are handed out."""
        partitions = self._partitions(again=self._target is not None)
        ids = self._lookup.topic_ids
        self._latest = self._still_there(self._lookup.latest, partitions)
        if self._target is None:
            return Known(self._latest, ids)
        # Where the old topic ended means nothing in the new one. Without an end, the next run reads that from its beginning.
        return evolve(self._target, offsets=self._of_topics(ids, self._target.offsets, self._target.ids))

    def _ends_now(self) -> Known:
        ends = self._ends()
        while self._made_anew(ends.ids):
            ends = self._ends()
        return ends

    def _still_there(self, ask: Callable[[Set[TopicPartition]], Offsets], partitions: Set[TopicPartition]) -> Offsets:
        """Return the offsets of the partitions that are not gone; those that are gone are not asked for again."""
        found = ask(partitions)
        if self._known is not None and (gone := partitions - found.keys()):
            self._known = (self._known[0], self._known[1] - gone)
        return found

    def _of_topics(self, ids: Mapping[str, Any], starts: Offsets, then: Mapping[str, Any] | None = None) -> Offsets:
        """Return ``starts`` without topics that are known to be others now: none of the new ones has been read.

        ``then``: what the ids were, if not those known of ``starts``.
        """
        then = self._ids_of(starts) if then is None else then
        anew = {topic for topic in then.keys() & ids.keys() if None not in (then[topic], ids[topic]) and then[topic] != ids[topic]}
        return {partition: offset for partition, offset in starts.items() if partition.topic not in anew}

    def _ids_of(self, ends: Offsets) -> Mapping[str, Any]:
        known = [*reversed(self._handed_out), *([] if self._initial is None else [self._initial])]
        return next((each.ids for each in known if each.offsets == ends), {})

    def _partitions(self, *, again: bool = False) -> frozenset[TopicPartition]:
        """Return the partitions, as of a short while ago; ``again``: as of now."""
        now = self._clock()
        if again or self._known is None or now >= self._known[0] + _METADATA_SECONDS:
            self._known = (now, self._lookup.partitions(first=self._known is None))
        return self._known[1]

    # --- batches ---------------------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch. Raises ``DataLossError`` for offsets that are gone.

        A partition that ends before the batch begins is not read, as in Spark's own connector: its records are taken to have been
        read. The next batch begins at its end.
        """
        first, last = Mark.read(start), Mark.read(end)
        stops = last.offsets or {}
        known = first.offsets
        if known is None:
            known = {} if last.initial is not None else self._adopted(stops)
        starts = {**known, **(last.initial or {})}
        begins = self._still_there(self._lookup.earliest, stops.keys() & self._partitions())
        self._check_gone(starts, starts.keys() - stops.keys() | stops.keys() - begins.keys())
        # A topic that was made anew since then has nothing of this batch: what it holds is read from its beginning with the next.
        ids = {**self._ids_of(stops), **self._ids_now()}
        self._note_restart(stops, ids)
        there = self._of_topics(ids, stops)
        ranges = [
            evolve(self._range(partition, starts, stops[partition], begin), topic_id=ids.get(partition.topic))
            for partition, begin in begins.items()
            if partition in there
        ]
        return input_partitions(self._options.tasks(ranges), self._schemas(last))

    def _schemas(self, mark: Mark) -> dict[str, str]:
        """Return the schemas that the query reads with: those that it began with, whichever are the newest by now.

        Raises ``KafkaConfigurationError`` if those have other columns than the newest, which are the ones that Spark has planned.
        """
        decoders = self._tasks.decoders
        kept = {part: decoder.keeping(mark.schemas.get(part, "")).kept for part, decoder in decoders.items()}
        return {part: each for part, each in kept.items() if each}

    def _ids_now(self) -> Mapping[str, Any]:
        self._partitions(again=True)
        return self._lookup.topic_ids

    def _adopted(self, stops: Offsets) -> Offsets:
        """Return where a first batch of Spark's own connector begins: it stores that where we cannot read it."""
        found = self._found_initial()
        behind = {partition for partition, stop in stops.items() if found.get(partition, 0) > stop}
        if behind:
            self._lookup.lost(
                f"{names_of(behind)}: the checkpoint does not say where its first batch begins, which was the end at that time"
            )
        return {partition: stops[partition] if partition in behind else offset for partition, offset in found.items()}

    def _check_gone(self, starts: Offsets, gone: Collection[TopicPartition]) -> None:
        if gone:
            names = ", ".join(f"{partition} up to offset {starts.get(partition, 0)}" for partition in sorted(gone))
            self._lookup.lost(f"{names}: was read before, but no longer exists or is no longer subscribed")

    def _range(self, partition: TopicPartition, starts: Offsets, stop: int, begin: int) -> OffsetRange:
        start = starts.get(partition)
        if start is None:
            if begin > 0:
                self._lookup.lost(f"{partition} is new and begins at offset {begin}, not at 0")
            return OffsetRange(partition, begin, stop)
        if stop < start:
            self._lookup.lost(_shorter(partition, start, stop))
        elif start < begin < stop or start < stop <= begin:
            self._lookup.lost(f"offsets {start} to {min(begin, stop) - 1} of {partition} are gone: its log begins at {begin}")
        return OffsetRange(partition, max(start, begin), stop)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of a task as Arrow record batches, in a worker."""
        return self._tasks.read(partition)

    # --- the end of a batch ----------------------------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Commit finished offsets to ``commitGroup``."""
        self._commit(Mark.read(end).offsets)

    def _commit(self, offsets: Offsets | None) -> None:
        """Commit, or if that fails, at a later call; at once after the last batch of ``AvailableNow``, when there is none."""
        if self._options.commit_group is None or not offsets or offsets == self._committed:
            return
        last = self._target is not None and offsets == self._target.offsets
        if not last and self._clock() < self._commit_from:
            return
        if self._lookup.commit(offsets, self._ids_of(offsets), patience=_LAST_COMMIT_PATIENCE if last else 0.0):
            self._committed, self._commit_failures = offsets, 0
        else:
            self._commit_from = self._clock() + _COMMIT_PAUSES.delay(self._commit_failures, NO_JITTER)
            self._commit_failures += 1

    def stop(self) -> None:
        """Close the connections of this process. Spark does not always call it."""
        connections().close()


def _shorter(partition: TopicPartition, start: int, stop: int) -> str:
    return (
        f"{partition} was read up to offset {start} and ends at {stop} now: truncated, or deleted and created again; or the stream "
        "was to start above its end"
    )
