"""The records of a share consumer that are processed: those that wait, are handled or are tried again.

It takes the place that ``Work`` has for other consumers. Nothing is committed here, and no order is kept, so all records wait in
one queue, the oldest lock first.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from math import inf
from typing import Any, Final

from ...model import TopicPartition
from ...values import define, field
from ..processing.attempts import LaterAttempts, Unit
from ..processing.capacity import Room, room
from ..processing.done import PartitionProgress
from ..processing.items import Item, Pack, Part
from ..processing.lanes import Lanes, size_of
from ..processing.queues import Fate
from ..processing.work import MOST_HELD_UP, Intake, step_of
from .record import ShareRecord

Record = ShareRecord[Any, Any]

_DONE: Final = Fate.DONE
"""Looked up once, since it is asked for with each record."""
_NOWHERE: Final = TopicPartition("", 0)


def _part() -> Part:
    return Part(PartitionProgress(_NOWHERE))


def _lost() -> Part:
    part = _part()
    part.live, part.gone = False, True
    return part


@define(eq=False)
class ShareWork:
    """The records that were received and are not settled."""

    room: Room = field(converter=room)
    """How much may be held."""
    lanes: Lanes
    give_back: Callable[[Record], None] = field(default=lambda record: record.release(), repr=False)
    """Releases a record whose handler failed for good, at once or later."""
    in_time: float = field(default=inf, init=False)
    """Records that handlers get to while the locks are young, those that are handled included; infinity: not known yet."""
    held: int = field(default=0, init=False)
    """Records that are ours and not settled."""
    running: int = field(default=0, init=False)
    settled: int = field(default=0, init=False)
    late_results: int = field(default=0, init=False)
    """Records whose handler ended after their lock."""
    stuck: bool = field(default=False, init=False)
    """No handler has begun or ended for so long that the waiting records were released."""
    _progressed: tuple[tuple[int, int], float] = field(default=((0, 0), 0.0), init=False)
    """What handlers had settled, and how many ran, when that was last looked at, and since when it has been the same."""
    _items: dict[Record, Item] = field(factory=dict, init=False)
    """Held records in the order in which they came."""
    _later: LaterAttempts = field(factory=LaterAttempts, init=False)
    _part: Part = field(factory=_part, init=False)
    """The part of every item whose record is ours."""
    _lost: Part = field(factory=_lost, init=False)
    """The part of items whose records are no longer ours."""

    # --- receiving -------------------------------------------------------------------------------------------------------------

    def receive(
        self,
        partition: TopicPartition,
        records: Sequence[Any],
        now: float,
        raw: Sequence[Any] | None = None,
        topic_id: object = None,
    ) -> None:
        """Take in records. ``raw``: as they were before deserializers."""
        items = [Item(self._part, None, record, 0, now, now) for record in records]
        if raw is not None and raw is not records:
            for item, undecoded in zip(items, raw, strict=True):
                item.raw = undecoded
        self._items.update(zip(records, items, strict=True))
        self.held += len(items)
        self.room.receive([size_of(record) for record in records])
        self.lanes.add_all(items)

    def receive_refused(
        self, partition: TopicPartition, record: Any, error: BaseException, now: float, topic_id: object = None
    ) -> None:
        """Take in a record that cannot be handed to a handler."""
        item = Item(self._part, None, record, 0, now, now, 0, error)
        self._items[record] = item
        self.held += 1
        self.lanes.add(item)

    def intake(self) -> Intake:
        """Return how many more records may be read.

        Where handlers are slow, that is as many as they get to in time. What waits for longer than its lock lasts is given back,
        and a record on which that happens often has no delivery left. A read for each record that is done is no effort then.
        """
        load, slow = self.load, self.in_time < self.most
        wanted = max(0, int(min(self.most, self.in_time)) - load)
        free = self.room.limit(wanted, load, self._load_bytes)
        return Intake(0 if self.full else free, (), 1 if slow else step_of(load + free), load + free)

    @property
    def most(self) -> int:
        """Records that may be held."""
        return self.room.records

    def _load_bytes(self) -> int:
        """Bytes of the records that take room."""
        return sum(size_of(item.record) for item in self._items.values() if not item.held_up)

    @property
    def load(self) -> int:
        """Records that take room: held, and not waiting for a later attempt."""
        return self.held - self.lanes.held_up.records

    @property
    def full(self) -> bool:
        """What waits for later attempts has reached its limit."""
        return self.lanes.held_up.bytes >= MOST_HELD_UP

    def lose(self, record: Record) -> bool:
        """A lock has ended: another member gets the record. Return whether it was held here."""
        item = self._items.pop(record, None)
        if item is None:
            return False
        self.lanes.go_on(item)
        item.part = self._lost
        self.held -= 1
        return True

    # --- handling --------------------------------------------------------------------------------------------------------------

    def take(self) -> Item | None:
        """Return the next record to handle."""
        while True:
            unit: Unit | None = self.lanes.take()
            if unit is None:
                return None
            if isinstance(unit, Item) and self._is_open(unit):
                self.running += 1
                return unit

    def take_pack(self) -> Pack | None:
        """Return the next records to handle together."""
        while True:
            pack = self.lanes.take_pack()
            if pack is None:
                return None
            pack.items = [item for item in pack.items if self._is_open(item)]
            if pack.items:
                self.running += len(pack.items)
                return pack

    def _is_open(self, item: Item) -> bool:
        """Whether the record still has to be acknowledged. Code that kept it may have done so."""
        if not item.part.live:
            return False
        record: Any = item.record
        if record._said is None:
            return True
        self._remove(item)
        return False

    def is_open(self, unit: Unit) -> bool:
        """Whether all records of a unit that was taken still have to be acknowledged. From any thread."""
        for item in unit.items:
            record: Any = item.record
            if not item.part.live or record._said is not None:
                return False
        return True

    def _remove(self, item: Item) -> None:
        if self._items.pop(item.record, None) is not None:  # type: ignore[call-overload]  # a ShareRecord
            self.held -= 1

    def succeeded(self, item: Item, now: float) -> None:
        """A handler has returned: the record is accepted, unless the handler has acknowledged it otherwise."""
        self._end(item, _DONE)

    def pack_succeeded(self, pack: Pack, now: float) -> None:
        """As ``succeeded``, for records that were handled together."""
        for item in pack.items:
            self._end(item, _DONE)

    def gave_up(self, unit: Unit, fate: Fate, now: float) -> None:
        """A unit is over, though its handler has not returned.

        What is released at once comes back at once: a dependency that is down for a few seconds would cost a record all of its
        deliveries.
        """
        for item in unit.items:
            self._end(item, fate)

    def _end(self, item: Item, fate: Fate) -> None:
        self.running -= 1
        self.settled += 1
        if item.part.gone:
            self.late_results += 1
            return
        self._remove(item)
        record: Any = item.record
        if record._said is not None:
            return
        if fate is _DONE:
            record.accept()
        elif fate is Fate.REFUSED:
            record.reject()
        else:
            self.give_back(record)

    def split(self, pack: Pack, items: Collection[Item]) -> Pack:
        """Take these records out of a pack that is handled, as a unit of their own."""
        taken = set(items)
        pack.items = [item for item in pack.items if item not in taken]
        return Pack(list(items), pack.attempt)

    def unhandled(self, pack: Pack, items: Collection[Item], now: float) -> None:
        """These records of a pack that is handled were not: they come again."""
        taken = set(items)
        pack.items = [item for item in pack.items if item not in taken]
        for item in items:
            item.waits_since = now
            self.interrupted(item, now)

    def retry(self, unit: Unit, due: float, now: float, *, counts: bool = True) -> bool:
        """Handle a failed unit again from ``due`` on; its locks are renewed meanwhile. ``False``: it is no longer ours."""
        self.running -= len(unit.items)
        if not self._keep_open(unit):
            return False
        for item in unit.items:
            item.attempt += counts
        if isinstance(unit, Pack):
            unit.attempt += counts
        self._later.add(unit, due)
        self.lanes.hold_up(unit)
        return True

    def put_aside(self, unit: Unit, name: Hashable) -> None:
        """A unit that was taken is not handled until it is brought back; its locks are renewed meanwhile."""
        self.running -= len(unit.items)
        self._later.put_aside(unit, name)
        self.lanes.hold_up(unit)

    @property
    def aside(self) -> Collection[Hashable]:
        """The names under which units were put aside."""
        return self._later.aside

    def bring_back(self, name: Hashable) -> bool:
        """Make the oldest unit that was put aside under a name, and is still ours, the next one. ``False``: there is none."""
        while (unit := self._later.bring_back(name)) is not None:
            self.lanes.go_on(unit)
            if self._keep_open(unit):
                self.lanes.again(unit)
                return True
        return False

    def interrupted(self, unit: Unit, now: float) -> None:
        """A unit was interrupted. Those of its records that are still ours come first."""
        self.running -= len(unit.items)
        if self._keep_open(unit):
            self.lanes.again(unit)

    def _keep_open(self, unit: Unit) -> bool:
        """Leave out records that are lost or acknowledged; return whether any is left."""
        items = [item for item in unit.items if self._is_open(item)]
        if isinstance(unit, Pack):
            unit.items = items
        return bool(items)

    def waiting(self, running: Collection[Record], since: float) -> list[Record]:
        """Return the records that came up to ``since`` and that no handler has begun, given those that are ``running``."""
        return [
            record for record, item in self._items.items() if item.attempt <= 1 and item.arrived <= since and record not in running
        ]

    def stuck_since(self, now: float) -> float | None:
        """Return since when no handler has begun or ended although there is something to do; ``None``: that is not so."""
        progress, since = self._progressed
        if (self.settled, self.running) != progress or not (self.lanes.some_ready or self.stuck):
            self._progressed, self.stuck = ((self.settled, self.running), now), False
            return None
        return since

    @property
    def left(self) -> list[Record]:
        """Records that are ours and not settled, whether they wait or are handled."""
        return list(self._items)

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
            if self._keep_open(unit):
                for item in unit.items:
                    item.waits_since = now
                self.lanes.again(unit)
        self.lanes.expire(now)
        return self.lanes.some_ready

    # --- looking ---------------------------------------------------------------------------------------------------------------

    @property
    def oldest(self) -> tuple[TopicPartition, int, float] | None:
        """Partition and offset of the record that has been held the longest, and when it was received."""
        item = next(iter(tuple(self._items.items())), None)  # a copy, since another thread may look
        return None if item is None else (item[0].topic_partition, item[0].offset, item[1].arrived)
