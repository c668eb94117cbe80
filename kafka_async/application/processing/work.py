"""All that is known about the records that are processed, without a loop, a clock or randomness.

A partition that is taken away is forgotten. If it comes back it is another one: records received before do not count for it, and a
late result finds that its own partition is gone.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import count, repeat
from typing import Any, Final, NamedTuple
from uuid import UUID

from ...functions import returned
from ...model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ...values import define, field
from .attempts import LaterAttempts, Unit
from .capacity import Room, room
from .done import LONG_SPAN, MOST_AHEAD, PartitionProgress
from .encoding import decode, encode
from .items import Item, Pack, Part
from .lanes import Lanes
from .process_settings import key_of, partition_of
from .queues import Fate

Record = ConsumerRecord[Any, Any]
Offsets = dict[TopicPartition, OffsetAndMetadata]

FEWEST: Final = 5
"""Once there was no more room, at least so many records are taken in together: one by one costs more than handling."""
MOST_HELD_UP: Final = 64 * 1024 * 1024
"""Bytes of records that later attempts may hold up, see ``HeldUp``."""


def step_of(room: int) -> int:
    """Return how many records are asked for at least, once there was no more ``room``."""
    return max(1, room // 4, min(room // 2, FEWEST))


class Intake(NamedTuple):
    """How much more may be read."""

    limit: int
    """Records; 0: none for now."""
    waiting: Collection[TopicPartition]
    """Partitions that may not be read for now."""
    step: int
    """How many records must be done before another read is worthwhile."""
    most: int
    """How many records are held if no more may be read."""


class Received(NamedTuple):
    """Records of one partition, in order."""

    records: Sequence[Any]
    raw: Sequence[Any]
    """The same as they were before deserializers and interceptors."""
    topic_id: UUID | None = None
    """The topic that they belong to, if it is known."""


Supply = Mapping[TopicPartition, Received]


class Ahead(NamedTuple):
    """How far handlers are ahead of what is committed; see ``ProcessingStatistics``."""

    far_ahead: int = 0
    lanes: int = 0
    done_ahead: int = 0


@define(eq=False)
class LastCommits:
    """What was committed last."""

    last: Offsets = field(factory=dict)
    """Of each partition."""
    with_maps: bool = True
    """Brokers take the map of done records with it."""


@define(eq=False)
class Work:
    """The records that were received and are not done, and what is done in their partitions."""

    lane_of: Callable[[Record], Hashable] | None
    """``None``: no record needs any order. A lane of ``None``: this one does not.

    ``key_of`` gets the record from before deserializers: keys are equal if their bytes are.
    """
    room: Room = field(converter=room)
    """How much may be held: received and not done."""
    lanes: Lanes = field(factory=Lanes)
    one_set_of_lanes: bool = False
    """Whether equal lanes of different partitions are the same lane."""
    keep_done: bool = True
    """Whether what is done after the first record that is not is told to whoever goes on there."""
    parts: dict[TopicPartition, Part] = field(factory=dict, init=False)
    held: int = field(default=0, init=False)
    """Records received and not done; for partitions that leave, only those that are being handled."""
    _running_gone: int = field(default=0, init=False)
    """Records that are being handled of partitions that have left."""
    settled: int = field(default=0, init=False)
    """Records for which nothing more is to be done: handled, skipped or written elsewhere."""
    late_results: int = field(default=0, init=False)
    """Records whose handler ended after their partition had left."""
    _shared: dict[Hashable, Any] = field(factory=dict, init=False)
    _later: LaterAttempts = field(factory=LaterAttempts, init=False)
    _long: set[TopicPartition] = field(factory=set, init=False)
    """Partitions with so many records after the first unfinished one that they may run too far ahead of it."""
    _committed: LastCommits = field(factory=LastCommits, init=False)
    _paused: frozenset[TopicPartition] = field(default=frozenset(), init=False)

    # --- partitions ------------------------------------------------------------------------------------------------------------

    def assign(self, partition: TopicPartition, committed: OffsetAndMetadata | None = None, topic_id: UUID | None = None) -> bool:
        """Begin with a partition that is ours from now on. Return whether its metadata was understood, if it has any.

        ``committed``: what was committed last. Records that its metadata mark as done are not handled again.
        """
        understood = self._assign(partition, committed, topic_id, fits=True)
        if committed is not None:
            self._committed.last[partition] = committed
        return understood

    def go_on_at(self, partition: TopicPartition, sought: OffsetAndMetadata, topic_id: UUID | None) -> None:
        """Begin with a partition at an offset that was kept elsewhere, together with what is done beyond it."""
        self._assign(partition, sought, topic_id, fits=False)

    def _assign(self, partition: TopicPartition, start: OffsetAndMetadata | None, topic_id: UUID | None, *, fits: bool) -> bool:
        self.forget((partition,))
        metadata = "" if start is None or not self.keep_done else start.metadata
        recorded = None if start is None else decode(metadata, start.offset, topic_id, fits=fits)
        self._begin(partition, PartitionProgress(partition, recorded), topic_id)
        return recorded is not None or not metadata

    def see_again(self, partition: TopicPartition, offset: int) -> bool:
        """Reading goes on at ``offset`` since the application wants that, so what an earlier owner had done there is handled again.

        At the offset that was committed it only goes on where that owner was.
        If ``offset`` lies before the end of what was received, that is forgotten. Return whether it was.
        """
        part = self.parts.get(partition)
        if part is None:
            return False
        if part.progress.end is not None and offset < part.progress.end:
            # Now, and not when the first record comes from there: until then a commit would cover what is to be handled again.
            self._begin_anew(part, part.topic_id)
            return True
        if part.progress.recorded is not None and part.progress.recorded.offset != offset:
            part.progress.recorded = None
        return False

    def _begin(
        self,
        partition: TopicPartition,
        progress: PartitionProgress,
        topic_id: UUID | None = None,
        lanes: dict[Hashable, Any] | None = None,
    ) -> Part:
        part = Part(progress, self._shared if self.one_set_of_lanes else {} if lanes is None else lanes)
        part.topic_id, part.paused = topic_id, partition in self._paused
        self.parts[partition] = part
        return part

    def suspend(self, paused: Collection[TopicPartition]) -> None:
        """Begin nothing of these partitions until this is called without them; running handlers go on."""
        self._paused = frozenset(paused)
        for partition, part in self.parts.items():
            self.lanes.pause(part, paused=partition in self._paused)
        for part in self.parts.values():
            if part.paused and part.live:  # whichever of them was paused or resumed now
                self.lanes.move_packs(part)

    @property
    def suspended(self) -> int:
        """Records that are not being handled because their partitions are paused, or one before them in its lane, or not due."""
        paused = [part for part in self.parts.values() if part.paused and part.live]  # of what leaves, nothing that waits is held
        found = sum(part.progress.unfinished - part.running for part in paused)
        if paused and self.one_set_of_lanes:
            found += self.lanes.blocked(self._shared, self.parts.values(), self._later.units)
        delays = self.lanes.delays
        return found if delays is None else found + sum(delays.count(part) for part in delays.parts if not part.paused)

    @property
    def delayed(self) -> int:
        """Records that are not due."""
        return 0 if self.lanes.delays is None else self.lanes.delays.records

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin nothing more of these partitions, which are about to leave. Running handlers may still end in time."""
        leaving = [part for tp in partitions if (part := self.parts.get(tp)) is not None and part.live]
        for part in leaving:
            self.lanes.drop(part)
            self.held -= part.progress.unfinished - part.running
        if leaving:
            self._drop_later_attempts()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions have left."""
        known = [tp for tp in partitions if tp in self.parts]
        self.leave(known)
        for partition in known:
            part = self.parts.pop(partition)
            part.gone = True
            self._running_gone += part.running
            self.held -= part.running
            self._committed.last.pop(partition, None)
            self._long.discard(partition)

    def _drop_later_attempts(self) -> None:
        for unit, due in self._later.take_unless(lambda unit: all(item.part.live for item in unit.items)):
            first = unit.items[0]
            self.lanes.go_on(unit)
            self.lanes.hand_back(unit.items[1:])
            if first.part.live and first.lane is None:
                self.lanes.again(first)
            else:
                self._release(first, due)

    def _release(self, item: Item, now: float) -> None:
        """Open the lane of a record whose handling was interrupted; it comes first if its partition stays."""
        if item.part.live:
            self.lanes.again(item)
        else:
            self.lanes.release(item, now)

    def running_of(self, partitions: Iterable[TopicPartition]) -> dict[Part, int]:
        """Return how many records of these partitions are being handled, those included that count no more since the partition was
        sought elsewhere: nobody else may begin with them yet.
        """
        parts = [part for tp in partitions if (part := self.parts.get(tp)) is not None]
        return {each: each.running for part in parts for each in (*part.earlier, part) if each.running}

    # --- receiving -------------------------------------------------------------------------------------------------------------

    def receive(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        now: float,
        raw: Sequence[Record] | None = None,
        topic_id: UUID | None = None,
    ) -> None:
        """Take in records that were read of a partition, in order. ``raw``: as they were before deserializers.

        ``topic_id``: the topic that they belong to, if it is known. Nothing that is known about another one counts for it.
        """
        part = self._part_for(partition, records[0].offset, topic_id)
        progress = part.progress
        number = progress.receive(records, now)
        self.room.receive(progress.last_sizes)
        self.held += len(records)
        items = self._items(part, records, number, now, records if raw is None or self.lane_of is not key_of else raw)
        if raw is not None and raw is not records:
            for item, undecoded in zip(items, raw, strict=True):
                item.raw = undecoded
        if progress.recorded is not None:
            items = self._unknown(progress, items)
        self.lanes.receive(part, items)
        if progress.span >= LONG_SPAN:
            self._long.add(partition)

    def _items(self, part: Part, records: Sequence[Record], number: int, now: float, named_by: Sequence[Record]) -> list[Item]:
        lane_of = self.lane_of
        if lane_of is None or lane_of is key_of or lane_of is partition_of:  # cannot fail, and what they return has a hash
            lanes: Iterable[Hashable] = repeat(None) if lane_of is None else map(lane_of, named_by)
            return list(map(Item, repeat(part), lanes, records, count(number), repeat(now), repeat(now)))
        items = []
        for each, record in enumerate(records, number):
            lane: Hashable = None
            error: Exception | None = None
            try:
                lane = returned(lane_of(record), "order")
                hash(lane)
            except Exception as failure:  # the user's function, or what it returns has no hash: the record's failure, not ours
                lane, error = None, failure
            items.append(Item(part, lane, record, each, now, now, 1 if error is None else 0, error))
        return items

    def _unknown(self, progress: PartitionProgress, items: Sequence[Item]) -> list[Item]:
        """Return the records that an earlier owner has not done, and count the rest as done."""
        left = []
        for item in items:
            if progress.known(item.record.offset):
                progress.mark(item.number)
                progress.committed += 1
                self.held -= 1
            else:
                left.append(item)
        return left

    def receive_refused(
        self, partition: TopicPartition, record: Record, error: BaseException, now: float, topic_id: UUID | None = None
    ) -> None:
        """Take in a record that cannot be handed to a handler. ``topic_id``: see ``receive``."""
        part = self._part_for(partition, record.offset, topic_id)
        number = part.progress.receive((record,), now)
        self.held += 1
        if part.progress.known(record.offset):
            part.progress.mark(number)
            part.progress.committed += 1
            self.held -= 1
            return
        lane: Hashable = None
        if self.lane_of is not None and not self.one_set_of_lanes:
            lane = self.lane_of(record)
        self.lanes.receive(part, [Item(part, lane, record, number, now, now, 0, error)])

    def _part_for(self, partition: TopicPartition, offset: int, topic_id: UUID | None = None) -> Part:
        part = self.parts.get(partition)
        if part is None:  # assigned by the user, without a rebalance
            return self._begin(partition, PartitionProgress(partition), topic_id)
        part.topic_id = part.topic_id or topic_id
        if part.progress.follows(offset) and topic_id in (part.topic_id, None):
            return part
        # Sought back, truncated or created again: the records that come now are not those received before.
        # Handlers that still run for those keep their lanes, or a key would be handled twice at once.
        return self._begin_anew(part, topic_id or part.topic_id)

    def _begin_anew(self, part: Part, topic_id: UUID | None) -> Part:
        partition = part.progress.partition
        self.forget((partition,))
        begun = self._begin(partition, PartitionProgress(partition), topic_id, part.lanes)
        begun.earlier = tuple(each for each in (*part.earlier, part) if each.running)
        part.earlier = ()  # else each seek back while handlers run would keep all that came before
        return begun

    def still_to_do(self, partition: TopicPartition, offset: int, topic_id: UUID | None) -> int | None:
        """A log was cut off, and reading goes on at ``offset``. Return where to read on instead since not all before that is done:
        at the first record that is not. ``None``: all is done, or belongs to another topic.

        What is done behind that one is handled again: the map of it is about a log that is no more.
        """
        part = self.parts.get(partition)
        if part is None or topic_id not in (part.topic_id, None) or part.progress.follows(offset):
            return None
        oldest = part.progress.oldest
        if oldest is None or oldest[0] >= offset:
            return None
        self._begin_anew(part, part.topic_id)
        return oldest[0]

    def go_elsewhere(self, partition: TopicPartition) -> None:
        """The position was moved elsewhere while records were not due: they do not come next any more."""
        part, delays = self.parts.get(partition), self.lanes.delays
        if part is not None and delays is not None and delays.count(part):
            self._begin_anew(part, None)

    @property
    def load(self) -> int:
        """Records that take room: held, and not held up by a later attempt."""
        return self.held - self.lanes.held_up.records

    @property
    def most(self) -> int:
        """Records that may be held."""
        return self.room.records

    def _load_bytes(self) -> int:
        """Bytes of the records that take room."""
        return sum(part.progress.unfinished_bytes for part in self.parts.values()) - self.lanes.held_up.payload

    @property
    def full(self) -> bool:
        """What later attempts hold up has reached its limit."""
        return self.lanes.held_up.bytes >= MOST_HELD_UP

    def intake(self) -> Intake:
        """Return how many more records may be read, and from which partitions none.

        A partition may hold as many as there is room left, so that it cannot use up what the others need, and takes at most a
        quarter of all room at once. If all room is taken and nothing is ready (every record follows one that is being handled),
        partitions that hold none may have one each, so that handlers that never end keep no other partition waiting.
        What later attempts hold up takes no room. Once that has reached its own limit, partitions with some of it take no more.
        In bytes there may be less room than in records. How large records are is known once they have been received, so what was
        fetched ahead may come on top.
        """
        load = self.load
        free = self.room.limit(max(0, self.room.records - load), load, self._load_bytes)
        most = load + free
        if free <= 0:
            holding = {tp for tp, part in self.parts.items() if part.progress.unfinished}
            if self.lanes.some_ready or len(holding) == len(self.parts):
                return Intake(0, (), step_of(most), most)
            return Intake(1, holding, 1, most)
        if self._long:
            self._long = {tp for tp in self._long if self.parts[tp].progress.span >= LONG_SPAN}
        waiting = {tp for tp in self._long if self.parts[tp].progress.too_far(keep_done=self.commits_maps)}
        if self.full:
            waiting.update(tp for tp, part in self.parts.items() if part.held_up)
        if free <= load:  # otherwise no partition can hold that many
            waiting.update([tp for tp, part in self.parts.items() if part.progress.unfinished - part.held_up >= free])
        limit = free if len(self.parts) <= 1 else min(free, max(1, most // 4))
        if limit + load > MOST_AHEAD:  # hardly ever: all that is held, with what is read now
            limit = self._limited_ahead(limit, waiting)
        room = most
        for tp in waiting:
            part = self.parts[tp]
            room -= part.progress.unfinished - part.held_up
        return Intake(limit, waiting, step_of(room), most)

    def _limited_ahead(self, limit: int, waiting: set[TopicPartition]) -> int:
        """Return ``limit``, or as many as every partition may take without running too far ahead, whatever is done first."""
        for partition, part in self.parts.items():
            if partition not in waiting:
                room = MOST_AHEAD - part.progress.unfinished - part.progress.uncovered(keep_done=self.commits_maps)
                if room < min(limit, MOST_AHEAD // 10):
                    waiting.add(partition)
                else:
                    limit = min(limit, room)
        return min(limit, MOST_AHEAD)

    # --- handling --------------------------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Records that are being handled, of partitions that have left too."""
        return self._running_gone + sum(part.running for part in tuple(self.parts.values()))

    @property
    def take(self) -> Callable[[], Item | None]:
        """Returns the next record to handle. One of ``succeeded``, ``gave_up``, ``retry`` and ``interrupted`` must follow."""
        return self.lanes.take  # itself: this is called for each record

    @property
    def take_pack(self) -> Callable[[], Pack | None]:
        """Returns the next records to handle together."""
        return self.lanes.take_pack

    def is_open(self, unit: Unit) -> bool:
        """Whether a unit that was taken may still be handled. From any thread."""
        return all(item.part.live for item in unit.items)

    def succeeded(self, item: Item, now: float) -> None:
        """A record is done."""
        part = item.part
        part.running -= 1
        self.settled += 1
        if part.gone:
            self._running_gone -= 1
            self.late_results += 1
        else:
            part.progress.mark(item.number)
            self.held -= 1
        if item.lane is not None:
            self.lanes.release(item, now)

    def pack_succeeded(self, pack: Pack, now: float) -> None:
        """Records that were handled together are done."""
        lanes = self.lanes
        self.settled += len(pack.items)
        for item in pack.items:
            item.part.running -= 1
            if item.part.gone:
                self._running_gone -= 1
                self.late_results += 1
            else:
                item.part.progress.mark(item.number)
                self.held -= 1
            if item.lane is None:
                lanes.release(item, now)
        lanes.release(pack.items[0], now)

    def gave_up(self, unit: Unit, fate: Fate, now: float) -> None:
        """A unit is finished, whatever its handler did: for commits it is simply done."""
        if isinstance(unit, Item):
            self.succeeded(unit, now)
        else:
            self.pack_succeeded(unit, now)

    def split(self, pack: Pack, items: Collection[Item]) -> Pack:
        """Take these records out of a pack that is handled, as a unit of their own. The lane stays with the pack."""
        taken = set(items)
        pack.items = [item for item in pack.items if item not in taken]
        for item in items:
            item.lane = None
        return Pack(list(items), pack.attempt)

    def unhandled(self, pack: Pack, items: Collection[Item], now: float) -> None:
        """These records of a pack that is handled were not: they come again, after the pack if they are in its lane."""
        taken = set(items)
        pack.items = [item for item in pack.items if item not in taken]
        self._stop_running(Pack(list(items)))
        for item in items:
            item.waits_since = now
        self.lanes.hand_back(list(items))

    def retry(self, unit: Unit, due: float, now: float, *, counts: bool = True) -> bool:
        """Handle a failed unit again from ``due`` on.

        ``False``: its partition leaves, and another member will handle it.
        """
        if not all(item.part.live for item in unit.items):
            self.late_results += sum(item.part.gone for item in unit.items)
            self.interrupted(unit, now)
            return False
        self._stop_running(unit)
        unit.attempt += counts
        for item in unit.items:
            item.attempt = unit.attempt  # a pack may be broken up
        if due <= now:
            self._ready_again(unit, now)
        else:
            self._later.add(unit, due)
            self.lanes.hold_up(unit)
        return True

    def put_aside(self, unit: Unit, name: Hashable) -> None:
        """A unit that was taken is not handled until it is brought back. What is behind it in its lane waits with it."""
        self._stop_running(unit)
        self._later.put_aside(unit, name)
        self.lanes.hold_up(unit)

    @property
    def aside(self) -> Collection[Hashable]:
        """The names under which units were put aside."""
        return self._later.aside

    def bring_back(self, name: Hashable) -> bool:
        """Make the oldest unit that was put aside under a name the next one of its partition, and those of paused partitions before
        it. ``False``: there is none.
        """
        while (unit := self._later.bring_back(name)) is not None:
            self.lanes.go_on(unit)
            self.lanes.again(unit)
            if not unit.items[0].part.paused:
                return True
        return False

    def interrupted(self, unit: Unit, now: float) -> None:
        """A unit was interrupted. Those of its records that stay ours come first; the rest belong to another member."""
        self._stop_running(unit)
        if isinstance(unit, Pack) and all(item.part.live for item in unit.items):
            self.lanes.again(unit)
            return
        self.lanes.hand_back(unit.items[1:])
        self._release(unit.items[0], now)

    def _stop_running(self, unit: Unit) -> None:
        for item in unit.items:
            part = item.part
            part.running -= 1
            if part.gone:
                self._running_gone -= 1
            elif not part.live:
                self.held -= 1  # waiting records were subtracted when the partition began to leave

    # --- time ------------------------------------------------------------------------------------------------------------------

    @property
    def retrying(self) -> int:
        """Records that wait to be handled again."""
        return self._later.records

    @property
    def due_at(self) -> float | None:
        """When the next unit that waits for its time is ready; ``None`` if none waits."""
        return min((time for time in (self._later.due_at, self.lanes.due_at) if time is not None), default=None)

    def expire(self, now: float) -> bool:
        """Make ready the units whose time has come. Return whether any is ready."""
        for unit in self._later.take_due(now):
            self.lanes.go_on(unit)
            self._ready_again(unit, now)
        self.lanes.expire(now)
        return self.lanes.some_ready

    def _ready_again(self, unit: Unit, now: float) -> None:
        for item in unit.items:
            item.waits_since = now
        self.lanes.again(unit)

    # --- committing ------------------------------------------------------------------------------------------------------------

    @property
    def commits_maps(self) -> bool:
        """Whether a commit says what is done after its offset."""
        return self.keep_done and self._committed.with_maps

    def commit_without_maps(self) -> None:
        """Brokers do not take the map of done records, or there are no commits."""
        self._committed.with_maps = False

    def completed(
        self, partition: TopicPartition, position: OffsetAndMetadata | None, also: Sequence[Item] = ()
    ) -> OffsetAndMetadata | None:
        """Return what is done of a partition, for a program that keeps it; ``None``: nothing is known. Its metadata has all.

        ``position``: the next offset to read, as it was when the last records were received. ``also``: records to count as done.
        """
        return self._point(partition, position, also, fits=False, with_map=self.keep_done)

    def committable(self, partition: TopicPartition, position: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
        """As ``completed``, for a commit, which may have less metadata."""
        return self._point(partition, position, fits=True, with_map=self.commits_maps)

    def _point(
        self,
        partition: TopicPartition,
        position: OffsetAndMetadata | None,
        also: Sequence[Item] = (),
        *,
        fits: bool,
        with_map: bool,
    ) -> OffsetAndMetadata | None:
        part = self.parts.get(partition)
        if part is None:
            return None
        progress = part.progress
        numbers = [item.number for item in also if item.part is part]
        point = progress.point(position, numbers)
        some_ahead = progress.ahead + len(numbers) > 0 or progress.recorded is not None
        point = None if point is None else point.of(part.topic_id)
        if point is not None and with_map and some_ahead and (runs := progress.runs(numbers, point.offset)):
            return point._replace(metadata=encode(runs, part.topic_id, fits=fits))
        return point

    def to_commit(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata], only: Collection[TopicPartition] | None = None
    ) -> Offsets:
        """Return what may be committed and differs from what was committed last."""
        offsets: Offsets = {}
        for partition in tuple(self.parts) if only is None else only:
            point = self.committable(partition, positions.get(partition))
            last = self._committed.last.get(partition)
            if point is not None and (last is None or (last.offset, last.metadata) != (point.offset, point.metadata)):
                offsets[partition] = point
        return offsets

    def committed_at(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bool:
        """Whether this offset was committed last, perhaps with another map."""
        last = self._committed.last.get(partition)
        return last is not None and last.offset == offset.offset

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets were committed."""
        self._committed.last.update((tp, offset) for tp, offset in offsets.items() if tp in self.parts)

    # --- looking ---------------------------------------------------------------------------------------------------------------

    # Another thread may look, for its metrics, while this is changed: hence the copies, each made in one step.

    @property
    def done_ahead(self) -> int:
        """Records that are done although an earlier one is not, over all partitions."""
        return sum(part.progress.ahead for part in tuple(self.parts.values()))

    @property
    def far_ahead(self) -> int:
        """Partitions of which no more is read until their oldest record is done."""
        return sum(part.progress.too_far(keep_done=self.commits_maps) for part in tuple(self.parts.values()))

    @property
    def oldest(self) -> tuple[TopicPartition, int, float] | None:
        """Partition and offset of the record that has been unfinished the longest, and when it was received.

        Records of paused partitions are meant to wait, and so are those that are not due.
        """
        parts = tuple((tp, part) for tp, part in tuple(self.parts.items()) if not part.paused)
        found = ((tp, self._oldest_of(part)) for tp, part in parts if part.progress.unfinished)
        return min(((tp, *oldest) for tp, oldest in found if oldest is not None), key=lambda entry: entry[2], default=None)

    def _oldest_of(self, part: Part) -> tuple[int, float] | None:
        oldest, delays = part.progress.oldest, self.lanes.delays
        delayed = None if delays is None else delays.first(part)
        return None if oldest is None or (delayed is not None and delayed.record.offset <= oldest[0]) else oldest

    @property
    def open_lanes(self) -> int:
        """Lanes with records in them. Records that need no order are not counted."""
        if self.one_set_of_lanes:
            return len(self._shared)
        return sum(len(part.lanes) for part in tuple(self.parts.values()))

    def unfinished(self) -> Counter[TopicPartition]:
        """Return how many records of each partition are not done."""
        return Counter({tp: part.progress.unfinished for tp, part in self.parts.items() if part.progress.unfinished})
