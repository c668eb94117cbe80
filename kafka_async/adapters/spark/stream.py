"""A streaming read: the offsets of micro-batches, on the driver.

Decides: where every micro-batch begins and ends, and what counts as lost. Owns: what this process heard of the cluster, for as long
as the query runs here; what must outlive it is in the offsets that Spark keeps. Must never connect in its constructor, and never
let a failure that may pass end the query.

Spark asks for the initial offset twice and stores neither answer, so a start at the end of the topics would lose what comes in
between. Here the initial offset only says that there is none yet; the end of the first batch carries the offsets that were found,
and every plan of that batch, after a restart too, begins at those. From the second batch on offsets are exactly those of Spark's
own connector. Spark never calls ``stop``, and ``commit`` for the last batch neither, so finished offsets are committed to the group
when the next end is asked for: then the start is what is finished.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from math import inf
from typing import Any, Final

from attrs import frozen
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow

from ...model import TopicPartition
from .admission import Admission
from .connections import connections
from .lookup import Lookup
from .offsets import Offsets, OffsetSpec, as_json, from_json, name_of, names_of
from .options import SourceOptions
from .planner import OffsetRange, plan
from .reader import TaskReader, input_partitions, task_of
from .worker import SentToWorkers

PENDING: Final = "__pending__"
"""Key of an initial offset: the offsets are found with the first batch."""
INITIAL: Final = "__initial__"
"""Key in the end of the first batch: where that batch begins."""
_FROM: Final = OffsetSpec("latest", "startingOffsets")
_COMMIT_PAUSE: Final = 5.0
_LONGEST_COMMIT_PAUSE: Final = 120.0
"""Seconds without a commit after the first that failed, twice as long after each further one, and at most."""
_LAST_COMMIT_PATIENCE: Final = 15.0
_METADATA_SECONDS: Final = 1.0
"""How old what is known of topics and partitions may be: Spark asks many times a second."""


@frozen
class Mark:
    """An offset of Spark's, read."""

    offsets: Offsets | None
    """``None``: not found yet."""
    initial: Offsets | None = None

    @classmethod
    def read(cls, offset: dict[str, Any]) -> "Mark":
        """Return what a checkpoint, or ``initialOffset``, says. Raises ``KafkaConfigurationError`` for anything else."""
        if PENDING in offset:
            return cls(None)
        rest = {name: parts for name, parts in offset.items() if name != INITIAL}
        initial = from_json(offset[INITIAL], "checkpoint") if INITIAL in offset else None
        return cls(from_json(rest, "checkpoint"), initial)


class StreamReader(SentToWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of one streaming query."""

    def __init__(
        self, options: SourceOptions, tasks: TaskReader, lookup: Lookup | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._tasks = tasks
        self._clock = clock
        self._lookup = lookup or Lookup(options)
        self._admission = Admission(options.min_offsets_per_trigger, options.max_trigger_delay)
        self._known: tuple[float, frozenset[TopicPartition]] | None = None
        self._initial: Offsets | None = None
        self._latest: Offsets | None = None
        self._target: Offsets | None = None
        """Where the query ends, under ``Trigger.AvailableNow``."""
        self._handed_out: deque[tuple[Offsets, Mapping[str, Any]]] = deque(maxlen=2)
        """Where the last batches end, with the ids of the topics that these offsets are of."""
        self._committed: Offsets | None = None
        self._commit_from = -inf
        """No commit before this time: a try takes seconds where the group's coordinator is away."""
        self._commit_pause = _COMMIT_PAUSE

    # --- offsets ---------------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name, as below
        return {PENDING: True}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take note of where the query ends."""
        self._target = self._still_there(self._lookup.latest, self._partitions())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends; ``start`` itself where there is none."""
        mark = Mark.read(start)
        if mark.offsets is not None:
            self._commit(mark.offsets)
        starts = self._found_initial() if mark.offsets is None else mark.offsets
        latest = self._ends()
        ids = self._lookup.topic_ids if self._target is None else {}  # the target's topics may be others by now
        starts = self._of_topics(ids, starts)
        ends = self._limited(starts, latest, limit)
        if mark.offsets is not None and ends in (starts, mark.offsets):
            return start
        self._handed_out.append((ends, ids))
        return as_json(ends) if mark.offsets is not None else {**as_json(ends), INITIAL: as_json(starts)}

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
        return starts if ends == begun else ends

    def _found_initial(self) -> Offsets:
        """Return where the first batch begins, the same each time."""
        if self._initial is None:
            partitions = self._partitions() if self._target is None else self._target.keys()
            begins, ends = self._lookup.bounds(partitions)
            spec = self._options.starting or _FROM
            self._initial = self._lookup.resolve(spec, begins, self._target or ends, start=True)
        return self._initial

    def _ends(self) -> Offsets:
        self._latest = self._still_there(self._lookup.latest, self._partitions())
        return self._latest if self._target is None else dict(self._target)

    def _still_there(self, ask: Callable[[Set[TopicPartition]], Offsets], partitions: Set[TopicPartition]) -> Offsets:
        """Return the offsets of the partitions that are not gone; those that are gone are not asked for again."""
        found = ask(partitions)
        if self._known is not None and (gone := partitions - found.keys()):
            self._known = (self._known[0], self._known[1] - gone)
        return found

    def _of_topics(self, ids: Mapping[str, Any], starts: Offsets) -> Offsets:
        """Return ``starts`` without topics that are known to be others now: none of the new ones has been read."""
        then = self._ids_of(starts)
        anew = {topic for topic in then.keys() & ids.keys() if None not in (then[topic], ids[topic]) and then[topic] != ids[topic]}
        return {partition: offset for partition, offset in starts.items() if partition.topic not in anew}

    def _ids_of(self, ends: Offsets) -> Mapping[str, Any]:
        return next((ids for offsets, ids in self._handed_out if offsets == ends), {})

    def _partitions(self) -> frozenset[TopicPartition]:
        now = self._clock()
        if self._known is None or now >= self._known[0] + _METADATA_SECONDS:
            self._known = (now, self._lookup.partitions(first=self._known is None))
        return self._known[1]

    # --- batches ---------------------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch. Raises ``DataLossError`` for offsets that are gone.

        A partition that ends before the batch begins is not read, as in Spark's own connector: what it has was read, as far as
        anybody knows. The next batch begins at its end.
        """
        first, last = Mark.read(start), Mark.read(end)
        stops = last.offsets or {}
        starts = first.offsets
        if starts is None:
            starts = last.initial if last.initial is not None else self._adopted(stops)
        begins = self._still_there(self._lookup.earliest, stops.keys() & self._partitions())
        self._check_gone(starts, starts.keys() - stops.keys() | stops.keys() - begins.keys())
        starts = self._of_topics(self._ids_of(stops), starts)
        ranges = [self._range(partition, starts, stops[partition], begin) for partition, begin in begins.items()]
        options = self._options
        return input_partitions(plan(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition))

    def _adopted(self, stops: Offsets) -> Offsets:
        """Return where a first batch begins that Spark's own connector planned: it keeps that where we cannot read it."""
        found = self._found_initial()
        behind = {partition for partition, stop in stops.items() if found.get(partition, 0) > stop}
        if behind:
            self._lookup.lost(
                f"{names_of(behind)}: the checkpoint does not say where its first batch begins; that was the end then"
            )
        return {partition: stops[partition] if partition in behind else offset for partition, offset in found.items()}

    def _check_gone(self, starts: Offsets, gone: Collection[TopicPartition]) -> None:
        if gone:
            names = ", ".join(f"{name_of(partition)} up to offset {starts.get(partition, 0)}" for partition in sorted(gone))
            self._lookup.lost(f"{names}: read so far, and not there, or not subscribed, any more")

    def _range(self, partition: TopicPartition, starts: Offsets, stop: int, begin: int) -> OffsetRange:
        name = name_of(partition)
        start = starts.get(partition)
        if start is None:
            if begin > 0:
                self._lookup.lost(f"{name} is new and begins at offset {begin}, not at 0")
            return OffsetRange(partition, begin, stop)
        if stop < start:
            self._lookup.lost(
                f"{name} was read up to offset {start} and ends at {stop} now: truncated, or deleted and created again"
            )
        elif start < begin < stop or start < stop <= begin:
            self._lookup.lost(f"offsets {start} to {min(begin, stop) - 1} of {name} are gone: its log begins at {begin}")
        return OffsetRange(partition, max(start, begin), stop)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of a task as Arrow record batches, in a worker."""
        return self._tasks.read(task_of(partition))

    # --- the end of a batch ----------------------------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Commit finished offsets to ``commitGroup``."""
        self._commit(Mark.read(end).offsets)

    def _commit(self, offsets: Offsets | None) -> None:
        """Commit, and where that fails at a later call; at once where there is none, behind the last batch of ``AvailableNow``."""
        if self._options.commit_group is None or not offsets or offsets == self._committed:
            return
        last = offsets == self._target
        if not last and self._clock() < self._commit_from:
            return
        if self._lookup.commit(offsets, patience=_LAST_COMMIT_PATIENCE if last else 0.0):
            self._committed, self._commit_pause = offsets, _COMMIT_PAUSE
        else:
            self._commit_from = self._clock() + self._commit_pause
            self._commit_pause = min(2 * self._commit_pause, _LONGEST_COMMIT_PAUSE)

    def stop(self) -> None:
        """Close the connections of this process. Spark does not always call it."""
        connections().close()
