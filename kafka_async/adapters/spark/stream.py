"""A streaming read: the offsets of micro-batches, on the driver.

Spark asks for the initial offset twice and stores neither answer, so a start at the end of the topics would lose records written in
between. Here the initial offset only says that there is none yet; the end of the first batch carries the offsets that were found,
and every plan of that batch, even after a restart, begins at those. From the second batch on offsets are those of Spark's own
connector, and what else is kept is in entries that it passes over. Spark never calls ``stop``, nor ``commit`` for the last batch,
so finished offsets are committed to the group when the next end is requested: then everything before the start is finished.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from math import inf
from typing import Any, Final
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ...errors import KafkaConfigurationError
from ...model import TopicPartition
from ...network.backoff import NO_JITTER, ExponentialBackoff
from ...values import evolve, field, frozen
from ..ranges.offsets import Offsets, below, names_of
from ..ranges.planner import OffsetRange
from .connections import connections
from .options.source_options import SourceOptions
from .plan.admission import Admission
from .plan.lookup import Lookup
from .plan.offsets import EARLIEST, LATEST, OffsetSpec, as_json, from_json
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
AWAY: Final = "__away__/"
"""Prefix of a topic and its id in the end of a batch, for offsets up to where missing partitions were read: ``T:ID/0=23,1=42``."""
_MOST_AWAY: Final = 1000
"""From so many partitions on, each other that goes missing takes the place of one whose topic this process has not seen.

Such a topic may be gone for good. One that was there lately may only be unknown to the broker that was asked, however large it is.
"""
TOPICS: Final = "__topics__/"
"""Prefix of the ids of the topics whose offsets the end of a batch has, and of their cluster: ``T:ID,U:ID/CLUSTER``.

By these a query that is started again notices topics that were created again. A cluster to which topics were copied with their
offsets gives them other ids, so ids of another cluster are ignored.
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
    away: Offsets = field(factory=dict)
    """Up to where partitions were read that are missing; the name of a topic has its id behind it."""
    ids: Mapping[str, Any] = field(factory=dict)
    """Of the topics that ``offsets`` are of, as far as they are known."""
    cluster_id: str = ""

    @classmethod
    def read(cls, offset: dict[str, Any]) -> "Mark":
        """Return what a checkpoint, or ``initialOffset``, says. Raises ``KafkaConfigurationError`` for anything else."""
        if PENDING in offset:
            return cls(None)
        ends = {name: parts for name, parts in offset.items() if not name.startswith((INITIAL, AWAY, TOPICS, SCHEMA))}
        initial, away = _entries(INITIAL, offset), _entries(AWAY, offset)
        said = bool(initial)
        initial.pop("", None)
        schemas = (name.removeprefix(SCHEMA).partition("/") for name in offset if name.startswith(SCHEMA))
        initials = from_json(initial, "checkpoint") if said else None
        kept = {part: text for part, _, text in schemas}
        topics = next((name.removeprefix(TOPICS) for name in offset if name.startswith(TOPICS)), "")
        named, _, cluster_id = topics.partition("/")
        return cls(from_json(ends, "checkpoint"), initials, kept, from_json(away, "checkpoint"), _ids(named), cluster_id)

    def as_json(self) -> dict[str, Any]:
        """Return what ``read`` reads."""
        if self.offsets is None:
            return {PENDING: {}}
        found: dict[str, Any] = as_json(self.offsets)
        if self.initial is not None:
            found |= _as_entries(INITIAL, self.initial) or {INITIAL: {}}
        found |= _as_entries(AWAY, self.away)
        known = {topic: self.ids[topic] for topic in as_json(self.offsets) if self.ids.get(topic) is not None}
        if known:
            named = ",".join(f"{topic}:{topic_id}" for topic, topic_id in known.items())
            found[f"{TOPICS}{named}/{self.cluster_id}"] = {}
        return found | {f"{SCHEMA}{part}/{kept}": {} for part, kept in self.schemas.items()}


def _ids(named: str) -> dict[str, UUID]:
    try:
        return {topic: UUID(text) for topic, _, text in (each.partition(":") for each in named.split(",") if each)}
    except ValueError as error:
        raise KafkaConfigurationError(f"checkpoint: {named!r} does not name topics and their ids: {error}") from error


def _entries(prefix: str, offset: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries whose names begin with ``prefix``, in the form that offsets have elsewhere."""
    return dict(_entry(name.removeprefix(prefix), parts) for name, parts in offset.items() if name.startswith(prefix))


def _as_entries(prefix: str, offsets: Offsets) -> dict[str, Any]:
    """Return what ``_entries`` reads."""
    listed = ((topic, ",".join(f"{number}={at}" for number, at in parts.items())) for topic, parts in as_json(offsets).items())
    return {f"{prefix}{topic}/{each}": {} for topic, each in listed}


def _entry(name: str, parts: Any) -> tuple[str, Any]:
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
        self._restart: Known | None = None
        """Where this process began, with the ids of then: a checkpoint may have none."""
        self._short: tuple[Offsets, Mark] | None = None
        """Where a batch ends that was planned while partitions were missing, and up to where the records are that it has."""
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
        given, mark = Mark.read(start).offsets, self._read(start)
        schemas = self._schemas(mark)
        if mark.offsets is not None:
            self._expect(mark)
            self._commit(mark)
        while True:
            starts = self._found_initial() if mark.offsets is None else mark.offsets
            latest = self._ends()
            self._note_restart(mark, latest.ids)
            ids = self._ids_of(mark)
            kept = _of_topics(latest.ids, starts, ids)
            back = _back(latest.offsets.keys() - kept.keys(), latest.ids, mark.away)
            moved = back | self._anew(latest, (starts if given is None else given).keys() - kept.keys() - back.keys())
            begun = {**kept, **moved}
            latest = self._confirmed(latest, begun)
            ends = self._limited(begun, latest.offsets, limit)
            if kept == given and ends == begun:
                return start
            if self._target is not None or not self._made_anew(latest.ids):
                break
        # Spark logs what is returned here and plans it again at each start: what is an error has to be one before.
        self._check_gone(begun, begun.keys() - ends.keys())
        for partition in sorted(below(ends, begun)):
            self._lookup.lost(_shorter(partition, begun[partition], ends[partition]))
        away = _away(latest, kept, ids, mark.away, self._lookup.has_seen)
        said = {partition: offset for partition, offset in moved.items() if partition in ends} or None
        initial = begun if mark.offsets is None else said
        end = Mark(ends, initial, schemas, away, {**ids, **latest.ids}, self._lookup.cluster_id or "").as_json()
        # Spark plans no batch that ends where it starts to the letter: one that only makes up for a short one may look like that.
        return end if end != start else {**end, INITIAL: {}}

    def _read(self, offset: dict[str, Any]) -> Mark:
        """Return what an offset of Spark's says, but no more than was read up to there."""
        mark = Mark.read(offset)
        return mark if self._short is None or self._short[0] != mark.offsets else self._short[1]

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
        """Return where partitions begin of which nothing has been read: they belong to another topic now, or were missing."""
        there = latest.offsets.keys() & partitions
        return self._lookup.earliest(there) if there else {}

    def _made_anew(self, ids: Mapping[str, Any]) -> bool:
        """Return whether a topic is another one by now. Only if that is not so, ``ids`` are those of offsets asked for since."""
        now = self._ids_now()
        return any(now[topic] != ids[topic] for topic in now.keys() & ids.keys())

    def _expect(self, mark: Mark, begun: Collection[TopicPartition] = ()) -> None:
        """After a restart, look for what a checkpoint names as for what was seen before: the broker asked first may be behind.

        ``begun``: the partitions at the start of the batch that ends there. It was planned without those that were missing.
        """
        if self._restart is not None:
            return
        offsets = mark.offsets or {}
        named = offsets.keys() | begun
        self._lookup.expect(named, mark.ids, mark.cluster_id)
        if self._target is not None and not (
            named <= self._target.offsets.keys() and offsets == _of_topics(self._target.ids, offsets, self._ids_of(mark))
        ):
            self._known = self._target = None
            self._target = self._ends_now()

    def _note_restart(self, mark: Mark, ids: Mapping[str, Any]) -> None:
        """After a restart, note where the last batch before ended. Topics that it gives no id are taken to be those of now."""
        if self._restart is None:
            self._restart = Known(mark.offsets or {}, ids)

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

    def _found_initial(self, only: Set[TopicPartition] | None = None) -> Offsets:
        """Return where the first batch begins, the same each time; ``only``: the partitions that it has, if that is known.

        What the options say is not asked for partitions that came after it: it may not be known of these, and is not needed.
        """
        if self._initial is None:
            while True:
                partitions = self._partitions() if self._target is None else self._target.offsets.keys()
                ids = self._lookup.topic_ids
                begins, ends = self._lookup.bounds(partitions if only is None else partitions & only)
                spec = self._options.starting or _FROM
                if only is not None:
                    spec = evolve(spec, numbers={partition: at for partition, at in spec.numbers.items() if partition in begins})
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
        ends = _of_topics(ids, self._target.offsets, self._target.ids)
        # A partition that is missing has no end either: what is left of it would pass for read.
        return evolve(self._target, offsets={partition: ends[partition] for partition in ends.keys() & self._latest.keys()})

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

    def _ids_of(self, mark: Mark) -> Mapping[str, Any]:
        """Return the ids of the topics that offsets are of, as far as they are known."""
        if mark.offsets is None:
            return {} if self._initial is None else self._initial.ids
        kept = mark.ids if self._lookup.cluster_id in (None, mark.cluster_id) else {}
        begun = self._restart
        return {**begun.ids, **kept} if begun is not None and begun.offsets == mark.offsets else kept

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
        self._expect(last, {**(first.offsets or {}), **(last.initial or {})})
        known = first.offsets
        if known is None:
            known = {} if last.initial is not None else self._adopted(stops)
        starts = {**known, **(last.initial or {})}
        begins = self._still_there(self._lookup.earliest, stops.keys() & self._partitions())
        # A partition that was missing when this batch was planned, and is there again, goes on with the next batch.
        left = starts.keys() - stops.keys()
        back = _back(left & self._partitions(), self._lookup.topic_ids, last.away)
        self._check_gone(starts, left - back.keys() | stops.keys() - begins.keys())
        # A topic that was made anew since then has nothing of this batch: what it holds is read from its beginning with the next.
        ids = {**self._ids_of(last), **self._ids_now()}
        self._note_restart(last, ids)
        there = _of_topics(ids, stops, self._ids_of(last))
        self._note_missing(last, starts, there.keys() - begins.keys())
        ranges = [
            evolve(self._range(partition, starts, stops[partition], begin), topic_id=ids.get(partition.topic))
            for partition, begin in begins.items()
            if partition in there
        ]
        return input_partitions(self._options.tasks(ranges), self._schemas(last))

    def _note_missing(self, last: Mark, starts: Offsets, missing: Set[TopicPartition]) -> None:
        """Note where the next batch begins in partitions of which a batch has nothing, since they are missing as it is planned."""
        self._short = None
        if missing and last.offsets is not None:
            ids = self._ids_of(last)
            read = {partition: offset for partition, offset in last.offsets.items() if partition not in missing}
            away = last.away | _named({each: starts.get(each, 0) for each in missing}, ids)
            self._short = last.offsets, evolve(last, offsets=read, away=away, ids=ids, cluster_id=self._lookup.cluster_id or "")

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
        found = self._found_initial(stops.keys())
        behind = {partition for partition, stop in stops.items() if found.get(partition, 0) > stop}
        # If nothing came since, a start that moves is where the batch ends by now. Then only an empty log had nothing of it.
        reached = {partition for partition, stop in stops.items() if found.get(partition) == stop and self._moves(partition)}
        behind |= {partition for partition, begin in self._lookup.earliest(reached).items() if begin < stops[partition]}
        if behind:
            self._lookup.lost(
                f"{names_of(behind)}: the checkpoint does not say where its first batch begins, which was the end at that time"
            )
        adopted = {tp: stops[tp] if tp in behind else found[tp] for tp in found.keys() & stops.keys()}
        missing = {tp: self._start_of_missing(tp, stops[tp]) for tp in stops.keys() - found.keys()}
        self._check_gone(missing, missing)
        return adopted | missing

    def _start_of_missing(self, partition: TopicPartition, stop: int) -> int:
        """Return where a batch begins in a partition that cannot be asked; where it stops if the options do not tell that."""
        spec = self._options.starting or _FROM
        at = spec.numbers.get(partition, LATEST) if spec.kind == "offsets" else LATEST
        if spec.kind == "earliest" or at == EARLIEST:
            return 0
        return stop if at == LATEST else min(at, stop)

    def _moves(self, partition: TopicPartition) -> bool:
        """Return whether the start that the options name is another one as records come, or as a group commits."""
        spec = self._options.starting or _FROM
        match spec.kind:
            case "offsets":
                return spec.numbers[partition] == LATEST
            case "timestamp" | "timestamps":
                return self._options.latest_without_match
            case _:
                return spec.kind != "earliest"

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
        self._commit(self._read(end))

    def _commit(self, mark: Mark) -> None:
        """Commit, or if that fails, at a later call; at once after the last batch of ``AvailableNow``, when there is none."""
        offsets = mark.offsets
        if self._options.commit_group is None or not offsets or offsets == self._committed:
            return
        if self._restart is None:
            self._partitions()  # Until a look tells the cluster, a checkpoint's ids pass for those of this one.
        # A partition that went missing since the target was noted is not among the offsets.
        last = self._target is not None and offsets.items() <= self._target.offsets.items()
        if not last and self._clock() < self._commit_from:
            return
        if self._lookup.commit(offsets, self._ids_of(mark), patience=_LAST_COMMIT_PATIENCE if last else 0.0):
            self._committed, self._commit_failures = offsets, 0
        else:
            self._commit_from = self._clock() + _COMMIT_PAUSES.delay(self._commit_failures, NO_JITTER)
            self._commit_failures += 1

    def stop(self) -> None:
        """Close the connections of this process. Spark does not always call it."""
        connections().close()


def _of_topics(ids: Mapping[str, Any], offsets: Offsets, then: Mapping[str, Any]) -> Offsets:
    """Return offsets without those of topics that had another id ``then``: of the new ones none has been read."""
    anew = {topic for topic in then.keys() & ids.keys() if None not in (then[topic], ids[topic]) and then[topic] != ids[topic]}
    return {partition: offset for partition, offset in offsets.items() if partition.topic not in anew}


def _back(partitions: Set[TopicPartition], ids: Mapping[str, Any], away: Offsets) -> Offsets:
    """Return up to where partitions were read that were missing for a while: those of the same topics."""
    back = {partition: _with_id(partition, ids) for partition in partitions}
    return {partition: away[named] for partition, named in back.items() if named in away}


def _away(latest: Known, starts: Offsets, ids: Mapping[str, Any], before: Offsets, seen: Callable[[str, str], bool]) -> Offsets:
    """Return what was read of partitions that are missing now, of those too that were missing ``before``.

    ``ids``: of the topics that ``starts`` are offsets of.
    ``seen``: whether a topic of this name and id was there lately, so that it may be about to come back.
    """
    still = {
        named: offset
        for named, offset in before.items()
        if TopicPartition(_name_and_id(named)[0], named.partition) not in latest.offsets
    }
    noted = _named({partition: starts[partition] for partition in starts.keys() - latest.offsets.keys()}, ids)
    if (too_many := min(len(noted), len(still) + len(noted) - _MOST_AWAY)) > 0:
        for named in sorted(named for named in still if not seen(*_name_and_id(named)))[:too_many]:
            del still[named]
    return still | noted


def _named(offsets: Offsets, ids: Mapping[str, Any]) -> Offsets:
    """Return offsets by ``_with_id``. Without an id nothing shows whether it is the same topic that comes back."""
    return {_with_id(each, ids): offset for each, offset in offsets.items() if ids.get(each.topic) is not None}


def _with_id(partition: TopicPartition, ids: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(f"{partition.topic}:{ids.get(partition.topic)}", partition.partition)


def _name_and_id(named: TopicPartition) -> tuple[str, str]:
    """Return what ``_with_id`` has put together."""
    name, _, topic_id = named.topic.partition(":")
    return name, topic_id


def _shorter(partition: TopicPartition, start: int, stop: int) -> str:
    return (
        f"{partition} was read up to offset {start} and ends at {stop} now: truncated, or deleted and created again; or the stream "
        "was to start above its end"
    )
